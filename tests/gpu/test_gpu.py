"""The same against a real driver and a real GPU, with the torch and the hook that are installed.

    pytest tests/gpu -m gpu

Everywhere else these tests are skipped, which is no lack of a tool: nothing can stand in for them.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from importlib.util import find_spec

import pytest
from support.command import pyresolve
from support.layout import PRELOAD_STEM
from support.process import cold
from support.tools import unavailable

from pyresolve import Verdict, check, driver, pick
from pyresolve._disk.files import same_file
from pyresolve._model import Status

pytestmark = [pytest.mark.gpu, pytest.mark.serial]

SIZE = 512 << 20  # bytes on the device: far more than a context or a kernel takes meanwhile
NEARLY = SIZE * 3 // 4

# A stub has cuInit as well, and answers 34 (the toolkit's) or 100 (the one of these tests).
COUNT_DEVICES = """
import ctypes, json, sys
cuda = ctypes.CDLL(sys.argv[1])
count = ctypes.c_int(0)
usable = cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
print(json.dumps(count.value if usable else 0))
"""

OWN_RESOLVER = f"""
import json
from torch_memory_saver.utils import get_binary_path_from_package
print(json.dumps(str(get_binary_path_from_package({PRELOAD_STEM!r}))))
"""

TORCH_CHILD = """
import json, torch, pyresolve
torch.zeros(1, device="cuda")
print(json.dumps({"cuda": torch.version.cuda, "audit": pyresolve.audit().to_dict()}))
"""

# The first lines take what the context and the kernels need, so that the rest is the tensor's.
PAUSING_CHILD = f"""
import json, torch
from torch_memory_saver import torch_memory_saver

def free():
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]

assert bool((torch.full((1024,), 7, dtype=torch.uint8, device="cuda") == 7).all())
told = {{"before": free()}}
with torch_memory_saver.region(enable_cpu_backup=True):
    tensor = torch.full(({SIZE},), 7, dtype=torch.uint8, device="cuda")
told["allocated"] = free()
torch_memory_saver.pause()
told["paused"] = free()
torch_memory_saver.resume()
told["resumed"] = free()
told["kept"] = bool((tensor == 7).all())
print(json.dumps(told))
"""


@functools.cache
def why_not():
    """Return why these tests say nothing here; empty on a node with a GPU."""
    found = driver()
    if not found.present:
        return f"no NVIDIA driver: {found.problem}"
    if not cold(COUNT_DEVICES, str(found.path)):
        return f"{found.path} has no device: a stub, or a node whose GPUs are hidden"
    return ""


@pytest.fixture(autouse=True)
def gpu():
    """Skip where there is no GPU; where there is one, torch and the hook have to be there too."""
    if reason := why_not():
        pytest.skip(reason)
    for name in ("torch", "torch_memory_saver"):
        if find_spec(name) is None:
            unavailable(f"{name} is not installed beside these tests")


@pytest.fixture
def env():
    """Return the environment as it is, less what torch_memory_saver refuses to work with."""
    unwanted = ("LD_PRELOAD", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "TMS_INIT_ENABLE")
    return {name: value for name, value in os.environ.items() if name not in unwanted}


def under_exec(code, env):
    """Run a snippet under `pyresolve exec` and return the JSON in its last line."""
    done = pyresolve("exec", "--", sys.executable, "-c", code, env=env, timeout=300)
    assert 0 == done.returncode, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_pick_is_what_the_package_picks(env):
    """And it is verified: a GPU node is like its workers."""
    choice = pick(environ=env)
    assert (Verdict.OK, Status.LOADABLE) == (choice.verdict, choice.report.status)
    assert cold(OWN_RESOLVER, env=env, timeout=300) == str(choice)


@pytest.mark.parametrize("mode", ["dlopen", "preload"])
def test_check_beside_the_driver(env, mode):
    """The hook loads in the environment that env() makes; the driver that it maps is the real."""
    choice = pick(environ=env)
    change = choice.env(env, pin="library_path")
    report = check(choice, mode=mode, environ={**env, **change})
    assert (Verdict.OK, Status.LOADABLE) == (report.verdict, report.status)
    assert driver(environ=env).version == report.driver.version


def test_rehearsal_comes_true(env):
    """A worker that has torch and a context is as the rehearsal said: hooked, with one runtime."""
    choice = pick(environ=env)
    told = under_exec(TORCH_CHILD, env)
    assert choice.cuda_major == int(told["cuda"].split(".")[0])
    audit = told["audit"]
    assert ("ok", True, []) == (audit["verdict"], audit["active"], audit["findings"])
    assert same_file(choice.path, audit["hook"])
    (runtime,) = audit["runtimes"]
    assert same_file(choice.runtime.path, runtime)


def test_pause_gives_device_memory_back(env):
    """A tensor of a region leaves the device on pause, and is back with its values on resume."""
    told = under_exec(PAUSING_CHILD, env)
    assert told["before"] - told["allocated"] > NEARLY
    assert told["paused"] - told["allocated"] > NEARLY
    assert told["paused"] - told["resumed"] > NEARLY
    assert told["kept"]


def test_benchmark(env, tmp_path):
    """It measures the hook itself, and everything it is compared with but what is not installed."""
    file = tmp_path / "bench.json"
    done = pyresolve("bench", "--quick", "--json", file, env=env, timeout=900)
    assert 0 == done.returncode, done.stdout + done.stderr
    document = json.loads(file.read_text())
    assert (True, []) == (document["complete"], document["problems"])
    assert str(pick(environ=env)) == document["target"]["path"]
    assert driver(environ=env).version == document["machine"]["driver"]
    missing = {row["name"] for row in document["methods"] if row["problem"]}
    assert missing <= {"ldd", "pathfinder"}, missing
