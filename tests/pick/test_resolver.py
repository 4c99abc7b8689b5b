"""The package's own resolver: asked only when told to, believed where it answers, never masked."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.layout import PRELOAD_STEM
from support.process import cold
from support.wheels import TMS_VERSIONS

from pyresolve._errors import ResolverError
from pyresolve._pick.resolver import Ask, ask

STEM = "hook"
RESOLVER = "def get_binary_path_from_package(stem):\n"

_numbers = itertools.count()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return the function that installs a package with these modules and returns its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(**modules):
        name = f"resolved_package_{next(_numbers)}"
        (tmp_path / name).mkdir()
        for module, text in {"__init__": "", **modules}.items():
            (tmp_path / name / f"{module}.py").write_text(text)
        return name

    yield install
    for module in [module for module in sys.modules if module.startswith("resolved_package_")]:
        del sys.modules[module]


@pytest.fixture
def imported_torch(monkeypatch):
    """Return the function that makes a torch of this kind an imported one."""

    def put(torch):
        monkeypatch.setitem(sys.modules, "torch", torch)

    return put


# --- the answer


@pytest.mark.parametrize("answer", ["'/site/hook_cu13.so'", "__import__('pathlib').Path('/a')"])
def test_answer_is_a_path(package, answer):
    """A text or a path, as the package gives it."""
    name = package(utils=f"{RESOLVER}    return {answer}\n")
    assert ask(name, STEM, Ask.ALWAYS) == Path(eval(answer))


def test_relative_answer_becomes_absolute(package, tmp_path, monkeypatch):
    """It is relative to the directory of the process that was asked, which the workers' is not."""
    monkeypatch.chdir(tmp_path)
    name = package(utils=f"{RESOLVER}    return 'lib/hook.so'\n")
    assert ask(name, STEM, Ask.ALWAYS) == tmp_path / "lib/hook.so"


def test_stem_is_passed_on(package):
    """The function is asked for the very hook that is wanted."""
    name = package(utils=f"{RESOLVER}    return '/site/' + stem\n")
    assert ask(name, STEM, Ask.ALWAYS) == Path("/site/hook")


@pytest.mark.parametrize(
    "modules",
    [
        {},
        {"utils": ""},
        {"utils": "get_other_path = print\n"},
        {"utils": "import a_package_that_nobody_has\n"},
        {"__init__": "import a_package_that_nobody_has\n", "utils": RESOLVER + "    return '/'\n"},
        {"utils": "raise ImportError('libcudart.so.12: cannot open shared object file')\n"},
    ],
    ids=["no utils", "no function", "other names", "utils", "package", "library"],
)
def test_absent_resolver_is_no_answer(package, modules):
    """Only a missing resolver falls back: ImportError, or no such function."""
    assert ask(package(**modules), STEM, Ask.ALWAYS) is None


def test_absent_package_is_no_answer():
    """A package that is not installed resolves nothing."""
    assert ask("a_package_that_nobody_has", STEM, Ask.ALWAYS) is None


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("raise RuntimeError('no CUDA runtime')", RuntimeError),
        ("assert False, 'expected exactly one'", AssertionError),
        ("import a_package_that_nobody_has", ImportError),
        ("raise OSError(2, 'gone')", OSError),
        ("return 1 / 0", ZeroDivisionError),
        ("return None", TypeError),
        ("return 13", TypeError),
    ],
)
def test_resolver_that_raises_is_not_masked(package, body, kind):
    """Its reason is chained, and the text says whose it is and how to go without."""
    name = package(utils=f"{RESOLVER}    {body}\n")
    with pytest.raises(ResolverError) as caught:
        ask(name, STEM, Ask.ALWAYS)
    assert type(caught.value.__cause__) is kind or isinstance(caught.value.__cause__, kind)
    assert f"{name}.utils.get_binary_path_from_package('hook') raised " in str(caught.value)
    assert 'resolver="never"' in str(caught.value)


@pytest.mark.parametrize(
    "modules", [{"__init__": "1 / 0\n", "utils": ""}, {"utils": "1 / 0\n"}, {"utils": "(\n"}]
)
def test_package_that_is_broken_is_not_masked(package, modules):
    """An import that fails otherwise than by ImportError is the package's own failure."""
    name = package(**modules)
    with pytest.raises(ResolverError, match=f"the import of {name}.utils failed") as caught:
        ask(name, STEM, Ask.ALWAYS)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("kind", ["KeyboardInterrupt", "SystemExit"])
def test_interrupt_is_let_through(package, kind):
    """Ctrl-C while the package imports torch is no answer of the resolver."""
    name = package(utils=f"raise {kind}\n")
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        ask(name, STEM, Ask.ALWAYS)


# --- when


CUDA_TORCH = SimpleNamespace(version=SimpleNamespace(cuda="13.0"))
BOMB = "raise AssertionError('imported')\n"


@pytest.mark.parametrize(
    "torch",
    [
        None,
        SimpleNamespace(),
        SimpleNamespace(version=None),
        SimpleNamespace(version=SimpleNamespace()),
        SimpleNamespace(version=SimpleNamespace(cuda=None)),
        SimpleNamespace(version=SimpleNamespace(cuda="", hip="6.2")),
    ],
    ids=["none", "no version", "version None", "no cuda", "CPU", "ROCm"],
)
def test_auto_does_not_ask_where_that_would_load_something(package, imported_torch, torch):
    """Without an imported torch for CUDA the package would import one or open a libcudart."""
    imported_torch(torch)
    assert ask(package(__init__=BOMB, utils=BOMB), STEM, Ask.AUTO) is None


def test_auto_asks_where_torch_is_imported(package, imported_torch):
    """There the question costs nothing."""
    imported_torch(CUDA_TORCH)
    name = package(utils=f"{RESOLVER}    return '/site/hook.so'\n")
    assert ask(name, STEM, Ask.AUTO) == Path("/site/hook.so")


def test_never_does_not_ask(package, imported_torch):
    """Nothing of the package is imported, whatever is imported here."""
    imported_torch(CUDA_TORCH)
    assert ask(package(__init__=BOMB), STEM, Ask.NEVER) is None


# --- the real one

PICK = """
    import json, sys
    import pyresolve
    if sys.argv[1] == "imported":
        import torch
    answers = {}
    for when in sys.argv[2:]:
        try:
            choice = pyresolve.pick(resolver=when)
            sources = {e.source.value: e.major for e in choice.evidence}
            answers[when] = [choice.path.name, choice.source.value, sources]
        except pyresolve.PyresolveError as error:
            answers[when] = [type(error).__name__, str(error), repr(error.__cause__)]
    print(json.dumps(answers))
"""


def importable(site, cuda, version="2.9.1"):
    """Lay out a torch, and the numpy that torch_memory_saver does not declare, to be imported."""
    site.torch(cuda, version).package("numpy", "2.0.0")
    (site / "torch/__init__.py").write_text("from . import version\nclass Tensor: ...\n")
    (site / "numpy/__init__.py").write_text("")
    return site


def picks(site, environ, *when, torch="imported", prefix=()):
    """Return what pick() says in a fresh process, for each way to ask the package."""
    return cold(PICK, torch, *when, env={**environ, "PYTHONPATH": str(site.root)}, prefix=prefix)


@pytest.mark.parametrize("cuda", ["12.6", "12.8", "13.0"])
@pytest.mark.parametrize("version", TMS_VERSIONS[1:])
def test_resolver_agrees_with_torchs_runtime_and_metadata(site, clean_env, version, cuda):
    """The real function, torch's library and torch's metadata name one major, and one file."""
    major = int(cuda.split(".")[0])
    importable(site.tms(version), cuda).cudart(12)
    site.cudart(13)
    answers = picks(site, clean_env, "always", "auto", "never")
    file, _, silent = answers["never"]
    assert file == site.hook(f"_cu{major}").name
    assert answers["always"] == answers["auto"]
    assert answers["auto"] == [file, "package resolver", {**silent, "package resolver": major}]
    assert (silent["torch's runtime"], silent["torch metadata"]) == (major, major)


def test_resolver_of_the_old_wheel_agrees_on_cuda_12(site, clean_env):
    """0.0.9 knows one build, and it is the right one there."""
    importable(site.tms("0.0.9"), "12.8").cudart(12)
    answers = picks(site, clean_env, "always", "never")
    assert [answer[0] for answer in answers.values()] == [site.hook().name] * 2


def test_r03_resolver_of_the_old_wheel_does_not_lead_to_the_wrong_major(site, clean_env):
    """R03: 0.0.9 names its CUDA 12 build whatever torch is; a torch for CUDA 13 has none there."""
    importable(site.tms("0.0.9"), "13.0").cudart(12)
    site.cudart(13)
    answers = picks(site, clean_env, "auto", "never")
    assert [answer[0] for answer in answers.values()] == ["NoVariantError"] * 2


def test_auto_imports_nothing_where_torch_is_not_imported(site, clean_env):
    """The torch and the package of this site raise where they are imported."""
    site.tms().torch("13.0").cudart(13)
    answers = picks(site, clean_env, "auto", "never", torch="not imported")
    assert answers["auto"] == answers["never"]
    assert answers["auto"][:2] == [site.hook("_cu13").name, "torch's runtime"]


def test_always_without_numpy_falls_back(site, clean_env):
    """The package cannot be imported at all: its resolver is absent, the next source decides."""
    importable(site.tms(), "13.0")
    (site / "numpy/__init__.py").write_text("raise ModuleNotFoundError('numpy')")
    site.cudart(13)
    assert picks(site, clean_env, "always")["always"][:2] == [
        site.hook("_cu13").name,
        "torch's runtime",
    ]


def test_real_resolver_that_raises_is_propagated(site, clean_env):
    """A torch for CUDA 14 and no build for it: the package says so, and that is what is shown."""
    importable(site.tms(), "14.0")
    for name, text, cause in picks(site, clean_env, "always", "auto").values():
        assert name == "ResolverError"
        assert f"get_binary_path_from_package('{PRELOAD_STEM}') raised RuntimeError" in text
        assert "detected CUDA major=14" in cause


def test_cpu_torch_is_asked_only_when_told_to(site, clean_env, hidden_toolkit):
    """There the package opens libcudart in this process: `auto` leaves it alone."""
    importable(site.tms(), None).cudart(13)
    answers = picks(site, clean_env, "auto", "always", prefix=hidden_toolkit)
    assert answers["auto"][:2] == [site.hook("_cu13").name, "found runtime"]
    assert answers["always"][0] == "ResolverError"
    assert "could not detect CUDA runtime" in answers["always"][2]
