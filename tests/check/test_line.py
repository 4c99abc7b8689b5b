"""The one line that probes print."""

import pytest
from hypothesis import given, strategies as st

from pyresolve import Status, Verdict
from pyresolve._check.line import Summary, summary_line

OK = Summary(name="libcudart.so.13", verdict=Verdict.OK, status="loadable")
HOOK = "torch_memory_saver_hook_mode_preload_cu12.abi3.so"


def bad(status, detail, name, verdict=Verdict.FAIL):
    return Summary(name=name, verdict=verdict, status=status, detail=detail)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([OK], "OK loadable (libcudart.so.13)"),
        ([OK, OK], "OK 2 checks"),
        ([bad("crashed", "SIGSEGV", "libfoo.so")], "FAIL crashed: SIGSEGV (libfoo.so)"),
        ([bad("not_elf", "", "libfoo.so"), OK], "FAIL not_elf (libfoo.so)"),
        (
            [bad("no_driver", "libcuda.so.1", "a.so", Verdict.UNKNOWN), bad("exited", "", "b.so")],
            "FAIL exited (b.so) and 1 more",
        ),
        (
            [bad("missing_dependency", "libcudart.so.12", HOOK)],
            "FAIL missing_dependency: libcudart.so.12 (torch_memory_save...load_cu12.abi3.so)",
        ),
        ([bad("timed_out", "2 s", "libf\n\u00e9.so")], "FAIL timed_out: 2 s (libf???.so)"),
    ],
)
def test_line(outcomes, expected):
    """The worst outcome is shown, with its cause and under its name."""
    assert summary_line(outcomes) == expected


@given(
    st.lists(
        st.builds(
            Summary,
            name=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=255),
            verdict=st.sampled_from(Verdict),
            status=st.sampled_from([status.value for status in Status]),
            detail=st.text(st.characters(exclude_categories=["Cs"]), max_size=2000),
        ),
        min_size=1,
        max_size=1000,
    )
)
def test_line_fits(outcomes):
    """Whatever was checked, it is one line of printable characters that nobody cuts."""
    text = summary_line(outcomes)
    assert len(text) <= 80
    assert text.isascii()
    assert text.isprintable()
