"""Wherever an interrupt comes, a published folder is there and nothing else stays behind."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

import pytest

from pipeline.core import files
from pipeline.core.files import publish, scratch_folder
from tests.tiny_logs import files_of


def interrupted_at(line: int, action: Callable[[], None], within: str) -> bool:
    """Run an action with an interrupt before a line of a module; whether it came so far.

    Args:
        line: lines of the module are counted as they run, those of what it calls as well.
        action: what is run.
        within: a part of the module's path.
    """
    left = [line]

    def trace(frame: FrameType, event: str, _: object) -> Callable | None:
        if not any(part in frame.f_code.co_filename for part in (within, "shutil", "tempfile")):
            return None
        if event == "line":
            left[0] -= 1
            if not left[0]:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt):
            action()
    finally:
        sys.settrace(before)
    return left[0] <= 0


def two_files(folder: Path, said: str) -> None:
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_text(said)


@pytest.mark.parametrize("stands", [False, True])
def test_an_interrupt_at_any_line_leaves_the_old_folder_or_the_new_one(tmp_path, stands):
    line, seen = 0, set()
    came = True
    while came:
        place = tmp_path / "place"
        place.mkdir()
        if stands:
            two_files(place / "target", "old")

        def new(target: Path = place / "target") -> None:
            with publish(target) as folder:
                two_files(folder, "new")

        line += 1
        came = interrupted_at(line, new, files.__file__)
        there = files_of(place)
        whole = [{f"target/{n}": said for n in "ab"} for said in (b"old", b"new")]
        assert there in [whole[0] if stands else {}, whole[1]], line
        seen.add(frozenset(there.items()))
        assert [*place.iterdir()] == [place / "target"] * place.joinpath("target").exists(), line
        shutil.rmtree(place)
    assert line > 20
    assert len(seen) == 2


@pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning")
def test_an_interrupt_at_any_line_leaves_no_scratch_folder(tmp_path):
    line, came = 0, True
    while came:

        def use() -> None:
            with scratch_folder("some-", tmp_path) as place:
                two_files(place / "in", "x")

        line += 1
        came = interrupted_at(line, use, files.__file__)
        assert not [*tmp_path.iterdir()], line
    assert line > 20


def said_by(script: str) -> list[str]:
    head = """
import signal
from pipeline.core.signals import interrupt_on_signals, uninterrupted
"""
    command = [sys.executable, "-c", head + script]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_ends_a_process_after_what_may_not_stop_half_way(name):
    script = f"""
interrupt_on_signals()
try:
    with uninterrupted():
        signal.raise_signal(signal.{name})
        print("whole", flush=True)
    print("goes on")
except KeyboardInterrupt:
    print("lets go")
"""
    assert said_by(script) == ["whole", "lets go"]


def test_a_signal_that_is_ignored_stays_so():
    script = """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
interrupt_on_signals()
with uninterrupted():
    signal.raise_signal(signal.SIGHUP)
signal.raise_signal(signal.SIGHUP)
print("goes on")
"""
    assert said_by(script) == ["goes on"]
