"""train_base: training days → the base model: weights, vocabularies, scalings, history."""

import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from pipeline.core.errors import ArtifactError, ParamsError, ToolError
from pipeline.core.files import publish, read_json
from pipeline.core.work import WorkProgress
from pipeline.data.log_store.day_rows import read_days
from pipeline.data.log_store.manifest import MANIFEST, read_manifest
from pipeline.encoding.features import Encoder, EncoderSums, LoggedScore
from pipeline.encoding.values import logged_score_column, placed
from pipeline.formats.scores import keep_rate_of
from pipeline.model import ranks
from pipeline.model.checkpoints import best_epoch
from pipeline.model.examples import Shard, examples_of, hold_out, write_shard
from pipeline.model.network import LOGGED, BaseNetwork, LoggedScoreNetwork, Network
from pipeline.model.scoring import write_base
from pipeline.model.training import train
from pipeline.params.sections import LogParams, TrainBaseParams

DEVICE = "ADACALIB_DEVICE"  # in the environment; cpu where it is not set
DEVICES = ("cpu", "cuda")


def run(
    data: Path, training: Path, target: Path, *, params: TrainBaseParams, log: LogParams
) -> None:
    """Train the base model on the days that artifacts/split/training.json names; publish `target`.

    Where the log has a logged score nothing is trained: the base is then one that passes that score
    on.

    The newest `held_out_share` of the days only decides when to stop; features are learned from the
    others alone. A training that was killed goes on after its last whole epoch, which a hidden
    folder beside `target` holds. `data` is no dependency in dvc.yaml, or every new day would make
    the base stale; that its training days are the ones that were split is checked here. Where
    ADACALIB_TORCHRUN has options of torchrun, processes are started in which this runs again; the
    first one encodes the rows, all of them train, and the first one publishes.

    Raises:
        ParamsError: the log has no feature.
        ToolError: the device named in the environment is not there.
        DataError: a day cannot be read or encoded; the sentence names it.
        ArtifactError: a training day is not the one that was split.
        NotEnoughDataError: too few days or impressions to train and to hold out.
        TrainingError: a loss is not finite.
    """
    contract = read_json(training)
    _refuse_other_days(data, contract["days"])
    score = logged_score_column(contract["conventions"])
    if score is not None:
        manifest = _passed_on(LoggedScore(*score), contract["conventions"], log)
        if ranks.is_first():
            _publish(target, LoggedScoreNetwork(), manifest, params)
        return
    if ranks.are_to_start():
        return ranks.start(["train_base", str(data), str(training), str(target)])
    fitting, held_out = hold_out(sorted(contract["days"]), params.held_out_share)
    sides = {"fitting": fitting, "held_out": held_out}
    unfinished = target.with_name(f".{target.name}.training")
    with ranks.joined(_device()) as processes:
        encoder = _encoder(data, fitting, params, log) if processes.rank == 0 else None
        facts = processes.share(encoder and _encode(encoder, data, sides, unfinished, log))
        sizes = facts["sizes"] | params.model_dump(include={"embedding_size", "hidden_sizes"})
        network = BaseNetwork(**sizes)
        rows, later = (Shard(**facts[side] | {"folder": unfinished / side}) for side in sides)
        with WorkProgress("train", params.epochs * len(rows), "rows") as progress:
            history = train(
                network, rows, later, params, folder=unfinished, progress=progress, ranks=processes
            )
    if encoder is None:
        return  # the first process publishes
    manifest = {
        "conventions": contract["conventions"] | _unsample(network, contract["conventions"]),
        "network": sizes,
        **encoder.manifest(),
        "days": sides,
        "history": [asdict(record) for record in history],
        "best_epoch": best_epoch(history).epoch,
        **({"processes": processes.number} if processes.number > 1 else {}),
    }
    _publish(target, network, manifest, params)
    shutil.rmtree(unfinished)


def _refuse_other_days(data: Path, split: Mapping[str, str]) -> None:
    landed = read_manifest(data / MANIFEST)
    for day, sha256 in split.items():
        if landed.entry(day).content_sha256 != sha256:
            raise ArtifactError(f"{day} was landed again after it was split; run dvc repro")


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


def _passed_on(score: LoggedScore, conventions: dict[str, Any], log: LogParams) -> dict[str, Any]:
    """The manifest of a base whose logit is the logged score."""
    encoder = Encoder({}, (score,), log.field, parents=log.field_parents)
    nothing = {"history": [], "days": {"fitting": [], "held_out": []}}
    return encoder.manifest() | nothing | {"network": {"kind": LOGGED}, "conventions": conventions}


def _publish(
    target: Path, network: Network, manifest: dict[str, Any], params: TrainBaseParams
) -> None:
    about = {"params": {"train_base": params.model_dump(mode="json")}}
    with publish(target) as folder:
        folder.mkdir()
        write_base(folder, network, manifest | about)


def _device() -> str:
    device, place = os.environ.get(DEVICE, "cpu"), int(os.environ.get("LOCAL_RANK", "0"))
    if device not in DEVICES or (device == "cuda" and torch.cuda.device_count() <= place):
        raise ToolError(
            f"{DEVICE} is {device!r}; it may be cpu, or cuda where each process has one"
        )
    return "cpu" if device == "cpu" else f"cuda:{place}"


def _encoder(data: Path, fitting: list[str], params: TrainBaseParams, log: LogParams) -> Encoder:
    """The features as the days that are fitted have them."""
    features = [*log.categorical, *log.numeric]
    if not features:
        raise ParamsError("log.categorical and log.numeric are both empty; name a feature")
    sums = EncoderSums(log.categorical, log.numeric)
    for day, table in read_days(data, fitting, _once(*features)):
        with placed(f"day {day}, "):
            sums.add_features(table)
    return sums.encoder(params.max_vocabulary, log.field, log.field_parents)


def _encode(
    encoder: Encoder, data: Path, sides: Mapping[str, list[str]], folder: Path, log: LogParams
) -> dict[str, Any]:
    """Write the rows of each side's days into a shard in `folder`; what both hold, and sizes."""
    roles = (log.label, log.impressions, log.weight)
    columns = _once(*log.field, *log.categorical, *log.numeric, *roles)
    numeric = encoder.numeric_columns
    found: dict[str, Any] = {
        "sizes": {"vocabulary_sizes": encoder.vocabulary_sizes, "n_numeric": len(numeric)}
    }
    for side, days in sides.items():
        parts = examples_of(encoder, read_days(data, days, columns), *roles)
        found[side] = vars(write_shard(folder / side, parts, len(log.categorical), numeric))
    return found


def _once(*names: str | None) -> list[str]:
    """The columns that are named, each once."""
    return [name for name in dict.fromkeys(names) if name is not None]
