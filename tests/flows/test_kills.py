"""Kill anything, any time: the next run needs no hand work, and ends as if nothing had been."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from prefect.runtime import flow_run

from flows.local import end_orphaned_runs
from flows.refresh import refresh
from pipeline.core.errors import ToolError
from pipeline.data.log_store.store import drop_days
from pipeline.params.params_file import set_values
from pipeline.registry.history import last_refresh
from pipeline.registry.tools.dvc import commit_data, reproduce
from pipeline.registry.tools.programs import git, run_lock
from pipeline.registry.verdicts import production
from tests.dvc_here import dvc
from tests.flows.conftest import SECONDS, add_remotes, known_database, land_tiny_log, until

DAY = "2013-09-29"


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a stage writes its process id when half of its output is written; then it sleeps."""
    monkeypatch.setenv("CHEAP_MARK", str(tmp_path / "mark"))
    return tmp_path / "mark"


def family_of(mark: Path) -> dict[str, psutil.Process]:
    """The stage at work and the dvc that runs it."""
    until(lambda: mark.exists() and mark.read_text())
    stage = psutil.Process(int(mark.read_text()))
    above = stage.parents()
    dvc = next(process for process in above if any("dvc" in w for w in process.cmdline()[:2]))
    return {"stage": stage, "dvc": dvc}


def all_ended(family: dict[str, psutil.Process]) -> bool:
    """Whether no process of a run is there any more."""
    return not [name for name, process in family.items() if process.is_running()]


def stop(
    mark: Path,
    how: signal.Signals,
    named: dict[str, str],
    module: str,
    *arguments: str,
    everyone: bool = False,
) -> list[str]:
    """Send a flow a signal in the middle of a stage; what it said, when nothing of it is left.

    Prefect may say after the flow's own last words that it still delivers events.

    Args:
        mark: see the fixture.
        how: the signal.
        named: what of Prefect the environment names.
        module: of flows/.
        arguments: of its command line.
        everyone: whether all that it started get the signal, too, as from a service manager.
    """
    mark.unlink(missing_ok=True)
    command = [sys.executable, "-m", f"flows.{module}", *arguments]
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
        for process in [*family.values()] if everyone else []:
            with suppress(psutil.NoSuchProcess):  # it has ended with one that had the signal
                process.send_signal(how)
        flow.send_signal(how)
        output = flow.communicate(timeout=SECONDS)[1]
    # a shell calls death by SIGINT 130, too: so Python ends where that met a text run as code
    ends = (-how,) if how == signal.SIGKILL else (130, -signal.SIGINT)
    assert flow.returncode in ends, output
    until(lambda: all_ended(family))
    return output.splitlines()


def kill_below(mark: Path, release: Path, victim: str) -> None:
    """Kill one of the programs that a flow started for a stage; the stage fails and all end."""
    mark.unlink(missing_ok=True)
    family = {}

    def kill() -> None:
        family.update(family_of(mark))
        family[victim].kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(ToolError, match=r"dvc repro merge failed: (killed|failed to)"):
        reproduce("merge", release)
    killer.join()
    until(lambda: all_ended(family))


@pytest.mark.slow
def test_whatever_is_killed_the_next_run_ends_as_an_undisturbed_one(
    checkout, prefect_server, mark, monkeypatch
):
    """Each run begins with what the one before left; the last is left in peace."""
    day = ("--day", DAY, "--folder", str(checkout))
    alone = known_database(prefect_server, checkout.parent / "prefect")
    stop(mark, signal.SIGKILL, alone, "refresh", *day)  # with a server of its own
    assert "it is at work, or was killed" in last_refresh(checkout)
    for victim in ("dvc", "stage"):
        kill_below(mark, checkout / ".release", victim)
    merge = ("merge", "--folder", str(checkout / ".release"))
    served = {"PREFECT_API_URL": prefect_server.api}
    said = stop(mark, signal.SIGINT, served, "stages", *merge)
    assert "merge: stopped; the next run begins where this one was" in said
    said = stop(mark, signal.SIGTERM, served, "refresh", *day)
    assert "refresh: stopped; the next run begins where this one was" in said
    assert "as Stopped: the next run begins where this one was" in last_refresh(checkout)
    assert production(checkout) is None

    monkeypatch.delenv("CHEAP_MARK")
    state = refresh(DAY, str(checkout), return_state=True)
    assert state.name == "Promoted", state.message

    set_values(checkout / "params.yaml", {"split.last_day": DAY})
    dvc(checkout, "repro", "--quiet")
    for name in ("dvc.lock", "reports/gate.json", "artifacts/model/weights.txt"):
        assert (checkout / ".release" / name).read_bytes() == (checkout / name).read_bytes(), name
    half_written = set((checkout / ".release").glob("**/.*.tmp-*"))
    assert half_written <= {checkout / ".release/.data.tmp-lock"}  # landing's lock file stays


@pytest.mark.slow
def test_a_stop_that_reaches_every_process_at_once_ends_in_one_sentence(
    checkout, prefect_server, mark
):
    alone = known_database(prefect_server, checkout.parent / "prefect")
    day = ("--day", DAY, "--folder", str(checkout))
    said = stop(mark, signal.SIGTERM, alone, "refresh", *day, everyone=True)
    assert "refresh: stopped; the next run begins where this one was" in said
    assert not [line for line in said if "Traceback" in line]


@pytest.mark.slow
def test_a_run_that_was_killed_with_its_worker_gives_its_turn_back(prefect_server):
    """What `up` does before it starts a worker; the next run need not wait for minutes."""
    named = {"deployments": {"name": {"any_": ["refresh"]}}}
    (deployed,) = prefect_server.ask("deployments/filter", **named)
    later = {"type": "SCHEDULED", "state_details": {"scheduled_time": "2999-01-01T00:00:00Z"}}
    run = prefect_server.ask(f"deployments/{deployed['id']}/create_flow_run", state=later)["id"]
    limits = {"limit": 10, "offset": 0}

    def turns() -> list[int]:
        found = prefect_server.ask("v2/concurrency_limits/filter", **limits)
        return [limit["active_slots"] for limit in found if deployed["id"] in limit["name"]]

    for state in ("PENDING", "RUNNING"):
        prefect_server.ask(f"flow_runs/{run}/set_state", state={"type": state})
    assert turns() == [1]
    end_orphaned_runs(prefect_server.api)
    (ended,) = prefect_server.ask("flow_runs/filter", flow_runs={"id": {"any_": [run]}})
    assert (ended["state_type"], turns()) == ("CRASHED", [0])


def test_a_lock_that_a_killed_git_left_is_in_no_landings_way(checkout):
    """Nor one of a git at work: DVC leaves git's index to people, and to promotion."""
    land_tiny_log(checkout / "data", [DAY])
    (checkout / ".git/index.lock").touch()
    commit_data(checkout)
    assert not json.loads(dvc(checkout, "status", "--json", "data.dvc"))


def test_a_damaged_manifest_is_mended_as_the_sentence_says_and_noted_by_no_drop(checkout):
    manifest, noted = checkout / "data/manifest.json", (checkout / "data.dvc").read_bytes()
    good = manifest.read_bytes()
    manifest.chmod(0o644)
    manifest.write_bytes(good[:-3])
    drop = [sys.executable, "-m", "pipeline.cli.main", "drop", DAY]
    done = subprocess.run(drop, cwd=checkout, capture_output=True, text=True, check=False)
    assert (done.returncode, (checkout / "data.dvc").read_bytes()) == (1, noted)
    assert "remove it, and dvc checkout data.dvc" in done.stderr
    manifest.unlink()
    dvc(checkout, "checkout", "--quiet", "data.dvc")
    assert manifest.read_bytes() == good


def test_what_a_drop_that_was_killed_took_out_is_noted_by_the_next(checkout):
    drop_days(checkout / "data", [DAY])  # as far as it came
    again = [sys.executable, "-m", "pipeline.cli.main", "drop", DAY]
    done = subprocess.run(again, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert DAY in done.stderr
    assert not json.loads(dvc(checkout, "status", "--json", "data.dvc"))


TAKE_OVER = """
import os, sys
from pathlib import Path
from pipeline.registry.tools.programs import hold
with hold(Path(sys.argv[1]), "another run", "the worktree"):
    os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("dead", ["declared dead", "lock taken over"])
def test_a_run_that_counts_no_more_publishes_nothing(checkout, prefect_server, monkeypatch, dead):
    """Whoever forced it to Crashed, or removed its lock's file and began another run."""

    def outlive(folder, day):
        if dead == "declared dead":
            crashed = {"type": "CRASHED", "message": "no heartbeat"}
            path = f"flow_runs/{flow_run.id}/set_state"
            prefect_server.ask(path, state=crashed, force=True)
        else:
            lock = run_lock(folder, "release")
            lock.unlink()
            subprocess.run([sys.executable, "-c", TAKE_OVER, str(lock)], check=True)
        return []

    add_remotes(checkout)
    monkeypatch.setattr("flows.refresh.add_day", outlive)
    state = refresh(DAY, str(checkout), return_state=True)
    assert "publishes nothing" in (state.message or ""), state
    assert production(checkout) is None
    bare = checkout.parent / "remote.git"
    assert not git(bare, "for-each-ref").output

    if dead == "declared dead":  # the next one goes on, as after any other
        monkeypatch.undo()
        assert refresh(DAY, str(checkout), return_state=True).name == "Promoted"
        assert git(bare, "log", "-1", "--format=%s", "release").output == f"day={DAY}\n"


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
def test_a_landed_file_that_was_overwritten_in_place_is_noticed_and_brought_back(checkout):
    """Its size and time stamp are as they were; nothing else is new."""
    assert refresh(DAY, str(checkout), return_state=True).name == "Promoted"
    (file,) = (checkout / f".release/data/day={DAY}").iterdir()
    good, stamp = file.read_bytes(), file.stat()
    with file.open("r+b") as opened:
        opened.seek(len(good) // 2)
        opened.write(bytes([good[len(good) // 2] ^ 1]))
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    state = refresh(DAY, str(checkout), return_state=True)
    assert state.name == "Promoted"
    assert f"day={DAY}/{file.name} was overwritten" in state.message
    assert file.read_bytes() == good
