"""Health over HTTP: /healthz, /readyz and /metrics, for whoever can reach the address."""

from __future__ import annotations

import errno
import io
import signal
import socket
import threading
import time
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any

from .._check.line import summary_line
from .._errors import PyresolveError
from .._model import Verdict
from . import metrics
from .checks import worst

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .checks import Health

LOOPBACK = "127.0.0.1"

_CONNECTIONS = 32  # served at a time; others wait in the kernel's queue
_QUEUE = 128
_REQUEST_SIZE = 8192  # bytes of a request with its headers
_REQUEST_TIME = 3.0  # seconds that a client has for all of its request, and for taking the answer
_FAREWELL = 2.0  # seconds that the last requests have at the end

_UNAVAILABLE = 503
_TOO_LARGE = 431
_OK = 200
_NOT_FOUND = 404
_TEXT = "text/plain; charset=utf-8"

_INTERRUPTED = 130


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `ADDR:PORT`, `:PORT` or `PORT`; without a host it is loopback."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise ValueError(f"address is {text!r}: give ADDR:PORT, or a port alone for loopback")
    return host or LOOPBACK, int(port)


class Server(HTTPServer):
    """Serves the health that `examine` returns; `ready` says which verdicts are good enough."""

    request_queue_size = _QUEUE

    def __init__(
        self,
        address: tuple[str, int],
        *,
        examine: Callable[[], Sequence[Health]],
        ready: frozenset[Verdict],
    ) -> None:
        self.examine = examine
        self.ready = ready
        self._slots = threading.BoundedSemaphore(_CONNECTIONS)
        try:
            found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            self.address_family = found[0][0]
            super().__init__(found[0][4][:2], _Handler)  # type: ignore[arg-type]
        except OSError as error:
            raise _cannot_serve(address, error) from error

    def server_bind(self) -> None:
        """Bind without the look-up of our own name that HTTPServer makes, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Serve in a thread, once there is room for one more."""
        self._slots.acquire()
        try:
            threading.Thread(
                target=self._serve, args=(request, client_address), daemon=True
            ).start()
        except RuntimeError:  # no more threads: this client comes again
            self._slots.release()
            self.shutdown_request(request)

    def _serve(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the client is gone
        finally:
            self.shutdown_request(request)
            self._slots.release()

    def farewell(self) -> None:
        """Let the requests that are under way come to an end, but not for long."""
        end = time.monotonic() + _FAREWELL
        for _ in range(_CONNECTIONS):
            if not self._slots.acquire(timeout=max(0.0, end - time.monotonic())):
                return


def serve(server: Server, *, announce: Callable[[], None]) -> int:
    """Serve until SIGTERM or SIGINT comes; return the exit status. For the main thread.

    `announce` is called once both ends are in place.
    """
    awaited = {signal.SIGTERM, signal.SIGINT}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    try:
        thread.start()
        announce()
        received = signal.sigwait(awaited)
        server.shutdown()
        server.farewell()
    finally:
        server.server_close()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return _INTERRUPTED if received == signal.SIGINT else 0


class _Request(io.RawIOBase):
    """What comes from a client: so much at most, and until then."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._end = time.monotonic() + _REQUEST_TIME
        self._left = _REQUEST_SIZE

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401  (any buffer)
        if not self._left:
            raise LineTooLong("request")
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        size = self._connection.recv_into(memoryview(buffer)[: self._left])
        self._left -= size
        self._connection.settimeout(_REQUEST_TIME)  # for the answer
        return size


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "pyresolve"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Request(self.connection), _REQUEST_SIZE)

    def handle(self) -> None:
        try:
            self.handle_one_request()
        except LineTooLong:
            self.command, self.requestline, self.request_version = "GET", "", "HTTP/1.0"
            self.send_error(_TOO_LARGE)

    def do_GET(self) -> None:
        try:
            self._reply(*self._answer(self.path.partition("?")[0]))
        except PyresolveError as error:  # no thread, no process: that is an answer, too
            self._reply(_UNAVAILABLE, f"{error}\n")

    def _answer(self, path: str) -> tuple[int, str, str]:
        if path == "/healthz":
            return _OK, "ok\n", _TEXT
        if path == "/readyz":
            results = self.server.examine()
            ready = worst(results) in self.server.ready
            line = summary_line([health.summary for health in results])
            return _OK if ready else _UNAVAILABLE, f"{line}\n", _TEXT
        if path == "/metrics":
            accept = self.headers.get("Accept") or ""
            return _OK, *metrics.exposition(self.server.examine(), accept)
        return _NOT_FOUND, "here are /healthz, /readyz and /metrics\n", _TEXT

    do_HEAD = do_GET  # noqa: N815  (http.server's way; to other methods it answers 501)

    def _reply(self, status: int, body: str, kind: str = _TEXT) -> None:
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """Say nothing: a probe every few seconds is no news."""


def _cannot_serve(address: tuple[str, int], error: OSError) -> PyresolveError:
    host, port = address
    why = error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        why = "another program listens there"
    return PyresolveError(f"cannot listen on {host} port {port} ({why}): give another --serve")
