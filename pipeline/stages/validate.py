"""validate: refuse a log that breaks its contract, and report what it holds."""

from pathlib import Path

from pipeline.data.contract import Contract, DayFacts, check_day
from pipeline.data.days import day_name, day_number, read_days
from pipeline.data.manifest import MANIFEST, Manifest, check_listing, read_manifest
from pipeline.errors import DataError, NotEnoughDataError
from pipeline.files import write_json
from pipeline.params import LogParams, ValidateParams


def run(data: Path, report: Path, *, params: ValidateParams, log: LogParams) -> None:
    """Check every day up to `log.last_day` and write reports/validation.json.

    Raises:
        DataError: the log is not what the contract says; day, column and row are named.
        NotEnoughDataError: there are fewer than two days, or a day has too few impressions.
    """
    manifest = read_manifest(data / MANIFEST)
    days = _days(manifest, log)
    check_listing(data, manifest, days)
    contract = Contract(
        log.label, log.impressions, log.field, log.categorical, log.numeric, log.truth
    )
    facts = {}
    for day, table in read_days(data, days, contract.columns):
        facts[day] = check_day(table, day, contract)
        if facts[day].impressions < params.min_rows_per_day:
            raise NotEnoughDataError(
                f"day {day} has {facts[day].impressions} impressions, validate.min_rows_per_day "
                f"is {params.min_rows_per_day}; land the whole day"
            )
    document = _summary(facts)
    features = dict.fromkeys([*log.categorical, *log.numeric])
    for name in features:
        if document["null_shares"][name] > params.max_null_share:
            raise DataError(
                f"column {name} has no value in {document['null_shares'][name]:.1%} of all rows, "
                f"validate.max_null_share is {params.max_null_share:.1%}; day "
                f"{_emptiest(facts, name)} lacks most"
            )
    write_json(report, document)


def _days(manifest: Manifest, log: LogParams) -> list[str]:
    """The days to check, ascending."""
    for name in ("format", "time_zone"):
        if getattr(manifest, name) != getattr(log, name):
            raise DataError(
                f"the data has {name} {getattr(manifest, name)}, params.yaml says log.{name}: "
                f"{getattr(log, name)}; land that log, or change params.yaml"
            )
    if log.last_day is not None:
        manifest.entry(log.last_day)
    days = [day for day in manifest.days if log.last_day is None or day <= log.last_day]
    if len(days) < 2:
        raise NotEnoughDataError(
            f"a log needs more than one day, this one has {len(days)}"
            + (f": {days[0]}" if days else "")
            + "; land more days"
        )
    return days


def _summary(facts: dict[str, DayFacts]) -> dict:
    rows, impressions, responses = (
        sum(getattr(day, name) for day in facts.values())
        for name in ("rows", "impressions", "responses")
    )
    first, last = min(facts), max(facts)
    calendar = range(day_number(first), day_number(last) + 1)
    names = next(iter(facts.values())).nulls
    return {
        "first_day": first,
        "last_day": last,
        "days": len(facts),
        "missing_days": [d for d in map(day_name, calendar) if d not in facts],
        "rows": rows,
        "impressions": impressions,
        "responses": responses,
        "response_rate": responses / impressions,
        "null_shares": {n: sum(day.nulls[n] for day in facts.values()) / rows for n in names},
        "by_day": {
            day: {
                "rows": f.rows,
                "impressions": f.impressions,
                "responses": f.responses,
                "response_rate": f.responses / f.impressions,
                "field_values": f.field_values,
            }
            for day, f in facts.items()
        },
    }


def _emptiest(facts: dict[str, DayFacts], name: str) -> str:
    return max(facts, key=lambda day: facts[day].nulls[name] / facts[day].rows)
