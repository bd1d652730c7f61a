"""How far bin tables are from the champion's: who is shown, and how scores turn into responses."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from pipeline.formats.tables import BinTable

SURE = 2.0
"""Standard deviations of chance that are taken off before anything is called drift."""

Names = Sequence[str | None]


def table_drift(
    bins: BinTable, names: Names, champion: BinTable, their_names: Names
) -> dict[str, Any]:
    """Two drifts with what chance alone would give; NaN where the tables share nothing.

    Field values are matched by their text, ids of the two tables never meet.

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
    matched = ours.merge(theirs, on=["name", "effective_bins", "bin_id"], suffixes=("", "_then"))
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
