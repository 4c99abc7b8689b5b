"""pyresolve-probe: the verdicts of check() in one line, without an interpreter."""

from __future__ import annotations

import ctypes
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import assume, given, settings, strategies as st
from support import elfpatch, process, rogues
from support.command import run
from support.compile import SOURCES, built, cc, hollow
from support.driver import STUB_LIBRARY, full_stub as driver_stub
from support.hidden import mounted
from support.tools import require_tool, require_unshare, unavailable
from support.wheels import TMS_VERSIONS

import pyresolve
from pyresolve import Verdict, _brief, _causes, _check, _elf, _native, check
from pyresolve._environ import parse_preload
from pyresolve._types import Status

PROGRAM = os.environ.get("PYRESOLVE_TEST_PROBE") or Path(sys.executable).with_name(
    "pyresolve-probe"
)
NATIVE = Path(__file__).parent.parent / "native"
MODES = ("dlopen", "preload")
EXIT = {Verdict.OK: 0, Verdict.FAIL: 1, Verdict.UNKNOWN: 3}
HANGING = ("loop", "sleep_ignoring_sigterm", "stop")
HANG = 0.3  # seconds for what never ends
AMPLE = 30  # for what does, on a machine that does other things as well
VANISHED = "libpyresolve_vanished.so.1"

both_modes = pytest.mark.parametrize("mode", MODES)


def probe(*libraries, env, mode="dlopen", timeout=AMPLE, prefix=(), **options):
    """Run the program in exactly `env`; return its exit status and what it wrote."""
    command = [PROGRAM, "check", "--mode", mode, "--timeout", f"{timeout:g}", "--", *libraries]
    done = run([*prefix, *command], env=env, **options)
    return done.returncode, done.stdout, done.stderr


def answer(line):
    """Return what the program gives for a line: the exit status is that of its first word."""
    return EXIT[Verdict[line.split()[0]]], f"{line}\n", ""


def as_check(*libraries, env, mode="dlopen", timeout=AMPLE):
    """Return what check() has the program give."""
    reports = [check(path, mode=mode, environ=env, timeout=timeout) for path in libraries]
    return answer(_brief.line([_brief.outcome(report) for report in reports]))


@pytest.fixture(scope="session")
def no_driver():
    """Refuse to run where there is a driver: a test that is about its absence."""
    if pyresolve.driver(environ={}).path:
        unavailable("this machine has an NVIDIA driver")


@pytest.fixture(scope="session")
def not_sanitized():
    """Leave out what the sanitizers do not bear: no /proc, an environment that breaks them."""
    if any("san.so" in name for name in _elf.read(_native.__file__).needed):
        pytest.skip("not under the sanitizers")


@pytest.fixture(scope="session")
def static(not_sanitized):
    """Refuse to run where what breaks every dynamic program breaks this one as well."""
    if _elf.read(PROGRAM).interpreter is not None:
        unavailable("pyresolve-probe is dynamic: it was built without libc.a")


# --- the verdicts of check()

# What both have to say of some rogues, so that they cannot be wrong together.
LINES = {
    "abort": "FAIL crashed: SIGABRT (abort.so)",
    "chatty": "OK loadable (chatty.so)",
    "close_fds": "OK loadable (close_fds.so)",
    "exit_three": "FAIL exited: exit status 3 (exit_three.so)",
    "exit_zero": "FAIL exited: exit status 0 (exit_zero.so)",
    "good": "OK loadable (good.so)",
    "kill_group": "FAIL crashed: SIGKILL (kill_group.so)",
    "loop": f"FAIL timed_out: {HANG:g} s (loop.so)",
    "missing_needed": f"FAIL missing_dependency: {VANISHED} (missing_needed.so)",
    "musl": "FAIL not_loadable (musl.so)",
    "segfault": "FAIL crashed: SIGSEGV (segfault.so)",
    "undefined_function": ("FAIL undefined_symbol: rogue_nowhere_function (undefined_function.so)"),
    "unmet_version": "FAIL version_mismatch: GLIBC_9.99 (unmet_version.so)",
}


@both_modes
@pytest.mark.parametrize("name", [name for name in rogues.NAMES if name != "kill_parent"])
def test_rogues(rogue, clean_env, name, mode):
    """Whatever a library does while it is loaded, the answer is that of check()."""
    options = {"env": clean_env, "mode": mode, "timeout": HANG if name in HANGING else AMPLE}
    given = probe(rogue(name), **options)
    assert given == as_check(rogue(name), **options)
    assert given == answer(LINES[name]) if name in LINES else given[0] in EXIT.values()


@both_modes
def test_killed_by_the_library(rogue, clean_env, mode):
    """A library that kills its parent gets no line, and no status that could pass for OK."""
    assert probe(rogue("kill_parent"), env=clean_env, mode=mode) == (-signal.SIGKILL, "", "")


def write(name, content):
    """Return a function that makes a file of this content in a directory."""
    return lambda directory: (directory / name).write_bytes(content) and directory / name


def from_good(name, change, *args):
    """Return a function that makes a changed copy of a sound library in a directory."""
    return lambda directory: change(rogues.rogue("good"), directory / name, *args)


FILES = {
    "absent.so": (lambda directory: directory / "absent.so", Status.NOT_FOUND),
    "a directory": (lambda directory: directory, Status.NOT_ELF),
    "behind a file": (lambda directory: write("f", b"x")(directory) / "a.so", Status.NOT_FOUND),
    "a name too long": (lambda directory: directory / ("a" * 256), Status.NOT_FOUND),
    "text": (write("text.so", b"no library\n"), Status.NOT_ELF),
    "LFS": (lambda directory: elfpatch.lfs_pointer(directory / "lfs.so"), Status.NOT_ELF),
    "only the magic": (write("magic.so", b"\x7fELF"), Status.TRUNCATED),
    "cut": (from_good("cut.so", elfpatch.cut, 9000), Status.TRUNCATED),
    "another machine": (
        from_good("arch.so", elfpatch.patch, {elfpatch.MACHINE: elfpatch.FOREIGN_MACHINE}),
        Status.WRONG_ARCH,
    ),
    "32 bit": (
        from_good("class.so", elfpatch.patch, {elfpatch.CLASS: elfpatch.CLASS_32}),
        Status.WRONG_ARCH,
    ),
    "a core dump": (from_good("core.so", elfpatch.patch, {16: 4}), Status.NOT_LOADABLE),
    "odd": (from_good("\x1b[2J\n\u00e9 .so", elfpatch.cut, 100), Status.TRUNCATED),
}


@both_modes
@pytest.mark.parametrize("case", FILES)
def test_files(clean_env, tmp_path, case, mode):
    """What is wrong with the file itself is said without a trial."""
    make, status = FILES[case]
    path = make(tmp_path)
    given = probe(path, env=clean_env, mode=mode)
    assert given == as_check(path, env=clean_env, mode=mode)
    assert given[1].startswith(f"FAIL {status.value} (")


def test_empty_file(clean_env, tmp_path):
    """An empty file is a download that broke off."""
    (tmp_path / "empty.so").touch()
    assert probe(tmp_path / "empty.so", env=clean_env) == answer("FAIL truncated (empty.so)")


@both_modes
@pytest.mark.parametrize("name", ["", ".", "/", "./", "a/b/", "nothing.so", "libm.so.6", "//x//."])
def test_names(clean_env, name, mode):
    """What is no path of a file is told as pathlib would name it, or searched by the loader."""
    assert probe(name, env=clean_env, mode=mode) == as_check(name, env=clean_env, mode=mode)


def test_fifo_and_device(clean_env, tmp_path):
    """Nobody is waited for at the other end of a FIFO."""
    os.mkfifo(tmp_path / "fifo.so")
    assert probe(tmp_path / "fifo.so", env=clean_env) == answer("FAIL not_elf (fifo.so)")
    assert probe("/dev/zero", env=clean_env) == answer("FAIL not_elf (zero)")


@both_modes
def test_unreadable_file(rogue, tmp_path, mode):
    """A file without permission is told from one that is not there."""
    path = Path(shutil.copy(rogue("good"), tmp_path))
    path.chmod(0)
    if os.geteuid() != 0:
        assert probe(path, env={}, mode=mode) == answer("FAIL permission (good.so)")
        return
    # A user who is not root may not look into pytest's directories, or where root's programs are.
    other = [require_tool("setpriv"), "--reuid=65534", "--regid=65534", "--clear-groups"]
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        copy = shutil.copy(PROGRAM, directory)
        done = run([*other, copy, "check", "--mode", mode, path], env={})
    assert answer("FAIL permission (good.so)") == (done.returncode, done.stdout, done.stderr)


@both_modes
def test_noexec(rogue, tmp_path, mode):
    """A file on a noexec mount cannot be mapped."""
    path = shutil.copy(rogue("good"), tmp_path)
    given = probe(path, env={}, mode=mode, prefix=mounted(noexec=[tmp_path]))
    assert given == answer("FAIL noexec (good.so)")


@both_modes
@pytest.mark.parametrize("driver", ["none", "full", "toolkit stub"])
@pytest.mark.parametrize("runtime", [True, False])
def test_hooks(site, clean_env, no_driver, runtime, driver, mode):
    """A hook, with and without its runtime and a driver: UNKNOWN where only that is missing."""
    hook, directory = site.fake_hook(14, "hook.so"), site.fake_cudart(14)
    stub = driver_stub(result=STUB_LIBRARY)
    places = [directory] if runtime else []
    places += {"none": [], "full": [driver_stub()], "toolkit stub": [stub]}[driver]
    env = {**clean_env, "LD_LIBRARY_PATH": ":".join(map(str, places))}
    given = probe(hook, env=env, mode=mode)
    assert given == as_check(hook, env=env, mode=mode)
    name = f"({hook.name})"
    if not runtime:
        assert given[1] == f"FAIL missing_dependency: libcudart.so.14 {name}\n"
    elif driver == "full":
        assert given[1] == f"OK loadable {name}\n"
    else:
        assert given == answer(f"UNKNOWN no_driver: libcuda.so.1 {name}")


@both_modes
@pytest.mark.parametrize("version", TMS_VERSIONS)
def test_real_hooks(site, clean_env, hidden_toolkit, no_driver, version, mode):
    """The hooks of the real wheels, without a runtime and with each of them."""
    site.tms(version)
    directories = [site.cudart(major) for major in (12, 13)]
    for hook in sorted(site.root.glob("*.so")):
        for places in ([], directories):
            env = {**clean_env, "LD_LIBRARY_PATH": ":".join(map(str, places))}
            given = probe(hook, env=env, mode=mode, prefix=hidden_toolkit)
            if places or not hidden_toolkit:
                assert given == as_check(hook, env=env, mode=mode)
            else:
                assert given[1].startswith("FAIL missing_dependency: libcudart.so.1")


def test_bypassed(site, clean_env):
    """Behind a libcudart the hook is mapped but without effect."""
    hook, directory = site.fake_hook(14), site.fake_cudart(14)
    preload = f"{directory}/libcudart.so.14:{hook}"
    env = {**clean_env, "LD_LIBRARY_PATH": str(driver_stub()), "LD_PRELOAD": preload}
    given = probe(hook, env=env, mode="preload")
    assert given == as_check(hook, env=env, mode="preload")
    assert given == answer(f"FAIL bypassed ({hook.name})")


@pytest.mark.parametrize("path", ["libnothing.so.9", shutil.which("true")])
def test_ignored(clean_env, path):
    """What the loader skips is no success."""
    given = probe(path, env=clean_env, mode="preload")
    assert given == as_check(path, env=clean_env, mode="preload")
    assert given == answer(f"FAIL ignored ({Path(path).name})")


PRELOADS = [
    "",
    "{good_libm}",
    "{good}",
    "{good_libm}:{good}",
    "good.so",
    " : {good_libm}::{good_libm} ",
    "/nowhere/lib.so",
    "libnothing.so.9:{good_libm}",
    "{missing_needed}",
    "{segfault}",
    "{exit_zero}",
    "{unmet_version}",
    "{good_libm} {abort}",
]


@both_modes
@pytest.mark.parametrize("name", ["good", "missing_needed", "segfault"])
@pytest.mark.parametrize("preloads", PRELOADS)
def test_other_preloads(rogue, clean_env, static, preloads, name, mode):
    """What else LD_PRELOAD holds counts for a preload and is told from it; dlopen is without."""
    value = preloads.format(**{known: rogue(known) for known in rogues.NAMES})
    env = {**clean_env, "LD_PRELOAD": value}
    # The program itself is not touched by it, whatever it is.
    given = probe(rogue(name), env=env, mode=mode)
    assert given == as_check(rogue(name), env=env, mode=mode)
    if mode == "preload" and "segfault" in preloads and name != "segfault":
        assert given == answer(f"FAIL broken_environment: SIGSEGV ({name}.so)")


@pytest.mark.parametrize("directory", ["a b", "a b c/d", "$ORIGINAL", "\u00e9"])
@pytest.mark.parametrize("library_path", [None, "", ":", "/usr/lib;/nowhere"])
def test_preload_of_odd_directory(rogue, clean_env, tmp_path, directory, library_path):
    """A hook in a directory with a space is preloaded by its name."""
    (tmp_path / directory).mkdir(parents=True)
    hook = Path(shutil.copy(rogue("good"), tmp_path / directory))
    env = dict(clean_env)
    if library_path is not None:
        env["LD_LIBRARY_PATH"] = library_path
    given = probe(hook, env=env, mode="preload")
    assert given == as_check(hook, env=env, mode="preload")
    assert given == answer("OK loadable (good.so)")


@pytest.mark.parametrize("directory", ["a:b", "$ORIGIN", "x ;y", "${LIB}", "${PLATFORM} x"])
def test_preload_that_cannot_be_written(rogue, clean_env, tmp_path, directory):
    """A path that LD_PRELOAD cannot hold is no verdict on the library."""
    (tmp_path / directory).mkdir()
    hook = Path(shutil.copy(rogue("good"), tmp_path / directory))
    with pytest.raises(pyresolve.UnrepresentablePathError):
        check(hook, mode="preload", environ=clean_env)
    status, out, err = probe(hook, env=clean_env, mode="preload")
    assert (1, "") == (status, out)
    assert f"{hook} cannot be preloaded" in err
    # dlopen expands some of them, too, and takes the others.
    assert probe(hook, env=clean_env) == as_check(hook, env=clean_env)


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"text"])
@both_modes
def test_broken_libc(rogue, clean_env, static, tmp_path, content, mode):
    """Where no dynamic program starts the program says so, for it is static."""
    (tmp_path / "libc.so.6").write_bytes(content)
    env = {**clean_env, "LD_LIBRARY_PATH": str(tmp_path)}
    given = probe(rogue("good"), env=env, mode=mode)
    assert given == as_check(rogue("good"), env=env, mode=mode)
    assert given == answer("FAIL broken_environment: exit status 127 (good.so)")


def test_foreign_libc(rogue, clean_env, static, tmp_path):
    """A libc.so.6 that has nothing of what programs need is one as well."""
    libc = built(SOURCES / "hollow.c", "libc.so.6", "-nostdlib", "-Wl,-soname,libc.so.6")
    env = {**clean_env, "LD_LIBRARY_PATH": str(libc.parent)}
    status, out, err = probe(rogue("good"), env=env)
    assert (1, "") == (status, err)
    assert out.startswith("FAIL broken_environment: exit status 1")


def test_broken_file_of_a_dependency(clean_env, tmp_path):
    """Where a dependency is cut short check() looks for it, and the program says what it saw."""
    needed = hollow("libbroken.so.1")
    library = built(SOURCES / "hollow.c", "user.so", needed)
    env = {**clean_env, "LD_LIBRARY_PATH": str(tmp_path)}
    elfpatch.cut(needed, tmp_path / "libbroken.so.1", 100)
    assert probe(library, env=env) == answer("FAIL truncated (user.so)")
    elfpatch.cut(needed, tmp_path / "libbroken.so.1", 5000)
    assert as_check(library, env=env) == answer("FAIL truncated (user.so)")
    status, out, _ = probe(library, env=env)
    assert (1, True) == (status, out.startswith(("FAIL crashed: SIG", "FAIL truncated")))


# --- several

SEVERAL = [
    (["good", "good_libm"], "OK 2 checks"),
    (["good", "segfault", "good_libm"], "FAIL crashed: SIGSEGV (segfault.so)"),
    (["exit_three", "good", "abort"], "FAIL exited: exit status 3 (exit_three.so) and 1 more"),
    (
        ["exit_zero", "good", "kill_group", "abort"],
        "FAIL exited: exit status 0 (exit_zero.so) and 2 more",
    ),
    (["good"] * 20, "OK 20 checks"),
]


@both_modes
@pytest.mark.parametrize(("names", "line"), SEVERAL)
def test_several(rogue, clean_env, names, line, mode):
    """Each library has a trial of its own, and the worst one is named."""
    paths = [rogue(name) for name in names]
    assert probe(*paths, env=clean_env, mode=mode) == answer(line)
    assert as_check(*paths, env=clean_env, mode=mode) == answer(line)


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
    assert (0, "pyresolve-probe 0.1.0\n", "") == (done.returncode, done.stdout, done.stderr)


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
        assert ("FAIL" in expected, line, "") == (bool(status), out, err)


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
    expected = as_check(rogue(name), env=clean_env, mode=mode, timeout=timeout)
    assert expected == (done.returncode, done.stdout, done.stderr)


@both_modes
def test_as_init(rogue, clean_env, mode):
    """As PID 1 of a container, whose orphans are its own, it answers and ends."""
    prefix = [require_unshare(), "-rpf", "--mount-proc"]
    for name in ("good", "segfault", "daemon"):
        given = probe(rogue(name), env=clean_env, mode=mode, prefix=prefix)
        assert given == as_check(rogue(name), env=clean_env, mode=mode)


@both_modes
def test_without_proc(rogue, clean_env, not_sanitized, mode):
    """Without /proc nothing can be checked: that is said, and is not OK."""
    script = 'mount -t tmpfs tmpfs /proc && exec "$@"'
    prefix = [require_unshare(), "-rm", require_tool("sh"), "-c", script, "sh"]
    status, out, err = probe(rogue("good"), env=clean_env, mode=mode, prefix=prefix)
    assert (1, "") == (status, out)
    assert "pyresolve-probe: no check is possible: /proc/self/exe: " in err


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
    source = tmp_path / "fds.c"
    source.write_text(
        f'#include "{rogues.__file__[:-3]}/rogue.h"\n'
        "ON_LOAD { for (int fd = 3; fd < 64; fd++) if (fcntl(fd, F_GETFD) >= 0) _exit(fd); }\n"
    )
    library = cc(source, tmp_path / "fds.so")
    with (tmp_path / "fds.c").open() as file:
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
    source = tmp_path / "traced.c"
    source.write_text(f'#include "{rogues.__file__[:-3]}/rogue.h"\n{TRACED}')
    library, pidfile = cc(source, tmp_path / "traced.so"), tmp_path / "pid"
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
    source = tmp_path / "lingering.c"
    source.write_text(f'#include "{rogues.__file__[:-3]}/rogue.h"\n{LINGERING}')
    own = number == signal.SIGKILL
    library, pidfile = cc(source, tmp_path / "lingering.so", f"-DOWN={own:d}"), tmp_path / "pid"
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


class Text(ctypes.Structure):
    """struct pyr_text."""

    _fields_ = (("at", ctypes.POINTER(ctypes.c_char)), ("length", ctypes.c_size_t))

    @classmethod
    def of(cls, text):
        encoded = os.fsencode(text)
        return cls(ctypes.create_string_buffer(encoded, len(encoded) + 1), len(encoded))

    def __str__(self):
        return os.fsdecode(self.at[: self.length])


class Cause(ctypes.Structure):
    """struct pyr_cause."""

    _fields_ = (("status", ctypes.c_int), ("name", Text), ("version", Text), ("file", Text))


class Outcome(ctypes.Structure):
    """struct pyr_outcome."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("status", ctypes.c_int),
        ("detail_length", ctypes.c_uint32),
        ("detail", ctypes.c_char * 256),
    )


class Tally(ctypes.Structure):
    """struct pyr_tally."""

    _fields_ = (("checks", ctypes.c_uint32), ("bad", ctypes.c_uint32), ("worst", Outcome))


@pytest.fixture(scope="session")
def native():
    """Return the pure parts of the program as a library."""
    sources = [NATIVE / "causes.c", NATIVE / "preload.c"]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-iquote", str(NATIVE)]
    library = ctypes.CDLL(str(built(NATIVE / "brief.c", "pure.so", *sources, *flags)))
    library.pyr_cause_of_words.restype = Cause
    library.pyr_cause_of_words.argtypes = (Text,)
    library.pyr_cause_is_driver_symbol.restype = ctypes.c_bool
    library.pyr_detail_add.argtypes = (ctypes.POINTER(Outcome), Text)
    for name in ("first", "last", "without", "none"):
        getattr(library, f"pyr_preload_{name}").restype = ctypes.POINTER(ctypes.c_char_p)
    return library


def c_statuses():
    """Return the members of enum pyr_status in their order."""
    body = re.search(r"enum pyr_status {(.*?)}", (NATIVE / "brief.h").read_text(), re.DOTALL)[1]
    return [Status[name] for name in re.findall(r"PYR_(\w+),", body) if name != "STATUSES"]


STATUSES = c_statuses()
WORDS = [
    "/a/b.so", "x", ": ", "\n", " ", "'", "`", ",", "cuInit", "_x", "@", "(", ")", "lib c.so.1",
    ": error while loading shared libraries: ", ": symbol lookup error: ",
    ": cannot open shared object file: ", "No such file or directory", "Permission denied",
    ": version `", "' not found", " (required by ", ": symbol ", ", version ",
    " not defined in file ", " with link time reference", ": undefined symbol: ",
    ": file too short", ": invalid ELF header", ": wrong ELF class: ELFCLASS32", ": ELF file ",
    ": only ET_DYN ", ": object file has no ", ": cannot read file data",
    ": failed to map segment from shared object",
]  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=12).map("".join))
def test_causes_agree(native, words):
    """The loader's words mean in C what they mean in Python."""
    # Every line begins with a name, and no version has a line break in it.
    assume(not re.search("^: |version `[^']*\n", words, re.MULTILINE))
    text = Text.of(words)  # the answer points into it
    cause = native.pyr_cause_of_words(text)
    name = str(cause.name) + (f"@{cause.version}" if cause.version.length else "")
    expected = _causes.of_words(words)
    assert (expected.status, expected.name or "", expected.file or "") == (
        STATUSES[cause.status],
        name,
        str(cause.file),
    )


@given(st.lists(st.sampled_from(["cu", "cuda", "I", "nit", "_", "9", "@", "GLIBC_2.1", "-", " "])))
def test_driver_symbols_agree(native, parts):
    """The driver's functions are known by their name."""
    name = "".join(parts)
    assert _causes.is_driver_symbol(name) == native.pyr_cause_is_driver_symbol(Text.of(name))


outcomes = st.tuples(
    st.lists(st.sampled_from(["a", ".", "..", "/", "l\u00ef\nb", "x" * 90, " "])).map("".join),
    st.sampled_from(STATUSES),
    st.lists(st.sampled_from(["s", "\x1b", "\u00e9", "y" * 77, "z" * 140])).map("".join),
)
VERDICTS = {Status.LOADABLE: Verdict.OK, Status.NO_DRIVER: Verdict.UNKNOWN}


@settings(max_examples=500, deadline=None)
@given(st.lists(outcomes, min_size=1, max_size=5))
def test_lines_agree(native, several):
    """The line is the same, byte for byte, however long what is in it."""
    tally, shown = Tally(), []
    names = [os.fsencode(path) for path, _, _ in several]  # which the tally points to
    for name, (path, status, detail) in zip(names, several, strict=True):
        made = Outcome(name, STATUSES.index(status))
        for part in (detail[:100], detail[100:]):
            native.pyr_detail_add(made, Text.of(part))
        native.pyr_tally_add(ctypes.byref(tally), ctypes.byref(made))
        shown.append(
            _brief.Outcome(
                name=os.path.basename(Path(path)),
                verdict=VERDICTS.get(status, Verdict.FAIL),
                status=status.value,
                detail=detail,
            )
        )
    line = ctypes.create_string_buffer(81)
    native.pyr_brief_line(ctypes.byref(tally), line)
    assert _brief.line(shown) == line.value.decode()


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
            _check._preloading(hook, environ)
        assert (variable.value.decode(), False) == (caught.value.variable, bool(made))
        return
    expected = _check._preloading(hook, environ)
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
