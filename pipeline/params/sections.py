"""What each section of params.yaml may say: its keys, types and limits, frozen."""

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from pipeline.core.typed_yaml import Section, Zone


def _quoted(day: Any) -> Any:
    if isinstance(day, date):
        raise ValueError(f'a date is quoted: "{day:%Y-%m-%d}"')
    return day


def _in_calendar(day: str) -> str:
    date.fromisoformat(day)
    return day


LARGEST = 2**31 - 1  # of counts: what a column of int32 holds
Count = Annotated[int, Field(ge=1, le=LARGEST)]
Number = Annotated[int, Field(ge=0, le=LARGEST)]
Days = Annotated[int, Field(ge=0, le=3660)]
Day = Annotated[
    str,
    Field(pattern=r"^\d{4}-\d{2}-\d{2}$"),
    BeforeValidator(_quoted),
    AfterValidator(_in_calendar),
]
Share = Annotated[float, Field(ge=0, le=1)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
Factor = Annotated[float, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
KeepRate = Annotated[float, Field(ge=2**-20, le=1)]
NotNegative = Annotated[float, Field(ge=0)]

SPLITS = ("training", "calibration", "test")
NO_COLUMNS = {"format", "time_zone", "maturity_days", "keep_rate"}  # of the section log


class KeepRates(Section):
    """The share of non-responses that were kept in the days of each split."""

    training: KeepRate = 1.0
    calibration: KeepRate = 1.0
    test: KeepRate = 1.0


class LogParams(Section):
    """The data contract: what the raw log's columns mean."""

    format: str
    time_zone: Zone
    label: str
    impressions: str | None
    field: Annotated[tuple[str, ...], Field(min_length=1)]
    field_parents: tuple[str, ...] = ()
    categorical: tuple[str, ...]
    numeric: tuple[str, ...]
    truth: str | None
    value: str | None = None
    event_id: str | None = None
    maturity_days: Days = 0
    served_logit: str | None = None
    served_probability: str | None = None
    keep_rate: KeepRates | None = None
    weight: str | None = None

    def columns(self) -> dict[str, str]:
        """Every column that a key names, with the first such key."""
        found: dict[str, str] = {}
        for key in (name for name in LogParams.model_fields if name not in NO_COLUMNS):
            value = getattr(self, key)
            for name in (value,) if isinstance(value, str) else value or ():
                found.setdefault(name, f"log.{key}")
        return found

    @field_validator("keep_rate", mode="before")
    @classmethod
    def _of_every_split(cls, rate: Any) -> Any:
        if isinstance(rate, (int, float)) and not isinstance(rate, bool):
            return dict.fromkeys(KeepRates.model_fields, rate)
        return rate

    @model_validator(mode="after")
    def _no_two_of_a_kind(self) -> "LogParams":
        pairs = {"served_logit": "served_probability", "keep_rate": "weight"}
        for one, other in pairs.items():
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise ValueError(f"{one} and {other} are both set, and say the same; name one")
        return self

    @model_validator(mode="after")
    def _each_column_once(self) -> "LogParams":
        for role in ("field", "field_parents", "categorical", "numeric"):
            names = getattr(self, role)
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{role} names {twice} twice; name each column once")
        answers = [n for n in (self.label, self.impressions, self.truth, self.weight) if n]
        others = [*self.field, *self.field_parents, *self.categorical, *self.numeric, self.value]
        others += [self.event_id, self.served_logit, self.served_probability]
        if wrong := sorted({n for n in answers if answers.count(n) > 1 or n in others}):
            raise ValueError(
                f"{wrong} may be named once, as label, impressions, truth or weight: no field, no "
                "feature and no score may tell the answer"
            )
        if self.field_parents and {*self.field} <= {*self.field_parents}:
            raise ValueError("field_parents has all of field, so each value is its own parent")
        return self


class DayLimits(Section):
    """How far a day may be from the days before it; None: any way."""

    warning: NotNegative | None
    error: NotNegative | None

    @model_validator(mode="after")
    def _warning_first(self) -> "DayLimits":
        if self.warning is not None and self.error is not None and self.warning > self.error:
            raise ValueError(f"the warning {self.warning:g} must come before the error")
        return self


class Factors(DayLimits):
    """Limits of a quotient, which is turned so that it is 1 or more."""

    warning: Factor | None
    error: Factor | None


class ValidateParams(Section):
    """Limits a raw day must keep."""

    min_rows_per_day: Count
    max_null_share: Share
    recent_days: Count
    impressions_factor: Factors
    response_rate_factor: Factors
    null_share_rise: DayLimits
    new_value_share: DayLimits


class SplitParams(Section):
    """How many whole days each split gets."""

    training_days: Count
    calibration_days: Count
    test_days: Count
    last_day: Day | None = None
    retrain_every_days: Count = 1
    training_until: Day | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Part → number of days."""
        return {split: getattr(self, f"{split}_days") for split in SPLITS}


class TrainBaseParams(Section):
    """The base network and its training."""

    embedding_size: Count
    hidden_sizes: tuple[Count, ...]
    max_vocabulary: Count
    epochs: Count
    patience: Count
    batch_size: Count
    learning_rate: Positive
    weight_decay: NotNegative
    unseen_share: BelowOne
    held_out_share: Annotated[float, Field(gt=0, lt=1)]
    seed: Number


class ScoreParams(Section):
    """How days are scored."""

    batch_size: Count
    max_field_values: Count | None = None
    keep_features: bool


class TabulateParams(Section):
    """Which field statistics are made."""

    candidates: Annotated[tuple[Count, ...], Field(min_length=1)]
    grid_cells: Count

    @field_validator("candidates")
    @classmethod
    def _ascending(cls, candidates: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(candidates)))

    @model_validator(mode="after")
    def _cells_fit_candidates(self) -> "TabulateParams":
        odd = [k for k in self.candidates if self.grid_cells % k]
        if odd:
            raise ValueError(f"grid_cells {self.grid_cells} is not a multiple of candidates {odd}")
        return self


class CheckTablesParams(Section):
    """Tolerances of the bin-table checks."""

    equal_frequency_tolerance: Positive


class PaperParams(Section):
    """AdaCalib as published: the parts of its ablation table, and its training on rows."""

    posterior_guidance: bool
    adaptive_function: bool
    adaptive_binning: bool
    auxiliary: bool
    epochs: Count
    least_steps: Count
    batch_size: Count
    learning_rate: Positive


class CalibrateParams(Section):
    """Which calibrator is fitted and how it is chosen."""

    variant: Literal["crossfit", "paper"]
    choose: Literal["held_out", "always"]
    accepted_days: tuple[Day, ...]
    steps: Count
    learning_rate: Positive
    weight_decay: NotNegative
    temperatures: tuple[Positive, Positive]
    min_slope: Positive
    min_responses_per_bin: Number = 0
    seed: Number
    paper: PaperParams


class MergeParams(Section):
    """How exactly the merged checkpoint must repeat its parts."""

    parity_tolerance: Positive


class EvaluateParams(Section):
    """How intervals are made, and what is looked at one by one."""

    replicates: Annotated[int, Field(ge=40, le=LARGEST)]  # fewer have no tails of 2.5 %
    largest_field_values: Count
    confidence: Annotated[float, Field(gt=0, lt=1)]
    seed: Number
    days_per_false_alarm: Count = 365


class GateParams(Section):
    """What a model must show to be promoted."""

    min_test_responses: Count
    max_pcoc_error: Positive
    far_pcoc_error: Positive
    pcoc_margin: NotNegative
    logloss_margin: Share
    max_value_pcoc_error: Positive
    max_field_auc_loss: NotNegative
    max_auc_loss: NotNegative
    min_distinct_share: Share
    min_logloss_gain: float
    champion_tolerance: Share
    max_mix_drift: Positive
    max_rate_drift: Positive
    max_memorisation: Positive


class ReportParams(Section):
    """What the report draws."""

    field_values: Count


class Params(Section):
    """All sections of params.yaml."""

    log: LogParams
    validate_: Annotated[ValidateParams, Field(alias="validate")]
    split: SplitParams
    train_base: TrainBaseParams
    score: ScoreParams
    tabulate: TabulateParams
    check_tables: CheckTablesParams
    calibrate: CalibrateParams
    merge: MergeParams
    evaluate: EvaluateParams
    gate: GateParams
    report: ReportParams
