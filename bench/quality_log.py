"""Cases made of a raw log: a base model is trained on its first days by the pipeline's stages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bench.quality_cases import Case
from pipeline.calibration.paper.paper_rows import RowFeatures
from pipeline.core.errors import DataError
from pipeline.data.log_store.landing import LogKind, land_log
from pipeline.encoding.values import as_text
from pipeline.formats.scores import read_features, read_scores, read_scores_manifest
from pipeline.params.sections import LogParams, Params, ScoreParams, SplitParams
from pipeline.stages import score, split, train_base, validate

WEEKDAY = "weekday of the day"  # made of the day column, a feature of every base model here


@dataclass(frozen=True)
class LogFile:
    """A log in one file and what its columns mean.

    Attributes:
        path: .parquet or .csv, also .csv.gz.
        field: columns whose joint value is calibrated; features of the base model too.
        day: column with the day or an instant in UTC.
        impressions: column with the impressions of a row; None where a row is one.
        responses: column with the label, or with the responses of a row.
        categorical: further columns that the base model embeds.
        numeric: columns that it reads as numbers.
    """

    path: Path
    field: tuple[str, ...]
    day: str
    impressions: str | None
    responses: str
    categorical: tuple[str, ...]
    numeric: tuple[str, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns that are read as text, each once."""
        return tuple(dict.fromkeys((*self.field, *self.categorical)))

    def read(self) -> pd.DataFrame:
        """The named columns; texts as they are spelled, the day as "YYYY-MM-DD".

        Raises:
            DataError: there is no such file, or it lacks a column.
        """
        counts = [self.responses] + ([self.impressions] if self.impressions else [])
        wanted = list(dict.fromkeys([self.day, *self.texts, *self.numeric, *counts]))
        if not self.path.is_file():
            raise DataError(f"{self.path} does not exist; name a CSV or Parquet file of rows")
        if self.path.suffix == ".parquet":
            table = pq.read_table(self.path)
            frame = table.to_pandas()
            for name in {*self.texts} & {*frame.columns}:  # ids with gaps would be floats
                frame[name] = as_text(table[name]).to_pandas()
        else:
            text = dict.fromkeys((self.day, *self.texts), str)
            frame = pd.read_csv(self.path, dtype=text, keep_default_na=False, na_values=[""])
        if missing := [name for name in wanted if name not in frame.columns]:
            raise DataError(
                f"{self.path} lacks the columns {missing}; it has {list(frame.columns)}"
            )
        days = pd.to_datetime(frame[self.day].astype(str))
        frame = frame[wanted].assign(**{self.day: days.dt.strftime("%Y-%m-%d")})
        return frame.assign(**{WEEKDAY: days.dt.day_of_week.astype(str)})


@dataclass(frozen=True)
class Window:
    """The first training day and how many days each part has."""

    start: str
    training: int
    calibration: int
    test: int

    @classmethod
    def of(cls, start: str, days: str) -> "Window":
        """The window of two texts such as "2012-04-01" and "60/7/7".

        Raises:
            DataError: a text is spelled otherwise.
        """
        try:
            date.fromisoformat(start)
            training, calibration, test = (int(part) for part in days.split("/"))
        except ValueError:
            raise DataError(
                f"a window is a day and three numbers of days, such as 2012-04-01 and 60/7/7, not "
                f"{start} and {days}"
            ) from None
        return cls(start, training, calibration, test)

    def days(self) -> list[str]:
        """All days, ascending."""
        first = date.fromisoformat(self.start)
        n = self.training + self.calibration + self.test
        return [(first + timedelta(days=i)).isoformat() for i in range(n)]

    def __str__(self) -> str:
        return f"{self.start} {self.training}/{self.calibration}/{self.test}"


def _land(log: LogFile, window: Window, folder: Path) -> None:
    """Land the window's days as the pipeline would."""
    frame = log.read()
    days = window.days()
    frame = frame[frame[log.day].isin(days)]
    if missing := sorted(set(days) - set(frame[log.day])):
        raise DataError(f"{log.path} has no rows on {missing[0]}, a day of the window {window}")
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    for name in (*log.texts, WEEKDAY):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table[name].cast(pa.string()))
    kind = LogKind("bench", "UTC", table.schema, {"file": log.path.name})
    day = frame[log.day].to_numpy()
    land_log(folder, kind, lambda: ((d, table.filter(pa.array(day == d))) for d in days))


def _contract(log: LogFile, window: Window) -> LogParams:
    return LogParams(
        format="bench", time_zone="UTC", label=log.responses, impressions=log.impressions,
        field=log.field, categorical=(*log.texts, WEEKDAY), numeric=log.numeric, truth=None,
    )  # fmt: skip


def _features(scores: Path, part: str) -> RowFeatures:
    described = read_scores_manifest(scores)["features"]["categorical"]
    return RowFeatures(*read_features(scores, part), tuple(column["size"] for column in described))


def log_cases(log: LogFile, window: Window, seeds: Sequence[int], params: Params) -> Iterator[Case]:
    """A case for each seed of the base model, trained as `params.train_base` says.

    Raises:
        DataError: the log lacks a column or a day, or breaks the data contract.
    """
    contract = _contract(log, window)
    parts = SplitParams(
        training_days=window.training,
        calibration_days=window.calibration,
        test_days=window.test,
        last_day=window.days()[-1],
    )
    with TemporaryDirectory() as place:
        names = ("data", "validation.json", "validation", "split")
        data, report, details, cut = (Path(place) / name for name in names)
        _land(log, window, data)
        limits = params.validate_.model_copy(update={"max_null_share": 1.0})
        validate.run(data, report, details, params=limits, log=contract, split=parts)
        split.run(data / "manifest.json", report, cut, params=parts, log=contract)
        for seed in seeds:
            base, scores = (Path(place) / f"{name}-{seed}" for name in ("base", "scores"))
            recipe = params.train_base.model_copy(update={"seed": seed})
            train_base.run(data, cut / "training.json", base, params=recipe, log=contract)
            score.run(
                data, cut, base, scores, params=ScoreParams(batch_size=4096, keep_features=True)
            )
            calibration, test = (
                (read_scores(scores, part), _features(scores, part))
                for part in ("calibration", "test")
            )
            yield Case(str(window), seed, *calibration, *test)
