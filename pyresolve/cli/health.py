"""pyresolve health: tell in one line whether this node is fit for GPU work, for probes."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _overrides
from .._check import line
from .._document import plain
from .._model import Verdict
from ._output import exit_status, print_json, print_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from ..health.checks import Health
    from ..health.config import Config

_MEANT = {"ok": Verdict.OK, "fail": Verdict.FAIL}
_TIMEOUT = 0.9  # seconds: a kubelet waits for one
_START = 0.5  # seconds: the most that counts as the start of Python


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="what to check, in TOML (default: the hook, the driver and torch's runtime)",
    )
    parser.add_argument(
        "--unknown-is",
        choices=("ok", "fail"),
        help="what UNKNOWN, as on a host without a driver, means here (default: exit status 3)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="S",
        help=f"seconds for all of it, the start of Python included (default: {_TIMEOUT:g})",
    )
    parser.add_argument("--verbose", action="store_true", help="one line for each check, in full")
    parser.add_argument(
        "--format",
        choices=("text", "prometheus"),
        default="text",
        help="prometheus: metrics instead of the line (default: %(default)s)",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="put the metrics there, whole or not at all, beside the line",
    )
    parser.add_argument(
        "--serve",
        metavar="ADDR:PORT",
        help="answer /healthz, /readyz and /metrics until stopped; a port alone is loopback's",
    )


def run(arguments: argparse.Namespace) -> int:
    """Make the checks once, or serve them."""
    if arguments.output and arguments.format != "prometheus":
        raise ValueError("--output goes with --format prometheus")
    if arguments.json and (arguments.format != "text" or arguments.serve):
        raise ValueError("--json goes with neither --format prometheus nor --serve")
    from ..health.config import Config, read

    config = read(arguments.config) if arguments.config is not None else Config()
    asked = arguments.timeout if arguments.timeout is not None else config.timeout
    timeout = _overrides.timeout(os.environ, _TIMEOUT if asked is None else asked)
    unknown_is = arguments.unknown_is or config.unknown_is
    if arguments.serve:
        return _serve(arguments.serve, config, timeout, unknown_is)

    from ..health.once import check_all

    results = check_all(config.checks, environ=os.environ, timeout=timeout, began=_began())
    _print(results, arguments)
    known = {Verdict.UNKNOWN: _MEANT[unknown_is]} if unknown_is else {}
    return exit_status(known.get(health.verdict, health.verdict) for health in results)


def _began() -> float:
    """Return when this process was started: its caller has waited since then."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.monotonic()
    ticks = int(fields[19])  # proc(5): starttime
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - min(max(age, 0.0), _START)  # main() may run in an older process


def _print(results: Sequence[Health], arguments: argparse.Namespace) -> None:
    from ..health import checks

    if arguments.format == "prometheus":
        from ..health import metrics

        text = metrics.text(results)
        if not arguments.output:
            print_text(text.removesuffix("\n"))
            return
        metrics.write(Path(arguments.output), text)
    if arguments.json:
        verdict = checks.worst(results).value
        print_json({"verdict": verdict, "checks": [plain(health) for health in results]})
    elif arguments.verbose:
        for health in results:
            print_text(f"{health.verdict.name}\t{health.status}\t{health.name}\t{health.message}")
    else:
        print_text(line.summary_line([health.summary for health in results]))


def _serve(text: str, config: Config, timeout: float, unknown_is: str | None) -> int:
    import asyncio

    from ..health import server
    from ..health.monitor import HealthMonitor
    from ..health.once import share

    address = server.parse_address(text)
    environ = {name: value for name, value in os.environ.items() if name != _overrides.TIMEOUT}
    monitor = HealthMonitor(environ=environ, probe_timeout=share(timeout))
    listening = server.listen(address)
    serving = server.Server(
        examine=lambda: monitor.check_all(config.checks, timeout=timeout),
        ready=frozenset({Verdict.OK, Verdict.UNKNOWN} if unknown_is == "ok" else {Verdict.OK}),
    )
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    url = f"http://{host}:{listening.getsockname()[1]}/"
    announce = partial(print_text, f"pyresolve: serving {url}", to_stderr=True)
    return asyncio.run(serving.serve(listening, announce=announce))
