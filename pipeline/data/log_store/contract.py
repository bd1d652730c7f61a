"""The data contract: what a log's columns mean, and whether a day keeps to it.

A column's type follows from its role, the same on every day however a file stores it: fields and
categorical features are text (`as_text`), numeric features and labels are numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError
from pipeline.data.log_store.days import days_between
from pipeline.encoding.values import as_numbers, as_text, field_keys
from pipeline.formats.scores import before_sampling, refuse_probabilities, served_logit


@dataclass(frozen=True)
class Contract:
    """The roles of a log's columns; see the `log` section of params.yaml.

    Attributes:
        label: responses of a row: 0 or 1, or a count where there is an impressions column.
        impressions: impressions of a row; None: one.
        field: columns whose joint value is calibrated.
        categorical: features that are names.
        numeric: features that are numbers.
        truth: the true probability, in simulated logs; None elsewhere.
        served: column and space ("logit" or "probability") of the score that was served; None
            where there is none.
        weight: how often a row counts; None: once.
    """

    label: str
    impressions: str | None
    field: Sequence[str]
    categorical: Sequence[str]
    numeric: Sequence[str]
    truth: str | None
    served: tuple[str, str] | None = None
    weight: str | None = None

    @property
    def names(self) -> list[str]:
        """Columns that hold names, each once."""
        return list(dict.fromkeys([*self.field, *self.categorical]))

    @property
    def columns(self) -> list[str]:
        """Every column the contract names, each once."""
        score = None if self.served is None else self.served[0]
        roles = (self.label, self.impressions, self.truth, score, self.weight)
        counts = [column for column in roles if column is not None]
        return list(dict.fromkeys([*self.names, *self.numeric, *counts]))


@dataclass(frozen=True)
class DayFacts:
    """What one day holds; counts add up over days.

    Attributes:
        nulls: rows without a value, by name, for field and feature columns.
        field_values: number of different field values, null not counted.
        served: least and greatest score that was served; None where there is none.
    """

    rows: int
    impressions: int
    responses: int
    nulls: dict[str, int]
    field_values: int
    served: tuple[float, float] | None = None


def check_day(table: pa.Table, day: str, contract: Contract) -> DayFacts:
    """What `day` holds.

    Args:
        table: the rows of the day, with the contract's columns.

    Raises:
        DataError: a value breaks the contract; the sentence names day, column and row (from 0).
    """
    impressions, responses = _counts(table, day, contract)
    nulls = {name: table[name].null_count for name in [*contract.names, *contract.numeric]}
    for name in contract.names:
        _refuse_unspelled(table, day, name)
    for name in contract.numeric:
        numbers = _numbers(table, day, name)
        odd = ~np.isfinite(numbers) & table[name].is_valid().to_numpy()
        _refuse(odd, numbers, day, name, "must be finite, or null where it is not known")
    if contract.truth is not None:
        truth = _numbers(table, day, contract.truth)
        _refuse(~((truth > 0) & (truth < 1)), truth, day, contract.truth, "must lie in (0, 1)")
    if contract.weight is not None:
        _check_weights(table, day, contract.weight)
    return DayFacts(
        rows=len(table),
        impressions=int(impressions.sum()),
        responses=int(responses.sum()),
        nulls=nulls,
        field_values=_count_field_values(table, day, contract),
        served=_served_range(table, day, contract) if contract.served else None,
    )


def check_served(facts: Mapping[str, DayFacts], contract: Contract) -> None:
    """Refuse logits that look like probabilities; it takes all days to tell.

    Raises:
        DataError: they do.
    """
    ranges = [day.served for day in facts.values() if day.served is not None]
    if contract.served and contract.served[1] == "logit" and ranges:
        lowest, highest = zip(*ranges, strict=True)
        refuse_probabilities(min(lowest), max(highest), contract.served[0])


def check_null_shares(
    facts: Mapping[str, DayFacts], features: Sequence[str], max_share: float
) -> None:
    """Refuse features without a value in more than `max_share` of all rows; one day may lack all.

    Raises:
        DataError: one does; it is named with the day that lacks most.
    """
    rows = sum(day.rows for day in facts.values())
    for name in features:
        share = sum(day.nulls[name] for day in facts.values()) / rows
        if share > max_share:
            worst = max(facts, key=lambda day: facts[day].nulls[name] / facts[day].rows)
            raise DataError(
                f"column {name} has no value in {share:.1%} of all rows, validate.max_null_share "
                f"is {max_share:.1%}; day {worst} lacks most"
            )


def summary(facts: Mapping[str, DayFacts], time_zone: str) -> dict[str, Any]:
    """What reports/validation.json says of the days of `facts`, each with an impression or more."""
    totals = {
        name: sum(getattr(day, name) for day in facts.values())
        for name in ("rows", "impressions", "responses")
    }
    first, last = min(facts), max(facts)
    calendar = days_between(first, last, time_zone)
    columns = next(iter(facts.values())).nulls
    nulls = {name: sum(day.nulls[name] for day in facts.values()) for name in columns}
    return {
        "first_day": first,
        "last_day": last,
        "days": len(facts),
        "missing_days": [day for day in calendar if day not in facts],
        **totals,
        "response_rate": totals["responses"] / totals["impressions"],
        "null_shares": {name: count / totals["rows"] for name, count in nulls.items()},
    }


def by_day(facts: Mapping[str, DayFacts]) -> dict[str, dict[str, Any]]:
    """The counts of each day of `facts`, for artifacts/validation/days.json."""
    return {
        day: {
            "rows": found.rows,
            "impressions": found.impressions,
            "responses": found.responses,
            "response_rate": found.responses / found.impressions,
            "field_values": found.field_values,
            "nulls": found.nulls,
        }
        for day, found in facts.items()
    }


def _counts(table: pa.Table, day: str, contract: Contract) -> tuple[np.ndarray, np.ndarray]:
    """Impressions and responses of every row, float64 [n], whole and consistent."""
    responses = _numbers(table, day, contract.label)
    if contract.impressions is None:
        rule = "must be 0 or 1 (a missing response is not a 0)"
        _refuse(~np.isin(responses, (0, 1)), responses, day, contract.label, rule, key="keep")
        return np.ones(len(table)), responses
    impressions = _numbers(table, day, contract.impressions)
    whole = (impressions >= 0) & (impressions == np.floor(impressions)) & np.isfinite(impressions)
    _refuse(~whole, impressions, day, contract.impressions, "must be a whole number, 0 or more")
    fits = (responses >= 0) & (responses <= impressions) & (responses == np.floor(responses))
    rule = f"must be a whole number from 0 to {contract.impressions}"
    _refuse(~fits, responses, day, contract.label, rule, key="at_most")
    return impressions, responses


def _count_field_values(table: pa.Table, day: str, contract: Contract) -> int:
    try:
        return pc.count_distinct(field_keys(table, contract.field)).as_py()
    except DataError as error:
        raise DataError(f"day {day}: {error}") from None


def _check_weights(table: pa.Table, day: str, name: str) -> None:
    weights, ones = _numbers(table, day, name), np.ones(len(table), np.int64)
    try:
        before_sampling(ones, ones, weights, keep_rate=1.0)
    except DataError as error:
        raise DataError(f"day {day}, column {name}: {error}") from None


def _served_range(table: pa.Table, day: str, contract: Contract) -> tuple[float, float] | None:
    assert contract.served is not None
    name, space = contract.served
    scores = _numbers(table, day, name)
    try:
        served_logit(scores, space)
    except DataError as error:
        raise DataError(f"day {day}, column {name}: {error}") from None
    return (float(scores.min()), float(scores.max())) if len(scores) else None


def _numbers(table: pa.Table, day: str, name: str) -> np.ndarray:
    try:
        return as_numbers(table[name])
    except DataError as error:
        raise DataError(f"day {day}, column {name}: {error}") from None


def _refuse_unspelled(table: pa.Table, day: str, name: str) -> None:
    try:
        as_text(table[name])
    except DataError as error:
        raise DataError(f"day {day}, column {name}: {error}") from None


def _refuse(
    wrong: np.ndarray, values: np.ndarray, day: str, name: str, rule: str, *, key: str = ""
) -> None:
    """Refuse rows; `key` of a mapping leaves out such rows where a value is there and too large."""
    rows = np.flatnonzero(wrong)
    if len(rows):
        value = values[rows[0]]
        shown = "null or NaN" if np.isnan(value) else f"{value:g}"
        more = f", as {len(rows) - 1} more rows do" if len(rows) > 1 else ""
        key = "drop_null" if np.isnan(value) else key if value > 0 else ""
        remedy = f", or leave them out by {key} of the mapping," if key else ""
        raise DataError(
            f"day {day}, column {name}, row {rows[0]} is {shown}{more}: it {rule}; repair the "
            f"rows{remedy} and land the day again"
        )


NEVER = -(1 << 31)


@dataclass(frozen=True)
class FieldFacts:
    """What the calibrated field of one day looks like.

    Attributes:
        nulls: rows without a field value.
        new: rows with a field value that none of the recent days has.
    """

    nulls: int
    new: int


class RecentValues:
    """The field values of the days so far, and the last day that had each.

    Memory: every value that has been seen, once.
    """

    def __init__(self, recent_days: int) -> None:
        """Args:
        recent_days: days of the log before a day whose values are not new on it.
        """
        self._recent_days = recent_days
        self._values = pa.array([], pa.string())
        self._last_seen = np.zeros(0, np.int64)
        self._day = 0

    def add(self, keys: pa.StringArray) -> FieldFacts:
        """The facts of the next day, whose values are then known.

        Args:
            keys: text [n], the field value of every row; null where it has none.
        """
        counted = pc.value_counts(keys.drop_null())
        values, rows = counted.field("values"), counted.field("counts").to_numpy()
        found = pc.index_in(values, value_set=self._values)
        known = found.is_valid().to_numpy(zero_copy_only=False)
        place = found.drop_null().to_numpy()
        last_seen = np.full(len(values), NEVER)
        last_seen[known] = self._last_seen[place]
        new = rows[self._day - last_seen > self._recent_days].sum()
        self._last_seen[place] = self._day
        self._values = pa.concat_arrays([self._values, values.filter(pa.array(~known))])
        self._last_seen = np.append(self._last_seen, np.full(int((~known).sum()), self._day))
        self._day += 1
        return FieldFacts(nulls=keys.null_count, new=int(new))
