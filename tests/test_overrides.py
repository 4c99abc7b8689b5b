"""What the user lays down is taken, or refused with the reason; it is never passed over."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from pyresolve import _overrides
from pyresolve._errors import OverrideError, PyresolveError

# --- the CUDA major


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ("12", 12),
        ("13", 13),
        ("14", 14),
        ("27", 27),
        ("9", 9),
        ("12.8", 12),
        ("12.8.1", 12),
        ("cu12", 12),
        ("cu13.0", 13),
        (" 12 ", 12),
    ],
)
def test_r13_cuda_that_is_taken(text, major):
    """R13: a major or a version, with or without `cu`, from the variable or the argument."""
    assert _overrides.major({"PYRESOLVE_CUDA": text}, None) == (major, f"PYRESOLVE_CUDA={text}")
    assert _overrides.major({}, text) == (major, f"cuda={text!r}")


REFUSED = ["120", "121", "cu128", "cu130", "cu", "twelve", "12.", "12.x", "-12", "0", "00", "1 2"]


@pytest.mark.parametrize("text", [*REFUSED, "CUDA 12", "12;13", "١٢", " ", "12\0"])
def test_r13_cuda_that_is_refused(text):
    """R13: `120` and `cu128` could mean several things; the text says what would not."""
    for environ, argument, variable in (
        ({"PYRESOLVE_CUDA": text}, None, "PYRESOLVE_CUDA"),
        ({}, text, "cuda"),
    ):
        with pytest.raises(OverrideError) as caught:
            _overrides.major(environ, argument)
        assert (caught.value.variable, caught.value.value) == (variable, text)
        assert str(caught.value).startswith(f"{variable}={text!r} names no CUDA version: ")
        assert "12, 12.8 or cu12" in str(caught.value)
        assert isinstance(caught.value, PyresolveError)
        assert isinstance(caught.value, ValueError)


def test_cuda_as_a_number():
    """An int, or the float that somebody wrote without quotes."""
    assert _overrides.major({}, 12) == (12, "cuda=12")
    assert _overrides.major({}, 12.8) == (12, "cuda=12.8")


@pytest.mark.parametrize("argument", [0, -12, 120, True, "", b"12"])
def test_cuda_argument_that_means_nothing(argument):
    """Misuse of the argument is the same error as of the variable."""
    with pytest.raises(OverrideError):
        _overrides.major({}, argument)


@pytest.mark.parametrize("environ", [{}, {"PYRESOLVE_CUDA": ""}, {"CUDA_VERSION": "13.4"}])
def test_r16_nothing_is_laid_down(environ):
    """R16: an empty variable is an unset one, and a container's CUDA_VERSION is no override."""
    assert _overrides.major(environ, None) is None
    assert _overrides.major(environ, 12) == (12, "cuda=12")


def test_variable_wins_over_the_argument():
    """An operator corrects a launcher without touching its code."""
    environ = {"PYRESOLVE_CUDA": "13", "PYRESOLVE_TIMEOUT": "2.5"}
    assert _overrides.major(environ, 12) == (13, "PYRESOLVE_CUDA=13")
    assert _overrides.timeout(environ, 10.0) == 2.5


@given(st.text())
def test_any_text_is_taken_or_refused(text):
    """A variable of any value gives a major from 1 to 99, nothing, or one kind of error."""
    try:
        found = _overrides.major({"PYRESOLVE_CUDA": text}, None)
    except OverrideError:
        return
    assert (found is None) == (text == "")
    assert found is None or 0 < found[0] < 100


# --- the timeout


@pytest.mark.parametrize("argument", [0.001, 1, 10.0, 86400])
def test_timeout_that_is_taken(argument):
    """Positive seconds, fractions included."""
    assert _overrides.timeout({}, argument) == argument
    assert _overrides.timeout({"PYRESOLVE_TIMEOUT": ""}, argument) == argument
    assert _overrides.timeout({"PYRESOLVE_TIMEOUT": str(argument)}, 5) == argument


@pytest.mark.parametrize("argument", [0, -1, -0.0, math.nan, math.inf, -math.inf, 1e300])
def test_timeout_that_means_nothing(argument):
    """Zero, negative, endless and undefined ones are a misuse."""
    with pytest.raises(ValueError, match="give a positive number of seconds") as caught:
        _overrides.timeout({}, argument)
    assert not isinstance(caught.value, OverrideError)
    assert repr(argument) in str(caught.value)


@pytest.mark.parametrize(
    "text", ["0", "-1", "nan", "inf", "1e300", "10s", "ten", " ", "1,5", "0x1"]
)
def test_timeout_variable_that_means_nothing(text):
    """The error names the variable, for it is not the caller's mistake."""
    with pytest.raises(OverrideError) as caught:
        _overrides.timeout({"PYRESOLVE_TIMEOUT": text}, 10.0)
    assert (caught.value.variable, caught.value.value) == ("PYRESOLVE_TIMEOUT", text)
    assert str(caught.value) == (
        f"PYRESOLVE_TIMEOUT={text!r} is no positive number of seconds: correct or unset it"
    )


@given(st.text())
def test_any_timeout_text_is_taken_or_refused(text):
    """A variable of any value gives usable seconds or one kind of error."""
    try:
        seconds = _overrides.timeout({"PYRESOLVE_TIMEOUT": text}, 10.0)
    except OverrideError:
        return
    assert math.isfinite(seconds)
    assert seconds > 0


# --- the file


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"PYRESOLVE_PRELOAD": ""}, None),
        ({"PYRESOLVE_PRELOAD": "/a b/hook.so"}, "/a b/hook.so"),
    ],
)
def test_preload_that_is_taken(environ, expected):
    """An absolute path, as it stands."""
    assert _overrides.preload(environ) == expected


@pytest.mark.parametrize(
    "text", ["hook.so", "./hook.so", "~/hook.so", " /hook.so", "$HOME/hook.so"]
)
def test_preload_that_is_refused(text):
    """A relative path would mean another file in every working directory."""
    with pytest.raises(OverrideError) as caught:
        _overrides.preload({"PYRESOLVE_PRELOAD": text})
    assert (caught.value.variable, caught.value.value) == ("PYRESOLVE_PRELOAD", text)
    assert f"PYRESOLVE_PRELOAD={text!r} is no absolute path" in str(caught.value)
