"""A small walk up to the evaluation, and the stage run on it."""

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit
from sklearn.metrics import log_loss

from pipeline.checkpoint.bundle import load
from pipeline.core.files import manifest_sums, read_json, write_checksums, write_json
from pipeline.encoding.values import NULL_NAME
from pipeline.formats.champion import write_pin
from pipeline.formats.maps import affine_map, identity_map, write_maps
from pipeline.params.sections import EvaluateParams, ScoreParams
from pipeline.stages import score
from pipeline.stages.evaluate import run
from tests.checkpoint import parts
from tests.stages.worlds import write_split
from tests.tiny_logs import write_log

PARAMS = EvaluateParams(replicates=100, largest_field_values=3, confidence=0.95, seed=1)
SCORE = ScoreParams(batch_size=4096, keep_features=False)
DAYS = [f"2013-09-{day}" for day in range(25, 31)]


def day_table(seed, **columns):
    """300 rows of a log, with columns added or replaced."""
    table = parts.rows(300, seed)
    for name, column in columns.items():
        table = table.append_column(name, pa.array(column))
    return table


KNOWN = (*parts.CARRIERS, "ZZ", NULL_NAME)
V = len(KNOWN) + 1


def shifted(by):
    """A line of slope 1 for each field value."""
    return affine_map(np.asarray(by, float) * np.ones(V), np.ones(V))


SERVED = shifted(0.9)
MAPS = {
    "identity": identity_map(V),
    "isotonic": shifted(1.5),
    "eb_platt": shifted(np.linspace(1.2, 1.8, V)),
    "adacalib": shifted(np.linspace(1.2, 1.8, V)),
}


def rolling_maps():
    """Of each method: the frozen map, better by a little every morning."""
    return {
        name: {
            day: whole if name == "identity" else shifted(whole(np.zeros(V), np.arange(V)) + on)
            for day, on in zip(DAYS, np.linspace(0, 0.2, 6), strict=True)
        }
        for name, whole in MAPS.items()
    }


LEARNED = {
    "day": "2013-09-24",
    "impressions": 4000.0,
    "responses": 400.0,
    "expected_responses": 300.0,
    "expected_variance": 270.0,
}


def write_walk(folder, tables, conventions=None, shipped=None, **about):
    """The inputs of the stage: a small walk whose last days are the test days."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "CONVENTIONS", parts.CONVENTIONS | (conventions or {}))
        base, calibrator = parts.write_parts(folder, known=KNOWN)
    about = read_json(calibrator / "manifest.json") | {
        "label_days": DAYS,
        "learning_days": [LEARNED],
        "rolling": {"horizon_days": 1, "learned_until": "2013-09-24"},
        "shipped": {"learned_until": DAYS[-1]},
        **about,
    }
    parts.write_calibrator(calibrator, MAPS, rolling_maps(), about)
    write_maps(calibrator / "maps.parquet", MAPS | {"adacalib": shipped or shifted(2.0)})
    parts.write_model(base, calibrator, folder / "model")
    write_log(folder / "data", dict(zip(DAYS, tables, strict=True)))
    of_days = {"calibration": [], "test": DAYS}
    write_split(folder, of_days, parts.CONVENTIONS, binning_days=DAYS[:1])
    score.run(folder / "data", folder / "split", base, folder / "scores", params=SCORE)
    note_parts(folder)
    write_pin(folder / "champion.json", None)
    names = ("data", "split", "scores", "calibrator", "model", "champion.json")
    return tuple(folder / name for name in names)


def note_parts(folder):
    """Let the calibrator say that it was made from the split and the scores beside it."""
    of = manifest_sums({name: folder / name for name in ("split", "scores")})
    about = folder / "calibrator" / "manifest.json"
    write_json(about, read_json(about) | {"made_of": of})


def evaluate(folder, inputs):
    run(*inputs, folder / "evaluation.json", folder / "sums", params=PARAMS)
    return read_json(folder / "evaluation.json")


MADE = {"base": {"manifest.json": "a"}, "code": {"pipeline/a.py": "b"}, "params": {"log": {}}}


def set_lineage(model, lineage):
    """Give a checkpoint another lineage."""
    manifest = read_json(model / "manifest.json")
    (model / "manifest.json").unlink()
    write_checksums(model, manifest | {"lineage": lineage})


def loss_of(tables, by_day):
    """LogLoss over all rows when each day's uncalibrated logits go through that day's map."""
    model = load(by_day.pop("model"))
    labels, chances = [], []
    for day, table in zip(DAYS, tables, strict=True):
        said = model.predict(table)
        logit = by_day[day](said.uncalibrated_logit, said.field_value_id)
        chances.append(expit(logit))
        labels.append(table["late"].to_numpy())
    return log_loss(np.concatenate(labels), np.concatenate(chances))
