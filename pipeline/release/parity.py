"""The proof that a checkpoint says what its parts say, made before it is published."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import torch

from pipeline.calibration.piecewise import PiecewiseLinearMap
from pipeline.errors import ArtifactError
from pipeline.model.scoring import Base
from pipeline.release.merged import BATCH_ROWS, MergedModel

END_TO_END = 2e-5  # float32 logits of one network differ so much between batch sizes and runtimes


def prove_parity(
    model: MergedModel,
    base: Base,
    serving_map: PiecewiseLinearMap,
    tables: Iterable[pa.Table],
    tolerance: float,
) -> None:
    """Refuse a checkpoint that differs from base model, then map, on rows or around any knot.

    Args:
        model: the checkpoint.
        base: the base model it was made from.
        serving_map: the map it was made from, computed by numpy.
        tables: rows of a log.
        tolerance: largest difference in calibrated logit from equal uncalibrated logits.

    Raises:
        ArtifactError: a difference is larger, or is no number; the sentence says where.
    """
    logit, ids = around_knots(serving_map)
    _compare_maps(model, serving_map, logit, ids, limit=tolerance, place="around the knots")
    steepest = max(1.0, float(np.abs(serving_map.segment_slopes).max()))
    for table in tables:
        encoded = base.encode(table)
        logit = base.uncalibrated_logit(encoded, BATCH_ROWS)
        ids = encoded.field_value_id
        _compare_maps(model, serving_map, logit, ids, limit=tolerance, place="on a test day")
        prediction = model.predict(table)
        if not np.array_equal(prediction.field_value_id, ids):
            raise ArtifactError("the merged model reads other field values than the base model")
        two_step = serving_map(logit, ids) + _auxiliary(model, encoded.categorical, encoded.numeric)
        for name, ours, theirs, limit in (
            ("uncalibrated", prediction.uncalibrated_logit, logit, END_TO_END),
            ("calibrated", prediction.calibrated_logit, two_step, END_TO_END * steepest),
        ):
            _refuse_difference(ours, theirs, limit, f"{name} logit end to end on a test day", ids)


def around_knots(serving_map: PiecewiseLinearMap) -> tuple[np.ndarray, np.ndarray]:
    """Every knot and its neighbours one ulp away, in float64 and in float32, and their value ids.

    Returns:
        logit float64 [6 k] and field value id int64 [6 k] of the k knots of all field values.
    """
    ids, _ = np.nonzero(serving_map.knots < np.inf)
    knots = serving_map.knots[serving_map.knots < np.inf]
    near = knots.astype(np.float32)
    points = [
        *(np.nextafter(knots, end) for end in (-np.inf, np.inf)),
        *(np.nextafter(near, np.float32(end)).astype(np.float64) for end in (-np.inf, np.inf)),
        near.astype(np.float64),
        knots,
    ]
    return np.concatenate(points), np.tile(ids, len(points))


@torch.inference_mode()
def _compare_maps(
    model: MergedModel,
    serving_map: PiecewiseLinearMap,
    logit: np.ndarray,
    ids: np.ndarray,
    *,
    limit: float,
    place: str,
) -> None:
    """The calibration step alone, from equal logits."""
    theirs = serving_map(logit, ids)
    ours = np.empty_like(theirs)
    for start in range(0, len(logit), BATCH_ROWS):
        rows = slice(start, start + BATCH_ROWS)
        step = model.network.calibrate(torch.tensor(logit[rows]), torch.tensor(ids[rows]))
        ours[rows] = step.numpy()
    _refuse_difference(ours, theirs, limit, f"calibrated logit {place}", ids)


@torch.inference_mode()
def _auxiliary(
    model: MergedModel, categorical: np.ndarray, numeric: np.ndarray
) -> np.ndarray | float:
    if model.network.auxiliary is None:
        return 0.0
    ids = torch.tensor(categorical, dtype=torch.int64)
    return model.network.auxiliary(ids, torch.tensor(numeric)).double().numpy()


def _refuse_difference(
    ours: np.ndarray, theirs: np.ndarray, limit: float, what: str, ids: np.ndarray
) -> None:
    difference = np.abs(ours.astype(np.float64) - theirs)
    if len(difference) and not difference.max() <= limit:  # not <=: a NaN is refused as well
        worst = int(np.nanargmax(np.where(np.isnan(difference), np.inf, difference)))
        raise ArtifactError(
            f"the merged model is not its parts: {what} differs by {difference[worst]:.3g}, at "
            f"most {limit:.3g} is allowed (field value id {ids[worst]}); nothing was published"
        )
