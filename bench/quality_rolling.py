"""Methods as they are used: refitted before every test day, beside the same fitted once."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy.special import expit

from bench.baselines import CalibrationMap
from bench.quality_cases import Case
from bench.quality_gains import Judged
from bench.quality_tables import Result, aligned
from pipeline.calibration.roll import Rolled, roll
from pipeline.calibration.statistics.bins import tabulate
from pipeline.calibration.statistics.counting import count_cells, fitting_grid, with_later_days
from pipeline.core.columns import joined
from pipeline.formats.rolling import rolled
from pipeline.formats.scores import Scores
from pipeline.formats.tables import FieldTree
from pipeline.metrics.comparison import ValueHistory, points
from pipeline.metrics.summary import Measurement, count_by_day, measure, summarise
from pipeline.params.params_file import read_params

OURS = ("identity", "isotonic", "eb_platt", "adacalib")  # rolled as the pipeline rolls them
Fit = Callable[[Scores], CalibrationMap]
METRICS = ("logloss", "daily_field_deviance", "field_deviance", "field_rce", "pcoc")


def rolling_and_frozen(
    case: Case, fits: Mapping[str, Fit]
) -> Iterator[tuple[str, str, np.ndarray]]:
    """Each method's name, mode (rolling or frozen) and logits of the test rows of a case.

    Ours are rolled by the pipeline's own procedure. Any other is fitted again before each test day
    on the newest rows, of as many days as the case has for calibration.
    """
    known, test = case.calibration, case.test
    ours = set(OURS) & set(fits)
    if ours:
        maps = rolled_by_the_pipeline(known, test).maps
        first = {name: of_days[min(of_days)] for name, of_days in maps.items()}
        columns = test.uncalibrated_logit, test.field_value_id
        for name in (name for name in OURS if name in ours):
            yield name, "rolling", rolled(maps[name], *columns, test.day)
            yield name, "frozen", first[name](*columns)
    for name, fit in fits.items():
        if name not in ours:
            yield name, "rolling", _refitted(known, test, fit)
            yield name, "frozen", fit(known)(test.uncalibrated_logit, test.field_value_id)


def noise_floor(case: Case) -> Iterator[tuple[str, str, Measurement]]:
    """AdaCalib where its forecasts are true: the procedure again on test labels drawn from them.

    In mode `drawn`. Mode `truth` are the probabilities themselves, measured on the same labels:
    what they show is the labels' noise alone, and the rest is what the procedure has to learn.
    """
    columns = case.test.uncalibrated_logit, case.test.field_value_id, case.test.day
    truth = rolled(rolled_by_the_pipeline(case.calibration, case.test).maps["adacalib"], *columns)
    random = np.random.default_rng(case.seed)
    responses = random.binomial(case.test.impressions, expit(truth.astype(np.float64)))
    drawn = replace(case.test, responses=responses.astype(case.test.responses.dtype))
    again = rolled_by_the_pipeline(case.calibration, drawn).maps["adacalib"]
    for mode, logit in (("drawn", rolled(again, *columns)), ("truth", truth)):
        yield "adacalib", mode, measure(logit, drawn, expit(truth.astype(np.float64)))


def rolled_by_the_pipeline(
    known: Scores, test: Scores | None, tree: FieldTree | None = None
) -> Rolled:
    """Our methods, whole maps of the test days; without any, of the day after the last.

    All as params.yaml has it, and with what field values belong to, where they do.
    """
    params = read_params()
    candidates, cells = params.tabulate.candidates, params.tabulate.grid_cells
    cut = tabulate(known, (*candidates, cells), cells)
    until = int(known.day.max())
    later = [] if test is None else [count_cells(test, fitting_grid(cut[0]))]
    tables = with_later_days(cut, until, later, candidates, known.n_field_values)
    days = [until + 1] if test is None else np.unique(test.day).tolist()
    asked: dict[int, np.ndarray | None] = dict.fromkeys(days)
    tables = replace(tables, tree=tree or tables.tree)
    return roll(tables, params.calibrate, known_until=until, asked=asked)


def _refitted(known: Scores, test: Scores, fit: Fit) -> np.ndarray:
    rows = joined([known, test])
    days = int(known.day.max() - known.day.min()) + 1
    logit = np.empty(len(test))
    for day in np.unique(test.day).tolist():
        newest = rows.take((rows.day < day) & (rows.day >= day - days))
        today = test.day == day
        of_day = fit(newest)
        logit[today] = of_day(test.uncalibrated_logit[today], test.field_value_id[today])
    return logit


def compare_modes(
    cases: Iterable[Case], fits: Mapping[str, Fit], *, floor: bool = False
) -> tuple[list[Result], list[Judged]]:
    """A result for each case, method and mode, and the rolling measurements of each case.

    With `floor` those of `noise_floor`, too.
    """
    results, judged = [], []
    for case in cases:
        print(f"{case.window}, seed {case.seed}", file=sys.stderr, flush=True)
        measured, groups = {}, _groups(case)
        for method, mode, logit in rolling_and_frozen(case, fits):
            found = measure(logit, case.test, case.true_probability)
            of_values = measure(logit, case.test_values or case.test, None, groups)
            of_groups = {
                name: points(of_values.counts.where(picked)) | of_values.of_groups[name]
                for name, picked in groups.items()
            }
            results.append(_result(case, method, mode, found) | {"groups": of_groups})
            if mode == "rolling":
                measured[method] = found
        if floor:
            results += [_result(case, *drawn) for drawn in noise_floor(case)]
        judged.append(Judged(case, measured))
    return results, judged


def _result(case: Case, method: str, mode: str, found: Measurement) -> Result:
    about = {"window": case.window, "seed": case.seed, "method": method, "mode": mode}
    excess, summary = found.truth.get("excess_logloss", float("nan")), summarise(found)
    return about | {k: summary[k] for k in METRICS} | {"excess_logloss": excess}


def _groups(case: Case) -> dict[str, np.ndarray]:
    """New and rare field values, by what was known of them on the mornings of the test days."""
    test = case.test_values or case.test
    every = joined([replace(case.calibration, n_field_values=test.n_field_values), test])
    days, counts = count_by_day(np.zeros(len(every)), every)
    tested, ids = days >= test.day.min(), np.arange(test.n_field_values)
    before = counts.each(lambda column: (np.cumsum(column, axis=0) - column)[tested])
    known = (before.impressions > 0) & (ids > 0) & (ids < case.test.n_field_values)
    first = days[(counts.impressions > 0).argmax(axis=0)]
    return ValueHistory(days[tested][:, None] - first, known, before.responses).groups()


def modes_table(results: list[Result]) -> str:
    """Means over all cases, a row for each method and mode."""
    lines = [["method", "mode", "LogLoss", "daily deviance", "deviance", "Field-RCE", "PCOC",
              "excess ·10⁻⁴"]]  # fmt: skip
    for method, mode in dict.fromkeys((r["method"], r["mode"]) for r in results):
        rows = [r for r in results if (r["method"], r["mode"]) == (method, mode)]
        means = [float(np.mean([r[k] for r in rows])) for k in (*METRICS, "excess_logloss")]
        cells = [
            f"{means[0]:.5f}",
            *(f"{mean:.4f}" for mean in means[1:5]),
            f"{1e4 * means[5]:.2f}",
        ]
        lines.append([method, mode, *cells])
    return aligned(lines)


def groups_table(results: list[Result], metric: str) -> str:
    """A metric of new and rare field values by rolling method, mean over cases with any."""
    rolling = [r for r in results if r["mode"] == "rolling"]
    by_case = pd.DataFrame(
        [
            {"method": r["method"], "group": name, metric: metrics[metric]}
            for r in rolling
            for name, metrics in r["groups"].items()
        ]
    )
    means = by_case.pivot_table(metric, "method", "group", sort=False)
    return means.to_string(float_format="{:.5f}".format)
