"""Outside programs, run in a folder; one that is missing or fails is told in one sentence."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from pipeline.core.errors import ToolError
from pipeline.registry.tools import process_group

# Set while git runs a hook; they would point every git below at another repository.
_GIT_PLACES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
)


@dataclass(frozen=True)
class Finished:
    """How a program ended: its exit code and what it wrote."""

    code: int
    output: str
    errors: str


def environment(**variables: str) -> dict[str, str]:
    """The environment of outside programs: ours, with this Python's programs first in PATH.

    Programs speak English, ask no questions, run stages in a plain shell and send no telemetry.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in _GIT_PLACES}
    programs = str(Path(sys.executable).parent)
    return inherited | {
        "PATH": os.pathsep.join([programs, os.environ.get("PATH", os.defpath)]),
        "LC_ALL": "C.UTF-8",
        "SHELL": "/bin/sh",
        "GIT_TERMINAL_PROMPT": "0",
        "DVC_NO_ANALYTICS": "1",
        "DO_NOT_TRACK": "1",
        **variables,
    }


def beside_python(name: str) -> str:
    """The path of a program that was installed with the project.

    Raises:
        ToolError: it is not there.
    """
    path = Path(sys.executable).parent / name
    if not path.is_file():
        raise ToolError(
            f"{name} is not installed beside {sys.executable}; install the project: "
            "pip install -e ."
        )
    return str(path)


def run_leashed(
    command: list[str],
    folder: Path,
    tell: Callable[[str], None] | None = None,
    variables: Mapping[str, str] | None = None,
) -> Finished:
    """Run a program that starts others; none of them outlives this process, however it ends.

    Args:
        command: the program and its arguments.
        folder: where it runs.
        tell: called with each line as it is written, standard output and errors together.
        variables: additions to the environment.
    """
    ours, theirs = os.pipe()
    leashed = [sys.executable, "-I", "-S", str(process_group.__file__), str(ours), *command]
    with subprocess.Popen(
        leashed,
        cwd=folder,
        env=environment(**(variables or {})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if tell else subprocess.PIPE,
        pass_fds=[ours],
        start_new_session=True,
        text=True,
        errors="replace",
    ) as process:
        os.close(ours)
        threading.Thread(target=_end_with_the_leash, args=(process,), daemon=True).start()
        try:
            if tell is None:
                output, errors = process.communicate()
            else:
                output, errors = _follow(process, tell), ""
                process.wait()
        finally:
            os.close(theirs)
    return Finished(process.returncode, output, errors)


def _end_with_the_leash(process: "subprocess.Popen[str]") -> None:
    """Where the leash itself was killed, kill what it held: all that is in its session."""
    if process.wait() >= 0:
        return
    for other in psutil.pids():
        with contextlib.suppress(OSError):
            if os.getsid(other) == process.pid:
                os.kill(other, signal.SIGKILL)


def _follow(process: "subprocess.Popen[str]", tell: Callable[[str], None]) -> str:
    lines = []
    for line in process.stdout or ():
        lines.append(line)
        tell(line.rstrip("\n"))
    return "".join(lines)


def git(
    folder: Path,
    *arguments: str,
    check: bool = True,
    variables: Mapping[str, str] | None = None,
) -> Finished:
    """Run git in a folder.

    Args:
        folder: where it runs.
        arguments: after `git`.
        check: whether a failure is an error.
        variables: additions to the environment.

    Raises:
        ToolError: git is missing, or it failed and `check` is set.
    """
    program = shutil.which("git", path=environment()["PATH"])
    if program is None:
        raise ToolError("git is not on the PATH; install it")
    finished = subprocess.run(
        [program, *arguments],
        cwd=folder,
        env=environment(**(variables or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if check and finished.returncode:
        said = " ".join((finished.stderr or finished.stdout).split())
        raise ToolError(f"git {arguments[0]} failed in {folder.resolve()}: {said}")
    return Finished(finished.returncode, finished.stdout, finished.stderr)


def git_folder(folder: Path) -> Path:
    """The folder in which git keeps a clone, one for all its worktrees.

    Raises:
        ToolError: the folder is in no git repository.
    """
    said = git(folder, "rev-parse", "--path-format=absolute", "--git-common-dir")
    return Path(said.output.strip())
