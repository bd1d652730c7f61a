"""Staleness: what would run now, or did run, and because of which change, in plain words."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.core.errors import ParamsError, ToolError
from pipeline.core.typed_yaml import parse_yaml, read_keys
from pipeline.formats.champion import SAME_LOG
from pipeline.params.params_file import flat, stage_order, upstreams
from pipeline.registry.tools.dvc import status
from pipeline.registry.tools.programs import committed

HOW = {
    "modified": "changed",
    "new": "new",
    "deleted": "gone",
    "not in cache": "neither here nor in DVC's cache",
}
NOTHING = "nothing changed"
BASE = "train_base"
NAMED = 4  # things of one kind that a sentence names


def why(folder: Path, trained_until: str | None = None) -> str:
    """The stages that `dvc repro` would run in a folder, each with what changed since its last run.

    A stage after one that runs may find its inputs as they were, and then does not run; such
    stages are named apart.

    Args:
        folder: of the project.
        trained_until: the newest training day, where these days stay the same; else None.

    Raises:
        AdaCalibError: the folder has no dvc.yaml.
        ToolError: dvc failed.
    """
    order, needs, stale = stage_order(folder), upstreams(folder), status(None, folder)
    if not stale:
        return "Nothing would run: every stage is as its inputs are."
    known = _locked(folder)
    lines = [f"{name}: {sentence(stale[name])}" for name in stale if name not in needs]
    for name in [name for name in order if name in stale]:
        reason = sentence(stale[name]) if name in known else "it has not run before"
        lines.append(f"{name} would run: {reason}")
    disturbed = set(stale)
    for name in order:
        if needs[name] & disturbed:
            disturbed.add(name)
    if trained_until is not None and BASE in disturbed - set(stale):
        disturbed.remove(BASE)
        lines.append(f"base model kept, trained up to {trained_until}")
    after = [name for name in order if name in disturbed - set(stale)]
    calm = [name for name in order if name not in disturbed]
    if after:
        lines.append(f"then, where what they read comes out differently: {', '.join(after)}")
    if calm:
        lines.append(f"would not run: {', '.join(calm)}")
    return "\n".join(lines)


def changed_since(folder: Path) -> list[str]:
    """What is not as it was when the results were made: `data`, and sections of params.yaml.

    It is read from dvc.lock in no time; code is not looked at, nor are the bytes of the log. `why`
    looks at everything.
    """
    stages, data = _locked(folder), read_keys(folder / "data.dvc", ToolError)
    landed = {out.get("path"): out.get("md5") for out in data.get("outs") or []}
    deps = [dep for stage in stages.values() for dep in stage.get("deps", [])]
    found = {d["path"] for d in deps if landed.get(d["path"], d.get("md5")) != d.get("md5")}
    params = read_keys(folder / "params.yaml", ParamsError)
    for stage in stages.values():
        for name, value in stage.get("params", {}).get("params.yaml", {}).items():
            if params.get(name) != value:
                found.add(f"{name} in params.yaml")
    return sorted(found)


def other_log(folder: Path, commit: str) -> str | None:
    """How the log of a commit is another than that of a folder's params.yaml; None where it is not.

    What one of them does not say is no difference.
    """
    then = parse_yaml(committed(folder, commit, "params.yaml") or "") or {}
    here = read_keys(folder / "params.yaml", ParamsError)
    logs = [log if isinstance(log := p.get("log"), dict) else {} for p in (then, here)]
    for name in SAME_LOG:
        own, ours = (log.get(name) for log in logs)
        if all(logs) and own != ours:
            return f"its {name} is {own!r}, here it is {ours!r}"
    return None


def _locked(folder: Path) -> dict[str, Any]:
    """The stages of which dvc.lock has a run."""
    return read_keys(folder / "dvc.lock", ToolError).get("stages") or {}


def sentence(changes: list[Any]) -> str:
    """What DVC says of a stage, such as [{"changed deps": {"data": "modified"}}], in words."""
    groups: dict[str, list[str]] = {}
    for change in changes:
        for kind, name in _words(change):
            groups.setdefault(kind, []).append(name)
    said = []
    for kind, names in groups.items():
        shown = ", ".join(names[:NAMED])
        more = f" and {len(names) - NAMED} more" if names[NAMED:] else ""
        said.append(f"{kind}: {shown}{more}" if shown else kind)
    return "; ".join(said)


def _words(change: Any) -> Iterator[tuple[str, str]]:
    """Pairs of what happened and to which thing."""
    if not isinstance(change, dict):
        yield ("its command changed" if change == "changed command" else str(change)), ""
        return
    for kind, things in change.items():
        output = "own output " if kind == "changed outs" else ""
        for name, how in things.items():
            single = (
                {f"{name}: {key}": h for key, h in how.items()} if isinstance(how, dict) else {}
            )
            for thing, state in (single or {name: how}).items():
                yield f"{output}{HOW.get(state, state)}", thing


def inputs_of(folder: Path) -> dict[str, dict[str, str]]:
    """What the last run of each stage was made of: command, parameters and dependencies, as texts.

    Without the stages that dvc.lock does not have.
    """
    found = {}
    for stage, entry in _locked(folder).items():
        made_of = {"its command": entry["cmd"]}
        made_of |= {each["path"]: str(each.get("md5")) for each in entry.get("deps", [])}
        for file, values in entry.get("params", {}).items():
            made_of |= {f"{file}: {name}": repr(value) for name, value in flat(values).items()}
        found[stage] = made_of
    return found


def cause(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """What differs between two answers of `inputs_of` for a stage, in words; empty: no run yet."""
    if before == after:
        return NOTHING
    if not before:
        return "it had not run before"
    names = [name for name in {**after, **before} if before.get(name) != after.get(name)]
    return f"changed: {', '.join(names)}"
