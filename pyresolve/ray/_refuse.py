"""Give a reason to Ray, if the process that it started as a worker cannot be one.

A worker that ends before it has registered has its caller wait, without a word. So one is started
without the hook, only to raise in its setup hook: that ends the actor with the reason.
"""

from __future__ import annotations

import os

from .._errors import PyresolveError

HOOK = "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"  # ray._private.ray_constants
REASON = "PYRESOLVE_REFUSAL"


def environment(reason: str) -> dict[str, str]:
    """Return the variables that have a Ray worker end with this reason."""
    return {HOOK: f"{__name__}.refuse", REASON: reason}


def refuse() -> None:
    """Raise the reason for which this worker must not run."""
    raise PyresolveError(os.environ[REASON])
