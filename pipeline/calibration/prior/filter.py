"""The filter: offsets and slopes that follow the days, one predict-update step a day.

calibrated_logit = level_{z,t} + slope_{z,t} · (uncalibrated_logit - x̄_z) on day t, with

    level = x̄_z + a_z + u_{z,t} + v_{z,t} + w_{z,t} + shared,    slope = b_z + shared

x̄_z the field value's usual logit, a_z and b_z its lasting offset and slope, u and v movements that
revert to their mean (Ornstein-Uhlenbeck with TIME_CONSTANTS), w noise of single days. What all
values share has the same parts, passes sooner (SHARED_TIME_CONSTANTS), and has a line in x̄_z. Where
field values have parents, what the children of one share (a, b, u, v, w of its own) is added, and
what the parent shares with its like. All is normal before it is seen. A day's counts are binomial;
each field value's posterior of (level, slope) is carried on by its mean and covariance (assumed
density filtering; Minka 2001). A day's covariance between what a value has of its own and what it
shares is dropped.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq

from pipeline.calibration.prior.branches import OWN, Branches, of_own, regressed, untied
from pipeline.calibration.prior.day_forecast import DayForecast, unseen_line
from pipeline.calibration.prior.quadrature import FARTHEST, LEVEL, SLOPE, DayRows, mean_logit, times
from pipeline.formats.tables import FieldTree

TIME_CONSTANTS = np.array([30.0, 3.0])  # days in which a movement loses all but 1/e of itself
SHARED_TIME_CONSTANTS = np.array([30.0, 1.5])  # the same, of what all share
KEPT, SHARED_KEPT = np.exp(-1.0 / TIME_CONSTANTS), np.exp(-1.0 / SHARED_TIME_CONSTANTS)
SHARED_START = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0])  # lasting, slow, fast, day, line; slope
SHARED_SPREAD = np.array([1.0, 0.25, 0.25])  # variances of lasting, line and slope


@dataclass(frozen=True)
class Variances:
    """How much field values differ and move, in logits²; slopes per unit of logit.

    The defaults are what is believed before a log is seen (`learning` says where they are from).

    Attributes:
        levels: what the children of a parent share, by level from near to far: by what the default
            of lasting, and slow, fast and slope as they are, are multiplied for it.
        level_days: what they share on a single day, by level.
    """

    lasting: float = 0.25
    slow: float = 0.08
    fast: float = 0.06
    day: float = 0.005
    slope: float = 0.05
    shared_slow: float = 0.004
    shared_fast: float = 0.004
    shared_day: float = 0.001
    levels: tuple[float, ...] = ()
    level_days: tuple[float, ...] = ()


@dataclass(frozen=True)
class Beliefs:
    """The state of the filter.

    Attributes:
        mean: float64 [V, 4], (lasting, slow, fast, slope) of each id, what its parents share
            included.
        covariance: float64 [V, 4, 4], given the state of the parent.
        tie: float64 [V, 4, 4], of each state to its parent's (`branches`).
        shared_mean: float64 [6].
        shared_covariance: float64 [6, 6].
        seen: bool [V], the ids that something was learned of.
        parent: int64 [V], the id of the parent; 0: none.
    """

    mean: np.ndarray
    covariance: np.ndarray
    shared_mean: np.ndarray
    shared_covariance: np.ndarray
    tie: np.ndarray
    seen: np.ndarray
    parent: np.ndarray


class Filter:
    """The steps from day to day.

    Args:
        variances: of what differs and moves.
        usual: float64 [V], x̄_z.
        center: mean of x̄ over impressions.
        tree: what the field values belong to; None: nothing.
    """

    def __init__(
        self, variances: Variances, usual: np.ndarray, center: float, tree: FieldTree | None = None
    ) -> None:
        self.variances, self.usual = variances, usual
        self.tree = tree or FieldTree.flat(len(usual))
        self.loadings = np.zeros((len(usual), 2, len(SHARED_START)))
        self.loadings[:, LEVEL, :4] = 1.0
        self.loadings[:, LEVEL, 4] = usual - center
        self.loadings[:, SLOPE, 5] = 1.0
        v = variances
        self.own = np.diag([v.lasting, v.slow, v.fast, v.slope])
        of_parents = np.diag([Variances.lasting, v.slow, v.fast, v.slope])
        of_levels = [self.own, *(size * of_parents for size in v.levels), self.own]
        self.each = np.stack(of_levels)[self.tree.level]
        self.of_days = np.array([0.0, *v.level_days, 0.0])[self.tree.level]

    def start(self) -> Beliefs:
        """What is believed on the eve of the first day."""
        v, (lasting, line, slope) = self.variances, SHARED_SPREAD
        shared = [lasting, v.shared_slow, v.shared_fast, 0.0, line, slope]
        n = len(self.usual)
        return Beliefs(
            np.zeros((n, 4)), self.each, SHARED_START, np.diag(shared),
            np.where(self.tree.parent[:, None, None] > 0, np.eye(4), 0.0),
            np.zeros(n, dtype=bool), self.tree.parent,
        )  # fmt: skip

    def ahead(self, beliefs: Beliefs, days: int) -> Beliefs:
        """What is believed of a day `days` later (1 or more) before anything in between is seen."""
        v, kept, shared_kept = self.variances, KEPT**days, SHARED_KEPT**days
        own, shared = np.array([1.0, *kept, 1.0]), np.array([1.0, *shared_kept, 0.0, 1.0, 1.0])
        added = self.each * np.diag([0.0, *(1.0 - kept**2), 0.0])
        moves = np.array([v.shared_slow, v.shared_fast]) * (1.0 - shared_kept**2)
        of_shared = [0.0, *moves, v.shared_day, 0.0, 0.0]
        both = np.outer(own, own)
        covariance, tie = beliefs.covariance * both + added, beliefs.tie
        if self.tree.depth:
            covariance, tie = self._still_tied(beliefs, both, added)
        return replace(
            beliefs,
            mean=beliefs.mean * own,
            covariance=covariance,
            tie=tie,
            shared_mean=beliefs.shared_mean * shared,
            shared_covariance=beliefs.shared_covariance * np.outer(shared, shared)
            + np.diag(of_shared),
        )

    def _still_tied(
        self, beliefs: Beliefs, kept: np.ndarray, added: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Covariances given the parents, and ties, after all moved: regression on the parents'.

        Args:
            beliefs: before.
            kept: float64 [4, 4], share of a covariance that stays.
            added: float64 [V, 4, 4], what is added to each id's own.
        """
        spread = self.spread(beliefs)
        added[0] = 0.0
        moved = self._of_chain(added, beliefs)
        tied = np.flatnonzero(beliefs.parent)
        above = beliefs.parent[tied]
        with_parent = beliefs.tie[tied] @ spread[above] * kept + moved[above]
        of_parent = spread[above] * kept + moved[above]
        tie, covariance = beliefs.tie.copy(), spread * kept + moved
        tie[tied] = with_parent @ np.linalg.inv(of_parent)
        covariance[tied] -= tie[tied] @ with_parent.transpose(0, 2, 1)
        return (covariance + covariance.transpose(0, 2, 1)) / 2.0, tie

    def moved(self, beliefs: Beliefs, day: int) -> Beliefs:
        """The beliefs with the parents of a day.

        A field value that moves keeps its level, which may have changed by as much as values have
        of their own, and owes nothing to the new parent.
        """
        if day not in self.tree.moves:
            return beliefs
        ids, parents = self.tree.moves[day]
        covariance, tie, parent = (
            each.copy() for each in (beliefs.covariance, beliefs.tie, beliefs.parent)
        )
        covariance[ids] = self.spread(beliefs)[ids] + self.own
        tie[ids], parent[ids] = 0.0, parents
        return replace(beliefs, covariance=covariance, tie=tie, parent=parent)

    def lines(self, beliefs: Beliefs) -> np.ndarray:
        """Mean (level, slope) of every id on the day that the beliefs are of, float64 [V, 2]."""
        mean = beliefs.mean @ OWN.T + _along(self.loadings, beliefs.shared_mean)
        mean[:, LEVEL] += self.usual
        return mean

    def forecast(self, beliefs: Beliefs) -> DayForecast:
        """(level, slope) of every field value on the day that the beliefs are of.

        A parent's is that of a child of which nothing is known, right in the mean over children.
        What belongs to nothing that was seen has the line of `unseen_line`.
        """
        mean = self.lines(beliefs)
        spread, covered = self.spread(beliefs), beliefs.seen
        if self.tree.depth:
            spread += np.where(self.tree.level[:, None, None] > 0, self.own, 0.0)
            covered = covered | covered[self.tree.serving(covered)]
        covariance = of_own(spread) + self._of_shared(beliefs.shared_covariance)
        covariance[:, LEVEL, LEVEL] += self.variances.day + self._of_chain(self.of_days, beliefs)
        if beliefs.seen.any():
            self._set_unseen(beliefs, ~covered, mean, covariance)
        return DayForecast(mean, covariance, self.usual)

    def _set_unseen(
        self, beliefs: Beliefs, unseen: np.ndarray, mean: np.ndarray, covariance: np.ndarray
    ) -> None:
        """Change the mean of unseen rows to that of an unseen value, in place.

        The normal prior holds what most values have, and a few that lie far off make most of the
        mean rate, so it is learned from the posteriors of those seen. What is then served
        integrates σ; the level is the one that it needs.
        """
        seen = beliefs.seen & (self.tree.level == 0)
        lines = DayForecast(mean[seen], covariance[seen], self.usual[seen])
        level, slope = unseen_line(lines, self.usual[seen], self.usual[0])
        variance = covariance[0, LEVEL, LEVEL]
        away = FARTHEST * np.sqrt(variance)
        level = brentq(lambda at: mean_logit(at, variance) - level, level - away, level + away)
        mean[unseen, LEVEL] = level + slope * (self.usual[unseen] - self.usual[0])
        mean[unseen, SLOPE] = slope

    def _of_shared(
        self, covariance: np.ndarray, ids: np.ndarray | slice = slice(None)
    ) -> np.ndarray:
        loadings = self.loadings[ids]
        return np.einsum("uia,uja->uij", _along(loadings, covariance), loadings)

    def _downward(self) -> list[np.ndarray]:
        """The ids of all levels, parents before their children."""
        return [*self.tree.nodes(), np.flatnonzero(self.tree.level == 0)] if self.tree.depth else []

    def _of_chain(self, each: np.ndarray, beliefs: Beliefs) -> np.ndarray:
        """What is each id's own, [V, …] and 0 of the id 0, with that of all its parents."""
        total = each.copy()
        for ids in self._downward():
            total[ids] += total[beliefs.parent[ids]]
        return total

    def spread(self, beliefs: Beliefs) -> np.ndarray:
        """Covariance of each state, whatever its parent's is, float64 [V, 4, 4]."""
        spread = beliefs.covariance.copy()
        for ids in self._downward():
            tie, of_parent = beliefs.tie[ids], spread[beliefs.parent[ids]]
            spread[ids] += tie @ of_parent @ tie.transpose(0, 2, 1)
        return spread

    def update(self, beliefs: Beliefs, day: DayRows) -> tuple[Beliefs, float]:
        """What is believed after the day's rows, and their log likelihood under the beliefs before.

        What is shared learns first, from the modes of all values, what each parent's children share
        with it; each value then, by quadrature, under what is left open of that.
        """
        ids, learned = day.ids, self.tree.level[day.ids] == 0  # the others: values nobody knows
        mean = self.lines(beliefs)[ids]
        own = np.where(learned[:, None, None], beliefs.covariance[ids], self.own)
        covariance = of_own(own)
        covariance[:, LEVEL, LEVEL] += self.variances.day
        branches = self._branches(beliefs, ids)
        shift, left, evidence, near = self._learn_shared(beliefs, branches, day, mean, covariance)
        mean += _along(self.loadings[ids], shift)
        before = covariance + self._of_shared(left, ids)
        if branches:
            mean += branches.shift
            before[:, LEVEL, LEVEL] += branches.unsure
        middle, after, of_values = day.integrate(mean, before, near)
        ids, before, after = ids[learned], before[learned], after[learned]
        state, spread, tie, seen = self._with_parents(beliefs, branches)
        if branches:
            evidence += branches.evidence
            tie[ids] = untied(tie[ids], spread[ids], before, after)
        moved = (middle - mean)[learned]
        state[ids], spread[ids] = regressed(state[ids], spread[ids], before, moved, after)
        seen[ids] = True
        kept = Beliefs(state, spread, beliefs.shared_mean + shift, left, tie, seen, beliefs.parent)
        return kept, evidence + float(of_values.sum())

    def _with_parents(
        self, beliefs: Beliefs, branches: Branches | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """States, covariances, ties and what was seen after the parents learned, to be changed."""
        seen = beliefs.seen.copy()
        if not branches:
            return beliefs.mean.copy(), beliefs.covariance.copy(), beliefs.tie, seen
        seen[branches.nodes] = True
        mean, covariance, tie = branches.learned(beliefs.mean, beliefs.covariance, beliefs.tie)
        moved = mean - beliefs.mean
        rest = np.ones(len(mean), bool)
        rest[branches.nodes] = False
        for ids in (ids[rest[ids]] for ids in self._downward()):
            moved[ids] = times(beliefs.tie[ids], moved[beliefs.parent[ids]])
        return beliefs.mean + moved, covariance, tie, seen

    def _branches(self, beliefs: Beliefs, ids: np.ndarray) -> Branches | None:
        """The parents of a day's rows; None where field values have none."""
        if not self.tree.depth:
            return None
        child = self.tree.level[ids] == 0
        return Branches(
            self.tree.nodes(),
            beliefs.parent,
            np.where(child, beliefs.parent[ids], ids),
            np.where(child[:, None, None], beliefs.tie[ids], np.eye(4)),
            covariance=beliefs.covariance,
            tie=beliefs.tie,
            day=self.of_days,
        )

    def _learn_shared(
        self,
        beliefs: Beliefs,
        branches: Branches | None,
        day: DayRows,
        mean: np.ndarray,
        covariance: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        """How far the shared moves, what stays open of it, what that adds to the evidence.

        And where the rows' (level, slope) were found under that, float64 [U, 2].
        """
        loadings = self.loadings[day.ids]
        prior = np.linalg.inv(beliefs.shared_covariance)
        shift, middle = np.zeros(len(prior)), mean
        for first in (True, False):  # modes first; then means, about that answer
            offset = _along(loadings, shift)
            if branches:
                offset += branches.shift
            there = mean + offset
            find = day.mode if first else day.integrate
            middle, posterior = find(there, covariance, middle)[:2]
            pull, information = day.said(there, covariance, middle, posterior)
            pull += times(information, offset)
            if branches:
                toward, of_shared = branches.gathered(loadings, pull, information)
            else:
                flat = loadings.reshape(-1, len(shift))
                of_shared = flat.T @ (information @ loadings).reshape(flat.shape)
                toward = flat.T @ pull.ravel()
            left = np.linalg.inv(prior + of_shared)
            shift = left @ toward
            if branches:
                branches.follow(shift)
        left = (left + left.T) / 2.0
        volume = np.linalg.slogdet(left)[1] + np.linalg.slogdet(prior)[1]
        return shift, left, float(volume - shift @ prior @ shift) / 2.0, middle


def _along(loadings: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """Products of loadings [U, 2, K] with what is shared, [K] or [K, K], as one of matrices."""
    product = loadings.reshape(-1, loadings.shape[2]) @ shared
    return product.reshape(len(loadings), 2, *shared.shape[1:])
