"""Champion against challenger, as procedures on the same test days; and the bytes that served."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.checkpoint.serving_table import read_table
from pipeline.core.errors import ArtifactError, DataError
from pipeline.core.files import MANIFEST, read_json
from pipeline.formats.champion import SAME_LOG, Pin
from pipeline.formats.days import day_name, day_number
from pipeline.formats.rolling import FILE, DayMap, read_rolling
from pipeline.formats.scores import Scores
from pipeline.metrics.calibration import log_loss_terms, pcoc_terms
from pipeline.metrics.comparison import daily_metrics
from pipeline.metrics.counts import ResponseCounts, Terms
from pipeline.metrics.significance import (
    Resampling,
    field_value_interval,
    gain_interval,
    jackknife_interval,
    over_days,
    sound_day,
    watched,
    without_each_block,
)
from pipeline.metrics.summary import GAINED, Measurement, overall_pcoc
from pipeline.serving.predictor import Predictor, load


@dataclass(frozen=True)
class Champion:
    """Production's model on test days whose labels its forecasts had not seen.

    Attributes:
        pin: which version it is.
        why: why it cannot be compared, a clause; None where it can.
        same_procedure: whether base model, code and parameters are the challenger's, too.
        days: the days it forecasts, as days since 1970-01-01, ascending.
        served: those of them that it forecasts by the bytes that served, which are after its last
            label; the others have the rolling map of their own morning.
        logit: its calibrated logit of each row of these days, float64.
    """

    pin: Pin
    why: str | None
    same_procedure: bool = False
    days: tuple[int, ...] = ()
    served: tuple[int, ...] = ()
    logit: np.ndarray = field(default_factory=lambda: np.empty(0))


def score_champion(
    pin: Pin,
    folder: Path,
    challenger: Mapping[str, Any],
    rows: Scores,
    tables: Iterable[tuple[str, pa.Table]],
) -> Champion:
    """The champion's logits, by its own vocabulary, conventions and maps, of the test rows.

    Its ids never meet the challenger's: both read the text of the field value. Rows with a value
    that only the challenger knows are unseen to it, as they are in production. Where both have one
    base model, the stored scores are the champion's, too. A day whose labels it has learned from is
    left out, unless it brings the map of that day's morning; versions from before there were such
    maps bring none.

    Args:
        pin: which version it is.
        folder: the champion's model, whose bytes `pinned` found to be the pin's.
        challenger: the manifest of the model that it is held against.
        rows: the test days as the challenger's base scored them.
        tables: the same rows as the log has them; not read where the base is the same.

    Returns:
        A champion that is of another log or cannot read the days (other columns, another format of
        checkpoint) comes back with the reason in `why`.
    """
    try:
        model = load(folder, threads=0)  # which verifies the manifest, too
        manifest, theirs = read_json(folder / MANIFEST), challenger["conventions"]
        for name in SAME_LOG:
            own, here = (of.get(name) for of in (theirs | model.conventions, theirs))
            if own != here:
                raise DataError(f"it is of another log: its {name} is {own!r}, here it is {here!r}")
        maps = _rolling(folder, manifest)
        own, others = _made_of(manifest), _made_of(challenger)
        last = _last_label(manifest)
        known = {d for d in np.unique(rows.day).tolist() if d in maps or day_name(d) > last}
        names = manifest["base"]["field"]["values"]
        same_base = (
            own["base"] == others["base"]
            and not manifest["auxiliary"]
            and challenger["base"]["field"]["values"][: len(names)] == names
        )
        scored = _of_scores(folder, rows, known, len(names))
        said = scored if same_base else _of_model(model, tables, known)
        logit = {d: maps[d](*asked) if d in maps else served for d, asked, served in said}
    except (ArtifactError, DataError) as error:
        return Champion(pin, str(error))
    served_days = tuple(day for day in logit if day not in maps)
    joined = np.concatenate([np.empty(0), *logit.values()])
    return Champion(pin, None, own == others, tuple(logit), served_days, joined)


Asked = tuple[np.ndarray, np.ndarray]
"""Uncalibrated logit and field value id of rows."""


def _of_scores(
    folder: Path, rows: Scores, days: set[int], n_field_values: int
) -> Iterator[tuple[int, Asked, np.ndarray]]:
    """Of some days of stored scores what was asked, and what the champion's table answers.

    Field values that came after it was made are unseen to it.
    """
    table = read_table(folder, n_field_values)
    for day in sorted(days):
        of_day = rows.take(rows.day == day)
        ids = np.where(of_day.field_value_id < n_field_values, of_day.field_value_id, 0)
        asked = of_day.uncalibrated_logit, ids
        yield day, asked, table(*asked)


def _of_model(
    model: Predictor, tables: Iterable[tuple[str, pa.Table]], days: set[int]
) -> Iterator[tuple[int, Asked, np.ndarray]]:
    """The same by the champion's deployed file."""
    for name, table in tables:
        if day_number(name) in days:
            said = model.predict(table)
            asked = said.uncalibrated_logit, said.field_value_id
            yield day_number(name), asked, said.calibrated_logit


def _rolling(folder: Path, manifest: Mapping[str, Any]) -> Mapping[int, DayMap]:
    """The rolling maps of a version; none of one that adds features to its map, or is of before."""
    if manifest["auxiliary"] or not (folder / FILE).exists():
        return {}
    return read_rolling(folder / FILE)[manifest["map"]]


def _last_label(manifest: Mapping[str, Any]) -> str:
    """The newest day whose labels a model learned from; versions of before name it in the base."""
    data = (manifest.get("lineage") or {}).get("data", {})
    of_base = manifest["base"].get("days", {}).values()
    return max(
        [*data.get("label_days", []), *(day for part in of_base for day in part)], default=""
    )


def _made_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The procedure of a model: `base`, `code` and `params`, but for the last day, which moves.

    What is not known equals nothing.
    """
    lineage = manifest.get("lineage") or {}
    made = {name: lineage.get(name, object()) for name in ("base", "code", "params")}
    if "params" in lineage:
        params = {stage: dict(section) for stage, section in lineage["params"].items()}
        for section in ("split", "log"):  # where versions of before have it
            params.get(section, {}).pop("last_day", None)
        made["params"] = params
    return made


def report_of(
    champion: Champion, measured: Mapping[str, Measurement], resampling: Resampling
) -> dict[str, Any]:
    """What the evaluation report says of the champion, under `champion`.

    Args:
        champion: what `score_champion` returned.
        measured: of `model`, the challenger, and of `champion` on the days that it forecasts.
        resampling: how intervals are made.

    Returns:
        `version`, `last_day`, `model_sha256`, `readable` and `why` not; where it is readable also
        `same_procedure`; `compared_days`; `gains` of the challenger over it there (positive = the
        challenger is better), of each of GAINED and of `pcoc_error` (abs(ln PCOC)), each `value`,
        `low`, `high`, `over`, `days`, and the champion's own as `champion`; `by_day`: for every
        such day `logloss`, `field_deviance` and `pcoc` of both, and whether the champion's are of
        the bytes that `served`; and `served`: how those bytes did on all such days (evaluate adds
        the `newest` of them, `alarm_of`).
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
    about |= {"same_procedure": champion.same_procedure, "compared_days": len(champion.days)}
    if not champion.days:
        return about | {"gains": {}, "by_day": [], "served": None}
    theirs, model = measured["champion"], measured["model"]
    compared, shipped = np.isin(model.days, theirs.days), np.isin(theirs.days, champion.served)
    ours = model.counts.each(lambda column: column[compared])
    served = theirs.counts.each(lambda column: column[shipped])
    return about | {
        "gains": _paired(ours, theirs.counts, resampling),
        "by_day": _by_day(ours, theirs, champion.served),
        "served": _served(served, resampling) if champion.served else None,
    }


def _paired(ours: ResponseCounts, theirs: ResponseCounts, resampling: Resampling) -> dict[str, Any]:
    gains = {
        name: asdict(gain_interval(statistic, ours, theirs, resampling))
        | {"champion": float(over_days(statistic, theirs).ratio())}
        for name, statistic in GAINED.items()
    }
    return gains | {"pcoc_error": _pcoc_gain(ours, theirs, resampling)}


def _pcoc_gain(
    ours: ResponseCounts, theirs: ResponseCounts, resampling: Resampling
) -> dict[str, Any]:
    """By how much the challenger's abs(ln PCOC) is below the champion's, paired over days."""
    both = [c.sum(axis=1).reshape(-1, 1) for c in (ours, theirs)]
    own, other = (float(_pcoc_error(over_days(pcoc_terms, c))) for c in both)
    left = [_pcoc_error(without_each_block(pcoc_terms, c, resampling.block_days)) for c in both]
    low, high = jackknife_interval(other - own, left[1] - left[0], resampling.confidence)
    columns = {"value": other - own, "low": low, "high": high, "champion": other}
    return columns | {"over": "days", "days": ours.shape[0]}


def _pcoc_error(terms: Terms) -> np.ndarray:
    return np.abs(np.log(terms.ratio()))


def _served(counts: ResponseCounts, resampling: Resampling) -> dict[str, Any]:
    """LogLoss and PCOC, with intervals, of the bytes that served, on days after their labels."""
    loss = field_value_interval(log_loss_terms, counts, resampling)
    ratio = overall_pcoc(counts, resampling)
    return {"days": counts.shape[0], "logloss": asdict(loss), "pcoc": ratio}


def _by_day(
    ours: ResponseCounts, champion: Measurement, served: tuple[int, ...]
) -> list[dict[str, Any]]:
    both = {"champion": daily_metrics(champion.counts), "model": daily_metrics(ours)}
    impressions = ours.impressions.sum(axis=1)
    return [
        {
            "day": day_name(day),
            "served": day in served,
            "impressions": impressions[place].item(),
            **{
                name: {metric: float(values[place]) for metric, values in of_method.items()}
                for name, of_method in both.items()
            },
        }
        for place, day in enumerate(champion.days.tolist())
    ]


def alarm_of(
    champion: Champion,
    measured: Mapping[str, Measurement],
    largest: Sequence[Mapping[str, Any]],
    chance: float,
) -> list[dict[str, Any]]:
    """PCOC on a day of the bytes that served it, of all rows and of the largest field values.

    Each with the ends between which it lies on a day as sound as those before, as today's procedure
    forecasts them, and whether it lies beyond.

    Args:
        champion: it served some days, of which the newest is looked at.
        measured: as in `report_of`.
        largest: `field_value` and `field_value_id` of each.
        chance: that any alarm is raised on a sound day.
    """
    day, ids = champion.served[-1], np.array([row["field_value_id"] for row in largest])
    ours, theirs = (watched(measured[name].counts, ids) for name in ("model", "champion"))
    before, of_day = measured["model"].days < day, measured["champion"].days == day
    history, newest = ours.each(lambda c: c[before]), theirs.each(lambda c: c[of_day][0])
    sound = sound_day(history, newest, chance)
    names = [{"day": day_name(day)}, *({"field_value": row["field_value"]} for row in largest)]
    columns = zip(*(column.tolist() for column in vars(sound).values()), strict=True)
    return [
        name | dict(zip(vars(sound), row, strict=True))
        for name, row in zip(names, columns, strict=True)
    ]
