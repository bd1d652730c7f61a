"""Events that come twice: within a day, and on two days."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError
from pipeline.data.log_store.engine import engine
from pipeline.data.log_store.manifest import amount
from pipeline.encoding.values import as_text, placed


def event_facts(table: pa.Table, day: str, event_id: str) -> dict[str, int]:
    """Rows of a day whose event id came before there (`came_before`), and rows `without_id`.

    Args:
        table: the rows of the day.
        event_id: the column with the ids.

    Raises:
        DataError: an id has no spelling; the day is named.
    """
    with placed(f"day {day}, column {event_id}: "):
        ids = as_text(table[event_id])
    different = pc.count_distinct(ids).as_py()
    came_before = len(ids) - ids.null_count - different
    return {"came_before": came_before, "without_id": ids.null_count}


def event_summary(event_id: str, facts: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """What reports/validation.json says of events that come twice: totals, and days with any."""
    return {
        "event_id": event_id,
        **{n: sum(day[n] for day in facts.values()) for n in ("came_before", "without_id")},
        "by_day": {day: found for day, found in facts.items() if found["came_before"]},
    }


ROW_MARKS = """
SELECT hash(day_rows) AS high, 0::UBIGINT AS low FROM day_rows GROUP BY ALL HAVING count(*) = 1
"""
ID_MARKS = """
SELECT DISTINCT md5_number_upper(id) AS high, md5_number_lower(id) AS low FROM day_rows
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
    """Events that are on two days, found by hashes; more than 1 GB of them spill.

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
        """Sentences on days that have the same rows, where no column has the ids of events.

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
        for earlier, later, shared, _ in found:
            raise DataError(
                f"{amount(shared, 'event')} by the ids in {self._event_id} are on both {earlier} "
                f"and {later}: an event counts once, and one that is calibrated on must not be "
                "tested on; land the day that is wrong again with --allow-shrink, or name another "
                "column in log.event_id"
            )
        return []
