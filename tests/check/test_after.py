"""check(after=…): a library that counts on others which its program has opened before."""

from __future__ import annotations

import subprocess

import pytest
from support.command import COMMAND
from support.compile import cc_text
from support.layout import Site
from support.probe_program import PROGRAM

from pyresolve import Verdict, check
from pyresolve._model import Status

USES = "int c10_error(int);\nint use(void) { return c10_error(1); }"


@pytest.fixture
def torch(tmp_path):
    """Return torch/lib of a site, with libc10.so and libc10_cuda.so."""
    site = Site(tmp_path / "site-packages").torch("12.8")
    site.fake_cudart(12)
    return site / "torch/lib"


@pytest.fixture
def extension(torch, tmp_path):
    """Return a library like a torch extension: it needs libc10.so, and no path leads there."""
    return cc_text(USES, tmp_path / "extension.so", torch / "libc10.so")


def test_after_what_it_needs(torch, extension, clean_env):
    """Alone it fails as it would; after libc10.so it loads."""
    assert check(extension, environ=clean_env).status is Status.MISSING_DEPENDENCY
    for after in ([torch / "libc10.so"], [torch / "libc10.so", torch / "libc10_cuda.so"]):
        report = check(extension, after=after, environ=clean_env)
        assert (Verdict.OK, Status.LOADABLE) == (report.verdict, report.status)
        assert after[0] in report.loaded


def test_gap_after_all(torch, tmp_path, clean_env):
    """What even those do not define is named."""
    text = f"{USES}\nint nowhere(void);\nint gap(void) {{ return nowhere(); }}"
    library = cc_text(text, tmp_path / "gap.so", torch / "libc10.so")
    report = check(library, after=[torch / "libc10.so"], environ=clean_env)
    assert (Status.UNDEFINED_SYMBOL, ("nowhere",)) == (report.status, report.undefined)


def test_symbols_of_an_import_are_local(torch, tmp_path, clean_env):
    """An import opens locally: what the library does not link is not defined for it."""
    library = cc_text(USES, tmp_path / "unlinked.so")
    report = check(library, after=[torch / "libc10.so"], environ=clean_env)
    assert (Status.UNDEFINED_SYMBOL, ("c10_error",)) == (report.status, report.undefined)


def test_order_counts(torch, extension, tmp_path, clean_env):
    """They are opened in the order given, and each must load by then."""
    second = cc_text("int use(void);\nint f(void) { return use(); }", tmp_path / "b.so", extension)
    c10 = torch / "libc10.so"
    assert check(second, after=[c10, extension], environ=clean_env).verdict is Verdict.OK
    report = check(second, after=[extension, c10], environ=clean_env)
    assert Status.MISSING_DEPENDENCY is report.status
    assert f"{extension}, which is opened before {second}, fails: " in report.message


@pytest.mark.parametrize("name", ["segfault", "exit_three", "loop"])
def test_hostile_library_before(rogue, name, clean_env):
    """One that ends or stops the process is blamed, and not the target."""
    bad, good = rogue(name), rogue("good")
    report = check(good, after=[bad], environ=clean_env, timeout=1)
    assert report.verdict is Verdict.FAIL
    assert (good, True) == (report.path, str(bad) in report.message or name == "loop")


def test_missing_library_before(rogue, tmp_path, clean_env):
    """One that is not there is a failure, never passed over."""
    report = check(rogue("good"), after=[tmp_path / "nowhere.so"], environ=clean_env)
    assert report.verdict is Verdict.FAIL
    assert "nowhere.so" in report.message


def test_only_with_dlopen(rogue):
    """A preload is loaded before everything."""
    with pytest.raises(ValueError, match="after="):
        check(rogue("good"), mode="preload", after=[rogue("good")])


@pytest.mark.parametrize("program", [COMMAND, PROGRAM])
def test_both_programs(torch, extension, clean_env, program):
    """--after may be repeated, and takes relative paths."""
    command = [program, "check", "--after", "./libc10.so", "--after", torch / "libc10_cuda.so"]
    done = subprocess.run(
        [*command, extension], env=clean_env, cwd=torch, capture_output=True, text=True, check=False
    )
    assert (0, "OK") == (done.returncode, done.stdout[:2])
    done = subprocess.run(
        [program, "check", "--after"], env=clean_env, capture_output=True, text=True, check=False
    )
    assert 2 == done.returncode


def test_what_is_there_and_what_is_not(tmp_path, clean_env):
    """Two libraries are missing, one of them lies beside: each gets its own advice."""
    soname = "-Wl,-soname,lib{}.so.1"
    near = cc_text("", tmp_path / "libnear.so.1", soname.format("near"))
    (tmp_path / "away").mkdir()
    far = cc_text("", tmp_path / "away/libfar.so.1", soname.format("far"))
    library = cc_text("", tmp_path / "both.so", "-Wl,--no-as-needed", near, far)
    far.unlink()
    report = check(library, environ=clean_env)
    assert report.message == (
        f"{library} needs libnear.so.1 and libfar.so.1, which the loader does not find; {near} lies"
        f" out of its reach: put {tmp_path} into LD_LIBRARY_PATH; libfar.so.1: install what brings"
        " it, or put its directory into LD_LIBRARY_PATH"
    )
    assert report.remedy is None
