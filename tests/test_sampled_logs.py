"""Logs that keep only some rows: what was left out is put back once, and a rate untold is found."""

import math

import numpy as np
import pyarrow as pa
import pytest

from pipeline.calibration.statistics.bins import tabulate
from pipeline.core.errors import DataError, ParamsError
from pipeline.core.files import read_json
from pipeline.encoding.features import Encoder
from pipeline.encoding.vocabulary import Vocabulary
from pipeline.formats.scores import Scores, before_sampling
from pipeline.formats.tables import read_field_tables
from pipeline.metrics.summary import measure
from pipeline.model.examples import examples_of
from pipeline.model.scoring import load_base
from pipeline.params.params_file import read_params
from tests.whole_walk import DAYS, asked, project, scored, walk

RATE = 0.02  # of responses, before sampling
FEATURES = {"log__categorical": ["item"], "log__numeric": ["price"]}


def whole_day(day: str, rows: int = 12_000) -> pa.Table:
    """A day of which nothing was left out: one impression in fifty has a click."""
    random = np.random.default_rng(int(day[-2:]))
    item, price = random.integers(0, 4, rows), random.normal(size=rows)
    logit = np.log(RATE / (1 - RATE)) - 0.3 + np.array([0.6, -0.4, 0.2, -0.6])[item] + 0.5 * price
    click = random.random(rows) < 1 / (1 + np.exp(-logit))
    items = np.array(["a", "b", "c", "d"])[item]
    return pa.table({"item": items, "price": price, "click": click.astype(np.int8)})


def kept(table: pa.Table, rate: float = 0.1) -> pa.Table:
    """All clicks of a day and a share of the rest."""
    random = np.random.default_rng(len(table))
    click = table["click"].to_numpy() == 1
    return table.filter(pa.array(click | (random.random(len(table)) < rate)))


WHOLE = {day: whole_day(day) for day in DAYS}
SAMPLED = {day: kept(table) for day, table in WHOLE.items()}
TRAINING_SAMPLED = {day: (SAMPLED if day in DAYS[:2] else WHOLE)[day] for day in DAYS}
TEST_WHOLE = {day: (WHOLE if day in DAYS[-2:] else SAMPLED)[day] for day in DAYS}


@pytest.fixture(scope="module")
def of_training(tmp_path_factory):
    """Training days sampled and said so, calibration and test days whole."""
    folder = tmp_path_factory.mktemp("training")
    rates = {"training": 0.1}
    return walk(project(folder, TRAINING_SAMPLED, log__keep_rate=rates, **FEATURES))


@pytest.fixture(scope="module")
def of_all(tmp_path_factory):
    """All days sampled and said so."""
    folder = tmp_path_factory.mktemp("all")
    return walk(project(folder, SAMPLED, log__keep_rate=0.1, **FEATURES))


@pytest.mark.parametrize("which", ["of_training", "of_all"])
def test_a_sample_that_is_told_gives_probabilities_of_the_whole_log(request, which):
    """By the file that is served, on the whole test days."""
    folder = request.getfixturevalue(which)
    test = pa.concat_tables([WHOLE[day] for day in DAYS[-2:]])
    answers, _ = scored(folder, test)
    observed = test["click"].to_numpy().mean()
    assert answers["probability"].mean() == pytest.approx(observed, rel=0.1)
    report = read_json(folder / "reports/evaluation.json")
    assert report["methods"]["model"]["pcoc"] == pytest.approx(1, abs=0.1)
    assert report["methods"]["uncalibrated"]["pcoc"] == pytest.approx(1, abs=0.2)
    pcoc = next(c for c in read_json(folder / "reports/gate.json")["checks"] if c["name"] == "pcoc")
    assert pcoc["answer"] in ("within", "cannot tell")


@pytest.mark.parametrize("which", ["of_training", "of_all"])
def test_bin_rates_are_those_of_the_whole_log(request, which):
    bins = read_field_tables(request.getfixturevalue(which) / "artifacts/tables").bins.candidate(2)
    assert bins.responses.sum() / bins.impressions.sum() == pytest.approx(RATE, rel=0.15)


def test_responses_are_counted_as_the_log_has_them(of_all):
    """Evidence is what was seen; what it stands for is said beside it."""
    clicks = sum(int(np.sum(SAMPLED[day]["click"].to_numpy())) for day in DAYS[-2:])
    rows = sum(len(SAMPLED[day]) for day in DAYS[-2:])
    report = read_json(of_all / "reports/evaluation.json")
    assert (report["impressions"], report["responses"]) == (rows, clicks)
    stand_for = {"impressions": clicks + 10 * (rows - clicks), "responses": clicks}
    assert report["before_sampling"] == stand_for


@pytest.mark.parametrize("which", ["of_training", "of_all"])
def test_the_logit_is_shifted_once_and_the_artifact_says_so(request, tmp_path, which):
    """The same training without a rate has the same logits, less ln 0.1."""
    folder = request.getfixturevalue(which)
    conventions = read_json(folder / "artifacts/model/manifest.json")["conventions"]
    assert conventions["sampling"]["logit_shift"] == pytest.approx(-2.302585, abs=1e-6)
    assert conventions["keep_rate"]["training"] == 0.1
    walk(project(tmp_path, TRAINING_SAMPLED, **FEATURES), "train_base")
    told, untold = (load_base(f / "artifacts/base") for f in (folder, tmp_path))
    rows = untold.encoder.encode(WHOLE[DAYS[-1]])
    shift = told.uncalibrated_logit(rows, 1000) - untold.uncalibrated_logit(rows, 1000)
    np.testing.assert_allclose(shift, math.log(0.1), atol=1e-5)


def test_a_sample_that_is_not_told_is_refused_by_the_gate(tmp_path):
    """Calibrated on a sample, tested on the whole."""
    gate = read_json(walk(project(tmp_path, TEST_WHOLE, **FEATURES)) / "reports/gate.json")
    assert gate["verdict"] == "refuse"
    assert any("sampled without saying so" in reason for reason in gate["reasons"])


def test_fractional_rates_are_exact_to_the_weights_last_place(tmp_path):
    """Kept at 0.3, every non-response stands for 3⅓ impressions."""
    days = {day: kept(WHOLE[day], 0.3) for day in DAYS}
    folder = walk(project(tmp_path, days, log__keep_rate=0.3, **FEATURES), "tabulate")
    rows = pa.concat_tables([days[day] for day in DAYS[2:]])
    clicks = int(np.sum(rows["click"].to_numpy()))
    cells = read_field_tables(folder / "artifacts/tables").cells
    assert cells.responses.sum() == clicks
    weighted = clicks + (len(rows) - clicks) / 0.3
    assert cells.impressions.sum() == pytest.approx(weighted, rel=1e-6)


def random_scores(rows: int = 3000) -> tuple[Scores, np.ndarray]:
    """Single impressions of four values on three days, with ties, and a whole weight of each."""
    random = np.random.default_rng(5)
    logit = np.round(random.normal(size=rows), 2).astype(np.float32)
    ids = random.integers(0, 4, rows).astype(np.int32)
    day = random.integers(0, 3, rows).astype(np.int32)
    click = random.integers(0, 2, rows).astype(np.int32)
    weight = random.integers(1, 5, rows).astype(np.float64)
    return Scores(logit, ids, np.ones(rows, np.int32), click, day, 4), weight


def weighted(scores: Scores, weight: np.ndarray) -> Scores:
    """The scores with what their rows stand for."""
    amounts = before_sampling(scores.impressions, scores.responses, weight, 1.0)
    columns = (scores.uncalibrated_logit, scores.field_value_id, *amounts, scores.day)
    return Scores(*columns, scores.n_field_values)


def test_whole_weights_give_the_tables_of_repeated_rows_to_the_bit():
    scores, weight = random_scores()
    repeated = scores.take(np.repeat(np.arange(len(scores)), weight.astype(int)))
    for ours, theirs in zip(
        tabulate(weighted(scores, weight), [2, 4], 8), tabulate(repeated, [2, 4], 8), strict=True
    ):
        for name, column in vars(ours).items():
            np.testing.assert_array_equal(column, getattr(theirs, name), err_msg=name)


@pytest.mark.parametrize("times", [1.0, 0.375], ids=["whole", "fractional"])
def test_weights_give_the_metrics_of_repeated_rows(times):
    scores, weight = random_scores()
    repeated = scores.take(np.repeat(np.arange(len(scores)), weight.astype(int)))
    rows = weighted(scores, weight * times)
    ours = measure(rows.uncalibrated_logit, rows)
    theirs = measure(repeated.uncalibrated_logit, repeated)
    for name, column in vars(ours.counts).items():
        expected = getattr(theirs.counts, name) * times
        np.testing.assert_allclose(column, expected, rtol=1e-12, err_msg=name)
    assert ours.auc == pytest.approx(theirs.auc, abs=1e-12)
    np.testing.assert_allclose(ours.auc_by_value, theirs.auc_by_value, atol=1e-12)


def test_fractional_weights_are_summed_exactly_in_any_order_and_by_any_threads():
    scores, weight = random_scores()
    rows = weighted(scores, weight / 3)
    shuffled = rows.take(np.random.default_rng(1).permutation(len(rows)))
    tables = [tabulate(s, [2, 4], 8, t) for s, t in ((rows, 1), (shuffled, 3))]
    for ours, theirs in zip(*tables, strict=True):
        for name, column in vars(ours).items():
            np.testing.assert_array_equal(column, getattr(theirs, name), err_msg=name)
    bins, cells = tables[0]
    assert cells.impressions.sum() == rows.impressions.sum()
    of_value = np.bincount(rows.field_value_id, rows.impressions * rows.uncalibrated_logit)
    sums = np.bincount(bins.candidate(4).field_value_id, bins.candidate(4).logit_sum)
    np.testing.assert_allclose(sums, of_value, rtol=1e-9)


def weighted_days(change=lambda weight: weight) -> dict[str, pa.Table]:
    """Days sampled by the hour of a row, so to speak, each row with its weight."""
    days = {}
    for day in DAYS:
        random = np.random.default_rng(int(day[-2:]))
        rate = np.where(WHOLE[day]["click"].to_numpy() == 1, 0.5, random.choice([0.1, 0.3], 12_000))
        table = WHOLE[day].append_column("times", pa.array(1 / rate))
        table = table.filter(pa.array(random.random(12_000) < rate))
        column = change(table["times"].to_pylist())
        days[day] = table.set_column(3, "times", pa.array(column, pa.float64()))
    return days


def test_weights_of_rows_give_probabilities_of_the_whole_log(tmp_path):
    """Responses were left out too: each stands for two, and is the evidence of one."""
    days = weighted_days()
    folder = walk(project(tmp_path, days, log__weight="times", **FEATURES), "evaluate")
    test = pa.concat_tables([WHOLE[day] for day in DAYS[-2:]])
    answers, _ = scored(folder, test.select(["item", "price"]))
    assert answers["probability"].mean() == pytest.approx(RATE, rel=0.15)
    report = read_json(folder / "reports/evaluation.json")
    clicks = sum(int(np.sum(days[day]["click"].to_numpy())) for day in DAYS[-2:])
    assert report["responses"] == clicks
    assert report["before_sampling"]["responses"] == 2 * clicks
    assert "sampling" not in read_json(folder / "artifacts/model/manifest.json")["conventions"]
    answer, _ = asked(folder, {"item": ["a"], "price": [0.0]})
    assert answer.status_code == 200


def test_scores_that_were_served_are_weighed_and_never_shifted(tmp_path):
    """The score was not fitted to the sample, so it stays; the tables are corrected."""
    logit = np.log(RATE / (1 - RATE))
    days = {
        d: t.append_column("score", pa.array(np.full(len(t), logit))) for d, t in SAMPLED.items()
    }
    folder = project(tmp_path, days, log__served_logit="score", log__keep_rate=0.1)
    walk(folder, "evaluate")
    answer, _ = asked(folder, {"item": ["a", "b"], "score": [logit] * 2})
    assert answer.json()["uncalibrated_logit"] == pytest.approx([logit] * 2, abs=1e-6)
    assert read_json(folder / "reports/evaluation.json")["methods"]["model"][
        "pcoc"
    ] == pytest.approx(1, abs=0.1)
    bins = read_field_tables(folder / "artifacts/tables").bins.candidate(2)
    assert bins.responses.sum() / bins.impressions.sum() == pytest.approx(RATE, rel=0.15)
    assert "sampling" not in read_json(folder / "artifacts/model/manifest.json")["conventions"]


def test_aggregates_stand_for_the_sum_of_what_their_impressions_stand_for():
    shown, clicks = np.array([5, 3, 0]), np.array([2, 3, 0])
    n, y = before_sampling(shown, clicks, 1.0, 0.25)
    assert (n.tolist(), y.tolist()) == ([2 + 3 * 4, 3, 0], [2, 3, 0])
    n, y = before_sampling(shown, clicks, np.array([2.0, 0.5, 1.0]), 1.0)
    assert (n.tolist(), y.tolist()) == ([10, 1.5, 0], [4, 1.5, 0])


def test_weights_enter_the_loss_as_repeated_rows_would():
    encoder = Encoder({}, (), ("item",), Vocabulary(("a",)))
    table = pa.table({"item": ["a", "a"], "click": [1, 0], "times": [3.0, 2.5]})
    (examples,) = examples_of(encoder, [("2024-03-04", table)], "click", None, "times")
    assert examples.observed.tolist() == [[3.0, 3.0], [2.5, 0.0]]


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan"), None, 1e-9, 1e9])
def test_a_weight_that_is_none_is_refused_by_day_and_row(tmp_path, bad):
    days = weighted_days(lambda weight: [weight[0], bad, *weight[2:]])
    project(tmp_path, days, log__weight="times", **FEATURES)
    with pytest.raises(DataError, match=r"day 2024-03-04, column times: row 1 has the weight"):
        walk(tmp_path, "validate")


def test_a_rate_and_weights_are_never_both(tmp_path):
    with pytest.raises(ParamsError, match="both set"):
        project(tmp_path, None, log__keep_rate=0.1, log__weight="times")


@pytest.mark.parametrize("rate", [0, -0.1, 1.5, "0.1", {"trainin": 0.1}, {"test": 0}, True])
def test_a_rate_that_is_none_is_refused_with_its_path(tmp_path, rate):
    with pytest.raises(ParamsError, match="keep_rate"):
        project(tmp_path, None, log__keep_rate=rate)


def test_a_rate_of_1_changes_nothing(tmp_path):
    project(tmp_path, None, log__keep_rate=1)
    rates = read_params(tmp_path / "params.yaml").log.keep_rate
    assert rates is not None
    assert set(rates.model_dump().values()) == {1.0}
    shown, clicks = np.ones(3, np.int32), np.array([0, 1, 0], np.int32)
    assert before_sampling(shown, clicks, 1.0, 1.0)[0] is shown


def test_weights_of_all_rows_alike_make_nothing_surer(tmp_path):
    """Rows that stand for ten each are the evidence that they are: intervals, floors and noise are
    those of the same rows without a weight."""
    found = []
    for name, more in (("one", {}), ("ten", {"log__weight": "times"})):
        days = {
            day: whole_day(day, 1500)
            .append_column("score", pa.array(np.full(1500, -3.0) + np.arange(1500) % 7 / 5))
            .append_column("times", pa.array(np.full(1500, 10.0)))
            for day in DAYS
        }
        folder = project(tmp_path / name, days, log__served_logit="score", **more)
        walk(folder, "evaluate")
        evaluation = read_json(folder / "reports/evaluation.json")
        checked = read_json(folder / "reports/tables.json")
        model, first = evaluation["methods"]["isotonic"], evaluation["largest_field_values"][0]
        names = ("pcoc_low", "pcoc_high", "daily_field_deviance_floor", "field_rce_floor")
        numbers = [model[n] for n in names] + [first[n] for n in ("responses", "low", "high")]
        numbers += [evaluation["pcoc"][n] for n in ("low", "high")]
        numbers += [checked["bounds"]["shape_noise"]]
        numbers += [checked["memorisation"][n] for n in ("low", "high")]
        numbers += [evaluation["new_values"]["rare"]["impressions"]]
        found.append(numbers)
    np.testing.assert_allclose(*found, rtol=0.02)
