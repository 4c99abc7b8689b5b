"""The command `pyresolve` as a user starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

COMMAND = Path(sys.executable).with_name("pyresolve")
AUDIT = "import json, pyresolve; print(json.dumps(pyresolve.audit().to_dict()))"


def pyresolve(
    *args: str | os.PathLike[str],
    env: Mapping[str, str],
    prefix: Sequence[str | os.PathLike[str]] = (),
    cwd: str | os.PathLike[str] = "/",
    timeout: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Run the command in exactly ``env`` and return what it said and its status."""
    return run([*prefix, COMMAND, *args], env=env, cwd=cwd, timeout=timeout)


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str],
    cwd: str | os.PathLike[str] = "/",
    timeout: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Run any command in exactly ``env``; a path that is not UTF-8 survives in the output."""
    return subprocess.run(
        command,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
        env=env,
        cwd=cwd,
        timeout=timeout,
    )


def environment(
    *sites: str | os.PathLike[str], libraries: Sequence[str | os.PathLike[str]] = ()
) -> dict[str, str]:
    """Return an environment of which only these packages and library directories concern us."""
    env = {name: os.environ[name] for name in ("HOME", "PATH", "TMPDIR") if name in os.environ}
    for name, paths in (("PYTHONPATH", sites), ("LD_LIBRARY_PATH", libraries)):
        if paths:
            env[name] = os.pathsep.join(map(os.fspath, paths))
    return env
