"""The history of production: every version, who put it there and when, and what came of it."""

import io
import shutil
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from pipeline.registry import commits, tags
from pipeline.registry.promotion import gate_of, spoken_of

WIDTH = 160  # of the table where no terminal says its own


@dataclass(frozen=True)
class Span:
    """A time in production.

    Attributes:
        since: "YYYY-MM-DD HH:MM" in UTC.
        until: the same; None: it has not ended.
        how: "promoted", or "rolled back to" where the version had been there before.
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
        registered: when, "YYYY-MM-DD HH:MM" in UTC.
        by: the name of whoever registered it.
        verdict: "pass", or "refuse" and who overrode it and why.
        spans: its times in production, the first one first.
        removed: when `adacalib clean` removed its bytes and for whom; None: they are kept.
    """

    version: str
    commit: str
    last_day: str
    registered: str
    by: str
    verdict: str
    spans: tuple[Span, ...]
    removed: str | None


def history(folder: Path) -> list[Version]:
    """Every version, the newest first, as the git remote knows them, or else as this clone does.

    Raises:
        ReleaseError: this is no clone, or its remote does not answer.
        ArtifactError: a version's commit holds no verdict.
        ToolError: git failed.
    """
    commits.check_clone(folder)
    tags.fetch_tags(folder, commits.authority(folder))
    found = tags.registrations(folder)
    spans = _spans(tags.spans(tags.assignments(folder)))
    removed = tags.removals(folder)
    return [
        _version(folder, v, tag, spans.get(v, []), removed.get(v))
        for v, tag in reversed(found.items())
    ]


def _spans(changes: list[tags.Assignment]) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    for change, after in zip_longest(changes, changes[1:]):
        how = "rolled back to" if change.version in found else "promoted"
        until = tags.when(after.seconds) if after else None
        span = Span(tags.when(change.seconds), until, how, change.who)
        found.setdefault(change.version, []).append(span)
    return found


def _version(
    folder: Path, version: str, tag: tags.Tag, spans: list[Span], removal: tags.Tag | None
) -> Version:
    gate = gate_of(folder, tag.commit)
    spoken = spoken_of(folder, tag.commit, gate)
    verdict = "pass" if gate.get("passed") is True else f"refuse; {spoken or 'not overridden'}"
    day, since = str(gate["last_day"]), tags.when(tag.seconds)
    removed = f"{tags.when(removal.seconds)} by {removal.who}" if removal else None
    return Version(version, tag.commit, day, since, tag.who, verdict, tuple(spans), removed)


def table(found: list[Version]) -> str:
    """The versions as a table, a line for each time in production; a sentence if there are none."""
    if not found:
        return "no version was ever promoted; adacalib promote makes the first"
    shown = Table(box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for name in (
        "version",
        "days up to",
        "verdict",
        "in production (UTC)",
        "how",
        "bytes",
        "commit",
    ):
        shown.add_column(name, overflow="fold")
    for v in found:
        kept = f"removed {v.removed}" if v.removed else "kept"
        about = (v.version, v.last_day, v.verdict), (kept, v.commit[:10])
        times = [(f"{s.since} to {s.until or 'now'}", f"{s.how} by {s.by}") for s in v.spans]
        for place, span in enumerate(times or [("", "")]):  # a row each: cells that fold stay level
            left, right = about if place == 0 else (("",) * 3, ("",) * 2)
            shown.add_row(*left, *span, *right)
    return _printed(shown)


def _printed(shown: Any) -> str:
    text = io.StringIO()
    console = Console(file=text, width=shutil.get_terminal_size((WIDTH, 24)).columns)
    console.print(shown)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())
