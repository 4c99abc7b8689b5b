"""A release installed as users do, with a compiler and without; the README's commands run."""

from __future__ import annotations

import os
import re
import shutil
import sys

import pytest
from support import MODES, driver
from support.command import run
from support.layout import Site
from support.release import MACHINES, release_file, release_wheel, tools, zig
from support.tools import require_tool

MACHINE = os.uname().machine

pytestmark = pytest.mark.skipif(MACHINE not in MACHINES, reason="no wheel is for this machine")


def pip(*arguments, python=sys.executable, **env):
    """Run pip, which must succeed."""
    command = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    done = run([*command, "--quiet", *arguments], env={**os.environ, **env})
    assert 0 == done.returncode, done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return an environment in which the wheel was installed without a compiler."""
    site = Site.in_venv(tmp_path_factory.mktemp("installed") / "venv")
    path = str(site.python.parent)
    assert shutil.which("cc", path=path) is shutil.which("gcc", path=path) is None
    pip("install", "--only-binary", ":all:", release_wheel(MACHINE), python=site.python, PATH=path)
    site.tms().cudart(13)
    return site


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["pyresolve", "doctor"], "verdict       OK: "),
        (["pyresolve", "check", "{hook}"], "OK"),
        (["pyresolve", "check", "--mode", "preload", "{hook}"], "OK"),
        (["pyresolve", "pick"], "{hook}\n"),
        (["pyresolve", "env"], "export LD_PRELOAD={hook}\n"),
        (
            ["pyresolve", "exec", "--", "python", "-c", "print(open('/proc/self/maps').read())"],
            "{hook}",
        ),
        (["pyresolve", "health"], "OK 2 checks\n"),
        (["pyresolve-probe", "check", "--mode", "preload", "{hook}"], "OK loadable"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_commands(site, command, said):
    """The README's commands answer in an environment that has no other program."""
    hook = site.hook("_cu13")
    libraries = f"{site.cudart_directory(13)}:{driver.full_stub()}"
    env = {"PATH": str(site.python.parent), "LD_LIBRARY_PATH": libraries, "PYRESOLVE_CUDA": "13"}
    command = [part.format(hook=hook) for part in command]
    done = run([site.python.with_name(command[0]), *command[1:]], env=env)
    assert (0, "") == (done.returncode, done.stderr)
    assert said.format(hook=hook) in done.stdout


@pytest.mark.parametrize(
    "options", [["--target", "{}"], ["--prefix", "{}"], ["--user"]], ids=" ".join
)
def test_schemes(rogue, clean_env, tmp_path, options):
    """pyresolve-probe finds its helper in each layout that pip makes."""
    own = tmp_path / "own"
    options = [option.format(own) for option in options]
    pip(
        *["install", "--no-deps", "--no-index", "--break-system-packages", *options],
        release_wheel(MACHINE),
        python=os.path.realpath(sys.executable),  # a venv takes no --user
        PYTHONUSERBASE=str(own),
    )
    assert_probes(own, rogue, clean_env)


def assert_probes(own, rogue, env):
    for mode in MODES:
        command = [own / "bin" / "pyresolve-probe", "check", "--mode", mode, rogue("good")]
        done = run(command, env=env)
        assert (0, "OK loadable (good.so)\n", "") == (done.returncode, done.stdout, done.stderr)


# --- from the sdist


def build(directory, **env):
    """Build a wheel of the sdist with the packages that make wheels has installed."""
    command = [tools() / "python", "-m", "pip", "wheel", "--disable-pip-version-check", "--verbose"]
    command += ["--no-deps", "--no-build-isolation", "--wheel-dir", directory]
    path = f"{tools()}{os.pathsep}{os.environ['PATH']}"
    # Under `make -j` ninja would warn about the pipe of its jobs.
    own = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    env = {**own, "PATH": path, **env}
    command.append(release_file("pyresolve_native-*.tar.gz"))
    return run(command, env=env, timeout=300)


def test_sdist_with_gcc(rogue, clean_env, tmp_path):
    """The sdist builds with gcc, without a warning, into a package that works."""
    done = build(tmp_path, CC=require_tool("gcc"))
    assert 0 == done.returncode, done.stderr
    assert re.findall(".*warning:.*", done.stdout + done.stderr) == []
    (wheel,) = tmp_path.glob("*.whl")
    pip("install", "--no-deps", "--no-index", "--target", tmp_path / "own", wheel)
    assert_probes(tmp_path / "own", rogue, clean_env)
    code = "import pyresolve, sys; print(pyresolve.check(sys.argv[1]).status.name)"
    env = {**clean_env, "PYTHONPATH": str(tmp_path / "own")}
    done = run([sys.executable, "-c", code, rogue("good")], env=env)
    assert ("LOADABLE\n", "") == (done.stdout, done.stderr)


def test_sdist_with_musl(tmp_path):
    """Another C library ends the build with a sentence that says what is wanted."""
    compiler = tmp_path / "cc"
    words = " ".join(zig(f"{MACHINE}-linux-musl"))
    compiler.write_text(f'#!/bin/sh\nexec {words} -O2 -s "$@"\n')
    compiler.chmod(0o755)
    done = build(tmp_path, CC=str(compiler))
    assert 0 != done.returncode
    said = " ".join((done.stdout + done.stderr).split())
    assert "the C library here is another (musl?): use an image with glibc" in said
    assert list(tmp_path.glob("*.whl")) == []
