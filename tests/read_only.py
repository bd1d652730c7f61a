"""Folders that nobody may write to, whoever runs the tests."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Take the right to write into a folder away; from root by a mount, where it may mount."""
    if os.geteuid():
        mode = folder.stat().st_mode
        folder.chmod(0o555)
        try:
            yield
        finally:
            folder.chmod(mode)
        return
    place = str(folder)
    for options in (["--bind", place], ["-o", "remount,ro,bind"]):
        if subprocess.run(["mount", *options, place], check=False, capture_output=True).returncode:
            pytest.skip("root may not mount here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
