"""The command line as real processes: what stdout carries, the status, and never a traceback."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support import process
from support.command import COMMAND, environment, pyresolve, run
from support.compile import workshop
from support.layout import PRELOAD_STEM, Site
from support.rogues import rogue
from support.tools import require_tool, unavailable

from pyresolve.cli.env import _line

CHOICE_KEYS = {
    *("schema", "path", "cuda_major", "source", "verdict", "env", "runtime"),
    *("driver", "evidence", "warnings", "report"),
}
EVIDENCE_KEYS = {"source", "major", "decided", "text"}
RUNTIME_KEYS = {"path", "major", "version", "origin", "distribution", "problem"}
DRIVER_KEYS = {"absent", "present", "path", "version", "problem"}
MISSING_KEYS = {"name", "needed_by", "searched", "elsewhere", "unusable", "supplier"}
REPORT_KEYS = {
    *("path", "mode", "verdict", "status", "message", "detail", "remedy"),
    *(
        "missing",
        "undefined",
        "used_by",
        "provider",
        "loaded",
        "runtime",
        "driver",
        "elapsed",
        "pid",
    ),
}
DOCTOR_KEYS = {
    *("schema", "verdict", "remedy", "python", "package", "candidates", "torch"),
    *("torch_runtime", "loader_runtimes", "runtimes", "driver", "choice", "error"),
}
AUDIT_KEYS = {
    *("schema", "pid", "verdict", "preload", "hook", "active", "owner", "runtimes"),
    *("torch_runtime", "findings"),
}
ERROR_KEYS = {"schema", "error", "message", "remedy"}
COMMANDS = ("pick", "env", "exec", "check", "doctor", "audit", "bench")
PICKERS = ("pick", "env", "doctor")  # what takes the options of pick and prints an answer
CRASH = re.compile(r"Traceback|Exception ignored|BrokenPipe")


@pytest.fixture(scope="module")
def ready(tmp_path_factory):
    """Return a site where everything is right for CUDA 13."""
    return Site(tmp_path_factory.mktemp("ready") / "site-packages").cuda(13)


@pytest.fixture
def good(ready, full_stub):
    """Return an environment in which the verdict is OK."""
    return environment(ready, libraries=[full_stub])


@pytest.fixture
def driverless(ready):
    """Return an environment in which all is right but for the driver."""
    return environment(ready)


@pytest.fixture
def broken(lacking, full_stub):
    """Return an environment with a driver in which the right build does not load."""
    return environment(lacking, libraries=[full_stub])


@pytest.fixture
def damaged(tmp_path):
    """Return the function that gives an environment whose site holds only these packages."""

    def make(*steps):
        site = Site(tmp_path / "site-packages")
        for step in steps:
            step(site)
        return environment(site)

    return make


def outcome(done):
    """Return the status and stdout, having seen that the command did not crash."""
    assert not CRASH.search(done.stderr), done.stderr
    return done.returncode, done.stdout


def document(done):
    """Return the one JSON document that stdout is."""
    outcome(done)
    found = json.loads(done.stdout)
    assert next(iter(found)) == "schema"
    assert found["schema"] == 1
    return found


# --- what stdout carries, and the status


@pytest.mark.parametrize("start", [[COMMAND], [sys.executable, "-m", "pyresolve"]])
def test_pick_prints_the_path_alone(ready, good, start):
    """Both ways to start it; where all is right, not a word on stderr."""
    done = run([*start, "pick"], env=good)
    assert (0, f"{ready.hook('_cu13')}\n", "") == (*outcome(done), done.stderr)


def test_pick_takes_the_stem_and_the_package(ready, good):
    """What names the hook on the command line reaches pick()."""
    other = PRELOAD_STEM.replace("preload", "torch")
    done = pyresolve("pick", other, "--package", "torch_memory_saver", "--cuda", "13", env=good)
    assert f"{ready / other}_cu13.abi3.so\n" == done.stdout


def test_without_driver_the_path_is_printed_and_the_rest_said(ready, driverless):
    """UNKNOWN: the answer on stdout, the reason on stderr, status 3."""
    done = pyresolve("pick", env=driverless)
    assert (3, f"{ready.hook('_cu13')}\n") == outcome(done)
    assert done.stderr.startswith("pyresolve: unknown: all that ")
    assert 1 == done.stderr.count("\n")


@pytest.mark.parametrize("command", ["pick", "env"])
def test_refusal_leaves_stdout_empty(broken, command):
    """FAIL: nothing that `$(…)` could take for an answer; the remedy on stderr."""
    done = pyresolve(command, env=broken)
    assert (1, "") == outcome(done)
    assert "pip install nvidia-cuda-runtime-cu12" in done.stderr


@pytest.mark.parametrize("command", PICKERS)
@pytest.mark.parametrize(
    ("case", "status"), [("good", 0), ("broken", 1), ("driverless", 3), ("lacking", 1)]
)
def test_status_is_the_verdict(request, lacking, command, case, status):
    """0 OK, 1 FAIL (with a driver or without one), 3 UNKNOWN."""
    env = environment(lacking) if case == "lacking" else request.getfixturevalue(case)
    assert status == outcome(pyresolve(command, env=env))[0]


@pytest.mark.parametrize(
    ("libraries", "status", "said"),
    [
        (["good"], 0, ["OK\tLOADABLE"]),
        (["missing_needed"], 1, ["FAIL\tMISSING_DEPENDENCY"]),
        (["hook"], 3, ["UNKNOWN\tNO_DRIVER"]),
        (["good", "hook"], 3, ["OK\tLOADABLE", "UNKNOWN\tNO_DRIVER"]),
        (["hook", "segfault", "good"], 1, ["UNKNOWN\tNO_DRIVER", "FAIL\tCRASHED", "OK\tLOADABLE"]),
    ],
)
@pytest.mark.parametrize("mode", ["dlopen", "preload"])
def test_check_prints_a_line_for_each_library(ready, libraries, status, said, mode):
    """In the order given; one FAIL fails, else one UNKNOWN counts."""
    paths = [ready.hook("_cu13") if name == "hook" else rogue(name) for name in libraries]
    env = environment(libraries=[ready.cudart_directory(13)])
    done = pyresolve("check", "--mode", mode, *paths, env=env)
    lines = done.stdout.splitlines()
    assert (status, said) == (outcome(done)[0], ["\t".join(li.split("\t")[:2]) for li in lines])
    assert all(os.fspath(path) in line for path, line in zip(paths, lines, strict=True))
    assert "" == done.stderr


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["choose"],
        ["pick", "--frobnicate"],
        ["pick", "--cuda"],
        ["pick", "--cuda", "twelve"],
        ["pick", "one", "two"],
        ["env", "--shell", "tcsh"],
        ["check"],
        ["check", "--mode", "import", "/lib.so"],
        ["exec"],
        ["exec", "--"],
        ["exec", "true"],
        ["exec", PRELOAD_STEM, "true", "--", "true"],
        ["audit", "--pid", "one"],
        ["audit", "one", "two"],
    ],
)
def test_misuse_is_status_two(good, words):
    """The usage goes to stderr."""
    done = pyresolve(*words, env=good)
    assert (2, "") == outcome(done)
    assert done.stderr


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["pick"], "PYRESOLVE_CUDA", "0"),
        (["pick"], "PYRESOLVE_TIMEOUT", "-1"),
        (["pick"], "PYRESOLVE_PRELOAD", "hook.so"),
        (["env"], "PYRESOLVE_CUDA", "twelve"),
        (["doctor"], "PYRESOLVE_PRELOAD", "hook.so"),
        (["doctor"], "PYRESOLVE_TIMEOUT", "soon"),
        (["exec", "--", "true"], "PYRESOLVE_CUDA", "twelve"),
        (["exec", "--force", "--", "true"], "PYRESOLVE_CUDA", "twelve"),
        (["check", "/lib.so"], "PYRESOLVE_TIMEOUT", "soon"),
    ],
)
def test_override_that_means_nothing_is_misuse(good, words, name, value):
    """It names the variable and its value."""
    done = pyresolve(*words, env={**good, name: value})
    assert (2, "") == outcome(done)
    assert done.stderr.startswith(f"pyresolve: {name}={value!r}")
    assert 1 == done.stderr.count("\n")


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_says_what_each_command_is_for(good, words):
    """Help is an answer: on stdout, status 0."""
    done = pyresolve(*words, env=good)
    assert (0, "") == (outcome(done)[0], done.stderr)
    assert "usage: pyresolve" in done.stdout
    if len(words) == 1:
        assert all(re.search(rf"^ +{name} +\w", done.stdout, re.M) for name in COMMANDS)
        assert "0 OK, 1 FAIL, 2 usage, 3 UNKNOWN" in done.stdout


# --- JSON


@pytest.mark.parametrize("command", ["pick", "env"])
def test_json_of_a_choice(ready, good, driverless, command):
    """One document with stable keys, whatever the verdict."""
    found = document(pyresolve(command, "--json", env=good))
    assert set(found) == CHOICE_KEYS
    assert set(found["report"]) == REPORT_KEYS
    assert set(found["runtime"]) == RUNTIME_KEYS
    assert set(found["driver"]) == DRIVER_KEYS
    assert [set(item) for item in found["evidence"]] == [EVIDENCE_KEYS] * len(found["evidence"])
    assert (str(ready.hook("_cu13")), 13, "ok") == (
        found["path"],
        found["cuda_major"],
        found["verdict"],
    )
    assert {"LD_PRELOAD", "LD_LIBRARY_PATH"} == set(found["env"])
    other = document(pyresolve(command, "--json", env=driverless))
    assert (CHOICE_KEYS, "unknown") == (set(other), other["verdict"])


def test_json_of_check(ready, lacking):
    """One document for all libraries; what is missing is spelled out."""
    hooks = [ready.hook("_cu13"), lacking.hook("_cu12")]
    found = document(pyresolve("check", "--json", *hooks, env=environment(ready)))
    assert set(found) == {"schema", "reports"}
    assert [set(report) for report in found["reports"]] == [REPORT_KEYS] * 2
    assert list(map(str, hooks)) == [report["path"] for report in found["reports"]]
    missing = found["reports"][1]["missing"]
    assert [set(item) for item in missing] == [MISSING_KEYS] * len(missing)
    assert "libcudart.so.12" in {item["name"] for item in missing}


def test_json_of_doctor(good, broken):
    """The same keys where it found an answer and where it did not."""
    found = document(pyresolve("doctor", "--json", env=good))
    assert set(found) == DOCTOR_KEYS
    assert set(found["package"]) == {"name", "version", "found"}
    assert set(found["torch"]) == {"root", "version", "cuda", "accelerator", "problem"}
    assert {frozenset(item) for item in found["candidates"]} == {
        frozenset({"path", "major", "named", "problem"})
    }
    assert set(found["torch_runtime"]) == RUNTIME_KEYS
    assert set(found["choice"]) == CHOICE_KEYS
    assert (0, None) == (0 if found["verdict"] == "ok" else 1, found["error"])
    other = document(pyresolve("doctor", "--json", env=broken))
    assert (DOCTOR_KEYS, CHOICE_KEYS) == (set(other), set(other["choice"]))
    assert {"type", "message"} == set(other["error"])
    assert ("NotLoadableError", "fail") == (other["error"]["type"], other["verdict"])
    assert "pip install nvidia-cuda-runtime-cu12" == other["remedy"]


def test_json_of_audit(good):
    """Keys of the audit, of a process without the hook."""
    found = document(pyresolve("audit", "--json", env=good))
    assert (AUDIT_KEYS, "fail", False) == (set(found), found["verdict"], found["active"])
    assert [{"status", "message"}] == [set(item) for item in found["findings"]]
    assert ["not_preloaded"] == [item["status"] for item in found["findings"]]


@pytest.mark.parametrize(
    ("words", "extra", "status", "error"),
    [
        (["pick", "--json"], {}, 1, "NotLoadableError"),
        (["env", "--json"], {}, 1, "NotLoadableError"),
        (["env", "--json", "nothing_like_it"], {}, 1, "NoVariantError"),
        (["pick", "--json", "--cuda", "14"], {}, 1, "NoVariantError"),
        (["pick", "--json", "--cuda", "x"], {}, 2, "OverrideError"),
        (["pick", "--json"], {"PYRESOLVE_CUDA": "x"}, 2, "OverrideError"),
        (["pick", "--json", "--python", "/nowhere/python"], {}, 1, "InterpreterError"),
        (["doctor", "--json", "--python", "/bin/false"], {}, 1, "InterpreterError"),
        (["doctor", "--json"], {"PYRESOLVE_CUDA": "x"}, 2, "OverrideError"),
        (["audit", "--json", "--pid", "0"], {}, 1, "PyresolveError"),
    ],
)
def test_errors_are_json_too(broken, words, extra, status, error):
    """One document on stdout, and the sentence on stderr as well."""
    done = pyresolve(*words, env={**broken, **extra})
    found = document(done)
    assert (status, ERROR_KEYS, error) == (done.returncode, set(found), found["error"])
    assert f"pyresolve: {found['message']}\n" == done.stderr


def test_json_carries_the_remedy_of_an_error(broken):
    """A command that mends the cause stands apart from the sentence."""
    found = document(pyresolve("pick", "--json", env=broken))
    assert "pip install nvidia-cuda-runtime-cu12" == found["remedy"]


# --- conditions of the machine


def bare(site):
    """Install a torch_memory_saver that was built without CUDA."""
    site.package("torch_memory_saver", "0.0.10")


def hip(site):
    """Install a torch for ROCm."""
    site.tms().torch(None, "2.9.1+rocm6.4", hip="6.4.43482")


@pytest.mark.parametrize(
    ("words", "steps", "error"),
    [
        (["pick"], [], "torch_memory_saver is not installed"),
        (["doctor"], [], "torch_memory_saver is not installed"),
        (["exec", "--", "true"], [], "torch_memory_saver is not installed"),
        (["pick"], [bare], "is installed without native hooks"),
        (["env"], [bare], "is installed without native hooks"),
        (["doctor"], [bare], "is installed without native hooks"),
        (["pick"], [hip], "is built for ROCm 6.4.43482, not for CUDA"),
        (["doctor"], [hip], "is built for ROCm 6.4.43482, not for CUDA"),
    ],
)
def test_what_is_wrong_is_one_sentence(damaged, words, steps, error):
    """A failure is a sentence on stderr (of doctor it is the answer), with status 1."""
    done = pyresolve(*words, env=damaged(*steps))
    status, shown = outcome(done)
    text = shown if words == ["doctor"] else done.stderr
    assert (1, 1) == (status, text.count(error)), text
    if words != ["doctor"]:
        assert ("", 1) == (shown, done.stderr.count("\n"))


@pytest.mark.parametrize(
    ("words", "python", "error"),
    [
        (["pick"], "/nowhere/python", "/nowhere/python cannot be started"),
        (["env"], "/nowhere/python", "/nowhere/python cannot be started"),
        (["doctor"], "/nowhere/python", "/nowhere/python cannot be started"),
        (["pick"], "/bin/false", "/bin/false does not answer as Python does"),
        (["doctor"], "/bin/false", "/bin/false does not answer as Python does"),
        (["pick"], "/etc/passwd", "/etc/passwd cannot be started"),
        (["pick"], "/", "/ cannot be started"),
        (["pick"], "no-such-python", "no-such-python is not on PATH"),
        (["pick"], "", "'' names no interpreter"),
    ],
)
def test_no_answer_without_the_interpreter(good, words, python, error):
    """No command answers for another interpreter than the one it was given."""
    done = pyresolve(*words, "--python", python, env=good)
    assert (1, "") == outcome(done)
    assert done.stderr.startswith(f"pyresolve: {error}")


def test_python_names_the_site_of_the_workers(ready, full_stub, tmp_path):
    """--python goes for pick, env and doctor."""
    workers = Site.in_venv(tmp_path / "workers")
    (workers / "ready.pth").write_text(f"{ready.root}\n")
    env = environment(libraries=[full_stub])
    done = pyresolve("pick", "--python", workers.python, env=env)
    assert (0, f"{ready.hook('_cu13')}\n") == outcome(done)
    found = document(pyresolve("doctor", "--json", "--python", workers.python, env=env))
    assert (str(workers.python), "ok") == (found["python"], found["verdict"])
    assert (1, "") == outcome(pyresolve("pick", env=env))


LOCALES = {
    "utf-8": {"LC_ALL": "C.UTF-8"},
    "coerced": {"LC_ALL": "C"},
    "ascii": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    "io-ascii": {"PYTHONIOENCODING": "ascii"},
}
CAFE, LATIN_1 = "caf\xe9", "caf\udce9"


@pytest.mark.parametrize(
    ("locale", "name"),
    [
        ("utf-8", CAFE),
        ("utf-8", LATIN_1),
        ("utf-8", "tab\tnew\nline"),
        ("coerced", LATIN_1),
        ("ascii", CAFE),
        ("ascii", LATIN_1),
        ("io-ascii", CAFE),
    ],
)
def test_paths_are_any_bytes(ready, full_stub, name, locale):
    """What pick and env print is those bytes, whatever the locale; the others do not fail."""
    link = Path(tempfile.mkdtemp(dir=workshop())) / name
    link.symlink_to(ready.root)
    env = {**environment(link, libraries=[full_stub]), **LOCALES[locale]}
    hook = f"{link}/{ready.hook('_cu13').name}"
    assert (0, f"{hook}\n") == outcome(pyresolve("pick", env=env))
    for words in (["doctor"], ["check", hook], ["pick", "--json"]):
        assert outcome(pyresolve(*words, env=env))[0] in (0, 3)
    script = 'eval "$("$0" env)"; exec /usr/bin/env -0'
    shown = run([require_tool("sh"), "-c", script, COMMAND], env=env)
    changed = dict(item.split("=", 1) for item in shown.stdout.split("\0") if item)
    assert hook == changed["LD_PRELOAD"], shown.stderr


@pytest.mark.parametrize("command", ["pick", "env", "doctor", "check", "audit"])
def test_answer_is_the_same_with_descriptors_closed(ready, driverless, command):
    """What belongs on stderr never turns up on stdout, and no descriptor of ours is taken."""
    words = [command, *([os.fspath(ready.hook("_cu13"))] if command == "check" else [])]

    def answer(redirection):
        script = f'"$0" "$@" {redirection}'
        done = run([require_tool("sh"), "-c", script, COMMAND, *words], env=driverless)
        status, shown = outcome(done)
        return status, re.sub(r"process \d+", "process N", shown)

    expected = answer("")
    assert [expected] * 3 == [answer("<&-"), answer("2>&-"), answer("<&- 2>&-")]


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["pick", "env", "doctor", "check"])
def test_answer_that_cannot_be_written_is_no_success(good, command, redirection):
    """A full disk or a closed stdout: not status 0, and a sentence instead of a traceback."""
    words = f"{command} {shlex.quote(os.fspath(rogue('good')))}" if command == "check" else command
    done = run([require_tool("sh"), "-c", f'"$0" {words} {redirection}', COMMAND], env=good)
    assert (1, "") == outcome(done)


@pytest.mark.parametrize("command", ["pick", "env", "doctor", "check", "audit", "pick --json"])
def test_reader_that_went_away_is_no_news(good, command):
    """A pipe into `head -0`: no traceback, not even from the interpreter's own exit."""
    words = [*command.split(), *([rogue("good")] if command == "check" else [])]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [COMMAND, *words], stdout=writer, stderr=subprocess.PIPE, env=good, cwd="/", check=False
        )
    finally:
        os.close(writer)
    assert (1, b"") == (done.returncode, done.stderr)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"HOME": "/nowhere"},
        {"PATH": ""},
        {"LANG": "C", "LC_ALL": "C"},
        {"LANG": "xx_YY.utf-9"},
        {"PYTHONOPTIMIZE": "2"},
        {"PYTHONWARNINGS": "error"},
        {"PYTHONDEVMODE": "1"},
        {"TMPDIR": "/nowhere"},
        {"TERM": "dumb"},
        {"COLUMNS": "1"},
        {"LD_PRELOAD": "/nowhere/lib.so"},
        {"CUDA_HOME": "/nowhere", "CUDA_PATH": "", "CONDA_PREFIX": "/nowhere"},
    ],
    ids=str,
)
def test_environment_may_be_odd(ready, full_stub, variables):
    """Neither a variable that is missing nor one with nonsense changes the answer."""
    env = {"PYTHONPATH": os.fspath(ready), "LD_LIBRARY_PATH": os.fspath(full_stub), **variables}
    assert (0, f"{ready.hook('_cu13')}\n") == outcome(pyresolve("pick", env=env))


def test_working_directory_may_be_gone(good, ready):
    """A launcher's scratch directory that was removed under it."""
    script = 'mkdir "$1" && cd "$1" && rmdir "$1" && exec "$0" pick'
    gone = f"{tempfile.mkdtemp(dir=workshop())}/gone"
    done = run([require_tool("sh"), "-c", script, COMMAND, gone], env=good)
    assert (0, f"{ready.hook('_cu13')}\n") == outcome(done)


def test_file_in_the_working_directory_is_not_imported(good, ready, tmp_path):
    """A json.py or a torch.py where the user stands is nobody's business."""
    for name in ("json", "torch", "argparse", "torch_memory_saver"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from here')\n")
    done = pyresolve("pick", env=good, cwd=tmp_path)
    assert (0, f"{ready.hook('_cu13')}\n") == outcome(done)


@pytest.mark.parametrize("words", [["check"], ["check", "--json"]])
def test_interrupt_ends_with_130_and_without_a_word(good, words):
    """Ctrl-C while a library hangs: no traceback, no process left."""
    command = [COMMAND, *words, rogue("sleep_ignoring_sigterm")]
    env = {**good, "PYRESOLVE_TIMEOUT": "60"}
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd="/"
    )
    helpers = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    assert process.poll(lambda: helpers.read_text().split(), timeout=20.0)
    helper = int(helpers.read_text().split()[0])
    # Its own child is the one that hangs.
    hanging = Path(f"/proc/{helper}/task/{helper}/children")
    assert process.poll(lambda: hanging.read_text().split(), timeout=20.0)
    hangs = int(hanging.read_text().split()[0])
    running.send_signal(signal.SIGINT)
    said = running.communicate(timeout=20)
    assert (130, (b"", b"")) == (running.returncode, said)
    assert process.poll(lambda: not process.alive(helper) and not process.alive(hangs))


# --- what a person sees


def on_terminal(*words, env):
    """Run the command on a pseudo-terminal and return the status and what it wrote there."""
    reader, writer = pty.openpty()
    try:
        running = subprocess.Popen(
            [COMMAND, *words], stdout=writer, stderr=writer, env=env, cwd="/"
        )
        os.close(writer)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: nobody holds the other end any more
            while data := os.read(reader, 65536):
                shown += data
        return running.wait(timeout=30), shown.decode()
    finally:
        os.close(reader)


def test_doctor_has_colours_on_a_terminal(good, ready):
    """Through rich, with the chosen build in it, however narrow the terminal is."""
    if not importlib.util.find_spec("rich"):
        unavailable("rich is not installed")
    status, shown = on_terminal("doctor", env={**good, "TERM": "xterm-256color", "COLUMNS": "500"})
    assert (0, True) == (status, "\x1b[" in shown)
    assert ready.hook("_cu13").name in shown
    assert not CRASH.search(shown)
    status, shown = on_terminal("doctor", env={**good, "TERM": "xterm-256color", "COLUMNS": "20"})
    assert (0, False) == (status, bool(CRASH.search(shown)))


@pytest.mark.parametrize(
    "variables", [{"NO_COLOR": "1", "TERM": "xterm-256color"}, {"TERM": "dumb"}]
)
def test_doctor_is_plain_where_colours_are_not_wanted(good, variables):
    """NO_COLOR and a terminal that can do nothing are respected."""
    status, shown = on_terminal("doctor", env={**good, **variables})
    assert (0, False) == (status, "\x1b" in shown)


def test_doctor_is_plain_in_a_pipe(good, ready):
    """Aligned columns, the decisive source and the chosen build with a star, no escapes."""
    done = pyresolve("doctor", env={**good, "TERM": "xterm-256color", "FORCE_COLOR": "1"})
    status, shown = outcome(done)
    assert (0, False) == (status, "\x1b" in shown)
    lines = shown.splitlines()
    columns = {re.match(r"\S* +\*? +", line).end() for line in lines}
    assert 1 == len(columns)
    labels = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert labels == [
        *("python", "package", "build", "torch", "runtime", "driver"),
        *("source", "chosen", "environment", "verdict"),
    ]
    starred = [line for line in lines if re.match(r"\S* +\* ", line)]
    assert 3 == len(starred)
    assert 2 == sum(str(ready.hook("_cu13")) in line for line in starred)


def test_doctor_prints_what_eval_would_do(good):
    """The environment in its answer is that of `pyresolve env`."""
    change = pyresolve("env", env=good).stdout.splitlines()
    shown = pyresolve("doctor", env=good).stdout
    assert change == re.findall(r"export LD_.*$", shown, re.M)


def test_answers_are_plain_on_a_terminal_too(good, ready):
    """A path that is copied from the screen has nothing around it."""
    status, shown = on_terminal("pick", env={**good, "TERM": "xterm-256color"})
    assert (0, f"{ready.hook('_cu13')}\r\n") == (status, shown)


def test_warnings_go_to_stderr(good, ready):
    """A preload that the loader ignores is worth a warning, and no change of the answer."""
    done = pyresolve("pick", env={**good, "LD_PRELOAD": "/nowhere/libfoo.so"})
    assert (0, f"{ready.hook('_cu13')}\n") == outcome(done)
    assert "pyresolve: warning: the loader ignores a preload that was there before" in done.stderr


# --- env


AWKWARD = [
    "it's",
    'a "b" c',
    "a\\b",
    "back\\",
    "$HOME `id` $(id)",
    "amp&|<#hash #comment",
    "glob*?[a]{b,c}~!",
    CAFE,
    "-n",
    "=",
    "new\nline",
    "tab\t",
]


@pytest.fixture
def awkward(good):
    """Return an environment that is good, with more directories, each hard to quote."""
    more = ":".join(f"/nowhere/{name}" for name in AWKWARD)
    return {**good, "LD_LIBRARY_PATH": f"{good['LD_LIBRARY_PATH']}:{more}"}


def expected_change(env):
    """Return the change, by way of JSON."""
    change = document(pyresolve("env", "--json", env=env))["env"]
    assert change["LD_LIBRARY_PATH"].endswith(env["LD_LIBRARY_PATH"])
    return change


def test_eval_gives_a_shell_the_change(awkward):
    """`eval "$(pyresolve env)"`, as documented, whatever a value holds."""
    script = 'eval "$("$0" env)"; printf "%s\\0" "$LD_PRELOAD" "$LD_LIBRARY_PATH"'
    done = run([require_tool("sh"), "-c", script, COMMAND], env=awkward)
    change = expected_change(awkward)
    assert [change["LD_PRELOAD"], change["LD_LIBRARY_PATH"], ""] == done.stdout.split("\0")


@pytest.mark.parametrize("value", ["", *AWKWARD])
@pytest.mark.parametrize("shell", ["sh", "fish", "dotenv"])
def test_one_value_is_quoted_by_the_rules_of_its_reader(shell, value):
    """Each alone, since what one needs may hide what another lacks."""
    read = {"sh": read_sh, "fish": read_fish, "dotenv": read_dotenv}[shell]
    assert {"LD_LIBRARY_PATH": value} == read(_line(shell, "LD_LIBRARY_PATH", value) + "\n")


def test_eval_exports(good):
    """The programs that the shell starts get it, not only the shell."""
    script = 'eval "$("$0" env)"; exec /usr/bin/env -0'
    done = run([require_tool("sh"), "-c", script, COMMAND], env=good)
    shown = dict(item.split("=", 1) for item in done.stdout.split("\0") if item)
    change = expected_change(good)
    assert change == {name: shown[name] for name in change}


def test_json_shell_is_the_change_alone(awkward):
    """--shell json is for programs that want nothing but the variables."""
    status, shown = outcome(pyresolve("env", "--shell", "json", env=awkward))
    assert (0, expected_change(awkward)) == (status, json.loads(shown))


def read_sh(text):
    """Return the variables that a POSIX shell exports."""
    words = shlex.split(text, comments=True)
    assert "export" == words[0]
    return dict(word.split("=", 1) for word in words[1:])


FISH = re.compile(r"set -gx (\w+) '((?:[^'\\]|\\\\|\\')*)'\n")
DOTENV = re.compile(r"""(?:export )?(\w+)=(?:'((?:\\'|[^'])*)'|([^'"\r\n][^\r\n]*)?)\n""")


def read_fish(text):
    """Return the variables; in single quotes fish knows but two escapes, of quote and backslash."""
    assert "" == FISH.sub("", text)
    return {name: re.sub(r"\\([\\'])", r"\1", value) for name, value in FISH.findall(text)}


def read_dotenv(text):
    """Return the variables, by what python-dotenv says of the format; `${NAME}` is left alone."""
    assert "" == DOTENV.sub("", text)
    return {
        name: re.sub(r"\\([\\'])", r"\1", quoted)
        if quoted
        else re.sub(r"\s+#.*", "", plain).rstrip()
        for name, quoted, plain in DOTENV.findall(text)
    }


@pytest.mark.parametrize("shell", ["fish", "dotenv"])
def test_other_shells_get_the_change(awkward, shell):
    """Every variable of the change, and nothing else."""
    status, shown = outcome(pyresolve("env", "--shell", shell, env=awkward))
    read = read_fish if shell == "fish" else read_dotenv
    assert (0, expected_change(awkward)) == (status, read(shown))


def test_dotenv_leaves_plain_values_plain(good):
    """Readers that know no quotes, such as docker --env-file, get along with the usual paths."""
    shown = pyresolve("env", "--shell", "dotenv", env=good).stdout
    lines = [f"{name}={value}" for name, value in expected_change(good).items()]
    assert lines == shown.splitlines()


@pytest.mark.parametrize("shell", ["sh", "fish", "json", "dotenv"])
def test_env_applied_twice_has_nothing_left_to_change(good, shell):
    """The command itself runs with the hook preloaded, and finds all in place."""
    change = json.loads(pyresolve("env", "--shell", "json", env=good).stdout)
    done = pyresolve("env", "--shell", shell, env={**good, **change})
    nothing = "{}\n" if shell == "json" else ""
    assert (0, nothing, "") == (*outcome(done), done.stderr)


def test_env_without_driver_is_for_the_workers(driverless, ready):
    """UNKNOWN prints the change all the same, with status 3 and the reason on stderr."""
    done = pyresolve("env", env=driverless)
    status, shown = outcome(done)
    assert (3, f"export LD_PRELOAD={ready.hook('_cu13')}") == (status, shown.splitlines()[0])
    assert done.stderr.startswith("pyresolve: unknown: ")


# --- audit


def test_audit_command_inside_the_hook(good):
    """Where the hook is in effect: one line, status 0."""
    change = json.loads(pyresolve("env", "--shell", "json", env=good).stdout)
    done = pyresolve("audit", env={**good, **change})
    status, shown = outcome(done)
    assert (0, 1, "") == (status, shown.count("\n"), done.stderr)
    assert shown.startswith(f"OK\t{change['LD_PRELOAD']} takes effect in process ")
    assert "libcudart.so.13" in shown


def test_audit_command_prints_a_line_for_each_finding(good, ready):
    """Status and sentence, separated by a tab; status 1."""
    cudart = ready.cudart_directory(13) / "libcudart.so.13"
    env = {**good, "LD_PRELOAD": f"{cudart}:{ready.hook('_cu13')}"}
    status, shown = outcome(pyresolve("audit", env=env))
    assert (1, ["BYPASSED"]) == (status, [line.split("\t")[0] for line in shown.splitlines()])


def test_audit_command_of_another_process(good, ready):
    """--pid looks at the process and not at pyresolve."""
    change = json.loads(pyresolve("env", "--shell", "json", env=good).stdout)
    sleeper = subprocess.Popen(
        [require_tool("cat")], stdin=subprocess.PIPE, env={**good, **change}, cwd="/"
    )
    try:
        hook = os.fspath(ready.hook("_cu13"))
        assert process.poll(lambda: hook in process.maps(sleeper.pid))
        done = pyresolve("audit", "--json", "--pid", str(sleeper.pid), env=good)
        found = document(done)
        assert (0, sleeper.pid, True, hook) == (
            done.returncode,
            found["pid"],
            found["active"],
            found["owner"],
        )
    finally:
        sleeper.stdin.close()
        sleeper.wait()
    done = pyresolve("audit", "--pid", str(sleeper.pid), env=good)
    assert (1, "") == outcome(done)
    assert done.stderr.startswith(f"pyresolve: there is no process {sleeper.pid}")


HIDDEN = "may not be looked into by this user"


@pytest.mark.parametrize(
    "command", [["pick"], ["env"], ["doctor"], ["check", "libm.so.6"], ["health"]]
)
def test_places_that_cannot_be_looked_into(site, tmp_path, command):
    """Directories of another user count as absent: the answer is that without the variables."""
    if os.geteuid() == 0:
        prefix = [require_tool("setpriv"), "--bounding-set=-dac_override,-dac_read_search"]
    else:
        prefix = []
    site.tms().torch("13.0").cudart(13)
    secret = tmp_path / "secret"
    for name in ("conda/conda-meta", "cuda/lib64", "lib"):
        (secret / name).mkdir(parents=True)
    env = environment(site)
    inherited = {
        "CONDA_PREFIX": f"{secret}/conda",
        "CUDA_HOME": f"{secret}/cuda",
        "PYTHONPATH": f"{env['PYTHONPATH']}:{secret}/lib",
        "LD_LIBRARY_PATH": f"{secret}/lib",
    }
    secret.chmod(0)
    try:
        expected = run([*prefix, COMMAND, *command], env=env)
        done = run([*prefix, COMMAND, *command], env={**env, **inherited})
        details = done.stderr
        if command[0] == "health":  # its line has no room for more than the cause
            details = run([*prefix, COMMAND, "health", "--json"], env={**env, **inherited}).stdout
    finally:
        secret.chmod(0o700)
    said = done.stdout.replace(f":{secret}/lib", "")
    lines = [line for line in (said + done.stderr).splitlines() if HIDDEN not in line]
    assert expected.returncode == done.returncode
    assert (expected.stdout + expected.stderr).splitlines() == lines
    for name in inherited:
        assert f"which {name} names, {HIDDEN}" in said + details
