"""What is thrown at the public faces: mappings, rows, tables and requests, many without sense."""

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from bench.serving_model import SMALL_COLUMNS

TEXTS = st.text(max_size=6) | st.sampled_from(
    ["", "NA", "null", "a", "001", "1e5", "2024-03-04", "2024-03-04T05:06:07Z", "1,5", '"', "\\N"]
)
NUMBERS = st.integers(-3, 300) | st.floats() | st.sampled_from([2**53 + 1, 2**63, 1e308])
VALUES = TEXTS | NUMBERS | st.booleans() | st.none()
JSON = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
)
NAMES = ("ts", "item", "price", "click")
KINDS = ("text", "bool", "int8", "int64", "float32", "float64")

DAY_RULES: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"time": {"column": "ts", "format": "epoch_s"}},
        {"time": {"column": "ts", "format": "iso8601"}},
        {"time": {"column": "ts", "format": "iso8601", "zone": "America/New_York"}},
        {"date": {"column": "ts", "format": "%Y-%m-%d"}},
        {"row_blocks": 3},
        {"file_day": r"log(\d+)"},
    ]
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "delimiter": st.sampled_from([",", ";", "\t", "|", "x", '"']),
        "quote": st.sampled_from(['"', "'", None]),
        "escape": st.sampled_from(["\\", '"', None]),
        "encoding": st.sampled_from(["utf-8", "latin-1", "utf-16", "ascii", "rot13"]),
        "decimal": st.sampled_from([".", ","]),
        "thousands": st.sampled_from([None, ",", "."]),
        "nulls": st.lists(TEXTS, max_size=2),
        "number_nulls": st.lists(TEXTS, max_size=2),
        "max_rejected": st.integers(0, 3),
        "drop_null": st.lists(st.sampled_from(NAMES), max_size=2),
        "keep": st.dictionaries(st.sampled_from(NAMES), st.lists(TEXTS, max_size=2), max_size=1),
        "at_most": st.just({"click": "price"}),
        "made": st.just({"hot": {"rule": "equals", "of": "item", "values": ["a"]}}),
        "positions": st.just(list(NAMES)),
        "nonsense": VALUES,
    },
)
COLUMNS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(KINDS), min_size=1)


@st.composite
def mappings(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    """A mapping that may or may not make sense."""
    zone = draw(st.sampled_from(["UTC", "Asia/Shanghai"]))
    base: dict[str, Any] = {"format": "fuzz", "kind": kind, "time_zone": zone}
    if draw(st.booleans()):
        return {**base, "columns": draw(COLUMNS), **draw(DAY_RULES), **draw(OPTIONS)}
    sound = {"item": "text", "price": "float64", "click": "int8"}
    options = draw(OPTIONS)
    names = draw(st.lists(st.sampled_from(sorted(options)), max_size=1)) if options else []
    date = {"date": {"column": "ts", "format": "%Y-%m-%d"}}
    return base | {"columns": sound} | date | {name: options[name] for name in names}


STAMPS = st.sampled_from(["1709500000", "2024-03-04", "2024-03-04T05:06:07Z", ""]) | TEXTS
SOUND = st.tuples(
    st.sampled_from(["2024-03-04", "2024-03-05"]),
    TEXTS,
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from("01"),
)
ROWS = st.lists(SOUND, min_size=1, max_size=8) | st.lists(
    st.tuples(STAMPS, TEXTS, st.sampled_from(["1", "2.5", "1,5", ""]) | TEXTS, st.just("1")),
    max_size=6,
)


ARROW = st.sampled_from(
    [
        pa.string(), pa.large_string(), pa.int8(), pa.int64(), pa.uint64(), pa.float16(),
        pa.float32(), pa.float64(), pa.bool_(), pa.null(), pa.binary(), pa.date32(),
        pa.timestamp("s"), pa.timestamp("ns", "UTC"), pa.decimal128(10, 2),
        pa.list_(pa.int8()), pa.dictionary(pa.int32(), pa.string()), pa.struct([("a", pa.int8())]),
    ]
)  # fmt: skip
CELLS = {
    "string": TEXTS, "large_string": TEXTS, "binary": st.binary(max_size=4),
    "int8": st.integers(-128, 127), "int64": st.integers(-(2**63), 2**63 - 1),
    "uint64": st.integers(0, 2**64 - 1), "bool": st.booleans(), "float": st.floats(width=32),
    "halffloat": st.floats(width=16), "double": st.floats(), "date32[day]": st.dates(),
    "timestamp[s]": st.integers(0, 2**32), "timestamp[ns, tz=UTC]": st.integers(0, 2**60),
}  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Some columns of any type."""
    size = draw(st.integers(0, 5))
    if size and draw(st.booleans()):
        drawn = [draw(SOUND) for _ in range(size)]
        days, items, prices, clicks = zip(*drawn, strict=True)
        columns = {"ts": pa.array(days), "item": pa.array(items)}
        columns |= {"price": pa.array(map(float, prices)), "click": pa.array(map(int, clicks))}
        return pa.table(columns)
    columns = {}
    for name in draw(st.lists(st.sampled_from((*NAMES, "é", "")), unique=True, max_size=5)):
        kind = draw(ARROW)
        cell = CELLS.get(str(kind), st.none()) | st.none()
        columns[name] = pa.array([draw(cell) for _ in range(size)], kind)
    return pa.table(columns)


COLUMNS_READ = ("item", "advertiser", *SMALL_COLUMNS, "price", "age")
WHOLE = st.fixed_dictionaries({n: st.lists(VALUES, min_size=2, max_size=2) for n in COLUMNS_READ})
RECORDS = st.lists(st.fixed_dictionaries(dict.fromkeys(COLUMNS_READ, VALUES)), max_size=3)
LIKELY = st.fixed_dictionaries(
    {n: st.lists(TEXTS | st.none(), min_size=2, max_size=2) for n in COLUMNS_READ[:-2]}
    | {n: st.lists(st.integers(-5, 900), min_size=2, max_size=2) for n in COLUMNS_READ[-2:]}
)
BODIES = (
    st.builds(lambda c: {"columns": c}, LIKELY | WHOLE)
    | st.builds(lambda r: {"records": r}, RECORDS)
    | JSON
    | st.binary(max_size=60)
)
MEDIA = st.sampled_from(
    ["application/json", "application/vnd.apache.arrow.stream", "", "text/plain"]
)
