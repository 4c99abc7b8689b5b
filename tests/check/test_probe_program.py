"""pyresolve-probe: the verdicts of check() in one line, without an interpreter."""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import signal
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from support import AMPLE, HANG, MODES, REPOSITORY, process, rogues
from support.command import run
from support.compile import built, cc_text
from support.lines import HANGING, ROGUES, check_line
from support.probe_program import EXIT, PROGRAM, answer, probe
from support.tools import require_tool, require_unshare

import pyresolve
from pyresolve import check
from pyresolve._check.check import _preloading
from pyresolve._environ import parse_preload

NATIVE = REPOSITORY / "native"

both_modes = pytest.mark.parametrize("mode", MODES)


# --- paths that LD_PRELOAD cannot hold as they are


@pytest.mark.parametrize("directory", ["a b", "a b c/d", "$ORIGINAL", "\u00e9"])
@pytest.mark.parametrize("library_path", [None, "", ":", "/usr/lib;/nowhere"])
def test_preload_of_odd_directory(rogue, clean_env, tmp_path, directory, library_path):
    """A hook in a directory with a space is preloaded by its name."""
    (tmp_path / directory).mkdir(parents=True)
    hook = Path(shutil.copy(rogue("good"), tmp_path / directory))
    env = dict(clean_env)
    if library_path is not None:
        env["LD_LIBRARY_PATH"] = library_path
    line = "OK loadable (good.so)"
    assert line == check_line(hook, environ=env, mode="preload")
    assert answer(line) == probe(hook, env=env, mode="preload")


@pytest.mark.parametrize(
    ("directory", "line"),
    [
        ("a:b", "OK loadable (good.so)"),
        ("x ;y", "OK loadable (good.so)"),
        *((name, "FAIL not_found (good.so)") for name in ("$ORIGIN", "${LIB}", "${PLATFORM} x")),
    ],
)
def test_preload_that_cannot_be_written(rogue, clean_env, tmp_path, directory, line):
    """A path that LD_PRELOAD cannot hold is no verdict on the library."""
    (tmp_path / directory).mkdir()
    hook = Path(shutil.copy(rogue("good"), tmp_path / directory))
    with pytest.raises(pyresolve.UnrepresentablePathError):
        check(hook, mode="preload", environ=clean_env)
    status, out, err = probe(hook, env=clean_env, mode="preload")
    assert (1, "") == (status, out)
    assert f"{hook} cannot be preloaded" in err
    # dlopen expands some of them, too, and takes the others.
    assert line == check_line(hook, environ=clean_env)
    assert answer(line) == probe(hook, env=clean_env)


# --- several

SEVERAL = [
    (["good", "good_libm"], "OK 2 checks"),
    (["good", "segfault", "good_libm"], "FAIL crashed: SIGSEGV (segfault.so)"),
    (["exit_three", "good", "abort"], "FAIL exited: exit status 3 (exit_three.so) and 1 more"),
    (
        ["exit_zero", "good", "kill_group", "abort"],
        "FAIL exited: exit status 0 (exit_zero.so) and 2 more",
    ),
    (["good", "kill_parent", "good", "exit_zero"], "FAIL crashed (kill_parent.so) and 1 more"),
    (["terminate_parent", "good"], "FAIL crashed (terminate_parent.so)"),
    (["good"] * 20, "OK 20 checks"),
]


@both_modes
@pytest.mark.parametrize(("names", "line"), SEVERAL)
def test_several(rogue, clean_env, names, line, mode):
    """Each library has a trial of its own, and the worst one is named."""
    paths = [rogue(name) for name in names]
    assert probe(*paths, env=clean_env, mode=mode) == answer(line)
    assert line == check_line(*paths, environ=clean_env, mode=mode, timeout=AMPLE)


def test_unknown_among_several(rogue, site, clean_env, no_driver):
    """FAIL is worse than UNKNOWN, and that is worse than OK."""
    hook = site.fake_hook(14, "hook.so")
    env = {**clean_env, "LD_LIBRARY_PATH": str(site.fake_cudart(14))}
    good, bad = rogue("good"), rogue("exit_zero")
    unknown = f"UNKNOWN no_driver: libcuda.so.1 ({hook.name})"
    failed = "FAIL exited: exit status 0 (exit_zero.so) and 1 more"
    assert probe(good, hook, env=env) == answer(unknown)
    assert probe(hook, good, bad, env=env) == answer(failed)


def test_time_is_for_all(rogue, clean_env):
    """What hangs uses up the time; what stands behind it was not found to be OK."""
    paths = [rogue("good"), rogue("loop"), rogue("good"), rogue("stop")]
    line = f"FAIL timed_out: {HANG:g} s (loop.so) and 2 more"
    assert probe(*paths, env=clean_env, timeout=HANG) == answer(line)


FORKED = """
#include <signal.h>
#include <sys/ptrace.h>
ON_LOAD {
    pid_t parent = getppid(), pid = fork();
    if (pid != 0) {
        rogue_write_pid(pid);
        usleep(20000);
        return;
    }
    setsid();
    for (;;)
        ATTACK;
}
"""
STOP_AGAIN = "kill(parent, SIGSTOP)"
TRACE = "ptrace(PTRACE_SEIZE, parent, 0, 0), ptrace(PTRACE_INTERRUPT, parent, 0, 0), usleep(1000)"


@both_modes
@pytest.mark.parametrize("attack", [STOP_AGAIN, TRACE])
def test_attack_by_a_daemon(clean_env, tmp_path, attack, mode):
    """A process that the library leaves behind keeps nobody from the answer, nor does it stay."""
    library = cc_text(rogues.INCLUDE + FORKED, tmp_path / "forked.so", f"-DATTACK={attack}")
    pidfile = tmp_path / "pid"
    env = {**clean_env, rogues.PIDFILE: str(pidfile)}
    start = time.monotonic()
    status, out, err = probe(library, env=env, mode=mode, timeout=HANG)
    assert time.monotonic() - start < HANG + 1
    # Which of the two is first is a matter of chance.
    assert out in {f"FAIL timed_out: {HANG:g} s (forked.so)\n", "OK loadable (forked.so)\n"}
    assert (EXIT[out.split()[0]], "") == (status, err)
    assert process.poll(lambda: not process.alive(int(pidfile.read_text())))


def test_stopped_with_others(rogue, clean_env):
    """What was found before the supervisor was stopped stays found; the others have no time."""
    names = ["exit_zero", "good", "stop_parent", "good"]
    line = "FAIL exited: exit status 0 (exit_zero.so) and 2 more"
    given = probe(*map(rogue, names), env=clean_env, timeout=HANG)
    assert given == answer(line)


@pytest.mark.serial
@both_modes
@pytest.mark.parametrize("name", HANGING)
def test_default_timeout(rogue, clean_env, name, mode):
    """Without --timeout the answer comes before a kubelet's default of 1 s is over."""
    took = math.inf
    for _ in range(5):  # the machine may be busy, the program may not
        start = time.monotonic()
        done = run([PROGRAM, "check", "--mode", mode, *[rogue(name)] * 3], env=clean_env)
        took = min(took, time.monotonic() - start)
        assert (1, f"FAIL timed_out: 0.8 s ({name}.so) and 2 more\n") == (
            done.returncode,
            done.stdout,
        )
        if took < 1.0:
            break
    assert 0.8 <= took < 1.0


def test_no_override(rogue, clean_env):
    """PYRESOLVE_TIMEOUT is for launchers: a probe's caller has a limit that it cannot move."""
    env = {**clean_env, "PYRESOLVE_TIMEOUT": "60"}
    line = f"FAIL timed_out: {HANG:g} s (loop.so)"
    assert probe(rogue("loop"), env=env, timeout=HANG) == answer(line)


# --- usage


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "the command is check"),
        (["chek", "libm.so.6"], "the command is check"),
        (["check"], "name at least one library"),
        (["check", "--mode", "preload"], "name at least one library"),
        (["check", "libm.so.6", ""], "a path is empty: name a library"),
        (["check", "--mode", "lazy", "libm.so.6"], "mode is 'lazy': give dlopen or preload"),
        (["check", "--mode"], "--mode needs a value"),
        (["check", "--bogus", "libm.so.6"], "there is no option --bogus"),
        (["check", "-x", "libm.so.6"], "there is no option -x"),
        (["-xh", "check", "libm.so.6"], "there is no option -x"),
        (["check", "--help=me", "libm.so.6"], "there is no option --help=me"),
        *(
            (["check", "--timeout", text, "libm.so.6"], f"timeout is '{text}'")
            for text in ("0", "-1", "abc", "", "1s", "nan", "inf", "1e300", "31536001")
        ),
    ],
)
def test_usage(arguments, sentence):
    """A misuse is a sentence on stderr and status 2, and nothing on stdout."""
    done = run([PROGRAM, *arguments], env={})
    assert (2, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith("usage: pyresolve-probe check ")
    assert sentence in done.stderr.splitlines()[-1]


def test_help_and_version():
    """Both are answers."""
    done = run([PROGRAM, "--help"], env={})
    assert (0, "") == (done.returncode, done.stderr)
    assert "--mode preload" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    done = run([PROGRAM, "--version"], env={})
    expected = f"pyresolve-probe {version('pyresolve-native')}\n"
    assert (0, expected, "") == (done.returncode, done.stdout, done.stderr)


# --- how it is started


@both_modes
@pytest.mark.parametrize("closed", [[0], [1], [2], [0, 1, 2]])
def test_closed_descriptors(rogue, clean_env, closed, mode):
    """The exit status is the answer whatever is closed, and nothing strays."""
    redirections = " ".join(f"{fd}>&-" for fd in closed)
    prefix = [require_tool("sh"), "-c", f'exec "$@" {redirections}', "sh"]
    for name, expected in (("good", "OK loadable"), ("exit_three", "FAIL exited: exit status 3")):
        status, out, err = probe(rogue(name), env=clean_env, mode=mode, prefix=prefix)
        line = "" if 1 in closed else f"{expected} ({name}.so)\n"
        assert (EXIT[expected.split()[0]], line, "") == (status, out, err)


def test_unwritable_stdout(rogue, clean_env):
    """A line that nobody takes changes no exit status."""
    sh = require_tool("sh")
    status, _, err = probe(
        rogue("good"), env=clean_env, prefix=[sh, "-c", 'exec "$@" >/dev/full', "sh"]
    )
    assert (0, True) == (status, "the line cannot be written: No space left on device" in err)
    reader, writer = os.pipe()
    os.close(reader)
    command = [PROGRAM, "check", rogue("exit_zero")]
    assert (
        subprocess.run(command, stdout=writer, stderr=subprocess.DEVNULL, check=False).returncode
        == 1
    )
    os.close(writer)


def ignore_and_block():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


@both_modes
@pytest.mark.parametrize("name", ["good", "segfault", "stop", "daemon"])
def test_inherited_signals(rogue, clean_env, name, mode):
    """Ignored and blocked signals of the caller change nothing."""
    timeout = HANG if name == "stop" else AMPLE
    command = [PROGRAM, "check", "--mode", mode, "--timeout", f"{timeout:g}", rogue(name)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=clean_env,
        preexec_fn=ignore_and_block,
        timeout=60,
    )
    expected = answer(ROGUES[name][MODES.index(mode)])
    assert expected == (done.returncode, done.stdout, done.stderr)


@both_modes
def test_as_init(rogue, clean_env, mode):
    """As PID 1 of a container, whose orphans are its own, it answers and ends."""
    prefix = [require_unshare(), "-rpf", "--mount-proc"]
    for name in ("good", "segfault", "daemon"):
        given = probe(rogue(name), env=clean_env, mode=mode, prefix=prefix)
        assert given == answer(ROGUES[name][MODES.index(mode)])


@both_modes
def test_without_proc(rogue, clean_env, not_sanitized, mode):
    """Without /proc nothing can be checked: that is said, and is not OK."""
    script = 'mount -t tmpfs tmpfs /proc && exec "$@"'
    prefix = [require_unshare(), "-rm", require_tool("sh"), "-c", script, "sh"]
    said = (
        "pyresolve-probe: no check is possible: a library's process could not reach this one"
        " through /proc: mount it\n"
    )
    assert probe(rogue("good"), env=clean_env, mode=mode, prefix=prefix) == (1, "", said)


@both_modes
def test_foreign_proc(rogue, clean_env, not_sanitized, mode):
    """With the /proc of another PID namespace the library's process cannot report."""
    prefix = [require_unshare(), "-rpf"]
    status, out, err = probe(rogue("good"), env=clean_env, mode=mode, prefix=prefix)
    assert (1, "") == (status, out)
    assert "could not reach this one through /proc" in err


@both_modes
def test_read_only_root(rogue, clean_env, mode):
    """Nothing is written anywhere."""
    script = 'mount -o remount,bind,ro / && ! touch /tmp/x 2>/dev/null && exec "$@"'
    prefix = [require_unshare(), "-rm", require_tool("sh"), "-c", script, "sh"]
    given = probe(rogue("good"), env=clean_env, mode=mode, prefix=prefix)
    assert given == answer("OK loadable (good.so)")


def test_children_of_its_past(rogue, clean_env, tmp_path):
    """A process that becomes the program may have children: they are not its own to kill."""
    script = 'sleep 60 >/dev/null 2>&1 & echo $! >"$PIDS"; exec "$@"'
    env = {**clean_env, "PIDS": str(tmp_path / "pids")}
    prefix = [require_tool("sh"), "-c", script, "sh"]
    assert probe(rogue("daemon"), env=env, prefix=prefix) == answer("OK loadable (daemon.so)")
    pid = int((tmp_path / "pids").read_text())
    assert process.alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_inherited_descriptors(clean_env, tmp_path):
    """A library sees nothing that the caller has left open."""
    text = "ON_LOAD { for (int fd = 3; fd < 64; fd++) if (fcntl(fd, F_GETFD) >= 0) _exit(fd); }\n"
    library = cc_text(rogues.INCLUDE + text, tmp_path / "fds.so")
    with library.open() as file:
        done = subprocess.run(
            [PROGRAM, "check", library],
            capture_output=True,
            text=True,
            check=False,
            env=clean_env,
            pass_fds=[file.fileno()],
        )
    assert ("OK loadable (fds.so)\n", "") == (done.stdout, done.stderr)


def test_link_and_working_directory(rogue, clean_env, tmp_path):
    """The program is found through a link, and finds a relative path from where it is started."""
    link = tmp_path / "elsewhere"
    link.symlink_to(PROGRAM)
    shutil.copy(rogue("good"), tmp_path)
    for mode in MODES:
        for path in ("./good.so", f"../{tmp_path.name}/good.so"):
            command = ["./elsewhere", "check", "--mode", mode, path]
            done = run(command, env=clean_env, cwd=tmp_path)
            assert (0, "OK loadable (good.so)\n") == (done.returncode, done.stdout)
    assert probe("good.so", env=clean_env, cwd=tmp_path) == answer("FAIL not_found (good.so)")


@both_modes
def test_copied_program(rogue, clean_env, tmp_path, mode):
    """A copy does not find its helper: it says so, and not OK."""
    copy = shutil.copy(PROGRAM, tmp_path)
    done = run([copy, "check", "--mode", mode, rogue("good")], env=clean_env)
    assert (1, "") == (done.returncode, done.stdout)
    assert "libexec/pyresolve/pyresolve-helper: No such file or directory" in done.stderr
    assert "reinstall pyresolve-native" in done.stderr


LIBEXEC = Path(PROGRAM).parents[1] / "libexec" / "pyresolve"


def install(prefix, put):
    """Lay out bin and libexec as an installer does that makes each file with `put`."""
    (prefix / "bin").mkdir(parents=True)
    (prefix / "libexec" / "pyresolve").mkdir(parents=True)
    put(PROGRAM, prefix / "bin" / "pyresolve-probe")
    for file in LIBEXEC.iterdir():
        put(file, prefix / "libexec" / "pyresolve" / file.name)
    return prefix / "bin" / "pyresolve-probe"


def uv_symlink(prefix):
    """Return a program as uv lays it out with --link-mode symlink: each file is a link."""
    cache = prefix / "cache" / "pyresolve_native.data"
    places = {PROGRAM: cache / "scripts", **dict.fromkeys(LIBEXEC.iterdir(), cache / "data")}

    def put(file, path):
        places[file].mkdir(parents=True, exist_ok=True)
        path.symlink_to(shutil.copy(file, places[file]))

    return install(prefix / "venv", put)


INSTALLERS = {
    "copies": lambda prefix: install(prefix, shutil.copy),
    "hard links": lambda prefix: install(prefix, lambda a, b: os.link(shutil.copy(a, prefix), b)),
    "uv's links": uv_symlink,
}


def linked(program, link):
    """Return a link to a program."""
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(program)
    return link


STARTS = {  # the command, and its directory
    "by its path": lambda program, away: ([program], away),
    "from its directory": lambda program, away: ([f"./{program.name}"], program.parent),
    "by PATH": lambda program, away: (["env", f"PATH={program.parent}", program.name], away),
    "by a link": lambda program, away: ([linked(program, away / "bin" / "probe")], away),
    "by a relative link": lambda program, away: (
        [linked(os.path.relpath(program, away / "bin"), away / "bin" / "probe")],
        away,
    ),
    "by two links": lambda program, away: (
        [linked(linked(program, away / "tools" / "probe"), away / "bin" / "probe")],
        away,
    ),
    "by a linked directory": lambda program, away: (
        [linked(program.parent, away / "link") / program.name],
        away,
    ),
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("installer", INSTALLERS)
def test_installed(rogue, clean_env, tmp_path, installer, start):
    """The helper is found however the program was installed and is started."""
    away = tmp_path / "away"
    away.mkdir()
    command, directory = STARTS[start](INSTALLERS[installer](tmp_path / "own"), away)
    done = run([*command, "check", rogue("good")], env=clean_env, cwd=directory)
    assert (0, "OK loadable (good.so)\n", "") == (done.returncode, done.stdout, done.stderr)


def test_helper_beside_the_started_path(rogue, clean_env, tmp_path):
    """A helper beside the path that was started comes before that beside the file itself."""
    link = linked(PROGRAM, tmp_path / "bin" / "pyresolve-probe")
    helper = tmp_path / "libexec" / "pyresolve" / "pyresolve-helper"
    helper.parent.mkdir(parents=True)
    helper.write_text("not executable")
    done = run([link, "check", rogue("good")], env=clean_env)
    assert (1, "") == (done.returncode, done.stdout)
    assert f"{helper.parent.name}/pyresolve-helper: Permission denied" in done.stderr


# --- what it leaves


@both_modes
@pytest.mark.parametrize("name", ["daemon", "fork_sleep"])
def test_leaves_no_process(rogue, clean_env, tmp_path, name, mode):
    """What a library has started is gone when the answer is there."""
    pidfile = tmp_path / "pid"
    env = {**clean_env, rogues.PIDFILE: str(pidfile)}
    assert probe(rogue(name), env=env, mode=mode) == answer(f"OK loadable ({name}.so)")
    assert not process.alive(int(pidfile.read_text()))
    assert [pidfile] == list(tmp_path.iterdir())


TRACED = """
#include <sys/ptrace.h>
ON_LOAD {
    pid_t target = getpid();
    if (fork() == 0) {
        rogue_write_pid((int)getpid());
        ptrace(PTRACE_SEIZE, target, NULL, NULL);
        for (;;)
            pause();
    }
    for (;;)
        pause();
}
"""


@both_modes
def test_leaves_no_tracer(clean_env, tmp_path, mode):
    """A library whose process is traced by its own child ends with it, and in time."""
    library = cc_text(rogues.INCLUDE + TRACED, tmp_path / "traced.so")
    pidfile = tmp_path / "pid"
    env = {**clean_env, rogues.PIDFILE: str(pidfile)}
    line = f"FAIL timed_out: {HANG:g} s (traced.so)"
    assert probe(library, env=env, mode=mode, timeout=HANG) == answer(line)
    assert process.poll(lambda: not process.alive(int(pidfile.read_text())))


LINGERING = """
ON_LOAD {
    pid_t pid = fork();
    if (pid > 0)
        rogue_write_pid(OWN ? (int)getpid() : (int)pid);
    else
        setsid();
    for (;;)
        pause();
}
"""


@both_modes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_signalled(clean_env, tmp_path, number, mode):
    """A signal ends it at once, and what the library is and has started with it.

    Of a SIGKILL it does not hear: there the library's own process ends with it.
    """
    own, pidfile = number == signal.SIGKILL, tmp_path / "pid"
    library = cc_text(rogues.INCLUDE + LINGERING, tmp_path / "lingering.so", f"-DOWN={own:d}")
    env = {**clean_env, rogues.PIDFILE: str(pidfile)}
    command = [PROGRAM, "check", "--mode", mode, "--timeout", "60", library]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as started:
        assert process.poll(lambda: pidfile.exists() and pidfile.read_text().endswith("\n"))
        pid = int(pidfile.read_text())
        left = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        start = time.monotonic()
        started.send_signal(number)
        out, _ = started.communicate(timeout=10)
    assert (-number, "") == (started.returncode, out)
    assert time.monotonic() - start < 2
    assert process.poll(lambda: not process.alive(pid))
    for child in left:  # nobody else would end it
        os.kill(int(child), signal.SIGKILL)


# --- the same in C as in Python


@pytest.fixture(scope="session")
def native():
    """Return what writes the environment of a rehearsal as a library."""
    flags = ["-std=c11", "-D_GNU_SOURCE", "-iquote", str(NATIVE)]
    library = ctypes.CDLL(str(built(NATIVE / "preload.c", "preload.so", *flags)))
    for name in ("first", "last", "without", "none"):
        getattr(library, f"pyr_preload_{name}").restype = ctypes.POINTER(ctypes.c_char_p)
    return library


elements = ["", "/h/hook.so", "hook.so", "/h h/hook.so", "/other.so", "/h h", "/h", "$LIB", "$LIBX"]
variables = st.none() | st.lists(st.sampled_from([*elements, ":", " ", ";"])).map("".join)
hooks = [
    "/h/hook.so", "hook.so", "/h h/hook.so", "/h h//hook.so", "/$LIB/hook.so", "/ho;o k/x.so",
    "/hook s.so", "h k.so", "/h:h/hook.so", "/ hook.so", "/$LIBX/${ORIGIN/hook.so",
]  # fmt: skip


def as_dict(environment):
    """Return what a NULL-terminated array of NAME=VALUE holds."""
    found = {}
    for entry in environment:
        if entry is None:
            return found
        name, _, value = entry.decode().partition("=")
        assert name not in found
        found[name] = value
    return None


@settings(max_examples=500, deadline=None)
@given(variables, variables, st.sampled_from(hooks))
def test_preloads_agree(native, preload, library_path, hook):
    """The environment of a rehearsal is the same."""
    environ = {"LD_PRELOADED": "1", "LD_PRELOAD": preload, "LD_LIBRARY_PATH": library_path}
    environ = {name: value for name, value in environ.items() if value is not None}
    pairs = [f"{name}={value}".encode() for name, value in environ.items()]
    array = (ctypes.c_char_p * (len(pairs) + 1))(*pairs)
    variable = ctypes.c_char_p()
    made = native.pyr_preload_first(array, hook.encode(), ctypes.byref(variable))
    if variable.value:
        with pytest.raises(pyresolve.UnrepresentablePathError) as caught:
            _preloading(hook, environ)
        assert (variable.value.decode(), False) == (caught.value.variable, bool(made))
        return
    expected = {**environ, **_preloading(hook, environ)}
    assert (expected, None) == (as_dict(made), variable.value)
    last = as_dict(native.pyr_preload_last(made, b"/stub"))
    assert {**expected, "LD_PRELOAD": f"{expected['LD_PRELOAD']}:/stub"} == last
    others = [
        item
        for item in parse_preload(expected["LD_PRELOAD"])
        if item not in (hook, os.path.basename(hook))
    ]
    without = as_dict(native.pyr_preload_without(made, hook.encode()))
    assert {**expected, "LD_PRELOAD": ":".join(others)} == without
    del expected["LD_PRELOAD"]
    assert expected == as_dict(native.pyr_preload_none(made))
