"""Kill anything, any time: the next run needs no hand work, and ends as if nothing had been."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from flows.refresh import refresh
from pipeline.errors import ToolError
from pipeline.params import set_values
from pipeline.release.journal import last_refresh
from pipeline.release.programs import run_leashed
from pipeline.release.promotion import production
from pipeline.release.registry import reproduce
from tests.flows.conftest import SECONDS, Server, until

DAY = "2013-09-29"


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a stage writes its process id when half of its output is written; then it sleeps."""
    monkeypatch.setenv("CHEAP_MARK", str(tmp_path / "mark"))
    # Tests run in the background are deaf to interrupts; what this one starts shall hear them.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield tmp_path / "mark"
    signal.signal(signal.SIGINT, before)


def family_of(mark: Path) -> dict[str, psutil.Process]:
    """The stage at work, the dvc that runs it, and the leash that holds both."""
    until(lambda: mark.exists() and mark.read_text())
    stage = psutil.Process(int(mark.read_text()))
    above = stage.parents()
    dvc = next(process for process in above if any("dvc" in w for w in process.cmdline()[:2]))
    return {"stage": stage, "dvc": dvc, "leash": dvc.parent()}


def all_ended(family: dict[str, psutil.Process]) -> bool:
    """Whether no process of a run is there any more."""
    return not [name for name, process in family.items() if process.is_running()]


def stop(
    mark: Path, how: signal.Signals, module: str, *arguments: str, server: Server | None = None
) -> str:
    """Send a flow a signal in the middle of a stage; its last words, when nothing of it is left."""
    mark.unlink(missing_ok=True)
    command = [sys.executable, "-m", f"flows.{module}", *arguments]
    named = {"PREFECT_API_URL": server.api} if server else {}
    with subprocess.Popen(
        command,
        env=os.environ | named,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as flow:
        family = family_of(mark)
        children = psutil.Process(flow.pid).children(recursive=True)
        family |= {str(child.pid): child for child in children}
        flow.send_signal(how)
        said = flow.communicate(timeout=SECONDS)[1]
    assert flow.returncode == (130 if how != signal.SIGKILL else -how), said
    until(lambda: all_ended(family))
    return said.strip().rpartition("\n")[2]


def kill_below(mark: Path, release: Path, victim: str) -> None:
    """Kill one of the programs that a flow started for a stage; the stage fails and all end."""
    mark.unlink(missing_ok=True)
    family = {}

    def kill() -> None:
        family.update(family_of(mark))
        family[victim].kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(ToolError, match="dvc repro merge failed"):
        reproduce("merge", release)
    killer.join()
    until(lambda: all_ended(family))


@pytest.mark.slow
def test_whatever_is_killed_the_next_run_ends_as_an_undisturbed_one(
    checkout, prefect_server, mark, monkeypatch
):
    """H19: each run begins with what the one before left; the last is left in peace."""
    day = ("--day", DAY, "--folder", str(checkout))
    stop(mark, signal.SIGKILL, "refresh", *day)  # with the server that it had started itself
    assert "it is at work, or was killed" in last_refresh(checkout)
    for victim in ("dvc", "stage", "leash"):
        kill_below(mark, checkout / ".release", victim)
    merge = ("merge", "--folder", str(checkout / ".release"))
    said = stop(mark, signal.SIGINT, "stages", *merge, server=prefect_server)
    assert said == "merge: stopped; the next run begins where this one was"
    said = stop(mark, signal.SIGTERM, "refresh", *day, server=prefect_server)
    assert said == "refresh: stopped; the next run begins where this one was"
    assert "as Stopped: the next run begins where this one was" in last_refresh(checkout)
    assert production(checkout) is None

    monkeypatch.delenv("CHEAP_MARK")
    state = refresh(DAY, str(checkout), return_state=True)
    assert state.name == "Promoted", state.message

    set_values(checkout / "params.yaml", {"log.last_day": DAY})
    run_leashed(["dvc", "repro", "--quiet"], checkout)
    for name in ("dvc.lock", "reports/gate.json", "artifacts/model/weights.txt"):
        assert (checkout / ".release" / name).read_bytes() == (checkout / name).read_bytes(), name
    assert not list((checkout / ".release").glob("**/.*.tmp-*"))
