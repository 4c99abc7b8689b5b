"""What an installed torch was built for, read from its files."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from support import elfpatch
from support.layout import Site

from pyresolve._disk import site as _sites, torch as _torch
from pyresolve._model import Torch


def find(*roots):
    """Return the torch in these directories of an import path."""
    entries = tuple(
        _sites.Entry(path=Path(root), names=frozenset(os.listdir(root))) for root in roots
    )
    return _torch.find(_sites.Site(prefix=Path(sys.prefix), entries=entries))


def with_version(site, text):
    """Install a torch without libraries whose version.py is this text; return what is found."""
    site.torch(native=False)
    data = text if isinstance(text, bytes) else text.encode()
    (site / "torch/version.py").write_bytes(data)
    return find(site)


# --- the version


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ("12", 12),
        ("13", 13),
        ("12.8", 12),
        ("12.8.1", 12),
        ("13.0", 13),
        ("14.2", 14),
        ("27.0", 27),
        (" 12.8\n", 12),
        ("", None),
        ("12.", None),
        (".8", None),
        ("v12.8", None),
        ("cu128", None),
        ("12.8rc1", None),
        ("12,8", None),
        ("-12", None),
        ("1 2", None),
        ("None", None),
        ("1234", None),
        ("١٢", None),
    ],
)
def test_major_of_a_version(text, major):
    """A dotted version names its major, whatever the number; anything else names none."""
    assert _torch.parse_major(text) == major


@given(st.integers(1, 999), st.lists(st.integers(0, 10**6), max_size=4))
def test_major_of_any_version(major, rest):
    """However many parts follow, the first is the major."""
    assert _torch.parse_major(".".join(map(str, [major, *rest]))) == major


@given(st.text())
def test_any_text_has_a_major_or_none(text):
    """No text is too odd, and what has a major begins with it."""
    major = _torch.parse_major(text)
    assert major is None or text.strip().split(".")[0].lstrip("0") == (str(major) if major else "")


# --- version.py


@pytest.mark.parametrize(
    ("text", "version", "cuda", "major"),
    [
        ("__version__ = '2.9.1+cu130'\ncuda = '13.0'", "2.9.1+cu130", "13.0", 13),
        ("__version__ = '2.9.1'\ncuda: Optional[str] = '12.8'", "2.9.1", "12.8", 12),
        ("cuda = '12.8.1'", None, "12.8.1", 12),
        ("cuda = '13'", None, "13", 13),
        ("cuda = '13.0'  # what it was built for\r\n", None, "13.0", 13),
        ("cuda = None\ncuda = '14.0'", None, "14.0", 14),
        ("# -*- coding: latin-1 -*-\nname = '\xe9'\ncuda = '12.4'".encode("latin-1"),
         None, "12.4", 12),
        ("__version__ = '2.9.0a0+50eac811a6.nv25.09'\ncuda = '13.0'",
         "2.9.0a0+50eac811a6.nv25.09", "13.0", 13),
        ("__version__ = '2.9.1+cpu'\ncuda = None", "2.9.1+cpu", None, None),
        ("cuda: Optional[str] = None\nhip = None", None, None, None),
    ],
)  # fmt: skip
def test_r06_version_that_can_be_read(site, text, version, cuda, major):
    """R06, R16: what the file says, not what the local version label hints at."""
    found = with_version(site, text)
    assert (found.version, found.cuda, found.major) == (version, cuda, major)
    assert (found.accelerator, found.problem) == (None, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "does not say what CUDA torch was built for"),
        ("__version__ = '2.9.1'", "does not say what CUDA torch was built for"),
        ("cuda: Optional[str]", "does not say what CUDA torch was built for"),
        ("cuda = detect()", "says cuda = detect(), which is no version"),
        ("if True:\n    cuda = '13.0'", "does not say what CUDA torch was built for"),
        ("from torch.other import cuda", "does not say what CUDA torch was built for"),
        ("cuda = 'twelve'", "says cuda = 'twelve', which is no version"),
        ("cuda = ''", "says cuda = '', which is no version"),
        ("cuda = 'cu128'", "says cuda = 'cu128', which is no version"),
        ("cuda = 12.8", "says cuda = 12.8, which is no version"),
        ("cuda = 13", "says cuda = 13, which is no version"),
        ("cuda = b'13.0'", "says cuda = b'13.0', which is no version"),
        ("cuda = '13.0", "says cuda = '13.0, which is no version"),
        ("cuda = \0'13.0'", "which is no version"),
        ("cuda = '\x1b[31m'", "which is no version"),
        (b"cuda = '\xff\xfe'", "which is no version"),
        (b"\x7fELF\x02\x01\x01" + bytes(57), "does not say what CUDA torch was built for"),
        ("<html>not found</html>", "does not say what CUDA torch was built for"),
        ("cuda = " + "(" * 5000, "which is no version"),
        ("cuda = " + "-" * 200_000 + "1", "which is no version"),
        ("cuda = " + "9" * 10_000, "which is no version"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_r06_version_that_cannot_be_read(site, text, problem):
    """R06: an odd value is a reason on record, neither an error nor taken for a CPU build."""
    found = with_version(site, text)
    assert (found.major, found.accelerator) == (None, None)
    assert found.problem is not None
    assert problem in found.problem
    assert found.problem.startswith(f"{site / 'torch/version.py'} ")
    assert found.problem.isprintable()
    assert len(found.problem) < 500


def test_r06_version_that_is_a_git_lfs_pointer(site):
    """R06: a checkout without Git LFS is named, with the remedy."""
    site.torch(native=False)
    elfpatch.lfs_pointer(site / "torch/version.py")
    assert find(site).problem == (
        f"{site / 'torch/version.py'} is a Git LFS pointer, not the file: run git lfs pull"
    )


def test_r06_version_that_is_missing(site):
    """R06: a torch without version.py is a torch whose CUDA is not known."""
    site.torch(native=False).remove("torch/version.py")
    found = find(site)
    assert found.problem == (
        f"{site / 'torch/version.py'} cannot be read (No such file or directory)"
    )


def test_version_that_is_a_directory(site):
    """What cannot be read is a reason on record."""
    site.torch(native=False).remove("torch/version.py")
    (site / "torch/version.py").mkdir()
    assert find(site).problem == f"{site / 'torch/version.py'} is no file"


def test_odd_escape_in_version_warns_nobody(site):
    """The compiler's remarks on somebody else's file are not the caller's to read."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = with_version(site, "pattern = '\\d'\ncuda = '13.0'")
    assert (found.major, [str(item.message) for item in caught]) == (13, [])


@pytest.fixture(scope="module")
def torch_of_any_version(tmp_path_factory):
    """Return a torch to give a version.py."""
    return Site(tmp_path_factory.mktemp("torch")).torch(native=False)


LINES = st.sampled_from(
    [
        "cuda = '13.0'",
        "cuda = None",
        "cuda: Optional[str] = '12.8'",
        "__version__ = 2",
        "hip = '6.2'",
        "xpu = ''",
        "cuda, hip = '1', '2'",
        "cuda.x = '1'",
        "cuda += '1'",
        "def cuda(): pass",
        "import os",
        "\\",
        "'''",
        "(",
        "\t x",
        "cuda = f'{1}'",
        "cuda = '\\ud800'",
        "cuda = ...",
        "cuda = True",
        "\x0c",
        "# coding: utf-16",
        "# coding: rot13",
        "# coding: nonesuch",
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@example(text=b"# coding: punycode\ncuda = 'x'")
@example(text=b"\xef\xbb\xbf# coding: latin-1\n")
@given(
    text=st.binary()
    | st.text().map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.lists(LINES).map(lambda lines: "\n".join(lines).encode("utf-8", "surrogatepass"))
)
def test_no_version_file_is_an_error(torch_of_any_version, text):
    """Whatever stands in version.py, torch is found, and a version is read or a reason given."""
    (torch_of_any_version / "torch/version.py").write_bytes(text)
    found = find(torch_of_any_version)
    assert isinstance(found, Torch)
    assert found.root == torch_of_any_version.root
    assert (found.major is None) or (found.problem is None)


# --- other accelerators


@pytest.mark.parametrize(
    ("arguments", "plugin", "accelerator"),
    [
        ({"hip": "6.2.41133"}, None, "ROCm 6.2.41133"),
        ({"xpu": "20250101"}, None, "Intel XPU 20250101"),
        ({}, "torch_npu", "Ascend NPU (torch_npu)"),
        ({}, "torch_musa", "Moore Threads MUSA (torch_musa)"),
        ({}, None, None),
    ],
)
def test_r05_accelerator(site, arguments, plugin, accelerator):
    """R05: a torch without CUDA says, or its plugin says, what it was built for instead."""
    site.torch(None, "2.9.1", **arguments)
    if plugin:
        site.package(plugin, "2.9.1")
    assert find(site).accelerator == accelerator


def test_plugin_beside_a_cuda_torch(site):
    """A torch for CUDA stays one, whatever plugin was installed beside it."""
    found = find(site.torch("13.0").package("torch_npu", "2.9.1"))
    assert (found.accelerator, found.major) == (None, 13)


def test_names_of_a_cpu_build_may_be_missing(site):
    """R06: older builds know neither hip nor xpu."""
    found = with_version(site, "__version__ = '1.9.0'\ncuda = None")
    assert (found.accelerator, found.problem, found.cuda) == (None, None, None)


# --- the library


@pytest.mark.parametrize(("cuda", "major"), [("12.8", 12), ("13.0", 13), ("14.0", 14)])
def test_library_names_its_runtime(site, cuda, major):
    """The CUDA library and the major that it NEEDs, by whatever number."""
    found = find(site.torch(cuda, "2.9.1"))
    assert (found.library, found.library_major) == (site / "torch/lib/libc10_cuda.so", major)


def test_library_speaks_where_the_metadata_does_not(site):
    """Two witnesses: the one does not depend on the other."""
    site.torch("13.0")
    (site / "torch/version.py").write_text("(")
    found = find(site)
    assert (found.major, found.library_major) == (None, 13)


def test_cpu_build_has_no_cuda_library(site):
    """No libc10_cuda.so in a CPU build."""
    found = find(site.torch(None, "2.9.1+cpu"))
    assert (found.library, found.library_major, found.cuda) == (None, None, None)


def test_broken_library_names_no_runtime(site):
    """A library cut to nothing is there and says nothing."""
    library = site.torch() / "torch/lib/libc10_cuda.so"
    elfpatch.cut(library, library, 100)
    found = find(site)
    assert (found.library, found.library_major, found.major) == (library, None, 13)


# --- which torch


def test_no_torch(site):
    """None where there is none."""
    assert find(site) is None


def test_first_torch_of_the_import_path(tmp_path):
    """The one that `import torch` would mean."""
    first = Site(tmp_path / "a").torch("12.8", "2.9.1+cu128")
    second = Site(tmp_path / "b").torch("13.0", "2.9.1+cu130")
    assert (find(first, second).root, find(second, first).root) == (first.root, second.root)


def test_left_over_directory_is_no_torch(tmp_path):
    """What an uninstall left behind, caches for instance, is passed over as the import does it."""
    (tmp_path / "a/torch/__pycache__").mkdir(parents=True)
    second = Site(tmp_path / "b").torch()
    assert find(tmp_path / "a", second).root == second.root
    assert find(tmp_path / "a") is None
