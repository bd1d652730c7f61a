"""The baselines: each against an outside reference, all against the same hard cases."""

import logging
import warnings
from importlib.util import find_spec

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import rankdata
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from bench import baselines
from bench.baselines.global_maps import fit_logistic
from bench.baselines.peers import FITS
from bench.quality import fit_of
from pipeline.calibration.baselines import fit_eb_platt
from pipeline.calibration.paper.paper_rows import merged
from pipeline.core.errors import NotEnoughDataError
from pipeline.formats.scores import Scores

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of netcal's own imports
    from netcal.binning import HistogramBinning
    from netcal.scaling import BetaCalibration, TemperatureScaling

INSTALLED = [m for m in (*baselines.METHODS, *FITS) if m != "mcgrad" or find_spec("mcgrad")]
GLOBAL = ("platt", "temperature", "histogram", "isotonic", "beta", "gamma", "sir")


def fit(method, scores):
    """The map of a baseline, of the product's or of the benchmarks' alone."""
    return fit_of(method)(scores)


def scores_of(
    logit, value=None, impressions=None, responses=None, *, day=None, n_field_values=None
):
    """Scores from what is given; by default one value, single impressions, no response, one day."""
    n = len(logit)
    value = np.ones(n) if value is None else np.asarray(value)
    return Scores(
        np.asarray(logit, np.float32),
        value.astype(np.int32),
        np.ones(n, np.int64) if impressions is None else np.asarray(impressions, np.int64),
        np.zeros(n, np.int64) if responses is None else np.asarray(responses, np.int64),
        np.zeros(n, np.int32) if day is None else np.asarray(day, np.int32),
        int(value.max()) + 1 if n_field_values is None else n_field_values,
    )


def log_of(seed=1, n=20_000, n_values=20):
    """A log of single impressions whose values differ in offset and slope, over five days."""
    rng = np.random.default_rng(seed)
    value = rng.integers(1, n_values + 1, n)
    logit = rng.normal(-2, 1, n).astype(np.float32)
    true = -2 + rng.normal(0.3, 0.6, n_values + 1)[value] + 1.4 * (logit + 2)
    return scores_of(logit, value, responses=rng.random(n) < expit(true), day=np.arange(n) % 5)


@pytest.fixture(scope="module")
def log():
    return log_of()


AT = np.linspace(-5, 1, 31)
ONE = np.ones(len(AT), dtype=int)


class TestAgainstOutsideReferences:
    def test_identity_returns_the_logit(self, log):
        np.testing.assert_array_equal(fit("identity", log)(AT, ONE), AT)

    def test_platt_is_scikit_learns_sigmoid_calibration(self, log):
        base = FrozenEstimator(_Given().fit(None, [0, 1]))
        reference = CalibratedClassifierCV(base, method="sigmoid")
        reference.fit(log.uncalibrated_logit[:, None].astype(float), log.responses)
        expected = reference.predict_proba(AT[:, None])[:, 1]
        np.testing.assert_allclose(expit(fit("platt", log)(AT, ONE)), expected, rtol=1e-3)

    @pytest.mark.filterwarnings("ignore")  # netcal's
    def test_temperature_is_netcals(self, log):
        reference = TemperatureScaling().fit(
            expit(log.uncalibrated_logit.astype(float)), log.responses
        )
        expected = reference.transform(expit(AT))
        np.testing.assert_allclose(expit(fit("temperature", log)(AT, ONE)), expected, rtol=1e-3)

    @pytest.mark.filterwarnings("ignore")  # netcal's
    def test_beta_is_netcals(self, log):
        reference = BetaCalibration().fit(
            expit(log.uncalibrated_logit.astype(float)), log.responses
        )
        expected = reference.transform(expit(AT))
        np.testing.assert_allclose(expit(fit("beta", log)(AT, ONE)), expected, rtol=5e-3)

    def test_histogram_is_netcals_on_ten_equal_frequency_bins(self, log):
        share = (rankdata(log.uncalibrated_logit) - 0.5) / len(log)  # equal bins of it are ours
        expected = HistogramBinning(bins=10).fit(share, log.responses).transform(share)
        found = expit(fit("histogram", log)(log.uncalibrated_logit, log.field_value_id))
        np.testing.assert_allclose(found, expected, rtol=0.01)
        assert len(np.unique(found)) == 10

    def test_isotonic_is_scikit_learns_up_to_its_smoothing(self, log):
        reference = IsotonicRegression(out_of_bounds="clip")
        reference.fit(log.uncalibrated_logit, log.responses)
        within = log.uncalibrated_logit[np.abs(log.uncalibrated_logit + 2) < 1.5]
        found = expit(fit("isotonic", log)(within, np.ones(len(within), int)))
        np.testing.assert_allclose(found, reference.predict(within), atol=0.04)
        assert np.abs(found - reference.predict(within)).mean() < 0.002

    def test_gamma_is_the_likeliest_curve_of_its_form(self, log):
        rows = log.uncalibrated_logit.astype(float)
        least = rows.min()

        def curve(theta, logit):
            s = logit - least + 1
            return theta[0] * np.log(s) + theta[1] * s + theta[2]

        def loss(theta):
            f = curve(theta, rows)
            return (np.logaddexp(0, f) - log.responses * f).mean()

        start = np.array([0.1, 1.0, -5.0])
        found = minimize(loss, start, method="Nelder-Mead", options={"maxiter": 4000, "fatol": 0})
        inside = AT[(least < AT) & (rows.max() > AT)]
        mapped = fit("gamma", log)(inside, np.ones(len(inside), int))
        np.testing.assert_allclose(mapped, curve(found.x, inside), atol=0.02)

    def test_sir_goes_through_the_rates_of_its_ten_bins(self):
        logit = np.repeat(np.arange(10.0), 1000)
        rate = np.array([0.01, 0.02, 0.04, 0.03, 0.06, 0.08, 0.1, 0.2, 0.3, 0.4])
        responses = np.concatenate([np.arange(1000) < 1000 * r for r in rate])
        sir = fit("sir", scores_of(logit, responses=responses))
        at = np.array([0.0, 1, 2.5, 4, 9])  # the third and fourth bin are merged at 2.5
        found = expit(sir(at, np.ones(5, int)))
        np.testing.assert_allclose(found, [0.01, 0.02, 0.035, 0.06, 0.4], rtol=0.02)
        halfway = sir(np.array([0.5]), np.ones(1, int))
        np.testing.assert_allclose(halfway, np.log([0.01 / 0.99, 0.02 / 0.98]).mean(), atol=0.02)

    def test_isotonic_per_value_of_one_value_is_isotonic(self):
        one = scores_of(log_of().uncalibrated_logit, responses=log_of().responses)
        own, everything = (fit(m, one)(AT, ONE) for m in ("isotonic_per_value", "isotonic"))
        np.testing.assert_allclose(expit(own), expit(everything), atol=0.05)

    def test_isotonic_per_value_follows_each_values_own_rows(self, log):
        calibrated = fit("isotonic_per_value", log)
        expected = expit(calibrated(log.uncalibrated_logit, log.field_value_id))
        e = np.bincount(log.field_value_id, expected)[1:]
        o = np.bincount(log.field_value_id, log.responses)[1:]
        np.testing.assert_allclose(e, o, rtol=0.1)

    def test_ratios_are_shrunk_towards_the_ratio_of_all_rows(self):
        """A worked example: both values respond twice as often as predicted, and one row none."""
        logit = np.full(3, np.log(0.02 / 0.98))
        n = np.array([1_000_000, 500_000, 10])
        scores = scores_of(logit, [1, 2, 3], n, [40_000, 20_000, 0])
        ratio = np.exp(fit("ratio_per_value", scores)(logit, np.arange(1, 4)) - logit)
        np.testing.assert_allclose(ratio, 2.0, rtol=0.01)

    def test_ratios_of_much_evidence_are_observed_over_expected(self):
        logit = np.full(4, np.log(0.02 / 0.98))
        scores = scores_of(logit, [1, 2, 3, 4], [100_000] * 4, [500, 1000, 4000, 8000])
        ratio = np.exp(fit("ratio_per_value", scores)(logit, np.arange(1, 5)) - logit)
        np.testing.assert_allclose(ratio, [0.25, 0.5, 2.0, 4.0], rtol=0.02)

    def test_eb_platt_is_the_products(self, log):
        counts = (log.impressions, log.responses, log.n_field_values)
        served = fit_eb_platt(log.field_value_id, log.uncalibrated_logit, *counts)
        np.testing.assert_allclose(fit("eb_platt", log)(AT, ONE), served(AT, ONE), atol=0.02)

    def test_eb_platt_forward_forgets_days_that_no_longer_hold(self):
        before, after = log_of(2), log_of(3)
        days = np.append(np.arange(20_000) % 10, 10 + np.arange(20_000) % 10)
        columns = ("uncalibrated_logit", "field_value_id", "responses")
        both = [np.append(getattr(before, c), getattr(after, c)) for c in columns]
        moving = scores_of(both[0], both[1], responses=both[2], day=days)
        truth = fit("eb_platt", after)(AT, ONE)
        static, forward = (fit(m, moving)(AT, ONE) for m in ("eb_platt", "eb_platt_forward"))
        assert np.abs(forward - truth).max() < 0.5 * np.abs(static - truth).max()

    def test_eb_platt_forward_keeps_all_days_where_nothing_changes(self):
        """The half-life is long: the map is nearly that of all days alike."""
        steady = log_of(4)
        static, forward = (fit(m, steady)(AT, ONE) for m in ("eb_platt", "eb_platt_forward"))
        np.testing.assert_allclose(static, forward, atol=0.15)

    def test_logistic_interaction_is_a_regression_per_value_where_evidence_is_plenty(self):
        rng = np.random.default_rng(5)
        logit = np.tile(np.linspace(-4, 0, 50), 2)
        value = np.repeat([1, 2], 50)
        n = np.full(100, 20_000)
        true = np.where(value == 1, 0.5 + 1.2 * logit, -0.3 + 0.8 * logit)
        scores = scores_of(logit, value, n, rng.binomial(n, expit(true)))
        calibrated = fit("logistic_interaction", scores)
        np.testing.assert_allclose(calibrated(logit, value), true, atol=0.03)

    def test_neucalib_learns_a_curve_and_a_shift_per_value(self):
        """A worked example: a kink in the logit shared by two values a logit apart."""
        rng = np.random.default_rng(6)
        n = np.full(8000, 10)
        logit, value = rng.normal(-2, 1, 8000), rng.integers(1, 3, 8000)
        true = np.where(logit < -2, logit, -2 + 2 * (logit + 2)) + np.where(value == 1, 0.5, -0.5)
        scores = scores_of(logit, value, n, rng.binomial(n, expit(true)))
        inside = np.abs(logit + 2) < 1.5
        found = fit("neucalib", scores)(logit, value)
        assert np.abs(found - true)[inside].mean() < 0.15

    @pytest.mark.skipif(not find_spec("mcgrad"), reason="mcgrad is not installed")
    def test_mcgrad_calibrates_each_value(self, log, quiet):
        expected = expit(fit("mcgrad", log)(log.uncalibrated_logit, log.field_value_id))
        e, o = (np.bincount(log.field_value_id, a)[1:] for a in (expected, log.responses))
        np.testing.assert_allclose(e, o, rtol=0.15)


class _Given(LogisticRegression):
    """A classifier whose decision function is its only feature."""

    def fit(self, _, labels):
        self.classes_ = np.array(labels)
        return self

    def decision_function(self, features):
        return features[:, 0]


@pytest.fixture
def quiet():
    """No reports of rounds from mcgrad, no warnings of its libraries."""
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


HARD = {
    "90 tied scores and 10 spread": scores_of(
        np.append(np.full(90, -4.6), np.linspace(-4.5, -1.4, 10)),
        responses=np.arange(100) % 9 == 0,
    ),
    "one score, 279 rows, 5 responses": scores_of(
        np.full(279, 0.27), responses=np.arange(279) < 5
    ),
    "three rows": scores_of([-3, -2, -1], responses=[0, 1, 0]),
    "one row": scores_of([-2.0], responses=[1]),
    "logits of any size": scores_of(
        np.tile([-120, -20, 17, 18, 25, 120], 20), responses=np.tile([0, 0, 1, 0, 1, 1], 20)
    ),
    "no responses": scores_of(np.linspace(-5, -1, 200), np.arange(200) % 3 + 1),
    "responses only": scores_of(
        np.linspace(-5, -1, 200), np.arange(200) % 3 + 1, responses=np.ones(200)
    ),
    "rates that rise and fall": scores_of(
        [-4, -3, -2, -1], impressions=[10_000] * 4, responses=[100, 500, 200, 800]
    ),
    "rates that only fall": scores_of(
        [-4, -3, -2, -1], impressions=[10_000] * 4, responses=[2000, 1000, 500, 100]
    ),
    "null and values without rows": scores_of(
        np.linspace(-4, 0, 400), np.arange(400) % 3, responses=np.arange(400) % 7 == 0,
        n_field_values=6,
    ),
    "rows without impressions": scores_of(
        np.linspace(-9, 0, 100), np.arange(100) % 2 + 1, np.arange(100) % 3, np.arange(100) % 3 == 2
    ),
}  # fmt: skip
LOGITS = np.unique(np.concatenate([np.linspace(-150, 150, 6001), np.linspace(-6, 1, 4000)]))


@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize("method", INSTALLED)
def test_maps_are_finite_and_never_decrease(method, case, quiet):
    """10,000 logits in and far beyond the fitted range, for every field value."""
    calibrated = fit(method, HARD[case])
    for value in range(HARD[case].n_field_values):
        logit = calibrated(LOGITS, np.full(len(LOGITS), value))
        assert logit.dtype == np.float64
        assert np.isfinite(logit).all()
        assert np.diff(logit).min() >= -1e-9


@pytest.mark.parametrize("method", INSTALLED)
def test_aggregated_rows_give_the_map_of_single_impressions(method, quiet):
    rng = np.random.default_rng(7)
    n = rng.integers(1, 8, 600)
    value, logit = rng.integers(1, 6, 600), rng.normal(-2, 1, 600).astype(np.float32)
    k, day = rng.binomial(n, expit(logit)), rng.integers(0, 4, 600)
    row = np.repeat(np.arange(600), n)
    label = np.concatenate([np.arange(m) < r for m, r in zip(n, k, strict=True)])
    together = fit(method, scores_of(logit, value, n, k, day=day))
    single = fit(method, scores_of(logit[row], value[row], responses=label, day=day[row]))
    for z in range(6):
        at = np.full(len(AT), z)
        np.testing.assert_allclose(together(AT, at), single(AT, at), atol=2e-3)


@pytest.mark.parametrize("method", INSTALLED)
def test_equal_scores_give_equal_maps_and_are_left_as_they_were(method, log, quiet):
    small = log.take(np.arange(2000))
    before = small.uncalibrated_logit.copy(), small.responses.copy()
    one, other = (fit(method, small)(AT, ONE) for _ in range(2))
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(small.uncalibrated_logit, before[0])
    np.testing.assert_array_equal(small.responses, before[1])


@pytest.mark.parametrize("method", GLOBAL)
def test_a_global_map_is_one_function_for_all_values(method, log):
    calibrated = fit(method, log)
    np.testing.assert_array_equal(calibrated(AT, ONE), calibrated(AT, 0 * ONE))


@pytest.mark.parametrize("method", [m for m in INSTALLED if m != "identity"])
def test_without_impressions_there_is_nothing_to_fit(method):
    nothing = scores_of(np.zeros(3), impressions=np.zeros(3))
    with pytest.raises(NotEnoughDataError, match="impressions"):
        fit(method, nothing)


def test_a_feature_with_a_negative_coefficient_is_left_out():
    """As Kull et al. do for beta calibration: the rest is fitted without it."""
    rng = np.random.default_rng(8)
    x = rng.normal(0, 1, (5000, 2))
    y = rng.random(5000) < expit(-1 + x[:, 0] - 0.5 * x[:, 1])
    scores = scores_of(np.zeros(5000), responses=y)
    (first, second), intercept = fit_logistic(x, scores)
    (alone,), same = fit_logistic(x[:, :1], scores)
    assert second == 0
    assert (first, intercept) == pytest.approx((alone, same))


def test_merged_rows_stand_for_the_same_impressions_whatever_their_order():
    rows = scores_of(
        [-1, -2, -1, -1, -2, 0.0, -0.0], [2, 1, 2, 1, 1, 1, 1], [1, 1, 2, 3, 0, 1, 1],
        [1, 0, 1, 2, 0, 1, 0], day=[0, 0, 0, 0, 0, 4, 4],
    )  # fmt: skip
    one = merged(rows)
    columns = (one.uncalibrated_logit, one.field_value_id, one.impressions, one.responses, one.day)
    assert sorted(zip(*(c.tolist() for c in columns), strict=True)) == [
        (-2, 1, 1, 0, 0), (-1, 1, 3, 2, 0), (-1, 2, 3, 2, 0), (0, 1, 2, 1, 4),
    ]  # fmt: skip
    assert one.day.tolist() == [0, 0, 0, 4]
    other = merged(rows.take(np.random.default_rng(0).permutation(len(rows))))
    for name in ("uncalibrated_logit", "field_value_id", "impressions", "responses", "day"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.parametrize("name", ["neucalib", "isotonic_per_value", "eb_platt_forward"])
def test_the_order_of_rows_changes_no_map(name):
    rows = log_of(n=1500, n_values=4)
    shuffled = rows.take(np.random.default_rng(1).permutation(len(rows)))
    one, other = (fit(name, scores) for scores in (rows, shuffled))
    logit = np.linspace(-5, 2, 50, dtype=np.float32)
    for value in range(rows.n_field_values):
        ids = np.full(50, value, np.int32)
        np.testing.assert_allclose(one(logit, ids), other(logit, ids), atol=1e-9)
