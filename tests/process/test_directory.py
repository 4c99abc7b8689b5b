"""The current directory was deleted: what does not depend on it works, what does is not found."""

from __future__ import annotations

import sys

import pytest
from support import MODES
from support.command import COMMAND, environment, run
from support.layout import Site
from support.probe_program import probe
from support.process import cold
from support.rogues import rogue
from support.tools import require_tool


@pytest.fixture
def gone():
    """Return what starts a command in a directory that is deleted before."""
    script = 'there=$(mktemp -d) && cd "$there" && rmdir "$there" && exec "$@"'
    return [require_tool("sh"), "-c", script, "sh"]


@pytest.fixture
def site_with_cuda(tmp_path):
    return Site(tmp_path / "site-packages").cuda(13)


@pytest.mark.parametrize("mode", MODES)
def test_check(gone, clean_env, mode):
    """A whole path is checked as anywhere, and nothing lies below a directory that is gone."""
    code = """
        import json, sys
        from pathlib import Path
        from pyresolve import HealthMonitor, check

        mode, *names = sys.argv[1:]
        found = [check(name, mode=mode) for name in names]
        found += [check(Path("libm.so.6"), mode=mode)]  # a path is not searched
        monitor = HealthMonitor()
        health = [monitor.check(name, mode=mode, timeout=20) for name in names]
        print(json.dumps([[item.status.name for item in found], [item.status for item in health]]))
    """
    names = [str(rogue("good")), "libm.so.6", "./good.so", "../good.so", "a/../b.so"]
    reports, health = cold(code, mode, *names, env=clean_env, prefix=gone, cwd="/")
    expected = ["LOADABLE", "LOADABLE", "NOT_FOUND", "NOT_FOUND", "NOT_FOUND"]
    assert [*expected, "NOT_FOUND"] == reports
    assert [name.lower() for name in expected] == health
    for name, status in zip(names, expected, strict=True):
        said = probe(name, env=clean_env, mode=mode, prefix=gone)[1]
        assert said.split()[1].strip(":") == status.lower()


@pytest.mark.parametrize("python", [[], ["--python"]])
@pytest.mark.parametrize("extra", [{}, {"LD_LIBRARY_PATH": "lib:"}])
def test_commands(site_with_cuda, full_stub, gone, python, extra):
    """Nothing breaks, also on a relative entry of LD_LIBRARY_PATH."""
    env = environment(site_with_cuda, libraries=[full_stub])
    for name, value in extra.items():
        env[name] = f"{env[name]}:{value}" if env.get(name) else value
    python = [*python, sys.executable] if python else []
    for command in (["pick"], ["env"], ["doctor"], ["exec"]):
        words = ["--", "true"] if command == ["exec"] else []
        done = run([*gone, COMMAND, *command, *python, *words], env=env)
        assert (0, False) == (done.returncode, "Traceback" in done.stderr), done.stderr
    done = run([*gone, COMMAND, "health", "--timeout", "20"], env=env)
    assert (0, "OK 3 checks\n") == (done.returncode, done.stdout)
    done = run([*gone, COMMAND, "check", "./x.so"], env=env)
    assert (1, "FAIL\tNOT_FOUND\tx.so does not exist") == (done.returncode, done.stdout[:34])


def test_others(site_with_cuda, full_stub, gone):
    """The API answers, and finds no interpreter there; sys.path has relative entries."""
    code = """
        import json, sys
        import pyresolve
        sys.path[:0] = ["", "sub"]
        pyresolve.audit()
        pyresolve.pick()
        found = [pyresolve.driver().present, len(pyresolve.runtimes())]
        try:
            pyresolve.runtimes(python="./python")
        except pyresolve.InterpreterError as error:
            found.append(str(error))
        print(json.dumps(found))
    """
    env = environment(site_with_cuda, libraries=[full_stub])
    env["LD_LIBRARY_PATH"] += ":lib"
    present, count, said = cold(code, env=env, prefix=gone)
    assert (True, True) == (present, count > 0)
    assert "python cannot be started (No such file or directory)" in said
