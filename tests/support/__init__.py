"""What the tests build their cases from: real wheels, scratch sites, libraries that misbehave."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
REPOSITORY = TESTS.parent
MODES = ("dlopen", "preload")  # of a check
HANG = 0.3  # seconds for one that does not end by itself
AMPLE = 30.0  # seconds for one that does, also on a busy machine
