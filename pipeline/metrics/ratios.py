"""Metrics as ratios of sums over field values, and what is returned where one is undefined."""

from typing import NamedTuple

import numpy as np


class Measured(NamedTuple):
    """A metric and the share of impressions it speaks about; undefined is (NaN, 0.0)."""

    value: float
    coverage: float


class Terms(NamedTuple):
    """A metric as Σ numerator / Σ denominator, one summand for each field value on the last axis.

    A field value that the metric leaves out has zeros in both. Resampling field values weights the
    summands; nothing else about a metric needs to be known for its interval.
    """

    numerator: np.ndarray
    denominator: np.ndarray

    def ratio(self) -> np.ndarray:
        """The metric, with the last axis summed away; NaN where the denominators sum to zero."""
        return ratio(self.numerator.sum(axis=-1), self.denominator.sum(axis=-1))


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """numerator / denominator element by element, float64; NaN where the denominator is zero."""
    numerator, denominator = np.broadcast_arrays(numerator, denominator)
    undefined = np.full(numerator.shape, np.nan)
    return np.divide(numerator, denominator, out=undefined, where=denominator != 0)
