"""A mapping that cannot be is refused with its key."""

import json

import pytest

from pipeline.core.errors import DataError
from pipeline.data.ingest.mapping import read_mapping
from pipeline.data.ingest.sources import land, land_sources
from tests.data.logs import mapping


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"colour": 1}, "colour is unknown"),
        ({"delimeter": ";"}, "delimeter is unknown (did you mean delimiter?)"),
        ({"kind": "xml"}, 'kind is "xml": it should be'),
        ({"time": None}, "exactly one of time, date"),
        ({"file_day": "(x)"}, "exactly one of time, date"),
        ({"file_day": "x"}, '"x": it has 0 groups'),
        ({"delimiter": "\u00a7"}, ": '\u00a7' is no ASCII character"),
        ({"time_zone": "Europe/Pariss"}, ": there is no time zone 'Europe/Pariss'"),
        ({"encoding": "rot13"}, "there is no encoding 'rot13'"),
        ({"quote": "\n"}, ": '\\n' is no ASCII character"),
        ({"file_day": "(x"}, "a valid regular expression"),
        ({"columns": {"item": "string"}}, "columns.item.type"),
        ({"made": {"dear": {"rule": "above", "of": "price"}}}, "the rule above takes"),
        ({"made": {"item": {"rule": "hour"}}}, "in columns and in made"),
        ({"columns": {"item": "text", "Item": "text"}}, "['item'] are there twice"),
        ({"positions": ["ts", "item"]}, "are not among positions"),
        ({"columns": {"item": "text", "again": {"source": "item", "type": "int8"}}}, "one type"),
        ({"at_most": {"item": "price"}}, "['item']"),
        ({"made": {"dear": {"rule": "above", "of": "item", "limit": 9}}}, "['item']"),
    ],
)
def test_a_mapping_that_cannot_be_is_refused_with_its_key(tmp_path, keys, sentence):
    document = mapping().model_dump(exclude_defaults=True)
    (tmp_path / "mine.yaml").write_text(json.dumps({**document, **keys}))
    with pytest.raises(DataError) as error:
        read_mapping(str(tmp_path / "mine.yaml"))
    assert sentence in str(error.value)


def test_a_mapping_that_is_not_there_is_named_with_those_that_ship(tmp_path):
    with pytest.raises(DataError, match=r"no mapping 'nope': .*'ali-ccp', .*'avazu'"):
        land_sources("nope", tmp_path / "data", [tmp_path / "log.csv"])
    with pytest.raises(DataError, match=r"mine\.yaml is read from files, and none is named"):
        land("mine.yaml", tmp_path / "data")
    with pytest.raises(DataError, match=r"no mapping 'avasu': .*'avazu'"):
        read_mapping("avasu")
