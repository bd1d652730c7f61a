"""Clean-up: what production and its predecessor need stays, whoever is at work beside it."""

import time
from pathlib import Path

import pytest

from pipeline.core.errors import ReleaseError, ToolError
from pipeline.registry import tags
from pipeline.registry.clean import clean, kept_versions
from pipeline.registry.history import history
from pipeline.registry.promote import promote, rollback
from pipeline.registry.pull import pull
from pipeline.registry.verdicts import production
from tests.dvc_here import dvc
from tests.registry.conftest import git, next_model


def objects(*folders: Path) -> dict[str, bytes]:
    """Every object of some stores, by its place."""
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return {str(file): file.read_bytes() for file in files}


@pytest.mark.slow
def test_what_nobody_needs_goes_and_what_production_and_its_predecessor_need_stays(
    twice, host, tmp_path
):
    """`dvc gc -w` would remove what the tags before the workspace need: production's bytes."""
    cache, store = twice / ".dvc/cache/files/md5", tmp_path / "store/files/md5"
    next_model(twice, copies=3)
    promote(twice)
    since = production(twice).since
    (cache / "ab").mkdir(exist_ok=True)
    (cache / "ab" / ("c" * 30)).write_text("left by a run that was killed")
    git(twice, "switch", "--quiet", "--create", "other", "HEAD~1")  # production is no branch's tip
    git(twice, "branch", "--quiet", "--delete", "--force", "main")
    git(twice, "push", "--quiet", "origin", "HEAD:main")
    before = objects(cache, store)

    found = clean(twice, really=False)
    assert objects(cache, store) == before
    assert (found.kept, found.losing) == (("v0.0.2", "v0.0.3"), ("v0.0.1",))
    # A model's list, its manifest and its weights; in the cache its verdict and what was left, too.
    assert list(found.files.values()) == [5, 3]
    assert "would remove 5 files, 0.0 MB, from the cache" in str(found)

    assert str(clean(twice, really=True)).startswith("removed 5 files")
    left = objects(cache, store)
    assert left.items() < before.items()
    gone = [content for place, content in before.items() if place not in left]
    assert gone.count(b"rows!") == 2
    assert b"rowsrows!" not in gone
    assert b"rowsrowsrows!" not in gone
    assert clean(twice, really=False).files == dict.fromkeys(found.files, 0)
    assert production(twice).since == since
    assert [version.removed is None for version in history(host)] == [True, True, False]
    with pytest.raises(ReleaseError, match=r"Ann removed the bytes of v0\.0\.1 .* dvc repro"):
        rollback(twice, "v0.0.1")
    pull(host, tmp_path / "served")
    assert (tmp_path / "served/weights.txt").read_text() == "rowsrowsrows!"

    for place, content in left.items():
        if content == b"rowsrows!":
            Path(place).unlink()
    with pytest.raises(ReleaseError, match=r"store.* lacks bytes of v0\.0\.2, which must stay"):
        clean(twice, really=True)


@pytest.mark.slow
def test_a_clone_of_one_branch_knows_what_the_others_need(twice, tmp_path):
    """The newest days are on the branch release, which a clone of main alone does not follow."""
    git(twice, "switch", "--quiet", "--create", "release")
    next_model(twice, copies=3, last_day="2013-10-02")
    dvc(twice, "push")
    git(twice, "commit", "--quiet", "--all", "--message", "day=2013-10-02")
    git(twice, "push", "--quiet", "origin", "release")
    one = ("clone", "--quiet", "--depth=1", "--branch=main")
    git(tmp_path, *one, (tmp_path / "remote.git").as_uri(), "shallow")
    assert set(clean(tmp_path / "shallow", really=False).files.values()) == {0}


@pytest.mark.slow
def test_a_run_at_work_in_the_clone_is_not_disturbed(folder):
    from flows.worktree import release_worktree

    git(folder, "tag", "--annotate", "--message", "one", "model@v0.0.1")
    git(folder, "tag", "--annotate", "--message", "one", "model#prod#1")
    with (
        release_worktree(folder, "refresh of 2013-09-30"),
        pytest.raises(ToolError, match=r"refresh of 2013-09-30 .* is at work in \.release"),
    ):
        clean(folder, really=True)


def test_with_nothing_in_production_nothing_is_removed(folder):
    with pytest.raises(ReleaseError, match="nothing is in production yet, so nothing is removed"):
        clean(folder, really=True)


def test_promotion_and_clean_up_exclude_one_another(judged, monkeypatch):
    before = tags.assignments(judged)
    lost = pytest.raises(ReleaseError, match="another promotion came first")
    with tags.cleaning(judged, before[-1], {"v0.0.2": before[1].commit}):
        begun = tags.assignments(judged)[-1]
        with lost, tags.proposed(judged, before[-1]):  # by who looked before
            pass
        with lost, tags.cleaning(judged, before[-1], {}):
            pass
        with pytest.raises(
            ReleaseError, match=r"Ann began adacalib clean at .* if it was killed, from"
        ):
            tags.refuse_while_cleaning(tags.assignments(judged))  # it looks now

        assert list(tags.removals(judged)) == ["v0.0.2"]
        assert tags.spans(tags.assignments(judged)) == tags.spans(before)  # as production was
        monkeypatch.setattr(time, "time", lambda: begun.seconds + 901.0)
        tags.refuse_while_cleaning(tags.assignments(judged))  # it was killed, nobody has to mend it
        monkeypatch.undo()
    tags.refuse_while_cleaning(tags.assignments(judged))


@pytest.mark.parametrize(
    ("order", "kept"), [("1", "1"), ("12", "12"), ("123", "23"), ("1232", "321"), ("12321", "21")]
)
def test_production_and_what_a_rollback_goes_back_to_stay(order, kept):
    held = [tags.Tag(v, v * 40, f"model#prod#{n}", n) for n, v in enumerate(order, 1)]
    assert set(kept_versions(held)) == set(kept)
    assert set(kept_versions(held, removed="1")) == set(kept) - {"1"}  # gone with an earlier one
