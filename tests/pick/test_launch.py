"""Choice.env(): the smallest change, and what a child that is really started with it maps."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support import process
from support.command import run
from support.compile import SOURCES, built, hollow
from support.layout import PRELOAD_STEM, Site, fake_cudart
from support.process import cold
from support.wheels import OLD_CUDART_12
from support.worker import mapped, worker_command

from pyresolve import NotLoadableError, UnrepresentablePathError, Verdict, pick


@pytest.fixture
def environ(clean_env, full_stub):
    """Return an environment with a driver, and nothing else that concerns the loader."""
    return {**clean_env, "LD_LIBRARY_PATH": str(full_stub)}


@pytest.fixture
def choose(site, monkeypatch, environ):
    """Return pick() for the scratch site on a host with a driver."""
    monkeypatch.syspath_prepend(site.root)

    def call(env=environ, **options):
        return pick(environ=env, **options)

    return call


def widen(directory):
    """Put another library beside libcudart, as CUDA 13 wheels do."""
    shutil.copy(hollow("libcublas.so.13"), directory)
    return directory


def identity(path):
    """Return what makes a file the same, whatever its path."""
    status = os.stat(path)
    return status.st_dev, status.st_ino


class Worker:
    """A child that was started with a change and has imported torch's library, if there is one."""

    def __init__(self, environ, change, torch=None):
        done = run(worker_command(*([torch] if torch else [])), env={**environ, **change})
        assert (done.returncode, done.stderr) == (0, "")
        told = json.loads(done.stdout)
        self.mapped = set(map(identity, told["mapped"]))
        self.runtimes = set(map(identity, mapped(done, "libcudart.so")))
        owners = told["owners"].values()
        self.malloc, self.free, self.memcpy = (owner and identity(owner) for owner in owners)


def shell(environ, change):
    """Start the shell that Ray and everybody else starts first; return what it complains of."""
    done = subprocess.run(
        ["/bin/sh", "-c", "exit 0"], env={**environ, **change}, capture_output=True, check=False
    )
    return done.returncode, done.stderr


def prove(choice, environ, change, *, runtime, torch=None):
    """Hold a change against the loader: the hook takes effect, and one libcudart is mapped."""
    worker = Worker(environ, change, torch)
    hook = identity(choice)
    assert (worker.malloc, worker.free) == (hook, hook)
    assert worker.runtimes == {identity(runtime)}
    assert worker.memcpy == identity(runtime)
    assert shell(environ, change) == (0, b"")
    assert choice.env({**environ, **change}) == {}


# --- what is pinned, and how


# wheel, CUDA of torch, libcudart shares its directory, what is in the way → the change:
# H hook, R torch's runtime, D its directory, P what was in LD_LIBRARY_PATH.
PINS = [
    ("0.0.9", "12.8", False, {"LD_PRELOAD": "H", "LD_LIBRARY_PATH": "D:P"}),
    ("0.0.9.post1", "12.8", False, {"LD_PRELOAD": "H", "LD_LIBRARY_PATH": "D:P"}),
    ("0.0.9.post1", "13.0", False, {"LD_PRELOAD": "H", "LD_LIBRARY_PATH": "D:P"}),
    ("0.0.10", "12.8", False, {"LD_PRELOAD": "H", "LD_LIBRARY_PATH": "D:P"}),
    ("0.0.10", "13.0", False, {"LD_PRELOAD": "H", "LD_LIBRARY_PATH": "D:P"}),
    ("0.0.9", "12.8", True, {"LD_PRELOAD": "H", "LD_LIBRARY_PATH": "D:P"}),
    ("0.0.9.post1", "13.0", True, {"LD_PRELOAD": "H", "LD_LIBRARY_PATH": "D:P"}),
    ("0.0.10", "12.8", True, {"LD_PRELOAD": "H:R"}),
    ("0.0.10", "13.0", True, {"LD_PRELOAD": "H:R"}),
]


def written(change, choice, directory, before):
    """Return a change of the table with its letters replaced."""
    runtime = directory / f"libcudart.so.{choice.cuda_major}"
    letters = {"H": str(choice), "R": str(runtime), "D": str(directory), "P": before}
    return {
        name: ":".join(letters[letter] for letter in value.split(":"))
        for name, value in change.items()
    }


@pytest.mark.parametrize(("wheel", "cuda", "wide", "expected"), PINS)
def test_pin(site, choose, environ, wheel, cuda, wide, expected):
    """The narrowest way that works, by what the directory holds and what the wheel can read."""
    site.tms(wheel).torch(cuda)
    directory = site.cudart(int(cuda[:2]))
    if wide:
        widen(directory)
    choice = choose()
    change = choice.env(environ)
    assert change == written(expected, choice, directory, environ["LD_LIBRARY_PATH"])
    assert (choice.verdict, choice.warnings) == (Verdict.OK, ())
    runtime = directory / f"libcudart.so.{choice.cuda_major}"
    assert os.path.samefile(choice.runtime.path, runtime)
    prove(choice, environ, change, runtime=runtime, torch=site / "torch/lib/libc10_cuda.so")


@pytest.mark.parametrize(("wheel", "cuda", "wide", "expected"), PINS)
def test_pin_without_a_driver(site, choose, clean_env, wheel, cuda, wide, expected):
    """The same change on a host that has no driver: there it can only not be proved."""
    site.tms(wheel).torch(cuda)
    directory = site.cudart(int(cuda[:2]))
    if wide:
        widen(directory)
    choice = choose(clean_env)
    expected = {name: value.removesuffix(":P") for name, value in expected.items()}
    assert choice.env(clean_env) == written(expected, choice, directory, "")
    assert (choice.verdict, choice.warnings) == (Verdict.UNKNOWN, ())


def test_directory_named_like_the_package_is_not_preloaded(tmp_path, monkeypatch, environ):
    """torch_memory_saver wants its name in one element of LD_PRELOAD only."""
    site = Site(tmp_path / "torch_memory_saver/lib/site-packages").tms().torch("13.0")
    monkeypatch.syspath_prepend(site.root)
    directory = widen(site.cudart(13))
    choice = pick(environ=environ)
    change = choice.env(environ)
    assert change == {
        "LD_PRELOAD": str(site.hook("_cu13")),
        "LD_LIBRARY_PATH": f"{directory}:{environ['LD_LIBRARY_PATH']}",
    }
    prove(choice, environ, change, runtime=directory / "libcudart.so.13")


def test_nothing_is_pinned_where_nothing_is_needed(site, choose, environ):
    """The loader finds torch's own by itself: only the hook is added."""
    site.tms().torch("13.0")
    directory = widen(site.cudart(13))
    environ["LD_LIBRARY_PATH"] = f"{directory}:{environ['LD_LIBRARY_PATH']}"
    choice = choose()
    change = choice.env(environ)
    assert change == {"LD_PRELOAD": str(choice)}
    prove(choice, environ, change, runtime=directory / "libcudart.so.13")


@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide"])
def test_same_file_by_another_path_is_the_same(site, tmp_path, choose, environ, wide):
    """A link to torch's directory, or a hard link to its file: compared by device and inode."""
    site.tms().torch("13.0")
    directory = site.cudart(13)
    if wide:
        widen(directory)
    (tmp_path / "link").symlink_to(directory)
    (tmp_path / "hard").mkdir()
    os.link(directory / "libcudart.so.13", tmp_path / "hard/libcudart.so.13")
    for other in ("link", "hard"):
        env = {**environ, "LD_LIBRARY_PATH": f"{tmp_path / other}:{environ['LD_LIBRARY_PATH']}"}
        choice = choose(env)
        assert choice.env(env) == {"LD_PRELOAD": str(choice)}
        prove(choice, env, choice.env(env), runtime=directory / "libcudart.so.13")


@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide"])
def test_r20_stale_runtime_of_the_same_major(site, tmp_path, choose, environ, wide):
    """R20: 12.1 on LD_LIBRARY_PATH, 12.8 in torch's tree: every process maps torch's alone."""
    site.tms().torch("12.8")
    directory = site.cudart(12)
    if wide:
        widen(directory)
    stale = Site(tmp_path / "stale").cudart(OLD_CUDART_12)
    environ["LD_LIBRARY_PATH"] = f"{stale}:{environ['LD_LIBRARY_PATH']}"
    torch = site / "torch/lib/libc10_cuda.so"
    choice = choose()

    bare = Worker(environ, {"LD_PRELOAD": str(choice)}, torch)
    assert identity(stale / "libcudart.so.12") in bare.runtimes

    change = choice.env(environ)
    prove(choice, environ, change, runtime=directory / "libcudart.so.12", torch=torch)
    assert ("LD_LIBRARY_PATH" in change) == (not wide)
    assert choice.runtime.version == 12080


def test_runtime_that_the_user_preloads_is_put_behind_torchs(site, tmp_path, choose, environ):
    """A stale libcudart in LD_PRELOAD beats every search path; torch's goes before it."""
    site.tms().torch("12.8")
    directory = site.cudart(12)
    stale = Site(tmp_path / "stale").cudart(OLD_CUDART_12) / "libcudart.so.12"
    environ["LD_PRELOAD"] = str(stale)
    choice = choose()
    change = choice.env(environ)
    runtime = directory / "libcudart.so.12"
    assert change == {"LD_PRELOAD": f"{choice}:{runtime}:{stale}"}
    assert choice.verdict is Verdict.OK
    worker = Worker(environ, change, site / "torch/lib/libc10_cuda.so")
    assert (worker.malloc, worker.memcpy) == (identity(choice), identity(runtime))
    assert choice.env({**environ, **change}) == {}


def test_runpath_torch_is_followed_by_the_environment(site, tmp_path, choose, environ):
    """A torch with a RUNPATH maps what LD_LIBRARY_PATH says, and so may the hook."""
    site.tms().torch("12.8", old_dtags=False).cudart(12)
    other = Site(tmp_path / "other").cudart(OLD_CUDART_12)
    environ["LD_LIBRARY_PATH"] = f"{other}:{environ['LD_LIBRARY_PATH']}"
    choice = choose()
    change = choice.env(environ)
    assert change == {"LD_PRELOAD": str(choice)}
    torch = site / "torch/lib/libc10_cuda.so"
    prove(choice, environ, change, runtime=other / "libcudart.so.12", torch=torch)


@pytest.mark.parametrize("place", ["nvidia/cu13/lib", "other"])
@pytest.mark.parametrize("old_dtags", [True, False], ids=["RPATH", "RUNPATH"])
def test_hook_with_a_search_path_of_its_own(site, choose, environ, place, old_dtags):
    """Upstream has merged one: nothing is pinned where it leads to torch's, else what beats it."""
    site.package("torch_memory_saver", "0.0.11").torch("13.0")
    directory = site.cudart(13)
    (site / "other").mkdir()
    shutil.copy(directory / "libcudart.so.13", site / "other")
    dtags = f"-Wl,--{'disable' if old_dtags else 'enable'}-new-dtags"
    needed = hollow("libcuda.so.1"), fake_cudart(13)
    hook = built(SOURCES / "hook.c", "hook.so", *needed, dtags, f"-Wl,-rpath,$ORIGIN/{place}")
    shutil.copy(hook, site.hook("_cu13"))
    choice = choose()
    change = choice.env(environ)
    if place != "other":
        assert change == {"LD_PRELOAD": str(choice)}
    elif old_dtags:  # beats LD_LIBRARY_PATH, not a preload
        assert change == {"LD_PRELOAD": f"{choice}:{directory / 'libcudart.so.13'}"}
    else:
        assert change["LD_LIBRARY_PATH"] == f"{directory}:{environ['LD_LIBRARY_PATH']}"
    assert choice.verdict is Verdict.OK
    prove(choice, environ, change, runtime=directory / "libcudart.so.13")


def test_runtime_out_of_reach_is_pinned_without_torch(site, environ, hidden_toolkit):
    """R17: no torch to ask, the pip tree holds the only libcudart: its directory is added."""
    site.tms()
    directory = site.cudart(13)
    code = """
        import json, os, sys
        import pyresolve
        environ = {**os.environ}
        environ.pop("PYTHONPATH")
        choice = pyresolve.pick(environ=environ)
        print(json.dumps([choice.verdict.name, choice.env(environ), choice.env(environ, pin="none")
                          if choice.verdict.name != "OK" else None]))
    """
    env = {**environ, "PYTHONPATH": str(site.root)}
    assert cold(code, env=env, prefix=hidden_toolkit) == [
        "OK",
        {
            "LD_PRELOAD": str(site.hook("_cu13")),
            "LD_LIBRARY_PATH": f"{directory}:{environ['LD_LIBRARY_PATH']}",
        },
        None,
    ]


# --- explicit pins


@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide"])
@pytest.mark.parametrize(
    ("pin", "expected"),
    [
        ("library_path", {"LD_PRELOAD": "H", "LD_LIBRARY_PATH": "D:P"}),
        ("preload", {"LD_PRELOAD": "H:R"}),
    ],
)
def test_pin_that_is_asked_for(site, choose, environ, pin, expected, wide):
    """The caller's way, also where another would be narrower."""
    site.tms().torch("13.0")
    directory = site.cudart(13)
    if wide:
        widen(directory)
    choice = choose()
    change = choice.env(environ, pin=pin)
    assert change == written(expected, choice, directory, environ["LD_LIBRARY_PATH"])
    runtime = directory / "libcudart.so.13"
    worker = Worker(environ, change, site / "torch/lib/libc10_cuda.so")
    assert (worker.malloc, worker.runtimes) == (identity(choice), {identity(runtime)})
    assert choice.env({**environ, **change}, pin=pin) == {}


def test_pin_that_is_asked_for_where_it_is_not_needed(site, choose, environ):
    """It is written down all the same: the workers may start elsewhere."""
    site.tms().torch("13.0")
    directory = site.cudart(13)
    environ["LD_LIBRARY_PATH"] = f"{environ['LD_LIBRARY_PATH']}:{directory}"
    choice = choose()
    assert choice.env(environ, pin="preload") == {
        "LD_PRELOAD": f"{choice}:{directory / 'libcudart.so.13'}"
    }
    stub = environ["LD_LIBRARY_PATH"].split(":")[0]
    assert choice.env(environ, pin="library_path") == {
        "LD_PRELOAD": str(choice),
        "LD_LIBRARY_PATH": f"{directory}:{stub}",
    }


def test_no_pin(site, choose, environ):
    """For those who know better: the hook and nothing else, and no word about the runtime."""
    site.tms().torch("12.8").cudart(12)
    stale = Site(site.root.parent / "stale").cudart(OLD_CUDART_12)
    environ["LD_LIBRARY_PATH"] = f"{stale}:{environ['LD_LIBRARY_PATH']}"
    choice = choose()
    assert choice.env(environ, pin="none") == {"LD_PRELOAD": str(choice)}


@pytest.mark.parametrize("pin", ["none", "auto", "library_path", "preload"])
def test_unverified_choice_still_has_an_environment(site, choose, environ, pin):
    """`verify="never"` looks at nothing and raises nothing, whatever is broken."""
    site.tms().torch("13.0")
    choice = choose(verify="never")
    change = choice.env(environ, pin=pin)
    assert change["LD_PRELOAD"].split(":")[0] == str(choice)


# --- what was there before


def test_r34_preloads_are_kept_behind_the_hook(site, choose, environ, full_stub):
    """R34: the user's libcuda.so.1 stays, and is mapped; other builds of the hook go."""
    site.tms().torch("13.0")
    directory = site.cudart(13)
    driver = full_stub / "libcuda.so.1"
    environ["LD_PRELOAD"] = f"{site.hook('_cu12')} {driver}:{site.hook()}"
    choice = choose()
    change = choice.env(environ)
    assert change == {
        "LD_PRELOAD": f"{choice}:{driver}",
        "LD_LIBRARY_PATH": f"{directory}:{full_stub}",
    }
    prove(choice, environ, change, runtime=directory / "libcudart.so.13")
    assert identity(driver) in Worker(environ, change).mapped


def test_r34_driver_that_is_only_preloaded(site, choose, clean_env, full_stub):
    """R34: a forward-compatibility libcuda that LD_PRELOAD alone brings is a driver."""
    site.tms().torch("13.0")
    directory = site.cudart(13)
    clean_env["LD_PRELOAD"] = str(full_stub / "libcuda.so.1")
    choice = choose(clean_env)
    assert (choice.verdict, choice.driver.present) == (Verdict.OK, True)
    prove(choice, clean_env, choice.env(clean_env), runtime=directory / "libcudart.so.13")


def test_hook_that_is_there_already_stays_where_it_works(site, choose, environ, rogue):
    """An order that works is the user's: nothing says that it may change."""
    site.tms().torch("13.0").cudart(13)
    good = rogue("good")
    environ["LD_PRELOAD"] = f"{good}:{site.hook('_cu13')}"
    choice = choose()
    assert (choice.verdict, "LD_PRELOAD" in choice.env(environ)) == (Verdict.OK, False)


def test_runtime_before_the_hook_would_bypass_it(site, choose, environ):
    """`LD_PRELOAD=libcudart:hook` takes cudaMalloc from libcudart: the order is mended."""
    site.tms().torch("13.0")
    runtime = site.cudart(13) / "libcudart.so.13"
    environ["LD_PRELOAD"] = f"{runtime}:{site.hook('_cu13')}"
    assert Worker(environ, {}).malloc == identity(runtime)
    choice = choose()
    change = choice.env(environ)
    assert change == {"LD_PRELOAD": f"{choice}:{runtime}"}
    prove(choice, environ, change, runtime=runtime)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.mkdir(), "is a directory"),
        (lambda path: None, "does not exist"),
        (lambda path: path.write_text("text"), "is a text file"),
        (lambda path: path.write_bytes(b""), "is empty"),
    ],
    ids=["directory", "missing", "text", "empty"],
)
def test_r55_preloads_that_the_loader_ignores(site, tmp_path, choose, environ, make, reason):
    """R55: they are kept where they were, for they are not ours, and reported."""
    site.tms().torch("13.0").cudart(13)
    other = tmp_path / "other.so"
    make(other)
    environ["LD_PRELOAD"] = f"{other} libjemalloc-like.so"
    choice = choose()
    assert choice.env(environ)["LD_PRELOAD"] == f"{choice}:{other}:libjemalloc-like.so"
    warning, unfound = choice.warnings
    assert unfound.startswith("LD_PRELOAD has libjemalloc-like.so, which the loader does not find")
    assert "the loader ignores a preload that was there before" in warning
    assert f"{other} {reason}" in warning
    assert choice.verdict is Verdict.OK


@pytest.mark.parametrize(("wheel", "warned"), [("0.0.9.post1", True), ("0.0.10", False)])
def test_wheel_that_takes_one_preload_only(site, choose, environ, rogue, wheel, warned):
    """0.0.9.post1 and older take the whole of LD_PRELOAD for one path, and will not find it."""
    site.tms(wheel).torch("13.0").cudart(13)
    environ["LD_PRELOAD"] = str(rogue("good"))
    choice = choose()
    assert any("install 0.0.10 or newer" in w for w in choice.warnings) == warned
    assert len(choice.warnings) == int(warned)


def test_broken_preload_of_the_user_is_told_from_a_broken_hook(site, choose, environ, rogue):
    """No program starts with it, with or without the hook."""
    site.tms().torch("13.0").cudart(13)
    environ["LD_PRELOAD"] = str(rogue("missing_needed"))
    with pytest.raises(NotLoadableError, match="no program starts in this environment") as caught:
        choose()
    assert "libpyresolve_vanished.so.1" in str(caught.value)


@pytest.mark.parametrize("before", ["/a:/b", "/a;/b", "/b:/a:/b"])
def test_r28_library_path_is_extended(site, choose, environ, full_stub, before):
    """R28: what was there stays, in its order."""
    site.tms().torch("13.0")
    directory = site.cudart(13)
    environ["LD_LIBRARY_PATH"] = f"{before}:{full_stub}"
    choice = choose()
    after = choice.env(environ)["LD_LIBRARY_PATH"].split(":")
    kept = list(dict.fromkeys(before.replace(";", ":").split(":")))
    assert after == [str(directory), *kept, str(full_stub)]
    assert choice.verdict is Verdict.OK


@pytest.mark.parametrize("before", ["{}:", ":{}", "/a::{}"])
def test_r32_empty_element_is_reported_and_kept(site, choose, environ, before):
    """R32: the user's own stays where it was; pyresolve adds none."""
    site.tms().torch("13.0")
    directory = site.cudart(13)
    environ["LD_LIBRARY_PATH"] = before.format(environ["LD_LIBRARY_PATH"])
    choice = choose()
    assert choice.env(environ)["LD_LIBRARY_PATH"] == f"{directory}:{environ['LD_LIBRARY_PATH']}"
    [warning] = choice.warnings
    assert "LD_LIBRARY_PATH has an empty element" in warning


@pytest.mark.parametrize("before", [None, ""])
def test_r32_no_empty_element_is_made(site, choose, clean_env, before):
    """R32: an unset or empty variable has no elements."""
    site.tms().torch("13.0")
    directory = site.cudart(13)
    if before is not None:
        clean_env |= {"LD_LIBRARY_PATH": before, "LD_PRELOAD": before}
    choice = choose(clean_env)
    assert choice.env(clean_env) == {"LD_PRELOAD": str(choice), "LD_LIBRARY_PATH": str(directory)}
    assert choice.warnings == ()


def test_r31_directory_of_other_libraries_is_not_added(site, tmp_path, choose, environ):
    """R31: a conda prefix full of libraries; the one file is preloaded, and the shell starts."""
    lib = tmp_path / "conda/lib"
    lib.mkdir(parents=True)
    (tmp_path / "conda/conda-meta").mkdir()
    for library in (fake_cudart(14), hollow("libc.so.6"), hollow("libtinfo.so.6")):
        shutil.copy(library, lib)
    site.package("torch_memory_saver", "0.0.11").torch("14.0", rpath=False).fake_hook(14)
    environ["CONDA_PREFIX"] = str(tmp_path / "conda")
    choice = choose()
    change = choice.env(environ)
    assert change == {"LD_PRELOAD": f"{choice}:{lib / 'libcudart.so.14'}"}
    prove(choice, environ, change, runtime=lib / "libcudart.so.14")


# --- another environment than pick()'s


def test_other_environment_is_rehearsed_anew(site, tmp_path, choose, environ, clean_env):
    """The change is that of the environment it is asked for, not of the one that was picked in."""
    site.tms().torch("13.0")
    directory = site.cudart(13)
    choice = choose(clean_env)
    assert choice.env(environ)["LD_LIBRARY_PATH"] == f"{directory}:{environ['LD_LIBRARY_PATH']}"
    other = Path(shutil.copytree(environ["LD_LIBRARY_PATH"], tmp_path / "driver"))
    moved = {**clean_env, "LD_LIBRARY_PATH": f"{other}:{directory}"}
    assert choice.env(moved) == {"LD_PRELOAD": str(choice)}
    prove(choice, moved, choice.env(moved), runtime=directory / "libcudart.so.13")


def test_other_environment_in_which_nothing_is_needed(site, choose, environ, clean_env):
    """Nothing is pinned there, although something was where pick() looked."""
    site.tms().torch("13.0")
    directory = widen(site.cudart(13))
    choice = choose(clean_env)
    other = {**environ, "LD_LIBRARY_PATH": f"{directory}:{environ['LD_LIBRARY_PATH']}"}
    assert choice.env(other) == {"LD_PRELOAD": str(choice)}


def test_other_environment_in_which_something_is_needed(site, tmp_path, choose, environ):
    """A stale runtime that was not there when pick() looked."""
    site.tms().torch("12.8")
    directory = site.cudart(12)
    stale = Site(tmp_path / "stale").cudart(OLD_CUDART_12)
    before = {**environ, "LD_LIBRARY_PATH": f"{directory}:{environ['LD_LIBRARY_PATH']}"}
    choice = choose(before)
    assert choice.env(before) == {"LD_PRELOAD": str(choice)}
    after = {**environ, "LD_LIBRARY_PATH": f"{stale}:{environ['LD_LIBRARY_PATH']}"}
    change = choice.env(after)
    torch = site / "torch/lib/libc10_cuda.so"
    prove(choice, after, change, runtime=directory / "libcudart.so.12", torch=torch)


def test_other_environment_that_breaks_the_hook(site, choose, environ, clean_env, rogue):
    """With a driver there, what does not work there is an error as in pick()."""
    site.tms().torch("13.0").cudart(13)
    broken = {**environ, "LD_PRELOAD": str(rogue("missing_needed"))}
    with pytest.raises(NotLoadableError):
        choose(environ).env(broken)
    with pytest.raises(NotLoadableError):
        choose(clean_env).env(broken)
    assert "LD_PRELOAD" in choose(clean_env, verify="never").env(broken)


def test_environ_is_not_written(site, choose, environ, monkeypatch):
    """Neither os.environ nor the mapping that was given."""
    site.tms().torch("13.0").cudart(13)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    before, given = dict(os.environ), dict(environ)
    choice = choose(verify="never")
    for pin in ("auto", "library_path", "preload", "none"):
        choice.env(pin=pin)
        choice.env(environ, pin=pin)
    assert (dict(os.environ), environ) == (before, given)


def test_env_leaves_nothing_behind(site, choose, environ):
    """No child, no descriptor, no file."""
    site.tms().torch("13.0").cudart(13)
    choice = choose(verify="never")
    fds, files = process.open_fds(), sorted(site.root.rglob("*"))
    for pin in ("auto", "library_path", "preload", "none") * 5:
        choice.env({**environ, "ANOTHER": "one"}, pin=pin)
    assert process.open_fds() == fds
    assert process.children() == set()
    assert sorted(site.root.rglob("*")) == files


# --- paths that the variables cannot hold


@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide"])
@pytest.mark.parametrize("wheel", ["0.0.9.post1", "0.0.10"])
@pytest.mark.parametrize("name", ["a b", "venv (copy)", "é", "quo'te", "$HOME"])
def test_r35_directory_that_can_be_written_down(tmp_path, monkeypatch, environ, name, wheel, wide):
    """R35: a space is gone round: never a child in which the hook is silently absent."""
    site = Site(tmp_path / name / "site-packages").tms(wheel).torch("13.0")
    monkeypatch.syspath_prepend(site.root)
    directory = site.cudart(13)
    if wide:
        widen(directory)
    choice = pick(environ=environ)
    change = choice.env(environ)
    assert (choice.path, choice.verdict) == (site.hook("_cu13"), Verdict.OK)
    torch = site / "torch/lib/libc10_cuda.so"
    prove(choice, environ, change, runtime=directory / "libcudart.so.13", torch=torch)


@pytest.mark.parametrize("name", ["a:b", "$ORIGIN", "a b;c", "a b:c"])
def test_r35_directory_that_cannot_be_written_down(tmp_path, monkeypatch, environ, name):
    """R35: a colon is refused, by pick() and by env(), never escaped."""
    site = Site(tmp_path / name / "site-packages").tms().torch("13.0")
    monkeypatch.syspath_prepend(site.root)
    site.cudart(13)
    with pytest.raises(UnrepresentablePathError) as caught:
        pick(environ=environ)
    assert caught.value.path == str(site.hook("_cu13"))
    with pytest.raises(UnrepresentablePathError):
        pick(environ=environ, verify="never").env(environ)


@pytest.mark.parametrize("name", ["a:b", "a;b"])
@pytest.mark.parametrize("pin", ["auto", "library_path", "preload", "none"])
def test_runtime_that_cannot_be_written_down(tmp_path, monkeypatch, environ, name, pin):
    """The hook can be preloaded, torch's libcudart cannot be put on a path: another way or none."""
    hooks, rest = Site(tmp_path / "hook").tms(), Site(tmp_path / name).torch("13.0")
    for site in (hooks, rest):
        monkeypatch.syspath_prepend(site.root)
    runtime = rest.cudart(13) / "libcudart.so.13"
    fits = name == "a;b" and pin in ("auto", "preload")
    choice = pick(environ=environ, verify="never")
    if fits:
        change = choice.env(environ, pin=pin)
        assert change == {"LD_PRELOAD": f"{choice}:{runtime}"}
        prove(choice, environ, change, runtime=runtime)
    elif pin == "none":
        assert choice.env(environ, pin=pin) == {"LD_PRELOAD": str(choice)}
    else:
        with pytest.raises(UnrepresentablePathError) as caught:
            choice.env(environ, pin=pin)
        assert str(rest.root) in caught.value.path


def test_hook_below_a_colon_by_another_path(tmp_path, monkeypatch, environ):
    """A link without the colon is a way out, for links are not resolved."""
    real = Site(tmp_path / "a:b").tms().torch("13.0")
    real.cudart(13)
    link = tmp_path / "link"
    link.symlink_to(real.root)
    monkeypatch.syspath_prepend(link)
    choice = pick(environ=environ)
    assert choice.path == link / f"{PRELOAD_STEM}_cu13.abi3.so"
    change = choice.env(environ)
    assert change["LD_LIBRARY_PATH"].split(":")[0] == str(link / "nvidia/cu13/lib")
    prove(choice, environ, change, runtime=link / "nvidia/cu13/lib/libcudart.so.13")
