"""Kind 2 - runtime or driver library not found, or shadowed.

Each report is met as its reporter met it: with the real wheels, a system toolkit out of sight, and
programs that are really started. What a bare preload does comes first, then what pyresolve makes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import MODES, driver, elfpatch
from support.command import COMMAND
from support.compile import SOURCES, built, cc, cc_text, hollow
from support.driver import STUB_LIBRARY
from support.layout import Site, fake_cudart
from support.process import cold
from support.tools import require_tool
from support.wheels import OLD_CUDART_12
from support.worker import WORKER, mapped, with_part, worker_command

import pyresolve
from pyresolve._disk import driver as _drivers, elf as _elf

PICK = """
    import json, os, sys
    import pyresolve
    roots, environ, options = map(json.loads, sys.argv[1:])
    sys.path[:0] = roots
    os.environ["PATH"] = environ.get("PATH", "/nowhere")
    try:
        choice = pyresolve.pick(environ=environ, **options)
        answer = {**choice.to_dict(), "text": choice.explain()}
    except pyresolve.PyresolveError as error:
        answer = {"error": type(error).__name__, "message": str(error)}
    print(json.dumps(answer))
"""
CHECK = """
    import json, sys
    import pyresolve
    from pyresolve._document import plain as report_dict
    roots, environ, path = map(json.loads, sys.argv[1:])
    sys.path[:0] = roots
    print(json.dumps(report_dict(pyresolve.check(path, mode="preload", environ=environ))))
"""


class Host:
    """A machine without a system toolkit; what starts there gets exactly the given environment."""

    def __init__(self, prefix, clean):
        self.prefix = prefix
        self.clean = clean

    def environ(self, **variables):
        """Return a clean environment with these variables; lists are joined as paths."""
        joined = {
            name: value if isinstance(value, str) else os.pathsep.join(map(os.fspath, value))
            for name, value in variables.items()
        }
        return {**self.clean, **joined}

    def pick(self, *roots, environ, cwd="/", **options):
        """Pick with these directories in front of sys.path; return what is said."""
        words = json.dumps(list(map(os.fspath, roots))), json.dumps(environ), json.dumps(options)
        return cold(PICK, *words, prefix=self.prefix, cwd=cwd)

    def check(self, path, *roots, environ):
        """Return the report on a preload."""
        words = json.dumps(list(map(os.fspath, roots))), json.dumps(environ), json.dumps(str(path))
        return cold(CHECK, *words, prefix=self.prefix)

    def run(self, *command, environ, cwd="/"):
        """Run a program in exactly this environment."""
        variables = [f"{name}={value}" for name, value in environ.items()]
        words = [*self.prefix, require_tool("env"), "-i", *variables, *map(str, command)]
        return subprocess.run(
            words, capture_output=True, text=True, check=False, cwd=cwd, timeout=60
        )

    def preload(self, hook, environ, cwd="/"):
        """Preload the hook and nothing else, as a launcher does without pyresolve."""
        environ = {**environ, "LD_PRELOAD": str(hook)}
        return self.run(require_tool("true"), environ=environ, cwd=cwd)

    def worker(self, environ, *libraries, cwd="/"):
        """Start a worker; return the version of its CUDA runtime, and the files it maps."""
        done = self.run(*worker_command(*libraries), environ=environ, cwd=cwd)
        assert (0, "") == (done.returncode, done.stderr)
        told = json.loads(done.stdout)
        return told["version"], set(told["mapped"])


@pytest.fixture
def host(clean_env, hidden_toolkit):
    """Return a machine whose system has no CUDA toolkit."""
    return Host(hidden_toolkit, clean_env)


def conda(directory, *sources, lib="lib"):
    """Make a conda prefix of these libraries."""
    (directory / "conda-meta").mkdir(parents=True)
    (directory / lib).mkdir(parents=True)
    for source in sources:
        shutil.copy(source, directory / lib)
    return directory / lib


@pytest.mark.report("sgl-project/sglang#36533", "fzyzcjy/torch_memory_saver#108")
def test_r17_runtime_in_the_pip_tree_only(site, host, full_stub, says):
    """The right build is preloaded, and every child exits 127 for want of libcudart.so.13."""
    directory = site.tms().torch("13.0").cudart(13)
    hook, environ = site.hook("_cu13"), host.environ(LD_LIBRARY_PATH=[full_stub])

    bare = host.preload(hook, environ)
    assert (127, True) == (bare.returncode, "libcudart.so.13" in bare.stderr)
    report = host.check(hook, site, environ=environ)
    assert ("fail", "missing_dependency") == (report["verdict"], report["status"])
    message = says(report["message"])
    assert f"{hook} needs libcudart.so.13" in message
    assert f"put {directory} into LD_LIBRARY_PATH" in message

    answer = host.pick(site, environ=environ)
    assert {"LD_PRELOAD": str(hook), "LD_LIBRARY_PATH": f"{directory}:{full_stub}"} == answer["env"]
    assert ("ok", []) == (answer["verdict"], answer["warnings"])
    version, mapped = host.worker({**environ, **answer["env"]})
    assert 13000 == version
    assert {str(hook)} == with_part(mapped, "torch_memory_saver")


@pytest.mark.report(
    "pytorch/pytorch#117350",
    "pytorch/pytorch#92096",
    "pytorch/pytorch#131284",
    "bazelbuild/rules_python#2156",
    "bazelbuild/rules_python#3228",
)
def test_r19_one_directory_for_each_wheel(tmp_path, host, full_stub):
    """Bazel puts each wheel into a root of its own: nvidia/…/lib is nowhere near the hook."""
    roots = {name: Site(tmp_path / name) for name in ("c", "a", "t", "b")}
    (roots["c"] / "nvidia").mkdir()
    roots["a"].tms()
    roots["t"].torch("13.0")
    directory = roots["b"].cudart(13)
    environ = host.environ(
        PYTHONPATH=[*map(os.fspath, roots.values())], LD_LIBRARY_PATH=[full_stub]
    )
    assert 127 == host.preload(roots["a"].hook("_cu13"), environ).returncode

    command = [COMMAND, "exec", "--", sys.executable, "-c", WORKER]
    done = host.run(*command, environ=environ)
    assert (0, "") == (done.returncode, done.stderr)
    assert 13000 == json.loads(done.stdout)["version"]
    assert {f"{directory}/libcudart.so.13"} == mapped(done, "libcudart")
    assert {str(roots["a"].hook("_cu13"))} == mapped(done, "torch_memory_saver")


@pytest.mark.report("jax-ml/jax#17497", "jax-ml/jax#28929", "PaddlePaddle/Paddle#78285")
def test_r20_stale_toolkit_of_a_module_file(site, tmp_path, host, full_stub):
    """A module file's LD_LIBRARY_PATH leads to CUDA 12.1, and it wins over the 12.8 of pip."""
    directory = site.tms().torch("12.8").cudart(12)
    stale = Site(tmp_path / "cuda-12.1").cudart(OLD_CUDART_12)
    before = [tmp_path / "cudnn/lib", stale, tmp_path / "CUPTI", full_stub]
    environ = host.environ(LD_LIBRARY_PATH=before)
    version, _ = host.worker({**environ, "LD_PRELOAD": str(site.hook("_cu12"))})
    assert 12010 == version

    answer = host.pick(site, environ=environ)
    assert {
        "LD_PRELOAD": str(site.hook("_cu12")),
        "LD_LIBRARY_PATH": ":".join(map(str, [directory, *before])),
    } == answer["env"]
    assert f"{stale}/libcudart.so.12 (CUDA 12.1" in answer["text"]
    opened = "libcudart.so.12", site / "torch/lib/libc10_cuda.so"  # what is linked later follows
    version, mapped = host.worker({**environ, **answer["env"]}, *opened)
    assert 12080 == version
    assert {f"{directory}/libcudart.so.12"} == with_part(mapped, "libcudart")


NEWER = """
    #include <stdlib.h>
    #include <unistd.h>
    int cudaGetDriverEntryPointByVersion(void);  /* of CUDA 12.5 */
    int cudaMalloc(void **, size_t);
    int later(void **p) { return cudaGetDriverEntryPointByVersion() + cudaMalloc(p, 1); }
"""


def torch_library(site, text):
    """Replace torch's library by one that finds torch's own runtime through a DT_RUNPATH."""
    site.tms().torch("12.8", old_dtags=False)
    lib = site / "torch/lib"
    places = "-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN/../../nvidia/cuda_runtime/lib:$ORIGIN"
    needed = "-Wl,--no-as-needed", fake_cudart(12), lib / "libc10.so"
    return cc_text(text, lib / "libc10_cuda.so", *needed, *places)


@pytest.mark.report("pytorch/pytorch#157381", "pytorch/pytorch#80637")
@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", "LD_PRELOAD"])
def test_n01b_torch_fails_on_an_older_runtime(site, tmp_path, host, full_stub, variable):
    """LD_LIBRARY_PATH has CUDA 12.1, torch wants 12.8, and `import torch` dies."""
    library = torch_library(site, NEWER)
    own = site.cudart(12) / "libcudart.so.12"
    old = Site(tmp_path / "old").cudart(OLD_CUDART_12)
    stale = old if variable == "LD_LIBRARY_PATH" else old / "libcudart.so.12"
    places = [old, full_stub] if variable == "LD_LIBRARY_PATH" else [full_stub]
    environ = host.environ(LD_LIBRARY_PATH=places)
    environ[variable] = environ.get(variable, "") or str(stale)
    done = host.run(*worker_command(library), environ=environ)
    assert (1, True) == (done.returncode, "cudaGetDriverEntryPointByVersion" in done.stderr)

    answer = host.pick(site, environ=environ)
    assert ("ok", []) == (answer["verdict"], answer["warnings"])
    version, mapped = host.worker({**environ, **answer["env"]}, library)
    assert 12080 == version
    kept = {str(stale)} if variable == "LD_PRELOAD" else set()  # behind torch's, without effect
    assert {str(own), *kept} == with_part(mapped, "libcudart")
    shell = 'eval "$("$0" env)" && exec "$@"'
    environ["PYTHONPATH"] = str(site.root)
    done = host.run("sh", "-c", shell, COMMAND, *worker_command(library), environ=environ)
    assert (0, "") == (done.returncode, done.stderr)


def test_like_n01b_torch_without_its_other_library(site, host, full_stub, says):
    """An upgrade of torch broke off: libc10_cuda.so is there, and the libc10.so it needs is not."""
    site.tms().torch("12.8").cudart(12)
    (site / "torch/lib/libc10.so").unlink()
    answer = host.pick(site, environ=host.environ(LD_LIBRARY_PATH=[full_stub]))
    assert "NotLoadableError" == answer["error"]
    assert "libc10_cuda.so does not load (libc10.so: cannot open" in says(answer["message"])


@pytest.mark.parametrize(
    ("constructor", "words"),
    [
        ("abort();", "libc10_cuda.so does not load (SIGABRT)"),
        ("_exit(3);", "libc10_cuda.so does not load (exit status 3)"),
        ("for (;;) pause();", "libc10_cuda.so did not finish loading within"),
    ],
)
def test_like_n01b_constructor_of_torch(site, host, full_stub, says, constructor, words):
    """The library of torch ends or stops the process that loads it, and the hook is blamed."""
    text = f"{NEWER}__attribute__((constructor)) static void begin(void) {{ {constructor} }}"
    torch_library(site, text)
    site.cudart(12)
    answer = host.pick(site, environ=host.environ(LD_LIBRARY_PATH=[full_stub]), timeout=2)
    assert "NotLoadableError" == answer["error"]
    assert words in says(answer["message"])


# --- a file that is found first and lacks what is wanted

USES_NEWER = """
    int cudaGetDriverEntryPointByVersion(void);
    int f(void) { return cudaGetDriverEntryPointByVersion(); }
"""


@pytest.fixture
def versioned(tmp_path):
    """Return a library that wants a function of CUDA 12.5 in the version of CUDA 12."""
    script = tmp_path / "cudart.map"
    script.write_text("libcudart.so.12 { global: *; };\n")
    text = "int cudaGetDriverEntryPointByVersion(void) { return 0; }"
    soname = "-Wl,-soname,libcudart.so.12", f"-Wl,--version-script={script}"
    newer = cc_text(text, tmp_path / "newer.so", *soname)
    return cc_text(USES_NEWER, tmp_path / "user.so", newer)


@pytest.mark.report("sgl-project/sglang#5695", "deepseek-ai/DeepGEMM#137")
@pytest.mark.parametrize("mode", MODES)
def test_n01a_older_runtime_first(site, tmp_path, versioned, clean_env, monkeypatch, says, mode):
    """An old cudart 12.1 is found first, and to reinstall the library is the advice."""
    monkeypatch.syspath_prepend(site.root)
    old = Site(tmp_path / "old").cudart(OLD_CUDART_12)
    good = site.cudart(12)
    environ = {**clean_env, "LD_LIBRARY_PATH": str(old)}
    report = pyresolve.check(versioned, mode=mode, environ=environ)
    assert "undefined_symbol" == report.status.value
    wanted = "cudaGetDriverEntryPointByVersion@libcudart.so.12"
    assert report.message == says(
        f"{versioned} needs {wanted} of {old}/libcudart.so.12, which does not have it and is found"
        f" first through LD_LIBRARY_PATH ({old}); {good}/libcudart.so.12 has it: put {good} before"
        f" {old} into LD_LIBRARY_PATH"
    )
    assert (versioned, old / "libcudart.so.12") == (report.used_by, report.provider)
    assert report.remedy
    shell = f'{report.remedy}; exec "$0" check --mode {mode} "$1"'
    command = [require_tool("sh"), "-c", shell, COMMAND, str(versioned)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (0, "OK") == (done.returncode, done.stdout[:2])


@pytest.mark.report("NVIDIA/nccl#1180", "pytorch/pytorch#119932")
def test_n03_older_nccl_first(site, tmp_path, clean_env, monkeypatch, says):
    """An old libnccl.so.2 is found first, and lacks ncclCommRegister, which has no version."""
    monkeypatch.syspath_prepend(site.root)
    soname = "-Wl,-soname,libnccl.so.2"
    good = site / "nvidia/nccl/lib/libnccl.so.2"
    old = tmp_path / "old/libnccl.so.2"
    for path, text in (good, "int ncclCommRegister(void) { return 0; }"), (old, ""):
        path.parent.mkdir(parents=True)
        cc_text(text, path, soname)
    text = "int ncclCommRegister(void);\nint f(void) { return ncclCommRegister(); }"
    library = cc_text(text, tmp_path / "user.so", good)
    report = pyresolve.check(library, environ={**clean_env, "LD_LIBRARY_PATH": str(old.parent)})
    assert f"{library} needs ncclCommRegister of {old}, which does not have it" in says(
        report.message
    )
    assert f"; {good} has it: put {good.parent} before {old.parent}" in report.message


@pytest.mark.report("tensorflow/tensorflow#45930")
@pytest.mark.parametrize("made", [shutil.copy, os.symlink])
def test_n13_runtime_under_another_name(site, tmp_path, clean_env, says, made):
    """A cudart 13 is copied or linked as libcudart.so.12."""
    real = site.cudart(13) / "libcudart.so.13"
    named = tmp_path / "libcudart.so.12"
    made(real, named)
    environ = {**clean_env, "LD_LIBRARY_PATH": str(tmp_path)}
    report = pyresolve.check(site.tms().hook("_cu12"), environ=environ)
    assert "version_mismatch" == report.status.value
    assert says(report.message) == (
        f"{site.hook('_cu12')} needs libcudart.so.12 of {named}, which does not have it: it is"
        " libcudart.so.13 under another name; put the real libcudart.so.12 in its place"
    )
    report = pyresolve.check(named, environ=environ)
    assert report.runtime
    assert (13, 13000) == (report.runtime.major, report.runtime.version)


def test_like_n01a_driver_that_is_too_old(tmp_path, clean_env, says):
    """The symbol is the driver's, and the driver here does not have it yet."""
    soname = "-Wl,-soname,libcuda.so.1"
    directory = tmp_path / "driver"
    directory.mkdir()
    version = "int cuDriverGetVersion(int *version) { *version = 12000; return 0; }"
    newer = cc_text(f"{version}\nint cuLater(void) {{ return 0; }}", tmp_path / "newer.so", soname)
    cc_text(version, directory / "libcuda.so.1", soname)
    text = "int cuLater(void);\nint f(void) { return cuLater(); }"
    library = cc_text(text, tmp_path / "user.so", newer)
    environ = {**clean_env, "LD_LIBRARY_PATH": str(directory)}
    report = pyresolve.check(library, environ=environ)
    assert says(report.message) == (
        f"{library} needs cuLater of {directory}/libcuda.so.1, which does not have it: update the"
        " driver"
    )


def test_like_n03_dependency_of_a_dependency(site, tmp_path, clean_env, monkeypatch, says):
    """Not the target but a library that it needs is met by an older copy of a third one."""
    monkeypatch.syspath_prepend(site.root)
    good = site / "nvidia/low/lib/liblow.so.1"
    old = tmp_path / "old/liblow.so.1"
    for path, text in (good, "int late(void) { return 0; }"), (old, ""):
        path.parent.mkdir(parents=True)
        cc_text(text, path, "-Wl,-soname,liblow.so.1")
    text = "int late(void);\nint middle(void) { return late(); }"
    middle = cc_text(text, tmp_path / "libmiddle.so", good, "-Wl,-soname,libmiddle.so")
    text = "int middle(void);\nint top(void) { return middle(); }"
    top = cc_text(text, tmp_path / "top.so", middle)
    environ = {**clean_env, "LD_LIBRARY_PATH": f"{old.parent}:{tmp_path}"}
    report = pyresolve.check(top, environ=environ)
    assert f"{middle} needs late of {old}, which does not have it" in says(report.message)
    assert f"{good} has it" in report.message


def test_like_n13_no_copy_has_it(site, tmp_path, clean_env, says):
    """Nothing here has the symbol: the sentence names none that would."""
    directory = site.cudart(12)
    text = "int cudaNeverThere(void);\nint f(void) { return cudaNeverThere(); }"
    library = cc_text(text, tmp_path / "user.so", directory / "libcudart.so.12")
    environ = {**clean_env, "LD_LIBRARY_PATH": str(directory)}
    report = pyresolve.check(library, environ=environ)
    assert ("undefined_symbol", None) == (report.status.value, report.provider)
    assert "has it" not in says(report.message)


# --- a driver that is found and does not work, and what this user may not see


@pytest.mark.report("apptainer/apptainer#2421", "NVIDIA/nvidia-container-toolkit#543")
@pytest.mark.parametrize("mode", MODES)
def test_n05_injected_driver_for_a_newer_glibc(site, tmp_path, clean_env, full_stub, says, mode):
    """The host's libcuda.so.1 is mounted into a container whose glibc is older."""
    directory = tmp_path / "driver"
    directory.mkdir()
    source = full_stub / "libcuda.so.1"
    elfpatch.bump_version(source, directory / "libcuda.so.1", "GLIBC_2.2.5", "GLIBC_9.9.9")
    runtime = site.tms().cudart(13)
    environ = {**clean_env, "LD_LIBRARY_PATH": f"{directory}:{runtime}"}
    report = pyresolve.check(site.hook("_cu13"), mode=mode, environ=environ)
    assert "version_mismatch" == report.status.value
    assert f"{directory}/libcuda.so.1 needs GLIBC_9.9.9 of " in says(report.message)


@pytest.mark.report("bitsandbytes-foundation/bitsandbytes#755")
def test_n19_directories_of_another_user(site, tmp_path, clean_env, says):
    """A job inherits CONDA_PREFIX=/root/miniconda3, which its user may not look into."""
    site.tms().torch("13.0").cudart(13)
    secret = tmp_path / "root"
    (secret / "miniconda3/conda-meta").mkdir(parents=True)
    (secret / "cuda/lib64").mkdir(parents=True)
    inherited = {
        "CONDA_PREFIX": f"{secret}/miniconda3",
        "CUDA_HOME": f"{secret}/cuda",
        "LD_LIBRARY_PATH": f"{secret}/cuda/lib64",
    }
    prefix = [require_tool("setpriv"), "--bounding-set=-dac_override,-dac_read_search"]
    host = Host(prefix if os.geteuid() == 0 else [], clean_env)
    secret.chmod(0)
    try:
        answer = host.pick(site, environ=host.environ(**inherited))
        lacking = built(SOURCES / "hollow.c", "n19.so", hollow("libgone.so.1"))
        report = host.check(lacking, site, environ=host.environ(**inherited))
    finally:
        secret.chmod(0o700)
    assert (str(site.hook("_cu13")), "unknown") == (answer["path"], answer["verdict"])
    for name, value in inherited.items():
        words = f"{value}, which {name} names, may not be looked into by this user"
        assert any(words in warning for warning in answer["warnings"])
        assert words in report["message"]
    for warning in answer["warnings"]:
        says(warning)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("content", [b"", b"not a library\n", None], ids=["empty", "text", "cut"])
def test_n25_driver_that_is_no_library(site, tmp_path, clean_env, full_stub, says, content, mode):
    """The driver's libcuda.so.1 is an empty file, a text, or cut short."""
    directory = tmp_path / "driver"
    directory.mkdir()
    data = (full_stub / "libcuda.so.1").read_bytes()
    (directory / "libcuda.so.1").write_bytes(data[:2000] if content is None else content)
    runtime = site.tms().cudart(13)
    environ = {**clean_env, "LD_LIBRARY_PATH": f"{directory}:{runtime}"}
    report = pyresolve.check(site.hook("_cu13"), mode=mode, environ=environ)
    assert "fail" == report.verdict.value
    assert f"{directory}/libcuda.so.1" in says(report.message)


def test_n30_bare_name_beside_a_file_of_that_name(tmp_path, clean_env, monkeypatch, says):
    """A name without a slash is searched: the file of that name here is not what was tried."""
    cc_text("", tmp_path / "libhere.so")
    monkeypatch.chdir(tmp_path)
    report = pyresolve.check("libhere.so", environ=clean_env)
    assert "not_found" == report.status.value
    assert says(report.message) == (
        "the loader finds no libhere.so in LD_LIBRARY_PATH, its cache and its default directories;"
        " for the file of that name here write ./libhere.so"
    )
    assert "loadable" == pyresolve.check("./libhere.so", environ=clean_env).status.value


# --- what the program opens before


@pytest.mark.report("sgl-project/sglang#9584", "triton-inference-server/server#4141")
def test_n10_extension_that_counts_on_torch(site, tmp_path, clean_env, monkeypatch, says):
    """A torch extension needs libc10.so, which `import torch` has opened before."""
    monkeypatch.syspath_prepend(site.root)
    site.torch("12.8").fake_cudart(12)
    c10 = site / "torch/lib/libc10.so"
    uses = "int c10_error(int);\nint use(void) { return c10_error(1); }"
    extension = cc_text(uses, tmp_path / "extension.so", c10)
    report = pyresolve.check(extension, environ=clean_env)
    assert "missing_dependency" == report.status.value
    assert says(report.message) == (
        f"{extension} needs libc10.so, which the loader does not find; `import torch` opens {c10}"
        " before: then it loads"
    )
    assert report.remedy == f"pyresolve check --after {c10} {extension}"
    words = report.remedy.replace("pyresolve", str(COMMAND), 1).split()
    done = subprocess.run(words, env=clean_env, capture_output=True, text=True, check=False)
    assert (0, "OK") == (done.returncode, done.stdout[:2])


def test_like_n10_gap_behind_torch(site, tmp_path, clean_env, monkeypatch, says):
    """What torch opens is not all that the extension lacks: the rest is judged as well."""
    monkeypatch.syspath_prepend(site.root)
    site.torch("12.8")
    c10 = site / "torch/lib/libc10.so"
    text = "int c10_error(int);\nint nowhere(void);\nint f(void) { return c10_error(nowhere()); }"
    gap = cc_text(text, tmp_path / "gap.so", c10)
    message = pyresolve.check(gap, environ=clean_env).message
    assert f"opens {c10} before: then: {gap} uses nowhere, which nothing" in says(message)


@pytest.mark.report("NVIDIA/cuda-python#763", "NVIDIA/cuda-python#839", "NVIDIA/cuda-python#919")
@pytest.mark.parametrize("lib", ["lib", "targets/x86_64-linux/lib"])
@pytest.mark.parametrize("system", [(12, 3), (13, 0)], ids=["12.3", "13.0"])
def test_r21_conda_before_the_system(site, tmp_path, host, full_stub, lib, system):
    """The conda environment has CUDA 12.8, and the toolkit of the system is found instead."""
    wheel = Site(tmp_path / "wheel").cudart(12) / "libcudart.so.12"
    prefix = conda(tmp_path / "conda", wheel, lib=lib)  # no libcudart.so, as in conda's packages
    toolkit = tmp_path / "cuda/lib64"
    toolkit.mkdir(parents=True)
    library = shutil.copy(fake_cudart(*system), toolkit)
    (toolkit / "libcudart.so").symlink_to(os.path.basename(library))
    site.tms().torch("12.9")
    environ = host.environ(
        CONDA_PREFIX=str(tmp_path / "conda"),
        CUDA_HOME=str(tmp_path / "cuda"),
        LD_LIBRARY_PATH=[full_stub],
    )
    answer = host.pick(site, environ=environ)
    assert (str(site.hook("_cu12")), "ok") == (answer["path"], answer["verdict"])
    version, mapped = host.worker({**environ, **answer["env"]})
    assert 12080 == version
    assert {f"{prefix}/libcudart.so.12"} == with_part(mapped, "libcudart")


@pytest.mark.report(
    "vllm-project/vllm#34821",
    "vllm-project/vllm#33992",
    "vllm-project/vllm#34226",
    "gpustack/gpustack#4678",
    "NVIDIA-NeMo/labs-molt#44",
)
@pytest.mark.parametrize("first", ["compat", "host"])
def test_r23_forward_compatibility_copy(site, tmp_path, host, says, first):
    """Error 803: compat/libcuda.so.1, older than the host's driver, is found before it."""
    directory = site.tms().torch("13.0").cudart(13)
    drivers = {
        "compat": Path(shutil.copytree(driver.full_stub(13000), tmp_path / "cuda/compat")),
        "host": driver.full_stub(13010),
    }
    order = [drivers.pop(first), *drivers.values()]
    environ = host.environ(LD_LIBRARY_PATH=order)
    answer = host.pick(site, environ=environ)
    assert f"{directory}:{environ['LD_LIBRARY_PATH']}" == answer["env"]["LD_LIBRARY_PATH"]
    assert f"{order[0]}/libcuda.so.1" == answer["driver"]["path"]
    _, mapped = host.worker({**environ, **answer["env"]})
    assert {f"{order[0]}/libcuda.so.1"} == with_part(mapped, "libcuda.so")
    if first == "host":
        assert [] == answer["warnings"]
        return
    (warning,) = map(says, answer["warnings"])
    assert f"{order[0]}/libcuda.so.1, a forward-compatibility copy" in warning
    assert "803" in warning
    assert "LD_LIBRARY_PATH" in warning  # what to do: take its directory out
    assert warning in answer["text"]


@pytest.fixture
def wsl(tmp_path, monkeypatch):
    """Return the directory of WSL's driver, which holds libcuda.so.1 and no unversioned link."""
    directory = Path(shutil.copytree(driver.full_stub(), tmp_path / "usr/lib/wsl/lib"))
    monkeypatch.setattr(_drivers, "_ROOT", str(tmp_path))
    return directory


@pytest.mark.report("microsoft/WSL#8587", "bitsandbytes#17", "triton#3862")
def test_r24_driver_of_wsl(site, clean_env, monkeypatch, wsl):
    """Under WSL the driver is in /usr/lib/wsl/lib, where the loader does not look."""
    monkeypatch.syspath_prepend(site.root)
    directory = site.tms().torch("13.0").cudart(13)
    host, hook = Host([], clean_env), site.hook("_cu13")
    environ = host.environ(LD_LIBRARY_PATH=[directory])
    bare = host.preload(hook, environ)
    assert (127, True) == (bare.returncode, "libcuda.so.1" in bare.stderr)

    choice = pyresolve.pick(environ=environ)
    change = choice.env(environ)
    assert str(wsl) in change["LD_LIBRARY_PATH"].split(":")
    assert (hook, pyresolve.Verdict.OK) == (choice.path, choice.verdict)
    _, mapped = host.worker({**environ, **change})
    assert {str(wsl / "libcuda.so.1")} == with_part(mapped, "libcuda.so")
    assert {} == choice.env({**environ, **change})


def test_like_r24_check_names_the_driver_of_wsl(site, clean_env, wsl, says):
    """A check under WSL does not say that the host lacks what lies out of the loader's reach."""
    directory = site.tms().torch("13.0").cudart(13)
    environ = {**clean_env, "LD_LIBRARY_PATH": str(directory)}
    report = pyresolve.check(site.hook("_cu13"), mode="preload", environ=environ)
    assert str(wsl) in says(report.message)


def test_like_r24_host_driver_before_that_of_wsl(site, clean_env, monkeypatch, wsl, full_stub):
    """Where the loader finds a driver, that of WSL is left alone."""
    monkeypatch.syspath_prepend(site.root)
    directory = site.tms().torch("13.0").cudart(13)
    environ = {**clean_env, "LD_LIBRARY_PATH": str(full_stub)}
    change = pyresolve.pick(environ=environ).env(environ)
    assert f"{directory}:{full_stub}" == change["LD_LIBRARY_PATH"]


def test_like_r24_placeholder_of_wsl(site, clean_env, monkeypatch, wsl):
    """Docker Desktop leaves an empty libcuda.so.1 where WSL's driver would be: it is not taken."""
    monkeypatch.syspath_prepend(site.root)
    site.tms().torch("13.0").cudart(13)
    elfpatch.cut(wsl / "libcuda.so.1", wsl / "libcuda.so.1", 0)
    choice = pyresolve.pick(environ=clean_env)
    assert str(wsl) not in choice.env(clean_env)["LD_LIBRARY_PATH"]
    assert pyresolve.Verdict.UNKNOWN is choice.verdict


@pytest.mark.report("THUDM/slime#2187", "tensorflow/tensorflow#9969", "rapidsai/cudf#6602")
def test_r25_head_node_without_driver(site, host, says):
    """On a GPU-less head each build fails to open with the same words, so none is picked."""
    site.tms().torch("13.0")
    for major in (12, 13):
        site.cudart(major)
    environ = host.environ(LD_LIBRARY_PATH=[site.cudart_directory(12), site.cudart_directory(13)])
    words = [host.preload(site.hook(f"_cu{major}"), environ).stderr for major in (12, 13)]
    assert ["libcuda.so.1" in text and "libcudart" not in text for text in words] == [True, True]

    answer = host.pick(site, environ=environ)
    assert (str(site.hook("_cu13")), "unknown") == (answer["path"], answer["verdict"])
    assert ("no_driver", []) == (answer["report"]["status"], answer["warnings"])
    message = says(answer["report"]["message"])
    assert f"{site.hook('_cu13')} needs resolves but the NVIDIA driver (libcuda.so.1)" in message
    assert "check on a GPU node" in message


@pytest.mark.report("THUDM/slime#2187")
def test_r25_missing_runtime_is_told_from_missing_driver(site, host, says):
    """Without a driver nobody sees that libcudart.so.13 is missing, too."""
    hook = site.tms().hook("_cu13")
    report = host.check(hook, site, environ=host.environ())
    assert ("fail", "missing_dependency") == (report["verdict"], report["status"])
    message = says(report["message"])
    assert f"{hook} needs libcudart.so.13, which the loader does not find" in message
    assert "pip install 'nvidia-cuda-runtime==13.*'" in message
    assert "libcuda.so.1" not in message


@pytest.mark.report("THUDM/slime#2187")
def test_r25_resolver_that_raises(site, host, says):
    """The package's own resolver raises on the head, and the launcher swallows it."""
    site.tms().torch("13.0").cudart(13)
    (site / "torch_memory_saver/__init__.py").write_text("")
    body = "def get_binary_path_from_package(stem):\n    raise RuntimeError('no CUDA here')\n"
    (site / "torch_memory_saver/utils.py").write_text(body)
    answer = host.pick(site, environ=host.environ(), resolver="always")
    assert "ResolverError" == answer["error"]
    message = says(answer["message"])
    assert "torch_memory_saver" in message
    assert "no CUDA here" in message


@pytest.mark.report("awslabs/awsome-distributed-ai#1225")
@pytest.mark.parametrize("value", ["void", "none"])
def test_r26_driver_kept_out_of_the_pod(site, host, full_stub, says, value):
    """The head is pinned to a GPU node, and its pod still has no libcuda.so.1."""
    site.tms().torch("13.0").cudart(13)
    answer = host.pick(site, environ=host.environ(NVIDIA_VISIBLE_DEVICES=value))
    assert (str(site.hook("_cu13")), "unknown") == (answer["path"], answer["verdict"])
    (warning,) = map(says, answer["warnings"])
    assert f"NVIDIA_VISIBLE_DEVICES={value}" in warning
    assert "libcuda.so.1" in warning
    assert re.search("unset|set it|=all|start", warning)  # what to do

    environ = host.environ(NVIDIA_VISIBLE_DEVICES=value, LD_LIBRARY_PATH=[full_stub])
    answer = host.pick(site, environ=environ)
    assert ("ok", []) == (answer["verdict"], answer["warnings"])


@pytest.mark.parametrize("value", ["utility", "graphics,video"])
def test_like_r26_capabilities_without_compute(site, host, says, value):
    """The container gets nvidia-smi and no libcuda.so.1: its capabilities lack `compute`."""
    site.tms().torch("13.0").cudart(13)
    environ = host.environ(NVIDIA_VISIBLE_DEVICES="all", NVIDIA_DRIVER_CAPABILITIES=value)
    answer = host.pick(site, environ=environ)
    assert (str(site.hook("_cu13")), "unknown") == (answer["path"], answer["verdict"])
    (warning,) = map(says, answer["warnings"])
    assert f"NVIDIA_DRIVER_CAPABILITIES={value}" in warning
    assert "compute" in warning


def test_like_r26_variable_that_is_empty(site, host, says):
    """A template leaves NVIDIA_VISIBLE_DEVICES empty, which keeps the driver out like `void`."""
    site.tms().torch("13.0").cudart(13)
    answer = host.pick(site, environ=host.environ(NVIDIA_VISIBLE_DEVICES=""))
    (warning,) = map(says, answer["warnings"])
    assert "NVIDIA_VISIBLE_DEVICES" in warning
    assert "empty" in warning


@pytest.mark.parametrize("value", ["", "-1", "NoDevFiles"])
def test_like_r26_no_visible_device_is_no_missing_driver(site, host, full_stub, value):
    """A control actor has CUDA_VISIBLE_DEVICES empty: that hides the GPUs and not the driver."""
    site.tms().torch("13.0").cudart(13)
    environ = host.environ(CUDA_VISIBLE_DEVICES=value, LD_LIBRARY_PATH=[full_stub])
    answer = host.pick(site, environ=environ)
    assert ("ok", []) == (answer["verdict"], answer["warnings"])


@pytest.mark.report("NixOS/nixpkgs#527095", "huggingface/kernels#670", "triton#1981")
def test_r27_no_ldconfig(site, tmp_path, host):
    """On Nix there is no ldconfig to ask, and what answers to that name tells nonsense."""
    opengl = Path(shutil.copytree(driver.full_stub(), tmp_path / "run/opengl-driver/lib"))
    site.tms().torch("13.0").cudart(13)
    programs, marker = tmp_path / "bin", tmp_path / "marker"
    programs.mkdir()
    for name in ("ldconfig", "whereis", "nvidia-smi", "ldd", "nvcc"):
        (programs / name).write_text(f"#!/bin/sh\necho {name} >> {marker}\n")
        (programs / name).chmod(0o755)
    environ = host.environ(PATH=str(programs), LD_LIBRARY_PATH=[opengl])
    answer = host.pick(site, environ=environ)
    assert (str(site.hook("_cu13")), "ok") == (answer["path"], answer["verdict"])
    assert f"{opengl}/libcuda.so.1" == answer["driver"]["path"]
    assert not marker.exists()


@pytest.mark.report("NixOS/nixpkgs#527095")
def test_r27_stub_before_the_driver(site, tmp_path, host, full_stub, says):
    """Every call answers error 34: the toolkit's stub libcuda.so.1 stands before the driver."""
    site.tms().torch("13.0").cudart(13)
    stubs = Path(shutil.copytree(driver.full_stub(result=STUB_LIBRARY), tmp_path / "lib/stubs"))
    environ = host.environ(LD_LIBRARY_PATH=[stubs, full_stub])
    answer = host.pick(site, environ=environ)
    assert ("unknown", False) == (answer["verdict"], answer["driver"]["present"])
    problem = says(answer["driver"]["problem"])
    assert f"{stubs}/libcuda.so.1 is the toolkit's stub, not a driver" in problem
    assert "LD_LIBRARY_PATH" in problem  # what to do: take its directory out
    message = says(answer["report"]["message"])
    assert f"{stubs}/libcuda.so.1" in message


@pytest.mark.report(
    "apptainer/singularity#5499",
    "apptainer/singularity#1714",
    "EESSI#231",
    "xorbitsai/inference#883",
)
def test_r28_library_path_of_the_container(site, tmp_path, host):
    """A launcher sets LD_LIBRARY_PATH anew, and /.singularity.d/libs with libcuda is lost."""
    libs = Path(shutil.copytree(driver.full_stub(), tmp_path / ".singularity.d/libs"))
    directory = site.tms().torch("13.0").cudart(13)
    environ = host.environ(LD_LIBRARY_PATH=["/opt/ompi/lib", libs, "/usr/local/hpcx"])
    replaced = {**environ, "LD_LIBRARY_PATH": str(directory)}
    bare = host.preload(site.hook("_cu13"), replaced)
    assert (127, True) == (bare.returncode, "libcuda.so.1" in bare.stderr)

    answer = host.pick(site, environ=environ)
    assert f"{directory}:{environ['LD_LIBRARY_PATH']}" == answer["env"]["LD_LIBRARY_PATH"]
    _, mapped = host.worker({**environ, **answer["env"]})
    assert {f"{libs}/libcuda.so.1"} == with_part(mapped, "libcuda.so")


def test_like_r28_spelling_of_what_was_there(site, host, full_stub):
    """Elements with a token, a double slash or a slash at the end stay as they were written."""
    directory = site.tms().torch("13.0").cudart(13)
    before = ["/opt/$LIB", "/opt//lib/", f"{full_stub}/", "relative/lib", "/opt/$LIB/x"]
    environ = host.environ(LD_LIBRARY_PATH=before)
    answer = host.pick(site, environ=environ)
    assert f"{directory}:{':'.join(before)}" == answer["env"]["LD_LIBRARY_PATH"]
    present = host.environ(LD_LIBRARY_PATH=[f"{directory}/", full_stub])
    assert {"LD_PRELOAD": str(site.hook("_cu13"))} == host.pick(site, environ=present)["env"]


@pytest.mark.report("Kaggle/docker-python#791", "GPT-Code-Learner#11", "ollama/ollama#9069")
def test_r29_empty_runtime_before_the_good_one(site, tmp_path, host, full_stub):
    """A 0-byte libcudart.so.12 ends every child, although the good one follows on the path."""
    directory = site.tms().torch("12.8").cudart(12)
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "libcudart.so.12").touch()
    environ = host.environ(LD_LIBRARY_PATH=[bad, directory, full_stub])
    bare = host.preload(site.hook("_cu12"), environ)
    assert (127, True) == (bare.returncode, "file too short" in bare.stderr)

    answer = host.pick(site, environ=environ)
    assert "ok" == answer["verdict"]
    version, mapped = host.worker({**environ, **answer["env"]})
    assert 12080 == version
    assert {f"{directory}/libcudart.so.12"} == with_part(mapped, "libcudart")


@pytest.mark.report("ollama/ollama#9069")
@pytest.mark.parametrize("size", [0, 4000], ids=["empty", "cut"])
def test_r29_only_runtime_is_incomplete(site, host, full_stub, says, size):
    """A full disk left a short libcudart.so.12 in site-packages, and no other one is there."""
    library = site.tms().torch("12.8").cudart(12) / "libcudart.so.12"
    elfpatch.cut(library, library, size)
    answer = host.pick(site, environ=host.environ(LD_LIBRARY_PATH=[full_stub]))
    assert "NotLoadableError" == answer["error"]
    message = says(answer["message"])
    assert f"{library} is empty (0 bytes)" in message or f"{library} has 4000 bytes" in message
    assert "install" in message


@pytest.mark.report("Kaggle/docker-python#791")
def test_r29_placeholder_of_the_driver(site, tmp_path, host, full_stub, says):
    """A 0-byte libcuda.so.1 is a placeholder for the driver, which is further down the path."""
    directory = site.tms().torch("13.0").cudart(13)
    default = tmp_path / "default"
    default.mkdir()
    (default / "libcuda.so.418.67").touch()
    (default / "libcuda.so.1").symlink_to("libcuda.so.418.67")
    environ = host.environ(LD_LIBRARY_PATH=[directory, default, full_stub])
    assert 127 == host.preload(site.hook("_cu13"), environ).returncode
    report = host.check(site.hook("_cu13"), site, environ=environ)
    assert "fail" == report["verdict"]
    message = says(report["message"])
    assert f"{default}/libcuda.so.1 is empty (0 bytes)" in message
    answer = host.pick(site, environ=environ)
    told = [answer["message"]] if "error" in answer else answer["warnings"]
    assert any(f"{default}/libcuda.so.1 is empty (0 bytes)" in says(text) for text in told)


@pytest.mark.report("Kaggle/docker-python#791")
def test_r29_hook_cut_short(site, host, full_stub, says):
    """A hook that was cut after its headers kills every child with SIGBUS."""
    site.tms().torch("13.0").only("*_cu13.abi3.so")
    directory, hook = site.cudart(13), site.hook("_cu13")
    elfpatch.cut(hook, hook, 4000)
    environ = host.environ(LD_LIBRARY_PATH=[directory, full_stub])
    bare = host.preload(hook, environ)
    assert bare.returncode in (-signal.SIGBUS, 128 + signal.SIGBUS)
    answer = host.pick(site, environ=environ)
    assert "NoVariantError" == answer["error"]
    message = says(answer["message"])
    assert f"{hook} has 4000 bytes" in message
    assert "pip install --force-reinstall" in message


@pytest.fixture
def fragile(tmp_path):
    """Return a conda prefix with libcudart.so.12, and with libraries that break the shell."""
    wheel = Site(tmp_path / "wheel").cudart(12) / "libcudart.so.12"
    lib = conda(tmp_path / "conda", wheel)
    for soname in _elf.read(require_tool("bash")).needed:
        if not soname.startswith(("libc.", "libdl.", "libpthread.")):
            (lib / soname).touch()
    (lib / "libtinfo.so.6").touch()
    return lib


@pytest.mark.report("conda/conda#12917", "ContinuumIO/anaconda-issues#6767", "silicon-notebooks#52")
@pytest.mark.parametrize("version", ["0.0.9.post1", "0.0.10"])
def test_r31_shell_beside_a_conda_prefix(site, host, fragile, full_stub, says, version):
    """With $CONDA_PREFIX/lib on LD_LIBRARY_PATH, bash and git start no more in the children."""
    site.tms(version).torch("12.8")
    prefix = str(fragile.parent)
    environ = host.environ(CONDA_PREFIX=prefix, LD_LIBRARY_PATH=[full_stub])
    shell = [require_tool("bash"), "-c", "exit 5"]
    wide = {**environ, "LD_LIBRARY_PATH": f"{fragile}:{full_stub}"}
    assert 5 != host.run(*shell, environ=wide).returncode

    answer = host.pick(site, environ=environ)
    assert "ok" == answer["verdict"]
    final = {**environ, **answer["env"]}
    version, mapped = host.worker(final)
    assert (12080, {f"{fragile}/libcudart.so.12"}) == (version, with_part(mapped, "libcudart"))
    done = host.run(*shell, environ=final)
    if str(fragile) in final["LD_LIBRARY_PATH"].split(":"):
        # torch_memory_saver before 0.0.10 takes no second preload: there is no narrower way.
        told = [warning for warning in answer["warnings"] if str(fragile) in warning]
        assert told
        assert "0.0.10" in says(told[0])
    else:
        assert (5, "", []) == (done.returncode, done.stderr, answer["warnings"])


@pytest.fixture
def hostile(tmp_path):
    """Return a working directory whose libcudart.so.12 ends the program that loads it."""
    directory = tmp_path / "cwd"
    directory.mkdir()
    source = tmp_path / "hostile.c"
    source.write_text(
        "#include <stdlib.h>\n__attribute__((constructor)) static void end(void) { _Exit(66); }\n"
    )
    cc(source, directory / "libcudart.so.12", "-Wl,-soname,libcudart.so.12")
    return directory


@pytest.mark.report("torch/distro#228", "radare2#22964", "dynamo#12819")
@pytest.mark.parametrize("before", [None, "", "/a:", ":/a", "/a::/b"])
def test_r32_working_directory_is_searched(site, host, hostile, full_stub, says, before):
    """Naive concatenation leaves an empty element, and libcudart comes out of the current one."""
    directory = site.tms().torch("12.8").cudart(12)
    hook, stub = site.hook("_cu12"), full_stub / "libcuda.so.1"
    environ = host.environ(LD_PRELOAD=str(stub))
    if before is not None:
        environ["LD_LIBRARY_PATH"] = before
    naive = {"LD_LIBRARY_PATH": f"{before or ''}:{directory}", "LD_PRELOAD": f"{hook}:{stub}"}
    ended = host.run(require_tool("true"), environ={**environ, **naive}, cwd=hostile)
    assert 66 == ended.returncode

    answer = host.pick(site, environ=environ)
    after = answer["env"]["LD_LIBRARY_PATH"]
    assert (f"{directory}:{before}" if before else str(directory)) == after
    version, _ = host.worker({**environ, **answer["env"]}, cwd=hostile)
    assert 12080 == version
    if not before:
        assert [] == answer["warnings"]
        return
    (warning,) = map(says, answer["warnings"])
    assert "LD_LIBRARY_PATH has an empty element" in warning
    assert "take it out" in warning


@pytest.mark.report("bitsandbytes-foundation/bitsandbytes#1112")
def test_r32_list_of_directories(site, tmp_path, host, full_stub):
    """LD_LIBRARY_PATH with several elements is taken for one path, and nothing is found in it."""
    toolkit = tmp_path / "cuda/targets/aarch64-linux/lib"
    toolkit.parent.mkdir(parents=True)
    shutil.copytree(Site(tmp_path / "wheel").cudart(12), toolkit)
    (tmp_path / "cuda/lib64").symlink_to("targets/aarch64-linux/lib")
    site.tms().torch("12.8")
    environ = host.environ(LD_LIBRARY_PATH=f"/usr/lib/tegra;{tmp_path / 'cuda/lib64'}:{full_stub}")
    answer = host.pick(site, environ=environ)
    assert {"LD_PRELOAD": str(site.hook("_cu12"))} == answer["env"]
    assert ("ok", []) == (answer["verdict"], answer["warnings"])
    assert f"{tmp_path}/cuda/lib64/libcudart.so.12" == answer["runtime"]["path"]


# --- neighbours


def test_like_r17_runtime_that_needs_another_library(site, tmp_path, host, full_stub, says):
    """Torch's libcudart is found, and what it needs itself is in the directory of another wheel."""
    other = hollow("libnvidia-new-part.so.1")
    library = site.package("torch_memory_saver", "0.0.11").torch("14.0").fake_hook(14)
    directory = site.fake_cudart(14)
    soname = "-Wl,-soname,libcudart.so.14"
    script = tmp_path / "map"
    script.write_text("libcudart.so.14 { global: *; };\n")
    flags = "-DVERSION=14000", soname, f"-Wl,--version-script={script}", other
    shutil.copy(built(SOURCES / "cudart.c", "libcudart.so.14", *flags), directory)
    lying = site / "nvidia/new_part/lib"
    lying.mkdir(parents=True)
    shutil.copy(other, lying)
    environ = host.environ(LD_LIBRARY_PATH=[full_stub])
    answer = host.pick(site, environ=environ)
    if answer.get("verdict") == "ok":  # pyresolve may go further, and add that directory too
        host.worker({**environ, **answer["env"]})
        return
    assert "NotLoadableError" == answer["error"]
    message = says(answer["message"])
    assert f"{library} needs libnvidia-new-part.so.1 (for {directory}/libcudart.so.14)" in message
    assert f"put {lying} into LD_LIBRARY_PATH" in message


def test_like_r19_files_linked_from_a_store(site, tmp_path, host, full_stub):
    """An installer links each file from a store by its hash: its real name is no SONAME."""
    directory = site.tms().torch("13.0").cudart(13)
    store = tmp_path / "store"
    store.mkdir()
    for number, file in enumerate(sorted(site.root.rglob("*.so*"))):
        stored = file.rename(store / f"{number:064x}")
        file.symlink_to(stored)
    environ = host.environ(LD_LIBRARY_PATH=[full_stub])
    answer = host.pick(site, environ=environ)
    assert {
        "LD_PRELOAD": str(site.hook("_cu13")),
        "LD_LIBRARY_PATH": f"{directory}:{full_stub}",
    } == answer["env"]
    assert "ok" == answer["verdict"]
    version, mapped = host.worker({**environ, **answer["env"]}, site / "torch/lib/libc10_cuda.so")
    assert 13000 == version
    assert str((directory / "libcudart.so.13").resolve()) in mapped


def test_like_r19_roots_that_are_none(tmp_path, host, full_stub):
    """The import path is full of what is no nvidia package: dangling, a file, a module, a zip."""
    roots = [tmp_path / name for name in ("dangling", "file", "module", "archive.zip", "loop")]
    for root in roots:
        if root.suffix != ".zip":
            root.mkdir()
    (roots[0] / "nvidia").symlink_to(tmp_path / "gone")
    (roots[1] / "nvidia").write_text("")
    (roots[2] / "nvidia.py").write_text("raise AssertionError\n")
    roots[3].write_bytes(b"PK\x05\x06" + bytes(18))
    (roots[4] / "nvidia").symlink_to("nvidia")
    site = Site(tmp_path / "last").tms().torch("13.0")
    directory = site.cudart(13)
    environ = host.environ(LD_LIBRARY_PATH=[full_stub])
    answer = host.pick(*roots, site, environ=environ)
    assert f"{directory}:{full_stub}" == answer["env"]["LD_LIBRARY_PATH"]
    assert ("ok", []) == (answer["verdict"], answer["warnings"])


def test_like_r21_prefix_of_another_environment(site, tmp_path, host, full_stub):
    """A venv was activated on top of conda's base, whose older libcudart is not torch's."""
    lib = conda(tmp_path / "base", Site(tmp_path / "old").cudart(OLD_CUDART_12) / "libcudart.so.12")
    directory = site.tms().torch("12.8").cudart(12)
    environ = host.environ(CONDA_PREFIX=str(lib.parent), LD_LIBRARY_PATH=[full_stub])
    for torch in ({}, {"rpath": False}):
        site.torch("12.8", **torch)
        answer = host.pick(site, environ=environ)
        assert f"{directory}/libcudart.so.12" == answer["runtime"]["path"]
        version, _ = host.worker({**environ, **answer["env"]})
        assert 12080 == version


@pytest.mark.parametrize("how", ["directory", "file"])
def test_like_r23_compat_behind_a_link(site, tmp_path, host, says, how):
    """An image links its driver directory to compat: the copy does not show in the path."""
    site.tms().torch("13.0").cudart(13)
    compat = Path(shutil.copytree(driver.full_stub(13000), tmp_path / "cuda-13.0/compat"))
    link = tmp_path / "driver"
    if how == "directory":
        link.symlink_to(compat)
    else:
        link.mkdir()
        (link / "libcuda.so.1").symlink_to(compat / "libcuda.so.1")
    answer = host.pick(site, environ=host.environ(LD_LIBRARY_PATH=[link]))
    assert f"{link}/libcuda.so.1" == answer["driver"]["path"]
    (warning,) = map(says, answer["warnings"])
    assert f"{link}/libcuda.so.1" in warning
    assert "forward-compatibility copy" in warning


def test_like_r23_driver_older_than_the_runtime(site, host, says):
    """Error 35: all loads, but the driver is of CUDA 12.4 and torch's runtime of 13.0."""
    site.tms().torch("13.0").cudart(13)
    old = driver.full_stub(12040)
    answer = host.pick(site, environ=host.environ(LD_LIBRARY_PATH=[old]))
    assert str(site.hook("_cu13")) == answer["path"]
    (warning,) = map(says, answer["warnings"])
    assert f"{old}/libcuda.so.1" in warning
    assert "12.4" in warning
    assert "13" in warning


@pytest.mark.parametrize("name", ["libcuda.so.1", "libcudart.so.13"])
def test_like_r29_directory_in_place_of_a_library(site, tmp_path, host, full_stub, says, name):
    """A bind mount of a file that the host lacks makes a directory of that name."""
    directory = site.tms().torch("13.0").cudart(13)
    mount = tmp_path / "mount"
    (mount / name).mkdir(parents=True)
    hook = site.hook("_cu13")
    environ = host.environ(LD_LIBRARY_PATH=[mount, directory, full_stub])
    assert 127 == host.preload(hook, environ).returncode
    report = host.check(hook, site, environ=environ)
    assert "fail" == report["verdict"]
    assert f"{mount}/{name} is a directory" in says(report["message"])

    answer = host.pick(site, environ=environ)
    if name == "libcudart.so.13":  # torch's is put before it
        assert "ok" == answer["verdict"]
        host.worker({**environ, **answer["env"]})
    else:
        told = [answer["message"]] if "error" in answer else answer["warnings"]
        assert any(f"{mount}/{name} is a directory" in says(text) for text in told)


@pytest.mark.parametrize("element", [".", "lib"])
def test_like_r32_relative_element(site, tmp_path, host, full_stub, says, element):
    """Torch's libcudart is found by a relative element, and the workers start elsewhere."""
    here = tmp_path / "here"
    here.mkdir()
    directory = site.tms().torch("13.0").cudart(13)
    (here / "lib").symlink_to(directory)
    cwd = here if element == "lib" else directory
    environ = host.environ(LD_LIBRARY_PATH=[element, full_stub])
    answer = host.pick(site, environ=environ, cwd=cwd)
    (warning,) = map(says, answer["warnings"])
    assert "LD_LIBRARY_PATH" in warning
    assert element in warning
    final = {**environ, **answer["env"]}
    version, mapped = host.worker(final, cwd="/")  # as Ray, systemd and cron do
    assert 13000 == version
    assert {f"{directory}/libcudart.so.13"} == with_part(mapped, "libcudart")


def test_like_r25_driver_of_the_package_is_none(site, host, says):
    """A wheel brings a libcuda.so.1 to link against: on the path it makes no GPU node."""
    site.tms().torch("13.0").cudart(13)
    stubs = site.cudart_directory(13) / "stubs"
    shutil.copytree(driver.full_stub(result=STUB_LIBRARY), stubs)
    answer = host.pick(site, environ=host.environ())
    assert ("unknown", "no_driver") == (answer["verdict"], answer["report"]["status"])
    assert str(stubs) not in str(answer["env"])
    says(answer["report"]["message"])
