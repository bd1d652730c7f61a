"""One map over days: the same function of every day, several at a time, in the order of days.

Worker processes, of this machine or of a cluster that is there: what ADACALIB_DASK names.

Dask carries the work to them, and begins it again elsewhere where one dies. They read and write the
folders of this checkout, so they see it under the same path; no result depends on them.
"""

import logging
import os
import re
import socket
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from pipeline.core.errors import AdaCalibError
from pipeline.core.work import WorkProgress, in_order, made_ahead
from pipeline.engine.reuse import made_by
from pipeline.formats.sort_keys import usable_threads

if TYPE_CHECKING:
    from distributed import Client, Future, LocalCluster

DASK = "ADACALIB_DASK"  # in the environment, as it changes no result
PATIENCE = 180.0  # seconds without a worker, after which none is waited for


class Workers:
    """Processes that one function runs in, on one item after another.

    Args:
        place: as ADACALIB_DASK names them.
        work: a function of an item; it travels once, with all that it closes over.
        title: what is done, a verb.

    Raises:
        AdaCalibError: nobody answers there, or a worker has another code or other folders.
    """

    def __init__(self, place: str, work: Callable[[Any], Any], title: str) -> None:
        self._title, self._seen = title, monotonic()
        # Dask expects of tasks what those of the same name took, and does not move short ones from
        # the worker that has the work to idle ones: other work's time must not count
        self._name = f"{title}_{uuid4().hex}"
        with _one_sentence(title):
            self._client = _client(place)
            self._work = self._client.submit(lambda work: work, work, pure=False)

    def begin(self, item: Any) -> Callable[[], Any]:
        """Have the work on an item begun; what waits for its result."""
        with _one_sentence(f"{self._title} {item}"):
            key = f"{self._name}-{uuid4().hex}"
            future = self._client.submit(_work_on, self._work, item, _checkout(), key=key)
        return partial(self._result, future, item)

    def _result(self, future: "Future", item: Any) -> Any:
        from distributed import KilledWorker, wait

        what = f"{self._title} {item}"
        with _one_sentence(what):
            while not future.done():
                with suppress(TimeoutError):
                    wait(future, timeout=2.0)
                if _running(self._client):
                    self._seen = monotonic()
                elif monotonic() - self._seen > PATIENCE:
                    raise AdaCalibError(
                        f"{what}: no worker of {os.environ[DASK]} has been ready for "
                        f"{PATIENCE:.0f} seconds; start some, or give them memory, as those that "
                        "are short of it pause, and run this again"
                    )
            error = future.exception()
            if error is None or isinstance(error, KilledWorker):
                return future.result()
        raise error  # of the work, as it is


def width_of(place: str) -> int:
    """How many items the workers of a place work on at a time."""
    with _one_sentence("looking for workers"):
        return max(1, sum(worker["nthreads"] for worker in _running(_client(place)).values()))


def _work_on(work: Callable[[Any], Any], item: Any, checkout: Mapping[str, Any]) -> Any:
    """What a worker does: the work, where it is what and where it should be."""
    _refuse_other(checkout)
    return work(item)


def _checkout() -> dict[str, Any]:
    return {"folder": str(Path().absolute()), **made_by()}


def _refuse_other(checkout: Mapping[str, Any]) -> None:
    """Refuse to work where other bytes would come out."""
    host, folder = socket.gethostname(), Path(checkout["folder"])
    if not folder.is_dir():
        raise AdaCalibError(
            f"the worker on {host} has no folder {folder}; workers need the checkout under the "
            "same path, by a file system that all machines share"
        )
    odd = [name for name, found in made_by().items() if found != checkout[name]]
    if odd:
        raise AdaCalibError(
            f"the worker on {host} has another {odd[0]} than there is here, so other bytes could "
            "come out; install there what is here"
        )


def _running(client: "Client") -> dict[str, Any]:
    if client.status != "running":  # else it is waited for
        raise ConnectionError(client.status)
    found = client.scheduler_info(n_workers=-1)["workers"]
    return {name: worker for name, worker in found.items() if worker["status"] == "running"}


@contextmanager
def _one_sentence(what: str) -> Iterator[None]:
    """What ended workers or scheduler, as one sentence; the next call connects again."""
    try:
        from distributed import KilledWorker
    except ModuleNotFoundError:
        raise AdaCalibError(
            f'{DASK} is set and Dask is not installed; pip install "adacalib[dask]", or unset it'
        ) from None
    try:
        yield
    except KilledWorker as error:
        raise AdaCalibError(
            f"{what}: {error.allowed_failures + 1} workers died at it one after the other, the "
            f"last was {error.last_worker.address}; mostly it is want of memory: give each more"
        ) from None
    except (CancelledError, OSError):
        release()
        raise AdaCalibError(
            f"{what}: the scheduler of {os.environ[DASK]} does not answer; start it and its "
            "workers, and run this again: what was made of other days is kept"
        ) from None


def release() -> None:
    """Let go of all workers; those of this process end, as they do with it."""
    from distributed import Client

    _client.cache_clear()
    with suppress(Exception):  # there are none, or they are lost, so that nothing can be closed
        client = Client.current()
        client.close(timeout=1)
        client.cluster.close()


@cache
def _client(place: str) -> "Client":
    """A client of the scheduler at a place, where workers are ready."""
    import dask
    from distributed import Client

    local = re.fullmatch(r"local:([1-9]\d{0,3})", place)
    there = re.fullmatch(r"(?:tcp|tls)://\S+:(\d{1,5})", place)
    if not local and not (there and int(there[1]) < 1 << 16):
        raise AdaCalibError(
            f"{DASK} must be local:N for N worker processes here, or tcp://HOST:PORT of a Dask "
            f"scheduler; it is {place!r}"
        )
    dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"})
    for name in ("distributed", "distributed.client"):  # what ends it is one sentence
        logging.getLogger(name).setLevel(logging.CRITICAL)
    patience = PATIENCE / (3 if local else 9)  # a cluster may be just starting
    try:
        client = Client(_processes(int(local[1])) if local else place, timeout=patience)
    except TypeError as error:  # a TLS context that is none
        raise AdaCalibError(f"{place}: {error}; name the files in Dask's configuration") from None
    client.wait_for_workers(1, timeout=PATIENCE)
    try:
        client.run(_refuse_other, _checkout())
    except ModuleNotFoundError as error:
        raise AdaCalibError(
            f"a worker of {place} has no {error.name}; install there what is here"
        ) from None
    return client


def _processes(number: int) -> "LocalCluster":
    """Worker processes of this one, with which they end; nobody else can connect to them."""
    import dask
    from distributed import LocalCluster

    # a worker that pauses for want of memory waits for ever; one that ends is begun again, also
    # where 15 s after one end it is just ending or beginning once more: Dask would give it up then
    dask.config.set({"distributed.worker.memory.pause": False})
    dask.config.set({"distributed.deploy.lost-worker-timeout": "1 day"})
    # memory that is given back when it is freed has to be asked for again by the next block of
    # rows, which made scoring take a fifth longer; as Dask has it, twice as long
    keep = dict.fromkeys(("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), 2 * 10**9)
    dask.config.set({"distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 1} | keep})
    return LocalCluster(
        n_workers=number, threads_per_worker=1, host="127.0.0.1", security=True,
        dashboard_address="127.0.0.1:0", worker_dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
    )  # fmt: skip


Item = TypeVar("Item")
Result = TypeVar("Result")


def map_days(
    work: Callable[[Item], Result], days: Sequence[Item], title: str, unit: str = "days"
) -> Iterator[tuple[Item, Result]]:
    """Each of `days`, or of other items, with what `work` makes of it, in their order, by as many
    threads as there are processors; where ADACALIB_DASK names worker processes, by those.

    No more days are under way than threads, and one that waits to be taken: what does not depend on
    the number of days does not grow with it.

    Args:
        work: a function of a day alone; what it closes over travels to worker processes.
        days: in the order in which they come back.
        title: what is done, a verb, for the progress.
        unit: plural, what an item is.

    Raises:
        AdaCalibError: the worker processes ended or cannot be reached.
        Exception: what `work` raises, for the first day that fails.
    """
    made = _made(work, days, title)
    with closing(made), WorkProgress(title, len(days), unit) as progress:
        for item, of_item in zip(days, made, strict=True):
            progress.advance(1)
            yield item, of_item


def processes() -> int | None:
    """How many worker processes' threads there are; None: threads of this process do the work."""
    return width_of(os.environ[DASK]) if os.environ.get(DASK) else None


def _made(
    work: Callable[[Item], Result], items: Sequence[Item], title: str
) -> Generator[Result, None, None]:
    """What `work` makes of each item, in their order, by worker processes or threads."""
    if place := os.environ.get(DASK):
        try:
            begun = map(Workers(place, work, title).begin, items)
            yield from in_order(begun, lambda: width_of(place))
        except BaseException:  # those at work would write on into folders that go next
            release()
            raise
        return
    yield from made_ahead(work, items, usable_threads())
