"""The logs that a command can bring: their names, and landing one of them.

Where the files of a log lie: paths, patterns of paths, and object stores.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from glob import escape, glob, has_magic
from os.path import commonprefix
from pathlib import Path
from typing import Any

from pipeline.core.errors import DataError, ToolError, masked
from pipeline.core.files import refuse_pipe, scratch_folder, sha256_of
from pipeline.core.work import WorkProgress, followed
from pipeline.data.ingest import ali_ccp
from pipeline.data.ingest.fetched import PUBLIC
from pipeline.data.ingest.file_reader import land_files
from pipeline.data.ingest.mapping import read_mapping, shipped
from pipeline.data.ingest.simulated import Simulation
from pipeline.data.log_store.landing import (
    DEFAULTS,
    Landed,
    LandingOptions,
    Over,
    land_log,
    one_by_one,
)
from pipeline.data.log_store.manifest import DayEntry, amount
from pipeline.data.log_store.splits import stray_rows
from pipeline.data.log_store.store import seen_again, standing_log

FORMATS = (*PUBLIC, "simulated")
DAY = re.compile(r"\{day(?::([^{}]+))?\}")
MOST_CHANGES = 20  # days whose new version is reported one by one


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
    if log_format in [*shipped(), *ali_ccp.FORMATS] or log_format.endswith((".yaml", ".yml")):
        raise DataError(
            f"{log_format} is read from files, and none is named: adacalib data {log_format} FILE"
        )
    if log_format not in FORMATS:
        raise DataError(
            f"no format {log_format!r}; the formats are {', '.join(FORMATS)}, and with the files "
            f"of a log {', '.join([*shipped(), *ali_ccp.FORMATS])} or a mapping of your "
            "own; a refresh takes both by --source and --mapping"
        )
    if size and log_format != "simulated":
        raise DataError(f"{log_format} is what it is: it takes no {', '.join(size)}")
    log = Simulation(**size) if log_format == "simulated" else PUBLIC[log_format]
    manifest, changed = land_log(
        folder, log.kind(), lambda: followed(log.tables(), "made", log.days, "days")
    )
    holds = "now holds" if changed else "already held"
    return f"{folder} {holds} {log_format}: {_extent(manifest.days)}"


def land_sources(
    mapping: str,
    folder: Path,
    sources: Sequence[Path],
    options: LandingOptions = DEFAULTS,
    over: Over = one_by_one,
) -> str:
    """Land the days of the files `sources` in `folder`, and say what came: one line, and one for
    each of the first days that were there with other rows.

    Args:
        mapping: the name of one that ships, or a YAML file; see docs/data.md.
        folder: the log's folder; days that do not come stay as they are.
        options: see `land_parts`; what they say of the columns is not heeded where it is for a log
            of another format.
        over: see `land_files`; Ali-CCP is read here.

    Raises:
        DataError: the mapping or a file is not what it should be (the sentence names the line), or
            no row is left to land, or a day would lose many of its rows.
    """
    if mapping in FORMATS:
        raise DataError(f"{mapping} is fetched, not read from files; call it without sources")
    if options.as_of is not None:
        sources, given = _unseen(folder, sources, in_order=options.event_id is not None)
        if not sources:
            days = seen_again(folder, given, options.as_of)
            return f"{amount(len(days), 'day')} came as before; labels are as of {options.as_of}"
    rules = None if mapping in ali_ccp.FORMATS else read_mapping(mapping, ali_ccp.FORMATS)
    name = rules.format if rules else mapping
    heeded = options.format == name
    known = options if heeded else replace(options, event_id=None, label=None, impressions=None)
    size = sum(path.stat().st_size for path in sources if path.is_file())
    with WorkProgress("read", size, "bytes") as progress:
        known = replace(known, report=progress.advance)
        if rules:
            landed = land_files(folder, rules, sources, known, over)
        else:
            landed = ali_ccp.land_files(folder, name, sources, known)
    if options.as_of is not None:
        seen_again(folder, given, options.as_of)
    lines = _came(folder, sources, landed)
    if options.event_id and not heeded:
        lines.append(
            f"event ids were not compared: log.event_id is for {options.format}, not {name}"
        )
    return "\n".join(lines)


def _came(folder: Path, sources: Sequence[Path], landed: Landed) -> list[str]:
    """What came, in lines.

    Raises:
        DataError: no row did.
    """
    dropped = sum((Counter(entry.dropped) for entry in landed.days.values()), Counter[str]())
    if not any(entry.rows for entry in landed.days.values()):
        count = dropped.total()
        why = f"all {count:,} rows were dropped by the mapping's rules" if count else "no rows"
        raise DataError(f"{', '.join(map(str, sources))}: {why}; nothing was landed")
    left_out = "".join(f"; dropped {rows:,} ({rule})" for rule, rows in sorted(dropped.items()))
    holds = f"it holds {landed.manifest.format} and {landed.manifest.extent()}"
    lines = [f"{folder} took {_extent(landed.days)}{left_out}; {holds}"]
    lines += landed.changes[:MOST_CHANGES]
    if more := len(landed.changes[MOST_CHANGES:]):
        lines.append(f"{amount(more, 'more day')} with new versions")
    return lines + stray_rows(landed.manifest.days)


def _unseen(
    folder: Path, sources: Sequence[Path], *, in_order: bool
) -> tuple[list[Path], list[str]]:
    """The files that have not landed as they are, and the sha256 of all; in order: with all after
    the first of them, which may have corrected what that brings again.
    """
    standing = standing_log(folder)
    entries = standing.days.values() if standing else ()
    landed = {source.sha256 for entry in entries for source in entry.sources}
    found = {path: sha256_of(path) if path.is_file() else "" for path in sources}
    new = [path for path, sha256 in found.items() if sha256 not in landed]
    if in_order and new:
        new = [*found][[*found].index(new[0]) :]
    return new, [*found.values()]


def _extent(days: Mapping[str, DayEntry]) -> str:
    """How many rows there are on how many days; days without rows are none."""
    rows = {day: entry.rows for day, entry in days.items() if entry.rows}
    extent = f", {min(rows)}..{max(rows)}" if rows else ""
    return f"{amount(sum(rows.values()), 'row')} on {amount(len(rows), 'day')}{extent}"


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
        DataError: no file fits a pattern, none is of a log, or one is a pipe.
        ToolError: a store does not give a file.
    """
    with scratch_folder() as place:
        found = [(name, _local(name, place)) for source in sources for name in _named(source)]
        if not (files := [file for _, file in found if file.name != NO_LOG]):
            raise DataError(f"no file fits {', '.join(sources)}; name files of the log")
        for file in files:
            refuse_pipe(file)
        try:
            yield files
        except DataError as error:
            said = str(error)
            for name, file in found:
                said = said.replace(str(file), masked(name)) if "://" in name else said
            raise DataError(said) from None


def as_pattern(sources: Sequence[str]) -> list[str]:
    """The one pattern that names several files and no others, else the sources as they are."""
    backwards = [source[::-1] for source in sources]
    before, after = commonprefix(sources), commonprefix(backwards)[::-1]  # noqa: RUF071 of letters
    name = before.rfind("/") + 1  # a number in the name of a folder is none of a file's
    for pattern in (before[:name] + re.sub(r"\d+", "*", sources[0][name:]), f"{before}*{after}"):
        if sorted(glob(pattern)) == sorted(sources) != [sources[0]]:
            return [pattern]
    return [*sources]


def of_day(source: str, day: str | None) -> str:
    """A pattern with a day in it as `{day}`, or spelled otherwise as `{day:%Y%m%d}`, for one day.

    Args:
        source: the pattern.
        day: YYYY-MM-DD; None: every day.

    Raises:
        DataError: it does not name the day, so every day would be the same files.
    """

    def spelled(found: re.Match[str]) -> str:
        form = found[1] or "%Y-%m-%d"
        return date.fromisoformat(day).strftime(form) if day else re.sub("%.", "*", form)

    named, count = DAY.subn(spelled, source)
    if not count:
        raise DataError(f"source {source!r} does not name the day; write {{day}} where it stands")
    return named


def names_of(source: str, folder: Path = Path()) -> list[str]:
    """The paths, or the addresses in a store, that a pattern fits at this moment, ascending.

    Args:
        source: a pattern of paths or an address, as `local_files` takes them.
        folder: where a relative path is looked up.

    Raises:
        ToolError: the store does not answer.
    """
    if "://" not in source:
        path = folder / source  # names that are there are no patterns
        there = next(place for place in (path, *path.parents) if place.exists())
        fitting = Path(escape(str(there))) / path.relative_to(there)
        found = glob(str(fitting), recursive=True)
        return sorted(name for name in found if Path(name).is_file())
    with _asked(source) as (store, pattern):
        store.invalidate_cache()
        names = sorted(store.glob(pattern)) if has_magic(pattern) else [pattern]
        return [store.unstrip_protocol(name) for name in names if store.isfile(name)]


def _named(source: str) -> list[str]:
    is_name = not has_magic(source) or ("://" not in source and Path(source).exists())
    if not (found := [source] if is_name else names_of(source)):
        raise DataError(f"no file fits {source}; name files of the log")
    return found


def _local(address: str, place: Path) -> Path:
    if "://" not in address:
        return Path(address)
    with _asked(address) as (store, name):
        target = place / masked(name).lstrip("/")  # some stores' names are absolute paths
        target.parent.mkdir(parents=True, exist_ok=True)
        store.get_file(name, str(target))
    return target


@contextmanager
def _asked(address: str) -> Iterator[tuple[Any, str]]:
    """The store of an address, and the name there.

    Raises:
        ToolError: whatever the store raises.
    """
    from fsspec.core import url_to_fs

    try:
        yield url_to_fs(address)
    except Exception as error:  # each store has errors of its own
        reason = (str(error) or repr(error)).splitlines()[0]
        raise ToolError(
            f"{address} could not be fetched: {reason}; look at the address and at what the store "
            "asks for (keys, an endpoint), or fetch the files yourself"
        ) from None
