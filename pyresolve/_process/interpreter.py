"""Ask another interpreter where its packages are. It is started once."""

from __future__ import annotations

import errno
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .._disk import elf, fault, program, site as sites
from .._disk.files import absolute, identity
from .._environ import PRELOAD
from .._errors import InterpreterError
from .._imports import importing
from .._model import ElfStatus
from . import helper

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._disk.site import Site

# Site code may print whatever it likes: the answer is what stands between two nonces. The first
# element of the path is the directory of the script, which workers do not share.
# The program that answers need not be the file that was started, and why the kernel has the loader
# drop LD_PRELOAD is not always seen in a file (SELinux): AT_SECURE (23, getauxval(3)) says it.
_SCRIPT = """\
import sys
paths = [sys.prefix] + (sys.path[1:] if sys.path[:1] == [''] else sys.path)
sys.path[:] = paths[1:]
import binascii, os, struct
secure = 0
try:
    with open('/proc/self/auxv', 'rb') as file:
        words = file.read()
    words = struct.unpack('%dL' % (len(words) // struct.calcsize('L')), words)
    secure = dict(zip(words[::2], words[1::2])).get(23, 0)
except (IOError, OSError):
    pass
paths[:0] = ['%d' % secure, os.path.realpath('/proc/self/exe')]
encode = getattr(os, 'fsencode', lambda path: path)
texts = [binascii.hexlify(encode(path)).decode('ascii') for path in paths if isinstance(path, str)]
sys.stdout.write('\\n'.join(['', sys.argv[1], ' '.join(texts), sys.argv[1], '']))
sys.stdout.flush()
"""

_answers: dict[object, tuple[list[str], list[object]]] = {}


def site_of(
    python: str | os.PathLike[str] | None,
    *,
    environ: Mapping[str, str],
    deadline: helper.Deadline,
) -> Site:
    """Return the site of the interpreter at `python`, as it sees itself when started in `environ`.

    None is the running interpreter.

    Its own LD_PRELOAD is left out: a preload that is broken must not keep it from answering. The
    answer is kept for as long as the file, its pyvenv.cfg, the variables that it reads and the
    directories that it named are the same. Raises InterpreterError if it does not answer, and if
    its processes take nothing from LD_PRELOAD and LD_LIBRARY_PATH.
    """
    if python is None:
        return sites.current()
    executable = resolve(python, environ)
    variables = {name: value for name, value in environ.items() if name != PRELOAD}
    key = _key(executable, variables)
    (prefix, *paths), seen = _answers.get(key, ([""], [None]))
    if seen != [identity(path) for path in paths]:  # a new .pth file changes its directory
        _refuse_foreign(executable, environ)
        secure, real, *answer = _ask(executable, variables, deadline)
        _refuse_hookless(executable, real, environ, secure=secure != "0")
        prefix, *paths = answer
        _answers[key] = answer, [identity(path) for path in paths]
    return sites.Site(prefix=Path(prefix), entries=tuple(sites.entries(paths)))


def resolve(python: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> str:
    """Return the path of an interpreter, None is the running one. Raises InterpreterError."""
    python = (sys.executable or "/proc/self/exe") if python is None else os.fspath(python)
    if "\0" in python or not python:
        raise InterpreterError(f"{python!r} names no interpreter", python=python)
    if "/" in python:
        return os.path.normpath(absolute(python))  # a venv is known by the link, not its target
    with importing:
        import shutil

    found = shutil.which(python, path=environ.get("PATH"))
    if not found:
        raise InterpreterError(
            f"{python} is not on PATH: give the path of the workers' interpreter", python=python
        )
    return os.path.normpath(absolute(found))


def _key(executable: str, environ: Mapping[str, str]) -> object:
    home = os.path.dirname(os.path.dirname(executable))  # noqa: PTH120
    read = {k: v for k, v in environ.items() if k.startswith("PYTHON") or k in ("HOME", "PATH")}
    return executable, identity(executable), identity(f"{home}/pyvenv.cfg"), tuple(read.items())


def _ask(executable: str, environ: Mapping[str, str], deadline: helper.Deadline) -> list[str]:
    """Return whether its loader drops LD_PRELOAD, what runs, its prefix and its import path."""
    nonce = os.urandom(8).hex()
    argv = [executable, "-c", _SCRIPT, nonce]
    answer = helper.run(argv, environ=environ, deadline=deadline)
    trial = answer.trials[0]
    if trial.not_run is not None:
        remedy = "give the path of the workers' interpreter"
        if trial.not_run == errno.EACCES:
            remedy = "it may not be executed by this user"
        raise InterpreterError(
            f"{executable} cannot be started ({os.strerror(trial.not_run)}): {remedy}",
            python=executable,
        )
    if answer.timed_out or trial.timed_out:
        raise InterpreterError(
            f"{executable} did not answer within {deadline.timeout:g} s and was killed: its"
            " start-up hangs (a .pth file or sitecustomize?), or raise the timeout",
            python=executable,
        )
    match = re.search(rf"^{nonce}\n([0-9a-f ]*)\n{nonce}$", answer.captured, re.M)
    if not match:
        words = " ".join(answer.captured.split())[-200:] or "it said nothing"
        raise InterpreterError(
            f"{executable} does not answer as Python does ({words}): give the path of the workers'"
            " interpreter",
            python=executable,
        )
    return [os.fsdecode(bytes.fromhex(text)) for text in match[1].split(" ")]


def refuse_own() -> None:
    """Raise InterpreterError if the running interpreter's processes take no LD_PRELOAD."""
    with suppress(OSError):
        real = os.readlink("/proc/self/exe")  # noqa: PTH115
        _refuse_hookless("the running interpreter", real, os.environ)


def _refuse_hookless(
    python: str, real: str, environ: Mapping[str, str], *, secure: bool = False
) -> None:
    reason = program.refusal(real, environ.get("PATH"))
    if not reason and secure:
        reason = f"{python} is started in secure-execution mode (ld.so(8)), which drops LD_PRELOAD"
    if reason:
        message = f"{reason}; or give the path of the workers' interpreter"
        raise InterpreterError(message, python=python)


def _refuse_foreign(executable: str, environ: Mapping[str, str]) -> None:
    facts = elf.read(executable)
    if facts.status in (ElfStatus.SOUND, ElfStatus.FOREIGN) and not facts.host:
        diagnosis = fault.diagnose(facts)
        what = diagnosis.message.partition(": ")[0] if diagnosis else executable
        raise InterpreterError(
            f"{what}: give the path of an interpreter for this machine", python=executable
        )
    _refuse_hookless(executable, executable, environ)
