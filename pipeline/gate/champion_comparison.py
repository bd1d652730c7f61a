"""Champion against challenger on the same test rows: paired gains and the prequential curve."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core.checksums import MANIFEST
from pipeline.core.errors import ArtifactError, DataError
from pipeline.core.files import read_json
from pipeline.formats.champion import Pin
from pipeline.metrics.comparison import daily_metrics
from pipeline.metrics.counts import ResponseCounts
from pipeline.metrics.significance import Resampling, gain_interval
from pipeline.metrics.summary import STATISTICS, Measurement
from pipeline.serving.predictor import load

SAME = ("label", "field", "impressions")
"""Conventions without which two models' numbers are not about the same thing."""


@dataclass(frozen=True)
class Champion:
    """Production's model on the test rows.

    Attributes:
        pin: which version it is.
        logit: its calibrated logit of each row, float64 [n]; None where it cannot read the rows.
        why: why it cannot, a clause; None where it can.
        learnt_from: days whose rows it was made from.
    """

    pin: Pin
    logit: np.ndarray | None
    why: str | None
    learnt_from: frozenset[str]


def score_champion(
    pin: Pin,
    folder: Path,
    challenger: Mapping[str, Any],
    tables: Iterable[tuple[str, pa.Table]],
) -> Champion:
    """The champion's logits, by its own vocabulary, conventions and map, of the test rows.

    Its ids never meet the challenger's: both read the text of the field value. Rows with a value
    that only the challenger knows are unseen to it, as they are in production.

    Args:
        pin: which version it is.
        folder: the champion's model, whose bytes `pinned` found to be the pin's.
        challenger: the conventions of the model that it is held against.
        tables: the test days' rows, in the order in which the challenger's were scored.

    Returns:
        A champion that cannot read the days (other columns, another field or label, another format
        of checkpoint) comes back with the reason in `why`.
    """
    try:
        model = load(folder, threads=0)  # which verifies the manifest, too
        manifest = read_json(folder / MANIFEST)
        other = [name for name in SAME if model.conventions.get(name) != challenger.get(name)]
        if other:
            raise DataError(
                f"its {other[0]} is {model.conventions.get(other[0])!r}, here it is "
                f"{challenger.get(other[0])!r}"
            )
        parts = [model.predict(table).calibrated_logit for _, table in tables]
    except (ArtifactError, DataError) as error:
        return Champion(pin, None, str(error), frozenset())
    return Champion(pin, np.concatenate(parts), None, _learnt_from(manifest))


def _learnt_from(manifest: Mapping[str, Any]) -> frozenset[str]:
    """The training and calibration days of a model, whose field values its vocabulary holds."""
    days = manifest["base"].get("days", {})
    return frozenset(day for part in days.values() for day in part)


def report_of(
    champion: Champion,
    measured: Mapping[str, Measurement],
    days: list[str],
    resampling: Resampling,
) -> dict[str, Any]:
    """What the evaluation report says of the champion, under `champion`.

    Args:
        champion: what `score_champion` returned.
        measured: of `champion`, if it could read the rows, and of `model`, the challenger.
        days: the test days that have rows, in order.
        resampling: how intervals are made.

    Returns:
        `version`, `last_day`, `model_sha256`, `readable` and `why` not; where it is readable also
        `compared_days` (test days that neither model learnt from), `gains` of the challenger over
        it there (positive = the challenger is better; `logloss`, `field_deviance`, `field_rce`,
        each `value`, `low`, `high`, `over`, `days`, and the champion's own as `champion`), and
        `by_day`, the prequential curve: for every test day `logloss`, `field_deviance` and `pcoc`
        of both, and whether the day is `new`, that is after all days the champion was made from.
    """
    pin = champion.pin
    about = {
        "version": pin.version,
        "last_day": pin.last_day,
        "model_sha256": pin.model_sha256,
        "readable": champion.why is None,
        "why": champion.why,
    }
    if champion.why is not None:
        return about
    untouched = np.array([day not in champion.learnt_from for day in days])
    return about | {
        "compared_days": int(untouched.sum()),
        "gains": _paired(measured["model"], measured["champion"], untouched, resampling),
        "by_day": _by_day(measured, days, pin.last_day),
    }


def _paired(
    model: Measurement, champion: Measurement, among: np.ndarray, resampling: Resampling
) -> dict[str, Any]:
    """Paired gains on some of the days; empty where there are none of them."""
    if not among.any():
        return {}
    ours, theirs = (_of_days(m.counts, among) for m in (model, champion))
    return {
        name: asdict(gain_interval(statistic, ours, theirs, resampling))
        | {"champion": float(statistic(theirs.sum(axis=0)).ratio())}
        for name, statistic in STATISTICS.items()
    }


def _of_days(counts: ResponseCounts, among: np.ndarray) -> ResponseCounts:
    return ResponseCounts(*(column[among] for column in vars(counts).values()))


def _by_day(
    measured: Mapping[str, Measurement], days: list[str], last_day: str
) -> list[dict[str, Any]]:
    metrics = {name: daily_metrics(measured[name].counts) for name in ("champion", "model")}
    impressions = measured["model"].counts.impressions.sum(axis=1)
    return [
        {
            "day": day,
            "new": day > last_day,
            "impressions": impressions[place].item(),
            **{
                name: {metric: float(values[place]) for metric, values in of_method.items()}
                for name, of_method in metrics.items()
            },
        }
        for place, day in enumerate(days)
    ]
