"""The wheels on another system with the real hooks for it: arm64, or any root directory.

PYRESOLVE_TEST_SYSTEM names the root of another x86-64 system, as tests/packaging/systems.sh does.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from pathlib import Path

import pytest
from support import AMPLE, HANG, MODES, rogues
from support.compile import SOURCES
from support.driver import full_stub
from support.lines import HANGING, HOOKS, ROGUES, STATES
from support.probe_program import answer
from support.release import release_wheel
from support.system import System, arm64
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
def system(tmp_path_factory):
    """Return the system, with the release's wheel, the real hooks and runtimes, and the rogues."""
    if platform.machine() != "x86_64":
        pytest.skip("the wheels are built and tried on another system from x86-64 only")
    here = tmp_path_factory.mktemp("system")
    root = os.environ.get("PYRESOLVE_TEST_SYSTEM")
    system = System(Path(root), here, "x86_64") if root else arm64(here)
    site = unpack(release_wheel(system.machine), here / "site")
    data = next(site.glob("*.data"))  # as pip --target places what lies in there
    shutil.move(data / "scripts", site / "bin")
    shutil.move(data / "data" / "libexec", site / "libexec")
    for program in [*site.glob("bin/*"), *site.rglob("pyresolve-*")]:
        program.chmod(0o755)
    machine = "" if system.machine == platform.machine() else system.machine
    unpack(wheel(TMS, VERSION, machine), site)
    for version in CUDART_VERSIONS.values():
        unpack(cudart_wheel(version, machine), site)
    shutil.copytree(full_stub(compiler=system.compiler), here / "driver")
    (here / "rogues").mkdir()
    for name in rogues.NAMES:
        library = rogues.made(
            name,
            system.compiled,
            lambda soname: system.compiled(SOURCES / "hollow.c", soname, f"-Wl,-soname,{soname}"),
            system.machine,
        )
        shutil.copy(library, here / "rogues")
    return system


def probe(system, library, mode, timeout=AMPLE, **env):
    options = ["--mode", mode, "--timeout", f"{timeout:g}"]
    done = system.run(PROBE, "check", *options, library, env=env)
    return done.returncode, done.stdout, done.stderr


def python(system, *arguments, **env):
    return system.run(system.python, *arguments, env={"PYTHONPATH": SITE, **env})


def library_path(state):
    return STATES[state].format(**PLACES)


# --- the program


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ROGUES)
def test_rogues(system, name, mode):
    """Each rogue has the line that it has everywhere."""
    timeout = HANG if name in HANGING else AMPLE
    done = probe(system, f"/here/rogues/{name}.so", mode, timeout)
    assert answer(ROGUES[name][MODES.index(mode)]) == done


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("state", [state for state in STATES if "toolkit" not in state])
@pytest.mark.parametrize("end", [end for version, end in HOOKS if version == VERSION])
def test_hooks(system, end, state, mode):
    """Each real hook has the line that it has everywhere: FAIL, UNKNOWN, or OK with a driver."""
    line = HOOKS[VERSION, end][list(STATES).index(state)][MODES.index(mode)]
    hook = f"{SITE}/torch_memory_saver_hook_mode_{end}.abi3.so"
    assert answer(line) == probe(system, hook, mode, LD_LIBRARY_PATH=library_path(state))


# --- the package


REPORTS = """
import json, platform, sys
import pyresolve

hook, *places = sys.argv[1:]
reports = [
    pyresolve.check(hook, mode=mode, environ={"LD_LIBRARY_PATH": place}, timeout=60)
    for place in places
    for mode in ("dlopen", "preload")
]
print(json.dumps([platform.machine(), [(r.verdict.name, r.status.name) for r in reports]]))
"""


def test_check(system):
    """The package is imported, and check() goes from FAIL over UNKNOWN to OK."""
    places = map(library_path, ("nothing", "a runtime", "a runtime and a driver"))
    done = python(system, "-c", REPORTS, HOOK, *places)
    fail, unknown, ok = "MISSING_DEPENDENCY", "NO_DRIVER", "LOADABLE"
    pairs = [["FAIL", fail]] * 2 + [["UNKNOWN", unknown]] * 2 + [["OK", ok]] * 2
    assert "" == done.stderr
    assert [system.machine, pairs] == json.loads(done.stdout)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["doctor"], "verdict       OK: "),
        (["pick"], f"{HOOK}\n"),
        (["env"], f"export LD_PRELOAD={HOOK}\n"),
        (["exec", "--", "PYTHON", "-c", "print(open('/proc/self/maps').read())"], HOOK),
        (["health"], "OK 2 checks\n"),
        (["check", "--mode", "preload", HOOK], "OK"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_commands(system, command, said):
    """The commands answer as on any node with a driver."""
    command = [system.python if word == "PYTHON" else word for word in command]
    done = python(
        system,
        *["-m", "pyresolve", *command],
        LD_LIBRARY_PATH=library_path("a runtime and a driver"),
        PYRESOLVE_CUDA="13",
        PYRESOLVE_TIMEOUT="60",
    )
    assert (0, "") == (done.returncode, done.stderr)
    assert said in done.stdout
