"""A published file or folder is there whole, or the one before it is."""

import json
import math

import pytest

from pipeline.core.errors import ArtifactError
from pipeline.core.files import publish, read_json, sha256_of, write_json


def test_a_writer_that_fails_leaves_the_previous_version(tmp_path):
    target = tmp_path / "model"
    with publish(target) as folder:
        folder.mkdir()
        (folder / "weights").write_text("first")

    def half_a_version() -> None:
        with publish(target) as folder:
            folder.mkdir()
            (folder / "weights").write_text("sec")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half_a_version()
    assert (target / "weights").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_is_replaced_whole(tmp_path):
    target = tmp_path / "tables"
    for name in ("old", "new"):
        with publish(target) as folder:
            folder.mkdir()
            (folder / name).touch()
    assert [path.name for path in target.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["tables"]


def test_a_file_never_replaces_a_folder(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").touch()
    with pytest.raises(ArtifactError, match="mine is a folder"):
        write_json(tmp_path / "mine", {})
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "letter"]


@pytest.mark.parametrize("target", ["letter", "letter/x", "letter/x/y"])
def test_a_folder_never_replaces_a_file_nor_stands_in_one(tmp_path, target):
    (tmp_path / "letter").write_text("mine")
    with (
        pytest.raises(ArtifactError, match=r"letter is no folder, .* name another place"),
        publish(tmp_path / target) as folder,
    ):
        folder.mkdir()
    assert [path.name for path in tmp_path.rglob("*")] == ["letter"]
    assert (tmp_path / "letter").read_text() == "mine"


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[" * 100_000, b"{", b""])
def test_what_is_no_json_is_said(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    for path, fault in ((tmp_path / "a.json", "is not JSON"), (tmp_path / "a.json/b", "not exist")):
        with pytest.raises(ArtifactError, match=fault):
            read_json(path)


def test_json_carries_undefined_as_null(tmp_path):
    write_json(tmp_path / "report.json", {"a": math.nan, "b": [math.inf, 1.5], "c": None})
    assert json.loads((tmp_path / "report.json").read_text()) == {
        "a": None,
        "b": [None, 1.5],
        "c": None,
    }


def test_equal_values_give_equal_bytes(tmp_path):
    write_json(tmp_path / "one.json", {"a": 1, "b": 2})
    write_json(tmp_path / "two.json", {"b": 2, "a": 1})
    assert sha256_of(tmp_path / "one.json") == sha256_of(tmp_path / "two.json")


def test_a_missing_and_a_damaged_report_are_named(tmp_path):
    with pytest.raises(ArtifactError, match=r"gone.json does not exist; run the stage"):
        read_json(tmp_path / "gone.json")
    (tmp_path / "cut.json").write_text('{"a": ')
    with pytest.raises(ArtifactError, match=r"cut.json is not JSON"):
        read_json(tmp_path / "cut.json")
