"""`pyresolve health --serve`: for kubelets and Prometheus, whoever else may knock."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
from health.cases import OWN_SOURCES
from support import process
from support.command import COMMAND, environment, pyresolve
from support.compile import built
from support.debian import debian_tool
from support.process import poll
from support.rogues import rogue

from pyresolve.health.server import parse_address


class Server:
    """A running server, and what it said when it started."""

    def __init__(self, child, said):
        self.child = child
        self.said = said
        self.host, self.port = re.fullmatch(
            r"pyresolve: serving http://\[?([^\]]*)\]?:(\d+)/\n", said
        ).groups()

    def request(self, path, method="GET", headers=None):
        """Return status, headers and body of one answer."""
        connection = http.client.HTTPConnection(self.host, int(self.port), timeout=60)
        try:
            connection.request(method, path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def connect(self):
        return socket.create_connection((self.host, int(self.port)), timeout=60)

    def end(self, number=signal.SIGTERM):
        """Send a signal and return the exit status."""
        self.child.send_signal(number)
        return self.child.wait(timeout=60)


@pytest.fixture
def serve(tmp_path):
    """Return the function that starts a server with a config."""
    with contextlib.ExitStack() as stack:

        def start(config, *options, address="0", env=None):
            file = tmp_path / "health.toml"
            file.write_text(config)
            command = [COMMAND, "health", "--config", file, "--serve", address, *options]
            child = subprocess.Popen(
                command, stderr=subprocess.PIPE, text=True, env=env or environment(), cwd="/"
            )
            stack.callback(child.communicate)
            stack.callback(child.kill)
            return Server(child, child.stderr.readline())

        yield start


def table(path, name=None):
    """Return the table of a config that names a library."""
    return f"[[library]]\npath = '{path}'\nname = '{name or Path(path).name}'\n"


PATIENT = ("--timeout", "20")


def test_the_three_paths(serve):
    """/healthz says that it lives, /readyz what is wrong, /metrics all of it."""
    server = serve(table(rogue("good")) + table(rogue("segfault")), *PATIENT)
    assert (200, "ok\n") == server.request("/healthz")[::2]
    line = "FAIL crashed: SIGSEGV (segfault.so)\n"
    assert (503, line) == server.request("/readyz")[::2]
    assert (503, line) == server.request("/readyz?verbose=1")[::2]
    status, _, text = server.request("/metrics")
    assert 200 == status
    assert 'pyresolve_health_verdict{check="segfault.so",verdict="fail"} 1.0\n' in text
    assert 404 == server.request("/")[0]


def test_ready(serve):
    """All is well."""
    server = serve(table(rogue("good")), *PATIENT)
    assert (200, "OK loadable (good.so)\n") == server.request("/readyz")[::2]


@pytest.mark.parametrize(("meaning", "status"), [(None, 503), ("fail", 503), ("ok", 200)])
def test_unknown(serve, meaning, status):
    """A head node is ready only where somebody said so, in the config or on the command line."""
    setting = f"unknown-is = '{meaning}'\n" if meaning else ""
    server = serve(f"{setting}[driver]\n", *PATIENT)
    line = "UNKNOWN no_driver (libcuda.so.1)\n"
    assert (status, line) == server.request("/readyz")[::2]


def test_metrics_in_both_formats(serve):
    """Prometheus asks for OpenMetrics; promtool has nothing to say about the other."""
    server = serve(table(rogue("good")), *PATIENT)
    _, headers, plain = server.request("/metrics")
    assert headers["Content-Type"].startswith("text/plain; version=")
    promtool = debian_tool("promtool", "prometheus")
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=plain, capture_output=True, text=True
    )
    assert (0, "", "") == (checked.returncode, checked.stdout, checked.stderr)
    accept = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
    _, headers, text = server.request("/metrics", headers=accept)
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text; version=abc",
        "application/openmetrics-text; version=",
        "application/openmetrics-text; version=1.0.0.0.0; escaping=what",
        "text/plain; version=none",
        "text/plain;;;=;version",
        ",,;;,",
        "\u00e9; version=\u00e9",
        "*/*;q=" + "9" * 200,
    ],
)
def test_metrics_for_an_odd_accept_header(serve, accept):
    """Whatever a client says that it takes, it gets the metrics in a format that there is."""
    server = serve(table(rogue("good")), *PATIENT)
    status, headers, text = server.request("/metrics", headers={"Accept": accept})
    assert 200 == status
    assert headers["Content-Type"].startswith(("text/plain; ", "application/openmetrics-text; "))
    assert "pyresolve_health_verdict{" in text


def test_server_and_file_say_the_same(serve, tmp_path):
    """One description of the metrics: names, labels and help."""
    server = serve(table(rogue("good")), *PATIENT)
    options = ["--config", tmp_path / "health.toml", "--format", "prometheus", *PATIENT]
    file = pyresolve("health", *options, env=environment()).stdout
    served = server.request("/metrics")[2]
    number = re.compile(r" [\d.e+-]+$", re.M)
    assert number.sub("", file) == number.sub("", served)


@pytest.mark.parametrize(
    ("method", "status"), [("HEAD", 200), ("POST", 501), ("OPTIONS", 501), ("FOO", 501)]
)
def test_methods(serve, method, status):
    """HEAD is GET without a body; there is nothing to do here."""
    server = serve(table(rogue("good")), *PATIENT)
    got, headers, body = server.request("/readyz", method)
    assert status == got
    if method == "HEAD":
        assert ("", "22") == (body, headers["Content-Length"])


# --- where it listens


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9464", ("127.0.0.1", 9464)),
        (":9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:9464", ("0.0.0.0", 9464)),
        ("[::1]:9464", ("::1", 9464)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_address(text, address):
    """It is loopback unless told otherwise."""
    assert address == parse_address(text)


@pytest.mark.parametrize("text", ["", "host", "host:", "host:http", "1.2.3.4:99999", ":-1", ":²"])
def test_address_that_means_nothing(text):
    """A sentence with what is wanted."""
    with pytest.raises(ValueError, match="give ADDR:PORT, or a port alone for loopback"):
        parse_address(text)


def test_other_addresses_do_not_answer(serve):
    """127.0.0.2 is this machine too, and not where it listens."""
    server = serve(table(rogue("good")))
    assert "127.0.0.1" == server.host
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", int(server.port)), timeout=10)


def test_ipv6(serve):
    """In brackets, as in a URL."""
    server = serve(table(rogue("good")), address="[::1]:0")
    assert (200, "ok\n") == server.request("/healthz")[::2]


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("127.0.0.1", "another program listens there"),
        ("192.0.2.1", "Cannot assign requested address"),
        ("no.such.host.invalid", ""),
    ],
)
def test_where_it_cannot_listen(host, reason):
    """One sentence, status 1."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = pyresolve("health", "--serve", f"{host}:{port}", env=environment())
    assert (1, "", 1) == (done.returncode, done.stdout, done.stderr.count("\n"))
    assert done.stderr.startswith(f"pyresolve: cannot listen on {host} port {port} ({reason}")


# --- how it ends


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signals_end_it(serve, number, status):
    """Cleanly, without a word, with the probes that are under way."""
    server = serve(table(rogue("sleep_ignoring_sigterm")), "--timeout", "30")
    with server.connect() as client:
        client.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        assert poll(lambda: process.children_of(server.child.pid), timeout=20)
        helpers = process.children_of(server.child.pid)
        assert status == server.end(number)
    assert "" == server.child.stderr.read()
    assert poll(lambda: not any(map(process.alive, helpers)))


def test_request_under_way_is_answered(serve):
    """Who has asked already gets the answer."""
    server = serve(table(rogue("sleep_ignoring_sigterm")), "--timeout", "1.5")
    with server.connect() as client:
        client.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        assert poll(lambda: process.children_of(server.child.pid), timeout=20)
        server.child.send_signal(signal.SIGTERM)
        assert b"HTTP/1.0 503" in client.makefile("rb").read()
    assert 0 == server.child.wait(timeout=60)


# --- clients that mean no good


def test_client_that_never_finishes(serve):
    """It is cut off after some seconds, one that drips too, and others are served meanwhile."""
    server = serve(table(rogue("good")), *PATIENT)
    with server.connect() as silent, server.connect() as dripping:
        silent.sendall(b"GET /healthz HTTP/1.0\r\n")
        dripping.sendall(b"GET /healthz HTTP/1.0\r\n")
        assert (200, "ok\n") == server.request("/healthz")[::2]
        dripping.settimeout(0.2)
        began, answer = time.monotonic(), None
        while answer is None and time.monotonic() - began < 30:
            with contextlib.suppress(TimeoutError):
                try:
                    dripping.sendall(b"x")
                    answer = dripping.recv(100)
                except ConnectionError:
                    answer = b""
        assert (b"", b"") == (answer, silent.recv(100))


def test_many_clients_that_never_finish(serve):
    """They keep nobody waiting."""
    server = serve(table(rogue("good")), *PATIENT)
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(server.connect()).sendall(b"GET /")
        began = time.monotonic()
        assert (200, "ok\n") == server.request("/healthz")[::2]
        assert time.monotonic() - began < 1.0
        assert 200 == server.request("/readyz")[0]


def test_more_clients_than_may_be_open(serve):
    """The oldest connection is closed for a new one, and the server says nothing."""
    server = serve(table(rogue("good")), *PATIENT)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(520)]
        assert (200, "ok\n") == server.request("/healthz")[::2]
        clients[0].settimeout(1.0)  # long before its time is up
        assert b"" == clients[0].recv(100)
        clients[-1].sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert b"200 OK" in clients[-1].recv(100)
    assert 0 == server.end()
    assert "" == server.child.stderr.read()


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /" + b"a" * 100_000 + b" HTTP/1.0\r\n\r\n",
        b"GET /healthz HTTP/1.0\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
        b"GET /healthz HTTP/1.0\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    ],
    ids=["line", "headers", "header"],
)
def test_request_that_is_too_large(serve, request_):
    """It is refused after the first kilobytes."""
    server = serve(table(rogue("good")))
    with server.connect() as client:
        answer = b""
        with contextlib.suppress(ConnectionError):  # closed on what nobody read
            client.sendall(request_)
            answer = client.makefile("rb").read()
    assert answer[:12] in (b"", b"HTTP/1.0 431")
    assert (200, "ok\n") == server.request("/healthz")[::2]


@pytest.mark.parametrize(
    "request_", [b"\r\n\r\n", b"\0" * 100, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b""], ids=str
)
def test_request_that_is_none(serve, request_):
    """It is refused or dropped; the server says nothing and goes on."""
    server = serve(table(rogue("good")))
    with server.connect() as client:
        client.sendall(request_)
        client.shutdown(socket.SHUT_WR)
        assert b"200 OK" not in client.makefile("rb").read()
    assert (200, "ok\n") == server.request("/healthz")[::2]
    assert 0 == server.end()
    assert "" == server.child.stderr.read()


def test_client_that_goes_away(serve):
    """Before the answer, without a trace on stderr."""
    server = serve(table(rogue("good")), *PATIENT)
    for _ in range(20):
        with server.connect() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert 200 == server.request("/metrics")[0]
    assert 0 == server.end()
    assert "" == server.child.stderr.read()


# --- under load

RATE, SECONDS, CLIENTS = 200, 30, 16  # a multiple of the clients in all


def test_two_hundred_requests_a_second(serve, tmp_path):
    """For 30 s: none is lost, each target is loaded by one process at a time, nothing grows."""
    log = tmp_path / "log"
    library = Path(shutil.copy(built(OWN_SOURCES / "counted.c", "counted.so"), tmp_path))
    config = table(library) + table(rogue("segfault")) + table(rogue("sleep_ignoring_sigterm"))
    server = serve(config, env={**environment(), "COUNTED_FILE": os.fspath(log)})
    expected = {"/healthz": 200, "/readyz": 503, "/metrics": 200}
    paths = list(expected)
    server.request("/readyz")
    began = time.monotonic()
    counts = [0] * CLIENTS
    failures = []

    def client(number):
        for turn in range(RATE * SECONDS // CLIENTS):
            due = began + (turn * CLIENTS + number) / RATE
            time.sleep(max(0.0, due - time.monotonic()))
            path = paths[(turn + number) % len(paths)]
            try:
                status = server.request(path)[0]
            except OSError as error:
                failures.append(f"{path}: {error!r}")
            else:
                if status != expected[path]:
                    failures.append(f"{path}: {status}")
                counts[number] += 1

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    pid = server.child.pid
    sizes = []
    while any(thread.is_alive() for thread in threads):
        threads[0].join(1.0)
        os.utime(library)  # so that it has to be loaded again
        sizes.append(process.rss_kib(pid))
    took = time.monotonic() - began
    assert [] == failures[:10]
    assert RATE * SECONDS == sum(counts)
    assert took < SECONDS + 30
    text = log.read_text()
    assert "++" not in text
    assert 3 <= text.count("+") <= SECONDS * 2
    assert sizes[-1] - sizes[len(sizes) // 3] < 4096
    idle = lambda: len(os.listdir(f"/proc/{pid}/task")) == 1  # noqa: E731
    assert poll(idle, timeout=20)
    assert len(os.listdir(f"/proc/{pid}/fd")) < 12
    assert 0 == server.end()
    assert "" == server.child.stderr.read()
