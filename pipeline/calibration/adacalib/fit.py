"""AdaCalib, variant crossfit: a filter that follows the days, and a shape learned on top of it.

calibrated_logit = logit of the mean probability of (line_{z,t}(logit) + shape_z(logit))

The line is the filter's forecast (`prior.filter`): an offset and a slope for every field value and
day. The shape stays: spline terms, and a correction that is piecewise linear between knots at the
mean logits of the field value's bins; a network gives it at each knot from posterior statistics of
the bin and the value, and a Gumbel choice decides between the candidate bin counts (paper,
sections 3.1 and 3.2). It changes the shape of a curve, not its level: that is the filter's. How
much of splines and correction is used, and when the network stops, is decided on days that none of
them has seen.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from pipeline.calibration.adacalib.knot_training import FitSettings, single_thread
from pipeline.calibration.adacalib.shapes import Shapes, learn_shapes
from pipeline.calibration.prior.daily import daily_counts, usual_logits
from pipeline.calibration.prior.filter import Filter, Variances
from pipeline.calibration.prior.forward import LARGEST, Guard, Move, Pass, follow, learn_variances
from pipeline.calibration.statistics.grid import make_grid
from pipeline.core.errors import NotEnoughDataError
from pipeline.formats.tables import FieldTables


@dataclass(frozen=True)
class AdaCalibFit:
    """A fitted AdaCalib and how it came about.

    Attributes:
        passed: the filter's pass over the days, with the line of every field value and day.
        shapes: what is added to the lines.
    """

    passed: Pass
    shapes: Shapes

    @property
    def refused_days(self) -> set[int]:
        """Days that the guard refused."""
        return {move.day for move in self.passed.guard.moves if move.refused}


def fit_adacalib(
    tables: FieldTables,
    settings: FitSettings,
    *,
    known_until: int,
    horizon_days: int = 1,
    accepted: Collection[int] = (),
    variances: Variances | None = None,
    until: int = 0,
) -> AdaCalibFit:
    """AdaCalib with everything that is learned once learned up to a day, and forecasts beyond it.

    The cost depends on the field values, days and cells, not on the rows behind them. The result
    does not depend on the order of rows nor on the number of threads.

    Args:
        tables: field statistics; cells of days after `known_until` move the forecasts alone.
        settings: how the network is fitted.
        known_until: the last day that variances and shape are learned from.
        horizon_days: h: the forecast of a day knows the days up to h before it.
        accepted: days that the guard may not refuse.
        variances: of the filter; None: they are learned.
        until: the last day that is forecast, if it is later than h after the last one with rows.

    Raises:
        NotEnoughDataError: no cell of a known day stands for an impression.
        TrainingError: the network's loss is not finite.
    """
    known = tables.cells.day <= known_until
    if not tables.cells.impressions[known].sum():
        raise NotEnoughDataError(
            "AdaCalib needs rows with impressions, there are none; take more calibration days"
        )
    with single_thread():
        passed = _followed(
            tables, variances,
            known_until=known_until, horizon_days=horizon_days, accepted=accepted, until=until,
        )  # fmt: skip
        sound = known & np.isin(tables.cells.day, list(passed.fitted))
        learned = learn_shapes(make_grid(tables, sound), passed, settings, horizon_days)
    return AdaCalibFit(passed, learned)


def _followed(
    tables: FieldTables,
    given: Variances | None,
    *,
    known_until: int,
    horizon_days: int,
    accepted: Collection[int],
    until: int,
) -> Pass:
    """The pass over all days; once more without the known days that the guard then refused."""
    cells, n, tree = tables.cells, tables.n_field_values, tables.tree
    found: list[Move] = []
    while True:
        counts = daily_counts(cells, cells.day <= known_until)
        known = counts.take(counts.day <= known_until)
        usual, center = usual_logits(known, tree)
        variances = given or learn_variances(known, usual, center, tree)
        total = np.bincount(known.field_value_id, known.impressions, n)[1:]
        largest = 1 + np.argsort(-total, kind="stable")[: min(LARGEST, int((total > 0).sum()))]
        guard = Guard(largest, accepted, moves=found)
        model = Filter(variances, usual, center, tree)
        passed = follow(model, counts, horizon_days, guard, until)
        refused = {m.day for m in guard.moves if m.refused and m.day <= known_until}
        rest = cells.take(~np.isin(cells.day, list(refused)))
        if len(rest) == len(cells):
            return passed
        cells, found = rest, [move for move in guard.moves if move.day in refused and move.refused]
