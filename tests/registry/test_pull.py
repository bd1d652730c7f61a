"""A serving host: its folder shows what is in production, whole and verified, or what it showed."""

import os
import re
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.core.errors import AdaCalibError, ArtifactError, ReleaseError, ToolError
from pipeline.core.files import sha256_of, verify
from pipeline.registry.promote import rollback
from pipeline.registry.pull import pull
from pipeline.registry.tools.programs import run_program
from pipeline.registry.verdicts import production
from tests.registry.conftest import git


def weights(target: Path) -> str:
    """What a reader of a served folder gets, after it checked every byte."""
    verify(target)
    return (target / "weights.txt").read_text()


def stored(store: Path, content: bytes) -> Path:
    """The file of a DVC remote that has some content."""
    return next(p for p in store.rglob("*") if p.is_file() and p.read_bytes() == content)


@contextmanager
def reading(target: Path) -> Iterator[list[str]]:
    """A reader that verifies every byte again and again; its weights come, in order, or why not."""
    seen, stop = [], threading.Event()

    def read() -> None:
        while not stop.wait(0.005):
            try:
                found = weights(target.resolve()) if os.path.lexists(target) else "nothing yet"
            except (ArtifactError, OSError) as error:
                found = f"broken: {error}"
            if seen[-1:] != [found]:
                seen.append(found)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def send(sentence: str, clone: Path) -> None:
    """Do what a refusal says sends a version's bytes again."""
    for command in re.findall(r"(?:git restore|dvc push)[^,;]*", sentence):
        assert run_program(command.split(), clone).code == 0


@pytest.mark.slow
def test_a_host_without_a_cache_follows_production_forward_and_back(twice, host, tmp_path):
    """A roll-back restores the first version bit for bit, from git and the DVC remote alone."""
    target, file = tmp_path / "serving/model", stored(tmp_path / "store", b"rowsrows!")
    file.chmod(0o644)
    file.write_bytes(b"rowsrowt!")
    with reading(target) as seen:
        with pytest.raises(ArtifactError, match=r"weights\.txt is not as .* remove files"):
            pull(host, target)
        file.unlink()
        with pytest.raises(
            ToolError, match=r"reading the model of commit .* nothing was changed: .* dvc push"
        ):
            pull(host, target)
        assert not target.exists()

        file.write_bytes(b"rowsrows!")
        assert pull(host, target) == f"{target} now shows v0.0.2, production's version"
        second = target.resolve()
        assert weights(target) == "rowsrows!"
        assert pull(host, target) == f"{target} shows v0.0.2, production's version"
        assert target.resolve() == second

        rollback(twice)
        stored(tmp_path / "store", b"rows!").unlink()  # of a version that stands in no worktree
        with pytest.raises(ToolError, match=r"reading .* dvc push") as lacking:
            pull(host, target)
        (listed,) = re.findall(r"files/md5/\S+", str(lacking.value))
        (tmp_path / "store" / listed).unlink()
        send(str(lacking.value), twice)
        assert pull(host, target) == f"{target} now shows v0.0.1, production's version"
        assert weights(target) == "rows!"
        assert sha256_of(target / "manifest.json") == production(twice).model_sha256
        assert second.is_dir()  # a reader that has it open can go on
        assert not (host / ".dvc/cache").exists()
    assert seen == ["nothing yet", "rowsrows!", "rows!"]

    (note,) = target.parent.glob(".*/assignment")
    noted = note.read_text()
    for damaged in ("", "three"):
        note.write_text(damaged)
        with pytest.raises(ArtifactError, match="remove it and pull again"):
            pull(host, target)
    note.write_text(noted)
    newest = git(tmp_path / "remote.git", "tag", "--list", "model#prod#3").strip()
    git(tmp_path / "remote.git", "tag", "--delete", newest)  # as a mirror that lags
    git(host, "tag", "--delete", newest)
    with pytest.raises(ReleaseError, match=r"is behind: v0\.0\.2 is its assignment 2, .* number 3"):
        pull(host, target)
    assert weights(target) == "rows!"


def test_what_cannot_be_followed_is_told_in_a_sentence(folder, tmp_path, shared):
    target = tmp_path / "served"
    with pytest.raises(ToolError, match="is no clone of the project; run this in one"):
        pull(tmp_path, target)
    with pytest.raises(ReleaseError, match="'origin' has nothing in production yet; promote"):
        pull(folder, target)
    assert not target.exists()


def test_a_refused_first_pull_leaves_nothing_behind(folder, tmp_path, monkeypatch):
    git(folder, "tag", "--annotate", "--message", "one", "model@v0.0.1")
    git(folder, "tag", "--annotate", "--message", "one", "model#prod#1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "letter").touch()
    before = sorted(path for path in tmp_path.rglob("*") if folder not in path.parents)
    for target, remote, fault in (
        ("letter", None, "was not made by adacalib pull"),
        (".", None, "was not made by adacalib pull"),
        ("letter/served", None, "letter is no folder"),
        ("new/served", "elsewhere", "no DVC remote 'elsewhere'"),
    ):
        with pytest.raises(AdaCalibError, match=fault):
            pull(folder, Path(target), remote)
    after = sorted(path for path in tmp_path.rglob("*") if folder not in path.parents)
    assert after == before


def test_a_host_without_room_is_not_told_to_remove_what_others_follow(twice, host, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))  # as a full quota
    try:
        with pytest.raises(ToolError, match="make room there") as refusal:
            pull(host, tmp_path / "served")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "remove" not in str(refusal.value)
    pull(host, tmp_path / "served")
    verify(tmp_path / "served")


def test_a_folder_of_somebody_else_is_left_alone(folder, tmp_path):
    git(folder, "tag", "--annotate", "--message", "one", "model@v0.0.1")
    git(folder, "tag", "--annotate", "--message", "one", "model#prod#1")
    (tmp_path / "own").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "own")
    for target in (tmp_path / "own", tmp_path / "link"):
        with pytest.raises(ReleaseError, match=re.escape(f"{target} was not made by adacalib")):
            pull(folder, target)


def test_a_clone_that_knows_no_dvc_remote_says_so(folder, tmp_path):
    git(tmp_path, "init", "--quiet", "--bare", "remote.git")
    git(folder, "remote", "add", "origin", "../remote.git")
    git(folder, "tag", "--annotate", "--message", "one", "model@v0.0.1")
    git(folder, "tag", "--annotate", "--message", "one", "model#prod#1")
    git(folder, "push", "--quiet", "origin", "--tags")
    with pytest.raises(ReleaseError, match="this clone has no default DVC remote that says"):
        pull(folder, tmp_path / "served")
