"""AdaCalib for notebooks: scikit-learn's conventions, no pipeline needed."""

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from pipeline.calibration.adacalib import Settings, fit_adacalib
from pipeline.calibration.bins import tabulate
from pipeline.calibration.folds import all_counts
from pipeline.calibration.logits import sigmoid
from pipeline.calibration.piecewise import PiecewiseLinearMap, identity_map
from pipeline.calibration.selection import choose, isotonic_of_cells, out_of_sample_losses
from pipeline.errors import DataError
from pipeline.scores import Scores

GRID_CELLS = 160  # at least, of the fitting grid


class AdaCalib(ClassifierMixin, BaseEstimator):
    """Field-level calibration of a binary model's logits.

    Args:
        candidates: bin counts among which each field value chooses.
        choose: "held_out" ships the simplest of {identity, isotonic, eb_platt, adacalib} that is
            within one standard error of the best out of sample; "always" ships AdaCalib.
        horizon_days: days after the last one over which drifting offsets are forecast; None: a
            third of the days.
        steps: gradient steps of the network at most.
        learning_rate: of AdamW.
        min_slope: least slope of the calibrated in the uncalibrated logit.
        seed: of everything that is drawn.

    Attributes:
        classes_: array([0, 1]).
        map_: the serving map.
        chosen_: name of the calibrator that serves.
        field_values_: field value -> id; what is not in it is served by the unseen value's row.

    Example:
        >>> calibrator = AdaCalib().fit(logit, label, item, day=day)
        >>> probability = calibrator.predict_proba(logit, item)[:, 1]
    """

    def __init__(
        self,
        *,
        candidates: tuple[int, ...] = (5, 10, 20),
        choose: str = "held_out",
        horizon_days: int | None = None,
        steps: int = 100,
        learning_rate: float = 0.003,
        min_slope: float = 0.05,
        seed: int = 1,
    ) -> None:
        self.candidates = candidates
        self.choose = choose
        self.horizon_days = horizon_days
        self.steps = steps
        self.learning_rate = learning_rate
        self.min_slope = min_slope
        self.seed = seed

    def fit(
        self,
        uncalibrated_logit: ArrayLike,
        label: ArrayLike,
        field_value: ArrayLike | None = None,
        *,
        day: ArrayLike | None = None,
        weight: ArrayLike | None = None,
    ) -> Self:
        """Fit on calibration rows, which the base model has not been trained on.

        Args:
            uncalibrated_logit: [n] or [n, 1], the base model's log-odds; or [n, 2] with the field
                value as second column, which is what a Pipeline needs.
            label: [n], 0 or 1.
            field_value: [n], text or anything whose text names it; None and NaN are null.
            day: [n], dates, datetime64 or whole days; with four days or more everything is learned
                forward in time. None: all rows are of one day.
            weight: [n], whole numbers: how many equal impressions a row stands for. None: one.

        Raises:
            DataError: a column has another length, a logit is not finite, a label is not 0 or 1, or
                a weight is not a whole number.
            NotEnoughDataError: no row has a weight above zero.
        """
        logit, names = _columns(uncalibrated_logit, field_value)
        y, n = _counts(label, weight, len(logit))
        known = sorted({name for name in names if name is not None})
        self.classes_ = np.array([0, 1])
        self.field_values_ = {name: position for position, name in enumerate(known, start=1)}
        scores = Scores(logit, self._ids(names), n, y, _days(day, len(logit)), len(known) + 1)
        self.map_, self.chosen_ = self._fit(scores)
        return self

    def _fit(self, scores: Scores) -> tuple[PiecewiseLinearMap, str]:
        settings = Settings(
            horizon_days=self.horizon_days,
            steps=self.steps,
            learning_rate=self.learning_rate,
            min_slope=self.min_slope,
            seed=self.seed,
        )
        multiple = math.lcm(*self.candidates)
        bins, cells = tabulate(scores, self.candidates, -(-GRID_CELLS // multiple) * multiple)
        fitted = fit_adacalib(bins, cells, scores.n_field_values, settings)
        if self.choose == "always":
            return fitted.serving, "adacalib"
        name = choose(*out_of_sample_losses(cells, fitted.held_out, scores.n_field_values)).name
        counts = all_counts(cells)
        maps = {
            "identity": lambda: identity_map(scores.n_field_values),
            "isotonic": lambda: isotonic_of_cells(
                cells, counts.impressions, counts.responses, scores.n_field_values
            ),
            "eb_platt": fitted.basis.still.as_map,
            "adacalib": lambda: fitted.serving,
        }
        return maps[name](), name

    def calibrated_logit(
        self, uncalibrated_logit: ArrayLike, field_value: ArrayLike | None = None
    ) -> np.ndarray:
        """The calibrated logit, float64 [n].

        Raises:
            NotFittedError: `fit` was not called.
            DataError: columns have different lengths, or a logit is not finite.
        """
        check_is_fitted(self, "map_")
        logit, names = _columns(uncalibrated_logit, field_value)
        return self.map_(logit, self._ids(names))

    def predict_proba(
        self, uncalibrated_logit: ArrayLike, field_value: ArrayLike | None = None
    ) -> np.ndarray:
        """Calibrated probabilities of classes 0 and 1, float64 [n, 2].

        Field values that were not seen, and null, are served by the unseen value's own map.

        Raises:
            NotFittedError: `fit` was not called.
            DataError: columns have different lengths, or a logit is not finite.
        """
        logit = self.calibrated_logit(uncalibrated_logit, field_value)
        return np.stack([sigmoid(-logit), sigmoid(logit)], axis=1)

    def predict(
        self, uncalibrated_logit: ArrayLike, field_value: ArrayLike | None = None
    ) -> np.ndarray:
        """1 where a response is likelier than not, int64 [n].

        Raises:
            NotFittedError: `fit` was not called.
            DataError: columns have different lengths, or a logit is not finite.
        """
        return (self.calibrated_logit(uncalibrated_logit, field_value) > 0).astype(np.int64)

    def _ids(self, names: list[str | None]) -> np.ndarray:
        known = self.field_values_
        return np.array([known.get(n, 0) if n is not None else 0 for n in names], dtype=np.int32)


def _text(value: Any) -> str | None:
    """The text that names a field value; None, NaN and NaT are null."""
    if value is None or (isinstance(value, float) and math.isnan(value)) or str(value) == "NaT":
        return None
    return str(value)


def _columns(
    uncalibrated_logit: ArrayLike, field_value: ArrayLike | None
) -> tuple[np.ndarray, list[str | None]]:
    """Logits float32 [n] and texts of field values [n]."""
    table = np.asarray(uncalibrated_logit)
    if field_value is None:
        if table.ndim != 2 or table.shape[1] != 2:
            raise DataError(
                f"field_value is missing and the logits have shape {table.shape}; "
                "give field_value, or a second column with it"
            )
        field_value, table = table[:, 1], table[:, 0]
    logit = table.astype(np.float32).reshape(-1)
    names = [_text(value) for value in np.asarray(field_value, dtype=object).reshape(-1)]
    if len(names) != len(logit):
        raise DataError(f"field_value needs {len(logit)} rows, it has {len(names)}")
    if not np.isfinite(logit).all():
        row = int(np.flatnonzero(~np.isfinite(logit))[0])
        raise DataError(f"uncalibrated_logit must be finite, row {row} has {logit[row]}")
    return logit, names


def _counts(
    label: ArrayLike, weight: ArrayLike | None, n_rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Responses and impressions, int64 [n]."""
    y = np.asarray(label).reshape(-1)
    n = np.ones(n_rows, dtype=np.int64) if weight is None else np.asarray(weight).reshape(-1)
    for name, column in (("label", y), ("weight", n)):
        if len(column) != n_rows:
            raise DataError(f"{name} needs {n_rows} rows, it has {len(column)}")
    for name, column, wrong in (
        ("label must be 0 or 1", y, (y != 0) & (y != 1)),
        ("weight must be a whole number from 0 on", n, ~((n >= 0) & (n == np.floor(n)))),
    ):
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise DataError(f"{name}, row {row} has {column[row]}")
    return y.astype(np.int64) * n.astype(np.int64), n.astype(np.int64)


def _days(day: ArrayLike | None, n_rows: int) -> np.ndarray:
    """Days as numbers, int32 [n]."""
    if day is None:
        return np.zeros(n_rows, dtype=np.int32)
    column = np.asarray(day).reshape(-1)
    if len(column) != n_rows:
        raise DataError(f"day needs {n_rows} rows, it has {len(column)}")
    if not np.issubdtype(column.dtype, np.integer):
        column = column.astype("datetime64[D]").astype(np.int64)
    return column.astype(np.int32)
