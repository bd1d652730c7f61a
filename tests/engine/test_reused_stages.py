"""Stages that keep what they made of days: the same bytes whatever is kept, and from nothing."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from pipeline.__main__ import run_stage
from pipeline.formats.champion import write_pin
from pipeline.formats.days import day_name, day_number
from pipeline.params.params_file import STAGES, set_values
from pipeline.stages import check_tables, score, tabulate, validate
from tests.engine.test_reuse import git
from tests.ready_processes import all_of
from tests.stages.worlds import busy_day
from tests.tiny_logs import files_of, write_log
from tests.whole_walk import PATHS, project

DAYS = [day_name(day_number("2024-03-04") + n) for n in range(8)]
LOG = {"log__categorical": ["item"], "log__numeric": ["price"], "log__event_id": "event"}
KEEPING = ("validate", "score", "tabulate", "check_tables")
OUTPUTS = ("artifacts/validation", "artifacts/scores", "artifacts/tables", "reports")


def log_days(**changed):
    """Days whose events have ids of their own; some replaced."""
    days = {}
    for day in DAYS:
        table = busy_day(day)
        days[day] = table.append_column("event", [[f"{day} {n}" for n in range(len(table))]])
    return days | changed


def made(folder: Path, *stages: str) -> dict[str, bytes]:
    """What is left where some stages ran in a folder; all up to check_tables if not said."""
    for stage in stages or STAGES[: STAGES.index("check_tables") + 1]:
        run_stage(stage, [folder / path for path in PATHS[stage]], folder / "params.yaml")
    return {
        f"{output}/{name}": content
        for output in OUTPUTS
        for name, content in files_of(folder / output).items()
    }


def project_of(folder: Path, **changed) -> Path:
    """A project with a log and nothing in production."""
    project(folder, log_days(**changed), **LOG)
    write_pin(folder / "champion.json", None)
    return folder


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A project in no repository, and what comes out there, where nothing is kept."""
    folder = project_of(tmp_path_factory.mktemp("bare") / "project")
    return folder, made(folder)


@pytest.fixture(scope="module")
def from_nothing(bare):
    """What comes out where nothing is kept."""
    return bare[1]


@pytest.fixture(scope="module")
def warm(tmp_path_factory, from_nothing):
    """A project in a repository, and all that was kept when its stages ran."""
    folder = project_of(tmp_path_factory.mktemp("kept") / "project")
    git(folder, "init", "--quiet")
    assert made(folder) == from_nothing
    return folder


def kept(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / ".git/adacalib").rglob("*") if path.is_file())


def copy_of(folder: Path, target: Path) -> Path:
    """A project with what is kept in its repository."""
    return Path(shutil.copytree(folder, target / "project"))


def test_without_a_repository_nothing_is_kept(tmp_path):
    folder = project_of(tmp_path / "project")
    made(folder, "validate")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["project"]
    assert {path.name for path in folder.iterdir()} == {
        "artifacts", "champion.json", "data", "params.yaml", "reports",
    }  # fmt: skip


def test_a_second_run_reads_and_makes_no_day_again(warm, from_nothing, tmp_path, monkeypatch):
    folder = copy_of(warm, tmp_path)

    def refuse(*_, **__):
        raise AssertionError("a day was read again")

    for stage in (validate, score, tabulate, check_tables):
        monkeypatch.setattr(stage, "read_day", refuse)
    before = {path: path.read_bytes() for path in kept(folder)}
    assert made(folder, *KEEPING) == from_nothing
    assert {path: path.read_bytes() for path in kept(folder)} == before


def damage(path: Path, random: np.random.Generator) -> None:
    """Another byte at some place."""
    content = bytearray(path.read_bytes())
    content[random.integers(len(content))] ^= int(random.integers(1, 256))
    path.write_bytes(content)


@pytest.mark.parametrize(("gone", "damaged"), [(0.0, 1.0), (0.5, 0.5)])
def test_entries_that_are_gone_or_damaged_change_no_byte(
    warm, from_nothing, tmp_path, gone, damaged
):
    """Any of them, at any byte; what is damaged is made again, and then whole."""
    folder, random = copy_of(warm, tmp_path), np.random.default_rng(int(10 * gone))
    whole = kept(folder)
    for path in whole:
        if random.random() < gone:
            path.unlink()
        elif random.random() < damaged:
            damage(path, random)
    assert made(folder, *KEEPING) == from_nothing
    assert kept(folder) == whole
    assert made(folder, *KEEPING) == from_nothing


@pytest.mark.parametrize("state", ["deleted", "empty", "in the way", "read-only"])
def test_a_folder_that_is_gone_or_cannot_be_written_changes_no_byte(
    warm, from_nothing, tmp_path, state
):
    folder = copy_of(warm, tmp_path)
    place = folder / ".git/adacalib"
    if state in ("deleted", "in the way"):
        shutil.rmtree(place)
    if state == "in the way":
        place.write_bytes(b"a file")
    if state == "empty":
        for path in kept(folder):
            path.unlink()
    if state == "read-only":
        for path in kept(folder)[::2]:
            path.unlink()
        for path in (place, *place.rglob("*")):
            path.chmod(0o500 if path.is_dir() else 0o400)
    assert made(folder, "score", "tabulate") == from_nothing
    if place.is_dir():
        for path in (place, *place.rglob("*")):
            path.chmod(0o700)


def test_a_small_limit_changes_no_byte_and_is_kept(warm, from_nothing, tmp_path, monkeypatch):
    folder, limit = copy_of(warm, tmp_path), 20_000
    monkeypatch.setenv("ADACALIB_REUSE_GB", str(limit / 1e9))
    shutil.rmtree(folder / ".git/adacalib")
    assert made(folder, *KEEPING) == from_nothing
    assert 0 < sum(path.stat().st_size for path in kept(folder)) <= limit


def changed_day(folder):
    """A calibration day is landed again, with other rows."""
    table = log_days()[DAYS[3]].slice(0, 50)
    shutil.rmtree(folder / "data")
    write_log(folder / "data", log_days(**{DAYS[3]: table}))


def changed_values(**values):
    return lambda folder: set_values(
        folder / "params.yaml", {name.replace("__", "."): value for name, value in values.items()}
    )


@pytest.mark.parametrize(
    ("stages", "change"),
    [
        (("validate", "check_tables"), changed_day),
        (("train_base", "tabulate"), changed_values(train_base__seed=2)),
        (("score", "tabulate"), changed_values(score__max_field_values=2)),
        (("score", "tabulate"), changed_values(score__keep_features=True)),
        (("tabulate", "tabulate"), changed_values(tabulate__grid_cells=16)),
        (("tabulate", "check_tables"), changed_values(tabulate__candidates=[2])),
        (("validate", "score"), changed_values(log__event_id=None)),
        (("validate", "check_tables"), changed_values(split__calibration_days=3)),
    ],
    ids=["content", "base", "values", "features", "cells", "bins", "events", "days"],
)
def test_what_depends_on_something_that_changed_is_made_again(warm, bare, tmp_path, stages, change):
    """As where nothing is kept, to the byte; and it is another result than before.

    By the stages from the first that gets what changed to the last that is looked at.
    """
    folders = [copy_of(warm, tmp_path / "warm"), copy_of(bare[0], tmp_path / "bare")]
    for each in folders:
        change(each)
    first, last = map(STAGES.index, stages)
    found, expected = (made(each, *STAGES[first : last + 1]) for each in folders)
    assert found == expected
    assert found != bare[1]


def walk_of(folder: Path) -> dict[str, bytes]:
    """`made`, in a process of its own."""
    os.environ["ADACALIB_QUIET"] = "1"
    return made(folder)


@pytest.mark.slow
def test_two_worktrees_that_run_at_once_give_the_same_bytes_and_keep_each_day_once(
    warm, from_nothing, tmp_path
):
    main = project_of(tmp_path / "main")
    git(main, "init", "--quiet")
    name = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    git(main, *name, "commit", "--quiet", "--allow-empty", "--message", "first")
    git(main, "worktree", "add", "--quiet", "--detach", str(tmp_path / "other"))
    project_of(tmp_path / "other")
    one, two = all_of(walk_of, [main, tmp_path / "other"])
    assert one == two == from_nothing
    assert [path.name for path in kept(main)] == [path.name for path in kept(warm)]
