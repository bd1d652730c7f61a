"""The champion: production's model and bin tables, pinned by champion.json as inputs of a run.

champion.json holds the sha256 of all that the champion is, so it is what stages depend on: where
the bytes beside it are others, a stage refuses. A clone without production needs nothing beside it.
"""

from dataclasses import asdict, fields
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from pipeline.core.errors import ArtifactError
from pipeline.core.files import MANIFEST, file_sums, read_json, sha256_of, verify, write_json

PIN = Path("champion.json")
MODEL, TABLES = Path("artifacts/champion/model"), Path("artifacts/champion/tables")
SAME_LOG = ("format", "label", "field", "impressions")
"""Keys of `log` without which two models' numbers are not about the same thing."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Pin:
    """Which version of production a run is held against.

    Attributes:
        version: for example "v0.0.3".
        commit: the commit that names its model and tables.
        last_day: the newest day of the log it was made from.
        model_sha256: of its model's manifest, which holds the checksum of every other file of it.
        tables: sha256 of each file of its bin tables by name; empty where its commit has none.
    """

    version: str
    commit: str
    last_day: str
    model_sha256: str
    tables: dict[str, str]


_AGAIN = "write it again with: adacalib champion --pin"


def read_pin(path: Path) -> Pin | None:
    """The version that a champion.json names; None where it says that nothing is in production.

    Raises:
        ArtifactError: the file is missing, is not JSON, or has other keys or types.
    """
    document = read_json(path, _AGAIN)
    if document == {"version": None}:
        return None
    try:
        return TypeAdapter(Pin).validate_python(document)
    except ValidationError:
        names = sorted(field.name for field in fields(Pin))
        raise ArtifactError(
            f'{path} must hold {names}, or {{"version": null}} where nothing is in production; '
            f"{_AGAIN}"
        ) from None


def write_pin(path: Path, pin: Pin | None) -> None:
    """Write a champion.json."""
    write_json(path, asdict(pin) if pin else {"version": None})


def pinned(path: Path) -> Pin | None:
    """The pin, after every byte of the champion was found as it names it; None if there is none.

    Args:
        path: champion.json, beside which MODEL and TABLES are.

    Raises:
        ArtifactError: the pin is damaged, or the champion is absent or has other bytes; the
            sentence names the command that brings it.
    """
    pin = read_pin(path)
    if pin and (fault := _fault(pin, path.parent / MODEL, path.parent / TABLES)):
        raise ArtifactError(f"{path} pins {pin.version}: {fault}; bring it with: adacalib champion")
    return pin


def _fault(pin: Pin, model: Path, tables: Path) -> str:
    """What is wrong with the champion's bytes; empty where they are those of the pin."""
    try:
        verify(model)
    except ArtifactError as error:
        return str(error).partition(";")[0]
    if sha256_of(model / MANIFEST) != pin.model_sha256:
        return f"{model} holds another model than that"
    found = file_sums(tables) if tables.is_dir() else {}
    wrong = [n for n in {**found, **pin.tables} if found.get(n) != pin.tables.get(n)]
    known = "is absent or has other bytes than its bin tables"
    return f"{tables / min(wrong)} {known}" if wrong else ""


def start_pin(root: Path) -> None:
    """Make champion.json where a copy of the project lacks it."""
    if not (root / PIN).exists():
        write_pin(root / PIN, None)
