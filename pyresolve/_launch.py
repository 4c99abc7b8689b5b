"""The environment that a hook needs: tried as a whole, then returned."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import _check, _elf, _runtime, _variants
from ._environ import (
    LIBRARY_PATH,
    PRELOAD,
    delta,
    has_empty_element,
    parse_library_path,
    parse_preload,
)
from ._errors import UnrepresentablePathError
from ._files import same_file
from ._types import LoadReport, Pin, Status, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ._probe import Deadline
    from ._types import Runtime

_TMS = "torch_memory_saver"
_LISTS_SINCE = (0, 0, 10)  # torch_memory_saver before that takes LD_PRELOAD for one path


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A change of the environment, and how the rehearsal in the changed one came out."""

    change: dict[str, str]
    report: LoadReport
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """The file to preload with what its environment depends on.

    `torchs` is the libcudart that torch maps, None where that is not known, `loaders` the one that
    the loader finds by name; `others` are those on disk of the hook's major. `has_search_path` says
    that the hook has an RPATH or RUNPATH, `package` and `version` whose it is, `driver_absent` that
    the rehearsal needs the stub, `driver_directory` where the loader must be told to look for it.
    """

    path: str
    major: int | None
    package: str
    version: str | None
    same_stem: Callable[[str], bool]
    torchs: Runtime | None
    loaders: Runtime | None
    others: tuple[Runtime, ...]
    has_search_path: bool
    driver_absent: bool
    driver_directory: Path | None


def plan(hook: Hook, *, environ: Mapping[str, str], pin: Pin, deadline: Deadline) -> Launch:
    """Return the smallest change of `environ` with which `hook` works, as far as one does.

    The hook is loaded before torch's RPATH is read, so that the environment decides which libcudart
    the process gets. Where that is not torch's, torch's is pinned, by the narrowest way that is
    seen to work. Raises UnrepresentablePathError where no way can be written down.
    """
    pinned = hook.torchs or next(iter(hook.others), None)
    if pin in (Pin.LIBRARY_PATH, Pin.PRELOAD) and pinned:
        return _attempt(hook, environ, deadline, pin=pin, runtime=pinned, expected=pinned.path)
    expected = hook.torchs.path if hook.torchs and pin is Pin.AUTO else None
    if pin is not Pin.AUTO or not pinned or not _must_pin(hook, environ):
        bare = _attempt(hook, environ, deadline, pin=Pin.NONE, expected=expected)
        if pin is not Pin.AUTO or not pinned or not _wants_runtime(bare.report, pinned):
            return bare
    tried: list[Launch] = []
    refused: UnrepresentablePathError | None = None
    for way in _ways(hook, pinned):
        try:
            launch = _attempt(
                hook, environ, deadline, pin=way, runtime=pinned, expected=pinned.path
            )
        except UnrepresentablePathError as error:
            refused = error
            continue
        if launch.report.verdict is not Verdict.FAIL:
            return launch
        tried.append(launch)
    if refused and not tried:
        raise refused
    return tried[0]


def _must_pin(hook: Hook, environ: Mapping[str, str]) -> bool:
    """Tell whether it is known without a rehearsal that the hook alone would map another runtime.

    So it is where neither the hook's own search path nor a preload has a say.
    """
    if hook.torchs is None or hook.has_search_path or parse_preload(environ.get(PRELOAD)):
        return False
    if _relative_elements(environ):
        return True  # what is found here says nothing about a worker that starts elsewhere
    return hook.loaders is None or not same_file(hook.loaders.path, hook.torchs.path)


def _wants_runtime(report: LoadReport, runtime: Runtime) -> bool:
    if report.status is Status.WRONG_RUNTIME:
        return True
    names = {missing.name for missing in report.missing}
    return report.status is Status.MISSING_DEPENDENCY and runtime.path.name in names


def _ways(hook: Hook, runtime: Runtime) -> Iterator[Pin]:
    narrow = _runtime.only_runtime(runtime.path.parent)
    if narrow:
        yield Pin.LIBRARY_PATH
    if _reads_lists(hook) and hook.package not in os.fspath(runtime.path):
        yield Pin.PRELOAD
    if not narrow:
        yield Pin.LIBRARY_PATH


def _reads_lists(hook: Hook) -> bool:
    if hook.package != _TMS or hook.version is None:
        return True
    numbers = tuple(int(part) for part in hook.version.split(".") if part.isdecimal())
    return numbers >= _LISTS_SINCE


def _attempt(
    hook: Hook,
    environ: Mapping[str, str],
    deadline: Deadline,
    *,
    pin: Pin,
    runtime: Runtime | None = None,
    expected: Path | None = None,
) -> Launch:
    path = os.fspath(runtime.path) if runtime else ""
    directories = [os.path.dirname(path)] if pin is Pin.LIBRARY_PATH else []  # noqa: PTH120
    if hook.driver_directory:
        directories.append(os.fspath(hook.driver_directory))
    change = delta(
        environ,
        hook=hook.path,
        preload=[path] if pin is Pin.PRELOAD else [],
        library_path=directories,
        same_stem=hook.same_stem,
    )
    final = {**environ, **change}
    report = _check.rehearse(
        hook.path,
        environ=final,
        deadline=deadline,
        expected=expected,
        driver_absent=hook.driver_absent,
    )
    notes = [*_notes(hook, final), *(_conda_note(directories[0]) if directories else ())]
    return Launch(change=change, report=report, notes=tuple(notes))


def _relative_elements(environ: Mapping[str, str]) -> list[str]:
    elements = parse_library_path(environ.get(LIBRARY_PATH))
    return [element for element in elements if element and element[0] not in "/$"]


def _conda_note(directory: str) -> Iterator[str]:
    prefix = next((p for p in Path(directory).parents if (p / "conda-meta").is_dir()), None)
    if prefix:
        yield (
            f"{LIBRARY_PATH} begins with {directory}, which holds all libraries of a conda"
            " prefix: system programs that a worker starts may break on them;"
            " torch_memory_saver 0.0.10 or newer can do without"
        )


def _notes(hook: Hook, environ: Mapping[str, str]) -> Iterator[str]:
    preloads = parse_preload(environ[PRELOAD])
    for element in preloads[1:]:
        plain = "/" in element and "$" not in element  # a token is the loader's to expand
        if plain and (diagnosis := _elf.diagnose(_elf.read(element))):
            yield f"the loader ignores a preload that was there before: {diagnosis.message}"
        major = _variants.runtime_major(os.path.basename(element))  # noqa: PTH119
        if major is not None and hook.major is not None and major != hook.major:
            yield (
                f"{PRELOAD} held {element} before, a runtime of CUDA {major} beside the hook's of"
                f" CUDA {hook.major}: two runtimes will be in every worker; take it out"
            )
    if hook.package == _TMS and _reads_lists(hook):
        named = [item for item in preloads if _TMS in item]
        if len(named) != 1:
            yield (
                f"{hook.package} wants exactly one element of {PRELOAD} that contains {_TMS!r} and"
                f" finds {len(named)} ({', '.join(named)}): move the others to another directory"
            )
    elif len(preloads) > 1 and not _reads_lists(hook):
        yield (
            f"{hook.package} {hook.version} takes the whole of {PRELOAD} for one path and will not"
            f" find itself among {len(preloads)}: install 0.0.10 or newer, or start the workers"
            " without the other preloads"
        )
    for element in _relative_elements(environ):
        yield (
            f"{LIBRARY_PATH} has the relative element {element}: it means another directory"
            " wherever a worker starts; write it in full"
        )
    if has_empty_element(environ):
        yield (
            f"{LIBRARY_PATH} has an empty element: libraries are also searched in whatever"
            " directory a worker starts in; take it out"
        )
