"""The fuzzers of the native code, under sanitizers, for a moment each: `make asan` gives them more.

A preload of this process would come before the sanitizers, which they refuse.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from support import REPOSITORY, TESTS
from support.tools import require_tool, unavailable

_FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-iquote", REPOSITORY / "native"]
_SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover"]


def fuzz(
    directory: Path, topic: str, source: str, *arguments: str | os.PathLike[str]
) -> subprocess.CompletedProcess[str]:
    """Build fuzz_<topic>.c with a source of native/ and run it; return what it said."""
    gcc = require_tool("gcc")
    probe = directory / "probe.c"
    probe.write_text("int main(void) { return 0; }")
    if subprocess.run(
        [gcc, *_SANITIZERS, probe, "-o", directory / "probe"], check=False
    ).returncode:
        unavailable("this gcc has no sanitizers")
    sources = [REPOSITORY / "native" / source, TESTS / "native" / f"fuzz_{topic}.c"]
    program = directory / "fuzz"
    subprocess.run([gcc, *_FLAGS, *_SANITIZERS, *sources, "-o", program], check=True)
    return subprocess.run(
        [program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},
    )
