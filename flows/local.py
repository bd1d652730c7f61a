"""A Prefect server, a work pool and a worker of this folder's own, on this machine.

    python -m flows.local up [--port 4200]
    python -m flows.local down

`up` deploys what prefect.yaml says. The server listens on the loopback address only. Its database,
the logs and the list of what `down` has to stop are in PREFECT_HOME (`.prefect` of this folder);
flows that are started here find the server by that list.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from flows.settings import POOL, STATE, home
from pipeline.core.errors import AdaCalibError, ToolError
from pipeline.core.files import read_json, write_json

HOST = "127.0.0.1"
PARTS = ("worker", "server")  # in the order in which they are stopped
START_SECONDS = 180
STOP_SECONDS = 30


def up(port: int) -> str:
    """Start a server and a worker, deploy, and return a sentence with the server's address.

    Where one of the two has died, the other is stopped first: both begin anew, with what the
    database knows. Runs of which no process is left end as crashed.

    Raises:
        ToolError: it is up already, the port is taken, or a part did not start; whatever this call
            started is stopped again.
    """
    state = _state()
    alive = [name for name, entry in state["processes"].items() if _process(entry)]
    if len(alive) == len(PARTS):
        raise ToolError(f"already up at {state['url']}; make down stops it, then make up again")
    if alive:
        down()
    url, known = f"http://{HOST}:{port}", (home() / "prefect.db").exists()
    _refuse_taken(port)
    write_json(home() / STATE, {"url": url, "processes": {}})
    environment = {**os.environ, "PREFECT_API_URL": f"{url}/api"}
    environment.pop("ADACALIB_HOME", None)  # what is set while deploying would be stored
    try:
        listen = ("--host", HOST, "--port", port, "--log-level", "WARNING")
        server = _start("server", environment, "server", "start", *listen)
        await_part("server", lambda: _alive(server), lambda: ask(f"{url}/api/health"))
        await_part("server", lambda: _alive(server), lambda: _pool(f"{url}/api/work_pools/"))
        _run(environment, "prefect", "--no-prompt", "deploy", "--all")
        if known:
            _run(environment, "flows.orphaned_runs")
        environment["ADACALIB_HOME"] = str(Path.cwd())
        name = f"{POOL} {server.pid}"
        serve = ("--pool", POOL, "--type", "process", "--name", name)
        worker = _start("worker", environment, "worker", "start", *serve)
        workers = f"{url}/api/work_pools/{POOL}/workers/filter"
        await_part("worker", lambda: _alive(worker), lambda: name in _names(ask(workers, b"{}")))
    except BaseException:
        down()
        raise
    return (
        f"Prefect is at {url}, a worker serves the pool {POOL!r}; logs are in {home()}; "
        f"for the prefect command: export PREFECT_API_URL={url}/api"
    )


def down() -> str:
    """Stop exactly what `up` started, the worker first, and return a sentence that says so.

    A run at work has half a minute to end; then it is stopped, and the next refresh recovers.
    """
    processes = _state()["processes"]
    stopped = [name for name in PARTS if _stop(processes.get(name))]
    (home() / STATE).unlink(missing_ok=True)
    return f"stopped: {', '.join(stopped)}" if stopped else "nothing was up"


def _state() -> dict[str, Any]:
    """What `up` noted: the server's address, and for each process its id and when it began."""
    path = home() / STATE
    return read_json(path) if path.exists() else {"url": None, "processes": {}}


def _process(entry: dict[str, Any] | None) -> psutil.Process | None:
    """The process of an entry, or None where it has ended (its id may be another's by now)."""
    if entry is None:
        return None
    try:
        process = psutil.Process(entry["id"])
    except psutil.NoSuchProcess:
        return None
    return process if abs(process.create_time() - entry["began"]) < 1 else None


def _refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ToolError(
                f"port {port} of {HOST} cannot be used ({error.strerror}); choose another: "
                "make up PORT=4300"
            ) from None


def _start(name: str, environment: dict[str, str], *arguments: str | int) -> psutil.Process:
    """Start a prefect command that goes on, in a session of its own, and note it for `down`."""
    with (home() / f"{name}.log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "prefect", *map(str, arguments)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    process = psutil.Process(child.pid)
    state = _state()
    state["processes"][name] = {"id": child.pid, "began": process.create_time()}
    write_json(home() / STATE, state)
    return process


def ask(url: str, body: bytes | None = None) -> Any:
    """What the server answers; None as long as it does not."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)
    except OSError:
        return None


def _pool(url: str) -> Any:
    """The work pool, made where it is missing; its worker fills in how a process is started."""
    made = json.dumps({"name": POOL, "type": "process"}).encode()
    return ask(f"{url}{POOL}") or ask(url, made)


def _names(workers: list[dict[str, Any]] | None) -> list[str]:
    return [worker["name"] for worker in workers or []]


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def await_part(name: str, alive: Callable[[], bool], ready: Callable[[], Any]) -> None:
    """Wait until `ready` says something, as long as the part lives.

    Raises:
        ToolError: it has ended, or it takes too long.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if ready():
            return
        if not alive():
            break
        time.sleep(0.2)
    raise ToolError(f"the Prefect {name} did not start; see its last words in {home()}/{name}.log")


def _run(environment: dict[str, str], module: str, *arguments: str) -> None:
    """Run a module to its end; where it fails, what it said last is in the sentence."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        check=False,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        said = " ".join((done.stdout + done.stderr).split())[-500:]
        raise ToolError(f"{' '.join([module, *arguments])} failed: {said}")


def _stop(entry: dict[str, Any] | None) -> bool:
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


def main() -> None:
    """Run the command line; a failure is one sentence on stderr and exit code 1."""
    parser = argparse.ArgumentParser(prog="python -m flows.local", description=__doc__)
    parser.add_argument("action", choices=["up", "down"])
    parser.add_argument("--port", type=int, default=4200)
    arguments = parser.parse_args()
    # A shell starts what it puts in the background with interrupts ignored; children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        print(up(arguments.port) if arguments.action == "up" else down())
    except AdaCalibError as error:
        sys.exit(f"{arguments.action}: {error}")


if __name__ == "__main__":
    main()
