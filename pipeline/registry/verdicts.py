"""The verdicts of models: what is in production by which, and a person's word against one."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline.core.errors import ArtifactError, ReleaseError
from pipeline.core.files import MANIFEST, parse_json, read_json, write_json
from pipeline.formats.gate_report import GATE, parse_verdict, read_verdict
from pipeline.registry import commits, tags
from pipeline.registry.tools.dvc import MODEL
from pipeline.registry.tools.programs import committed, git

OVERRIDE = Path("reports/override.json")
ANEW = "remove it and override again"


@dataclass(frozen=True)
class Override:
    """What a person overrode.

    Attributes:
        model_sha256: the model that was judged; the override is about no other.
        reason: in the person's words.
        who: "Name <address>", as git knows them.
        checks: names of the checks that did not pass.
    """

    model_sha256: str
    reason: str
    who: str
    checks: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.who} overrode {', '.join(self.checks)}: {self.reason}"


def override(folder: Path, reason: str) -> str:
    """Record that a refused model may be promoted all the same, and commit that; a sentence.

    Args:
        folder: the project's folder, whose reports/gate.json refused the model.
        reason: why, in one line.

    Raises:
        ReleaseError: there is nothing to override, no reason, nobody whose word it is, or a check
            that failed is about the artifact itself, which no word can mend.
        ArtifactError: there is no verdict, or it is damaged.
        ToolError: git failed.
    """
    words = " ".join(reason.split())
    if not words:
        raise ReleaseError("an override needs a reason; say why: adacalib override --reason TEXT")
    commits.check_repository(folder)
    gate = read_verdict(folder)
    failed = _refused(gate)
    if not (folder / MODEL / MANIFEST).is_file():
        raise ReleaseError(
            f"{MODEL} is not here, so there is nothing to promote; bring it by dvc pull or dvc "
            "repro, and override then"
        )
    name, address = commits.identity(folder)["AUTHOR"]
    made = Override(gate["model_sha256"], words, f"{name} <{address}>", tuple(failed))
    write_json(folder / OVERRIDE, asdict(made))
    message = f"Override of the verdict on days up to {gate.get('last_day')}: {words}"
    commits.commit_files(folder, [OVERRIDE.as_posix()], message)
    return f"{made}; adacalib promote makes the model production"


def _refused(gate: dict[str, Any]) -> list[str]:
    """The names of the checks that failed.

    Raises:
        ReleaseError: none did, or one that is structural, or the verdict does not say which.
    """
    if gate.get("passed") is True:
        raise ReleaseError("the verdict is a pass, so there is nothing to override; promote it")
    failed = [check for check in gate["checks"] if check.get("passed") is not True]
    if not failed:
        raise ReleaseError(f"{GATE} refuses and names no check that failed; run dvc repro gate")
    structural = [c["sentence"] for c in failed if c.get("structural") is not False]
    if structural:
        raise ReleaseError(
            f"this cannot be overridden, it is about the artifact itself: {structural[0]}"
        )
    return [check["name"] for check in failed]


def way_around(gate: dict[str, Any]) -> str:
    """The end of a refusal: how a person promotes it all the same; empty where nobody may."""
    try:
        _refused(gate)
    except ReleaseError:
        return ""
    return "; to promote it all the same: adacalib override --reason TEXT, then adacalib promote"


def overridden(folder: Path, gate: dict[str, Any]) -> Override | None:
    """The override of a folder's refusal, None where there is none of this model and these checks.

    A verdict that was made again and refuses for a further reason is not overridden.

    Args:
        folder: the project's folder.
        gate: the content of its reports/gate.json.

    Raises:
        ArtifactError: reports/override.json is damaged.
    """
    if not (folder / OVERRIDE).exists():
        return None
    return override_of(read_json(folder / OVERRIDE, ANEW), gate)


def override_of(document: Any, gate: dict[str, Any]) -> Override | None:
    """The override that a document holds, None where it is not about this verdict.

    Raises:
        ArtifactError: the document is no override.
    """
    try:
        made = Override(**{**document, "checks": tuple(document["checks"])})
        "".join([made.model_sha256, made.reason, made.who, *made.checks])  # all are texts
    except (TypeError, KeyError):
        raise ArtifactError(f"{OVERRIDE} is damaged; {ANEW}") from None
    try:
        failed = _refused(gate)
    except ReleaseError:
        return None
    same = made.model_sha256 == gate.get("model_sha256")
    return made if same and made.reason and set(failed) <= set(made.checks) else None


@dataclass(frozen=True)
class Production:
    """What is in production.

    Attributes:
        version: for example "v0.0.3".
        commit: the commit that names its data, parameters, code and model.
        since: when it was put there, "YYYY-MM-DD HH:MM UTC".
        last_day: the newest day of the log it was made from, "YYYY-MM-DD".
        model_sha256: of the model's manifest.
    """

    version: str
    commit: str
    since: str
    last_day: str
    model_sha256: str


def production(folder: Path) -> Production | None:
    """What is in production as far as this clone knows, None if nothing is.

    Raises:
        ToolError: git failed.
        ArtifactError: the commit in production holds no verdict.
    """
    held = tags.spans(tags.assignments(folder))[-1:]
    return described(folder, held[0]) if held else None


def described(folder: Path, held: tags.Tag) -> Production:
    """What an assignment put in production.

    Raises:
        ArtifactError: its commit holds no verdict.
    """
    gate = gate_of(folder, held.commit)
    since = f"{tags.when(held.seconds)} UTC"
    return Production(held.version, held.commit, since, gate["last_day"], gate["model_sha256"])


def committed_override(folder: Path, commit: str, gate: dict[str, Any]) -> Override | None:
    """The override of a verdict that a commit holds, None where it holds none."""
    text = committed(folder, commit, OVERRIDE)
    return override_of(parse_json(text, f"{commit}:{OVERRIDE}", ANEW), gate) if text else None


def gate_of(folder: Path, commit: str) -> dict[str, Any]:
    """The verdict that a commit holds.

    Raises:
        ArtifactError: it holds none.
    """
    text = committed(folder, commit, GATE)
    if text is None:
        git(folder, "ls-tree", commit)  # a commit whose files are lost holds one nevertheless
    remedy = (
        "a tag that takes it for a version was made or moved by hand: git tag --points-at "
        f"{commit[:10]} names it, git tag -d NAME and git push REMOTE :refs/tags/NAME remove it"
    )
    return parse_verdict(text or "", f"{commit}:{GATE}", remedy)
