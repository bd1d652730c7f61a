"""score: base model, every day of the split → uncalibrated logits with canonical columns."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core.errors import ArtifactError
from pipeline.core.files import (
    file_sums,
    json_sha256,
    manifest_sums,
    publish,
    read_json,
    remove_unfinished,
)
from pipeline.data.log_store.day_rows import read_day
from pipeline.data.log_store.manifest import MANIFEST, read_manifest
from pipeline.encoding.features import Encoder
from pipeline.encoding.parents import (
    Apart,
    count_field,
    nearest_parents,
    tree_of,
)
from pipeline.encoding.values import counts, field_keys, placed, weights
from pipeline.encoding.vocabulary import Vocabulary
from pipeline.engine.day_map import map_days
from pipeline.engine.reuse import Made, Reuse
from pipeline.formats.days import day_number
from pipeline.formats.scores import (
    Scores,
    before_sampling,
    feature_columns,
    keep_rate_of,
    scored_day,
    write_day,
    write_scores_manifest,
)
from pipeline.model.scoring import Base, load_base
from pipeline.params.sections import ScoreParams


def run(data: Path, split: Path, base: Path, target: Path, *, params: ScoreParams) -> None:
    """Score each day of `split` once and publish all of them with their manifest as `target`.

    Field values have ids from the calibration days on: the most frequent of the first days, on
    which bins are cut, in order of their names; then those that come, day by day. So ids stay until
    the base is trained again, and a day that was scored stays as it is.

    Raises:
        DataError: a day cannot be read or encoded; the sentence names it.
        ArtifactError: the base was trained on a calibration or test day, or is damaged.
    """
    divided, model = read_json(split / "manifest.json"), load_base(base)
    parts, hashes = divided["parts"], divided["data"]
    _refuse_leak(parts, model)
    split_of = {day: name for name, of_part in parts.items() for day in of_part}
    landed, field = read_manifest(data / MANIFEST), model.encoder.field
    parents = model.encoder.parents
    values = Reuse(target, "field values", {"field": field, "parents": parents})
    columns = list(dict.fromkeys([*field, *parents]))

    def counted(day: str) -> Made:
        def make() -> Made:
            with placed(f"day {day}, "):
                table = read_day(data, day, columns, landed)
                return Made.of_columns({}, count_field(table, field, parents))

        return values.made({"data": hashes[day]}, make)

    known = [day for name in parts if name != "training" for day in parts[name]]
    days, binning = map_days(counted, known, "count"), divided["binning_days"]
    vocabularies, nearest = _vocabularies(days, binning, params.max_field_values)
    first, last = vocabularies[binning[-1]], vocabularies[known[-1]]
    own = file_sums(base)
    kept = Reuse(target, "scores", {"base": own, "params": params.model_dump(mode="json")})
    known_on = {day: vocabularies.get(day, first) for day in split_of}
    ids = {id(each): json_sha256([each.names, each.pooled]) for each in known_on.values()}
    ids_on = {day: ids[id(each)] for day, each in known_on.items()}

    with publish(target) as folder:
        folder.mkdir()

        def scored(day: str) -> dict[str, Any]:
            rate = keep_rate_of(model.conventions, split_of[day])

            def make() -> Made:
                table = read_day(data, day, model.columns, landed)
                return _score(model, known_on[day], table, day, rate, params)

            of = {"data": hashes[day], "ids": ids_on[day], "keep_rate": rate}
            made = kept.made(of, make)
            return write_day(folder, day, made.facts, made.payload)

        described = dict(map_days(scored, list(split_of), "score"))
        remove_unfinished(folder)
        manifest = _manifest(model, last, divided, described, params)
        if parents:
            manifest["field"]["tree"] = tree_of(last, len(parents), nearest)
        of = manifest_sums({"split": split, "base": base})
        write_scores_manifest(folder, manifest | {"made_of": of})


def _refuse_leak(splits: dict[str, list[str]], model: Base) -> None:
    """Scores of days the base was trained on look better than serving ever will."""
    seen = {*model.manifest["days"]["fitting"], *model.manifest["days"]["held_out"]}
    for split in ("calibration", "test"):
        leaked = sorted(seen & set(splits[split]))
        if leaked:
            raise ArtifactError(
                f"the base was trained on the {split} day {leaked[0]}; run dvc repro train_base"
            )


def _vocabularies(
    days: Iterable[tuple[str, Made]], binning_days: list[str], max_size: int | None
) -> tuple[dict[str, Vocabulary], list[tuple[str, pa.Table]]]:
    """The field values that are known on each day; on the binning days those of all of them. And
    each day's `nearest_parents`, where there are any.
    """
    known, apart = Vocabulary(()), Apart()
    found, nearest, before = dict[str, Vocabulary](), [], list[pa.Table]()
    for day, made in days:
        apart.add(made.columns, known.own, before)
        before.append(made.columns)
        if day in binning_days[:-1]:
            continue
        first = day == binning_days[-1]
        of, new = (binning_days, before) if first else ([day], before[-1:])
        known = known.extended(apart.counts(new), max_size)
        found |= dict.fromkeys(of, known)
        if "parent" in made.columns.column_names:
            nearest += [(d, nearest_parents(apart.of(n))) for d, n in zip(of, new, strict=True)]
        else:
            before = []
    return found, nearest


def _score(
    model: Base,
    vocabulary: Vocabulary,
    table: pa.Table,
    day: str,
    keep_rate: float,
    params: ScoreParams,
) -> Made:
    """Scored rows that count what they stand for; of a sampled day also what the log itself has."""
    encoder, conventions = replace(model.encoder, field_values=vocabulary), model.conventions
    with placed(f"day {day}, "):
        encoded = encoder.encode(table)
        counted = counts(table, conventions["label"], conventions["impressions"])
        weight = weights(table, conventions.get("weight"))
        shown, responses = before_sampling(*counted, weight, keep_rate)
        scores = Scores(
            model.uncalibrated_logit(encoded, params.batch_size),
            encoded.field_value_id,
            shown,
            responses,
            np.full(table.num_rows, day_number(day), dtype=np.int32),
            len(vocabulary) + 1,
        )
    features = [*encoded.categorical.T, *encoded.numeric.T]
    kept = dict(zip(_kept(model, params), features, strict=False))
    totals, content = scored_day(day, scores, kept)
    facts = totals | _without_own_id(table, scores, encoder)
    if shown is not counted[0]:
        sums = [int(column.sum(dtype=np.int64)) for column in counted]
        facts["in_the_log"] = {"impressions": sums[0], "responses": sums[1]}
    return Made(facts, content)


def _kept(model: Base, params: ScoreParams) -> list[str]:
    """The columns of the features that travel with the scores."""
    if not params.keep_features or model.passes_on:
        return []
    return feature_columns(list(model.encoder.categorical), model.encoder.numeric_columns)


def _without_own_id(table: pa.Table, scores: Scores, encoder: Encoder) -> dict[str, int]:
    """Rows whose field value is null, unseen, or pooled with others, and responses of the last."""
    keys, vocabulary = field_keys(table, encoder.field), encoder.field_values
    known = keys.is_valid().to_numpy(zero_copy_only=False)
    found = {
        "null_rows": keys.null_count,
        "unseen_rows": int(np.count_nonzero((scores.field_value_id == 0) & known)),
    }
    if vocabulary.pooled:
        pooled = vocabulary.is_pooled(scores.field_value_id)
        found["pooled_rows"] = int(pooled.sum())
        found["pooled_responses"] = int(scores.responses[pooled].sum())
    return found


def _manifest(
    model: Base,
    vocabulary: Vocabulary,
    divided: Mapping[str, Any],
    described: Mapping[str, Any],
    params: ScoreParams,
) -> dict[str, Any]:
    encoder = replace(model.encoder, field_values=vocabulary)
    sizes = zip(encoder.categorical, encoder.vocabulary_sizes, strict=True)
    kept = _kept(model, params)
    return {
        "parts": divided["parts"],
        "binning_days": divided["binning_days"],
        "days": described,
        "field": encoder.manifest()["field"],
        "features": {
            "categorical": [{"name": name, "size": size} for name, size in sizes] if kept else [],
            "numeric": encoder.numeric_columns if kept else [],
        },
        "conventions": model.conventions,
        "params": {"score": params.model_dump(mode="json")},
    }
