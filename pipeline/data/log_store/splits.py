"""Labels that keep arriving: up to which day those of a day are known, and how they grew.

Parts: which whole days train, calibrate and test, of the days whose labels are mature.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

from pipeline.core.errors import NotEnoughDataError
from pipeline.data.log_store.day_rows import calendar_days, days_between
from pipeline.data.log_store.manifest import DayEntry, Manifest
from pipeline.formats.days import day_name, day_number

ORDINARY = 0.05  # of the median rows of a day: fewer, at either end of a log, are stray rows
YEAR = 366  # days: what lies further before the days of a log is none of it
SUNDAY = 3  # 1970-01-04, from which the grid of days is counted


def ordinary_days(days: Mapping[str, DayEntry]) -> list[str]:
    """The days of a log without the stray rows at its ends, ascending.

    What lies after the last day of ordinary volume are rows of a clock that runs ahead, or the
    first rows of a day that has not come; what lies before the first one, with days missing in
    between, or more than a year from the others, are rows with a mistyped year or without one.
    They decide nothing.
    """
    if not days:
        return []
    runs = defaultdict[int, list[str]](list)  # days without one missing in between
    for place, day in enumerate(sorted(days)):
        runs[day_number(day) - place].append(day)
    usual = max(runs.values(), key=lambda run: sum(days[day].rows for day in run))
    least = ORDINARY * median(days[day].rows for day in usual)
    ordinary = sorted(day for day, entry in days.items() if entry.rows >= least)
    first, last = ordinary[0], ordinary[-1]
    for before, after in pairwise(ordinary):
        if day_number(after) - day_number(before) > YEAR:
            first, last = (after, last) if after <= usual[-1] else (first, min(before, last))
    for day in sorted((day for day in days if day < first), reverse=True):
        if day_number(first) - day_number(day) > 1:
            break
        first = day
    return sorted(day for day in days if first <= day <= last)


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


@dataclass(frozen=True)
class LabelMaturity:
    """Which labels are final: those with a whole conversion window between them and the reference.

    Every split, training too, is made of mature days alone: a response that is still to come would
    be learned as none.

    Attributes:
        maturity_days: whole days of the log's time zone that must lie after a mature day, up to and
            with the day up to which its labels are known.
        reference_day: the newest landed day; never the time of the run.
        newest_mature_day: the newest day of the calendar up to which all labels are mature.
        waiting: landed days that would be used if they were mature, ascending.
    """

    maturity_days: int
    reference_day: str
    newest_mature_day: str
    waiting: list[str]


def maturity_of(
    manifest: Manifest, maturity_days: int, last_day: str | None = None
) -> LabelMaturity:
    """Which of the ordinary days of a log are mature.

    The labels of a day of which no landing said up to when they are known are known up to the
    newest day.

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
    days, zone = ordinary_days(manifest.days), manifest.time_zone
    reference = max(days)
    known = {day: labels_until(manifest.days[day]) or reference for day in days}
    newest = {
        until: calendar_days(until, maturity_days + 1, zone)[0]
        for until in {reference, *known.values()}
    }
    young = [day for day in days if day > newest[known[day]]]
    mature = newest[reference]
    if young and min(young) <= mature:  # it was landed once, and its labels were never seen again
        mature = calendar_days(min(young), 2, zone)[0]
    waiting = sorted(day for day in days if mature < day <= (last_day or reference))
    return LabelMaturity(maturity_days, reference, mature, waiting)


def split_by_count(
    days: Collection[str],
    counts: Mapping[str, int],
    time_zone: str,
    maturity: LabelMaturity,
    last_day: str | None = None,
    *,
    retrain_every_days: int = 1,
    training_until: str | None = None,
) -> dict[str, list[str]]:
    """Whole days for every split, ending with the newest mature day.

    The days between calibration and test are the `gap`, as many as a label takes to be final: on
    the morning of the first test day theirs were not, so nothing that is learned before the test
    may use them; what is forecast for later test days may.

    Training days end on a grid, on the newest day of it that leaves enough days for the others, so
    from one day of the grid to the next they stay the same. The calibration days are then up to
    `retrain_every_days` - 1 more than their count.

    Args:
        days: the landed days, in any order.
        counts: training, calibration and test → number of days.
        time_zone: of the log.
        maturity: which of them are mature; there is a gap where labels take days.
        last_day: newest day that may be used; None: any.
        retrain_every_days: N; the grid are the days whose number since 1970-01-04 N divides.
        training_until: a day that the grid has beside them; None: none.

    Raises:
        NotEnoughDataError: a needed day is missing; the sentence names it and its split.
    """
    gap = maturity.maturity_days
    end = min(last_day or maturity.reference_day, maturity.newest_mature_day)
    later = calendar_days(end, gap + counts["calibration"] + counts["test"] + 1, time_zone)
    number = day_number(later[0])
    until = day_name(number - (number - SUNDAY) % retrain_every_days)
    if training_until is not None and training_until <= later[0]:
        until = max(until, training_until)
    waited = days_between(until, later[0], time_zone)[1:]
    needed, shape = gap + sum(counts.values()) + len(waited), "/".join(map(str, counts.values()))
    if waited:
        shape += f" of a base trained up to {until} (retrain_every_days: 1 trains up to {later[0]})"
    shape += f" and {gap} before the test (log.maturity_days)" if gap else ""
    have = sorted(day for day in days if day <= end)
    if len(have) < needed:
        raise NotEnoughDataError(
            f"split {shape} needs {needed} days up to {end}, the log has {len(have)}"
            + (f": {have[0]}..{have[-1]}" if have else "")
            + f"{_waiting(maturity)}; land more days, or lower the counts of the split section"
            + _for_example(len(have) - gap, counts, retrain_every_days)
        )
    names = calendar_days(end, needed, time_zone)
    first, test = counts["training"], needed - counts["test"]
    splits = {"training": names[:first], "calibration": names[first : test - gap]}
    splits |= {"gap": names[test - gap : test]} if gap else {}
    splits["test"] = names[test:]
    wanted = f"split {shape} needs every day {names[0]}..{end}{_waiting(maturity)}"
    _refuse_missing(splits, days, f"{wanted}, the")
    return splits


def _for_example(days: int, counts: Mapping[str, int], retrain_every_days: int) -> str:
    """Counts that so many days fit, the largest lowered, as a sentence's end; else nothing."""
    if days < len(counts):
        return ""
    fewer = dict(counts)
    while sum(fewer.values()) > days:
        fewer[max(reversed(fewer), key=fewer.__getitem__)] -= 1
    shape = "/".join(map(str, fewer.values()))
    return f", to {shape} for example" + (
        " with retrain_every_days: 1" if retrain_every_days > 1 else ""
    )


def _waiting(maturity: LabelMaturity) -> str:
    if not maturity.waiting:
        return ""
    return (
        f" ({len(maturity.waiting)} days from {maturity.waiting[0]} on wait for their labels: "
        f"log.maturity_days is {maturity.maturity_days}; name the files of a day again, with newer "
        "ones or --as-of DAY, and its labels are known up to then)"
    )


def _refuse_missing(splits: Mapping[str, list[str]], days: Collection[str], before: str) -> None:
    for split, names in splits.items():
        if not names:
            raise NotEnoughDataError(f"{before} {split} days, and the time zone has none of them")
        missing = sorted(set(names) - set(days))
        if missing:
            raise NotEnoughDataError(
                f"{before} {split} day {missing[0]} is missing; land it, or choose another "
                "split.last_day"
            )
