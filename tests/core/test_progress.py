"""A bar in a terminal when work takes long, lines everywhere."""

import re

import pytest

from pipeline.core import work as work_module
from pipeline.core.work import WorkProgress


@pytest.fixture
def terminal(monkeypatch) -> None:
    """Standard error is a terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")


def test_there_is_no_bar_where_there_is_no_terminal(monkeypatch, capsys):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setattr(work_module, "PATIENCE", 0.0)
    with WorkProgress("score", 2, "days") as work:
        work.advance(1)
        work.line("halfway [1/2]")
        work.advance(1)
    assert capsys.readouterr().err == "halfway [1/2]\n"


@pytest.mark.usefixtures("terminal")
def test_work_that_is_soon_done_has_no_bar(capsys):
    with WorkProgress("score", 2, "days") as work:
        work.advance(2)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("terminal")
def test_long_work_in_a_terminal_has_a_bar_with_its_rate(monkeypatch, capsys):
    monkeypatch.setattr(work_module, "PATIENCE", -1.0)
    with WorkProgress("score", 2, "days") as work:
        work.advance(1)
        work.advance(1)
    said = capsys.readouterr()
    assert "score" in said.err
    assert "days/s" in said.err
    assert said.out == ""


def test_long_work_without_a_terminal_says_how_far_it_is_from_time_to_time(monkeypatch, capsys):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setattr(work_module, "SILENCE", -1.0)
    with WorkProgress("train", 4000, "rows") as work:
        work.leave_out(1000)
        work.advance(2000)
    (said,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"train: 2,000 of 3,000 rows, [\d,]+ rows/s, 0:00:00 left", said)
