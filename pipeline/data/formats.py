"""The logs that a command can bring: their names, and landing one of them."""

from dataclasses import fields
from pathlib import Path

from pipeline.data import flights, obd
from pipeline.data.landing import land_log
from pipeline.data.simulated import Simulation
from pipeline.errors import DataError

FORMATS = ("flights", "obd", "simulated")


def land(log_format: str, folder: Path, **size: int) -> str:
    """Make `folder` hold the log `log_format`, and say so in one sentence; nothing if it does.

    Args:
        log_format: one of FORMATS.
        folder: the log's folder; its parent has to be writable.
        size: `rows`, `days`, `field_values`, `seed` of a simulated log, defaults where left out.

    Raises:
        DataError: there is no such format, it takes no size, or `folder` holds a log that cannot
            be brought again.
        ToolError: a download failed.
    """
    if log_format not in FORMATS:
        raise DataError(f"no format {log_format!r}; the formats are {', '.join(FORMATS)}")
    unknown = sorted(set(size) - {field.name for field in fields(Simulation)})
    if unknown or (size and log_format != "simulated"):
        raise DataError(f"{log_format} is what it is: it takes no {', '.join(unknown or size)}")
    if log_format == "simulated":
        simulation = Simulation(**size)
        manifest, changed = land_log(folder, simulation.kind(), simulation.tables)
    else:
        public = {"flights": flights, "obd": obd}[log_format]
        manifest, changed = land_log(folder, public.KIND, public.days)
    rows = sum(entry.rows for entry in manifest.days.values())
    return (
        f"{folder} {'now holds' if changed else 'already held'} {log_format}: {rows:,} rows on "
        f"{len(manifest.days)} days, {min(manifest.days)}..{max(manifest.days)}"
    )
