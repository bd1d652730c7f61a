"""What the page carries: sums per field value, bin and day, never rows, bounded in size."""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import logit

from pipeline.formats.maps import PiecewiseLinearMap
from pipeline.metrics.calibration import deviance_terms, pcoc, pcoc_band, wilson_interval
from pipeline.metrics.counts import ResponseCounts
from pipeline.metrics.significance import Resampling
from pipeline.metrics.summary import pcoc_intervals
from pipeline.report.result_tables import NAMES, display_name

LEAST_EXPECTED = 5.0
"""Neighbouring bins are drawn as one until this many responses are expected in them."""

DRAWN_BINS = 10_000
"""So many bins a method are drawn, beyond one for each field value; with more, more are joined."""

FINELY_DRAWN = 500
"""So many field values, the largest, have curves of FINE_POINTS, the others of COARSE_POINTS."""

FINE_POINTS, COARSE_POINTS = 33, 5
ENDLESS = 1.0
"""Bands that go on to 0 or 1 are drawn so far, in log-odds."""

SUMS = [f.name for f in fields(ResponseCounts)]
PICTURED = ("uncalibrated", "champion", "model")
CURVES = ("isotonic", "eb_platt", "adacalib")


def rounded(numbers: Any, digits: int = 3) -> list[float | None]:
    """Numbers as JSON carries them, None for what is not finite."""
    floats = np.asarray(numbers, np.float64).tolist()
    return [round(x, digits) if math.isfinite(x) else None for x in floats]


def counts_of(frame: pd.DataFrame) -> ResponseCounts:
    """The additive sums of a table's rows."""
    return ResponseCounts(*(frame[name].to_numpy() for name in SUMS))


def _by_value(counts: pd.DataFrame, method: str) -> pd.DataFrame:
    return counts[counts["method"] == method].groupby("field_value_id")[SUMS].sum()


def _intervals(
    counts: pd.DataFrame, ids: np.ndarray, resampling: Resampling
) -> tuple[np.ndarray, np.ndarray]:
    """Low and high PCOC of what ships by field value; whole days are units where there are many."""
    shipped = counts[counts["method"] == "model"]
    days = shipped["day"].unique()
    cells = pd.MultiIndex.from_product([days, ids], names=["day", "field_value_id"])
    sums = shipped.set_index(["day", "field_value_id"])[SUMS].reindex(cells, fill_value=0)
    by_day = counts_of(sums).reshape(len(days), len(ids))
    return pcoc_intervals(by_day, resampling)[1:]


def value_columns(
    counts: pd.DataFrame,
    field_values: list[str | None],
    chosen_bins: list[int],
    listed: int,
    horizon: int = 1,
) -> dict[str, list[Any]]:
    """One entry a field value, the largest by impressions first, at most `listed` of them.

    Args:
        counts: method, field_value_id and the sums of ResponseCounts.
        field_values: names by id, None at 0.
        chosen_bins: bin count by id, 0 where none was chosen; may be empty.
        listed: how many entries at most.
        horizon: days that intervals take together, those between a forecast and its last label.

    Returns:
        Among them `low` and `high`, each value's own 95 % interval of PCOC, and `wrong`: whether 1
        lies outside an interval that holds for all listed values together.
    """
    model = _by_value(counts, "model")
    model = model.sort_values(by="impressions", ascending=False, kind="stable").iloc[:listed]
    of_model, ids = counts_of(model), model.index.to_numpy()
    low, high = _intervals(counts, ids, Resampling(0.95, block_days=horizon))
    surely = _intervals(counts, ids, Resampling(1 - 0.05 / max(1, len(ids)), block_days=horizon))
    deviance = deviance_terms(of_model).numerator
    base = counts_of(_by_value(counts, "uncalibrated").loc[ids])
    return {
        "id": ids.tolist(),
        "name": [display_name(field_values[i]) for i in ids],
        "impressions": of_model.impressions.tolist(),
        "responses": of_model.responses.tolist(),
        "base": rounded(pcoc(base)),
        "model": rounded(pcoc(of_model)),
        "low": rounded(low),
        "high": rounded(high),
        "wrong": ((surely[0] > 1) | (surely[1] < 1)).tolist(),
        "deviance": rounded(deviance),
        "bins": [chosen_bins[i] if i < len(chosen_bins) else 0 for i in ids],
    }


def drawn_bins(bins: pd.DataFrame) -> pd.DataFrame:
    """Reliability bins as they are drawn, neighbours joined to LEAST_EXPECTED or more.

    Columns: method, field_value_id, predicted and observed logit (NaN without responses, or with
    nothing else), Wilson's 95 % band of it, impressions, responses and mean score logit.
    """
    of_method = bins[bins["method"].isin(PICTURED) & (bins["impressions"] > 0)]
    keys = ["method", "field_value_id"]
    expected = of_method["expected_responses"]
    before = of_method.groupby(keys)["expected_responses"].cumsum() - expected
    total = expected[of_method["method"] == "model"].sum()
    least = max(LEAST_EXPECTED, total / DRAWN_BINS)
    joined = of_method.assign(part=(before // least).astype(int))
    names = ["impressions", "responses", "expected_responses", "logit_sum"]
    drawn = joined.groupby([*keys, "part"], sort=True)[names].sum().reset_index()
    n, o = drawn["impressions"].to_numpy(float), drawn["responses"].to_numpy(float)
    predicted = logit(np.clip((drawn["expected_responses"] / n).to_numpy(), 1e-9, 1 - 1e-9))
    seen = _seen(o, n, predicted)
    return drawn.assign(predicted=predicted, score=drawn["logit_sum"] / n, **seen)


def _seen(
    responses: np.ndarray, impressions: np.ndarray, predicted: np.ndarray
) -> dict[str, np.ndarray]:
    """The observed log-odds, NaN where infinite or undefined, and the ends of Wilson's band.

    An end at 0 or 1 is drawn ENDLESS beyond the predicted log-odds or the other end.
    """
    low, high = (logit(end) for end in wilson_interval(responses, impressions))
    with np.errstate(invalid="ignore"):
        observed = logit(responses / impressions)
    return {
        "observed": np.where(np.isfinite(observed), observed, np.nan),
        "low": np.where(np.isfinite(low), low, np.fmin(predicted, high) - ENDLESS),
        "high": np.where(np.isfinite(high), high, np.fmax(predicted, low) + ENDLESS),
    }


BIN_COLUMNS = ("predicted", "observed", "low", "high", "score")


def bins_by_value(drawn: pd.DataFrame, ids: list[int]) -> dict[str, dict[str, list[Any]]]:
    """For each method and field value id: [impressions, responses, …BIN_COLUMNS] of its bins."""
    wanted = drawn[drawn["field_value_id"].isin(set(ids))]
    columns: list[list[Any]] = [
        wanted[name].astype(int).tolist() for name in ("impressions", "responses")
    ]
    columns += [rounded(wanted[name], 2) for name in BIN_COLUMNS]
    result: dict[str, dict[str, list[Any]]] = {}
    keys = zip(wanted["method"], wanted["field_value_id"], strict=True)
    for (method, value), row in zip(keys, zip(*columns, strict=True), strict=True):
        result.setdefault(method, {}).setdefault(str(value), []).append(row)
    return result


def curves_by_value(
    maps: Mapping[str, PiecewiseLinearMap], drawn: pd.DataFrame, ids: list[int]
) -> dict[str, Any]:
    """Every map's calibrated logit on equidistant logits between a value's outer bins.

    Keys: `ends` (first and last logit by id) and one per map, by id; a value whose rows all fell
    into one bin is drawn a unit of logit to either side.

    Args:
        maps: by name.
        drawn: what `drawn_bins` returns.
        ids: the largest field values first.
    """
    fine = _curves(maps, drawn, ids[:FINELY_DRAWN], FINE_POINTS)
    coarse = _curves(maps, drawn, ids[FINELY_DRAWN:], COARSE_POINTS)
    return {name: fine[name] | coarse[name] for name in fine}


def _curves(
    maps: Mapping[str, PiecewiseLinearMap], drawn: pd.DataFrame, ids: list[int], points: int
) -> dict[str, dict[str, list[float | None]]]:
    base = drawn[(drawn["method"] == "uncalibrated") & drawn["field_value_id"].isin(set(ids))]
    spans = base.groupby("field_value_id")["score"].agg(["min", "max"])
    spans.loc[spans["min"] == spans["max"]] += [-1.0, 1.0]
    rows, value_ids = len(spans), spans.index.to_numpy()
    grid = np.linspace(spans["min"], spans["max"], points, axis=1)
    curves = {"ends": {str(i): rounded(grid[row, [0, -1]], 2) for row, i in enumerate(value_ids)}}
    for name, serving_map in maps.items():
        heights = serving_map(grid.ravel(), np.repeat(value_ids, points)).reshape(rows, points)
        curves[name] = {str(i): rounded(heights[row], 2) for row, i in enumerate(value_ids)}
    return curves


def day_rows(counts: pd.DataFrame, methods: tuple[str, ...] = PICTURED) -> list[dict[str, Any]]:
    """Per method and test day: impressions, rates, and PCOC with its band."""
    rows: list[dict[str, Any]] = []
    for method in methods:
        frame = counts[counts["method"] == method]
        by_day = frame.groupby("day")[SUMS].sum()
        of_day = counts_of(by_day)
        low, high = pcoc_band(of_day)
        dates = pd.to_datetime(by_day.index.to_numpy(), unit="D").strftime("%Y-%m-%d")
        columns = {
            "day": dates.tolist(),
            "impressions": of_day.impressions.tolist(),
            "responses": of_day.responses.tolist(),
            "rate": rounded(of_day.responses / of_day.impressions, 6),
            "predicted": rounded(of_day.expected_responses / of_day.impressions, 6),
            "pcoc": rounded(pcoc(of_day)),
            "low": rounded(low),
            "high": rounded(high),
        }
        names = {"method": [NAMES[method]] * len(dates)} | columns
        rows += [dict(zip(names, row, strict=True)) for row in zip(*names.values(), strict=True)]
    return rows
