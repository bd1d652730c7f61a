"""The evaluate stage: what ships is measured on the raw test days, beside its baselines."""

import json
import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import expit
from sklearn.metrics import log_loss

from pipeline.checkpoint.bundle import load
from pipeline.core.errors import ArtifactError, DataError
from pipeline.core.files import read_json, sha256_of, write_json
from pipeline.formats.champion import MODEL, TABLES, Pin, write_pin
from pipeline.formats.maps import affine_map, identity_map, write_maps
from pipeline.gate.champion_comparison import score_champion
from pipeline.params.sections import EvaluateParams
from pipeline.stages.evaluate import run
from tests.checkpoint import parts
from tests.tiny_logs import write_log

PARAMS = EvaluateParams(replicates=100, largest_field_values=3, confidence=0.95, seed=1)
DAYS = [f"2013-09-{day}" for day in range(25, 31)]


def day_table(seed, **columns):
    """300 rows of a log, with columns added or replaced."""
    table = parts.rows(300, seed)
    for name, column in columns.items():
        table = table.append_column(name, pa.array(column))
    return table


def write_walk(folder, tables, conventions=None):
    """data, split, calibrator and model of a small walk whose last days are the test days."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "CONVENTIONS", parts.CONVENTIONS | (conventions or {}))
        base, calibrator = parts.write_parts(folder)
    shifted = affine_map(np.linspace(1.2, 1.8, 5), np.ones(5))
    maps = {
        "identity": identity_map(5),
        "isotonic": affine_map(np.full(5, 1.5), np.ones(5)),
        "eb_platt": shifted,
        "adacalib": shifted,
    }
    write_maps(calibrator / "maps.parquet", maps)
    parts.write_model(base, calibrator, folder / "model")
    write_log(folder / "data", dict(zip(DAYS, tables, strict=True)))
    write_json(folder / "split" / "manifest.json", {"parts": {"test": DAYS}})
    write_pin(folder / "champion.json", None)
    names = ("data", "split", "calibrator", "model", "champion.json")
    return tuple(folder / name for name in names)


def evaluate(folder, inputs):
    run(*inputs, folder / "evaluation.json", folder / "sums", params=PARAMS)
    return read_json(folder / "evaluation.json")


@pytest.fixture
def tables():
    return [day_table(seed) for seed in range(6)]


@pytest.fixture
def inputs(tmp_path, tables):
    return write_walk(tmp_path, tables)


def test_the_report_says_what_was_tested_and_how_every_method_did(tmp_path, inputs):
    report = evaluate(tmp_path, inputs)
    assert (report["first_day"], report["last_day"], report["days"]) == (DAYS[0], DAYS[-1], 6)
    assert (report["rows"], report["impressions"], report["field_values"]) == (1800, 1800, 5)
    assert list(report["methods"]) == ["adacalib", "eb_platt", "isotonic", "model", "uncalibrated"]
    assert list(report["gains"]) == ["adacalib", "eb_platt", "isotonic", "model"]
    assert report["gains"]["model"]["logloss"]["low"] > 0
    assert report["truth"] == {}


def test_what_is_measured_is_what_ships(tmp_path, inputs, tables):
    measured = evaluate(tmp_path, inputs)["methods"]["model"]
    rows = pa.concat_tables(tables)
    prediction = load(tmp_path / "model").predict(rows)
    expected = log_loss(rows["late"], expit(prediction.calibrated_logit))
    assert measured["logloss"] == pytest.approx(expected, rel=1e-6)


def test_a_rival_with_the_shipped_map_measures_the_same(tmp_path, inputs):
    methods = evaluate(tmp_path, inputs)["methods"]
    assert methods["adacalib"]["field_rce"] == pytest.approx(
        methods["model"]["field_rce"], rel=1e-9
    )


def test_unseen_values_are_tested_under_the_id_0_and_counted(tmp_path, inputs, tables):
    report = evaluate(tmp_path, inputs)
    carriers = pa.concat_tables(tables)["carrier"].to_pylist()
    unseen = sum(carrier not in parts.CARRIERS for carrier in carriers)
    assert report["unseen_impressions"] == unseen > 0


def test_the_sums_add_up_to_the_rows(tmp_path, inputs):
    report = evaluate(tmp_path, inputs)
    counts = pq.read_table(tmp_path / "sums" / "counts.parquet").to_pandas()
    bins = pq.read_table(tmp_path / "sums" / "reliability.parquet").to_pandas()
    by_method = counts.groupby("method")[["impressions", "responses", "log_loss"]].sum()
    assert set(by_method["impressions"]) == {1800}
    assert set(by_method["responses"]) == {report["responses"]}
    model = by_method.loc["model", "log_loss"] / 1800
    assert model == pytest.approx(report["methods"]["model"]["logloss"])
    overall = bins[(bins["field_value_id"] == -1) & (bins["method"] == "model")]
    assert overall["impressions"].tolist() == [90] * 20


def test_aggregated_rows_give_what_single_impressions_give(tmp_path, tables):
    """Rows that stand for many impressions, against the same log with a row for each."""
    rng = np.random.default_rng(5)
    short, long = [], []
    for table in tables:
        many = rng.integers(1, 4, len(table))
        late = rng.integers(0, many + 1)
        plain = table.drop_columns(["late"])
        short.append(
            plain.append_column("late", pa.array(late)).append_column("shown", pa.array(many))
        )
        labels = np.concatenate([np.arange(n) < r for n, r in zip(many, late, strict=True)])
        repeated = plain.take(pa.array(np.repeat(np.arange(len(table)), many)))
        long.append(repeated.append_column("late", pa.array(labels.astype(np.int64))))
    reports = []
    for name, log, more in (("short", short, {"impressions": "shown"}), ("long", long, {})):
        report = evaluate(tmp_path / name, write_walk(tmp_path / name, log, more))
        del report["rows"]
        reports.append(json.dumps(report, sort_keys=True))
    numbers = [list(numbers_of(json.loads(report))) for report in reports]
    np.testing.assert_allclose(*numbers, rtol=1e-6, atol=1e-9)


def numbers_of(report):
    """Every number of a report, in order of the names."""
    if isinstance(report, dict):
        for name in sorted(report):
            yield from numbers_of(report[name])
    elif isinstance(report, (int, float)):
        yield float(report)


def test_a_log_with_the_truth_is_measured_against_it(tmp_path):
    rng = np.random.default_rng(2)
    tables = [day_table(seed, chance=rng.uniform(0.3, 0.7, 300)) for seed in range(6)]
    report = evaluate(tmp_path, write_walk(tmp_path, tables, {"truth": "chance"}))
    excess = report["truth"]["excess_logloss"]
    assert set(excess) == set(report["methods"])
    assert 0 < excess["model"] < excess["uncalibrated"]


def test_test_days_without_a_response_leave_metrics_undefined_and_log_loss_defined(
    tmp_path, tables
):
    """Null in the report, which the gate refuses; never a plausible number."""
    none = [t.drop_columns(["late"]).append_column("late", pa.array([0] * 300)) for t in tables]
    report = evaluate(tmp_path, write_walk(tmp_path, none))
    model = report["methods"]["model"]
    undefined = ["field_rce", "field_deviance", "field_auc", "auc", "pcoc"]
    assert [model[name] for name in undefined] == [None] * 5
    assert (model["field_rce_coverage"], model["field_auc_coverage"]) == (0, 0)
    assert model["logloss"] > 0


def test_a_second_run_writes_the_same_bytes(tmp_path, inputs):
    evaluate(tmp_path, inputs)
    names = ["evaluation.json", "sums/counts.parquet", "sums/reliability.parquet"]
    before = [(tmp_path / name).read_bytes() for name in names]
    evaluate(tmp_path, inputs)
    assert [(tmp_path / name).read_bytes() for name in names] == before


def test_a_null_response_stops_the_stage_and_is_named(tmp_path, tables):
    """A null label is never counted as no response."""
    late = [None, *tables[2]["late"].to_pylist()[1:]]
    tables[2] = tables[2].drop_columns(["late"]).append_column("late", pa.array(late, pa.int64()))
    inputs = write_walk(tmp_path, tables)
    with pytest.raises(DataError, match=f"day {DAYS[2]}, column late, row 0"):
        evaluate(tmp_path, inputs)
    assert not (tmp_path / "evaluation.json").exists()


def test_a_missing_calibrator_is_named(tmp_path, inputs):
    (inputs[2] / "maps.parquet").unlink()
    with pytest.raises(ArtifactError, match=r"maps\.parquet"):
        evaluate(tmp_path, inputs)


def pin_another(folder, inputs, **conventions):
    """Pin a champion with the same base, another map and other conventions; its sentence."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "CONVENTIONS", parts.CONVENTIONS | conventions)
        made = parts.write_parts(folder / "other", affine_map(np.full(5, 0.9), np.ones(5)))
    model = folder / MODEL
    model.parent.mkdir(parents=True)
    parts.write_model(*made, model)
    (folder / TABLES).mkdir()
    digest = sha256_of(model / "manifest.json")
    pin = Pin("v0.0.3", "0" * 40, DAYS[2], digest, {})
    write_pin(inputs[-1], pin)
    return pin


def test_without_production_there_is_no_champion_and_the_report_says_so(tmp_path, inputs):
    report = evaluate(tmp_path, inputs)
    assert report["champion"] is None
    assert "champion" not in report["methods"]


def test_the_champion_scores_the_same_days_whole_and_is_compared_in_pairs(tmp_path, inputs, tables):
    pin_another(tmp_path, inputs)
    report = evaluate(tmp_path, inputs)
    prediction = load(tmp_path / MODEL).predict(pa.concat_tables(tables))
    expected = log_loss(pa.concat_tables(tables)["late"], expit(prediction.calibrated_logit))
    champion, model = (report["methods"][name]["logloss"] for name in ("champion", "model"))
    assert champion == pytest.approx(expected, rel=1e-6)
    gain = report["champion"]["gains"]["logloss"]
    assert gain["value"] == pytest.approx(champion - model, abs=1e-12)
    assert gain["low"] < gain["value"] < gain["high"]
    assert gain["champion"] == pytest.approx(champion)
    counts = pq.read_table(tmp_path / "sums" / "counts.parquet").to_pandas()
    assert counts.groupby("method")["impressions"].sum()["champion"] == 1800


def test_the_prequential_curve_has_every_test_day_and_says_which_are_new(tmp_path, inputs, tables):
    pin_another(tmp_path, inputs)
    curve = evaluate(tmp_path, inputs)["champion"]["by_day"]
    assert [row["day"] for row in curve] == DAYS
    assert [row["new"] for row in curve] == [False] * 3 + [True] * 3
    prediction = load(tmp_path / MODEL).predict(tables[4])
    expected = log_loss(tables[4]["late"], expit(prediction.calibrated_logit))
    assert curve[4]["champion"]["logloss"] == pytest.approx(expected, rel=1e-6)


def test_a_champion_held_against_itself_gains_exactly_nothing(tmp_path, inputs):
    pin_another(tmp_path, inputs)
    shutil.rmtree(tmp_path / "model")
    shutil.copytree(tmp_path / MODEL, tmp_path / "model")
    gains = evaluate(tmp_path, inputs)["champion"]["gains"]
    assert {(gain["value"], gain["low"], gain["high"]) for gain in gains.values()} == {(0, 0, 0)}


@pytest.mark.parametrize(
    ("conventions", "why"),
    [
        ({"field": ["origin"]}, r"its field is \['origin'\], here it is \['carrier'\]"),
        ({"label": "cancelled"}, "its label is 'cancelled', here it is 'late'"),
    ],
)
def test_a_champion_of_other_conventions_is_reported_and_not_compared(
    tmp_path, inputs, conventions, why
):
    pin_another(tmp_path, inputs, **conventions)
    report = evaluate(tmp_path, inputs)
    assert report["champion"]["readable"] is False
    assert re.search(why, report["champion"]["why"])
    assert "champion" not in report["methods"]


def test_a_champion_that_reads_a_column_the_days_have_not_is_reported(tmp_path, tables):
    plain = [table.rename_columns(["late", "carrier", "from", "distance"]) for table in tables]
    inputs = write_walk(tmp_path, tables)
    pin = pin_another(tmp_path, inputs)
    champion = score_champion(pin, tmp_path / MODEL, parts.CONVENTIONS, [(DAYS[0], plain[0])])
    assert champion.logit is None
    assert "origin" in champion.why


@pytest.mark.parametrize("damage", ["absent", "one byte", "another model"])
def test_a_champion_that_is_not_what_is_pinned_is_refused_with_the_command_that_brings_it(
    tmp_path, inputs, damage
):
    pin_another(tmp_path, inputs)
    weights = tmp_path / MODEL / "weights.safetensors"
    if damage == "absent":
        shutil.rmtree(tmp_path / MODEL)
    elif damage == "one byte":
        weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    else:
        shutil.rmtree(tmp_path / MODEL)
        shutil.copytree(tmp_path / "model", tmp_path / MODEL)
    with pytest.raises(ArtifactError, match=r"pins v0\.0\.3.*; bring it with: adacalib champion$"):
        evaluate(tmp_path, inputs)


def test_the_largest_field_values_are_named_with_what_is_expected_of_them(tmp_path, inputs, tables):
    report = evaluate(tmp_path, inputs)
    carriers = pa.concat_tables(tables).to_pandas()["carrier"].value_counts()
    values = report["largest_field_values"]
    assert len(values) == 3
    named = {row["field_value"]: row for row in values if row["field_value"]}
    assert named
    for name, row in named.items():
        assert row["impressions"] == carriers[name]
        assert row["low"] < row["pcoc"] < row["high"]
        assert row["pcoc"] == pytest.approx(row["expected_responses"] / row["responses"])


def test_young_labels_on_the_days_that_decide_are_named(tmp_path, inputs):
    contract = {
        "parts": {"calibration": ["2013-09-24"], "test": DAYS},
        "conventions": {
            "label_maturity": {"maturity_days": 2, "newest_mature_day": "2013-09-28"},
        },
    }
    write_json(tmp_path / "split" / "manifest.json", contract)
    assert evaluate(tmp_path, inputs)["maturity"] == {
        "maturity_days": 2,
        "newest_mature_day": "2013-09-28",
        "young_days": ["2013-09-29", "2013-09-30"],
    }
