"""Programs that take nothing from LD_PRELOAD: what the files tell agrees with what happens."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import stat
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest
from support import elfpatch
from support.compile import cc_text
from support.tools import find_tool, require_privileges, require_tool, unavailable

from pyresolve._disk import elf
from pyresolve._disk.program import refusal

NOBODY = 65534
HOOKED = 42  # the exit status of a program in which the hook took effect
HOOK = "#include <unistd.h>\nstatic void __attribute__((constructor)) on_load(void) { _exit(42); }"

PERMITTED, EFFECTIVE, INHERITABLE = 1, 2, 4  # bits of `which`
PR_SET_NO_NEW_PRIVS = 38  # linux/prctl.h


@pytest.fixture(scope="module")
def here():
    """Return a directory that every user may look into."""
    path = Path(tempfile.mkdtemp(prefix="pyresolve-programs-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def hook(here):
    """Return a library that ends the process that it is loaded into."""
    return cc_text(HOOK, here / "hook.so")


@pytest.fixture
def program(here):
    """Return the function that compiles a program that does nothing."""

    def make(*flags):
        output = Path(tempfile.mkdtemp(dir=here)) / "program"
        output.parent.chmod(0o755)
        output.with_suffix(".c").write_text("int main(void) { return 0; }\n")
        command = [find_tool("gcc") or require_tool("cc"), *flags]
        command += ["-o", output, output.with_suffix(".c")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            unavailable(f"no such program can be linked here: {done.stderr.splitlines()[-1]}")
        return output

    return make


@pytest.fixture
def privileged(here):
    """Refuse to run where no file can be given away, or such files have no effect."""
    require_privileges(here)


def as_user(uid, function, *, no_new_privileges=False):
    """Return what a function returns in a process of another user; None is this one."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if no_new_privileges:
                ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            if uid is not None:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            os.write(writer, json.dumps(function()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(answer)


def takes(file, hook):
    """Tell whether a process that is started from `file` takes a library from LD_PRELOAD."""
    env = {"LD_PRELOAD": os.fspath(hook), "PATH": os.environ["PATH"]}
    status = subprocess.run([file], env=env, capture_output=True, check=False).returncode
    assert status in (0, HOOKED)
    return status == HOOKED


def capabilities(file, which):
    """Give a file the capability CAP_SYS_NICE (23) in some of its sets."""
    nice = 1 << 23
    words = [0x02000000 | bool(which & EFFECTIVE)]
    words += [nice * bool(which & PERMITTED), nice * bool(which & INHERITABLE), 0, 0]
    try:
        os.setxattr(file, "security.capability", struct.pack("<5I", *words))
    except OSError as error:
        unavailable(f"no file capabilities here: {error}")


# --- files of anybody


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], None),
        (["-no-pie"], None),
        (["-static"], "is linked statically"),
        (["-static-pie"], "is linked statically"),
    ],
)
def test_linked(program, hook, flags, words):
    """A static program has no loader that could read LD_PRELOAD."""
    file = os.fspath(program(*flags))
    said = refusal(file)
    assert takes(file, hook) == (said is None)
    assert words is None or said.startswith(f"{file} {words}, so that no loader reads LD_PRELOAD: ")


def test_loader_itself(program):
    """It has no loader of its own and reads LD_PRELOAD for the program that it is given."""
    assert refusal(elf.read(program()).interpreter) is None


@pytest.mark.parametrize(
    ("loader", "words"),
    [
        ("/lib/ld-musl-x86_64.so.1", "musl libc (/lib/ld-musl-x86_64.so.1)"),
        ("/lib/ld-uClibc.so.0", "another C library (/lib/ld-uClibc.so.0)"),
        ("/system/bin/linker64", "another C library (/system/bin/linker64)"),
        ("/nix/store/abc-glibc-2.40/lib/ld-linux-x86-64.so.2", None),
        ("/lib/ld64.so.1", None),
        ("/opt/glibc/lib/ld-2.31.so", None),
    ],
)
def test_c_library(program, loader, words):
    """The loader of another C library does not take a hook for glibc."""
    file = os.fspath(program(f"-Wl,--dynamic-linker={loader}"))
    said = refusal(file)
    assert (words is None) == (said is None)
    assert words is None or f"{file} runs on {words}" in said


def test_other_machine(program):
    """A program for another machine may run here, and takes no library for this one."""
    file = program()
    elfpatch.patch(file, file, {elfpatch.MACHINE: elfpatch.FOREIGN_MACHINE})
    assert refusal(os.fspath(file)).startswith(f"{file} is built for another machine than the hook")


def test_what_tells_nothing(tmp_path):
    """What is no program, or may not be read, is not refused for it."""
    for name, content in (
        ("empty", b""),
        ("text", b"echo\n"),
        ("odd", b"#!\n"),
        ("cut", b"\x7fELF"),
    ):
        (tmp_path / name).write_bytes(content)
        assert refusal(os.fspath(tmp_path / name)) is None
    assert refusal(os.fspath(tmp_path / "absent")) is None
    assert refusal(os.fspath(tmp_path)) is None


# --- scripts


def script(path, line):
    path.write_text(f"#!{line}\n")
    path.chmod(0o755)
    return os.fspath(path)


@pytest.mark.parametrize(
    "line", ["{}", " {} ", "{} -x", "/usr/bin/env {}", "/usr/bin/env -S A=1 {}"]
)
def test_script(program, tmp_path, line):
    """What runs is the interpreter that the first line names."""
    dynamic = program()
    assert refusal(script(tmp_path / "good", line.format(dynamic))) is None
    static = program("-static")
    file = script(tmp_path / "bad", line.format(static))
    said = refusal(file)
    assert said.startswith(f"{file} is run by {static}: {static} is linked statically")
    again = script(tmp_path / "again", file)
    assert refusal(again).startswith(f"{again} is run by {static}: ")


def test_script_by_name(program, tmp_path):
    """Env searches the name on PATH."""
    static = program("-static")
    file = script(tmp_path / "bad", f"/usr/bin/env {static.name}")
    assert refusal(file, os.fspath(tmp_path)) is None
    assert refusal(file, os.fspath(static.parent)).startswith(f"{file} is run by {static}: ")


def test_script_in_a_circle(tmp_path):
    """The kernel gives up as well."""
    assert refusal(script(tmp_path / "a", tmp_path / "a")) is None


# --- programs with privileges


@pytest.mark.parametrize("uid", [None, NOBODY])
@pytest.mark.parametrize(
    ("mode", "owner", "words"),
    [
        (stat.S_ISUID, 0, "set-user-ID"),
        (stat.S_ISUID, NOBODY, "set-user-ID"),
        (stat.S_ISGID, 0, "set-group-ID"),
        (stat.S_ISGID, NOBODY, "set-group-ID"),
    ],
)
def test_set_id(program, hook, privileged, mode, owner, words, uid):
    """The loader drops LD_PRELOAD if the kernel changes the user or the group, and only then."""
    file = os.fspath(program())
    os.chown(file, owner, owner)
    Path(file).chmod(0o755 | mode)
    took, said = as_user(uid, lambda: (takes(file, hook), refusal(file)))
    assert took == (said is None) == (owner == (uid or 0))
    assert said is None or said.startswith(f"{file} is {words}, so that the loader ignores")


def test_set_group_id_without_execution(program, hook, privileged):
    """Without the group's x it once meant mandatory locking: the kernel changes nothing."""
    file = os.fspath(program())
    os.chown(file, 0, NOBODY)
    Path(file).chmod(0o2745)
    assert takes(file, hook)
    assert refusal(file) is None


def test_no_new_privileges(program, hook, privileged):
    """In a container that forbids more privileges the bits have no effect, but capabilities do."""
    file = os.fspath(program())

    def agree():
        return takes(file, hook), refusal(file) is None

    Path(file).chmod(0o6755)
    assert [False, False] == as_user(NOBODY, agree)
    assert [True, True] == as_user(NOBODY, agree, no_new_privileges=True)
    Path(file).chmod(0o755)
    capabilities(file, PERMITTED | EFFECTIVE)
    assert [False, False] == as_user(NOBODY, agree, no_new_privileges=True)


@pytest.mark.parametrize("uid", [None, NOBODY])
@pytest.mark.parametrize(
    "which", [PERMITTED, PERMITTED | EFFECTIVE, INHERITABLE, INHERITABLE | EFFECTIVE]
)
def test_capabilities(program, hook, privileged, which, uid):
    """File capabilities have the same effect, but for root, to whom they give nothing."""
    file = os.fspath(program())
    capabilities(file, which)
    took, said = as_user(uid, lambda: (takes(file, hook), refusal(file)))
    assert took == (said is None) == (uid is None or which == INHERITABLE)
    assert said is None or said.startswith(f"{file} has file capabilities, so that the loader")
