"""The trend: one row a refreshed day, alarms told once, pictures that need no script."""

from pathlib import Path

import pytest

from pipeline.core.errors import ArtifactError
from pipeline.core.files import write_json
from pipeline.report.trend import TREND, add_day, shown_rows, trend_rows, write_trend
from tests.report.worlds import reports

SOUND = {"pcoc": 1.02, "low": 0.7, "high": 1.4, "beyond": False}


def refreshed(folder: Path, day: str, version: str | None = "v0.0.1", **odd) -> list[str]:
    """The alarms of a day that was refreshed, some of its newest PCOC replaced."""
    made = reports()
    newest = [{"day": day} | SOUND, {"field_value": "B\x1f2"} | SOUND | odd]
    served = {
        "days": 1,
        "logloss": {"value": 0.4},
        "pcoc": {"value": 1.02, "low": 0.8, "high": 1.3},
        "newest": newest,
    }
    champion = {"version": version, "served": served} if version else None
    write_json(folder / "reports/evaluation.json", made["evaluation"] | {"champion": champion})
    write_json(folder / "reports/gate.json", made["gate"])
    return add_day(folder, day)


def test_a_day_has_one_row_however_often_it_is_refreshed(tmp_path):
    for day in ("2024-01-08", "2024-01-07", "2024-01-08"):
        assert refreshed(tmp_path, day) == []
    rows = trend_rows((tmp_path / TREND).read_text())
    assert [row["day"] for row in rows] == ["2024-01-07", "2024-01-08"]
    assert (rows[0]["made_logloss"], rows[0]["served"], rows[0]["day_PCOC"]) == (
        "0.51", "v0.0.1", "1.02",
    )  # fmt: skip
    assert [row["day"] for row in shown_rows(rows)] == ["2024-01-08", "2024-01-07"]


def test_an_alarm_is_told_once_and_stays_in_the_row(tmp_path):
    (sentence,) = refreshed(tmp_path, "2024-01-08", pcoc=3.1, beyond=True)
    assert "B / 2" in sentence
    assert "3.1" in sentence
    assert refreshed(tmp_path, "2024-01-08", pcoc=3.1, beyond=True) == []
    assert trend_rows((tmp_path / TREND).read_text())[0]["alarm"] == sentence


def test_a_day_without_production_has_no_served_figures(tmp_path):
    refreshed(tmp_path, "2024-01-07", version=None)
    (row,) = trend_rows((tmp_path / TREND).read_text())
    assert row["served"] == row["day_PCOC"] == ""
    assert shown_rows([row])[0]["served"] == "–"


def test_the_page_needs_no_script_and_no_network(tmp_path):
    for day in ("2024-01-07", "2024-01-08"):
        refreshed(tmp_path, day)
    text = write_trend(tmp_path, trend_rows((tmp_path / TREND).read_text())).read_text()
    assert text.count("<svg") == 2
    assert "<script" not in text
    assert 'href="http' not in text


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: [lines[0], "<<<<<<< HEAD", lines[1], "=======", lines[2], ">>>>>>> other"],
        lambda lines: lines[1:],
        lambda lines: lines[:1],
        lambda lines: [*lines, lines[2].replace("0.51", "half")],
        lambda lines: [*lines, lines[2] + ",more"],
        lambda lines: [*lines, "yesterday" + lines[2][10:]],
    ],
)
def test_a_table_that_a_merge_or_a_hand_damaged_is_refused_and_kept(tmp_path, damage):
    for day in ("2024-01-07", "2024-01-08"):
        refreshed(tmp_path, day)
    lines = (tmp_path / TREND).read_text().splitlines()
    text = "\n".join(damage(lines)) + "\n"
    (tmp_path / TREND).write_text(text)
    with pytest.raises(ArtifactError, match=r"trend\.csv"):
        refreshed(tmp_path, "2024-01-09")
    assert (tmp_path / TREND).read_text() == text


def test_line_ends_order_and_repeated_rows_of_a_table_change_no_row(tmp_path):
    for day in ("2024-01-07", "2024-01-08"):
        refreshed(tmp_path, day)
    text = (tmp_path / TREND).read_text()
    head, *rows = text.splitlines()
    odd = "\r\n".join([head, *reversed(rows), *rows]) + "\r\n"
    assert trend_rows(odd) == trend_rows(text)
    older = "\n".join(",".join(line.split(",")[:6]) for line in text.splitlines())
    assert [row["served"] for row in trend_rows(older)] == ["", ""]
    assert write_trend(tmp_path, trend_rows(older)).exists()
