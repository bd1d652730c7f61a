"""What the project does with DVC and GTO, by their command lines."""

import json
import re
import signal
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import psutil

from pipeline.core.errors import AdaCalibError, ToolError
from pipeline.core.files import scratch_folder
from pipeline.core.typed_yaml import parse_yaml
from pipeline.params.params_file import stage_order
from pipeline.registry.tags import NAME, STAGE, Tag, assignments, next_version, proposed, versions
from pipeline.registry.tools.programs import (
    Finished,
    beside_python,
    committed,
    follow,
    git,
    program_lines,
    run_program,
)
from pipeline.registry.tools.stores import Remote, cache_folder, dvc_remote, settings_of

MODEL = Path("artifacts/model")
RWLOCK = Path(".dvc/tmp/rwlock")
# What DVC says of a lock that a kill left half-written, and of one that another dvc holds.
HALF = re.compile("Unable to read RWLock-file|RWLock-file .+ format error")
BUSY = re.compile("is busy, it is being blocked by|Unable to acquire lock")
RUNNING = re.compile(r"^Running stage '([^']+)':$")  # what dvc writes before a stage runs
# What comes again in the error, what DVC would have people do, which promotion does, and what is
# around it: empty lines.
SAID_AGAIN = re.compile(r"^ERROR: |dvc\.org/support|^To .+, run:$|^\t(git add|dvc config) |^\s*$")
STEPS = {
    "dvc.lock' (is invalid|validation failed)": "remove dvc.lock and run dvc repro, which takes "
    "from DVC's cache what was made before; or git restore dvc.lock",
    r"\[Errno (13|27|28|30|122)\]|disk I/O error|disk is full": "make room there, or give the "
    "right to write, and run again",
    "getpwuid": "export USER=adacalib: whoever runs this has no name here, and DVC wants one",
    "config(uration)? (file )?error": "correct .dvc/config.local or .dvc/config",
    "is outside of git repository": "DVC knows no worktree of a submodule: run this in a clone of "
    "its own",
    "^dvc add": "the log in data is whole, DVC has yet to note it: mend that, then dvc add data",
    "^dvc push|[Cc]onnect|[Cc]redentials|[Tt]imed? ?out|Forbidden|Access ?Denied": "adacalib "
    "doctor says whether DVC's remote answers; run again when it does",
    r"\.dvc/tmp": "remove .dvc/tmp, which DVC makes anew, and run again",
}
"""By what DVC says when it cannot go on, what mends it."""
PATIENCE = 600.0  # seconds to wait for another dvc in the same folder


def run_dvc(folder: Path, *arguments: str) -> Finished:
    """Run dvc; where another dvc works in the folder, wait for it.

    Raises:
        ToolError: dvc is missing, or the other one still holds the folder after PATIENCE seconds.
    """
    return follow(_dvc_lines(folder, *arguments), lambda line: None)


def _dvc_lines(folder: Path, *arguments: str) -> Generator[str, None, Finished]:
    """`run_dvc`: each line that is written; once, for whom it waits.

    Raises:
        ToolError: dvc is missing, or the other one still holds the folder after PATIENCE seconds.
    """
    command, give_up = [beside_python("dvc"), *arguments], time.monotonic() + PATIENCE
    waiting = False
    while True:
        finished = yield from program_lines(command, folder)
        half = HALF.search(finished.output)
        if not finished.code or not (half or BUSY.search(finished.output)):
            return finished
        holders = _holders(folder)
        at_work = [f"process {pid} ({holders[pid]})" for pid in filter(_is_dvc, holders)]
        # DVC itself forgets a process whose number is free. After a restart of the machine or
        # container it may be another program's, and DVC would wait for that one for ever. What a
        # kill left half-written it never reads again.
        if half or (holders and not at_work):
            (folder / RWLOCK).unlink(missing_ok=True)
            continue
        holder = at_work[0] if at_work else "another dvc"
        if time.monotonic() > give_up:
            raise ToolError(
                f"{holder} has held {folder.resolve()} for more than {PATIENCE:.0f} s; try again "
                "when it has ended"
            )
        if not waiting:
            yield f"waiting for {holder}"
        waiting = True
        time.sleep(min(1.0, PATIENCE))


def _dvc(folder: Path, *arguments: str) -> str:
    """What a dvc command prints.

    Raises:
        ToolError: it failed.
    """
    finished = run_dvc(folder, *arguments)
    if finished.code:
        raise _failure(f"dvc {arguments[0]}", finished)
    return finished.output


def _holders(folder: Path) -> dict[int, str]:
    """The processes that DVC's lock file of a folder names, with their commands."""
    try:
        lock = json.loads((folder / RWLOCK).read_text())
    except (OSError, ValueError):
        return {}
    readers = [holder for holders in lock.get("read", {}).values() for holder in holders]
    return {each["pid"]: each["cmd"] for each in [*readers, *lock.get("write", {}).values()]}


def _is_dvc(pid: int) -> bool:
    try:
        return any("dvc" in word for word in psutil.Process(pid).cmdline())
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


def refuse_busy(folder: Path) -> None:
    """Refuse a folder in which a dvc is at work.

    Raises:
        ToolError: one is.
    """
    holder = next(filter(_is_dvc, _holders(folder)), None)
    if holder:
        raise ToolError(f"process {holder}, a dvc, is at work in {folder}; run again when it ended")


def _failure(action: str, finished: Finished, otherwise: str = "") -> ToolError:
    """An error with what dvc printed last, its own advertisements left out, and the step that mends
    it, `otherwise` where none is known."""
    lines = [
        line for line in finished.output.splitlines() if line and "dvc.org/support" not in line
    ]
    errors = [line for line in lines if line.startswith("ERROR: ")]
    if 0 < finished.code - 128 < signal.NSIG and not errors:  # what it wrote before is not why
        lines = [f"killed by signal {finished.code - 128}; run it again"]
    reason = " ".join(" ".join(errors or lines).replace("ERROR: ", "").split())
    said = (step for fault, step in STEPS.items() if re.search(fault, f"{action} {reason}"))
    step = next(said, otherwise)
    reason = reason[:500] or f"exit code {finished.code}"
    return ToolError(f"{action} failed: {reason}{step and f'; {step}'}")


def reproduce(stage: str | None, folder: Path, report: Callable[[str], None] = print) -> None:
    """Make `stage` (None: all) and what it depends on fresh.

    Args:
        stage: a stage of dvc.yaml.
        folder: the project's folder.
        report: called with each line that dvc and the stages write, as they write it.

    Raises:
        AdaCalibError: a stage refused; the sentence is the stage's own.
        ToolError: dvc failed, or is held by another one for too long.
    """
    for line in reproduction(stage, folder):
        if not SAID_AGAIN.search(line):
            report(line)


def reproduction(stage: str | None, folder: Path) -> Generator[str, None, None]:
    """Each line that dvc and the stages write while `reproduce` is under way.

    Raises:
        AdaCalibError: a stage refused; the sentence is the stage's own.
        ToolError: a stage has a mistake, or dvc failed, or is held by another one for too long.
    """
    command = "repro", *([stage] if stage else [])
    finished = yield from _dvc_lines(folder, *command)
    if finished.code and _NO_ENTRY in finished.output and _forgot_unsaved_runs(folder):
        finished = yield from _dvc_lines(folder, *command)
    if finished.code:
        stopped = re.search(r"ERROR: failed to reproduce '([^']+)'", finished.output)
        refusals = re.findall(rf"^{stopped[1]}: (.+)$", finished.output, re.M) if stopped else []
        if stopped and refusals:
            raise AdaCalibError(f"{stopped[1]}: {refusals[-1]}")
        mistakes = re.findall(r"^[\w.]+(?:Error|Exception)\b.*$", finished.output, re.M)
        if stopped and mistakes:
            raise ToolError(f"{stopped[1]}: a mistake in the code: {mistakes[-1]}")
        raise _failure(f"dvc repro {stage or ''}".strip(), finished)


# What DVC dies of where it was killed between making a folder of its run cache and writing into it.
_NO_ENTRY = "join() argument must be str, bytes, or os.PathLike object, not 'NoneType'"


def _forgot_unsaved_runs(folder: Path) -> bool:
    """Whether empty folders of DVC's run cache were removed."""
    runs = cache_folder(folder) / "runs"
    empty = [entry for entry in runs.glob("*/*") if not any(entry.iterdir())]
    for entry in empty:
        entry.rmdir()
    return bool(empty)


def status(stage: str | None, folder: Path) -> dict[str, Any]:
    """What is stale in a stage (None: in all) and what it depends on; empty if all is fresh.

    It has an entry for each stage whose own inputs or outputs differ from those of its last run,
    not for those that come after it.

    Raises:
        ToolError: dvc failed.
    """
    target = [stage, "--with-deps"] if stage else []
    lines = _dvc(folder, "status", *target, "--json").splitlines()
    return json.loads(next(line for line in lines if line.startswith("{")))  # beside warnings


def commit_data(folder: Path) -> None:
    """Put data/ into DVC's cache and let data.dvc say so; nothing changes where it says so already.

    Raises:
        ToolError: dvc failed.
    """
    _dvc(folder, "add", "data")  # quiet, it would hide why it failed


def restore_data(folder: Path) -> bool:
    """Whether data/ was brought back as data.dvc names it, from DVC's cache or its remote."""
    words = ("checkout", "pull")  # the latter asks the remote, also for what is in the cache
    return any(not run_dvc(folder, word, "--quiet", "data.dvc").code for word in words)


def model_md5(folder: Path, commit: str) -> str | None:
    """The md5 that the dvc.lock of a commit has for the model, None if it has none."""
    found = parse_yaml(committed(folder, commit, "dvc.lock") or "") or {}
    outputs = found.get("stages", {}).get("merge", {}).get("outs", [])
    return next((out.get("md5") for out in outputs if out["path"] == MODEL.as_posix()), None)


def push(folder: Path) -> None:
    """Send verdict and report, and all that they depend on, to DVC's default remote.

    Raises:
        ToolError: dvc failed.
    """
    stages = [stage for stage in stage_order(folder) if stage in ("gate", "report")]
    _dvc(folder, "push", *stages, "--with-deps")


def fetch(
    folder: Path,
    commit: str,
    target: Path,
    *,
    path: Path = MODEL,
    only: Remote | None = None,
    remedy: str = "send its bytes to DVC's remote from a clone that has them: dvc push "
    "--all-commits",
) -> None:
    """Bring the model, or another output of the pipeline, that a commit names.

    It is read at the commit, not from the working tree: there dvc would quietly take the file of
    the working tree for one that the remote lacks.

    Args:
        folder: the project's folder.
        commit: the full name of a commit.
        target: where its folder appears.
        path: of the output in the project.
        only: the remote from which every byte has to come; None: from this folder's cache, and
            what that lacks from the default remote, if there is one.
        remedy: what mends it where bytes are missing there.

    Raises:
        ToolError: it cannot be had from there.
    """
    # For one of these files that git has lost, DVC would wait for ever.
    git(folder, "rev-list", "--objects", "--no-walk", commit, "--", "*dvc*", "*.yaml")
    arguments = ["get", ".", path.as_posix(), "--rev", commit, "-o", str(target.absolute())]
    remote = only or dvc_remote(folder)
    with scratch_folder() as place:
        if remote:  # without one, dvc makes the cache a remote, and settings would undo that
            settings = settings_of(folder, remote, f"{place}/cache" if only else None)
            with (place / "config").open("w") as file:
                settings.write(file)
            arguments += ["--config", file.name]
        finished = run_dvc(folder, *arguments)
    if finished.code:
        source = f"DVC remote {only.address}" if only else "DVC's cache"
        action = f"reading the {path.name} of commit {commit[:10]} from {source}"
        raise _failure(action, finished, remedy)


def assign(folder: Path, commit: str, replaced: Tag | None) -> Tag:
    """Put the model of a commit into production, as a new version unless it has one already.

    Args:
        folder: a git repository that holds the commit and the authority's newest tags.
        commit: the full name of a commit.
        replaced: what is in production, as far as the caller knows.

    Raises:
        ReleaseError: as `proposed`.
        ToolError: gto or git failed.
    """
    held = next((version for version, c in versions(folder).items() if c == commit), None)
    version = ["--force"] if held else ["--version", next_version(folder)]
    with proposed(folder, replaced) as clone:
        command = [beside_python("gto"), "assign", "-r", str(clone), NAME, commit]
        finished = run_program([*command, "--stage", STAGE, *version], folder)
        if finished.code:
            raise _failure("gto assign", finished)
    return assignments(folder)[-1]
