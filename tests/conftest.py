"""Fixtures over `support`, and the rule that no test leaves a child or a descriptor behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import driver, hidden, process, rogues
from support.layout import Site

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
