"""validate: refuse a log that breaks its contract, and report what it holds."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.core.errors import DataError, NotEnoughDataError
from pipeline.core.files import publish, write_json, write_report
from pipeline.data.log_store import contract
from pipeline.data.log_store.contract import DayFacts
from pipeline.data.log_store.day_rows import read_day, refuse_changed
from pipeline.data.log_store.manifest import MANIFEST, Manifest, check_listing, read_manifest
from pipeline.data.log_store.merging import EventDays, day_marks
from pipeline.data.log_store.splits import label_growth, maturity_of, ordinary_days, stray_rows
from pipeline.encoding.values import field_keys
from pipeline.encoding.vocabulary import ValueCounts
from pipeline.engine.day_map import map_days
from pipeline.engine.reuse import Made, Reuse
from pipeline.params.sections import LogParams, SplitParams, ValidateParams
from pipeline.quality.day_checks import check_days, column_frame, day_frame
from pipeline.quality.suites import CheckResult


def run(
    data: Path,
    report: Path,
    details: Path,
    *,
    params: ValidateParams,
    log: LogParams,
    split: SplitParams,
) -> None:
    """Check every day up to `split.last_day`; write reports/validation.json, and under
    artifacts/validation the counts of every day and every check.

    Every file is held against its checksum; a day that was looked at before is not read again.

    Raises:
        DataError: the log is not what the contract says, an event is on two days, or a day breaks
            a check of severity error; day, and column and row where there is one, are named.
        NotEnoughDataError: there are fewer than two days, or a day has too few impressions.
    """
    manifest = read_manifest(data / MANIFEST)
    used = contract.used_days(manifest, log.format, log.time_zone, split.last_day)
    check_listing(data, manifest, used)
    days = [day for day in used if day in ordinary_days(manifest.days)]
    contract.refuse_unknown(manifest, log.columns())
    facts, fields, recent = {}, {}, contract.ValueNovelty(params.recent_days)
    on_days = EventDays(log.event_id)
    waiting = maturity_of(manifest, log.maturity_days, split.last_day).waiting
    look = _looks(data, details, manifest, log, waiting)
    for day, (found, marks) in map_days(look, days, "validate"):
        facts[day] = DayFacts(**found.facts["day"])
        nulls = found.facts["field_nulls"]
        fields[day] = {"field_nulls": nulls, "new_rows": recent.add(found.columns)}
        fields[day]["waits"] = day in waiting
        on_days.add(day, marks.columns)
        if facts[day].impressions < params.min_rows_per_day:
            raise NotEnoughDataError(
                f"day {day} has {facts[day].impressions} impressions, validate.min_rows_per_day "
                f"is {params.min_rows_per_day}; land the whole day"
            )
    alike = on_days.check()
    contract.check_logged_scores(facts, log)
    contract.check_null_shares(facts, [*log.categorical, *log.numeric], params.max_null_share)
    by_day = {day: counts | fields[day] for day, counts in contract.by_day(facts).items()}
    checks = _checks(facts, by_day, params)
    document = contract.summary(facts, log.time_zone)
    document |= {"waiting": waiting}
    breaches = [check.breach for check in checks if check.breach]
    document |= {"warnings": [*stray_rows(manifest.days), *alike, *breaches]}
    document |= {"label_growth": label_growth(manifest.days)}
    write_report(report, document)
    with publish(details) as folder:
        write_json(folder / "days.json", by_day)
        write_json(folder / "checks.json", [asdict(check) for check in checks])


def _looks(
    data: Path, details: Path, manifest: Manifest, log: LogParams, waiting: Collection[str]
) -> Callable[[str], tuple[Made, Made]]:
    """Day → its facts with how often each field value comes, and the marks of its events."""
    kept = Reuse(details, "validation", {"log": log.model_dump(mode="json")})

    def look(day: str) -> tuple[Made, Made]:
        refuse_changed(data, day, manifest)

        @cache
        def table() -> pa.Table:
            return read_day(data, day, list(log.columns()), manifest)

        of = {"data": manifest.entry(day).content_sha256, "waits": day in waiting}

        def described() -> Made:  # in here, so that a worker process imports no library of checks
            found = {"day": asdict(contract.check_day(table(), day, log, waits=day in waiting))}
            counts = ValueCounts(field_keys(table(), log.field))
            return Made.of_columns(found | {"field_nulls": counts.nulls}, counts.counts)

        facts = kept.made(of, described)
        marks = kept.made(
            of | {"what": "events"}, lambda: Made.of_columns({}, day_marks(table(), log.event_id))
        )
        return facts, marks

    return look


def _checks(
    facts: Mapping[str, DayFacts], by_day: Mapping[str, Mapping[str, Any]], params: ValidateParams
) -> list[CheckResult]:
    """Every check of the days; none of the rate where labels are yet to come.

    Raises:
        DataError: one of severity error found a breach.
    """
    names = ("rows", "impressions", "responses", "field_nulls", "new_rows")
    counts = {day: {name: of_day[name] for name in names} for day, of_day in by_day.items()}
    nulls = {day: found.nulls for day, found in facts.items()}
    rows = {day: found.rows for day, found in facts.items()}
    days = day_frame(counts, params.recent_days)
    days.loc[[by_day[day]["waits"] for day in days["day"]], "response_rate_factor"] = 1.0
    columns = column_frame(nulls, rows, params.recent_days)
    checks = check_days(days, columns, params.model_dump())
    errors = [check.breach for check in checks if check.breach and check.severity == "error"]
    if errors:
        raise DataError(
            f"{'; '.join(errors)}; land the days again, or raise the limit if they are right"
        )
    return checks
