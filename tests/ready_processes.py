"""Processes of their own in which the libraries of the stages are loaded already.

Each is forked from a process that has loaded them and done nothing else: it starts in milliseconds
where a fresh one takes seconds, and is otherwise a process like any other.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from pipeline.__main__ import main
from pipeline.params.params_file import STAGES


@cache
def context() -> ForkServerContext:
    """Where such processes come from; the first one loads."""
    found = multiprocessing.get_context("forkserver")
    loaded = ["distributed", *(f"pipeline.stages.{stage}" for stage in STAGES)]
    found.set_forkserver_preload(loaded)
    forkserver.ensure_running()  # before Dask asks for one that has loaded less
    return found


@contextmanager
def ready_workers() -> Iterator[None]:
    """Dask's worker processes are such processes, too, while the block runs."""
    import dask
    import distributed  # noqa: F401  # else its defaults would come within the block, and go with it

    context()
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield


def stage_process(stage: str, paths: list[Path], folder: Path, said: Path) -> BaseProcess:
    """`python -m pipeline STAGE PATH…`, begun in a folder; what it says goes into a file."""
    process = context().Process(target=_run, args=(stage, paths, folder, said))
    process.start()
    return process


def _run(stage: str, paths: list[Path], folder: Path, said: Path) -> None:
    os.chdir(folder)
    with said.open("w") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    sys.argv = ["pipeline", stage, *map(str, paths)]
    main()
    os._exit(0)  # at once: a signal that comes after the stage is none in its middle


def all_of(work: Callable[[Any], Any], items: list[Any]) -> list[Any]:
    """What `work` makes of each item, each in a process of its own, all at once."""
    with context().Pool(len(items)) as pool:
        return pool.map(work, items, chunksize=1)
