"""`pyresolve bench`: what it measures, what it refuses, and that a Ctrl-C loses nothing."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pty
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import uuid
from itertools import pairwise
from pathlib import Path

import pytest
from support import process
from support.command import COMMAND, environment, pyresolve
from support.layout import Site
from support.process import cold

from pyresolve import check
from pyresolve.bench import _compare, _machine, _plot, _report
from pyresolve.bench._measure import Growth, Result, Series, interleaved
from pyresolve.bench._methods import FLOOR, METHODS, Unmeasurable

ONE = ("--quick", "--runs", "1", "--rss", "0", "--threads", "1")
MIB = 1 << 20
CRASH = re.compile(r"Traceback|Exception ignored")
SERIES_KEYS = {
    *("problem", "runs", "outliers", "median", "p90", "p99", "ratio", "warmups", "samples"),
}
DOCUMENT_KEYS = {
    *("schema", "complete", "machine", "target", "methods", "growth", "threads", "figures"),
    "problems",
}
MACHINE_KEYS = {
    *("cpu", "cores", "memory", "kernel", "glibc", "python", "pyresolve", "driver"),
    *("kernel_driver", "gpus", "load"),
}
IGNORE_SIGCHLD = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
"""
ALTERNATIVES = {"ldd", "pathfinder", "resolver"}  # what a node may lack
OURS = {name for name, method in METHODS.items() if method.kind.value == "pyresolve"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return a site in which all is right for CUDA 13, with a torch that cannot be imported."""
    site = Site(tmp_path_factory.mktemp("bench") / "site-packages").tms().torch()
    site.cudart(13)
    return site


@pytest.fixture(scope="module")
def env(site, full_stub):
    """Return an environment in which the hook loads."""
    return environment(site, libraries=[full_stub])


@pytest.fixture(scope="module")
def nowhere(tmp_path_factory):
    """Return an environment without packages, whose PATH has no program."""
    return environment() | {"PATH": str(tmp_path_factory.mktemp("empty"))}


@pytest.fixture(scope="module")
def measured(env, tmp_path_factory):
    """Return a whole run with a driver: its process and its document."""
    file = tmp_path_factory.mktemp("measured") / "new.json"
    sizes = ("--runs", "8", "--rss", "0,32M", "--threads", "1,2")
    done = pyresolve("bench", "--quick", *sizes, "--json", file, env=env, timeout=300)
    assert (0, None) == (done.returncode, CRASH.search(done.stderr)), done.stderr
    return done, json.loads(file.read_text())


def by_name(document):
    """Return the rows of the methods by name."""
    return {row["name"]: row for row in document["methods"]}


# --- what is measured


def test_document(measured):
    """It has every method with every sample, or the reason why one cannot be measured."""
    _, document = measured
    assert DOCUMENT_KEYS == set(document)
    assert MACHINE_KEYS == set(document["machine"])
    assert (1, True, []) == (document["schema"], document["complete"], document["problems"])
    assert list(METHODS) == list(by_name(document))
    for row in document["methods"]:
        assert SERIES_KEYS | {"name", "text", "kind"} == set(row)
        if row["problem"] is None:
            assert (8, 8, 2) == (row["runs"], len(row["samples"]), len(row["warmups"]))
            assert min(row["samples"]) <= row["median"] <= row["p90"] <= row["p99"]
            assert max(row["samples"]) == row["p99"]
    assert ALTERNATIVES >= {row["name"] for row in document["methods"] if row["problem"]}
    assert "torch must not be imported" in by_name(document)["resolver"]["problem"]


def test_the_hook_is_what_is_measured(measured, site):
    """With a driver it loads here, but only in the environment that env() makes."""
    _, document = measured
    assert str(site.hook("_cu13")) == document["target"]["path"]
    assert (13000, None) == (document["machine"]["driver"], document["target"]["note"])


def test_ratios(measured):
    """Each is of two medians of one run."""
    _, document = measured
    rows = by_name(document)
    floor = statistics.median(rows["floor"]["samples"])
    assert pytest.approx(rows["check"]["median"] / floor) == rows["check"]["ratio"]
    figures = {figure["name"]: figure for figure in document["figures"]}
    expected = rows["python_child"]["median"] / rows["check"]["median"]
    assert pytest.approx(expected) == figures["python -I -S child / check()"]["value"]
    small, big = document["growth"]
    grown = [{row["name"]: row["median"] for row in one["methods"]} for one in (big, small)]
    growth = figures["growth of check() from 0 to 32 MiB resident"]
    assert {"name", "value", "unit"} == set(growth)
    assert pytest.approx(grown[0]["check"] / grown[1]["check"]) == growth["value"]


def test_growth(measured):
    """The callers differ only by what they hold."""
    _, document = measured
    small, big = document["growth"]
    assert (0, 32 * MIB) == (small["held"], big["held"])
    assert 31 * MIB < big["resident"] - small["resident"] < 36 * MIB
    for one in (small, big):
        assert {"floor", "check", "ldd", "python_child", "fork", "fork_exit"} == {
            row["name"] for row in one["methods"]
        }
        assert all(8 == row["runs"] for row in one["methods"] if row["name"] != "ldd")


def test_threads(measured):
    """Every call of every thread is counted."""
    _, document = measured
    assert [1, 2] == [one["threads"] for one in document["threads"]]
    for one in document["threads"]:
        assert 8 * one["calls"] == one["runs"]
        rate = one["calls"] / statistics.median(one["rounds"])
        assert pytest.approx(rate) == one["per_second"]


def test_table(measured):
    """It has every method, the reason why one is missing, and the machine, in 80 columns."""
    done, document = measured
    lines = done.stdout.splitlines()
    for row in document["methods"]:
        line = next(line for line in lines if line.startswith(row["text"]))
        if row["problem"]:
            assert f"not measured: {row['problem']}"[:50] in line
        else:
            assert pytest.approx(row["median"] * 1000, rel=0.01, abs=0.001) == float(line[22:29])
    assert [] == [
        line for line in lines if len(line) > 80 and document["target"]["path"] not in line
    ]
    words = " ".join(lines)
    machine = document["machine"]
    for text in ("warm-ups", "outliers", machine["cpu"], machine["kernel"], machine["glibc"]):
        assert text in words
    assert "CUDA up to 13.0" in words


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0.0214, "0.021"), (1.2346, "1.23"), (99.94, "99.9"), (99.96, "100"), (12345.6, "12346")],
)
def test_digits(milliseconds, text):
    """Every time fits its column."""
    assert text == _report._digits(milliseconds)


def test_size():
    """No size needs four digits."""
    counts = (0, 1023, 1000 << 20, 3 << 29, 4 << 30)
    assert ["0", "0.999 KiB", "0.977 GiB", "1.5 GiB", "4 GiB"] == list(map(_report.size, counts))


def test_helper_memory(tmp_path):
    """Both processes of a check are small before the target is loaded: here, from a FIFO."""
    fifo = tmp_path / "libfifo.so"
    os.mkfifo(fifo)
    # A bare name, which the loader searches for: check() itself would refuse the path of a FIFO.
    options = {"environ": {"LD_LIBRARY_PATH": str(tmp_path)}, "timeout": 20.0}
    checking = threading.Thread(target=check, args=(fifo.name,), kwargs=options)
    checking.start()
    writers = []
    try:
        assert process.poll(lambda: _opened(fifo, writers), timeout=10.0)
        resident = [process.rss_kib(pid) for pid in process.descendants()]
    finally:
        fifo.unlink()  # a second attempt must not find it
        for writer in writers:
            os.close(writer)
        checking.join()
    assert 2 == len(resident)
    assert max(resident) < 3000


def _opened(fifo, writers):
    """Tell whether a process has the FIFO open for reading; if so, open it for writing."""
    with contextlib.suppress(OSError):  # ENXIO: nobody does
        writers.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    return writers


def test_floor(measured):
    """It does nothing, or opens the given library and prints how many nanoseconds that took."""
    _, document = measured
    assert (0, "") == _floor()
    status, words = _floor(document["target"]["path"], env=None)
    assert 1 == status
    assert "libcuda.so.1" in words
    status, words = _floor("libm.so.6")
    assert (0, True) == (status, 1_000 < int(words) < 10**9)


def _floor(*words, env=None):
    done = subprocess.run([FLOOR, *words], capture_output=True, text=True, env=env)
    return done.returncode, done.stdout + done.stderr


# --- how samples are taken


def sampled(sides, **options):
    """Take samples of sides without a budget or an interrupt."""
    return interleaved(sides, **({"runs": 4, "warmups": 2, "budget": None} | options))


def test_sides_take_turns():
    """Every round has one of each, and every second round goes backwards."""
    order = []

    def side(name):
        order.append(name)
        return 7

    series = sampled({name: functools.partial(side, name) for name in "abc"})
    assert "abccba" * 3 == "".join(order)
    assert all(([7, 7], [7] * 4) == (one.warmups, one.samples) for one in series.values())


def test_slow_sides_are_spread():
    """A side that the budget does not allow in every round is in some, over the whole time."""
    rounds = []
    sides = {"quick": lambda: len(rounds) / 1e6, "slow": lambda: rounds.append(None) or 1.0}
    series = sampled(sides, runs=100, warmups=1, budget=20.0)
    assert (100, 20) == (len(series["quick"].samples), len(series["slow"].samples))
    # A quick sample tells how many slow ones came before it: one more in every fifth round.
    before = [sample * 1e6 for sample in series["quick"].samples]
    assert all(abs(count - at / 5) < 3 for at, count in enumerate(before))
    assert 10 == len(sampled(sides, runs=100, budget=1.0)["slow"].samples)


def test_a_side_that_breaks_keeps_its_samples():
    """And the others are sampled on."""
    left = [1, 2, 3]

    def breaking():
        if not left:
            raise Unmeasurable("no more")
        return left.pop()

    series = sampled({"breaking": breaking, "good": lambda: 5}, warmups=1)
    assert ([3], [2, 1], "no more") == (
        series["breaking"].warmups,
        series["breaking"].samples,
        series["breaking"].problem,
    )
    assert [5] * 4 == series["good"].samples


def test_summary_keeps_outliers():
    """Percentiles are samples; an outlier is counted and stays in."""
    samples = [10] * 50 + [11] * 45 + [12] * 4 + [900]
    row = _report.summary(Series(samples=samples), floor=2.0)
    names = ("runs", "median", "p90", "p99", "ratio", "outliers", "samples")
    assert [100, 10.5, 11, 12, 5.25, 1, samples] == [row[name] for name in names]


def test_summary_of_nothing():
    """Without samples nothing is known."""
    row = _report.summary(Series(problem="none here"), floor=2.0)
    names = ("problem", "runs", "median", "p90", "p99", "ratio", "outliers")
    assert ["none here", 0, None, None, None, None, 0] == [row[name] for name in names]


# --- what is refused, before anything runs


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--runs", "0"], "--runs is 0: give at least 1"),
        (["--runs", "-3"], "--runs is -3: give at least 1"),
        (["--rss", "1X"], "--rss has '1X': give sizes such as 0,512M,4G"),
        (["--rss", "0,,1G"], "--rss has '': give sizes such as 0,512M,4G"),
        (["--rss", "-1G"], "--rss has '-1G'"),
        (["--threads", "0"], "--threads is '0': give counts from 1 to 9999"),
        (["--threads", "two"], "--threads is 'two'"),
        (["--plot", "plot.pdf"], "--plot plot.pdf ends in .pdf: give a .svg or .png file"),
        (["--plot", "plot"], "--plot plot ends in nothing: give a .svg or .png file"),
        (["--json", "/nowhere/at/all.json"], "cannot be written (No such file or directory)"),
        (["--json", "/"], "/ cannot be written (Is a directory)"),
        (["--plot", "/proc/plot.svg"], "/proc/plot.svg cannot be written"),
        (["--compare", "/nowhere.json"], "/nowhere.json cannot be read (No such file"),
    ],
)
def test_bad_options(nowhere, words, complaint):
    """One sentence on stderr, and the status of wrong usage."""
    # Without the "=" argparse takes -1G for an option.
    words = [f"--rss={words[1]}"] if words[0] == "--rss" else words
    done = pyresolve("bench", *words, env=nowhere)
    assert (2, "", 1) == (done.returncode, done.stdout, done.stderr.count("\n"))
    assert complaint in done.stderr


def test_more_memory_than_is_free(nowhere):
    """It is refused with the two sizes: what it needs and what is free."""
    done = pyresolve("bench", "--rss", "0,90000G", env=nowhere)
    assert (2, "") == (done.returncode, done.stdout)
    free = re.search(r"needs 88.8 TiB .* but ([\d.]+) [GM]iB are free here", done.stderr)
    assert free, done.stderr
    assert float(free[1]) > 0


def test_without_matplotlib(nowhere, tmp_path):
    """A plot that cannot be drawn is refused before anything is measured."""
    package = tmp_path / "matplotlib"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('not here')\n")
    done = pyresolve(
        "bench", "--plot", tmp_path / "p.svg", env=nowhere | {"PYTHONPATH": str(tmp_path)}
    )
    assert (2, "") == (done.returncode, done.stdout)
    assert "--plot needs matplotlib" in done.stderr
    assert "pip install 'pyresolve-native[bench]'" in done.stderr
    assert not (tmp_path / "p.svg").exists()


def _tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "files", "free"),
    [
        ("0::/\n", {}, 8000 * MIB),
        ("0::/\n", {"memory.max": "max\n", "memory.current": "5\n"}, 8000 * MIB),
        (
            "0::/a/b\n",
            {
                "a/memory.max": f"{2000 * MIB}\n",
                "a/memory.current": f"{1500 * MIB}\n",
                "a/memory.stat": f"anon 1\ninactive_file {100 * MIB}\n",
                "a/b/memory.max": "max\n",
                "a/b/memory.current": f"{900 * MIB}\n",
            },
            600 * MIB,
        ),
        (
            "3:cpu:/x\n7:memory:/x\n0::/\n",
            {
                "memory/x/memory.limit_in_bytes": f"{300 * MIB}\n",
                "memory/x/memory.usage_in_bytes": f"{100 * MIB}\n",
            },
            200 * MIB,
        ),
        ("0::/\n", {"memory.max": "10\n", "memory.current": "30\n"}, 0),
    ],
    ids=["none", "unlimited", "of a parent", "version 1", "beyond"],
)
def test_limits_of_cgroups_count(tmp_path, groups, files, free):
    """A container may take less than its machine has; page cache can be dropped."""
    proc = {"meminfo": f"MemAvailable: {8000 * 1024} kB\n", "self/cgroup": groups}
    _tree(tmp_path / "proc", proc)
    _tree(tmp_path / "cgroup", files)
    assert free == _machine.free_memory(tmp_path / "proc", tmp_path / "cgroup")


# --- a node that lacks everything


def test_without_alternatives(nowhere, hidden_toolkit, tmp_path):
    """No CUDA, no torch, no ldd: each is a row with the reason, and the rest is measured."""
    file = tmp_path / "new.json"
    hidden = [shutil.which(hidden_toolkit[0]), *hidden_toolkit[1:]] if hidden_toolkit else []
    path = {"PATH": f"{nowhere['PATH']}:/usr/sbin:/sbin"} if hidden else {}
    mounting = _mount_only(tmp_path) if hidden else nowhere["PATH"]
    done = pyresolve(
        *("bench", *ONE, "--json", file),
        env=nowhere | path | {"PATH": mounting},
        prefix=hidden,
        timeout=120,
    )
    assert (0, None) == (done.returncode, CRASH.search(done.stderr)), done.stderr
    document = json.loads(file.read_text())
    rows = by_name(document)
    assert "libm.so.6" == Path(document["target"]["path"]).name
    assert "torch_memory_saver is not installed" in document["target"]["note"]
    assert "ldd cannot be started: No such file or directory" == rows["ldd"]["problem"]
    assert "No module named 'torch_memory_saver'" in rows["resolver"]["problem"]
    assert "torch_memory_saver is not installed" in rows["pick"]["problem"]
    for name in ("floor", "check", "check_preload", "probe", "fork", "python_child", "python_pass"):
        assert (None, 1) == (rows[name]["problem"], rows[name]["runs"])
    assert document["complete"]


def _mount_only(directory):
    """Return a directory for PATH with the programs that hide the toolkit, and without ldd."""
    programs = directory / "programs"
    programs.mkdir()
    for name in ("mount", "cp"):
        (programs / name).symlink_to(shutil.which(name))
    return str(programs)


def test_read_only_home(nowhere, tmp_path):
    """Nothing is written there, and matplotlib's warning about its cache is not shown."""
    file = tmp_path / "p.svg"
    done = pyresolve("bench", *ONE, "--plot", file, env=nowhere | {"HOME": "/proc"}, timeout=120)
    assert (0, None) == (done.returncode, CRASH.search(done.stderr))
    assert all(line.startswith("pyresolve: measuring ") for line in done.stderr.splitlines())
    assert "<svg" in file.read_text()


def test_ignored_sigchld(nowhere, tmp_path):
    """Some supervisors start their programs so; how a child ended is known all the same."""
    file = tmp_path / "new.json"
    ignoring = [sys.executable, "-c", IGNORE_SIGCHLD]
    done = pyresolve("bench", *ONE, "--json", file, env=nowhere, prefix=ignoring, timeout=120)
    assert (0, None) == (done.returncode, CRASH.search(done.stderr)), done.stderr
    rows = by_name(json.loads(file.read_text()))
    assert [1] * 4 == [rows[name]["runs"] for name in ("floor", "check", "fork", "python_child")]


def test_failed_write_loses_nothing(nowhere):
    """The table is printed before a file is written, and the failure has a sentence."""
    done = pyresolve("bench", *ONE, "--json", "/dev/full", env=nowhere, timeout=120)
    assert 1 == done.returncode
    assert "pyresolve: /dev/full was not written: No space left on device" in done.stderr
    assert "\ncheck() " in done.stdout
    assert "glibc" in done.stdout


def test_progress_on_a_terminal(nowhere):
    """One line that is written over; stdout has only the table."""
    ours, theirs = pty.openpty()
    try:
        command = [COMMAND, "bench", *ONE]
        options = {"stdout": subprocess.PIPE, "stderr": theirs, "env": nowhere | {"TERM": "xterm"}}
        running = subprocess.Popen(command, cwd="/", text=True, **options)
        os.close(theirs)
        shown = b""
        while part := _read(ours):
            shown += part
        answer, _ = running.communicate(timeout=120)
    finally:
        os.close(ours)
    assert (0, True) == (running.returncode, b"measuring methods, round 1 of 1" in shown)
    assert shown.endswith(b"\r\x1b[K")
    assert b"\n" not in shown
    assert "\ncheck() " in answer
    assert "\x1b" not in answer


def _read(fd):
    try:
        return os.read(fd, 65536)
    except OSError:  # EIO: the other end is closed
        return b""


# --- Ctrl-C


def marked(mark):
    """Return the processes that have this mark in their environment, without zombies."""
    pids = [int(directory.name) for directory in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if mark.encode() in environ_of(pid) and process.alive(pid)]


def environ_of(pid):
    """Return the environment that a process was started with."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def test_killed(env):
    """A killed benchmark cannot clean up; the processes that it started notice and end."""
    mark = f"PYRESOLVE_TEST_MARK={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    running = subprocess.Popen(
        [COMMAND, "bench", "--runs", "1000000", "--rss", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=env | {name: value},
        cwd="/",
        text=True,
    )
    assert "measuring" in running.stderr.readline()
    assert process.poll(lambda: len(marked(mark)) > 3, timeout=10.0)
    running.kill()
    running.communicate(timeout=60)
    assert process.poll(lambda: not marked(mark), timeout=10.0), marked(mark)


@pytest.mark.parametrize("whom", ["the process", "its group"])
@pytest.mark.parametrize("phase", ["methods", "resident memory", "threads"])
def test_interrupt(env, tmp_path, phase, whom):
    """The samples so far are printed and written, the status is 130, and no process is left."""
    file, mark = tmp_path / "new.json", f"PYRESOLVE_TEST_MARK={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    # So many runs that this phase lasts until the interrupt, and few of the phases before it.
    runs = ["--runs", "1000000"] if phase == "methods" else ["--runs", "3"]
    sizes = ["--rss", "0,1G"] if phase == "resident memory" else ["--rss", "0"]
    threads = ["--threads", "100"] if phase == "threads" else ["--threads", "1"]
    running = subprocess.Popen(
        [COMMAND, "bench", "--quick", *runs, *sizes, *threads, "--json", file],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env | {name: value},
        cwd="/",
        text=True,
        start_new_session=True,
    )
    said = []
    while f"measuring {phase}" not in (line := running.stderr.readline()):
        assert line, "".join(said)
        said.append(line)
    send = os.kill if whom == "the process" else os.killpg
    send(running.pid, signal.SIGINT)
    table, errors = running.communicate(timeout=60)
    assert (130, None) == (running.returncode, CRASH.search(errors)), errors
    assert process.poll(lambda: not marked(mark), timeout=10.0), marked(mark)
    document = json.loads(file.read_text())
    assert (False, DOCUMENT_KEYS) == (document["complete"], set(document))
    assert "INTERRUPTED" in table
    if phase != "methods":
        assert 3 == by_name(document)["check"]["runs"]


def test_impatient_interrupt(env):
    """The second Ctrl-C waits for nothing, the third ends Python at its end: no process is left."""
    mark = f"PYRESOLVE_TEST_MARK={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    running = subprocess.Popen(
        [COMMAND, "bench", "--runs", "1000000", "--rss", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env | {name: value},
        cwd="/",
        text=True,
    )
    while "measuring" not in running.stderr.readline():
        assert None is running.poll()
    while running.poll() is None:
        running.send_signal(signal.SIGINT)
        process.poll(lambda: running.poll() is not None, timeout=0.02)
    _, errors = running.communicate(timeout=60)
    assert running.returncode in (130, -signal.SIGINT), errors
    assert process.poll(lambda: not marked(mark), timeout=10.0), marked(mark)


# --- comparing


def samples(middle, *, noise=0.1, runs=80, seed=0, drift=0.0):
    """Return seconds around a middle, with a long tail to the right as real ones have."""
    chance = random.Random(seed)
    return [
        middle * (1 + drift * at / runs) * (1 + noise * chance.expovariate(1)) for at in range(runs)
    ]


def document(*, check=0.0014, floor=0.001, seed=0, **options):
    """Return the part of a run's document that is compared."""
    rows = {
        "floor": samples(floor, seed=seed, **options),
        "check": samples(check, seed=seed + 1, **options),
        "ldd": samples(0.006, seed=seed + 2, **options),
    }
    return {
        "schema": 1,
        "complete": True,
        "target": {"path": "/somewhere/hook.so"},
        "machine": dict.fromkeys(("cpu", "cores", "kernel", "glibc", "python"), "x"),
        "methods": [{"name": name, "samples": taken} for name, taken in rows.items()],
        "growth": [],
    }


def slower(old, new):
    """Return the names of what became slower."""
    runs = _compare.run_of(old), _compare.run_of(new)
    return [change.name for change in _compare.changes(*runs) if change.slower]


CHECK = METHODS["check"].text


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {"seed": 9}, []),
        ({}, {"check": 0.0014 * 1.5, "seed": 9}, [CHECK]),
        ({}, {"check": 0.0014 / 1.5, "seed": 9}, []),
        ({}, {"check": 0.0014 * 1.1, "seed": 9}, []),
        ({}, {"check": 0.0028, "floor": 0.002, "seed": 9}, []),
        ({}, {"seed": 9, "drift": 2.0}, []),
        ({}, {"check": 0.0014 * 1.3, "seed": 9, "noise": 3.0}, []),
        ({"check": 0.00002}, {"check": 0.00006}, []),
        ({}, {"check": 0.0014 * 3, "runs": 7}, []),
    ],
    ids=["same", "slower", "faster", "tolerated", "clock", "drift", "noise", "tiny", "too few"],
)
def test_what_became_slower(old, new, expected):
    """Only a change beyond the noise of both runs, and beyond what two runs differ by anyway."""
    assert expected == slower(document(**old), document(**new))


def test_chance_alone_is_no_change():
    """Of a thousand pairs of runs of the same build none is called slower."""
    runs = [document(seed=3 * seed, noise=0.5) for seed in range(1001)]
    assert [] == [name for old, new in pairwise(runs) for name in slower(old, new)]


def test_compare_with_another_past(measured, env, tmp_path):
    """Against a slower past it succeeds; against a faster one it fails and names the method.

    The factor is more than any load of the machine can do to eight runs.
    """
    _, past = measured
    file = tmp_path / "old.json"
    for factor, status in ((1000.0, 0), (0.001, 1)):
        changed = json.loads(json.dumps(past))
        for row in changed["methods"]:
            if row["name"] in OURS:
                row["samples"] = [sample * factor for sample in row["samples"]]
        changed["growth"] = []
        file.write_text(json.dumps(changed))
        words = ("--quick", "--runs", "8", "--rss", "0", "--threads", "1", "--compare", file)
        done = pyresolve("bench", *words, env=env, timeout=300)
        assert status == done.returncode, done.stdout
        assert (status == 1) == (f"SLOWER  {CHECK}: " in done.stdout)
        assert (status == 0) == ("nothing became slower, of " in done.stdout)


def test_compare_on_another_machine(measured, env, tmp_path):
    """There is a warning, and the ratios are compared; with too few runs nothing is."""
    _, past = measured
    file = tmp_path / "old.json"
    file.write_text(json.dumps({**past, "machine": {**past["machine"], "cpu": "a Babbage engine"}}))
    done = pyresolve("bench", *ONE, "--compare", file, env=env, timeout=120)
    assert 3 == done.returncode
    assert "another machine (cpu a Babbage engine, now " in done.stderr
    assert "nothing to compare: it takes 8 runs of a method" in done.stderr


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not JSON"),
        ("\0", "is not JSON"),
        ("[1]", "has schema None, expected 1"),
        ('{"schema": 2}', "has schema 2, expected 1: measure again with this pyresolve"),
        ('{"schema": 1, "reports": []}', "is not a benchmark"),
        ('{"schema": 1, "methods": 3}', "is not a benchmark"),
    ],
)
def test_compare_with_another_file(nowhere, tmp_path, text, complaint):
    """It is refused before anything is measured."""
    file = tmp_path / "old.json"
    file.write_text(text)
    done = pyresolve("bench", *ONE, "--compare", file, env=nowhere)
    assert (2, "") == (done.returncode, done.stdout)
    assert f"pyresolve: {file} {complaint}" in done.stderr


def test_compare_with_another_library(measured, nowhere, tmp_path):
    """The cost of one says nothing about that of another."""
    file = tmp_path / "old.json"
    file.write_text(json.dumps(measured[1]))
    done = pyresolve("bench", *ONE, "--compare", file, env=nowhere)
    assert (2, "") == (done.returncode, done.stdout)
    assert "their costs cannot be compared" in done.stderr


# --- the plot


def grown(growth):
    """Return the document of a run of which only the growth was measured, in milliseconds."""
    result = Result(
        machine=_machine.look(),
        target=_machine.Target(path="/somewhere/libcudart.so.13", what="", note=None, environ={}),
        growth=[
            Growth(
                held=held,
                resident=held + 14 * MIB,
                series={name: Series(samples=[ms / 1000]) for name, ms in times.items()},
            )
            for held, times in growth
        ],
    )
    return _report.document(result)


@pytest.fixture(scope="module")
def fonts():
    """Have matplotlib open the files of its fonts, which it keeps open."""
    _plot.draw(grown([(0, {"check": 1.0, "floor": 1.0})]), ".png")


TIMES = {
    "floor": 1.0,
    "check": 1.3,
    "fork": 2.0,
    "fork_exit": 0.5,
    "ldd": 7.0,
    "python_child": 15.0,
}


@pytest.mark.parametrize(
    "growth",
    [
        [(0, dict.fromkeys(TIMES, 1.0)), (4096 * MIB, dict.fromkeys(TIMES, 1.0))],
        [(0, TIMES), (4096 * MIB, TIMES | {"fork": 120.0, "fork_exit": 119.0})],
        [(0, {"check": 1.3, "floor": 1.0})],
    ],
    ids=["all the same", "usual", "one size"],
)
def test_plot(fonts, growth):
    """The legend has a label for every line; it lies within the picture and beside the lines."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    drawn = _plot.figure(grown(growth))
    canvas = FigureCanvasAgg(drawn)
    canvas.draw()
    (legend,) = drawn.legends
    assert len(growth[-1][1]) == len(legend.get_texts())
    box, title, lines = (
        part.get_window_extent(canvas.get_renderer())
        for part in (legend, drawn.axes[0].title, drawn.axes[0])
    )
    assert lines.x1 < box.x0 < box.x1 <= drawn.bbox.x1
    assert title.y1 <= drawn.bbox.y1
    assert b"\x89PNG" == _plot.draw(grown(growth), ".png")[:4]


def test_plot_says_what_is_seen(fonts):
    """The title has the two factors, the legend the times, the slowest first."""
    small, big = {"check": 1.5, "fork_exit": 0.5}, {"check": 1.5, "fork_exit": 75.0}
    floor = {"floor": 1.0}
    drawn = _plot.figure(grown([(0, small | floor), (4096 * MIB, big | floor)]))
    assert [
        "growth of check() from 0 to 4 GiB resident: 1 x",
        "growth of fork() from 0 to 4 GiB resident: 150 x",
        "does libcudart.so.13 load?",
    ] == drawn.axes[0].get_title(loc="left").splitlines()[:3]
    assert ["fork() alone  75 ms", "pyresolve.check()  1.5 ms", "floor: spawn + dlopen  1 ms"] == [
        text.get_text() for text in drawn.legends[0].get_texts()
    ]


# --- the others


def test_other_commands_do_not_pay_for_it():
    """Only its command imports the benchmark."""
    code = """
        import json, sys
        import pyresolve.cli
        print(json.dumps([name for name in sys.modules if "pyresolve.bench" in name]))
    """
    assert [] == cold(code)
