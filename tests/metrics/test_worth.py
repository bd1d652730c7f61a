"""Money at stake: expected against observed value."""

import numpy as np
import pytest

from pipeline.formats.scores import Scores
from pipeline.metrics.comparison import worth, worth_report
from pipeline.metrics.significance import Resampling
from pipeline.metrics.summary import count_by_day, pcoc_intervals

DAYS, VALUES, ROWS = 8, 4, 4_000


@pytest.fixture
def log():
    """Rows, logits and what each row is worth; the last field value is expected half again."""
    rng = np.random.default_rng(1)
    ids = rng.integers(0, VALUES, ROWS).astype(np.int32)
    logit = rng.normal(-2, 1, ROWS)
    p = 1 / (1 + np.exp(-logit))
    p = np.where(ids == VALUES - 1, p / 1.5, p)
    clicks = (rng.random(ROWS) < p).astype(np.int64)
    days = np.sort(rng.integers(0, DAYS, ROWS)).astype(np.int32)
    shown = np.ones(ROWS, np.int64)
    return Scores(logit, ids, shown, clicks, days, VALUES), rng.lognormal(0, 1, ROWS)


def test_where_all_are_worth_one_it_is_pcoc(log):
    rows, value = log
    found = worth(count_by_day(rows.uncalibrated_logit, rows, np.ones_like(value))[1])
    counts = count_by_day(rows.uncalibrated_logit, rows)[1].sum(axis=1).reshape(-1, 1)
    assert found["pcoc"] == pytest.approx(float(pcoc_intervals(counts)[0][0]))
    assert found["observed"] == rows.responses.sum()
    assert found["low"] < found["pcoc"] < found["high"]


def test_value_is_in_both_sums_and_its_unit_in_neither_ratio(log):
    rows, value = log
    of_cents, of_dollars = (
        worth(count_by_day(rows.uncalibrated_logit, rows, unit * value)[1]) for unit in (100.0, 1.0)
    )
    p = 1 / (1 + np.exp(-rows.uncalibrated_logit))
    assert of_dollars["expected"] == pytest.approx((p * value).sum())
    assert of_dollars["observed"] == pytest.approx((rows.responses * value).sum())
    assert of_cents["expected"] == pytest.approx(100 * of_dollars["expected"])
    assert (of_cents["low"], of_cents["high"]) == pytest.approx(
        (of_dollars["low"], of_dollars["high"])
    )


def test_the_field_value_that_is_overcharged_most_comes_first_with_its_interval(log):
    rows, value = log
    counts = {"model": count_by_day(rows.uncalibrated_logit, rows, value)[1]}
    names = [None, "a", "b", "dear"]
    found = worth_report(counts, names, 2, Resampling(replicates=100))["field_values"]
    assert found[0]["field_value"] == "dear"
    assert len(found) == 2
    assert found[0]["low"] < 1.5 < found[0]["high"]
    assert found[0]["expected"] > found[0]["observed"]
