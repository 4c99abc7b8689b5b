"""The example runs as it says, from a clone."""

from __future__ import annotations

import re
import sys

from support import REPOSITORY
from support.command import run

EXAMPLE = REPOSITORY / "examples" / "slime_actor_group.py"


def test_slime_actor_group(clean_env):
    """Before, the rank on the other CUDA hangs; after, each rank has the hook of its node."""
    done = run([sys.executable, EXAMPLE], env=clean_env, timeout=180)
    assert 0 == done.returncode, done.stderr
    hook = "torch_memory_saver_hook_mode_preload"
    lines = [re.sub(" rank [01]", "", line) for line in done.stdout.splitlines()]  # Ray's choice
    assert [
        f"after: on cu12: {hook}_cu12.abi3.so takes effect, offload=True",
        f"after: on cu13: {hook}_cu13.abi3.so takes effect, offload=True",
        "before: hangs: no answer and no error within 10 s",
        f"before: on cu12: {hook}.abi3.so takes effect, offload=True",
    ] == sorted(lines)
