"""`pyresolve health` as kubelets, problem detectors and people run it."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from health.cases import CASES, Case
from support import driver, hungfs, process
from support.command import COMMAND, environment, pyresolve, run
from support.layout import Site
from support.process import cold, poll
from support.rogues import PIDFILE, rogue
from support.tools import require_unshare, unavailable

from pyresolve import Health, Verdict
from pyresolve.health import once

TESTS = Path(__file__).parent.parent
TIMEOUT = 0.9  # what --timeout is by default
START = 0.6  # seconds, generous: of leaving, and of this machine's doing something else


@pytest.fixture
def config(tmp_path):
    """Return the function that writes a config."""

    def write(text):
        file = tmp_path / "health.toml"
        file.write_text(text)
        return file

    return write


def tables(*libraries, mode="dlopen"):
    """Return the config that names libraries."""
    return "".join(
        f"[[library]]\npath = {json.dumps(os.fspath(path))}\nmode = {mode!r}\n"
        f"name = 'number {number}'\n"
        for number, path in enumerate(libraries)
    )


def health(*args, env=None, timeout=20):
    """Run the command, with enough time for a busy machine unless the test says how much."""
    limit = [] if timeout is None else ["--timeout", str(timeout)]
    return pyresolve("health", *limit, *args, env=env or environment())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_line_and_status(case: Case, config):
    """Each verdict has its line and its exit status, and nothing else is said."""
    file = config(tables(*(library() for library in case.libraries), mode=case.mode))
    env = {**environment(), **case.environment()}
    done = health("--config", file, "--timeout", str(case.seconds), env=env)
    assert (case.status, f"{case.line}\n", "") == (done.returncode, done.stdout, done.stderr)
    assert len(case.line) <= 80


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_line_and_status_of_pyresolve_probe(case: Case):
    """The native program says the same of the same libraries."""
    program = Path(COMMAND).with_name("pyresolve-probe")
    words = ["check", "--mode", case.mode, "--timeout", str(case.seconds)]
    libraries = [library() for library in case.libraries]
    done = run([program, *words, *libraries], env={**environment(), **case.environment()})
    assert (case.status, f"{case.line}\n", "") == (done.returncode, done.stdout, done.stderr)


# --- what is checked where nobody says what


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """Return a site with a hook, a torch and its CUDA runtime."""
    site = Site(tmp_path_factory.mktemp("complete") / "site-packages").tms().torch()
    site.cudart(13)
    return site


def test_all_is_well(complete, full_stub):
    """The hook, the driver and torch's runtime."""
    done = health(env=environment(complete, libraries=[full_stub]))
    assert (0, "OK 3 checks\n", "") == (done.returncode, done.stdout, done.stderr)


def test_no_driver_is_unknown(complete):
    """A head node: status 3, or what --unknown-is says."""
    env = environment(complete)
    line = "UNKNOWN no_driver: libcuda.so.1 (torch_memory_sav...oad_cu13.abi3.so) and 1 more\n"
    for option, status in ([], 3), (["--unknown-is", "ok"], 0), (["--unknown-is", "fail"], 1):
        done = health(*option, env=env)
        assert (status, line) == (done.returncode, done.stdout)


def test_verbose_says_all(complete, full_stub):
    """One line for each check, with its message."""
    done = health("--verbose", env=environment(complete, libraries=[full_stub]))
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert [("OK", "loadable", name) for name in ("hook", "driver", "torch")] == [
        tuple(line[:3]) for line in lines
    ]
    assert f"{complete.hook('_cu13')} is preloaded and takes effect" == lines[0][3]


def test_json_is_one_document(complete, full_stub):
    """With the report of each check, as docs/json.md says."""
    done = health("--json", env=environment(complete, libraries=[full_stub]))
    document = json.loads(done.stdout)
    assert (1, "ok", ["hook", "driver", "torch"]) == (
        document["schema"],
        document["verdict"],
        [check["name"] for check in document["checks"]],
    )
    hook, driver, torch = document["checks"]
    assert ("preload", "13.0") == (hook["report"]["mode"], driver["report"]["driver"]["version"])
    assert str(complete.cudart_directory(13) / "libcudart.so.13") == str(
        Path(torch["report"]["runtime"]["path"]).resolve()
    )
    assert abs(time.time() - hook["time"]) < 60


def test_nothing_installed_is_a_failure_that_says_so(site):
    """Who asks about the hook where there is none is told, and how to ask about something else."""
    done = health(env=environment(site))
    assert (1, "FAIL no_variant (torch_memory_saver) and 1 more\n") == (
        done.returncode,
        done.stdout,
    )
    said = health("--verbose", env=environment(site)).stdout
    assert "torch_memory_saver is not installed" in said


# --- the driver and torch


@pytest.mark.parametrize(
    ("text", "status", "line"),
    [
        ("", 0, "OK loadable (libcuda.so.1)"),
        ("cuda = '13.0'", 0, "OK loadable (libcuda.so.1)"),
        ("cuda = '12'", 0, "OK loadable (libcuda.so.1)"),
        ("cuda = '13.1'", 1, "FAIL version_mismatch: CUDA 13.0, not 13.1 (libcuda.so.1)"),
    ],
)
def test_driver_version(config, full_stub, text, status, line):
    """The driver must support what the config wants."""
    file = config(f"[driver]\n{text}\n")
    done = health("--config", file, env=environment(libraries=[full_stub]))
    assert (status, f"{line}\n") == (done.returncode, done.stdout)


@pytest.mark.parametrize(
    ("text", "status", "line"),
    [
        ("", 3, "UNKNOWN no_driver (libcuda.so.1)"),
        ("required = true", 1, "FAIL no_driver (libcuda.so.1)"),
    ],
)
def test_driver_absent(config, text, status, line):
    """It is not known whether one should be here, unless the config says so."""
    done = health("--config", config(f"[driver]\n{text}\n"))
    assert (status, f"{line}\n") == (done.returncode, done.stdout)


def test_driver_that_is_damaged(config, tmp_path):
    """A driver that is here and broken is no missing one."""
    (tmp_path / "libcuda.so.1").write_text("no library")
    env = environment(libraries=[tmp_path])
    done = health("--config", config("[driver]\n"), "--verbose", env=env)
    assert (1, "FAIL\tnot_elf\t") == (done.returncode, done.stdout[:13])
    assert str(tmp_path / "libcuda.so.1") in done.stdout


def test_driver_that_is_none(config):
    """The toolkit's stub answers to the name and is no driver."""
    stub = driver.full_stub(result=driver.STUB_LIBRARY)
    done = health("--config", config("[driver]\n"), "--verbose", env=environment(libraries=[stub]))
    assert 3 == done.returncode
    assert "is the toolkit's stub, not a driver" in done.stdout


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (lambda site: site, "FAIL not_found (torch)"),
        (lambda site: site.torch(None, "2.9.1+cpu"), "FAIL not_found (libc10_cuda.so)"),
        (
            lambda site: site.torch("99.0", "9.9.9+cu990"),
            "FAIL missing_dependency: libcudart.so.99 (libc10_cuda.so)",
        ),
    ],
    ids=["no torch", "no CUDA", "no runtime"],
)
def test_torch(config, site, made, line):
    """What the config wants of torch is not there."""
    done = health("--config", config("[torch]\n"), env=environment(made(site)))
    assert (1, f"{line}\n") == (done.returncode, done.stdout)


def test_python_of_the_workers(config, tmp_path, full_stub):
    """Hook and torch are those of the interpreter that the config names."""
    site = Site.in_venv(tmp_path / "venv").tms().torch()
    site.cudart(13)
    file = config(f"python = '{site.python}'\ntimeout = 10\n[hook]\n[torch]\n")
    done = health("--config", file, env=environment(libraries=[full_stub]))
    assert (0, "OK 2 checks\n") == (done.returncode, done.stdout)


# --- the deadline


@pytest.mark.serial
def test_deadline_is_below_a_second(config):
    """From the start of Python on; what hangs delays nothing else and is killed."""
    hanging = [rogue("sleep_ignoring_sigterm"), rogue("loop"), rogue("fork_sleep")]
    file = config(tables(*hanging[:2], rogue("good")))
    began = time.monotonic()
    done = health("--config", file, timeout=None)
    took = time.monotonic() - began
    assert (1, "FAIL timed_out: 0.9 s (sleep_ignoring_sigterm.so) and 1 more\n") == (
        done.returncode,
        done.stdout,
    )
    assert took < TIMEOUT + START
    said = health("--config", file, "--verbose", timeout=0.9).stdout.splitlines()
    assert ["FAIL", "FAIL", "OK"] == [line.split("\t")[0] for line in said]


@pytest.mark.parametrize("name", ["daemon", "fork_sleep"])
def test_nothing_is_left(config, tmp_path, name):
    """Processes that a library starts are gone after the command."""
    pidfile = tmp_path / "pid"
    env = {**environment(), PIDFILE: os.fspath(pidfile)}
    health("--config", config(tables(rogue(name))), env=env, timeout=2)
    pid = int(pidfile.read_text())
    assert poll(lambda: not process.alive(pid))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_command_that_is_killed(config, number, status):
    """By Ctrl-C, or by a kubelet that waits no longer: what it has started goes with it."""
    file = config(tables(rogue("sleep_ignoring_sigterm")))
    words = [COMMAND, "health", "--timeout", "50", "--config", file]
    env = environment()
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert poll(lambda: hanging(child.pid), timeout=20)
        family = hanging(child.pid)
        child.send_signal(number)
        assert (b"", b"", status) == (*child.communicate(timeout=20), child.returncode)
    assert poll(lambda: not any(map(process.alive, family)))


def hanging(pid):
    """Return the command's child, its helper, and the process in which the library sleeps."""
    children = process.children_of(pid)
    helpers = [found for child in children for found in process.children_of(child)]
    loading = [found for helper in helpers for found in process.children_of(helper)]
    return [*children, *helpers, *loading] if loading else []


def test_override_of_the_timeout_wins(config):
    """PYRESOLVE_TIMEOUT is the deadline of all, whatever the arguments say."""
    file = config(tables(rogue("sleep_ignoring_sigterm")))
    env = {**environment(), "PYRESOLVE_TIMEOUT": "0.5"}
    done = health("--config", file, "--timeout", "30", env=env)
    assert "FAIL timed_out: 0.5 s (sleep_ignoring_sigterm.so)\n" == done.stdout


ON_DEAD_FILE_SYSTEM = """
    import json, subprocess, sys, time
    from pathlib import Path
    from support.hungfs import hung

    mount, file, *command = sys.argv[1:]
    with hung(Path(mount), Path(file), reader=0):
        began = time.monotonic()
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said = child.communicate(timeout=20)
        took = time.monotonic() - began
    print(json.dumps([child.returncode, *said, took]))
"""


def on_dead_file_system(mount, file, *words, env):
    """Run the command while reads of `file` under `mount` do not come back; return its end."""
    if not hungfs.available():
        unavailable("this user may not open /dev/fuse")
    return cold(
        ON_DEAD_FILE_SYSTEM,
        mount,
        file,
        COMMAND,
        "health",
        *words,
        prefix=[require_unshare(), "-rm"],
        env=env,
    )


@pytest.mark.serial
def test_deadline_holds_where_the_kernel_does_not_return(config, tmp_path):
    """A file on a dead file system: neither the command nor who reads its output waits for it."""
    mount = tmp_path / "mount"
    mount.mkdir()
    file = config(tables(mount / "good.so", rogue("good")))
    env = {**environment(), "PYTHONPATH": os.fspath(TESTS)}
    status, out, err, took = on_dead_file_system(mount, rogue("good"), "--config", file, env=env)
    assert (1, "FAIL timed_out: 0.9 s (good.so)\n", "") == (status, out, err)
    assert took < TIMEOUT + START


@pytest.mark.serial
def test_deadline_holds_where_torch_lies_on_a_dead_file_system(site):
    """Without a config torch is looked for under the deadline, too, and counts as late."""
    site.torch()
    env = {**environment(), "PYTHONPATH": f"{TESTS}:{site.root}"}
    package = site.root / "torch"
    words = ["--timeout", "2", "--verbose"]
    status, out, err, took = on_dead_file_system(package, package / "version.py", *words, env=env)
    ends = [tuple(line.split("\t")[1:3]) for line in out.splitlines()]
    assert (1, "") == (status, err)
    assert [("timed_out", "hook"), ("no_driver", "driver"), ("timed_out", "torch")] == ends
    assert took < 2 + START


def test_results_that_are_cut_off():
    """If the command stops reading in the middle of a result, those before it are used."""
    result = Health(name="x", file="x", verdict=Verdict.OK, status="loadable", message="loads")
    parts = [pickle.dumps((index, result)) for index in range(2)]
    data = b"".join(parts)
    for end in range(len(data) + 1):
        whole = (end >= len(parts[0])) + (end == len(data))
        assert dict.fromkeys(range(whole), result) == dict(once._answers(data[:end]))


# --- what it is given


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("tiemout = 1\n[hook]", "'tiemout' is no key: known are timeout, unknown-is, python, hook"),
        ("[hook]\nsteem = 'x'", "[hook] 'steem' is no key: known are stem, package"),
        ("[torch]\ncuda = 'x'", "[torch] 'cuda' is no key: it takes none"),
        ("[[library]]\nfile = '/x'", "[[library]] 'file' is no key: known are path, mode, name"),
        ("[[library]]", "a [[library]] has no path"),
        ("[library]\npath = '/x'", "library is no list of tables: write each as [[library]]"),
        ("[[library]]\npath = 'a/b.so'", "path is 'a/b.so': give it in full"),
        ("[[library]]\npath = '/x'\nmode = 'lazy'", "mode is 'lazy': give 'dlopen' or 'preload'"),
        (
            "[[library]]\npath = '/a/x.so'\n[[library]]\npath = '/b/x.so'",
            "two checks are called 'x.so'",
        ),
        ("[driver]\ncuda = 12.8", "[driver] cuda is 12.8: give a text"),
        ("[driver]\ncuda = 'new'", "[driver] cuda is 'new': give a version"),
        ("[driver]\nrequired = 'yes'", "[driver] required is 'yes': give true or false"),
        ("timeout = 'long'\n[hook]", "timeout is 'long': give a positive number of seconds"),
        ("timeout = true\n[hook]", "timeout is True: give a positive number of seconds"),
        ("timeout = -1\n[hook]", "timeout is -1: give a positive number of seconds"),
        ("timeout = nan\n[hook]", "timeout is nan: give a positive number of seconds"),
        ("unknown-is = 'good'\n[hook]", "unknown-is is 'good': give 'ok' or 'fail'"),
        ("hook = true", "hook is True: give a table: [hook]"),
        ("python = ''\n[hook]", "python is '': give a text, or leave it out"),
        ("", "it names nothing to check"),
        ("[hook", "is no TOML"),
        ("x = '\udcff'", "is no TOML"),
    ],
)
def test_config_that_means_nothing(tmp_path, text, sentence):
    """One sentence that names the file, the place and what would be right; status 2."""
    file = tmp_path / "health.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    done = health("--config", file)
    assert (2, "", 1) == (done.returncode, done.stdout, done.stderr.count("\n"))
    assert done.stderr.startswith(f"pyresolve: {file}")
    assert sentence in done.stderr


def test_config_that_is_not_there(tmp_path):
    """Missing, or a directory."""
    for file, reason in (
        (tmp_path / "missing.toml", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        done = health("--config", file)
        said = f"pyresolve: {file} cannot be read ({reason})\n"
        assert (2, "", said) == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--timeout", "0"], "timeout is 0.0: give a positive number"),
        (["--output", "/x"], "--output goes with --format prometheus"),
        (["--json", "--format", "prometheus"], "--json goes with neither"),
        (["--serve", "nowhere"], "address is 'nowhere': give ADDR:PORT"),
        (["--serve", "127.0.0.1:99999"], "give ADDR:PORT"),
    ],
)
def test_arguments_that_mean_nothing(words, sentence):
    """Status 2 and one sentence."""
    done = health(*words)
    assert (2, 1) == (done.returncode, done.stderr.count("\n"))
    assert sentence in done.stderr


def test_errors_as_json(tmp_path):
    """Who asked for JSON gets the error as JSON."""
    done = health("--json", "--config", tmp_path / "missing.toml")
    document = json.loads(done.stdout)
    assert (2, "ConfigError") == (done.returncode, document["error"])


def test_closed_descriptors_do_not_matter(config):
    """As a daemon starts its probes."""
    file = config(tables(rogue("good")))
    done = run(["sh", "-c", '"$0" health --config "$1" <&- 2>&-', COMMAND, file], env=environment())
    assert (0, "OK loadable (good.so)\n") == (done.returncode, done.stdout)


def test_ignored_sigchld_does_not_matter(config):
    """Who ignores SIGCHLD hands that on."""
    file = config(tables(rogue("segfault"), rogue("good")))
    code = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    code += "os.execv(sys.argv[1], sys.argv[1:])"
    words = [sys.executable, "-c", code, COMMAND, "health", "--config", file]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment())
    assert (1, "FAIL crashed: SIGSEGV (segfault.so)\n", "") == (
        done.returncode,
        done.stdout,
        done.stderr,
    )
