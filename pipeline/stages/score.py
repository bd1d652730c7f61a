"""base model, every day of the split → uncalibrated logits with canonical columns."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core.errors import ArtifactError
from pipeline.core.files import publish, read_json
from pipeline.core.progress import WorkProgress
from pipeline.data.log_store.day_rows import read_days
from pipeline.encoding.features import Encoded
from pipeline.encoding.values import counts, field_keys, placed, weights
from pipeline.formats.days import day_number
from pipeline.formats.scores import (
    Scores,
    before_sampling,
    feature_columns,
    keep_rate_of,
    write_day,
    write_scores_manifest,
)
from pipeline.model.scoring import Base, load_base
from pipeline.params.sections import ScoreParams


def run(data: Path, split: Path, base: Path, target: Path, *, params: ScoreParams) -> None:
    """Score each day of `split` once and publish all of them with their manifest as `target`.

    Raises:
        DataError: a day cannot be read or encoded; the sentence names it.
        ArtifactError: the base was trained on a calibration or test day, or is damaged.
    """
    splits = read_json(split / "manifest.json")["parts"]
    model = load_base(base)
    _refuse_leak(splits, model)
    names = [feature["name"] for feature in model.manifest["categorical"]]
    keep = params.keep_features and not model.passes_on
    kept = feature_columns(names, model.encoder.numeric_columns) if keep else []
    split_of = {day: name for name, of_split in splits.items() for day in of_split}
    days = list(split_of)
    described: dict[str, Any] = {}
    with publish(target) as folder, WorkProgress("score", len(days), "days") as progress:
        folder.mkdir()
        for day, table in read_days(data, days, model.columns):
            with placed(f"day {day}, "):
                scores, encoded, counted = _score(
                    model, table, day, split_of[day], params.batch_size
                )
            described[day] = write_day(folder, day, scores, _features(encoded, kept)) | counted
            described[day] |= _without_own_id(table, scores, model)
            progress.advance(1)
        manifest = _manifest(model, splits, described, keep)
        used = {"score": params.model_dump(mode="json")}
        write_scores_manifest(folder, manifest | {"params": used})


def _refuse_leak(splits: dict[str, list[str]], model: Base) -> None:
    """Scores of days the base was trained on look better than serving ever will."""
    seen = {*model.manifest["days"]["fitting"], *model.manifest["days"]["held_out"]}
    for split in ("calibration", "test"):
        leaked = sorted(seen & set(splits[split]))
        if leaked:
            raise ArtifactError(
                f"the base was trained on the {split} day {leaked[0]}; run dvc repro train_base"
            )


def _score(
    model: Base, table: pa.Table, day: str, split: str, batch_size: int
) -> tuple[Scores, Encoded, dict[str, Any]]:
    """Scored rows that count what they stand for; of a sampled day also what the log itself has."""
    conventions = model.conventions
    encoded = model.encode(table)
    counted = counts(table, conventions["label"], conventions["impressions"])
    weight, rate = weights(table, conventions.get("weight")), keep_rate_of(conventions, split)
    shown, responses = before_sampling(*counted, weight, rate)
    scores = Scores(
        model.uncalibrated_logit(encoded, batch_size),
        encoded.field_value_id,
        shown,
        responses,
        np.full(table.num_rows, day_number(day), dtype=np.int32),
        len(model.field_values),
    )
    if shown is counted[0]:
        return scores, encoded, {}
    names = ("impressions", "responses")
    totals = {n: int(c.sum(dtype=np.int64)) for n, c in zip(names, counted, strict=True)}
    return scores, encoded, {"in_the_log": totals}


def _features(encoded: Encoded, kept: list[str]) -> dict[str, np.ndarray]:
    return dict(zip(kept, [*encoded.categorical.T, *encoded.numeric.T], strict=False))


def _without_own_id(table: pa.Table, scores: Scores, model: Base) -> dict[str, int]:
    """Rows whose field value is null, unseen, or pooled with others, and responses of the last."""
    keys = field_keys(table, model.encoder.field)
    known = keys.is_valid().to_numpy(zero_copy_only=False)
    found = {
        "null_rows": keys.null_count,
        "unseen_rows": int(np.count_nonzero((scores.field_value_id == 0) & known)),
    }
    if model.encoder.field_values.pooled:
        pooled = model.encoder.field_values.is_pooled(scores.field_value_id)
        found["pooled_rows"] = int(pooled.sum())
        found["pooled_responses"] = int(scores.responses[pooled].sum())
    return found


def _manifest(
    model: Base, splits: dict[str, list[str]], days: dict[str, Any], keep_features: bool
) -> dict[str, Any]:
    sizes = model.encoder.vocabulary_sizes
    categorical = [
        {"name": name, "size": size}
        for name, size in zip(model.encoder.categorical, sizes, strict=True)
    ]
    features = {"categorical": categorical, "numeric": model.encoder.numeric_columns}
    return {
        "parts": splits,
        "days": days,
        "field_values": model.field_values,
        "features": features if keep_features else {"categorical": [], "numeric": []},
        "conventions": model.conventions,
    }
