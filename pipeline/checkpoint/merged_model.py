"""A merged model in memory: base network and serving map in one module, and what it predicts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from pipeline.checkpoint.serving_table import LINES
from pipeline.core.columns import Columns, Float32, Float64, Int32
from pipeline.encoding.features import Encoded, Encoder
from pipeline.formats.maps import PiecewiseLinearMap
from pipeline.model.network import Network

PROBABILITY_CLIP = 1e-15  # probabilities lie in [this, 1 - this]; logits are never clipped
BATCH_ROWS = 65_536
GATHERED = 1 << 22  # knots that are gathered at a time


class MergedNetwork(nn.Module):
    """Base network, then the serving map of the row's field value, in one module.

    Args:
        base: the base network.
        serving_map: the map of V field values.
        auxiliary: a network on the row's features whose logit is added; None where there is none.
    """

    knots: torch.Tensor
    lines: torch.Tensor

    def __init__(
        self, base: Network, serving_map: PiecewiseLinearMap, auxiliary: nn.Module | None
    ) -> None:
        super().__init__()
        self.base = base
        self.auxiliary = auxiliary
        self.register_buffer("knots", torch.from_numpy(serving_map.knots))
        lines = np.stack([getattr(serving_map, name) for name in LINES], axis=2)
        self.register_buffer("lines", torch.from_numpy(lines.reshape(-1, len(LINES))))

    def calibrate(self, logit: torch.Tensor, field_value_id: torch.Tensor) -> torch.Tensor:
        """The map of each row's field value at its logit: float64 [n].

        The segment is found by comparisons in float64, which every serving format can do, and a
        float32 logit equals itself there: no format puts a logit on the other side of a knot.

        Args:
            logit: float32 or float64 [n].
            field_value_id: int32 or int64 [n] in [0, V).
        """
        at, knots = logit.double(), self.knots
        segment = (at.unsqueeze(1) >= knots.index_select(0, field_value_id)).sum(1)
        row_length = knots.shape[1] + 1  # a row has one segment more than knots
        line = segment.add(field_value_id, alpha=row_length)
        anchor, height, slope = self.lines.index_select(0, line).unbind(1)
        return height + slope * (at - anchor)

    def forward(
        self, categorical: torch.Tensor, numeric: torch.Tensor, field_value_id: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Uncalibrated logit, float32 [n], and calibrated logit, float64 [n].

        Args:
            categorical: int32 or int64 [n, C], ids; 0 = unseen or null.
            numeric: float32 [n, N], standardised.
            field_value_id: int32 or int64 [n]; 0 = unseen or null.
        """
        uncalibrated = self.base(categorical, numeric)
        calibrated = self.calibrate(uncalibrated, field_value_id)
        if self.auxiliary is not None:
            calibrated = calibrated + self.auxiliary(categorical.long(), numeric).double()
        return uncalibrated, calibrated


@dataclass(frozen=True)
class Prediction(Columns):
    """What a model says of n rows.

    Attributes:
        uncalibrated_logit: float32 [n], the base model's.
        calibrated_logit: float64 [n].
        probability: float64 [n], of a response, in (0, 1).
        field_value_id: int32 [n], 0 = unseen or null.
    """

    uncalibrated_logit: Float32
    calibrated_logit: Float64
    probability: Float64
    field_value_id: Int32


@dataclass(frozen=True)
class MergedModel:
    """A checkpoint in memory.

    Attributes:
        manifest: as it was written.
        encoder: rows of a log → what the network reads.
        network: base network and serving map.
    """

    manifest: Mapping[str, Any]
    encoder: Encoder
    network: MergedNetwork

    @property
    def field_values(self) -> list[str | None]:
        """The field value of every id; None for the id 0."""
        return self.encoder.field_values.names

    @property
    def conventions(self) -> dict[str, Any]:
        """The data contract of the log, and the rules of serving under `serving`."""
        return self.manifest["conventions"]

    def predict(self, table: pa.Table) -> Prediction:
        """The prediction for every row of a log; columns in any order, others are not read.

        Raises:
            DataError: a column is missing or does not hold what it should.
        """
        encoded = self.encoder.encode(table)
        uncalibrated, calibrated = self._logits(encoded)
        probability = torch.sigmoid(torch.from_numpy(calibrated))
        probability = probability.clamp(PROBABILITY_CLIP, 1 - PROBABILITY_CLIP)
        return Prediction(uncalibrated, calibrated, probability.numpy(), encoded.field_value_id)

    @torch.inference_mode()
    def _logits(self, encoded: Encoded) -> tuple[np.ndarray, np.ndarray]:
        """The logits of encoded rows, so many at a time that the gathered knots stay small."""
        batch = max(1, min(BATCH_ROWS, GATHERED // self.network.knots.shape[1]))
        uncalibrated = np.empty(len(encoded), dtype=np.float32)
        calibrated = np.empty(len(encoded), dtype=np.float64)
        for start in range(0, len(encoded), batch):
            rows = slice(start, start + batch)
            before, after = self.network(
                torch.tensor(encoded.categorical[rows]),
                torch.tensor(encoded.numeric[rows]),
                torch.tensor(encoded.field_value_id[rows]),
            )
            uncalibrated[rows], calibrated[rows] = before.numpy(), after.numpy()
        return uncalibrated, calibrated
