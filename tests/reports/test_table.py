"""The table in the docs, against the tests."""

from __future__ import annotations

import re
from pathlib import Path

from support import REPOSITORY

HERE = Path(__file__).parent
TABLE = REPOSITORY / "docs" / "reports.md"
NUMBERS = (
    "01 02 03 05 06 07 08 09 10 11 13 15 16 17 19 20 21 23 24 25 26 27 28 29 31 32 34 35 36 38"
)
NUMBERS += " 40 41 42 44 45 46 48 49 51 52 53 54 55 56"
IDS = {f"R{number}" for number in NUMBERS.split()}
# Of the second list, those that have tests.
SECOND = "01A 01B 03 04 05 07 10 13 14 15 16 19 21 22 24 25 30"
IDS |= {f"N{number}" for number in SECOND.split()}


def ids_of(prefix: str) -> set[str]:
    """Return the ids of the tests whose names begin so."""
    text = "".join(path.read_text() for path in HERE.glob("test_*.py"))
    return {name.upper() for name in re.findall(rf"^def {prefix}([rn]\d\d[ab]?)_", text, re.M)}


def test_every_report_has_a_test():
    """None of the public reports is left out."""
    assert IDS == ids_of("test_")


def test_table_is_of_these_tests():
    """`make messages` was run after the last test was added."""
    rows = set(re.findall(r"^\| ([RN]\d\d[AB]?) ", TABLE.read_text(), re.M))
    near = set(re.findall(r"^\| like ([RN]\d\d[AB]?) ", TABLE.read_text(), re.M))
    assert (ids_of("test_"), ids_of("test_like_")) == (rows, near)
