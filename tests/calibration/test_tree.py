"""Field values that belong to parents: what the filter makes of them, against dense algebra."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from pipeline.calibration.prior.daily import DailyCounts, usual_logits
from pipeline.calibration.prior.filter import KEPT, Beliefs, Filter, Variances
from pipeline.calibration.prior.forward import learn_variances
from pipeline.calibration.prior.quadrature import DayRows
from pipeline.formats.tables import NO_MOVES, FieldTree
from tests.calibration.moving_world import moving_world

STILL = {"shared_slow": 1e-9, "shared_fast": 1e-9, "shared_day": 1e-9, "slope": 1e-9}
MOVING = Variances(
    lasting=0.1,
    slow=0.05,
    fast=0.03,
    day=0.004,
    levels=(2.0, 0.7),
    level_days=(0.01, 0.02),
    **STILL,
)
LOGIT = -2.5
# ids 1-6 are values, 7-9 their parents, 10 the parent of 7 and 8
PARENT = np.array([0, 7, 7, 8, 8, 8, 9, 10, 10, 0, 0])
LEVEL = np.array([3, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2])
TREE = FieldTree(PARENT, LEVEL, NO_MOVES)
CHAINS = [{1, 7, 10}, {2, 7, 10}, {3, 8, 10}, {4, 8, 10}, {5, 8, 10}, {6, 9}]
DAYS, SHOWN = 6, 5e3  # so many that what is binomial is nearly normal


def _counts(seed: int, days: int = DAYS) -> tuple[DailyCounts, np.ndarray]:
    """Counts at one logit, and the log odds of each day and value."""
    rng = np.random.default_rng(seed)
    level = LOGIT + 0.3 * rng.normal(size=(days, 6)) + 0.4 * rng.normal(size=6)
    day, ids = np.repeat(np.arange(days), 6), np.tile(np.arange(1, 7), days)
    shown = np.full(day.size, SHOWN)
    responses = np.round(SHOWN * expit(level.ravel()))
    return DailyCounts(day, ids, np.full(day.size, LOGIT), shown, responses), level


def _model(variances: Variances, tree: FieldTree = TREE) -> Filter:
    return Filter(variances, np.full(len(tree.parent), LOGIT), LOGIT, tree)


def _followed(model: Filter, counts: DailyCounts) -> Beliefs:
    """All days followed, with nothing that all share."""
    beliefs = model.start()
    beliefs = replace(beliefs, shared_covariance=1e-9 * beliefs.shared_covariance)
    for day in range(int(counts.days[0]), int(counts.days[-1]) + 1):
        beliefs = model.moved(model.ahead(beliefs, 1), day)
        beliefs, _ = model.update(beliefs, DayRows.of(counts, day, model.usual))
    return beliefs


def _dense(level: np.ndarray, asked: list[set[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the offsets of asked chains on the day after, by dense algebra."""
    size = {10: 0.7, 9: 2.0, 8: 2.0, 7: 2.0}
    single = {10: 0.02, 9: 0.01, 8: 0.01, 7: 0.01}
    v, days = MOVING, np.arange(DAYS)

    def kernel(gap: np.ndarray, lasting: float) -> np.ndarray:
        return lasting + v.slow * KEPT[0] ** gap + v.fast * KEPT[1] ** gap

    places = [(day, chain) for day in days for chain in CHAINS] + [(DAYS, a) for a in asked]
    chains = [chain for _, chain in places]
    of_parents, of_days, own = (
        np.array([[sum(map(of_id, a & b)) for b in chains] for a in chains])
        for of_id in (
            lambda i: size.get(i, 0.0),
            lambda i: single.get(i, 0.0),
            lambda i: float(i not in size),
        )
    )
    gap = np.abs(np.subtract.outer(*[np.array([d for d, _ in places])] * 2))
    prior = own * kernel(gap, v.lasting) + v.day * np.eye(len(places))
    prior += of_parents * kernel(gap, Variances.lasting) + of_days * (gap == 0)
    n, p = 6 * DAYS, expit(level.ravel())
    noise = np.diag(1.0 / (SHOWN * p * (1 - p)))
    gain = prior[n:, :n] @ np.linalg.inv(prior[:n, :n] + noise)
    return gain @ (level.ravel() - LOGIT), prior[n:, n:] - gain @ prior[:n, n:]


@pytest.mark.parametrize("seed", range(3))
def test_children_and_parents_are_forecast_as_by_dense_algebra(seed):
    """Values, and a child of each parent of which nothing is known; what all share is held.

    What is dropped is how siblings depend on the days before, given where their parent is today:
    it moves means by less than a third of their standard deviation, here, where days differ more
    than the filter believes.
    """
    counts, level = _counts(seed)
    beliefs = _followed(_model(MOVING), counts)
    forecast = _model(MOVING).forecast(_model(MOVING).ahead(beliefs, 1))
    unknown = [{0, 7, 10}, {-1, 8, 10}, {-2, 9}, {-3, 10}]
    mean, covariance = _dense(level, [*CHAINS, *unknown])
    deviation = np.sqrt(np.diag(covariance))
    away = (forecast.mean[1:, 0] - LOGIT - mean) / deviation
    np.testing.assert_allclose(away, 0.0, atol=0.35)
    np.testing.assert_allclose(np.sqrt(forecast.covariance[1:, 0, 0]), deviation, rtol=0.06)


@pytest.mark.parametrize("apart", [0.0, 1.0])
def test_parents_that_share_nothing_change_nothing(apart):
    """Also where the usual logits of siblings differ, and levels follow them."""
    counts, _ = _counts(1)
    usual = LOGIT + apart * np.linspace(-1.0, 1.0, len(PARENT))
    logit = usual[counts.field_value_id]
    rate = expit(logit + 0.5 * (logit - LOGIT)) / expit(LOGIT)
    counts = replace(counts, logit=logit, responses=np.round(counts.responses * rate))
    nothing = Variances(
        lasting=0.1, slow=0.05, fast=0.03, levels=(1e-12, 1e-12), level_days=(0.0, 0.0)
    )
    found = []
    for tree in (TREE, FieldTree.flat(len(PARENT))):
        model, beliefs = Filter(nothing, usual, LOGIT, tree), None
        for day in counts.days.tolist():
            beliefs = model.ahead(beliefs or model.start(), 1)
            beliefs, _ = model.update(beliefs, DayRows.of(counts, day, usual))
        found.append(model.forecast(model.ahead(beliefs, 1)))
    np.testing.assert_allclose(found[0].mean[1:7], found[1].mean[1:7], atol=1e-6)
    np.testing.assert_allclose(found[0].covariance[1:7], found[1].covariance[1:7], atol=1e-6)


def test_a_value_that_moves_keeps_its_level_and_is_less_sure():
    counts, _ = _counts(2, days=30)
    model = _model(MOVING)
    before = model.ahead(_followed(model, counts), 1)
    moves = {30: (np.array([1]), np.array([9]))}
    after = _model(MOVING, FieldTree(PARENT, LEVEL, moves)).moved(before, 30)
    stayed, moved = model.forecast(before), model.forecast(after)
    np.testing.assert_allclose(moved.mean[1:], stayed.mean[1:], atol=1e-12)
    assert moved.covariance[1, 0, 0] > stayed.covariance[1, 0, 0] + 0.9 * MOVING.lasting
    np.testing.assert_allclose(moved.covariance[2:], stayed.covariance[2:], atol=1e-12)
    assert after.parent[1] == 9


def test_a_usual_logit_is_that_of_all_below():
    counts = DailyCounts(
        np.zeros(3, int), np.array([1, 2, 6]), np.array([-3.0, -1.0, 0.0]),
        np.array([30.0, 10.0, 60.0]), np.zeros(3),
    )  # fmt: skip
    usual, center = usual_logits(counts, TREE)
    near = (-3.0 * 30 - 1.0 * 10) / 40
    assert center == pytest.approx(-1.0)
    assert usual[[7, 10]] == pytest.approx([near, near])
    assert usual[[8, 3]] == pytest.approx([near, near])  # without rows: as their nearest with some
    assert usual[[9, 6, 0]] == pytest.approx([0.0, 0.0, center])


def test_what_is_not_known_is_served_by_its_nearest_known_parent():
    known = TREE.known(np.array([3]))
    assert np.flatnonzero(known).tolist() == [0, 3, 8, 10]
    assert TREE.serving(known).tolist() == [0, 10, 10, 3, 8, 8, 0, 10, 8, 0, 10]
    assert FieldTree.flat(4).serving(np.array([True, False, True, False])).tolist() == [0, 0, 2, 0]


def test_what_all_share_is_not_taken_for_their_parents():
    """Parents that mean nothing leave the variances as they are found without them."""
    world = moving_world(n_values=60, days=28, shared_fast=0.5, fast=0.05)
    n, (near, far) = len(world.shown), (12, 3)
    above = np.r_[
        0, n + np.arange(n - 1) % near, n + near + np.arange(near) % far, np.zeros(far, int)
    ]
    level = np.r_[3, np.zeros(n - 1, int), np.ones(near, int), np.full(far, 2)]
    found = []
    for tree in (FieldTree.flat(n), FieldTree(above, level, NO_MOVES)):
        usual, center = usual_logits(world.counts, tree)
        found.append(learn_variances(world.counts, usual, center, tree))
    flat, of_tree = found
    assert of_tree.shared_fast == pytest.approx(flat.shared_fast, rel=0.3)
    assert max(of_tree.levels) < 0.3
