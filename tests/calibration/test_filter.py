"""The filter against what it approximates: dense algebra, fine sums, simulated truth."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, log_expit

from pipeline.calibration.prior.daily import DailyCounts, usual_logits
from pipeline.calibration.prior.filter import Filter, Variances
from pipeline.calibration.prior.forward import Guard, follow, learn_variances
from pipeline.calibration.prior.quadrature import LEVEL, SLOPE, DayRows, mean_logit
from tests.calibration.logs import few_examples
from tests.calibration.moving_world import STILL, moving_world
from tests.reference import lines_by_dense_algebra

USUAL = np.array([-2.0, -2.6, -1.9, -1.2])
CENTER = -2.0
NOTHING = 1e-10
PRECISION = 1e4  # of a row's logit, 1 / variance
OWN = dict.fromkeys(("lasting", "slow", "fast", "slope"), NOTHING)
SHARED = dict.fromkeys(("shared_slow", "shared_fast", "shared_day"), NOTHING)
LEVELS = st.integers(0, 10_000).map(lambda seed: np.random.default_rng(seed).normal(size=(6, 3, 2)))


def precise_counts(lines):
    """Counts so large that what they say of (level, slope), [days, values, 2], is normal."""
    days, values, _ = lines.shape
    away = np.tile([-1.0, 1.0], days * values)
    day, value = (np.repeat(a.ravel(), 2) for a in np.indices((days, values)))
    level, slope = (np.repeat(lines[..., place].ravel(), 2) for place in (0, 1))
    rate = expit(level + slope * away)
    impressions = PRECISION / (rate * (1.0 - rate))
    logit = USUAL[value + 1] + away
    return DailyCounts(day + 20_000, value + 1, logit, impressions, impressions * rate)


def forecast_of_seventh_day(variances, lines, spread=(1.0, 0.25, 0.25)):
    """The filter's forecast and that of dense algebra: means and deviations of (level, slope)."""
    model = Filter(variances, USUAL, CENTER)
    begin = model.start()
    place = [0, 4, 5]
    start = begin.shared_covariance.copy()
    start[place, place] = spread
    beliefs = replace(begin, shared_covariance=start)
    counts = precise_counts(lines)
    for day in range(20_000, 20_006):
        beliefs = model.ahead(beliefs, 1)
        beliefs, _ = model.update(beliefs, DayRows.of(counts, day, USUAL))
    forecast = model.forecast(model.ahead(beliefs, 1))
    deviation = np.sqrt(np.diagonal(forecast.covariance, axis1=1, axis2=2))
    dense = lines_by_dense_algebra(
        variances, spread, USUAL[1:], CENTER, lines=lines, noise=0.5 / PRECISION
    )
    return (forecast.mean[1:], deviation[1:]), dense


def drawn_lines(draw, level, slope, common=0.0):
    """Levels of their own each day; slopes that last, seen with the error of the counts."""
    slopes = 1.0 + slope * draw[0, :, 1] + common * draw[0, 0, 1]
    seen = slopes + PRECISION**-0.5 * draw[..., 1]
    return np.stack([USUAL[1:] + level * draw[..., 0], seen], axis=-1)


@few_examples
@given(LEVELS)
def test_without_anything_shared_each_value_is_forecast_as_by_dense_algebra(draw):
    lines = drawn_lines(draw, 0.3, 0.2)
    found, dense = forecast_of_seventh_day(Variances(**SHARED), lines, (NOTHING,) * 3)
    np.testing.assert_allclose(found, dense, atol=2e-3)


@few_examples
@given(LEVELS)
def test_what_all_share_alone_is_forecast_as_by_dense_algebra(draw):
    lines = drawn_lines(draw, 0.1, 0.0, 0.2)
    found, dense = forecast_of_seventh_day(Variances(**OWN), lines)
    np.testing.assert_allclose(found, dense, atol=2e-3)


def test_dropping_what_value_and_shared_have_in_common_errs_on_the_wide_side():
    """Of three values, where it costs most: a common movement is hardly told from three own."""
    away = []
    for seed in range(40):
        lines = drawn_lines(np.random.default_rng(seed).normal(size=(6, 3, 2)), 0.3, 0.2)
        (mean, deviation), (right, true) = forecast_of_seventh_day(Variances(), lines)
        assert (true < deviation).all()
        assert (deviation[:, LEVEL] < 1.2 * true[:, LEVEL]).all()
        assert np.abs(mean - right)[:, SLOPE].max() < 0.03
        away.append((mean - right)[:, LEVEL] / true[:, LEVEL])
    assert np.sqrt(np.mean(np.square(away))) < 0.2


def summed_posterior(mean, covariance, away, impressions, responses):
    """Mean, covariance and log evidence of (level, slope) by sums over a fine grid."""
    axis = np.linspace(-8, 8, 161)
    spot = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    line = mean + spot @ np.linalg.cholesky(covariance).T
    logit = line[:, LEVEL, None] + line[:, SLOPE, None] * away
    fit = (responses * logit + impressions * log_expit(-logit)).sum(axis=1)
    fit -= 0.5 * (spot**2).sum(axis=1)
    weight = np.exp(fit - fit.max())
    middle = np.average(line, axis=0, weights=weight)
    spread = np.cov(line.T, aweights=weight, ddof=0)
    cell = 0.1**2 / (2 * np.pi)
    return middle, spread, np.log(weight.sum() * cell) + fit.max()


@pytest.mark.parametrize("responses", [(0, 0), (1, 0), (0, 1), (1, 1), (0,), (2,)])
@pytest.mark.parametrize("shown", [3.0, 40.0, 300.0])
@pytest.mark.parametrize("variance", [0.05, 0.4, 1.5])
def test_posteriors_of_days_of_few_responses_are_those_of_fine_sums(responses, shown, variance):
    mean = np.array([-3.0, 1.1])
    covariance = np.array([[variance, 0.1 * variance], [0.1 * variance, 0.1]])
    size = len(responses)  # one row sees one direction, and is integrated along it
    away, n, y = np.array([0.8, -0.5])[:size], np.full(size, shown), np.array(responses, float)
    day = DayRows(np.array([1]), np.array([0]), np.zeros(size, np.int64), away, n, y)
    found, spread, evidence = day.integrate(mean[None], covariance[None], mean[None])
    middle, true, likely = summed_posterior(mean, covariance, away, n, y)
    deviation = np.sqrt(np.diag(true))
    np.testing.assert_allclose((found[0] - middle) / deviation, 0.0, atol=0.02)
    np.testing.assert_allclose((spread[0] - true) / np.outer(deviation, deviation), 0, atol=0.04)
    assert evidence[0] == pytest.approx(likely, abs=0.02)


def test_the_mean_probability_is_that_of_many_draws():
    mean, variance = np.array([-6.0, -2.0, 0.5]), np.array([1.0, 0.3, 2.0])
    draws = mean + np.sqrt(variance) * np.random.default_rng(1).normal(size=(1_000_000, 3))
    np.testing.assert_allclose(expit(mean_logit(mean, variance)), expit(draws).mean(0), rtol=5e-3)


def thirds_covered(world, first=15):
    """Share of (day, value) whose true level lies in the 90 % interval, from large to small."""
    passed, inside = world.followed(), []
    for place in range(first, len(world.level)):
        forecast = passed.forecasts[20_000 + place]
        reach = 1.645 * np.sqrt(forecast.covariance[1:, LEVEL, LEVEL])
        inside.append(np.abs(world.level[place] - forecast.mean[:, LEVEL])[1:] < reach)
    return [third.mean() for third in np.array_split(np.mean(inside, axis=0), 3)]


def ratios(world, days, *accepted):
    """True over forecast responses of each day."""
    passed, found = world.followed(guard=world.guard(*accepted)), []
    for place in days:
        rows = world.counts.of_day(20_000 + place)
        at = rows.logit, rows.field_value_id
        forecast = expit(passed.forecasts[20_000 + place](*at))
        truth = expit(world.level[place][rows.field_value_id])
        found.append((rows.impressions * truth).sum() / (rows.impressions * forecast).sum())
    return np.array(found)


@pytest.mark.parametrize("rate", [0.005, 0.03, 0.2])
def test_intervals_cover_the_truth_whatever_the_volume(rate):
    for covered in thirds_covered(moving_world(n_values=900, rate=rate)):
        assert 0.87 < covered < 0.93


@pytest.mark.parametrize("rate", [0.005, 0.03, 0.3])
def test_as_many_responses_are_forecast_as_come(rate):
    """Means of four logs; what all values share stands still, else it would hide the rest."""
    worlds = (moving_world(seed, n_values=900, rate=rate, **STILL) for seed in range(4))
    assert np.mean([ratios(world, range(15, 40)).mean() for world in worlds]) == pytest.approx(
        1.0, abs=0.01
    )


@pytest.mark.parametrize("step", [-0.5, 0.5])
def test_a_lasting_common_step_that_was_accepted_is_followed_within_days(step):
    world = moving_world(step=step, step_day=20, **STILL)
    after = np.log(ratios(replace(world, variances=Variances()), range(20, 40), 20_020))
    assert abs(after[0] - step) < 0.1
    assert np.abs(after[3:]).max() < 0.35 * abs(step)
    assert np.abs(after[10:]).max() < 0.25 * abs(step)


@pytest.mark.parametrize("horizon", [1, 3])
def test_a_forecast_is_that_of_a_log_which_ends_the_horizon_before(horizon):
    world = moving_world(n_values=20, days=12, shown=50)
    passed = world.followed(horizon)
    for day in (20_005, 20_011, 20_011 + horizon):
        known = world.counts.take(world.counts.day <= day - horizon)
        alone = follow(world.model(), known, horizon, Guard(np.zeros(0, np.int64)))
        assert np.array_equal(alone.forecasts[day].mean, passed.forecasts[day].mean)
        assert np.array_equal(alone.forecasts[day].covariance, passed.forecasts[day].covariance)


def test_a_day_without_rows_only_makes_forecasts_less_certain():
    world = moving_world(n_values=20, days=12, shown=50)
    counts = world.counts.take(world.counts.day != 20_006)
    passed = follow(world.model(), counts, 1, Guard(np.zeros(0, np.int64)))
    before, after = (passed.forecasts[day].covariance[:, LEVEL, LEVEL] for day in (20_006, 20_007))
    assert 20_006 not in passed.fitted
    assert (before < after).all()


def test_values_that_were_never_shown_and_the_unseen_one_are_forecast_alike():
    world = moving_world(n_values=20, days=12, shown=50)
    world = replace(world, shown=np.append(world.shown, 0.0))
    forecast = world.followed().forecasts[20_012]
    assert np.array_equal(forecast.mean[0], forecast.mean[-1])
    assert np.array_equal(forecast.covariance[0], forecast.covariance[-1])


def test_covariances_stay_positive_definite():
    world = moving_world(n_values=60, days=60, shown=2000, rate=0.2)
    for forecast in world.followed().forecasts.values():
        assert np.linalg.eigvalsh(forecast.covariance).min() > 0


def test_variances_of_a_log_that_moves_more_are_larger():
    calm, wild = (moving_world(n_values=60, days=20, fast=fast, slow=fast) for fast in (0.005, 0.4))
    flat = calm.model().tree
    learned = [learn_variances(w.counts, w.model().usual, CENTER, flat) for w in (calm, wild)]
    assert learned[0].fast < 0.04
    assert learned[1].fast > 0.1
    assert learned[0].slow < learned[1].slow
    assert learned[0] == learn_variances(calm.counts, calm.model().usual, CENTER, flat)


@pytest.mark.parametrize(("days", "slow"), [(7, 0.08), (14, 0.16)])
def test_learned_variances_are_likelier_than_what_was_believed_before(days, slow):
    """On a few days lasting offsets and slow movements stand in for one another."""
    world = moving_world(2, n_values=900, days=days, shown=40, slow=slow)
    usual, center = usual_logits(world.counts, world.model().tree)

    def likelihood(variances):
        model, total = Filter(variances, usual, center), 0.0
        beliefs = model.start()
        for day in world.counts.days.tolist():
            rows = DayRows.of(world.counts, day, usual)
            beliefs, of_day = model.update(model.ahead(beliefs, 1), rows)
            total += of_day
        return total

    learned = learn_variances(world.counts, usual, center, world.model().tree)
    assert likelihood(learned) > likelihood(Variances())


def test_a_farther_horizon_keeps_less_of_the_movements():
    world = moving_world(n_values=60, days=20)
    model = world.model()
    beliefs = replace(model.start(), mean=np.tile([0.0, 0.5, 0.5, 0.0], (61, 1)))
    near, far = (model.forecast(model.ahead(beliefs, days)) for days in (1, 60))
    assert (far.mean[:, LEVEL] < near.mean[:, LEVEL]).all()


@pytest.mark.parametrize("few", ["responses", "failures"])
@pytest.mark.parametrize("number", [0, 1, 9, 20, 50])
def test_what_came_is_nearly_fitted_however_few_responses_or_failures(few, number):
    """Three quarters of the way from what the base model expects; nothing runs away."""
    world = moving_world(n_values=12, days=6, shown=14)
    counts = world.counts
    rows = np.random.default_rng(number).choice(len(counts.day), number, replace=False)
    some = np.zeros(len(counts.day))
    some[rows] = 1.0
    responses = some if few == "responses" else counts.impressions - some
    world = replace(world, counts=replace(counts, responses=responses))
    passed = world.followed()
    fitted = passed.fitted_logit(counts.logit, counts.field_value_id, counts.day)
    came = responses.sum()
    before, after = ((counts.impressions * expit(x)).sum() for x in (counts.logit, fitted))
    assert abs(after - came) < 0.25 * abs(before - came) + 4.0
    assert np.isfinite(passed.forecasts[20_006].mean).all()
