"""A checkpoint's ONNX file as a function of rows; needs neither torch nor the pipeline."""

import hashlib
import json
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pyarrow as pa

from pipeline.core.columns import Bool, Columns, Float32, Float64, Int32
from pipeline.core.errors import ArtifactError, DataError
from pipeline.core.files import MANIFEST, read_json, sha256_of, verify
from pipeline.encoding.reading import Reading, is_text
from pipeline.encoding.values import (
    SEPARATOR,
    Column,
    as_numbers,
    as_text,
    logged_logit,
    logged_score_column,
    placed,
    refuse_doubled,
)

ONNX_FILE = "model.onnx"
ONNX_FORMAT = "adacalib onnx 1"
VECTORS_FILE = "test_vectors.json"  # rows, and what the model says of them
TEXT, NUMBER = "text.", "number."  # what the name of an input begins with, before its column
REMEDY = "dvc repro brings it back or makes it again, on a serving host adacalib pull --to DIR"
BATCH_ROWS = 4_096  # of one call: what is made of them fits a cache


@dataclass(frozen=True)
class ServedScores(Columns):
    """What a model says of n rows.

    Attributes:
        uncalibrated_logit: float32 [n], the base model's.
        calibrated_logit: float64 [n].
        probability: float64 [n], of a response, in (0, 1).
        field_value_id: int64 [n], of the map that answered: 0 = unseen or null; a parent's.
        out_of_range: bool [n], whether the logit lies beyond the outermost knots of its field
            value: the line goes on there with its own slope.
        unseen: bool [n], whether the field value is one that no vocabulary holds; null is none.
        field_level: int64 [n], whose map answered: 0 the field value's own, k its k-th parent's
            (`log.field_parents`), one more than there are parents: that of no known value.
    """

    uncalibrated_logit: Float32
    calibrated_logit: Float64
    probability: Float64
    field_value_id: Int32
    out_of_range: np.ndarray
    unseen: Bool
    field_level: Int32

    def batch(self) -> pa.RecordBatch:
        """The columns of `SCHEMA`."""
        columns = [pa.array(getattr(self, f.name)).cast(f.type) for f in SCHEMA]
        return pa.record_batch(columns, schema=SCHEMA)


SCHEMA = ServedScores.schema()


class Predictor:
    """A model that is ready to score.

    Attributes:
        version: sha256 of the manifest that names its checksums.
        metadata: what the ONNX file says of itself: map, conventions.
        text_columns: columns that are read as text.
        number_columns: columns that are read as numbers; `booleans` are so in the log's files.
        reading: how the log's files were read; None where no mapping said so.
        session: onnxruntime's, for who brings arrays of their own.
        folder: that it was loaded from, as worker processes do again.
        vectors: `columns`, `expected` and `tolerance` of the rows that the model was proved on;
            empty where it has none.
    """

    def __init__(self, content: bytes, version: str, threads: int = 1) -> None:
        """Make a session of the bytes of an ONNX file.

        Args:
            content: the bytes.
            version: sha256 of the manifest that names their checksum.
            threads: of one call; 0 = as many as there are cores.

        Raises:
            ArtifactError: the file is no model, or has another format.
        """
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        try:
            self.session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's have no class of their own in common
            raise ArtifactError(
                f"{ONNX_FILE} is no model that onnxruntime can run ({error}); {REMEDY}"
            ) from None
        self.metadata: Mapping[str, str] = self.session.get_modelmeta().custom_metadata_map
        if self.metadata.get("format") != ONNX_FORMAT:
            raise ArtifactError(
                f"{ONNX_FILE} has format {self.metadata.get('format')!r}, this code reads "
                f"{ONNX_FORMAT!r}; {REMEDY}"
            )
        self.version, self.folder = version, Path()
        self.vectors: Mapping[str, Any] = {}
        self.null_text = self.metadata["null_text"]
        names = [tensor.name for tensor in self.session.get_inputs()]
        self.text_columns = [n.removeprefix(TEXT) for n in names if n.startswith(TEXT)]
        self.number_columns = [n.removeprefix(NUMBER) for n in names if n.startswith(NUMBER)]
        reading = self.conventions.get("reading")
        self.reading = Reading.of(reading) if reading else None
        self._types = self.conventions.get("column_types", {})
        self.booleans = {n for n in self.number_columns if self._types.get(n) == "bool"}
        self._score = logged_score_column(self.conventions)
        self._field = [f"{TEXT}{column}" for column in json.loads(self.metadata["field"])]

    def __reduce__(self) -> tuple[Any, ...]:
        return load, (self.folder,)

    @property
    def columns(self) -> list[str]:
        """The columns that are read, each once."""
        return list(dict.fromkeys([*self.text_columns, *self.number_columns]))

    @property
    def conventions(self) -> dict[str, Any]:
        """The data contract of the log, and the rules of serving under `serving`."""
        return json.loads(self.metadata["conventions"])

    def columns_in(self, present: Collection[str]) -> list[str]:
        """The columns to take from rows that have those of `present`, each once: in place of one
        that is made of others, and not there, those that it is made of.

        Raises:
            DataError: a column is missing; it is named.
        """
        names: dict[str, None] = {}
        for name in self.columns:
            raw = [*self.reading.raw(name)] if self.reading and name in self.reading.made else []
            if name not in present and not (raw and set(raw) <= set(present)):
                made = f", or {' and '.join(raw)}, of which it is made" if raw else ""
                raise DataError(
                    f"column {name} is missing; the rows have {[*present][:20]}; add it{made}"
                )
            names |= dict.fromkeys([name] if name in present else raw)
        return [*names]

    def run(self, inputs: Mapping[str, np.ndarray]) -> ServedScores:
        """The scores of rows that are ready for the session.

        Args:
            inputs: `text.COLUMN` → texts, object [n], `null_text` for null;
                `number.COLUMN` → float64 [n], NaN for null.
        """
        logit, calibrated, probability, ids, beyond, *level = self.session.run(None, dict(inputs))
        levels = level[0] if level else (ids == 0).astype(np.int64)
        unseen = (levels > 0) & ~self._is_null(inputs)
        return ServedScores(logit, calibrated, probability, ids, beyond, unseen, levels)

    def field_values(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        """The field value of every row, object [n]: text, parts joined; None where it is null."""
        parts = (inputs[name] for name in self._field)
        names = np.array([*map(SEPARATOR.join, zip(*parts, strict=True))], object)
        names[self._is_null(inputs)] = None
        return names

    def _is_null(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        absent = [inputs[name] == self.null_text for name in self._field]
        return np.logical_or.reduce(absent)

    def predict(self, table: Any) -> ServedScores:
        """The scores of every row of a log; columns in any order, others are not read.

        Args:
            table: a table or record batch of Arrow's, or a data frame, where NaN is null.

        Raises:
            DataError: a column is missing or does not hold what it should.
        """
        if not isinstance(table, pa.Table | pa.RecordBatch):
            try:
                table = pa.table(table[self.columns_in(table.columns)])
            except (AttributeError, TypeError, ValueError) as error:
                raise DataError(f"the rows are no table and no data frame: {error}") from None
        inputs = self.inputs_of(table)
        parts = [
            self.run({name: column[start : start + BATCH_ROWS] for name, column in inputs.items()})
            for start in range(0, max(1, table.num_rows), BATCH_ROWS)
        ]
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return ServedScores(*map(np.concatenate, columns))

    def inputs_of(self, table: pa.Table | pa.RecordBatch) -> dict[str, np.ndarray]:
        """The rows of a log as `run` takes them.

        Raises:
            DataError: as `predict`.
        """
        refuse_doubled(self.columns_in(table.schema.names), table.schema.names)
        inputs = {}
        for name in self.text_columns:
            with placed(f"column {name}: "):
                encoded = as_text(self.column(table, name)).dictionary_encode()
                values = self.texts([*encoded.dictionary.to_pylist(), None], name)
                places = encoded.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False)
                inputs[f"{TEXT}{name}"] = np.array(values, dtype=object)[places]
        for name in self.number_columns:
            with placed(f"column {name}: "):
                column = self.spelled(self.column(table, name), name)
                if pa.types.is_boolean(column.type) and self._score and self._score[0] == name:
                    raise DataError("a boolean is no score; write the column as numbers")
                inputs[f"{NUMBER}{name}"] = self.numbers(name, as_numbers(column))
        return inputs

    def column(self, table: pa.Table | pa.RecordBatch, name: str) -> Column:
        """A column of rows, or made of theirs.

        Raises:
            DataError: what it is made of does not fit; column and row are named.
        """
        if name in table.schema.names or self.reading is None:
            return table.column(name)
        return _by_row(partial(self.reading.served, name), table)

    def spelled(self, column: Column, name: str) -> Column:
        """A number column; where it is spelled in text, as the log's own is read.

        Raises:
            DataError: a text is no number; its row is named.
        """
        if self.reading is None or not is_text(column):
            return column
        kind = pa.bool_() if name in self.booleans else pa.float64()
        return _by_row(partial(self.reading.typed, kind=kind), column)

    def texts(self, values: Collection[str | None], name: str) -> list[str]:
        """The values of the text column `name` as the session takes them.

        `null_text` stands for null, as do the spellings that were null in the log's files; who
        sends `null_text` itself means a value that nobody has seen.
        """
        known = {None: self.null_text, self.null_text: f"{self.null_text}{SEPARATOR}"}
        if self.reading and name not in self.reading.made:
            names = self.reading.names(values, self._types.get(name, "string"))
            known = {text: known.get(meant, meant) for text, meant in names.items()} | known
        return [known.get(value, value) for value in values]  # type: ignore[misc]

    def numbers(self, name: str, values: np.ndarray) -> np.ndarray:
        """The float64 `values` of a column as they are.

        Raises:
            DataError: one is infinite, or a logged score is null or no score.
        """
        infinite = np.flatnonzero(np.isinf(values))
        if len(infinite):
            raise DataError(
                f"row {infinite[0]} is {values[infinite[0]]}; give a finite number, or null where "
                "there is none"
            )
        if self._score and self._score[0] == name:
            logged_logit(values, self._score[1])
        return values


def _by_row(read: Callable[[Any], Column], rows: Any) -> Column:
    """What `read` makes of a table or column; its refusal names the first row that it is about.

    Raises:
        DataError: `read` refuses the rows.
    """

    def refusal(first: int) -> str:
        try:
            read(rows.slice(0, first))
        except (DataError, pa.ArrowException) as error:
            return str(error).splitlines()[0]
        return ""

    try:
        return read(rows)
    except (DataError, pa.ArrowException):
        first = bisect_left(range(len(rows)), True, key=lambda n: bool(refusal(n)))
    place = f"row {first - 1}: " if first else ""  # else the type is the reason
    raise DataError(f"{place}{refusal(first)}; give what the log's files have there, or null")


def verified(folder: Path) -> tuple[str, str]:
    """The version of a checkpoint folder and the sha256 of its ONNX file, every byte verified.

    Raises:
        ArtifactError: a file is missing or damaged.
    """
    if not (folder / MANIFEST).is_file():
        raise ArtifactError(
            f"{folder} holds no model; dvc repro makes one in artifacts/model, and on a serving "
            "host adacalib pull --to DIR brings the one in production, for --model DIR"
        )
    manifest = verify(folder, REMEDY)
    if ONNX_FILE not in manifest["files"]:
        raise ArtifactError(f"{folder / MANIFEST} names no {ONNX_FILE}; {REMEDY}")
    return sha256_of(folder / MANIFEST), manifest["files"][ONNX_FILE]


def load(folder: Path, threads: int = 1) -> Predictor:
    """The predictor of a checkpoint folder, after every byte in it was found as it was written.

    The session is made of the very bytes whose sum was taken, so a folder that is replaced
    meanwhile gives one version or is refused. It has to give the answers that the folder's test
    vectors expect, on this machine and its version of onnxruntime.

    Args:
        folder: a checkpoint with its exports.
        threads: of one call; 0 = as many as there are cores.

    Raises:
        ArtifactError: a file is missing, damaged or of another format, or the answers are others.
    """
    version, sum_then = verified(folder)
    content = (folder / ONNX_FILE).read_bytes()
    if hashlib.sha256(content).hexdigest() != sum_then:
        raise ArtifactError(f"{folder / ONNX_FILE} changed while it was read; load it again")
    predictor = Predictor(content, version, threads)
    predictor.folder = folder.absolute()
    if (folder / VECTORS_FILE).is_file():
        predictor.vectors = read_json(folder / VECTORS_FILE)
        _probe(predictor, folder)
    return predictor


def _probe(predictor: Predictor, folder: Path) -> None:
    """Refuse a predictor that says something else of the test vectors than they expect."""
    vectors = predictor.vectors
    scores = predictor.predict(pa.table(vectors["columns"]))
    for name, values in vectors["expected"].items():
        difference = np.abs(getattr(scores, name) - np.array(values, np.float64))
        if not (difference <= vectors["tolerance"]).all():
            row = int(np.nan_to_num(difference, nan=np.inf).argmax())
            raise ArtifactError(
                f"{folder}: {name} of row {row} of {VECTORS_FILE} is {getattr(scores, name)[row]} "
                f"and was to be {values[row]}; is this another version of onnxruntime?"
            )
