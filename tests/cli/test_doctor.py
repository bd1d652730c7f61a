"""What would stop tomorrow's refresh is named the evening before."""

import shutil
import subprocess

import pytest
from ruamel.yaml import YAML

from pipeline.cli.doctor import diagnoses
from pipeline.cli.workspace import SHIPPED
from pipeline.params.params_file import set_values


def said_of(name: str) -> tuple[bool, str]:
    """Whether one thing is all right here, and how, or what to do."""
    return next((good, said) for of, good, said in diagnoses() if of == name)


@pytest.fixture
def checkout(project, tmp_path, monkeypatch):
    """A folder with the shipped parameters and deployments."""
    shutil.copyfile(project / SHIPPED, tmp_path / "params.yaml")
    shutil.copyfile(project / "prefect.yaml", tmp_path / "prefect.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_log_that_comes_in_files_needs_a_source_and_a_fetched_one_none(checkout):
    assert said_of("source and mapping")[0]
    set_values(checkout / "params.yaml", {"log.format": "ours"})
    good, said = said_of("source and mapping")
    assert not good
    assert "prefect.yaml" in said
    yaml = YAML()
    deployed = yaml.load((checkout / "prefect.yaml").read_text())
    (checkout / "ours.yaml").write_text(
        "{format: ours, kind: csv, time_zone: UTC, date: {column: day, format: '%Y-%m-%d'}, "
        "columns: {item: text, click: int8}}"
    )
    (checkout / "ours-2024-04-01.csv").touch()
    refresh = next(d for d in deployed["deployments"] if d["name"] == "refresh")
    refresh["parameters"] = {"source": "ours-{day}.csv", "mapping": "ours.yaml"}
    yaml.dump(deployed, checkout / "prefect.yaml")
    assert said_of("source and mapping")[0]


def test_parameters_that_are_not_committed_are_a_thing_to_mend(checkout):
    """A refresh runs what is committed."""
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for call in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "First")):
        subprocess.run(["git", *call], check=True)
    assert said_of("branch and remote")[0]
    set_values(checkout / "params.yaml", {"log.format": "ours"})
    good, said = said_of("branch and remote")
    assert not good
    assert "params.yaml" in said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- x",
        "deployments:",
        "deployments: [{name: watch}]",
        "\t",
        "deployments: {refresh: {}}",
        "deployments: [refresh]",
        "deployments: [{name: refresh, schedules: [daily]}]",
    ],
)
def test_a_damaged_list_of_deployments_is_a_thing_to_mend(checkout, text):
    (checkout / "prefect.yaml").write_text(text)
    good, said = said_of("schedule")
    assert not good
    assert "git restore prefect.yaml" in said


@pytest.mark.parametrize("address", ["here", "http://127.0.0.1:port/api", "http://127.0.0.1:9/api"])
def test_an_address_where_no_server_is_ends_no_check(checkout, monkeypatch, address):
    monkeypatch.setenv("PREFECT_API_URL", address)
    looked_at = {name: (good, said) for name, good, said in diagnoses()}
    assert "locks" in looked_at
    good, said = looked_at["prefect"]
    assert not good
    assert "PREFECT_API_URL" in said or address in said
