"""pyresolve audit: what is true of a running process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._output import STEM, STEM_HELP, exit_status, print_json, print_text

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("stem", nargs="?", default=STEM, metavar="STEM", help=STEM_HELP)
    parser.add_argument(
        "--pid", type=int, metavar="N", help="the process (default: pyresolve itself)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Audit the process and print one line a finding."""
    from .._audit import audit

    result = audit(pid=arguments.pid, stem=arguments.stem)
    if arguments.json:
        print_json(result.to_dict())
    else:
        for finding in result.findings:
            print_text(f"{finding.status.name}\t{finding.message}")
        if not result.findings:
            runtimes = ", ".join(map(str, result.runtimes)) or "no CUDA runtime"
            print_text(f"OK\t{result.hook} takes effect in process {result.pid}, with {runtimes}")
    return exit_status([result.verdict])
