"""AdaCalib for notebooks: scikit-learn's conventions, no pipeline needed."""

import math
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from pipeline.calibration.adacalib.fit import Settings, fit_adacalib
from pipeline.calibration.adacalib.folds import all_counts
from pipeline.calibration.choice import choose, isotonic_of_cells, out_of_sample_losses
from pipeline.calibration.columns import columns_of, counts_of, days_of
from pipeline.calibration.statistics.bins import tabulate
from pipeline.calibration.statistics.logits import sigmoid
from pipeline.core.errors import ParamsError
from pipeline.formats.maps import PiecewiseLinearMap, identity_map
from pipeline.formats.scores import Scores

GRID_CELLS = 160  # at least, of the fitting grid


class AdaCalib(ClassifierMixin, BaseEstimator):
    """Field-level calibration of a binary model's logits.

    Args:
        candidates: bin counts among which each field value chooses, 1 or more.
        choose: "held_out" ships the simplest of {identity, isotonic, eb_platt, adacalib} that is
            within one standard error of the best out of sample; "always" ships AdaCalib.
        horizon_days: days after the last one over which drifting offsets are forecast; None: a
            third of the days; else 1 or more.
        steps: gradient steps of the network at most, 1 or more.
        learning_rate: of AdamW, above 0.
        min_slope: least slope of the calibrated in the uncalibrated logit, above 0.
        seed: of everything that is drawn.

    Attributes:
        classes_: array([0, 1]).
        map_: the serving map.
        chosen_: name of the calibrator that serves.
        field_values_: field value -> id, None for null where it occurred; what is not in it is
            served by the unseen value's row.

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
            field_value: [n], text, whole numbers or booleans, spelled as the pipeline spells them;
                None, NaN, NaT and NA are null, which is a value of its own where it occurs here.
            day: [n], dates, datetime64, "YYYY-MM-DD" or whole days; with four days or more
                everything is learned forward in time. None: all rows are of one day.
            weight: [n], whole numbers: how many equal impressions a row stands for. None: one.

        Raises:
            DataError: a column has another length, a logit is not finite, a label is not 0 or 1, a
                weight is not a whole number, or a day or field value is none.
            ParamsError: a parameter is outside its range.
            NotEnoughDataError: no row has a weight above zero.
        """
        self._check_parameters()
        logit, names = columns_of(uncalibrated_logit, field_value)
        y, n = counts_of(label, weight, len(logit))
        known = sorted(set(names), key=lambda name: (name is not None, name))
        self.classes_ = np.array([0, 1])
        self.field_values_ = {name: position for position, name in enumerate(known, start=1)}
        scores = Scores(logit, self._ids(names), n, y, days_of(day, len(logit)), len(known) + 1)
        self.map_, self.chosen_ = self._fit(scores)
        return self

    def _check_parameters(self) -> None:
        whole = (int, np.integer)
        right = {
            "candidates": bool(self.candidates)
            and all(isinstance(k, whole) and k >= 1 for k in self.candidates),
            "choose": self.choose in ("held_out", "always"),
            "horizon_days": self.horizon_days is None or self.horizon_days >= 1,
            "steps": isinstance(self.steps, whole) and self.steps >= 1,
            "learning_rate": self.learning_rate > 0,
            "min_slope": self.min_slope > 0,
        }
        for name, holds in right.items():
            if not holds:
                raise ParamsError(
                    f"AdaCalib: {name} is {getattr(self, name)!r}; see help(AdaCalib) for its range"
                )

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
        logit, names = columns_of(uncalibrated_logit, field_value)
        return self.map_(logit, self._ids(names))

    def predict_proba(
        self, uncalibrated_logit: ArrayLike, field_value: ArrayLike | None = None
    ) -> np.ndarray:
        """Calibrated probabilities of classes 0 and 1, float64 [n, 2].

        Field values that were not seen are served by the unseen value's own map; so is null where
        no row of `fit` had it.

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
        return np.array([self.field_values_.get(name, 0) for name in names], dtype=np.int32)
