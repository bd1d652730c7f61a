"""Calibrators as they are used: no forecast knows a label that its morning did not."""

from dataclasses import fields, replace

import numpy as np
import pytest

from pipeline.calibration.roll import roll
from tests.calibration.curved_world import curved_world, settings_with, tables_of

FIRST, KNOWN, LAST = 20_000, 20_009, 20_015
QUICK = settings_with(steps=3)
NAMES = ["identity", "isotonic", "eb_platt", "adacalib"]


@pytest.fixture(scope="module")
def tables():
    """Ten days that are learned from and six later ones."""
    scores, _ = curved_world(rows=5000, n_values=4, days=16, drift=0.2)
    return tables_of(scores, (2, 4), 40, made_until=KNOWN)


def rolled(tables, horizon, until=LAST, **options):
    """The maps of all days that may be asked for."""
    asked = dict.fromkeys(range(KNOWN + horizon, until + horizon + 1))
    given = {"known_until": KNOWN, "asked": asked, "horizon_days": horizon}
    return roll(tables, QUICK, **(given | options))


def with_labels(tables, rows, seed):
    """The tables with other labels of some rows of cells."""
    cells, rng = tables.cells, np.random.default_rng(seed)
    drawn = rng.binomial(cells.impressions.astype(int), rng.choice([0.0, 0.05, 0.5, 1.0]))
    return replace(tables, cells=replace(cells, responses=np.where(rows, drawn, cells.responses)))


def same(one, other):
    """Whether two maps are equal to the last bit."""
    return all(
        np.array_equal(getattr(one, field.name), getattr(other, field.name))
        for field in fields(one)
    )


@pytest.fixture(scope="module")
def daily(tables):
    """With the labels of the day before."""
    return rolled(tables, 1)


@pytest.fixture(scope="module", params=[1, 3])
def usual(request, tables, daily):
    return request.param, daily if request.param == 1 else rolled(tables, request.param)


@pytest.mark.parametrize("seed", range(2))
def test_labels_of_days_that_are_not_known_yet_change_no_forecast(tables, usual, seed):
    """Of any day t, by any calibrator: labels of days after t - h may be anything."""
    (horizon, before), rng = usual, np.random.default_rng(seed)
    first = int(rng.integers(KNOWN + 1, LAST + 1))
    some = rng.random(len(tables.cells)) < rng.choice([0.2, 1.0])
    after = rolled(with_labels(tables, (tables.cells.day >= first) & some, seed), horizon)
    assert list(after.maps) == NAMES
    for name in NAMES:
        for day in range(KNOWN + horizon, first + horizon):
            assert same(before.maps[name][day].map, after.maps[name][day].map), (name, day)
    assert after.choice == before.choice
    assert after.windows == before.windows


def test_labels_that_are_known_do_change_forecasts(tables, usual):
    horizon, before = usual
    changed = with_labels(tables, tables.cells.day == KNOWN + 1, 1)
    after = rolled(changed, horizon)
    day = KNOWN + 1 + horizon
    assert not same(before.maps["eb_platt"][day].map, after.maps["eb_platt"][day].map)
    assert not same(before.maps["adacalib"][day].map, after.maps["adacalib"][day].map)


def test_the_same_days_give_the_same_maps_to_the_bit(tables, usual):
    horizon, before = usual
    again = rolled(tables, horizon)
    for name in NAMES:
        assert all(same(again.maps[name][d].map, m.map) for d, m in before.maps[name].items())


def test_a_log_without_the_newest_days_makes_the_earlier_forecasts(tables, usual):
    """Deleted and forecast from farther away, a day is what it was."""
    horizon, before = usual
    cells = tables.cells.take(tables.cells.day <= LAST - 2)
    shorter = rolled(replace(tables, cells=cells), horizon, LAST - 2)
    for name in NAMES:
        day = LAST - 2 + horizon
        assert same(shorter.maps[name][day].map, before.maps[name][day].map)


def test_days_without_rows_at_the_end_are_forecast_all_the_same(tables):
    cells = tables.cells.take(tables.cells.day <= KNOWN)
    of_days = rolled(replace(tables, cells=cells), 1).maps["adacalib"]
    assert set(of_days) == set(range(KNOWN + 1, LAST + 2))
    assert np.isfinite(of_days[LAST + 1].map.segment_values).all()


def test_maps_of_some_field_values_are_those_of_all(tables, daily):
    few = roll(
        tables, QUICK, known_until=KNOWN,
        asked={KNOWN + 1: None, KNOWN + 2: np.array([3, 1, 3])},
    )  # fmt: skip
    at = np.linspace(-4, 0, 7)
    for name in NAMES:
        assert set(few.maps[name][KNOWN + 2].ids) <= {0, 1, 3}
        for value in (0, 1, 3):
            ids = np.full(7, value)
            one, other = (r.maps[name][KNOWN + 2](at, ids) for r in (few, daily))
            assert np.array_equal(one, other)


def test_too_few_days_make_no_choice_and_eb_platt_ships(tables):
    few = replace(tables, cells=tables.cells.take(tables.cells.day < FIRST + 5))
    known = FIRST + 3
    served = roll(few, QUICK, known_until=known, asked={known + 1: None})
    assert served.choice is None
    assert served.chosen == "eb_platt"
    enough = roll(few, QUICK, known_until=known + 1, asked={known + 2: None})
    assert enough.choice is not None


@pytest.fixture(scope="module")
def busy():
    """Days of which the newest two come after those that bins were cut on."""
    scores, _ = curved_world(rows=60_000, n_values=5, days=24, curvature=0.0)
    return tables_of(scores, (2, 4), 40, made_until=20_021)


NEWEST = 20_023


@pytest.fixture(scope="module")
def broken(busy):
    """The newest day has lost its labels."""
    lost = busy.cells.day == NEWEST
    responses = np.where(lost, 0, busy.cells.responses)
    return replace(busy, cells=replace(busy.cells, responses=responses))


@pytest.fixture(scope="module")
def refused(broken):
    """What is served where that day is left out."""
    return roll(broken, QUICK, known_until=NEWEST, asked={NEWEST + 1: None})


def test_what_a_refused_newest_day_holds_changes_nothing(busy, refused):
    lacking = replace(busy, cells=busy.cells.take(busy.cells.day != NEWEST))
    served = [refused, roll(lacking, QUICK, known_until=NEWEST, asked={NEWEST + 1: None})]
    assert served[0].fit.refused_days == {NEWEST}
    assert served[1].fit.refused_days == set()
    for name in NAMES:
        one, other = (each.maps[name][NEWEST + 1].map for each in served)
        assert same(one, other), name


def test_a_refused_day_that_is_accepted_is_learned_from(broken, refused):
    served = roll(broken, QUICK, known_until=NEWEST, asked={NEWEST + 1: None}, accepted=[NEWEST])
    assert served.fit.refused_days == set()
    at, ids = np.array([-2.0]), np.array([1])
    low, usual = (each.maps["adacalib"][NEWEST + 1](at, ids)[0] for each in (served, refused))
    assert low < usual


def test_the_choice_and_windows_that_are_given_are_kept(tables):
    given = {"isotonic": 5, "eb_platt": 9}
    assert rolled(tables, 1, windows=given).windows == given


def test_a_value_that_is_born_later_has_a_map_of_its_own_from_its_second_day_on(tables):
    """Until it is seen it is served by the unseen value's map."""
    cells = tables.cells
    newborn = (cells.field_value_id == 2) & (cells.day <= KNOWN + 1)
    cells, first = cells.take(~newborn), [KNOWN + 2]  # on which it is a fourth of all rows
    young = rolled(replace(tables, cells=cells), 1, accepted=first)
    at, ids = np.linspace(-4, 0, 7), np.full(7, 2)
    lines = [young.maps["adacalib"][day](at, ids) for day in range(KNOWN + 1, LAST + 1)]
    unseen = [young.maps["adacalib"][day](at, 0 * ids) for day in range(KNOWN + 1, LAST + 1)]
    np.testing.assert_allclose(lines[0], unseen[0], atol=1e-9)
    np.testing.assert_allclose(lines[1], unseen[1], atol=1e-9)
    assert all(np.abs(a - b).max() > 0.01 for a, b in zip(lines[2:], unseen[2:], strict=True))


def test_a_value_of_one_row_and_a_log_of_one_value_are_served(tables):
    cells = tables.cells
    one = cells.take(cells.field_value_id == 1)
    served = rolled(replace(tables, cells=one), 1)
    assert np.isfinite(served.maps["adacalib"][LAST].map.segment_values).all()
    single = (cells.field_value_id != 3) | (np.cumsum(cells.field_value_id == 3) == 1)
    served = rolled(replace(tables, cells=cells.take(single)), 1)
    assert np.isfinite(served.maps["adacalib"][LAST].map.segment_values).all()


def test_days_may_be_missing_anywhere(tables):
    """A week without rows among those that are learned from, and a later day."""
    cells = tables.cells
    there = ((cells.day < FIRST + 2) | (cells.day > FIRST + 4)) & (cells.day != KNOWN + 2)
    served = rolled(replace(tables, cells=cells.take(there)), 1)
    for name in NAMES:
        assert set(served.maps[name]) == set(range(KNOWN + 1, LAST + 2))
        assert np.isfinite(served.maps[name][KNOWN + 3].map.segment_values).all()
