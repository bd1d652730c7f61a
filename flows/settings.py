"""How Prefect behaves here, unless the environment says otherwise; and secrets, shown nowhere.

Secrets come from the environment or from Prefect's secret blocks.
"""

import logging
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pipeline.core.files import read_json

POOL = "adacalib"
STATE = "local.json"  # in home(): what flows.local started, and the address of its server

# Without an API URL a flow starts a server of its own for the time it runs. That server may be slow
# to come up on a busy machine, and prints tracebacks of cancelled requests when it goes down.
DEFAULTS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    # A run that was killed with its worker gives its turn back after this many seconds, or after
    # five minutes where it had renewed it once, also where the server was killed in between: turns
    # are kept on the disk. flows.local up gives it back at once.
    "PREFECT_SERVER_CONCURRENCY_INITIAL_DEPLOYMENT_LEASE_DURATION": "60",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": (
        "prefect.server.concurrency.lease_storage.filesystem"
    ),
    "PREFECT_RUNNER_AUTO_INSTALL_DEPENDENCIES": "false",
}


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
_remembered: set[str] = set()


def home() -> Path:
    """The folder with Prefect's database and logs: PREFECT_HOME, or `.prefect` in this folder."""
    return Path(os.environ.get("PREFECT_HOME") or ".prefect").absolute()


def use_defaults() -> None:
    """Put the project's settings into the environment where they are not set yet."""
    os.environ["PREFECT_HOME"] = str(home())
    if (home() / STATE).exists():
        os.environ.setdefault("PREFECT_API_URL", f"{read_json(home() / STATE)['url']}/api")
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)


def remember(secret: str) -> None:
    """Mask a secret that is not in the environment from now on, for example that of a block."""
    _remembered.add(secret)


def masked(text: str) -> str:
    """`text` without secrets: values of secret variables; users, signatures … in addresses."""
    text = _IN_ADDRESS.sub(MASK, text)
    held = {value for name, value in os.environ.items() if _SECRET.search(name)} | _remembered
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


def mask_logs() -> None:
    """Mask secrets in every log record of this process, before any handler sees it."""
    make = logging.getLogRecordFactory()

    def make_masked(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        try:
            text = record.getMessage()
        except (TypeError, ValueError):  # the logging module reports such a record itself
            return record
        hidden = masked(text)
        if hidden != text:
            record.msg, record.args = hidden, ()
        return record

    logging.setLogRecordFactory(make_masked)
