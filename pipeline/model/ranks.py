"""Processes that train one network together, as torchrun starts them: each has its part of a batch.

Gradients are added up here and not by DistributedDataParallel: that sends the gradient of the whole
embedding where a step names few of its rows, or a sparse one, which NCCL does not add up. Here the
named rows are gathered in the order of the batch, and all processes take the same step.
"""

import json
import logging
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_gather
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from pipeline.core.errors import AdaCalibError, ToolError, TrainingError

TORCHRUN = "ADACALIB_TORCHRUN"  # options of torchrun, in the environment
GRACE = 5.0  # seconds in which torchrun ends a process after another one has ended
AGAIN = "run it again: training goes on after its last whole epoch"


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together; alone by default.

    Attributes:
        rank: of this process, from 0; the first one writes.
        number: of processes.
        device: of this process: cpu, or cuda with its number.
        store: small things that all of them see; None: there is one process.
    """

    rank: int = 0
    number: int = 1
    device: str = "cpu"
    store: dist.Store | None = None

    def share(self, facts: Any) -> Any:
        """What the first process gives, as JSON can hold it, in every process; all wait for it.

        Args:
            facts: of the first process; those of the others are not looked at.
        """
        if self.store is None:
            return facts
        if self.rank == 0:
            self.store.set("facts", json.dumps(facts, default=str))
        while not self.store.check(["facts"]):  # for as long as it takes to encode the log
            time.sleep(0.2)
        backend, of_all = "gloo" if self.device == "cpu" else "nccl", self.number
        dist.init_process_group(backend, store=self.store, rank=self.rank, world_size=of_all)
        return json.loads(self.store.get("facts"))

    def total(self, amount: float) -> float:
        """The sum of the amounts of all processes, in float64; the same number in each."""
        if self.number == 1:
            return amount
        tensor = torch.tensor(amount, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        return tensor.item()

    def add_gradients(self, network: nn.Module) -> None:
        """Make each gradient the sum of those of all processes; the same bytes in each.

        Args:
            network: after the backward pass over parts of one size.
        """
        if self.number == 1:
            return
        found = [(p, p.grad) for p in network.parameters() if p.grad is not None]
        dense = [gradient for _, gradient in found if not gradient.is_sparse]
        flat = parameters_to_vector(dense)
        dist.all_reduce(flat)
        vector_to_parameters(flat, dense)
        for parameter, part in found:
            if part.is_sparse:
                both = part._indices()[0], part._values()
                rows, values = (torch.cat(all_gather(tensor)) for tensor in both)
                parameter.grad = torch.sparse_coo_tensor(rows[None], values, part.shape)


ALONE = Ranks()


@contextmanager
def joined(device: str) -> Iterator[Ranks]:
    """This process among those of torchrun, or alone where torchrun did not start it.

    Args:
        device: of this process.

    Raises:
        TrainingError: another process ended, and torchrun did not end this one before.
    """
    rank, number = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if number == 1:
        yield Ranks(device=device)
        return
    if rank:
        os.environ["ADACALIB_QUIET"] = "1"  # the first one says how it goes
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = dist.PrefixStore(attempt, next(dist.rendezvous("env://"))[0])
        yield Ranks(rank, number, device, store)
        dist.destroy_process_group()
    except AdaCalibError:
        time.sleep(GRACE if rank else 0)  # the first one says what all have found
        raise
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        time.sleep(GRACE)
        reason = str(error).splitlines()[0].split("] ")[-1].split(". ")[0]
        raise TrainingError(f"the other processes do not answer ({reason}); {AGAIN}") from None


def _end_with(parent: int) -> None:
    """End this process when torchrun is no longer there, as it has no time for that when killed."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


def is_first() -> bool:
    """Whether this process writes what all of torchrun's would write alike."""
    return os.environ.get("RANK", "0") == "0"


def are_to_start() -> bool:
    """Whether the environment asks for processes that are not there yet."""
    return bool(os.environ.get(TORCHRUN)) and "TORCHELASTIC_RUN_ID" not in os.environ


def start(arguments: Sequence[str]) -> None:
    """Have torchrun start `python -m pipeline` with the arguments, and wait for its processes.

    Raises:
        SystemExit: a process refused; it has said why.
        TrainingError: a process was killed.
        ToolError: torchrun does not take the options, or does not find its other machines.
        KeyboardInterrupt: it was stopped.
    """
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    logging.disable(logging.CRITICAL)  # what ends it is one sentence
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun has it, with a page of warning
    for number in (signal.SIGINT, signal.SIGTERM):  # until torchrun has handlers of its own, as it
        signal.signal(number, signal.SIG_DFL)  # waits for other machines where Python's never run
    options, said = os.environ[TORCHRUN], StringIO()
    try:
        words = [*([] if "nnodes" in options else _here()), *shlex.split(options)]
        with redirect_stderr(said):
            parsed = run.parse_args([*words, "--module", "pipeline", *arguments])
        run.run(parsed)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode > 0:
            raise SystemExit(failure.exitcode) from None
        raise TrainingError(f"{failure.signal_name()} ended process {rank}; {AGAIN}") from None
    except SignalException:
        raise KeyboardInterrupt from None
    except (SystemExit, ValueError, RuntimeError, OSError) as error:
        reason = [*str(error).splitlines()[:1], *said.getvalue().splitlines()][-1]
        raise ToolError(f"torchrun cannot start what {TORCHRUN} asks for: {reason}") from None


def _here() -> list[str]:
    """Options by which the processes of this machine meet on loopback, at a free port."""
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with socket.create_server(("127.0.0.1", 0)) as free:
        return ["--master-addr=127.0.0.1", f"--master-port={free.getsockname()[1]}"]
