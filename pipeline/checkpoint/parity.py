"""The runtimes of a checkpoint, and the proof that each says what its parts say."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.checkpoint.merged_model import BATCH_ROWS, MergedModel, end_to_end_tolerance
from pipeline.checkpoint.serving_table import END_TO_END, onnx_step
from pipeline.core.errors import ArtifactError
from pipeline.formats.maps import PiecewiseLinearMap
from pipeline.model.scoring import Base
from pipeline.serving.predictor import ONNX_FILE
from pipeline.serving.predictor import load as load_predictor

BATCHES = (0, 1, 2, 7, 256, 4096)
ID_TYPES = (np.int32, np.int64)
Points = tuple[np.ndarray, np.ndarray]  # logits and field value ids, [n] each
ON_DAY, AT_KNOTS = "on a test day", "at the knots and far from them"
FAR = (-120.0, -20.0, 17.0, 18.0, 25.0, 120.0)
"""Logits that every field value is asked for besides: where float32 probabilities are 0 and 1."""


@dataclass(frozen=True)
class Runtime:
    """One runtime of a checkpoint.

    Attributes:
        name: of its file, for sentences.
        step: the calibration alone: float64 [n] of logits float64 [n] and integer ids [n].
        predict: what it says of the rows of a log.
    """

    name: str
    step: Callable[[np.ndarray, np.ndarray], np.ndarray]
    predict: Callable[[pa.Table], Any]


def runtimes_of(folder: Path, model: MergedModel) -> list[Runtime]:
    """Every runtime of the folder of a checkpoint, read from its files: base network and table of
    maps, and the ONNX file in onnxruntime.

    Args:
        folder: a checkpoint with its exports.
        model: what `bundle.load` made of it.

    Raises:
        ArtifactError: a file is missing or damaged.
    """
    step = onnx_step(folder / ONNX_FILE)
    return [
        Runtime("the merged model", model.serving_map, model.predict),
        Runtime(ONNX_FILE, step, load_predictor(folder).predict),
    ]


def prove_parity(
    runtimes: Sequence[Runtime],
    model: MergedModel,
    base: Base,
    serving_map: PiecewiseLinearMap,
    tables: Iterable[pa.Table],
    *,
    tolerance: float,
) -> None:
    """Refuse a checkpoint of which a runtime differs from base model, then map, anywhere looked at.

    The calibration step is compared from equal logits, on rows, around every knot and far from all
    of them, in all batch sizes and widths of ids; end to end, rows are compared in several batch
    sizes and with their columns in another order.

    Args:
        runtimes: of the checkpoint.
        model: the checkpoint, for its auxiliary network.
        base: the base model it was made from.
        serving_map: the map it was made from, computed by numpy.
        tables: rows of a log, of which at most BATCH_ROWS of each table are looked at.
        tolerance: largest difference in calibrated logit from equal uncalibrated logits.

    Raises:
        ArtifactError: a difference is larger, or is no number; the sentence says where.
    """
    logit, ids = probes(serving_map)
    for runtime in runtimes:
        for id_type in ID_TYPES:
            typed = ids.astype(id_type)
            for n in (*BATCHES, len(logit)):
                some = np.arange(n) % len(logit)
                at = logit[some], typed[some]
                _compare_steps(runtime, serving_map, at, tolerance, AT_KNOTS)
    end_to_end = end_to_end_tolerance(serving_map)
    for table in _requests(tables):
        encoded = base.encoder.encode(table)
        logit = base.uncalibrated_logit(encoded, BATCH_ROWS)
        ids = encoded.field_value_id
        two_step = serving_map(logit, ids) + model.auxiliary_term(encoded)
        for runtime in runtimes:
            at = logit.astype(np.float64), ids
            _compare_steps(runtime, serving_map, at, tolerance, ON_DAY)
            said, name = runtime.predict(table), f"{runtime.name} is not its parts"
            if not np.array_equal(said.field_value_id, ids):
                raise ArtifactError(f"{name}: it reads other field values than the base model")
            for which, limit, parts in (
                ("uncalibrated", END_TO_END, logit),
                ("calibrated", end_to_end, two_step),
            ):
                what = f"{name}: {which} logit end to end {ON_DAY}"
                _refuse_difference(what, limit, getattr(said, f"{which}_logit"), parts, ids)


def _requests(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The tables; before them the first one's rows in all batch sizes, in two orders of columns."""
    for position, table in enumerate(map(_spread, tables)):
        if not position and table.num_rows:
            for n in BATCHES:
                yield table.take(pa.array(np.arange(n) % table.num_rows))
            yield table.select(table.column_names[::-1])
        yield table


def _spread(table: pa.Table) -> pa.Table:
    """At most BATCH_ROWS rows, from all over the table."""
    step = -(-table.num_rows // BATCH_ROWS)
    return table.take(pa.array(np.arange(0, table.num_rows, step))) if step > 1 else table


def probes(serving_map: PiecewiseLinearMap) -> Points:
    """Logits where runtimes could differ: FAR for each field value, and each knot and around it.

    Around it are its neighbours one ulp away, in float64 and in float32.

    Returns:
        logit float64 and field value id int64, [6 V + 6 k] of V field values with k knots in all.
    """
    everyone = np.arange(serving_map.n_field_values)
    ids, _ = np.nonzero(serving_map.knots < np.inf)
    knots = serving_map.knots[serving_map.knots < np.inf]
    near = knots.astype(np.float32)
    points = [
        np.repeat(FAR, len(everyone)),
        *(np.nextafter(knots, end) for end in (-np.inf, np.inf)),
        *(np.nextafter(near, np.float32(end)).astype(np.float64) for end in (-np.inf, np.inf)),
        near.astype(np.float64),
        knots,
    ]
    return np.concatenate(points), np.append(np.tile(everyone, len(FAR)), np.tile(ids, 6))


def _compare_steps(
    runtime: Runtime, serving_map: PiecewiseLinearMap, at: Points, limit: float, place: str
) -> None:
    """The calibration step alone, from equal logits."""
    logit, ids = at
    theirs = serving_map(logit, ids)
    ours = np.empty_like(theirs)
    for start in range(0, len(logit), BATCH_ROWS):
        rows = slice(start, start + BATCH_ROWS)
        ours[rows] = runtime.step(logit[rows], ids[rows])
    what = f"{runtime.name} is not its parts: calibrated logit {place}"
    _refuse_difference(what, limit, ours, theirs, ids)


def _refuse_difference(
    what: str, limit: float, ours: np.ndarray, theirs: np.ndarray, ids: np.ndarray
) -> None:
    """Raise an ArtifactError that says where, if [n] numbers are too far from [n] others."""
    if ours.shape != theirs.shape:
        raise ArtifactError(
            f"{what} has the shape {ours.shape} for {len(theirs)} rows; nothing was published"
        )
    difference = np.abs(ours.astype(np.float64) - theirs)
    if len(difference) and not difference.max() <= limit:  # so that NaN is refused too
        worst = int(np.nanargmax(np.where(np.isnan(difference), np.inf, difference)))
        raise ArtifactError(
            f"{what} differs by {difference[worst]:.3g}, at most "
            f"{limit:.3g} is allowed (field value id {ids[worst]}); nothing was published"
        )
