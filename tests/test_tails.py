"""Values beyond train_base.max_vocabulary share ids by a hash, from training to every answer."""

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.checkpoint.bundle import load
from pipeline.checkpoint.merged_model import MergedModel, MergedNetwork
from pipeline.checkpoint.onnx_graph import null_text, onnx_model
from pipeline.checkpoint.parity import prove_parity
from pipeline.checkpoint.runtimes import runtimes_of
from pipeline.checkpoint.serving_table import IDS, part_of
from pipeline.core.errors import ArtifactError
from pipeline.core.files import read_json
from pipeline.encoding.features import Encoder
from pipeline.encoding.values import POOLED_NAME
from pipeline.encoding.vocabulary import Vocabulary
from pipeline.formats.map_files import read_maps
from pipeline.model.network import BaseNetwork
from pipeline.model.scoring import load_base
from pipeline.serving.predictor import load as load_predictor
from tests.checkpoint.parts import CONVENTIONS, bent_map
from tests.whole_walk import DAYS, asked, project, walk

OWN, TAIL_ROWS = 2, 3
COMMON, RARE = ["big", "second"], [f"rare-{number}" for number in range(9)]
ITEMS = [*["big"] * 4, *["second"] * 3, *RARE[:8], None]  # the ninth comes on test days alone


def days_with_a_tail(rows: int = 160) -> dict[str, pa.Table]:
    """Days on which eight rare items come as often as null does."""
    days = {}
    for number, day in enumerate(DAYS):
        random = np.random.default_rng(number)
        items = [RARE[8] if i == RARE[0] and number > 5 else i for i in (ITEMS * rows)[:rows]]
        price, place = random.normal(size=rows), np.arange(rows) % len(ITEMS)
        click = (random.random(rows) < 1 / (1 + np.exp(price + place % 3 - 1))).astype(np.int8)
        shop = pa.array(["x", "y"] * (rows // 2))
        days[day] = pa.table({"item": items, "shop": shop, "price": price, "click": click})
    return days


@pytest.fixture(scope="module")
def tailed(tmp_path_factory):
    """A walk over a log whose two most frequent items have embeddings of their own."""
    values = {
        "log__field": ["shop"],
        "log__categorical": ["item"],
        "log__numeric": ["price"],
        "train_base__max_vocabulary": OWN,
        "train_base__tail_rows": TAIL_ROWS,
    }
    folder = tmp_path_factory.mktemp("tailed")
    return walk(project(folder, days_with_a_tail(), **values), "report")


def proof(folder, forms, tables):
    """Hold forms to the parts of a walk."""
    maps = read_maps(folder / "artifacts/calibrator/maps.parquet")
    model = load(folder / "artifacts/model")
    base, serving_map = load_base(folder / "artifacts/base"), maps[model.manifest["map"]]
    prove_parity(forms, model, base, serving_map, tables, tolerance=1e-6)


def test_the_artifacts_hold_the_tail_and_a_row_for_each_of_its_ids(tailed):
    base = read_json(tailed / "artifacts/base/manifest.json")
    (described,) = base["categorical"]
    assert described["values"] == [None, *COMMON, *[POOLED_NAME] * TAIL_ROWS]
    assert described["pooled"] == RARE[:8]
    assert base["network"]["vocabulary_sizes"] == [1 + OWN + TAIL_ROWS]
    assert base["pooled"] == {}  # which is of field values
    scores = read_json(tailed / "artifacts/scores/manifest.json")
    assert scores["features"]["categorical"] == [{"name": "item", "size": 1 + OWN + TAIL_ROWS}]
    assert "pooled_rows" not in scores["days"][DAYS[-1]]
    assert "pooled" not in read_json(tailed / "reports/evaluation.json")
    assert read_json(tailed / "artifacts/model/manifest.json")["base"]["categorical"] == [described]


def test_the_rare_are_told_apart_by_their_ids_and_from_what_nobody_has_seen(tailed):
    request = [*COMMON, *RARE, None, "", POOLED_NAME]
    columns = {"item": request, "shop": ["x"] * 14, "price": [0.5] * 14}
    answer, _ = asked(tailed, columns)
    probabilities = np.array(answer.json()["probability"])
    model = load(tailed / "artifacts/model")
    ids = model.encoder.categorical["item"].ids(pa.array(request))
    assert ids[:2].tolist() == [1, 2]
    assert set(ids[2:10].tolist()) == {3, 4, 5}
    assert ids[10:].tolist() == [0, 0, 0, 0]
    for each in set(ids.tolist()):
        assert len(set(probabilities[ids == each])) == 1
    assert len(set(probabilities)) == 1 + OWN + TAIL_ROWS
    table = pa.table({**columns, "item": [None if i == POOLED_NAME else i for i in request]})
    for says in (model.predict, load_predictor(tailed / "artifacts/model").predict):
        np.testing.assert_allclose(says(table).probability, probabilities, atol=2e-5)


def test_a_file_that_gives_one_rare_value_another_id_is_noticed_by_the_proof(tailed):
    """The rows of test days have rare values among them, so they are proved as well."""
    model = load(tailed / "artifacts/model")
    *others, served = runtimes_of(tailed / "artifacts/model", model)
    tables = [days_with_a_tail()[DAYS[-1]]]
    proof(tailed, [*others, served], tables)
    known = model.encoder.categorical["item"]
    item = replace(known, values=(*known.values, "zzz"), shared_ids=known.shared_ids - 1)
    encoder = replace(model.encoder, categorical={"item": item})
    wrong = replace(served, predict=replace(model, encoder=encoder).predict)
    with pytest.raises(ArtifactError, match=r"model\.onnx is not its parts"):
        proof(tailed, [wrong], tables)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\x1e"), max_size=4)


@settings(max_examples=50, deadline=None)
@given(st.lists(TEXTS, min_size=1, unique=True), st.integers(0, 9), st.integers(1, 9))
def test_the_onnx_file_gives_the_ids_that_the_encoder_gives(values, own, tail_rows):
    """Own, pooled, unseen and null."""
    pooled = tuple(sorted(values[own:]))
    item = Vocabulary(tuple(sorted(values[:own])), False, pooled, min(tail_rows, len(pooled)))
    encoder = Encoder({"item": item}, (), ("shop",), Vocabulary(("x",)))
    network = MergedNetwork(BaseNetwork([len(item) + 1], 0, 2, [2]), bent_map(2), None)
    made = onnx_model(MergedModel({"map": "m", "conventions": CONVENTIONS}, encoder, network))
    session = onnxruntime.InferenceSession(part_of(made, ["text.item"], [IDS]))
    asked_of = pa.array([*values, "\x1eunseen", None])
    texts = np.array(asked_of.fill_null(null_text(encoder)).to_pylist(), dtype=object)
    (ids,) = session.run(None, {"text.item": texts})
    np.testing.assert_array_equal(ids[:, 0], item.ids(asked_of))
    assert ids[-2:, 0].tolist() == [0, 0]
    onnx.checker.check_model(made)
