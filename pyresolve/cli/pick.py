"""pyresolve pick: print the path of the build to preload."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ._output import (
    add_pick_arguments as add_arguments,
    exit_status,
    pick_from,
    print_json,
    print_notes,
)

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def run(arguments: argparse.Namespace) -> int:
    """Pick, print the path, and say on stderr what a person should know."""
    choice = pick_from(arguments)
    if arguments.json:
        print_json(choice.to_dict())
    else:
        # As the bytes that it is: the caller hands it to the loader.
        sys.stdout.buffer.write(os.fsencode(choice) + b"\n")
        sys.stdout.flush()
    print_notes(choice)
    return exit_status([choice.verdict])
