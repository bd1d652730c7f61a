"""How the command line answers: as text, as one JSON object, or not at all."""

import json
from typing import Any

import typer


class Voice:
    """What the options before the command asked for."""

    quiet = False
    as_json = False


def answer(text: str, **facts: Any) -> None:
    """Give the answer of a command: `text`, or in JSON `said` and the facts beside it."""
    if Voice.as_json:
        typer.echo(json.dumps({"said": text, **facts}, ensure_ascii=False, indent=2))
    elif not Voice.quiet:
        typer.echo(text)


def note(line: str) -> None:
    """Show how things stand, on stderr beside the answer; nothing where no answer is wanted."""
    if not Voice.quiet:
        typer.echo(line, err=True)
