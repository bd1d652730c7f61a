"""Production that an earlier product made stays readable: as champion, and to go back to.

before.tar.xz holds a repository in which an earlier state of this project promoted two models of a
simulated log, the first one against its verdict, and what DVC keeps of their checkpoints and
tables. Nothing in it may ever be made again.
"""

import shutil
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.checkpoint.bundle import load as load_checkpoint
from pipeline.core.files import read_json, sha256_of
from pipeline.formats.champion import MODEL, PIN, TABLES, pinned
from pipeline.formats.days import day_number
from pipeline.formats.scores import Scores
from pipeline.gate.champion_comparison import score_champion
from pipeline.registry.history import history, status
from pipeline.registry.promote import rollback
from pipeline.registry.pull import pin_champion, pull
from pipeline.registry.verdicts import production
from pipeline.serving.predictor import load
from tests.registry.conftest import git

ROWS = pa.table(
    {
        "item_id": ["item-000001", "never seen", None],
        "slot": ["top", "top", "side"],
        "affinity": [0.1, -0.2, 0.3],
        "price": [1.0, 2.0, 3.0],
    }
)


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A clone of the repository, with its remotes beside it and nothing in its cache."""
    with tarfile.open(Path(__file__).parent / "before.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "store/files").mkdir(parents=True)
    shutil.move(tmp_path / "objects", tmp_path / "store/files/md5")
    git(tmp_path, "clone", "--quiet", "--mirror", "repository.bundle", "remote.git")
    git(tmp_path, "clone", "--quiet", "--branch", "main", "remote.git", "project")
    return tmp_path / "project"


def test_versions_of_before_are_read_with_their_verdicts_and_overrides(before):
    second, first = history(before)
    assert (first.version, first.last_day) == ("v0.0.1", "2025-01-11")
    assert first.verdict.startswith("refuse; Ann <ann@example.org> overrode distinct_outputs, ")
    assert (second.version, second.last_day, second.verdict) == ("v0.0.2", "2025-01-12", "pass")
    assert "v0.0.2 is in production since" in status(before)


@pytest.mark.slow
def test_production_of_before_is_a_champion_and_can_be_rolled_back_from(before, tmp_path):
    assert pin_champion(before) == "v0.0.2 is the champion"
    pin = pinned(before / PIN)
    assert (pin.version, pin.last_day) == ("v0.0.2", "2025-01-12")
    assert sorted(pin.tables) == sorted(file.name for file in (before / TABLES).iterdir())
    scores = load(before / MODEL).predict(ROWS)
    merged = load_checkpoint(before / MODEL).predict(ROWS)
    np.testing.assert_allclose(scores.calibrated_logit, merged.calibrated_logit, atol=2e-5)
    assert scores.unseen.tolist() == [False, True, False]

    conventions = read_json(before / MODEL / "manifest.json")["conventions"]
    day, none = np.full(3, day_number("2025-01-13"), np.int32), np.zeros(3, np.int32)
    stored = Scores(np.zeros(3, np.float32), none, none + 1, none, day, 1)
    asked = {"conventions": conventions}, stored, [("2025-01-13", ROWS)]
    champion = score_champion(pin, before / MODEL, *asked)
    assert (champion.why, champion.days, champion.served) == (None, (day[0],), (day[0],))
    np.testing.assert_array_equal(champion.logit, scores.calibrated_logit)

    host = tmp_path / "host"
    git(tmp_path, "clone", "--quiet", "--branch", "main", "remote.git", "host")
    pull(host, tmp_path / "served")
    assert sha256_of(tmp_path / "served/manifest.json") == pin.model_sha256
    assert "v0.0.1 is back in production in place of v0.0.2" in rollback(before)
    assert production(before).version == "v0.0.1"
    pull(host, tmp_path / "served")
    gate = git(before, "show", "model@v0.0.1:reports/gate.json")
    (tmp_path / "gate.json").write_text(gate)
    judged = read_json(tmp_path / "gate.json")["model_sha256"]
    assert sha256_of(tmp_path / "served/manifest.json") == judged
    assert len(load(tmp_path / "served").predict(ROWS)) == 3
