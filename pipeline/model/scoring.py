"""A trained base model on disk and in memory, and the logits it gives."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save

from pipeline.core.errors import ArtifactError
from pipeline.core.files import read_json, sha256_of, write_facts
from pipeline.encoding.features import Encoded, Encoder
from pipeline.model.network import LoggedScoreNetwork, Network, fill, network_from

WEIGHTS = "weights.safetensors"
MANIFEST = "manifest.json"
FORMAT = 1


@torch.inference_mode()
def logits_of(
    network: Network, categorical: np.ndarray, numeric: np.ndarray, batch_size: int
) -> np.ndarray:
    """The uncalibrated logit of every row: float32 [n].

    A row's logit does not depend on the rows around it, up to the last bits of float32: matrix
    products of another size may add in another order.

    Args:
        network: on the device where it shall run.
        categorical: int32 [n, C].
        numeric: float32 [n, N].
        batch_size: rows at a time.
    """
    device = next(network.parameters(), torch.empty(0)).device
    logit = np.empty(len(categorical), dtype=np.float32)
    for start in range(0, len(logit), batch_size):
        rows = slice(start, start + batch_size)
        ids = torch.from_numpy(categorical[rows]).to(device)
        numbers = torch.from_numpy(numeric[rows]).to(device)
        logit[rows] = network(ids, numbers).cpu().numpy()
    return logit


@dataclass(frozen=True)
class Base:
    """A base model: what encodes rows, and the network that scores them.

    Attributes:
        manifest: conventions, sizes, scalings, vocabularies, history and days of the training.
        encoder: made from the manifest.
        network: with its weights.
    """

    manifest: Mapping[str, Any]
    encoder: Encoder
    network: Network

    @property
    def conventions(self) -> dict[str, Any]:
        """The data contract of the log it was trained on."""
        return self.manifest["conventions"]

    @property
    def passes_on(self) -> bool:
        """Whether it passes on the logged score; it then reads no feature."""
        return isinstance(self.network, LoggedScoreNetwork)

    @property
    def columns(self) -> list[str]:
        """The log's columns that are read to score it, with what was observed; each once."""
        numeric = [scaling.name for scaling in self.encoder.numeric]
        roles = [self.conventions.get(role) for role in ("label", "impressions", "weight")]
        field = [*self.encoder.field, *self.encoder.parents]
        names = [*field, *self.encoder.categorical, *numeric, *roles]
        return [name for name in dict.fromkeys(names) if name is not None]

    def uncalibrated_logit(self, encoded: Encoded, batch_size: int) -> np.ndarray:
        """float32 [n] log-odds of encoded rows, `batch_size` of them at a time."""
        return logits_of(self.network, encoded.categorical, encoded.numeric, batch_size)


def write_base(folder: Path, network: Network, manifest: Mapping[str, Any]) -> None:
    """Write the weights and the manifest, which gets their sha256, into an existing folder."""
    weights = {name: tensor.cpu().contiguous() for name, tensor in network.state_dict().items()}
    (folder / WEIGHTS).write_bytes(save(weights))
    checks = {"format": FORMAT, "weights_sha256": sha256_of(folder / WEIGHTS)}
    write_facts(folder / MANIFEST, {**manifest, **checks})


def base_state(folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The manifest of a base model and its tensors by name, checked against each other.

    Raises:
        ArtifactError: a file is missing or damaged, or the two do not belong together.
    """
    manifest = read_json(folder / MANIFEST)
    if manifest.get("format") != FORMAT:
        raise ArtifactError(
            f"{folder / MANIFEST} has format {manifest.get('format')}, this code reads {FORMAT}; "
            f"run dvc repro train_base"
        )
    weights = folder / WEIGHTS
    if not weights.is_file() or sha256_of(weights) != manifest["weights_sha256"]:
        raise ArtifactError(
            f"{weights} is missing or not the one that {MANIFEST} names; run dvc repro train_base"
        )
    return manifest, load_file(weights)


def load_base(folder: Path, field: Mapping[str, Any] | None = None) -> Base:
    """The base model that `train_base` left in `folder`.

    Args:
        folder: of the base.
        field: the field values that its rows are given ids of, as `Encoder.manifest` has them;
            None: none.

    Raises:
        ArtifactError: as `base_state`.
    """
    manifest, tensors = base_state(folder)
    network = network_from(manifest["network"])
    fill(network, tensors, folder / WEIGHTS)
    known = manifest | ({"field": field} if field else {})
    return Base(manifest, Encoder.from_manifest(known), network.eval())
