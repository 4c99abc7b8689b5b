"""The real wheels, pinned; fetched by pip once, then served from a cache without a network."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

from support.compile import workshop
from support.tools import unavailable

TMS = "torch_memory_saver"
TMS_VERSIONS = ("0.0.9", "0.0.9.post1", "0.0.10")
CUDART_VERSIONS = {12: "12.8.90", 13: "13.0.96"}
OLD_CUDART_12 = "12.1.105"


def cache_directory() -> Path:
    """Return where wheels are kept between runs."""
    if own := os.environ.get("PYRESOLVE_TEST_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pyresolve-tests"


@contextlib.contextmanager
def filling_the_cache() -> Iterator[Path]:
    """Yield the cache to one process at a time: what one has fetched is there for the others."""
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    with Path(cache, "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield cache


def _cached(name: str, version: str, machine: str) -> Path | None:
    pattern = f"{machine}/{name.replace('-', '_')}-{version}-*.whl"
    return next(iter(sorted(cache_directory().glob(pattern.lstrip("/")))), None)


@functools.cache
def _download(name: str, version: str, machine: str) -> str:
    """Put a wheel into the cache; return pip's complaint where that fails, tried once per run."""
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--retries=1"]
    if machine:
        options += [f"--platform=manylinux{tag}_{machine}" for tag in ("2014", "_2_17")]
    with filling_the_cache() as cache, tempfile.TemporaryDirectory(dir=cache) as scratch:
        if _cached(name, version, machine):
            return ""
        pip = [sys.executable, "-m", "pip", "download", *options, "-d", scratch]
        done = subprocess.run(
            [*pip, f"{name}=={version}"], capture_output=True, text=True, check=False
        )
        # Who only looks for a wheel does not wait, and must not see half of one.
        (cache / machine).mkdir(exist_ok=True)
        for file in Path(scratch).glob("*.whl"):
            file.rename(cache / machine / file.name)
    return (done.stderr.splitlines() or ["pip failed"])[-1] if done.returncode else ""


def wheel(name: str, version: str, machine: str = "") -> Path:
    """Return the wheel of exactly this version; without it the test does not run.

    `machine` is the architecture, if it is not this one.
    """
    if not _cached(name, version, machine) and (complaint := _download(name, version, machine)):
        unavailable(f"no wheel of {name}=={version} in {cache_directory()}: {complaint}")
    path = _cached(name, version, machine)
    assert path, f"pip delivered no {name}=={version}"
    return path


def cudart_wheel(version: str, machine: str = "") -> Path:
    """Return NVIDIA's wheel of the CUDA runtime; CUDA 12 is in the name, later majors are not."""
    suffix = "-cu12" if version.startswith("12.") else ""
    return wheel(f"nvidia-cuda-runtime{suffix}", version, machine)


def unpack(whl: Path, target: Path) -> Path:
    """Extract a wheel into a site-packages directory, without what only a compiler needs."""
    shutil.copytree(_unpacked(whl), target, copy_function=shutil.copy, dirs_exist_ok=True)
    return target


@functools.cache
def _unpacked(whl: Path) -> Path:
    """Extract a wheel once per run: to copy the files takes a tenth of the time."""
    directory = Path(tempfile.mkdtemp(dir=workshop())) / "site-packages"
    with ZipFile(whl) as archive:
        names = [n for n in archive.namelist() if "/include/" not in n and not n.endswith(".a")]
        archive.extractall(directory, names)
    return directory
