"""What field values belong to: campaigns of advertisers, advertisers of verticals."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.formats.days import day_number

NO_MOVES: Mapping[int, tuple[np.ndarray, np.ndarray]] = {}


@dataclass(frozen=True)
class FieldTree:
    """The parent of every id.

    A parent has an id, too: its map serves those of its children that have none of their own.

    Attributes:
        parent: int64 [V], as of the day on which an id was first seen; 0: none that is known.
        level: int64 [V]: 0 of a field value, k of its k-th parents from near to far, one more than
            there are parents of the id 0.
        moves: day (since 1970-01-01) -> ids, and their parents from then on.
    """

    parent: np.ndarray
    level: np.ndarray
    moves: Mapping[int, tuple[np.ndarray, np.ndarray]]

    @classmethod
    def flat(cls, n_field_values: int) -> "FieldTree":
        """The tree of V ids that belong to nothing."""
        level = np.zeros(n_field_values, np.int64)
        level[:1] = 1
        return cls(np.zeros(n_field_values, np.int64), level, NO_MOVES)

    @classmethod
    def of(cls, field: Mapping[str, Any]) -> "FieldTree":
        """The tree that the `field` of a scores manifest describes."""
        if not field.get("parents"):
            return cls.flat(len(field["values"]))
        tree = field["tree"]
        moves = {
            day_number(day): (np.array(ids), np.array(parents))
            for day, (ids, parents) in tree["moves"].items()
        }
        return cls(np.array(tree["parent"]), np.array(tree["level"]), moves)

    @property
    def depth(self) -> int:
        """How many levels of parents there are."""
        return int(self.level[0]) - 1

    def nodes(self) -> list[np.ndarray]:
        """The ids of the parents of each level, from far to near."""
        return [np.flatnonzero(self.level == k) for k in range(self.depth, 0, -1)]

    def known(self, ids: np.ndarray) -> np.ndarray:
        """Which ids are known where something is known of `ids`: bool [V], with all their parents.

        A value that moved is known to have belonged where it was first seen.
        """
        known = np.zeros(len(self.parent), bool)
        known[ids] = True
        for _ in range(self.depth):
            known[self.parent[known]] = True
        known[0] = True
        return known

    def serving(self, known: np.ndarray) -> np.ndarray:
        """The id whose map serves each id, int64 [V]: its own, or that of its nearest known parent.

        Args:
            known: bool [V], the ids that have maps.
        """
        ids = np.arange(len(self.parent))
        for _ in range(self.depth + 1):
            ids = np.where(known[ids], ids, self.parent[ids])
        return ids
