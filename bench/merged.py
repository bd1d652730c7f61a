"""python -m bench.merged [--json OUT]: what calibration costs beside the base network alone.

The whole model against the same model cut off at the uncalibrated logit, in turn, on one thread: in
ONNX runtime from ids and from raw columns (its outputs are all those that are served). Then the
calibration step alone on many rows in numpy, on two threads. Seconds are medians; those of the
processor (`cpu_…`) hardly feel what else the machine does.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time
from typing import Any

import numpy as np
import onnx

from bench.serving_model import FIELD_VALUES, KNOTS, make_model, rows
from pipeline.checkpoint.bundle import load
from pipeline.checkpoint.onnx_graph import OUTPUTS
from pipeline.checkpoint.serving_table import IDS, part_of, read_table
from pipeline.serving.predictor import NUMBER, ONNX_FILE
from pipeline.serving.predictor import load as load_predictor

VOCABULARY = 20_000
REPEATS = {1: 4000, 256: 1000, 4096: 150}  # by batch size
THREADS = 2
Work = Callable[[], Any]


def runner(made: onnx.ModelProto, inputs: dict[str, np.ndarray], outputs: list[str]) -> Work:
    """A call of the part of a model from inputs to outputs; it takes what it needs of them."""
    one = part_of(made, [*inputs], outputs)
    taken = {tensor.name: inputs[tensor.name] for tensor in one.get_inputs()}
    return lambda: one.run(None, taken)


def contests(folder: Path, batch: int) -> dict[str, tuple[Work, Work]]:
    """By name: the base network alone, and the whole model, on the same rows."""
    model, made = load(folder), onnx.load(folder / ONNX_FILE)
    table = rows(batch, VOCABULARY)
    raw, encoded = load_predictor(folder).inputs_of(table), model.encoder.encode(table)
    ids = {IDS: encoded.categorical.astype(np.int64)}
    ids |= {name: values for name, values in raw.items() if name.startswith(NUMBER)}
    field = {"field_value_id": encoded.field_value_id.astype(np.int64)}
    base, served = ["uncalibrated_logit"], list(OUTPUTS)
    of_ids = [name for name in served if name not in field]
    return {
        "ONNX, ids": (runner(made, ids, base), runner(made, ids | field, of_ids)),
        "ONNX, raw columns": (runner(made, raw, base), runner(made, raw, served)),
    }


def timed(work: Work) -> tuple[float, float]:
    """Seconds, and seconds of the processor."""
    began, cpu = perf_counter(), thread_time()
    work()
    return perf_counter() - began, thread_time() - cpu


def compare(name: str, batch: int, base: Work, merged: Work) -> dict[str, Any]:
    """A row of the table."""
    pairs = [(timed(base), timed(merged)) for _ in range(REPEATS[batch])]
    result: dict[str, Any] = {"what": name, "rows": batch}
    for place, prefix in ((0, ""), (1, "cpu_")):
        alone, whole = (median(pair[side][place] for pair in pairs) * 1e3 for side in (0, 1))
        result |= {f"{prefix}base_ms": alone, f"{prefix}merged_ms": whole}
        result |= {f"{prefix}more_ms": whole - alone, f"{prefix}ratio": whole / alone}
    return result


def calibration_step(folder: Path, n: int, repeats: int) -> dict[str, Any]:
    """Rows a second of the numpy map, the best of some runs; each thread has a part of them."""
    serving_map, draw = read_table(folder, FIELD_VALUES + 1), np.random.default_rng(0)
    logit = draw.normal(-3.0, 1.0, n).astype(np.float32)
    ids = draw.integers(0, FIELD_VALUES + 1, n).astype(np.int32)
    parts = [slice(t * n // THREADS, (t + 1) * n // THREADS) for t in range(THREADS)]
    best = cpu = float("inf")

    def part(rows_now: slice) -> float:
        return timed(lambda: serving_map(logit[rows_now], ids[rows_now]))[1]

    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(repeats):
            began = perf_counter()
            cpu = min(cpu, sum(pool.map(part, parts)))
            best = min(best, perf_counter() - began)
    what = f"calibration step, numpy, {THREADS} threads, {KNOTS} knots"
    per_second = {"million_rows_s": n / best / 1e6, "million_rows_cpu_s": n / cpu / 1e6}
    return {"what": what, "rows": n, "ours_s": best, **per_second}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = make_model(Path(place) / "made", VOCABULARY, 0)
        results = [
            compare(name, batch, *pair)
            for batch in REPEATS
            for name, pair in contests(folder, batch).items()
        ]
        results.append(calibration_step(folder, options.rows, options.repeats))
    for result in results:
        shown = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in result.items()}
        print(*(f"{name}: {value}" for name, value in shown.items()), sep="  ")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
