"""The quality benchmark: what it reads, what it makes, what it writes."""

import json
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import logit as log_odds

from bench import quality, quality_ablation, quality_gains, quality_tables
from bench.quality_cases import frozen_cases, simulated_case
from bench.quality_log import LogFile, Window, log_cases
from pipeline.calibration.baselines import fit_eb_platt
from pipeline.calibration.paper.paper_fit import fit_paper
from pipeline.core.errors import DataError
from pipeline.metrics.calibration import excess_log_loss
from pipeline.metrics.significance import Interval
from pipeline.metrics.summary import GAINED
from pipeline.params.params_file import read_params

WINDOW = "2020-01-01 3/2/2"
KEYS = {
    *("method", "seed", "window", "field_rce", "field_rce_low", "field_rce_high"),
    *(
        "field_rce_floor",
        "daily_field_deviance",
        "field_deviance",
        "logloss",
        "excess_logloss",
        "field_auc",
        "auc",
    ),
    *("pcoc", "fit_seconds", "rows_per_second", "gains", "mean_gains"),
}


def frozen(rows=700):
    """Frozen scores of one window and two seeds; the value "new" is in test rows only."""
    rng = np.random.default_rng(1)
    day = np.arange(rows) % 7
    impressions = rng.integers(1, 50, rows)
    frame = pd.DataFrame(
        {
            "window": WINDOW,
            "split": np.array(["train"] * 3 + ["calibration"] * 2 + ["test"] * 2)[day],
            "date": [f"2020-01-{d + 1:02d}" for d in day],
            "id": np.where(day == 6, "new", rng.choice(["001", "1", "a"], rows)),
            "impressions": impressions,
            "clicks": rng.binomial(impressions, 0.1),
            "uncalibrated_logit": rng.normal(-2, 1, rows).astype(np.float32),
        }
    )
    return pd.concat([frame.assign(seed=seed) for seed in (0, 1)])


@pytest.fixture
def scores_file(tmp_path):
    frozen().to_parquet(tmp_path / "scores.parquet")
    return tmp_path / "scores.parquet"


def run(monkeypatch, *arguments):
    """The command's main with arguments; logging is as before afterwards."""
    monkeypatch.setattr(sys, "argv", ["bench.quality", *map(str, arguments)])
    monkeypatch.setattr(quality.logging, "disable", lambda level: None)
    quality.main()


def test_calibrators_see_calibration_rows_and_are_judged_on_test_rows(scores_file):
    case = next(frozen_cases(scores_file, [WINDOW], [1]))
    rows = frozen().query("seed == 1")
    assert len(case.calibration) == (rows["split"] == "calibration").sum()
    assert case.test.responses.sum() == rows[rows["split"] == "test"]["clicks"].sum()
    assert (case.window, case.seed) == (WINDOW, 1)


def test_values_of_test_rows_alone_are_unseen(scores_file):
    """ "001" and "1" are two values, "new" has the id 0."""
    case = next(frozen_cases(scores_file, None, None))
    assert case.test.n_field_values == 4
    unseen = case.test.day == case.test.day.max()
    assert (case.test.field_value_id[unseen] == 0).all()
    assert (case.test.field_value_id[~unseen] > 0).all()


def test_windows_and_seeds_that_are_not_there_are_named(scores_file):
    with pytest.raises(DataError, match="no window 'nope'"):
        next(frozen_cases(scores_file, ["nope"], None))
    with pytest.raises(DataError, match="no seed 7"):
        next(frozen_cases(scores_file, None, [7]))


def test_a_file_that_lacks_a_column_is_refused(tmp_path):
    frozen().drop(columns="clicks").to_parquet(tmp_path / "scores.parquet")
    with pytest.raises(DataError, match=r"lacks the columns \['clicks'\]"):
        next(frozen_cases(tmp_path / "scores.parquet", None, None))


def test_the_json_holds_one_object_per_window_seed_and_method(scores_file, monkeypatch, tmp_path):
    target = tmp_path / "out.json"
    methods = ["identity", "platt", "eb_platt"]
    run(monkeypatch, "--scores", scores_file, "--methods", ",".join(methods), "--json", target)
    results = json.loads(target.read_text())
    assert all(set(result) == KEYS for result in results)
    assert [(r["seed"], r["method"]) for r in results] == [(s, m) for s in (0, 1) for m in methods]
    assert {r["window"] for r in results} == {WINDOW}
    assert {r["excess_logloss"] for r in results} == {None}


def test_the_json_says_what_each_method_gains_on_the_references(scores_file, monkeypatch, tmp_path):
    target = tmp_path / "out.json"
    run(monkeypatch, "--scores", scores_file, "--methods", "identity,eb_platt", "--json", target)
    results = json.loads(target.read_text())
    ours, others = ([r for r in results if r["method"] == m] for m in ("identity", "eb_platt"))
    for one, other in zip(ours, others, strict=True):
        assert other["gains"] == {}
        gained = one["gains"]["eb_platt"]["logloss"]
        assert gained["value"] == pytest.approx(other["logloss"] - one["logloss"])
        assert gained["low"] <= gained["value"] <= gained["high"]
        mean = one["mean_gains"]["eb_platt"]["logloss"]["value"]
        assert mean == pytest.approx(
            np.mean([r["logloss"] for r in others]) - np.mean([r["logloss"] for r in ours])
        )


def test_rolling_judges_each_method_refitted_daily_and_once(scores_file, monkeypatch, tmp_path):
    """What is fitted without a look at the log is the same in both modes."""
    target = tmp_path / "out.json"
    methods = ["identity", "eb_platt", "adacalib", "platt"]
    run(monkeypatch, "--scores", scores_file, "--rolling", "--seeds", "0",
        "--methods", ",".join(methods), "--json", target)  # fmt: skip
    results = json.loads(target.read_text())
    metrics = {"logloss", "daily_field_deviance", "field_deviance", "field_rce", "pcoc"}
    assert all({"window", "seed", "method", "mode"} | metrics <= set(result) for result in results)
    found = {(r["method"], r["mode"]): r["logloss"] for r in results}
    assert set(found) == {(m, mode) for m in methods for mode in ("rolling", "frozen")}
    assert found["identity", "rolling"] == found["identity", "frozen"]
    assert found["platt", "rolling"] != found["platt", "frozen"]
    for groups in (r["groups"] for r in results):  # "new" is of the last day alone
        assert groups["age_0"] == groups["unseen"]
        assert groups["age_0"]["logloss"] != groups["all"]["logloss"]
        assert set(groups["all"]) == metrics | {"auc", "daily_field_auc", "ece"}


def test_the_size_of_a_simulated_log_is_an_option(monkeypatch, tmp_path):
    target = tmp_path / "out.json"
    size = ("--rows", "2000", "--values", "5", "--seeds", "4")
    run(monkeypatch, "--simulated", *size, "--methods", "identity", "--json", target)
    (result,) = json.loads(target.read_text())
    assert (result["window"], result["seed"]) == ("simulated 2000 rows 5 values", 4)


def test_a_field_value_is_the_same_one_in_all_windows():
    case = simulated_case(1, n_rows=20, n_values=2)
    one, other = (replace(case, field_values=pd.Index(n)) for n in (["", "a", "b"], ["", "b", "c"]))
    numbers = quality_gains._numbers([quality_gains.Judged(c, {}) for c in (one, other)])
    assert [n.tolist() for n in numbers] == [[0, 1, 2], [0, 2, 3]]


def test_a_method_against_its_copy_is_a_tie(scores_file, monkeypatch, capsys):
    fit_of = quality.fit_of
    monkeypatch.setattr(quality, "METHODS", (*quality.METHODS, "copy"))
    monkeypatch.setattr(quality, "fit_of", lambda name: fit_of(name.replace("copy", "eb_platt")))
    run(monkeypatch, "--scores", scores_file, "--methods", "eb_platt,copy,identity")
    printed = capsys.readouterr().out.splitlines()
    start = next(i for i, line in enumerate(printed) if line.startswith("gains on eb_platt "))
    copy = next(line for line in printed[start:] if line.startswith("copy"))
    assert copy.count("tie") == len(GAINED)
    assert "0/0 of 1" in copy


def test_the_table_has_a_row_per_method(scores_file, monkeypatch, capsys):
    run(monkeypatch, "--scores", scores_file, "--methods", "identity,isotonic", "--seeds", "0")
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[1:]] == ["method", "identity", "isotonic"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--methods", "nope"], "no method"),
        (["--windows", "nope"], "no window"),
        (["--scores", "nope.parquet"], "nope.parquet does not exist"),
    ],
)
def test_what_is_not_there_is_one_sentence(scores_file, monkeypatch, arguments, sentence):
    with pytest.raises(SystemExit, match=f"bench.quality: .*{sentence}"):
        run(monkeypatch, "--scores", scores_file, *arguments)


def test_the_simulated_truth_is_no_line_but_always_rises():
    case = simulated_case(1, n_rows=40_000, n_values=20)
    truth = log_odds(case.true_probability)
    rows = case.test
    order = np.lexsort((rows.uncalibrated_logit, rows.field_value_id))
    same = np.diff(rows.field_value_id[order]) == 0
    assert (np.diff(truth[order])[same] >= 0).all()
    n, noiseless = rows.impressions, case.true_probability
    columns = (rows.field_value_id, rows.uncalibrated_logit, 1000 * n, 1000 * noiseless)
    best_lines = fit_eb_platt(*columns, rows.n_field_values)
    left = excess_log_loss(best_lines(columns[1], columns[0]), noiseless, n)
    assert 20e-4 < left < 100e-4


def test_equal_seeds_simulate_equal_rows():
    one, other = (simulated_case(3, n_rows=1000, n_values=5) for _ in range(2))
    np.testing.assert_array_equal(one.calibration.responses, other.calibration.responses)
    np.testing.assert_array_equal(one.test.uncalibrated_logit, other.test.uncalibrated_logit)


def test_each_row_of_the_ablation_is_compared_with_the_row_above(monkeypatch):
    def briefly(scores, settings, features):
        return fit_paper(scores, replace(settings, epochs=1, least_steps=3), features)

    monkeypatch.setattr(quality_ablation, "fit_paper", briefly)
    case = simulated_case(1, n_rows=4000, n_values=5, slot_spread=0.3)
    measured = dict(quality_ablation.ablation(case, "ctr"))
    assert list(measured) == ["✓ ✓ ✓ ✓", "✓ ✓ ✓ ×", "✓ ✓ × ×", "✓ × × ×", "× × × ×"]
    losses = quality_ablation.losses([quality_gains.Judged(case, measured)])
    assert list(losses) == list(measured)[1:]
    for above, row in pairwise(measured):
        values = [measured[name].counts.sum().log_loss / 2000 for name in (above, row)]
        assert losses[row]["logloss"].value == pytest.approx(float(values[1] - values[0]))
    assert "field_rce lost" in quality_tables.losses_table([quality_gains.Judged(case, measured)])


@pytest.mark.parametrize(
    ("ends", "word"), [((0.1, 0.2), "holds"), ((-0.2, -0.1), "reversed"), ((-0.1, 0.1), "open")]
)
def test_an_order_holds_only_where_its_interval_says_so(ends, word):
    assert quality_ablation.verdict(Interval(sum(ends) / 2, *ends, "days", 7)) == word


def test_logs_that_disagree_widen_the_interval():
    """With three logs or more other logs are spoken of, with fewer only other field values."""
    sure = Interval(0.02, 0.01, 0.03, "field values", 3)
    assert quality_ablation._wider(sure, [0.1, -0.06]) == sure
    wide = quality_ablation._wider(sure, [0.1, -0.06, 0.02])
    assert wide.low < -0.1 < 0.1 < wide.high
    assert quality_ablation._wider(sure, [0.02, 0.0201, 0.0199]) == sure


def log_file(folder, suffix):
    """A small log with ids that look like numbers and a day column of dates."""
    rng = np.random.default_rng(1)
    n = 1400
    day = np.arange(n) % 14
    frame = pd.DataFrame(
        {
            "when": pd.Series(pd.to_datetime("2020-01-01") + pd.to_timedelta(day, "D")).astype(str),
            "ad": rng.choice(["001", "01", "1"], n),
            "price": rng.normal(0, 1, n),
            "click": rng.integers(0, 2, n),
        }
    )
    path = folder / f"log{suffix}"
    frame.to_parquet(path) if suffix == ".parquet" else frame.to_csv(path, index=False)
    return LogFile(path, ("ad",), "when", None, "click", (), ("price",))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".parquet", ".csv.gz"])
def test_a_raw_log_becomes_a_case_with_features(tmp_path, suffix, monkeypatch):
    """001, 01 and 1 stay three values in either format."""
    log = log_file(tmp_path, suffix)
    (case,) = log_cases(log, Window.of("2020-01-02", "6/3/2"), [5], read_params())
    assert case.window == "2020-01-02 6/3/2"
    assert case.test.n_field_values == 4
    assert (len(case.calibration), len(case.test)) == (300, 200)
    assert case.calibration_features.numeric.shape[0] == 300
    assert np.isfinite(case.test.uncalibrated_logit).all()


def test_ids_of_64_bits_with_gaps_keep_their_digits(tmp_path):
    ids = pa.array([1582218195625938945, 1582218195625938946, 7, None])
    table = pa.table({"ad": ids, "when": ["2020-01-01"] * 4, "click": [0, 1, 0, 1]})
    pq.write_table(table, tmp_path / "log.parquet")
    frame = LogFile(tmp_path / "log.parquet", ("ad",), "when", None, "click", (), ()).read()
    names = [None if pd.isna(name) else name for name in frame["ad"]]
    assert names == ["1582218195625938945", "1582218195625938946", "7", None]


@pytest.mark.parametrize("window", [("2020-01-02", "14-5-5"), ("2 January", "3/2/2")])
def test_a_window_is_spelled_in_one_way(window):
    with pytest.raises(DataError, match="such as 2012-04-01 and 60/7/7"):
        Window.of(*window)


def test_a_log_without_a_day_of_the_window_is_refused(tmp_path):
    log = log_file(tmp_path, ".parquet")
    with pytest.raises(DataError, match="no rows on 2020-01-15"):
        next(log_cases(log, Window.of("2020-01-10", "3/2/2"), [0], read_params()))


def test_serving_speed_is_of_calls_on_many_rows(scores_file):
    sizes = []

    def constant(logit, field_value_id):
        sizes.append(len(logit))
        return logit

    case = next(frozen_cases(scores_file, None, None))
    assert quality.serving_rate(constant, case.test) > 0
    assert sizes == [quality.TIMED_ROWS] * 3


def test_probabilities_of_the_simulation_are_those_of_its_responses():
    case = simulated_case(2, n_rows=100_000, n_values=10)
    assert case.test.responses.mean() == pytest.approx(case.true_probability.mean(), rel=0.03)
