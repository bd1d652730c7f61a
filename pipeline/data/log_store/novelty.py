"""A day's field values against those of the days before it."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NEVER = -(1 << 31)


@dataclass(frozen=True)
class FieldFacts:
    """What the calibrated field of one day looks like.

    Attributes:
        nulls: rows without a field value.
        new: rows with a field value that none of the recent days has.
    """

    nulls: int
    new: int


class RecentValues:
    """The field values of the days so far, and the last day that had each.

    Memory: every value that has been seen, once.
    """

    def __init__(self, recent_days: int) -> None:
        """Args:
        recent_days: days of the log before a day whose values are not new on it.
        """
        self._recent_days = recent_days
        self._values = pa.array([], pa.string())
        self._last_seen = np.zeros(0, np.int64)
        self._day = 0

    def add(self, keys: pa.StringArray) -> FieldFacts:
        """The facts of the next day, whose values are then known.

        Args:
            keys: text [n], the field value of every row; null where it has none.
        """
        counted = pc.value_counts(keys.drop_null())
        values, rows = counted.field("values"), counted.field("counts").to_numpy()
        found = pc.index_in(values, value_set=self._values)
        known = found.is_valid().to_numpy(zero_copy_only=False)
        place = found.drop_null().to_numpy()
        last_seen = np.full(len(values), NEVER)
        last_seen[known] = self._last_seen[place]
        new = rows[self._day - last_seen > self._recent_days].sum()
        self._last_seen[place] = self._day
        self._values = pa.concat_arrays([self._values, values.filter(pa.array(~known))])
        self._last_seen = np.append(self._last_seen, np.full(int((~known).sum()), self._day))
        self._day += 1
        return FieldFacts(nulls=keys.null_count, new=int(new))
