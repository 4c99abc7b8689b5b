"""More about a failure than one trial shows: where what is missing is, or what shadows it."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .._disk import driver as drivers, elf, fault
from .._disk.cuda import copies, directories, hidden, supplier
from .._disk.elf import printable
from .._disk.files import exists
from .._environ import LIBRARY_PATH, PRELOAD, export_library_path, parse_library_path
from .._model import LoadReport, Missing, Mode, Status, Verdict
from .._names import DRIVER_SONAME
from .._process import helper
from . import shadow
from .report import with_broken_file
from .trace import trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .._disk.site import Site
    from .._model import Diagnosis, ElfFacts

    Load = Callable[[Sequence[str]], LoadReport]

_SYSTEM_PLACES = "the loader's cache and default directories"


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Where a library was tried. `load` opens it again after others, None for a preload."""

    environ: Mapping[str, str]
    site: Site
    deadline: helper.Deadline
    load: Load | None = None


def explain(report: LoadReport, where: Circumstances) -> LoadReport:
    """Look for more about a failure than one trial shows; for a report whose status is EXPLAINED.

    All that is missing, where it was searched and where it is; the file that the loader could not
    read; the file that lacks a symbol or a version, and the one that has it.
    """
    target = os.fspath(report.path)
    if report.status in (Status.CRASHED, Status.NOT_LOADABLE):
        broken = _broken_file(target, where.environ) if "/" in target else None
        return with_broken_file(report, broken) if broken else report
    missing, found = _traced(report, target, where)
    if report.status is not Status.MISSING_DEPENDENCY:
        files = [target, *map(os.fspath, report.loaded), *found]
        return shadow.explain(report, files, environ=where.environ, site=where.site)
    users = [elf.read(path) for path in (target, *found)]
    for user in users[1:]:
        if diagnosis := fault.diagnose(user):
            return with_broken_file(report, diagnosis)
    names = missing or [item.name for item in report.missing]
    found_missing = tuple(_missing(name, users, where.environ, where.site) for name in names)
    return _with_missing(report, found_missing, where)


def _traced(
    report: LoadReport, target: str, where: Circumstances
) -> tuple[Sequence[str], Sequence[str]]:
    """Return what the loader does not find, and what it finds."""
    loader = elf.read(helper.HELPER).interpreter
    if not loader or "/" not in target:
        return (), ()
    # Traced as the loader will see it: opened in a process without preloads, or as a preload.
    preload = report.mode is Mode.PRELOAD
    variables = {k: v for k, v in where.environ.items() if preload or k != PRELOAD}
    program = helper.HELPER if preload else target
    return trace(program, loader, environ=variables, deadline=where.deadline)


def _broken_file(target: str, environ: Mapping[str, str]) -> Diagnosis | None:
    """Return what is wrong with a file that `target` needs and the loader would take first."""
    pending, seen = [target], {target}
    while pending:
        user = elf.read(pending.pop())
        if diagnosis := fault.diagnose(user):
            return diagnosis
        places = [place for place in _searched(user, environ) if place != _SYSTEM_PLACES]
        for soname in user.needed:
            paths = (os.path.join(place, soname) for place in places)  # noqa: PTH118
            path = next((path for path in paths if exists(path)), None)
            if path and path not in seen:
                seen.add(path)
                pending.append(path)
    return None


def _missing(
    name: str, users: Sequence[ElfFacts], environ: Mapping[str, str], site: Site
) -> Missing:
    user = next((facts for facts in users if name in facts.needed), None)
    found = copies(name, site, environ)
    if user:
        beside = user.path.parent / name
        found = tuple(dict.fromkeys((*found, *([beside] if exists(beside) else []))))
    broken = {
        path: diagnosis.message for path in found if (diagnosis := fault.diagnose(elf.read(path)))
    }
    places = () if found else (place for place, _ in directories(site, environ))
    unlinked = drivers.unlinked(name, (*drivers.loader_places(environ), *places))
    links = (
        f"{path} is one, to which no link {name} leads: {drivers.missing_link(path, name)}"
        for path in unlinked
    )
    return Missing(
        name=name,
        needed_by=os.fspath(user.path) if user else None,
        searched=_searched(user, environ),
        elsewhere=tuple(path for path in found if path not in broken),
        unusable=(*broken.values(), *links),
        supplier=supplier(name),
    )


def _searched(user: ElfFacts | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return where the loader looks for what `user` needs, in its order (ld.so(8))."""
    elements = parse_library_path(environ.get(LIBRARY_PATH))
    variable = [element or os.curdir for element in elements]
    if user is None:
        return (*variable, _SYSTEM_PLACES)
    rpath, runpath = (elf.expanded(entries, user.path) for entries in (user.rpath, user.runpath))
    return (*rpath, *variable, *runpath, _SYSTEM_PLACES)


def _with_missing(
    report: LoadReport, missing: tuple[Missing, ...], where: Circumstances
) -> LoadReport:
    """Complete the report after all that is missing is known."""
    # If the driver is all that is missing the status is another one.
    wanted = [item for item in missing if item.name != DRIVER_SONAME] or list(missing)
    text = f"{report.path} needs {_names(wanted, report)}, which the loader does not find"
    problems = [problem for item in wanted for problem in item.unusable]
    text += "".join(f"; {problem}" for problem in (*problems, *hidden(where.environ)))
    opened = [item for item in wanted if _is_torchs(item, where.site)] if where.load else []
    if opened:
        return _after_torch(replace(report, missing=missing), text, opened, where)
    lying = [item for item in wanted if item.elsewhere]
    lacking = [item for item in wanted if not item.elsewhere]
    suppliers = [item.supplier for item in lacking if item.supplier]
    remedy = None
    if lying:
        places = dict.fromkeys(str(item.elsewhere[0].parent) for item in lying)
        files = ", ".join(str(item.elsewhere[0]) for item in lying)
        verb = "lies" if len(lying) == 1 else "lie"
        text += f"; {files} {verb} out of its reach: put {':'.join(places)} into LD_LIBRARY_PATH"
        remedy = export_library_path(*places)
    if suppliers:
        remedy = " && ".join(dict.fromkeys(suppliers))
        text += f"; no sound copy was found: {remedy}"
    elif lacking:
        what = f"; {_names(lacking)}" if lying else ""
        brings = "what brings it" if len(lacking) == 1 else "what brings them"
        text += f"{what}: install {brings}, or put its directory into LD_LIBRARY_PATH"
        remedy = None
    return replace(report, missing=missing, message=printable(text), remedy=remedy)


def _names(items: Sequence[Missing], report: LoadReport | None = None) -> str:
    own = (None, str(report.path)) if report else None
    return " and ".join(
        item.name + (f" (for {item.needed_by})" if own and item.needed_by not in own else "")
        for item in items
    )


def _is_torchs(item: Missing, site: Site) -> bool:
    libraries = {package / "lib" for package in site.packages("torch")}
    return any(path.parent in libraries for path in item.elsewhere)


def _after_torch(
    report: LoadReport, text: str, opened: Sequence[Missing], where: Circumstances
) -> LoadReport:
    """Tell what would be said after `import torch`, which opens these libraries first."""
    files = [str(item.elsewhere[0]) for item in opened]
    assert where.load, "only an opened library comes after another"
    rest = where.load(files)
    says = "then it loads" if rest.verdict is Verdict.OK else f"then: {rest.message}"
    text += f"; `import torch` opens {' and '.join(files)} before: {says}"
    after = " ".join(f"--after {shlex.quote(file)}" for file in files)
    remedy = f"pyresolve check {after} {shlex.quote(str(report.path))}"
    return replace(report, message=printable(text), remedy=remedy)
