"""The last good epoch of a training on disk, so that a killed training goes on where it was."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from pipeline.core.files import publish
from pipeline.model.network import Adam

LAST_EPOCH = "last_epoch.safetensors"


@dataclass(frozen=True)
class EpochRecord:
    """What an epoch ended with; losses in nats per impression.

    Attributes:
        epoch: from 1.
        loss: mean over the batches of the epoch, each before its step.
        held_out_loss: over the held-out days, after the epoch.
    """

    epoch: int
    loss: float
    held_out_loss: float


def best_epoch(history: Sequence[EpochRecord]) -> EpochRecord:
    """The epoch with the smallest held-out loss, the earliest of equals."""
    return min(history, key=lambda record: record.held_out_loss)


def save_epoch(
    folder: Path,
    fingerprint: str,
    *,
    history: Sequence[EpochRecord],
    best_weights: dict[str, torch.Tensor],
    network: nn.Module,
    optimizer: Adam,
) -> None:
    """Publish the state after an epoch; a reader sees the previous epoch's file or this one.

    Random numbers need no state of their own: an epoch's are drawn from its seed and number.

    Args:
        folder: where the training is kept.
        fingerprint: of the data and the recipe; only the same training may go on from this file.
        history: one record for each epoch so far.
        best_weights: the network's weights after the best of them.
        network: with the weights after the last of them.
        optimizer: with its moments and step counts.
    """
    tensors = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    tensors |= {f"best.{name}": tensor for name, tensor in best_weights.items()}
    tensors |= {f"optimizer.{name}": tensor for name, tensor in optimizer.state().items()}
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    note = {
        "fingerprint": fingerprint,
        "history": [asdict(record) for record in history],
        "sha256": _sha256(on_cpu),
    }
    with publish(folder / LAST_EPOCH) as temporary:
        temporary.write_bytes(save(on_cpu, {"training": json.dumps(note)}))


def resume_epoch(
    folder: Path, fingerprint: str, network: nn.Module, optimizer: Adam
) -> tuple[list[EpochRecord], dict[str, torch.Tensor]]:
    """The history and best weights saved in `folder`; network and optimizer are set to go on.

    Where there is nothing, another training (or another version's), or a file that is damaged, the
    history is empty and nothing is changed: starting again is always right, only slower.
    """
    path = folder / LAST_EPOCH
    try:
        with safe_open(path, framework="pt") as file:
            note = json.loads((file.metadata() or {}).get("training", "{}"))
            if note.get("fingerprint") != fingerprint:
                return [], {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (FileNotFoundError, SafetensorError):
        return [], {}
    moments = _under("optimizer.", tensors)
    if note.get("sha256") != _sha256(tensors) or moments.keys() != optimizer.state().keys():
        return [], {}
    network.load_state_dict(_under("network.", tensors))
    optimizer.load(moments)
    return [EpochRecord(**record) for record in note["history"]], _under("best.", tensors)


def _sha256(tensors: dict[str, torch.Tensor]) -> str:
    """Of all tensors in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].numpy().data)
    return digest.hexdigest()


def _under(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
