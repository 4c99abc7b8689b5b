"""Health over HTTP: /healthz, /readyz and /metrics, for all who can reach the address."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING

from .._check.line import summary_line
from .._errors import PyresolveError
from .._model import Verdict
from . import metrics
from .checks import worst
from .monitor import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from .checks import Health

LOOPBACK = "127.0.0.1"

_CONNECTIONS = 512  # open at a time, half of the usual limit of open files
_QUEUE = 128
_REQUEST_SIZE = 8192  # bytes of a request with its headers
_REQUEST_TIME = 3.0  # seconds that a client has to send its request, and again to take the answer
_FAREWELL = 2.0  # seconds for open requests after a signal to end

_TEXT = "text/plain; charset=utf-8"

_INTERRUPTED = 130


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `ADDR:PORT`, `:PORT` or `PORT`; without a host it is loopback."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise ValueError(f"address is {text!r}: give ADDR:PORT, or a port alone for loopback")
    return host or LOOPBACK, int(port)


def listen(address: tuple[str, int]) -> socket.socket:
    """Return a socket that listens there. Raises PyresolveError."""
    try:
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, place = found[0]
        both = family == socket.AF_INET6  # [::] is also 0.0.0.0
        return socket.create_server(place[:2], family=family, backlog=_QUEUE, dualstack_ipv6=both)
    except OSError as error:
        raise _cannot_serve(address, error) from error


class Server:
    """Serves the health that `examine` returns; `ready` are the verdicts that count as ready.

    One thread serves all connections, so that a slow client delays no other. `examine` may block:
    it is called in another thread, and all requests that come meanwhile share its result.
    """

    def __init__(
        self, *, examine: Callable[[], Sequence[Health]], ready: frozenset[Verdict]
    ) -> None:
        self._examine = examine
        self._ready = ready
        self._connections: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._results: Future[Sequence[Health]] | None = None

    async def serve(self, listening: socket.socket, *, announce: Callable[[], None]) -> int:
        """Serve until SIGTERM or SIGINT comes; return the exit status. For the main thread.

        `announce` is called when the signal handlers are set and the server accepts connections.
        """
        signals: asyncio.Queue[int] = asyncio.Queue()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, signals.put_nowait, number)
        server = await asyncio.start_server(
            self._serve, sock=listening, limit=_REQUEST_SIZE, backlog=_QUEUE
        )
        announce()
        received = await signals.get()
        server.close()
        if self._connections:
            await asyncio.wait([*self._connections], timeout=_FAREWELL)
        return _INTERRUPTED if received == signal.SIGINT else 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task, "start_server() makes one"
        self._connections[task] = None
        if len(self._connections) > _CONNECTIONS:
            oldest = next(iter(self._connections))
            del self._connections[oldest]  # not counted any more, though it ends later
            oldest.cancel()
        try:
            writer.transport.set_write_buffer_limits(0)  # drain() waits for the last byte
            writer.write(await self._respond(reader))
            await asyncio.wait_for(writer.drain(), _REQUEST_TIME)
        except (OSError, EOFError, asyncio.TimeoutError, asyncio.CancelledError):
            pass  # the client is gone or too slow, or was dropped for a newer one
        finally:
            writer.transport.abort()
            # An error of the connection that is not retrieved is reported on stderr later, when
            # its future is collected.
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()
            self._connections.pop(task, None)

    async def _respond(self, reader: asyncio.StreamReader) -> bytes:
        try:
            data = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _REQUEST_TIME)
        except asyncio.LimitOverrunError:
            return _reply(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        request, *headers = data.decode("latin-1").split("\r\n")
        words = request.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _reply(HTTPStatus.BAD_REQUEST)
        if words[0] not in ("GET", "HEAD"):
            return _reply(HTTPStatus.NOT_IMPLEMENTED)
        fields = [header.partition(":") for header in headers]
        accept = ",".join(value for name, _, value in fields if name.lower() == "accept")
        try:
            answer = await self._answer(words[1].partition("?")[0], accept)
        except PyresolveError as error:  # no thread or process can be started
            answer = HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n", _TEXT
        return _reply(*answer, head=words[0] == "HEAD")

    async def _answer(self, path: str, accept: str) -> tuple[HTTPStatus, str, str]:
        if path == "/healthz":
            return HTTPStatus.OK, "ok\n", _TEXT
        if path == "/readyz":
            results = await self._examined()
            ready = worst(results) in self._ready
            line = summary_line([health.summary for health in results])
            status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
            return status, f"{line}\n", _TEXT
        if path == "/metrics":
            return HTTPStatus.OK, *metrics.exposition(await self._examined(), accept)
        return HTTPStatus.NOT_FOUND, "here are /healthz, /readyz and /metrics\n", _TEXT

    async def _examined(self) -> Sequence[Health]:
        if self._results is None or self._results.done():
            self._results = in_thread(self._examine)
        return await asyncio.wrap_future(self._results)


def _reply(status: HTTPStatus, body: str = "", kind: str = _TEXT, *, head: bool = False) -> bytes:
    data = (body or f"{status.phrase}\n").encode()
    headers = (
        f"HTTP/1.0 {status.value} {status.phrase}\r\n"
        f"Date: {formatdate(usegmt=True)}\r\n"
        f"Content-Type: {kind}\r\n"
        f"Content-Length: {len(data)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    return headers.encode() + (b"" if head else data)


def _cannot_serve(address: tuple[str, int], error: OSError) -> PyresolveError:
    host, port = address
    why = error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        why = "another program listens there"
    return PyresolveError(f"cannot listen on {host} port {port} ({why}): give another --serve")
