"""Calibrators as they are used: forecast day by day, chosen on the past, shipped up to yesterday.

For every day each calibrator is as it would have been on its morning: offsets, statistics and its
record know the days up to h before, h the horizon; what is learned once (variances, shapes,
windows, the choice) knows the days up to h before the first day that is judged.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from pipeline.calibration.adacalib.fit import AdaCalibFit, fit_adacalib
from pipeline.calibration.adacalib.knot_training import FitSettings
from pipeline.calibration.adacalib.shapes import serving_map
from pipeline.calibration.baselines import FITS, best_window, coarse, windowed_map
from pipeline.calibration.choice import Choice, Comparison, choose, losses_of
from pipeline.calibration.record import NONE, FirstDays, Record
from pipeline.calibration.statistics.grid import mean_probability_logit
from pipeline.formats.maps import PiecewiseLinearMap, identity_map
from pipeline.formats.rolling import DayMap
from pipeline.formats.tables import CellTable, FieldTables, FieldTree

TOO_FEW_DAYS = "eb_platt"  # ships where the learning days are too few for a choice

Forecaster = Callable[[int], PiecewiseLinearMap]
"""Day -> the map of all field values that serves it."""


@dataclass(frozen=True)
class Rolled:
    """Every calibrator rolled over the days of a log.

    Attributes:
        maps: name -> day -> its map: of the whole field, or of the values that were asked for.
        choice: what the learning days say; None where they are too few.
        learned: day -> what was forecast for it and what came, of the learning days.
        fit: AdaCalib, and what the guard said of each day.
        windows: days that each baseline is fitted on.
        records: name -> the record of its forecasts.
    """

    maps: dict[str, dict[int, DayMap]]
    choice: Choice | None
    learned: dict[int, Comparison]
    fit: AdaCalibFit
    windows: Mapping[str, int]
    records: dict[str, Record]
    horizon_days: int

    @property
    def chosen(self) -> str:
        """The calibrator that the learning days chose."""
        return self.choice.name if self.choice else TOO_FEW_DAYS


def roll(
    tables: FieldTables,
    settings: FitSettings,
    *,
    known_until: int,
    asked: Mapping[int, np.ndarray | None],
    horizon_days: int = 1,
    accepted: Collection[int] = (),
    windows: Mapping[str, int] | None = None,
) -> Rolled:
    """Identity, isotonic regression, EB-Platt and AdaCalib as they would have served some days.

    Args:
        tables: field statistics of all days that may be known.
        settings: how AdaCalib is fitted.
        known_until: the last day that anything is learned once from.
        asked: day after that -> the field value ids that it asks for; None: all of them.
        horizon_days: h, 1 or more.
        accepted: days that the guard may not refuse.
        windows: days that each baseline is fitted on; None: they are learned, too.

    Raises:
        NotEnoughDataError: no cell of a known day stands for an impression.
        TrainingError: the network's loss is not finite.
    """
    fit = fit_adacalib(
        tables, settings, known_until=known_until, horizon_days=horizon_days, accepted=accepted,
        until=max(asked),
    )  # fmt: skip
    cells = tables.cells.take(~np.isin(tables.cells.day, list(fit.refused_days)))
    learning = sorted(fit.shapes.of_days)
    fewer, n = coarse(cells, cells.day <= known_until), tables.n_field_values
    used = windows or {
        name: best_window(of_cells, fewer, n, horizon_days, learning)
        for name, of_cells in FITS.items()
    }

    def windowed(name: str) -> Forecaster:
        return lambda day: windowed_map(FITS[name], fewer, n, day - horizon_days, used[name])

    baselines = {name: windowed(name) for name in FITS}
    forecasters = _forecasters(baselines, fit, settings.min_slope, n)
    records = {name: Record(horizon_days) for name in forecasters if name != "identity"}
    days = range(min([*learning, *asked]), max([*learning, *asked]) + 1)
    mornings = [_Morning.of(cells, day, horizon_days, tables.tree) for day in days]
    maps: dict[str, dict[int, DayMap]] = {}
    predicted: dict[str, dict[int, np.ndarray]] = {}
    for name, forecaster in forecasters.items():
        maps[name], predicted[name] = _rolled(
            forecaster, records.get(name), mornings, learning, asked
        )
    learned = {day: _comparison(cells, day, predicted) for day in learning}
    choice = choose(*losses_of([*learned.values()], n)) if learning else None
    return Rolled(maps, choice, learned, fit, used, records, horizon_days)


def _forecasters(
    baselines: Mapping[str, Forecaster], fit: AdaCalibFit, min_slope: float, n_field_values: int
) -> dict[str, Forecaster]:
    """All calibrators, from simple to complex."""
    identity = identity_map(n_field_values)

    def adacalib(day: int) -> PiecewiseLinearMap:
        shape = fit.shapes.of_days.get(day, fit.shapes.last)
        return serving_map(fit.passed.forecasts[day], shape, min_slope)[0]

    return {"identity": lambda day: identity, **baselines, "adacalib": adacalib}


@dataclass(frozen=True)
class _Morning:
    """A day's rows, and what was known before it.

    Attributes:
        serving: int64 [V], the id whose map serves each: one that is not known has its nearest
            known parent's, or that of id 0.
        for_new: int64 [P], the ids whose maps serve those that are not known.
        new: bool [n], the rows of field values that are served so.
    """

    day: int
    rows: CellTable
    serving: np.ndarray
    for_new: np.ndarray
    new: np.ndarray

    @classmethod
    def of(cls, cells: CellTable, day: int, horizon_days: int, tree: FieldTree) -> "_Morning":
        rows = cells.take(cells.day == day)
        before = np.unique(cells.field_value_id[cells.day <= day - horizon_days])
        serving = tree.serving(tree.known(before))
        for_new = np.flatnonzero(tree.level > 0)
        new = np.isin(serving[rows.field_value_id], for_new) & (rows.field_value_id > 0)
        return cls(day, rows, serving, for_new, new)

    def logit(self, served: PiecewiseLinearMap) -> np.ndarray:
        """The calibrated logit of the rows, each at the log odds of its mean probability.

        All rows of a field value that has no bounds yet are one cell: its mean logit would expect
        too little.
        """
        rows = self.rows
        at = mean_probability_logit(rows.probability_sum, rows.impressions)
        return served(at, self.serving[rows.field_value_id])


def _rolled(
    forecaster: Forecaster,
    record: Record | None,
    mornings: list[_Morning],
    learning: list[int],
    asked: Mapping[int, np.ndarray | None],
) -> tuple[dict[int, DayMap], dict[int, np.ndarray]]:
    """One calibrator's maps of the days that are asked for, and logits of the learning days' cells.

    What was forecast for each day goes into the record, which corrects later forecasts; that of
    field values that were new on their day into one of its own, which corrects what serves those
    that come: values that are old today survived, and are no sample of new ones.
    """
    maps, predicted = {}, {}
    of_new = FirstDays(record.horizon_days) if record else None
    for morning in mornings:
        day, rows, new = morning.day, morning.rows, morning.new
        served = forecaster(day)
        correction = record.correction(day) if record else NONE
        raw = morning.logit(served)
        served, logit = served.corrected(*correction), correction(raw)
        if record and of_new and not served.is_shared:
            first_days = of_new.correction(day)
            of_rows = rows.impressions, rows.responses, rows.field_value_id
            of_new.add_values(day, logit[new], *(column[new] for column in of_rows))
            logit = np.where(new, first_days(logit), logit)
            of_parents = served.take(morning.for_new).corrected(*first_days)
            served = served.with_rows(morning.for_new, of_parents)
        if day in asked:
            maps[day] = DayMap.of(served, asked[day], morning.serving)
        elif day in learning:
            predicted[day] = logit
        if record:
            record.add(day, raw, rows.impressions, rows.responses)
    return maps, predicted


def _comparison(
    cells: CellTable, day: int, predicted: Mapping[str, Mapping[int, np.ndarray]]
) -> Comparison:
    rows = cells.take(cells.day == day)
    of_day = {name: logits[day] for name, logits in predicted.items()}
    return Comparison(of_day, rows.field_value_id, rows.impressions, rows.responses)
