"""The page carries sums: nothing is lost in joining bins, and its size is bounded."""

import json

import numpy as np
import pytest

from pipeline.report import page_data
from pipeline.report.charts import picture, plot_files, static
from pipeline.report.page import page_sums
from pipeline.report.page_data import (
    LEAST_EXPECTED,
    PICTURED,
    bins_by_value,
    curves_by_value,
    drawn_bins,
    value_columns,
)
from tests.report import worlds


def test_joined_bins_add_up_to_the_bins_they_are_made_of():
    drawn = drawn_bins(worlds.bins())
    shown = worlds.bins().query("method in ('uncalibrated', 'model')")
    for name in ("impressions", "responses", "expected_responses"):
        of_value = drawn.groupby(["method", "field_value_id"])[name].sum()
        assert of_value.to_numpy() == pytest.approx(
            shown.groupby(["method", "field_value_id"])[name].sum().to_numpy()
        )


def test_every_drawn_bin_but_the_last_expects_enough_responses():
    drawn = drawn_bins(worlds.bins())
    last = drawn.groupby(["method", "field_value_id"])["part"].transform("max") == drawn["part"]
    assert (drawn.loc[~last, "expected_responses"] > LEAST_EXPECTED / 2).all()
    assert len(drawn) < len(worlds.bins())


def test_a_bin_without_responses_has_a_band_and_no_point():
    drawn = drawn_bins(worlds.bins())
    empty = bins_by_value(drawn, [3])["model"]["3"]
    for _, responses, _, observed, low, high, _ in empty:
        assert (responses, observed) == (0, None)
        assert low < high


def test_curves_are_what_the_maps_say():
    maps, drawn = worlds.maps(), drawn_bins(worlds.bins())
    curves = curves_by_value(maps, drawn, [1, 2])
    grid = np.linspace(*curves["ends"]["2"], len(curves["adacalib"]["2"]))
    expected = maps["adacalib"](grid, np.full(len(grid), 2))
    assert curves["adacalib"]["2"] == pytest.approx(expected.tolist(), abs=0.02)


def test_the_largest_field_values_have_the_finer_curves(monkeypatch):
    monkeypatch.setattr(page_data, "FINELY_DRAWN", 1)
    curves = curves_by_value(worlds.maps(), drawn_bins(worlds.bins()), [2, 1])
    assert len(curves["adacalib"]["2"]) == page_data.FINE_POINTS
    assert len(curves["adacalib"]["1"]) == page_data.COARSE_POINTS
    assert set(curves["ends"]) == {"1", "2"}


def test_field_values_are_listed_by_impressions_with_their_own_pcoc():
    counts = worlds.counts()
    columns = value_columns(counts, worlds.NAMES, [0, 5, 10, 10], 3)
    assert columns["id"] == [3, 2, 1]
    assert columns["name"][0] == "B / 2"
    assert columns["model"][0] is None
    of_two = counts.query("method == 'model' and field_value_id == 2")
    expected = of_two["expected_responses"].sum() / of_two["responses"].sum()
    assert columns["model"][1] == pytest.approx(expected, abs=1e-3)


def test_only_what_luck_does_not_explain_is_called_wrong():
    """Of 200 right values with 95 % intervals about ten miss 1; none of them is surely wrong."""
    random, n = np.random.default_rng(5), 200
    counts = worlds.counts(n, 14).query("method in ('model', 'uncalibrated')")
    counts = counts.assign(expected_responses=15.0, responses=random.poisson(15.0, len(counts)))
    twice = counts["field_value_id"] == 7
    counts.loc[twice, "expected_responses"] = 30.0
    columns = value_columns(counts, [None, *map(str, range(1, n))], [], n)
    wrong = {i for i, surely in zip(columns["id"], columns["wrong"], strict=True) if surely}
    assert wrong == {7}
    ends = np.array([columns["low"], columns["high"]])
    assert ((ends[0] > 1) | (ends[1] < 1)).sum() > 2


def test_ten_thousand_field_values_are_carried_in_less_than_four_megabytes():
    """With a megabyte of scripts the page stays under five, whatever the number of rows."""
    n = 10_000
    carried = page_sums(
        worlds.counts(n),
        worlds.bins(n, 20),
        worlds.maps(n),
        field_values=[None, *(f"item-{i:07}" for i in range(1, n))],
        chosen_bins=[5] * n,
        listed=n,
        shown=PICTURED,
        evaluation=worlds.reports()["evaluation"],
    )
    assert len(json.dumps(carried, separators=(",", ":"))) < 4_000_000


def test_pictures_beside_the_page_need_no_script_and_say_the_same_twice():
    spec = picture("reliability", ("uncalibrated", "model"))
    files = plot_files(worlds.counts(), worlds.bins(), spec)
    assert files == plot_files(worlds.counts(), worlds.bins(), spec)
    assert files["reliability.svg"].startswith("<svg")
    assert "currentColor" not in files["reliability.svg"]
    assert files["days.csv"].splitlines()[0].startswith("method,day,impressions")
    assert static(spec, []).startswith("<svg")
