"""Examples in a clone of somebody's own log: they begin with the parameters as they are shipped."""

import shutil

import pytest
from ruamel.yaml import YAML

from pipeline.cli.workspace import SHIPPED, prepare
from pipeline.params.params_file import flat, read_params, set_values
from pipeline.registry.tools.programs import git

OWN = {
    "log.format": "ours",
    "log.value": "price",
    "log.maturity_days": 3,
    "gate.max_pcoc_error": 0.3,
}


@pytest.fixture
def clone(project, tmp_path, monkeypatch):
    """A clone whose params.yaml is of a log of its own."""
    for name in ("params.yaml", ".gitignore", ".dvc/config"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(project / name, tmp_path / name)
    shutil.copytree(project / "examples", tmp_path / "examples")
    set_values(tmp_path / "params.yaml", OWN)
    git(tmp_path, "init", "--quiet", "-b", "main")
    git(tmp_path, "add", "--all")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("example", ["flights", "simulated"])
def test_an_example_takes_nothing_from_the_log_of_a_clone(clone, example):
    before = (clone / "params.yaml").read_bytes()
    made = read_params(prepare(example) / "params.yaml")
    assert (made.log.value, made.log.maturity_days) == (None, 0)
    assert made.gate == read_params(SHIPPED).gate
    assert made.log.format == example
    assert (clone / "params.yaml").read_bytes() == before


def test_a_log_of_its_own_is_no_example_and_runs_where_it_is(clone):
    assert prepare("ours").resolve() == clone


def test_params_yaml_is_what_is_shipped_but_for_another_logs_values(project):
    """So that the example, the reference of parameters and a new clone say the same."""
    own, shipped = (project / "params.yaml").read_text(), (project / SHIPPED).read_text()
    loaded = [flat(YAML(typ="safe").load(text)) for text in (own, shipped)]
    assert loaded[0].keys() == loaded[1].keys()
    if loaded[0]["log.format"] == loaded[1]["log.format"]:
        assert own == shipped
