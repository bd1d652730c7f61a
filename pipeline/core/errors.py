"""The errors people see: one sentence that names rule, value and place, and the next step.

Secrets, shown nowhere: values of variables whose names say so, and parts of addresses.
"""

import os
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

MASK = "***"
NOTIFY = "ADACALIB_NOTIFY"
# Variables whose values are secrets, by their names.
_SECRET = re.compile(
    rf"TOKEN|SECRET|PASSW|CREDENTIAL|API_KEY|ACCESS_KEY|AUTH_STRING|CONNECTION_STRING|{NOTIFY}"
)
# Users, passwords and signatures in addresses; what stands alone before Azure's @ is a container.
_IN_ADDRESS = re.compile(
    r"(?<=://)(?:(?<!abfs://)(?<!abfss://)(?<!wasb://)(?<!wasbs://)|(?=[^/\s@'\"]*:))[^/\s@'\"]+(?=@)|"
    r"(?<=[?&#;])(?i:[\w.-]*(?:token|secret|sig|signature|key|keyid|passw\w*|pwd|credentials?|auth))="
    r"[^&\s'\"]+"
)
_SHORTEST = 6  # characters; what is shorter is no secret, and would be masked inside of words


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


def masked(text: str) -> str:
    """`text` without secrets: values of secret variables; users, signatures … in addresses."""
    text = _IN_ADDRESS.sub(MASK, text)
    held = {value for name, value in os.environ.items() if _SECRET.search(name)}
    held |= {part for value in held for part in _parts(value)}
    for secret in sorted(held, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, MASK)
    return text


def _parts(value: str) -> set[str]:
    """The addresses of a list of them, and what only its owner knows of each: all but the host."""
    found = set(value.split())
    for address in [entry for entry in found if "://" in entry]:
        _, _, rest = address.partition("://")
        user, at, place = rest.rpartition("@")
        words = re.split(r"[:/?&=]", user) if at else []
        words += re.split(r"[/?&=]", place)[1:]
        found |= {form for word in words for form in (word, unquote(word)) if len(word) >= 2}
    return found


def refuse_secrets(given: Iterable[Any]) -> None:
    """Refuse parameters of a run that hold a secret: Prefect stores parameters in clear.

    Raises:
        AdaCalibError: one does.
    """
    for value in given:
        if isinstance(value, str) and masked(value) != value:
            raise AdaCalibError(
                f"{masked(value)} holds a secret, and parameters of runs are stored in clear: name "
                "the address without it, and give keys in the environment or in the store's own "
                "settings"
            )
