"""split: whole days in order, each in exactly one split, and conventions that travel on."""

import json
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.core.errors import ArtifactError, NotEnoughDataError
from pipeline.data.log_store.manifest import read_manifest
from pipeline.params.sections import SplitParams
from pipeline.stages import split
from tests.tiny_logs import files_of, tiny_day, tiny_log_params, write_log

DAYS = [f"2024-03-{day:02}" for day in range(8, 15)]
COUNTS = {"training_days": 3, "calibration_days": 2, "test_days": 1}


def written(
    folder: Path,
    days: list[str],
    checked: list[str] | None = None,
    split_by: dict | None = None,
    rows: dict | None = None,
    **log,
) -> dict:
    """artifacts/split/manifest.json for a log of `days`."""
    write_log(folder / "data", {day: tiny_day() for day in days} | (rows or {}))
    validation = folder / "validation.json"
    seen = checked or days or [""]
    gaps = sorted(set(days) - set(seen))
    extent = {"first_day": seen[0], "last_day": seen[-1], "missing_days": gaps}
    validation.write_text(json.dumps(extent))
    split.run(
        folder / "data" / "manifest.json",
        validation,
        folder / "split",
        params=SplitParams(**COUNTS | (split_by or {})),
        log=tiny_log_params(**log),
    )
    return json.loads((folder / "split" / "manifest.json").read_text())


def test_the_parts_end_with_the_newest_day_and_follow_each_other(tmp_path):
    parts = written(tmp_path, DAYS)["parts"]
    assert parts == {"training": DAYS[1:4], "calibration": DAYS[4:6], "test": DAYS[6:]}


def test_the_parts_end_with_the_last_day_that_params_name(tmp_path):
    document = written(tmp_path, DAYS, split_by={"last_day": DAYS[5]})
    assert document["parts"]["test"] == [DAYS[5]]


def test_the_boundaries_join_and_know_the_change_of_clocks(tmp_path):
    """New York's clocks went forward on 2024-03-10."""
    boundaries = written(tmp_path, DAYS, time_zone="America/New_York")["boundaries"]
    assert boundaries["training"] == ["2024-03-09T05:00:00+00:00", "2024-03-12T04:00:00+00:00"]
    ends = [
        datetime.fromisoformat(instant)
        for split in ("training", "calibration", "test")
        for instant in boundaries[split]
    ]
    assert ends == sorted(ends)
    assert ends[1] == ends[2]
    assert ends[3] == ends[4]


def test_the_conventions_and_the_hash_of_every_used_day_travel_on(tmp_path):
    document = written(tmp_path, DAYS)
    log = tiny_log_params()
    assert document["conventions"] == json.loads(log.model_dump_json()) | {
        "column_types": {},
        "label_maturity": {
            "maturity_days": 0,
            "reference_day": DAYS[-1],
            "newest_mature_day": DAYS[-1],
        },
    }
    landed = read_manifest(tmp_path / "data" / "manifest.json").days
    assert document["data"] == {day: landed[day].content_sha256 for day in DAYS[1:]}


@pytest.mark.parametrize("maturity", [0, 1])
def test_what_the_base_may_know_stays_to_the_byte_while_only_later_days_move(tmp_path, maturity):
    """Thursday to Wednesday there is one base, whose bins are cut on the same days; then another.

    Neither landing a day nor moving the last one changes what it depends on.
    """
    days = [f"2024-03-{day:02}" for day in range(1, 24)]
    training, binning = [], []
    for number, last in enumerate(days[11:]):
        split_by = {"last_day": last, "retrain_every_days": 7}
        folder, landed = tmp_path / last, days if number % 2 else days[: 12 + number + maturity]
        document = written(folder, landed, split_by=split_by, maturity_days=maturity)
        training.append((folder / "split/training.json").read_bytes())
        binning.append(document["binning_days"])
        known = document["parts"]["training"]
        assert set(json.loads(training[-1])["days"]) == set(known)
        assert binning[-1] == document["parts"]["calibration"][: COUNTS["calibration_days"]]
        assert days.index(binning[-1][0]) == days.index(known[-1]) + 1
    same = [before == after for before, after in pairwise(zip(training, binning, strict=True))]
    assert [days[12 + n] for n, stays in enumerate(same) if not stays] == [
        f"2024-03-{sunday + 3 + maturity:02}" for sunday in (10, 17)
    ]
    assert json.loads(training[-1])["conventions"].keys().isdisjoint({"label_maturity", "last_day"})


def test_another_training_day_or_convention_is_another_contract(tmp_path):
    """Content, label, and the types of columns."""
    before = written(tmp_path / "a", DAYS)
    contract = (tmp_path / "a/split/training.json").read_bytes()
    days = json.loads(contract)["days"]
    assert days == {day: before["data"][day] for day in before["parts"]["training"]}
    written(tmp_path / "b", DAYS, label="shown")
    assert (tmp_path / "b/split/training.json").read_bytes() != contract
    written(tmp_path / "c", DAYS, rows={DAYS[2]: tiny_day(3)})
    assert (tmp_path / "c/split/training.json").read_bytes() != contract
    written(tmp_path / "d", DAYS, rows={DAYS[5]: tiny_day(3)})
    assert (tmp_path / "d/split/training.json").read_bytes() == contract


def test_a_missing_day_is_named_with_its_part_and_nothing_is_written(tmp_path):
    """Dev day missing."""
    days = ["2024-03-07", *(day for day in DAYS if day != DAYS[4])]
    with pytest.raises(NotEnoughDataError, match=f"the calibration day {DAYS[4]} is missing"):
        written(tmp_path, days)
    assert not (tmp_path / "split").exists()


def test_too_few_days_are_counted(tmp_path):
    with pytest.raises(NotEnoughDataError, match=r"split 3/2/1 needs 6 days .* has 2: "):
        written(tmp_path, DAYS[:2])


def test_no_days_at_all_are_too_few(tmp_path):
    with pytest.raises(NotEnoughDataError, match="has no days"):
        written(tmp_path, [])


def test_a_validation_of_other_days_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match=f"does not cover the day {DAYS[1]}"):
        written(tmp_path, DAYS, checked=DAYS[2:])


def test_the_same_log_makes_the_same_split(tmp_path):
    for name in ("a", "b"):
        written(tmp_path / name, DAYS)
    assert files_of(tmp_path / "a" / "split") == files_of(tmp_path / "b" / "split")
