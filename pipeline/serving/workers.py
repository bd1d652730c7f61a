"""A version is a process: uvicorn's own workers, each with the model that the folder had then.

uvicorn replaces a worker that was killed or hangs, and on a restart has the new one ready before
the old one is asked to leave. A new version is a restart.

The address a service listens on, or one sentence why it cannot.
"""

import gc
import logging
import multiprocessing
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from uvicorn import Config
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from pipeline.core.errors import AdaCalibError, ArtifactError, ToolError
from pipeline.core.files import MANIFEST, scratch_folder
from pipeline.core.signals import ENDING
from pipeline.serving.connections import WorkerProtocol, hold_connections
from pipeline.serving.state import RequestLimits, ServiceState, Swaps

BACKLOG = 2048  # connections that wait to be accepted


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; who connects before it is served waits.

    Raises:
        ToolError: the address is in use, is not this machine's, or is not ours to take.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        place = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        why = str(error.strerror).partition(" (")[0]
        raise ToolError(
            f"port {port} of {host} cannot be listened on ({why}); choose another --port or --host"
        ) from None
    # What it accepts has this, too: else answers on a kept connection wait for delayed
    # acknowledgements, 44 ms instead of 0.5.
    place.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return place


LOAD_SECONDS = 120  # a version that is not ready by then is refused; so is a worker that hangs
LEAVE_SECONDS = 30  # what a process has begun may take so long then
CONNECTIONS = "connections"  # where in their folder processes hand them over
BACKGROUND = 10  # niceness of loading beside requests
Signature = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True)
class ServedFolder:
    """What a worker makes its calls of, in its own process.

    Attributes:
        folder: a checkpoint with its exports.
        limits: of a request.
        state: what the workers share.
        shadow: a checkpoint that sees every request and does not answer; None: none.
        shadow_limit: in calibrated logit; what differs more is counted.
    """

    folder: Path
    limits: RequestLimits
    state: ServiceState
    shadow: Path | None
    shadow_limit: float

    def __call__(self) -> Any:
        """The calls of the folder's model, which was loaded at low priority.

        Raises:
            SystemExit: there is no whole model in the folder; the state says why.
        """
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a lost terminal's: the parent says when
        threading.Thread(target=_leave_with_parent, daemon=True).start()
        WorkerProtocol.join(self.state.folder / CONNECTIONS)
        with ThreadPoolExecutor(1, initializer=os.nice, initargs=(BACKGROUND,)) as background:
            try:
                return background.submit(self._app).result()
            except (AdaCalibError, OSError) as error:
                with suppress(OSError):
                    self.state.loaded(refused=str(error))
        raise SystemExit(1)

    def _app(self) -> Any:
        from pipeline.serving.app import make_app  # takes a while, so at low priority, too
        from pipeline.serving.predictor import load
        from pipeline.serving.shadow import Shadow

        predictor, state, shadow = load(self.folder), self.state.seated(), None
        if self.shadow:
            try:
                shadow = Shadow(load(self.shadow), predictor, state, self.shadow_limit)
            except (AdaCalibError, OSError) as error:  # which keeps nobody from being served
                logging.getLogger("uvicorn.error").error("the shadow is not loaded: %s", error)
                state = replace(state, shadow_refusal=str(error))
        app = make_app(predictor, self.limits, state, shadow)
        gc.collect()
        gc.freeze()  # what was loaded is never garbage, and looking through it takes a while
        self.state.loaded(version=predictor.version)
        return app

    def signature(self) -> Signature:
        """What the folders are known by; empty while the one that is served is moved."""
        served = _signature(self.folder)
        return served + _signature(self.shadow) if served and self.shadow else served


class _Asked(threading.Event):
    """Set as soon as a signal has come that ends the service, also while a version is loaded."""

    def __init__(self, came: list[int]) -> None:
        super().__init__()
        self._came = came

    def is_set(self) -> bool:
        return super().is_set() or not {*ENDING}.isdisjoint(self._came)


def _leave_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


class ServingProcesses(Multiprocess):
    """The workers of a folder that is watched."""

    handle_hup = Multiprocess.handle_term  # a newer version needs no signal

    def __init__(
        self,
        config: Config,
        place: socket.socket,
        served: ServedFolder,
        report: Callable[[str], None],
    ) -> None:
        """Workers that are yet to be run."""
        ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # as nohup has it
        super().__init__(config, [place])
        if ignored:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.should_exit = _Asked(self.signal_queue)
        host, port = place.getsockname()[:2]
        self._address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        self._served, self._report = served, report
        self._seen = served.signature()
        self._version = ""
        self._point_at(served.folder)

    def _point_at(self, folder: Path) -> None:
        """Have new workers load the very folder that is linked to now, whatever is linked later."""
        self.config.app = replace(self._served, folder=folder.resolve())

    def init_processes(self) -> None:
        """Start the workers; they answer when this returns.

        Raises:
            ArtifactError: a file of the folder is missing or damaged.
        """
        super().init_processes()
        stop = self.should_exit
        if not all(process.wait_until_ready(LOAD_SECONDS, stop) for process in self.processes):
            if stop.is_set():
                return
            raise ArtifactError(self._refusal(self._served.state.outcome()))
        self._version = self._served.state.outcome()["version"]
        version, folder = self._version[:12], self._served.folder
        self._report(f"serving version {version} of {folder} at {self._address}")

    def terminate_all(self) -> None:
        """Have all end; who comes from now on is refused, and does not wait."""
        self.sockets[0].close()
        super().terminate_all()

    def keep_subprocess_alive(self) -> None:
        """Replace workers that were killed, and all where the folder has changed.

        Raises:
            ArtifactError: the last one was killed, and what is in the folder is refused.
        """
        for process in self.processes:  # else one that is killed while it is asked seems to hang
            process.child_conn.close()
        super().keep_subprocess_alive()
        outcome = self._served.state.outcome()
        if "refused" in outcome and not any(process.is_ready() for process in self.processes):
            raise ArtifactError(self._refusal(outcome))
        signature = self._served.signature()
        if signature and signature != self._seen and not self.should_exit.is_set():
            self._seen = signature
            self._take()

    def restart_all(self) -> None:
        """Have each replaced by one that is ready, and wait for those that leave when all are: a
        client that stalls would keep two versions answering."""
        leaving = []
        for place, old in enumerate(self.processes):
            new = Process(self.config, self.sockets)
            new.start()
            if not new.wait_until_ready(LOAD_SECONDS, self.should_exit):
                new.kill()
                new.join()
                break
            old.terminate()
            leaving.append(old)
            self.processes[place] = new
        for old in leaving:
            old.join()

    def _take(self) -> None:
        state, before, served = self._served.state, [*self.processes], self.config.app
        self._point_at(self._served.folder)
        self.restart_all()
        if self.should_exit.is_set():
            return
        outcome, swaps = state.outcome(), state.swaps
        if before[-1] is self.processes[-1]:
            self.config.app = served
            if before[0] is not self.processes[0]:  # it was not the version
                self._seen = ()
            sentence = self._refusal(outcome)
            state.record(Swaps(swaps.taken, swaps.refused + 1, sentence))
            self._report(f"refused: {sentence}; version {self._version[:12]} goes on")
            return
        taken = swaps.taken + (outcome["version"] != self._version)
        self._version = outcome["version"]
        state.record(Swaps(taken, swaps.refused))
        self._report(f"version {self._version[:12]} of {self._served.folder} has taken over")

    def _refusal(self, outcome: dict[str, str]) -> str:
        folder = self._served.folder
        return outcome.get("refused") or (
            f"{folder} is not loaded, as the process that did so was killed or took more than "
            f"{LOAD_SECONDS} s; is there memory for it, and room in {self._served.state.folder}? "
            f"touch {folder / MANIFEST} has it tried again"
        )


def serve(
    folder: Path,
    host: str,
    port: int,
    limits: RequestLimits,
    *,
    workers: int = 1,
    shadow: Path | None = None,
    shadow_limit: float = 0.1,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve the model in `folder` until interrupted; a model promoted into it takes over.

    Args:
        limits: of a request.
        workers: processes that answer.
        shadow: a checkpoint that sees every request and does not answer.
        shadow_limit: in calibrated logit; what differs more is counted.
        report: called with a line when it listens, and when a version is taken or refused.

    Raises:
        ToolError: the address is in use or cannot be listened on.
        ArtifactError: a file is missing or damaged.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a file for each connection
    with listening(host, port) as place, scratch_folder() as shared:
        state = ServiceState(shared)
        with suppress(OSError):  # without, those of a worker that is killed are reset
            hold_connections(shared / CONNECTIONS)
        served = ServedFolder(folder, limits, state, shadow, shadow_limit)
        config = Config(
            served,
            factory=True,
            loop="asyncio",  # uvloop's transports have no socket that could be shut down
            http=WorkerProtocol,
            workers=workers,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=LEAVE_SECONDS,
            timeout_worker_healthcheck=LOAD_SECONDS,
        )
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # `report` says it better
        processes = ServingProcesses(config, place, served, report)
        try:
            processes.run()
        finally:  # whatever ends the parent ends what answers
            processes.terminate_all()
            processes.join_all()


def _signature(folder: Path) -> Signature:
    """What a folder is known by without reading its files; empty while it is moved."""
    try:
        found = [(file.name, file.stat()) for file in sorted(folder.iterdir())]
    except OSError:
        return ()
    return tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in found)
