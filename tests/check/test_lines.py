"""check() and pyresolve-probe say of each library the line that is written down for it."""

from __future__ import annotations

import pytest
from support import MODES, rogues
from support.lines import (
    CASES,
    ENVIRONMENTS,
    ROGUES,
    WITHOUT_DRIVER,
    check_line,
    check_line_apart,
)
from support.probe_program import answer, probe

each_mode = pytest.mark.parametrize("mode", MODES)
each_case = pytest.mark.parametrize(
    ("case", "requirement"),
    [
        pytest.param(case, requirement, id=case.name)
        for requirement, cases in (
            (None, CASES),
            ("static", ENVIRONMENTS),
            ("no_driver", WITHOUT_DRIVER),
        )
        for case in cases
    ],
)


@each_mode
@each_case
def test_check(request, case, requirement, clean_env, mode):
    """check() has the line in its report."""
    if requirement == "no_driver":
        request.getfixturevalue(requirement)
    if "ulimit -v" in case.name:  # a sanitizer reserves more
        request.getfixturevalue("not_sanitized")
    env = {**clean_env, **case.environment()}
    options = {"mode": mode, "environ": env, "timeout": case.timeout}
    if prefix := case.command_prefix():
        line = check_line_apart(prefix, case.path, **options)
    else:
        line = check_line(case.path, **options)
    assert case.said(mode, by_program=False) == line


@each_mode
@each_case
def test_program(request, case, requirement, clean_env, mode):
    """pyresolve-probe writes the line; its first word decides the exit status."""
    if requirement:
        request.getfixturevalue(requirement)
    if "LD_PRELOAD" in case.variables:  # a dynamic program would start with it as well
        request.getfixturevalue("static")
    if "ulimit -v" in case.name:
        request.getfixturevalue("not_sanitized")
    env = {**clean_env, **case.environment()}
    options = {"mode": mode, "timeout": case.timeout, "prefix": case.command_prefix()}
    line = case.said(mode, by_program=True)
    assert answer(line) == probe(case.path, env=env, **options)


def test_every_rogue_has_a_line():
    """No rogue is left out."""
    assert set(rogues.NAMES) == set(ROGUES)
