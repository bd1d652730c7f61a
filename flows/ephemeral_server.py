"""A Prefect server for the time of a run, where none is named."""

import atexit
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.local import HOST, STOP_SECONDS, ask, await_part
from flows.settings import home
from pipeline.registry.tools.programs import run_leashed

NOTHING_SCHEDULED = ("--no-scheduler", "--no-late-runs")


@contextmanager
def some_server() -> Iterator[None]:
    """The server that is named, else one for the time of a run.

    Prefect would start one of its own, which outlives a run that is killed. This one is leashed.

    Raises:
        ToolError: it did not start.
    """
    if PREFECT_API_URL.value():
        yield
        return
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    api = f"http://{HOST}:{port}/api"
    listen = ["--host", HOST, "--port", str(port), "--log-level", "CRITICAL", "--no-ui"]
    command = [sys.executable, "-m", "prefect", "server", "start", *listen, *NOTHING_SCHEDULED]
    server = threading.Thread(target=_serve, args=(command,), daemon=True)
    server.start()
    atexit.register(_end_serving, command, server)  # after what Prefect itself sends at the end
    await_part("server", server.is_alive, lambda: ask(f"{api}/health"))
    with temporary_settings({PREFECT_API_URL: api}):
        yield


def _serve(command: list[str]) -> None:
    with (home() / "server.log").open("w", buffering=1) as log:
        run_leashed(command, Path(), lambda line: print(line, file=log))


def _end_serving(command: list[str], server: threading.Thread) -> None:
    """Let the server keep what it has in memory, then end."""
    for process in psutil.Process().children(recursive=True):
        if process.cmdline()[1:] == command[1:]:
            process.send_signal(signal.SIGINT)
    server.join(STOP_SECONDS)
