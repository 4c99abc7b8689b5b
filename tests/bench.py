"""`make bench`: what pyresolve costs beside a CUDA torch and a driver, both laid out for it.

It takes the options of `pyresolve bench`, which measures and does not judge: a figure beyond its
target is printed with "no", and only an error fails.
"""

from __future__ import annotations

import subprocess
import sys

from support.command import COMMAND, environment
from support.compile import workshop
from support.driver import full_stub
from support.layout import Site


def main() -> int:
    """Lay out a site and measure in it."""
    site = Site(workshop() / "site-packages").tms().torch("13.0", "2.9.1+cu130")
    site.cudart(13)
    env = environment(site, libraries=[full_stub()])
    return subprocess.run([COMMAND, "bench", *sys.argv[1:]], env=env, cwd="/").returncode


if __name__ == "__main__":
    sys.exit(main())
