"""DuckDB as this project uses it: bounded memory, then the temporary folder, and no downloads."""

from pathlib import Path
from tempfile import gettempdir

import duckdb


def engine() -> duckdb.DuckDBPyConnection:
    """A database in memory, to be closed; it shows nothing."""
    database = duckdb.connect(
        config={
            "threads": 2,
            "memory_limit": "1GB",
            "temp_directory": str(Path(gettempdir()) / "adacalib-spill"),
            "autoinstall_known_extensions": False,
        }
    )
    database.execute("SET enable_progress_bar_print = false")  # shown where Python has no script
    database.execute("SET TimeZone = 'UTC'")  # which stamps with a zone are given in
    return database


def text(value: str) -> str:
    """`value` as a literal of SQL."""
    return "'" + value.replace("'", "''") + "'"


def name(column: str) -> str:
    """The name of a column in SQL."""
    return '"' + column.replace('"', '""') + '"'
