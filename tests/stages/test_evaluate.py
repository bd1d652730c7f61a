"""The evaluate stage: what ships is measured on the raw test days, beside its rivals."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import log_loss

from pipeline.calibration.piecewise import affine_map, identity_map
from pipeline.data.map_files import write_maps
from pipeline.errors import ArtifactError, DataError
from pipeline.files import read_json, write_json
from pipeline.metrics.counts import probability
from pipeline.params import EvaluateParams
from pipeline.release.checkpoint import load, merge
from pipeline.stages.evaluate import run
from tests.release import parts
from tests.tiny_logs import write_log

PARAMS = EvaluateParams(replicates=100, confidence=0.95, seed=1)
DAYS = [f"2013-09-{day}" for day in range(25, 31)]
NAMES = [None, *parts.CARRIERS]


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
    write_maps(calibrator / "maps.parquet", maps, NAMES)
    merge(base, calibrator, folder / "model")
    write_log(folder / "data", dict(zip(DAYS, tables, strict=True)))
    write_json(folder / "split" / "manifest.json", {"parts": {"test": DAYS}})
    return folder / "data", folder / "split", calibrator, folder / "model"


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
    expected = log_loss(rows["late"], probability(prediction.calibrated_logit))
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
    assert read_json(tmp_path / "sums" / "manifest.json") == {
        "field": ["carrier"],
        "field_values": NAMES,
    }


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
    """H18, H6: null in the report, which the gate refuses; never a plausible number."""
    none = [t.drop_columns(["late"]).append_column("late", pa.array([0] * 300)) for t in tables]
    report = evaluate(tmp_path, write_walk(tmp_path, none))
    model = report["methods"]["model"]
    undefined = ["field_rce", "field_deviance", "field_auc", "auc", "pcoc"]
    assert [model[name] for name in undefined] == [None] * 5
    assert (model["field_rce_coverage"], model["field_auc_coverage"]) == (0, 0)
    assert model["logloss"] > 0


def test_a_second_run_writes_the_same_bytes(tmp_path, inputs):
    """H21."""
    evaluate(tmp_path, inputs)
    names = ["evaluation.json", "sums/counts.parquet", "sums/reliability.parquet"]
    before = [(tmp_path / name).read_bytes() for name in names]
    evaluate(tmp_path, inputs)
    assert [(tmp_path / name).read_bytes() for name in names] == before


def test_a_null_response_stops_the_stage_and_is_named(tmp_path, tables):
    """H16: a null label is never counted as no response."""
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
