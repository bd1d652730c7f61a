"""Rows as the log's files hold them: what was null there is null here, what was made there too."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from pipeline.checkpoint.bundle import export, merge
from pipeline.checkpoint.bundle import load as load_bundle
from pipeline.core.errors import DataError
from pipeline.data.ingest.file_reader import land_files
from pipeline.data.ingest.mapping import Mapping, TimeRule
from pipeline.data.log_store.day_rows import read_day
from pipeline.data.log_store.manifest import read_manifest
from pipeline.encoding.reading import Reading
from pipeline.serving.offline import score_files
from pipeline.serving.predictor import Predictor, load
from pipeline.serving.requests import ARROW, inputs_of
from tests.checkpoint import parts

RULES = Mapping.model_validate(
    {
        "format": "flights",
        "kind": "csv",
        "delimiter": "|",
        "time_zone": "America/New_York",
        "time": {"column": "ts", "format": "iso8601"},
        "nulls": ("", "--"),
        "number_nulls": ("", "n/a"),
        "columns": {"carrier": "text", "origin": "text"},
        "made": {"distance": {"rule": "hour"}},
    }
)
STAMPS = ["2024-04-01T03:59:00Z", "2024-04-01 12:00:00.5 UTC", "2024-04-01T14:00:00+02:00"]
FILES = {"ts": STAMPS, "carrier": ["--", "AA", ""], "origin": ["JFK", "--", "EWR"]}
PIPES = csv.WriteOptions(delimiter="|")
LANDED = {"carrier": [None, "AA", None], "origin": ["JFK", None, "EWR"], "distance": [23, 8, 8]}


@pytest.fixture(scope="module")
def predictor(tmp_path_factory) -> Predictor:
    """Of a model whose feature `distance` is the hour of the row's time."""
    folder = tmp_path_factory.mktemp("reading")
    path = folder / "log.csv"
    csv.write_csv(pa.table(FILES), path, PIPES)
    land_files(folder / "data", RULES, [path])
    manifest = read_manifest(folder / "data" / "manifest.json")
    days = [read_day(folder / "data", day) for day in manifest.days]
    assert pa.concat_tables(days).select([*LANDED]).to_pydict() == LANDED
    return model_of(folder, reading=dict(manifest.reading))


def model_of(folder: Path, **conventions) -> Predictor:
    """A model of a log with such conventions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "CONVENTIONS", parts.CONVENTIONS | conventions)
        merge(*parts.write_parts(folder, parts.bent_map(5)), folder / "model")
    export(load_bundle(folder / "model"), folder / "model")
    return load(folder / "model")


def same(predictor: Predictor, rows: dict[str, list]) -> None:
    """Rows are scored as those that were landed, in every way in which rows can come."""
    expected = predictor.predict(pa.table(LANDED))
    assert expected.unseen.tolist() == [False, False, False]
    table = pa.table(rows)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    bodies = [
        (orjson.dumps({"columns": rows}), "application/json"),
        (orjson.dumps({"records": table.to_pylist()}), "application/json"),
        (sink.getvalue().to_pybytes(), ARROW),
    ]
    found = [predictor.run(inputs_of(body, kind, predictor, 9)) for body, kind in bodies]
    for scores in [*found, predictor.predict(table)]:
        np.testing.assert_array_equal(scores.calibrated_logit, expected.calibrated_logit)
        assert scores.unseen.tolist() == expected.unseen.tolist()


def test_rows_of_the_files_are_scored_as_the_landed_ones(predictor):
    same(predictor, FILES)
    same(predictor, {**FILES, "distance": [23, 8, 8]})
    same(predictor, {**LANDED, "distance": ["23", "8", " 8"]})


@pytest.mark.parametrize("row", [0, 1, 5, 8])
@pytest.mark.parametrize(("column", "spelled"), [("distance", "12"), ("ts", STAMPS[0])])
def test_a_text_that_is_no_number_or_stamp_is_named_by_its_row(predictor, row, column, spelled):
    values = [spelled] * 9
    values[row:] = ["wrong", *["worse"] * (8 - row)]
    sent = {"carrier": ["AA"] * 9, "origin": ["JFK"] * 9, column: values}
    for form in ({"columns": sent}, {"records": pa.table(sent).to_pylist()}):
        with pytest.raises(DataError, match=rf"row {row}: .*'wrong'"):
            inputs_of(orjson.dumps(form), "application/json", predictor, 9)
    with pytest.raises(DataError, match=rf"column distance: row {row}: .*'wrong'"):
        predictor.predict(pa.table(sent))


@pytest.mark.parametrize(
    ("form", "zone", "stamps"),
    [
        ("epoch_s", None, [1_711_943_940, 1_711_972_800, "1711972800.5"]),
        ("%d.%m.%Y %H:%M", "UTC", ["01.04.2024 03:59", "01.04.2024 12:00", "01.04.2024 12:00"]),
    ],
)
def test_stamps_are_read_in_the_form_that_the_log_has(form, zone, stamps):
    time = {"column": "ts", "format": form, "zone": zone}
    reading = Reading.of(asdict(RULES.model_copy(update={"time": TimeRule(**time)}).reading))
    for column in (pa.array(map(str, stamps)), pa.chunked_array([[str(s)] for s in stamps])):
        assert reading.served("distance", pa.table({"ts": column})).to_pylist() == [23, 8, 8]


def test_a_file_of_the_log_is_scored_as_its_landed_rows(predictor, tmp_path):
    expected = predictor.predict(pa.table(LANDED)).calibrated_logit
    csv.write_csv(pa.table(FILES), tmp_path / "log.csv", PIPES)
    csv.write_csv(pa.table(FILES), tmp_path / "commas.csv")
    pq.write_table(pa.table(FILES), tmp_path / "log.parquet")
    for name in ("log.csv", "commas.csv", "log.parquet"):
        counted = score_files(predictor, [tmp_path / name], tmp_path / "out.parquet", keep=["ts"])
        scored = pq.read_table(tmp_path / "out.parquet")
        np.testing.assert_array_equal(scored["calibrated_logit"], expected)
        assert counted.unseen == 0


def test_numbers_are_null_where_the_log_s_were(predictor):
    absent = {**LANDED, "distance": [None, None, None]}
    spelled = {**LANDED, "distance": ["n/a", None, ""]}
    scores = [
        predictor.run(inputs_of(orjson.dumps({"columns": rows}), "", predictor, 9))
        for rows in (absent, spelled)
    ]
    np.testing.assert_array_equal(scores[0].calibrated_logit, scores[1].calibrated_logit)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"carrier": ["AA"], "origin": ["JFK"]}, "distance is missing.*, or ts, of which it is"),
        ({"carrier": ["AA"], "origin": ["JFK"], "ts": ["noon"]}, "column ts is 'noon'"),
        ({"carrier": ["AA"], "origin": ["JFK"], "distance": ["far"]}, "column distance: "),
    ],
)
def test_what_neither_is_there_nor_can_be_made_is_refused(predictor, rows, said, tmp_path: Path):
    with pytest.raises(DataError, match=said):
        predictor.predict(pa.table(rows))
    with pytest.raises(DataError, match=said):
        inputs_of(orjson.dumps({"columns": rows}), "", predictor, 9)
    pq.write_table(pa.table(rows), tmp_path / "in.parquet")
    with pytest.raises(DataError, match=said):
        score_files(predictor, [tmp_path / "in.parquet"], tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize(
    ("unit", "zone"), [("s", "UTC"), ("ms", "UTC"), ("us", None), ("s", "Europe/Berlin")]
)
def test_an_instant_in_no_calendar_is_refused_by_its_column(unit, zone):
    rule = TimeRule(column="ts", format="iso8601", zone=None if zone else "Europe/Berlin")
    reading = Reading.of(asdict(RULES.model_copy(update={"time": rule}).reading))
    for instant in (2**62, -(2**62)):
        rows = pa.table({"ts": pa.array([instant], pa.timestamp(unit, zone))})
        with pytest.raises(DataError):
            reading.served("distance", rows)


def test_a_column_that_others_are_made_of_stands_beside_columns_of_several_kinds(predictor):
    rows = {**FILES, "carrier": ["AA", 7, True]}
    expected = predictor.predict(pa.table({**LANDED, "carrier": ["AA", "7", "true"]}))
    found = predictor.run(inputs_of(orjson.dumps({"columns": rows}), "", predictor, 9))
    np.testing.assert_array_equal(found.calibrated_logit, expected.calibrated_logit)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), "dictionary"])
def test_numbers_in_texts_are_numbers_in_every_type_that_arrow_has_for_text(predictor, kind):
    texts = pa.array(["23", "n/a", " 8"])
    texts = texts.dictionary_encode() if kind == "dictionary" else texts.cast(kind)
    expected = predictor.predict(pa.table({**LANDED, "distance": [23, None, 8]}))
    found = predictor.predict(pa.table({**LANDED, "distance": texts}))
    np.testing.assert_array_equal(found.calibrated_logit, expected.calibrated_logit)


@pytest.mark.parametrize(
    "spelled", [[True, False, None], ["true", "False", "n/a"], ["1", "0", None], [1, 0, None]]
)
def test_booleans_of_the_log_are_numbers_however_they_are_spelled(predictor, tmp_path, spelled):
    types = {"reading": predictor.conventions["reading"], "column_types": {"distance": "bool"}}
    flags = model_of(tmp_path, **types)
    expected = flags.predict(pa.table({**LANDED, "distance": [1.0, 0.0, None]})).calibrated_logit
    rows = {**LANDED, "distance": spelled}
    sent = flags.run(inputs_of(orjson.dumps({"columns": rows}), "", flags, 9))
    csv.write_csv(pa.table(rows), tmp_path / "rows.csv", PIPES)
    score_files(flags, [tmp_path / "rows.csv"], tmp_path / "out.parquet")
    for found in (
        sent.calibrated_logit,
        flags.predict(pa.table(rows)).calibrated_logit,
        pq.read_table(tmp_path / "out.parquet")["calibrated_logit"],
    ):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(DataError, match="distance"):
        inputs_of(orjson.dumps({"columns": {**rows, "distance": ["x", 1, 0]}}), "", flags, 9)
