"""`pyresolve health --format prometheus`: what Prometheus accepts and the node exporter serves."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families
from support.command import COMMAND, environment, pyresolve, run
from support.debian import debian_tool
from support.process import poll
from support.rogues import rogue
from support.tools import require_unshare, unavailable

from pyresolve import Verdict
from pyresolve.health import metrics
from pyresolve.health.checks import Health

OLD = "# the last good one\n"
FULL = """
mount -t tmpfs -o size=16k tmpfs "$1" && cp "$2" "$1/pyresolve.prom" || exit 99
dd if=/dev/zero of="$1/filler" bs=1k 2>/dev/null
shift 2
"$@"; status=$?
cmp "$OLD" "$MOUNT/pyresolve.prom" && ls -A "$MOUNT"
exit $status
"""


def health(*args, env=None, prefix=()):
    options = ["--timeout", "20", "--format", "prometheus"]
    return pyresolve("health", *options, *args, env=env or environment(), prefix=prefix)


@pytest.fixture
def config(tmp_path):
    """Return a config with a check for each verdict, and one of an odd name."""
    file = tmp_path / "health.toml"
    odd = r'"odd \\ \" \n caf\u00e9"'
    file.write_text(
        f"[driver]\n[[library]]\npath = '{rogue('good')}'\n"
        f"[[library]]\npath = '{rogue('segfault')}'\nname = {odd}\n"
    )
    return file


@pytest.fixture
def write(config):
    """Return the command that writes metrics."""
    return [COMMAND, "health", "--timeout", "20", "--config", config, "--format", "prometheus"]


def samples(text):
    """Return the values of a text, by name and labels."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {key: float(value) for key, _, value in (line.rpartition(" ") for line in lines)}


def test_promtool_has_nothing_to_say(config):
    """It checks the format, and the names against the conventions."""
    done = health("--config", config)
    assert (1, "") == (done.returncode, done.stderr)
    promtool = debian_tool("promtool", "prometheus")
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=done.stdout, capture_output=True, text=True
    )
    assert (0, "", "") == (checked.returncode, checked.stdout, checked.stderr)


def test_values(config):
    """A verdict of three, the status as a label, the duration, the time of the run."""
    found = samples(health("--config", config).stdout)
    odd = r"odd \\ \" \n caf" + "\u00e9"
    expected = {
        "driver": ("unknown", "no_driver"),
        "good.so": ("ok", "loadable"),
        odd: ("fail", "crashed"),
    }
    for check, (verdict, status) in expected.items():
        for other in Verdict:
            key = f'pyresolve_health_verdict{{check="{check}",verdict="{other.value}"}}'
            assert float(other.value == verdict) == found[key]
        assert 1 == found[f'pyresolve_health_status{{check="{check}",status="{status}"}}']
        assert 0 < found[f'pyresolve_health_duration_seconds{{check="{check}"}}'] < 60
        ran = found[f'pyresolve_health_last_run_timestamp_seconds{{check="{check}"}}']
        assert abs(time.time() - ran) < 60
    assert 6 * len(expected) == len(found)


RESULT = Health(name="x", file="x", verdict=Verdict.OK, status="loadable", message="loads")


def test_names_are_documented():
    """docs/health.md lists every gauge with its labels."""
    text = (Path(__file__).parents[2] / "docs" / "health.md").read_text()
    families = list(text_string_to_metric_families(metrics.text([RESULT])))
    assert 4 == len(families)
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.samples[0].labels)
        assert f"| `{family.name}` | {labels} |" in text


@pytest.mark.parametrize("name", ["x", 'odd \\ " \n caf\u00e9', "caf\udce9"])
def test_openmetrics_is_the_same_gauges(name):
    """The parsers of both formats read the same of what is written for each."""
    results = [replace(RESULT, name=name), replace(RESULT, name="y", verdict=Verdict.FAIL)]
    text, kind = metrics.exposition(results, "application/openmetrics-text; version=abc")
    assert metrics.OPENMETRICS == kind
    plain, kind = metrics.exposition(results, "")
    assert (metrics.TEXT, metrics.text(results)) == (kind, plain)
    parsed = [
        {(s.name, *s.labels.items()): s.value for family in parse(body) for s in family.samples}
        for parse, body in (
            (openmetrics_families, text),
            (text_string_to_metric_families, plain),
        )
    ]
    assert parsed[0] == parsed[1]
    assert 12 == len(parsed[0])


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2", metrics.OPENMETRICS),
        ("text/plain, Application/OpenMetrics-Text ; q = 0.001", metrics.OPENMETRICS),
        ("application/openmetrics-text;q=0", metrics.TEXT),
        ("application/openmetrics-text; version=1.0.0; Q=0.000, text/plain", metrics.TEXT),
        ("application/openmetrics-textual", metrics.TEXT),
        ("*/*", metrics.TEXT),
    ],
)
def test_format_that_a_client_accepts(accept, kind):
    """OpenMetrics only for a client that names it, and not with q=0: RFC 9110, 12.4.2."""
    assert kind == metrics.exposition([RESULT], accept)[1]


def test_name_that_is_no_utf8(config):
    """A path may hold any byte; the metrics are UTF-8."""
    text = metrics.text([replace(RESULT, name="caf\udce9")])
    assert r'{check="caf\\udce9"}' in text
    text.encode()


# --- the file


def test_file_is_whole_readable_and_alone(config, tmp_path):
    """The line is on stdout, and the exit status is that of the verdict."""
    file = tmp_path / "textfile" / "pyresolve.prom"
    file.parent.mkdir()
    file.write_text(OLD)
    done = health("--config", config, "--output", file)
    line = "FAIL crashed: SIGSEGV (segfault.so) and 1 more\n"
    assert (1, line, "") == (done.returncode, done.stdout, done.stderr)
    assert samples(file.read_text()).keys() == samples(health("--config", config).stdout).keys()
    assert (0o644, ["pyresolve.prom"]) == (file.stat().st_mode & 0o777, os.listdir(file.parent))


def test_collector_never_sees_half_a_file(write, tmp_path):
    """While it is written again and again, what matches *.prom is always whole."""
    command = [*write, "--output", tmp_path / "pyresolve.prom"]
    run(command, env=environment())
    writers = [
        subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL) for _ in range(4)
    ]
    seen = 0
    while any(writer.poll() is None for writer in writers):
        for file in tmp_path.glob("*.prom"):
            text = file.read_text()
            seen += 1
            assert text.endswith("\n")
            assert 18 == len(samples(text))
    assert 0 < seen
    assert [1] * 4 == [writer.wait() for writer in writers]
    assert not list(tmp_path.glob(".*"))


def test_directory_that_is_missing(config, tmp_path):
    """One sentence, status 1."""
    file = tmp_path / "missing" / "pyresolve.prom"
    done = health("--config", config, "--output", file)
    assert (1, "") == (done.returncode, done.stdout)
    said = f"pyresolve: the metrics cannot be written to {file} (No such file or directory)"
    assert done.stderr.startswith(said)
    assert 1 == done.stderr.count("\n")


def mounted(tmp_path, script, *command):
    """Run a command in a mount of its own, which the script makes over a directory."""
    old, mount = tmp_path / "old", tmp_path / "mount"
    old.write_text(OLD)
    mount.mkdir()
    env = {**environment(), "OLD": os.fspath(old), "MOUNT": os.fspath(mount)}
    shell = [require_unshare(), "-rm", "sh", "-c", script, "sh", mount, old]
    file = mount / "pyresolve.prom"
    return file, run([*shell, *command, "--output", file], env=env)


def test_directory_that_is_full(tmp_path, write):
    """The last good file stays as it is, and nothing is left beside it."""
    file, done = mounted(tmp_path, FULL, *write)
    assert (1, "filler\npyresolve.prom\n") == (done.returncode, done.stdout)
    said = f"pyresolve: the metrics cannot be written to {file} (No space left on device)"
    assert done.stderr.startswith(said)
    assert 1 == done.stderr.count("\n")


def test_directory_that_is_read_only(tmp_path, write):
    """As above."""
    script = FULL.replace(
        'dd if=/dev/zero of="$1/filler" bs=1k 2>/dev/null', 'mount -o remount,ro "$1"'
    )
    file, done = mounted(tmp_path, script, *write)
    assert (1, "pyresolve.prom\n") == (done.returncode, done.stdout)
    said = f"pyresolve: the metrics cannot be written to {file} (Read-only file system)"
    assert done.stderr.startswith(said)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("other", path)])
def test_target_that_is_no_regular_file(config, tmp_path, make):
    """A directory, a pipe or a link is left alone."""
    (tmp_path / "other").write_text(OLD)
    file = tmp_path / "pyresolve.prom"
    make(file)
    before = file.lstat()
    done = health("--config", config, "--output", file)
    assert (1, "") == (done.returncode, done.stdout)
    assert f"cannot be written to {file}, which is no regular file: " in done.stderr
    assert (before.st_ino, before.st_mode) == (file.lstat().st_ino, file.lstat().st_mode)
    assert ["health.toml", "other", "pyresolve.prom"] == sorted(os.listdir(tmp_path))
    assert OLD == (tmp_path / "other").read_text()


DEVICE = """
set -e
mount -t tmpfs tmpfs "$1"
mknod "$1/pyresolve.prom" c 1 3
shift 2
status=0
"$@" || status=$?
test -c "$MOUNT/pyresolve.prom" && ls "$MOUNT"
exit $status
"""


def test_target_that_is_a_device(tmp_path, write):
    """A device is left alone, also by root."""
    if os.geteuid() != 0:
        unavailable("only root may make a device")
    mount = tmp_path / "mount"
    mount.mkdir()
    file = mount / "pyresolve.prom"
    shell = [require_unshare(), "-m", "sh", "-c", DEVICE, "sh", mount, "-"]
    env = {**environment(), "MOUNT": os.fspath(mount)}
    done = run([*shell, *write, "--output", file], env=env)
    assert (1, "pyresolve.prom\n") == (done.returncode, done.stdout)
    assert "which is no regular file" in done.stderr


# --- the real collector


@contextlib.contextmanager
def node_exporter(directory):
    """Start the node exporter on loopback with its textfile collector alone; yield its metrics."""
    program = debian_tool("prometheus-node-exporter", "prometheus-node-exporter")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [program, f"--web.listen-address={address}", "--collector.disable-defaults"]
    command += ["--collector.textfile", f"--collector.textfile.directory={directory}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as exporter:

        def scrape():
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer,
            ):
                return answer.read().decode()
            return ""

        try:
            assert poll(scrape, timeout=20), "it does not answer"
            yield scrape
        finally:
            exporter.kill()


def test_node_exporter_serves_them(config, tmp_path):
    """All of them, without an error, and those of the next run after it."""
    directory = tmp_path / "textfile"
    directory.mkdir()
    with node_exporter(directory) as scrape:
        health("--config", config, "--output", directory / "pyresolve.prom")
        served = scrape()
        written = samples((directory / "pyresolve.prom").read_text())
        assert written.items() <= samples(served).items()
        assert re.search(r"^node_textfile_scrape_error 0$", served, re.M)
        config.write_text(f"[[library]]\npath = '{rogue('segfault')}'\nname = 'good.so'\n")
        health("--config", config, "--output", directory / "pyresolve.prom")
        key = 'pyresolve_health_verdict{check="good.so",verdict="%s"}'
        found = samples(scrape())
        assert (0, 1) == (found[key % "ok"], found[key % "fail"])
