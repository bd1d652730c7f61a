"""One measurement per method gives every number of the report, and the sums behind it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit
from sklearn.metrics import log_loss, roc_auc_score

from pipeline.core.errors import DataError
from pipeline.formats.scores import Scores
from pipeline.metrics.comparison import compare, gains
from pipeline.metrics.significance import Resampling
from pipeline.metrics.summary import (
    bin_columns,
    count_columns,
    measure,
    summarise,
)

QUICK = Resampling(replicates=100)
N_VALUES = 12


@pytest.fixture
def rows(rng):
    """4,000 rows on six days, ten of twelve field values, one of them without responses."""
    logit = rng.normal(-1.5, 1, 4000).astype(np.float32)
    value = rng.integers(0, 10, 4000).astype(np.int32)
    chance = np.where(value == 3, 0.0, expit(logit + 0.2 * (value - 5)))
    return Scores(
        uncalibrated_logit=logit,
        field_value_id=value,
        impressions=np.ones(4000, np.int32),
        responses=(rng.random(4000) < chance).astype(np.int32),
        day=rng.integers(15000, 15006, 4000).astype(np.int32),
        n_field_values=N_VALUES,
    )


@pytest.fixture
def measured(rows):
    """Four methods: nothing, a little, the right offsets, and what ships."""
    logit = rows.uncalibrated_logit
    better = logit + 0.2 * (rows.field_value_id - 5.0)
    return {
        "uncalibrated": measure(logit, rows),
        "isotonic": measure(logit + 0.01, rows),
        "eb_platt": measure(better, rows),
        "model": measure(1.02 * better, rows),
    }


def test_a_summary_says_what_scikit_learn_says_over_all_rows(rows, measured):
    summary = summarise(measured["uncalibrated"], QUICK)
    p = expit(rows.uncalibrated_logit)
    assert summary["logloss"] == pytest.approx(log_loss(rows.responses, p))
    assert summary["auc"] == pytest.approx(roc_auc_score(rows.responses, p))
    assert summary["pcoc"] == pytest.approx(p.sum() / rows.responses.sum())
    assert summary["distinct_outputs"] == len(np.unique(rows.uncalibrated_logit))


def test_a_summary_names_what_each_metric_leaves_out(rows, measured):
    summary = summarise(measured["model"], QUICK)
    share = (rows.field_value_id != 3).mean()
    assert summary["field_rce_coverage"] == pytest.approx(share)
    assert summary["field_auc_coverage"] == pytest.approx(share)
    assert (summary["field_rce_values"], summary["field_rce_values_left_out"]) == (9, 1)
    assert summary["field_rce_absolute_error_left_out"] > 0
    assert summary["field_rce_low"] < summary["field_rce"] < summary["field_rce_high"]
    assert 0 < summary["field_rce_floor"] < summarise(measured["isotonic"], QUICK)["field_rce"]


def test_gains_are_positive_where_a_method_is_better(measured):
    gained = gains(measured["eb_platt"], measured["uncalibrated"], QUICK)
    assert all(gained[name].low > 0 for name in ("logloss", "daily_field_deviance"))
    lost = gains(measured["uncalibrated"], measured["eb_platt"], QUICK)
    assert_allclose(lost["logloss"].value, -gained["logloss"].value)


def test_the_truth_stands_beside_every_method_where_it_is_known(rows):
    truth = expit(rows.uncalibrated_logit.astype(float))
    methods = {
        "uncalibrated": measure(rows.uncalibrated_logit, rows, truth),
        "isotonic": measure(rows.uncalibrated_logit + 0.5, rows, truth),
        "eb_platt": measure(rows.uncalibrated_logit - 0.1, rows, truth),
    }
    excess = compare(methods, QUICK)["truth"]["excess_logloss"]
    assert excess["uncalibrated"] == pytest.approx(0, abs=1e-12)
    assert excess["isotonic"] > excess["eb_platt"] > 1e-4


def test_a_comparison_has_every_method_and_gains_of_all_but_the_reference(measured):
    report = compare(measured, QUICK)
    assert list(report["methods"]) == list(measured)
    assert list(report["gains"]) == ["isotonic", "eb_platt", "model"]
    assert report["gains"]["model"]["logloss"]["low"] > 0
    assert report["truth"] == {}


@pytest.mark.parametrize("change", [lambda x: x[1:], lambda x: np.append(x[1:], np.nan)])
def test_a_method_without_a_finite_logit_for_every_row_is_refused(rows, change):
    with pytest.raises(DataError, match="a finite logit for each of 4000 test rows"):
        measure(change(rows.uncalibrated_logit), rows)


def test_comparing_twice_gives_the_same_report(measured):
    assert compare(measured, QUICK) == compare(measured, QUICK)


def test_the_sums_in_columns_are_those_of_the_rows(rows, measured):
    counts = count_columns(measured)
    shipped = counts["method"] == "model"
    assert counts["impressions"][shipped].sum() == len(rows)
    assert counts["responses"][shipped].sum() == rows.responses.sum()
    first = (rows.day == 15000) & (rows.field_value_id == 0)
    place = shipped & (counts["day"] == 15000) & (counts["field_value_id"] == 0)
    assert counts["impressions"][place].tolist() == [first.sum()]
    assert (counts["impressions"] > 0).all()


def test_the_bins_in_columns_hold_all_rows_once_overall_and_once_by_value(rows, measured):
    bins = bin_columns(measured)
    own = bins["method"] == "eb_platt"
    overall = own & (bins["field_value_id"] == -1)
    by_value = own & (bins["field_value_id"] >= 0)
    assert bins["impressions"][overall].sum() == bins["impressions"][by_value].sum() == len(rows)
    assert set(bins["bin_id"][overall]) == set(range(20))
    assert set(bins["field_value_id"][by_value]) == set(range(10))
