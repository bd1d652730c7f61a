"""Outside programs, run in a folder; one that is missing or fails is an error of one sentence.

And locks that one process of a machine holds; the system frees them however the process ends.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from filelock import FileLock, Timeout

from pipeline.core.errors import ToolError

Result = TypeVar("Result")

# What no program below is to inherit. Of git, some of it set while a hook runs: another repository,
# other files, other times than now. Of Python: other code than the folder's, warnings as errors.
_NOT_INHERITED = re.compile(
    "GIT_(DIR|WORK_TREE|INDEX_FILE|OBJECT_DIRECTORY|ALTERNATE_OBJECT_DIRECTORIES|COMMON_DIR|"
    r"NAMESPACE|PREFIX|\w+_PATHSPECS|\w+_DATE)|PYTHON(SAFEPATH|WARNINGS)"
)

_PLAIN = ("-c", "log.showSignature=false", "-c", "clone.rejectShallow=false")  # of a person's own

# What git says of an object that it should have.
_LOST = (
    "missing (blob )?object|bad object|not a tree object|unable to read (tree|[0-9a-f]{40})|"
    "object .*is (corrupt|empty)|object corrupt or missing"
)
_FOREIGN = "dubious ownership"  # of a clone that git reads for its owner alone
_STEPS = {
    _LOST: "this clone lacks objects of git's: remove the damaged file, if one is named, and bring "
    "them with git fetch --refetch, or clone anew",
    "not a git repository": "it is no clone of the project; run this in one",
    "failed to sign|cannot run gpg": "unlock the key for whoever runs this, or git config "
    "commit.gpgsign false",
    "exists; cannot create": "rename the branch that takes that name: git branch -m",
    "^git commit ": "where a hook refused, commit that yourself (git commit --no-verify) and go on",
}
"""By what git says when it fails, what mends it."""


@dataclass(frozen=True)
class Finished:
    """How a program ended: its exit code and what it wrote."""

    code: int
    output: str
    errors: str = ""  # of a program whose two streams are not one


def environment() -> dict[str, str]:
    """The environment of outside programs: ours, with this Python's programs first in PATH.

    Programs speak English, ask no questions, run stages in a plain shell and send no telemetry.
    """
    inherited = {n: value for n, value in os.environ.items() if not _NOT_INHERITED.fullmatch(n)}
    programs = str(Path(sys.executable).parent)
    return inherited | {
        "PATH": os.pathsep.join([programs, os.environ.get("PATH", os.defpath)]),
        "LC_ALL": "C.UTF-8",
        "LANGUAGE": "C",  # which counts more for some
        "SHELL": "/bin/sh",
        "GIT_TERMINAL_PROMPT": "0",
        "DVC_NO_ANALYTICS": "1",
        "DO_NOT_TRACK": "1",
    }


def reach_this_machine() -> None:
    """Let no proxy that the environment names stand before what listens on this machine."""
    spared = os.environ.get("no_proxy", os.environ.get("NO_PROXY", ""))
    if not {"*", "127.0.0.1"} & {*spared.split(",")}:
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = f"{spared},127.0.0.1"


def beside_python(name: str) -> str:
    """The path of a program that was installed with the project.

    Raises:
        ToolError: it is not there.
    """
    path = Path(sys.executable).parent / name
    if not path.is_file():
        raise ToolError(
            f"{name} is not installed beside {sys.executable}; install the project: "
            'pip install -e ".[pipeline]"'
        )
    return str(path)


# Reads the id of a process group, waits until nobody holds the other end of its input, kills it.
_WATCH = ["/bin/sh", "-c", 'read group; read rest; kill -s KILL -- "-$group"']


@contextmanager
def process_group(
    command: list[str], folder: Path, output: int | IO[str]
) -> Iterator["subprocess.Popen[str]"]:
    """Yield a program in a process group of its own, of which nothing outlives this process.

    The group is killed when the program ends and leaves a child behind (which a dvc killed by a
    signal does), when the block ends, and when this process is gone, however it ended.

    Args:
        command: the program and its arguments.
        folder: where it runs.
        output: where its standard output and error go, as `subprocess` takes it.
    """
    with (
        subprocess.Popen(
            _WATCH,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as watcher,
        subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
            errors="replace",
        ) as process,
    ):
        assert watcher.stdin
        watcher.stdin.write(f"{process.pid}\n".encode())
        watcher.stdin.flush()
        ended = threading.Thread(target=_close_after, args=(process, watcher.stdin), daemon=True)
        ended.start()
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            ended.join()


def _close_after(process: "subprocess.Popen[str]", pipe: IO[bytes]) -> None:
    while process.poll() is None:  # to wait holds a lock, for ever where Python ends meanwhile
        time.sleep(0.02)
    pipe.close()


def run_program(command: list[str], folder: Path) -> Finished:
    """Run a program in a process group; nothing that it starts outlives it or this process.

    Args:
        command: the program and its arguments.
        folder: where it runs.
    """
    return follow(program_lines(command, folder), lambda line: None)


def program_lines(command: list[str], folder: Path) -> Generator[str, None, Finished]:
    """Run a program as `run_program` does: each line of both streams, at last how it ended.

    It ends with the generator that is closed.
    """
    output = ""
    with process_group(command, folder, subprocess.PIPE) as process:
        for line in process.stdout or ():
            output += line
            yield line.rstrip("\n")
        code = process.wait()
    return Finished(code if code >= 0 else 128 - code, output)


def follow(lines: Generator[str, None, Result], report: Callable[[str], None]) -> Result:
    """What a generator returns, after each line that it yields was reported."""
    while True:
        try:
            report(next(lines))
        except StopIteration as end:
            return end.value


def git(folder: Path, *arguments: str, check: bool = True) -> Finished:
    """Run git in a folder.

    Args:
        folder: where it runs.
        arguments: after `git`.
        check: whether a failure is an error.

    Raises:
        ToolError: git is missing, it failed and `check` is set, or it lost objects or does not
            trust the folder's owner, which is never taken for what was never there.
    """
    program = shutil.which("git", path=environment()["PATH"])
    if program is None:
        raise ToolError("git is not on the PATH; install it")
    finished = subprocess.run(
        [program, *_PLAIN, *arguments],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if finished.returncode and (check or re.search(f"{_LOST}|{_FOREIGN}", finished.stderr)):
        verb = arguments[2 if arguments[0] == "-c" else 0]
        output = " ".join((finished.stderr or finished.stdout).split())
        said = f"git {verb} failed in {folder.resolve()}: {output}"
        step = next((f"; {step}" for fault, step in _STEPS.items() if re.search(fault, said)), "")
        raise ToolError(f"{said}{step}")
    return Finished(finished.returncode, finished.stdout, finished.stderr)


def committed(folder: Path, commit: str, path: str | Path) -> str | None:
    """The text of a file as a commit or branch has it; None where it has none."""
    shown = git(folder, "show", f"{commit}:{path}", check=False)
    return None if shown.code else shown.output


def fetch(folder: Path, remote: str, *specs: str, check: bool = False) -> Finished:
    """Bring refs of a git remote; what it lacks stays here, whatever `fetch.prune` says.

    Args:
        folder: where git runs.
        remote: its name.
        specs: refspecs.
        check: whether a failure is an error.
    """
    options = ("--quiet", "--no-tags", "--no-prune", "--no-write-fetch-head")
    return git(folder, "fetch", *options, remote, *specs, check=check)


def git_folder(folder: Path) -> Path:
    """The folder in which git keeps a clone, one for all its worktrees.

    Raises:
        ToolError: the folder is in no git repository.
    """
    found = git(folder, "rev-parse", "--path-format=absolute", "--git-common-dir")
    return Path(found.output.strip())


def run_lock(folder: Path, branch: str) -> Path:
    """The lock of a clone's runs that work on a branch, each in the branch's own worktree.

    Raises:
        ToolError: the folder is in no git repository.
    """
    return git_folder(folder) / f"adacalib-{branch}.lock"


@contextmanager
def hold(
    path: Path,
    purpose: str,
    place: str,
    patience: float = 0.0,
    report: Callable[[str], None] = print,
) -> Iterator[None]:
    """Hold the lock at `path` while the block runs; who does is named in a file beside it.

    Args:
        path: of the lock's file.
        purpose: what whoever waits for this process reads.
        place: what is locked, in words.
        patience: seconds to wait for another process.
        report: called once with the sentence that says for whom this process waits.

    Raises:
        ToolError: another process holds it; the sentence says which.
    """
    lock, named = FileLock(path, poll_interval=0.5), path.with_suffix(".holder")
    try:
        try:
            held = lock.acquire(timeout=0)
        except Timeout:
            if patience:
                report(f"waiting for {_holder(named)}")
            held = lock.acquire(timeout=patience)
    except Timeout:
        sentence = f"{_holder(named)} is at work in {place}; run again when it is done"
        raise ToolError(sentence) from None
    with held:
        named.write_text(f"{purpose} ({_this_process()})\n")
        try:
            yield
        finally:
            named.unlink(missing_ok=True)


def refuse_lost(path: Path) -> None:
    """Refuse to go on with what the lock at `path` protects where another process has it by now.

    So it is where somebody removed the lock's file while this process held it.

    Raises:
        ToolError: this process is not the one that is named.
    """
    holder = _holder(path.with_suffix(".holder"))
    if f"({_this_process()})" not in holder:
        raise ToolError(f"{holder} has taken {path} over, so this run publishes nothing")


def _this_process() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _holder(named: Path) -> str:
    try:
        return named.read_text().strip() or "another process"
    except FileNotFoundError:
        return "another process"
