"""Rows that come for a day that has landed: a union by event id, else by the file they are from.

Events that come twice: within a day, and on two days.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.core.errors import DataError
from pipeline.data.log_store.day_writer import DayFiles, places_of
from pipeline.data.log_store.engine import engine
from pipeline.data.log_store.manifest import DayEntry, SourceRows, amount
from pipeline.encoding.values import as_text

REPLACE = "add --allow-shrink, by which what comes takes the place of the day; nothing was landed"
LARGEST_SHRINK = 0.1  # share of its responses that a day may lose; of its rows, of unknown files
FEW = 0.1  # share of a day: so many rows of another file may be equal to rows of the day
LARGEST_OVERLAP = 0.5  # share of rows of another file that are equal to rows of the day
SHARED = """
SELECT CAST(coalesce(sum(least(a.n, b.n)), 0) AS BIGINT)
FROM (SELECT hash(r) AS h, count(*) AS n FROM given WHERE NOT comes AND place = now GROUP BY h) AS a
JOIN (SELECT hash(r) AS h, count(*) AS n FROM given WHERE place IN ({places}) GROUP BY h) AS b
USING (h)
"""
BY_FILE = "SELECT r, now AS source FROM given WHERE place = now ORDER BY rank, row"
# A row's key is its id, else its file; rows of one key are told by their number.
BY_EVENT = """
SELECT r, source FROM given JOIN (
    SELECT max(row) AS row, arg_min(now, row) AS source, min(row) AS first FROM (
        SELECT *, row_number() OVER (PARTITION BY comes, key ORDER BY row) AS number FROM (
            SELECT row, now, comes, coalesce(CAST(id AS VARCHAR), chr(30) || now) AS key FROM given
        )
    ) GROUP BY key, number
) USING (row) ORDER BY first
"""


class DayMerge:
    """A day that has landed and rows that come for it.

    With an event id, a row that comes takes the place of the row with its id, others are added; a
    row without an id is as all are without one. Without, a file that comes again (by its bytes,
    else by its name) takes the place of the rows it brought before, and rows of other files are
    added. Where files are not known, what comes takes the place of the day.

    Args:
        day: its name, for messages.
        standing: the entry of the day that has landed.
        coming: the entry of the rows that come.
        event_id: the column with the ids of events; None: there is none.
    """

    def __init__(
        self, day: str, standing: DayEntry, coming: DayEntry, event_id: str | None
    ) -> None:
        self._day, self._standing, self._coming = day, standing, coming
        self._event_id = event_id
        self._before = standing.sources or (SourceRows("", "", standing.rows),)
        self._came = coming.sources or (SourceRows("", "", coming.rows),)
        self._again = _again(self._before, self._came)
        n, bytes_of = len(self._before), [source.sha256 for source in self._came]
        mapped = [n + p if p >= 0 else i for i, p in enumerate(self._again)]
        came = [n + bytes_of.index(sha256) for sha256 in bytes_of]  # rows of several may alternate
        self._now = np.array([*mapped, *came])  # of each file, the position of its newest rows

    def write(self, old: Sequence[Path], file: Path, schema: pa.Schema) -> DayEntry:
        """Write the merged day in place of the rows that come, and return its entry; where no row
        that has landed stays beside those that come, theirs.

        Args:
            old: Parquet files with the rows that have landed.
            file: that with the rows that come.
            schema: of the log.

        Raises:
            DataError: a file brings less than it brought before, or the day would lose many rows;
                or most rows of a file that is another one are equal to rows of the day.
        """
        self._refuse_shrinking()
        other = self._standing.content_sha256 != self._coming.content_sha256
        if not other or (self._event_id is None and -1 not in self._again):
            return self._coming
        n, again = len(self._before), self._again
        stays = (again.index(p) if p in again else n + p for p in range(len(self._came)))
        rank = np.array([*range(n), *stays])  # a file that comes again stays in its place
        place = np.concatenate([places_of(self._before), n + places_of(self._came)])
        facts = pa.table({"place": place, "now": self._now[place], "rank": rank[place]})
        rows = DayFiles([*old, file], schema, facts, self._event_id)
        if self._event_id is None:
            self._refuse_overlap(rows)
        query = BY_FILE if self._event_id is None else BY_EVENT
        entry = rows.rewritten(query, [*self._before, *self._came], file)
        earlier = Counter(self._standing.dropped if -1 in again else {})
        return replace(entry, dropped=dict(earlier + Counter(self._coming.dropped)))

    def _refuse_shrinking(self) -> None:
        """Refuse a file that brings less than it brought before; where files are not known, a day
        that would lose more than LARGEST_SHRINK of its rows.
        """
        before: Counter[int] = Counter()
        for source, place in zip(self._before, self._again, strict=True):
            before[place] += source.rows
        known = bool(self._standing.sources and self._coming.sources)
        came = enumerate(self._came) if known else [(0, SourceRows("", "", self._coming.rows))]
        kept = 1 if known else 1 - LARGEST_SHRINK
        for place, source in came:
            if self._event_id is None and source.rows < kept * before[place]:
                raise DataError(
                    f"day {self._day} has {amount(before[place], 'row')}"
                    f"{f' of {source.file}' if source.file else ''} and would have {source.rows:,}"
                    f"; fetch the file again, or where the day shall shrink, {REPLACE}"
                )

    def _refuse_overlap(self, rows: DayFiles) -> None:
        stays = sum(s.rows for s, place in zip(self._before, self._again, strict=True) if place < 0)
        first = [place for place in range(len(self._came)) if place not in self._again]
        others = sum(self._came[place].rows for place in first)
        smaller = min(stays, others)
        if others < FEW * stays or not smaller:
            return
        places = ", ".join(str(len(self._before) + place) for place in first)
        (found,) = rows.select(SHARED.format(places=places))
        shared = int(found.column(0)[0].as_py())
        if shared > LARGEST_OVERLAP * smaller:
            names = ", ".join(self._came[place].file for place in first)
            raise DataError(
                f"day {self._day} has {amount(stays, 'row')}, and {shared:,} of the "
                f"{others:,} that {names} brings are equal to rows of it: where these are other "
                "events, name all files of the day in one call, and where they are the same, keep "
                f"the name of a file that comes again, name log.event_id, or {REPLACE}"
            )


def _again(before: Sequence[SourceRows], came: Sequence[SourceRows]) -> list[int]:
    """Position among the files that come of each that has come before; -1: it does not come."""
    if not all(source.file for source in (*before, *came)):
        return [0] * len(before)
    bytes_of = {source.sha256: place for place, source in reversed(list(enumerate(came)))}
    again = [bytes_of.get(source.sha256, -1) for source in before]
    for name in {source.file for source in before}:  # by names that only one file has
        gone = [i for i, source in enumerate(before) if source.file == name and again[i] < 0]
        new = [i for i, source in enumerate(came) if source.file == name and i not in again]
        if len({before[i].sha256 for i in gone}) == len({came[i].sha256 for i in new}) == 1:
            again = [new[0] if i in gone else place for i, place in enumerate(again)]
    return again


ROW_MARKS = """
SELECT hash(day_rows) AS high, 0::UBIGINT AS low FROM day_rows GROUP BY ALL HAVING count(*) = 1
"""
ID_MARKS = """
SELECT md5_number_upper(id) AS high, md5_number_lower(id) AS low FROM day_rows
"""
TWO_DAYS = """
WITH shared AS (
    SELECT min(day) AS earlier, max(day) AS later FROM marks GROUP BY high, low
    HAVING count(*) BETWEEN 2 AND ?
), sizes AS (SELECT day, count(*) AS marks FROM marks GROUP BY day)
SELECT earlier, later, count(*), least(any_value(a.marks), any_value(b.marks))
FROM shared JOIN sizes AS a ON a.day = earlier JOIN sizes AS b ON b.day = later
GROUP BY earlier, later ORDER BY count(*) DESC, earlier, later
"""
ALIKE_ROWS, ALIKE_SHARE = 100, 0.9  # from so many rows, and so much of a day, equality is no chance


def day_marks(table: pa.Table, event_id: str | None) -> pa.Table:
    """What the events of a day are compared by on other days: uint64 columns `high` and `low`.

    Args:
        table: the rows of the day.
        event_id: the column with the ids of events, of which a row without one is an event of its
            own; None: the rows that are there once are the events.
    """
    database = engine()
    if event_id is not None:
        table = pa.table({"id": as_text(table[event_id]).drop_null()})
    database.register("day_rows", table)
    return database.sql(ROW_MARKS if event_id is None else ID_MARKS).to_arrow_table()


class EventDays:
    """Events that are there twice, found by hashes; more than 1 GB of them spill.

    Args:
        event_id: the column with the ids of events; None: rows are compared.
    """

    def __init__(self, event_id: str | None) -> None:
        self._event_id = event_id
        self._database = engine()
        self._database.execute("CREATE TABLE marks (day DATE, high UBIGINT, low UBIGINT)")

    def add(self, day: str, marks: pa.Table) -> None:
        """Add the `day_marks` of a day."""
        self._database.register("seen", marks)
        query = "INSERT INTO marks SELECT CAST(? AS DATE), high, low FROM seen"
        self._database.execute(query, [day])

    def check(self) -> list[str]:
        """Sentences on days that have an event twice; on days that have the same rows, where no
        column has the ids of events.

        Raises:
            DataError: an event is on two days by its id; the two that share most are named.
        """
        most = 2 if self._event_id is None else np.iinfo(np.int32).max
        found = self._database.execute(TWO_DAYS, [int(most)]).fetchall()
        if self._event_id is None:
            return [
                f"{shared:,} rows are on {earlier} and {later} alike, of {rows:,} that are there "
                "once: one of the days may hold the other"
                for earlier, later, shared, rows in found
                if shared >= max(ALIKE_ROWS, ALIKE_SHARE * rows)
            ]
        for earlier, later, shared in [of[:3] for of in found if of[0] != of[1]]:
            raise DataError(
                f"{amount(shared, 'event')} by the ids in {self._event_id} are on both {earlier} "
                f"and {later}: an event counts once, and one that is calibrated on must not be "
                "tested on; land the day that is wrong again with --allow-shrink, or name another "
                "column in log.event_id"
            )
        return [
            f"{day} has {amount(shared, 'event')} more than once by the ids in {self._event_id}, "
            "as no id was named when it landed; land it again with --allow-shrink"
            for day, _, shared, _ in found
        ]
