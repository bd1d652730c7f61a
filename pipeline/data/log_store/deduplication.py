"""Events that come twice: found by their ids within a day, in bounded memory."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core.errors import DataError
from pipeline.data.log_store.engine import engine
from pipeline.data.log_store.manifest import amount
from pipeline.encoding.hashing import hashes, shares
from pipeline.encoding.values import Column, as_text

AT_ONCE = 1 << 21  # ids compared at a time, about 150 MB with what sorting them takes
RECORD = np.dtype("<u8")
NO_ID = np.zeros(2, np.uint64)


def marks(ids: Column) -> np.ndarray:
    """What event ids are compared by: uint64 [n, 2], NO_ID where null.

    Args:
        ids: [n], of any type that has a spelling; 7 and "7" are the same id.

    Raises:
        DataError: a value has no spelling, see `as_text`.
    """
    text = as_text(ids)
    return np.where(text.is_valid().to_numpy(zero_copy_only=False)[:, None], hashes(text), NO_ID)


def came_before(seen: np.ndarray) -> np.ndarray:
    """Whether the id of a row is that of an earlier row: bool [n]; no id is never another's.

    Args:
        seen: uint64 [n, 2], `marks` in the order of the rows.
    """
    again = np.zeros(len(seen), bool)
    halves = np.sort(seen[:, 0])  # quick, and most days have no id twice
    if not (halves[1:] == halves[:-1]).any():
        return again
    order = np.lexsort((seen[:, 1], seen[:, 0]))  # stable: equal ids stay in the order of rows
    ordered = seen[order]
    same = (ordered[1:] == ordered[:-1]).all(axis=1) & ordered[1:].any(axis=1)
    again[order[1:][same]] = True
    return again


@dataclass(frozen=True)
class EventFacts:
    """Rows of a day whose event id came before there, and rows without one."""

    came_before: int
    without_id: int


def event_facts(table: pa.Table, day: str, event_id: str) -> EventFacts:
    """What the ids of a day's rows say.

    Args:
        table: the rows of the day.
        event_id: the column with the ids.

    Raises:
        DataError: an id has no spelling; the day is named.
    """
    try:
        seen = marks(table[event_id])
    except DataError as error:
        raise DataError(f"day {day}, column {event_id}: {error}") from None
    return EventFacts(int(came_before(seen).sum()), table[event_id].null_count)


def event_summary(event_id: str, facts: Mapping[str, EventFacts]) -> dict[str, Any]:
    """What reports/validation.json says of events that come twice: totals, and days with any."""
    return {
        "event_id": event_id,
        "came_before": sum(day.came_before for day in facts.values()),
        "without_id": sum(day.without_id for day in facts.values()),
        "by_day": {day: asdict(found) for day, found in facts.items() if found.came_before},
    }


ROW_MARKS = """
SELECT hash(day_rows) AS high, 0::UBIGINT AS low FROM day_rows GROUP BY ALL HAVING count(*) = 1
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
    if event_id is None:
        database.register("day_rows", table)
        return database.sql(ROW_MARKS).to_arrow_table()
    seen = marks(table[event_id].drop_null())
    database.register("seen", pa.table({"high": seen[:, 0], "low": seen[:, 1]}))
    return database.sql("SELECT DISTINCT high, low FROM seen").to_arrow_table()


class EventDays:
    """Events that are on two days, found by hashes; more than 1 GB of them spill.

    Args:
        event_id: the column with the ids of events; None: rows are compared.
    """

    def __init__(self, event_id: str | None) -> None:
        self._event_id = event_id
        self._database = engine()
        self._database.execute("CREATE TABLE marks (day DATE, high UBIGINT, low UBIGINT)")

    def add(self, day: str, marks_of_day: pa.Table) -> None:
        """Add the `day_marks` of a day."""
        self._database.register("seen", marks_of_day)
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


class EventIds:
    """The event ids of a day, in the order its rows come: 16 bytes a row in the file `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, ids: Column) -> None:
        """Add the ids of the next rows.

        Raises:
            DataError: as `marks`.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(marks(ids).astype(RECORD).tobytes())

    def came_before(self) -> np.ndarray:
        """Whether the id of a row is that of an earlier row: bool [n]; the file goes.

        Memory: one byte a row, and AT_ONCE ids: each share of all ids is looked at on its own.
        """
        seen = np.memmap(self._path, RECORD, "r").reshape(-1, 2)
        again = np.zeros(len(seen), bool)
        parts = -(-len(seen) // AT_ONCE)
        for part in range(parts):
            rows = _rows_of(seen, part, parts) if parts > 1 else slice(None)
            again[rows] = came_before(np.asarray(seen[rows]))
        del seen
        self._path.unlink()
        return again


def _rows_of(seen: np.ndarray, part: int, parts: int) -> np.ndarray:
    """Rows whose id is in the share `part` of `parts`, ascending."""
    found = []
    for start in range(0, len(seen), AT_ONCE):
        share = shares(seen[start : start + AT_ONCE, 0].astype(np.uint64), parts)
        found.append(start + np.flatnonzero(share == part))
    return np.concatenate(found)
