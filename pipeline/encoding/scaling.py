"""Numbers of a log as columns of the base network: features scaled, a served score passed on."""

from dataclasses import dataclass

import numpy as np

from pipeline.core.errors import DataError
from pipeline.formats.scores import served_logit

LARGEST_SCALED = 6.0  # standard deviations; a value further out is served as if it were there
SMALLEST_SPREAD = 1e-6  # of the mean's size; a feature that varies less is a constant


def signed_log(values: np.ndarray) -> np.ndarray:
    """sign(x) · ln(1 + |x|): near zero the value itself, far out its logarithm on either side.

    Counters and amounts span powers of ten, and some are negative; unlike ln(1 + x), this is
    finite for every finite x.
    """
    return np.sign(values) * np.log1p(np.abs(values))


class NumberSums:
    """What a scaling is learned from, added up a day at a time."""

    def __init__(self, *days: np.ndarray) -> None:
        self._rows, self._missing, self._total, self._squares = 0, 0, 0.0, 0.0
        for values in days:
            self.add(values)

    def add(self, values: np.ndarray) -> None:
        """Add the numbers of more rows, float64 [n], NaN where null."""
        present = signed_log(values[~np.isnan(values)])
        self._rows += len(present)
        self._missing += len(values) - len(present)
        self._total += float(present.sum())
        self._squares += float(present @ present)

    def scaling(self, name: str) -> "Scaling":
        """The scaling of the feature `name`, whose numbers these were."""
        mean = self._total / self._rows if self._rows else 0.0
        spread = max(self._squares / self._rows - mean**2, 0.0) ** 0.5 if self._rows else 0.0
        constant = spread <= SMALLEST_SPREAD * max(1.0, abs(mean))
        return Scaling(name, mean, 0.0 if constant else spread, self._missing > 0)


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
