"""python -m bench.quality --scores FILE | --simulated | --log FILE …: all calibrators, a table."""

import argparse
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

import numpy as np

from bench import baselines
from bench.baselines import CalibrationMap
from bench.baselines.peers import FITS
from bench.quality_ablation import CANDIDATES, ablation, fit_published
from bench.quality_cases import Case, frozen_cases, simulated_case
from bench.quality_gains import REFERENCES, Judged, gains_lines, mean_gains
from bench.quality_log import LogFile, Window, log_cases
from bench.quality_rolling import compare_modes, groups_table, modes_table, rolled_by_the_pipeline
from bench.quality_tables import Result, aligned, losses_table, table
from pipeline.core.errors import AdaCalibError
from pipeline.core.files import write_json
from pipeline.formats.scores import Scores
from pipeline.metrics.summary import Measurement, measure, summarise
from pipeline.params.params_file import read_params

METHODS = (
    *("identity", "platt", "temperature", "histogram", "isotonic", "beta", "gamma", "sir"),
    *("neucalib", "isotonic_per_value", "ratio_per_value", "eb_platt", "eb_platt_forward"),
    *("logistic_interaction", "mcgrad", "adacalib_paper", "adacalib"),
)
KEYS = (
    *("method", "seed", "window", "field_rce", "field_rce_low", "field_rce_high"),
    *(
        "field_rce_floor",
        "daily_field_deviance",
        "field_deviance",
        "logloss",
        "excess_logloss",
        "field_auc",
        "auc",
    ),
    *("pcoc", "fit_seconds", "rows_per_second", "gains", "mean_gains"),
)
ROLLED = "identity,isotonic,ratio_per_value,eb_platt,eb_platt_forward,adacalib"  # by default
SIMULATED = (1_000_000, 300)  # calibration rows and field values of a simulated log
ABLATED = (100_000, 60)  # the same, in ablations
SLOT_SPREAD = 0.3  # of the feature that only an auxiliary network sees, in ablations
TIMED_ROWS = 100_000  # rows of a serving call that is timed
SCANNED = 10_000  # logits at which every field value's map is looked at

Fit = Callable[[Scores], CalibrationMap]


def fit_of(method: str) -> Fit:
    """The method's fit, with the settings of params.yaml; only its own modules are loaded."""
    if method == "adacalib":
        return fit_crossfit
    if method == "adacalib_paper":
        return lambda scores: fit_published(scores, (True, True, True, False)).serving
    return FITS[method] if method in FITS else partial(baselines.fit, method)


def fit_crossfit(scores: Scores) -> CalibrationMap:
    """AdaCalib as params.yaml has it, fitted once, for the day after the rows' last."""
    (served,) = rolled_by_the_pipeline(scores, None).maps["adacalib"].values()
    return served.whole(scores.n_field_values)


def serving_rate(calibration_map: CalibrationMap, rows: Scores) -> float:
    """Rows per second of the map on batches of TIMED_ROWS, the best of three calls."""
    picked = np.resize(np.arange(len(rows)), TIMED_ROWS)
    logit, ids = rows.uncalibrated_logit[picked], rows.field_value_id[picked]
    seconds = []
    for _ in range(3):
        start = perf_counter()
        calibration_map(logit, ids)
        seconds.append(perf_counter() - start)
    return TIMED_ROWS / min(seconds)


def least_step(calibration_map: CalibrationMap, rows: Scores) -> float:
    """The smallest rise of the map from one of SCANNED logits to the next, over all field values.

    The logits reach five beyond those of the rows; a negative step is a fall.
    """
    ends = rows.uncalibrated_logit.min() - 5, rows.uncalibrated_logit.max() + 5
    logit = np.linspace(*ends, SCANNED)
    steps = (
        np.diff(calibration_map(logit, np.full(SCANNED, value, np.int32))).min()
        for value in range(rows.n_field_values)
    )
    return float(min(steps))


def result_of(case: Case, method: str, measurement: Measurement) -> Result:
    """The metrics of one method on one case by name: those of KEYS that are not times, and more."""
    excess = measurement.truth.get("excess_logloss", float("nan"))
    about = {"method": method, "seed": case.seed, "window": case.window}
    return {**summarise(measurement), **about, "excess_logloss": excess}


def judge(case: Case, method: str, fit: Fit) -> tuple[Result, Measurement]:
    """Fit on the case's calibration rows and measure on its test rows: KEYS but gains, and more."""
    start = perf_counter()
    calibration_map = fit(case.calibration)
    fit_seconds = perf_counter() - start
    logit = calibration_map(case.test.uncalibrated_logit, case.test.field_value_id)
    measurement = measure(logit, case.test, case.true_probability)
    rate = serving_rate(calibration_map, case.test)
    seconds = {"fit_seconds": fit_seconds, "rows_per_second": rate}
    step = {"least_step": least_step(calibration_map, case.test)} if method == "adacalib" else {}
    return {**result_of(case, method, measurement), **seconds, **step}, measurement


def ablate(cases: Iterable[Case], candidates: str) -> tuple[list[Result], list[Judged]]:
    """The rows of the paper's second table on every case, and what they rest on."""
    results, judged = [], []
    for case in cases:
        print(f"{case.window}, seed {case.seed}", file=sys.stderr, flush=True)
        measured, start = {}, perf_counter()
        for name, measurement in ablation(case, candidates):
            seconds = {"fit_seconds": perf_counter() - start, "rows_per_second": float("nan")}
            results.append({**result_of(case, name, measurement), **seconds})
            measured[name], start = measurement, perf_counter()
        judged.append(Judged(case, measured))
    return results, judged


def compare(cases: Iterable[Case], methods: dict[str, Fit]) -> tuple[list[Result], list[Judged]]:
    """The result of every method on every case, one case at a time, and what they rest on."""
    results, judged = [], []
    for case in cases:
        print(f"{case.window}, seed {case.seed}", file=sys.stderr, flush=True)
        own, measured = zip(*(judge(case, m, fit) for m, fit in methods.items()), strict=True)
        judged.append(Judged(case, dict(zip(methods, measured, strict=True))))
        results += [{**result, "gains": judged[-1].gains(result["method"])} for result in own]
    return results, judged


def with_mean_gains(results: list[Result], judged: list[Judged]) -> list[Result]:
    """The results with what their method gains in the mean over all cases, by reference."""
    there = [name for name in REFERENCES if name in judged[0].measured]
    means = {
        method: {
            reference: {k: asdict(v) for k, v in mean_gains(judged, method, reference).items()}
            for reference in there
            if reference != method
        }
        for method in judged[0].measured
    }
    return [{**result, "mean_gains": means[result["method"]]} for result in results]


def _methods(wanted: str | None) -> dict[str, Fit]:
    names = wanted.split(",") if wanted else list(METHODS)
    if unknown := [name for name in names if name not in METHODS]:
        raise AdaCalibError(f"no method {unknown}; the methods are {', '.join(METHODS)}")
    if "mcgrad" in names and find_spec("mcgrad") is None:
        if wanted:
            raise AdaCalibError("mcgrad is not installed; pip install mcgrad, or leave it out")
        names.remove("mcgrad")
        print("mcgrad is not installed; it is left out", file=sys.stderr)
    return {name: fit_of(name) for name in names}


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--scores", type=Path, help="Parquet file of frozen base scores")
    source.add_argument("--simulated", action="store_true", help="scores whose truth is known")
    source.add_argument("--log", type=Path, help="a raw log, .parquet or .csv; trains a base model")
    parser.add_argument("--rows", type=int, help="calibration rows of a simulated log")
    parser.add_argument("--values", type=int, help="field values of a simulated log")
    parser.add_argument("--windows", nargs="+", help="of the scores file; all by default")
    parser.add_argument("--seeds", type=_numbers, help="such as 0,1,2, the default of a log")
    parser.add_argument("--methods", help=f"some of {','.join(METHODS)}, all by default")
    parser.add_argument("--json", type=Path, help="write one object per window, seed and method")
    parser.add_argument(
        "--ablation", choices=CANDIDATES, nargs="?", const="cvr",
        help="the paper's second table, with its bin counts for conversions or for clicks",
    )  # fmt: skip
    parser.add_argument(
        "--rolling", action="store_true",
        help="each method refitted before every test day, and fitted once: which is how it is used",
    )  # fmt: skip
    parser.add_argument(
        "--noise-floor", action="store_true",
        help="rolling: AdaCalib once more, on test labels drawn from its own forecasts",
    )  # fmt: skip
    log = parser.add_argument_group("of a log")
    log.add_argument("--field", type=_names, help="column or columns that are calibrated")
    log.add_argument("--day", help="column with the day, or an instant in UTC")
    log.add_argument("--impressions", help="column with the impressions of a row; else a row is 1")
    log.add_argument("--responses", "--label", help="column with responses, or with the label")
    log.add_argument("--categorical", type=_names, default=(), help="more features of the base")
    log.add_argument("--numeric", type=_names, default=(), help="more features of the base")
    log.add_argument("--start", help="first training day")
    log.add_argument("--split", default="60/7/7", help="training/calibration/test days")
    return parser


def _log_cases(options: argparse.Namespace) -> Iterator[Case]:
    needed = ("field", "day", "responses", "start")
    if missing := [f"--{name}" for name in needed if getattr(options, name) is None]:
        raise AdaCalibError(f"--log needs {', '.join(missing)} too")
    log = LogFile(
        options.log, options.field, options.day, options.impressions, options.responses,
        options.categorical, options.numeric,
    )  # fmt: skip
    window = Window.of(options.start, options.split)
    return log_cases(log, window, options.seeds or (0, 1, 2), read_params())


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    if options.log:
        return _log_cases(options)
    if options.scores:
        return frozen_cases(options.scores, options.windows, options.seeds)
    rows, values = ABLATED if options.ablation else SIMULATED
    size = (options.rows or rows, options.values or values)
    spread = SLOT_SPREAD if options.ablation else 0.0
    seeds = options.seeds or range(5 if options.ablation else 3)
    return (simulated_case(seed, *size, slot_spread=spread) for seed in seeds)


def main() -> None:
    """Compare, print the table and, where asked for, write the JSON."""
    options = _parser().parse_args()
    logging.disable(logging.WARNING)  # mcgrad speaks of every round
    try:
        if options.rolling:
            results, judged = compare_modes(
                _cases(options), _methods(options.methods or ROLLED), floor=options.noise_floor
            )
        elif options.ablation:
            results, judged = ablate(_cases(options), options.ablation)
        else:
            results, judged = compare(_cases(options), _methods(options.methods))
            results = with_mean_gains(results, judged)
        if options.json:
            keys = (*KEYS, "mode", "groups")
            kept = [{key: result[key] for key in keys if key in result} for result in results]
            write_json(options.json, kept)
    except AdaCalibError as error:
        sys.exit(f"bench.quality: {error}")
    cases = {(result["window"], result["seed"]) for result in results}
    print(f"means over {len(cases)} cases (windows × seeds)")
    if steps := [result["least_step"] for result in results if "least_step" in result]:
        print(
            f"adacalib: least step between {SCANNED:,} logits of any field value {min(steps):.3g}"
        )
    print(modes_table(results) if options.rolling else table(results))
    if options.rolling:
        for metric in next(iter(results[0]["groups"].values())):
            print(f"\n{metric} of new and rare field values, refitted before every test day")
            print(groups_table(results, metric))
    if options.ablation:
        print("\nwhat each part taken away lost (positive: the part helps), paired 95 % intervals")
        print(losses_table(judged))
    for reference in REFERENCES:
        if reference in judged[0].measured and len(judged[0].measured) > 1:
            print(f"\ngains on {reference} (positive is better), paired 95 % intervals")
            print(aligned(gains_lines(judged, reference)))


if __name__ == "__main__":
    main()
