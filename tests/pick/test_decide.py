"""The decision, as a table: which source was followed, which build came of it, what was warned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, strategies as st

from pyresolve._errors import NotCudaError, NoVariantError
from pyresolve._model import (
    Candidate,
    Driver,
    LoadReport,
    Mode,
    Origin,
    Runtime,
    Source,
    Status,
    Torch,
    Verdict,
)
from pyresolve._pick.decide import decide
from pyresolve._pick.facts import Facts
from pyresolve._pick.gather import _depends_on_trials

SITE = Path("/site")
STEM = "hook"


def build(major, named=None, *, place=SITE, problem=None, suffix=".abi3.so"):
    """Return a build; `named` is the major in its file name, `major` the one it links."""
    name = f"{STEM}{'' if named is None else f'_cu{named}'}{suffix}"
    runtime = None if major is None else f"libcudart.so.{major}"
    return Candidate(path=place / name, major=major, named=named, runtime=runtime, problem=problem)


PLAIN, CU12, CU13 = build(12), build(12, 12), build(13, 13)
WHEEL = (PLAIN, CU12, CU13)  # torch_memory_saver 0.0.10
OLD_WHEEL = (PLAIN,)  # 0.0.9


def runtime(major, *, directory="/r", origin=Origin.LOADER, version=None, distribution=None):
    """Return a libcudart."""
    path = Path(directory) / f"libcudart.so.{major}"
    return Runtime(
        path=path, major=major, origin=origin, version=version, distribution=distribution
    )


def torch(cuda="13.0", *, library=None, version="2.9.1", problem=None, accelerator=None):
    """Return a torch; `library` is the CUDA major that its CUDA library needs."""
    return Torch(
        root=SITE,
        version=version,
        cuda=cuda,
        major=int(cuda.split(".")[0]) if cuda else None,
        library=SITE / "torch/lib/libc10_cuda.so" if library else None,
        library_major=library,
        problem=problem,
        accelerator=accelerator,
    )


CPU = torch(None)


def driver(version):
    """Return a driver for CUDA up to this version, such as 12080."""
    return Driver(path=Path("/d/libcuda.so.1"), version=version)


def trial(candidate, verdict, message="what came of it"):
    """Return the outcome of loading a candidate."""
    status = Status.LOADABLE if verdict is Verdict.OK else Status.MISSING_DEPENDENCY
    return LoadReport(
        path=candidate.path, mode=Mode.DLOPEN, verdict=verdict, status=status, message=message
    )


def facts(candidates=WHEEL, **known):
    """Return the facts about a package with these builds."""
    return Facts(package="package", stem=STEM, searched=(SITE,), candidates=candidates, **known)


def decided(known):
    """Return what counts of a decision: the build, the source, the number of warnings."""
    decision = decide(known)
    return decision.candidate, decision.source, len(decision.warnings)


def refusal(known):
    """Return the error in place of a decision."""
    with pytest.raises(NoVariantError) as caught:
        decide(known)
    return caught.value


# What each source says where it alone speaks, and where it speaks for CUDA 12 or 13.
SAYS = {
    Source.OVERRIDE: lambda major: {"override": (major, f"cuda={major}")},
    Source.RESOLVER: lambda major: {"resolved": {12: PLAIN, 13: CU13}[major]},
    Source.TORCH_RUNTIME: lambda major: {
        "torch": torch(None, problem="odd", library=99),
        "torch_runtime": runtime(major, origin=Origin.TORCH),
    },
    Source.TORCH_METADATA: lambda major: {"torch": torch(f"{major}.4")},
    Source.FOUND_RUNTIME: lambda major: {"loader_runtimes": (runtime(major),)},
}
BUILD = {12: CU12, 13: CU13}


def merged(first, second):
    """Return facts in which both speak; two kinds of torch become one."""
    both = {**second, **first}
    if "torch" in first and "torch" in second:
        both["torch"] = replace(first["torch"], cuda=second["torch"].cuda)
        both["torch"] = replace(both["torch"], major=second["torch"].major, problem=None)
    return both


# --- the sources


@pytest.mark.parametrize("major", [12, 13])
@pytest.mark.parametrize("source", SAYS, ids=lambda source: source.name.lower())
def test_source_alone_decides(source, major):
    """Each source leads to the build of its major, and the package's resolver to its very file."""
    known = facts(**SAYS[source](major))
    expected = known.resolved or BUILD[major]
    assert decided(known) == (expected, source, 0)


@pytest.mark.parametrize(
    ("strong", "weak"),
    [(a, b) for i, a in enumerate(SAYS) for b in list(SAYS)[i + 1 :]],
    ids=lambda source: source.name.lower(),
)
def test_stronger_of_two_sources_decides(strong, weak):
    """The first is followed; of a mere runtime that says otherwise there is no warning."""
    known = facts(**merged(SAYS[strong](12), SAYS[weak](13)))
    expected = known.resolved if strong is Source.RESOLVER else CU12
    warned = weak is not Source.FOUND_RUNTIME
    assert decided(known) == (expected, strong, int(warned))
    if warned:
        [warning] = decide(known).warnings
        assert f"{strong.value} says CUDA 12" in warning
        assert f"{weak.value} says CUDA 13" in warning
        assert ": the first was followed" in warning


@pytest.mark.parametrize(
    ("strong", "weak"),
    [(a, b) for i, a in enumerate(SAYS) for b in list(SAYS)[i + 1 :]],
    ids=lambda source: source.name.lower(),
)
def test_sources_that_agree_are_not_warned_of(strong, weak):
    """Agreement is recorded as evidence and needs no word."""
    known = facts(**merged(SAYS[strong](13), SAYS[weak](13)))
    assert decided(known) == (CU13, strong, 0)
    assert {e.source for e in decide(known).evidence if e.major == 13} == {strong, weak}


def test_every_source_is_recorded_in_order():
    """All that was said stands in the evidence, strongest first, and the one followed is marked."""
    known = facts(
        override=(13, "PYRESOLVE_CUDA=13"),
        resolved=PLAIN,
        torch=torch("12.8", library=12),
        torch_runtime=runtime(12, version=12080),
        loader_runtimes=(runtime(13, version=13000),),
    )
    evidence = decide(known).evidence
    assert [(e.source, e.major, e.decided) for e in evidence] == [
        (Source.OVERRIDE, 13, True),
        (Source.RESOLVER, 12, False),
        (Source.TORCH_RUNTIME, 12, False),
        (Source.TORCH_METADATA, 12, False),
        (Source.FOUND_RUNTIME, 13, False),
    ]
    assert [e.text for e in evidence] == [
        "PYRESOLVE_CUDA=13",
        "package chose /site/hook.abi3.so",
        "/site/torch/lib/libc10_cuda.so maps /r/libcudart.so.12",
        "torch 2.9.1 in /site is built for CUDA 12.8",
        "the loader finds /r/libcudart.so.13 (CUDA 13.0)",
    ]
    assert len(decide(known).warnings) == 3


def test_torch_library_that_does_not_load_still_names_its_major():
    """On a host that lacks the runtime the major which torch's library needs decides."""
    known = facts(torch=torch("12.8", library=13), torch_problem="no libcudart.so.13")
    assert decided(known) == (CU13, Source.TORCH_RUNTIME, 1)
    assert decide(known).evidence[0].text == (
        "/site/torch/lib/libc10_cuda.so needs the runtime of CUDA 13 and does not load here"
        " (no libcudart.so.13)"
    )


def test_torch_library_without_a_runtime_is_silent():
    """A library that links no runtime, or a static one, leaves the answer to the metadata."""
    odd = replace(torch("13.0", library=13), library_major=None)
    assert decided(facts(torch=odd)) == (CU13, Source.TORCH_METADATA, 0)


def test_torch_metadata_that_says_nothing_falls_through_with_its_reason():
    """What could not be read stands in the evidence, and the next source decides."""
    odd = torch(None, problem="version.py is not Python")
    known = facts(torch=odd, loader_runtimes=(runtime(13),))
    assert decided(known) == (CU13, Source.FOUND_RUNTIME, 0)
    assert "version.py is not Python" in [e.text for e in decide(known).evidence]


def test_absent_torch_is_recorded():
    """That there is no torch is evidence, too."""
    [missing, _] = decide(facts(loader_runtimes=(runtime(13),))).evidence
    assert (missing.source, missing.text) == (Source.TORCH_METADATA, "torch is not installed")


def test_cpu_build_of_torch_is_warned_of():
    """A CPU torch does not say that there is no GPU; the runtime that was found is named."""
    known = facts(torch=CPU, loader_runtimes=(runtime(13, version=13000),))
    decision = decide(known)
    assert (decision.candidate, decision.source) == (CU13, Source.FOUND_RUNTIME)
    assert any("is a CPU build" in warning for warning in decision.warnings)
    texts = " ".join(e.text for e in decision.evidence)
    assert "torch 2.9.1 in /site is a CPU build" in texts
    assert "/r/libcudart.so.13 (CUDA 13.0)" in texts


@pytest.mark.parametrize(
    "said",
    [
        {"torch": torch("13.0")},
        {"torch": torch("12.8", library=13)},
        {"torch": torch("13.0", library=13), "torch_runtime": runtime(13)},
    ],
    ids=["metadata", "needed", "runtime"],
)
def test_r03_resolver_that_does_not_look_at_torch(said):
    """R03: a resolver that names the one build there is does not make it fit torch's CUDA."""
    error = refusal(facts(OLD_WHEEL, resolved=PLAIN, **said))
    assert (error.major, error.found) == (13, (PLAIN.path,))
    with_build = facts((*OLD_WHEEL, CU13), resolved=PLAIN, **said)
    assert decided(with_build)[:2] == (PLAIN, Source.RESOLVER)
    assert decide(with_build).warnings != ()
    no_torch = facts(OLD_WHEEL, resolved=PLAIN, loader_runtimes=(runtime(13),))
    assert decided(no_torch) == (PLAIN, Source.RESOLVER, 0)


@pytest.mark.parametrize("resolved", [build(None), build(None, place=Path("/elsewhere"))])
def test_resolver_decides_whatever_its_file_links(resolved):
    """The resolver names a file, not a major: one that links no runtime is an answer as well."""
    known = facts(resolved=resolved, torch=torch("13.0"))
    assert decided(known)[:2] == (resolved, Source.RESOLVER)


def test_resolver_decides_where_no_build_was_found():
    """The package may keep its hooks where only its own resolver knows."""
    resolved = build(13, place=Path("/elsewhere"))
    assert decided(facts((), resolved=resolved))[:2] == (resolved, Source.RESOLVER)


# --- found runtimes


@pytest.mark.parametrize(
    ("majors", "version", "expected"),
    [
        ((12,), None, 12),
        ((13,), None, 13),
        ((12, 13), 13000, 13),
        ((12, 13), 12080, 12),
        ((13, 12), 12080, 12),
        ((12, 13), 14020, 13),
        ((13,), 12080, 13),
        ((12, 13), 11080, 13),
    ],
)
@pytest.mark.parametrize("known_as", ["loader_runtimes", "installed"])
def test_driver_limits_the_found_runtimes(majors, version, expected, known_as):
    """The highest major that the driver supports; where it supports none that is said."""
    runtimes = tuple(runtime(major) for major in majors)
    known = facts(**{known_as: runtimes}, driver=driver(version) if version else Driver())
    decision = decide(known)
    assert (decision.candidate, decision.source) == (BUILD[expected], Source.FOUND_RUNTIME)
    too_new = version is not None and version // 1000 < expected
    assert [f"supports CUDA up to {version // 1000}." in w for w in decision.warnings] == (
        [True] if too_new else []
    )


def test_several_runtimes_without_a_driver_are_a_guess():
    """Nothing says which of them the workers use: the highest, and a warning how to be sure."""
    known = facts(loader_runtimes=(runtime(12), runtime(13)))
    assert decided(known) == (CU13, Source.FOUND_RUNTIME, 1)
    [warning] = decide(known).warnings
    assert "CUDA 13 is a guess" in warning
    assert "12, 13" in warning
    assert "PYRESOLVE_CUDA" in warning


def test_what_the_loader_finds_counts_before_what_lies_on_disk():
    """A runtime out of the loader's reach is evidence only where the loader finds none."""
    known = facts(loader_runtimes=(runtime(12),), installed=(runtime(13, directory="/p"),))
    assert decided(known) == (CU12, Source.FOUND_RUNTIME, 0)
    assert decided(replace(known, loader_runtimes=())) == (CU13, Source.FOUND_RUNTIME, 0)


def test_runtimes_are_listed_with_their_owners():
    """R09: both runtimes, and the distributions that brought them, stand in the evidence."""
    known = facts(
        torch=torch("12.9"),
        installed=(
            runtime(12, directory="/p/12", distribution="nvidia-cuda-runtime-cu12 12.9.79"),
            runtime(13, directory="/p/13", distribution="nvidia-cuda-runtime 13.3.29"),
        ),
    )
    decision = decide(known)
    assert (decision.candidate, decision.source) == (CU12, Source.TORCH_METADATA)
    assert decision.evidence[-1].text == (
        "out of the loader's reach, but installed are /p/12/libcudart.so.12 (CUDA 12, "
        "nvidia-cuda-runtime-cu12 12.9.79), /p/13/libcudart.so.13 (CUDA 13, "
        "nvidia-cuda-runtime 13.3.29)"
    )


def test_of_several_runtimes_one_with_a_build_is_preferred():
    """Where nothing decides between runtimes, one that the package has a build for is the guess."""
    known = facts(OLD_WHEEL, loader_runtimes=(runtime(12), runtime(13)))
    assert decided(known)[:2] == (PLAIN, Source.FOUND_RUNTIME)


# --- the build of a major


@pytest.mark.parametrize(
    ("candidates", "major", "expected"),
    [
        (WHEEL, 12, CU12),
        (WHEEL, 13, CU13),
        ((CU13, CU12, PLAIN), 12, CU12),
        (OLD_WHEEL, 12, PLAIN),
        ((build(13), CU12, CU13), 13, CU13),
        ((build(13), CU12), 13, build(13)),
        ((build(12, 13), CU12), 12, CU12),
        ((build(13, 12), build(12, 13)), 13, build(13, 12)),
        ((build(None, 14), CU13), 13, CU13),
        ((build(14, 14), CU13), 14, build(14, 14)),
        ((build(27, 27), build(14, 14), CU13), 27, build(27, 27)),
        ((build(27), build(14, 14)), 27, build(27)),
        ((build(12, place=Path("/a")), CU12, CU13), 12, build(12, place=Path("/a"))),
    ],
)
def test_build_of_a_major(candidates, major, expected):
    """What a build links counts; of several in one place the one that says so in its name."""
    assert decided(facts(candidates, torch=torch(f"{major}.1")))[0] == expected


@pytest.mark.parametrize("major", [14, 27, 130])
def test_major_that_is_not_yet_born(major):
    """No list of majors anywhere: each source knows any."""
    future = build(major, major)
    for said in (
        {"override": (major, f"cuda={major}")},
        {"resolved": future},
        {"torch": torch("1", library=major)},
        {"torch": torch(f"{major}.0")},
        {"loader_runtimes": (runtime(major), runtime(13))},
        {"installed": (runtime(major),), "driver": driver(major * 1000 + 20)},
    ):
        assert decide(facts((*WHEEL, future), **said)).candidate == future


def test_name_that_lies_is_warned_of():
    """A file named for one major that links another is taken for what it links."""
    liar = build(13, 12)
    decision = decide(facts((liar,), torch=torch("13.0")))
    assert decision.candidate == liar
    assert decision.warnings == (
        "/site/hook_cu12.abi3.so is named for CUDA 12 and links the runtime of CUDA 13: what it"
        " links counts",
    )


def test_broken_candidate_is_passed_over():
    """A damaged build is none, also where its name is right."""
    broken = build(None, 13, problem="/site/hook_cu13.abi3.so is empty (0 bytes)")
    sound = build(13, place=Path("/other"))
    assert decide(facts((broken, CU12, sound), torch=torch("13.0"))).candidate == sound


# --- no variant


@pytest.mark.parametrize(
    "said",
    [
        {"override": (13, "PYRESOLVE_CUDA=13")},
        {"torch": torch("13.0", library=13), "torch_runtime": runtime(13)},
        {"torch": torch("13.0", library=13)},
        {"torch": torch("13.0")},
        {"loader_runtimes": (runtime(13),)},
        {"installed": (runtime(13),)},
    ],
    ids=["override", "torch's runtime", "torch's needed", "metadata", "loader", "on disk"],
)
def test_major_without_a_build(said):
    """R03: never another major's build; what is wanted, what is there, and what would bring it."""
    error = refusal(facts(OLD_WHEEL, package_version="0.0.9", **said))
    assert (error.searched, error.found, error.major) == ((SITE,), (PLAIN.path,), 13)
    assert error.remedy == "pip install --upgrade --force-reinstall --no-deps package"
    text = str(error)
    assert "use CUDA 13 (" in text
    assert "package 0.0.9 has no build for it, only /site/hook.abi3.so (CUDA 12)" in text
    assert "install a version that ships a build for CUDA 13" in text


def test_major_whose_build_is_broken():
    """The damage of the build that would fit is named, and mended by installing it anew."""
    problem = "/site/hook_cu13.abi3.so is empty (0 bytes)"
    broken = build(None, 13, problem=problem)
    error = refusal(facts((CU12, broken), torch=torch("13.0")))
    assert (error.major, problem in str(error)) == (13, True)
    assert "--force-reinstall" in (error.remedy or "")


def test_package_missing():
    """A package that is nowhere: where it was looked for, and how to install it."""
    error = refusal(facts((), package_found=False, torch=torch("13.0")))
    assert (error.searched, error.found, error.major) == ((SITE,), (), None)
    assert error.remedy == "pip install package"
    assert str(error) == (
        "package is not installed: it is in none of /site; install it into the workers'"
        " environment (pip install package)"
    )


def test_package_without_hooks():
    """R15: a package that was built without CUDA is there, its hooks are not."""
    error = refusal(facts((), package_version="0.0.10", torch=torch("13.0")))
    assert (error.searched, error.found, error.major) == ((SITE,), (), None)
    assert "package 0.0.10 is installed without native hooks: no hook*.so in /site" in str(error)
    assert error.remedy.startswith("pip install --force-reinstall")


def test_every_build_broken():
    """Each damage is named."""
    problems = ["/site/a is empty (0 bytes)", "/site/b is built for aarch64"]
    broken = (build(None, problem=problems[0]), build(None, 13, problem=problems[1]))
    error = refusal(facts(broken, torch=torch("13.0")))
    assert (error.found, error.major) == (tuple(c.path for c in broken), None)
    assert [problem in str(error) for problem in problems] == [True, True]
    assert error.remedy.startswith("pip install --force-reinstall")


# --- not CUDA


@pytest.mark.parametrize(
    "accelerator", ["ROCm 6.2", "Intel XPU 20250101", "Ascend NPU (torch_npu)"]
)
@pytest.mark.parametrize("candidates", [WHEEL, ()])
def test_r05_torch_for_another_accelerator(accelerator, candidates):
    """There a hook has no work: a class of its own, whatever is installed beside it."""
    other = torch(None, accelerator=accelerator)
    with pytest.raises(NotCudaError) as caught:
        decide(facts(candidates, torch=other, loader_runtimes=(runtime(13),)))
    assert caught.value.accelerator == accelerator
    assert accelerator in str(caught.value)


@pytest.mark.parametrize(
    ("said", "expected"), [({"override": (12, "cuda=12")}, CU12), ({"forced": CU13}, CU13)]
)
def test_override_beats_another_accelerator(said, expected):
    """Who lays a build down for such a torch gets it."""
    known = facts(torch=torch(None, accelerator="ROCm 6.2"), **said)
    assert decided(known)[:2] == (expected, Source.OVERRIDE)


# --- the override


def test_forced_file_wins_over_everything():
    """A path that the user gave is used, also where the package has no build at all."""
    forced = build(12, place=Path("/mine"))
    for candidates in (WHEEL, ()):
        decision = decide(facts(candidates, forced=forced, override=(13, "cuda=13")))
        assert (decision.candidate, decision.source) == (forced, Source.OVERRIDE)
        assert decision.evidence[0].text == "PYRESOLVE_PRELOAD=/mine/hook.abi3.so"


def test_forced_file_that_contradicts_torch_is_warned_of():
    """The override wins and torch's word is still recorded, as with an override of the major."""
    known = facts(forced=CU12, torch=torch("13.0"))
    decision = decide(known)
    assert (decision.candidate, decision.source) == (CU12, Source.OVERRIDE)
    assert any("CUDA 13" in warning for warning in decision.warnings)
    assert Source.TORCH_METADATA in {e.source for e in decision.evidence}


# --- the last resorts


def test_builds_are_loaded_only_if_nothing_else_can_tell():
    """A major that files name makes the loads of the builds unnecessary."""
    assert [True, True, True] == [
        _depends_on_trials(known)
        for known in (
            facts(),
            facts(torch=CPU),
            facts(torch=torch(None, problem="odd")),
        )
    ]
    assert not any(
        _depends_on_trials(known)
        for known in (
            facts(override=(12, "cuda=12")),
            facts(forced=CU12),
            facts(resolved=CU12),
            facts(torch=torch("13.0")),
            facts(installed=(runtime(12),)),
        )
    )


@pytest.mark.parametrize("verdict", [Verdict.OK, Verdict.UNKNOWN])
@pytest.mark.parametrize(
    ("loadable", "expected"),
    [((CU12,), CU12), ((CU13,), CU13), ((PLAIN, CU12), CU12), ((PLAIN,), PLAIN)],
)
def test_loadability(loadable, expected, verdict):
    """The builds of one major alone load: that is the major."""
    trials = tuple(trial(c, verdict if c in loadable else Verdict.FAIL) for c in WHEEL)
    assert decided(facts(trials=trials)) == (expected, Source.LOADABILITY, 0)


def test_loadability_of_a_build_that_links_no_runtime():
    """Where a build names no CUDA at all, that it loads is all there is to say."""
    only = build(None)
    decision = decide(facts((only,), trials=(trial(only, Verdict.OK),)))
    assert (decision.candidate, decision.source) == (only, Source.LOADABILITY)
    assert decision.evidence[-1].text == "/site/hook.abi3.so loads"


@pytest.mark.parametrize("verdict", [Verdict.OK, Verdict.FAIL])
@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        (WHEEL, PLAIN),
        ((CU13, CU12, PLAIN), PLAIN),
        ((CU13, CU12), CU12),
        ((build(14, 14), CU13), CU13),
        ((build(9, 9), build(10, 10)), build(9, 9)),
    ],
)
def test_existence(candidates, expected, verdict):
    """None or several majors load: the unsuffixed build, then the lowest, and a reason."""
    trials = tuple(trial(c, verdict, f"{c.path} came out {verdict.value}") for c in candidates)
    decision = decide(facts(candidates, trials=trials))
    assert (decision.candidate, decision.source) == (expected, Source.EXISTENCE)
    [warning] = decision.warnings
    assert f"{expected.path} was chosen only because it is there" in warning
    assert all(report.message in warning for report in trials)
    assert [e.source for e in decision.evidence[-2:]] == [Source.LOADABILITY, Source.EXISTENCE]


def test_existence_passes_over_broken_builds():
    """A damaged file is not there, as far as this goes."""
    broken = build(None, problem="empty")
    known = facts((broken, CU13), trials=(trial(CU13, Verdict.FAIL),))
    assert decide(known).candidate == CU13


# --- what holds for all

MAJORS = st.integers(11, 15)
PLACES = st.sampled_from([Path("/a"), Path("/b")])


@st.composite
def builds(draw):
    """Draw a build in one of two places, sound or not, whose name may lie."""
    if draw(st.booleans()):
        return build(None, draw(st.none() | MAJORS), place=draw(PLACES), problem="it is broken")
    return build(draw(MAJORS), draw(st.none() | MAJORS), place=draw(PLACES))


RUNTIMES = st.lists(MAJORS.map(runtime), max_size=2).map(tuple)


@st.composite
def torches(draw):
    """Draw a torch of any kind but for another accelerator."""
    major, library = draw(st.none() | MAJORS), draw(st.none() | MAJORS)
    problem = draw(st.sampled_from([None, "version.py is odd"])) if major is None else None
    return torch(major and f"{major}.{draw(st.integers(0, 9))}", library=library, problem=problem)


@st.composite
def worlds(draw):
    """Draw facts of any kind, trials included."""
    candidates = tuple(
        {c.path: c for c in draw(st.lists(builds(), min_size=1, max_size=5))}.values()
    )
    found = draw(st.none() | torches())
    usable = [c for c in candidates if not c.problem]
    library = found and found.library
    return facts(
        candidates,
        torch=found,
        override=draw(st.none() | MAJORS.map(lambda major: (major, f"cuda={major}"))),
        resolved=draw(st.none() | st.sampled_from(usable)) if usable else None,
        torch_runtime=draw(st.none() | MAJORS.map(runtime)) if library else None,
        loader_runtimes=draw(RUNTIMES),
        installed=draw(RUNTIMES),
        driver=draw(st.just(Driver()) | st.integers(11, 15).map(lambda n: driver(n * 1000))),
        trials=tuple(
            trial(c, draw(st.sampled_from(list(Verdict))), f"trial of {c.path}") for c in usable
        ),
    )


def outcome(known):
    """Return the decision, and in its place the error with all that it carries."""
    try:
        return decide(known), None
    except NoVariantError as error:
        return None, (str(error), error.major, error.found, error.searched, error.remedy)


def answer(known):
    """Return the build and the source that was followed, None for an error."""
    decision, _ = outcome(known)
    return decision and (decision.candidate, decision.source)


@given(worlds())
def test_decision_is_deterministic(known):
    """The same facts, the same answer, to the letter."""
    assert outcome(known) == outcome(known)


@given(worlds())
def test_never_another_majors_build(known):
    """The build links the major that the source which decided names, and it is a usable one."""
    decision, refused = outcome(known)
    if decision:
        [followed] = [e for e in decision.evidence if e.decided]
        assert followed.source is decision.source
        assert followed.major == decision.candidate.major
        assert decision.candidate in known.candidates
        assert decision.candidate.problem is None
    else:
        _, major, found, _, _ = refused
        fitting = [c for c in known.candidates if not c.problem and c.major == major]
        assert (fitting, major is None) == ([], all(c.problem for c in known.candidates))
        assert found


@given(worlds())
def test_evidence_is_in_order_and_once(known):
    """Each source speaks once, strongest first, and none before the one followed names a major."""
    decision, _ = outcome(known)
    assume(decision)
    order = list(Source)
    ranks = [order.index(e.source) for e in decision.evidence]
    assert ranks == sorted(set(ranks))
    decisive = next(i for i, e in enumerate(decision.evidence) if e.decided)
    assert all(e.major is None for e in decision.evidence[:decisive])


@given(worlds(), worlds())
def test_weaker_source_never_changes_the_answer(known, other):
    """Once a source decides, nothing that stands behind it matters."""
    before = answer(known)
    assume(before)
    rank = list(Source).index
    followed = rank(before[1])
    changed = {}
    if followed < rank(Source.RESOLVER):  # which a torch without a build may still refuse
        changed |= {name: getattr(other, name) for name in ("resolved", "torch", "torch_runtime")}
    elif followed == rank(Source.TORCH_RUNTIME) and other.torch:
        said = {name: getattr(other.torch, name) for name in ("cuda", "major", "problem")}
        changed["torch"] = replace(known.torch, **said)
    if followed < rank(Source.FOUND_RUNTIME):
        names = "loader_runtimes", "installed", "driver"
        changed |= {name: getattr(other, name) for name in names}
    if followed < rank(Source.LOADABILITY):
        changed["trials"] = other.trials
    assert answer(replace(known, **changed)) == before


@given(worlds(), st.randoms())
def test_order_of_runtimes_does_not_matter(known, random):
    """Which runtime the loader or a directory listed first is chance."""
    shuffled = list(known.loader_runtimes)
    random.shuffle(shuffled)
    assert answer(replace(known, loader_runtimes=tuple(shuffled))) == answer(known)
