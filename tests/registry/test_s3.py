"""A DVC remote that speaks S3: promotion, a serving host and clean-up, with no account anywhere."""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.registry.clean import clean
from pipeline.registry.promote import promote
from pipeline.registry.pull import pull
from tests.registry.conftest import git

pytest.importorskip("dvc_s3", reason="dvc-s3 is not installed")
pytest.importorskip("flask_cors", reason="moto[server] is not installed")


def ask(method: str, address: str) -> bytes:
    """The answer of the server."""
    request = urllib.request.Request(address, method=method, data=b"" if method == "PUT" else None)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.read()


@pytest.fixture
def bucket() -> Iterator[str]:
    """The address of an empty bucket on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = Path(sys.executable).parent / "moto_server"
    command = [program, "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(600):
                try:
                    ask("PUT", f"http://127.0.0.1:{port}/models")
                    break
                except urllib.error.URLError:
                    time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/models"
        finally:
            server.terminate()


@pytest.mark.slow
def test_a_bucket_is_a_remote_like_any_other(folder, bucket, tmp_path):
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", "remote.git")
    git(folder, "remote", "add", "origin", "../remote.git")
    with (folder / ".dvc/config").open("a") as file:
        file.write("    remote = store\n['remote \"store\"']\n    url = s3://models/adacalib\n")
    git(folder, "commit", "--quiet", "--all", "--message", "A DVC remote")
    git(folder, "push", "--quiet", "--set-upstream", "origin", "main")
    secrets = (
        f"['remote \"store\"']\n    endpointurl = {bucket.rpartition('/')[0]}\n"
        "    access_key_id = nobody\n    secret_access_key = nothing\n"
    )
    (folder / ".dvc/config.local").write_text(secrets)
    assert "its bytes were read back from DVC remote s3://models/adacalib" in promote(folder)

    git(tmp_path, "clone", "--quiet", "remote.git", "host")
    (tmp_path / "host/.dvc/config.local").write_text(secrets)
    assert "now shows v0.0.1" in pull(tmp_path / "host", tmp_path / "served")
    assert (tmp_path / "served/weights.txt").read_text() == "rows!"

    ask("PUT", f"{bucket}/adacalib/files/md5/ab/{'c' * 30}")
    found = clean(tmp_path / "host", really=True)
    assert (found.kept, found.losing) == (("v0.0.1",), ())
    assert found.files == {"the cache": 0, "DVC remote models/adacalib/files/md5": 1}
    left = ask("GET", f"{bucket}?list-type=2&prefix=adacalib/")
    assert left.count(b"<Key>") == 5  # two lists, the data, the model's manifest and weights
    assert b"c" * 30 not in left
