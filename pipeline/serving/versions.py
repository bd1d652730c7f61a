"""The version that is being served, and the swap to a newer one beside it."""

import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from pipeline.core.errors import AdaCalibError, ArtifactError
from pipeline.serving.predictor import Predictor, load, verified

Signature = tuple[tuple[str, int, int, int], ...]


class Versions:
    """A model folder that is watched: `current` is always a whole, verified predictor.

    A request takes `current` once and keeps it, so a swap disturbs none that is under way. A
    version that is damaged or half written is not taken; the one before goes on.

    Attributes:
        current: what serves now.
        swaps: newer versions taken since the start.
        refused: versions that were not taken.
        last_refusal: why, in a sentence; None where the folder is what is being served.
    """

    def __init__(
        self, folder: Path, seconds: float = 1.0, report: Callable[[str], None] = lambda _: None
    ) -> None:
        """Load the folder's model.

        Args:
            folder: a checkpoint with its exports; a promotion replaces it.
            seconds: between two looks at it.
            report: called with a line when a version is taken, and when one is refused.

        Raises:
            ArtifactError: a file is missing or damaged.
        """
        self.folder, self.seconds, self._report = folder, seconds, report
        self._seen = _signature(folder)
        self.current: Predictor = load(folder)
        self.swaps = self.refused = 0
        self.last_refusal: str | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no more."""
        self._stop.set()
        self._thread.join()

    def look(self) -> None:
        """Take the folder's version if it is another one, whole, and not looked at before."""
        signature = _signature(self.folder)
        if not signature or signature == self._seen:
            return
        try:
            newer = load(self.folder, verify_folder=verified_elsewhere)
        except (AdaCalibError, OSError) as error:
            self.last_refusal = str(error)
            self.refused += 1
            self._report(f"refused: {error}; version {short(self.current)} goes on")
        else:
            if newer.version != self.current.version:
                self.swaps += 1
                self._report(f"version {short(newer)} of {self.folder} has taken over")
            self.current, self.last_refusal = newer, None
        self._seen = signature

    def _watch(self) -> None:
        while not self._stop.wait(self.seconds):
            self.look()


def short(predictor: Predictor) -> str:
    """The first characters of a version, which people know it by."""
    return predictor.version[:12]


def verified_elsewhere(folder: Path) -> tuple[str, str]:
    """`verified` in another process: reading a manifest of millions of values holds the GIL.

    Raises:
        ArtifactError: as `verified`, or that process was killed.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
        try:
            return other.submit(verified, folder).result()
        except BrokenProcessPool:
            raise ArtifactError(
                f"{folder} is not verified, as the process that did so was killed; is there memory "
                "for it? Replace the folder again"
            ) from None


def _signature(folder: Path) -> Signature:
    """What a folder is known by without reading its files; empty while it is moved."""
    try:
        found = [(file.name, file.stat()) for file in sorted(folder.iterdir())]
    except OSError:
        return ()
    return tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in found)
