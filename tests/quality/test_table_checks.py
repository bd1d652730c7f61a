"""Checks of the field statistics: what the kernel makes passes, what is broken fails by name."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from pipeline.calibration.statistics.bins import tabulate
from pipeline.calibration.statistics.counting import largest_ties
from pipeline.quality.suites import RULES, run_suites
from pipeline.quality.table_checks import (
    LogSums,
    check_tables,
    table_suites,
    uneven_field_values,
)
from tests.calibration.logs import AGGREGATED, random_scores, scores_of

TABLES = ("bins", "cells", "field values", "days of cells")
NAMES = [rule["name"] for table in TABLES for rule in RULES[table]]
CANDIDATES = [2, 5, 10]
TOLERANCE = 0.5


def log_sums(scores, bins):
    """The log's own sums, by loops."""
    sums = np.zeros((2, scores.n_field_values), dtype=np.int64)
    for z, n, r in zip(scores.field_value_id, scores.impressions, scores.responses, strict=True):
        sums[:, z] += (n, r)
    names = [None, *(f"item {i}" for i in range(1, scores.n_field_values))]
    days = np.unique(scores.day)
    counts = (scores.impressions, scores.responses)
    amounts = [[sum(column[scores.day == day].tolist()) for column in counts] for day in days]
    by_day = pd.DataFrame(amounts, days, ["impressions", "responses"])
    until = int(days.max(initial=0))
    return LogSums(names, *sums, largest_ties(scores, bins), until, by_day)


def breaches(bins, cells, sums, *rules, tolerance=TOLERANCE):
    """What is found by the name of its rule: of all rules, or of those that are named."""
    suites = table_suites(bins, cells, sums, CANDIDATES, tolerance)
    if rules:
        suites = [replace(suite, rules=chosen(suite, rules)) for suite in suites]
        suites = [suite for suite in suites if suite.rules]
    found = run_suites(suites, sums.field_values)
    return {check.name: check.breach for check in found if check.breach}


def chosen(suite, names):
    """The rules of a suite with one of the names: great-expectations takes its time for each."""
    return [rule for rule in suite.rules if rule["name"] in (None, *names)]


def changed(table, name, row, value):
    """The table with one number replaced."""
    column = getattr(table, name).copy()
    column[row] = value
    return replace(table, **{name: column})


def test_the_tables_of_the_kernel_pass(log):
    found = check_tables(*log, CANDIDATES, TOLERANCE)
    assert [check.breach for check in found] == [None] * len(found)
    assert {check.name for check in found} >= set(NAMES)


@settings(max_examples=6)
@given(AGGREGATED)
def test_any_table_of_the_kernel_keeps_the_rules_with_no_tolerance_but_for_ties(scores):
    bins, cells = tabulate(scores, CANDIDATES, 20)
    found = breaches(bins, cells, log_sums(scores, bins), tolerance=0.0)
    assert set(found) <= {"expect_table_row_count_to_be_between"}  # of a log without rows


def test_an_empty_table_fails(log):
    """no rows break no rule on rows."""
    bins, cells, sums = log
    nothing = np.zeros(0, dtype=np.int64)
    found = breaches(bins.take(nothing), cells, replace(sums, largest_tie=nothing))
    assert "expect_table_row_count_to_be_between" in found
    assert "'item 1'" in found["coverage"] or "id 0" in found["coverage"]
    assert "cells: expected that there are rows" in str(breaches(bins, cells.take(nothing), sums))


def test_an_empty_log_fails(log):
    """nothing to compare with is no success."""
    bins, cells, sums = log
    empty = np.zeros_like(sums.impressions)
    found = breaches(bins, cells, replace(sums, impressions=empty, responses=empty))
    assert "expected" in found


def test_a_suite_without_expectations_is_no_check(log):
    """every rule has a check of its own, so none can be lost in an empty suite."""
    names = [check.name for check in check_tables(*log, CANDIDATES, TOLERANCE)]
    assert sorted(n for n in names if n in NAMES) == sorted(NAMES)


@pytest.mark.parametrize("share", [1.0, 0.81])
def test_a_posterior_of_nan_fails(log, share):
    """all rows, or 81 % of them, are not a number."""
    bins, cells, sums = log
    rows = np.arange(len(bins)) < share * len(bins)
    found = breaches(changed(bins, "posterior", rows, math.nan), cells, sums, "finite")
    assert "posterior is nan" in found["finite"]


@pytest.mark.parametrize("column", ["lower_bound", "upper_bound", "logit_sum", "posterior"])
@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_an_infinity_fails_and_is_named_by_field_value_candidate_and_bin(log, column, value):
    """+inf passes where only a minimum is set."""
    bins, cells, sums = log
    row = np.flatnonzero((bins.field_value_id == 3) & (bins.requested_bins == 5))[2]
    found = breaches(changed(bins, column, row, value), cells, sums, "finite")
    place = "field value id 3 ('item 3'), K = 5, bin 2"
    assert found["finite"] == f"{place}: {column} is {value}"


def test_a_missing_field_value_fails(log):
    """a value that vanished from the table would be served raw."""
    bins, cells, sums = log
    keep = bins.field_value_id != 4
    lost = bins.take(keep), cells, replace(sums, largest_tie=sums.largest_tie[keep])
    found = breaches(*lost, "coverage")
    assert "field value id 4 ('item 4'), K = 2: the log has" in found["coverage"]
    assert found["coverage"].count("impressions, the table no bins") == 3
    lost = bins, cells.take(cells.field_value_id != 4), sums
    found = breaches(*lost, "cell_impressions_add_up")
    assert "field value id 4 ('item 4')" in found["cell_impressions_add_up"]


def test_a_missing_candidate_fails(log):
    bins, cells, sums = log
    keep = (bins.field_value_id != 4) | (bins.requested_bins != 10)
    lost = bins.take(keep), cells, replace(sums, largest_tie=sums.largest_tie[keep])
    found = breaches(*lost, "coverage")
    assert "field value id 4 ('item 4'), K = 10" in found["coverage"]


def test_a_missing_bin_fails(log):
    bins, cells, sums = log
    row = np.flatnonzero((bins.field_value_id == 3) & (bins.requested_bins == 5))[2]
    keep = np.arange(len(bins)) != row
    found = breaches(bins.take(keep), cells, replace(sums, largest_tie=sums.largest_tie[keep]))
    assert found["expect_table_row_count_to_equal"]
    assert "field value id 3 ('item 3'), K = 5, bin 0" in found["effective_bins"]
    assert "field value id 3 ('item 3'), K = 5, bin 3" in found["contiguous_bounds"]
    assert "field value id 3 ('item 3'), K = 5" in found["bin_impressions_add_up"]


def test_a_field_value_or_candidate_that_the_log_has_not_fails(log):
    bins, cells, sums = log
    none = changed(changed(sums, "impressions", 3, 0), "responses", 3, 0)
    assert (
        "field value id 3 ('item 3'), K = 2" in breaches(bins, cells, none, "expected")["expected"]
    )
    other = changed(bins, "requested_bins", bins.requested_bins == 5, 6)
    assert "K = 6" in breaches(other, cells, sums, "expected")["expected"]


@pytest.mark.parametrize(
    ("column", "change", "rule"),
    [
        ("lower_bound", lambda t, i: t.upper_bound[i], "increasing_bounds"),
        ("lower_bound", lambda t, i: t.lower_bound[i] - np.float32(0.01), "contiguous_bounds"),
        ("impressions", lambda t, i: t.responses[i] - 1, "counts"),
        ("impressions", lambda t, i: t.impressions[i] + 1, "bin_impressions_add_up"),
        ("responses", lambda t, i: t.responses[i] + 1, "bin_responses_add_up"),
        ("responses", lambda t, i: -1, "responses"),
        ("posterior", lambda t, i: t.posterior[i] + 0.001, "posterior"),
        ("logit_sum", lambda t, i: 2 * t.logit_sum[i] + 9, "mean_logit"),
        ("effective_bins", lambda t, i: t.effective_bins[i] + 1, "effective_bins"),
        ("bin_id", lambda t, i: t.bin_id[i] + 1, "bin_numbers"),
    ],
)
def test_a_broken_number_breaks_its_rule_and_the_sentence_says_where(log, column, change, rule):
    bins, cells, sums = log
    row = np.flatnonzero((bins.field_value_id == 3) & (bins.requested_bins == 5))[2]
    found = breaches(changed(bins, column, row, change(bins, row)), cells, sums, rule)
    assert "field value id 3 ('item 3'), K = 5" in found[rule]


def test_a_cell_whose_probabilities_exceed_its_impressions_fails(log):
    bins, cells, sums = log
    more = changed(cells, "probability_sum", 0, cells.impressions[0] + 1)
    found = breaches(bins, more, sums, "probability_sum")
    assert "field value id 0 (None), cell 0, day 15000" in found["probability_sum"]


def test_bins_that_are_uneven_without_a_tie_fail():
    scores = scores_of(np.arange(100))
    bins, cells = tabulate(scores, CANDIDATES, 20)
    moved = changed(changed(bins, "impressions", 0, 90), "impressions", 1, 10)
    moved = replace(moved, logit_sum=moved.impressions * (bins.logit_sum / bins.impressions))
    found = breaches(moved, cells, log_sums(scores, bins))
    assert set(found) == {"equal_frequency"}
    assert "K = 2, bin 0: it has 90 impressions" in found["equal_frequency"]


def test_bins_that_a_tie_makes_uneven_pass():
    """90 of 100 scores are tied; only then do their bins need a second look."""
    scores = scores_of([0.01] * 90 + list(range(1, 11)))
    bins, cells = tabulate(scores, CANDIDATES, 20)
    assert uneven_field_values(bins, TOLERANCE).tolist() == [0]
    assert breaches(bins, cells, log_sums(scores, bins)) == {}
    even, _ = tabulate(random_scores(2000, n_field_values=3), CANDIDATES, 20)
    assert len(uneven_field_values(even, TOLERANCE)) == 0


def test_missing_integers_fail_too(log):
    """a column of integers with nulls is read as floats with NaN."""
    bins, cells, sums = log
    counts = pd.Series(bins.impressions).astype("float64")
    counts[5] = math.nan
    found = breaches(replace(bins, impressions=counts.to_numpy()), cells, sums, "finite")
    assert "impressions is nan" in found["finite"]


def test_the_largest_tie_of_a_bin_is_counted_in_impressions():
    scores = scores_of([1, 1, 2, 3, 3, 5], impressions=[4, 1, 2, 3, 3, 1])
    bins, _ = tabulate(scores, [2], 2)
    assert bins.impressions.tolist() == [7, 7]
    assert largest_ties(scores, bins).tolist() == [5, 6]


def rows_broken(log, order, *rules):
    """What is found where the bin table's rows are those of an index array."""
    bins, cells, sums = log
    tables = bins.take(order), cells, replace(sums, largest_tie=sums.largest_tie[order])
    return breaches(*tables, *rules)


def test_a_row_that_is_there_twice_fails(log):
    """an append that was done again."""
    row = np.flatnonzero((log[0].field_value_id == 3) & (log[0].requested_bins == 5))[2]
    found = rows_broken(log, np.insert(np.arange(len(log[0])), row, row))
    assert "field value id 3 ('item 3'), K = 5" in found["effective_bins"]
    assert "field value id 3 ('item 3'), K = 5" in found["bin_impressions_add_up"]
    assert "expect_table_row_count_to_equal" in found


def test_a_field_value_that_is_there_twice_fails(log):
    again = np.flatnonzero(log[0].field_value_id == 3)
    found = rows_broken(log, np.append(np.arange(len(log[0])), again))
    assert {"effective_bins", "bin_impressions_add_up", "bin_responses_add_up"} <= set(found)
    assert "field value id 3 ('item 3')" in found["bin_impressions_add_up"]


@pytest.mark.parametrize("order", ["reversed", "shuffled", "two bins changed places"])
def test_rows_out_of_order_fail(log, order):
    """Bins are found by their place: a table that was sorted otherwise is another table."""
    places = np.arange(len(log[0]))
    if order == "reversed":
        places = places[::-1]
    elif order == "shuffled":
        places = np.random.default_rng(1).permutation(places)
    else:
        row = np.flatnonzero((log[0].field_value_id == 3) & (log[0].requested_bins == 5))[1]
        places[[row, row + 1]] = places[[row + 1, row]]
    assert "order" in rows_broken(log, places, "order")


@pytest.mark.parametrize("column", ["impressions", "responses"])
@pytest.mark.parametrize("change", [-1, 1])
def test_counts_that_are_off_by_one_in_two_bins_at_once_fail(log, column, change):
    """What one bin lost another may have won: sums alone do not show it, the posterior does."""
    bins, cells, sums = log
    rows = np.flatnonzero((bins.field_value_id == 3) & (bins.requested_bins == 5))[1:3]
    moved = getattr(bins, column)[rows] + np.array([change, -change])
    rules = "posterior", f"bin_{column}_add_up"
    found = breaches(changed(bins, column, rows, moved), cells, sums, *rules)
    assert "field value id 3 ('item 3'), K = 5" in found["posterior"]
    assert f"bin_{column}_add_up" not in found


def test_bounds_of_all_infinities_fail(log):
    bins, cells, sums = log
    unbounded = replace(
        bins,
        lower_bound=np.full(len(bins), -np.inf, np.float32),
        upper_bound=np.full(len(bins), np.inf, np.float32),
    )
    found = breaches(unbounded, cells, sums, "finite", "contiguous_bounds")
    assert set(found) == {"finite", "contiguous_bounds"}


@pytest.mark.parametrize("change", [-1, 1, 100])
def test_an_effective_number_of_bins_that_is_wrong_everywhere_fails(log, change):
    bins, cells, sums = log
    rules = "effective_bins", "expect_table_row_count_to_equal"
    wrong = replace(bins, effective_bins=bins.effective_bins + change)
    assert set(breaches(wrong, cells, sums, *rules)) == set(rules)


def with_later_day(log):
    """The tables with a day more, counted in the same cells."""
    bins, cells, sums = log
    day = int(cells.day.max()) + 1
    later = cells.take(cells.day == cells.day.max())
    later = replace(later, day=np.full(len(later), day, np.int32))
    columns = {f: np.concatenate([getattr(cells, f), getattr(later, f)]) for f in vars(cells)}
    by_day = sums.by_day.copy()
    by_day.loc[day] = [later.impressions.sum(), later.responses.sum()]
    return (bins, replace(cells, **columns), replace(sums, by_day=by_day)), day


def test_cells_of_a_later_day_are_no_part_of_the_sums_that_bins_have(log):
    later, _ = with_later_day(log)
    assert breaches(*later) == {}


@pytest.mark.parametrize("column", ["impressions", "responses"])
@pytest.mark.parametrize("which", ["earlier", "later"])
def test_cells_that_do_not_add_up_to_their_day_fail_by_its_name(log, column, which):
    (bins, cells, sums), day = with_later_day(log)
    day = day if which == "later" else int(cells.day.min())
    row = np.flatnonzero((cells.day == day) & (cells.impressions > cells.responses))[0]
    more = changed(cells, column, row, getattr(cells, column)[row] + 1)
    rules = f"day_{column}_add_up", "cell_impressions_add_up"
    found = breaches(bins, more, sums, *rules)
    assert f"day {day}" in found[f"day_{column}_add_up"]
    assert ("cell_impressions_add_up" in found) == (which == "earlier" and column == "impressions")


def test_a_day_that_cells_lack_or_the_log_has_not_fails_by_its_name(log):
    (bins, cells, sums), day = with_later_day(log)
    rule = "day_impressions_add_up"
    found = breaches(bins, cells.take(cells.day < day), sums, rule)
    assert f"day {day}" in found["day_impressions_add_up"]
    found = breaches(bins, cells, replace(sums, by_day=sums.by_day.drop(day)), rule)
    assert f"day {day}" in found["day_impressions_add_up"]
