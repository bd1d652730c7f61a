"""A log that brings its own scores: no base model is trained, everything else is as it was."""

import numpy as np
import pyarrow as pa
import pytest

from pipeline.core.errors import DataError, ParamsError
from pipeline.core.files import read_json
from pipeline.encoding.values import logged_logit
from pipeline.params.params_file import read_params, set_values
from tests.whole_walk import DAYS, asked, project, scored, walk

ITEMS = ("a", "b", "001")


def served_day(day: str, rows: int = 400, **columns) -> pa.Table:
    """Clicks of items whose logged logits are off by something of their own."""
    random = np.random.default_rng(int(day[-2:]))
    item = random.integers(0, len(ITEMS), rows)
    logit = random.normal(-1.0, 1.0, rows)
    click = random.random(rows) < 1 / (1 + np.exp(-(logit + np.array([1.0, -1.0, 0.0])[item])))
    values = {"item": np.array(ITEMS)[item], "score": logit, "click": click.astype(np.int8)}
    return pa.table({**values, **columns})


def as_probability(table: pa.Table, kind: str = "float64") -> pa.Table:
    """The day with probabilities in the place of logits."""
    probability = 1 / (1 + np.exp(-table["score"].to_numpy()))
    return table.set_column(1, "score", pa.array(probability.astype(kind)))


@pytest.fixture(scope="module")
def logits(tmp_path_factory):
    """A walk over a log with logged logits."""
    days = {day: served_day(day, 2000) for day in DAYS}
    folder = tmp_path_factory.mktemp("logits")
    return walk(project(folder, days, log__served_logit="score"), "gate")


@pytest.fixture(scope="module")
def probabilities(tmp_path_factory):
    """A walk over the same log with the probabilities of those logits."""
    days = {day: as_probability(served_day(day, 2000)) for day in DAYS}
    folder = tmp_path_factory.mktemp("probabilities")
    return walk(project(folder, days, log__served_probability="score"), "merge")


def test_nothing_is_trained_and_the_gate_gives_its_verdict(logits):
    manifest = read_json(logits / "artifacts/base/manifest.json")
    assert manifest["network"] == {"kind": "served"}
    assert manifest["history"] == manifest["days"]["fitting"] == []
    gate = read_json(logits / "reports/gate.json")
    assert gate["passed"], gate["reasons"]


def test_the_uncalibrated_logit_is_the_served_one_to_the_bit(logits):
    table = served_day(DAYS[-1])
    answers, _ = scored(logits, table)
    expected = table["score"].to_numpy().astype(np.float32)
    np.testing.assert_array_equal(answers["uncalibrated_logit"], expected)
    gains = read_json(logits / "reports/evaluation.json")["gains"]["model"]["logloss"]
    assert gains["low"] > 0


def test_a_request_carries_the_score_and_the_field_and_nothing_else(logits):
    answer, _ = asked(logits, {"item": ["a", "b"], "score": [-1.0, -1.0]})
    assert answer.status_code == 200
    assert answer.json()["uncalibrated_logit"] == [-1.0, -1.0]
    high, low = answer.json()["probability"]
    assert (high, low) == pytest.approx((0.5, 0.12), abs=0.08)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_probabilities_end_in_the_same_model_as_their_logits(logits, probabilities, kind):
    """Float32 and float64 copies too."""
    table = served_day(DAYS[-1])
    by_logit, _ = scored(logits, table)
    by_probability, _ = scored(probabilities, as_probability(table, kind))
    for name in ("uncalibrated_logit", "calibrated_logit"):
        np.testing.assert_allclose(by_probability[name], by_logit[name], atol=2e-5)


def test_a_probability_of_0_or_1_is_taken_as_1e_15_from_it(probabilities):
    """The written rule, the same in numpy and in what is served."""
    assert logged_logit(np.array([0.0, 1.0]), "probability").tolist() == pytest.approx(
        [-34.5388, 34.5388], abs=1e-3
    )
    answer, _ = asked(probabilities, {"item": ["a"] * 4, "score": [0, 1, 1e-15, 0.5]})
    logits = answer.json()["uncalibrated_logit"]
    assert logits == pytest.approx([-34.5388, 34.5388, -34.5388, 0.0], abs=1e-3)
    assert all(0 < p < 1 for p in answer.json()["probability"])


def test_null_is_served_as_unseen_where_no_known_day_has_it(logits):
    """But it is not counted as unseen."""
    answer, metrics = asked(logits, {"item": [None, "c"], "score": [0.0, 0.0]})
    assert answer.json()["field_value_id"] == [0, 0]
    assert "adacalib_unseen_field_values_total 1.0" in metrics


@pytest.mark.parametrize(
    ("model", "score", "sentence"),
    [
        ("probabilities", 1.5, "row 1 is 1.5, which is no probability"),
        ("probabilities", -0.1, "no probability"),
        ("probabilities", None, "1 of 2 logged scores are null"),
        ("logits", None, "1 of 2 logged scores are null"),
        ("logits", 1e39, "no finite logit"),
        ("logits", "high", "is not a number"),
    ],
)
def test_a_score_that_is_none_is_refused_at_serving(request, model, score, sentence):
    folder = request.getfixturevalue(model)
    answer, _ = asked(folder, {"item": ["a", "a"], "score": [0.5, score]})
    assert answer.status_code == 422
    assert sentence in answer.json()["error"]
    assert "score" in answer.json()["error"]


def test_booleans_are_no_scores_however_they_come(probabilities):
    answer, _ = asked(probabilities, {"item": ["a"], "score": [True]})
    assert answer.status_code == 422
    with pytest.raises(DataError, match="column score: a boolean is no score"):
        scored(probabilities, pa.table({"item": ["a"], "score": [True]}))


def with_scores(scores) -> dict[str, pa.Table]:
    """The log with the scores of its third day replaced."""
    days = {day: served_day(day) for day in DAYS}
    column = days[DAYS[2]]["score"].to_pylist()
    column[: len(scores)] = scores
    return days | {DAYS[2]: days[DAYS[2]].set_column(1, "score", pa.array(column, pa.float64()))}


@pytest.mark.parametrize(
    ("scores", "sentence"),
    [
        ([None, 0.2, None], "day 2024-03-06, column score: 2 of 400 logged scores are null"),
        ([float("nan")], "day 2024-03-06, column score: 1 of 400"),
        ([0.2, float("inf")], "day 2024-03-06, column score: row 1 is inf, which is no finite"),
        ([1e300], "no finite logit"),
    ],
)
def test_a_day_with_a_score_that_is_none_is_refused_and_named(tmp_path, scores, sentence):
    project(tmp_path, with_scores(scores), log__served_logit="score")
    with pytest.raises(DataError, match=sentence):
        walk(tmp_path, "validate")


def test_logits_named_as_probabilities_are_refused(tmp_path):
    project(tmp_path, with_scores([]), log__served_probability="score")
    with pytest.raises(DataError, match=r"is no probability.*log\.served_logit"):
        walk(tmp_path, "validate")


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_probabilities_named_as_logits_are_refused(tmp_path, kind):
    days = {day: as_probability(served_day(day), kind) for day in DAYS}
    project(tmp_path, days, log__served_logit="score")
    with pytest.raises(DataError, match=r"look like; name it in log\.served_probability"):
        walk(tmp_path, "validate")


def test_a_quiet_day_of_logits_between_0_and_1_is_not_taken_for_probabilities(tmp_path):
    days = with_scores(np.linspace(0, 1, 400).tolist())
    walk(project(tmp_path, days, log__served_logit="score"), "validate")


def test_a_score_column_that_is_missing_or_text_is_refused(tmp_path):
    days = {day: served_day(day) for day in DAYS}
    project(tmp_path, days, log__served_logit="scores")
    with pytest.raises(DataError, match="scores"):
        walk(tmp_path, "validate")
    set_values(tmp_path / "params.yaml", {"log.served_logit": "item"})
    with pytest.raises(DataError, match="column item: type string is not a number"):
        walk(tmp_path, "validate")


def test_only_one_score_may_be_named(tmp_path):
    with pytest.raises(ParamsError, match="both set"):
        project(tmp_path, None, log__served_logit="a", log__served_probability="b")
    project(tmp_path, None)
    assert read_params(tmp_path / "params.yaml").log.served_logit is None


def test_aggregates_are_scored_by_the_score_they_were_served_with(tmp_path):
    """A row stands for several impressions at one score."""
    days = {day: served_day(day).append_column("shown", pa.array(np.full(400, 3))) for day in DAYS}
    folder = project(tmp_path, days, log__served_logit="score", log__impressions="shown")
    walk(folder, "tabulate")
    tables = read_json(folder / "artifacts/tables/manifest.json")
    assert tables["totals"]["impressions"] == 3 * 4 * 400


def test_the_order_of_rows_changes_no_table(logits, tmp_path):
    random = np.random.default_rng(0)
    days = {day: served_day(day, 2000).take(random.permutation(2000)) for day in DAYS}
    walk(project(tmp_path, days, log__served_logit="score"), "tabulate")
    for name in ("bins.parquet", "cells.parquet"):
        here, there = (folder / "artifacts/tables" / name for folder in (tmp_path, logits))
        assert here.read_bytes() == there.read_bytes()
