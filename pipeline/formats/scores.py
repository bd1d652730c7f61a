"""Scores: what every room after `score` works on. Columns have canonical names from here on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from pipeline.core.errors import DataError

SPACES = ("logit", "probability")  # what a score that was served may be
WEIGHT_UNIT = 2**20  # weights are multiples of 1 / this, so that sums are exact in any order
LARGEST_WEIGHT = 2**20
SERVED_CLIP = 1e-15  # a served probability is taken to lie in [this, 1 - this]: ±34.5 in logit


@dataclass(frozen=True)
class Scores:
    """Rows of a scored log. One row is one impression, or `impressions` impressions at one logit.

    Attributes:
        uncalibrated_logit: float32 [n], the base model's log-odds, finite.
        field_value_id: int32 [n] in [0, n_field_values); 0 = unseen.
        impressions: int32 or int64 [n], >= 0; all ones when a row is one impression. Of a sampled
            log float64: what the rows stand for before sampling, multiples of 1 / WEIGHT_UNIT.
        responses: same dtype family [n], 0 <= responses <= impressions.
        day: int32 [n], days since 1970-01-01.
        n_field_values: number of ids, the row of id 0 included.
    """

    uncalibrated_logit: np.ndarray
    field_value_id: np.ndarray
    impressions: np.ndarray
    responses: np.ndarray
    day: np.ndarray
    n_field_values: int

    def __post_init__(self) -> None:
        lengths = {len(getattr(self, f.name)) for f in fields(self) if f.name != "n_field_values"}
        if len(lengths) != 1:
            raise DataError(f"scores need columns of one length, these have {sorted(lengths)}")
        if not np.isfinite(self.uncalibrated_logit).all():
            row = int(np.flatnonzero(~np.isfinite(self.uncalibrated_logit))[0])
            value = self.uncalibrated_logit[row]
            raise DataError(f"uncalibrated_logit must be finite, row {row} has {value}")
        if len(self) and not (
            self.field_value_id.min() >= 0 and self.field_value_id.max() < self.n_field_values
        ):
            raise DataError(f"field_value_id must lie in [0, {self.n_field_values})")
        if (self.responses > self.impressions).any() or (self.responses < 0).any():
            row = int(np.flatnonzero((self.responses > self.impressions) | (self.responses < 0))[0])
            raise DataError(
                f"responses must lie in [0, impressions], row {row} has "
                f"{self.responses[row]} of {self.impressions[row]}"
            )

    def __len__(self) -> int:
        return len(self.uncalibrated_logit)

    def take(self, rows: np.ndarray) -> "Scores":
        """The rows that a boolean mask or an index array picks, as copies."""
        return Scores(
            self.uncalibrated_logit[rows],
            self.field_value_id[rows],
            self.impressions[rows],
            self.responses[rows],
            self.day[rows],
            self.n_field_values,
        )


def join_scores(parts: Sequence[Scores]) -> Scores:
    """The rows of one or more parts of the same log, one part after the other, as copies."""
    return Scores(
        uncalibrated_logit=np.concatenate([p.uncalibrated_logit for p in parts]),
        field_value_id=np.concatenate([p.field_value_id for p in parts]),
        impressions=np.concatenate([p.impressions for p in parts]),
        responses=np.concatenate([p.responses for p in parts]),
        day=np.concatenate([p.day for p in parts]),
        n_field_values=parts[0].n_field_values,
    )


def served_column(conventions: Mapping[str, Any]) -> tuple[str, str] | None:
    """Column and space ("logit" or "probability") of the score that was served; None: a base
    model is trained."""
    for space in SPACES:
        column = conventions.get(f"served_{space}")
        if column is not None:
            return column, space
    return None


def served_logit(values: np.ndarray, space: str) -> np.ndarray:
    """The logits of scores that were served, float32 [n].

    A logit is taken as it is. A probability p becomes ln p - ln(1 - p), computed in float64
    whatever it was stored as; 0 and 1 stand for SERVED_CLIP and 1 - SERVED_CLIP.

    Args:
        values: float64 [n].
        space: "logit" or "probability".

    Raises:
        DataError: a score is null, a logit is not a finite float32, or a probability lies outside
            [0, 1].
    """
    missing = np.flatnonzero(np.isnan(values))
    if len(missing):
        raise DataError(
            f"{len(missing)} of {len(values)} served scores are null or NaN, the first in row "
            f"{missing[0]}; every row needs the score it was served with"
        )
    if space == "probability":
        _refuse_score(values, (values < 0) | (values > 1), "is no probability", "served_logit")
        inside = np.clip(values, SERVED_CLIP, 1 - SERVED_CLIP)
        return (np.log(inside) - np.log(1 - inside)).astype(np.float32)
    too_large = np.abs(values) > np.finfo(np.float32).max
    _refuse_score(values, too_large, "is no finite logit", "served_probability")
    return values.astype(np.float32)


def _refuse_score(values: np.ndarray, wrong: np.ndarray, what: str, other: str) -> None:
    rows = np.flatnonzero(wrong)
    if len(rows):
        raise DataError(
            f"row {rows[0]} is {values[rows[0]]:g}, which {what}, as {len(rows)} of {len(values)} "
            f"rows have it; repair the scores, or name the column in log.{other}"
        )


def refuse_probabilities(lowest: float, highest: float, column: str) -> None:
    """Refuse logits that look like probabilities: all of a log within [0, 1].

    Args:
        lowest, highest: of all scores of the log.
        column: that holds them.

    Raises:
        DataError: they look like probabilities.
    """
    if lowest >= 0 and highest <= 1:
        raise DataError(
            f"column {column}, named in log.served_logit, lies in [{lowest:g}, {highest:g}] in all "
            "days, which is what probabilities look like; name it in log.served_probability"
        )


def keep_rate_of(conventions: Mapping[str, Any], part: str) -> float:
    """The share of non-responses that were kept in the days of a part; 1: all."""
    rates = conventions.get("keep_rate")
    return 1.0 if rates is None else float(rates[part])


def before_sampling(
    impressions: np.ndarray, responses: np.ndarray, weight: np.ndarray | float, keep_rate: float
) -> tuple[np.ndarray, np.ndarray]:
    """What sampled rows stand for: impressions and responses before rows were left out, [n] each.

    A row counts `weight` times; of its non-responses each counts 1 / `keep_rate` times. Weights are
    rounded to multiples of 1 / WEIGHT_UNIT. Whole amounts come back as int64, others as float64,
    whose sums are exact in any order up to 2^33; where nothing was sampled the counts come back.

    Args:
        impressions, responses: int [n], as the log has them.
        weight: float64 [n], 1 / the rate at which rows like it were kept; 1 where none was.
        keep_rate: share of non-responses that were kept, in (0, 1].

    Raises:
        DataError: a weight is null, not finite, or outside [1 / WEIGHT_UNIT, LARGEST_WEIGHT].
    """
    if keep_rate == 1 and np.isscalar(weight):
        return impressions, responses
    weights = np.broadcast_to(np.asarray(weight, dtype=np.float64), responses.shape)
    wrong = np.flatnonzero(~((weights >= 1 / WEIGHT_UNIT) & (weights <= LARGEST_WEIGHT)))
    if len(wrong):
        raise DataError(
            f"row {wrong[0]} has the weight {weights[wrong[0]]}, as {len(wrong)} rows have no "
            f"weight between 2**-20 and 2**20; give 1 / the rate at which rows like it were kept"
        )
    of_response = np.rint(weights * WEIGHT_UNIT) / WEIGHT_UNIT
    of_other = np.rint(weights / keep_rate * WEIGHT_UNIT) / WEIGHT_UNIT
    weighted = responses * of_response
    shown = weighted + (impressions.astype(np.int64) - responses) * of_other
    if (shown == np.trunc(shown)).all() and (weighted == np.trunc(weighted)).all():
        return shown.astype(np.int64), weighted.astype(np.int64)
    return shown, weighted


def unit_of(impressions: np.ndarray) -> int:
    """In which parts of an impression a column counts exactly: 1, or WEIGHT_UNIT if fractional."""
    return WEIGHT_UNIT if np.issubdtype(impressions.dtype, np.floating) else 1
