"""Parents learn from a day's rows of their children: messages along the tree of field values.

A child's state is its parent's and what it has of its own, so the states of all levels are a tree
of normal variables, each given its parent's:

    state of u = mean_u + tie_u · (state of its parent - mean of that) + noise of covariance_u

which is kept exactly (Gaussian belief propagation; Pearl 1988): what the rows say goes up, from
field values to parents to what all share, each level's own freedom integrated out, and what was
learned comes down again.
"""

from itertools import pairwise

import numpy as np

from pipeline.calibration.prior.quadrature import LEVEL, times
from pipeline.calibration.prior.random_slopes import inverse

OWN = np.array([[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])  # lasting, slow, fast; slope
TWICE = np.kron(OWN, OWN).T  # [16, 4]: a covariance [4, 4] of an own state → [2, 2] of these two


def of_own(covariance: np.ndarray) -> np.ndarray:
    """Covariances of (level, slope), float64 [U, 2, 2], of those of states [U, 4, 4]."""
    return (covariance.reshape(-1, 16) @ TWICE).reshape(-1, 2, 2)


def regressed(
    mean: np.ndarray,
    covariance: np.ndarray,
    before: np.ndarray,
    moved: np.ndarray,
    after: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Own states [U, 4] after (level, slope) moved and its covariance went from before to after.

    Joseph's form, which keeps covariances positive definite.
    """
    with_own = _with_own(covariance)
    gain = with_own @ inverse(before)
    rest = covariance - gain @ with_own.transpose(0, 2, 1)  # (1 - gain OWN) covariance
    noise = before - of_own(covariance) + after
    kept = rest + (gain @ noise - _with_own(rest)) @ gain.transpose(0, 2, 1)
    return mean + times(gain, moved), (kept + kept.transpose(0, 2, 1)) / 2.0


def _with_own(covariance: np.ndarray) -> np.ndarray:
    """Covariances [U, 4, 2] of own states with (level, slope), of those of states [U, 4, 4]."""
    return (covariance.reshape(-1, 4) @ OWN.T).reshape(-1, 4, 2)


class Branches:
    """The parents of a day's rows, and theirs.

    Args:
        levels: ids of all parents, of each level from far to near.
        parent: int64 [V], of each id; 0: none.
        attached: int64 [U], of each row.
        tie_of_rows: float64 [U, 4, 4], of each row to its parent.
        covariance: float64 [V, 4, 4], of each id given its parent.
        tie: float64 [V, 4, 4], of each id to its parent.
        day: float64 [V], variance of what all below a parent have in common on a single day.

    Attributes:
        nodes: int64 [G], the ids of the parents that the rows have, level by level.
        evidence: what they add to the log likelihood.
    """

    def __init__(
        self,
        levels: list[np.ndarray],
        parent: np.ndarray,
        attached: np.ndarray,
        tie_of_rows: np.ndarray,
        *,
        covariance: np.ndarray,
        tie: np.ndarray,
        day: np.ndarray,
    ) -> None:
        met = np.zeros(len(parent), bool)
        met[attached] = True
        for _ in levels:
            met[parent[met]] = True
        of_level = [ids[met[ids]] for ids in levels]
        self.nodes = np.concatenate([np.zeros(0, np.int64), *of_level])
        self._levels = [slice(*ends) for ends in pairwise(np.cumsum([0, *map(len, of_level)]))]
        place = np.full(len(parent), -1)  # the last place is for what has no parent
        place[self.nodes] = np.arange(len(self.nodes))
        self._above, self._of_row = place[parent[self.nodes]], place[attached]
        self._own, self._tie = covariance[self.nodes], tie[self.nodes]
        self._row_tie = OWN @ tie_of_rows
        self._after, self._tied = self._own, self._tie
        self._moved = np.zeros((len(self.nodes) + 1, 4))
        self._day = day[self.nodes]
        # what a parent and those above have on this day, and its variance
        self._today, self._unsure = np.zeros((2, len(self.nodes) + 1))
        self.evidence = 0.0

    @property
    def shift(self) -> np.ndarray:
        """How far (level, slope) of each row moved with its parents, float64 [U, 2]."""
        moved = times(self._row_tie, self._moved[self._of_row])
        moved[:, LEVEL] += self._today[self._of_row]
        return moved

    @property
    def unsure(self) -> np.ndarray:
        """What stays open of what the day alone brought to each row's parents, float64 [U]."""
        return self._unsure[self._of_row]

    def gathered(
        self, loadings: np.ndarray, pull: np.ndarray, information: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """What all rows say of what all share: pull [K] and information [K, K].

        A message is a quadratic in the state of a parent and in what all share, whose first part
        is added to levels, as what a single day brings is.

        Args:
            loadings: float64 [U, 2, K], of the rows.
            pull: float64 [U, 2], gradient of the log likelihood at no offset.
            information: float64 [U, 2, 2].
        """
        size, width = len(self.nodes), 4 + loadings.shape[2]
        rows = np.concatenate([self._row_tie, loadings], axis=2)
        turned = rows.transpose(0, 2, 1)
        h, j = np.zeros((size + 1, width)), np.zeros((size + 1, width, width))
        np.add.at(h, self._of_row, times(turned, pull))
        np.add.at(j, self._of_row, turned @ information @ rows)
        up = np.tile(np.eye(width), (size, 1, 1))
        up[:, :4, :4] = self._tie
        self._news = []
        for level in reversed(self._levels):
            day, column, said = self._day[level], j[level, 4].copy(), h[level, 4].copy()
            kept = 1.0 / (1.0 + day * column[:, 4])
            h[level] -= (day * kept * said)[:, None] * column
            j[level] -= (day * kept)[:, None, None] * column[:, :, None] * column[:, None, :]
            self._news.append((kept, column, said))
            across = j[level, :4].transpose(0, 2, 1)
            freed = across @ self._own[level] @ _open(j[level], self._own[level])
            turned = up[level].transpose(0, 2, 1)
            said_h = times(turned, h[level] - times(freed, h[level, :4]))
            said_j = turned @ (j[level] - freed @ j[level, :4]) @ up[level]
            np.add.at(h, self._above[level], said_h)
            np.add.at(j, self._above[level], said_j)
        self._pull, self._information = h, j
        return h[-1, 4:], j[-1, 4:, 4:]

    def follow(self, shift: np.ndarray) -> None:
        """Learn the states of the parents, after what all share moved by a `shift`, float64 [K]."""
        self.evidence = 0.0
        after, tied = np.empty_like(self._own), np.empty_like(self._tie)
        for level, (kept, column, said) in zip(self._levels, reversed(self._news), strict=True):
            h, j, own, tie, day = (
                each[level]
                for each in (self._pull, self._information, self._own, self._tie, self._day)
            )
            with_parent = times(tie, self._moved[self._above[level]])
            there = np.tile(shift, (len(h), 1))
            there[:, 0] += self._today[self._above[level]]
            told = h[:, :4] - times(j[:, :4, 4:], there) - times(j[:, :4, :4], with_parent)
            open_to = _open(j, own)
            pulled = times(open_to, told)
            by_itself = times(own, pulled)
            self._moved[level] = with_parent + by_itself
            after[level] = own @ open_to
            tied[level] = tie - after[level] @ j[:, :4, :4] @ tie
            place = np.concatenate([self._moved[level], there], axis=1)
            new = kept * (said - (column * place).sum(axis=1))
            self._today[level] = self._today[self._above[level]] + day * new
            self._unsure[level] = self._unsure[self._above[level]] + day * kept
            volume = np.linalg.slogdet(open_to)[1] - (by_itself * pulled).sum(axis=1)
            self.evidence += 0.5 * float((volume + np.log(kept) - day * new**2).sum())
        self._after, self._tied = after, tied

    def learned(
        self, mean: np.ndarray, covariance: np.ndarray, tie: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Copies of the states of all ids after the parents learned.

        Args:
            mean: float64 [V, 4]; the ids below move with their parents elsewhere.
            covariance: float64 [V, 4, 4].
            tie: float64 [V, 4, 4].
        """
        mean, covariance, tie = mean.copy(), covariance.copy(), tie.copy()
        mean[self.nodes] += self._moved[:-1]
        covariance[self.nodes] = (self._after + self._after.transpose(0, 2, 1)) / 2.0
        tie[self.nodes] = self._tied
        return mean, covariance, tie


def _open(information: np.ndarray, own: np.ndarray) -> np.ndarray:
    """(1 + information · own)⁻¹ of the states alone, float64 [G, 4, 4]."""
    return np.linalg.inv(np.eye(4) + information[:, :4, :4] @ own)


def untied(
    tie: np.ndarray, covariance: np.ndarray, before: np.ndarray, after: np.ndarray
) -> np.ndarray:
    """How states [U, 4] hang on their parents' after (level, slope) of each were seen.

    Args:
        tie: float64 [U, 4, 4], before.
        covariance: float64 [U, 4, 4], of the states given their parents', before.
        before, after: float64 [U, 2, 2], of (level, slope) given those.
    """
    back = inverse(before)
    gain = (covariance @ OWN.T) @ back @ (np.eye(2) - after @ back)
    return tie - gain @ (OWN @ tie)
