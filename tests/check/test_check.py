"""What check() says of every way in which a library can fail to load."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import AMPLE, HANG, MODES, REPOSITORY, elfpatch, process, rogues
from support.compile import SOURCES, built, cc_text, hollow
from support.driver import STUB_LIBRARY, full_stub as driver_stub
from support.hidden import mounted
from support.layout import Site
from support.lines import LETHAL
from support.rogues import VANISHED
from support.wheels import TMS_VERSIONS

import pyresolve
from pyresolve import _native, check
from pyresolve._check.check import rehearse
from pyresolve._check.report import with_expected
from pyresolve._model import Mode, Origin, Status, Verdict
from pyresolve._process import helper as _probe

SYSTEM_PLACES = "the loader's cache and default directories"
LOADS = {"dlopen": "{} loads", "preload": "{} is preloaded and takes effect"}
LONE_SURROGATE = chr(0xD800)  # no bytes are decoded to it

# What each rogue comes to, and what the message has to say of it.
ROGUES = {
    "abort": (Status.CRASHED, "died of SIGABRT"),
    "bind_now": (Status.UNDEFINED_SYMBOL, "uses rogue_nowhere_function"),
    "chatty": (Status.LOADABLE, ""),
    "close_fds": (Status.LOADABLE, ""),
    "daemon": (Status.LOADABLE, ""),
    "exit_three": (Status.EXITED, "ended with exit status 3"),
    "exit_zero": (Status.EXITED, "ended with exit status 0"),
    "fork_sleep": (Status.LOADABLE, ""),
    "garbage_fds": (Status.LOADABLE, ""),
    "good": (Status.LOADABLE, ""),
    "good_libm": (Status.LOADABLE, ""),
    "kill_group": (Status.CRASHED, "died of SIGKILL"),
    "kill_parent": (Status.CRASHED, "killed the process that supervises it"),
    "loop": (Status.TIMED_OUT, f"within {HANG} s"),
    "missing_needed": (Status.MISSING_DEPENDENCY, f"needs {VANISHED}"),
    "musl": (Status.NOT_LOADABLE, "musl libc"),
    "overflow_stack": (Status.CRASHED, "died of SIGSEGV"),
    "segfault": (Status.CRASHED, "died of SIGSEGV"),
    "segv_handler": (Status.LOADABLE, ""),
    "sigill": (Status.CRASHED, "died of SIGILL"),
    "sleep_ignoring_sigterm": (Status.TIMED_OUT, f"within {HANG} s"),
    "stop": (Status.TIMED_OUT, f"within {HANG} s"),
    "stop_parent": (Status.TIMED_OUT, f"within {HANG} s"),
    "terminate_parent": (Status.CRASHED, "killed the process that supervises it"),
    "thread_spin": (Status.LOADABLE, ""),
    "trace_parent": (Status.TIMED_OUT, f"within {HANG} s"),
    "undefined_data": (Status.UNDEFINED_SYMBOL, "uses rogue_nowhere_data"),
    "undefined_function": (Status.UNDEFINED_SYMBOL, "uses rogue_nowhere_function"),
    "underscore_exit_zero": (Status.EXITED, "ended with exit status 0"),
    "unmet_version": (Status.VERSION_MISMATCH, "GLIBC_9.99"),
}

both_modes = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
def build(tmp_path):
    """Return a function that compiles a C text, or nothing at all, into a library."""

    def build(name, text="", *flags):
        return cc_text(f"{rogues.INCLUDE}{text}\n", tmp_path / name, *flags)

    return build


@pytest.fixture(scope="session")
def lacking_two():
    """Return a library two of whose dependencies are nowhere; libc is not among them."""
    return built(SOURCES / "hollow.c", "two.so", hollow("libva.so.1"), hollow("libvb.so.2"), "-lm")


def fresh(cases, packages=(), prefix=()):
    """Return the reports for `cases`, keywords of check(), from a process of its own, as text."""
    code = """
        import dataclasses, enum, json, sys
        cases, packages = map(json.loads, sys.argv[1:])
        sys.path += packages
        from pyresolve import check

        def text(value):
            return value.name if isinstance(value, enum.Enum) else str(value)

        reports = [dataclasses.asdict(check(**case)) for case in cases]
        print(json.dumps(reports, default=text))
    """
    cases = [{**case, "path": os.fspath(case["path"])} for case in cases]
    packages = [os.fspath(package) for package in packages]
    return process.cold(code, json.dumps(cases), json.dumps(packages), prefix=prefix)


def mapped_by(path):
    """Return the processes that have a file mapped."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            found += [pid] if str(path) in process.maps(pid) else []
    return found


def outcome(report):
    """Return what is asserted of nearly every report."""
    return report.verdict, report.status


# --- libraries that misbehave


def test_every_rogue_is_expected():
    """The table covers the rogues, no more and no less."""
    assert tuple(sorted(ROGUES)) == rogues.NAMES


@both_modes
@pytest.mark.parametrize("name", sorted(set(ROGUES).difference(LETHAL)))
def test_rogue(rogue, clean_env, tmp_path, name, mode):
    """Whatever a library does while it is loaded, the report is exact and in time."""
    status, words = ROGUES[name]
    timeout = HANG if status is Status.TIMED_OUT else 30.0
    environ = {**clean_env, rogues.PIDFILE: str(tmp_path / "pid")}
    start = time.monotonic()
    report = check(rogue(name), mode=mode, environ=environ, timeout=timeout)
    took = time.monotonic() - start
    verdict = Verdict.OK if status is Status.LOADABLE else Verdict.FAIL
    assert (verdict, status) == outcome(report)
    assert words in report.message
    assert (rogue(name), Mode(mode)) == (report.path, report.mode)
    assert 0 < report.elapsed <= took
    if status is Status.TIMED_OUT:
        assert timeout <= took < timeout + 1


@both_modes
@pytest.mark.parametrize("name", sorted(LETHAL))
def test_rogue_that_kills(rogue, clean_env, name, mode):
    """A library that kills, stops or traces its parent does not reach the caller."""
    status, words = ROGUES[name]
    timeout = HANG if status is Status.TIMED_OUT else AMPLE
    case = {"path": rogue(name), "mode": mode, "environ": clean_env, "timeout": timeout}
    (report,) = fresh([case])
    assert (report["verdict"], report["status"]) == ("FAIL", status.name)
    assert words in report["message"]
    assert report["elapsed"] < HANG + 1


@both_modes
@pytest.mark.parametrize("name", ["daemon", "fork_sleep"])
def test_what_is_left_running_is_killed(rogue, clean_env, tmp_path, name, mode):
    """A process that the library started is dead when the report is there, daemon or not."""
    pidfile = tmp_path / "pid"
    check(rogue(name), mode=mode, environ={**clean_env, rogues.PIDFILE: str(pidfile)})
    assert not process.alive(int(pidfile.read_text()))
    assert [] == mapped_by(rogue(name))


@both_modes
@pytest.mark.parametrize("flag", ["", "-DSESSION"])
def test_what_a_hanging_library_started_is_killed(build, clean_env, tmp_path, flag, mode):
    """The same where the library never finishes loading."""
    text = """
        ON_LOAD {
            pid_t pid = fork();
            if (pid == 0) {
        #ifdef SESSION
                setsid();
        #endif
                for (;;) pause();
            }
            rogue_write_pid((int)pid);
            for (;;) pause();
        }
    """
    library = build("hang.so", text, *filter(None, [flag]))
    environ = {**clean_env, rogues.PIDFILE: str(tmp_path / "pid")}
    report = check(library, mode=mode, environ=environ, timeout=HANG)
    assert outcome(report) == (Verdict.FAIL, Status.TIMED_OUT)
    assert not process.alive(int((tmp_path / "pid").read_text()))


@both_modes
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("kill(getppid(), SIGSTOP);", Status.LOADABLE),
        ("kill(getppid(), SIGSTOP); for (;;) pause();", Status.TIMED_OUT),
        (
            "static char b[65536]; for (;;) if (write(2, b, sizeof b) < 0) continue;",
            Status.TIMED_OUT,
        ),
        ("struct itimerval t = {{0, 1}, {0, 1}}; setitimer(ITIMER_REAL, &t, 0); for (;;);", None),
        ("for (int i = 1; i < 65; i++) signal(i, SIG_IGN); for (;;) pause();", Status.TIMED_OUT),
        ("for (int i = 0; i < 200; i++) if (fork() == 0) for (;;) pause();", Status.LOADABLE),
        ("setsid(); setpgid(0, 0); signal(SIGCHLD, SIG_IGN);", Status.LOADABLE),
        ('chdir("/"); umask(0777); clearenv();', Status.LOADABLE),
        ("raise(SIGRTMIN + 3);", Status.CRASHED),
    ],
)
def test_more_mischief(build, clean_env, body, status, mode):
    """Stopping the supervisor, printing without end, a storm of signals, 200 children, no exit."""
    includes = "".join(
        f"#include <{name}.h>\n"
        for name in ("signal", "string", "sys/resource", "sys/stat", "sys/time", "sys/wait")
    )
    library = build("lib.so", f"{includes}ON_LOAD {{ {body} }}", "-w", "-D_GNU_SOURCE")
    start = time.monotonic()
    report = check(library, mode=mode, environ=clean_env, timeout=1)
    took = time.monotonic() - start
    if "SIGSTOP" in body:
        assert report.status in (Status.TIMED_OUT, status)  # whoever is first
    else:
        assert (status or Status.CRASHED) is report.status
    assert took < 2


@both_modes
def test_words_of_the_library(build, clean_env, mode):
    """What a library printed before it ended is in the message, in one line and bounded."""
    text = 'ON_LOAD { for (int i = 0; i < 99; i++) fputs("no\\n GPU\\t", stderr); exit(4); }'
    report = check(build("lib.so", text), mode=mode, environ=clean_env)
    assert report.status is Status.EXITED
    assert "exit status 4, having said: no GPU no GPU" in report.message
    assert len(report.message) < 600
    assert report.message.isprintable()


@both_modes
def test_report_as_data(rogue, clean_env, mode):
    """A report is one JSON document, with the keys that are documented."""
    report = check(rogue("missing_needed"), mode=mode, environ=clean_env)
    data = json.loads(json.dumps(report.to_dict()))
    documented = (REPOSITORY / "docs" / "json.md").read_text()
    part = documented[documented.index("**report**") : documented.index("**runtime**")]
    assert {"schema", *re.findall(r"`(\w+)`(?=[: ·\n])", part)} - {
        *("dlopen", "preload", "ok", "fail", "unknown")
    } == set(data)
    assert (1, "fail", report.message) == (data["schema"], data["verdict"], data["message"])


# --- what is missing


@both_modes
def test_all_that_is_missing(lacking_two, clean_env, mode):
    """Every missing library is listed with the file that needs it, not only the first."""
    report = check(lacking_two, mode=mode, environ=clean_env)
    assert outcome(report) == (Verdict.FAIL, Status.MISSING_DEPENDENCY)
    assert [("libva.so.1", str(lacking_two)), ("libvb.so.2", str(lacking_two))] == [
        (missing.name, missing.needed_by) for missing in report.missing
    ]
    assert "needs libva.so.1 and libvb.so.2, which the loader does not find" in report.message
    assert {(SYSTEM_PLACES,)} == {missing.searched for missing in report.missing}


@both_modes
def test_all_that_is_missing_of_a_relative_path(lacking_two, clean_env, monkeypatch, mode):
    """A path object is a file in the current directory, and explained like any other."""
    monkeypatch.chdir(lacking_two.parent)
    report = check(Path("two.so"), mode=mode, environ=clean_env)
    assert report.status is Status.MISSING_DEPENDENCY
    assert [missing.name for missing in report.missing] == ["libva.so.1", "libvb.so.2"]


@both_modes
def test_missing_further_down(build, clean_env, tmp_path, mode):
    """A library that is missing behind another one is ascribed to that other one."""
    middle = build("libmiddle.so.1", "", hollow(VANISHED), "-Wl,-soname,libmiddle.so.1")
    top = build("top.so", "", middle, f"-Wl,-rpath,{tmp_path}", "-Wl,--enable-new-dtags")
    report = check(top, mode=mode, environ=clean_env)
    assert report.status is Status.MISSING_DEPENDENCY
    assert [(VANISHED, str(middle))] == [(m.name, m.needed_by) for m in report.missing]
    assert f"{VANISHED} (for {middle})" in report.message


@both_modes
def test_searched_places(build, clean_env, tmp_path, mode):
    """The places that were searched are those of the file that needs it, in the loader's order."""
    flags = ["-Wl,--enable-new-dtags", f"-Wl,-rpath,$ORIGIN/a:{tmp_path}/b"]
    library = build("lib.so", "", hollow(VANISHED), *flags)
    environ = {**clean_env, "LD_LIBRARY_PATH": f"{tmp_path}/c:{tmp_path}/d"}
    report = check(library, mode=mode, environ=environ)
    # RUNPATH comes behind LD_LIBRARY_PATH; RPATH would come before it.
    expected = [f"{tmp_path}/{name}" for name in "cdab"] + [SYSTEM_PLACES]
    assert expected == list(report.missing[0].searched)


@both_modes
def test_many_undefined_symbols(build, clean_env, mode):
    """More undefined symbols than the report holds are still undefined symbols."""
    names = [f"a_function_with_a_name_as_long_as_they_are_{number:05}" for number in range(5000)]
    declared = "".join(f"void {name}(void);\n" for name in names)
    called = "".join(f"{name}();\n" for name in names)
    report = check(
        build("many.so", f"{declared}void call(void) {{ {called} }}"), mode=mode, environ=clean_env
    )
    assert outcome(report) == (Verdict.FAIL, Status.UNDEFINED_SYMBOL)
    assert len(report.undefined) > 1000
    assert set(report.undefined) <= set(names)
    assert len(report.message) < 1000


@both_modes
@pytest.mark.parametrize(
    ("name", "undefined"),
    [
        ("bind_now", ("rogue_nowhere_function",)),
        ("undefined_data", ("rogue_nowhere_data",)),
        ("undefined_function", ("rogue_nowhere_function",)),
    ],
)
def test_undefined(rogue, clean_env, name, undefined, mode):
    """An undefined symbol is named, whether or not lazy binding would put it off."""
    assert undefined == check(rogue(name), mode=mode, environ=clean_env).undefined


@both_modes
def test_unmet_version(rogue, clean_env, mode):
    """The version that is wanted, who wants it, and the newest that is there."""
    libc = next(path for path in process.maps() if "/libc.so.6" in path)
    newest = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
    message = check(rogue("unmet_version"), mode=mode, environ=clean_env).message
    assert re.search(rf"^{rogue('unmet_version')} needs GLIBC_9.99 of \S*/libc.so.6, ", message)
    assert f"(its newest is GLIBC_{newest})" in message
    assert libc.endswith("libc.so.6")


# --- the real hooks on the real runtimes

HOOKS = [
    (version, suffix, major)
    for version in TMS_VERSIONS
    for suffix, major in [("", 12), *([("_cu12", 12), ("_cu13", 13)] if version != "0.0.9" else [])]
]
DRIVERS = ("none", "full", "toolkit stub")
RUNTIMES = ("absent", "out of reach", "reachable")
SUPPLIERS = {
    12: "pip install nvidia-cuda-runtime-cu12",
    13: "pip install 'nvidia-cuda-runtime==13.*'",
}
RUNTIME_VERSIONS = {12: 12080, 13: 13000}


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """Return a site for each version of the hooks, and one with both CUDA runtimes."""
    root = tmp_path_factory.mktemp("wheels")
    sites = {version: Site(root / version).tms(version) for version in TMS_VERSIONS}
    sites["cudart"] = Site(root / "cudart")
    for major in RUNTIME_VERSIONS:
        sites["cudart"].cudart(major)
    return sites


@pytest.fixture(scope="session")
def drivers():
    """Return a directory for each kind of driver; None where there is none."""
    stub = driver_stub(result=STUB_LIBRARY)
    return {"none": None, "full": driver_stub(), "toolkit stub": stub}


def library_path(*directories):
    """Return an environment in which these directories are searched."""
    kept = [str(directory) for directory in directories if directory]
    return {"LD_LIBRARY_PATH": ":".join(kept)} if kept else {}


@pytest.fixture(scope="session")
def real_reports(wheels, drivers, hidden_toolkit, no_driver):
    """Return the report for every combination, each half from one fresh process."""
    reports = {}
    for installed in (False, True):
        keys, cases = [], []
        for version, suffix, major in HOOKS:
            for runtime in RUNTIMES:
                if (runtime != "absent") != installed:
                    continue
                reach = wheels["cudart"].cudart_directory(major) if runtime == "reachable" else None
                for driver in DRIVERS:
                    for mode in MODES:
                        environ = library_path(reach, drivers[driver])
                        path = wheels[version].hook(suffix)
                        keys.append((version, suffix, runtime, driver, mode))
                        cases.append({"path": path, "mode": mode, "environ": environ})
        packages = [wheels["cudart"]] if installed else []
        reports.update(zip(keys, fresh(cases, packages, hidden_toolkit), strict=True))
    return reports


@both_modes
@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(("version", "suffix", "major"), HOOKS)
def test_hook_with_its_runtime(real_reports, wheels, drivers, version, suffix, major, driver, mode):
    """With its runtime in reach a hook is OK, and UNKNOWN where only the driver is missing."""
    report = real_reports[version, suffix, "reachable", driver, mode]
    hook = wheels[version].hook(suffix)
    if driver == "full":
        expected = "OK", "LOADABLE", LOADS[mode].format(hook)
    else:
        why = "the loader does not find: check on a GPU node for a verdict"
        if driver == "toolkit stub":
            stub = drivers[driver] / "libcuda.so.1"
            why = (
                f"is not what is found first: {stub} is the toolkit's stub, not a driver: take its"
                " directory out of LD_LIBRARY_PATH"
            )
        message = (
            f"all that {hook} needs resolves but the NVIDIA driver (libcuda.so.1), which {why}"
        )
        expected = "UNKNOWN", "NO_DRIVER", message
    assert expected == (report["verdict"], report["status"], report["message"])
    assert (None, [], []) == (report["remedy"], report["missing"], report["undefined"])
    cudart = wheels["cudart"].cudart_directory(major) / f"libcudart.so.{major}"
    assert report["runtime"] == {
        "path": str(cudart),
        "major": major,
        "version": RUNTIME_VERSIONS[major],
        "origin": "LOADER",
        "distribution": None,
        "problem": None,
    }
    assert {str(hook), str(cudart)} <= set(report["loaded"])
    assert not [path for path in report["loaded"] if "stub-driver" in path or "/proc/" in path]
    library = drivers[driver] and str(drivers[driver] / "libcuda.so.1")
    assert (library, 13000 if driver == "full" else None, driver == "full") == (
        report["driver"]["path"],
        report["driver"]["version"],
        report["driver"]["problem"] is None,
    )


@both_modes
@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("runtime", ["absent", "out of reach"])
@pytest.mark.parametrize(("version", "suffix", "major"), HOOKS)
def test_hook_without_its_runtime(
    real_reports, wheels, drivers, version, suffix, major, runtime, driver, mode
):
    """Without its runtime a hook FAILs, and the report says where one lies or who brings one."""
    report = real_reports[version, suffix, runtime, driver, mode]
    hook, soname = wheels[version].hook(suffix), f"libcudart.so.{major}"
    directory = wheels["cudart"].cudart_directory(major)
    copy = str(directory / soname)
    searched = [str(drivers[driver])] if drivers[driver] else []
    missing = {
        "name": soname,
        "needed_by": str(hook),
        "searched": [*searched, SYSTEM_PLACES],
        "elsewhere": [copy] if runtime == "out of reach" else [],
        "unusable": [],
        "supplier": SUPPLIERS[major],
    }
    also = {"name": "libcuda.so.1", "elsewhere": [], "supplier": None}
    wanted = [{**missing, **also}, missing] if driver == "none" else [missing]
    assert ("FAIL", "MISSING_DEPENDENCY") == (report["verdict"], report["status"])
    assert wanted == report["missing"]
    if runtime == "out of reach":
        assert report["remedy"] == (
            f"export LD_LIBRARY_PATH={directory}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
        )
        assert report["message"] == (
            f"{hook} needs {soname}, which the loader does not find; {copy} lies out of its reach:"
            f" put {directory} into LD_LIBRARY_PATH"
        )
    else:
        assert SUPPLIERS[major] == report["remedy"]
        assert report["message"] == (
            f"{hook} needs {soname}, which the loader does not find; no sound copy was found:"
            f" {SUPPLIERS[major]}"
        )


def test_remedy_is_a_command(real_reports, wheels, drivers, clean_env, hidden_toolkit):
    """What `remedy` says, run by a shell, mends it."""
    report = real_reports["0.0.10", "_cu13", "out of reach", "full", "preload"]
    environ = {**clean_env, **library_path(drivers["full"])}
    shell = ["sh", "-c", f'{report["remedy"]}; printf %s "$LD_LIBRARY_PATH"']
    done = subprocess.run(shell, env=environ, capture_output=True, text=True, check=True)
    case = {"path": report["path"], "environ": {"LD_LIBRARY_PATH": done.stdout}}
    (mended,) = fresh([{**case, "mode": "preload"}], prefix=hidden_toolkit)
    assert (mended["verdict"], mended["status"]) == ("OK", "LOADABLE")


@both_modes
def test_remedy_with_odd_directory(clean_env, hidden_toolkit, tmp_path, mode):
    """A remedy is quoted for the shell."""
    site = Site(tmp_path / "it's $HOME")
    hook, directory = site.fake_hook(14), site.fake_cudart(14)
    case = {"path": hook, "mode": mode, "environ": library_path(driver_stub())}
    (report,) = fresh([case], [site], hidden_toolkit)
    if mode == "preload":  # a space in the path: its directory is what LD_LIBRARY_PATH begins with
        assert report["status"] == "MISSING_DEPENDENCY"
    words = shlex.split(report["remedy"])
    assert words[0] == "export"
    assert words[1].startswith(f"LD_LIBRARY_PATH={directory}$")


@both_modes
def test_made_up_major(site, clean_env, mode):
    """A CUDA that does not exist yet is like the others."""
    hook, directory = site.fake_hook(14), site.fake_cudart(14, 2)
    environ = {**clean_env, **library_path(directory, driver_stub())}
    report = check(hook, mode=mode, environ=environ)
    assert outcome(report) == (Verdict.OK, Status.LOADABLE)
    runtime = report.runtime
    assert (14, 14020, Origin.LOADER) == (runtime.major, runtime.version, runtime.origin)
    report = check(hook, mode=mode, environ={**clean_env, **library_path(driver_stub())})
    assert outcome(report) == (Verdict.FAIL, Status.MISSING_DEPENDENCY)
    assert report.remedy == "pip install 'nvidia-cuda-runtime==14.*'"


@both_modes
@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(
    ("damage", "status", "verdicts"),
    [
        ("empty", Status.TRUNCATED, None),
        ("cut", Status.TRUNCATED, None),
        ("text", Status.NOT_ELF, None),
        ("foreign", None, ("UNKNOWN", "OK", "UNKNOWN")),
    ],
)
def test_damaged_runtime_before_a_good_one(
    wheels, drivers, hidden_toolkit, no_driver, tmp_path, damage, status, verdicts, driver, mode
):
    """The loader stops at a damaged file; it passes by one for another machine."""
    directory = wheels["cudart"].cudart_directory(12)
    good, bad = directory / "libcudart.so.12", tmp_path / "libcudart.so.12"
    match damage:
        case "empty":
            bad.touch()
        case "cut":
            elfpatch.cut(good, bad, 4000)
        case "text":
            elfpatch.lfs_pointer(bad)
        case "foreign":
            elfpatch.patch(good, bad, {elfpatch.MACHINE: elfpatch.FOREIGN_MACHINE})
    environ = library_path(tmp_path, directory, drivers[driver])
    case = {"path": wheels["0.0.10"].hook("_cu12"), "mode": mode, "environ": environ}
    (report,) = fresh([case], prefix=hidden_toolkit)
    if verdicts:
        assert verdicts[DRIVERS.index(driver)] == report["verdict"]
        assert str(good) == report["runtime"]["path"]
    else:
        assert ("FAIL", status.name) == (report["verdict"], report["status"])
        assert f"{case['path']} needs a file that is unusable: {bad} " in report["message"]


@both_modes
def test_unusable_copy(wheels, drivers, hidden_toolkit, tmp_path, mode):
    """A runtime for another machine, and no other, is missing; the report says what is wrong."""
    good = wheels["cudart"].cudart_directory(12) / "libcudart.so.12"
    bad = elfpatch.patch(good, tmp_path / good.name, {elfpatch.MACHINE: elfpatch.FOREIGN_MACHINE})
    environ = library_path(tmp_path, drivers["full"])
    case = {"path": wheels["0.0.10"].hook("_cu12"), "mode": mode, "environ": environ}
    (report,) = fresh([case], prefix=hidden_toolkit)
    assert (report["verdict"], report["status"]) == ("FAIL", "MISSING_DEPENDENCY")
    (missing,) = report["missing"]
    assert (missing["name"], missing["elsewhere"]) == ("libcudart.so.12", [])
    assert missing["unusable"][0].startswith(f"{bad} is built for ")
    assert missing["unusable"][0] in report["message"]
    assert report["remedy"] == SUPPLIERS[12]


@both_modes
def test_cut_hook(wheels, clean_env, tmp_path, mode):
    """A hook cut after 4,000 bytes kills a process that opens it; check() says TRUNCATED."""
    hook = elfpatch.cut(wheels["0.0.10"].hook("_cu12"), tmp_path / "hook.so", 4000)
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, hook], stderr=subprocess.DEVNULL, check=False
    )
    assert done.returncode == -signal.SIGBUS
    report = check(hook, mode=mode, environ=clean_env)
    assert outcome(report) == (Verdict.FAIL, Status.TRUNCATED)
    assert report.message.startswith(f"{hook} has 4000 bytes but its headers describe ")


@both_modes
def test_older_runtime(wheels, drivers, tmp_path, mode):
    """A runtime of the right name that lacks a symbol version is a mismatch, not a missing file."""
    hook = elfpatch.bump_version(
        wheels["0.0.10"].hook("_cu12"), tmp_path / "hook.so", "libcudart.so.12", "libcudart.so.19"
    )
    # The name of the library is the same string in this file: it, too, is another one now.
    directory = tmp_path / "lib"
    directory.mkdir()
    cudart = wheels["cudart"].cudart_directory(12) / "libcudart.so.12"
    (directory / "libcudart.so.19").symlink_to(cudart)
    report = check(hook, mode=mode, environ=library_path(directory, drivers["full"]))
    assert outcome(report) == (Verdict.FAIL, Status.VERSION_MISMATCH)
    assert "needs libcudart.so.19 of " in report.message


# --- preloading


@pytest.mark.parametrize("driver", ["none", "full"])
def test_bypassed(site, clean_env, drivers, no_driver, driver):
    """Behind a libcudart the hook is mapped but without effect; before it, all is well."""
    hook, directory = site.fake_hook(14), site.fake_cudart(14)
    cudart = directory / "libcudart.so.14"
    environ = {**clean_env, **library_path(drivers[driver])}
    report = check(hook, mode="preload", environ={**environ, "LD_PRELOAD": f"{cudart}:{hook}"})
    assert outcome(report) == (Verdict.FAIL, Status.BYPASSED)
    assert report.message == (
        f"{hook} is mapped but without effect: cudaMalloc comes from {cudart}, which stands before"
        " it; put the hook first in LD_PRELOAD"
    )
    report = check(hook, mode="preload", environ={**environ, "LD_PRELOAD": f"{hook}:{cudart}"})
    expected = {
        "none": (Verdict.UNKNOWN, Status.NO_DRIVER),
        "full": (Verdict.OK, Status.LOADABLE),
    }
    assert expected[driver] == outcome(report)


def test_hook_goes_first(site, clean_env, drivers):
    """A hook that LD_PRELOAD does not name yet is put before what is there."""
    hook, directory = site.fake_hook(14), site.fake_cudart(14)
    environ = {**clean_env, **library_path(drivers["full"])}
    environ["LD_PRELOAD"] = str(directory / "libcudart.so.14")
    assert check(hook, mode="preload", environ=environ).status is Status.LOADABLE


def test_wrong_runtime(site, clean_env, drivers, tmp_path):
    """A rehearsal that maps another libcudart than torch's says which, and how to pin torch's."""
    hook, mapped = site.fake_hook(14), site.fake_cudart(14) / "libcudart.so.14"
    torchs = Path(shutil.copy(mapped, tmp_path))
    environ = {**clean_env, **library_path(mapped.parent, drivers["full"]), "LD_PRELOAD": str(hook)}
    for expected, status in [(torchs, Status.WRONG_RUNTIME), (mapped, Status.LOADABLE)]:
        change = {"LD_PRELOAD": str(hook)}
        deadline = _probe.Deadline(10)
        report = rehearse(str(hook), change=change, environ=environ, deadline=deadline)
        report = with_expected(report, expected)
        assert status is report.status
        if status is Status.WRONG_RUNTIME:
            assert f"{mapped} is mapped, where torch uses {torchs}: pin " in report.message


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("libnothing.so.9", "cannot open shared object file"),
        (shutil.which("true"), "cannot dynamically load position-independent executable"),
    ],
)
def test_ignored(clean_env, path, reason):
    """What the loader skips is named with the loader's reason; a status of 0 is no success."""
    report = check(path, mode="preload", environ=clean_env)
    assert outcome(report) == (Verdict.FAIL, Status.IGNORED)
    assert report.message.startswith(f"the loader skipped {path} ({reason})")


@pytest.mark.parametrize(
    ("others", "status"),
    [
        (["good_libm"], Status.LOADABLE),
        (["/nowhere/lib.so"], Status.LOADABLE),
        (["libnothing.so.9", "good_libm"], Status.LOADABLE),
        (["two"], Status.BROKEN_ENVIRONMENT),
        (["good_libm", "two"], Status.BROKEN_ENVIRONMENT),
        (["segfault"], Status.BROKEN_ENVIRONMENT),
        (["exit_zero"], Status.BROKEN_ENVIRONMENT),
        (["unmet_version"], Status.BROKEN_ENVIRONMENT),
    ],
)
@pytest.mark.parametrize("name", ["good", "missing_needed"])
def test_other_preloads(rogue, lacking_two, clean_env, others, status, name):
    """What stands beside the hook in LD_PRELOAD is told from the hook."""
    built = {"two": lacking_two, **{other: rogue(other) for other in others if other in ROGUES}}
    paths = [str(built.get(other, other)) for other in others]
    environ = {**clean_env, "LD_PRELOAD": ":".join(paths)}
    report = check(rogue(name), mode="preload", environ=environ)
    if status is Status.LOADABLE:
        status = ROGUES[name][0]
    assert status is report.status
    if status is Status.BROKEN_ENVIRONMENT:
        assert f"no program starts in this environment, whatever {rogue(name)}" in report.message
        assert "LD_PRELOAD" in report.message


def test_broken_environment_names_the_culprit(rogue, clean_env):
    """The loader's own words about what is missing are in the message."""
    environ = {**clean_env, "LD_PRELOAD": str(rogue("missing_needed"))}
    report = check(rogue("good"), mode="preload", environ=environ)
    assert "exit status 127" in report.message
    assert f"{VANISHED}: cannot open shared object file" in report.message


@both_modes
@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"text"])
def test_broken_libc(rogue, clean_env, tmp_path, content, mode):
    """With a broken libc.so.6 in front of the real one no program starts, whatever the target."""
    (tmp_path / "libc.so.6").write_bytes(content)
    environ = {**clean_env, "LD_LIBRARY_PATH": str(tmp_path)}
    report = check(rogue("good"), mode=mode, environ=environ)
    assert outcome(report) == (Verdict.FAIL, Status.BROKEN_ENVIRONMENT)
    assert "exit status 127" in report.message
    assert f"{tmp_path}/libc.so.6" in report.message
    assert "LD_LIBRARY_PATH" in report.message


def test_preload_of_the_caller_in_dlopen_mode(rogue, clean_env):
    """A library that is opened is not tried with the preloads of the environment."""
    environ = {**clean_env, "LD_PRELOAD": str(rogue("segfault"))}
    assert check(rogue("good"), environ=environ).status is Status.LOADABLE


@both_modes
@pytest.mark.parametrize(
    "directory", ["with space", "with;semicolon", "ünï ☃", "\udcff\udcfe", "a" * 200]
)
def test_directory(rogue, clean_env, tmp_path, directory, mode):
    """A directory may have an odd name where there is a way to write it down."""
    path = tmp_path / directory / "lib.so"
    path.parent.mkdir()
    shutil.copy(rogue("good"), path)
    assert outcome(check(path, mode=mode, environ=clean_env)) == (Verdict.OK, Status.LOADABLE)


@pytest.mark.parametrize("directory", ["with:colon", "$ORIGIN", "$LIB", "both of: them"])
def test_unrepresentable(rogue, clean_env, tmp_path, directory):
    """A path that LD_PRELOAD cannot hold is refused, never escaped; dlopen takes it."""
    path = tmp_path / directory / "lib.so"
    path.parent.mkdir()
    shutil.copy(rogue("good"), path)
    with pytest.raises(pyresolve.UnrepresentablePathError) as caught:
        check(path, mode="preload", environ=clean_env)
    assert str(path) == caught.value.path
    assert caught.value.variable in ("LD_PRELOAD", "LD_LIBRARY_PATH")
    assert repr(str(path)) in str(caught.value)
    if "$" not in directory:  # dlopen, too, expands $ORIGIN
        assert check(path, environ=clean_env).status is Status.LOADABLE


@pytest.mark.parametrize("name", ["a:b.so", "a b.so"])
def test_unrepresentable_name(clean_env, name):
    """The same for a name without a slash."""
    with pytest.raises(pyresolve.UnrepresentablePathError):
        check(name, mode="preload", environ=clean_env)


# --- names and paths


@both_modes
def test_bare_name(clean_env, mode):
    """A name without a slash is searched as the loader searches it."""
    report = check("libresolv.so.2", mode=mode, environ=clean_env)
    assert (Verdict.OK, Status.LOADABLE) == outcome(report)
    assert LOADS[mode].format("libresolv.so.2") == report.message
    assert "libresolv.so.2" in [path.name for path in report.loaded]


@both_modes
def test_bare_name_in_library_path(rogue, clean_env, tmp_path, mode):
    """LD_LIBRARY_PATH of the given environment counts, not the caller's."""
    shutil.copy(rogue("good"), tmp_path / "libgood.so.7")
    environ = {**clean_env, "LD_LIBRARY_PATH": str(tmp_path)}
    report = check("libgood.so.7", mode=mode, environ=environ)
    assert Status.LOADABLE is report.status
    assert tmp_path / "libgood.so.7" in report.loaded


def test_bare_name_that_is_nowhere(clean_env, rogue, monkeypatch):
    """A bare name that is not found says so, and how to name a file that lies here."""
    report = check("libnothing.so.9", environ=clean_env)
    assert outcome(report) == (Verdict.FAIL, Status.NOT_FOUND)
    assert report.message == (
        "the loader finds no libnothing.so.9 in LD_LIBRARY_PATH, its cache and its default"
        " directories"
    )
    monkeypatch.chdir(rogue("good").parent)
    report = check("good.so", environ=clean_env)
    assert report.status is Status.NOT_FOUND
    assert report.message.endswith("; for the file of that name here write ./good.so")


@both_modes
@pytest.mark.parametrize("spelling", ["./{}", "../{1}/{0}", "{2}/{0}", "{2}//./{0}"])
def test_spelling(rogue, clean_env, monkeypatch, spelling, mode):
    """A path may be relative, and need not be tidy."""
    library = rogue("good")
    monkeypatch.chdir(library.parent)
    path = spelling.format(library.name, library.parent.name, library.parent)
    assert check(path, mode=mode, environ=clean_env).status is Status.LOADABLE


@both_modes
def test_path_object_is_a_file(rogue, clean_env, monkeypatch, mode):
    """A path object without a slash means a file, never a search."""
    monkeypatch.chdir(rogue("good").parent)
    assert check(Path("good.so"), mode=mode, environ=clean_env).status is Status.LOADABLE
    assert check(Path("libm.so.6"), mode=mode, environ=clean_env).status is Status.NOT_FOUND


@both_modes
def test_link(rogue, clean_env, tmp_path, mode):
    """A link is followed and keeps its name; one that dangles is told."""
    (tmp_path / "link.so").symlink_to(rogue("good"))
    (tmp_path / "dangling.so").symlink_to(tmp_path / "gone.so")
    report = check(tmp_path / "link.so", mode=mode, environ=clean_env)
    assert (Status.LOADABLE, tmp_path / "link.so") == (report.status, report.path)
    report = check(tmp_path / "dangling.so", mode=mode, environ=clean_env)
    assert report.status is Status.NOT_FOUND
    assert f"is a dangling link to {tmp_path}/gone.so" in report.message


@both_modes
def test_empty_path(clean_env, mode):
    """An empty text is no name, but the value of a variable that is not set."""
    with pytest.raises(ValueError, match="path is empty: name a library"):
        check("", mode=mode, environ=clean_env)


@both_modes
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nowhere/lib.so", Status.NOT_FOUND),
        ("/etc/passwd/lib.so", Status.NOT_FOUND),
        ("/", Status.NOT_ELF),
        ("/etc/passwd", Status.NOT_ELF),
        ("/dev/null", Status.NOT_ELF),
        ("/lib\0.so", Status.NOT_FOUND),
        ("lib\0.so", Status.NOT_FOUND),
        ("/" + "n" * 5000, Status.NOT_FOUND),
        ("n" * 5000, Status.NOT_FOUND),
        ("/nowhere/\udcff.so", Status.NOT_FOUND),
        ("\udcff.so", Status.NOT_FOUND),
        (f"/nowhere/{LONE_SURROGATE}.so", Status.NOT_FOUND),
        (f"{LONE_SURROGATE}.so", Status.NOT_FOUND),
        (Path(), Status.NOT_ELF),
        ("/\x1b[2J\n.so", Status.NOT_FOUND),
    ],
)
def test_bad_path(clean_env, path, status, mode):
    """A path that leads to no library is an ordinary report, in one line."""
    report = check(path, mode=mode, environ=clean_env)
    assert Verdict.FAIL is report.verdict
    # A preload that is only a name goes to the loader, which skips it.
    searched = mode == "preload" and isinstance(path, str) and "/" not in path
    assert report.status in ({status, Status.IGNORED} if searched else {status})
    assert report.message
    assert "\n" not in report.message


@both_modes
def test_file_that_is_unreadable(rogue, clean_env, tmp_path, mode):
    """A file without permission is told from one that is not there."""
    if os.geteuid() != 0:
        path = Path(shutil.copy(rogue("good"), tmp_path))
        path.chmod(0)
        assert check(path, mode=mode, environ=clean_env).status is Status.PERMISSION
        return
    # pytest's directories are root's own: nobody may not look into them.
    code = """
        import json, os, sys
        from pyresolve import check
        check("libm.so.6", environ={})
        os.setresuid(65534, 65534, 65534)
        print(json.dumps(check(sys.argv[1], mode=sys.argv[2], environ={}).status.name))
    """
    assert process.cold(code, shutil.copy(rogue("good"), tmp_path), mode) == "PERMISSION"


@both_modes
def test_noexec(rogue, tmp_path, mode):
    """A file on a noexec mount cannot be mapped."""
    path = shutil.copy(rogue("good"), tmp_path)
    prefix = mounted(noexec=[tmp_path])
    (report,) = fresh([{"path": path, "mode": mode, "environ": {}}], prefix=prefix)
    assert (report["verdict"], report["status"]) == ("FAIL", "NOEXEC")


@both_modes
@pytest.mark.parametrize("offset", [elfpatch.CLASS, elfpatch.DATA, elfpatch.MACHINE])
def test_another_machine(rogue, clean_env, tmp_path, offset, mode):
    """A library for another class, byte order or machine is named for what it is."""
    value = {
        elfpatch.CLASS: elfpatch.CLASS_32,
        elfpatch.DATA: elfpatch.BIG_ENDIAN,
        elfpatch.MACHINE: elfpatch.FOREIGN_MACHINE,
    }[offset]
    path = elfpatch.patch(rogue("good"), tmp_path / "lib.so", {offset: value})
    report = check(path, mode=mode, environ=clean_env)
    assert outcome(report) == (Verdict.FAIL, Status.WRONG_ARCH)


# --- arguments


@pytest.mark.parametrize("path", [b"libm.so.6", 7, None, object()])
def test_path_of_a_wrong_type(path):
    """What is no path is misuse."""
    with pytest.raises(TypeError):
        check(path)


@pytest.mark.parametrize("mode", ["x", "", None, 3, "DLOPEN"])
def test_bad_mode(mode):
    """A mode that is not known is misuse, and the message lists the known ones."""
    with pytest.raises(ValueError, match=f"mode is {mode!r}: give 'dlopen' or 'preload'"):
        check("libm.so.6", mode=mode)


FORGER = r"""
#include <stdint.h>
#include <string.h>

struct head { uint32_t magic; uint16_t version, kind; uint64_t nonce; uint32_t target, length;
              int64_t a, b; };

ON_LOAD {
    struct head forged[] = {{0x50595231, 2, 5}, {0x50595231, 2, 14}};
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    while (maps && fgets(line, sizeof line, maps)) {
        uintptr_t begin, end;
        char mode[5];
        if (sscanf(line, "%lx-%lx %4s", &begin, &end, mode) == 3 && !strcmp(mode, "rw-s")) {
            *(uint32_t *)begin = sizeof forged;
            memcpy((char *)begin + 8, forged, sizeof forged);
        }
    }
    _exit(0);
}
"""


def test_forged_frames(build, clean_env):
    """A library that writes the frames of its trial itself is refused like any other that fails."""
    report = check(build("forger", FORGER), environ=clean_env)
    assert outcome(report) == (Verdict.FAIL, Status.NOT_LOADABLE)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 1e300, "x"])
def test_bad_timeout(timeout):
    """A timeout that is no positive number of seconds is misuse."""
    with pytest.raises(ValueError):
        check("libm.so.6", timeout=timeout)


@both_modes
@pytest.mark.parametrize("timeout", [1e-9, 1e-6])
def test_tiny_timeout(rogue, clean_env, timeout, mode):
    """A timeout too short for anything is reported, not raised."""
    report = check(rogue("good_libm"), mode=mode, environ=clean_env, timeout=timeout)
    assert outcome(report) == (Verdict.FAIL, Status.TIMED_OUT)


@pytest.mark.parametrize("value", ["0", "-3", "soon", "nan", "inf", "1e400"])
def test_bad_timeout_override(rogue, clean_env, value):
    """A PYRESOLVE_TIMEOUT that means nothing is refused, with the variable and its value."""
    with pytest.raises(pyresolve.OverrideError) as caught:
        check(rogue("good"), environ={**clean_env, "PYRESOLVE_TIMEOUT": value})
    assert ("PYRESOLVE_TIMEOUT", value) == (caught.value.variable, caught.value.value)
    assert "PYRESOLVE_TIMEOUT" in str(caught.value)


@both_modes
def test_timeout_override(rogue, clean_env, mode):
    """PYRESOLVE_TIMEOUT wins over the argument; an empty one is none."""
    environ = {**clean_env, "PYRESOLVE_TIMEOUT": str(HANG)}
    report = check(rogue("stop"), mode=mode, environ=environ, timeout=60)
    assert report.status is Status.TIMED_OUT
    assert report.elapsed < HANG + 1
    environ["PYRESOLVE_TIMEOUT"] = ""
    assert check(rogue("good"), mode=mode, environ=environ).status is Status.LOADABLE


@both_modes
def test_default_environment(rogue, monkeypatch, tmp_path, mode):
    """Without `environ` it is os.environ, as it is now; nothing in it is changed."""
    shutil.copy(rogue("good"), tmp_path / "libgood.so.8")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    before = dict(os.environ)
    assert check("libgood.so.8", mode=mode).status is Status.LOADABLE
    assert before == dict(os.environ)


@both_modes
def test_environment_is_not_changed(rogue, clean_env, mode):
    """The mapping that was given stays as it is."""
    before = dict(clean_env)
    check(rogue("good"), mode=mode, environ=clean_env)
    assert before == clean_env


@both_modes
def test_environment_arrives(build, mode):
    """The library sees the given environment, whole and no more."""
    text = """
        extern char **environ;
        ON_LOAD {
            for (char **at = environ; *at; at++)
                fprintf(stderr, "<%s>", *at);
            exit(1);
        }
    """
    environ = {"A": "", "B": "x=y z", "C": "\udcff"}
    message = check(build("lib.so", text), mode=mode, environ=environ).message
    seen = {item for item in re.findall("<(.*?)>", message) if not item.startswith("LD_PRELOAD=")}
    shown = {f"{name}={value}".replace("\udcff", "\\udcff") for name, value in environ.items()}
    assert shown == seen


@both_modes
@pytest.mark.parametrize(
    "environ", [{"A\0B": "x"}, {"A": "x\0y"}, {"": "x"}, {"=A": "x"}, {"A=B": "x"}]
)
def test_impossible_environment(rogue, environ, mode):
    """A variable that no process can have is misuse, not silently another one."""
    with pytest.raises(ValueError):
        check(rogue("good"), mode=mode, environ=environ)


@both_modes
@pytest.mark.parametrize(
    "environ", [{"A": "x" * 200_000}, {f"A{i}": "x" * 100_000 for i in range(100)}]
)
def test_huge_environment(rogue, environ, mode):
    """An environment that the kernel refuses is our failure to answer, with its own words."""
    with pytest.raises(pyresolve.ProbeError, match="environment is larger than the kernel takes"):
        check(rogue("good"), mode=mode, environ=environ)


@both_modes
def test_large_environment(rogue, clean_env, mode):
    """One just below the kernel's limit goes through."""
    environ = {**clean_env, **{f"A{i}": "x" * 100_000 for i in range(10)}}
    assert check(rogue("good"), mode=mode, environ=environ).status is Status.LOADABLE


# --- messages


def test_messages(rogue, clean_env, tmp_path, lacking_two):
    """Each names the file, is one line of plain words without a full stop, and says what to do."""
    (tmp_path / "text.so").write_text("text")
    (tmp_path / "empty.so").touch()
    names = sorted(set(ROGUES).difference(LETHAL))
    paths = [*map(rogue, names), tmp_path, tmp_path / "text.so", tmp_path / "empty.so", lacking_two]
    for path in paths:
        for mode in MODES:
            report = check(path, mode=mode, environ=clean_env, timeout=HANG)
            assert str(path) in report.message
            assert report.message.isprintable()
            assert not report.message.endswith((".", " ", ":"))
            assert "Traceback" not in report.message
            if report.verdict is not Verdict.OK and path is not tmp_path:
                assert re.search("[:;,] [a-z./]", report.message), report.message


def test_report_is_frozen(rogue, clean_env):
    """A report is a value: equal to itself, hashable, immutable."""
    report = check(rogue("good"), environ=clean_env)
    assert report == dataclasses.replace(report)
    assert hash(report) == hash(dataclasses.replace(report))
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.status = Status.NOT_ELF


# --- our own failures


@pytest.fixture
def installation(tmp_path):
    """Return a copy of the installed package, to be damaged."""
    tree = tmp_path / "copy" / "pyresolve"
    for module in (pyresolve, _native):
        shutil.copytree(Path(module.__file__).parent, tree, dirs_exist_ok=True)
    return tree


def checked_by(tree, path, mode):
    """Return the class and the text of the error that check() of this copy raises."""
    code = """
        import json, sys
        sys.path.insert(0, sys.argv[1])
        # An editable install looks things up by itself, before the path.
        sys.meta_path[:] = [finder for finder in sys.meta_path if isinstance(finder, type)]
        import pyresolve, pyresolve._native
        for module in (pyresolve, pyresolve._native):
            assert module.__file__.startswith(sys.argv[1]), module.__file__
        try:
            report = pyresolve.check(sys.argv[2], mode=sys.argv[3], environ={})
            print(json.dumps([report.status.name, report.message]))
        except pyresolve.PyresolveError as error:
            print(json.dumps([type(error).__name__, str(error)]))
    """
    return process.cold(code, tree.parent, path, mode)


@both_modes
def test_copied_installation(rogue, installation, mode):
    """The package works from wherever it lies."""
    assert checked_by(installation, rogue("good"), mode)[0] == "LOADABLE"


def damage(helper, how):
    """Do to the helper what its name says."""
    match how:
        case "not executable":
            helper.chmod(0o644)
        case "missing":
            helper.unlink()
        case "empty":
            helper.write_bytes(b"")
        case "foreign":
            elfpatch.patch(helper, helper, {elfpatch.MACHINE: elfpatch.FOREIGN_MACHINE})
        case "truncated":
            elfpatch.cut(helper, helper, 100)
        case "a script that fails":
            helper.write_text("#!/bin/sh\necho sorry >&2\nexit 3\n")
        case "a script that succeeds":
            helper.write_text("#!/bin/sh\nexit 0\n")
        case "a script that prints":
            helper.write_text("#!/bin/sh\nexec 1>&3\nyes garbage\n")


@both_modes
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("not executable", "chmod"),
        ("missing", "is missing: reinstall pyresolve-native"),
        ("empty", ""),
        ("foreign", ""),
        ("truncated", ""),
        ("a script that fails", ""),
        ("a script that succeeds", ""),
        ("a script that prints", "reinstall pyresolve-native"),
    ],
)
def test_damaged_helper(rogue, installation, how, words, mode):
    """A helper that does not work is our failure, never a verdict on the library."""
    helper = installation / "_bin" / "pyresolve-helper"
    damage(helper, how)
    error, message = checked_by(installation, rogue("good"), mode)
    if how in ("a script that fails", "a script that succeeds") and mode == "dlopen":
        # The environment may be what broke it, as far as can be told.
        assert error in ("ProbeError", "BROKEN_ENVIRONMENT")
    else:
        assert error == "ProbeError"
    assert str(helper) in message or "environment" in message
    assert words in message
    assert "not expected" not in message


@both_modes
def test_helper_on_noexec_mount(rogue, installation, mode):
    """A package on a noexec mount cannot start its helper, and says so."""
    code = """
        import json, sys
        sys.path.insert(0, sys.argv[1])
        sys.meta_path[:] = [finder for finder in sys.meta_path if isinstance(finder, type)]
        from pyresolve import check
        from pyresolve._process import helper as _probe
        from pathlib import Path
        _probe.HELPER = sys.argv[2]
        try:
            print(json.dumps(check(sys.argv[3], mode=sys.argv[4], environ={}).status.name))
        except Exception as error:
            print(json.dumps([type(error).__name__, str(error)]))
    """
    # Only the helper's directory: the interpreter must be able to map the extension.
    helper = installation / "_bin" / "pyresolve-helper"
    prefix = mounted(noexec=[helper.parent])
    error, message = process.cold(
        code, installation.parent, helper, rogue("good"), mode, prefix=prefix
    )
    assert error == "ProbeError"
    assert "noexec" in message


LIMITED = """
    import ctypes, json, os, resource, sys
    from pyresolve import ProbeError, check
    path, mode, limit = sys.argv[1], sys.argv[2], sys.argv[3]

    def limit_root():
        # Neither the real user root nor a privileged process is limited, nor should other processes
        # of the user count. Files are still root's own.
        libc = ctypes.CDLL(None)
        assert libc.prctl(28, 1, 0, 0, 0) == 0  # PR_SET_SECUREBITS: no privileges by exec
        os.setresuid(54321, 0, 0)
        header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        assert libc.capset(header, nothing) == 0

    check(path, mode=mode, environ={})  # all is imported and works
    answers = []
    before = sorted(os.listdir("/proc/self/fd"))
    if os.geteuid() == 0 and limit == "NPROC":
        limit_root()
    for value in json.loads(sys.argv[4]):
        kind = getattr(resource, f"RLIMIT_{limit}")
        resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))
        try:
            answers.append(check(path, mode=mode, environ={}).status.name)
        except ProbeError as error:
            answers.append(str(error))
    if limit == "NOFILE":
        resource.setrlimit(kind, (256, 256))
        assert before == sorted(os.listdir("/proc/self/fd"))
    print(json.dumps(answers))
"""


@both_modes
def test_out_of_processes(rogue, mode):
    """Where no process may be started, or the helper may start none, that is what is said."""
    # None, and the helper alone; another user has other processes, whose number nobody knows.
    values = [1, 2] if os.geteuid() == 0 else [0]
    for answer in process.cold(LIMITED, rogue("good"), mode, "NPROC", json.dumps(values)):
        assert "no more processes may be started here: raise the limit (ulimit -u" in answer


@both_modes
def test_out_of_descriptors(rogue, mode):
    """Where no file may be opened that is what is said, and none is left open."""
    answers = process.cold(LIMITED, rogue("good"), mode, "NOFILE", json.dumps(list(range(24))))
    assert "LOADABLE" in answers
    for answer in answers:
        assert answer == "LOADABLE" or "raise ulimit -n" in answer, answer
    assert answers == sorted(answers, key="LOADABLE".__eq__)  # enough is enough


# --- what the process that tries a library may not do to the answer


@pytest.mark.parametrize("kind", range(5, 13))
@pytest.mark.parametrize("text", ["junk", "a\0b", ""])
def test_forged_frame(build, clean_env, kind, text):
    """A library that writes what it likes where the answer is gathered breaks nothing here."""
    body = f"""
        #include <stdint.h>
        #include <string.h>
        struct frame {{
            uint32_t magic; uint16_t version, kind; uint64_t nonce; uint32_t target, length;
            int64_t a, b;
        }};
        ON_LOAD {{
            char line[4096], *board = NULL;
            FILE *maps = fopen("/proc/self/maps", "r");
            while (fgets(line, sizeof line, maps))
                if (strstr(line, " rw-s "))
                    board = (char *)strtoull(line, NULL, 16);
            if (!board)
                abort();
            struct frame frame = {{0x50595231, 2, {kind}, 0, 0, {len(text)}, 1, 1}};
            memcpy(board + 8, &frame, sizeof frame);
            memcpy(board + 8 + sizeof frame, "{text}", {len(text)});
            *(uint32_t *)board = sizeof frame + {len(text)};
            _exit(0);
        }}
    """.replace("\0", "\\0")
    report = check(build("forger.so", body, "-w"), environ=clean_env)
    assert outcome(report) == (Verdict.FAIL, Status.EXITED)


def test_core_dumps(rogue, clean_env, tmp_path, monkeypatch):
    """A provoked crash leaves no core file, whatever the limit of the caller."""
    monkeypatch.chdir(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        for mode in MODES:
            check(rogue("segfault"), mode=mode, environ=clean_env)
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_loaded_here(rogue, clean_env):
    """The library is mapped by no process of ours that lives on."""
    check(rogue("good_libm"), environ=clean_env)
    assert str(rogue("good_libm")) not in process.maps()
    with pytest.raises(OSError):
        ctypes.CDLL("good_libm.so", mode=os.RTLD_NOLOAD)
