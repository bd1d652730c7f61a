"""calibrate: checked tables and scores → maps and the choice."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from pipeline.calibration.paper.auxiliary import AuxiliaryNetwork
from pipeline.calibration.statistics.bins import tabulate
from pipeline.core.errors import CheckFailedError, ParamsError
from pipeline.core.files import read_json, sha256_of, write_json
from pipeline.formats.maps import read_maps
from pipeline.formats.scores import write_day, write_scores_manifest
from pipeline.formats.tables import write_tables
from pipeline.params.params_file import read_params, set_values
from pipeline.params.sections import CalibrateParams
from pipeline.stages import calibrate
from tests.calibration.curved_world import curved_world

DAYS = [f"2024-10-0{day}" for day in range(4, 10)]  # day 20_000 is 2024-10-04


def params_of(**values) -> CalibrateParams:
    """The section of params.yaml, quick, with values replaced."""
    section = read_params(Path("params.yaml")).calibrate.model_dump() | {"steps": 16}
    paper = section["paper"] | {"epochs": 1, "least_steps": 1} | values.pop("paper", {})
    return CalibrateParams(**(section | values | {"paper": paper}))


@pytest.fixture
def inputs(tmp_path):
    """Tables of a bent world, their check, and scores' manifest."""
    scores, _ = curved_world(rows=8000, n_values=4, days=6, curvature=1.5)
    write_tables(tmp_path / "tables", *tabulate(scores, (2, 4), 40), {})
    write_json(tmp_path / "tables.json", {"passed": True, "breaches": []})
    (tmp_path / "scores").mkdir()
    names = [None, "a", "b", "001", "NA", "never"]
    manifest = {"parts": {}, "field_values": names, "features": {"categorical": [], "numeric": []}}
    write_scores_manifest(tmp_path / "scores", manifest | {"conventions": {}})
    return tmp_path


def run(folder, **values):
    paths = (folder / name for name in ("scores", "tables", "tables.json", "calibrator"))
    calibrate.run(*paths, params=params_of(**values))
    return read_json(folder / "calibrator" / "manifest.json")


def test_four_maps_and_the_choice_with_its_margin_are_written(inputs):
    manifest = run(inputs)
    maps = read_maps(inputs / "calibrator" / "maps.parquet")
    assert list(maps) == ["identity", "isotonic", "eb_platt", "adacalib"]
    assert all(serving.n_field_values == 6 for serving in maps.values())
    assert manifest["chosen"] == manifest["held_out"]["name"] == "adacalib"
    assert manifest["held_out"]["excess"]["eb_platt"] > 0
    assert set(manifest["chosen_bins"]) <= {0, 2, 4}


def test_every_map_is_finite_and_does_not_decrease_anywhere(inputs):
    run(inputs)
    at = np.linspace(-40, 40, 10_000)
    for serving in read_maps(inputs / "calibrator" / "maps.parquet").values():
        for z in range(6):
            assert (np.diff(serving(at, np.full(len(at), z))) >= -1e-9).all()


def test_the_same_inputs_give_the_same_bytes(inputs):
    run(inputs)
    files = [inputs / "calibrator" / name for name in ("maps.parquet", "manifest.json")]
    before = [sha256_of(file) for file in files]
    run(inputs)
    assert [sha256_of(file) for file in files] == before


def test_always_ships_adacalib_whatever_it_is_worth(inputs):
    manifest = run(inputs, choose="always")
    assert manifest["chosen"] == "adacalib"


def test_tables_that_did_not_pass_are_refused_and_nothing_is_written(inputs):
    write_json(inputs / "tables.json", {"passed": False, "breaches": ["value 3 vanished"]})
    with pytest.raises(CheckFailedError, match="value 3 vanished"):
        run(inputs)
    assert not (inputs / "calibrator").exists()


def score_files(folder, scores):
    """The scores as day files, with one feature kept."""
    days = {}
    for index, day in enumerate(DAYS):
        rows = scores.take(np.flatnonzero(scores.day == 20_000 + index))
        kind = (np.arange(len(rows)) % 3).astype(np.int32)
        days[day] = write_day(folder / "scores", day, rows, {"categorical.kind": kind})
    described = {"categorical": [{"name": "kind", "size": 3}], "numeric": []}
    names = [None, "a", "b", "001", "NA", "never"]
    manifest = {"parts": {"calibration": DAYS}, "days": days, "field_values": names}
    manifest |= {"features": described}
    write_scores_manifest(folder / "scores", manifest | {"conventions": {}})


def test_the_paper_variant_writes_its_auxiliary_network_beside_the_maps(inputs):
    scores, _ = curved_world(rows=8000, n_values=4, days=6, curvature=1.5)
    score_files(inputs, scores)
    manifest = run(inputs, variant="paper", paper={"auxiliary": True})
    assert manifest["variant"] == "paper"
    weights = load_file(inputs / "calibrator" / "auxiliary.safetensors")
    AuxiliaryNetwork([3], 0).load_state_dict(weights)
    assert 0 <= manifest["decreasing_share"] <= 1


def test_the_auxiliary_network_is_refused_where_scores_carry_no_features(inputs):
    scores, _ = curved_world(rows=800, n_values=4, days=6)
    score_files(inputs, scores)
    manifest = read_json(inputs / "scores" / "manifest.json")
    none = {"categorical": [], "numeric": []}
    write_json(inputs / "scores" / "manifest.json", manifest | {"features": none})
    with pytest.raises(ParamsError, match="keep_features"):
        run(inputs, variant="paper", paper={"auxiliary": True})


@pytest.mark.parametrize("temperature", ["0", "-1.0"])
def test_a_temperature_of_zero_is_refused_when_params_are_read(tmp_path, temperature):
    file = tmp_path / "params.yaml"
    file.write_text(Path("params.yaml").read_text())
    with pytest.raises(ParamsError, match="temperatures"):
        set_values(file, {"calibrate.temperatures": [1.0, float(temperature)]})
