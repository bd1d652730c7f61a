"""A command in a process of its own: what it says, how long it takes, how much memory it has."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter


@dataclass(frozen=True)
class Finished:
    """A command that ended well.

    Attributes:
        said: its standard output.
        seconds: from start to end.
        processor: seconds of all its threads.
        peak_mb: most memory it had at a time, files that it maps included.
    """

    said: str
    seconds: float
    processor: float
    peak_mb: float


def run(command: list[str], environment: Mapping[str, str], folder: Path = Path()) -> Finished:
    """Run a command to its end, with more in its environment.

    Raises:
        SystemExit: the command failed.
    """
    start = perf_counter()
    whole = {**os.environ, **environment}
    with subprocess.Popen(
        command, cwd=folder, env=whole, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command[:4])} failed with {process.returncode}")
    processor = usage.ru_utime + usage.ru_stime
    return Finished(said, perf_counter() - start, processor, usage.ru_maxrss * 1024 / 1e6)
