"""Stage flows: one for every stage of dvc.yaml, in the DAG's order, saying what ran and why."""

import pytest
from prefect import flow
from ruamel.yaml import YAML

from flows.stages import outcome, run_stages, stage_flow
from pipeline.core.errors import AdaCalibError, ToolError
from pipeline.params.params_file import STAGES, stage_order
from pipeline.registry.staleness import cause, inputs_of
from pipeline.registry.tools.programs import run_program

LOCK = """\
schema: '2.0'
stages:
  split:
    cmd: python -m pipeline split
    deps:
    - {path: data/manifest.json, hash: md5, md5: aaa, size: 1}
    - {path: reports/validation.json, hash: md5, md5: bbb, size: 1}
    params:
      params.yaml:
        log: {field: [carrier], label: late}
        split.test_days: 28
    outs:
    - {path: artifacts/split, hash: md5, md5: ccc.dir, size: 1, nfiles: 2}
"""


def write_stages(folder, stages):
    """A dvc.yaml with the stages."""
    with (folder / "dvc.yaml").open("w") as file:
        YAML().dump({"stages": stages}, file)


def test_every_stage_of_the_project_has_a_flow_of_its_name(project):
    order = stage_order(project)
    assert [stage_flow(stage, (), {}).name for stage in order] == order
    assert set(order) == set(STAGES)


def test_the_order_is_the_one_in_which_the_stages_feed_one_another(project):
    order = stage_order(project)
    declared = YAML(typ="safe").load((project / "dvc.yaml").read_text())["stages"]
    made = set()
    for stage in order:
        needed = [path for path in declared[stage]["deps"] if path.startswith("artifacts/")]
        assert all(any(path == m or path.startswith(f"{m}/") for m in made) for path in needed), (
            stage
        )
        made |= set(declared[stage].get("outs", []))


def test_the_order_does_not_depend_on_where_a_stage_is_written(tmp_path):
    write_stages(
        tmp_path,
        {
            "last": {"cmd": "x", "deps": ["artifacts/model/weights"]},
            "middle": {"cmd": "x", "deps": ["reports/a.json"], "outs": ["artifacts/model"]},
            "first": {"cmd": "x", "metrics": [{"reports/a.json": {"cache": False}}]},
        },
    )
    assert stage_order(tmp_path) == ["first", "middle", "last"]


def test_a_circle_is_named(tmp_path):
    write_stages(
        tmp_path,
        {
            "one": {"cmd": "x", "deps": ["b"], "outs": ["a"]},
            "two": {"cmd": "x", "deps": ["a"], "outs": ["b"]},
        },
    )
    with pytest.raises(AdaCalibError, match=r"circle: .*(one → two|two → one)"):
        stage_order(tmp_path)


def test_a_folder_without_dvc_yaml_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(AdaCalibError, match=r"has no dvc\.yaml; run in the project's folder"):
        stage_order(tmp_path)


def test_the_dependencies_that_changed_are_named(tmp_path):
    (tmp_path / "dvc.lock").write_text(LOCK)
    before = inputs_of(tmp_path)["split"]
    (tmp_path / "dvc.lock").write_text(LOCK.replace("bbb", "ddd").replace("28", "14"))
    after = inputs_of(tmp_path)["split"]
    expected = "changed: reports/validation.json, params.yaml: split.test_days"
    assert cause(before, after) == expected


def test_a_parameter_of_a_whole_section_is_named_by_its_path(tmp_path):
    (tmp_path / "dvc.lock").write_text(LOCK)
    before = inputs_of(tmp_path)["split"]
    (tmp_path / "dvc.lock").write_text(LOCK.replace("late", "early"))
    assert cause(before, inputs_of(tmp_path)["split"]) == "changed: params.yaml: log.label"


def test_outputs_are_no_cause(tmp_path):
    (tmp_path / "dvc.lock").write_text(LOCK)
    before = inputs_of(tmp_path)["split"]
    (tmp_path / "dvc.lock").write_text(LOCK.replace("ccc", "eee"))
    assert cause(before, inputs_of(tmp_path)["split"]) == "nothing changed"


def test_a_stage_that_is_not_in_the_lock_had_not_run_before(tmp_path):
    assert inputs_of(tmp_path) == {}
    (tmp_path / "dvc.lock").write_text(LOCK)
    assert cause({}, inputs_of(tmp_path)["split"]) == "it had not run before"


@pytest.mark.parametrize(
    ("ran", "why", "name", "message"),
    [
        (False, "nothing changed", "Cached", "nothing changed"),
        (False, "changed: data", "Cached", "changed: data; its outputs for this were in the cache"),
        (True, "changed: data", "Ran", "changed: data"),
        (True, "nothing changed", "Ran", "its outputs were missing or changed"),
    ],
)
def test_the_final_state_says_whether_the_stage_ran_and_why(ran, why, name, message):
    state = outcome(ran, why)
    assert state.is_completed()
    assert (state.name, state.message) == (name, message)


@pytest.mark.slow
def test_a_stage_that_cannot_begin_fails_itself_and_not_the_one_before(tmp_path, prefect_server):
    """DVC finds a dependency missing before it says that the stage runs."""
    write_stages(
        tmp_path,
        {
            "first": {"cmd": "echo a > a", "outs": ["a"]},
            "second": {"cmd": "cat a b > c", "deps": ["a", "b"], "outs": ["c"]},
        },
    )
    run_program(["git", "init", "--quiet"], tmp_path)
    run_program(["dvc", "init", "--quiet"], tmp_path)

    @flow
    def both():
        came = []
        with pytest.raises(ToolError, match="reproduce 'second'"):
            came.extend((stage, state.name) for stage, state in run_stages(tmp_path))
        return came

    assert both() == [("first", "Ran"), ("second", "Failed")]
    assert both() == [("first", "Cached"), ("second", "Failed")]
    assert [(stage, state.name) for stage, state in run_stages(tmp_path, "first")] == [
        ("first", "Cached")
    ]
