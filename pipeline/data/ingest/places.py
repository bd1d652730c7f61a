"""Where the files of a log lie: paths, patterns of paths, and object stores."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import glob, has_magic
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.core.errors import DataError, ToolError

NO_LOG = "_SUCCESS"  # an empty file by which some programs say that a folder is whole


@contextmanager
def local_files(sources: Sequence[str]) -> Iterator[list[Path]]:
    """The files that sources name, in their order, those of a pattern by name.

    What lies in an object store is fetched into the temporary folder, under its whole name, and
    goes at the end.

    Args:
        sources: paths; patterns as of a shell, where no file has that name; or addresses such as
            s3://bucket/dt=2024-04-01/*.csv.gz, of any store that fsspec knows.

    Raises:
        DataError: no file fits a pattern, or none is of a log.
        ToolError: a store does not give a file.
    """
    with TemporaryDirectory(prefix="adacalib-") as place:
        found = [file for source in sources for file in _files(source, Path(place))]
        if not (files := [file for file in found if file.name != NO_LOG]):
            raise DataError(f"no file fits {', '.join(sources)}; name files of the log")
        yield files


def _files(source: str, place: Path) -> list[Path]:
    if "://" in source:
        found = _fetched(source, place)
    elif Path(source).exists() or not has_magic(source):
        return [Path(source)]
    else:
        found = [Path(name) for name in sorted(glob(source, recursive=True))]
        found = [path for path in found if path.is_file()]
    if not found:
        raise DataError(f"no file fits {source}; name files of the log")
    return found


def _fetched(source: str, place: Path) -> list[Path]:
    from fsspec.core import url_to_fs

    try:
        store, pattern = url_to_fs(source)
        names = sorted(store.glob(pattern)) if has_magic(pattern) else [pattern]
        for name in names:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            store.get_file(name, str(place / name))
    except Exception as error:  # each store has errors of its own
        reason = (str(error) or repr(error)).splitlines()[0]
        raise ToolError(
            f"{source} could not be fetched: {reason}; look at the address and at what the store "
            "asks for (keys, an endpoint), or fetch the files yourself"
        ) from None
    return [place / name for name in names]
