"""Routes that belong to carriers: what the tree is worth on a real log, and on small routes.

    python -m bench.nested_flights --data demo/flights/data

The flights log with the field carrier, origin and dest, whose parents are carrier and then origin.
For each window of params.yaml's days, the test days one after another, a base model is trained and
AdaCalib rolls over the test days with the tree and without it. Shown is by how much the tree's
LogLoss is lower, with its paired interval over all test days.
"""

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.quality_rolling import rolled_by_the_pipeline
from bench.quality_tables import aligned
from pipeline.core.errors import AdaCalibError, DataError
from pipeline.core.files import MANIFEST
from pipeline.data.log_store.manifest import read_manifest
from pipeline.formats.rolling import rolled
from pipeline.formats.scores import Scores, read_scores, read_scores_manifest
from pipeline.formats.tables import FieldTree
from pipeline.metrics.calibration import log_loss_terms
from pipeline.metrics.counts import ResponseCounts
from pipeline.metrics.significance import gain_interval
from pipeline.metrics.summary import count_by_day
from pipeline.params.params_file import read_params
from pipeline.params.sections import Params
from pipeline.stages import score, split, train_base, validate

FIELD, PARENTS = ("carrier", "origin", "dest"), ("carrier", "origin")
SMALL = 50  # departures on the calibration days

Parts = tuple[Scores, Scores, FieldTree]


def scored(data: Path, params: Params, last_day: str, place: Path) -> Parts:
    """Calibration and test rows of the window that ends with a day, and what belongs to what."""
    log = params.log.model_copy(update={"field": FIELD, "field_parents": PARENTS})
    days = params.split.model_copy(update={"last_day": last_day, "retrain_every_days": 1})
    names = ("validation.json", "validation", "split", "base", "scores")
    report, details, cut, base, scores = (place / name for name in names)
    validate.run(data, report, details, params=params.validate_, log=log, split=days)
    split.run(data / MANIFEST, report, cut, params=days, log=log)
    train_base.run(data, cut / "training.json", base, params=params.train_base, log=log)
    score.run(data, cut, base, scores, params=params.score)
    tree = FieldTree.of(read_scores_manifest(scores)["field"])
    return read_scores(scores, "calibration"), read_scores(scores, "test"), tree


def without_parents(rows: Scores, tree: FieldTree) -> Scores:
    """The rows whose field value is not known have the unseen value's id, not their parent's."""
    ids = np.where(tree.level[rows.field_value_id] > 0, 0, rows.field_value_id)
    return replace(rows, field_value_id=ids.astype(np.int32))


def window_counts(known: Scores, test: Scores, tree: FieldTree) -> dict[str, list[ResponseCounts]]:
    """Counts [days, 1] of AdaCalib with the tree and without it, of all rows and of some."""
    flat = known, without_parents(test, tree)
    counts = []
    for learned, rows, of_tree in ((known, test, tree), (*flat, None)):
        maps = rolled_by_the_pipeline(learned, rows, of_tree).maps["adacalib"]
        logit = rolled(maps, rows.uncalibrated_logit, rows.field_value_id, rows.day)
        counts.append(count_by_day(logit, flat[1])[1])
    departures = np.bincount(known.field_value_id, known.impressions, known.n_field_values)
    groups = {"all": departures >= 0, f"below {SMALL}": departures < SMALL}
    return {
        name: [each.where(picked).sum(axis=1).reshape(-1, 1) for each in counts]
        for name, picked in groups.items()
    }


def below(parts: list[ResponseCounts]) -> ResponseCounts:
    """The days of all windows below one another."""
    columns = zip(*(vars(each).values() for each in parts), strict=True)
    return ResponseCounts(*map(np.concatenate, columns))


def gains_table(data: Path) -> str:
    """A row for all routes and one for the small ones.

    Raises:
        DataError: the log is not there, lacks a column, or has too few days for a window.
    """
    params = read_params()
    days, counts = list(read_manifest(data / MANIFEST).days), params.split.counts
    found = []
    for last_day in days[sum(counts.values()) - 1 :: counts["test"]]:
        with tempfile.TemporaryDirectory() as place:
            parts = scored(data, params, last_day, Path(place))
        found.append(window_counts(*parts))
        print(last_day, file=sys.stderr, flush=True)
    if not found:
        raise DataError(f"{data} has {len(days)} days, too few for a window of {counts}")
    lines = [["routes", "test days", "departures", "LogLoss, flat", "tree", "gain ·10⁻⁵"]]
    for group in found[0]:
        tree, flat = (below([of[group][side] for of in found]) for side in (0, 1))
        losses = [f"{float(c.sum().log_loss / c.sum().impressions):.5f}" for c in (flat, tree)]
        gained = gain_interval(log_loss_terms, tree, flat)
        ends = [f"{1e5 * x:+.1f}" for x in (gained.value, gained.low, gained.high)]
        amounts = [f"{tree.shape[0]}", f"{tree.impressions.sum():,}"]
        lines.append([group, *amounts, *losses, f"{ends[0]} [{ends[1]}, {ends[2]}]"])
    return aligned(lines)


def main() -> None:
    """Print the gains."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the landed flights log")
    try:
        print(gains_table(parser.parse_args().data))
    except AdaCalibError as error:
        sys.exit(f"bench.nested_flights: {error}")


if __name__ == "__main__":
    main()
