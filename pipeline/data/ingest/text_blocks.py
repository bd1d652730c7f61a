"""Text files, a block of whole lines at a time, read ahead of whoever parses them."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any, TypeVar

import pyarrow as pa

from pipeline.core.errors import DataError

BLOCK = 8 << 20  # bytes of text, plus one line
LONGEST_LINE = 64 << 20  # bytes
CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
BEGINNINGS = {  # of files that are no text, and what the names of such files end in
    b"\x1f\x8b": ".gz",
    b"BZh": ".bz2",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"PK\x03\x04": ".zip",
    b"PAR1": ".parquet",
    b"\xff\xfe": ".utf16",
    b"\xfe\xff": ".utf16",
}
OWN_NAME = "which is the column's own name, as in a second header; remove that line"
MARK = b"\xef\xbb\xbf"  # with which some programs begin a text in UTF-8


@dataclass(frozen=True)
class Block:
    """Whole lines of a file.

    Attributes:
        path: of the file.
        line: number of the first of them, from 1.
        text: the lines.
        position: bytes of the file, as it lies on the disk, read so far.
        odd_quotes: whether a line may have an odd number of quotes.
    """

    path: Path
    line: int
    text: bytes
    position: int
    odd_quotes: bool = True


def read_blocks(path: Path, size: int = BLOCK) -> Iterator[Block]:
    """The lines of a file: plain, .gz, .bz2 or .zst by its name; a byte order mark is passed over.

    Raises:
        DataError: the file is missing, no text, its compressed stream is damaged or cut short, or
            no line ends for long.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder; name the files in it")
    try:
        with pa.OSFile(str(path)) as raw, _decompressed(raw, path) as stream:
            yield from _lines(stream, raw, path, size)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; name a file of the log") from None
    except OSError as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"{path} cannot be read to its end: {reason}; where it is cut short or damaged, "
            "fetch or write it again"
        ) from None


def _decompressed(raw: pa.NativeFile, path: Path) -> pa.NativeFile:
    codec = CODECS.get(path.suffix.lower())
    return pa.CompressedInputStream(raw, codec) if codec else raw


def _refuse_no_text(start: bytes, path: Path) -> None:
    for beginning, ending in BEGINNINGS.items():
        if start.startswith(beginning):
            remedy = (
                f"let its name end in {ending}" if ending in CODECS else "make it text in UTF-8"
            )
            raise DataError(f"{path} is no text: it begins like a {ending} file; {remedy}")


def _lines(stream: pa.NativeFile, raw: pa.NativeFile, path: Path, size: int) -> Iterator[Block]:
    line, rest, at_start = 1, b"", True
    while chunk := stream.read(size):
        if at_start:
            _refuse_no_text(chunk, path)
            chunk, at_start = chunk.removeprefix(MARK), False
        end = chunk.rfind(b"\n") + 1
        if not end:
            rest += chunk
            if len(rest) > LONGEST_LINE:
                raise DataError(f"{path}, line {line}: no line ends within {len(rest):,} bytes")
            continue
        text, rest = rest + chunk[:end], chunk[end:]
        yield Block(path, line, text, raw.tell())
        line += text.count(b"\n")
    if rest:
        yield Block(path, line, rest, raw.tell())


Item = TypeVar("Item")
WAIT = 0.1  # seconds between looks whether anybody still wants more


def prefetched(items: Iterable[Item], depth: int = 2) -> Generator[Item, None, None]:
    """The same items in the same order, made in a thread that is at most `depth` + 1 ahead.

    An error in the thread is raised where its item was due. When the consumer closes this
    generator the thread ends, and with it `items`.
    """
    queue: Queue[tuple[str, Any]] = Queue(depth)
    enough = Event()
    thread = Thread(target=_work, args=(items, queue, enough), daemon=True)
    thread.start()
    try:
        while True:
            kind, item = queue.get()
            if kind == "end":
                return
            if kind == "error":
                raise item
            yield item
    finally:
        enough.set()
        thread.join()
        with suppress(Empty):
            while True:
                queue.get_nowait()


def _work(items: Iterable[Any], queue: Queue[tuple[str, Any]], enough: Event) -> None:
    try:
        for item in items:
            if not _offered(queue, ("item", item), enough):
                break
        _offered(queue, ("end", None), enough)
    except BaseException as error:  # whatever it is, the consumer gets it
        _offered(queue, ("error", error), enough)
    finally:
        if isinstance(items, Generator):
            items.close()


def _offered(queue: Queue[tuple[str, Any]], message: tuple[str, Any], enough: Event) -> bool:
    while not enough.is_set():
        try:
            queue.put(message, timeout=WAIT)
        except Full:
            continue
        return True
    return False
