"""Start a Ray worker with the hook: what `py_executable` means here, and the change that it needs.

A `py_executable` is shell text: Ray has a bash run `exec <text> default_worker.py …`. Nothing of it
is interpreted here except for the position of its interpreter; what it starts is found out by
starting it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _overrides
from .._errors import InterpreterError, PyresolveError
from .._model import Verdict
from .._pick.pick import pick
from .._process import helper

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ._options import Options

_WORKER = os.fspath(Path(__file__).with_name("_worker.py"))

_WORD = re.compile(r"""(?:\\.|"(?:\\.|[^"\\])*"|'[^']*'|[^\s\\"'])+""", re.DOTALL)
_PYTHON = re.compile(r"(?:.*/)?python[0-9.]*", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What must change for the interpreter that was asked for, and what a person should know."""

    change: dict[str, str]
    warnings: tuple[str, ...]


def prepare(
    command: str, options: Options, *, prefix: Sequence[str] = (), environ: Mapping[str, str]
) -> Start:
    """Pick, pin and rehearse for the interpreter that `command` starts in `environ`.

    `prefix` is shell text that runs before it in the same bash. Raises PyresolveError, and
    ValueError, if no worker would start with the hook.
    """
    python, variables = command, dict(environ)
    if prefix or command != sys.executable:  # which is what Ray starts by default
        deadline = helper.Deadline(_overrides.timeout(environ, options.timeout))
        python, variables = _ask(command, prefix=prefix, environ=environ, deadline=deadline)
    choice = pick(
        options.stem,
        package=options.package,
        python=python,
        environ=variables,
        cuda=options.cuda,
        timeout=options.timeout,
    )
    if choice.verdict is not Verdict.OK:  # the loader would end the worker, and Ray would wait
        message = choice.report.message if choice.report else "not verified"
        raise PyresolveError(message)
    return Start(change=choice.env(variables), warnings=choice.warnings)


def refusal(error: Exception) -> str:
    """Return what the caller reads, who may be far from this node."""
    return f"no worker is started on {socket.gethostname()}: {error}"


def hooked(command: str, change: Mapping[str, str]) -> str:
    """Return `command` with `change` made for its interpreter, and for nothing that starts it.

    If no word of it names a Python, the change is made for all of it.
    """
    words = list(_WORD.finditer(command))
    pythons = [word.start() for word in words if _PYTHON.fullmatch(_unquoted(word[0]))]
    at = pythons[-1] if pythons else 0
    pairs = (shlex.quote(f"{name}={value}") for name, value in change.items())
    return f"{command[:at]}env {' '.join(pairs)} {command[at:]}" if change else command


def _unquoted(word: str) -> str:
    return re.sub(r"\\(.)|[\"']", r"\1", word, flags=re.DOTALL)


def bash(command: str, prefix: Sequence[str] = ()) -> list[str]:
    """Return the arguments of a bash that becomes `command`, with what follows as its arguments."""
    return ["bash", "-c", " ".join([*prefix, "exec", command, '"$@"']), "bash"]


def _ask(
    command: str, *, prefix: Sequence[str], environ: Mapping[str, str], deadline: helper.Deadline
) -> tuple[str, dict[str, str]]:
    """Return which interpreter `command` starts, and the environment that it starts it in."""
    shell, *words = bash(command, prefix)
    program = shutil.which(shell, path=environ.get("PATH"))
    if not program:
        raise InterpreterError(
            "bash, with which Ray starts workers, is not on PATH", python=command
        )
    with tempfile.TemporaryDirectory(prefix="pyresolve-") as scratch:
        note = Path(scratch, "answer")
        argv = [program, *words, _WORKER, os.fspath(note)]
        answer = helper.run(argv, environ=environ, deadline=deadline)
        if note.exists() and (text := note.read_text()):
            python, has_ray, variables = json.loads(text)
            if not has_ray:
                raise InterpreterError(
                    f"{command} starts {python}, which has no Ray: correct py_executable or PATH",
                    python=python,
                )
            return python, variables
    if answer.timed_out or answer.trials[0].timed_out:
        raise InterpreterError(
            f"{command} started no Python within {deadline.timeout:g} s: its start-up hangs, or"
            " raise the timeout",
            python=command,
        )
    words_said = " ".join(answer.captured.split())[-400:] or "it said nothing"
    raise InterpreterError(
        f"{command} starts no Python here ({words_said}): correct py_executable or PATH",
        python=command,
    )
