"""The aarch64 wheel on an arm64 machine that qemu runs, with the real hooks for it."""

from __future__ import annotations

import functools
import json
import platform
import shutil
from pathlib import Path

import pytest
from support import AMPLE, HANG, MODES, rogues
from support.arm64 import TARGET, Arm64, compiled
from support.compile import SOURCES, workshop
from support.driver import full_stub
from support.lines import HANGING, HOOKS, ROGUES, STATES
from support.probe_program import answer
from support.release import release_wheel, zig
from support.wheels import CUDART_VERSIONS, TMS, cudart_wheel, unpack, wheel

VERSION = "0.0.10"
SITE = "/here/site"
PROBE = f"{SITE}/bin/pyresolve-probe"
PLACES = {
    "cudart12": f"{SITE}/nvidia/cuda_runtime/lib",
    "cudart13": f"{SITE}/nvidia/cu13/lib",
    "driver": "/here/driver",
}
HOOK = f"{SITE}/torch_memory_saver_hook_mode_preload_cu13.abi3.so"


@pytest.fixture(scope="module")
def arm64(tmp_path_factory):
    """Return the machine, with the release's wheel and the real hooks and runtimes for it."""
    if platform.machine() != "x86_64":
        pytest.skip("this machine is none of x86-64: the other tests run on its own wheel")
    here = tmp_path_factory.mktemp("arm64")
    site = unpack(release_wheel("aarch64"), here / "site")
    data = next(site.glob("*.data"))  # as pip --target places what lies in there
    shutil.move(data / "scripts", site / "bin")
    shutil.move(data / "data" / "libexec", site / "libexec")
    for program in [*site.glob("bin/*"), *site.rglob("pyresolve-*")]:
        program.chmod(0o755)
    unpack(wheel(TMS, VERSION, "aarch64"), site)
    for version in CUDART_VERSIONS.values():
        unpack(cudart_wheel(version, "aarch64"), site)
    shutil.copytree(full_stub(compiler=zig(TARGET)), here / "driver")
    shutil.copytree(Path(rogue_directory()), here / "rogues")
    return Arm64(here)


@functools.cache
def rogue_directory():
    """Return a directory with all rogues, compiled for arm64."""
    directory = workshop() / "arm64-rogues"
    directory.mkdir()
    for name in rogues.NAMES:
        shutil.copy(rogues.made(name, compiled, hollow, "aarch64"), directory)
    return directory


@functools.cache
def hollow(soname):
    return compiled(SOURCES / "hollow.c", soname, f"-Wl,-soname,{soname}")


def probe(arm64, library, mode, timeout=AMPLE, **env):
    options = ["--mode", mode, "--timeout", f"{timeout:g}"]
    done = arm64.run(PROBE, "check", *options, library, env=env)
    return done.returncode, done.stdout, done.stderr


def python(arm64, *arguments, **env):
    return arm64.run("/usr/bin/python3", *arguments, env={"PYTHONPATH": SITE, **env})


def library_path(state):
    return STATES[state].format(**PLACES)


# --- the program


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ROGUES)
def test_rogues(arm64, name, mode):
    """Each rogue has the line that it has on x86-64."""
    timeout = HANG if name in HANGING else AMPLE
    done = probe(arm64, f"/here/rogues/{name}.so", mode, timeout)
    if name == "kill_parent":  # it kills the program
        assert -9 == done[0] or 137 == done[0]
        return
    assert answer(ROGUES[name][MODES.index(mode)]) == done


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("state", [state for state in STATES if "toolkit" not in state])
@pytest.mark.parametrize("end", [end for version, end in HOOKS if version == VERSION])
def test_hooks(arm64, end, state, mode):
    """Each real hook has the line that it has on x86-64: FAIL, UNKNOWN, or OK with a driver."""
    line = HOOKS[VERSION, end][list(STATES).index(state)][MODES.index(mode)]
    hook = f"{SITE}/torch_memory_saver_hook_mode_{end}.abi3.so"
    assert answer(line) == probe(arm64, hook, mode, LD_LIBRARY_PATH=library_path(state))


# --- the package


REPORTS = """
import json, os, platform, sys
import pyresolve

hook, *places = sys.argv[1:]
reports = [
    pyresolve.check(hook, mode=mode, environ={"LD_LIBRARY_PATH": place}, timeout=60)
    for place in places
    for mode in ("dlopen", "preload")
]
print(json.dumps([platform.machine(), [(r.verdict.name, r.status.name) for r in reports]]))
"""


def test_check(arm64):
    """The package is imported, and check() goes from FAIL over UNKNOWN to OK."""
    states = "nothing", "a runtime", "a runtime and a driver"
    done = python(arm64, "-c", REPORTS, HOOK, *map(library_path, states))
    assert "" == done.stderr
    fail, unknown, ok = (
        ["FAIL", "MISSING_DEPENDENCY"],
        ["UNKNOWN", "NO_DRIVER"],
        ["OK", "LOADABLE"],
    )
    assert ["aarch64", [fail, fail, unknown, unknown, ok, ok]] == json.loads(done.stdout)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["pick"], f"{HOOK}\n"),
        (["env"], f"export LD_PRELOAD={HOOK}\n"),
        (["exec", "--", "/usr/bin/python3", "-c", "print(open('/proc/self/maps').read())"], HOOK),
        (["health"], "OK 2 checks\n"),
        (["check", "--mode", "preload", HOOK], "OK"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_commands(arm64, command, said):
    """The commands answer as on any node with a driver."""
    done = python(
        arm64,
        "-m",
        "pyresolve",
        *command,
        LD_LIBRARY_PATH=library_path("a runtime and a driver"),
        PYRESOLVE_CUDA="13",
        PYRESOLVE_TIMEOUT="60",
    )
    assert (0, "") == (done.returncode, done.stderr)
    assert said in done.stdout
