"""How Prefect behaves here, unless the environment says otherwise; and no secrets in its logs."""

import logging
import os
from pathlib import Path
from typing import Any

from pipeline.core.errors import masked
from pipeline.core.files import read_json
from pipeline.registry.tools.programs import reach_this_machine

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


def home() -> Path:
    """The folder with Prefect's database and logs: PREFECT_HOME, or `.prefect` in this folder."""
    return Path(os.environ.get("PREFECT_HOME") or ".prefect").absolute()


def use_defaults() -> None:
    """Put the project's settings into the environment where they are not set yet."""
    os.environ["PREFECT_HOME"] = str(home())
    reach_this_machine()
    if (home() / STATE).exists():
        noted = read_json(home() / STATE, "remove it, end what listens on its port, and make up")
        os.environ.setdefault("PREFECT_API_URL", f"{noted['url']}/api")
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)


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
