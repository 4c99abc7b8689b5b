"""Where packages lie, seen without an import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from support.layout import Site

from pyresolve._disk import site as _sites


@pytest.fixture
def current(monkeypatch):
    """Return the function that says what an import path of these entries holds."""

    def look(*entries):
        monkeypatch.setattr(sys, "path", [str(entry) for entry in entries])
        return _sites.current()

    return look


def paths(site):
    """Return the directories of the import path."""
    return [entry.path for entry in site.entries]


def test_entries_are_in_the_order_of_import(current, tmp_path):
    """Directories as they stand in sys.path, each once."""
    a, b = Site(tmp_path / "a").root, Site(tmp_path / "b").root
    assert paths(current(b, a, b)) == [b, a]


def test_what_is_no_directory_is_passed_over(current, tmp_path):
    """Zip files, files and directories that are not there are usual in sys.path."""
    a = Site(tmp_path / "a").root
    (tmp_path / "python311.zip").write_bytes(b"PK")
    assert paths(current(tmp_path / "python311.zip", tmp_path / "gone", a)) == [a]


def test_directory_that_may_not_be_read_is_passed_over(current, tmp_path, monkeypatch):
    """The import machinery passes it over, too."""
    a, b = Site(tmp_path / "a").root, Site(tmp_path / "b").root
    real = os.listdir

    def listdir(path):
        if Path(path) == a:
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    assert paths(current(a, b)) == [b]


def test_empty_and_relative_entries_mean_the_working_directory(current, tmp_path, monkeypatch):
    """They come back absolute: the workers' directory may be another."""
    (tmp_path / "lib").mkdir()
    monkeypatch.chdir(tmp_path)
    assert paths(current("", "lib", ".")) == [tmp_path, tmp_path / "lib"]


def test_links_are_not_resolved(current, tmp_path):
    """`$ORIGIN` follows the path by which a file was opened."""
    real = Site(tmp_path / "real").torch(native=False)
    link = tmp_path / "link"
    link.symlink_to(real.root)
    found = current(link)
    assert paths(found) == [link]
    assert [*found.packages("torch")] == [link / "torch"]


def test_prefix_is_the_interpreters(current):
    """The prefix of a virtual environment, where there is one."""
    assert current().prefix == Path(sys.prefix)


def test_names_are_a_snapshot(current, tmp_path):
    """What is installed later is not seen: all facts are of one moment."""
    found = current(tmp_path)
    Site(tmp_path).torch(native=False)
    assert [*found.packages("torch")] == []


# --- packages


def test_every_directory_of_a_split_package(current, tmp_path):
    """R19: one directory for each wheel; the first root that has an `nvidia` is not the last."""
    roots = [tmp_path / name for name in "abc"]
    for root in roots:
        (root / "nvidia").mkdir(parents=True)
    assert [*current(*roots).packages("nvidia")] == [root / "nvidia" for root in roots]


def test_file_is_no_package(current, tmp_path):
    """A module, or a library that happens to have the name."""
    (tmp_path / "torch").write_text("")
    (tmp_path / "torch.py").write_text("")
    assert [*current(tmp_path).packages("torch")] == []


def test_link_to_a_package_is_one(current, tmp_path):
    """Bazel and uv link packages into place."""
    real = Site(tmp_path / "real").torch(native=False)
    (tmp_path / "site").mkdir()
    (tmp_path / "site/torch").symlink_to(real / "torch")
    (tmp_path / "site/nvidia").symlink_to("nowhere")
    found = current(tmp_path / "site")
    assert [*found.packages("torch")] == [tmp_path / "site/torch"]
    assert [*found.packages("nvidia")] == []


def test_dist_packages(current, tmp_path):
    """R02: Debian's name for the directory is a name like any other."""
    site = Site(tmp_path / "usr/local/lib/python3.12/dist-packages").package("torch", "2.9.1")
    assert [*current(site.root).packages("torch")] == [site / "torch"]


# --- distributions


def names(site, pattern):
    """Return names and versions of the distributions that match."""
    return [(found.name, found.version) for found in site.distributions(pattern)]


@pytest.mark.parametrize(
    "directory",
    [
        "torch_memory_saver-0.0.10.dist-info",
        "Torch_Memory_Saver-0.0.10.dist-info",
        "torch.memory.saver-0.0.10.dist-info",
    ],
)
def test_distribution_by_its_normal_name(current, tmp_path, directory):
    """Upper case, dots and underscores are one (PEP 503)."""
    (tmp_path / directory).mkdir()
    assert names(current(tmp_path), "torch_memory_saver") == [("torch_memory_saver", "0.0.10")]


def test_distributions_of_a_family(current, tmp_path):
    """The pattern is for the whole name."""
    for name in ("nvidia_cuda_runtime-13.0.96", "nvidia_cuda_runtime_cu12-12.8.90", "nvidia-1.0"):
        (tmp_path / f"{name}.dist-info").mkdir()
    found = names(current(tmp_path), r"nvidia_cuda_runtime\w*")
    assert sorted(found) == [
        ("nvidia_cuda_runtime", "13.0.96"),
        ("nvidia_cuda_runtime_cu12", "12.8.90"),
    ]


@pytest.mark.parametrize(
    "directory", ["torch.dist-info", "torch-2.9.1", "torch-2.9.1.egg-info", ".dist-info", "torch"]
)
def test_what_is_no_distribution(current, tmp_path, directory):
    """Only NAME-VERSION.dist-info names a distribution."""
    (tmp_path / directory).mkdir()
    assert names(current(tmp_path), ".*") == []


def test_first_distribution_is_the_one_imported(current, tmp_path):
    """In the order of import, with the directory it was installed to."""
    a = Site(tmp_path / "a").package("torch", "2.8.0")
    b = Site(tmp_path / "b").package("torch", "2.9.1")
    found = [*current(b.root, a.root).distributions("torch")]
    assert [(d.version, d.root) for d in found] == [("2.9.1", b.root), ("2.8.0", a.root)]


@given(st.lists(st.text("aZ1-_.", min_size=1, max_size=12).map(lambda s: s + ".dist-info")))
def test_any_directory_names_are_taken(entries):
    """No name of a directory is an error, and each yields one distribution at most."""
    entry = _sites.Entry(path=Path("/site"), names=frozenset(entries))
    found = [*_sites.Site(prefix=Path("/"), entries=(entry,)).distributions(".*")]
    assert len(found) <= len(set(entries))
    assert all(d.name == d.name.lower() and "-" not in d.name for d in found)


# --- the interpreter


def test_virtual_environment(tmp_path, clean_env):
    """The site of an interpreter is its own sys.path, its `.pth` files included."""
    site = Site.in_venv(tmp_path / "venv")
    extra = Site(tmp_path / "extra").torch(native=False)
    (site / "extra.pth").write_text(f"{extra.root}\n")
    code = """
import sys
sys.path.append(sys.argv[1])
from pyresolve._disk import site as _sites
sys.path.pop()
site = _sites.current()
print(site.prefix, *site.packages("torch"), "importlib.metadata" in sys.modules, sep="\\n")
"""
    command = [site.python, "-c", code, Path(_sites.__file__).parent.parent]
    done = subprocess.run(command, env=clean_env, capture_output=True, text=True, check=True)
    found = done.stdout.splitlines()
    assert found == [str(tmp_path / "venv"), str(extra / "torch"), "False"]
