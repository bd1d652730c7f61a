"""Scores: what every room after `score` works on. Columns have canonical names from here on."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from pipeline.errors import DataError


@dataclass(frozen=True)
class Scores:
    """Rows of a scored log. One row is one impression, or `impressions` impressions at one logit.

    Attributes:
        uncalibrated_logit: float32 [n], the base model's log-odds, finite.
        field_value_id: int32 [n] in [0, n_field_values); 0 = unseen or null.
        impressions: int32 or int64 [n], >= 0; all ones when a row is one impression.
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
