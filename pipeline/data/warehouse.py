"""Counting in a warehouse: the query that turns logged scores into an aggregated log."""

import json

import sqlglot
from sqlglot import exp

from pipeline.core.errors import ParamsError
from pipeline.data.log_store.contract import Contract
from pipeline.encoding.values import SCORE_CLIP
from pipeline.formats.days import day_name, day_number

DIALECTS = ("bigquery", "snowflake", "spark", "trino", "duckdb", "clickhouse")
MADE = ("day", "logit", "impressions", "responses")
QUERY = """
WITH logged AS (
    SELECT {day} AS log_day, {columns}, {logit} AS log_logit, {impressions} AS log_impressions,
        CAST({label} AS BIGINT) AS log_responses, {nth} AS log_nth
    FROM {table}
)
SELECT CAST(log_day AS TEXT) AS "day", {columns},
    (FLOOR(log_logit * {cells}) + 0.5) / {cells} AS "logit",
    CAST(SUM(log_impressions) AS BIGINT) AS "impressions",
    CASE WHEN SUM(CASE WHEN log_responses BETWEEN 0 AND log_impressions THEN 0 ELSE 1 END) = 0
        THEN CAST(SUM(log_responses) AS BIGINT) END AS "responses"
FROM logged
WHERE log_nth = 1 {days}
GROUP BY CAST(log_day AS TEXT), {columns}, (FLOOR(log_logit * {cells}) + 0.5) / {cells}
"""
MAPPING = """\
# What the query gives, written as Parquet files. In params.yaml, log:
#   {{format: counted, time_zone: {zone}, label: responses, impressions: impressions,
#    field: {field}, field_parents: {field_parents}, categorical: [], numeric: [], weight: {weight},
#    served_logit: logit, served_probability: null, event_id: null, truth: null, value: null}}
format: counted
kind: parquet
time_zone: {zone}
date: {{column: day, format: "%Y-%m-%d"}}
columns: {columns}
"""


def counting_query(
    table: str,
    dialect: str,
    log: Contract,
    *,
    time: str | None,
    date: str | None,
    days: tuple[str | None, str | None] = (None, None),
    cells: int = 32,
) -> str:
    """The query in a warehouse's dialect: sums of each day, field value and cell of the logit.

    A cell is [c / cells, (c + 1) / cells) for a whole c, and its logit the middle of it, a number
    that float32 holds whole; so counting again, or in parts, gives the same. Days, the clip of a
    probability, the first of several rows with one event id, and weights are those of the product.
    What it refuses, a null, a probability outside [0, 1], more responses than impressions, comes
    out as a null in the row of its cell, which `validate` refuses.

    Args:
        table: its name there, with a row for each impression, or for several.
        dialect: one of DIALECTS.
        log: names of its columns.
        time: the column with each row's instant, of a type with a zone.
        date: in its place, the column with each row's day.
        days: the first and the last to count; None: no limit.
        cells: to a nat; LogLoss is off by about p (1 - p) / (24 cells²).

    Raises:
        ParamsError: the log has no score, a column is called as one that is made, there is no such
            dialect, or the table's name is none in it.
    """
    columns = _columns(log)
    if dialect not in DIALECTS:
        raise ParamsError(f"no dialect {dialect!r}; the dialects are {', '.join(DIALECTS)}")
    names = [time, date, log.label, log.impressions, log.event_id, _score(log), *columns]
    texts = {name: exp.to_identifier(name).sql("duckdb") for name in names if name}
    at = f"{texts[time]} AT TIME ZONE '{log.time_zone}'" if time else texts[date or ""]
    day = f"CAST({at} AS DATE)"
    limits = [
        f"AND log_day {sign} CAST('{day_name(day_number(end))}' AS DATE)"
        for sign, end in zip((">=", "<="), days, strict=True)
        if end
    ]
    query = QUERY.format(
        day=day,
        columns=", ".join(texts[name] for name in columns),
        logit=_logit(log, texts),
        impressions=f"CAST({texts[log.impressions]} AS BIGINT)" if log.impressions else "1",
        label=texts[log.label],
        nth=_nth(texts, log.event_id, day, time),
        table=_place(table, dialect),
        cells=cells,
        days=" ".join(limits),
    )
    return sqlglot.transpile(query, read="duckdb", write=dialect, pretty=True)[0]


def counted_mapping(log: Contract) -> str:
    """The mapping, YAML, by which the rows of `counting_query` land; what params.yaml then says.

    Raises:
        ParamsError: as `counting_query`.
    """
    kinds = {name: "float64" if name == log.weight else "text" for name in _columns(log)}
    kinds |= {"logit": "float64", "impressions": "int64", "responses": "int64"}
    said: dict[str, object] = {"columns": kinds, "weight": log.weight}
    said |= {"field": log.field, "field_parents": log.field_parents}
    texts = {name: json.dumps(what, ensure_ascii=False) for name, what in said.items()}
    return MAPPING.format(zone=log.time_zone, **texts)


def _place(table: str, dialect: str) -> str:
    """The name of a table, as DuckDB spells it."""
    try:
        named = exp.to_table(table, dialect=dialect).assert_is(exp.Table)
    except (sqlglot.errors.SqlglotError, AssertionError):
        raise ParamsError(f"{table!r} is no name of a table in {dialect}; quote it so") from None
    for part in named.find_all(exp.Identifier):  # BigQuery's projects have hyphens
        part.set("quoted", part.args.get("quoted") or not part.name.isidentifier())
    return named.sql("duckdb")


def _columns(log: Contract) -> list[str]:
    """By what is counted beside day and logit."""
    columns = [*dict.fromkeys((*log.field, *log.field_parents, *filter(None, [log.weight])))]
    taken = sorted({*MADE} & {*columns})
    if taken:
        raise ParamsError(
            f"the query makes a column {taken[0]} and log: names one for field, parents or weight; "
            "count a view in which it is called otherwise"
        )
    return columns


def _score(log: Contract) -> str:
    name = log.served_logit or log.served_probability
    if name is None:
        raise ParamsError(
            "log.served_logit and log.served_probability of params.yaml are both null: without "
            "scores nothing can be counted; name the column that holds them"
        )
    return name


def _logit(log: Contract, texts: dict[str, str]) -> str:
    score = f"CAST({texts[_score(log)]} AS DOUBLE)"
    if log.served_logit:
        return score
    inside = f"GREATEST(LEAST({score}, 1 - {SCORE_CLIP}), {SCORE_CLIP})"
    # the difference is no 0 where it is NaN, which statistics of a file pass as between 0 and 1
    right = f"{score} BETWEEN 0 AND 1 AND {score} - {score} = 0"
    return f"CASE WHEN {right} THEN LN({inside}) - LN(1 - {inside}) END"


def _nth(texts: dict[str, str], event_id: str | None, day: str, time: str | None) -> str:
    """Of the rows of a day with one event id only the first counts; a row without one counts."""
    if event_id is None:
        return "1"
    event, order = texts[event_id], texts[time] if time else "1"
    first = f"ROW_NUMBER() OVER (PARTITION BY {day}, {event} ORDER BY {order})"
    return f"CASE WHEN {event} IS NULL THEN 1 ELSE {first} END"
