"""What the first rows of a log's files look like: how they are written, and what each column holds.

Here alone things are guessed: what is found is written down, to be read and corrected.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from glob import escape
from itertools import islice, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError
from pipeline.data.ingest.mapping import MISSING, Mapping
from pipeline.data.ingest.records import LogFile
from pipeline.data.ingest.text_files import names_in, open_bytes, reading
from pipeline.data.log_store.engine import engine, text
from pipeline.encoding.reading import Reading
from pipeline.encoding.stamps import StampRule, time_stamps
from pipeline.encoding.values import as_text

SAMPLE_BYTES, BLOCKS = 8 << 20, 2  # of a file, and of its rows
ODD_DELIMITERS = "\x01\x02\x1f~^#"  # of Hive and others, which no sniffer tries
NUMBER = re.compile(r"[+-]?\d+([.,]\d+)*([eE][+-]?\d+)?")
COMMA = re.compile(r"[+-]?\d+(,\d+)?|")
NESTED = re.compile(r"STRUCT|MAP|JSON|UNION|\]$")
STAMPS = (
    "iso8601",  # the first one, which digits alone are not
    *("epoch_s", "epoch_ms", "epoch_us", "%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M"),
    *("%m/%d/%Y %H:%M:%S", "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M:%S", "%d/%m/%Y %H:%M"),
    *("%d/%b/%Y:%H:%M:%S %z", "%Y/%m/%d %H:%M:%S", "%Y%m%d%H%M%S", "%Y%m%d%H", "%y%m%d%H"),
)
DATES = ("%Y-%m-%d", "%Y%m%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y")
OF_TIME = re.compile(r"time|date|day|hour|stamp|zeit|datum|_at$|^ts$|_ts$|^ts_", re.IGNORECASE)


@dataclass(frozen=True)
class ColumnLook:
    """What a column holds in the rows that were looked at.

    Attributes:
        name: of the column.
        type: of the mapping's; "time" and "date" where it holds these.
        rows: how many were looked at.
        nulls: how many of them have no value.
        values: the three most frequent.
        different: how many there are.
        texts: the values themselves, [rows].
        missing: spellings of a missing number.
        stamp: how time stamps or dates are spelled.
    """

    name: str
    type: str
    rows: int
    nulls: int
    values: tuple[str, ...]
    different: int
    texts: pa.StringArray
    missing: tuple[str, ...] = ()
    stamp: StampRule | None = None

    def __str__(self) -> str:
        shown = ", ".join(self.values)[:60]
        without = f", {self.nulls:,} without" if self.nulls else ""
        return f"{self.different:,} different{without}: {shown}"


FileLook: TypeAlias = tuple[dict[str, Any], list[ColumnLook]]  # keys of a mapping, and columns


def look_at(path: Path) -> FileLook:
    """What the first rows of a file look like: how it is written, and what its columns hold.

    Raises:
        DataError: the file is missing or empty, or no rows can be made out.
    """
    with reading(path), open_bytes(path) as stream:
        head = stream.read(SAMPLE_BYTES)
    if head.startswith(b"PAR1"):
        return _plain("parquet", path, path)
    encoding = _encoding_of(head)
    lines = head.decode(encoding, "replace").removeprefix("\ufeff")
    if len(head) == SAMPLE_BYTES:
        lines = lines[: lines.rfind("\n") + 1]
    with TemporaryDirectory(prefix="adacalib-") as place:
        sample = Path(place) / "log.txt"
        sample.write_text(lines, encoding="utf-8", newline="")
        look = _plain("json", sample, path) if lines.lstrip()[:1] == "{" else _csv(sample, path)
    return look if encoding == "utf-8" else (look[0] | {"encoding": encoding}, look[1])


def _encoding_of(head: bytes) -> str:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    try:
        head[:-4].decode()  # a character may be cut
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _plain(kind: str, sample: Path, path: Path) -> FileLook:
    """A file whose columns have names, without those that hold lists and the like."""
    try:
        with engine() as database:
            rows = database.sql(f"SELECT * FROM read_{kind}({text(escape(str(sample)))})")
            types = dict(zip(rows.columns, map(str, rows.types), strict=True))
    except duckdb.Error as error:
        raise DataError(f"{path} is no {kind}: {str(error).splitlines()[0]}") from None
    names = [name for name, type_ in types.items() if not NESTED.search(type_)]
    return _looked({"kind": kind}, sample, names)


def _csv(sample: Path, path: Path) -> FileLook:
    """The first of some dialects in which the sample can be read."""
    query = f"SELECT Delimiter FROM sniff_csv({text(str(sample))}, all_varchar = true)"
    try:
        with engine() as database:
            delimiter = database.execute(query).fetchall()[0][0]
    except duckdb.Error:
        delimiter = ","
    delimiter = "\t" if delimiter == "\\t" else delimiter
    first = sample.read_text().lstrip("\r\n").partition("\n")[0]
    if delimiter not in first and (odd := max(ODD_DELIMITERS, key=first.count)) in first:
        delimiter = odd
    quotes: list[dict[str, Any]] = [{}, {"escape": "\\"}, {"quote": None}]
    for quote in quotes if '\\"' not in sample.read_text() else quotes[1:]:
        dialect = {"kind": "csv", "delimiter": delimiter, **quote}
        try:
            return _with_header(sample, dialect)
        except DataError as error:
            fault = str(error).partition(": ")[2]
    raise DataError(f"{path} can be read in no dialect that is known here: {fault}")


def _with_header(sample: Path, dialect: dict[str, Any]) -> FileLook:
    first = sample.read_text().lstrip("\r\n").partition("\n")[0].rstrip("\r")
    cells = names_in(first, _mapping(dialect, ["x"])) or [""]
    named = cells[1:] if len(cells) > 1 else cells  # some write no name above their row numbers
    if len(set(cells)) == len(cells) and all(c and not NUMBER.fullmatch(c) for c in named):
        return _looked(dialect, sample, [cell for cell in cells if cell])
    names = tuple(f"c{number}" for number in range(1, len(cells) + 1))
    return _looked({**dialect, "positions": names}, sample, names)


def _mapping(dialect: dict[str, Any], names: Sequence[str]) -> Mapping:
    columns = dict.fromkeys(names, "text")
    document = {"format": "x", "time_zone": "UTC", "row_blocks": 1, "columns": columns, **dialect}
    return Mapping.model_validate(document)


def _looked(dialect: dict[str, Any], path: Path, names: Sequence[str]) -> FileLook:
    """The first rows, read as a landing would read them."""
    file = LogFile(path, _mapping(dialect, names), path)
    with closing(file.blocks()) as blocks:
        found = [table for table, _ in islice(blocks, BLOCKS)]
    if not found:
        raise DataError(f"{path}: it holds no rows; name a file with rows")
    rows = pa.concat_tables(found)
    spelled = [
        set(as_text(c).to_pylist()) - {None} for c in rows.columns if pa.types.is_string(c.type)
    ]
    comma = any(all(map(COMMA.fullmatch, v)) and "," in "".join(v) for v in spelled)
    sign = {"decimal": ","} if comma else {}
    return dialect | sign, [*_columns(rows, sign.get("decimal", "."))]


def _columns(rows: pa.Table, decimal: str) -> Iterator[ColumnLook]:
    for name in rows.schema.names:
        try:
            texts = as_text(rows[name])
        except DataError:  # no text: fractions, stamps
            texts = rows[name].cast(pa.string()).combine_chunks()
        empty = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
        counted = pc.value_counts(empty.drop_null())
        order = pc.sort_indices(counted.field("counts"), sort_keys=[("", "descending")])
        values = counted.field("values").take(order).to_pylist()
        about = {"rows": len(rows), "nulls": empty.null_count, "different": len(counted)}
        yield ColumnLook(
            name=name,
            values=tuple(values[:3]),
            texts=empty,
            **about,
            **_kind_of(values, name, decimal),
        )


def _kind_of(values: list[str], name: str, decimal: str) -> dict[str, Any]:
    """Type, form and missing spellings, by the values that are there."""
    present = [value for value in values if value not in MISSING]
    missing = tuple(value for value in values if value in MISSING)
    if not present:
        return {"type": "text"}
    if stamp := _stamp_of(present[:1000], name):
        kind = "date" if stamp.format in DATES else "time"
        return {"type": kind, "stamp": stamp, "missing": missing}
    kind = _plain_type(present, decimal)
    return {"type": kind, "missing": missing if kind != "text" else ()}


def _stamp_of(values: list[str], name: str) -> StampRule | None:
    """How time stamps or dates are spelled; None where these are none.

    Digits alone may be anything: they are a time where the column's name says so.
    """
    digits = all(value.replace(".", "", 1).isdigit() for value in values)
    if digits and not OF_TIME.search(name):
        return None
    forms = [*product(DATES, ["UTC"]), *product(STAMPS[digits:], [None, "UTC"])]
    rules = (StampRule(name, *form) for form in forms)
    return next((rule for rule in rules if _fits(values, rule)), None)


def _fits(values: list[str], rule: StampRule) -> bool:
    """Whether all values are time stamps of 1990 to 2100."""
    try:
        typed = Reading().typed(pa.array(values), rule.type, is_stamp=True)
        years = pc.year(time_stamps(pa.table({"": typed})[""], rule))
    except (DataError, pa.ArrowException, OverflowError, ValueError):
        return False
    return bool(pc.min(years).as_py() >= 1990 and pc.max(years).as_py() <= 2100)


def _plain_type(values: list[str], decimal: str) -> str:
    """The type of texts: truth, whole numbers that keep every digit, other numbers, else text."""
    if {*values} <= {"true", "false"}:
        return "bool"
    if any(re.fullmatch(r"[+-]?0\d+", value) for value in values):
        return "text"
    if all(re.fullmatch(r"[+-]?\d+", value) for value in values):
        return "int64" if max(map(len, values)) <= 18 else "text"
    point = re.escape(decimal)
    number = re.compile(rf"[+-]?(\d+({point}\d*)?|{point}\d+)([eE][+-]?\d+)?")
    return "float64" if all(number.fullmatch(v) and len(v) < 40 for v in values) else "text"
