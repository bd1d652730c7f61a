"""reports/gate.json as its readers meet it: whatever a hand or a merge left there is told."""

from pathlib import Path
from typing import Any

from pipeline.core.errors import ArtifactError
from pipeline.core.files import parse_json, read_json

GATE = Path("reports/gate.json")


def read_verdict(folder: Path) -> Any:
    """The verdict in a project's folder.

    Raises:
        ArtifactError: there is none, or it is not as the gate writes it.
    """
    return _whole(read_json(folder / GATE, "run dvc repro gate"))


def parse_verdict(text: str, place: str, remedy: str) -> Any:
    """The verdict of a text; place and remedy are what the sentence names where it is none.

    Raises:
        ArtifactError: as `read_verdict`.
    """
    return _whole(parse_json(text, place, remedy))


def _whole(gate: Any) -> Any:
    try:
        texts = [gate["model_sha256"], gate["last_day"], *gate["reasons"]]
        texts += [check[name] for check in gate["checks"] for name in ("name", "sentence")]
    except TypeError:  # what should be a list, or an object in one, is none
        texts = [None]
    if not (all(isinstance(text, str) for text in texts) and isinstance(gate["reasons"], list)):
        raise ArtifactError(f"{gate.file_name} is not as the gate writes it; {gate.file_remedy}")
    return gate
