"""The errors people see: one sentence that names rule, value and place, and the next step."""


class AdaCalibError(Exception):
    """Something the reader can act on; the command line prints its sentence and exits with 1."""


class ParamsError(AdaCalibError):
    """params.yaml has an unknown, missing or mistyped key, or a value outside its range."""


class DataError(AdaCalibError):
    """A log, a day or a column is not what the data contract says."""


class NotEnoughDataError(DataError):
    """There are too few days, rows or responses for what was asked."""


class ArtifactError(AdaCalibError):
    """An artifact is missing, damaged, or does not belong to the others it is used with."""


class ArtifactKeyError(ArtifactError, KeyError):
    """A JSON file lacks a key that its reader needs."""

    __str__ = Exception.__str__  # a KeyError's would put the sentence in quotes


class TrainingError(AdaCalibError):
    """Training cannot go on: a loss that is not finite, a checkpoint that cannot be resumed."""


class CheckFailedError(AdaCalibError):
    """The field-statistics tables break their structure; nothing may be fitted on them."""


class ReleaseError(AdaCalibError):
    """A promotion or rollback was refused; production is as it was."""


class ToolError(AdaCalibError):
    """An outside program (git, dvc, pip …) is missing, busy or failed."""
