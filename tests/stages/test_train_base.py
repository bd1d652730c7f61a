"""train_base: training days in, a base model out, whole or not at all."""

import math
import shutil

import numpy as np
import pyarrow as pa
import pytest

from pipeline.core.errors import (
    ArtifactError,
    DataError,
    NotEnoughDataError,
    ParamsError,
    ToolError,
    TrainingError,
)
from pipeline.core.files import read_json
from pipeline.model import training
from pipeline.model.scoring import load_base
from tests.stages.worlds import CALIBRATION, TEST, TRAINING, busy_day, log_of, train
from tests.tiny_logs import files_of


def test_the_model_says_what_it_is(tmp_path):
    log = log_of(tmp_path)
    manifest = read_json(train(tmp_path, log) / "manifest.json")
    assert manifest["conventions"]["label"] == "click"
    assert manifest["network"]["vocabulary_sizes"] == [5]
    assert manifest["days"]["fitting"] == TRAINING[:-1]
    assert manifest["days"]["held_out"] == TRAINING[-1:]
    assert [record["epoch"] for record in manifest["history"]] == [1, 2, 3]
    losses = [record["held_out_loss"] for record in manifest["history"]]
    assert manifest["best_epoch"] == 1 + int(np.argmin(losses))


def test_training_twice_gives_the_same_bytes(tmp_path):
    log = log_of(tmp_path)
    assert files_of(train(tmp_path, log)) == files_of(train(tmp_path, log, "again"))


def test_training_is_kept_beside_the_model_until_the_model_is_there(tmp_path, monkeypatch):
    """Killed after an epoch, the next run goes on and ends with the same bytes."""
    log = log_of(tmp_path)
    undisturbed = files_of(train(tmp_path, log, "undisturbed"))
    save = training.save_epoch

    def save_and_stop(*where, **state):
        save(*where, **state)
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "save_epoch", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, log)
    assert not (tmp_path / "base").exists()
    assert (tmp_path / ".base.training").is_dir()
    monkeypatch.undo()
    assert files_of(train(tmp_path, log)) == undisturbed
    assert sorted(p.name for p in tmp_path.iterdir()) == ["base", "data", "split", "undisturbed"]


def test_features_are_learned_from_the_days_before_the_held_out_ones(tmp_path):
    newest = busy_day(TRAINING[-1], item=["new"] * 60, price=np.full(60, 1e6))
    one = load_base(train(tmp_path, log_of(tmp_path, {TRAINING[-1]: newest})))
    assert one.encoder.categorical["item"].names == [None, "001", "NA", "a", "b"]
    (tmp_path / "other").mkdir()
    other = load_base(train(tmp_path / "other", log_of(tmp_path / "other")))
    assert one.encoder.numeric == other.encoder.numeric


def test_it_knows_columns_of_a_field_and_no_value_of_it(tmp_path):
    """Values come and go between two trainings, and are none of the base's business."""
    manifest = read_json(train(tmp_path, log_of(tmp_path)) / "manifest.json")
    assert manifest["field"] == {"columns": ["item"], "values": [None], "pooled": []}


def test_other_days_than_those_of_training_are_not_even_read(tmp_path):
    log = log_of(tmp_path)
    for day in [*CALIBRATION, *TEST]:
        for path in (tmp_path / "data" / f"day={day}").iterdir():
            path.unlink()
    train(tmp_path, log)


def test_a_training_day_that_is_not_the_one_that_was_split_is_refused(tmp_path):
    """Of any training day; the others are of no interest."""
    log = log_of(tmp_path)
    before = files_of(train(tmp_path, log))
    for day in [*TRAINING, *CALIBRATION, *TEST]:
        again = tmp_path / day
        log_of(again, {day: busy_day(day, 61)})
        shutil.copy(tmp_path / "split" / "training.json", again / "split" / "training.json")
        if day in TRAINING:
            with pytest.raises(ArtifactError, match=f"^{day} was landed again after it was split"):
                train(again, log)
            assert not (again / "base").exists()
        else:
            assert files_of(train(again, log)) == before


def test_a_log_of_aggregates_is_trained_by_its_counts(tmp_path):
    shown = np.full(60, 5)
    days = {day: busy_day(day, shown=shown, click=np.arange(60) % 6) for day in TRAINING}
    base = load_base(train(tmp_path, log_of(tmp_path, days, impressions="shown")))
    assert base.columns == ["item", "price", "click", "shown"]
    losses = [record["held_out_loss"] for record in base.manifest["history"]]
    assert all(loss < math.log(2) + 0.05 for loss in losses)  # nats per impression, half respond


def test_a_field_of_two_columns_is_one_value(tmp_path):
    log = log_of(tmp_path, field=("item", "shown"))
    base = load_base(train(tmp_path, log))
    assert base.encoder.field == ("item", "shown")
    assert base.columns == ["item", "shown", "price", "click"]


def test_nulls_are_told_apart_from_values(tmp_path):
    price = pa.array([None, 2.0] * 30)
    item = pa.array(["a", None] * 30)
    days = {day: busy_day(day, price=price, item=item) for day in TRAINING}
    base = load_base(train(tmp_path, log_of(tmp_path, days)))
    assert base.manifest["network"]["n_numeric"] == 2
    unknown = pa.table({"item": pa.array([None, "never"], "string"), "price": [None, 1e300]})
    assert np.isfinite(base.uncalibrated_logit(base.encoder.encode(unknown), 8)).all()


def test_an_infinite_feature_stops_by_day_column_and_row(tmp_path):
    """-1 and 0 under log1p; the model of before stays."""
    before = files_of(train(tmp_path, log_of(tmp_path)))
    with np.errstate(divide="ignore"):
        age = np.log1p(np.array([0.0, -1.0] * 30))
    log = log_of(tmp_path / "odd", {TRAINING[1]: busy_day(TRAINING[1], price=age)})
    with pytest.raises(DataError, match=f"day {TRAINING[1]}, column price is -inf in row 1"):
        train(tmp_path / "odd", log, "../base")
    assert files_of(tmp_path / "base") == before


def test_a_training_that_runs_away_publishes_nothing(tmp_path):
    log = log_of(tmp_path)
    with pytest.raises(TrainingError, match=r"epoch 1, batch 2 of 6: .* lower"):
        train(tmp_path, log, learning_rate=1e30)
    assert not (tmp_path / "base").exists()


def test_a_damaged_day_is_named(tmp_path):
    log = log_of(tmp_path)
    part = tmp_path / "data" / f"day={TRAINING[2]}" / "part-0.parquet"
    part.write_bytes(part.read_bytes()[:-100])
    with pytest.raises(DataError, match=TRAINING[2]):
        train(tmp_path, log)


def test_one_training_day_is_not_enough(tmp_path):
    log = log_of(tmp_path)
    with pytest.raises(NotEnoughDataError, match=r"held_out_share 0.9 of 4 training days"):
        train(tmp_path, log, held_out_share=0.9)


def test_a_log_without_features_is_refused(tmp_path):
    log = log_of(tmp_path, categorical=(), numeric=())
    with pytest.raises(ParamsError, match="both empty"):
        train(tmp_path, log)


@pytest.mark.parametrize("device", ["gpu", ""])
def test_a_device_that_is_not_there_is_refused(tmp_path, monkeypatch, device):
    monkeypatch.setenv("ADACALIB_DEVICE", device)
    with pytest.raises(ToolError, match=f"ADACALIB_DEVICE is '{device}'"):
        train(tmp_path, log_of(tmp_path))
