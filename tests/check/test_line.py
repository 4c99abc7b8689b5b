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


ALLOCATOR = "_ZN3c104cuda20CUDACachingAllocator9allocatorE"
ZEROS = "_ZN2at4_ops5zeros4callEN3c108ArrayRefINS2_6SymIntEEESt8optionalINS2_10ScalarTypeEE"
SIZES = "_ZNK3c1010TensorImpl21sizes_of_what_it_holdsEv@@LIBC10_2.9"
FIND = "_ZNSt6vectorIN3c108optionalINS0_10ScalarTypeEEESaIS3_EE4findEv"
PLAIN = "a_plain_name_of_more_than_thirty_four_characters_in_c"


@pytest.mark.parametrize(
    ("detail", "name", "expected"),
    [
        ("_Z3foov", HOOK, "_Z3foov (torch_memory_saver_hoo...e_preload_cu12.abi3.so)"),
        (ALLOCATOR, "a.so", "_ZN3c104cuda20CUDACachingAllocator9allocatorE (a.so)"),
        (ALLOCATOR, HOOK, "c10::cuda::CUDA...cator::allocator (torch_me...2.abi3.so)"),
        (ZEROS, HOOK, "at::_ops::zeros::call (torch_memory_sa...ad_cu12.abi3.so)"),
        (
            SIZES,
            "a_library_of_ours.so",
            "c10::TensorImpl...hold@@LIBC10_2.9 (a_library_of_ours.so)",
        ),
        (FIND, HOOK, "std::vector (torch_memory_saver_h...preload_cu12.abi3.so)"),
        (PLAIN, HOOK, "a_plain_name_of..._characters_in_c (torch_me...2.abi3.so)"),
        (
            "_ZN99shortE" + "x" * 60,
            HOOK,
            "_ZN99shortExxxx...xxxxxxxxxxxxxxxx (torch_me...2.abi3.so)",
        ),
    ],
)
def test_long_symbol(detail, name, expected):
    """Of a C++ symbol that does not fit, the name is shown and not its parameters."""
    line = summary_line([bad("undefined_symbol", detail, name)])
    assert f"FAIL undefined_symbol: {expected}" == line
