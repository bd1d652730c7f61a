"""Rows that come for a day that has landed: a union by event id, else by the file they are from."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.core.errors import DataError
from pipeline.data.log_store.day_writer import PartWriter
from pipeline.data.log_store.engine import engine
from pipeline.data.log_store.manifest import DayEntry, SourceRows, amount, block_rows
from pipeline.encoding.values import MARK, Column, as_text

LARGEST_SHRINK = 0.1  # share of its rows that a day may lose where no file is known
FEW = 0.1  # share of a day: so many rows of another file may be equal to rows of the day
LARGEST_OVERLAP = 0.5  # share of rows of another file that are equal to rows of the day
SHARED = """
SELECT coalesce(sum(least(a.n, b.n)), 0)
FROM (SELECT hash(stays) AS h, count(*) AS n FROM stays GROUP BY h) AS a
JOIN (SELECT hash(others) AS h, count(*) AS n FROM others GROUP BY h) AS b USING (h)
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
        mapped = [len(self._before) + p if p >= 0 else i for i, p in enumerate(self._again)]
        came = range(len(self._before), len(self._before) + len(self._came))
        self._now = np.array([*mapped, *came])  # of each file, the position of its newest rows

    @property
    def needed(self) -> bool:
        """Whether rows that have landed may stay beside those that come."""
        other = self._standing.content_sha256 != self._coming.content_sha256
        return other and (self._event_id is not None or -1 in self._again)

    def refuse_shrinking(self) -> None:
        """Refuse files that bring less than they brought before.

        Raises:
            DataError: one does; or where files are not known, the day would lose more than
                LARGEST_SHRINK of its rows.
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
                    "; fetch the file again, or where the day shall shrink, add --allow-shrink, by "
                    "which what comes takes the place of the day; nothing was landed"
                )

    def write(self, old: pa.Table, file: Path, schema: pa.Schema) -> DayEntry:
        """Write the merged day in place of the rows that come, and return its entry.

        Args:
            old: the rows that have landed.
            file: the Parquet file with the rows that come.
            schema: of the log.

        Raises:
            DataError: most rows of a file that is another one are equal to rows of the day.
        """
        old, new = old.cast(schema), pq.read_table(file).cast(schema)
        place = np.concatenate([_places(self._before), len(self._before) + _places(self._came)])
        now = self._now[place]
        goes = now != place
        rows = pa.concat_tables([old, new])
        if self._event_id is None:
            self._refuse_overlap(old.filter(pa.array(~goes[: len(old)])), new)
            order = np.flatnonzero(~goes)
            order = order[np.argsort(self._ranks()[place[order]], kind="stable")]
            place = place[order]
        else:
            ids = rows[self._event_id]
            order, stays = _by_event(
                _named(ids.slice(0, len(old)), now[: len(old)]),
                _named(ids.slice(len(old)), now[len(old) :]),
            )
            place = place[stays]
        writer = PartWriter(file.with_suffix(".merged"), schema)
        size = block_rows(schema)
        for start in range(0, len(order), size):
            writer.write(rows.take(pa.array(order[start : start + size])))
        entry = writer.entry()
        file.with_suffix(".merged").replace(file)
        return DayEntry(
            entry.rows, entry.content_sha256, entry.files, self._dropped(), self._runs(place)
        )

    def _ranks(self) -> np.ndarray:
        """Where the rows of each source go: a file that comes again stays in its place."""
        ranks = np.arange(len(self._before) + len(self._came))
        for position, place in reversed(list(enumerate(self._again))):
            if place >= 0:
                ranks[len(self._before) + place] = position
        return ranks

    def _runs(self, places: np.ndarray) -> tuple[SourceRows, ...]:
        """The files of rows in their order; `places` are their positions among all files."""
        files = [*self._before, *self._came]
        starts = np.flatnonzero(np.diff(places, prepend=-1))
        counts = np.diff(starts, append=len(places)).tolist()
        newest = [files[place] for place in self._now[places[starts]]]
        return tuple(replace(file, rows=count) for file, count in zip(newest, counts, strict=True))

    def _dropped(self) -> dict[str, int]:
        earlier = self._standing.dropped if -1 in self._again else {}
        return dict(Counter(earlier) + Counter(self._coming.dropped))

    def _refuse_overlap(self, stays: pa.Table, new: pa.Table) -> None:
        first = [place not in self._again for place in range(len(self._came))]
        others = new.filter(pa.array(np.array(first)[_places(self._came)]))
        smaller = min(len(stays), len(others))
        if len(others) < FEW * len(stays) or not smaller:
            return
        with engine() as database:
            database.register("stays", stays)
            database.register("others", others)
            shared = int(database.execute(SHARED).fetchall()[0][0])
        if shared > LARGEST_OVERLAP * smaller:
            names = ", ".join(
                source.file for source, new in zip(self._came, first, strict=True) if new
            )
            raise DataError(
                f"day {self._day} has {amount(len(stays), 'row')}, and {shared:,} of the "
                f"{len(others):,} that {names} brings are equal to rows of it: where they are the "
                "same events, keep the name of a file that comes again, name log.event_id in "
                "params.yaml, or add --allow-shrink, by which what comes takes the place of the "
                "day; where they are not, name all files of the day in one call; nothing was landed"
            )


def _again(before: Sequence[SourceRows], came: Sequence[SourceRows]) -> list[int]:
    """Position among the files that come of each that has come before; -1: it does not come."""
    if not all(source.file for source in (*before, *came)):
        return [0] * len(before)
    bytes_of = {source.sha256: place for place, source in reversed(list(enumerate(came)))}
    names = {source.file: place for place, source in reversed(list(enumerate(came)))}
    return [bytes_of.get(source.sha256, names.get(source.file, -1)) for source in before]


def _places(sources: Sequence[SourceRows]) -> np.ndarray:
    """The position of every row's source: int [n]."""
    return np.repeat(np.arange(len(sources)), [source.rows for source in sources])


def _by_event(old: pa.StringArray, new: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the merged day among all rows, the old ones before the new, in two readings.

    Args:
        old, new: ids of the rows that have landed, and of those that come.

    Returns:
        Which row stands at each place, and which one the place belonged to: they differ where a
        row that comes takes the place of an old one.
    """
    found = pc.index_in(old, value_set=new).fill_null(-1).to_numpy(zero_copy_only=False)
    here = np.arange(len(old))
    added = pc.invert(pc.is_in(new, value_set=old)).to_numpy(zero_copy_only=False)
    added = len(old) + np.flatnonzero(added)
    order = np.where(found >= 0, len(old) + found, here)
    return np.concatenate([order, added]), np.concatenate([here, added])


def _named(ids: Column, files: np.ndarray) -> pa.StringArray:
    """Event ids; a row without one has the number of its file, and of such rows in it."""
    text = as_text(ids)
    missing = np.flatnonzero(text.is_null().to_numpy(zero_copy_only=False))
    if not len(missing):
        return text
    met: Counter[int] = Counter()
    names = []
    for file in files[missing].tolist():
        names.append(f"{MARK}{file}:{met[file]}")
        met[file] += 1
    return pc.replace_with_mask(text, text.is_null(), pa.array(names))
