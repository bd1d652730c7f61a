"""A promotion killed at any of its steps leaves production whole; the same again goes on."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.registry.promote import promote
from pipeline.registry.tags import assignments
from pipeline.registry.verdicts import production
from tests.registry.conftest import git, next_model

# Kill this process after a step, or as soon as a step has put something into a folder.
KILLED = """
import os, signal, sys, threading, time
from pathlib import Path
from pipeline.registry import commits, tags
from pipeline.registry.tools import dvc
from pipeline.registry.promote import promote

module, name, grows = sys.argv[1:]
step = getattr(globals()[module], name)

def files():
    return len(list(Path(grows).rglob("*")))

def watch(before):
    while files() == before:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)

def deadly(*arguments, **options):
    if grows:
        threading.Thread(target=watch, args=(files(),)).start()
    done = step(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(globals()[module], name, deadly)
promote(Path())
"""


def killed(folder: Path, step: str, grows: Path | str = "") -> None:
    """Promote in a process that is killed."""
    command = [sys.executable, "-c", KILLED, *step.split("."), str(grows)]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.slow
def test_a_promotion_killed_at_each_step_is_safe_and_the_same_again_goes_on(twice, tmp_path):
    """Nothing is left to remove by hand, nothing is promoted by halves."""
    remote, before = tmp_path / "remote.git", production(twice)
    next_model(twice, copies=3)
    killed(twice, "commits.commit_files")
    assert git(twice, "status", "--porcelain") == ""
    killed(twice, "dvc.push", tmp_path / "store")
    assert production(twice) == before
    assert [a.version for a in assignments(remote)] == ["v0.0.1", "v0.0.2"]
    killed(twice, "tags.push_tags")  # the tags are at the remote; here nobody knows
    assert production(twice) == before
    assert assignments(remote)[-1].version == "v0.0.3"
    assert promote(twice).startswith("v0.0.3 is this model: it is in production since")
    assert production(twice).commit == git(twice, "rev-parse", "HEAD").strip()
