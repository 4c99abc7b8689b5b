"""The program `pyresolve-probe` as a user starts it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support import AMPLE
from support.command import run

PROGRAM = os.environ.get("PYRESOLVE_TEST_PROBE") or Path(sys.executable).with_name(
    "pyresolve-probe"
)
EXIT = {"OK": 0, "FAIL": 1, "UNKNOWN": 3}


def probe(
    *libraries: str | os.PathLike[str],
    env: Mapping[str, str],
    mode: str = "dlopen",
    timeout: float = AMPLE,
    prefix: Sequence[str | os.PathLike[str]] = (),
    **options: Any,
) -> tuple[int, str, str]:
    """Run the program in exactly `env`; return its exit status and what it wrote."""
    command = [PROGRAM, "check", "--mode", mode, "--timeout", f"{timeout:g}", "--", *libraries]
    done = run([*prefix, *command], env=env, **options)
    return done.returncode, done.stdout, done.stderr


def answer(line: str) -> tuple[int, str, str]:
    """Return what `probe` returns for a line: its first word decides the exit status."""
    return EXIT[line.split()[0]], f"{line}\n", ""
