"""What the processes of one service share: its limits, and a folder of small files."""

import fcntl
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from pipeline.core.files import read_json, write_json


@dataclass(frozen=True)
class RequestLimits:
    """What a request may hold.

    Attributes:
        body_bytes: of its body.
        rows: of its columns.
    """

    body_bytes: int = 4 << 20
    rows: int = 10_000


@dataclass(frozen=True)
class Swaps:
    """What became of the versions that came while a service ran.

    Attributes:
        taken: newer versions that took over.
        refused: versions that did not.
        last_refusal: why, in a sentence; None where the folder is what is being served.
    """

    taken: int = 0
    refused: int = 0
    last_refusal: str | None = None


@dataclass(frozen=True)
class ServiceState:
    """The folder that a service's processes share while it runs.

    Attributes:
        folder: it.
        seat: of this process; None: the parent.
        shadow_refusal: why this process has no shadow, in a sentence; None where none was asked
            for, or it is there.
    """

    folder: Path
    seat: int | None = None
    shadow_refusal: str | None = None

    def seated(self) -> "ServiceState":
        """The state as a process sees it that takes the lowest seat that no living one has."""
        self.folder.mkdir(parents=True, exist_ok=True)  # /tmp may have been cleaned since
        for number in count():
            place = os.open(self.folder / f"{number}.seat", os.O_CREAT | os.O_RDWR)
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this process ends
            except BlockingIOError:
                os.close(place)
            else:
                break
        return replace(self, seat=number)

    @property
    def swaps(self) -> Swaps:
        """As the parent process recorded them last."""
        return Swaps(**self._read("swaps"))

    def record(self, swaps: Swaps) -> None:
        """Tell the other processes, where there is room to."""
        with suppress(OSError):
            write_json(self.folder / "swaps.json", asdict(swaps))

    def loaded(self, **outcome: str) -> None:
        """Leave `version`, or why it was `refused`, for the parent process."""
        write_json(self.folder / "loaded.json", outcome)

    def outcome(self) -> dict[str, str]:
        """What `loaded` left since the last call; empty where nothing did."""
        outcome = self._read("loaded")
        (self.folder / "loaded.json").unlink(missing_ok=True)
        return outcome

    def tell(self, what: str, counts: dict[str, Any]) -> None:
        """Tell the other processes what this one has counted."""
        write_json(self.folder / f"{what}-{self.seat}.json", counts)

    def told(self, what: str) -> list[dict[str, Any]]:
        """What every other seat told last."""
        own = self.folder / f"{what}-{self.seat}.json"
        return [read_json(p) for p in sorted(self.folder.glob(f"{what}-*.json")) if p != own]

    def _read(self, name: str) -> dict[str, Any]:
        path = self.folder / f"{name}.json"
        return read_json(path) if path.is_file() else {}
