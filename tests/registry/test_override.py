"""A person may promote against the verdict: with a reason, in git, and never a broken artifact."""

import json
import re
import shutil

import pytest

from pipeline.core.errors import ArtifactError, ReleaseError
from pipeline.core.files import read_json, write_json
from pipeline.formats.gate_report import GATE, read_verdict
from pipeline.registry.history import status
from pipeline.registry.promote import promote
from pipeline.registry.verdicts import OVERRIDE, gate_of, overridden, override, production
from tests.dvc_here import dvc
from tests.registry.conftest import git, next_model, params


def refuse(folder, name="pcoc", **check):
    """Write a verdict on the folder's model that refuses for one check."""
    gate = read_json(folder / GATE)
    failed = {"name": name, "passed": False, "sentence": "PCOC is 3.1", "structural": False} | check
    gate |= {"passed": False, "reasons": ["PCOC is 3.1"], "checks": [*gate["checks"], failed]}
    for kept in gate["checks"][:-1]:
        kept |= {"passed": True, "structural": False}
    write_json(folder / GATE, gate)
    return gate


def test_an_override_says_who_why_and_which_checks_and_is_committed(folder):
    gate = refuse(folder)
    said = override(folder, " the label\nchanged ")
    assert said.startswith(
        "Ann <ann@example.org> overrode pcoc: the label changed; adacalib promote"
    )
    assert read_json(folder / OVERRIDE) == {
        "model_sha256": gate["model_sha256"],
        "reason": "the label changed",
        "who": "Ann <ann@example.org>",
        "checks": ["pcoc"],
    }
    assert "the label changed" in git(folder, "log", "-1", "--format=%an %s")
    assert git(folder, "show", "--name-only", "--format=").split() == ["reports/override.json"]
    assert override(folder, "the label changed") == said  # again: nothing new to commit
    assert git(folder, "log", "--oneline").count("Override") == 1


@pytest.mark.parametrize("name", ["parity", "tables", "monotone"])
@pytest.mark.parametrize("told", [{"structural": True}, {"structural": None}])
def test_what_is_wrong_with_the_artifact_itself_is_not_overridden(folder, name, told):
    """A map that falls is promoted on nobody's word, not on one written by hand either."""
    gate = refuse(folder, name, sentence="the deployed file differs", **told)
    with pytest.raises(ReleaseError, match="about the artifact itself: the deployed file differs"):
        override(folder, "I know better")
    assert not (folder / OVERRIDE).exists()
    forged = {"reason": "mine", "who": "I", "checks": [name], "model_sha256": gate["model_sha256"]}
    write_json(folder / OVERRIDE, forged)
    with pytest.raises(ReleaseError, match="the verdict is no, production stays as it is") as no:
        promote(folder)
    assert "adacalib override" not in str(no.value)
    assert production(folder) is None


@pytest.mark.parametrize("reason", ["", "  ", "\n"])
def test_an_override_without_a_reason_is_none(folder, reason):
    refuse(folder)
    with pytest.raises(ReleaseError, match="needs a reason"):
        override(folder, reason)


def test_where_there_is_no_model_there_is_nothing_to_override(folder):
    """A clone has the verdict in git, and no model until it is brought."""
    refuse(folder)
    shutil.rmtree(folder / "artifacts")
    with pytest.raises(ReleaseError, match="artifacts/model is not here"):
        override(folder, "the label changed")
    assert not (folder / OVERRIDE).exists()


def test_a_pass_has_nothing_to_override(folder):
    with pytest.raises(ReleaseError, match="nothing to override"):
        override(folder, "to be sure")


def test_a_refusal_that_names_no_check_cannot_be_overridden(folder):
    write_json(folder / GATE, read_json(folder / GATE) | {"passed": None, "checks": []})
    with pytest.raises(ReleaseError, match="names no check that failed"):
        override(folder, "to be sure")


@pytest.mark.parametrize(
    "damage",
    [{"checks": [1]}, {"checks": 5}, {"reasons": 5}, {"reasons": "no"}, {"last_day": 3},
     {"checks": [{"name": 1, "sentence": "…"}]}, {"model_sha256": None}],
)  # fmt: skip
def test_a_verdict_of_other_types_is_told_with_its_file_and_the_step(folder, damage):
    """By whoever reads it, also where a commit that was taken for a version holds it."""
    gate = read_json(folder / GATE) | {"passed": False} | damage
    write_json(folder / GATE, gate)
    for act in (promote, lambda folder: override(folder, "mine"), read_verdict):
        with pytest.raises(ArtifactError, match=r"reports/gate\.json.*dvc repro gate"):
            act(folder)
    assert "dvc repro gate" in status(folder)
    git(folder, "commit", "--quiet", "--all", "--message", "By hand")
    with pytest.raises(ArtifactError, match="git tag --points-at"):
        gate_of(folder, "HEAD")


def test_an_override_is_about_one_model_and_the_checks_it_names(folder):
    gate = refuse(folder)
    override(folder, "the label changed")
    assert overridden(folder, gate).checks == ("pcoc",)
    assert overridden(folder, gate | {"model_sha256": "another"}) is None
    more = {"name": "auc_loss", "passed": False, "sentence": "…", "structural": False}
    assert overridden(folder, gate | {"checks": [*gate["checks"], more]}) is None
    broken = {"name": "parity", "passed": False, "sentence": "…", "structural": True}
    assert overridden(folder, gate | {"checks": [*gate["checks"], broken]}) is None


@pytest.mark.parametrize(
    "document",
    ["[]", "{}", '{"checks": []}', '{"checks": [], "more": 1}',
     '{"checks": [{"a": 1}], "model_sha256": "a", "reason": "mine", "who": "I"}',
     '{"checks": ["pcoc"], "model_sha256": "a", "reason": 5, "who": "I"}'],
)  # fmt: skip
def test_a_damaged_override_is_refused_and_not_taken_for_none(folder, document):
    gate = refuse(folder)
    (folder / OVERRIDE).write_text(document)
    with pytest.raises(ArtifactError, match="remove it and override again"):
        overridden(folder, gate)


@pytest.mark.slow
def test_an_overridden_model_is_promoted_and_status_says_who_did_it_and_why(folder):
    make = (folder / "make.py").read_text()
    check = '{"name": "pcoc", "passed": False, "sentence": "PCOC is 3.1", "structural": False}'
    lines = re.sub(r'"checks": \[.*\],', f'"checks": [{check}],', make)
    (folder / "make.py").write_text(lines)
    params(folder, passed=False)
    dvc(folder, "repro")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "Refused")
    with pytest.raises(ReleaseError, match=r"the verdict is no.*adacalib override --reason"):
        promote(folder)
    override(folder, "a new market opened")
    assert "overrode pcoc: a new market opened; adacalib promote" in status(folder)
    assert promote(folder).startswith("v0.0.1 is in production")
    told = "against the verdict: Ann <ann@example.org> overrode pcoc: a new market opened"
    lines = status(folder).splitlines()
    assert lines[1:3] == [f"  - {told}", "  - failed: PCOC is 3.1"]
    committed = git(folder, "show", "model@v0.0.1:reports/override.json")
    assert json.loads(committed)["reason"] == "a new market opened"


OURS = {"format": "ours", "label": "click", "field": ["item"]}


@pytest.mark.slow
def test_another_log_takes_the_place_of_production_by_a_persons_word_alone(folder):
    """Whether the clone pinned production as its champion or not; and its days may be older."""
    make = (folder / "make.py").read_text()
    check = '{"name": "champion", "passed": params["passed"], "sentence": "…", "structural": False}'
    (folder / "make.py").write_text(re.sub(r'"checks": \[.*\],', f'"checks": [{check}],', make))
    params(folder, log=OURS)
    dvc(folder, "repro")
    git(folder, "commit", "--quiet", "--all", "--message", "Ours")
    promote(folder)
    assert "another log" not in status(folder)

    for other in ({"format": "theirs"}, {"label": "order"}, {"field": ["shop"]}):
        params(folder, log=OURS | other)
        assert "v0.0.1 is of another log than params.yaml (its " in status(folder)
    next_model(folder, log=OURS | other, copies=2, last_day="2013-01-01")
    before = production(folder)
    with pytest.raises(ReleaseError, match="is of another log"):
        promote(folder)
    assert production(folder) == before

    next_model(folder, log=OURS | other, copies=2, last_day="2013-01-01", passed=False)
    override(folder, "the new log is the old one under another name")
    assert promote(folder).startswith("v0.0.2 is in production")
    assert "another log" not in status(folder)
