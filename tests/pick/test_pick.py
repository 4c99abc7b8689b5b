"""pick() on real wheels, with the real loader: what it chooses, why, and when it refuses."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import pickle
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from support import driver, elfpatch, process
from support.compile import SOURCES, built, hollow
from support.driver import CUINIT_MARKER, STUB_LIBRARY
from support.hidden import hidden_toolkit as hide_toolkit, toolkit_directories
from support.layout import PRELOAD_STEM, Site, fake_cudart
from support.process import cold
from support.tools import require_unshare
from support.wheels import OLD_CUDART_12

import pyresolve
from pyresolve import (
    NotCudaError,
    NotLoadableError,
    NoVariantError,
    OverrideError,
    PyresolveError,
    Source,
    Status,
    Verdict,
    pick,
)
from pyresolve._model import Origin

HOOK = f"{PRELOAD_STEM}{{}}.abi3.so"


@pytest.fixture
def choose(site, monkeypatch, clean_env):
    """Return pick() for the scratch site, in an environment without anything of CUDA."""
    monkeypatch.syspath_prepend(site.root)

    def call(*args, env=(), **options):
        return pick(*args, environ={**clean_env, **dict(env)}, **options)

    return call


PICK = """
    import json, sys
    import pyresolve

    def answer(roots, environ, options):
        sys.path[:0] = roots
        try:
            choice = pyresolve.pick(environ=environ, **options)
        except pyresolve.PyresolveError as error:
            report = getattr(error, "report", None)
            status = report.status.name if report else None
            return {"error": type(error).__name__, "text": str(error), "status": status,
                    "major": getattr(error, "major", None)}
        finally:
            del sys.path[:len(roots)]
        return {**choice.to_dict(), "explain": choice.explain()}

    with open(sys.argv[1]) as cells:
        print(json.dumps([answer(*cell) for cell in json.load(cells)]))
    for name in ("torch", "torch_memory_saver"):
        assert name not in sys.modules
    with open("/proc/self/maps") as maps:
        assert "libcuda" not in maps.read()
"""


def picks(cells, prefix=()):
    """Return what pick() says for each (roots, environ, options), all in one fresh process."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(
            [(list(map(os.fspath, roots)), env, options) for roots, env, options in cells], file
        )
        file.flush()
        return cold(PICK, file.name, env={"PATH": os.environ["PATH"]}, prefix=prefix)


@pytest.fixture
def choose_hidden(site, clean_env, hidden_toolkit):
    """Return pick() as plain data where the system has no toolkit."""

    def call(*roots, env=(), **options):
        cell = (roots or (site.root,), {**clean_env, **dict(env)}, options)
        return picks([cell], hidden_toolkit)[0]

    return call


def on_path(*directories):
    """Return an environment whose LD_LIBRARY_PATH has these directories."""
    return {"LD_LIBRARY_PATH": ":".join(map(os.fspath, directories))}


# --- the matrix: wheels, torch, runtimes, driver, toolkit

WHEELS = {
    "0.0.9": {12: ""},
    "0.0.9.post1": {12: "_cu12", 13: "_cu13"},
    "0.0.10": {12: "_cu12", 13: "_cu13"},
    "suffixed": {12: "_cu12", 13: "_cu13"},
}
TORCHES = {
    "cu130": ("13.0", "2.9.1+cu130"),
    "cu128": ("12.8", "2.9.1+cu128"),
    "cpu": (None, "2.9.1+cpu"),
    "none": None,
}
RUNTIMES = {"12": {12}, "13": {13}, "both": {12, 13}, "no": set()}
CELLS = [*itertools.product(WHEELS, TORCHES, RUNTIMES, ("driver", "no driver"))]


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """Return a site-packages for each wheel, torch and set of runtimes."""
    root = tmp_path_factory.mktemp("matrix")
    parts = {wheel: Site(root / "parts" / wheel) for wheel in WHEELS}
    for wheel, part in parts.items():
        part.tms("0.0.10" if wheel == "suffixed" else wheel)
    parts["suffixed"].only("*_cu*.so")
    for torch, arguments in TORCHES.items():
        parts[torch] = Site(root / "parts" / torch)
        if arguments:
            parts[torch].torch(*arguments)
    for major in (12, 13):
        parts[major] = Site(root / "parts" / str(major))
        parts[major].cudart(major)
    merged = {}
    for names in itertools.product(WHEELS, TORCHES, RUNTIMES):
        *packages, runtimes = names
        merged[names] = root / "-".join(names) / "site-packages"
        for part in (*packages, *sorted(RUNTIMES[runtimes])):
            shutil.copytree(parts[part], merged[names], copy_function=os.link, dirs_exist_ok=True)
    return merged


@pytest.fixture(scope="module")
def matrix(sites, full_stub):
    """Return the function that says what pick() makes of all cells, asked once per prefix."""

    @functools.cache
    def answers(hidden):
        base = {"PATH": os.environ["PATH"]}
        cells = [
            ([sites[names]], base | (on_path(full_stub) if gpu == "driver" else {}), {})
            for *names, gpu in CELLS
            for names in [tuple(names)]
        ]
        return dict(zip(CELLS, picks(cells, hide_toolkit() if hidden else ()), strict=True))

    return answers


@pytest.fixture(scope="module")
def system_majors():
    """Return the majors of the system's toolkits: those the loader finds, and those on disk."""
    code = """
        import ctypes, json
        found = []
        for major in (12, 13):
            try:
                ctypes.CDLL(f"libcudart.so.{major}")
                found.append(major)
            except OSError:
                pass
        print(json.dumps(found))
    """
    loader = set(cold(code, env={"PATH": os.environ["PATH"]}))
    disk = {
        major
        for major in (12, 13)
        for directory in toolkit_directories()
        if (directory / f"libcudart.so.{major}").exists()
    }
    return loader, disk


def expected_of(cell, loader=frozenset(), disk=frozenset()):
    """Return what must come of a cell, where the system has these toolkits."""
    wheel, torch, runtimes, gpu = cell
    builds, in_packages = WHEELS[wheel], RUNTIMES[runtimes]
    seen = frozenset(loader or in_packages | disk)
    if torch in ("cu130", "cu128"):
        major, source = {"cu130": 13, "cu128": 12}[torch], "torch's runtime"
    elif seen:
        guess = {frozenset({12}): 12, frozenset({13}): 13, frozenset({12, 13}): max(builds)}
        major, source = guess[seen], "found runtime"
    else:
        major, source = 12, "existence"
    if major not in builds:
        return "NoVariantError", major
    if major not in in_packages | loader | disk:
        if gpu == "driver":
            return "NotLoadableError", "MISSING_DEPENDENCY"
        verdict = "fail"
    else:
        verdict = "ok" if gpu == "driver" else "unknown"
    suffix = builds[major]
    if source == "existence" and wheel != "suffixed":
        suffix = ""
    return HOOK.format(suffix), major, source, verdict


def seen_in(answer):
    """Return of an answer what the matrix is about."""
    match answer.get("error"):
        case "NoVariantError":
            return answer["error"], answer["major"]
        case None:
            name = os.path.basename(answer["path"])
            return name, answer["cuda_major"], answer["source"], answer["verdict"]
        case error:
            return error, answer["status"]


def cell_id(cell):
    """Return a name for a cell."""
    wheel, torch, runtimes, gpu = cell
    return f"{wheel}-torch {torch}-{runtimes} runtimes-{gpu}"


@pytest.mark.parametrize("cell", CELLS, ids=cell_id)
def test_matrix_where_the_toolkit_is_hidden(matrix, cell):
    """The pip tree holds all there is: build, major, source and verdict, or the exact refusal."""
    assert seen_in(matrix(hidden=True)[cell]) == expected_of(cell)


@pytest.mark.parametrize("cell", CELLS, ids=cell_id)
def test_matrix_beside_the_systems_toolkit(matrix, system_majors, cell):
    """What the system has, if anything, never beats torch, and supplies what packages lack."""
    assert seen_in(matrix(hidden=False)[cell]) == expected_of(cell, *system_majors)


@pytest.mark.parametrize("hidden", [True, False], ids=["hidden", "visible"])
def test_matrix_pins_torchs_runtime(matrix, sites, hidden):
    """Wherever torch has a runtime of its own, that file is the one the workers will map."""
    seen = 0
    for cell, answer in matrix(hidden=hidden).items():
        wheel, torch, runtimes, _ = cell
        major = {"cu130": 13, "cu128": 12}.get(torch)
        if major in RUNTIMES[runtimes] and major in WHEELS[wheel]:
            root = Site(sites[cell[:3]])
            library = root.cudart_directory(major) / f"libcudart.so.{major}"
            assert os.path.samefile(answer["runtime"]["path"], library)
            assert answer["runtime"]["version"] == {12: "12.8", 13: "13.0"}[major]
            seen += 1
    assert seen == 28


@pytest.mark.parametrize("hidden", [True, False], ids=["hidden", "visible"])
def test_matrix_warns_of_what_it_did_not_prove(matrix, hidden):
    """Every cell that failed or guessed says so; a cell in which all is well says nothing."""
    for (_, torch, _, gpu), answer in matrix(hidden=hidden).items():
        if "error" in answer:
            continue
        warnings = " ".join(answer["warnings"])
        failed, exists = answer["verdict"] == "fail", answer["source"] == "existence"
        assert ("the loader finds no working driver here" in warnings) == failed
        assert ("was chosen only because it is there" in warnings) == exists
        assert ("is a CPU build" in warnings) == (torch == "cpu")
        if torch.startswith("cu") and not failed:
            assert answer["warnings"] == []
        assert answer["driver"]["present"] == (gpu == "driver")


# --- majors that are not yet born


@pytest.mark.parametrize("major", [14, 27])
@pytest.mark.parametrize("gpu", [True, False], ids=["driver", "no driver"])
def test_future_major(site, choose, major, gpu):
    """A build for a CUDA that nobody knows yet is picked without a change to the code."""
    hook = site.tms().torch(f"{major}.0", f"2.99.0+cu{major}0").fake_hook(major)
    library = site.fake_cudart(major, 3) / f"libcudart.so.{major}"
    choice = choose(env=on_path(driver.full_stub(major * 1000)) if gpu else {})
    assert (choice.path, choice.cuda_major, choice.source) == (hook, major, Source.TORCH_RUNTIME)
    assert choice.verdict is (Verdict.OK if gpu else Verdict.UNKNOWN)
    assert (choice.runtime.path, choice.runtime.version) == (library, major * 1000 + 30)
    assert choice.warnings == ()


def test_future_major_without_a_build(site, choose):
    """The text names the major that is wanted, and no remedy for another one."""
    site.tms().torch("14.0", "2.99.0+cu140").fake_cudart(14)
    with pytest.raises(NoVariantError, match="the workers use CUDA 14") as caught:
        choose()
    assert caught.value.major == 14
    assert [path.name for path in caught.value.found] == [
        HOOK.format(suffix) for suffix in ("", "_cu12", "_cu13")
    ]


# --- wrong major


def test_r01_major_is_not_a_list_in_the_code(site, choose, full_stub):
    """R01: a torch for CUDA 13 gets the build for CUDA 13, though others exist before it."""
    site.tms("0.0.9.post1").torch("13.0", "2.11.0+cu130").cudart(13)
    choice = choose(env=on_path(full_stub))
    assert (choice.path, choice.verdict) == (site.hook("_cu13"), Verdict.OK)


def test_r02_dist_packages_with_suffixed_builds_only(tmp_path, choose_hidden, full_stub):
    """R02: the unsuffixed file is one candidate among others, and the place may be Debian's."""
    site = Site(tmp_path / "usr/local/lib/python3.12/dist-packages").tms().torch()
    site.only("*_cu13.abi3.so").cudart(13)
    answer = choose_hidden(site.root, env=on_path(full_stub))
    assert (answer["path"], answer["verdict"]) == (str(site.hook("_cu13")), "ok")


def test_r03_old_wheel_on_cuda_13(site, choose):
    """R03: what was found, what is used, and what would bring the build that is missing."""
    site.tms("0.0.9").torch("13.0").cudart(13)
    with pytest.raises(NoVariantError) as caught:
        choose()
    error = caught.value
    assert (error.major, error.found) == (13, (site.hook(),))
    remedy = "pip install --upgrade --force-reinstall --no-deps torch_memory_saver"
    assert error.remedy == remedy
    assert f"{site.hook()} (CUDA 12)" in str(error)
    assert "torch_memory_saver 0.0.9 has no build for it" in str(error)


@pytest.mark.parametrize(
    ("options", "plugin", "accelerator"),
    [
        ({"hip": "6.2.41133"}, None, "ROCm 6.2.41133"),
        ({"xpu": "20250101"}, None, "Intel XPU 20250101"),
        ({}, "torch_npu", "Ascend NPU (torch_npu)"),
        ({}, "torch_musa", "Moore Threads MUSA (torch_musa)"),
    ],
)
def test_r05_other_accelerators(site, choose, full_stub, options, plugin, accelerator):
    """R05: a hook cannot work there; an override still gets its build."""
    site.tms().torch(None, "2.9.1", **options).cudart(13)
    if plugin:
        site.package(plugin, "2.9.1")
    with pytest.raises(NotCudaError) as caught:
        choose(env=on_path(full_stub))
    assert caught.value.accelerator == accelerator
    choice = choose(env=on_path(full_stub), cuda=13)
    assert (choice.path, choice.source) == (site.hook("_cu13"), Source.OVERRIDE)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("cuda = None", Source.FOUND_RUNTIME),
        ("cuda = '13.0.1'", Source.TORCH_METADATA),
        ("cuda = '13'", Source.TORCH_METADATA),
        ("cuda = 13.0", Source.FOUND_RUNTIME),
        ("cuda = 'thirteen'", Source.FOUND_RUNTIME),
        ("", Source.FOUND_RUNTIME),
        ("cuda = '12.8", Source.FOUND_RUNTIME),
        ("version https://git-lfs.github.com/spec/v1\n", Source.FOUND_RUNTIME),
        ("cuda = '\udcff'", Source.FOUND_RUNTIME),
        (None, Source.FOUND_RUNTIME),
    ],
    ids=ascii,
)
def test_r06_odd_torch_versions(site, choose, text, source):
    """R06: what cannot be read falls through to the next source, with its reason on record."""
    version_py = site.tms().torch("12.8", native=False) / "torch/version.py"
    runtime = site.cudart(13)
    if text is None:
        version_py.unlink()
    else:
        version_py.write_bytes(text.encode("utf-8", "surrogateescape"))
    choice = choose(env=on_path(runtime))
    assert (choice.path, choice.source) == (site.hook("_cu13"), source)
    if source is Source.FOUND_RUNTIME and text != "cuda = None":
        assert str(version_py) in choice.explain()


def test_r07_cpu_torch_on_a_gpu_machine(site, choose_hidden, full_stub):
    """R07: a CPU build is no proof that there is no GPU, and the text names what was found."""
    site.tms().torch(None, "2.9.1+cpu").cudart(13)
    answer = choose_hidden(env=on_path(full_stub))
    assert (answer["path"], answer["source"]) == (str(site.hook("_cu13")), "found runtime")
    assert answer["verdict"] == "ok"
    assert f"torch 2.9.1+cpu in {site.root} is a CPU build" in answer["explain"]
    assert "(CUDA 13, nvidia-cuda-runtime 13.0.96)" in answer["explain"]


def test_r08_remedy_fits_the_major(site, choose_hidden, full_stub):
    """R08: on CUDA 13 the command installs a runtime of CUDA 13."""
    site.tms().torch("13.0")
    with_driver = choose_hidden(env=on_path(full_stub))
    assert with_driver["error"] == "NotLoadableError"
    assert "pip install 'nvidia-cuda-runtime==13.*'" in with_driver["text"]
    assert "12" not in with_driver["text"].replace(str(site.root), "").replace(str(full_stub), "")


def test_r09_torchs_major_beats_the_highest(site, choose_hidden, full_stub):
    """R09: torch for CUDA 12 beside a runtime of CUDA 13; both are listed with their owners."""
    site.tms().torch("12.9", "2.11.0+cu129").cudart(12)
    site.cudart(13)
    answer = choose_hidden(env=on_path(full_stub))
    assert (answer["path"], answer["verdict"]) == (str(site.hook("_cu12")), "ok")
    assert "nvidia-cuda-runtime-cu12 12.8.90" in answer["explain"]
    assert "nvidia-cuda-runtime 13.0.96" in answer["explain"]
    assert answer["warnings"] == []


def test_r09_owners_are_listed_whatever_the_loader_finds(site, tmp_path, choose):
    """R09: a runtime in the loader's reach does not hide those in packages."""
    site.tms().torch("12.9", "2.11.0+cu129").cudart(12)
    site.cudart(13)
    (tmp_path / "plugin").mkdir()
    shutil.copy(site.cudart_directory(13) / "libcudart.so.13", tmp_path / "plugin")
    text = choose(env=on_path(tmp_path / "plugin")).explain()
    assert str(tmp_path / "plugin/libcudart.so.13") in text
    assert "nvidia-cuda-runtime-cu12 12.8.90" in text
    assert "nvidia-cuda-runtime 13.0.96" in text


@pytest.mark.parametrize(("cuda", "suffix"), [("12.8", "_cu12"), ("13.0", "_cu13")])
def test_r10_two_runtimes_are_a_normal_state(site, choose, full_stub, cuda, suffix):
    """R10: both in the loader's reach and in the packages: torch's is chosen, without a warning."""
    site.tms().torch(cuda)
    directories = [site.cudart(12), site.cudart(13)]
    choice = choose(env=on_path(full_stub, *directories))
    assert (choice.path, choice.verdict) == (site.hook(suffix), Verdict.OK)
    assert choice.warnings == ()


def test_r11_plugin_directory_is_no_statement_of_intent(site, tmp_path, choose_hidden, full_stub):
    """R11: a libcudart.so.12 on LD_LIBRARY_PATH, torch for 13: cu13, and its directory in front."""
    site.tms().torch("13.0")
    runtime = site.cudart(13)
    plugin = Site(tmp_path / "plugin").cudart(12)
    answer = choose_hidden(env=on_path(plugin, full_stub))
    assert (answer["path"], answer["verdict"]) == (str(site.hook("_cu13")), "ok")
    assert answer["env"] == {
        "LD_PRELOAD": str(site.hook("_cu13")),
        **on_path(runtime, plugin, full_stub),
    }


@pytest.mark.parametrize(
    ("value", "suffix"),
    [("12", "_cu12"), ("12.8", "_cu12"), ("cu12", "_cu12"), ("13", "_cu13"), ("cu13.0", "_cu13")],
)
def test_r13_override(site, choose, full_stub, value, suffix):
    """R13: a version or a major, shown as an override, and verified like any other."""
    site.tms()
    directories = [site.cudart(12), site.cudart(13)]
    choice = choose(env={**on_path(full_stub, *directories), "PYRESOLVE_CUDA": value})
    assert (choice.path, choice.source) == (site.hook(suffix), Source.OVERRIDE)
    assert (choice.verdict, choice.evidence[0].text) == (Verdict.OK, f"PYRESOLVE_CUDA={value}")


@pytest.mark.parametrize("value", ["120", "121", "cu128", "twelve"])
def test_r13_override_that_means_nothing(site, choose, value):
    """R13: refused with an explanation, before anything is chosen."""
    site.tms().torch("13.0")
    for options in ({"env": {"PYRESOLVE_CUDA": value}}, {"cuda": value}):
        with pytest.raises(OverrideError, match="names no CUDA version"):
            choose(**options)


def test_r13_several_runtimes_have_a_fixed_order(site, tmp_path, choose_hidden):
    """R13: `libcudart.so` to `libcudart.so.11.0` beside a CUDA 12: the one with a build, always."""
    site.tms()
    runtime = site.cudart(12)
    old = tmp_path / "old"
    old.mkdir()
    shutil.copy(fake_cudart(11), old / "libcudart.so.11.0")
    (old / "libcudart.so").symlink_to("libcudart.so.11.0")
    for directories in ((old, runtime), (runtime, old)):
        answer = choose_hidden(env=on_path(*directories))
        assert (answer["path"], answer["source"]) == (str(site.hook("_cu12")), "found runtime")
        assert "libcudart.so.11.0 (CUDA 11.0)" in answer["explain"]


def test_r15_package_without_hooks(site, choose):
    """R15: a wheel that was built without CUDA is told from a package that is missing."""
    site.tms().remove("*.so").torch("13.0")
    with pytest.raises(NoVariantError, match="installed without native hooks") as caught:
        choose()
    assert "torch_memory_saver 0.0.10" in str(caught.value)
    assert site.root in caught.value.searched
    assert (caught.value.found, caught.value.major) == ((), None)


def test_package_missing(site, choose):
    """Nothing of the package anywhere on the import path."""
    site.torch("13.0")
    with pytest.raises(NoVariantError, match="is not installed") as caught:
        choose()
    assert caught.value.remedy == "pip install torch_memory_saver"
    assert site.root in caught.value.searched


@pytest.mark.parametrize(
    ("cuda", "version", "suffix"),
    [
        ("12.8", "2.9.1+cu128", "_cu12"),
        ("12.8", "2.9.1", "_cu12"),
        ("13.0", "2.9.0a0+50eac811a6.nv25.09", "_cu13"),
        ("12.8", "2.9.1+cu130", "_cu12"),
    ],
)
@pytest.mark.parametrize("native", [True, False], ids=["library", "metadata only"])
def test_r16_container_variables_and_labels(site, choose, cuda, version, suffix, native):
    """R16: neither CUDA_VERSION nor the local version label says what torch links."""
    site.tms().torch(cuda, version, native=native)
    choice = choose(env={"CUDA_VERSION": "13.4", "CUDA_HOME": "/usr/local/cuda-13.4"})
    assert choice.path == site.hook(suffix)


# --- places


@pytest.mark.parametrize("gpu", [True, False], ids=["driver", "no driver"])
def test_r19_one_root_for_each_wheel(tmp_path, choose_hidden, full_stub, gpu):
    """R19: the hook, the runtime and torch in roots of their own, an empty nvidia/ before them."""
    roots = {name: Site(tmp_path / name) for name in ("empty", "hook", "torch", "runtime")}
    (roots["empty"] / "nvidia").mkdir()
    roots["hook"].tms()
    roots["torch"].torch("13.0", rpath=False)
    runtime = roots["runtime"].cudart(13)
    answer = choose_hidden(*roots.values(), env=on_path(full_stub) if gpu else {})
    assert answer["path"] == str(roots["hook"].hook("_cu13"))
    assert answer["verdict"] == ("ok" if gpu else "unknown")
    assert answer["env"] == {
        "LD_PRELOAD": answer["path"],
        **(on_path(runtime, full_stub) if gpu else on_path(runtime)),
    }


def test_r19_linked_trees_are_not_resolved(tmp_path, choose_hidden, full_stub):
    """R19: `$ORIGIN` follows the path that was used, so that a link stays one."""
    real = Site(tmp_path / "store").tms().torch("13.0")
    real.cudart(13)
    link = tmp_path / "runfiles"
    link.symlink_to(real.root)
    answer = choose_hidden(link, env=on_path(full_stub))
    assert answer["path"] == str(link / real.hook("_cu13").name)
    assert answer["env"] == {
        "LD_PRELOAD": answer["path"],
        **on_path(link / "nvidia/cu13/lib", full_stub),
    }


def test_r21_conda_prefix(site, tmp_path, choose_hidden, full_stub):
    """R21: a conda prefix with a CUDA 12 that only has the SONAME as its file name."""
    lib = tmp_path / "conda/lib"
    lib.mkdir(parents=True)
    (tmp_path / "conda/conda-meta").mkdir()
    runtime = Site(tmp_path / "wheel").cudart(12) / "libcudart.so.12"
    shutil.copy(runtime, lib)
    site.tms().torch("12.9", rpath=False)
    env = {**on_path(full_stub), "CONDA_PREFIX": str(tmp_path / "conda")}
    answer = choose_hidden(env=env)
    assert (answer["path"], answer["verdict"]) == (str(site.hook("_cu12")), "ok")
    assert answer["runtime"]["path"] == str(lib / "libcudart.so.12")


def test_hook_inside_the_package(site, choose):
    """Hooks are looked for beside the package and in it."""
    site.tms().torch("13.0").cudart(13)
    inside = site.rename(site.hook("_cu13").name, f"torch_memory_saver/{PRELOAD_STEM}_cu13.so")
    assert choose().path == inside


def test_other_stem(site, choose, full_stub):
    """The other hook of the package, by its stem."""
    site.tms().torch("13.0").cudart(13)
    choice = choose("torch_memory_saver_hook_mode_torch", env=on_path(full_stub))
    assert choice.path == site / "torch_memory_saver_hook_mode_torch_cu13.abi3.so"
    assert choice.verdict is Verdict.OK


def test_other_package(site, choose, full_stub):
    """A package of any name that follows the same convention."""
    hook = site.package("my-hooks", "1.0").torch("13.0").fake_hook(13, "my_hook_cu13.abi3.so")
    site.cudart(13)
    choice = choose("my_hook", package="my_hooks", env=on_path(full_stub))
    assert (choice.path, choice.verdict) == (hook, Verdict.OK)


# --- the driver


def test_r25_head_node(site, choose_hidden):
    """R25: no GPU, no driver, no runtime, only torch's metadata: the build is known."""
    site.tms().torch("13.0", native=False)
    answer = choose_hidden()
    assert (answer["path"], answer["source"]) == (str(site.hook("_cu13")), "torch metadata")
    assert answer["driver"]["present"] is False
    assert any("the workers may differ" in warning for warning in answer["warnings"])


def test_r25_no_driver_is_not_unloadable(site, choose_hidden):
    """R25: where only the driver is missing the verdict is UNKNOWN, with no warning."""
    site.tms().torch("13.0").cudart(13)
    answer = choose_hidden()
    assert (answer["verdict"], answer["report"]["status"]) == ("unknown", "no_driver")
    assert answer["warnings"] == []


@pytest.mark.parametrize("value", ["void", "none", " VOID"])
def test_r26_driver_kept_out_of_the_container(site, choose, value):
    """R26: the variable is named as the likely reason, and decides nothing."""
    site.tms().torch("13.0").cudart(13)
    choice = choose(env={"NVIDIA_VISIBLE_DEVICES": value})
    assert choice.path == site.hook("_cu13")
    assert any("NVIDIA_VISIBLE_DEVICES=" in warning for warning in choice.warnings)


def test_r26_variable_is_no_matter_where_the_driver_is(site, choose, full_stub):
    """R26: the loader decides, not the variable."""
    site.tms().torch("13.0").cudart(13)
    choice = choose(env={**on_path(full_stub), "NVIDIA_VISIBLE_DEVICES": "void"})
    assert (choice.verdict, choice.warnings) == (Verdict.OK, ())


def test_r23_compat_driver_is_flagged(site, tmp_path, choose, clean_env, full_stub):
    """R23: which libcuda.so.1 the workers map, and that it is a forward-compatibility copy."""
    compat = Path(shutil.copytree(full_stub, tmp_path / "cuda/compat"))
    site.tms().torch("13.0").cudart(13)
    environ = {**clean_env, **on_path(compat)}
    choice = choose(env=environ)
    assert choice.driver.path == compat / "libcuda.so.1"
    [warning] = choice.warnings
    assert f"{compat / 'libcuda.so.1'}, a forward-compatibility copy" in warning
    assert choice.env(environ)["LD_LIBRARY_PATH"].endswith(f":{compat}")


def test_toolkits_stub_is_no_driver(site, choose):
    """The link-time libcuda answers every call with error 34: nothing can be told from it."""
    site.tms().torch("13.0").cudart(13)
    choice = choose(env=on_path(driver.full_stub(result=STUB_LIBRARY)))
    assert (choice.driver.present, choice.verdict) == (False, Verdict.UNKNOWN)
    assert "stub, not a driver" in choice.driver.problem


@pytest.mark.parametrize(("version", "suffix"), [(12080, "_cu12"), (13000, "_cu13")])
def test_driver_limits_the_guess(site, choose_hidden, version, suffix):
    """Without torch the highest runtime that the driver supports."""
    site.tms().cudart(12)
    site.cudart(13)
    stub = driver.full_stub(version)
    answer = choose_hidden(env=on_path(stub))
    assert (answer["path"], answer["source"]) == (str(site.hook(suffix)), "found runtime")
    assert (answer["verdict"], answer["warnings"]) == ("ok", [])


# --- overrides


def test_preload_override(site, tmp_path, choose, full_stub):
    """PYRESOLVE_PRELOAD: used, shown, and verified; what it links is what counts."""
    site.tms().torch("13.0").cudart(13)
    mine = Path(shutil.copy(site.hook("_cu13"), tmp_path / "mine.so"))
    choice = choose(env={**on_path(full_stub), "PYRESOLVE_PRELOAD": str(mine)})
    assert (choice.path, choice.source, choice.cuda_major) == (mine, Source.OVERRIDE, 13)
    assert choice.verdict is Verdict.OK
    assert choice.evidence[0].text == f"PYRESOLVE_PRELOAD={mine}"


def test_preload_override_without_the_package(site, tmp_path, choose, full_stub):
    """A file of the user's own needs no package."""
    mine = Site(tmp_path / "mine").fake_hook(13)
    runtime = site.cudart(13)
    env = {**on_path(full_stub, runtime), "PYRESOLVE_PRELOAD": str(mine)}
    assert (choose(env=env).path, choose(env=env).verdict) == (mine, Verdict.OK)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path, "does not exist"),
        (lambda path: path.mkdir() or path, "is a directory"),
        (lambda path: path.touch() or path, "is empty"),
        (elfpatch.lfs_pointer, "Git LFS pointer"),
        (lambda path: "mine.so", "is no absolute path"),
    ],
    ids=["missing", "directory", "empty", "LFS pointer", "relative"],
)
def test_preload_override_that_cannot_be(site, tmp_path, choose, make, reason):
    """The file is looked at before it is followed."""
    site.tms().torch("13.0")
    value = str(make(tmp_path / "mine.so"))
    with pytest.raises(OverrideError, match=reason) as caught:
        choose(env={"PYRESOLVE_PRELOAD": value})
    assert (caught.value.variable, caught.value.value) == ("PYRESOLVE_PRELOAD", value)


@pytest.mark.parametrize("how", ["variable", "argument"])
def test_override_contradicts_torch(site, choose, full_stub, how):
    """The override wins and the contradiction is a warning."""
    site.tms().torch("13.0").cudart(13)
    runtime = site.cudart(12)
    env = on_path(full_stub, runtime)
    if how == "variable":
        choice = choose(env={**env, "PYRESOLVE_CUDA": "12"})
    else:
        choice = choose(env=env, cuda=12)
    assert (choice.path, choice.source) == (site.hook("_cu12"), Source.OVERRIDE)
    assert sum("says CUDA 13" in warning for warning in choice.warnings) == 2


def test_preload_override_contradicts_torch(site, choose, full_stub):
    """A file for another major than torch's is loaded, and that is said."""
    site.tms().torch("13.0").cudart(13)
    runtime = site.cudart(12)
    env = {**on_path(full_stub, runtime), "PYRESOLVE_PRELOAD": str(site.hook("_cu12"))}
    choice = choose(env=env)
    assert choice.path == site.hook("_cu12")
    assert any("CUDA 13" in warning for warning in choice.warnings)


def test_override_of_a_major_without_a_build(site, choose):
    """Laid down or not: never another major's build."""
    site.tms().torch("13.0").cudart(13)
    with pytest.raises(NoVariantError, match="the workers use CUDA 14") as caught:
        choose(cuda=14)
    assert caught.value.major == 14


# --- verification


BROKEN = {
    "truncated": lambda library: elfpatch.cut(library, library, 4000),
    "empty": lambda library: elfpatch.cut(library, library, 0),
    "LFS pointer": elfpatch.lfs_pointer,
    "foreign": lambda library: elfpatch.patch(
        library, library, {elfpatch.MACHINE: elfpatch.FOREIGN_MACHINE}
    ),
    "missing": lambda library: library.unlink(),
}


@pytest.mark.parametrize("damage", BROKEN)
def test_r29_broken_runtime(site, choose_hidden, full_stub, damage):
    """R29: with a driver here the workers would fail as well: an error that names the file."""
    site.tms().torch("13.0")
    library = site.cudart(13) / "libcudart.so.13"
    BROKEN[damage](library)
    answer = choose_hidden(env=on_path(full_stub))
    assert answer["error"] == "NotLoadableError"
    assert (str(library) if damage != "missing" else "libcudart.so.13") in answer["text"]
    alone = choose_hidden()
    assert (alone["path"], alone["verdict"]) == (str(site.hook("_cu13")), "fail")
    assert any(
        "the loader finds no working driver here" in warning for warning in alone["warnings"]
    )


@pytest.mark.parametrize("gpu", [True, False], ids=["driver", "no driver"])
@pytest.mark.parametrize("verify", ["auto", "always", "never"])
def test_verify(site, choose_hidden, full_stub, verify, gpu):
    """`auto` raises where this host is like the workers, `always` raises, `never` does not look."""
    site.tms().torch("13.0")
    answer = choose_hidden(env=on_path(full_stub) if gpu else {}, verify=verify)
    if verify == "always" or (verify == "auto" and gpu):
        assert (answer["error"], answer["status"]) == ("NotLoadableError", "MISSING_DEPENDENCY")
    else:
        assert answer["path"] == str(site.hook("_cu13"))
        assert answer["verdict"] == ("unknown" if verify == "never" else "fail")
        assert (answer["report"] is None) == (verify == "never")


def test_verify_always_takes_unknown(site, choose_hidden):
    """UNKNOWN is no failure, however strict one is."""
    site.tms().torch("13.0").cudart(13)
    assert choose_hidden(verify="always")["verdict"] == "unknown"


def test_unverified_choice(site, choose):
    """Nothing was rehearsed: no report, no environment, and the text says so."""
    site.tms().torch("13.0").cudart(13)
    choice = choose(verify="never")
    assert (choice.verdict, choice.report) == (Verdict.UNKNOWN, None)
    assert "UNKNOWN: not verified" in choice.explain()
    assert (choice.to_dict()["env"], choice.to_dict()["report"]) == (None, None)


def test_report_of_an_error(site, choose, full_stub):
    """NotLoadableError carries the report and its remedy."""
    site.tms().torch("13.0").cudart(13)
    elfpatch.cut(site.hook("_cu13"), site.hook("_cu13"), 4000)
    env = {**on_path(full_stub), "PYRESOLVE_CUDA": "12"}
    site.cudart(12)
    elfpatch.bump_version(site.hook("_cu12"), site.hook("_cu12"), "GLIBC_2.14", "GLIBC_9.99")
    with pytest.raises(NotLoadableError) as caught:
        choose(env=env)
    report = caught.value.report
    assert (report.verdict, report.status) == (Verdict.FAIL, Status.VERSION_MISMATCH)
    assert report.message == str(caught.value)
    assert "GLIBC_9.99" in report.message
    assert caught.value.remedy == report.remedy


def test_truncated_hook_is_no_candidate(site, choose):
    """A build cut short is refused by its headers; the others are for another major."""
    site.tms().torch("13.0").cudart(13)
    elfpatch.cut(site.hook("_cu13"), site.hook("_cu13"), 4000)
    with pytest.raises(NoVariantError, match="has 4000 bytes but its headers") as caught:
        choose()
    assert caught.value.major == 13


def test_loadability_where_nothing_else_tells(site, choose_hidden):
    """A build with a runtime of its own, that nobody else can find, is the only one that loads."""
    site.package("torch_memory_saver", "0.0.10")
    site.fake_hook(14)
    (site / "private").mkdir()
    shutil.copy(fake_cudart(15), site / "private")
    needed = hollow("libcuda.so.1"), fake_cudart(15)
    hook = built(SOURCES / "hook.c", "hook.so", *needed, "-Wl,-rpath,$ORIGIN/private")
    shutil.copy(hook, site.hook("_cu15"))
    answer = choose_hidden()
    assert (answer["path"], answer["source"]) == (str(site.hook("_cu15")), "loadability")
    assert (answer["verdict"], answer["warnings"]) == ("unknown", [])


def test_existence_where_nothing_loads(site, choose_hidden):
    """The lowest of the suffixed builds, and a warning why each was refused."""
    site.package("torch_memory_saver", "0.0.10")
    site.fake_hook(15)
    site.fake_hook(14)
    answer = choose_hidden()
    assert (answer["source"], answer["verdict"]) == ("existence", "fail")
    assert answer["path"] == str(site.hook("_cu14"))
    [warning] = [w for w in answer["warnings"] if "only because it is there" in w]
    assert f"{site.hook('_cu14')} needs libcudart.so.14" in warning
    assert f"{site.hook('_cu15')} needs libcudart.so.15" in warning


def test_environment_in_which_nothing_starts(site, tmp_path, choose, full_stub):
    """Whether there is a driver cannot be found out there; that no worker will start, can."""
    site.tms().torch("13.0").cudart(13)
    shutil.copy(hollow("libc.so.6"), tmp_path)
    with pytest.raises(NotLoadableError, match="no program starts in this environment") as caught:
        choose(env=on_path(full_stub, tmp_path))
    assert caught.value.report.status is Status.BROKEN_ENVIRONMENT


def test_torch_that_hangs_is_not_the_hooks_fault(site, choose, full_stub, rogue):
    """The time was spent on torch's library: the hook is not blamed for it."""
    site.tms().torch("13.0").cudart(13)
    shutil.copy(rogue("loop"), site / "torch/lib/libc10_cuda.so")
    try:
        text = choose(env=on_path(full_stub), timeout=1).explain()
    except NotLoadableError as error:
        text = str(error)
    assert "libc10_cuda.so did not finish loading" in text
    assert f"{site.hook('_cu13')} did not finish" not in text


def test_runtime_is_described(site, choose, full_stub):
    """The runtime that was chosen is torch's, and its owner is known."""
    site.tms().torch("13.0").cudart(13)
    for options in ({}, {"verify": "never"}):
        runtime = choose(env=on_path(full_stub), **options).runtime
        assert runtime.path == site.cudart_directory(13) / "libcudart.so.13"
        assert (runtime.major, runtime.version) == (13, 13000)
        assert (runtime.origin, runtime.distribution) == (
            Origin.TORCH,
            "nvidia-cuda-runtime 13.0.96",
        )


def test_timeout_holds(site, choose, rogue):
    """A hook that never finishes loading is reported when the time is up."""
    env = {"PYRESOLVE_PRELOAD": str(rogue("loop"))}
    started = time.monotonic()
    choice = choose(env=env, timeout=0.5)
    assert time.monotonic() - started < 3
    assert choice.report.status is Status.TIMED_OUT


def test_timeout_variable_wins(site, choose, rogue):
    """PYRESOLVE_TIMEOUT corrects a launcher that waits too long."""
    env = {"PYRESOLVE_PRELOAD": str(rogue("loop")), "PYRESOLVE_TIMEOUT": "0.5"}
    started = time.monotonic()
    with pytest.raises(NotLoadableError, match=r"within 0\.5 s"):
        choose(env=env, timeout=100, verify="always")
    assert time.monotonic() - started < 3


# --- misuse


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stem": ""}, "stem"),
        ({"stem": "a/b"}, "stem"),
        ({"stem": "/a"}, "stem"),
        ({"package": ""}, "package"),
        ({"package": "a/b"}, "package"),
        ({"package": "torch_memory_saver("}, "package"),
        ({"package": "../x"}, "package"),
        ({"verify": "sometimes"}, "verify is 'sometimes': give one of 'auto', 'always', 'never'"),
        ({"resolver": "ask"}, "resolver is 'ask': give one of 'auto', 'always', 'never'"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1.0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
    ],
    ids=str,
)
def test_option_that_means_nothing(site, choose, options, words):
    """A misuse is a ValueError that names the option."""
    site.tms().torch("13.0")
    with pytest.raises(ValueError, match=words):
        choose(**options)


def test_pin_that_means_nothing(site, choose):
    """A misuse of env() as well."""
    site.tms().torch("13.0").cudart(13)
    with pytest.raises(ValueError, match="pin is 'rpath': give one of 'auto', 'library_path'"):
        choose().env({}, pin="rpath")


@pytest.mark.parametrize("variable", ["A\0B", ""])
def test_environment_that_no_process_can_have(site, choose, variable):
    """It is refused before anything is started, whichever variable it is."""
    site.tms().torch("13.0").cudart(13)
    with pytest.raises(ValueError, match="variable that no process can be given"):
        choose(env={variable: "x"})


@pytest.mark.parametrize("name", ["CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH"])
def test_relative_directories_are_taken(tmp_path, site, choose_hidden, name, full_stub):
    """A relative toolkit directory is odd, and neither an error nor written to an environment."""
    site.tms()
    (tmp_path / "cuda/lib").mkdir(parents=True)
    shutil.copy(Site(tmp_path / "wheel").cudart(13) / "libcudart.so.13", tmp_path / "cuda/lib")
    relative = os.path.relpath(tmp_path / "cuda", "/")
    env = on_path(full_stub)
    if name == "LD_LIBRARY_PATH":
        env[name] += f":{relative}/lib"
    else:
        env[name] = relative
    answer = choose_hidden(env=env)
    assert (answer.get("path"), answer.get("verdict")) == (str(site.hook("_cu13")), "ok")
    added = [
        element
        for variable, value in answer["env"].items()
        for element in value.removesuffix(env.get(variable, "")).split(":")
    ]
    assert all(element.startswith("/") for element in added if element)


# --- what stays as it was

AUDITED = """
    import json, os, sys
    from pathlib import Path

    def state():
        fds = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
               if os.path.exists(f"/proc/self/fd/{fd}")}
        tasks = Path("/proc/self/task").iterdir()
        return sorted(fds.items()), [(task / "children").read_text() for task in tasks]

    import pyresolve
    before, environ = state(), dict(os.environ)
    for _ in range(3):
        choice = pyresolve.pick()
        env = choice.env()
        choice.env(pin="preload")
        choice.explain(), choice.to_dict()
        report = pyresolve.check(choice, mode="preload", environ={**os.environ, **env})
    maps = Path("/proc/self/maps").read_text()
    print(json.dumps({
        "path": str(choice),
        "verdicts": [choice.verdict.name, report.verdict.name],
        "mapped": [line for line in maps.splitlines() if "libcud" in line or "hook" in line],
        "imported": sorted({"torch", "torch_memory_saver", "importlib.metadata"} & {*sys.modules}),
        "state": [before == state(), environ == dict(os.environ)],
    }))
"""


def test_nothing_is_imported_mapped_or_left_behind(site, clean_env, full_stub, tmp_path):
    """R49: torch and the package raise when imported here, and cuInit would leave a marker."""
    site.tms().torch("13.0").cudart(13)
    (site / "torch_memory_saver/__init__.py").write_text("raise AssertionError('imported')\n")
    marker = tmp_path / "marker"
    env = {
        **clean_env,
        **on_path(full_stub),
        "PYTHONPATH": str(site.root),
        CUINIT_MARKER: str(marker),
    }
    assert cold(AUDITED, env=env) == {
        "path": str(site.hook("_cu13")),
        "verdicts": ["OK", "OK"],
        "mapped": [],
        "imported": [],
        "state": [True, True],
    }
    assert not marker.exists()


def test_failures_leave_nothing_behind(site, choose, full_stub):
    """Errors clean up as answers do; the fixture of all tests counts, here the paths are many."""
    hook = site.tms().only("*_cu13.abi3.so").torch("14.0").hook("_cu13")
    elfpatch.bump_version(hook, hook, "GLIBC_2.14", "GLIBC_9.99")
    before = process.open_fds()
    for _ in range(10):
        for options in ({}, {"cuda": 12}, {"cuda": "120"}, {"cuda": 13}):
            with pytest.raises(PyresolveError):
                choose(env=on_path(full_stub), **options)
    assert process.open_fds() == before


def test_default_environment_is_read_and_not_written(site, monkeypatch, clean_env, full_stub):
    """os.environ is what the workers start with where nothing else is said."""
    site.tms().torch("13.0").cudart(13)
    runtime = site.cudart(12)
    monkeypatch.syspath_prepend(site.root)
    for name in [*os.environ]:
        monkeypatch.delenv(name)
    environ = {**clean_env, **on_path(full_stub, runtime), "PYRESOLVE_CUDA": "12"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    choice = pick()
    assert (choice.path, choice.verdict) == (site.hook("_cu12"), Verdict.OK)
    assert choice.env() == {"LD_PRELOAD": str(site.hook("_cu12"))}
    assert dict(os.environ) == before


def test_caller_may_go_on_changing_its_environment(site, choose, clean_env, full_stub):
    """The choice holds what was true when it was made."""
    site.tms().torch("13.0").cudart(13)
    environ = {**clean_env, **on_path(full_stub)}
    choice = pick(environ=environ)
    first = choice.env(dict(environ))
    environ["LD_LIBRARY_PATH"] = "/elsewhere"
    assert choice.env({**environ, **on_path(full_stub)}) == first
    first["LD_PRELOAD"] = "changed"
    assert choice.env({**environ, **on_path(full_stub)})["LD_PRELOAD"] == str(choice)


# --- the choice


def test_choice_is_a_path(site, choose, full_stub):
    """os.PathLike and str() are the path; it is frozen."""
    site.tms().torch("13.0").cudart(13)
    choice = choose(env=on_path(full_stub))
    assert os.fspath(choice) == str(choice) == str(site.hook("_cu13"))
    assert Path(choice) == choice.path
    assert os.path.exists(choice)
    with pytest.raises(dataclasses.FrozenInstanceError):
        choice.path = Path("/")


def test_choice_as_data(site, choose, clean_env, full_stub):
    """JSON with a schema number; the keys are an interface."""
    site.tms().torch("13.0", "2.9.1+cu130").cudart(13)
    environ = {**clean_env, **on_path(full_stub)}
    choice = choose(env=environ)
    data = json.loads(json.dumps(choice.to_dict()))
    assert [*data] == [
        "schema",
        "path",
        "cuda_major",
        "source",
        "verdict",
        "report",
        "runtime",
        "driver",
        "evidence",
        "warnings",
        "env",
    ]
    assert (data["schema"], data["path"], data["cuda_major"]) == (1, str(choice), 13)
    assert (data["source"], data["verdict"]) == ("torch's runtime", "ok")
    assert data["env"] == choice.env(environ)
    runtime = site.cudart_directory(13) / "libcudart.so.13"
    assert (data["runtime"]["path"], data["runtime"]["version"]) == (str(runtime), "13.0")
    assert data["driver"] == {
        "present": True,
        "path": str(full_stub / "libcuda.so.1"),
        "version": "13.0",
        "problem": None,
        "absent": False,
    }
    assert [item["source"] for item in data["evidence"] if item["decided"]] == ["torch's runtime"]
    assert (data["report"]["mode"], data["report"]["status"]) == ("preload", "loadable")
    assert data["report"]["elapsed"] > 0


def test_choice_as_text(site, choose, full_stub):
    """The build, every source with a mark at the one that was followed, the verdict."""
    site.tms().torch("13.0").cudart(13)
    runtime = site.cudart(12)
    env = {**on_path(full_stub, runtime), "PYRESOLVE_CUDA": "12"}
    lines = choose(env=env).explain().splitlines()
    assert lines[0] == str(site.hook("_cu12"))
    assert lines[1] == "  CUDA 12, from override"
    assert [line.strip().split(":")[0] for line in lines[2:6]] == [
        "* override",
        "torch's runtime",
        "torch metadata",
        "found runtime",
    ]
    assert lines[6].startswith("  OK: ")
    assert all(line.startswith("  warning: ") for line in lines[7:])
    assert len(lines) == 9


def test_choices_are_equal_where_all_is(site, choose, full_stub):
    """Two picks of one moment differ in nothing but the time they took."""
    site.tms().torch("13.0").cudart(13)
    one, two = (choose(env=on_path(full_stub)) for _ in range(2))
    assert dataclasses.replace(one, report=None) == dataclasses.replace(two, report=None)


def test_public_names():
    """What the tests import is what the package offers, and nothing comes with a mere import."""
    code = """
        import json, sys
        import pyresolve
        print(json.dumps([name for name in sys.modules if name.startswith("pyresolve.")]))
    """
    assert cold(code) == ["pyresolve._imports"]
    assert {"pick", "check", "Choice", "PyresolveError"} <= {*pyresolve.__all__}


def test_two_runtimes_of_one_major(site, tmp_path, choose, full_stub):
    """R20: a stale CUDA 12.1 on LD_LIBRARY_PATH; torch's 12.8 is what the workers will map."""
    site.tms().torch("12.8").cudart(12)
    stale = Site(tmp_path / "stale").cudart(OLD_CUDART_12)
    choice = choose(env=on_path(stale, full_stub))
    assert (choice.verdict, choice.runtime.version) == (Verdict.OK, 12080)
    assert str(stale / "libcudart.so.12") in choice.explain()


def test_choice_that_came_from_another_host(site, choose, full_stub):
    """R54: it is used all the same, with a warning that names both hosts."""
    site.tms().torch("13.0").cudart(13)
    choice = choose(env=on_path(full_stub))
    code = """
        import json, pickle, socket, sys, warnings
        choice = pickle.loads(bytes.fromhex(sys.argv[1]))
        with warnings.catch_warnings(record=True) as caught:
            choice.env()
            socket.sethostname("elsewhere")
            choice.env()
        print(json.dumps([str(warning.message) for warning in caught]))
    """
    elsewhere = [require_unshare(), "-ru"]
    [said] = cold(code, pickle.dumps(choice).hex(), env=on_path(full_stub), prefix=elsewhere)
    assert said.startswith(
        f"this choice was made on {os.uname().nodename} and is used on elsewhere"
    )
