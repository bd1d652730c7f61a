"""DuckDB as this project uses it: bounded memory, then the temporary folder, and no downloads."""

from glob import escape
from pathlib import Path
from tempfile import gettempdir

import duckdb

from pipeline.core.errors import DataError


def engine() -> duckdb.DuckDBPyConnection:
    """A database in memory, to be closed; it shows nothing."""
    database = duckdb.connect(
        config={
            "threads": 2,
            "memory_limit": "1GB",
            "temp_directory": str(Path(gettempdir()) / "adacalib-spill"),
            "autoinstall_known_extensions": False,
            "python_enable_replacements": False,  # a name is no Python variable
        }
    )
    database.execute("SET enable_progress_bar = true")  # counted,
    database.execute("SET enable_progress_bar_print = false")  # not shown
    database.execute("SET TimeZone = 'UTC'")  # which stamps with a zone are given in
    return database


def refuse_no_select(database: duckdb.DuckDBPyConnection, query: str) -> None:
    """Refuse what is not one SELECT.

    Raises:
        DataError: it is another statement, several, or none.
    """
    found = [statement.type.name for statement in database.extract_statements(query)]
    if found != ["SELECT"]:
        raise DataError(
            f"select of the mapping is {' and '.join(found) or 'empty'}; give one SELECT"
        )


def shut(database: duckdb.DuckDBPyConnection, path: Path) -> None:
    """From now on no query reaches a file but `path`, or the network, or changes that."""
    names = text(str(path)), text(escape(str(path)))  # as it is, and as it is asked for
    database.execute(f"SET allowed_paths = [{', '.join(names)}]")
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")


def text(value: str) -> str:
    """`value` as a literal of SQL."""
    return "'" + value.replace("'", "''") + "'"


def name(column: str) -> str:
    """The name of a column in SQL."""
    return '"' + column.replace('"', '""') + '"'
