"""Parts: which whole days train, calibrate and test, of the days whose labels are mature."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pipeline.core.errors import NotEnoughDataError
from pipeline.data.log_store.day_rows import calendar_days, days_between
from pipeline.formats.days import day_name, day_number

SUNDAY = 3  # 1970-01-04, from which the grid of days is counted


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


def label_maturity(
    days: Collection[str],
    maturity_days: int,
    time_zone: str,
    last_day: str | None = None,
    known_until: Mapping[str, str] | None = None,
) -> LabelMaturity:
    """Which of `days` are mature.

    Args:
        days: the landed days, at least one.
        maturity_days: length of the conversion window.
        time_zone: of the log.
        last_day: newest day that may be used; None: any.
        known_until: day → the day up to which its labels are known; the newest landed day, where a
            day is not among them.

    Raises:
        DataError: the calendar does not reach so far back.
    """
    reference, known = max(days), known_until or {}
    newest = {
        until: calendar_days(until, maturity_days + 1, time_zone)[0]
        for until in {reference, *known.values()}
    }
    young = [day for day in days if day > newest[known.get(day, reference)]]
    mature = newest[reference]
    if young and min(young) <= mature:  # it was landed once, and its labels were never seen again
        mature = calendar_days(min(young), 2, time_zone)[0]
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

    Training days end on a grid, on the newest day of it that leaves enough days for the others, so
    from one day of the grid to the next they stay the same. The calibration days are then up to
    `retrain_every_days` - 1 more than their count.

    Args:
        days: the landed days, in any order.
        counts: training, calibration and test → number of days.
        time_zone: of the log.
        maturity: which of them are mature.
        last_day: newest day that may be used; None: any.
        retrain_every_days: N; the grid are the days whose number since 1970-01-04 N divides.
        training_until: a day that the grid has beside them; None: none.

    Raises:
        NotEnoughDataError: a needed day is missing; the sentence names it and its split.
    """
    end = min(last_day or maturity.reference_day, maturity.newest_mature_day)
    later = calendar_days(end, counts["calibration"] + counts["test"] + 1, time_zone)
    number = day_number(later[0])
    until = day_name(number - (number - SUNDAY) % retrain_every_days)
    if training_until is not None and training_until <= later[0]:
        until = max(until, training_until)
    waited = days_between(until, later[0], time_zone)[1:]
    needed, shape = sum(counts.values()) + len(waited), "/".join(map(str, counts.values()))
    if waited:
        shape += f" of a base trained up to {until} (retrain_every_days: 1 trains up to {later[0]})"
    have = sorted(day for day in days if day <= end)
    if len(have) < needed:
        raise NotEnoughDataError(
            f"split {shape} needs {needed} days up to {end}, the log has {len(have)}"
            + (f": {have[0]}..{have[-1]}" if have else "")
            + _waiting(maturity)
            + "; land more days, or lower the counts of the split section"
        )
    names = calendar_days(end, needed, time_zone)
    first, test = counts["training"], needed - counts["test"]
    splits = {"training": names[:first], "calibration": names[first:test], "test": names[test:]}
    wanted = f"split {shape} needs every day {names[0]}..{end}{_waiting(maturity)}"
    _refuse_missing(splits, days, f"{wanted}, the")
    return splits


def with_gap(splits: Mapping[str, list[str]], maturity_days: int) -> dict[str, list[str]]:
    """The splits with the last `maturity_days` calibration days set apart as `gap`.

    On the morning of the first test day their labels were not final, so nothing that is learned
    before the test may use them; what is forecast for later test days may.

    Raises:
        NotEnoughDataError: no calibration day is left.
    """
    if not maturity_days:
        return dict(splits)
    days = splits["calibration"]
    if len(days) <= maturity_days:
        raise NotEnoughDataError(
            f"of the {len(days)} calibration days the last {maturity_days} (log.maturity_days) "
            "have no final labels on the first test day, so none is left; give more calibration "
            "days in the split section"
        )
    kept, gap = days[:-maturity_days], days[-maturity_days:]
    parts = {"training": splits["training"], "calibration": kept, "gap": gap}
    return {**parts, "test": splits["test"]}


def _waiting(maturity: LabelMaturity) -> str:
    if not maturity.waiting:
        return ""
    return (
        f" ({len(maturity.waiting)} days from {maturity.waiting[0]} on wait for their labels: "
        f"log.maturity_days is {maturity.maturity_days}, and a day's files are read again as long)"
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
