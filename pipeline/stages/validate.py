"""validate: refuse a log that breaks its contract, and report what it holds."""

from pathlib import Path

from pipeline.data.contract import Contract, check_day, check_null_shares, summary
from pipeline.data.days import read_days
from pipeline.data.events import event_facts, event_summary
from pipeline.data.manifest import MANIFEST, check_listing, read_manifest, used_days
from pipeline.errors import NotEnoughDataError
from pipeline.files import write_json
from pipeline.params import LogParams, ValidateParams


def run(data: Path, report: Path, *, params: ValidateParams, log: LogParams) -> None:
    """Check every day up to `log.last_day` and write reports/validation.json.

    Raises:
        DataError: the log is not what the contract says; day, column and row are named.
        NotEnoughDataError: there are fewer than two days, or a day has too few impressions.
    """
    manifest = read_manifest(data / MANIFEST)
    days = used_days(manifest, log.format, log.time_zone, log.last_day)
    check_listing(data, manifest, days)
    contract = Contract(
        log.label, log.impressions, log.field, log.categorical, log.numeric, log.truth
    )
    columns = list(dict.fromkeys([*contract.columns, *filter(None, [log.event_id])]))
    facts, events = {}, {}
    for day, table in read_days(data, days, columns):
        facts[day] = check_day(table, day, contract)
        if log.event_id is not None:
            events[day] = event_facts(table, day, log.event_id)
        if facts[day].impressions < params.min_rows_per_day:
            raise NotEnoughDataError(
                f"day {day} has {facts[day].impressions} impressions, validate.min_rows_per_day "
                f"is {params.min_rows_per_day}; land the whole day"
            )
    check_null_shares(facts, [*log.categorical, *log.numeric], params.max_null_share)
    document = summary(facts)
    if log.event_id is not None:
        document["events"] = event_summary(log.event_id, events)
    write_json(report, document)
