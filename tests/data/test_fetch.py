"""Public files come by pip's own client, checked by hash, and are read without being installed."""

import io
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from pipeline.core.errors import ToolError
from pipeline.core.files import sha256_of
from pipeline.data.ingest.fetched import fetch_members, read_members

MEMBER = "tiny_log/log.csv"


def tiny_wheel(folder: Path) -> Path:
    """A wheel with a data file and a module that must never run."""
    path = folder / "tiny_log-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(MEMBER, "a,b\n1,2\n")
        wheel.writestr("tiny_log/__init__.py", "raise SystemExit('imported')")
        info = "tiny_log-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-log\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path, monkeypatch) -> Path:
    """pip sees this folder and no index."""
    for name, value in {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
        "PIP_CONFIG_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def test_a_member_of_a_pinned_package_is_fetched_without_importing_it(index):
    wheel = tiny_wheel(index)
    content = fetch_members("tiny-log==1.0", sha256_of(wheel), [MEMBER])
    assert content == {MEMBER: b"a,b\n1,2\n"}
    assert "tiny_log" not in sys.modules


def test_a_package_with_another_hash_is_refused_in_one_sentence(index):
    tiny_wheel(index)
    with pytest.raises(ToolError, match=r"^tiny-log==1\.0 could not be downloaded by pip") as error:
        fetch_members("tiny-log==1.0", "0" * 64, [MEMBER])
    assert "\n" not in str(error.value)


def test_an_unreachable_index_ends_in_one_sentence_with_the_next_step(index):
    with pytest.raises(ToolError, match=r"^tiny-log==1\.0 .*`pip config list`") as error:
        fetch_members("tiny-log==1.0", "0" * 64, [MEMBER])
    assert "\n" not in str(error.value)


def test_a_member_that_is_not_there_is_named(index):
    wheel = tiny_wheel(index)
    with pytest.raises(ToolError, match=r"other\.csv"):
        fetch_members("tiny-log==1.0", sha256_of(wheel), ["tiny_log/other.csv"])


def test_members_of_a_source_archive_are_read_without_unpacking(tmp_path):
    path = tmp_path / "tiny.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("tiny/log.csv")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"a,b\n"))
    assert read_members(path, ["tiny/log.csv"]) == {"tiny/log.csv": b"a,b\n"}
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(KeyError):
        read_members(path, ["tiny/other.csv"])
