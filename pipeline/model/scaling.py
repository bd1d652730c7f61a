"""Numbers of a log as columns of the base network: features scaled, a served score passed on."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pipeline.errors import DataError
from pipeline.scores import served_logit

LARGEST_SCALED = 6.0  # standard deviations; a value further out is served as if it were there
SMALLEST_SPREAD = 1e-6  # of the mean's size; a feature that varies less is a constant


def signed_log(values: np.ndarray) -> np.ndarray:
    """sign(x) · ln(1 + |x|): near zero the value itself, far out its logarithm on either side.

    Counters and amounts span powers of ten, and some are negative; unlike ln(1 + x), this is
    finite for every finite x.
    """
    return np.sign(values) * np.log1p(np.abs(values))


@dataclass(frozen=True)
class Scaling:
    """How one numeric feature becomes one or two columns.

    Attributes:
        name: the column in the log.
        mean: mean of `signed_log` over the rows it was fitted on, nulls left out.
        scale: standard deviation there; 0 for a constant, from which nothing was learned: its
            column is 0 whatever value comes.
        missing: whether a second column tells nulls (1) from values (0): only where there were
            nulls to learn from. The first column is 0, the mean, in a null row.
    """

    name: str
    mean: float
    scale: float
    missing: bool

    @classmethod
    def fit(cls, name: str, days: Iterable[np.ndarray]) -> "Scaling":
        """The scaling of a feature's numbers, float64 [n] a day, NaN where null."""
        rows, missing, total, squares = 0, 0, 0.0, 0.0
        for values in days:
            present = signed_log(values[~np.isnan(values)])
            rows, missing = rows + len(present), missing + len(values) - len(present)
            total, squares = total + float(present.sum()), squares + float(present @ present)
        mean = total / rows if rows else 0.0
        spread = max(squares / rows - mean**2, 0.0) ** 0.5 if rows else 0.0
        constant = spread <= SMALLEST_SPREAD * max(1.0, abs(mean))
        return cls(name, mean, 0.0 if constant else spread, missing > 0)

    @property
    def columns(self) -> list[str]:
        """Names of the columns this feature becomes."""
        return [self.name, f"{self.name}.missing"] if self.missing else [self.name]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """The feature as float32 [n, 1] or [n, 2], within ±6 standard deviations.

        Args:
            values: float64 [n], finite, or NaN where null.
        """
        absent = np.isnan(values)
        inverse = 1.0 / self.scale if self.scale else 0.0
        scaled = (signed_log(values) - self.mean) * inverse
        scaled = np.where(absent, 0.0, np.clip(scaled, -LARGEST_SCALED, LARGEST_SCALED))
        parts = [scaled, absent] if self.missing else [scaled]
        return np.stack(parts, axis=1).astype(np.float32)


@dataclass(frozen=True)
class Served:
    """The score that was served, as the one column of a network that passes it on.

    Attributes:
        name: the column in the log.
        space: "logit" or "probability".
    """

    name: str
    space: str

    @property
    def columns(self) -> list[str]:
        """Name of the column this score becomes."""
        return [self.name]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """The logit that was served, float32 [n, 1].

        Raises:
            DataError: as `served_logit`; the column is named.
        """
        try:
            return served_logit(values, self.space)[:, np.newaxis]
        except DataError as error:
            raise DataError(f"column {self.name}: {error}") from None
