"""The command line. Nothing outside this package prints.

stdout carries the answer alone, stderr the rest. Exit status: 0 OK, 1 FAIL, 2 usage, 3 UNKNOWN.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from .._errors import OverrideError, PyresolveError
from ._output import print_json, print_text

if TYPE_CHECKING:
    from collections.abc import Sequence

_USAGE = 2
_INTERRUPTED = 130

_COMMANDS = {  # each is the module of that name, imported when it is called
    "pick": "print the path of the build to preload",
    "env": "print the variables that must change, for eval",
    "exec": "run a command with the hook",
    "check": "try libraries, each in its own process",
    "doctor": "everything found, decided and verified, and what to do",
    "audit": "what is true of a running process",
    "health": "is this node fit for GPU work? One line, for probes",
    "ray": "what is true of the nodes of a Ray cluster",
    "bench": "what a probe costs on this machine, against what one would do instead",
}
_OTHER_DOCUMENT = ("exec", "ray", "bench")  # none; one for each of its commands; in a file


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="pyresolve",
        description="Pick the build of a GPU hook library that will really load in the workers.",
        epilog="exit status: 0 OK, 1 FAIL, 2 usage, 3 UNKNOWN (no driver is found here)",
    )
    words, behind = _split(list(sys.argv[1:] if argv is None else argv))
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, summary in _COMMANDS.items():
        command = subparsers.add_parser(name, help=summary, description=summary)
        if words[:1] == [name]:
            module = import_module(f".{name}", __name__)
            module.add_arguments(command)
            if name not in _OTHER_DOCUMENT:
                command.add_argument("--json", action="store_true", help="one JSON document")
            command.set_defaults(run=module.run)
    if sys.stderr is None:  # closed; what is meant for it must not turn up on stdout
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115  (for as long as we live)
    arguments = parser.parse_args(words, argparse.Namespace(behind=behind))
    if sys.stdout is None:
        print_text("pyresolve: stdout is closed, where the answer belongs", to_stderr=True)
        return 1
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        return _unwritten()
    except OSError as error:
        print_text(f"pyresolve: the answer cannot be written: {error.strerror}", to_stderr=True)
        return _unwritten()
    return status


def _run(arguments: argparse.Namespace) -> int:
    try:
        return int(arguments.run(arguments))
    except (OverrideError, ValueError) as error:
        return _refuse(arguments, error, _USAGE)
    except PyresolveError as error:
        return _refuse(arguments, error, 1)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _unwritten() -> int:
    """Keep the interpreter from another try at its exit, and from what it would say then."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Take what follows `--` off the words of exec: argparse would take it for ours."""
    if words[:1] == ["exec"] and "--" in words:
        at = words.index("--")
        return words[:at], words[at + 1 :]
    return words, []


def _refuse(arguments: argparse.Namespace, error: Exception, status: int) -> int:
    if getattr(arguments, "json", False):
        remedy = getattr(error, "remedy", None)
        print_json({"error": type(error).__name__, "message": str(error), "remedy": remedy})
    print_text(f"pyresolve: {error}", to_stderr=True)
    return status
