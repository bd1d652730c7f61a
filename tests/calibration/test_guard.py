"""The guard: days whose labels move too much are left out, sound ones are not."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.special import expit

from pipeline.calibration.prior.daily import DailyCounts
from pipeline.calibration.prior.forward import expected_moves, follow
from pipeline.calibration.prior.quadrature import LEVEL, DayRows
from tests.calibration.moving_world import moving_world

NEWEST = 20_039
DAMAGE = {
    "half of the labels lost": (1.0, 0.5),
    "labels doubled": (1.0, 2.0),
    "ten times the impressions without clicks": (10.0, 1.0),
    "no labels yet": (1.0, 0.0),
}


def damaged(world, day, impressions, responses):
    """The log with the counts of a day multiplied."""
    on_day = world.counts.day == day
    counts = world.counts
    n = np.where(on_day, counts.impressions * impressions, counts.impressions)
    y = np.where(on_day, np.round(counts.responses * responses), counts.responses)
    return replace(world, counts=replace(counts, impressions=n, responses=np.minimum(y, n)))


def moves_of(world, *accepted):
    """What the guard said of each day."""
    guard = world.guard(*accepted)
    passed = world.followed(guard=guard)
    return guard, passed


@cache
def without_newest(seed):
    """A log that lacks the newest day, followed."""
    world = moving_world(seed)
    lacking = world.counts.take(world.counts.day < NEWEST)
    return follow(world.model(), lacking, 1, world.guard(), until=NEWEST + 1)


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_damaged_newest_day_is_refused_and_changes_nothing(damage, seed):
    world = moving_world(seed)
    counts, guard = damaged(world, NEWEST, *DAMAGE[damage]).counts, world.guard()
    refused = follow(world.model(), counts, 1, guard)
    assert {move.day for move in guard.moves if move.refused} == {NEWEST}
    next_day, same = (each.forecasts[NEWEST + 1] for each in (refused, without_newest(seed)))
    assert np.array_equal(next_day.mean, same.mean)
    assert np.array_equal(next_day.covariance, same.covariance)


def test_hardly_any_sound_day_is_refused():
    """Of eight logs that move as the filter believes, days from the eighth on: one in a hundred."""
    days = refused = 0
    for seed in range(8):
        guard, _ = moves_of(moving_world(seed))
        days += 40 - 7
        refused += len({move.day for move in guard.moves if move.refused})
    assert refused <= 0.01 * days


def test_a_day_that_was_accepted_is_learned_from():
    world = damaged(moving_world(), NEWEST, 1.0, 0.5)
    guard, accepting = moves_of(world, NEWEST)
    _, refusing = moves_of(world)
    assert NEWEST in accepting.fitted
    assert not any(move.refused for move in guard.moves)
    accepted, refused = (each.forecasts[NEWEST + 1].mean for each in (accepting, refusing))
    assert accepted[:, LEVEL].mean() < refused[:, LEVEL].mean()


@pytest.mark.parametrize("day", [20_010, 20_015, 20_025])
@pytest.mark.parametrize("seed", [0, 2])
def test_a_day_in_the_middle_is_missing_and_later_ones_are_learned_from(seed, day):
    """Also where few days are known: the first one, which teaches most, hides nothing."""
    world = damaged(moving_world(seed), day, 1.0, 0.5)
    guard, passed = moves_of(world)
    assert {move.day for move in guard.moves if move.refused} == {day}
    assert {day - 1, day + 1, NEWEST} <= set(passed.fitted)


def test_the_largest_value_alone_is_refused_by_name():
    world = moving_world(0)
    counts = world.counts
    broken = (counts.day == NEWEST) & (counts.field_value_id == 1)
    lost = replace(counts, responses=np.where(broken, 0.0, counts.responses))
    guard, _ = moves_of(replace(world, counts=lost))
    assert 1 in {move.field_value_id for move in guard.moves if move.refused}


def test_the_first_week_is_never_refused_and_every_day_has_its_move():
    guard, _ = moves_of(damaged(moving_world(), 20_003, 1.0, 0.0))
    assert not any(move.refused for move in guard.moves if move.day < 20_007)
    assert [m.day for m in guard.moves if m.field_value_id is None] == list(range(20_000, 20_040))


def with_newborn(world, share, rate):
    """The log with a value that comes on the newest day, with a share of its rows."""
    counts, today = world.counts, world.counts.day == NEWEST
    shown = share / (1 - share) * counts.impressions[today].sum()
    newborn = (counts.logit[:1], [len(world.shown)], [shown], [np.round(rate * shown)], [NEWEST])
    names = ("logit", "field_value_id", "impressions", "responses", "day")
    columns = {n: np.append(getattr(counts, n), c) for n, c in zip(names, newborn, strict=True)}
    return replace(world, counts=DailyCounts(**columns), shown=np.append(world.shown, 0.0))


@pytest.mark.parametrize(("share", "rate"), [(0.3, 0.12), (0.5, 0.006)])
def test_a_new_value_of_much_traffic_is_no_fault_and_hides_none(share, rate):
    world = with_newborn(moving_world(3), share, rate)
    assert not any(move.refused for move in moves_of(world)[0].moves)
    no_labels = damaged(with_newborn(moving_world(3), 0.1, rate), NEWEST, 1.0, 0.0)
    assert {move.day for move in moves_of(no_labels)[0].moves if move.refused} == {NEWEST}


def test_days_move_as_far_as_was_expected():
    """Of days whose levels are drawn from what is believed and whose counts from these."""
    world, rng = moving_world(5, n_values=30, shown=2_000.0, days=12), np.random.default_rng(0)
    model, last = world.model(), int(world.counts.days[-1])
    beliefs = model.start()
    for day in world.counts.days[:-1].tolist():
        beliefs, _ = model.update(
            model.ahead(beliefs, 1), DayRows.of(world.counts, day, model.usual)
        )
    beliefs, largest = model.ahead(beliefs, 1), world.guard().largest
    rows, before = world.counts.of_day(last), model.ahead(beliefs, 1)
    ids, served = rows.field_value_id, model.forecast(before)
    moved, expected = [], []
    for _ in range(400):
        own = [
            rng.multivariate_normal(m, c)
            for m, c in zip(beliefs.mean, beliefs.covariance, strict=True)
        ]
        shared = rng.multivariate_normal(beliefs.shared_mean, beliefs.shared_covariance)
        line = model.lines(replace(beliefs, mean=np.stack([*own]), shared_mean=shared))[ids]
        line[:, LEVEL] += rng.normal(0, world.variances.day**0.5, len(ids))
        p = expit(line[:, 0] + line[:, 1] * (rows.logit - model.usual[ids]))
        drawn = replace(rows, responses=rng.binomial(rows.impressions.astype(int), p).astype(float))
        after, _ = model.update(beliefs, DayRows.of(drawn, last, model.usual))
        after = model.ahead(after, 1)
        each = [
            rows.impressions * expit(f(rows.logit, ids)) for f in (served, model.forecast(after))
        ]
        sums = [np.r_[e.sum(), [e[ids == value].sum() for value in largest]] for e in each]
        moved.append(np.log(sums[1] / sums[0]))
        expected.append(expected_moves(model, (before, after), served, drawn, largest))
    ratio = np.std(moved, axis=0) / np.sqrt(np.mean(np.square(expected), axis=0))
    assert ratio == pytest.approx(1.0, abs=0.15)
