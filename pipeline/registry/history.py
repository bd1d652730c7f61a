"""What people ask: what is in production and why, every version, its report, the run log."""

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pipeline.core.errors import AdaCalibError, ArtifactError, ReleaseError, ToolError
from pipeline.core.files import publish, read_json, write_json
from pipeline.formats.champion import PIN, read_pin
from pipeline.formats.gate_report import GATE, read_verdict
from pipeline.registry import commits, promote, tags, verdicts
from pipeline.registry.staleness import other_log
from pipeline.registry.tools import dvc
from pipeline.registry.tools.programs import committed, git, git_folder

REPORT = Path("artifacts/report")
PAGE = "report.html"
UNNAMED = "adacalib history has its version and commit once it is promoted"
"""What a report says of itself; no stage's output holds a commit, which would change its bytes."""
TO_PROMOTE = "<strong>adacalib promote</strong><span>puts it in production</span>"
PROMOTED = "<strong>adacalib status</strong><span>says what is in production now</span>"
"""The next command of a model that may be promoted, and of one that was."""


@dataclass(frozen=True)
class Span:
    """A time in production.

    Attributes:
        since: "YYYY-MM-DD HH:MM" in UTC.
        until: the same; None: it has not ended.
        how: "promoted", or where the version had been there before "rolled back to" or, from an
            older one, "forward again to".
        by: the name of whoever did that.
    """

    since: str
    until: str | None
    how: str
    by: str


@dataclass(frozen=True)
class Version:
    """A version and what became of it.

    Attributes:
        version: for example "v0.0.3".
        commit: the commit that names its data, parameters, code and model.
        last_day: the newest day of the log it was made from.
        model_sha256: of the model's manifest, which /health shows, too.
        verdict: "pass", or "refuse" and who overrode it and why.
        registered: when, "YYYY-MM-DD HH:MM" in UTC.
        by: the name of whoever registered it.
        spans: its times in production, the first one first.
        removed: when `adacalib clean` removed its bytes and for whom; None: they are kept.
    """

    version: str
    commit: str
    last_day: str
    model_sha256: str
    verdict: str
    registered: str
    by: str
    spans: tuple[Span, ...]
    removed: str | None


def history(folder: Path) -> list[Version]:
    """Every version, the newest first, as the git remote knows them, or else as this clone does.

    Raises:
        ReleaseError: the git remote does not answer.
        ArtifactError: a version's commit holds no verdict.
        ToolError: git failed.
    """
    tags.fetch_tags(folder)
    spans = _spans(tags.spans(tags.assignments(folder)))
    removed = {
        v: f"{tags.when(tag.seconds)} by {tag.who}" for v, tag in tags.removals(folder).items()
    }
    return [
        Version(
            *(v, tag.commit, *_verdict(folder, tag.commit), tags.when(tag.seconds), tag.who),
            spans=tuple(spans.get(v, ())),
            removed=removed.get(v),
        )
        for v, tag in reversed(tags.registrations(folder).items())
    ]


def _verdict(folder: Path, commit: str) -> tuple[str, str, str]:
    """The newest day of the log, the model, and "pass", or "refuse" and who overrode it and why."""
    gate = verdicts.gate_of(folder, commit)
    refused = f"refuse; {verdicts.committed_override(folder, commit, gate) or 'not overridden'}"
    said = "pass" if gate.get("passed") is True else refused
    return gate["last_day"], gate["model_sha256"], said


def _spans(changes: list[tags.Tag]) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    before: tags.Tag | None = None
    for change, after in zip_longest(changes, changes[1:]):
        how = "promoted"
        if before and change.version in found:
            ahead = tags.numbers(change.version) > tags.numbers(before.version)
            how = "forward again to" if ahead else "rolled back to"
        before = change
        until = tags.when(after.seconds) if after else None
        span = Span(tags.when(change.seconds), until, how, change.who)
        found.setdefault(change.version, []).append(span)
    return found


def status(folder: Path) -> str:
    """What is in production, since when and why, and what the last verdict in this folder says.

    The git remote is asked; where it does not answer, what this clone knows is reported, and why.

    Raises:
        ToolError: git is missing.
        ArtifactError: the commit in production holds no verdict, or an override is damaged.
    """
    inside = not git(folder, "rev-parse", "--git-dir", check=False).code
    unsure = fetched(folder) if inside else []
    current = verdicts.production(folder) if inside else None
    if current is None:
        lines = ["Nothing is in production."]
    else:
        gate = verdicts.gate_of(folder, current.commit)
        word = verdicts.committed_override(folder, current.commit, gate)
        failed = [c["sentence"] for c in gate["checks"] if c.get("passed") is not True]
        lines = [
            f"{current.version} is in production since {current.since}, made from days up to "
            f"{current.last_day} (commit {current.commit[:10]}, "
            f"model {current.model_sha256[:10]}):",
            *([f"  - against the verdict: {word}"] if word else []),
            *(f"  - failed: {sentence}" for sentence in failed),
            f"  - {len(gate['checks']) - len(failed)} checks passed; "
            f"adacalib report {current.version} has them",
            *_pinned(folder, current),
            *filter(None, [promote.hold_of(tags.assignments(folder))]),
        ]
    return "\n".join([*unsure, *lines, *_last_verdict(folder, current)])


def _pinned(folder: Path, current: verdicts.Production) -> list[str]:
    """A line where production is no champion of the next run, being another's or another log's."""
    other = other_log(folder, current.commit)
    if other:
        return [
            f"{current.version} is of another log than params.yaml ({other}): no model of the "
            "latter is held against it, or takes its place without an override"
        ]
    if not (folder / PIN).exists():
        return []
    try:
        pin = read_pin(folder / PIN)
    except ArtifactError as error:
        return [f"{error}."]
    if pin and pin.version == current.version:
        return []
    return [
        f"{PIN} pins {pin.version if pin else 'no version'}, production is {current.version}: "
        "before the next run, adacalib champion --pin"
    ]


def fetched(folder: Path) -> list[str]:
    """Nothing, after the tags of the git remote were brought; else why they could not be."""
    try:
        tags.fetch_tags(folder)
        authority, lacking = commits.authority(folder), tags.unsent(folder)
    except (ReleaseError, ToolError) as error:
        return [f"As far as this clone knows ({error}):"]
    odd = f"git remote {authority!r} lacks {len(lacking)} tags of it, which adacalib promote sends"
    return [f"As far as this clone knows ({odd}):"] if lacking else []


def _last_verdict(folder: Path, current: verdicts.Production | None) -> list[str]:
    if not (folder / GATE).exists():
        return ["No model was judged in this folder: run dvc repro."]
    try:
        gate = read_verdict(folder)
    except ArtifactError as error:
        return [f"What was judged in this folder is unknown: {error}"]
    if current and gate["model_sha256"] == current.model_sha256:
        return ["The model of this folder is the one in production."]
    reasons = [f"  - {reason}" for reason in gate["reasons"]]
    override = verdicts.overridden(folder, gate)
    if not (gate.get("passed") is True or override):
        return ["The model of this folder was refused:", *reasons]
    try:  # as far as this clone knows
        commits.check_repository(folder)
        promote.refuse_unfit(folder, promote.passing_gate(folder))
        may = "adacalib promote makes it so"
    except AdaCalibError as error:
        may = f"adacalib promote refuses it: {error}"
    said = override or "it passed its verdict"
    return [f"The model of this folder: {said}; {may}.", *reasons]


def run_log(folder: Path) -> Path:
    """Where the run log of a clone is, for any of its worktrees: in git's folder, in no commit.

    Raises:
        ToolError: the folder is in no git repository.
    """
    return git_folder(folder) / "adacalib-refresh.json"


def write_run(folder: Path, **entry: Any) -> None:
    """Write into the run log what a refresh does; on a full disk that is lost, and nothing else.

    A refresh writes it when it begins and again when it ends; without an end it was killed. Only
    the last one is kept: Prefect has all runs.
    """
    path = run_log(folder)
    with contextlib.suppress(OSError):
        write_json(path, {"at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), **entry})


def last_refresh(folder: Path) -> str:
    """What the last refresh of this clone did and why, in a few lines."""
    try:
        last = read_json(run_log(folder))
    except (ArtifactError, ToolError):
        return "No refresh has run in this clone."
    if "state" not in last:
        return (
            f"The last refresh, of {last['day']}, began {last['at']} and has not ended: it is at "
            "work, or was killed; the next one begins where it was."
        )
    first, *more = last["sentence"].splitlines() or [""]
    lines = [f"The last refresh, of {last['day']}, ended {last['at']} as {last['state']}: {first}"]
    lines += [f"  {line}" for line in more]
    lines += [f"  {stage}: {outcome}" for stage, outcome in dict(last.get("stages", {})).items()]
    return "\n".join(lines)


def report_of(folder: Path, which: str | None) -> Path:
    """The page of a version or a day, brought from DVC's cache or remote where it is not here.

    Args:
        folder: a clone of the project.
        which: for example "v0.0.3" or "2013-09-30"; None: of the last run in this folder, or of
            what is in production where there was none.

    Raises:
        ReleaseError: there is no such version or day, or nothing was made yet.
        ToolError: neither cache nor remote has it.
    """
    if which is None and (folder / REPORT / PAGE).exists():
        return folder / REPORT / PAGE
    name, commit = _named(folder, which)
    target = folder / REPORT.with_name(f"{REPORT.name}-{name}")
    if not (target / PAGE).exists():
        with publish(target) as temporary:
            dvc.fetch(folder, commit, temporary, path=REPORT)
            page, promoted = temporary / PAGE, name in tags.versions(folder)
            name_page(page, page, name, commit, promoted=promoted)
    return target / PAGE


def name_page(page: Path, target: Path, name: str, commit: str, *, promoted: bool = False) -> None:
    """Write a report that says which version or day it is of, its commit and what comes next."""
    text = page.read_text().replace(UNNAMED, f"{name}, commit {commit[:10]}")
    target.unlink(missing_ok=True)  # it may be a link to DVC's cache
    target.write_text(text.replace(TO_PROMOTE, PROMOTED) if promoted else text)


def _named(folder: Path, which: str | None) -> tuple[str, str]:
    """A version (None: production's) and its commit, or a day and the newest one made for it."""
    held, versions = tags.assignments(folder), tags.versions(folder)
    which = which or (held[-1].version if held else None)
    if which is None:
        raise ReleaseError("no run was made here and nothing is in production: run dvc repro first")
    if which in versions:
        return which, versions[which]
    subjects = reversed(git(folder, "log", "--all", "--format=%s %H").output.splitlines())
    commit = dict(line.rsplit(" ", 1) for line in subjects).get(f"day={which}")
    if commit is None:
        known = ", ".join(versions) or "no version"
        raise ReleaseError(
            f"{which} is neither a version ({known}) nor a refreshed day of this clone; git fetch "
            "brings what others made, adacalib history lists the versions"
        )
    return which, commit


def released(folder: Path, path: Path) -> str:
    """The text of a file as the release branch of this clone has it, or that of its remote.

    Raises:
        ReleaseError: no refreshed day left that file.
    """
    there = f"refs/remotes/{commits.authority(folder)}/release"
    for branch in ("refs/heads/release", there, "HEAD"):  # a tag may be called so, too
        if (text := committed(folder, branch, path)) is not None:
            return text
    raise ReleaseError(
        f"no refreshed day left {path} in this clone: python -m flows.refresh --day DAY makes the "
        "first, git fetch brings those of others"
    )
