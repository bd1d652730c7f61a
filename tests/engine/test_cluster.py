"""Worker processes: what they make is what threads make, to the byte; what ends them is said."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.core import files
from pipeline.core.errors import AdaCalibError, DataError
from pipeline.data.ingest.file_reader import land_files
from pipeline.engine import day_map
from pipeline.engine.day_map import map_days
from pipeline.formats.days import day_name
from tests.data.logs import HEADER, bytes_in, mapping, written
from tests.engine.dask_here import ROOT, wait_for
from tests.engine.dask_here import cluster as own_cluster
from tests.engine.test_reuse import git
from tests.engine.test_reused_stages import KEEPING, made, project_of
from tests.ready_processes import ready_workers
from tests.whole_walk import PATHS

# workers are started again within this process, where a warning of Dask's must not end that
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
HERE = "local:2"
OF_STAGE = {
    "validate": ("artifacts/validation", "reports/validation.json"),
    "score": ("artifacts/scores",),
    "tabulate": ("artifacts/tables",),
    "check_tables": ("reports/tables.json",),
}
DAYS = [day_name(number) for number in range(20_000, 20_012)]


@pytest.fixture(scope="module", autouse=True)
def workers_that_are_loaded():
    """They begin in milliseconds, as many die here; they are let go of in the end."""
    with ready_workers():
        yield
        day_map.release()


@pytest.fixture
def here(monkeypatch):
    """Two worker processes of this one."""
    monkeypatch.setenv(day_map.DASK, HERE)


@pytest.fixture(scope="module")
def by_threads(tmp_path_factory):
    """A project whose stages ran in threads, and what they left."""
    folder = project_of(tmp_path_factory.mktemp("threads") / "project")
    return folder, made(folder)


def copy_of(by_threads, target: Path, *stages: str) -> Path:
    """The project without what some stages left."""
    folder = Path(shutil.copytree(by_threads[0], target / "project"))
    for stage in stages:
        for output in OF_STAGE[stage]:
            path = folder / output
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder


def test_other_processes_do_the_work_and_days_come_in_their_order(here):
    def work(day):
        return day, os.getpid()

    found = list(map_days(work, DAYS, "look"))
    assert [(day, made) for day, (made, _) in found] == [(day, day) for day in DAYS]
    assert os.getpid() not in {process for _, (_, process) in found}


def test_the_first_day_that_fails_is_told_as_it_is_after_those_before_it(here):
    def work(day):
        if day >= DAYS[3]:
            raise DataError(f"day {day} is wrong")
        return day

    days = map_days(work, DAYS, "look")
    assert [next(days)[1] for _ in range(3)] == DAYS[:3]
    with pytest.raises(DataError, match=f"^day {DAYS[3]} is wrong$"):
        next(days)
    assert dict(map_days(str.upper, DAYS[:2], "look")) == {day: day for day in DAYS[:2]}


def test_days_go_to_all_processes_though_those_before_took_no_time(here, tmp_path):
    def meet(day):
        """Wait until another process is at the other day."""
        (tmp_path / day).touch()
        for other in DAYS[:2]:
            wait_for(tmp_path / other, 30)

    while day_map.processes() != 2:  # both are there
        time.sleep(0.02)
    for _ in range(5):
        list(map_days(str.upper, DAYS, "look"))
        time.sleep(0.2)  # the scheduler forgets the days, not what they took
        list(map_days(meet, DAYS[:2], "look"))
        for day in DAYS[:2]:
            (tmp_path / day).unlink()


def test_no_process_works_on_once_a_day_has_failed(here, tmp_path):
    """What it writes to is removed then."""

    def work(day):
        if day == DAYS[0]:
            wait_for(tmp_path / "process", 60)
            raise DataError(f"day {day} is wrong")
        (tmp_path / "writing").write_text(str(os.getpid()))
        (tmp_path / "writing").rename(tmp_path / "process")
        wait_for(tmp_path / "never", 60)

    while day_map.processes() != 2:  # both are there
        time.sleep(0.02)
    with pytest.raises(DataError, match="is wrong"):
        list(map_days(work, DAYS, "look"))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "process").read_text()), 0)


def test_stages_leave_the_same_bytes_where_what_is_made_of_days_is_kept(here, by_threads, tmp_path):
    """By whoever made it. Where nothing is kept, those that are killed below leave the same."""
    folder = copy_of(by_threads, tmp_path, *KEEPING)
    git(folder, "init", "--quiet")
    assert made(folder, *KEEPING) == by_threads[1]
    assert (folder / ".git/adacalib/days").is_dir()
    day_map.release()
    assert made(folder, *KEEPING) == by_threads[1]


def once(flag: Path) -> bool:
    """Whether this is the first process to ask."""
    try:
        flag.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def die_at_first(flag: str, moment: str) -> None:
    """In a worker: die once, before the work on a day or in the middle of writing what it made."""

    def die(*_):
        if once(Path(flag)):
            os.kill(os.getpid(), signal.SIGKILL)

    if moment == "work":
        refuse = day_map._refuse_other
        day_map._refuse_other = lambda checkout: (die(), refuse(checkout))
    else:
        files._sync = die


@pytest.mark.parametrize(
    ("stage", "moment"),
    [("validate", "work"), ("score", "write"), ("tabulate", "write"), ("check_tables", "work")],
)
def test_a_worker_that_is_killed_in_a_stage_changes_no_byte(
    here, by_threads, tmp_path, stage, moment
):
    folder, flag = copy_of(by_threads, tmp_path, stage), tmp_path / "died"
    list(map_days(str.upper, DAYS[:1], "look"))
    day_map._client(HERE).run(die_at_first, str(flag), moment)
    found = made(folder, stage)
    assert flag.exists()
    assert found == by_threads[1]
    assert not [*folder.rglob(".*.tmp-*")]


def test_files_that_workers_read_land_as_the_same_bytes_though_one_of_them_is_killed(
    here, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    sources = [Path(f"hour={hour}/log.csv.gz") for hour in range(5)]
    for hour, source in enumerate(sources):
        source.parent.mkdir()
        lines = (f"{86400 * n // 700 + hour},{n % 9},1,{n % 2}\n" for n in range(1500))
        written(source, HEADER + "".join(lines))
    expected = land_files(Path("threads"), mapping(), sources)
    list(map_days(str.upper, DAYS[:1], "look"))
    day_map._client(HERE).run(die_at_first, str(tmp_path / "died"), "work")
    found = land_files(Path("processes"), mapping(), sources, over=map_days)
    assert Path("died").exists()
    assert found == expected
    assert bytes_in(Path("processes")) == bytes_in(Path("threads"))
    assert not [*Path().glob(".*.tmp-??*/**/*")]


def test_work_that_kills_every_worker_is_one_sentence_and_the_next_work_goes_on(here):
    def work(day):
        if day == DAYS[1]:
            os.kill(os.getpid(), signal.SIGKILL)
        return day

    # a day whose result died with a worker each time is blamed as well, by Dask
    with pytest.raises(AdaCalibError, match=f"look ({DAYS[0]}|{DAYS[1]}): 4 workers died"):
        list(map_days(work, DAYS, "look"))
    assert len(list(map_days(str.upper, DAYS, "look"))) == len(DAYS)


def test_a_worker_that_runs_out_of_memory_is_one_sentence(monkeypatch):
    def work(day):
        held = []
        for _ in range(100):
            held.append(bytearray(b"x") * (20 << 20))
            time.sleep(0.1)  # as work does that grows
        return len(held)

    with own_cluster("--memory-limit", "500MB") as (address, _):
        monkeypatch.setenv(day_map.DASK, address)
        list(map_days(str.upper, DAYS[:1], "look"))  # they are there, however long that took
        monkeypatch.setattr(day_map, "PATIENCE", 20.0)
        with pytest.raises(AdaCalibError, match="memory"):
            list(map_days(work, DAYS[:1], "look"))
        day_map.release()


def test_a_scheduler_that_is_killed_is_one_sentence_and_the_next_run_goes_on(by_threads, tmp_path):
    """Nothing of the stage is there that could be read."""
    stage = "tabulate"
    folder, flag = copy_of(by_threads, tmp_path, stage), tmp_path / "begun"
    git(folder, "init", "--quiet")
    with own_cluster() as (address, scheduler):
        program = (
            f"import sys; sys.argv = ['pipeline', {stage!r}, *{[*map(str, PATHS[stage])]!r}]\n"
            "from pathlib import Path\nfrom pipeline.engine import day_map\n"
            f"begin = day_map.Workers.begin\n"
            f"def slowly(self, item):\n    Path({str(flag)!r}).touch()\n"
            "    import time; time.sleep(2)\n    return begin(self, item)\n"
            "day_map.Workers.begin = slowly\nfrom pipeline.__main__ import main\nmain()\n"
        )
        env = {**os.environ, day_map.DASK: address, "PYTHONPATH": str(ROOT)}
        stage_run = subprocess.Popen(
            [sys.executable, "-c", program], cwd=folder, env=env, stderr=subprocess.PIPE, text=True
        )
        wait_for(flag)
        scheduler.kill()
        said = stage_run.communicate(timeout=300)[1]
    assert stage_run.returncode == 1
    assert said.startswith(f"{stage}: ")
    assert "does not answer" in said
    assert said.count("\n") == 1
    assert not (folder / OF_STAGE[stage][0]).exists()
    assert made(folder, stage) == by_threads[1]


def test_a_worker_with_other_code_is_refused(tmp_path, monkeypatch):
    other = Path(shutil.copytree(ROOT / "pipeline", tmp_path / "pipeline")).parent
    file = other / "pipeline/core/errors.py"
    file.write_text(file.read_text() + "# another\n")
    with own_cluster(path=other) as (address, _):
        monkeypatch.setenv(day_map.DASK, address)
        with pytest.raises(AdaCalibError, match="has another code"):
            list(map_days(str.upper, DAYS[:1], "look"))
        day_map.release()


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("local:0", "must be local:N"),
        ("two", "must be local:N"),
        ("http://127.0.0.1:8786", "must be local:N"),
        ("tcp://127.0.0.1", "must be local:N"),
        ("tcp://127.0.0.1:port", "must be local:N"),
        ("tcp://127.0.0.1:1", "does not answer"),
        ("tcp://127.0.0.1:99999", "must be local:N"),
        ("tls://127.0.0.1:1", "name the files"),
    ],
)
def test_a_place_without_workers_is_one_sentence(monkeypatch, place, sentence):
    monkeypatch.setenv(day_map.DASK, place)
    monkeypatch.setattr(day_map, "PATIENCE", 3.0)
    with pytest.raises(AdaCalibError, match=sentence):
        list(map_days(str.upper, DAYS[:1], "look"))


def test_a_cluster_that_is_there_gives_the_same_bytes_and_is_left_as_it_is(
    by_threads, tmp_path, monkeypatch
):
    folder = copy_of(by_threads, tmp_path, *KEEPING)
    with own_cluster(workers=2) as (address, scheduler):
        monkeypatch.setenv(day_map.DASK, address)
        assert made(folder, *KEEPING) == by_threads[1]
        day_map.release()
        assert scheduler.poll() is None
        assert dict(map_days(str.upper, DAYS[:2], "look")) == {day: day for day in DAYS[:2]}
        day_map.release()
