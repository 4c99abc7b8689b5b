"""Kind 3 - LD_PRELOAD mechanics.

What a variable that is split and inherited, and a loader that skips or dies, make of a good hook.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import elfpatch
from support.command import COMMAND, environment, pyresolve, run
from support.compile import cc_text, hollow
from support.driver import full_stub as driver_stub
from support.hidden import mounted
from support.layout import PRELOAD_STEM, Site, fake_cudart
from support.process import cold, poll
from support.tools import find_tool, require_tool, unavailable
from support.worker import mapped, worker_command

from pyresolve import (
    InterpreterError,
    NotLoadableError,
    NoVariantError,
    Status,
    UnrepresentablePathError,
    Verdict,
    audit,
    check,
    driver,
    pick,
)

MAJOR = 99  # a CUDA that no machine has installed: only what a test lays down is found
CUDART = f"libcudart.so.{MAJOR}"
PYTHON = worker_command()


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """Return a site with the real hooks, torch for CUDA 13 and its runtime from pip."""
    return Site(tmp_path_factory.mktemp("node") / "site-packages").cuda(13)


@pytest.fixture
def future(site, monkeypatch):
    """Return a site whose hook, torch and runtime are for a CUDA that no machine has."""
    site.package("torch_memory_saver", "1.0").torch(f"{MAJOR}.0", f"9.9.0+cu{MAJOR}0")
    site.fake_hook(MAJOR)
    site.fake_cudart(MAJOR)
    monkeypatch.syspath_prepend(site.root)
    return site


@pytest.fixture
def build(tmp_path):
    """Return a function that compiles a C text into a library."""

    def compiled(name, text, *flags):
        return cc_text(text, tmp_path / name, *flags)

    return compiled


def program(env, **preload):
    """Start the smallest program there is; return its status and the loader's words."""
    done = run([require_tool("true")], env={**env, **preload})
    return done.returncode, done.stderr


# --- R34: what was preloaded before


@pytest.mark.report(
    "Tencent-Hunyuan/UniRL#468", "Tencent-Hunyuan/UniRL#226", "fzyzcjy/torch_memory_saver#64"
)
def test_r34_preload_of_a_compat_driver(node, monkeypatch, tmp_path):
    """A launcher replaces LD_PRELOAD, and all below it run on the host's old driver again."""
    host = driver_stub(version=12020)
    compat = shutil.copytree(driver_stub(version=13000), tmp_path / "compat") / "libcuda.so.1"
    hook, runtime = node.hook("_cu13"), node.cudart_directory(13) / "libcudart.so.13"
    env = environment(node, libraries=[host])
    env["LD_PRELOAD"] = f"{compat} {compat}"

    replaced = {**env, "LD_PRELOAD": f"{hook}:{runtime}"}
    assert {str(host / "libcuda.so.1")} == mapped(run(PYTHON, env=replaced), "libcuda.so")

    script = 'echo "$LD_PRELOAD" && "$@"'  # the scheduler is a child of the child
    done = pyresolve("exec", "--", require_tool("sh"), "-c", script, "sh", *PYTHON, env=env)
    assert (0, f"{hook}:{compat}") == (done.returncode, done.stdout.splitlines()[0])
    assert {str(hook), str(compat), str(runtime)} == mapped(
        done, PRELOAD_STEM, "libcuda.so", "libcudart"
    )
    monkeypatch.syspath_prepend(node.root)
    choice = pick(environ=env)
    assert (compat, 13000) == (choice.driver.path, choice.driver.version)


@pytest.mark.report("Tencent-Hunyuan/UniRL#468")
def test_r34_change_is_for_one_start(node, monkeypatch, full_stub):
    """The hook that was set for one child stays in the launcher's environment for all."""
    monkeypatch.syspath_prepend(node.root)
    env = environment(node)
    env["LD_PRELOAD"] = compat = str(full_stub / "libcuda.so.1")
    mine, given = dict(os.environ), dict(env)
    choice = pick(environ=env)
    worker = run(PYTHON, env={**env, **choice.env(env)})
    bystander = run(PYTHON, env=env)
    assert (mine, given) == (dict(os.environ), env)
    assert {str(choice), compat} == mapped(worker, PRELOAD_STEM, "libcuda.so")
    assert {compat} == mapped(bystander, PRELOAD_STEM, "libcuda.so")


@pytest.mark.parametrize("separator", [" ", ":", " : "])
def test_like_r34_hook_of_another_environment(
    node, monkeypatch, full_stub, tmp_path, hidden_toolkit, separator
):
    """A shell that was set up for an old venv hands its hook on, beside a preload of the user's."""
    monkeypatch.syspath_prepend(node.root)
    old = Site(tmp_path / "old").tms("0.0.9")
    user = shutil.copy(hollow("libjemalloc.so.2"), tmp_path)
    env = environment(libraries=[full_stub, tmp_path])
    env["LD_PRELOAD"] = separator.join([str(old.hook()), "libjemalloc.so.2"])
    assert 127 == run([*hidden_toolkit, require_tool("env"), *PYTHON], env=env).returncode
    choice = pick(environ=env)
    assert (Verdict.OK, ()) == (choice.verdict, choice.warnings)
    done = run(PYTHON, env={**env, **choice.env(env)})
    assert (0, "") == (done.returncode, done.stderr)
    expected = {str(node.hook("_cu13")), str(user)}
    assert expected == mapped(done, "torch_memory_saver", "jemalloc")


def test_like_r34_libcudart_was_preloaded_first(node, full_stub, says):
    """A workaround that preloads libcudart in a job script silently takes the hook's place."""
    runtime = node.cudart_directory(13) / "libcudart.so.13"
    env = environment(node, libraries=[full_stub])
    env["LD_PRELOAD"] = f"{runtime}:{node.hook('_cu13')}"
    assert (0, "") == program(env)
    report = check(node.hook("_cu13"), mode="preload", environ=env)
    assert (Verdict.FAIL, Status.BYPASSED) == (report.verdict, report.status)
    message = says(report.message)
    assert f"{node.hook('_cu13')} is mapped but without effect" in message
    assert f"comes from {runtime}" in message
    assert "put the hook first in LD_PRELOAD" in message
    code = "import json, pyresolve; print(json.dumps(pyresolve.audit().to_dict()))"
    done = pyresolve("exec", "--", sys.executable, "-c", code, env=env)
    assert json.loads(done.stdout)["active"]


# --- R35: paths that are split


@pytest.mark.report(
    "QBDI/QBDI#285",
    "pythonspeed/filprofiler#122",
    "dmtcp/dmtcp#182",
    "GafferHQ/gaffer#7145",
    "plasma-umass/scalene#864",
)
def test_r35_path_with_a_space(tmp_path, full_stub):
    """The environment lies below a directory with a space: the hook is silently absent."""
    site = Site(tmp_path / "a b" / "site-packages").tms().torch()
    runtime = site.cudart(13) / "libcudart.so.13"
    env = environment(site, libraries=[full_stub])

    bare = run(PYTHON, env={**env, "LD_PRELOAD": str(site.hook("_cu13"))})
    assert (0, set()) == (bare.returncode, mapped(bare, PRELOAD_STEM))
    assert 2 == bare.stderr.count("cannot be preloaded")

    done = pyresolve("exec", "--", *PYTHON, env=env)
    assert (0, "") == (done.returncode, done.stderr)
    expected = {str(site.hook("_cu13")), str(runtime)}
    assert expected == mapped(done, PRELOAD_STEM, "libcudart")


@pytest.mark.report("uutils/coreutils#13622")
def test_r35_path_with_a_colon(tmp_path, monkeypatch, clean_env, full_stub, rogue, says):
    """A colon in TMPDIR ends the path there, and what lies there is loaded in place of the hook."""
    shutil.copy(rogue("exit_three"), tmp_path / "payload.so")
    site = Site(tmp_path / "payload.so:x").tms().torch()
    site.cudart(13)
    monkeypatch.syspath_prepend(site.root)
    env = {**clean_env, "LD_LIBRARY_PATH": str(full_stub)}
    hook = site.hook("_cu13")
    assert 3 == program(env, LD_PRELOAD=str(hook))[0]

    for refused in (
        lambda: pick(environ=env),
        lambda: pick(environ=env, verify="never").env(env),
        lambda: check(hook, mode="preload", environ=env),
    ):
        with pytest.raises(UnrepresentablePathError) as caught:
            refused()
        message = says(caught.value)
        assert (str(hook), "LD_PRELOAD") == (caught.value.path, caught.value.variable)
        assert f"'{hook}' contains ':'" in message
        assert "move the environment to a path without it" in message


def test_like_r35_decoy_of_the_same_name(tmp_path, full_stub):
    """Below a space, the bare name would find an older build of the hook on LD_LIBRARY_PATH."""
    site = Site(tmp_path / "a b").tms().torch()
    site.cudart(13)
    decoys = Site(tmp_path / "decoys").tms("0.0.9.post1")
    env = environment(site, libraries=[decoys, full_stub])
    done = pyresolve("exec", "--", *PYTHON, env=env)
    assert (0, "") == (done.returncode, done.stderr)
    assert {str(site.hook("_cu13"))} == mapped(done, PRELOAD_STEM)


@pytest.mark.parametrize("name", ["$LIB", "${ORIGIN}", "a b:c", "a b;c"])
def test_like_r35_path_that_the_loader_would_rewrite(
    tmp_path, monkeypatch, clean_env, full_stub, says, name
):
    """A directory is named like one of the loader's own variables, or splits the way round."""
    site = Site(tmp_path / name).tms().torch()
    site.cudart(13)
    monkeypatch.syspath_prepend(site.root)
    with pytest.raises(UnrepresentablePathError) as caught:
        pick(environ={**clean_env, "LD_LIBRARY_PATH": str(full_stub)})
    message = says(caught.value)
    assert f"'{site.hook('_cu13')}' contains" in message
    assert "move the environment to a path without" in message


def test_like_r35_path_with_a_line_break(future, tmp_path, clean_env, full_stub, says):
    """A line break in a path does not tear the message apart, and does not hinder the loader."""
    directory = tmp_path / "two\nlines\tand more"
    hook = shutil.copy(future.hook(f"_cu{MAJOR}"), _made(directory) / "hook.so")
    reach = [full_stub, future.cudart_directory(MAJOR)]
    env = {**clean_env, "LD_LIBRARY_PATH": os.pathsep.join(map(str, reach))}
    for mode in ("dlopen", "preload"):
        report = check(hook, mode=mode, environ=env)
        assert Status.LOADABLE is report.status
        says(report.message)
    report = check(directory / "nothing.so", mode="preload", environ=env)
    assert "does not exist" in says(report.message)


def _made(directory):
    directory.mkdir(parents=True)
    return directory


# --- R36: preloads for a whole session


@pytest.mark.report("Project-HAMi/HAMi#704", "GafferHQ/gaffer#6645", "RRZE-HPC/likwid#752")
def test_r36_preload_for_the_whole_container(node, says):
    """LD_PRELOAD of the image itself names the hook, and not even a shell starts any more."""
    hook = str(node.hook("_cu13"))
    env = environment(node, libraries=[node.cudart_directory(13)])
    for shell in ("sh", "env", "true"):
        done = run([require_tool(shell)], env={**env, "LD_PRELOAD": hook})
        assert (127, True) == (done.returncode, "libcuda.so.1: cannot open" in done.stderr)

    # An interpreter that was there before can still find out.
    code = """
        import json, os, sys
        os.environ["LD_PRELOAD"] = sys.argv[1]
        import pyresolve
        report = pyresolve.check(sys.argv[1], mode="preload")
        choice = pyresolve.pick()
        print(json.dumps([report.verdict.name, report.message, str(choice),
                          choice.report.message, os.environ["LD_PRELOAD"]]))
    """
    verdict, message, chosen, words, kept = cold(code, hook, env=env)
    assert ("UNKNOWN", hook, hook, message) == (verdict, chosen, kept, words)
    assert hook in says(message)
    assert "the NVIDIA driver (libcuda.so.1), which the loader does not find" in message
    assert "check on a GPU node" in message


@pytest.mark.report("GafferHQ/gaffer#6645")
def test_r36_helpers_of_a_launcher(node, full_stub):
    """A helper that a launcher starts without the driver's directory dies of the hook."""
    env = environment(node, libraries=[full_stub])
    launcher = """
        import json, os, subprocess, sys
        import pyresolve
        change = pyresolve.pick().env()
        worker = subprocess.run([sys.executable, "-c", "pass"], env={**os.environ, **change})
        bare = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        helper = subprocess.run(["true"], env=bare)
        os.environ.update(change)  # what the launchers did
        bare["LD_PRELOAD"] = os.environ["LD_PRELOAD"]
        dead = subprocess.run(["true"], env=bare, stderr=subprocess.DEVNULL)
        print(json.dumps([worker.returncode, helper.returncode, dead.returncode]))
    """
    assert [0, 0, 127] == cold(launcher, env=env)


def test_like_r36_bystander(node, says):
    """Whoever tries another library below such an LD_PRELOAD must not take that for the culprit."""
    hook, other = node.hook("_cu13"), hollow("libbystander.so")
    env = environment(libraries=[node.cudart_directory(13)])
    report = check(other, mode="preload", environ={**env, "LD_PRELOAD": str(hook)})
    assert report.verdict is not Verdict.OK
    assert "libcuda.so.1" in says(report.message)


def test_like_r36_environment_is_wiped(node, full_stub, says):
    """`env -i`, sudo or ssh between launcher and worker drop the hook, and nothing says so."""
    env = environment(node, libraries=[full_stub])
    wiped = [require_tool("env"), "-i", require_tool("sleep"), "60"]
    with subprocess.Popen([COMMAND, "exec", "--", *wiped], env=env) as worker:
        try:
            assert poll(lambda: _comm(worker.pid) == "sleep", timeout=30)
            found = audit(pid=worker.pid)
        finally:
            worker.kill()
    assert (Verdict.FAIL, [Status.NOT_PRELOADED]) == (
        found.verdict,
        [finding.status for finding in found.findings],
    )
    message = says(found.findings[0].message)
    assert f"process {worker.pid} was started without the hook in LD_PRELOAD" in message
    assert "pyresolve exec" in message


def _comm(pid):
    with open(f"/proc/{pid}/comm") as comm:
        return comm.read().strip()


def test_like_r36_static_program(node, full_stub, tmp_path, says):
    """A worker that is linked statically has no loader, and LD_PRELOAD is only text to it."""
    source = tmp_path / "static.c"
    source.write_text("#include <unistd.h>\nint main(void) { sleep(60); return 0; }\n")
    compiler = find_tool("gcc") or require_tool("cc")
    static = tmp_path / "static"
    done = run([compiler, "-static", "-o", static, source], env=dict(os.environ))
    if done.returncode:
        unavailable(f"no static program can be linked: {done.stderr.strip()}")
    env = environment(node, libraries=[full_stub])
    refused = run([COMMAND, "exec", "--", static], env=env)
    assert 1 == refused.returncode
    assert f"not run: {static} is linked statically" in says(refused.stderr.strip())
    with subprocess.Popen([COMMAND, "exec", "--force", "--", static], env=env) as worker:
        try:
            assert poll(lambda: _comm(worker.pid) == "static", timeout=30)
            found = audit(pid=worker.pid)
        finally:
            worker.kill()
    assert [Status.IGNORED] == [finding.status for finding in found.findings]
    message = says(found.findings[0].message)
    assert str(worker.pid) in message
    assert "static" in message.replace(str(static), "")


def test_like_r36_everything_is_bound_at_once(rogue, clean_env, says):
    """LD_BIND_NOW of a session turns a hook that only lacks a function into exit 127 for all."""
    hook = rogue("undefined_function")
    assert (0, "") == program(clean_env, LD_PRELOAD=str(hook))
    session = {**clean_env, "LD_BIND_NOW": "1"}
    assert 127 == program(session, LD_PRELOAD=str(hook))[0]
    for env in (clean_env, session):
        report = check(hook, mode="preload", environ=env)
        assert (Status.UNDEFINED_SYMBOL, ("rogue_nowhere_function",)) == (
            report.status,
            report.undefined,
        )
        assert f"{hook} uses rogue_nowhere_function" in says(report.message)


# --- R38: symbols that nothing supplies

HOOK_WITHOUT_CUDART = """
#include <stddef.h>
int cudaMallocHost(void **, size_t);
int tms_backup(void **to, size_t size) { return cudaMallocHost(to, size); }
"""


@pytest.mark.report("fzyzcjy/torch_memory_saver#50", "Project-HAMi/HAMi#20")
def test_r38_hook_that_does_not_link_the_runtime(build, clean_env, says):
    """`undefined symbol: cudaMallocHost`, but only where nothing else has loaded libcudart yet."""
    hook = build("hook.so", HOOK_WITHOUT_CUDART)
    cudart = str(fake_cudart(MAJOR))
    open_both = "import ctypes, sys; [ctypes.CDLL(p, ctypes.RTLD_GLOBAL) for p in sys.argv[1:]]"
    python = [sys.executable, "-c", open_both]
    assert 0 == run([*python, cudart, hook], env=clean_env).returncode
    assert "undefined symbol: cudaMallocHost" in run([*python, hook], env=clean_env).stderr
    assert (0, "") == program(clean_env, LD_PRELOAD=str(hook))

    for mode in ("dlopen", "preload"):
        report = check(hook, mode=mode, environ=clean_env)
        assert (Status.UNDEFINED_SYMBOL, ("cudaMallocHost",)) == (report.status, report.undefined)
        message = says(report.message)
        assert f"{hook} uses cudaMallocHost" in message
        assert "libcudart" in message  # whose it is
    both = {**clean_env, "LD_PRELOAD": f"{hook}:{cudart}"}
    assert Status.LOADABLE is check(hook, mode="preload", environ=both).status


@pytest.mark.report("Project-HAMi/HAMi-core#174")
def test_r38_private_symbol_of_libc(build, clean_env, says):
    """`symbol lookup error: … GLIBC_PRIVATE` at the first use: libc has dropped a symbol."""
    hook = _linked_to_old_libc(build, "dl_vanished")
    assert (0, "") == program(clean_env, LD_PRELOAD=str(hook))
    for mode in ("dlopen", "preload"):
        report = check(hook, mode=mode, environ=clean_env)
        assert Verdict.FAIL is report.verdict
        message = says(report.message)
        assert str(hook) in message
        assert "dl_vanished" in message
        assert "GLIBC_PRIVATE" in message
        assert "libc.so.6" in message  # which should have had it
        assert "reinstall" in message


def _linked_to_old_libc(build, symbol):
    """Return a hook that was linked against a libc with this private symbol."""
    libc = _with_version(build, "libc.so.6", "GLIBC_PRIVATE", symbol)
    return build(
        "private.so",
        f"int {symbol}(void);\nint hook(void) {{ return {symbol}(); }}\n",
        libc,
        "-nostdlib",
    )


def _with_version(build, soname, version, *symbols):
    """Return a library that defines these functions with one symbol version."""
    text = "".join(f"int {symbol}(void) {{ return 0; }}\n" for symbol in symbols)
    library = build(soname, text, f"-Wl,-soname,{soname}", "-nostdlib")  # for its directory
    script = library.with_suffix(".map")
    script.write_text(f"{version} {{ global: *; }};\n")
    flags = f"-Wl,-soname,{soname}", f"-Wl,--version-script={script}", "-nostdlib"
    return build(soname, text, *flags)


def test_like_r38_older_minor_of_the_runtime(build, clean_env, tmp_path, says):
    """A hook built with a newer minor calls what the runtime of the same major does not have."""
    new = _with_version(build, CUDART, CUDART, "cudaMallocBetter", "cudaGetDevice")
    text = "int cudaMallocBetter(void);\nint hook(void) { return cudaMallocBetter(); }\n"
    hook = build("hook.so", text, new)
    old = _made(tmp_path / "old") / CUDART
    shutil.copy(fake_cudart(MAJOR), old)
    env = {**clean_env, "LD_LIBRARY_PATH": str(old.parent)}
    assert (0, "") == program(env, LD_PRELOAD=str(hook))
    for mode in ("dlopen", "preload"):
        report = check(hook, mode=mode, environ=env)
        assert Status.UNDEFINED_SYMBOL is report.status
        message = says(report.message)
        assert f"{hook} uses cudaMallocBetter@{CUDART}" in message
        assert str(old) in message  # which should have had it


def test_like_r38_symbol_of_a_library_behind(build, clean_env, tmp_path, says):
    """It is not the hook that calls the missing function but a library that the hook links."""
    text = "extern int nowhere_data;\nint below(void) { return nowhere_data; }\n"
    below = build("libbelow.so.1", text, "-Wl,-soname,libbelow.so.1")
    hook = build("hook.so", "int below(void);\nint hook(void) { return below(); }\n", below)
    env = {**clean_env, "LD_LIBRARY_PATH": str(tmp_path)}
    for mode in ("dlopen", "preload"):
        report = check(hook, mode=mode, environ=env)
        assert (Status.UNDEFINED_SYMBOL, ("nowhere_data",)) == (report.status, report.undefined)
        assert f"{below} uses nowhere_data" in says(report.message)


# --- R40: symbol versions


@pytest.mark.report("Dao-AILab/flash-attention#1708", "zardus/preeny#83", "pytorch/pytorch#157709")
@pytest.mark.parametrize(
    ("old", "new", "library"),
    [
        ("GLIBC_2.14", "GLIBC_9.99", "libc.so.6"),
        ("GLIBCXX_3.4.21", "GLIBCXX_9.9.99", "libstdc++.so.6"),
    ],
)
def test_r40_newer_symbol_version(node, monkeypatch, full_stub, tmp_path, says, old, new, library):
    """`version GLIBC_2.34 not found` on an older system: every child ends with status 1."""
    monkeypatch.syspath_prepend(node.root)
    runtime = node.cudart_directory(13)
    env = environment(libraries=[runtime, full_stub])
    hook = elfpatch.bump_version(node.hook("_cu13"), tmp_path / "hook.so", old, new)
    status, words = program(env, LD_PRELOAD=str(hook))
    assert (1, True) == (status, f"version `{new}' not found" in words)

    for mode in ("dlopen", "preload"):
        report = check(hook, mode=mode, environ=env)
        assert (Verdict.FAIL, Status.VERSION_MISMATCH) == (report.verdict, report.status)
        message = says(report.message)
        assert f"{hook} needs {new} of /" in message
        assert f"/{library}, which does not have it (its newest is {new.split('_')[0]}_" in message
        assert "install a build for this system, or use a newer system image" in message
    with pytest.raises(NotLoadableError) as caught:
        pick(environ={**env, "PYRESOLVE_PRELOAD": str(hook)})
    assert says(caught.value) == message


def test_like_r40_conda_has_the_newer_library(build, clean_env, tmp_path, says):
    """The library that has the version lies in a conda prefix, and the system's older one wins."""
    name, conda, system = "libpyresolvecxx.so.6", tmp_path / "conda/lib", tmp_path / "system"
    new = _with_version(build, name, "GLIBCXX_3.4.30", "cxx_function")
    hook = build("hook.so", "int cxx_function(void);\nint f(void) { return cxx_function(); }", new)
    shutil.copy(new, _made(conda))
    shutil.copy(_with_version(build, name, "GLIBCXX_3.4.19", "cxx_function"), _made(system))
    new.unlink()
    wrong = {**clean_env, "LD_LIBRARY_PATH": f"{system}:{conda}"}
    for mode in ("dlopen", "preload"):
        report = check(hook, mode=mode, environ=wrong)
        assert Status.VERSION_MISMATCH is report.status
        message = says(report.message)
        assert f"{hook} needs GLIBCXX_3.4.30 of {system / name}" in message
        assert "(its newest is GLIBCXX_3.4.19)" in message
        right = {**clean_env, "LD_LIBRARY_PATH": f"{conda}:{system}"}
        assert Status.LOADABLE is check(hook, mode=mode, environ=right).status


def test_like_r40_version_that_the_runtime_needs(node, full_stub, tmp_path, says):
    """The hook is old enough for this system; the libcudart that it links is not."""
    directory = _made(tmp_path / "lib")
    runtime = node.cudart_directory(13) / "libcudart.so.13"
    newer = elfpatch.bump_version(runtime, directory / runtime.name, "GLIBC_2.2.5", "GLIBC_9.9.9")
    env = environment(libraries=[directory, full_stub])
    report = check(node.hook("_cu13"), mode="preload", environ=env)
    assert Status.VERSION_MISMATCH is report.status
    message = says(report.message)
    assert f"{newer} needs GLIBC_9.9.9 of /" in message
    assert str(node.hook("_cu13")) in message  # what the user asked about


# --- R41: noexec mounts

NOEXEC = """
    import json, os, subprocess, sys
    import pyresolve
    hook = sys.argv[1]
    done = subprocess.run(["true"], env={**os.environ, "LD_PRELOAD": hook}, capture_output=True)
    reports = [pyresolve.check(hook, mode=mode) for mode in ("dlopen", "preload")]
    error = None
    try:
        pyresolve.pick()
    except pyresolve.PyresolveError as caught:
        error = type(caught).__name__, str(caught)
    print(json.dumps([done.returncode, done.stderr.decode(),
                      [(r.status.name, r.message) for r in reports], error]))
"""


@pytest.mark.report(
    "score-p/scorep_binding_python#110", "numpy/numpy#15102", "pytorch/pytorch#123054"
)
def test_r41_hook_on_a_noexec_mount(tmp_path, full_stub, says):
    """`failed to map segment`: packages below a noexec /tmp, where the loader skips the hook."""
    site = Site(tmp_path / "site-packages").tms().torch()
    runtime = site.cudart(13)
    hook = site.hook("_cu13")
    env = environment(site, libraries=[runtime, full_stub])
    prefix = mounted(noexec=[site.root])
    status, words, reports, error = cold(NOEXEC, hook, env=env, prefix=prefix)
    assert (0, True, True) == (status, "failed to map segment" in words, "ignored" in words)
    for cause, message in reports:
        assert "NOEXEC" == cause
        assert f"{hook} is on a file system that is mounted noexec" in says(message)
        assert "install it elsewhere, or remount with exec" in message
    assert ["NoVariantError", True] == [error[0], "noexec" in says(error[1])]
    assert str(hook) in error[1]


@pytest.mark.report("pytorch/pytorch#123054")
def test_r41_runtime_on_a_noexec_mount(tmp_path, full_stub, hidden_toolkit, says):
    """Only libcudart lies on the noexec mount: every program dies with 127."""
    site = Site(tmp_path / "site-packages").tms().torch()
    runtime = site.cudart(13)
    hook = site.hook("_cu13")
    env = environment(site, libraries=[runtime, full_stub])
    prefix = [*hidden_toolkit, *mounted(noexec=[runtime])]
    status, words, reports, error = cold(NOEXEC, hook, env=env, prefix=prefix)
    assert (127, True) == (status, "failed to map segment" in words)
    for cause, message in [*reports, error]:
        assert cause in ("NOEXEC", "NotLoadableError")
        assert str(hook) in says(message)
        assert (
            f"{runtime / 'libcudart.so.13'} is on a file system that is mounted noexec" in message
        )


def test_like_r41_link_to_a_noexec_mount(tmp_path, full_stub, says):
    """The package directory is exec, but a link in it leads to a store that is not."""
    site, store = Site(tmp_path / "site-packages").tms().torch(), _made(tmp_path / "store")
    runtime = site.cudart(13)
    hook = site.hook("_cu13")
    hook.rename(store / "content-5a5a5a")
    hook.symlink_to(store / "content-5a5a5a")
    env = environment(site, libraries=[runtime, full_stub])
    *_, reports, error = cold(NOEXEC, hook, env=env, prefix=mounted(noexec=[store]))
    assert ["NOEXEC", "NOEXEC"] == [cause for cause, _ in reports]
    assert f"{hook} is on a file system that is mounted noexec" in says(reports[0][1])
    assert ["NoVariantError", True] == [error[0], str(hook) in says(error[1])]


# --- R42: other architectures

DAMAGES = {
    "class": ({elfpatch.CLASS: elfpatch.CLASS_32}, "(32-bit "),
    "byte order": ({elfpatch.DATA: elfpatch.BIG_ENDIAN}, "big-endian)"),
    "machine": ({elfpatch.MACHINE: elfpatch.FOREIGN_MACHINE}, "(64-bit little-endian)"),
}


@pytest.mark.report(
    "MotrixLab/SMPLer-X#37",
    "nodejitsu/forza#32",
    "sgl-project/sglang-omni#620",
    "bitsandbytes-foundation/bitsandbytes#1941",
)
@pytest.mark.parametrize("damage", DAMAGES)
def test_r42_hook_for_another_machine(tmp_path, monkeypatch, full_stub, says, damage):
    """`wrong ELF class`, or "no such file" for a file that is there: built for another machine."""
    changes, words = DAMAGES[damage]
    site = Site(tmp_path / "site-packages").tms().torch()
    runtime = site.cudart(13)
    monkeypatch.syspath_prepend(site.root)
    env = environment(libraries=[runtime, full_stub])
    hook = elfpatch.patch(site.hook("_cu13"), site.hook("_cu13"), changes)
    status, skipped = program(env, LD_PRELOAD=str(hook))
    assert (0, True) == (status, "ignored" in skipped)

    report = check(hook, mode="preload", environ=env)
    assert (Verdict.FAIL, Status.WRONG_ARCH) == (report.verdict, report.status)
    message = says(report.message)
    assert f"{hook} is built for " in message
    assert words in message.partition(", this machine is ")[0]
    assert "install the build for this machine" in message
    with pytest.raises(NoVariantError) as caught:  # and not the build for CUDA 12
        pick(environ=env)
    assert message in says(caught.value)


@pytest.mark.report("MotrixLab/SMPLer-X#37")
def test_r42_driver_of_another_class_first(future, full_stub, tmp_path, says):
    """A 32-bit libcuda.so.1 stands first on the path: passed by, and named where it is the only."""
    lib32 = _made(tmp_path / "lib32")
    driver32 = elfpatch.patch(full_stub / "libcuda.so.1", lib32 / "libcuda.so.1", {4: 1})
    choice = pick(environ=environment(libraries=[lib32, full_stub]))
    assert (Verdict.OK, full_stub / "libcuda.so.1") == (choice.verdict, choice.driver.path)

    only = environment(libraries=[lib32])
    assert Verdict.UNKNOWN is pick(environ=only).verdict
    problem = says(driver(environ=only).problem)
    assert f"{driver32} is built for " in problem
    assert "(32-bit " in problem


@pytest.mark.report("bitsandbytes-foundation/bitsandbytes#1941")
@pytest.mark.parametrize("damage", ["class", "machine"])
def test_r42_runtime_for_another_machine(future, full_stub, tmp_path, says, damage):
    """An aarch64 libcudart stands first on the path: passed by, and named where it is the only."""
    hook, good = future.hook(f"_cu{MAJOR}"), future.cudart_directory(MAJOR) / CUDART
    sbsa = _made(tmp_path / "sbsa")
    foreign = elfpatch.patch(good, sbsa / CUDART, DAMAGES[damage][0])
    report = check(
        hook, mode="preload", environ=environment(libraries=[sbsa, good.parent, full_stub])
    )
    assert (Status.LOADABLE, good) == (report.status, report.runtime.path)

    good.unlink()
    only = environment(libraries=[sbsa, full_stub])
    words = {"class": "wrong ELF class", "machine": "No such file or directory"}[damage]
    assert words in program(only, LD_PRELOAD=str(hook))[1]
    with pytest.raises(NotLoadableError) as caught:
        pick(environ=only)
    message = says(caught.value)
    assert str(hook) in message
    assert f"{foreign} is built for " in message
    assert "install the build for this machine" in message


@pytest.mark.parametrize(
    ("changes", "cause"),
    [({7: 9}, "OS ABI"), ({16: 2}, "not a shared library"), ({6: 9}, None), ({20: 9}, None)],
    ids=["OS ABI", "executable", "ident version", "version"],
)
def test_like_r42_other_fields_of_the_header(node, full_stub, tmp_path, says, changes, cause):
    """Class, byte order and machine are right, and the loader still refuses the header."""
    hook = elfpatch.patch(node.hook("_cu13"), tmp_path / "hook.so", changes)
    env = environment(libraries=[node.cudart_directory(13), full_stub])
    status, words = program(env, LD_PRELOAD=str(hook))
    assert (0, True) == (status, "ignored" in words)
    for mode in ("dlopen", "preload"):
        report = check(hook, mode=mode, environ=env)
        assert Verdict.FAIL is report.verdict
        message = says(report.message)
        assert str(hook) in message
        assert (cause or "") in message
        assert "install" in message or "mend the file" in message


def test_like_r42_interpreter_for_another_machine(node, full_stub, tmp_path, says):
    """The workers' interpreter is a 32-bit or aarch64 one: no hook of this machine's goes there."""
    for changes, words in DAMAGES.values():
        python = elfpatch.patch(Path(require_tool("true")), tmp_path / "python", changes)
        python.chmod(0o755)
        with pytest.raises(InterpreterError) as caught:
            pick(python=python, environ=environment(node, libraries=[full_stub]))
        message = says(caught.value)
        assert f"{python} is built for " in message
        assert words in message


# --- R44: other C libraries


@pytest.mark.report("C04-wq/opencode-termux#6")
def test_r44_hook_for_musl(rogue, clean_env, says):
    """A library for musl is preloaded on a glibc system, and every program fails to relocate."""
    hook = rogue("musl")
    status, words = program(clean_env, LD_PRELOAD=str(hook))
    assert (127, True) == (status, "libc.musl-" in words)
    for mode in ("dlopen", "preload"):
        report = check(hook, mode=mode, environ=clean_env)
        assert Verdict.FAIL is report.verdict
        message = says(report.message)
        assert f"{hook} needs libc.musl-" in message
        assert "this system has glibc " in message
        assert "install the build for glibc (manylinux)" in message


@pytest.mark.report("C04-wq/opencode-termux#6")
def test_r44_preload_that_leaks_to_children(future, full_stub, rogue, says):
    """The session's own LD_PRELOAD is for another libc: it is to blame, not the hook."""
    env = {**environment(libraries=[full_stub]), "LD_PRELOAD": str(rogue("musl"))}
    with pytest.raises(NotLoadableError) as caught:
        pick(environ=env)
    message = says(caught.value)
    assert Status.BROKEN_ENVIRONMENT is caught.value.report.status
    assert "libc.musl-" in message
    assert str(rogue("musl")) in message
    assert "LD_PRELOAD" in message


@pytest.mark.report("C04-wq/opencode-termux#6")
def test_r44_program_that_deadlocks_at_start(rogue, clean_env, says):
    """A preload deadlocks every program at its start: the launcher must not wait with it."""
    began = time.monotonic()
    report = check(rogue("loop"), mode="preload", environ=clean_env, timeout=0.5)
    assert Status.TIMED_OUT is report.status
    assert time.monotonic() - began < 5
    message = says(report.message)
    assert f"{rogue('loop')} did not finish loading within 0.5 s" in message
    assert "a constructor hangs" in message


@pytest.mark.parametrize("reach", [True, False], ids=["in reach", "out of reach"])
def test_like_r44_session_whose_preload_deadlocks(future, full_stub, rogue, says, reach):
    """It is not the hook that hangs but a preload that was there before it."""
    libraries = [full_stub, future.cudart_directory(MAJOR)] if reach else [full_stub]
    env = {**environment(libraries=libraries), "LD_PRELOAD": str(rogue("loop"))}
    began = time.monotonic()
    with pytest.raises(NotLoadableError) as caught:
        pick(environ=env, timeout=0.5)
    assert time.monotonic() - began < 5
    message = says(caught.value)
    assert str(rogue("loop")) in message
    assert "0.5 s" in message


def test_like_r44_runtime_for_musl(future, full_stub, build, says):
    """The hook is for glibc, but the libcudart that is found was built on Alpine."""
    musl = hollow(f"libc.musl-{platform.machine()}.so.1")
    runtime = build(
        CUDART,
        "int cudaMemcpy(void) { return 0; }\n",
        musl,
        "-nostdlib",
        f"-Wl,-soname,{CUDART}",
    )
    (future.cudart_directory(MAJOR) / CUDART).unlink()
    hook = future.hook(f"_cu{MAJOR}")
    report = check(hook, mode="preload", environ=environment(libraries=[runtime.parent, full_stub]))
    assert Verdict.FAIL is report.verdict
    message = says(report.message)
    assert str(hook) in message
    assert f"{runtime} needs {musl.name} (musl libc)" in message
    assert "manylinux" in message


def test_like_r44_interpreter_on_musl(node, full_stub, tmp_path, says):
    """The workers' interpreter is Alpine's: no hook for glibc can be loaded there."""
    source, python = tmp_path / "python.c", tmp_path / "python"
    source.write_text("int main(void) { return 0; }\n")
    loader = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"
    compiler = find_tool("gcc") or require_tool("cc")
    assert 0 == run([compiler, loader, "-o", python, source], env=dict(os.environ)).returncode
    with pytest.raises(InterpreterError) as caught:
        pick(python=python, environ=environment(node, libraries=[full_stub]))
    message = says(caught.value)
    assert f"{python} runs on musl libc (/lib/ld-musl-x86_64.so.1)" in message
    assert "use one that is linked dynamically with this machine's glibc" in message


# --- N04: another library that must come first


@pytest.fixture
def asan():
    """Return the runtime of AddressSanitizer, which ends a program that has anything before it."""
    done = run([require_tool("gcc"), "-print-file-name=libasan.so"], env=os.environ)
    path = Path(done.stdout.strip()).resolve()
    if not path.is_absolute() or not path.exists():
        unavailable("this gcc has no libasan")
    return path


@pytest.mark.report("NVIDIA/warp#1528", "ROCm/TheRock#8341")
@pytest.mark.parametrize("before", ["alone", "in the order that works", "in the other order"])
def test_n04_sanitizer_comes_first(node, full_stub, asan, before):
    """LD_PRELOAD holds libasan, which ends every program that has a hook ahead of it."""
    hook = node.hook("_cu13")
    works = f"{asan}:{hook}"
    value = {"alone": str(asan), "in the order that works": works}.get(before, f"{hook}:{asan}")
    env = environment(node, libraries=[full_stub, node.cudart_directory(13)])
    env["LD_PRELOAD"] = value
    env["ASAN_OPTIONS"] = "detect_leaks=0"
    choice = pick(python=node.python, environ=env)
    assert Verdict.OK is choice.verdict
    change = choice.env(env)
    assert works == {**env, **change}["LD_PRELOAD"]
    assert {} == choice.env({**env, **change})
    status, words = program({**env, **change})
    assert (0, "") == (status, words)


def test_like_n04_check_of_the_other_order(node, full_stub, asan, says):
    """A check puts the hook first, which does not work: the order that does is named."""
    hook = node.hook("_cu13")
    env = environment(node, libraries=[full_stub, node.cudart_directory(13)])
    env |= {"LD_PRELOAD": str(asan), "ASAN_OPTIONS": "detect_leaks=0"}
    report = check(hook, mode="preload", environ=env)
    assert Status.EXITED is report.status
    assert says(report.message) == (
        f"{hook} does not work ahead of {asan} (exit status 1), and works behind: write"
        f" LD_PRELOAD={asan}:{hook}"
    )
    env["LD_PRELOAD"] = f"{asan}:{hook}"
    assert Verdict.OK is check(hook, mode="preload", environ=env).verdict


FIRST = """
    #include <link.h>
    #include <string.h>
    #include <unistd.h>
    __attribute__((constructor)) static void begin(void) {
        const struct link_map *map = _r_debug.r_map;
        while (map && !strchr(map->l_name, '/'))
            map = map->l_next;
        if (!map || !strstr(map->l_name, "jealous"))
            _exit(9);
    }
"""


def test_like_n04_two_that_want_to_be_first(node, build, full_stub, tmp_path, says):
    """The two fail without the hook as well: the environment is at fault, and not the hook."""
    jealous = build("jealous.so", FIRST)
    second = build("second.so", FIRST.replace("jealous", "second.so"))
    env = environment(node, libraries=[full_stub, node.cudart_directory(13)])
    env["LD_PRELOAD"] = f"{jealous}:{second}"
    with pytest.raises(NotLoadableError) as caught:
        pick(python=node.python, environ=env)
    assert "no program starts in this environment" in says(caught.value)


def test_like_n04_one_that_wants_to_be_first(node, build, full_stub):
    """A library of the user's own insists on the first place, and gets it."""
    jealous = build("jealous.so", FIRST)
    env = environment(node, libraries=[full_stub, node.cudart_directory(13)])
    env["LD_PRELOAD"] = str(jealous)
    choice = pick(python=node.python, environ=env)
    assert Verdict.OK is choice.verdict
    assert f"{jealous}:{node.hook('_cu13')}" == choice.env(env)["LD_PRELOAD"]


def test_like_n04_behind_another_cudamalloc(node, build, full_stub):
    """Behind a library that has cudaMalloc the hook is without effect: there it is put first."""
    other = build("other.so", "int cudaMalloc(void **p, unsigned long n) { return !p + !n; }")
    hook = node.hook("_cu13")
    env = environment(node, libraries=[full_stub, node.cudart_directory(13)])
    env["LD_PRELOAD"] = f"{other}:{hook}"
    choice = pick(python=node.python, environ=env)
    assert (Verdict.OK, f"{hook}:{other}") == (choice.verdict, choice.env(env)["LD_PRELOAD"])


# --- N14: names that the loader does not find, and quotes


def noted(node, full_stub, says, **variables):
    """Return what pick() warns of in an environment with these variables."""
    env = environment(node, libraries=[full_stub, node.cudart_directory(13)])
    for name, value in variables.items():
        env[name] = f"{env[name]}:{value}" if name == "LD_LIBRARY_PATH" else value
    return [says(warning) for warning in pick(python=node.python, environ=env).warnings]


def test_n14_bare_name_that_nobody_finds(node, full_stub, says):
    """LD_PRELOAD has a file name from another image, and every process goes without it."""
    (message,) = noted(node, full_stub, says, LD_PRELOAD="libnowhere.so")
    assert message.startswith("LD_PRELOAD has libnowhere.so, which the loader does not find")


def test_like_n14_bare_name_that_is_found(node, full_stub, says):
    """What the loader finds in its cache or default directories is as good as a path."""
    assert [] == noted(node, full_stub, says, LD_PRELOAD="libm.so.6")


def test_like_n14_quotes_of_an_environment_file(node, full_stub, rogue, says):
    """An env file for docker has LD_PRELOAD in quotes, and they become a part of the path."""
    (message,) = noted(node, full_stub, says, LD_PRELOAD=f'"{rogue("good")}"')
    assert f'LD_PRELOAD has "{rogue("good")}", whose quotes belong to the file name' in message
    (message,) = noted(node, full_stub, says, LD_PRELOAD="'libm.so.6'")
    assert "LD_PRELOAD has 'libm.so.6', whose quotes belong to the file name" in message


def test_like_n14_quotes_in_the_library_path(node, full_stub, says):
    """The same file has LD_LIBRARY_PATH in quotes, and two directories are lost."""
    messages = noted(node, full_stub, says, LD_LIBRARY_PATH='"/opt/cuda/lib64":"/opt/lib"')
    assert 2 == len(messages)
    assert 'LD_LIBRARY_PATH has "/opt/cuda/lib64", whose quotes belong' in messages[0]
    assert 'LD_LIBRARY_PATH has "/opt/lib", whose quotes belong' in messages[1]


# --- N24: expandable segments


@pytest.mark.parametrize("variable", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_n24_expandable_segments(node, full_stub, says, variable):
    """A recipe against fragmentation has torch allocate past the hook, which nobody notices."""
    (message,) = noted(node, full_stub, says, **{variable: "expandable_segments:True"})
    assert message.startswith(f"{variable} has expandable_segments:True, with which torch")


@pytest.mark.parametrize(
    "value", ["max_split_size_mb:128,expandable_segments:True", "expandable_segments : True"]
)
def test_like_n24_among_other_options(node, full_stub, says, value):
    """The option stands among others, or with spaces, as torch reads it."""
    (message,) = noted(node, full_stub, says, PYTORCH_CUDA_ALLOC_CONF=value)
    assert "PYTORCH_CUDA_ALLOC_CONF has expandable_segments:True" in message


@pytest.mark.parametrize("value", ["", "expandable_segments:False", "max_split_size_mb:128"])
def test_like_n24_option_that_is_off(node, full_stub, says, value):
    """Other options of the allocator are no concern."""
    assert [] == noted(node, full_stub, says, PYTORCH_CUDA_ALLOC_CONF=value)


def test_like_n24_in_the_environment_of_env(node, full_stub, says):
    """`pyresolve env` says it on stderr, beside an answer that is otherwise right."""
    env = environment(node, libraries=[full_stub, node.cudart_directory(13)])
    done = pyresolve("env", env={**env, "PYTORCH_ALLOC_CONF": "expandable_segments:True"})
    assert 0 == done.returncode
    assert "expandable_segments:True" in says(done.stderr.strip())
