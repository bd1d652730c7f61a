"""What must be true of the field statistics: of bins, of cells, and of both beside the log.

How far bin tables are from the champion's: who is shown, and how scores turn into responses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pipeline.formats.tables import BinTable, CellTable
from pipeline.quality.suites import RULES, CheckResult, Suite, run_suites, with_not_finite

GROUP = ["field_value_id", "requested_bins"]


@dataclass(frozen=True)
class LogSums:
    """What the log itself says, against which its tables are checked.

    Attributes:
        field_values: text of each field value id, None for the first.
        impressions: int64 [n_field_values], of each field value id on the binning days.
        responses: int64 [n_field_values].
        largest_tie: int64 [rows of the bin table], the most impressions at one logit in each bin.
        cut_until: the last binning day, days since 1970-01-01.
        by_day: `impressions` and `responses` of each day with rows, binning days and later ones.
    """

    field_values: Sequence[str | None]
    impressions: np.ndarray
    responses: np.ndarray
    largest_tie: np.ndarray
    cut_until: int
    by_day: pd.DataFrame


def table_frame(table: BinTable | CellTable) -> pd.DataFrame:
    """The columns of a table, and which of its numbers is not finite."""
    return with_not_finite(pd.DataFrame(table.columns()))


def bin_frame(table: BinTable, largest_tie: np.ndarray, tolerance: float) -> pd.DataFrame:
    """The bin table with what its rules compare: a row's place, its neighbours, its errors."""
    frame = table_frame(table)
    groups = frame.groupby(GROUP, sort=False, dropna=False)
    number, bins = groups.cumcount(), groups["bin_id"].transform("size")
    order = np.lexsort((frame["bin_id"], frame["requested_bins"], frame["field_value_id"]))
    lower, upper = frame["lower_bound"], frame["upper_bound"]
    impressions = frame["impressions"].astype("f8")
    mean = frame["logit_sum"] / impressions
    outside = np.maximum(lower - mean, mean - upper) / (1 + np.maximum(lower.abs(), upper.abs()))
    return frame.assign(
        row=np.arange(len(frame)),
        sorted_row=np.argsort(order, kind="stable"),
        number=number,
        bins=bins,
        increases=(lower < upper) | ((lower == upper) & (bins == 1)),
        bound_before=groups["upper_bound"].shift().where(number > 0, lower),
        posterior_error=(frame["posterior"] - frame["responses"] / impressions).abs(),
        mean_outside=outside,
        even=_evenly_shared(table, largest_tie, tolerance),
    )


def _evenly_shared(table: BinTable, largest_tie: np.ndarray, tolerance: float) -> np.ndarray:
    """A cut moves to an end of the tie it falls into, so no farther than ties near it are large.

    Two impressions are always granted: one for the rounding of ranks, one for a greatest logit that
    joined the bin before because no bound lies between.
    """
    key = [table.field_value_id, table.requested_bins]
    frame = pd.DataFrame({"n": table.impressions, "tie": largest_tie})
    groups = frame.groupby(key, dropna=False)
    even = groups["n"].transform("sum").to_numpy("f8") / table.requested_bins
    before, after = (groups["tie"].shift(by, fill_value=0).to_numpy() for by in (1, -1))
    moved = 2 * np.maximum(largest_tie, np.maximum(before, after))
    moved = np.where(moved > 2, moved, 0)  # one impression at a logit is no tie
    return np.abs(table.impressions - even) <= tolerance * even + 2 + moved


def uneven_field_values(bins: BinTable, tolerance: float) -> np.ndarray:
    """Ids of field values whose bins are so uneven that only ties could explain it, ascending.

    Args:
        bins: the bin table.
        tolerance: a bin may hold this share more or less than its even part.
    """
    even = _evenly_shared(bins, np.zeros(len(bins), np.int64), tolerance)
    return np.unique(bins.field_value_id[~even])


def group_frame(
    bins: BinTable, cells: CellTable, log: LogSums, candidates: list[int]
) -> pd.DataFrame:
    """One row per (field value, candidate) that the log or the bin table has.

    Columns `log_…` are the log's sums of the field value, 0 where the log has none or the number of
    bins is no candidate; `bins` and `bin_…` are those of its bins, 0 where it has none, `cell_…`
    those of its cells; `effective_bins` is what the first of its bins says.
    """
    ids = np.flatnonzero(log.impressions)
    expected = pd.DataFrame(
        {
            "field_value_id": np.repeat(ids, len(candidates)),
            "requested_bins": np.tile(np.array(candidates, dtype=np.int64), len(ids)),
            "log_impressions": np.repeat(log.impressions[ids], len(candidates)),
            "log_responses": np.repeat(log.responses[ids], len(candidates)),
        }
    )
    of_bins = table_frame(bins).groupby(GROUP, dropna=False, as_index=False)
    of_cells = table_frame(cells).groupby("field_value_id")[["impressions", "responses"]].sum()
    groups = expected.merge(
        of_bins.agg(
            bins=("bin_id", "size"),
            effective_bins=("effective_bins", "first"),
            bin_impressions=("impressions", "sum"),
            bin_responses=("responses", "sum"),
        ),
        on=GROUP,
        how="outer",
    ).merge(of_cells.add_prefix("cell_").reset_index(), on="field_value_id", how="left")
    return groups.fillna(0).convert_dtypes()


def table_suites(
    bins: BinTable, cells: CellTable, log: LogSums, candidates: list[int], tolerance: float
) -> list[Suite]:
    """All that is expected of the field statistics; arguments as in `check_tables`."""
    groups = group_frame(bins, cells.take(cells.day <= log.cut_until), log, candidates)
    effective = {
        "expect": "TableRowCountToEqual",
        "name": None,
        "sentence": "there are as many bins as effective bins over the expected field values",
        "value": int(groups["effective_bins"].sum()),
    }
    cell_frame = table_frame(cells)
    mean = cell_frame["probability_sum"] / cell_frame["impressions"]
    sums = cell_frame.groupby("day")[["impressions", "responses"]].sum().add_prefix("cell_")
    days = sums.join(log.by_day.add_prefix("log_"), how="outer").fillna(0).rename_axis("day")
    return [
        Suite("bins", bin_frame(bins, log.largest_tie, tolerance), [effective, *RULES["bins"]]),
        Suite("cells", cell_frame.assign(mean_probability=mean), RULES["cells"]),
        Suite("field values", groups, RULES["field values"]),
        Suite("days", days.reset_index(), RULES["days of cells"]),
    ]


def check_tables(
    bins: BinTable, cells: CellTable, log: LogSums, candidates: list[int], tolerance: float
) -> list[CheckResult]:
    """Every check of the field statistics; no rows, missing values, NaN and infinities all fail.

    Args:
        bins: the bin table.
        cells: the cells of the grid, of binning days and later ones.
        log: sums of the log itself.
        candidates: the numbers of bins that every field value with impressions must have.
        tolerance: a bin may hold this share more or less than its even part, ties excepted.
    """
    return run_suites(table_suites(bins, cells, log, candidates, tolerance), log.field_values)


SURE = 2.0
"""Standard deviations of chance that are taken off before anything is called drift."""

Names = Sequence[str | None]


def table_drift(
    bins: BinTable, names: Names, champion: BinTable, their_names: Names
) -> dict[str, Any]:
    """Two drifts with what chance alone would give; NaN where the tables share nothing.

    Field values are matched by their text, ids of the two tables never meet.

    Ids of one name count together in the mix, and their rates are not compared.

    - `mix`: the population stability index Σ (p − q) ln(p / q) of the field values' shares of
      impressions, half an impression added to each; `mix_noise` is its expectation without drift,
      (V − 1)(1/N + 1/M). `mix_beyond_noise` is the difference, at least 0.
    - `rate`: how far, on the log scale, the response rates of matching bins lie apart beyond their
      counts: τ² = (Q − B) / Σ 1/v over B bins (DerSimonian and Laird 1986, about a mean of zero),
      Q = Σ d²/v, d the log ratio of the rates, v = 1/(r + ½) + 1/(s + ½) of their responses.
      0.7 is a factor of two. `rate_beyond_noise` takes off SURE standard deviations √(2B) of Q.
      The k-th of K equally filled bins of a field value holds the same ranks of its scores on
      both sides, so a base model with another scale of scores is no drift.

    Args:
        bins: the table that is checked.
        names: text of each of its field value ids, None for unseen or null.
        champion: the champion's table.
        their_names: the same for it.

    Returns:
        The six numbers, with `field_values` (on both sides), `bins` (compared) and `requested_bins`
        (the candidate they are of: the smallest that both tables have).
    """
    both = {*np.unique(bins.requested_bins)} & {*np.unique(champion.requested_bins)}
    smallest = int(min(both)) if both else 0  # of 0 bins there are none
    ours = _named(bins.take(bins.requested_bins == smallest), names)
    theirs = _named(champion.take(champion.requested_bins == smallest), their_names)
    shares = pd.DataFrame({"n": ours.groupby("name")["impressions"].sum()}).join(
        theirs.groupby("name")["impressions"].sum().rename("m"), how="outer"
    )
    shared = int(shares.notna().all(axis=1).sum())
    mix, noise = _stability(shares.fillna(0).to_numpy(float)) if shared else (np.nan, np.nan)
    of_bin = ["name", "effective_bins", "bin_id"]
    once = (table[~table.duplicated(["name", "bin_id"], keep=False)] for table in (ours, theirs))
    matched = next(once).merge(next(once), on=of_bin, suffixes=("", "_then"))
    rate, surely = _spread(matched)
    return {
        "mix": mix,
        "mix_noise": noise,
        "mix_beyond_noise": float(np.maximum(mix - noise, 0.0)),
        "rate": rate,
        "rate_beyond_noise": surely,
        "field_values": shared,
        "bins": len(matched),
        "requested_bins": smallest or None,
    }


def bin_drift(cut: BinTable, newest: BinTable) -> dict[str, float]:
    """How unevenly the bins hold the newest days, which they were not cut on.

    `shape` is the population stability index of a field value's bins (see `table_drift`), averaged
    over field values by their impressions on the newest days; `shape_noise` is its expectation
    where nothing has changed, Σ_z share_z (K_z − 1)(1/N_z + 1/M_z); `shape_beyond_noise` is the
    difference, at least 0. All NaN without newest impressions.

    Args:
        cut: the bins, counted on the days that they were cut on.
        newest: the same bins, counted on the newest days.
    """
    smallest = cut.requested_bins == cut.requested_bins.min()
    frame = pd.DataFrame(
        {
            "id": cut.field_value_id[smallest],
            "n": newest.impressions[smallest].astype(float),
            "m": cut.impressions[smallest].astype(float),
        }
    )
    values = [group[["n", "m"]].to_numpy() for _, group in frame.groupby("id") if group["n"].sum()]
    weight = np.array([counts[:, 0].sum() for counts in values])
    found = np.array([_stability(counts) for counts in values]).reshape(-1, 2)
    psi, noise = (weight / weight.sum()) @ found if values else (np.nan, np.nan)
    beyond = float(np.maximum(psi - noise, 0.0))
    return {"shape": float(psi), "shape_noise": float(noise), "shape_beyond_noise": beyond}


def _named(bins: BinTable, names: Names) -> pd.DataFrame:
    """One candidate's bins with the text of their field value as `name`; null is a text too.

    A text begins with "=" so that none is what null and unseen are called.
    """
    texts = np.array(["null" if name is None else f"={name}" for name in names], dtype=object)
    return pd.DataFrame(bins.columns()).assign(name=texts[bins.field_value_id])


def _stability(counts: np.ndarray) -> tuple[float, float]:
    """PSI of two columns of counts [V, 2], and its expectation without drift."""
    smooth = (counts + 0.5) / (counts + 0.5).sum(axis=0)
    psi = float(((smooth[:, 0] - smooth[:, 1]) * np.log(smooth[:, 0] / smooth[:, 1])).sum())
    return psi, float((len(counts) - 1) * (1 / counts.sum(axis=0)).sum())


def _spread(matched: pd.DataFrame) -> tuple[float, float]:
    """τ of the log ratios of matched bins' rates, and what is left of it beyond chance."""
    if not len(matched):
        return float("nan"), float("nan")
    r, n, s, m = (
        matched[name].to_numpy(float)
        for name in ("responses", "impressions", "responses_then", "impressions_then")
    )
    ratio = np.log((r + 0.5) / (n + 1)) - np.log((s + 0.5) / (m + 1))
    weight = 1 / (1 / (r + 0.5) + 1 / (s + 0.5))
    excess = (weight * ratio**2).sum() - len(matched)
    chance = SURE * np.sqrt(2 * len(matched))
    rate, surely = np.sqrt(np.maximum([excess, excess - chance], 0.0) / weight.sum())
    return float(rate), float(surely)
