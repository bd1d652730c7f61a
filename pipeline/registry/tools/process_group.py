"""Run a command so that it and all it started end when whoever asked for it is gone.

`python leash.py DESCRIPTOR COMMAND…`: the asker holds the other end of the pipe DESCRIPTOR. When
the asker dies, however it dies, that end closes, and the command's whole process group is killed.
So it is when the command ends and leaves a child behind, which a dvc killed by a signal does.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _kill_when_let_go(descriptor: int, group: int) -> None:
    os.read(descriptor, 1)  # returns when the last holder of the other end has closed it
    _kill(group)


def main() -> int:
    """The exit code of the command, 128 + the signal where one ended it."""
    descriptor, command = int(sys.argv[1]), sys.argv[2:]
    process = subprocess.Popen(command, process_group=0)
    signal.signal(signal.SIGTERM, lambda *_: _kill(process.pid))
    watcher = threading.Thread(
        target=_kill_when_let_go, args=(descriptor, process.pid), daemon=True
    )
    watcher.start()
    code = process.wait()
    _kill(process.pid)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
