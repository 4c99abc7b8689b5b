"""Health over HTTP: /healthz, /readyz and /metrics, for whoever can reach the address."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import threading
from contextlib import suppress
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from .._check.line import summary_line
from .._errors import ProbeError, PyresolveError
from .._model import Verdict
from . import metrics
from .checks import worst

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .checks import Health

LOOPBACK = "127.0.0.1"

_CONNECTIONS = 512  # open at a time, half of the usual limit of open files
_QUEUE = 128
_REQUEST_SIZE = 8192  # bytes of a request with its headers
_REQUEST_TIME = 3.0  # seconds that a client has to send its request, and again to take the answer
_FAREWELL = 2.0  # seconds that the last requests have at the end

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
    """Serves the health that `examine` returns; `ready` says which verdicts are good enough.

    One thread serves all connections, so that a client that is slow keeps no other one waiting.
    `examine` may block: it is called in another thread, once for all who ask meanwhile.
    """

    def __init__(
        self, *, examine: Callable[[], Sequence[Health]], ready: frozenset[Verdict]
    ) -> None:
        self._examine = examine
        self._ready = ready
        self._connections: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._results: asyncio.Future[Sequence[Health]] | None = None

    async def serve(self, listening: socket.socket, *, announce: Callable[[], None]) -> int:
        """Serve until SIGTERM or SIGINT comes; return the exit status. For the main thread.

        `announce` is called once both ends are in place.
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
            del self._connections[oldest]  # now, since it ends later
            oldest.cancel()
        try:
            writer.transport.set_write_buffer_limits(0)  # drain() waits for the last byte
            writer.write(await self._respond(reader))
            await asyncio.wait_for(writer.drain(), _REQUEST_TIME)
        except (OSError, EOFError, asyncio.TimeoutError, asyncio.CancelledError):
            pass  # the client is gone or too slow, or was dropped
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
        except PyresolveError as error:  # no thread, no process: that is an answer, too
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
        if self._results is None:
            loop = asyncio.get_running_loop()
            results: asyncio.Future[Sequence[Health]] = loop.create_future()
            try:
                # A daemon: at the end nobody waits for a check that hangs.
                threading.Thread(target=self._work, args=(loop, results), daemon=True).start()
            except RuntimeError as error:
                raise ProbeError(f"{error}: raise ulimit -u or the pids limit") from error
            self._results = results
        return await asyncio.shield(self._results)  # a client that is dropped ends it for no other

    def _work(
        self, loop: asyncio.AbstractEventLoop, results: asyncio.Future[Sequence[Health]]
    ) -> None:
        try:
            finish = partial(results.set_result, self._examine())
        except BaseException as error:  # noqa: BLE001  (raised in whoever waits)
            finish = partial(results.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed: the server has ended
            loop.call_soon_threadsafe(self._finish, finish)

    def _finish(self, finish: Callable[[], None]) -> None:
        self._results = None
        finish()


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
