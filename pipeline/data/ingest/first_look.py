"""What the first rows of a log's files look like: how they are written, and what each column holds.

Here alone things are guessed: what is found is written down, to be read and corrected.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from glob import escape
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError
from pipeline.core.files import scratch_folder
from pipeline.data.ingest.mapping import MISSING, Mapping
from pipeline.data.ingest.records import LogFile
from pipeline.data.ingest.text_files import names_in, open_bytes
from pipeline.data.log_store.engine import engine, text
from pipeline.encoding.reading import Reading
from pipeline.encoding.stamps import StampRule, time_stamps
from pipeline.encoding.values import as_text

SAMPLE_BYTES, ROWS = 8 << 20, 1 << 17  # of a file, and of all files
FILES = 16  # so many are looked at, spread over all, where the first ones have few rows
ODD_DELIMITERS = "\x01\x02\x1f~^#"  # of Hive and others, which no sniffer tries
NUMBER = re.compile(r"[+-]?\d+([.,]\d+)*([eE][+-]?\d+)?")
Signs: TypeAlias = tuple[str, str]  # the decimal sign, and what parts thousands
SIGNS: tuple[Signs, ...] = ((".", ""), (".", ","), (",", ""), (",", "."))
LONGEST_WHOLE = 18  # digits of a number; more are those of ids
MOST_WORDS = 5  # in a column of stamps, such as Total and an empty one
NESTED = re.compile(r"STRUCT|MAP|UNION|\]$")
STAMPS = (
    "iso8601",  # the first one, which digits alone are not
    *("epoch_s", "epoch_ms", "epoch_us", "epoch_ns", "%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M"),
    *("%m/%d/%Y %H:%M:%S", "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M:%S", "%d/%m/%Y %H:%M"),
    *("%m/%d/%Y %I:%M:%S %p", "%Y-%m-%d %H:%M:%S %z"),
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
        texts: of the rows that were looked at, null where they have no value.
        values: the different ones, the most frequent first; spellings of a missing one last.
        missing: spellings of a missing number, and of stamps all words, such as Total.
        stamp: how time stamps or dates are spelled.
    """

    name: str
    type: str
    texts: pa.StringArray
    values: list[str]
    missing: list[str]
    stamp: StampRule | None

    @property
    def nulls(self) -> int:
        """How many rows have no value."""
        return self.texts.null_count

    def __str__(self) -> str:
        shown = ", ".join(self.values[:3])[:60]
        without = f", {self.nulls:,} without" if self.nulls else ""
        return f"{len(self.values):,} different{without}: {shown}"


FileLook: TypeAlias = tuple[dict[str, Any], pa.Table, list[str]]  # its dialect, texts, the nested


def look_at(paths: Sequence[Path]) -> tuple[dict[str, Any], list[ColumnLook], list[str]]:
    """What the first rows of a log's files look like.

    Files are looked at until there are enough rows: the first, some in between, and the last one.

    Returns:
        Keys of a mapping by which the files are read, what their columns hold, and the names of
        those with lists and records, which only a `select` reaches.

    Raises:
        DataError: a file is missing or empty, no rows can be made out, or files differ in columns.
    """
    looks: dict[Path, FileLook] = {}
    for path in dict.fromkeys([*paths[:: max(1, len(paths) // FILES)], paths[-1]]):
        if sum(len(texts) for _, texts, _ in looks.values()) < ROWS or path == paths[-1]:
            looks[path] = _file_look(path)
    looks = {path: look for path, look in looks.items() if len(look[1])}
    if not looks:
        raise DataError(f"{paths[0]}: it holds no rows; name a file with rows")
    first, (_, found, nested) = next(iter(looks.items()))
    names, dialect = found.column_names, dict[str, Any]()
    for path, (known, found, _) in looks.items():
        if missing := {*names} - {*found.column_names}:
            raise DataError(
                f"{path} lacks the column {min(missing)} of {first}; name files of one log"
            )
        dialect = known | dialect
    texts = pa.concat_tables(found.select(names) for _, found, _ in looks.values())
    decimal, thousands = signs = _signs(_values(texts[name])[0] for name in names)
    dialect |= {"decimal": decimal} if decimal == "," else {}
    dialect |= {"thousands": thousands} if thousands else {}
    return dialect, [_look(name, texts[name], signs) for name in names], nested


def _file_look(path: Path) -> FileLook:
    with open_bytes(path) as stream:
        head = stream.read(SAMPLE_BYTES)
    if head.startswith(b"PAR1"):
        return _plain("parquet", path, path)
    encoding = _encoding_of(head)
    lines = head.decode(encoding, "replace").removeprefix("\ufeff")
    if len(head) == SAMPLE_BYTES:
        lines = lines[: lines.rfind("\n") + 1]
    with scratch_folder() as place:
        sample = place / "log.txt"
        sample.write_text(lines, encoding="utf-8", newline="")
        try:
            plain = lines.lstrip()[:1] in ("{", "[")
            look = _plain("json", sample, path) if plain else _csv(sample, path)
        except DataError as error:
            raise DataError(str(error).replace(str(sample), str(path))) from None
    if encoding != "utf-8":
        look[0]["encoding"] = encoding
    return look


def _encoding_of(head: bytes) -> str:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    for place, order in enumerate(("be", "le")):
        if 4 * head[:1000][place::2].count(0) > len(head[:1000]):  # without the mark
            return f"utf-16-{order}"
    try:
        head[:-4].decode()  # a character may be cut
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _plain(kind: str, sample: Path, path: Path) -> FileLook:
    """A file whose columns have names."""
    try:
        with engine() as database:
            place = f"{text(escape(str(sample)))}, hive_partitioning = false"
            rows = database.sql(f"SELECT * FROM read_{kind}({place})")
            types = dict(zip(rows.columns, map(str, rows.types), strict=True))
    except duckdb.Error as error:
        raise DataError(f"{path} is no {kind}: {str(error).splitlines()[0]}") from None
    nested = [name for name, type_ in types.items() if NESTED.search(type_)]
    plain = [name for name in types if name not in nested]
    if not plain:
        raise DataError(f"{path} has no plain column; write the mapping as docs/data.md says")
    dialect, texts, _ = _looked({"kind": kind}, sample, plain)
    mixed = (name for name in plain if types[name] == "JSON")  # texts and numbers, or anything
    odd = [n for n in mixed if pc.any(pc.match_substring_regex(texts[n], r"^[\[{]")).as_py()]
    return dialect, texts.drop_columns(odd), nested + odd


def _csv(sample: Path, path: Path) -> FileLook:
    """The first of some dialects in which the sample can be read."""
    query = f"SELECT Delimiter, SkipRows FROM sniff_csv({text(str(sample))}, all_varchar = true)"
    try:
        with engine() as database:
            delimiter, skip = database.execute(query).fetchall()[0]
    except duckdb.Error:
        delimiter, skip = ",", 0
    delimiter = "\t" if delimiter == "\\t" else delimiter
    first = _first_line(sample, skip)
    if delimiter not in first and (odd := max(ODD_DELIMITERS, key=first.count)) in first:
        delimiter = odd
    quotes: list[dict[str, Any]] = [{}, {"escape": "\\"}, {"quote": None}]
    for quote in quotes if '\\"' not in sample.read_text() else quotes[1:]:
        dialect = {"kind": "csv", "delimiter": delimiter, **quote}
        dialect |= {"skip": skip} if skip else {}
        try:
            return _with_header(sample, dialect)
        except DataError as error:
            fault = str(error).partition(": ")[2]
    raise DataError(f"{path} can be read in no dialect that is known here: {fault}")


def _first_line(sample: Path, skip: int) -> str:
    """The first line with anything in it, after those that are skipped."""
    lines = sample.read_text().split("\n")[skip:]
    return next((line.rstrip("\r") for line in lines if line.strip("\r")), "")


def _with_header(sample: Path, dialect: dict[str, Any]) -> FileLook:
    first = _first_line(sample, dialect.get("skip", 0))
    cells = names_in(first, _mapping(dialect, ["x"])) or [""]
    named = cells[not cells[0] : len(cells) - (not cells[-1])]  # above row numbers, or at the end
    named = named or cells
    if len(set(cells)) == len(cells) and all(c and not NUMBER.fullmatch(c) for c in named):
        return _looked(dialect, sample, [cell for cell in cells if cell])
    names = tuple(f"c{number}" for number in range(1, len(cells) + 1))
    return _looked({**dialect, "positions": names}, sample, names)


def _mapping(dialect: dict[str, Any], names: Sequence[str]) -> Mapping:
    columns = {f"c{n}": {"source": name, "type": "text"} for n, name in enumerate(names)}
    document = {"format": "x", "time_zone": "UTC", "row_blocks": 1, "columns": columns, **dialect}
    return Mapping.model_validate(document)


def _looked(dialect: dict[str, Any], path: Path, names: Sequence[str]) -> FileLook:
    """The first rows, read as a landing would read them, as texts; "" is null."""
    file = LogFile(path, _mapping(dialect, names))
    texts = pa.schema(dict.fromkeys(names, pa.string())).empty_table()
    with closing(file.blocks()) as blocks:
        for table in blocks:
            columns = {name: _texts(table[name]) for name in names}
            texts = pa.concat_tables([texts, pa.table(columns)])
            if len(texts) >= ROWS:
                break
    return dialect, texts, []


def _texts(column: pa.ChunkedArray) -> pa.StringArray:
    try:
        texts = as_text(column)
    except DataError:  # no text: fractions, stamps
        texts = column.cast(pa.string()).combine_chunks()
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def _values(texts: pa.ChunkedArray) -> tuple[list[str], list[str]]:
    """The different values that are there, the most frequent first, and how none is spelled."""
    counted = pc.value_counts(texts.drop_null())
    order = pc.sort_indices(counted.field("counts"), sort_keys=[("", "descending")])
    values = counted.field("values").take(order).to_pylist()
    return [v for v in values if v not in MISSING], [v for v in values if v in MISSING]


def _signs(columns: Iterable[list[str]]) -> Signs:
    """The signs by which most columns of values are numbers; the plainest of those."""
    numbers = [values for values in columns if values and all(map(NUMBER.fullmatch, values))]
    return max(SIGNS, key=lambda signs: sum(_read_as(pa.float64(), v, signs) for v in numbers))


def _read_as(kind: pa.DataType, values: list[str], signs: Signs) -> bool:
    """Whether a landing reads texts as numbers of a type."""
    reading = Reading(decimal=signs[0], thousands=signs[1] or None)
    try:
        reading.typed(pa.array(values), kind)
    except pa.ArrowException:
        return False
    return True


def _look(name: str, texts: pa.ChunkedArray, signs: Signs) -> ColumnLook:
    present, missing = _values(texts)
    kind, stamp, spelled = "text", None, [value for value in present if re.search(r"\d", value)]
    if spelled and len(present) - len(spelled) <= MOST_WORDS:
        stamp = _stamp_of(spelled[:1000], name)
    if stamp:
        kind = "date" if stamp.format in DATES else "time"
        missing += [value for value in present if value not in spelled]
        present = spelled
    elif present:
        kind = _plain_type(present, signs)
    spellings = missing if kind != "text" else []
    return ColumnLook(name, kind, texts.combine_chunks(), [*present, *missing], spellings, stamp)


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


def _plain_type(values: list[str], signs: Signs) -> str:
    """The type of texts: truth, whole numbers that keep every digit, other numbers, else text."""
    if {*values} <= {"true", "false"}:
        return "bool"
    if any(re.fullmatch(r"[+-]?0\d+|\D*", value) for value in values):
        return "text"
    short = max(map(len, values)) <= LONGEST_WHOLE
    if short and _read_as(pa.int64(), values, signs):
        return "int64"
    short = short or any(re.search(f"[eE{signs[0]}]", value) for value in values)
    return "float64" if short and _read_as(pa.float64(), values, signs) else "text"
