"""What the tests build their cases from: real wheels, scratch sites, libraries that misbehave."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
REPOSITORY = TESTS.parent
