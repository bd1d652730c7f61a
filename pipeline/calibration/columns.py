"""Columns of a notebook as the calibrator's arrays: logits, texts of field values, counts, days."""

import math
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pipeline.core.errors import DataError

LARGEST_EXACT = 2**53  # from here on a float may have lost digits
LARGEST_DAY = 1_000_000  # days from 1970: beyond it a number is a date such as 20240331, or seconds


def is_null(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or pandas' NA."""
    if isinstance(value, (float, np.floating)):
        return math.isnan(value)
    if isinstance(value, np.datetime64):
        return bool(np.isnat(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def text_of(value: Any) -> str | None:
    """The text that names a field value, spelled as docs/data.md has it; None is null.

    None, NaN, NaT and pandas' NA are null; text stays as it is; whole numbers are spelled in
    decimal, 7.0 too; booleans are "true" and "false"; bytes are UTF-8.
    """
    if is_null(value):
        return None
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if not number.is_integer() or abs(number) >= LARGEST_EXACT:
            raise DataError(
                "a float names a field value only if it is a whole number below 2**53, not "
                f"{number}; give text or integers"
            )
        return str(int(number))
    return str(value)


def columns_of(
    uncalibrated_logit: ArrayLike, field_value: ArrayLike | None
) -> tuple[np.ndarray, list[str | None]]:
    """Logits float32 [n] and texts of field values [n]."""
    table = np.asarray(uncalibrated_logit)
    if field_value is None:
        if table.ndim != 2 or table.shape[1] != 2:
            raise DataError(
                f"field_value is missing and the logits have shape {table.shape}; "
                "give field_value, or a second column with it"
            )
        field_value, table = table[:, 1], table[:, 0]
    logit = table.astype(np.float32).reshape(-1)
    names = [text_of(value) for value in np.asarray(field_value, dtype=object).reshape(-1)]
    if len(names) != len(logit):
        raise DataError(f"field_value needs {len(logit)} rows, it has {len(names)}")
    if not np.isfinite(logit).all():
        row = int(np.flatnonzero(~np.isfinite(logit))[0])
        raise DataError(f"uncalibrated_logit must be finite, row {row} has {logit[row]}")
    return logit, names


def counts_of(
    label: ArrayLike, weight: ArrayLike | None, n_rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Responses and impressions, int64 [n]."""
    y = np.asarray(label).reshape(-1)
    n = np.ones(n_rows, dtype=np.int64) if weight is None else np.asarray(weight).reshape(-1)
    for name, column in (("label", y), ("weight", n)):
        if len(column) != n_rows:
            raise DataError(f"{name} needs {n_rows} rows, it has {len(column)}")
    for name, column, wrong in (
        ("label must be 0 or 1", y, (y != 0) & (y != 1)),
        ("weight must be a whole number from 0 on", n, ~_whole(n)),
    ):
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise DataError(f"{name}, row {row} has {column[row]}")
    return y.astype(np.int64) * n.astype(np.int64), n.astype(np.int64)


def _whole(n: np.ndarray) -> np.ndarray:
    return (n >= 0) & (n == np.floor(n)) & (n < LARGEST_EXACT)


def days_of(day: ArrayLike | None, n_rows: int) -> np.ndarray:
    """Days as numbers, int32 [n]."""
    if day is None:
        return np.zeros(n_rows, dtype=np.int32)
    column = np.asarray(day).reshape(-1)
    if len(column) != n_rows:
        raise DataError(f"day needs {n_rows} rows, it has {len(column)}")
    rule = "day must be a date, YYYY-MM-DD or a whole number of days"
    if column.dtype.kind in "OUS":
        column = np.array([_date(value, row, rule) for row, value in enumerate(column)])
    if column.dtype.kind == "M":
        column = column.astype("datetime64[D]").astype(np.int64)  # NaT is the smallest number
    wrong = ~(np.abs(column.astype(np.float64)) <= LARGEST_DAY)
    wrong |= column != np.floor(column)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise DataError(f"{rule}, row {row} has {np.asarray(day).reshape(-1)[row]!r}")
    return column.astype(np.int32)


def _date(value: Any, row: int, rule: str) -> np.datetime64:
    if isinstance(value, (int, np.integer)):
        return np.datetime64(int(value) if abs(int(value)) <= LARGEST_DAY else "NaT", "D")
    text = value.decode() if isinstance(value, bytes) else str(value)
    try:
        return np.datetime64(date.fromisoformat(text[:10]) if "-" in text[:5] else "NaT", "D")
    except ValueError:
        raise DataError(f"{rule}, row {row} has {value!r}") from None
