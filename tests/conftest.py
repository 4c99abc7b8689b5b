"""Fixtures over `support`, and the rule that no test leaves a child or a descriptor behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support import driver, hidden, process, rogues
from support.layout import Site
from support.probe_program import PROGRAM
from support.tools import unavailable

import pyresolve
from pyresolve import _native
from pyresolve._disk import elf as _elf

# How long an example takes depends on what else runs on the machine.
settings.register_profile("any load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any load")

_KEPT = ("HOME", "LANG", "PATH", "TMPDIR")


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fail a test after which there are other children or open descriptors than before."""
    children, fds = process.children(), process.open_fds()
    yield
    process.poll(lambda: (children, fds) == (process.children(), process.open_fds()), timeout=2.0)
    assert children == process.children()
    assert fds == process.open_fds()


@pytest.fixture
def clean_env() -> dict[str, str]:
    """Return an environment of which nothing concerns the loader, CUDA or pyresolve."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Return an empty scratch site-packages."""
    return Site(tmp_path / "site-packages")


@pytest.fixture(scope="session")
def full_stub() -> Path:
    """Return a directory with a libcuda.so.1 that satisfies every hook."""
    return driver.full_stub()


@pytest.fixture(scope="session")
def rogue() -> Callable[[str], Path]:
    """Return the function that builds a rogue by name."""
    return rogues.rogue


@pytest.fixture(scope="session")
def hidden_toolkit() -> list[str]:
    """Return what to put before a command that must not find a system libcudart."""
    return hidden.hidden_toolkit()


@pytest.fixture(scope="session")
def no_driver() -> None:
    """Refuse to run where there is a driver: a test that is about its absence."""
    if pyresolve.driver(environ={}).path:
        unavailable("this machine has an NVIDIA driver")


@pytest.fixture(scope="session")
def not_sanitized() -> None:
    """Leave out what the sanitizers do not bear: no /proc, an environment that breaks them."""
    if any("san.so" in name for name in _elf.read(_native.__file__).needed):
        pytest.skip("not under the sanitizers")


@pytest.fixture(scope="session")
def static(not_sanitized: None) -> None:
    """Refuse to run where what breaks every dynamic program breaks this one as well."""
    if _elf.read(PROGRAM).interpreter is not None:
        unavailable("pyresolve-probe is dynamic: it was built without libc.a")
