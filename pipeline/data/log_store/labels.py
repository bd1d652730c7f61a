"""Labels that keep arriving: up to which day those of a day are known, and how they grew."""

from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from pipeline.core.errors import NotEnoughDataError
from pipeline.data.log_store.manifest import DayEntry, Manifest
from pipeline.data.log_store.splits import LabelMaturity, label_maturity
from pipeline.formats.days import day_number

ORDINARY = 0.05  # of the median rows of a day: fewer, at either end of a log, are stray rows


def ordinary_days(days: Mapping[str, DayEntry]) -> list[str]:
    """The days of a log without the stray rows at its ends, ascending.

    What lies after the last day of ordinary volume are rows of a clock that runs ahead, or the
    first rows of a day that has not come; what lies before the first one, with days missing in
    between, are rows with a mistyped year. They decide nothing.
    """
    if not days:
        return []
    least = ORDINARY * median(entry.rows for entry in days.values())
    ordinary = [day for day, entry in days.items() if entry.rows >= least]
    first = min(ordinary)
    for day in sorted((day for day in days if day < first), reverse=True):
        if day_number(first) - day_number(day) > 1:
            break
        first = day
    return sorted(day for day in days if first <= day <= max(ordinary))


def stray_rows(days: Mapping[str, DayEntry]) -> list[str]:
    """A sentence on each day that is none of the ordinary ones."""
    ordinary = ordinary_days(days)
    return [
        f"{day} has {entry.rows:,} rows and lies outside {ordinary[0]}..{ordinary[-1]}: it is left "
        f"aside; where it is a mistake, adacalib drop {day}"
        for day, entry in sorted(days.items())
        if day not in ordinary
    ]


def labels_until(entry: DayEntry) -> str | None:
    """The day up to which the labels of a landed day are known; None where no landing said."""
    return max(entry.labels, default=None)


def with_labels(
    entry: DayEntry, before: DayEntry | None, until: str, responses: int | None
) -> DayEntry:
    """The entry of a day that is landed with the labels that are known on the day `until`.

    Args:
        entry: of the day.
        before: as it stood; None: it did not.
        until: the logical day of the landing.
        responses: of the day's rows; None where no column says them.
    """
    labels = dict(before.labels if before else {}) | {until: responses}
    return replace(entry, labels=dict(sorted(labels.items())))


def maturity_of(manifest: Manifest, maturity_days: int, last_day: str | None) -> LabelMaturity:
    """Which landed days are mature, see `label_maturity`.

    Args:
        manifest: of the log.
        maturity_days: length of the conversion window.
        last_day: newest day that may be used; None: any.

    Raises:
        NotEnoughDataError: there is no landed day.
        DataError: the calendar does not reach so far back.
    """
    if not manifest.days:
        raise NotEnoughDataError("the log has no days; bring one with adacalib data FORMAT")
    known = {day: until for day, entry in manifest.days.items() if (until := labels_until(entry))}
    days = ordinary_days(manifest.days)
    return label_maturity(days, maturity_days, manifest.time_zone, last_day, known)


def label_growth(days: Mapping[str, DayEntry]) -> list[dict[str, Any]]:
    """How many of the responses that are known of a day now were known how many days after it.

    Of days that were landed more than once: for each `age` in days, ascending, the number of
    `days` that were landed at that age, their `responses` then, `known_now`, and the `share` of
    these, NaN where there are none.
    """
    sums: dict[int, list[int]] = {}
    for day, entry in days.items():
        known = {until: count for until, count in entry.labels.items() if count is not None}
        if len(known) < 2:
            continue
        newest = known[max(known)]
        for until, count in known.items():
            row = sums.setdefault(day_number(until) - day_number(day), [0, 0, 0])
            row[:] = row[0] + 1, row[1] + count, row[2] + newest
    return [
        {"age": age, "days": n, "responses": then, "known_now": now,
         "share": then / now if now else float("nan")}
        for age, (n, then, now) in sorted(sums.items())
    ]  # fmt: skip
