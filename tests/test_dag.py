"""dvc.yaml: one name for a stage everywhere, declared paths and code are those that are used."""

import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from pipeline.checkpoint.bundle import LIBRARIES
from pipeline.core.files import write_json
from pipeline.params.params_file import STAGES, code_of, read_params, set_values
from pipeline.params.sections import Params, SplitParams
from pipeline.stages import split
from tests.dvc_here import dvc
from tests.source_tree import DAG, ROOT, data_paths, imported_by, imports, nodes
from tests.tiny_logs import tiny_day, tiny_log_params, write_log


def test_stages_have_one_name_everywhere():
    modules = {f.stem for f in (ROOT / "pipeline/stages").glob("*.py")} - {"__init__"}
    sections = set(read_params(ROOT / "params.yaml").model_dump(by_alias=True)) - {"log"}
    assert tuple(DAG) == STAGES
    assert modules == sections == set(STAGES)
    assert {f.alias or name for name, f in Params.model_fields.items()} == {*STAGES, "log"}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_lists_its_own_section_and_the_contract_only_where_it_reads_it(stage):
    log = ["log"] if stage in {"validate", "split", "train_base"} else []
    last_day = ["split"] if stage == "validate" else []
    assert DAG[stage]["params"][:-1] == [*log, *last_day, stage]


MODULES = {"sklearn": "scikit-learn", "vl_convert": "vl-convert-python"}
PINS = YAML(typ="safe", pure=True).load((ROOT / "pins.yaml").read_text())


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_depends_on_the_versions_of_the_libraries_that_it_uses_and_on_no_others(stage):
    """Merge also on those that its lineage names."""
    names = {name.split(".")[0] for file in code_used_by(stage) for name in imports(file)}
    used = {MODULES.get(name, name.replace("_", "-")) for name in names}
    used |= set(LIBRARIES) if stage == "merge" else set()
    assert DAG[stage]["params"][-1] == {"pins.yaml": sorted(used & PINS.keys())}


def test_pins_have_one_version():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    installed = dict(line.split("==") for line in lines if "==" in line)
    assert {name: str(pin) for name, pin in PINS.items()} == {
        name: installed[name] for name in PINS
    }


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_command_names_exactly_its_declared_data_paths(stage):
    words = DAG[stage]["cmd"].split()
    assert words[:4] == ["python", "-m", "pipeline", stage]
    undeclared = {"data"} if stage == "train_base" else set()  # or each day would make it stale
    assert set(words[4:]) - undeclared == data_paths(DAG[stage])
    assert len(words[4:]) == len(set(words[4:]))


def code_dependencies(stage: str) -> list[str]:
    """The declared dependencies of a stage that are code."""
    return [path for path in DAG[stage]["deps"] if path.startswith("pipeline")]


def code_used_by(stage: str) -> set[Path]:
    """The files whose code a stage runs, without packages that hold a docstring alone."""
    used = imported_by(ROOT / f"pipeline/stages/{stage}.py") | {ROOT / "pipeline/__main__.py"}
    return {file for file in used if len(nodes(file)[0].body) > 1}


@pytest.mark.parametrize("stage", STAGES)
def test_the_code_dependencies_of_a_stage_cover_what_it_imports(stage):
    uncovered = code_used_by(stage) - set(code_of(ROOT, stage))
    assert not {str(file.relative_to(ROOT)) for file in uncovered}


@pytest.mark.parametrize("stage", sorted(set(STAGES) - {"merge"}))
def test_a_stage_depends_on_no_code_that_it_does_not_use(stage):
    """Merge does: its lineage names the code of every stage that made what it merges."""
    used = code_used_by(stage)
    for declared in code_dependencies(stage):
        assert any((ROOT / declared) in (file, *file.parents) for file in used), declared


@pytest.mark.parametrize("stage", STAGES)
def test_code_dependencies_are_packages_but_for_modules_that_stages_share(stage):
    modules = {path for path in code_dependencies(stage) if path.endswith(".py")}
    shared = ("pipeline/params/", "pipeline/formats/", "pipeline/stages/", "pipeline/__main__.py")
    assert not {path for path in modules if not path.startswith(shared)}


def test_what_training_does_not_use_is_no_dependency_of_it():
    """So that to change it, or anything that stands above it, leaves the base model fresh."""
    packages = {path for path in code_dependencies("train_base") if not path.endswith(".py")}
    assert packages <= {
        f"pipeline/{name}" for name in ("core", "data/log_store", "encoding", "model")
    }
    before = {path for path in code_dependencies("split") if not path.endswith(".py")}
    assert before <= packages


def copy_of_the_walk(folder: Path) -> None:
    """The project's code and parameters, under DVC alone."""
    for name in ("dvc.yaml", "params.yaml", "pins.yaml", ".dvcignore", "pipeline"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, folder / name)
    dvc(folder, "init", "--no-scm")


def commit_a_base(folder):
    """A copy of the walk whose lock says that train_base has run."""
    copy_of_the_walk(folder)
    for name in ("split/training.json", "base/manifest.json"):
        write_json(folder / "artifacts" / name, {})
    dvc(folder, "commit", "--force", "train_base")


@pytest.mark.slow
def test_dvc_leaves_the_base_model_fresh_where_other_code_changes(tmp_path):
    """Asked of DVC itself, in a copy with a lock that was committed and not run."""
    commit_a_base(tmp_path)
    used = {file.relative_to(ROOT) for file in code_of(ROOT, "train_base")}
    for file in (tmp_path / "pipeline").rglob("*.py"):
        if file.relative_to(tmp_path) not in used:
            file.write_text(file.read_text() + "# touched\n")
    assert dvc(tmp_path, "status", "--json", "train_base").strip() == "{}"
    (tmp_path / "pipeline/model/network.py").write_text("# touched\n")
    assert "pipeline/model" in dvc(tmp_path, "status", "--json", "train_base")


@pytest.mark.slow
def test_dvc_runs_again_what_a_library_with_another_pin_has_made(tmp_path):
    commit_a_base(tmp_path)
    pins = (tmp_path / "pins.yaml").read_text()
    (tmp_path / "pins.yaml").write_text(pins.replace("onnx: ", "onnx: 9"))
    assert dvc(tmp_path, "status", "--json", "train_base").strip() == "{}"
    (tmp_path / "pins.yaml").write_text(pins.replace("torch: ", "torch: 9"))
    assert '"torch": "modified"' in dvc(tmp_path, "status", "--json", "train_base")


@pytest.mark.slow
def test_dvc_leaves_the_base_model_fresh_from_one_day_of_the_grid_to_the_next(tmp_path):
    """A log of Mondays to Sundays: every day lands, is validated by name alone, and is split."""
    copy_of_the_walk(tmp_path)
    write_json(tmp_path / "artifacts/base/manifest.json", {})
    days = [f"2024-03-{day:02}" for day in range(1, 24)]
    sizes = {"training_days": 3, "calibration_days": 2, "test_days": 1, "retrain_every_days": 7}
    stale = []
    numbers = (11, 12, 18, 19)  # of the Tuesdays and Wednesdays, on which the grid has a new day
    for number in numbers:
        shutil.rmtree(tmp_path / "data", ignore_errors=True)
        write_log(tmp_path / "data", {day: tiny_day() for day in days[: number + 1]})
        values = sizes | {"last_day": days[number]}
        set_values(tmp_path / "params.yaml", {f"split.{name}": v for name, v in values.items()})
        seen = {"first_day": days[0], "last_day": days[number], "missing_days": []}
        write_json(tmp_path / "reports/validation.json", seen)
        split.run(
            *(tmp_path / name for name in ("data/manifest.json", "reports/validation.json")),
            tmp_path / "artifacts/split",
            params=SplitParams(**values),
            log=tiny_log_params(),
        )
        if not stale:
            dvc(tmp_path, "commit", "--force", "train_base")
        stale.append(dvc(tmp_path, "status", "--json", "train_base").strip() != "{}")
        if stale[-1]:
            dvc(tmp_path, "commit", "--force", "train_base")
    changed = [days[number] for number, found in zip(numbers, stale, strict=True) if found]
    assert changed == ["2024-03-13", "2024-03-20"]


def test_the_model_names_the_code_of_every_stage_that_made_it():
    """Its lineage is the code that merge depends on: else it would name code that is not used."""
    named = set(code_of(ROOT, "merge"))
    for stage in ("split", "train_base", "score", "tabulate", "calibrate"):
        assert set(code_of(ROOT, stage)) <= named, stage


@pytest.mark.parametrize("stage", STAGES)
def test_no_stage_writes_under_data(stage):
    written = DAG[stage].get("outs", []) + [next(iter(m)) for m in DAG[stage].get("metrics", [])]
    assert all(path.startswith(("artifacts/", "reports/")) for path in written)


def test_every_stage_depends_on_the_check_before_it():
    assert "reports/validation.json" in DAG["split"]["deps"]
    assert "reports/tables.json" in DAG["calibrate"]["deps"]
    assert {"reports/tables.json", "reports/evaluation.json"} <= set(DAG["gate"]["deps"])


def test_no_parameter_has_a_name_that_dvc_keeps_for_itself():
    """DVC leaves keys named like its own out of the run cache's key: a change would go unseen."""
    sections = read_params(ROOT / "params.yaml").model_dump(by_alias=True)
    assert not {"size", "nfiles", "md5", "hash", "path"} & {k for s in sections.values() for k in s}


def test_byte_code_is_no_dependency():
    assert "__pycache__/" in (ROOT / ".dvcignore").read_text().split()
