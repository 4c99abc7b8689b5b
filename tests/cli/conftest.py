"""Fixtures of the command's tests."""

from __future__ import annotations

import pytest
from support.layout import TORCHES, Site


@pytest.fixture(scope="session")
def lacking(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Return a site whose torch is built for CUDA 12, where no libcudart.so.12 is."""
    site = Site(tmp_path_factory.mktemp("lacking") / "site-packages").tms()
    return site.torch(*TORCHES[12], native=False)
