"""The log of an experiment in DuckDB: its rows by one set of names, and sums by unit."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from glob import escape
from pathlib import Path

import duckdb

from pipeline.core.errors import DataError, NotEnoughDataError
from pipeline.core.files import refuse_pipe
from pipeline.data.log_store.engine import engine, name, text
from pipeline.encoding.values import SEPARATOR

MEMORY = "500MB"  # of DuckDB; the libraries around it take 300 MB
MEANINGS = ("day", "arm", "unit", "impressions", "clicks", "responses", "value", "price", "cost")
"""What a column can mean: day or instant; arm that served; unit that was randomised; counts; what
one response is worth; what one response, and what the whole row, costs its advertiser."""

SUMMED = {
    "impressions": set(MEANINGS),
    "clicks": {"clicks"},
    "responses": {"responses"},
    "gmv": {"value"},
    "revenue": {"price", "cost"},
}
"""What is summed, and the meanings of which the log has to have one for it."""

ABSENT = {"impressions": "1", "arm": "'all rows'"}  # what a row has then; other columns are null
# Of a comma-separated file nothing is guessed, neither its signs nor that 001 is the number 1.
CSV = """read_csv({}, delim = ',', quote = '"', escape = '"', header = true, nullstr = '',
  all_varchar = true, union_by_name = true)"""
# Comparisons and isnan pass NaN in Parquet: DuckDB answers them by the statistics of the file.
LARGE = "{0} BETWEEN 0 AND 1e15 AND isfinite({0})"
RULES = {
    "day is a day": "instant IS NULL",
    "impressions are 0 or more": f"NOT coalesce({LARGE.format('impressions')}, false)",
    "responses are 0 or more": f"NOT coalesce({LARGE.format('responses')}, impressions = 0)",
    **{f"{c} is 0 or more": f"{c} < 0 OR NOT isfinite({c})" for c in ("clicks", "gmv", "revenue")},
}


@dataclass(frozen=True)
class ExperimentLog:
    """A log that was opened and checked, as the table `logged` of its rows.

    Attributes:
        database: where it is; the caller's to close.
        there: meanings that the log has a column of.
        field: whether rows have field values.
        versions: names of the versions whose probabilities are p0, p1 …
        arms: control and treatment, or one name where the log has no arms.
        shares: planned share of the treatment in (0, 1) from a day on, the first day of the test
            first.
        first: first day of the test; the days before it are the pre-period.
        last: its last day, fixed beforehand.
        mature: the last day of the test whose responses are final.
        newest: the newest day of the log.
        rows: rows of the test, up to `mature`.
        outside: those of them that no arm served, or without a unit where units are named.
        pre: whether there are days before the test.
    """

    database: duckdb.DuckDBPyConnection
    there: set[str]
    field: bool
    versions: list[str]
    arms: list[str]
    shares: list[tuple[date, float]]
    first: date
    last: date
    mature: date
    newest: date
    rows: int
    outside: int
    pre: bool

    @property
    def during(self) -> str:
        """The rows of the test, as a condition of SQL."""
        return _between(self.first, self.mature)

    @property
    def summed(self) -> list[str]:
        """What of SUMMED the log has."""
        return [name for name, meanings in SUMMED.items() if meanings & self.there]

    def sum_units(self) -> duckdb.DuckDBPyRelation:
        """The table `units`: sums of each unit's test days and, as `pre_…`, of those before.

        A unit belongs to the arm that first served it, and to the period in which that was; `cell`
        is 2 · period + (1 if treated).
        """
        parts = [("", "test"), ("pre_", "NOT test")][: 1 + self.pre]
        sums = [f"coalesce(sum({c}) FILTER ({rows}), 0) AS {prefix}{c}"
                for prefix, rows in parts for c in self.summed]  # fmt: skip
        sums += [f"min(instant) FILTER (test AND arm = {text(a)}) AS in{i}"
                 for i, a in enumerate(self.arms)]  # fmt: skip
        period = " + ".join(f"(least(in0, in1) >= DATE '{day}')::INT" for day, _ in self.shares)
        before = f"test OR instant < DATE '{self.first}'" if self.pre else "test"
        self.database.execute(f"""
            CREATE TABLE units AS
            SELECT *, coalesce(in1 < in0, in0 IS NULL)::INT AS treated,
              2 * ({period} - 1) + treated AS cell
            FROM (SELECT unit, {", ".join(sums)}
              FROM (SELECT *, {self.during} AND arm IS NOT NULL AS test FROM logged)
              WHERE unit IS NOT NULL AND ({before}) GROUP BY unit)
            WHERE in0 IS NOT NULL OR in1 IS NOT NULL""")
        return self.database.table("units")


def open_log(
    sources: Sequence[Path],
    columns: Mapping[str, str],
    shares: Sequence[tuple[date, float]],
    last: date,
    *,
    field: Sequence[str] = (),
    versions: Mapping[str, str] | None = None,
    control: str | None = None,
    maturity_days: int = 0,
    time_zone: str = "UTC",
) -> ExperimentLog:
    """Open a log, check it, and say what it holds.

    Args:
        sources: Parquet or CSV files, or folders of Parquet files.
        columns: the log's columns by what they mean, some of MEANINGS.
        shares: as in `ExperimentLog`; the first day is that of the test.
        last: the last day of the test.
        field: columns of what is calibrated one by one.
        versions: the columns of probabilities by the name of the version.
        control: the arm that the other is held against; None: the first by name.
        maturity_days: days after which a day's responses are final.
        time_zone: of days, where instants carry a zone.

    Raises:
        DataError: a file or column is missing, a value breaks a rule, or there are not two arms.
        NotEnoughDataError: no day of the test is mature.
    """
    versions, first = versions or {}, shares[0][0]
    _refuse_no_plan(shares, last)
    database = engine()
    database.execute(f"SET memory_limit = '{MEMORY}'; SET preserve_insertion_order = false")
    database.execute(f"SET TimeZone = {text(time_zone)}")
    try:
        _view(database, sources, columns, field, versions.values())
        newest, pre = _checked(database, first, len(versions))
        mature = min(last, newest - timedelta(days=maturity_days))
        arms, rows, outside = _arms(database, _between(first, mature), "unit" in columns)
    except duckdb.Error as error:
        raise DataError(
            f"the log cannot be read: {str(error).splitlines()[0]}; give Parquet, .csv or .csv.gz, "
            "days as dates or instants, counts as numbers"
        ) from None
    chosen = control if control is not None else next(iter(arms), None)
    if "arm" in columns and arms and (len(arms) != 2 or chosen not in arms):
        raise DataError(
            f"{columns['arm']} has the arms {arms} in the test, two are compared, of which one is "
            f"{chosen!r}; leave out rows or correct --control"
        )
    if not arms:
        raise NotEnoughDataError(
            f"no row of an arm lies in {first} to {mature}, the mature days of the test (the log "
            f"ends on {newest}, log.maturity_days is {maturity_days}); wait, or correct --from"
        )
    return ExperimentLog(
        database, set(columns), bool(field), list(versions),
        sorted(arms, key=lambda arm: arm != chosen), list(shares), first, last, mature, newest,
        rows, outside, pre,
    )  # fmt: skip


def _refuse_no_plan(shares: Sequence[tuple[date, float]], last: date) -> None:
    days = [day for day, _ in shares]
    if last < days[-1] or days != sorted(set(days)) or not all(0 < s < 1 for _, s in shares):
        raise DataError(
            f"a test goes on to its last day {last} with shares in (0, 1), later ones later, got "
            f"{[(str(day), share) for day, share in shares]}; correct --from, --to or --share"
        )


def _view(
    database: duckdb.DuckDBPyConnection,
    sources: Sequence[Path],
    columns: Mapping[str, str],
    field: Sequence[str],
    probabilities: Collection[str],
) -> None:
    reading = []
    for source in sources:
        if not source.exists():
            raise DataError(f"{source} does not exist; name files of a log, or its folder")
        refuse_pipe(source)
        place = escape(str(source)) + ("/**/*.parquet" if source.is_dir() else "")
        separated = place.lower().endswith((".csv", ".csv.gz"))
        reader = CSV if separated else "read_parquet({}, union_by_name = true)"
        reading.append(f"FROM {reader.format(text(place))}")
    database.execute(f"CREATE VIEW files AS {' UNION ALL BY NAME '.join(reading)}")
    there = {row[0] for row in database.execute("DESCRIBE files").fetchall()}
    if unknown := set(columns) - set(MEANINGS):
        raise DataError(f"no column means {sorted(unknown)}; the meanings are {list(MEANINGS)}")
    for column in (*columns.values(), *field, *probabilities):
        if column not in there:
            raise DataError(
                f"the log has no column {column!r}, it has {sorted(there)}; name another "
                "(--column MEANING=COLUMN, or the keys of log in params.yaml)"
            )
    given = {m: name(columns[m]) if m in columns else ABSENT.get(m, "NULL") for m in MEANINGS}
    for what in ("clicks", "responses"):  # which text spells true and false, too
        given[what] = f"coalesce(try_cast({given[what]} AS DOUBLE), {given[what]}::BOOLEAN::INT)"
    given |= {f"p{i}": f"{name(c)}::DOUBLE" for i, c in enumerate(probabilities)}
    values = [f"coalesce({name(column)}::VARCHAR, 'null')" for column in field] or ["''"]
    given["field_value"] = f"concat_ws({text(SEPARATOR)}, {', '.join(values)})"
    database.execute(f"""
        CREATE VIEW logged AS SELECT * REPLACE (
            arm::VARCHAR AS arm, impressions::DOUBLE AS impressions),
          day::TIMESTAMPTZ::TIMESTAMP AS instant, responses * value::DOUBLE AS gmv,
          coalesce(responses * price::DOUBLE, cost::DOUBLE) AS revenue
        FROM (SELECT {", ".join(f"{what} AS {key}" for key, what in given.items())} FROM files)""")


def _checked(database: duckdb.DuckDBPyConnection, first: date, versions: int) -> tuple[date, bool]:
    """The newest day and whether any is before `first`, after every row kept the rules."""
    rules = RULES | {
        f"a version's probability lies in 0 to 1 (the {i + 1}.)": (
            f"p{i} < 0 OR p{i} > 1 OR NOT isfinite(p{i})"
        )
        for i in range(versions)
    }
    counts = ", ".join(f"count_if({broken})" for broken in rules.values())
    ends = f"max(instant)::DATE, coalesce(min(instant) < DATE '{first}', false)"
    newest, pre, *broken = database.execute(f"SELECT {ends}, {counts} FROM logged").fetchall()[0]
    for rule, rows in zip(rules, broken, strict=True):
        if rows:
            raise DataError(f"{rows:,} rows of the log break the rule: {rule}; correct them")
    if newest is None:
        raise NotEnoughDataError("the log has no rows; name other files")
    return newest, pre


def _arms(
    database: duckdb.DuckDBPyConnection, during: str, units: bool
) -> tuple[list[str], int, int]:
    """The arms of rows that belong to a unit, all rows, and those without arm or unit."""
    inside = "arm IS NOT NULL" + (" AND unit IS NOT NULL" if units else "")
    found = database.execute(
        f"SELECT if({inside}, arm, NULL), count(*) FROM logged WHERE {during} GROUP BY 1 ORDER BY 1"
    ).fetchall()
    rows = dict(found)
    return [arm for arm in rows if arm is not None], sum(rows.values()), rows.get(None, 0)


def _between(first: date, last: date) -> str:
    after = last + timedelta(days=1)
    return f"(instant >= DATE '{first}' AND instant < DATE '{after}')"
