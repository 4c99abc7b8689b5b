"""Python extensions: what the interpreter defines counts as defined, and nothing else does."""

from __future__ import annotations

import importlib.machinery
import json
import os
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest
from support import process
from support.compile import cc_text
from support.probe_program import probe
from support.tools import require_tool, require_unshare, unavailable

from pyresolve import InterpreterError, Verdict, check
from pyresolve._disk import interpreter_stub, symbols
from pyresolve._model import Status

EXTENSION = """
    extern void *PyExc_ValueError;
    void *PyErr_Occurred(void);
    void *PyInit_extension(void) { return PyErr_Occurred() ? PyExc_ValueError : 0; }
"""


@pytest.fixture
def build(tmp_path):
    """Return a function that compiles an extension with more text, under a name of one's choice."""

    def built(text="", *flags, name="extension.so"):
        return cc_text(f"{EXTENSION}\n{text}", tmp_path / name, *flags)

    return built


def another_python():
    """Return an interpreter that is another file than ours."""
    own = os.path.realpath(sys.executable)
    for directory in ("/usr/bin", "/usr/local/bin"):
        path = shutil.which("python3", path=directory)
        if path and os.path.realpath(path) != own:
            return path
    return unavailable("there is no other interpreter")


def test_extension_loads(build, clean_env):
    """An extension that a plain dlopen refuses is OK, with what this interpreter defines."""
    report = check(build(), environ=clean_env)
    assert (Verdict.OK, Status.LOADABLE) == (report.verdict, report.status)
    assert not [path for path in report.loaded if "proc" in path.parts]


def test_other_interpreter(build, clean_env):
    """The interpreter of the workers may be another one than this."""
    python = another_python()
    assert check(build(), python=python, environ=clean_env).verdict is Verdict.OK
    env = {**clean_env, "PATH": os.path.dirname(python)}
    assert check(build(), python=os.path.basename(python), environ=env).verdict is Verdict.OK


@pytest.mark.parametrize("use", ["Py_NeverThere()", "_PyNeverThere()"])
def test_symbol_that_this_interpreter_lacks(build, clean_env, use):
    """A function that only another Python has is a failure with both names."""
    name = use.partition("(")[0]
    library = build(f"void *{name}(void);\nvoid *f(void) {{ return {use}; }}")
    report = check(library, environ=clean_env)
    assert (Status.WRONG_PYTHON, name) == (report.status, report.detail)
    assert report.message == (
        f"{library} uses {name}, which {sys.executable} does not define: it is built for another"
        " Python; reinstall it with the workers' interpreter"
    )


def test_tag_of_another_python(build, clean_env):
    """A file that is named for another Python would never be imported by this one."""
    ours = f"cpython-{sys.version_info.major}{sys.version_info.minor}"
    suffix = next(s for s in importlib.machinery.EXTENSION_SUFFIXES if "cpython" in s)
    assert check(build(name=f"mine{suffix}"), environ=clean_env).verdict is Verdict.OK
    assert check(build(name="stable.abi3.so"), environ=clean_env).verdict is Verdict.OK
    for tag in ("cpython-27m", "cpython-399", "cpython-399t", "pypy39-pp73"):
        library = build(name=f"other.{tag}-x86_64-linux-gnu.so")
        report = check(library, environ=clean_env)
        assert (Status.WRONG_PYTHON, tag) == (report.status, report.detail)
        assert f"is named for {tag}, and {sys.executable} takes {ours}" in report.message


def test_other_gap_of_an_extension(build, clean_env):
    """What Python does not define is as undefined as in any other library."""
    library = build("int nowhere(void);\nint f(void) { return nowhere(); }")
    report = check(library, environ=clean_env)
    assert (Status.UNDEFINED_SYMBOL, ("nowhere",)) == (report.status, report.undefined)


@pytest.mark.parametrize("of_workers", [False, True])
def test_constructor_that_calls_python(build, clean_env, of_workers):
    """No interpreter runs in the trial: what a constructor makes of that is no verdict."""
    library = build("__attribute__((constructor)) static void f(void) { PyErr_Occurred(); }")
    python = another_python() if of_workers else None
    report = check(library, python=python, environ=clean_env)
    assert (Verdict.UNKNOWN, Status.NO_PYTHON) == (report.verdict, report.status)
    assert "no Python interpreter runs in it" in report.message


def test_interpreter_that_cannot_be_reached(build, clean_env):
    """What stands for an executable is opened through /proc; without that the verdict is open."""
    script = 'mount -t tmpfs none /proc && exec "$@"'
    prefix = [require_unshare(), "-rm", require_tool("sh"), "-c", script, "sh"]
    code = """
        import json, sys
        from pyresolve import check
        report = check(sys.argv[1], python=sys.argv[2])
        print(json.dumps([report.status.name, report.message]))
    """
    words = build(), another_python()
    status, message = process.cold(code, *words, prefix=prefix, env=clean_env)
    assert "NO_PYTHON" == status
    assert "cannot be opened through /proc" in message


def test_no_interpreter_at_all(build, clean_env, tmp_path):
    """A script, another program and no file: each is named, and the verdict is open."""
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\nexec {sys.executable}\n")
    script.chmod(0o755)
    for python in (script, require_tool("true"), tmp_path / "nowhere"):
        report = check(build(), python=python, environ=clean_env)
        assert (Verdict.UNKNOWN, Status.NO_PYTHON) == (report.verdict, report.status)
        assert f"{python} defines nothing of Python's" in report.message
    with pytest.raises(InterpreterError):
        check(build(), python="", environ=clean_env)


def test_probe_program(build, clean_env):
    """pyresolve-probe knows no interpreter: it leaves the question open."""
    status, line = probe(build(), env=clean_env)[:2]
    assert (3, "UNKNOWN no_python: PyExc_ValueError (extension.so)") == (status, line.strip())


def test_as_a_preload(build, clean_env):
    """A preload is in every process, the shell included, where no Python defines anything."""
    report = check(build(), mode="preload", environ=clean_env)
    assert Status.UNDEFINED_SYMBOL is report.status


def test_extension_beside_a_missing_driver(build, clean_env, tmp_path):
    """An extension that links the driver is as UNKNOWN without one as any other library."""
    text = "int cuInit(unsigned);\nint f(void) { return cuInit(0); }"
    soname = "-Wl,-soname,libcuda.so.1"
    driver = cc_text("int cuInit(unsigned f) { return (int)f; }", tmp_path / "libcuda.so.1", soname)
    report = check(build(text, driver), environ=clean_env)
    assert (Verdict.UNKNOWN, Status.NO_DRIVER) == (report.verdict, report.status)


def test_every_extension_of_this_interpreter(clean_env):
    """The modules of the standard library agree with what the interpreter does with them."""
    libraries = sorted(Path(sysconfig.get_config_var("DESTSHARED")).glob("*.so"))
    assert libraries
    code = """
        import ctypes, json, os, sys
        def loads(path):
            pid = os.fork()
            if pid == 0:
                try:
                    ctypes.CDLL(path)
                finally:
                    os._exit(0 if sys.exc_info()[0] is None else 1)
            return os.waitpid(pid, 0)[1] == 0
        print(json.dumps([loads(path) for path in sys.argv[1:]]))
    """
    expected = process.cold(code, *libraries, env=clean_env)
    assert [True] * len(libraries) == expected
    wrong = [(path, report.message) for path in libraries if not _works(report := check(path))]
    assert [] == wrong


def _works(report):
    return report.verdict is Verdict.OK


def test_stub_defines_what_the_interpreter_does(tmp_path):
    """The stand-in has all that is exported, and only that."""
    own = symbols.exported(another_python())
    assert {b"Py_IsInitialized", b"PyExc_ValueError"} < {symbol.name for symbol in own}
    stub = tmp_path / "stub.so"
    stub.write_bytes(interpreter_stub.build(own) or b"")
    made = symbols.exported(stub)
    assert {symbol.name for symbol in own} == {symbol.name for symbol in made}


def _files():
    code = """
        import json
        with open("/proc/self/maps") as maps:
            paths = {line.split(maxsplit=5)[5].rstrip() for line in maps if "/" in line}
        print(json.dumps([p for p in sorted(paths) if "python3" in p and "lib-" not in p]))
    """
    return process.cold(code)


def test_hostile_files_have_no_symbols(tmp_path):
    """A file whose tables lie has no symbols, and takes no time."""
    source = Path(shutil.copy(_files()[0], tmp_path / "library"))
    data = source.read_bytes()
    for cut in (0, 16, 64, 1000, len(data) // 2):
        source.write_bytes(data[:cut])
        symbols.exported(source)
    for at in range(64, 4096, 24):
        source.write_bytes(data[:at] + b"\xff" * 8 + data[at + 8 :])
        symbols.exported(source)
    assert json.dumps([]) == json.dumps(list(symbols.exported(tmp_path)))
