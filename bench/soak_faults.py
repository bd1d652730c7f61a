"""What bench.soak does to a run, or around one; each fault is drawn by a seed."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

import psutil

from bench.soak_project import day_of, deliver
from pipeline.registry.pull import pull
from pipeline.registry.tools.programs import git, run_program

LATE = "late day"
KILLS = (
    "kill -9 flow",
    "kill -9 worker",
    "kill -9 dvc",
    "kill -9 stage",
    "kill -9 server",
    "kill -9 flow and worker",
    "kill -9 flow, any time",
    "SIGTERM flow",
    "SIGTERM dvc",
    "SIGTERM stage",
)


class Soaked(Protocol):
    """A soak at work."""

    project: Path
    inbox: Path

    def process(self, name: str) -> psutil.Process:
        """The server or the worker."""

    def ended(self, run: str) -> bool:
        """Whether a run has ended, as far as the server knows."""

    def force(self, run: str, state: str) -> None:
        """Tell the server that a run has another state."""

    def at_work(self) -> list[psutil.Process]:
        """The processes that run a flow."""

    def refresh(
        self, day: str, meanwhile: Callable[[str], None] | None = None, source: str = ""
    ) -> str:
        """One run of a day, and what happens to the run of an id meanwhile; its state's name."""


def until(true: Callable[[], object], seconds: float = 400.0) -> None:
    """Wait for something that comes."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError("the soak waited in vain")
        time.sleep(0.05)


def stage_at_work(soak: Soaked, run: str, chance: random.Random) -> psutil.Process | None:
    """A stage, after some time in it; None where none ran before the run ended."""
    left, found = chance.randrange(4), {}
    while not soak.ended(run):
        for process in psutil.process_iter(["cmdline", "cwd"]):
            words = process.info["cmdline"] or []
            ours = str(process.info["cwd"] or "") == str(soak.project / ".release")
            if ours and (words[1:2] == ["work.py"] or words[1:3] == ["-m", "pipeline"]):
                found[process.pid] = process
        if len(found) > left:
            time.sleep(chance.uniform(0, 0.8))
            living = [process for process in found.values() if process.is_running()]
            if living:
                return living[-1]
        time.sleep(0.1)
    return None


def killed(fault: str, soak: Soaked, chance: random.Random) -> Callable[[str], None]:
    """Kill what a fault names, in the middle of a stage or at any time."""

    def kill(run: str) -> None:
        if fault.endswith("any time"):
            until(soak.at_work)
            time.sleep(chance.uniform(0, 15))
            named = {"flow": soak.at_work()}
        else:
            stage = stage_at_work(soak, run, chance)
            if stage is None:
                return
            above = stage.parents()
            dvc = next(p for p in above if any("/dvc" in word for word in p.cmdline()[:2]))
            named = {"flow": [dvc.parent()], "dvc": [dvc], "stage": [stage]}
            named |= {n: [soak.process(n)] for n in ("worker", "server") if n in fault}
        how = signal.SIGTERM if fault.startswith("SIGTERM") else signal.SIGKILL
        for victim in [v for name, victims in named.items() if name in fault for v in victims]:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.send_signal(how)

    return kill


def run_with(fault: str, soak: Soaked, number: int, chance: random.Random) -> str:
    """The state of a run of a day that a fault meets."""
    day, meanwhile, said = day_of(number), None, ""
    if fault != LATE:
        deliver(soak.inbox, day, whole=fault != "truncated day")
    if fault in KILLS:
        meanwhile = killed(fault, soak, chance)
    if fault == "declared dead":
        meanwhile = partial(declare_dead, soak, chance)
    if fault == "two at once":
        meanwhile = partial(run_twin, soak, day)
    if fault in BEFORE:
        said = BEFORE[fault](soak, chance)
    source = "https://bob:S3CRET@h.example/{day}.csv.gz" if fault.startswith("secret") else ""
    with ROUND.get(fault, contextlib.nullcontext)(soak):
        return said + soak.refresh(day, meanwhile, source)


def run_twin(soak: Soaked, day: str, _: str) -> None:
    """Another run of the same day, to its end."""
    soak.refresh(day)


def declare_dead(soak: Soaked, chance: random.Random, run: str) -> None:
    """Force a run to Crashed in the server while it is at work."""
    stage_at_work(soak, run, chance)
    soak.force(run, "CRASHED")


@contextlib.contextmanager
def full_disk(soak: Soaked) -> Iterator[None]:
    """Its artifacts are on a disk of a few pages; only root may mount one."""
    artifacts = soak.project / ".release/artifacts"
    shutil.rmtree(artifacts, ignore_errors=True)
    artifacts.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(artifacts)]
    mounted = not subprocess.run(mount, check=False, capture_output=True).returncode
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(artifacts)], check=True)


@contextlib.contextmanager
def away(path: Path) -> Iterator[None]:
    """A file stands where a remote was."""
    aside = path.with_name(f"{path.name}-away")
    if not path.exists():  # nothing was pushed yet
        yield
        return
    path.rename(aside)
    path.write_text("an answer from elsewhere\n")
    try:
        yield
    finally:
        path.unlink()
        aside.rename(path)


def git_remote_fails(soak: Soaked) -> contextlib.AbstractContextManager[None]:
    """The git remote does not answer."""
    return away(Path(f"{soak.project}-remote.git"))


def dvc_remote_fails(soak: Soaked) -> contextlib.AbstractContextManager[None]:
    """DVC's remote takes nothing."""
    return away(Path(f"{soak.project}-stored"))


def flip(file: Path, keep_stamp: bool) -> None:
    """Change a byte of a file in place."""
    stamp, content = file.stat(), bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.chmod(0o644)
    file.write_bytes(content)
    if keep_stamp:
        os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def overwrite_landed(soak: Soaked, chance: random.Random) -> str:
    """A landed file is overwritten; size and time stamp stay."""
    files = sorted((soak.project / ".release/data").glob("day=*/*.parquet"))
    if files:
        flip(chance.choice(files), keep_stamp=True)
    return ""


def damage_artifact(soak: Soaked, chance: random.Random) -> str:
    """A file of an artifact is changed."""
    files = sorted(p for p in (soak.project / ".release/artifacts").glob("*/*") if p.is_file())
    if files:
        flip(chance.choice(files), keep_stamp=False)
    return ""


def leave_locks(soak: Soaked, _: random.Random) -> str:
    """What killed programs leave: DVC's lock of a process that is gone, and git's."""
    release = soak.project / ".release"
    if (release / ".dvc").exists():
        with subprocess.Popen([sys.executable, "-c", ""]) as gone:
            gone.wait()
        (release / ".dvc/tmp").mkdir(exist_ok=True)
        holder = {str(release / "data"): {"pid": gone.pid, "cmd": "dvc repro"}}
        (release / ".dvc/tmp/rwlock").write_text(json.dumps({"write": holder}))
        own = Path(git(release, "rev-parse", "--absolute-git-dir").output.strip())
        (own / "index.lock").touch()
    return ""


def damage_remote(soak: Soaked, _: random.Random) -> str:
    """An object of production's model is damaged at the remote; who follows says how to mend it."""
    stored, host = Path(f"{soak.project}-stored"), soak.project.parent / "host"
    release = soak.project / ".release"
    if not stored.exists() or not (release / "artifacts/model").exists():
        return ""
    served = host / "model"
    try:
        before = pull(soak.project, served)
        weights = served / ("weights.txt" if (served / "weights.txt").exists() else "model.onnx")
        content = weights.read_bytes()
        flip(next(p for p in stored.rglob("*") if p.is_file() and p.read_bytes() == content), True)
        shutil.rmtree(host)
        pull(soak.project, served)
    except Exception as error:
        removed = re.findall(r"files/md5/\S+", str(error))
        for name in removed:
            (stored / name).unlink(missing_ok=True)
        for command in re.findall(r"(?:git restore|dvc push)[^,;]*", str(error)):
            run_program(command.split(), release)
        mended = pull(soak.project, served)
        shutil.rmtree(host)
        return "refused, mended, " if mended == before else f"{error}, "
    return "unnoticed, "


ROUND = {
    "full disk": full_disk,
    "git remote fails": git_remote_fails,
    "DVC remote fails": dvc_remote_fails,
}
BEFORE = {
    "landed file overwritten": overwrite_landed,
    "artifact damaged": damage_artifact,
    "locks left": leave_locks,
    "object damaged at remote": damage_remote,
}
FAULTS = (
    *KILLS, *ROUND, *BEFORE, "truncated day", LATE, "declared dead", "two at once",
    "secret in a parameter",
)  # fmt: skip


QUIET = {*BEFORE, "two at once"}


def drawn(days: int, faults: int, seed: int) -> dict[int, list[str]]:
    """Number of a day → its faults in order; every kind comes before one comes again."""
    chance, left = random.Random(seed), list[str]()
    found: dict[int, list[str]] = {day: [] for day in range(2, days)}
    for turn in range(faults):
        left = left or chance.sample(FAULTS, len(FAULTS))
        found[2 + turn * (days - 2) // faults].append(left.pop())
    for day in range(2, days - 1):
        if LATE in found[day]:  # nothing more runs on a day that is late
            found[day + 1] += [fault for fault in found[day] if fault != LATE]
            found[day] = [LATE]
    for of_day in found.values():  # what does not hold a day up comes last
        of_day.sort(key=lambda fault: (fault in QUIET, fault != "truncated day"))
    return found
