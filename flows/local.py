"""Prefect on this machine: a server and a worker of this folder's own, or a server for one run.

    python -m flows.local up [--port 4200]
    python -m flows.local down

`up` deploys what prefect.yaml says. The server listens on the loopback address only. Its database,
the logs and the list of what `down` has to stop are in PREFECT_HOME (`.prefect` of this folder);
flows that are started here find the server by that list.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Literal

import psutil
import typer

from flows.settings import POOL, STATE, home
from pipeline.core.errors import AdaCalibError, ToolError, masked, refuse_secrets
from pipeline.core.files import make_folder, read_json, write_json
from pipeline.core.signals import deaf_children
from pipeline.core.typed_yaml import read_keys
from pipeline.params.params_file import read_params
from pipeline.registry.tools.programs import hold, process_group, run_program
from pipeline.serving.workers import listening

HOST = "127.0.0.1"
PARTS = ("worker", "server")  # in the order in which they are stopped
START_SECONDS = 180
PATIENCE = 900  # seconds to wait for others that start a server in the same home
STOP_SECONDS = 30
AT_WORK = ["PENDING", "RUNNING", "CANCELLING"]


def up(port: int) -> str:
    """Start a server and a worker, deploy, and return a sentence with the server's address.

    Where one of the two has died, the other is stopped first: both begin again, with what the
    database knows. Runs of which no process is left end as crashed.

    Raises:
        ToolError: it is up already, the port is taken, or a part did not start; whatever this call
            started is stopped again.
        AdaCalibError: prefect.yaml cannot be read, or a parameter there holds a secret.
    """
    state = _state()
    alive = [name for name, entry in state["processes"].items() if _process(entry)]
    if len(alive) == len(PARTS):
        raise ToolError(f"already up at {state['url']}; make down stops it, then make up again")
    if alive:
        down()
    try:
        listening(HOST, port).close()
    except ToolError as error:
        raise ToolError(f"{error}: make up PORT=4300") from None
    for deployed in read_keys(Path("prefect.yaml"), ToolError).get("deployments") or []:
        refuse_secrets((deployed.get("parameters") or {}).values())
    url = f"http://{HOST}:{port}"
    write_json(home() / STATE, {"url": url, "processes": {}})
    os.environ.pop("ADACALIB_HOME", None)  # what is set while deploying would be stored
    os.environ |= {
        "PREFECT_API_URL": f"{url}/api",
        "ADACALIB_TIME_ZONE": read_params().log.time_zone,
    }
    try:
        listen = ("--host", HOST, "--port", str(port), "--log-level", "WARNING")
        with _first_start():
            server = _start("server", "start", *listen)
            _await_part("server", server.poll, lambda: _ask(f"{url}/api/health"), _log("server"))
        end_orphaned_runs(f"{url}/api")
        name = f"{POOL} {server.pid}"
        serve = ("--pool", POOL, "--type", "process", "--name", name)  # which makes the pool, too
        worker = _start("worker", "start", *serve, ADACALIB_HOME=str(Path.cwd()))
        workers = f"{url}/api/work_pools/{POOL}/workers/filter"
        _await_part("worker", worker.poll, lambda: name in str(_ask(workers, {})), _log("worker"))
        deploy = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
        done = run_program(deploy, Path())
        if done.code:
            last = " ".join(done.output.split())[-500:]
            raise ToolError(f"prefect deploy failed: {last}")
    except BaseException:
        down()
        raise
    return (
        f"Prefect is at {url}, a worker serves the pool {POOL!r}; logs are in {home()}; "
        f"for the prefect command: export PREFECT_API_URL={url}/api PREFECT_HOME={home()}"
    )


def down() -> str:
    """Stop exactly what `up` started, the worker first, and return a sentence that says so.

    A run at work has half a minute to end; then it is stopped, and the next refresh recovers.
    """
    processes = _state()["processes"]
    stopped = [name for name in PARTS if name in processes and _stop(processes[name])]
    (home() / STATE).unlink(missing_ok=True)
    return f"stopped: {', '.join(stopped)}" if stopped else "nothing was up"


def _state() -> dict[str, Any]:
    """What `up` noted: the server's address, and for each process its id and when it began."""
    path = home() / STATE
    return read_json(path) if path.exists() else {"url": None, "processes": {}}


def _process(entry: dict[str, Any]) -> psutil.Process | None:
    """The process of an entry, or None where it has ended (its id may be another's by now)."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(entry["id"])
        if abs(process.create_time() - entry["began"]) < 1:
            return process
    return None


def _log(name: str) -> Path:
    return home() / f"{name}.log"


def _first_start() -> AbstractContextManager[None]:
    """Start one server at a time: a second one would find the database half made by the first.

    Raises:
        ToolError: another start takes too long.
        OSError: no file can be made in home().
    """
    make_folder(home())
    report = partial(print, file=sys.stderr)
    return hold(home() / "start.lock", "the start of a server", str(home()), PATIENCE, report)


def _start(name: str, *arguments: str, **variables: str) -> "subprocess.Popen[bytes]":
    """Start `prefect NAME …`, which goes on, in a session of its own, and note it for `down`."""
    with _log(name).open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "prefect", name, *arguments],
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    state = _state()
    began = psutil.Process(child.pid).create_time()
    state["processes"][name] = {"id": child.pid, "began": began}
    write_json(home() / STATE, state)
    return child


def _ask(url: str, query: dict[str, Any] | None = None) -> Any:
    """What the server answers; None as long as it does not."""
    body = None if query is None else json.dumps(query).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with suppress(OSError), urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)
    return None


def _await_part(name: str, ended: Callable[[], Any], ready: Callable[[], Any], log: Path) -> None:
    """Wait until `ready` says something, as long as the part lives; `log` has what it writes.

    Raises:
        ToolError: it has ended, or it takes too long.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if ready():
            return
        if ended() is not None:
            break
        time.sleep(0.2)
    last = " ".join(log.read_text(errors="replace").split())[-500:] or "nothing"
    raise ToolError(f"the Prefect {name} did not start; the last that it wrote: {masked(last)}")


def _stop(entry: dict[str, Any]) -> bool:
    """Interrupt a process, wait, then kill what is left of it and its children; was it there?"""
    process = _process(entry)
    if process is None:
        return False
    family = [process, *process.children(recursive=True)]
    process.send_signal(signal.SIGINT)
    _, left = psutil.wait_procs(family, timeout=STOP_SECONDS)
    for straggler in left:
        straggler.kill()
    psutil.wait_procs(left, timeout=STOP_SECONDS)
    return True


def end_orphaned_runs(api: str) -> None:
    """Let runs of the pool that are at work, but of which no process is left, end as crashed.

    They were killed with their worker or server. Nobody else would say that they have ended, and
    their turn is kept for minutes after a run was last heard of.
    """
    query = {
        "flow_runs": {"state": {"type": {"any_": AT_WORK}}},
        "work_pools": {"name": {"any_": [POOL]}},
    }
    alive = set()  # what Prefect's runner has started and has not ended
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has ended, or it is another user's
            if " ".join(process.cmdline()[1:3]).startswith("-m prefect."):
                alive.add(process.environ().get("PREFECT__FLOW_RUN_ID"))
    for run in _ask(f"{api}/flow_runs/filter", query) or []:
        if run["id"] not in alive:
            killed = {"type": "CRASHED", "message": "nothing of it is left: it was killed"}
            _ask(f"{api}/flow_runs/{run['id']}/set_state", {"state": killed})


@contextmanager
def some_server() -> Iterator[None]:
    """The server that is named, else an ephemeral one for the time of a run.

    Prefect would start one of its own, which outlives a run that is killed; this one does not.

    Raises:
        AdaCalibError: it did not start; the sentence has its last words.
    """
    from prefect.settings import PREFECT_API_URL, temporary_settings

    if PREFECT_API_URL.value():
        yield
        return
    with listening(HOST, 0) as probe:
        port = probe.getsockname()[1]
    listen = ["--host", HOST, "--port", str(port), "--log-level", "CRITICAL", "--no-ui"]
    quiet = ["--no-scheduler", "--no-late-runs"]
    command = [sys.executable, "-m", "prefect", "server", "start", *listen, *quiet]
    ending = ExitStack()
    atexit.register(ending.close)  # after what Prefect itself sends at the end
    with _first_start():
        log = NamedTemporaryFile("w", dir=home(), prefix="server-")  # noqa: SIM115
        ending.enter_context(log)
        with deaf_children():  # this run says in what it ends, and then ends its server
            server = ending.enter_context(process_group(command, Path(), log.file))
        ending.callback(_end, server)
        health = f"http://{HOST}:{port}/api/health"
        _await_part("server", server.poll, lambda: _ask(health), Path(log.name))
    with temporary_settings({PREFECT_API_URL: f"http://{HOST}:{port}/api"}):
        yield


def _end(server: "subprocess.Popen[str]") -> None:
    """Let the server keep what it has in memory, then end; a signal ends it at once."""
    with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        server.send_signal(signal.SIGINT)
        server.wait(STOP_SECONDS)


def main(action: Literal["up", "down"], port: int = 4200) -> None:
    """Start or stop Prefect on this machine; a failure is one sentence on stderr and code 1."""
    # A shell starts what it puts in the background with interrupts ignored; children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        print(up(port) if action == "up" else down())
    except (AdaCalibError, OSError) as error:
        sys.exit(f"{action}: {error}")


if __name__ == "__main__":
    typer.run(main)
