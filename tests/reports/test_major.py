"""Kind 1 - wrong CUDA major or variant.

Each case is a host of its own: one site-packages, a driver, and no toolkit of the system's. Workers
are started as their launchers did, which shows what went wrong, and then with pyresolve.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from support import driver
from support.command import environment, pyresolve, run
from support.compile import SOURCES, built, hollow
from support.layout import Site, fake_cudart
from support.process import cold
from support.wheels import TMS
from support.worker import mapped, worker_command


class Host:
    """A machine with a driver and one site-packages, whose system has no CUDA."""

    def __init__(self, site, hidden, libraries):
        self.site = site
        self.hidden = hidden
        self.env = environment(site, libraries=libraries)
        torch = site / "torch/lib/libc10_cuda.so"
        self.worker = worker_command(*([torch] if torch.exists() else []))

    def start(self, hook, command=()):
        """Preload a hook without asking anybody, and start the worker or another command."""
        preload = [*self.hidden, "env", f"LD_PRELOAD={hook}"]
        return run([*preload, *(command or self.worker)], env=self.env)

    def exec(self):
        """Start the worker with pyresolve; return the names of the hooks and runtimes in it."""
        done = pyresolve("exec", "--", *self.worker, env=self.env, prefix=self.hidden)
        assert (0, "") == (done.returncode, done.stderr)
        return names(done)

    def pick(self, *options):
        """Return the choice, or the error, as plain data."""
        done = pyresolve("pick", "--json", *options, env=self.env, prefix=self.hidden)
        answer = json.loads(done.stdout)
        assert ("error" in answer) == (done.returncode not in (0, 3)), done.stderr
        return answer

    def doctor(self):
        """Return what the doctor prints, as (label, text) of each line."""
        done = pyresolve("doctor", env=self.env, prefix=self.hidden)
        rows, last = [], ""
        for label, text in re.findall(r"^(\w*) +\*? *(.+)$", done.stdout, re.M):
            last = label or last
            rows.append((last, text))
        return rows


def names(done):
    """Return the names of the hooks and runtimes that a worker had mapped."""
    return sorted(map(os.path.basename, mapped(done, "libcudart", "_hook_")))


@pytest.fixture
def host(site, hidden_toolkit, full_stub):
    """Return the function that makes a host of the scratch site, once its packages are there."""

    def make(*libraries, stub=full_stub):
        return Host(site, hidden_toolkit, [*libraries, stub])

    return make


def first_that_exists(site, *suffixes):
    """Return what a fixed list of file names chooses."""
    return next(site.hook(suffix) for suffix in suffixes if site.hook(suffix).exists())


def dies_of(done):
    """Return which library the loader did not find for a process that it ended."""
    assert 127 == done.returncode
    return re.search(r"libraries: (\S+): cannot open", done.stderr)[1]


def said(answer, source):
    """Return what a source says in the evidence of a choice."""
    return next(item["text"] for item in answer["evidence"] if item["source"] == source)


def hook_linked_to(*sonames, path, flags=()):
    """Build a hook that needs these libraries besides the driver."""
    path.parent.mkdir(parents=True, exist_ok=True)
    needed = [hollow(soname) for soname in ("libcuda.so.1", *sonames)]
    return Path(shutil.copy(built(SOURCES / "hook.c", "hook.so", *needed, *flags), path))


# --- the reports


@pytest.mark.report("THUDM/slime#2186", "THUDM/slime#2187", "vllm-project/vime#307")
def test_r01_fixed_list_of_names(site, host, says):
    """On CUDA 13 the first file of a fixed list that exists kills every worker."""
    site.tms("0.0.9.post1").torch("13.0", "2.11.0+cu130").cudart(13)
    host = host()
    listed = first_that_exists(site, "_cu12", "")
    assert "libcudart.so.12" == dies_of(host.start(listed, ["bash", "-c", "exit 0"]))

    assert [site.hook("_cu13").name] == [name for name in host.exec() if "_hook_" in name]
    assert str(site.hook("_cu13")) == host.pick()["path"]
    assert "built for CUDA 13.0" in says(said(host.pick(), "torch metadata"))


@pytest.mark.report("THUDM/slime#2186", "vllm-project/vime#307")
def test_r01_missing_build_is_never_nothing(site, host, says):
    """The build for CUDA 13 is not there, and the feature is switched off in silence."""
    site.tms().only("*_cu12.abi3.so").torch("13.0", "2.11.0+cu130").cudart(13)
    host = host()
    done = pyresolve("env", env=host.env, prefix=host.hidden)
    assert (1, "") == (done.returncode, done.stdout)
    message = says(done.stderr.strip())
    assert f"only {site.hook('_cu12')} (CUDA 12)" in message
    assert "the workers use CUDA 13" in message
    assert re.search(r"\(pip install --upgrade .*torch_memory_saver\)$", message)


@pytest.mark.report("radixark/miles#1785")
def test_r02_only_suffixed_builds(tmp_path, host, says):
    """The image has dist-packages, and in it no file of the old unsuffixed name."""
    dist = Site(tmp_path / "usr/local/lib/python3.12/dist-packages").tms().torch()
    dist.only("*_cu13.abi3.so").cudart(13)
    venv = Site.in_venv(tmp_path / "venv")
    (venv / "image.pth").write_text(f"{dist.root}\n")  # Debian's own Python has it in its path
    host = host()
    assert not dist.hook().exists()

    answer = host.pick("--python", str(venv.python))
    assert (str(dist.hook("_cu13")), "ok") == (answer["path"], answer["verdict"])
    host.env["PYTHONPATH"] = str(dist.root)
    assert [("build", f"{dist.hook('_cu13')} (CUDA 13)")] == [
        row for row in host.doctor() if row[0] == "build"
    ]
    says(said(answer, "torch's runtime"))


@pytest.mark.report(
    "fzyzcjy/torch_memory_saver#74", "fzyzcjy/torch_memory_saver#75", "sgl-project/sglang#23182"
)
def test_r03_wheel_for_cuda_12_only(site, host, says):
    """A pin holds a wheel that fits CUDA 12 only, and on CUDA 13 its preload dies."""
    site.tms("0.0.9").torch("13.0").cudart(13)
    host = host()
    assert "libcudart.so.12" == dies_of(host.start(site.hook(), ["bash", "-c", "exit 0"]))

    answer = host.pick()
    assert "NoVariantError" == answer["error"]
    message = says(answer["message"])
    assert f"torch_memory_saver 0.0.9 has no build for it, only {site.hook()} (CUDA 12)" in message
    assert answer["remedy"].startswith("pip install --upgrade")
    assert message.endswith(f"({answer['remedy']})")

    site.remove(f"{TMS}*").tms("0.0.9.post1")  # the remedy
    assert str(site.hook("_cu13")) == host.pick()["path"]


@pytest.mark.report("sgl-project/sgl-kernel-npu#98", "sgl-project/sgl-kernel-npu#463")
def test_r05_hook_on_an_npu(site, host, says, tmp_path):
    """On an Ascend NPU the launcher still preloads a hook that cannot work there."""
    (tmp_path / "no-driver").mkdir()
    site.tms().torch(None, "2.8.0+cpu").package("torch_npu", "2.8.0")
    host = host(stub=tmp_path / "no-driver")
    assert "libcuda.so.1" == dies_of(host.start(site.hook(), ["bash", "-c", "exit 0"]))

    launcher = """
        import json, os, subprocess, pyresolve
        try:
            change, reason = pyresolve.pick().env(), None
        except pyresolve.NotCudaError as error:
            change, reason = {}, (error.accelerator, str(error))
        done = subprocess.run(["bash", "-c", "exit 0"], env={**os.environ, **change})
        print(json.dumps([done.returncode, change, reason]))
    """
    status, change, (accelerator, message) = cold(launcher, env=host.env, prefix=host.hidden)
    assert (0, {}, "Ascend NPU (torch_npu)") == (status, change, accelerator)
    assert str(site.root) in says(message)
    assert "start the workers without it" in message


VERSIONS = {  # what torch/version.py says of CUDA → the build, or the error, and the words
    "cuda = None\nhip = None": ("_cu13", "is a CPU build"),
    "cuda = None\nhip = '6.2.41133'": ("NotCudaError", "built for ROCm 6.2.41133"),
    "cuda = '12.8'": ("_cu12", "built for CUDA 12.8"),
    "cuda = '12.8.1'": ("_cu12", "built for CUDA 12.8.1"),
    "cuda = '13'": ("_cu13", "built for CUDA 13"),
    "hip = None": ("_cu13", "does not say what CUDA torch was built for"),
    "cuda = 'thirteen'": ("_cu13", "says cuda = 'thirteen', which is no version"),
}


@pytest.mark.report("NVIDIA/apex#378", "bitsandbytes-foundation/bitsandbytes#1599")
@pytest.mark.parametrize("text", VERSIONS, ids=ascii)
def test_r06_version_without_a_cuda(site, host, says, text):
    """`torch.version.cuda.split(".")` raises AttributeError on a build for CPUs or ROCm."""
    site.tms().torch("12.8", native=False)
    host = host(site.cudart(12), site.cudart(13))
    (site / "torch/version.py").write_text(f"__version__ = '2.9.1'\n{text}\n")
    answer = host.pick()
    expected, words = VERSIONS[text]
    if expected == "NotCudaError":
        assert expected == answer["error"]
        message = says(answer["message"])
    else:
        assert str(site.hook(expected)) == answer["path"]
        message = says(said(answer, "torch metadata"))
    assert words in message
    assert str(site.root) in message


@pytest.mark.report("vllm-project/vllm#36099")
def test_r07_cpu_torch_on_a_gpu_host(site, host, says):
    """PyPI gave a CPU build of torch to a CUDA 13 host, where libcudart.so.12 is missing then."""
    site.tms().torch(None, "2.9.1+cpu")
    runtime = site.cudart(13) / "libcudart.so.13"
    host = host()
    assert "libcudart.so.12" == dies_of(host.start(site.hook()))

    answer = host.pick()
    assert (str(site.hook("_cu13")), "ok") == (answer["path"], answer["verdict"])
    assert "is a CPU build" in says(said(answer, "torch metadata"))
    assert f"{runtime} (CUDA 13" in says(said(answer, "found runtime"))
    [warning] = answer["warnings"]
    assert f"torch 2.9.1+cpu in {site.root} is a CPU build" in says(warning)
    assert "install" in warning  # the host has a driver, and this torch will not use it


@pytest.mark.report("sgl-project/sglang#18203", "sgl-project/sglang#18747")
@pytest.mark.parametrize(
    ("cuda", "command"),
    [
        ("13.0", "pip install 'nvidia-cuda-runtime==13.*'"),
        ("12.8", "pip install nvidia-cuda-runtime-cu12"),
    ],
)
def test_r08_hint_for_the_wrong_major(site, host, says, cuda, command):
    """The runtime is missing, and the printed hint installs that of another CUDA."""
    site.tms().torch(cuda, native=False)
    answer = host().pick()
    assert ("NotLoadableError", command) == (answer["error"], answer["remedy"])
    major = cuda.partition(".")[0]
    message = says(answer["message"])
    assert f"{site.hook(f'_cu{major}')} needs libcudart.so.{major}" in message
    assert message.endswith(command)
    other = {"12": "13", "13": "12"}[major]
    assert other not in message.replace(str(site.root), "")


@pytest.mark.report("sgl-project/sglang#18203")
def test_r08_failed_step_is_shown(site, host, says):
    """The helper's attempt to load the runtime fails, and nobody is told."""
    site.tms().torch("13.0")
    rows = host().doctor()
    library = site / "torch/lib/libc10_cuda.so"
    [step] = [text for label, text in rows if label == "source" and str(library) in text]
    assert "does not load here" in says(step)
    assert "needs libcudart.so.13, which the loader does not find" in step
    assert ("do", "pip install 'nvidia-cuda-runtime==13.*'") == rows[-1]


@pytest.mark.report("vllm-project/vllm#44335", "vllm-project/vllm#43435", "vllm-project/vllm#52300")
def test_r09_newer_runtime_beside_torchs(site, host, says):
    """Another package pulled in a CUDA 13 runtime, and the highest that is found is used."""
    site.tms().torch("12.9", "2.11.0+cu129")
    runtimes = site.cudart(12), site.cudart(13)
    highest = host(*runtimes).start(site.hook("_cu13"))
    assert 0 == highest.returncode  # loadable is not right: two runtimes in one process
    assert ["libcudart.so.12", "libcudart.so.13"] == names(highest)[:2]

    host = host()
    assert ["libcudart.so.12", site.hook("_cu12").name] == host.exec()
    found = says(said(host.pick(), "found runtime"))
    assert "nvidia-cuda-runtime-cu12 12.8.90" in found
    assert "nvidia-cuda-runtime 13.0.96" in found
    assert [] == host.pick()["warnings"]


@pytest.mark.report("NVIDIA/cudnn-frontend#211", "Cosmos-Drive-Dreams#40")
@pytest.mark.parametrize(("cuda", "suffix"), [("12.8", "_cu12"), ("13.0", "_cu13")])
def test_r10_both_majors_can_be_opened(site, host, tmp_path, cuda, suffix):
    """A helper opens both libcudart in the caller, and refuses to run because it can."""
    system = Site(tmp_path / "usr/local").cudart(13)
    site.tms().torch(cuda).cudart(int(cuda[:2]))
    host = host(system, site.cudart(12))
    launcher = """
        import ctypes, json, pyresolve
        choice = pyresolve.pick()
        with open("/proc/self/maps") as maps:
            mapped = "libcud" in maps.read()
        both = [bool(ctypes.CDLL(f"libcudart.so.{major}")) for major in (12, 13)]
        print(json.dumps([str(choice), choice.verdict.name, list(choice.warnings), mapped, both]))
    """
    answer = cold(launcher, env=host.env, prefix=host.hidden)
    assert [str(site.hook(suffix)), "OK", [], False, [True, True]] == answer
    assert [f"libcudart.so.{cuda[:2]}", site.hook(suffix).name] == host.exec()


@pytest.mark.report("NVIDIA/cudnn-frontend#267")
def test_r11_plugin_brings_another_runtime(site, host, tmp_path, says):
    """A cluster's NCCL plugin mounts its libcudart.so.12 into a container for CUDA 13."""
    plugin = tmp_path / "usr/local/gib/lib64"
    plugin.mkdir(parents=True)
    shutil.copy(Site(tmp_path / "wheel").cudart(12) / "libcudart.so.12", plugin)
    shutil.copy(hollow("libnccl-net.so"), plugin)
    site.tms().torch("13.0")
    runtime = site.cudart(13)
    host = host(plugin)
    assert "libcudart.so.13" == dies_of(host.start(site.hook("_cu13")))
    assert 0 == host.start(site.hook("_cu12")).returncode  # the one that loads is the wrong one

    assert ["libcudart.so.13", site.hook("_cu13").name] == host.exec()
    answer = host.pick()
    path = f"{runtime}:{host.env['LD_LIBRARY_PATH']}"
    assert {"LD_PRELOAD": answer["path"], "LD_LIBRARY_PATH": path} == answer["env"]
    assert f"{plugin / 'libcudart.so.12'} (CUDA 12" in says(said(answer, "found runtime"))


@pytest.fixture
def conda(site, host, tmp_path):
    """Return a host whose conda prefix has a libcudart of CUDA 11, beside a CUDA 12."""
    lib = tmp_path / "conda/lib"
    lib.mkdir(parents=True)
    (tmp_path / "conda/conda-meta").mkdir()
    shutil.copy(fake_cudart(11, 7), lib / "libcudart.so.11.0")
    (lib / "libcudart.so").symlink_to("libcudart.so.11.0")
    host = host(lib, site.tms().cudart(12))
    host.env["CONDA_PREFIX"] = str(tmp_path / "conda")
    return host


@pytest.mark.report(
    "bitsandbytes-foundation/bitsandbytes#393", "bitsandbytes-foundation/bitsandbytes#358"
)
def test_r13_several_runtimes(site, conda, says):
    """Several libcudart files are found, and one of them is used, no matter which."""
    answer = conda.pick()
    assert (str(site.hook("_cu12")), "found runtime") == (answer["path"], answer["source"])
    found = says(said(answer, "found runtime"))
    assert "libcudart.so.11.0 (CUDA 11" in found
    assert "libcudart.so.12 (CUDA 12" in found
    elements = conda.env["LD_LIBRARY_PATH"].split(":")
    conda.env["LD_LIBRARY_PATH"] = ":".join(reversed(elements))
    assert answer["path"] == conda.pick()["path"]


@pytest.mark.report(
    "bitsandbytes-foundation/bitsandbytes#393", "bitsandbytes-foundation/bitsandbytes#829"
)
@pytest.mark.parametrize("value", ["12", "12.8", "cu12", "120", "121"])
def test_r13_override(site, conda, says, value):
    """The variable that lays the version down takes anything, and selects nothing usable."""
    conda.env["PYRESOLVE_CUDA"] = value
    answer = conda.pick()
    if value in ("120", "121"):
        assert "OverrideError" == answer["error"]
        message = says(answer["message"])
        assert f"PYRESOLVE_CUDA='{value}' names no CUDA version" in message
        assert "such as 12, 12.8 or cu12" in message
    else:
        assert (str(site.hook("_cu12")), "override") == (answer["path"], answer["source"])
        assert f"PYRESOLVE_CUDA={value}" == says(said(answer, "override"))


@pytest.mark.report("THUDM/slime#2018")
def test_r15_package_without_hooks(site, host, says):
    """Built in isolation the wheel is pure Python, and the error comes much later."""
    host = host()
    site.torch("13.0").cudart(13)
    missing = host.pick()
    site.tms().remove("*.so")
    without = host.pick()
    site.remove(f"{TMS}*").tms("0.0.9")
    wrong = host.pick()

    assert {"NoVariantError"} == {answer["error"] for answer in (missing, without, wrong)}
    message = says(without["message"])
    assert "torch_memory_saver 0.0.10 is installed without native hooks" in message
    assert str(site.root) in message
    assert message.endswith(f"({without['remedy']})")
    assert "torch_memory_saver is not installed" in says(missing["message"])
    assert "torch_memory_saver 0.0.9 has no build for it" in says(wrong["message"])


# version.py says → torch's version, the build
LABELS = [
    ("12.8", "2.9.1+cu128", "_cu12"),
    ("12.8", "2.9.1", "_cu12"),
    ("13.0", "2.9.0a0+50eac811a6.nv25.09", "_cu13"),
]


@pytest.mark.report("ai-dynamo/nixl#2249")
@pytest.mark.parametrize(("cuda", "version", "suffix"), LABELS, ids=lambda value: value)
def test_r16_version_of_the_container(site, host, tmp_path, says, cuda, version, suffix):
    """The build is named after the container's CUDA_VERSION, 13.4, and there is no cu134."""
    site.tms().torch(cuda, version).cudart(int(cuda[:2]))
    host = host()
    for program in ("nvidia-smi", "nvcc"):  # what they say is never asked for
        tool = tmp_path / "bin" / program
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\necho 'CUDA Version: 13.4'\n")
        tool.chmod(0o755)
    host.env["PATH"] = f"{tmp_path / 'bin'}:{host.env['PATH']}"
    host.env |= {"CUDA_VERSION": "13.4", "CUDA_HOME": "/usr/local/cuda-13.4"}
    assert not site.hook(f"_cu{host.env['CUDA_VERSION'].replace('.', '')}").exists()

    answer = host.pick()
    assert (str(site.hook(suffix)), "ok", []) == tuple(
        answer[key] for key in ("path", "verdict", "warnings")
    )
    assert f"torch {version} in {site.root} is built for CUDA {cuda}" == says(
        said(answer, "torch metadata")
    )
    assert not (tmp_path / "asked").exists()


# --- neighbours


def test_like_r01_suffix_that_lies(site, host, says):
    """A repacked wheel has the build for CUDA 12 under the name of CUDA 13."""
    site.tms().torch("13.0").cudart(13)
    shutil.copy(site.hook("_cu12"), site.hook("_cu13"))
    host = host()
    assert "libcudart.so.12" == dies_of(host.start(site.hook("_cu13")))
    answer = host.pick()
    assert "NoVariantError" == answer["error"]
    assert f"{site.hook('_cu13')} (CUDA 12, named for CUDA 13)" in says(answer["message"])
    assert "--force-reinstall" in answer["remedy"]  # an upgrade would find the version satisfied


def test_like_r01_older_copy_shadows_a_newer_one(site, host, says, tmp_path):
    """An old copy in the user's site is what is imported, and only the newer one fits CUDA 13."""
    user = Site(tmp_path / "home/.local/lib/site-packages").tms("0.0.9")
    site.tms("0.0.10").torch("13.0").cudart(13)
    host = host()
    host.env["PYTHONPATH"] = f"{user.root}:{site.root}"
    answer = host.pick()
    assert str(site.hook("_cu13")) == answer["path"]
    # Python code of one version with the hook of another: somebody must hear of it.
    [warning] = answer["warnings"]
    assert str(user.root) in says(warning)
    assert str(site.hook("_cu13")) in warning


def test_like_r02_names_with_the_whole_version(site, host):
    """A release names its builds as torch does, cu128 and cu130."""
    site.tms().torch("13.0").cudart(13)
    site.remove(site.hook().name)
    site.rename(site.hook("_cu12").name, site.hook("_cu128").name)
    site.rename(site.hook("_cu13").name, site.hook("_cu130").name)
    answer = host().pick()
    assert (str(site.hook("_cu130")), "ok") == (answer["path"], answer["verdict"])
    assert [] == answer["warnings"]  # nobody means CUDA 130


@pytest.mark.parametrize(
    "soname", ["libascendcl.so", "libamdhip64.so.6", "libmusart.so.4", "libsycl.so.8"]
)
def test_like_r05_build_for_another_accelerator(site, host, says, soname):
    """A hook of this very name was built for another accelerator, and torch is for CUDA."""
    site.package(TMS, "0.0.10").torch("13.0").cudart(13)
    hook_linked_to(soname, path=site.hook())
    answer = host().pick()
    assert "NoVariantError" == answer["error"]
    message = says(answer["message"])
    assert f"{site.hook()} links {soname}" in message
    assert "not for CUDA" in message


def test_like_r05_hook_for_rocm_on_rocm(site, host, says):
    """The hook is for ROCm as torch is: to start without it would be wrong advice."""
    site.package(TMS, "0.0.10").torch(None, "2.9.1+rocm6.4", hip="6.4.43482")
    hook_linked_to("libamdhip64.so.6", path=site.hook())
    answer = host().pick()
    assert "NotCudaError" == answer["error"]
    message = says(answer["message"])
    assert str(site.hook()) in message
    assert "nothing to do" not in message


@pytest.mark.parametrize("plugin", ["torch_mlu", "habana_torch_plugin"])
def test_like_r05_accelerator_by_entry_point(site, host, says, plugin):
    """A CPU build of torch gets its accelerator from a plugin that nobody has heard of."""
    site.tms().torch(None, "2.8.0+cpu").package(plugin, "1.0")
    # How PyTorch has an accelerator's package announce itself, since 2.5.
    entry = f"[torch.backends]\ndevice_backend = {plugin}:_autoload\n"
    (site / f"{plugin}-1.0.dist-info/entry_points.txt").write_text(entry)
    site.cudart(12)  # some package pulled it in
    answer = host().pick()
    assert "NotCudaError" == answer.get("error")
    assert plugin in says(answer["message"])


@pytest.mark.parametrize(("cuda", "old"), [("13.0", True), ("12.8", False)])
def test_like_r07_driver_older_than_torch(site, host, says, cuda, old):
    """The right build for torch's CUDA 13, on a host whose driver ends at CUDA 12.4."""
    major = int(cuda[:2])
    site.tms().torch(cuda, f"2.9.1+cu{cuda.replace('.', '')}").cudart(major)
    site.cudart(12)
    answer = host(stub=driver.full_stub(12040)).pick()
    assert str(site.hook(f"_cu{major}")) == answer["path"]  # never another major's build
    # Within a major an older driver does (CUDA's minor version compatibility).
    assert old == bool(answer["warnings"])
    for warning in answer["warnings"]:
        assert "libcuda.so.1" in says(warning)
        assert "12.4" in warning
        assert "CUDA 13" in warning


def test_like_r07_left_over_torch(site, host, says, tmp_path):
    """A directory that an uninstalled CPU torch left behind comes first on the path."""
    left = Site(tmp_path / "left")
    left.torch(None, "2.8.0+cpu").remove("torch/*.py").remove("torch-*")
    site.tms().torch("13.0").cudart(13)
    host = host()
    host.env["PYTHONPATH"] = f"{left.root}:{site.root}"
    answer = host.pick()
    assert (str(site.hook("_cu13")), []) == (answer["path"], answer["warnings"])
    assert str(site.root) in says(said(answer, "torch metadata"))


@pytest.mark.parametrize(
    ("cuda", "library", "command"),
    [
        ("11.8", "libcudart.so.11.0", "pip install nvidia-cuda-runtime-cu11"),
        ("14.1", "libcudart.so.14", "pip install 'nvidia-cuda-runtime==14.*'"),
    ],
)
def test_like_r08_hint_for_other_majors(site, host, says, cuda, library, command):
    """The runtime is missing on a CUDA that is older, or not yet born."""
    site.package(TMS, "0.0.11").torch(cuda, f"2.99.0+cu{cuda.replace('.', '')}", native=False)
    hook = site.fake_hook(int(cuda[:2]))
    answer = host().pick()
    assert ("NotLoadableError", command) == (answer["error"], answer["remedy"])
    assert f"{hook} needs {library}" in says(answer["message"])


def test_like_r11_other_runtime_in_ld_preload(site, host, says, tmp_path):
    """An operator once preloaded libcudart.so.12 for an older image, and it is still there."""
    old = Site(tmp_path / "old").cudart(12) / "libcudart.so.12"
    site.tms().torch("13.0").cudart(13)
    host = host()
    environ = {**host.env, "LD_PRELOAD": str(old)}
    code = """
        import json, sys, pyresolve
        print(json.dumps(pyresolve.pick(environ=json.loads(sys.argv[1])).to_dict()))
    """
    answer = cold(code, json.dumps(environ), env=host.env, prefix=host.hidden)
    assert (str(site.hook("_cu13")), "ok") == (answer["path"], answer["verdict"])
    runtime = site.cudart_directory(13) / "libcudart.so.13"
    elements = answer["env"]["LD_PRELOAD"].split(":")
    assert [str(site.hook("_cu13")), str(old)] == [elements[0], elements[-1]]
    assert str(runtime) in elements or str(runtime.parent) in answer["env"]["LD_LIBRARY_PATH"]
    [warning] = answer["warnings"]  # two runtimes in every worker
    assert str(old) in says(warning)
    assert "CUDA 12" in warning


def test_like_r13_stale_runtime_alone_in_reach(site, host, tmp_path, says):
    """Without torch, a stale libcudart.so.11.0 is all that the loader finds, and no build fits."""
    stale = tmp_path / "old"
    stale.mkdir()
    shutil.copy(fake_cudart(11, 7), stale / "libcudart.so.11.0")
    site.tms().cudart(12)
    answer = host(stale).pick()
    assert "NoVariantError" == answer["error"]
    message = says(answer["message"])
    assert str(stale / "libcudart.so.11.0") in message
    # What was found is no proof, and no newer version brings a build for CUDA 11.
    assert "PYRESOLVE_CUDA" in message


def test_like_r13_overrides_that_contradict(site, host, says):
    """One operator lays down CUDA 12, another a file for CUDA 13, and one of them is ignored."""
    site.tms()
    host = host(site.cudart(12), site.cudart(13))
    host.env |= {"PYRESOLVE_CUDA": "12", "PYRESOLVE_PRELOAD": str(site.hook("_cu13"))}
    answer = host.pick()
    assert (str(site.hook("_cu13")), "override") == (answer["path"], answer["source"])
    [warning] = answer["warnings"]
    assert "PYRESOLVE_CUDA=12" in says(warning)
    assert f"PYRESOLVE_PRELOAD={site.hook('_cu13')}" in warning


# As setuptools writes it for a package that lies at the root of its source tree.
FINDER = """
import sys
from importlib.util import spec_from_file_location
MAPPING = {MAPPING!r}
class Finder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname in MAPPING:
            return spec_from_file_location(fullname, MAPPING[fullname] + "/__init__.py")
def install():
    sys.meta_path.append(Finder)
"""


def test_like_r15_editable_install(host, tmp_path):
    """A developer's `pip install -e` leaves the hooks in the source tree, behind an import hook."""
    source, venv = Site(tmp_path / "src").tms(), Site.in_venv(tmp_path / "venv")
    shutil.move(source / f"{TMS}-0.0.10.dist-info", venv.root)
    direct = {"url": source.root.as_uri(), "dir_info": {"editable": True}}
    (venv / f"{TMS}-0.0.10.dist-info/direct_url.json").write_text(json.dumps(direct))
    finder = f"__editable___{TMS}_0_0_10_finder"
    (venv / f"{finder}.py").write_text(FINDER.format(MAPPING={TMS: str(source / TMS)}))
    (venv / f"__editable__.{TMS}-0.0.10.pth").write_text(f"import {finder}; {finder}.install()\n")
    venv.torch("13.0").cudart(13)
    found = "import importlib.util as u; print(u.find_spec('torch_memory_saver').origin)"
    done = run([venv.python, "-c", found], env=environment())
    assert f"{source / TMS}/__init__.py\n" == done.stdout

    answer = host().pick("--python", str(venv.python))
    assert str(source.hook("_cu13")) == answer.get("path"), answer["message"]


def test_like_r16_half_an_upgrade(site, host, says):
    """An upgrade of torch broke off: version.py is of CUDA 12.8, the libraries are of CUDA 13."""
    new = Site(site.root.with_name("new")).torch("13.0", "2.10.0+cu130")
    site.tms().torch("12.8", "2.9.1+cu128").cudart(13)
    shutil.copy(new / "torch/lib/libc10_cuda.so", site / "torch/lib")
    answer = host().pick()
    assert (str(site.hook("_cu13")), "torch's runtime") == (answer["path"], answer["source"])
    [warning] = answer["warnings"]
    assert "CUDA 12" in says(warning)
    assert str(site / "torch/lib/libc10_cuda.so") in warning
    assert "install" in warning


def test_like_r16_build_tool_says_another_major(site, host, tmp_path):
    """The image's toolkit is of CUDA 12, with its CUDA_HOME, and torch of CUDA 13."""
    toolkit = tmp_path / "usr/local/cuda-12.8/lib64"
    toolkit.parent.mkdir(parents=True)
    shutil.copytree(Site(tmp_path / "wheel").cudart(12), toolkit)
    site.tms().torch("13.0").cudart(13)
    host = host(toolkit)
    host.env |= {"CUDA_HOME": str(toolkit.parent), "CUDA_VERSION": "12.8.1"}
    assert ["libcudart.so.13", site.hook("_cu13").name] == host.exec()
