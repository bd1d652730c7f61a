"""The champion in the evaluation: each day by maps that had not seen it."""

import re
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.special import expit
from sklearn.metrics import log_loss

from pipeline.checkpoint.bundle import load
from pipeline.core.errors import ArtifactError
from pipeline.core.files import read_json, sha256_of
from pipeline.formats.champion import MODEL, TABLES, Pin, write_pin
from pipeline.formats.scores import read_scores
from pipeline.gate.champion_comparison import score_champion
from tests.checkpoint import parts
from tests.stages.evaluation import (
    DAYS,
    KNOWN,
    MADE,
    SERVED,
    evaluate,
    loss_of,
    rolling_maps,
    set_lineage,
    shifted,
    write_walk,
)


def learned(*days):
    """A lineage with the days whose labels were used."""
    return {"data": {"label_days": list(days)}}


def pin_another(folder, inputs, lineage=None, rolling=None, before=False, **conventions):
    """Pin a champion with the same base, another map and other conventions.

    It has its `lineage`, or is of before versions had one, and brings the maps of `rolling` (day →
    map), or is of `before` there were such.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "CONVENTIONS", parts.CONVENTIONS | conventions)
        base, calibrator = parts.write_parts(folder / "other", known=KNOWN)
    about, maps = read_json(calibrator / "manifest.json"), {"adacalib": SERVED}
    parts.write_calibrator(calibrator, maps, {"adacalib": rolling or {"2013-01-01": SERVED}}, about)
    model = folder / MODEL
    model.parent.mkdir(parents=True)
    parts.write_model(base, calibrator, model, lineage and MADE | lineage)
    if before:
        (model / "rolling.parquet").unlink()
        parts.write_sums(model)
    (folder / TABLES).mkdir()
    pin = Pin("v0.0.3", "0" * 40, DAYS[2], sha256_of(model / "manifest.json"), {})
    write_pin(inputs[-1], pin)
    return pin


def test_without_production_there_is_no_champion_and_the_report_says_so(tmp_path, inputs):
    report = evaluate(tmp_path, inputs)
    assert report["champion"] is None
    assert "champion" not in report["methods"]


def test_a_champion_of_before_there_were_rolling_maps_serves_all_days_after_its_labels(
    tmp_path, inputs, tables
):
    pin_another(tmp_path, inputs, before=True)
    report = evaluate(tmp_path, inputs)
    expected = loss_of(tables, dict.fromkeys(DAYS, SERVED) | {"model": tmp_path / MODEL})
    champion, model = (report["methods"][name]["logloss"] for name in ("champion", "model"))
    assert champion == pytest.approx(expected, rel=1e-6)
    gain = report["champion"]["gains"]["logloss"]
    assert gain["value"] == pytest.approx(champion - model, abs=1e-12)
    assert gain["low"] < gain["value"] < gain["high"]
    assert gain["champion"] == pytest.approx(champion)
    assert report["champion"]["same_procedure"] is False
    assert report["champion"]["served"]["days"] == report["champion"]["compared_days"] == 6
    counts = pq.read_table(tmp_path / "sums" / "counts.parquet").to_pandas()
    assert counts.groupby("method")["impressions"].sum()["champion"] == 1800


def test_a_champion_forecasts_each_day_by_its_own_map_of_it_then_by_the_bytes_that_served(
    tmp_path, inputs, tables
):
    """A day that it has learned from and brings no map of is left out."""
    own = {day: shifted(0.5 + 0.1 * n) for n, day in enumerate(DAYS[1:4])}
    pin_another(tmp_path, inputs, lineage=learned(*DAYS[:4]), rolling=own)
    champion = evaluate(tmp_path, inputs)["champion"]
    assert champion["compared_days"] == 5
    curve = champion["by_day"]
    assert [(row["day"], row["served"]) for row in curve] == [
        *((day, False) for day in DAYS[1:4]),
        *((day, True) for day in DAYS[4:]),
    ]
    predictor = load(tmp_path / MODEL)
    for row, table in zip(curve, tables[1:], strict=True):
        said = predictor.predict(table)
        logit = own.get(row["day"], SERVED)(said.uncalibrated_logit, said.field_value_id)
        expected = log_loss(table["late"], expit(logit))
        assert row["champion"]["logloss"] == pytest.approx(expected, rel=1e-6)
    served = champion["served"]
    assert served["days"] == 2
    losses = [row["champion"]["logloss"] for row in curve[3:]]
    assert served["logloss"]["value"] == pytest.approx(np.mean(losses))
    assert served["pcoc"]["low"] < served["pcoc"]["value"] < served["pcoc"]["high"]


def test_the_newest_served_day_is_held_against_the_days_before_it(tmp_path, inputs):
    pin_another(tmp_path, inputs, lineage=learned(*DAYS[:5]), rolling={DAYS[0]: SERVED})
    report = evaluate(tmp_path, inputs)
    newest = report["champion"]["served"]["newest"]
    assert newest[0]["day"] == DAYS[-1]
    curve = report["champion"]["by_day"][-1]
    assert (curve["day"], curve["champion"]["pcoc"]) == (DAYS[-1], pytest.approx(newest[0]["pcoc"]))
    largest = [row["field_value"] for row in report["largest_field_values"]]
    assert [row["field_value"] for row in newest[1:]] == largest
    for row in newest:
        high = np.inf if row["high"] is None else row["high"]
        assert row["beyond"] is not (row["low"] <= row["pcoc"] <= high)


def test_a_champion_that_has_learned_from_every_test_day_is_compared_on_none(tmp_path, inputs):
    pin_another(tmp_path, inputs, lineage=learned(*DAYS))
    champion = evaluate(tmp_path, inputs)["champion"]
    assert (champion["readable"], champion["compared_days"], champion["gains"]) == (True, 0, {})


def test_a_champion_held_against_itself_gains_exactly_nothing(tmp_path, inputs):
    """Its rolling maps are those of the challenger, as is what it has learned."""
    own = rolling_maps()["adacalib"]
    pin_another(tmp_path, inputs, lineage=learned(*DAYS), rolling=own)
    set_lineage(inputs[4], MADE)
    gains = evaluate(tmp_path, inputs)["champion"]["gains"]
    assert {(gain["value"], gain["low"], gain["high"]) for gain in gains.values()} == {(0, 0, 0)}


@pytest.mark.parametrize(
    ("theirs", "same"),
    [
        ({"params": {"log": {}, "split": {"last_day": "2013-09-01"}}}, True),
        ({"params": {"log": {}, "calibrate": {"seed": 2}}}, False),
        ({"base": {"manifest.json": "c"}}, False),
        ({"code": {}}, False),
    ],
)
def test_procedures_are_the_same_where_base_code_and_parameters_are(tmp_path, inputs, theirs, same):
    """The last day is no parameter of the procedure: it moves every day."""
    pin_another(tmp_path, inputs, lineage=learned(DAYS[2]) | theirs)
    set_lineage(inputs[4], MADE | {"params": {"log": {}, "split": {"last_day": DAYS[-1]}}})
    assert evaluate(tmp_path, inputs)["champion"]["same_procedure"] is same


@pytest.mark.parametrize(
    ("conventions", "why"),
    [
        ({"field": ["origin"]}, r"its field is \['origin'\], here it is \['carrier'\]"),
        ({"format": "theirs"}, "of another log: its format is 'theirs'"),
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
    asked = read_scores(inputs[2], "test"), [(DAYS[0], plain[0])]
    challenger = read_json(inputs[4] / "manifest.json")
    champion = score_champion(pin, tmp_path / MODEL, challenger, *asked)
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
