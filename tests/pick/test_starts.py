"""How many processes one warm pick() starts."""

from __future__ import annotations

import os
import re
import sys

import pytest
from support import elfpatch
from support.command import run
from support.tools import require_tool

CODE = """
import os, sys
sys.path.append(sys.argv[1])
import pyresolve
pyresolve.pick()
os.write(2, b"<warm>")
pyresolve.pick()
os.write(2, b"<done>")
"""


def torch_beside_its_runtime(site, path):
    """Lay out torch's own libcudart out of the loader's reach; return the libraries in it."""
    site.tms().torch("13.0").cudart(13)
    return []


def torch_on_the_path(site, path):
    """Lay out torch's own libcudart in LD_LIBRARY_PATH."""
    site.tms().torch("13.0")
    return [site.cudart(13)]


def both_majors(site, path):
    """Lay out the runtimes of both majors, the other one in LD_LIBRARY_PATH."""
    site.tms().torch("13.0").cudart(13)
    return [site.cudart(12)]


def another_copy_on_the_path(site, path):
    """Lay out another libcudart of the same major in LD_LIBRARY_PATH."""
    site.tms().torch("13.0")
    copy = path / "copy"
    copy.mkdir()
    file = site.cudart(13) / "libcudart.so.13"
    (copy / file.name).write_bytes(file.read_bytes())
    return [copy]


def runtime_without_torch(site, path):
    """Lay out a runtime in LD_LIBRARY_PATH and no torch."""
    site.tms()
    return [site.cudart(12)]


LAYOUTS = (
    torch_beside_its_runtime,
    torch_on_the_path,
    both_majors,
    another_copy_on_the_path,
    runtime_without_torch,
)


def starts(site, libraries, clean_env):
    """Return how many processes the caller starts in its second pick()."""
    strace = require_tool("strace")
    env = {**clean_env, "LD_LIBRARY_PATH": ":".join(map(os.fspath, libraries))}
    calls = "trace=clone,clone3,fork,vfork,write"
    traced = [strace, "-qq", "-s", "16", "-e", calls, sys.executable, "-P", "-c", CODE, site.root]
    done = run(traced, env=env, cwd="/")
    assert 0 == done.returncode, done.stderr
    second = done.stderr[done.stderr.index('"<warm>"') : done.stderr.index('"<done>"')]
    return len(re.findall(r"^(?:clone3?|v?fork)\(", second, re.M))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="python -P")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("driver", [False, True], ids=["no driver", "driver"])
def test_one_start(site, tmp_path, clean_env, full_stub, layout, driver):
    """The loads and the rehearsal of the plan need one process of the caller's."""
    libraries = [*layout(site, tmp_path), *([full_stub] if driver else [])]
    assert 1 == starts(site, libraries, clean_env)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="python -P")
def test_second_start(site, tmp_path, clean_env, full_stub):
    """The loader passes over a 32-bit libcudart that LD_LIBRARY_PATH has before torch's own."""
    site.tms().torch("13.0")
    directory = site.cudart(13)
    other = tmp_path / "lib32"
    other.mkdir()
    name = "libcudart.so.13"
    elfpatch.patch(directory / name, other / name, {elfpatch.CLASS: elfpatch.CLASS_32})
    assert 2 == starts(site, [other, directory, full_stub], clean_env)
