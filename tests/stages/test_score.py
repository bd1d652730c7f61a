"""score: every day of the split, its rows in their order, with the base model's logits."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from pipeline.core.errors import ArtifactError, DataError
from pipeline.core.files import manifest_sums, read_json, write_json
from pipeline.encoding.values import NULL_NAME
from pipeline.formats.days import day_number
from pipeline.formats.scores import read_features, read_scores, read_scores_manifest
from pipeline.model.scoring import load_base, write_base
from pipeline.params.sections import ScoreParams
from pipeline.stages import score
from tests.stages.worlds import CALIBRATION, PARTS, TEST, TRAINING, busy_day, log_of, train
from tests.tiny_logs import files_of


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """A log with nulls and new values on its test day, and a base model."""
    folder = tmp_path_factory.mktemp("walked")
    item = pa.array(["a", None, "never", "", "b", "NA"] * 10)
    train(folder, log_of(folder, {TEST[0]: busy_day(TEST[0], item=item)}))
    return folder


def scored(folder, target, data=None, **values):
    """What the stage publishes for the log in `folder`."""
    params = ScoreParams(**{"batch_size": 1000, "keep_features": True, **values})
    paths = (data or folder / "data", folder / "split", folder / "base", target)
    score.run(*paths, params=params)
    return target


def test_every_day_has_the_logits_of_its_rows_in_their_order(walked, tmp_path):
    scores = read_scores(scored(walked, tmp_path / "scores"), *PARTS)
    base = load_base(walked / "base", read_scores_manifest(tmp_path / "scores")["field"])
    start = 0
    for day in [*TRAINING, *CALIBRATION, *TEST]:
        table = pq.read_table(walked / "data" / f"day={day}")
        rows = slice(start, start + len(table))
        encoded = base.encoder.encode(table)
        logit = base.uncalibrated_logit(encoded, 7)
        np.testing.assert_allclose(scores.uncalibrated_logit[rows], logit, atol=2e-6)
        np.testing.assert_array_equal(scores.field_value_id[rows], encoded.field_value_id)
        np.testing.assert_array_equal(scores.responses[rows], table["click"])
        assert set(scores.day[rows].tolist()) == {day_number(day)}
        start += len(table)
    assert start == len(scores)


def test_features_travel_in_the_order_of_the_network(walked, tmp_path):
    target = scored(walked, tmp_path / "scores")
    base = load_base(walked / "base")
    categorical, numeric = read_features(target, "test")
    encoded = base.encoder.encode(pq.read_table(walked / "data" / f"day={TEST[0]}"))
    np.testing.assert_array_equal(categorical, encoded.categorical)
    np.testing.assert_array_equal(numeric, encoded.numeric)
    assert read_scores_manifest(target)["features"] == {
        "categorical": [{"name": "item", "size": 5}],
        "numeric": ["price"],
    }


def test_features_stay_behind_where_they_are_not_asked_for(walked, tmp_path):
    target = scored(walked, tmp_path / "scores", keep_features=False)
    columns = pq.read_schema(target / f"day={TEST[0]}.parquet").names
    assert columns == ["uncalibrated_logit", "field_value_id", "impressions", "responses"]
    assert read_scores_manifest(target)["features"] == {"categorical": [], "numeric": []}


def test_scoring_twice_gives_the_same_bytes_whatever_the_threads(walked, tmp_path):
    one = files_of(scored(walked, tmp_path / "one"))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(before, 2))
        assert files_of(scored(walked, tmp_path / "other")) == one
    finally:
        torch.set_num_threads(before)


def test_the_batch_size_does_not_matter_beyond_the_last_bits(walked, tmp_path):
    one = read_scores(scored(walked, tmp_path / "one"), *PARTS)
    other = read_scores(scored(walked, tmp_path / "other", batch_size=7), *PARTS)
    np.testing.assert_allclose(one.uncalibrated_logit, other.uncalibrated_logit, atol=2e-6)


def test_values_that_are_new_on_a_test_day_have_ids_after_those_of_the_days_before(
    walked, tmp_path
):
    """Null is one; the base knows none of them."""
    target = scored(walked, tmp_path / "scores")
    manifest, scores = read_scores_manifest(target), read_scores(target, "test")
    entry = manifest["days"][TEST[0]]
    assert (entry["rows"], entry["null_rows"], entry["unseen_rows"]) == (60, 10, 0)
    values = [None, "001", "NA", "a", "b", "", "never", NULL_NAME]
    assert manifest["field"] == {"columns": ["item"], "values": values, "pooled": []}
    assert Counter(scores.field_value_id.tolist()) == dict.fromkeys(range(2, 8), 10)
    assert manifest["parts"] == PARTS
    assert manifest["conventions"]["field"] == ["item"]


def test_the_manifest_names_every_file_of_the_base(walked, tmp_path):
    manifest = read_scores_manifest(scored(walked, tmp_path / "scores"))
    assert manifest["made_of"] == manifest_sums({n: walked / n for n in ("split", "base")})


def test_base_logits_of_any_size_arrive(walked, tmp_path):
    """A base that says ±120 is believed; nothing passes through a probability."""
    folder = tmp_path / "loud"
    log = log_of(folder)
    train(folder, log, epochs=1)
    base = load_base(folder / "base")
    with torch.no_grad():
        base.network.layers[-1].weight.mul_(0)
        base.network.layers[-1].bias.fill_(-120.0)
    write_base(folder / "base", base.network, base.manifest)
    scores = read_scores(scored(folder, tmp_path / "scores"), *PARTS)
    assert set(scores.uncalibrated_logit.tolist()) == {-120.0}


def test_a_base_that_has_seen_a_test_day_is_refused(walked, tmp_path):
    contract = read_json(walked / "split" / "manifest.json")
    parts = {"training": [], "calibration": TRAINING[1:2], "test": TEST}
    write_json(tmp_path / "split" / "manifest.json", {**contract, "parts": parts})
    params = ScoreParams(batch_size=10, keep_features=True)
    with pytest.raises(ArtifactError, match=f"trained on the calibration day {TRAINING[1]}"):
        score.run(
            walked / "data", tmp_path / "split", walked / "base", tmp_path / "scores", params=params
        )


def test_a_base_that_is_pinned_scores_later_days(walked, tmp_path):
    """Calibration alone is refreshed: the split moved on, the base did not."""
    contract = read_json(walked / "split" / "manifest.json")
    parts = {"training": CALIBRATION[:1], "calibration": CALIBRATION[1:], "test": TEST}
    moved = {**contract, "parts": parts, "binning_days": CALIBRATION[1:]}
    write_json(tmp_path / "split" / "manifest.json", moved)
    params = ScoreParams(batch_size=10, keep_features=True)
    paths = (walked / "data", tmp_path / "split", walked / "base", tmp_path / "scores")
    score.run(*paths, params=params)
    assert len(read_scores(tmp_path / "scores", *parts)) == 180


@pytest.mark.parametrize(
    ("column", "values", "sentence"),
    [
        ("price", [float("inf")] * 60, "column price is inf in row 0"),
        ("price", ["cheap"] * 60, "column price: type string is not a number"),
        ("click", pa.array([None] * 60, "int8"), "column click, row 0 is"),
        ("item", [0.5] * 60, "column item: a float column names values only by whole numbers"),
    ],
)
def test_what_is_wrong_with_a_day_names_it_and_publishes_nothing(
    walked, tmp_path, column, values, sentence
):
    log_of(tmp_path, {TEST[0]: busy_day(TEST[0], **{column: values})})
    with pytest.raises(DataError, match=f"day {TEST[0]}, {sentence}"):
        scored(walked, tmp_path / "scores", tmp_path / "data")
    assert not (tmp_path / "scores").exists()
    assert not list(tmp_path.glob(".scores*"))
