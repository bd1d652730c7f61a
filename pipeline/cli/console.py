"""How the command line answers: as text, its tables, as one JSON object, or not at all."""

import io
import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import typer

from pipeline.core.errors import masked

if TYPE_CHECKING:
    from pipeline.registry.history import Version

WIDTH = 160  # of a table where no terminal says its own


class Voice:
    """What the options before the command asked for."""

    quiet = False
    as_json = False


def answer(text: str, **facts: Any) -> None:
    """Give the answer of a command: `text`, or in JSON `said` and the facts beside it."""
    if Voice.as_json:
        text = json.dumps({"said": text, **facts}, ensure_ascii=False, indent=2)
    if Voice.as_json or not Voice.quiet:
        typer.echo(masked(text))


def note(line: str) -> None:
    """Show how things stand, on stderr beside the answer; nothing where no answer is wanted, or
    where nobody reads stderr any more.
    """
    if not Voice.quiet:
        with suppress(OSError):
            typer.echo(line, err=True)


def columns_of(rows: list[dict[str, str]], *, numbers: bool = False) -> str:
    """Rows as a table in text, as wide as the terminal; their keys are its heads.

    Args:
        rows: texts by column.
        numbers: whether all but the first column are numbers.
    """
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    shown = Table(box=SIMPLE, padding=0 if numbers else (0, 1, 0, 0), pad_edge=False)
    for name in rows[0]:
        right = numbers and shown.columns
        shown.add_column(name, overflow="fold", justify="right" if right else "left")
    for row in rows:
        shown.add_row(*row.values())
    text = io.StringIO()
    width = shutil.get_terminal_size((WIDTH, 24)).columns
    Console(file=text, width=width, markup=False, emoji=False).print(shown)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def versions_table(found: Sequence["Version"]) -> str:
    """The versions as a table, a line for each time in production; a sentence if there are none."""
    if not found:
        return "no version was ever promoted; adacalib promote makes the first"
    names = ("version", "days up to", "verdict", "in production (UTC)", "how", "bytes", "model")
    rows = []
    for v in found:
        kept = f"removed {v.removed}" if v.removed else "kept"
        times = [(f"{s.since} to {s.until or 'now'}", f"{s.how} by {s.by}") for s in v.spans]
        for place, span in enumerate(times or [("", "")]):  # a row each: cells that fold stay level
            first = place == 0
            about = (v.version, v.last_day, v.verdict) if first else ("", "", "")
            ends = (kept, v.model_sha256[:10], v.commit[:10]) if first else ("", "", "")
            rows.append(dict(zip((*names, "commit"), (*about, *span, *ends), strict=True)))
    return columns_of(rows)
