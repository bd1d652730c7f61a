"""Scored days on disk: what is read back is what was written, split by split, day by day."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pipeline.core.errors import ArtifactError, DataError
from pipeline.formats.days import day_number
from pipeline.formats.scores import (
    Scores,
    feature_columns,
    read_features,
    read_scores,
    read_scores_manifest,
    scored_day,
    write_day,
    write_scores_manifest,
)

PARTS = {
    "training": ["2024-03-08"],
    "calibration": ["2024-03-09", "2024-03-10"],
    "test": ["2024-03-11"],
}
DAYS = [day for days in PARTS.values() for day in days]
FIELD = {"columns": ["item"], "values": [None, "a", "b"], "pooled": []}
FEATURES = {"categorical": [{"name": "item", "size": 9}], "numeric": ["price", "price.missing"]}


def day_of_scores(day: str, rows: int = 5, logit: np.ndarray | None = None) -> Scores:
    """Rows that show their day by its number."""
    random = np.random.default_rng(day_number(day))
    logit = random.normal(size=rows).astype(np.float32) if logit is None else logit
    impressions = random.integers(1, 9, len(logit)).astype(np.int32)
    return Scores(
        logit,
        random.integers(0, 3, len(logit)).astype(np.int32),
        impressions,
        (impressions // 2).astype(np.int32),
        np.full(len(logit), day_number(day), np.int32),
        3,
    )


def features_of(scores: Scores) -> dict[str, np.ndarray]:
    names = feature_columns(["item"], FEATURES["numeric"])
    return {
        names[0]: scores.impressions,
        names[1]: scores.uncalibrated_logit * 2,
        names[2]: scores.uncalibrated_logit * 0,
    }


def written(folder: Path, keep_features: bool = True) -> Path:
    """Four scored days."""
    days = {}
    for day in DAYS:
        scores = day_of_scores(day)
        kept = features_of(scores) if keep_features else {}
        days[day] = write_day(folder, day, *scored_day(day, scores, kept))
    features = FEATURES if keep_features else {"categorical": [], "numeric": []}
    manifest = {"parts": PARTS, "days": days, "field": FIELD}
    write_scores_manifest(folder, {**manifest, "features": features, "conventions": {}})
    return folder


def test_parts_come_in_the_order_asked_for_and_days_in_theirs(tmp_path):
    scores = read_scores(written(tmp_path), "test", "calibration")
    expected = [day_of_scores(day) for day in [*PARTS["test"], *PARTS["calibration"]]]
    for name in ("uncalibrated_logit", "field_value_id", "impressions", "responses", "day"):
        joined = np.concatenate([getattr(day, name) for day in expected])
        np.testing.assert_array_equal(getattr(scores, name), joined)
        assert getattr(scores, name).dtype == joined.dtype
    assert scores.n_field_values == 3


def test_features_come_in_the_order_of_the_rows(tmp_path):
    written(tmp_path)
    scores = read_scores(tmp_path, "calibration", "training")
    categorical, numeric = read_features(tmp_path, "calibration", "training")
    assert (categorical.dtype, numeric.dtype) == (np.int32, np.float32)
    np.testing.assert_array_equal(categorical[:, 0], scores.impressions)
    np.testing.assert_array_equal(numeric[:, 0], scores.uncalibrated_logit * 2)
    assert numeric.shape == (len(scores), 2)


@given(arrays.arrays(np.float32, st.integers(0, 30), elements=st.floats(-120, 120, width=32)))
def test_every_bit_of_a_logit_is_kept(tmp_path_factory, logit):
    """No rounding, no way through a probability."""
    folder = tmp_path_factory.mktemp("scores")
    made = scored_day(DAYS[0], day_of_scores(DAYS[0], 0, logit), {})
    days = {DAYS[0]: write_day(folder, DAYS[0], *made)}
    write_scores_manifest(folder, {"parts": {"test": DAYS[:1]}, "days": days, "field": FIELD})
    np.testing.assert_array_equal(read_scores(folder, "test").uncalibrated_logit, logit)


def test_writing_twice_gives_the_same_bytes(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        written(folder)
    for path in one.iterdir():
        assert path.read_bytes() == (other / path.name).read_bytes()


def test_the_manifest_holds_the_sums_of_every_day(tmp_path):
    manifest = read_scores_manifest(written(tmp_path))
    for day in DAYS:
        scores = day_of_scores(day)
        entry = manifest["days"][day]
        assert entry["rows"] == len(scores)
        assert entry["impressions"] == scores.impressions.sum()
        assert entry["responses"] == scores.responses.sum()


def test_no_part_is_no_row(tmp_path):
    assert len(read_scores(written(tmp_path))) == 0


def test_an_unknown_part_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match="validation"):
        read_scores(written(tmp_path), "validation")


def test_features_that_were_not_kept_are_missed_by_name(tmp_path):
    with pytest.raises(ArtifactError, match="keep_features"):
        read_features(written(tmp_path, keep_features=False), "test")


def test_a_day_of_an_older_form_is_refused_by_its_file(tmp_path):
    path = written(tmp_path) / "day=2024-03-09.parquet"
    table = pq.read_table(path).drop(["impressions"])
    path.unlink()
    pq.write_table(table, path)
    with pytest.raises(ArtifactError, match=r"2024-03-09.parquet (is missing|is no|lacks)"):
        read_scores(tmp_path, "calibration")


@pytest.mark.parametrize("damage", ["cut short", "missing"])
def test_a_day_that_is_cut_short_or_missing_is_refused_by_its_file(tmp_path, damage):
    path = written(tmp_path) / "day=2024-03-09.parquet"
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(content[:-9])
    with pytest.raises(ArtifactError, match=r"2024-03-09.parquet (is missing|is no|lacks)"):
        read_scores(tmp_path, "calibration")
    assert len(read_scores(tmp_path, "test")) == 5


def test_rows_of_another_day_are_refused():
    with pytest.raises(DataError, match="2024-03-08: 5 scored rows of that day alone"):
        scored_day("2024-03-08", day_of_scores("2024-03-09"), {})


def test_a_feature_with_another_number_of_rows_is_refused():
    """Row counts before and after are equal, else stop."""
    features = {"numeric.price": np.zeros(4, np.float32)}
    with pytest.raises(DataError, match=r"features have \{'numeric.price': 4\}"):
        scored_day("2024-03-08", day_of_scores("2024-03-08"), features)
