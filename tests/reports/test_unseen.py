"""Kind 6 - What was not looked at passes for absent, or for right.

Whether torch calls the hook, what a process in another mount namespace has mapped, and where a
driver lies that the loader does not find.
"""

from __future__ import annotations

import json
import shutil

import pytest
from support.command import environment, pyresolve
from support.compile import SOURCES, built, cc_text, workshop

from pyresolve import NotLoadableError, Status, Verdict, pick
from pyresolve.health.checks import DEFAULT, run as run_check


def c10_cuda(*flags, exported="c10_*"):
    """Return a libc10_cuda.so with a CUDA runtime linked into it, which exports these names."""
    script = workshop() / f"static-{exported.strip('*')}.map"
    script.write_text(f"{{ global: {exported}; local: *; }};\n")
    c10 = built(SOURCES / "c10.c", "libc10.so", "-Wl,-soname,libc10.so")
    return built(
        SOURCES / "c10_cuda.c",
        "libc10_cuda.so",
        *flags,
        c10,
        SOURCES / "cudart.c",
        "-DVERSION=13000",
        f"-Wl,--version-script={script}",
        "-Wl,-soname,libc10_cuda.so",
        "-Wl,-rpath,$ORIGIN",
    )


@pytest.fixture
def worker(site, full_stub, monkeypatch):
    """Return the site of a GPU node for CUDA 13, and the environment of its workers."""
    site.cuda(13)
    monkeypatch.syspath_prepend(site.root)
    return site, environment(site, libraries=[site.cudart_directory(13), full_stub])


def with_library(site, library):
    """Replace torch's CUDA library."""
    shutil.copy(library, site / "torch/lib/libc10_cuda.so")


@pytest.mark.report("zhuzilin/pytorch-malloc#2", "lupinemachines/lupine#88", "openucx/ucx#6038")
def test_n15_runtime_linked_statically(worker, says):
    """Torch has its own copy of cudart in it: preloaded and mapped, the hook is never called."""
    site, env = worker
    with_library(site, c10_cuda())
    hook, library = site.hook("_cu13"), site / "torch/lib/libc10_cuda.so"
    with pytest.raises(NotLoadableError) as raised:
        pick(environ=env)
    message = says(raised.value)
    assert Status.BYPASSED is raised.value.report.status
    assert f"torch does not call {hook}: {library} leaves none of" in message
    assert "cudaFree, cudaMalloc" in message

    done = pyresolve("doctor", "--json", env=env)
    found = json.loads(done.stdout)
    assert (1, "fail", message) == (done.returncode, found["verdict"], found["error"]["message"])
    assert "does not load here" not in done.stdout  # it does
    for command in (["env"], ["exec", "--", "true"]):
        done = pyresolve(*command, env=env)
        assert (1, "", True) == (done.returncode, done.stdout, message in done.stderr)
    health = run_check(DEFAULT[0], environ=env, timeout=10)
    assert ("bypassed", message) == (health.status, health.message)


def test_like_n15_runtime_that_torch_exports(worker, says):
    """Torch defines cudaMalloc itself, which one it calls is not seen."""
    site, env = worker
    with_library(site, c10_cuda(exported="*"))
    choice = pick(environ=env)
    assert (Verdict.UNKNOWN, Status.NOT_SEEN) == (choice.verdict, choice.report.status)
    assert "defines functions itself that the hook replaces" in says(choice.report.message)
    done = pyresolve("exec", "--", "true", env=env)
    assert (3, True) == (done.returncode, "not run" in done.stderr)


@pytest.mark.parametrize("damage", ["gone", "no symbols"])
def test_like_n15_library_that_cannot_be_read(worker, says, damage):
    """A torch of one piece, or one whose library tells no symbols: nothing was seen, so no OK."""
    site, env = worker
    library = site / "torch/lib/libc10_cuda.so"
    if damage == "gone":
        library.unlink()
    else:
        cc_text("static int a;", library, site.cudart_directory(13) / "libcudart.so.13")
    choice = pick(environ=env)
    assert (Verdict.UNKNOWN, Status.NOT_SEEN) == (choice.verdict, choice.report.status)
    assert f"whether torch calls {site.hook('_cu13')} was not seen" in says(choice.report.message)
    assert 3 == pyresolve("doctor", env=env).returncode


def test_like_n15_hook_for_another_function(worker, says):
    """The hook replaces what this torch does not call; what it calls goes to libcudart."""
    site, env = worker
    text = "int cudaMallocAsync(void **to) { return !to; }"
    cc_text(text, site.hook("_cu13"), site.cudart_directory(13) / "libcudart.so.13")
    with pytest.raises(NotLoadableError) as raised:
        pick(environ=env)
    message = says(raised.value)
    assert Status.BYPASSED is raised.value.report.status
    assert "(cudaMallocAsync) to the loader, only others of libcudart" in message


def test_like_n15_without_a_driver(worker, says, no_driver):
    """On a head node the files say the same: FAIL, and a warning instead of an error."""
    site, _ = worker
    with_library(site, c10_cuda())
    choice = pick(environ=environment(site, libraries=[site.cudart_directory(13)]))
    assert (Verdict.FAIL, Status.BYPASSED) == (choice.verdict, choice.report.status)
    assert "torch does not call" in says(choice.warnings[-1])
