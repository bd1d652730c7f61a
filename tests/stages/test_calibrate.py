"""calibrate: checked tables and scores → maps and the choice."""

import shutil
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from pipeline.calibration.paper.paper_network import AuxiliaryNetwork
from pipeline.core.errors import ArtifactError, CheckFailedError, ParamsError
from pipeline.core.files import manifest_sums, read_json, write_json
from pipeline.formats.days import day_number
from pipeline.formats.maps import read_maps
from pipeline.formats.rolling import read_rolling
from pipeline.formats.scores import (
    read_day,
    read_scores_manifest,
    scored_day,
    write_day,
    write_scores_manifest,
)
from pipeline.params.params_file import read_params, set_values
from pipeline.params.sections import CalibrateParams, TabulateParams
from pipeline.stages import calibrate, tabulate
from tests.calibration.curved_world import curved_world
from tests.tiny_logs import files_of

DAYS = [f"2024-10-{day:02}" for day in range(4, 15)]  # day 20_000 is 2024-10-04
PARTS = {"calibration": DAYS[:8], "test": DAYS[8:]}
NAMES = ["identity", "isotonic", "eb_platt", "adacalib"]
FIELD_VALUES = [None, "a", "b", "001", "NA", "never"]


def params_of(**values) -> CalibrateParams:
    """The section of params.yaml, quick, with values replaced."""
    section = read_params(Path("params.yaml")).calibrate.model_dump() | {"steps": 16}
    paper = section["paper"] | {"epochs": 1, "least_steps": 1} | values.pop("paper", {})
    return CalibrateParams(**(section | values | {"paper": paper}))


def score_files(folder, scores, parts=PARTS, *, maturity_days=0, features=True):
    """The scores as day files, with one feature kept."""
    days = {}
    for day in chain.from_iterable(parts.values()):
        rows = scores.take(np.flatnonzero(scores.day == day_number(day)))
        kind = (np.arange(len(rows)) % 3).astype(np.int32)
        kept = {"categorical.kind": kind} if features else {}
        days[day] = write_day(folder, day, *scored_day(day, rows, kept))
    kinds = [{"name": "kind", "size": 3}] if features else []
    write_scores_manifest(
        folder,
        {
            "parts": parts,
            "binning_days": parts["calibration"],
            "days": days,
            "field": {"columns": ["item"], "values": FIELD_VALUES, "pooled": []},
            "made_of": {"split": "0" * 64, "base": "1" * 64},
            "features": {"categorical": kinds, "numeric": []},
            "conventions": {"maturity_days": maturity_days},
        },
    )


def inputs_of(folder, rows=8000, parts=PARTS, spoil=None, **manifest):
    """Scores of a bent world, their tables, and the tables' check."""
    scores, _ = curved_world(rows=rows, n_values=4, days=len(DAYS), curvature=1.5)
    if spoil:
        scores.responses[scores.day == day_number(spoil)] = 0
    (folder / "scores").mkdir(parents=True)
    score_files(folder / "scores", scores, parts, **manifest)
    section = TabulateParams(candidates=(2, 4), grid_cells=40)
    tabulate.run(folder / "scores", folder / "tables", params=section)
    of = manifest_sums({name: folder / name for name in ("scores", "tables")})
    write_json(folder / "tables.json", {"passed": True, "breaches": [], "made_of": of})
    return folder


def run(folder, **values):
    paths = (folder / name for name in ("scores", "tables", "tables.json", "calibrator"))
    calibrate.run(*paths, params=params_of(**values))
    return read_json(folder / "calibrator" / "manifest.json")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The usual inputs, and what the stage makes of them; never to be changed."""
    folder = inputs_of(tmp_path_factory.mktemp("made") / "project")
    run(folder)
    return folder


@pytest.fixture
def manifest(made):
    """What the stage says of what it made."""
    return read_json(made / "calibrator" / "manifest.json")


@pytest.fixture
def inputs(made, tmp_path):
    """The usual inputs alone."""
    left_out = shutil.ignore_patterns("calibrator")
    return Path(shutil.copytree(made, tmp_path / "project", ignore=left_out))


def test_maps_that_ship_and_the_choice_with_its_margin_are_written(made, manifest):
    for file in ("maps.parquet", "frozen.parquet"):
        maps = read_maps(made / "calibrator" / file)
        assert list(maps) == NAMES
        assert all(serving.n_field_values == 6 for serving in maps.values())
    assert manifest["chosen"] == manifest["held_out"]["name"]
    assert manifest["held_out"]["excess"]["identity"] > 0
    assert set(manifest["chosen_bins"]) <= {0, 2, 4}


def test_every_test_day_has_the_map_that_served_it(made):
    """Those of the first morning are the frozen ones."""
    rolling = read_rolling(made / "calibrator" / "rolling.parquet")
    frozen = read_maps(made / "calibrator" / "frozen.parquet")
    at, ids = np.linspace(-5, 1, 12), np.repeat([1, 3], 6)
    assert list(rolling) == NAMES
    for name, of_days in rolling.items():
        assert list(of_days) == [day_number(day) for day in PARTS["test"]]
        first = of_days[day_number(PARTS["test"][0])]
        assert np.array_equal(first(at, ids), frozen[name](at, ids))
    served = [of_day(at, ids) for of_day in rolling["eb_platt"].values()]
    assert not np.array_equal(served[0], served[-1])


@pytest.mark.parametrize("maturity", [0, 1])
def test_the_manifest_lists_the_days_whose_labels_ship_and_what_was_known_when(
    manifest, tmp_path, maturity
):
    if maturity:
        parts = {"calibration": DAYS[:7], "gap": DAYS[7:8], "test": DAYS[8:]}
        manifest = run(inputs_of(tmp_path, parts=parts, maturity_days=maturity))
    assert manifest["rolling"]["horizon_days"] == 1 + maturity
    assert manifest["rolling"]["learned_until"] == DAYS[7 - maturity]
    assert manifest["shipped"]["learned_until"] == DAYS[-1]
    assert manifest["label_days"] == DAYS


def test_what_was_forecast_of_the_last_calibration_days_is_told(made, manifest):
    """Forward in time, so of none of the first; the sums are those of the days' rows."""
    days = [row["day"] for row in manifest["learning_days"]]
    assert days == PARTS["calibration"][-len(days) :]
    assert 0 < len(days) < len(PARTS["calibration"])
    for row in manifest["learning_days"]:
        rows = read_day(made / "scores", read_scores_manifest(made / "scores"), row["day"])
        assert row["impressions"] == rows.impressions.sum()
        assert row["responses"] == rows.responses.sum()
        assert 0 < row["expected_variance"] < row["expected_responses"]
        assert row["expected_responses"] == pytest.approx(row["responses"], rel=0.3)


def test_a_newest_day_without_labels_is_refused_unless_it_is_accepted(tmp_path):
    """Few days are known: the guard looks from the eighth on."""
    inputs = inputs_of(tmp_path, rows=60_000, spoil=DAYS[-1])
    refused = run(inputs)
    assert {move["day"] for move in refused["guard"]["refused"]} == {DAYS[-1]}
    assert refused["label_days"] == DAYS[:-1]
    assert refused["shipped"]["learned_until"] == DAYS[-2]
    accepted = run(inputs, accepted_days=(DAYS[-1],))
    assert accepted["guard"]["refused"] == []
    assert accepted["label_days"] == DAYS


def test_every_map_is_finite_and_does_not_decrease_anywhere(made):
    at = np.linspace(-40, 40, 10_000)
    for serving in read_maps(made / "calibrator" / "maps.parquet").values():
        for z in range(6):
            assert (np.diff(serving(at, np.full(len(at), z))) >= -1e-9).all()


def test_the_same_inputs_give_the_same_bytes(made, inputs):
    run(inputs)
    assert files_of(inputs / "calibrator") == files_of(made / "calibrator")


def test_always_ships_adacalib_whatever_it_is_worth(inputs):
    manifest = run(inputs, choose="always")
    assert manifest["chosen"] == "adacalib"


def test_tables_that_did_not_pass_are_refused_and_nothing_is_written(inputs):
    write_json(inputs / "tables.json", {"passed": False, "breaches": ["value 3 vanished"]})
    with pytest.raises(CheckFailedError, match="value 3 vanished"):
        run(inputs)
    assert not (inputs / "calibrator").exists()


def test_the_paper_variant_writes_its_auxiliary_network_beside_the_maps(inputs):
    manifest = run(inputs, variant="paper", paper={"auxiliary": True})
    assert manifest["variant"] == "paper"
    weights = load_file(inputs / "calibrator" / "auxiliary.safetensors")
    AuxiliaryNetwork([3], 0).load_state_dict(weights)
    assert 0 <= manifest["decreasing_share"] <= 1


def test_the_paper_variant_that_ships_says_that_it_knows_the_calibration_days_alone(inputs):
    manifest = run(inputs, variant="paper", choose="always")
    known = read_json(inputs / "scores" / "manifest.json")["parts"]["calibration"]
    assert manifest["label_days"] == known
    assert manifest["shipped"] == {"learned_until": known[-1]}


def test_a_refused_day_is_missing_to_the_paper_variant_too(tmp_path):
    """Whatever its labels are, they change nothing."""
    last, of_test = PARTS["calibration"][-1], PARTS["test"]
    inputs = inputs_of(tmp_path / "spoiled", rows=40_000, spoil=last)
    manifest = run(inputs, variant="paper", choose="always")
    assert manifest["label_days"] == PARTS["calibration"][:-1]
    parts = {"calibration": PARTS["calibration"][:-1], "gap": [last], "test": of_test}
    without = inputs_of(tmp_path / "without", rows=40_000, spoil=last, parts=parts)
    run(without, variant="paper", choose="always")
    at, ids = np.linspace(-6, 2, 50), np.full(50, 1)
    served = [
        read_maps(folder / "calibrator" / "maps.parquet")["adacalib"](at, ids)
        for folder in (inputs, without)
    ]
    np.testing.assert_array_equal(*served)


def test_the_auxiliary_network_is_refused_where_scores_carry_no_features(tmp_path):
    inputs = inputs_of(tmp_path, rows=800, features=False)
    with pytest.raises(ArtifactError, match="keep_features"):
        run(inputs, variant="paper", paper={"auxiliary": True})


@pytest.mark.parametrize("temperature", ["0", "-1.0"])
def test_a_temperature_of_zero_is_refused_when_params_are_read(tmp_path, temperature):
    file = tmp_path / "params.yaml"
    file.write_text(Path("params.yaml").read_text())
    with pytest.raises(ParamsError, match="temperatures"):
        set_values(file, {"calibrate.temperatures": [1.0, float(temperature)]})


def test_tables_that_were_not_the_ones_checked_are_refused(inputs):
    about = read_json(inputs / "tables" / "manifest.json")
    write_json(inputs / "tables" / "manifest.json", about | {"grid_cells": 41})
    with pytest.raises(ArtifactError, match=r"tables\.json was made with other tables than"):
        run(inputs)
    assert not (inputs / "calibrator").exists()
