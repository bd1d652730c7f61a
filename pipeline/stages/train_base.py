"""train_base: training days → the base model: weights, vocabularies, scalings, history."""

import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from pipeline.data.days import read_days
from pipeline.errors import ParamsError, ToolError
from pipeline.files import publish, read_json
from pipeline.model.checkpoints import best_epoch
from pipeline.model.examples import examples_of, hold_out
from pipeline.model.features import (
    Encoder,
    field_vocabulary_of,
    pooled_share,
    scaling_of,
    vocabulary_of,
)
from pipeline.model.network import SERVED, BaseNetwork, ServedNetwork
from pipeline.model.progress import WorkProgress
from pipeline.model.scaling import Served
from pipeline.model.scoring import write_base
from pipeline.model.training import Recipe, train
from pipeline.scores import keep_rate_of, served_column
from pipeline.sections import LogParams, TrainBaseParams

DEVICE = "ADACALIB_DEVICE"  # in the environment; cpu where it is not set
DEVICES = ("cpu", "cuda")


def run(data: Path, split: Path, target: Path, *, params: TrainBaseParams, log: LogParams) -> None:
    """Train the base model on the training days of `split` and publish it as `target`.

    Where the log brings the score that was served nothing is trained: the base is then one that
    passes that score on, and only field values are learned.

    The newest `held_out_share` of them only decides when to stop; features are learned from the
    others alone, field values from training and calibration days. A training that was killed goes
    on after its last whole epoch, which a hidden folder beside `target` holds.

    Raises:
        ParamsError: the log has no feature.
        ToolError: the device named in the environment is not there.
        DataError: a day cannot be read or encoded; the sentence names it.
        NotEnoughDataError: too few days or impressions to train and to hold out.
        TrainingError: a loss is not finite.
    """
    contract = read_json(split / "manifest.json")
    served = served_column(contract["conventions"])
    if served is not None:
        return _pass_on(data, contract, target, Served(*served), params, log)
    device = _device()
    training, calibration = (contract["parts"][part] for part in ("training", "calibration"))
    days = dict(read_days(data, training, _columns(log)))
    sides = hold_out(training, params.held_out_share)
    fitting, held_out = ({day: days[day] for day in side} for side in sides)
    known = days | dict(read_days(data, calibration, _known_columns(log)))
    encoder = _encoder(fitting, known, log, params)
    sizes = _sizes(encoder, params)
    network = BaseNetwork(**sizes)
    recipe = Recipe(**{field.name: getattr(params, field.name) for field in fields(Recipe)})
    roles = (log.label, log.impressions, log.weight)
    rows, later = (examples_of(encoder, side, *roles) for side in (fitting, held_out))
    unfinished = target.with_name(f".{target.name}.training")
    with WorkProgress("train", recipe.epochs * len(rows), "rows") as progress:
        history = train(
            network, rows, later, recipe, folder=unfinished, progress=progress, device=device
        )
    manifest = {
        "conventions": contract["conventions"] | _unsample(network, contract["conventions"]),
        "network": sizes,
        **encoder.manifest(),
        "pooled": _pooled(known, encoder, log),
        "days": {"fitting": sides[0], "held_out": sides[1], "field_values": sorted(known)},
        "history": [asdict(record) for record in history],
        "best_epoch": best_epoch(history).epoch,
        "params": {"train_base": params.model_dump(mode="json")},
    }
    with publish(target) as folder:
        folder.mkdir()
        write_base(folder, network, manifest)
    shutil.rmtree(unfinished)


def _unsample(network: BaseNetwork, conventions: Mapping[str, Any]) -> dict[str, Any]:
    """Shift the logits of a network trained on sampled non-responses; what the artifact says of it.

    Kept at the rate r they raise the odds to 1 / r of what they were, so ln r is added to the bias
    of the last layer. This is the one place where logits are corrected.
    """
    rate = keep_rate_of(conventions, "training")
    if rate == 1:
        return {}
    last = network.layers[-1]
    assert isinstance(last, torch.nn.Linear)
    with torch.no_grad():
        last.bias.add_(math.log(rate))
    return {"sampling": {"logit_shift": math.log(rate), "applied": "once, when the base was made"}}


def _pass_on(
    data: Path,
    contract: dict[str, Any],
    target: Path,
    score: Served,
    params: TrainBaseParams,
    log: LogParams,
) -> None:
    """Publish a base whose logit is the score that was served."""
    days = sorted({*contract["parts"]["training"], *contract["parts"]["calibration"]})
    known = dict(read_days(data, days, _known_columns(log)))
    vocabulary = field_vocabulary_of(known, log.field, params.max_field_values)
    encoder = Encoder({}, (score,), log.field, vocabulary)
    manifest = {
        "conventions": contract["conventions"],
        "network": {"kind": SERVED},
        **encoder.manifest(),
        "pooled": _pooled(known, encoder, log),
        "days": {"fitting": [], "held_out": [], "field_values": days},
        "history": [],
        "params": {"train_base": params.model_dump(mode="json")},
    }
    with publish(target) as folder:
        folder.mkdir()
        write_base(folder, ServedNetwork(), manifest)


def _device() -> str:
    device = os.environ.get(DEVICE, "cpu")
    if device not in DEVICES or (device == "cuda" and not torch.cuda.is_available()):
        raise ToolError(f"{DEVICE} is {device!r}; it may be cpu, or cuda where there is one")
    return device


def _columns(log: LogParams) -> list[str]:
    """What is read of the log, each column once."""
    features = [*log.categorical, *log.numeric]
    if not features:
        raise ParamsError("log.categorical and log.numeric are both empty; name a feature")
    names = [*log.field, *features, log.label, log.impressions, log.weight]
    return [name for name in dict.fromkeys(names) if name is not None]


def _known_columns(log: LogParams) -> list[str]:
    """What is read of days of which only field values are learned."""
    names = [*log.field, log.label, log.impressions]
    return [name for name in dict.fromkeys(names) if name is not None]


def _pooled(known: Mapping[str, pa.Table], encoder: Encoder, log: LogParams) -> dict[str, float]:
    return pooled_share(known, log.field, encoder.field_values, log.label, log.impressions)


def _encoder(
    fitting: Mapping[str, pa.Table],
    known: Mapping[str, pa.Table],
    log: LogParams,
    params: TrainBaseParams,
) -> Encoder:
    """Features from the days that are fitted, ids of field values from all that are known."""
    limit = params.max_vocabulary
    return Encoder(
        {name: vocabulary_of(fitting, [name], limit) for name in log.categorical},
        tuple(scaling_of(fitting, name) for name in log.numeric),
        log.field,
        field_vocabulary_of(known, log.field, params.max_field_values),
    )


def _sizes(encoder: Encoder, params: TrainBaseParams) -> dict[str, Any]:
    return {
        "vocabulary_sizes": encoder.vocabulary_sizes,
        "n_numeric": len(encoder.numeric_columns),
        "embedding_size": params.embedding_size,
        "hidden_sizes": list(params.hidden_sizes),
    }
