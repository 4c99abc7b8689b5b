"""pyresolve exec: run a command with the hook."""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import signal
import sys
from pathlib import Path

from .._disk import program
from .._model import Verdict
from ._output import add_pick_arguments, exit_status, pick_from, print_notes, print_text

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127  # as a shell says it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_pick_arguments(parser)
    parser.add_argument(
        "--force", action="store_true", help="run the command although the hook does not load here"
    )
    parser.usage = "%(prog)s [options] [STEM] -- COMMAND ..."


def run(arguments: argparse.Namespace) -> int:
    """Pick, apply the change, and become the command; return only if that fails."""
    if not arguments.behind:
        raise ValueError("nothing to run: put the command behind --")
    command, environ = arguments.behind, _environ()
    found = shutil.which(command[0], path=environ.get("PATH"))
    if not arguments.force and (reason := found and program.refusal(found, environ.get("PATH"))):
        print_text(f"pyresolve: not run: {reason} (--force runs it all the same)", to_stderr=True)
        return 1
    choice = pick_from(arguments, verify="never" if arguments.force else "auto")
    if choice.verdict is not Verdict.OK and not arguments.force:
        # Without the driver the loader would end the command at once, with status 127.
        message = choice.report.message if choice.report else "not verified"
        print_text(f"pyresolve: not run: {message} (--force runs it all the same)", to_stderr=True)
        return exit_status([choice.verdict])
    print_notes(choice)
    environ.update(choice.env())
    sys.stdout.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by Python for its own sake
        signal.signal(number, signal.SIG_DFL)
    try:
        if not command[0]:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        os.execvpe(command[0], command, environ)  # noqa: S606
    except OSError as error:
        print_text(f"pyresolve: {command[0]}: {error.strerror}", to_stderr=True)
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE


def _environ() -> dict[str, str]:
    """Return the environment as it was handed to us: Python may have added LC_CTYPE (PEP 538)."""
    environ = dict(os.environ)
    try:
        given = b"\0" + Path("/proc/self/environ").read_bytes()
    except OSError:
        return environ
    if b"\0LC_CTYPE=" not in given:
        environ.pop("LC_CTYPE", None)
    return environ
