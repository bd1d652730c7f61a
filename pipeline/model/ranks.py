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
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from pipeline.core.errors import ToolError, TrainingError

TORCHRUN = "ADACALIB_TORCHRUN"  # options of torchrun, in the environment
GRACE = 5.0  # seconds in which torchrun ends a process after another one has died
AGAIN = "run it again: training goes on after its last whole epoch"


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together; alone by default.

    Attributes:
        rank: of this process, from 0; the first one writes.
        number: of processes.
        device: of this process: cpu, cuda, or cuda with its number.
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
        with _with_others():
            if self.rank == 0:
                self.store.set("facts", json.dumps(facts))
            while not self.store.check(["facts"]):  # for as long as it takes to encode the log
                time.sleep(0.2)
            backend = "gloo" if self.device == "cpu" else "nccl"
            dist.init_process_group(
                backend, store=self.store, rank=self.rank, world_size=self.number
            )
            return json.loads(self.store.get("facts"))

    def total(self, amount: float) -> float:
        """The sum of the amounts of all processes, in float64; the same number in each."""
        if self.number == 1:
            return amount
        with _with_others():
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
        with _with_others():
            found = [(p, p.grad) for p in network.parameters() if p.grad is not None]
            dense = [gradient for _, gradient in found if not gradient.is_sparse]
            flat = parameters_to_vector(dense)
            dist.all_reduce(flat)
            vector_to_parameters(flat, dense)
            for parameter, gradient in found:
                if gradient.is_sparse:
                    rows = self._gathered(gradient._indices()[0])
                    values = self._gathered(gradient._values())
                    parameter.grad = torch.sparse_coo_tensor(rows[None], values, gradient.shape)

    def _gathered(self, part: Tensor) -> Tensor:
        """The parts of all processes, which have one shape, below each other."""
        parts = [torch.empty_like(part) for _ in range(self.number)]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts)


ALONE = Ranks()


@contextmanager
def joined(device: str) -> Iterator[Ranks]:
    """This process among those of torchrun, or alone where torchrun did not start it.

    Args:
        device: cpu or cuda, of which the processes of a machine take one each.

    Raises:
        ToolError: the machine has fewer GPUs than processes.
    """
    number = int(os.environ.get("WORLD_SIZE", 1))
    rank, local = (int(os.environ.get(name, 0)) for name in ("RANK", "LOCAL_RANK"))
    if number == 1:
        yield Ranks(device=device)
        return
    if device == "cuda":
        if local >= torch.cuda.device_count():
            raise ToolError(
                f"process {local} of this machine has no GPU, as there are "
                f"{torch.cuda.device_count()}; start as many with --nproc-per-node"
            )
        device = f"cuda:{local}"
        torch.cuda.set_device(device)
    if rank:
        os.environ["ADACALIB_QUIET"] = "1"  # the first one says how it goes
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    with _with_others():
        store = next(dist.rendezvous("env://"))[0]
    yield Ranks(rank, number, device, store)
    dist.destroy_process_group()


def _end_with(parent: int) -> None:
    """End this process when torchrun is no longer there, as it has no time for that when killed."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def _with_others() -> Iterator[None]:
    """The end of another process in one sentence, unless torchrun ends this one before."""
    try:
        yield
    except RuntimeError as error:  # of torch.distributed all are
        time.sleep(GRACE)
        reason = str(error).splitlines()[0]
        raise TrainingError(f"the other processes do not answer ({reason}); {AGAIN}") from None


def to_start() -> bool:
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

    options, said = shlex.split(os.environ[TORCHRUN]), StringIO()
    if not any("nnodes" in option for option in options):
        options = [*_here(), *options]
    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)  # what ends it is a sentence
    try:
        with redirect_stderr(said):
            parsed = run.parse_args([*options, "--module", "pipeline", *arguments])
        run.run(parsed)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode > 0:
            raise SystemExit(failure.exitcode) from None
        raise TrainingError(f"{failure.signal_name()} ended process {rank}; {AGAIN}") from None
    except SignalException:
        raise KeyboardInterrupt from None
    except (SystemExit, ValueError, RuntimeError, OSError) as error:
        reason = (said.getvalue() or str(error)).splitlines()[-1]
        raise ToolError(
            f"torchrun could not start the processes that {TORCHRUN} asks for: {reason}"
        ) from None


def _here() -> list[str]:
    """Options by which the processes of this machine meet without a name or a port of its own."""
    if os.path.exists("/sys/class/net/lo"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with socket.create_server(("127.0.0.1", 0)) as free:
        return ["--master-addr=127.0.0.1", f"--master-port={free.getsockname()[1]}"]
