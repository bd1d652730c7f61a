"""The connections of workers: how they end, and what is said where a worker is killed.

A killed process's sockets are closed with it, and who waits for an answer is reset. So each worker
gives its connections to its parent, too (SCM_RIGHTS of Unix sockets), which outlives it: it answers
those that were at work with 503 and closes all. The parent does nothing on the way of a request.
"""

import os
import re
import resource
import select
import socket
import threading
from asyncio import Transport
from collections.abc import Awaitable, Callable
from contextlib import suppress
from fcntl import F_GETFL, F_SETFL, fcntl
from functools import partial
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingUnixStreamServer
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

IDLE_SECONDS = 2.0  # a connection is kept so long for one more request before its process ends
CLOSE = (b"connection", b"close")
OFFER = re.compile(rb"\A((?:[^\r\n]+\r\n)+?)upgrade:[^\r\n]*\r\n", re.IGNORECASE)
AT_WORK = os.O_APPEND  # a bit of the open file, so of all processes that have it; sockets ignore it
SENTENCE = '{"error":"the process that had this request was killed; send it again"}'
ANSWER = (
    "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n"
    f"content-length: {len(SENTENCE)}\r\n\r\n{SENTENCE}"
).encode()


class HeldConnections(BaseRequestHandler):
    """Holds the connections of a worker that has joined, until they are closed."""

    def handle(self) -> None:
        """Take one after the other; where the worker has ended, answer all that it had."""
        poll, held = select.poll(), dict[int, socket.socket]()
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2  # new workers need files, too
        poll.register(self.request, select.POLLIN)
        while True:
            file, _ = poll.poll()[0]  # one a time: the next might be of what is closed by now
            if file in held:  # its worker or its client closed it
                poll.unregister(file)
                held.pop(file).close()
                continue
            said, files = b"", list[int]()
            with suppress(OSError):
                said, files, *_ = socket.recv_fds(self.request, 1, 1)
            if not said:
                break
            for new in files:
                if new < most:  # a file's number says how many are open
                    held[new] = socket.socket(fileno=new)
                    poll.register(new, 0)  # which tells the end of both directions
                else:
                    os.close(new)
        for connection in held.values():
            _answer(connection)


def hold_connections(place: Path) -> None:
    """Have the connections of all workers that join held, each worker's in a thread of its own.

    Args:
        place: of the Unix socket, in a folder that the workers share.

    Raises:
        OSError: the place is no place for one, for example as its name is too long.
    """
    door = ThreadingUnixStreamServer(str(place), HeldConnections)
    door.daemon_threads = True
    threading.Thread(target=door.serve_forever, daemon=True).start()


def _answer(connection: socket.socket) -> None:
    """Close a connection; before that answer a request that it brought."""
    with connection, suppress(OSError):
        connection.setblocking(False)
        if fcntl(connection, F_GETFL) & AT_WORK or connection.recv(1, socket.MSG_PEEK):
            connection.send(ANSWER)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):  # what nobody has read would reset it
                pass


class WorkerProtocol(HttpToolsProtocol):
    """A connection of HTTP/1 alone, which says so where an answer closes it: no request meets a
    closed door.

    Attributes:
        parent: leads to what holds connections, too; None: nobody does.
    """

    parent: socket.socket | None = None

    @classmethod
    def join(cls, place: Path) -> None:
        """Have connections held by who holds them at a place, where there is somebody."""
        with suppress(OSError):
            parent = socket.socket(socket.AF_UNIX)
            parent.connect(str(place))
            parent.setblocking(False)
            cls.parent = parent

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Begin, and have it held."""
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if self.parent:
            self.app = partial(_marked, self.app, connection)
            with suppress(OSError):
                socket.send_fds(self.parent, [b"."], [connection.fileno()])

    def connection_lost(self, exc: Exception | None) -> None:
        """End for all that hold it."""
        super().connection_lost(exc)
        with suppress(OSError):
            self.transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def data_received(self, data: bytes) -> None:
        """Take what has come, without a request's offer, which Java's client makes, to go on in
        another protocol: httptools would take the body for that protocol's."""
        if self.cycle is None or self.cycle.response_complete:
            data = OFFER.sub(rb"\1", data)
        super().data_received(data)

    def shutdown(self) -> None:
        """Answer what comes next and close; where nothing comes, close after a while."""
        if CLOSE not in self.server_state.default_headers:
            self.server_state.default_headers.append(CLOSE)
        self.loop.call_later(IDLE_SECONDS, super().shutdown)


async def _marked(
    app: Any, connection: socket.socket, scope: Any, receive: Any, send: Callable[..., Awaitable]
) -> None:
    """An ASGI app whose connection is marked as at work until an answer begins."""

    def mark(bit: int) -> None:
        with suppress(OSError, ValueError):  # it may be closed
            fcntl(connection, F_SETFL, os.O_NONBLOCK | bit)

    async def begun(message: Any) -> None:
        mark(0)
        await send(message)

    mark(AT_WORK)
    try:
        await app(scope, receive, begun)
    finally:
        mark(0)
