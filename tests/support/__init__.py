"""What the tests build their cases from: real wheels, scratch sites, libraries that misbehave."""

import os
from pathlib import Path

TESTS = Path(__file__).parents[1]
REPOSITORY = TESTS.parent
FULL = os.environ.get("PYRESOLVE_TEST_FULL") == "1"  # all cases, which take minutes
MODES = ("dlopen", "preload")  # of a check
HANG = 0.3  # seconds for one that does not end by itself
AMPLE = 30.0  # seconds for one that does, also on a busy machine
