"""DuckDB as this project uses it: bounded memory, then the temporary folder, and no downloads."""

from pathlib import Path
from tempfile import gettempdir

import duckdb


def engine() -> duckdb.DuckDBPyConnection:
    """A database in memory, to be closed."""
    return duckdb.connect(
        config={
            "threads": 2,
            "memory_limit": "1GB",
            "temp_directory": str(Path(gettempdir()) / "adacalib-spill"),
            "autoinstall_known_extensions": False,
        }
    )
