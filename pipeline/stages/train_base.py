"""train_base: training days → the base model: weights, vocabularies, scalings, history."""

import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from pipeline.core.errors import ParamsError, ToolError
from pipeline.core.files import publish, read_json
from pipeline.core.progress import WorkProgress
from pipeline.data.log_store.day_rows import read_days
from pipeline.encoding.features import Encoder, EncoderSums, LoggedScore, pooled_share
from pipeline.encoding.values import logged_score_column, placed
from pipeline.formats.scores import keep_rate_of
from pipeline.model.checkpoints import best_epoch
from pipeline.model.examples import Shard, examples_of, hold_out, write_shard
from pipeline.model.network import LOGGED, BaseNetwork, LoggedScoreNetwork
from pipeline.model.scoring import write_base
from pipeline.model.training import train
from pipeline.params.sections import LogParams, TrainBaseParams

DEVICE = "ADACALIB_DEVICE"  # in the environment; cpu where it is not set
DEVICES = ("cpu", "cuda")


def run(data: Path, split: Path, target: Path, *, params: TrainBaseParams, log: LogParams) -> None:
    """Train the base model on the training days of `split` and publish it as `target`.

    Where the log has a logged score nothing is trained: the base is then one that passes that score
    on, and only field values are learned.

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
    score = logged_score_column(contract["conventions"])
    if score is not None:
        return _pass_on(data, contract, target, LoggedScore(*score), params, log)
    device = _device()
    training, calibration = (contract["parts"][name] for name in ("training", "calibration"))
    fitting, held_out = hold_out(training, params.held_out_share)
    encoder = _encoder(data, fitting, [*held_out, *calibration], params, log)
    sizes = _sizes(encoder, params)
    network = BaseNetwork(**sizes)
    unfinished = target.with_name(f".{target.name}.training")
    rows, later = (
        _shard(unfinished / name, encoder, data, days, log)
        for name, days in (("fitting", fitting), ("held_out", held_out))
    )
    with WorkProgress("train", params.epochs * len(rows), "rows") as progress:
        history = train(
            network, rows, later, params, folder=unfinished, progress=progress, device=device
        )
    known = sorted({*training, *calibration})
    manifest = {
        "conventions": contract["conventions"] | _unsample(network, contract["conventions"]),
        "network": sizes,
        **encoder.manifest(),
        "pooled": _pooled(data, known, encoder, log),
        "days": {"fitting": fitting, "held_out": held_out, "field_values": known},
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
    score: LoggedScore,
    params: TrainBaseParams,
    log: LogParams,
) -> None:
    """Publish a base whose logit is the logged score."""
    days = sorted({*contract["parts"]["training"], *contract["parts"]["calibration"]})
    sums = EncoderSums([], [], log.field)
    for day, table in read_days(data, days, log.field):
        with placed(f"day {day}, "):
            sums.add_field_values(table)
    vocabulary = sums.encoder(0, params.max_field_values).field_values
    encoder = Encoder({}, (score,), log.field, vocabulary)
    manifest = {
        "conventions": contract["conventions"],
        "network": {"kind": LOGGED},
        **encoder.manifest(),
        "pooled": _pooled(data, days, encoder, log),
        "days": {"fitting": [], "held_out": [], "field_values": days},
        "history": [],
        "params": {"train_base": params.model_dump(mode="json")},
    }
    with publish(target) as folder:
        folder.mkdir()
        write_base(folder, LoggedScoreNetwork(), manifest)


def _device() -> str:
    device = os.environ.get(DEVICE, "cpu")
    if device not in DEVICES or (device == "cuda" and not torch.cuda.is_available()):
        raise ToolError(f"{DEVICE} is {device!r}; it may be cpu, or cuda where there is one")
    return device


def _encoder(
    data: Path, fitting: list[str], others: list[str], params: TrainBaseParams, log: LogParams
) -> Encoder:
    """Features from the days that are fitted, ids of field values from the others too."""
    features = [*log.categorical, *log.numeric]
    if not features:
        raise ParamsError("log.categorical and log.numeric are both empty; name a feature")
    sums = EncoderSums(log.categorical, log.numeric, log.field)
    for day, table in read_days(data, fitting, _once(*log.field, *features)):
        with placed(f"day {day}, "):
            sums.add_features(table)
            sums.add_field_values(table)
    for day, table in read_days(data, others, log.field):
        with placed(f"day {day}, "):
            sums.add_field_values(table)
    return sums.encoder(params.max_vocabulary, params.max_field_values)


def _shard(folder: Path, encoder: Encoder, data: Path, days: list[str], log: LogParams) -> Shard:
    """The rows of `days`, encoded once."""
    roles = (log.label, log.impressions, log.weight)
    columns = _once(*log.field, *log.categorical, *log.numeric, *roles)
    parts = examples_of(encoder, read_days(data, days, columns), *roles)
    return write_shard(folder, parts, len(log.categorical), encoder.numeric_columns)


def _once(*names: str | None) -> list[str]:
    """The columns that are named, each once."""
    return [name for name in dict.fromkeys(names) if name is not None]


def _pooled(data: Path, days: list[str], encoder: Encoder, log: LogParams) -> dict[str, float]:
    tables = read_days(data, days, _once(*log.field, log.label, log.impressions))
    return pooled_share(tables, log.field, encoder.field_values, log.label, log.impressions)


def _sizes(encoder: Encoder, params: TrainBaseParams) -> dict[str, Any]:
    return {
        "vocabulary_sizes": encoder.vocabulary_sizes,
        "n_numeric": len(encoder.numeric_columns),
        "embedding_size": params.embedding_size,
        "hidden_sizes": list(params.hidden_sizes),
    }
