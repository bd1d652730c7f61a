"""params.yaml as one frozen, typed section per stage; nothing else opens that file."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from ruamel.yaml import YAML, YAMLError

from pipeline.errors import ParamsError

STAGES = (
    "validate",
    "split",
    "train_base",
    "score",
    "tabulate",
    "check_tables",
    "calibrate",
    "merge",
    "evaluate",
    "gate",
    "report",
)

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class Section(BaseModel):
    """A section: frozen, unknown keys refused, no silent conversion between types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class LogParams(Section):
    """The data contract: what the raw log's columns mean."""

    format: str
    time_zone: str
    label: str
    impressions: str | None
    field: Annotated[tuple[str, ...], Field(min_length=1)]
    categorical: tuple[str, ...]
    numeric: tuple[str, ...]
    truth: str | None
    event_id: str | None = None
    last_day: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")] | None


class ValidateParams(Section):
    """Limits a raw day must keep."""

    min_rows_per_day: Count
    max_null_share: Share


class SplitParams(Section):
    """How many whole days each part gets."""

    training_days: Count
    calibration_days: Count
    test_days: Count


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
    unseen_share: Annotated[float, Field(ge=0, lt=1)]
    held_out_share: Annotated[float, Field(gt=0, lt=1)]
    seed: int


class ScoreParams(Section):
    """How days are scored."""

    batch_size: Count
    keep_features: bool


class TabulateParams(Section):
    """Which field statistics are made."""

    candidates: Annotated[tuple[Count, ...], Field(min_length=1)]
    grid_cells: Count
    days: Literal["calibration", "training_and_calibration"]

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
    horizon_days: Count | None
    steps: Count
    learning_rate: Positive
    weight_decay: NotNegative
    temperatures: tuple[Positive, Positive]
    min_slope: Positive
    seed: int
    paper: PaperParams


class MergeParams(Section):
    """How exactly the merged checkpoint must repeat its parts."""

    parity_tolerance: Positive


class EvaluateParams(Section):
    """How intervals are made."""

    replicates: Count
    confidence: Annotated[float, Field(gt=0, lt=1)]
    seed: int


class GateParams(Section):
    """What a model must show to be worth promoting."""

    min_test_responses: Count
    max_pcoc_error: Positive
    max_field_auc_loss: NotNegative
    max_auc_loss: NotNegative
    min_logloss_gain: float


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


def section(params: Params, stage: str) -> Section:
    """The section of one stage (`validate` is a method name of every pydantic model)."""
    return getattr(params, "validate_" if stage == "validate" else stage)


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _sentence(path: Path, error: ValidationError) -> str:
    """One sentence for all that is wrong: unknown and missing keys by section, then values."""
    unknown: dict[str, list[str]] = {}
    missing: dict[str, list[str]] = {}
    values = []
    for item in error.errors():
        *parents, key = item["loc"] or ("params",)
        place = ".".join(str(part) for part in parents)
        if item["type"] == "extra_forbidden":
            unknown.setdefault(place, []).append(str(key))
        elif item["type"] == "missing":
            missing.setdefault(place, []).append(str(key))
        else:
            name = ".".join(str(part) for part in item["loc"])
            values.append(f"{name} is {item['input']!r}: {item['msg']}")
    sentences = []
    for place in dict.fromkeys([*unknown, *missing]):
        parts = [f"has unknown {sorted(unknown[place])}"] if place in unknown else []
        parts += [f"lacks {sorted(missing[place])}"] if place in missing else []
        sentences.append(f"{place or 'the file'} {' and '.join(parts)}")
    return f"{path}: {'; '.join(sentences + values)}"


def read_params(path: Path = Path("params.yaml")) -> Params:
    """All sections of `path`, typed and frozen; numbers as YAML 1.2 reads them (1e-3 is a number).

    Raises:
        ParamsError: the file is missing or is not YAML; a key is unknown, missing or mistyped, or a
            value is outside its range; the sentence names the key's path and its value.
    """
    try:
        document = YAML(typ="safe", pure=True).load(path.read_text())
    except FileNotFoundError:
        raise ParamsError(f"{path} does not exist; run in the project's folder") from None
    except YAMLError as error:
        raise ParamsError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    try:
        return Params.model_validate(_tuples(document))
    except ValidationError as error:
        raise ParamsError(_sentence(path, error)) from None


def set_values(path: Path, values: dict[str, Any]) -> None:
    """Change single values of `path`, named `section.key`, and keep its comments and order.

    Raises:
        ParamsError: a name does not exist in the file, or the result is not valid; the file is then
            as it was.
    """
    from pipeline.files import publish

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 200
    yaml.representer.add_representer(
        type(None),
        lambda representer, _: representer.represent_scalar("tag:yaml.org,2002:null", "null"),
    )
    before = path.read_text()
    document = yaml.load(before)
    for name, value in values.items():
        *parents, key = name.split(".")
        place = document
        for parent in parents:
            place = place.get(parent, {})
        if key not in place:
            raise ParamsError(f"{path} has no {name}")
        place[key] = value
    with publish(path) as temporary:
        yaml.dump(document, temporary)
        read_params(temporary)
