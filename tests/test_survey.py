"""runtimes() and driver(): what there is, whatever is made of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support import elfpatch, process, rogues
from support.compile import SOURCES, built
from support.driver import CUINIT_MARKER, STUB_LIBRARY, full_stub as driver_stub
from support.layout import Site

import pyresolve
from pyresolve import driver, runtimes


def surveyed(environ, *packages, prefix=()):
    """Return the runtimes that a fresh process with these packages sees, as text."""
    code = """
        import dataclasses, enum, json, sys
        environ, packages = map(json.loads, sys.argv[1:])
        sys.path += packages
        import pyresolve

        def text(value):
            return value.name if isinstance(value, enum.Enum) else str(value)

        found = [dataclasses.asdict(runtime) for runtime in pyresolve.runtimes(environ=environ)]
        assert not [line for line in open("/proc/self/maps") if "libcuda" in line]
        print(json.dumps(found, default=text))
    """
    arguments = json.dumps(environ), json.dumps([os.fspath(package) for package in packages])
    return process.cold(code, *arguments, prefix=prefix)


def brief(found):
    """Return path, version and origin of each."""
    return [(runtime["path"], runtime["version"], runtime["origin"]) for runtime in found]


@pytest.fixture(autouse=True)
def nothing_of_the_environment(monkeypatch):
    """Let nothing in the environment of the test run name a runtime."""
    for name in ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)


# --- runtimes


def test_no_runtime(hidden_toolkit):
    """Where there is none there is none."""
    assert surveyed({}, prefix=hidden_toolkit) == []


def test_real_runtimes(site, hidden_toolkit):
    """Those of the wheels are found in the packages, with what brought them, and asked."""
    site.cudart(12), site.cudart(13)
    found = surveyed({}, site, prefix=hidden_toolkit)
    assert found == [
        {
            "path": str(site.cudart_directory(major) / f"libcudart.so.{major}"),
            "major": major,
            "version": version,
            "origin": "PACKAGE",
            "distribution": distribution,
            "problem": None,
        }
        for major, version, distribution in [
            (13, 13000, "nvidia-cuda-runtime 13.0.96"),
            (12, 12080, "nvidia-cuda-runtime-cu12 12.8.90"),
        ]
    ]


def test_system_toolkit(hidden_toolkit):
    """A system toolkit is found where there is one."""
    toolkit = [runtime for runtime in surveyed({}) if runtime["origin"] == "TOOLKIT"]
    assert bool(hidden_toolkit) == bool(toolkit)
    assert all(runtime["version"] // 1000 == runtime["major"] for runtime in toolkit)


def test_places(tmp_path, hidden_toolkit):
    """Packages, conda, LD_LIBRARY_PATH, toolkit: each in its turn, each with its name."""
    sites = [Site(tmp_path / name) for name in ("first", "second")]
    packages = [site.fake_cudart(major) for site, major in zip(sites, (14, 15), strict=True)]
    conda, toolkit = tmp_path / "conda", tmp_path / "toolkit"
    (conda / "conda-meta").mkdir(parents=True)
    places = [conda / "lib", tmp_path / "path", toolkit / "lib64", toolkit / "targets/sbsa/lib"]
    for number, place in enumerate(places):
        place.mkdir(parents=True, exist_ok=True)
        library = Site(tmp_path / f"source{number}").fake_cudart(14) / "libcudart.so.14"
        library.rename(place / "libcudart.so.14")
    environ = {
        "CONDA_PREFIX": str(conda),
        "LD_LIBRARY_PATH": f"{tmp_path / 'path'}:/nowhere",
        "CUDA_HOME": str(toolkit),
        "CUDA_PATH": str(toolkit),
    }
    assert brief(surveyed(environ, *sites, prefix=hidden_toolkit)) == [
        (f"{packages[0]}/libcudart.so.14", 14000, "PACKAGE"),
        (f"{packages[1]}/libcudart.so.15", 15000, "PACKAGE"),
        (f"{places[0]}/libcudart.so.14", 14000, "CONDA"),
        (f"{places[1]}/libcudart.so.14", 14000, "LIBRARY_PATH"),
        (f"{places[2]}/libcudart.so.14", 14000, "TOOLKIT"),
        (f"{places[3]}/libcudart.so.14", 14000, "TOOLKIT"),
    ]


def test_same_file_once(tmp_path, hidden_toolkit):
    """A file that is found by several ways is listed once, under the first."""
    site = Site(tmp_path / "site")
    directory = site.fake_cudart(14)
    (directory / "libcudart.so.14.0.1").symlink_to("libcudart.so.14")
    (tmp_path / "link").symlink_to(directory)
    environ = {"LD_LIBRARY_PATH": f"{tmp_path}/link:{directory}"}
    expected = [(f"{directory}/libcudart.so.14", 14000, "PACKAGE")]
    assert expected == brief(surveyed(environ, site, prefix=hidden_toolkit))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("empty", "is empty (0 bytes)"),
        ("text", "a Git LFS pointer"),
        ("cut", "but its headers describe"),
        ("foreign", "is built for "),
        ("mute", None),
        ("segfault", "died of SIGSEGV"),
        ("exit_zero", "ended with exit status 0"),
        ("missing_needed", "needs libpyresolve_vanished.so.1"),
    ],
)
def test_runtime_that_does_not_work(tmp_path, hidden_toolkit, damage, words):
    """One that cannot be asked is listed with its problem, and hides no other one."""
    site = Site(tmp_path / "site")
    good = site.fake_cudart(14) / "libcudart.so.14"
    bad = tmp_path / "libcudart.so.12"
    match damage:
        case "empty":
            bad.touch()
        case "text":
            elfpatch.lfs_pointer(bad)
        case "cut":
            elfpatch.cut(good, bad, 4000)
        case "foreign":
            elfpatch.patch(good, bad, {elfpatch.MACHINE: elfpatch.FOREIGN_MACHINE})
        case "mute":
            soname = "-Wl,-soname,libcudart.so.12"
            elfpatch.patch(built(SOURCES / "hollow.c", "libcudart.so.12", soname), bad, {})
        case name:
            elfpatch.patch(rogues.rogue(name), bad, {})
    environ = {"LD_LIBRARY_PATH": str(tmp_path)}
    first, second = surveyed(environ, site, prefix=hidden_toolkit)
    assert (str(good), 14000, None) == (first["path"], first["version"], first["problem"])
    assert (str(bad), 12, None) == (second["path"], second["major"], second["version"])
    if words is None:
        assert second["problem"]  # it loads, and has nothing to answer with
    else:
        assert words in second["problem"]
        assert str(bad) in second["problem"]


def test_dangling_link(tmp_path, hidden_toolkit):
    """A link to nothing is not a runtime."""
    (tmp_path / "libcudart.so.12").symlink_to(tmp_path / "gone")
    (tmp_path / "libcudart.so").touch()
    (tmp_path / "libcudart_static.a").touch()
    environ = {"LD_LIBRARY_PATH": str(tmp_path)}
    assert surveyed(environ, prefix=hidden_toolkit) == []


def test_hanging_runtime(tmp_path, clean_env):
    """One that hangs uses up the time, which holds for all of them."""
    for major in (14, 15):
        elfpatch.patch(rogues.rogue("stop"), tmp_path / f"libcudart.so.{major}", {})
    environ = {**clean_env, "LD_LIBRARY_PATH": str(tmp_path)}
    found = [r for r in runtimes(environ=environ, timeout=0.5) if r.path.parent == tmp_path]
    assert [14, 15] == [runtime.major for runtime in found]
    assert ["did not finish" in runtime.problem for runtime in found] == [True, True]


def test_relative_directory(tmp_path, clean_env, monkeypatch):
    """A path is absolute in the answer, and not led through links."""
    site = Site(tmp_path / "real")
    site.fake_cudart(14)
    (tmp_path / "link").symlink_to(site.cudart_directory(14))
    monkeypatch.chdir(tmp_path)
    found = runtimes(environ={**clean_env, "LD_LIBRARY_PATH": "link"})
    assert tmp_path / "link" / "libcudart.so.14" in [runtime.path for runtime in found]


# --- the driver


def test_no_driver(clean_env, no_driver):
    """Without a driver that is what is said: the loader does not find it, and no more."""
    found = driver(environ=clean_env)
    assert (None, None, False) == (found.path, found.version, found.present)
    assert found.problem.startswith("the loader does not find libcuda.so.1")


@pytest.mark.parametrize("version", [12020, 13000, 14010])
def test_driver(clean_env, version):
    """A driver tells the highest version of CUDA that it supports; nothing initialises it."""
    directory = driver_stub(version)
    found = driver(environ={**clean_env, "LD_LIBRARY_PATH": str(directory)})
    assert (directory / "libcuda.so.1", version, None, True) == (
        found.path,
        found.version,
        found.problem,
        found.present,
    )


def test_driver_is_not_initialised(clean_env, full_stub, tmp_path):
    """CuInit is called by nobody."""
    marker = tmp_path / "marker"
    environ = {**clean_env, "LD_LIBRARY_PATH": str(full_stub), CUINIT_MARKER: str(marker)}
    assert driver(environ=environ).present
    assert not marker.exists()
    assert not [path for path in process.maps() if "libcuda" in path]


def test_toolkit_stub(clean_env):
    """What the toolkit has for linking against is not a driver."""
    directory = driver_stub(result=STUB_LIBRARY)
    found = driver(environ={**clean_env, "LD_LIBRARY_PATH": str(directory)})
    assert (directory / "libcuda.so.1", None, False) == (found.path, found.version, found.present)
    stub = f"{directory}/libcuda.so.1 is the toolkit's stub, not a driver"
    assert found.problem == f"{stub}: take its directory out of LD_LIBRARY_PATH"


def test_compat_driver(clean_env, tmp_path):
    """A forward-compatibility copy is found like any other, by the path it lies at."""
    compat = tmp_path / "compat"
    compat.mkdir()
    (compat / "libcuda.so.1").symlink_to(driver_stub(13000) / "libcuda.so.1")
    environ = {**clean_env, "LD_LIBRARY_PATH": f"{compat}:{driver_stub(12020)}"}
    found = driver(environ=environ)
    assert (compat / "libcuda.so.1", 13000) == (found.path, found.version)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("empty", "is empty (0 bytes)"),
        ("text", "is a Git LFS pointer"),
        ("mute", "cuDriverGetVersion"),
        ("segfault", "died of SIGSEGV"),
        ("exit_zero", "ended with exit status 0"),
        ("stop", "did not finish"),
        ("missing_needed", "libpyresolve_vanished.so.1"),
    ],
)
def test_driver_that_does_not_work(clean_env, tmp_path, damage, words):
    """A driver that does not answer is a problem, not an error."""
    library = tmp_path / "libcuda.so.1"
    match damage:
        case "empty":
            library.touch()
        case "text":
            elfpatch.lfs_pointer(library)
        case "mute":
            elfpatch.patch(rogues.rogue("good"), library, {})
        case name:
            elfpatch.patch(rogues.rogue(name), library, {})
    timeout = 0.3 if damage == "stop" else 30.0
    environ = {**clean_env, "LD_LIBRARY_PATH": str(tmp_path)}
    found = driver(environ=environ, timeout=timeout)
    assert (None, False) == (found.version, found.present)
    assert found.problem
    assert words in found.problem


@pytest.mark.parametrize("function", [driver, runtimes])
def test_misuse(clean_env, function):
    """What is no timeout is refused, as by check()."""
    with pytest.raises(ValueError):
        function(environ=clean_env, timeout=-1)
    with pytest.raises(pyresolve.OverrideError):
        function(environ={**clean_env, "PYRESOLVE_TIMEOUT": "never"})


@pytest.mark.parametrize("function", [driver, runtimes])
def test_broken_environment(clean_env, tmp_path, function):
    """Where no program starts, nothing answers, and that is the problem which is told."""
    (tmp_path / "libc.so.6").touch()
    site = Site(tmp_path / "site")
    directory = site.fake_cudart(14)
    environ = {**clean_env, "LD_LIBRARY_PATH": f"{tmp_path}:{directory}"}
    found = function(environ=environ)
    problems = [found.problem] if function is driver else [runtime.problem for runtime in found]
    assert problems
    for problem in problems:
        assert "no program starts in this environment" in problem


@pytest.mark.parametrize("function", [driver, runtimes])
def test_leaves_nothing(clean_env, full_stub, function):
    """Asking again and again leaves no descriptor, no child and no memory behind."""
    environ = {**clean_env, "LD_LIBRARY_PATH": str(full_stub)}
    for _ in range(20):
        function(environ=environ)
    before = process.open_fds(), process.children(), process.rss_kib()
    for _ in range(60):
        function(environ=environ)
    assert before[:2] == (process.open_fds(), process.children())
    assert process.rss_kib() - before[2] < 1024
    assert Path(full_stub).is_dir()
