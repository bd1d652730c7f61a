"""The evaluate stage: what ships is measured on the raw test days, beside its baselines."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.core.errors import ArtifactError
from pipeline.core.files import read_json, write_json
from pipeline.encoding.values import NULL_NAME
from pipeline.formats.maps import write_maps
from pipeline.formats.rolling import DayMap, read_rolling, write_rolling
from tests.checkpoint import parts
from tests.stages.evaluation import (
    DAYS,
    LEARNED,
    MADE,
    MAPS,
    V,
    day_table,
    evaluate,
    loss_of,
    note_parts,
    rolling_maps,
    set_lineage,
    shifted,
    write_walk,
)


def test_the_report_says_what_was_tested_and_how_every_method_did(tmp_path, inputs):
    report = evaluate(tmp_path, inputs)
    assert (report["first_day"], report["last_day"], report["days"]) == (DAYS[0], DAYS[-1], 6)
    assert (report["rows"], report["impressions"], report["field_values"]) == (1800, 1800, 6)
    others = ["adacalib", "eb_platt", "frozen", "isotonic", "model"]
    assert list(report["methods"]) == [*others, "uncalibrated"]
    assert list(report["gains"]) == others
    assert report["gains"]["model"]["logloss"]["low"] > 0
    assert report["truth"] == {}


def test_every_day_is_forecast_by_the_map_of_its_own_morning(tmp_path, inputs, tables):
    """And the same method, frozen, by one map; what ships is newer than both."""
    report = evaluate(tmp_path, inputs)
    rolling = loss_of(tables, rolling_maps()["adacalib"] | {"model": tmp_path / "model"})
    frozen = loss_of(tables, dict.fromkeys(DAYS, MAPS["adacalib"]) | {"model": tmp_path / "model"})
    methods, age = report["methods"], report["age"]
    assert methods["model"]["logloss"] == pytest.approx(rolling, rel=1e-6)
    assert methods["frozen"]["logloss"] == pytest.approx(frozen, rel=1e-6)
    assert age["cost"]["value"] == pytest.approx(frozen - rolling, abs=1e-9)
    assert age["cost"]["low"] < age["cost"]["value"] < age["cost"]["high"]
    for name in ("logloss", "daily_field_deviance", "field_deviance", "field_rce", "pcoc"):
        assert age["frozen"]["adacalib"][name] == pytest.approx(methods["frozen"][name])
    assert [(row["day"], row["days_since_label"]) for row in age["by_day"]] == [
        (day, n) for n, day in enumerate(DAYS, 1)
    ]
    assert age["by_day"][0]["frozen"] == pytest.approx(age["by_day"][0]["rolling"])


def test_the_report_says_how_old_the_evidence_and_the_base_are(tmp_path, inputs):
    assert evaluate(tmp_path, inputs)["procedure"] == {
        "horizon_days": 1,
        "learned_until": "2013-09-24",
        "shipped_until": "2013-09-30",
        "base_until": "2013-09-20",
        "base_age_days": [5, 10, 11],
    }


def test_the_deployed_file_is_proved_on_the_newest_test_day(tmp_path, inputs):
    proof = evaluate(tmp_path, inputs)["deployed"]
    assert (proof["day"], proof["rows"]) == (DAYS[-1], 300)
    assert proof["uncalibrated_logit"] < 2e-5
    assert proof["calibrated_logit"] < 1e-6
    write_maps(inputs[3] / "maps.parquet", MAPS | {"adacalib": shifted(2.001)})
    with pytest.raises(ArtifactError):
        evaluate(tmp_path, inputs)


def test_days_of_a_late_label_are_left_out_of_intervals_together(tmp_path, tables):
    """Six days at a horizon of two are three blocks, too few to speak of other days."""
    rolling = {"horizon_days": 2, "learned_until": "2013-09-23"}
    report = evaluate(tmp_path, write_walk(tmp_path, tables, rolling=rolling))
    assert {gain["over"] for gain in report["gains"]["model"].values()} == {"field values"}


def test_a_rival_with_the_shipped_map_measures_the_same(tmp_path, inputs):
    methods = evaluate(tmp_path, inputs)["methods"]
    assert methods["adacalib"]["field_rce"] == pytest.approx(
        methods["model"]["field_rce"], rel=1e-9
    )


def test_values_that_the_map_of_their_morning_has_not_are_served_as_unseen_and_counted(
    tmp_path, inputs, tables
):
    """Though they have ids, and maps of their own in what ships."""
    assert evaluate(tmp_path, inputs)["unseen_impressions"] == 0
    path, ids = inputs[3] / "rolling.parquet", np.arange(1 + len(parts.CARRIERS), dtype=np.int32)
    of_days = {
        name: {day: DayMap(ids, served.map.take(ids)) for day, served in maps.items()}
        for name, maps in read_rolling(path).items()
    }
    write_rolling(path, of_days)
    report = evaluate(tmp_path, inputs)
    carriers = pa.concat_tables(tables)["carrier"].to_pylist()
    unseen = [name not in parts.CARRIERS for name in carriers]
    assert report["unseen_impressions"] == sum(unseen) > 0
    late = pa.concat_tables(tables)["late"].to_numpy()
    of_unseen = report["new_values"]["unseen"]
    assert of_unseen["impressions"] == sum(unseen)
    assert of_unseen["responses"] == late[unseen].sum()
    as_unseen = {
        day: shifted(np.where(np.arange(V) < len(ids), of_day(np.zeros(V), np.arange(V)), first))
        for day, of_day in rolling_maps()["adacalib"].items()
        for first in of_day(np.zeros(1), np.zeros(1, int))
    }
    expected = loss_of(tables, as_unseen | {"model": tmp_path / "model"})
    assert report["methods"]["model"]["logloss"] == pytest.approx(expected, rel=1e-6)


def test_new_values_are_those_of_the_logs_first_days_and_rare_ones_those_with_few_responses(
    tmp_path, inputs, tables
):
    found = evaluate(tmp_path, inputs)["new_values"]
    ages = {name: group["impressions"] for name, group in found.items() if "age" in name}
    of_days = {"age_0": 300, "age_1": 300, "age_2": 300, "age_3-6": 900, "age_7+": 0}
    assert ages == of_days  # all values come on the first of six days
    assert found["all"]["methods"].keys() >= {"uncalibrated", "eb_platt", "model"}
    known = dict.fromkeys(set(pa.concat_tables(tables)["carrier"].to_pylist()), 0)
    rare = 0
    for table in tables:
        names, late = table["carrier"].to_pylist(), table["late"].to_pylist()
        rare += sum(known[name] < 50 for name in names)
        for name, response in zip(names, late, strict=True):
            known[name] += response
    assert found["rare"]["impressions"] == rare


def test_calibration_days_that_were_forecast_are_evidence_of_pcoc(tmp_path, inputs):
    report = evaluate(tmp_path, inputs)
    found, alone = report["pcoc"], report["methods"]["model"]["pcoc"]
    expected = alone * report["responses"] + LEARNED["expected_responses"]
    both = report["responses"] + LEARNED["responses"]
    assert found["calibration_days"] == [LEARNED["day"]]
    assert found["value"] == pytest.approx(expected / both)
    assert found["low"] < found["value"] < found["high"]


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
        del report["rows"], report["deployed"]
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
    undefined = ["field_rce", "daily_field_deviance", "field_deviance", "field_auc", "auc", "pcoc"]
    assert [model[name] for name in undefined] == [None] * 6
    assert (model["field_rce_coverage"], model["field_auc_coverage"]) == (0, 0)
    assert model["logloss"] > 0


def test_a_second_run_writes_the_same_bytes(tmp_path, inputs):
    evaluate(tmp_path, inputs)
    names = ["evaluation.json", "sums/counts.parquet", "sums/reliability.parquet"]
    before = [(tmp_path / name).read_bytes() for name in names]
    evaluate(tmp_path, inputs)
    assert [(tmp_path / name).read_bytes() for name in names] == before


def test_a_missing_calibrator_is_named(tmp_path, inputs):
    (inputs[3] / "maps.parquet").unlink()
    with pytest.raises(ArtifactError, match=r"maps\.parquet"):
        evaluate(tmp_path, inputs)


def test_the_largest_field_values_are_named_with_what_is_expected_of_them(tmp_path, inputs, tables):
    report = evaluate(tmp_path, inputs)
    carriers = pa.concat_tables(tables).to_pandas()["carrier"].fillna(NULL_NAME).value_counts()
    values = report["largest_field_values"]
    assert len(values) == 3
    assert sorted(row["impressions"] for row in values) == sorted(carriers)[-3:]
    for row in values:
        assert row["impressions"] == carriers[row["field_value"]]
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
    note_parts(tmp_path)
    assert evaluate(tmp_path, inputs)["maturity"] == {
        "maturity_days": 2,
        "newest_mature_day": "2013-09-28",
        "young_days": ["2013-09-29", "2013-09-30"],
    }


def test_artifacts_of_another_run_are_refused(tmp_path, inputs):
    """Scores of another run, and a model that was merged of another calibrator."""
    set_lineage(inputs[4], MADE | {"calibrator": {"manifest.json": "0" * 64}})
    with pytest.raises(
        ArtifactError, match="model was merged of another calibrator; run dvc repro"
    ):
        evaluate(tmp_path, inputs)
    set_lineage(inputs[4], None)
    scored = read_json(inputs[2] / "manifest.json")
    write_json(inputs[2] / "manifest.json", scored | {"params": {"score": "another"}})
    with pytest.raises(ArtifactError, match="calibrator was made with other scores than"):
        evaluate(tmp_path, inputs)
