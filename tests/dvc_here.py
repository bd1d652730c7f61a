"""DVC for what tests prepare and ask: its command line, in a process that has loaded it already.

Each command is forked from one process that has loaded DVC and done nothing else, which takes a
tenth of the time of a fresh one. What the product does with DVC it does with fresh ones.
"""

import atexit
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

PROGRAM = """
import json, os, sys
import dvc.cli.parser, dvc.output, dvc.repo, dvc.repo.reproduce, dvc.stage.run
from dvc.cli import main

for line in sys.stdin:
    words, folder, environment, *said = json.loads(line)
    if not (child := os.fork()):
        code = 1
        try:
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            places = [os.open(os.devnull, os.O_RDONLY)]
            places += [os.open(place, os.O_WRONLY | os.O_CREAT) for place in said]
            for number, place in enumerate(places):
                os.dup2(place, number)
            sys.argv = ["dvc", *words]
            code = main(words)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@cache
def _loaded() -> "subprocess.Popen[str]":
    """The process that commands are forked from; it ends with its input."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.communicate)
    return process


def dvc(folder: Path, *words: str) -> str:
    """What a dvc command that ends well prints in a folder."""
    process, programs = _loaded(), str(Path(sys.executable).parent)
    assert process.stdin
    assert process.stdout
    environment = os.environ | {
        "PATH": os.pathsep.join([programs, os.environ["PATH"]]),
        "DVC_NO_ANALYTICS": "1",
    }
    with TemporaryDirectory() as place:
        output, errors = (Path(place, name) for name in ("output", "errors"))
        asked = [words, str(folder.absolute()), environment, str(output), str(errors)]
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        code = int(process.stdout.readline())
        assert code == 0, errors.read_text()
        return output.read_text()
