"""The data contract: what a log's columns mean, and whether a day keeps to it.

A column's type follows from its role, the same on every day however a file stores it: fields and
categorical features are text (`as_text`), numeric features and labels are numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError, NotEnoughDataError
from pipeline.data.log_store.day_rows import days_between
from pipeline.data.log_store.manifest import Manifest
from pipeline.encoding.features import LoggedScore
from pipeline.encoding.values import (
    counts,
    field_keys,
    logged_score_column,
    numbers_of,
    placed,
    refuse_rows,
)
from pipeline.formats.scores import before_sampling


class Contract(Protocol):
    """The roles of a log's columns: the `log` section of params.yaml.

    Attributes:
        time_zone: days begin at midnight there.
        event_id: ids of events, each of which counts once a day; None: a row is an event.
        label: responses of a row: 0 or 1, or a count where there is an impressions column.
        impressions: impressions of a row; None: one.
        field: columns whose joint value is calibrated.
        categorical: features that are names.
        numeric: features that are numbers.
        field_parents: columns that a field value belongs to.
        truth: the true probability, in simulated logs; None elsewhere.
        value: what a response of a row is worth; None: not known.
        weight: how often a row counts; None: once.
        served_logit, served_probability: the logged score; at most one of them, None: not there.
    """

    time_zone: str
    event_id: str | None
    label: str
    impressions: str | None
    field: tuple[str, ...]
    categorical: tuple[str, ...]
    numeric: tuple[str, ...]
    field_parents: tuple[str, ...]
    truth: str | None
    value: str | None
    weight: str | None
    served_logit: str | None
    served_probability: str | None


@dataclass(frozen=True)
class DayFacts:
    """What one day holds; counts add up over days.

    Attributes:
        nulls: rows without a value, by name, for field and feature columns.
        field_values: number of different field values, null not counted.
        logged_scores: the least and the greatest; None where there are none.
    """

    rows: int
    impressions: int
    responses: int
    nulls: dict[str, int]
    field_values: int
    logged_scores: tuple[float, float] | None


def used_days(
    manifest: Manifest, log_format: str, time_zone: str, last_day: str | None
) -> list[str]:
    """The days up to `last_day` (None: all), ascending; at least two.

    Raises:
        DataError: the log is of another format or zone than asked for, or lacks the last day.
        NotEnoughDataError: there are fewer than two days.
    """
    for name, asked in {"format": log_format, "time_zone": time_zone}.items():
        if getattr(manifest, name) != asked:
            raise DataError(
                f"the data has {name} {getattr(manifest, name)}, params.yaml says log.{name}: "
                f"{asked}; land that log, or change params.yaml"
            )
    if last_day is not None:
        manifest.entry(last_day)
    days = [day for day in manifest.days if last_day is None or day <= last_day]
    if len(days) < 2:
        up_to = f" up to {last_day}" if last_day else ""
        raise NotEnoughDataError(
            f"two days{up_to} are needed, the log {manifest.extent()}; land more"
        )
    return days


def refuse_unknown(manifest: Manifest, columns: Mapping[str, str]) -> None:
    """Refuse a column that no day of the log has.

    Args:
        columns: column → the key of params.yaml that names it.

    Raises:
        DataError: there is one; key and column are named, and a column with a name like it.
    """
    for name, key in columns.items():
        if manifest.columns and name not in manifest.columns:
            near = get_close_matches(name, manifest.columns, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise DataError(
                f"{key} names the column {name}, which the log does not have; it has "
                f"{sorted(manifest.columns)}{meant}"
            )


def check_day(table: pa.Table, day: str, contract: Contract, *, waits: bool = False) -> DayFacts:
    """What `day` holds.

    Args:
        table: the rows of the day, with the contract's columns.
        waits: the day's labels are not final, so they may be null.

    Raises:
        DataError: a value breaks the contract; the sentence names day, column and row (from 0).
    """
    names = dict.fromkeys([*contract.field, *contract.field_parents, *contract.categorical])
    score = logged_score_column(vars(contract))
    with placed(f"day {day}, "):
        impressions, responses = counts(table, contract.label, contract.impressions, waits=waits)
        for name in names:
            field_keys(table, [name])
        for name in contract.numeric:
            numbers = numbers_of(table, name)
            odd = ~np.isfinite(numbers) & table[name].is_valid().to_numpy()
            refuse_rows(odd, numbers, name, "must be finite, or null where it is not known")
        if contract.truth is not None:
            truth = numbers_of(table, contract.truth)
            refuse_rows(~((truth > 0) & (truth < 1)), truth, contract.truth, "must lie in (0, 1)")
        if contract.value is not None:
            value = numbers_of(table, contract.value)
            refuse_rows(
                ~((value >= 0) & np.isfinite(value)), value, contract.value, "must be 0 or more"
            )
        if contract.weight is not None:
            weight, ones = numbers_of(table, contract.weight), np.ones(len(table), np.int64)
            with placed(f"column {contract.weight}: "):
                before_sampling(ones, ones, weight, keep_rate=1.0)
        return DayFacts(
            rows=len(table),
            impressions=int(impressions.sum()),
            responses=int(responses.sum()),
            nulls={n: table[n].null_count for n in [*names, *contract.numeric]},
            field_values=pc.count_distinct(field_keys(table, contract.field)).as_py(),
            logged_scores=_score_range(table, LoggedScore(*score)) if score else None,
        )


def check_logged_scores(facts: Mapping[str, DayFacts], contract: Contract) -> None:
    """Refuse logits that look like probabilities, which takes all days to see.

    Raises:
        DataError: they do.
    """
    ranges = [day.logged_scores for day in facts.values() if day.logged_scores is not None]
    if contract.served_logit is not None and ranges:
        lowest, highest = min(low for low, _ in ranges), max(high for _, high in ranges)
        if lowest >= 0 and highest <= 1:
            raise DataError(
                f"column {contract.served_logit}, named in log.served_logit, lies in "
                f"[{lowest:g}, {highest:g}] in all days, which is what probabilities look like; "
                "name it in log.served_probability"
            )


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
                f"is {max_share:.1%}; day {worst} lacks most: correct its source in the mapping, "
                "take it out of the features, or raise the limit"
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
        day: {key: value for key, value in asdict(found).items() if key != "logged_scores"}
        | {"response_rate": found.responses / found.impressions}
        for day, found in facts.items()
    }


def _score_range(table: pa.Table, score: LoggedScore) -> tuple[float, float] | None:
    scores = numbers_of(table, score.name)
    score(scores)
    return (float(scores.min()), float(scores.max())) if len(scores) else None


class ValueNovelty:
    """The field values of the recent days, and the last day that had each.

    Memory: every value of these days, once.
    """

    def __init__(self, recent_days: int) -> None:
        """Args:
        recent_days: days of the log before a day whose values are not new on it.
        """
        self._recent_days, self._day = recent_days, 0
        self._seen = pa.schema({"values": pa.string(), "day": pa.int64()}).empty_table()

    def add(self, counted: pa.Table) -> int:
        """Rows of the next day with a value that none of its recent days has; its values are then
        known.

        Args:
            counted: `values`, each once, and `counts`: in how many rows each is.
        """
        first = self._day - self._recent_days
        known = self._seen.filter(pc.greater_equal(self._seen["day"], first))
        new = counted.join(known, "values", join_type="left anti")
        today = counted.select(["values"]).append_column("day", pa.repeat(self._day, len(counted)))
        seen = pa.concat_tables([known, today]).group_by("values").aggregate([("day", "max")])
        self._seen, self._day = seen.rename_columns({"day_max": "day"}), self._day + 1
        return pc.sum(new["counts"]).as_py() or 0
