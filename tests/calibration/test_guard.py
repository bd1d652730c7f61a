"""The guard: days whose labels move too much are left out, sound ones are not."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from pipeline.calibration.prior.forward import follow
from pipeline.calibration.prior.quadrature import LEVEL
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
