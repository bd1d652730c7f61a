"""AdaCalib for notebooks: scikit-learn's conventions, no pipeline needed."""

from __future__ import annotations  # a signature says ArrayLike, not the union that it stands for

import math
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import ArrayLike
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from pipeline.calibration.folds import FORWARD_DAYS, SCATTERED_DAYS, scattered
from pipeline.calibration.roll import roll
from pipeline.calibration.statistics.bins import tabulate
from pipeline.core.errors import DataError, ParamsError
from pipeline.formats.maps import PROBABILITY_CLIP
from pipeline.formats.scores import Scores
from pipeline.formats.tables import FieldTables, FieldTree

if TYPE_CHECKING:
    import altair as alt

GRID_CELLS = 160  # at least, of the fitting grid
LARGEST_EXACT = 2**53  # from here on a float may have lost digits
LARGEST_DAY = 1_000_000  # days from 1970: beyond it a number is a date such as 20240331, or seconds


class AdaCalib(ClassifierMixin, BaseEstimator):
    """Field-level calibration of a binary model's logits.

    Args:
        candidates: bin counts among which each field value chooses, 1 or more.
        choose: "held_out" ships the simplest of {identity, isotonic, eb_platt, adacalib} that is
            within one standard error of the best out of sample; "always" ships AdaCalib.
        horizon_days: days from the last one of `fit` to the one that is served, 1 or more.
        steps: gradient steps of the network at most, 1 or more.
        learning_rate: of AdamW, above 0.
        min_slope: least slope of the calibrated in the uncalibrated logit, above 0.
        seed: of everything that is drawn, 0 or more.

    Attributes:
        classes_: array([0, 1]).
        map_: the serving map.
        chosen_: name of the calibrator that serves.
        logit_range_: the lowest and the highest logit of `fit`, or 0.
        refused_days_: days, from 1970-01-01 on, that would have moved what is served farther than
            any day before; `map_` knows nothing of them.
        field_values_: field value -> id, None for null where it occurred; what is not in it is
            served by the unseen value's row.

    Example:
        >>> calibrator = AdaCalib().fit(logit, label, item, day=day)
        >>> probability = calibrator.predict_proba(logit, item)[:, 1]
    """

    weight_decay = 0.0001  # of AdamW
    temperatures = (1.0, 0.1)  # of the Gumbel choice among bin counts, first and last step
    min_responses_per_bin = 10  # of a field value, for each bin that it may choose

    def __init__(
        self,
        *,
        candidates: tuple[int, ...] = (5, 10, 20),
        choose: str = "held_out",
        horizon_days: int = 1,
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
            day: [n], dates, datetime64, "YYYY-MM-DD" or whole days. None, or fewer days than can
                be learned from forward in time (4 beside the horizon): days are drawn, as if
                nothing moved.
            weight: [n], whole numbers: how many equal impressions a row stands for. None: one.

        Raises:
            DataError: a column has another length, a logit is not finite, all of them lie within
                0 and 1 as probabilities do, a label is not 0 or 1, a weight is not a whole number,
                or a day or field value is none.
            ParamsError: a parameter is outside its range.
            NotEnoughDataError: no row has a weight above zero.
        """
        self._check_parameters()
        logit, names = columns_of(uncalibrated_logit, field_value)
        y, n = counts_of(label, weight, len(logit))
        self.logit_range_ = float(logit.min(initial=0)), float(logit.max(initial=0))
        known = sorted(set(names), key=lambda name: (name is not None, name))
        self.classes_ = np.array([0, 1])
        self.field_values_ = {name: position for position, name in enumerate(known, start=1)}
        scores = Scores(logit, self._ids(names), n, y, days_of(day, len(logit)), len(known) + 1)
        seen = np.unique(logit[n > 0])  # two or three may be logits that happen to lie there
        if len(seen) > 3 and seen[0] >= 0 and seen[-1] <= 1:
            raise DataError(
                "every uncalibrated_logit lies within 0 and 1, so these look like probabilities p; "
                "give np.log(p) - np.log1p(-p)"
            )
        self._fit(scores)
        return self

    def _check_parameters(self) -> None:
        whole, real = (int, np.integer), (int, float, np.number)
        right = {
            "candidates": isinstance(self.candidates, Sequence)
            and len(self.candidates) > 0
            and all(isinstance(k, whole) and k >= 1 for k in self.candidates)
            and math.lcm(*self.candidates) <= LARGEST_DAY,
            "choose": self.choose in ("held_out", "always"),
            "horizon_days": isinstance(self.horizon_days, whole) and 1 <= self.horizon_days <= 3660,
            "steps": isinstance(self.steps, whole) and self.steps >= 1,
            "learning_rate": isinstance(self.learning_rate, real)
            and 0 < self.learning_rate < math.inf,
            "min_slope": isinstance(self.min_slope, real) and 0 < self.min_slope < math.inf,
            "seed": isinstance(self.seed, whole) and self.seed >= 0,
        }
        for name, holds in right.items():
            if not holds:
                raise ParamsError(
                    f"AdaCalib: {name} is {getattr(self, name)!r}; see help(AdaCalib) for its range"
                )

    def _fit(self, scores: Scores) -> None:
        multiple, accepted = math.lcm(*self.candidates), range(0)
        if len(np.unique(scores.day)) < FORWARD_DAYS + self.horizon_days:
            scores, accepted = scattered(scores, self.seed), range(SCATTERED_DAYS)
        bins, cells = tabulate(scores, self.candidates, -(-GRID_CELLS // multiple) * multiple)
        last = int(scores.day.max(initial=0))
        tables = FieldTables(bins, cells, last, FieldTree.flat(scores.n_field_values))
        served = last + self.horizon_days
        rolled = roll(
            tables, self, known_until=last, asked={served: None}, accepted=accepted,
            horizon_days=self.horizon_days,
        )  # fmt: skip
        self.chosen_ = "adacalib" if self.choose == "always" else rolled.chosen
        self.map_ = rolled.maps[self.chosen_][served].whole(scores.n_field_values)
        self.refused_days_ = sorted(rolled.fit.refused_days)

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
        """Calibrated probabilities of classes 0 and 1 in (0, 1), float64 [n, 2].

        Field values that were not seen are served by the unseen value's own map; so is null where
        no row of `fit` had it. Raises as `calibrated_logit`.
        """
        logit = self.calibrated_logit(uncalibrated_logit, field_value)
        both = expit(np.stack([-logit, logit], axis=1))
        return both.clip(PROBABILITY_CLIP, 1 - PROBABILITY_CLIP)

    def predict(
        self, uncalibrated_logit: ArrayLike, field_value: ArrayLike | None = None
    ) -> np.ndarray:
        """1 where a response is likelier than not, int64 [n]; raises as `calibrated_logit`."""
        return (self.calibrated_logit(uncalibrated_logit, field_value) > 0).astype(np.int64)

    def plot(self, field_value: Any) -> alt.LayerChart:
        """What is made of the base model's probability for a field value, as an Altair chart.

        It is drawn over the logits of `fit`; a notebook shows it, `.save("a.svg")` keeps it.
        Dashed: a probability that stays as it is.

        Raises:
            NotFittedError: `fit` was not called.
        """
        import altair as alt

        check_is_fitted(self, "map_")
        logit = np.linspace(*self.logit_range_, 200)
        calibrated = self.predict_proba(logit, [field_value] * len(logit))[:, 1]
        frame = pd.DataFrame({"base": expit(logit), "calibrated": calibrated})
        base = alt.Chart(frame, title=f"{field_value}: {self.chosen_}").encode(
            x=alt.X("base", title="the base model's probability", scale=alt.Scale(type="log"))
        )
        y = alt.Y("calibrated", title="calibrated probability", scale=alt.Scale(type="log"))
        return base.mark_line(strokeDash=[4, 4], color="grey").encode(y="base") + (
            base.mark_line().encode(y=y)
        )

    def _ids(self, names: list[str | None]) -> np.ndarray:
        return np.array([self.field_values_.get(name, 0) for name in names], dtype=np.int32)


def text_of(value: Any) -> str | None:
    """The text that names a field value, spelled as docs/data.md has it; None is null.

    None, NaN, NaT and pandas' NA are null; text stays as it is; whole numbers are spelled in
    decimal, 7.0 too; booleans are "true" and "false"; bytes are UTF-8.
    """
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if not number.is_integer() or abs(number) >= LARGEST_EXACT:
            raise DataError(
                "a float names a field value only if it is a whole number below 2**53, not "
                f"{number}; give text or integers"
            )
        return str(int(number))
    if not isinstance(value, (str, int, np.integer)):
        raise DataError(f"{value!r} cannot name a field value; give text, or whole numbers")
    return str(value)


def _cells(table: Any) -> np.ndarray:
    """A table or column in which texts, numbers and nulls beside each other stay what they are."""
    if isinstance(table, pa.Array | pa.ChunkedArray):
        table = table.to_pylist()
    elif not isinstance(table, np.ndarray) and hasattr(table, "astype"):  # pandas'
        table = table.astype(object)
    return np.asanyarray(table, None if hasattr(table, "dtype") else object)


def _plain(name: str, column: Any, n_rows: int) -> np.ndarray:
    """A column of `n_rows`, with NaN where it is masked."""
    masked = isinstance(column, np.ma.MaskedArray)
    found = np.asarray(column.astype(object).filled(np.nan) if masked else column).reshape(-1)
    if len(found) != n_rows:
        raise DataError(f"{name} needs {n_rows} rows, it has {len(found)}")
    return found


def _numbers(name: str, column: Any, n_rows: int) -> np.ndarray:
    """A column of numbers, float64 [n]; NaN where there is none."""
    found = _plain(name, column, n_rows)
    try:
        if found.dtype.kind in "cmM":
            raise TypeError
        return np.where(pd.isna(found), np.nan, found).astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(
            f"{name} must hold numbers, not {found.dtype} such as {found[0]!r}"
        ) from None


def _refuse(wrong: np.ndarray, rule: str, column: np.ndarray) -> None:
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise DataError(f"{rule}, row {row} has {column.tolist()[row]!r}")


def columns_of(
    uncalibrated_logit: ArrayLike, field_value: ArrayLike | None
) -> tuple[np.ndarray, list[str | None]]:
    """Logits float32 [n] and texts of field values [n]."""
    table: Any = uncalibrated_logit
    if field_value is None:
        table = _cells(table)
        if table.ndim != 2 or table.shape[1] != 2:
            raise DataError(
                f"field_value is missing and the logits have shape {table.shape}; "
                "give field_value, or a second column with it"
            )
        field_value, table = table[:, 1], table[:, 0]
    given = _numbers("uncalibrated_logit", table, np.size(table))
    with np.errstate(over="ignore"):
        logit = given.astype(np.float32)
    _refuse(~np.isfinite(logit), "uncalibrated_logit must be finite in float32", given)
    try:
        values = _plain("field_value", _cells(field_value), len(logit)).astype(object)
        return logit, [text_of(value) for value in values]
    except UnicodeDecodeError:
        raise DataError("bytes name field values only in UTF-8; give text") from None


def counts_of(
    label: ArrayLike, weight: ArrayLike | None, n_rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Responses and impressions, int64 [n]."""
    y = _numbers("label", label, n_rows)
    n = np.ones(n_rows) if weight is None else _numbers("weight", weight, n_rows)
    _refuse(~np.isin(y, (0, 1)), "label must be 0 or 1", y)
    whole = (n >= 0) & (n == np.floor(n)) & (n < LARGEST_EXACT)
    _refuse(~whole, "weight must be a whole number from 0 on, below 2**53", n)
    if n.sum() >= LARGEST_EXACT:
        raise DataError(f"weight adds up to {n.sum():g}, beyond 2**53, where counts lose digits")
    return (y * n).astype(np.int64), n.astype(np.int64)


def days_of(day: ArrayLike | None, n_rows: int) -> np.ndarray:
    """Days as numbers, int32 [n]."""
    if day is None:
        return np.zeros(n_rows, dtype=np.int32)
    given = column = _plain("day", day, n_rows)
    rule = "day must be a date, YYYY-MM-DD or a whole number of days"
    if column.dtype.kind in "bcm":
        raise DataError(f"{rule}, not {column.dtype}")
    if column.dtype.kind in "OUS":
        column = np.array([_date(value, row, rule) for row, value in enumerate(column)])
    if column.dtype.kind == "M":
        column = column.astype("datetime64[D]").astype(np.int64)  # NaT is the smallest number
    wrong = ~(np.abs(column.astype(np.float64)) <= LARGEST_DAY)
    _refuse(wrong | (column != np.floor(column)), rule, given)
    return column.astype(np.int32)


def _date(value: Any, row: int, rule: str) -> np.datetime64:
    if isinstance(value, (int, np.integer)):
        return np.datetime64(int(value) if abs(int(value)) <= LARGEST_DAY else "NaT", "D")
    text = value.decode() if isinstance(value, bytes) else str(value)
    try:
        return np.datetime64(datetime.fromisoformat(text).date() if "-" in text[:5] else "NaT", "D")
    except ValueError:
        raise DataError(f"{rule}, row {row} has {value!r}") from None
