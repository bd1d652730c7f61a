"""A service in processes of its own, and a client of it."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from time import sleep
from typing import TypeVar

import httpx
import psutil

from pipeline.core.files import publish
from tests.checkpoint.parts import rows
from tests.serving.conftest import free_port

T = TypeVar("T")
BODY = {"columns": rows(8).select(["carrier", "origin", "distance"]).to_pydict()}
LOOKS = 20_000  # for something that comes in a few seconds, before a test gives up


def _answers(process: psutil.Process) -> bool:
    try:  # it may end while it is looked at
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return "spawn_main" in " ".join(process.cmdline())  # not the parent's, before it is begun
    except psutil.NoSuchProcess:
        return False


def until(condition: Callable[[], T], process: subprocess.Popen[str]) -> T:
    """What a condition says as soon as that is true, while a process lives."""
    for _ in range(LOOKS):
        if said := condition():
            return said
        assert process.poll() is None
        sleep(0.02)
    raise AssertionError("it has not come true")


@dataclass
class Service:
    """`adacalib serve` while it runs.

    Attributes:
        process: its parent process.
        client: of it.
        lines: what it has said so far.
    """

    process: subprocess.Popen[str]
    client: httpx.Client
    lines: list[str] = field(default_factory=list)

    def workers(self) -> list[psutil.Process]:
        """The processes that answer."""
        found = psutil.Process(self.process.pid).children()
        return [process for process in found if _answers(process)]

    def said(self, word: str, times: int = 1) -> str:
        """The last line that has `word`, when there are so many of them."""
        until(lambda: sum(word in line for line in self.lines) >= times, self.process)
        return next(line for line in reversed(self.lines) if word in line)


HERE = (sys.executable, "-m", "pipeline.cli.main")


def changed(*lines: str) -> Sequence[str]:
    """What runs `adacalib` after lines of Python that change the parent of a service."""
    modules = "from pipeline.cli.main import main", "from pipeline.serving import state, workers"
    return sys.executable, "-c", "\n".join([*modules, *lines, "main()"])


@contextmanager
def served(model: Path, *options: object, adacalib: Sequence[str] = HERE) -> Iterator[Service]:
    """A service of a folder, after it said that it listens."""
    port = free_port()
    words = ["serve", "--model", str(model), "--port", str(port), *map(str, options)]
    with (
        subprocess.Popen([*adacalib, *words], stderr=subprocess.PIPE, text=True) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client,
    ):
        service = Service(process, client)
        reader = Thread(target=lambda: service.lines.extend(process.stderr), daemon=True)
        reader.start()
        try:
            service.said(" at http://")
            yield service
        finally:
            process.terminate()
            process.wait()
            reader.join()


def promote(version: Path, folder: Path) -> None:
    """Put a version where the service looks, the way a promotion does."""
    with publish(folder) as temporary:
        shutil.copytree(version, temporary)


@contextmanager
def load_on(address, clients=3):
    """Answers, and the errors of connections, that clients get while the block runs.

    They leave a part of the machine to the workers that are loaded, which have a low priority.
    """
    answers, errors, stop = [], [], Event()

    def ask():
        with httpx.Client(base_url=address, timeout=120) as own:
            while not stop.is_set():
                try:
                    answers.append(own.post("/score", json=BODY))
                except httpx.TransportError as error:
                    errors.append(error)
                stop.wait(0.02)

    askers = [Thread(target=ask) for _ in range(clients)]
    for asker in askers:
        asker.start()
    try:
        yield answers, errors
    finally:
        stop.set()
        for asker in askers:
            asker.join()
