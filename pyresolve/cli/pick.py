"""pyresolve pick: print the path of the build to preload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._output import add_pick_arguments as add_arguments, exit_status, print_json

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def run(arguments: argparse.Namespace) -> int:
    """Pick, print the path, and say on stderr what a person should know."""
    import os
    import sys

    from .._pick import pick
    from .._types import Verdict

    choice = pick(arguments.stem, package=arguments.package, cuda=arguments.cuda)
    if arguments.json:
        print_json(choice.to_dict())
    else:
        # As the bytes that it is: the caller hands it to the loader.
        sys.stdout.buffer.write(os.fsencode(choice) + b"\n")
        sys.stdout.flush()
    for warning in choice.warnings:
        print(f"pyresolve: warning: {warning}", file=sys.stderr)
    if choice.verdict is Verdict.UNKNOWN and choice.report:
        print(f"pyresolve: unknown: {choice.report.message}", file=sys.stderr)
    return exit_status([choice.verdict])
