"""Promotion and rollback: acts that change what is in production whole, or leave it alone."""

from pathlib import Path
from typing import Any

from pipeline.core.errors import ReleaseError
from pipeline.core.files import MANIFEST, sha256_of, verify
from pipeline.formats.gate_report import GATE, read_verdict
from pipeline.registry import commits, tags
from pipeline.registry.pull import home_of, push_and_read_back, read_back
from pipeline.registry.staleness import other_log
from pipeline.registry.tools import dvc
from pipeline.registry.tools.programs import git
from pipeline.registry.verdicts import gate_of, overridden, production, way_around


def promote(folder: Path) -> str:
    """Make the model of a folder the production model; one sentence says what was done.

    In order: the verdict must have passed and be about this model's bytes, which dvc.lock names;
    parameters, locks and reports are committed; data and model go to DVC's remote and the model is
    read back; version and production are tagged in one atomic push, so that the loser of a race is
    rejected whole. Whatever refuses on the way, production stays as it was.

    Raises:
        ReleaseError: the model may not replace the one in production.
        ArtifactError: the model or a report is missing or damaged.
        ToolError: git, dvc or gto is missing or failed.
    """
    commits.check_repository(folder)
    gate = passing_gate(folder)
    history = newest(folder)
    current = production(folder)
    if current and current.model_sha256 == gate["model_sha256"]:
        lacking, said = tags.unsent(folder), ""
        if lacking:  # nobody follows what is here alone
            push_and_read_back(folder, current.commit)
            tags.push_tags(folder, lacking)
            said = f"; git remote {commits.authority(folder)!r} lacked that, and has it now"
        return f"{current.version} is this model: it is in production since {current.since}{said}"
    refuse_unfit(folder, gate)
    present = [name for name in commits.NAMING if (folder / name).exists()]
    commits.commit_files(folder, present, f"Model of days up to {gate['last_day']}")
    commit = git(folder, "rev-parse", "HEAD").output.strip()
    kept = push_and_read_back(folder, commit)
    new = dvc.assign(folder, commit, history[-1] if history else None)
    return f"{new.version} is in production ({_reach(folder)}); {kept}"


def refuse_unfit(folder: Path, gate: dict[str, Any]) -> None:
    """Refuse a model that may not follow what is in production, as far as this clone knows that, or
    that no commit could name.

    Raises:
        ReleaseError: it may not; the sentence says why, and what to do.
        ToolError: git or dvc failed.
    """
    history, current = tags.assignments(folder), production(folder)
    _refuse_former(folder, history, gate["model_sha256"])
    other = other_log(folder, current.commit) if current else None
    if current and other:
        _refuse_other_log(folder, gate, f"{current.version} in production", other)
    elif current and gate["last_day"] < current.last_day:
        raise ReleaseError(
            f"{current.version} in production was made from days up to {current.last_day}, this "
            f"model from days up to {gate['last_day']}: an older model never replaces a newer one; "
            "to go back on purpose, roll back"
        )
    tags.wait_for_the_clock(history)
    commits.identity(folder)
    commits.refuse_modified_code(folder)
    home_of(folder)
    _refuse_stale(folder)


def on_hold(folder: Path) -> str | None:
    """`hold_of` what the authority says is in production.

    Raises:
        ReleaseError: the git remote that says it does not answer, or somebody cleans up.
        ToolError: git failed.
    """
    return hold_of(newest(folder))


def hold_of(history: list[tags.Tag]) -> str | None:
    """Why no refresh may promote by itself, None where it may: production was rolled back.

    The fault that was rolled back from is in the next day's model, too, unless somebody has looked.
    The next promotion by a person ends the hold, as does going forward again.

    Args:
        history: every assignment, the one that holds now last.
    """
    spans = tags.spans(history)
    if not spans or spans[-1].version not in {held.version for held in spans[:-1]}:
        return None
    held, left = spans[-1], spans[-2]
    if tags.numbers(held.version) > tags.numbers(left.version):
        return None  # a person went forward again
    return (
        f"{held.who} went back from {left.version} to {held.version}, so no refresh promotes by "
        "itself: find out what was wrong, and put the next version in production by hand "
        "(adacalib promote where it was made, a refreshed day in .release, or the deployment "
        "promote); that ends the hold"
    )


def newest(folder: Path) -> list[tags.Tag]:
    """Every assignment that the authority has, the last one now, while nobody cleans up."""
    tags.fetch_tags(folder)
    history = tags.assignments(folder)
    tags.refuse_while_cleaning(history)
    return history


def _reach(folder: Path) -> str:
    """Who sees what is tagged, in a few words."""
    remote = commits.authority(folder)
    if remote == ".":
        return "in this clone alone: it has no git remote"
    return f"for everyone who follows git remote {remote!r}"


def passing_gate(folder: Path) -> dict[str, Any]:
    """The verdict, if it passed and is about the bytes of artifacts/model."""
    gate, model = read_verdict(folder), folder / dvc.MODEL
    if gate.get("passed") is not True and not overridden(folder, gate):
        reasons = "; ".join(gate.get("reasons") or ["it has no reasons"])
        raise ReleaseError(
            f"the verdict is no, production stays as it is: {reasons}; dvc repro when that is "
            f"mended{way_around(gate)}"
        )
    verify(model)
    found = sha256_of(model / MANIFEST)
    if found != gate["model_sha256"]:
        raise ReleaseError(
            f"{GATE} judged the model {str(gate['model_sha256'])[:10]}, {dvc.MODEL} is "
            f"{found[:10]}; run dvc repro"
        )
    return gate


def _refuse_former(folder: Path, history: list[tags.Tag], model_sha256: str) -> None:
    """What was in production before and is not now was replaced or rolled back from."""
    for version, commit in {held.version: held.commit for held in history}.items():
        if gate_of(folder, commit)["model_sha256"] == model_sha256:
            raise ReleaseError(
                f"{version} is this model, which was in production before and is not now; to go "
                f"back to it on purpose, name it: adacalib rollback {version}"
            )


def _refuse_other_log(folder: Path, gate: dict[str, Any], current: str, other: str) -> None:
    word = overridden(folder, gate)
    if not (word and "champion" in word.checks):
        raise ReleaseError(
            f"{current} is of another log ({other}), and whoever follows production would be "
            "served this one: give it a clone of its own (git clone --no-tags), or, if that is "
            "meant, adacalib champion --pin, dvc repro, adacalib override --reason TEXT"
        )


def _refuse_stale(folder: Path) -> None:
    """Refuse if parameters, code, data or the model changed since dvc.lock was written."""
    stale = dvc.status("gate", folder)
    if stale:
        raise ReleaseError(
            f"the verdict is not about what is here: {', '.join(sorted(stale))} changed since; run "
            "dvc repro"
        )


def rollback(folder: Path, version: str | None = None) -> str:
    """Put an earlier version back into production; a sentence says which, one what is on hold then.

    Its bytes are read back first, from where those who follow production would read them.

    Args:
        folder: the project's folder.
        version: a registered version; None: the predecessor of the one in production, so that a
            second rollback goes further back, never forward again.

    Raises:
        ReleaseError: there is no such version, or its bytes are not the ones that were judged.
        ToolError: the remote lacks its bytes, or git, dvc or gto is missing or failed.
    """
    history = newest(folder)
    if not history:
        raise ReleaseError("nothing is in production, so there is nothing to roll back")
    chosen = version or _predecessor(folder, history)
    commit = _commit_of(folder, chosen, history[-1].version)
    read_back(folder, commit, home_of(folder))
    dvc.assign(folder, commit, history[-1])
    said = f"{chosen} is back in production in place of {history[-1].version} ({_reach(folder)})"
    return "\n".join(filter(None, [said, hold_of(tags.assignments(folder))]))


def _predecessor(folder: Path, history: list[tags.Tag]) -> str:
    before = tags.predecessor(history)
    if before is None:
        current = history[-1].version
        others = [version for version in tags.versions(folder) if version != current]
        named = f"; to go to {' or '.join(others)}, name it: adacalib rollback VERSION"
        raise ReleaseError(
            f"nothing was in production before {current}, so there is no way further back"
            f"{named if others else ''}"
        )
    return before.version


def _commit_of(folder: Path, chosen: str, current: str) -> str:
    known = tags.versions(folder)
    if chosen == current or chosen not in known:
        raise ReleaseError(
            f"{current} is in production, and the registry has {', '.join(known)}: there is no way "
            f"back to {chosen}"
        )
    removed = tags.removals(folder).get(chosen)
    if removed:
        raise ReleaseError(
            f"{removed.who} removed the bytes of {chosen} with adacalib clean on "
            f"{tags.when(removed.seconds)} UTC; make them again from its commit: git switch "
            f"--detach {known[chosen][:10]}, dvc repro"
        )
    return known[chosen]
