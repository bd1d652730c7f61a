"""Parts of a model.onnx, cut out by the names of its inner tensors; needs no torch."""

from collections.abc import Sequence

import onnx

IDS, LOGIT64, MAPPED = "categorical_ids", "uncalibrated_logit_64", "mapped_logit"
"""Inner tensors: ids of the base network's columns; the logit before and after the map."""


def part_of(made: onnx.ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """The part of a model between tensors: from `IDS` on for ids, from `LOGIT64` for logits."""
    part = onnx.utils.Extractor(made).extract_model(list(inputs), list(outputs))
    return part.SerializeToString(deterministic=True)
