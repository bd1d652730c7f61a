"""The sums of several methods as columns of tables, one row per method and group."""

from collections.abc import Mapping
from dataclasses import fields

import numpy as np

from pipeline.metrics.counts import ResponseCounts
from pipeline.metrics.reliability import ReliabilityBins
from pipeline.metrics.summary import Measurement

Columns = dict[str, np.ndarray]


def count_columns(measured: Mapping[str, Measurement]) -> Columns:
    """method, day (days since 1970), field_value_id and ResponseCounts, without empty rows."""
    return _stacked({name: _of_counts(m) for name, m in measured.items()})


def _of_counts(measurement: Measurement) -> Columns:
    day, value = np.nonzero(measurement.counts.impressions)
    sums = {f.name: getattr(measurement.counts, f.name)[day, value] for f in fields(ResponseCounts)}
    return {"day": measurement.days[day], "field_value_id": value.astype(np.int32), **sums}


def bin_columns(measured: Mapping[str, Measurement]) -> Columns:
    """method, field_value_id (−1: of all rows), bin_id and the sums of ReliabilityBins."""
    return _stacked({name: _of_bins(m) for name, m in measured.items()})


def _of_bins(measurement: Measurement) -> Columns:
    both = measurement.bins, measurement.bins_by_value
    columns = {
        f.name: np.concatenate([getattr(bins, f.name) for bins in both])
        for f in fields(ReliabilityBins)
    }
    value = columns.pop("group")
    value[: len(measurement.bins.group)] = -1
    bin_id = columns.pop("bin_id")
    return {"field_value_id": value.astype(np.int32), "bin_id": bin_id.astype(np.int32), **columns}


def _stacked(parts: Mapping[str, Columns]) -> Columns:
    """The methods' columns below one another, their names in front."""
    names = [np.full(len(part["field_value_id"]), name) for name, part in parts.items()]
    below = list(parts.values())
    return {"method": np.concatenate(names)} | {
        column: np.concatenate([part[column] for part in below]) for column in below[0]
    }
