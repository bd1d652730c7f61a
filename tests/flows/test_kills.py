"""Kill anything, any time: the next run needs no hand work, and ends as if nothing had been."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from flows.refresh import refresh
from pipeline.params import set_values
from pipeline.release.journal import last_refresh
from pipeline.release.programs import run_leashed
from pipeline.release.promotion import production
from tests.flows.conftest import SECONDS, Server, until

DAY = "2013-09-29"


def family_of(mark: Path) -> dict[str, psutil.Process]:
    """The stage at work, the dvc that runs it, and the leash that holds both."""
    until(lambda: mark.exists() and mark.read_text())
    stage = psutil.Process(int(mark.read_text()))
    above = stage.parents()
    dvc = next(process for process in above if any("dvc" in w for w in process.cmdline()[:2]))
    return {"stage": stage, "dvc": dvc, "leash": dvc.parent()}


def start_and_kill(checkout: Path, server: Server, victim: str, how: signal.Signals) -> None:
    """Kill a part of a refresh in the middle of a stage; nothing of it may go on."""
    mark = checkout.parent / "mark"
    mark.unlink(missing_ok=True)
    running = {"CHEAP_MARK": str(mark), "PREFECT_API_URL": server.api}
    command = [sys.executable, "-m", "flows.refresh", "--day", DAY, "--folder", str(checkout)]
    with subprocess.Popen(
        command,
        env=os.environ | running,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as flow:
        family = family_of(mark)
        (psutil.Process(flow.pid) if victim == "flow" else family[victim]).send_signal(how)
        assert flow.wait(SECONDS) != 0, victim
    until(lambda: not [name for name, process in family.items() if process.is_running()])
    assert production(checkout) is None


@pytest.mark.slow
def test_whatever_is_killed_the_next_run_ends_as_an_undisturbed_one(checkout, prefect_server):
    """H19: each run begins with what the one before left; the last is left in peace."""
    start_and_kill(checkout, prefect_server, "flow", signal.SIGKILL)
    assert "it is at work, or was killed" in last_refresh(checkout)
    for victim, how in (
        ("dvc", signal.SIGKILL),
        ("stage", signal.SIGKILL),
        ("leash", signal.SIGKILL),
        ("flow", signal.SIGTERM),
    ):
        start_and_kill(checkout, prefect_server, victim, how)
    state = refresh(DAY, str(checkout), return_state=True)
    assert state.name == "Promoted", state.message

    set_values(checkout / "params.yaml", {"log.last_day": DAY})
    run_leashed(["dvc", "repro", "--quiet"], checkout)
    for name in ("dvc.lock", "reports/gate.json", "artifacts/model/weights.txt"):
        assert (checkout / ".release" / name).read_bytes() == (checkout / name).read_bytes(), name
    assert not list((checkout / ".release").glob("**/.*.tmp-*"))
