"""Worker processes for tests: started here, or as a cluster of its own that tests may break."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(kind: str, *words: str, path: Path = ROOT, **environment: str) -> subprocess.Popen[bytes]:
    """A Dask scheduler or worker, with its own code path."""
    command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *words, "--dashboard-address"]
    command.append("127.0.0.1:0")
    env = {**os.environ, "PYTHONPATH": str(path), **environment}
    return subprocess.Popen(command, env=env, cwd=path, stderr=subprocess.DEVNULL)


def end(*processes: subprocess.Popen[bytes]) -> None:
    """End them, and wait until they have."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until_it_listens(port: int, seconds: float = 300) -> None:
    """Return when something answers at a port of loopback, however busy the machine is."""
    limit = time.monotonic() + seconds
    while True:
        with socket.socket() as asking:
            if not asking.connect_ex(("127.0.0.1", port)):
                return
        assert time.monotonic() < limit
        time.sleep(0.02)


@contextmanager
def cluster(
    *words: str, workers: int = 1, path: Path = ROOT, **environment: str
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a scheduler with workers of one thread, and the scheduler's process."""
    port = free_port()
    # one death is enough where a test wants all workers dead
    strict = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    scheduler = start("scheduler", "--port", str(port), "--host", "127.0.0.1", **strict)
    address = f"tcp://127.0.0.1:{port}"
    until_it_listens(port)
    worker = ("--nworkers", str(workers), "--nthreads", "1", *words)
    processes = start("worker", address, *worker, path=path, **environment)
    try:
        yield address, scheduler
    finally:
        end(processes, scheduler)


def wait_for(path: Path, seconds: float = 300) -> None:
    """Until a file is there."""
    limit = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < limit, f"{path} did not come"
        time.sleep(0.02)
