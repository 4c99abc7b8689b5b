"""More about a failure than one trial shows: all that is missing, or the file that is broken."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from .._disk import elf, fault
from .._disk.cuda import copies, supplier
from .._disk.elf import printable
from .._disk.files import exists
from .._environ import LIBRARY_PATH, PRELOAD, parse_library_path
from .._model import LoadReport, Missing, Mode, Status
from .._names import DRIVER_SONAME
from .._process import helper
from .report import with_broken_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .._disk.site import Site
    from .._model import Diagnosis, ElfFacts

_SYSTEM_PLACES = "the loader's cache and default directories"

_TRACE_MISSING = re.compile(r"^\t(?P<name>.+) => not found$", re.M)
_TRACE_FOUND = re.compile(r"^\t(?:.+ => )?(?P<path>/.+) \(0x[0-9a-f]+\)$", re.M)


def explain(
    report: LoadReport, *, environ: Mapping[str, str], site: Site, deadline: helper.Deadline
) -> LoadReport:
    """Look for more about a failure than one trial shows; for a report whose status is EXPLAINED.

    All that is missing, where it was searched and where it is; the file that the loader could not
    read.
    """
    target = os.fspath(report.path)
    if report.status is not Status.MISSING_DEPENDENCY:
        broken = _broken_file(target, environ) if "/" in target else None
        return with_broken_file(report, broken) if broken else report
    loader = elf.read(helper.HELPER).interpreter
    names = [missing.name for missing in report.missing]
    found: Sequence[str] = ()
    if loader and "/" in target:
        # Traced as the loader will see it: opened in a process without preloads, or as a preload.
        preload = report.mode is Mode.PRELOAD
        variables = {k: v for k, v in environ.items() if preload or k != PRELOAD}
        program = helper.HELPER if preload else target
        missing, found = _trace(program, loader, environ=variables, deadline=deadline)
        names = list(missing) or names
    users = [elf.read(path) for path in (target, *found)]
    for user in users[1:]:
        if diagnosis := fault.diagnose(user):
            return with_broken_file(report, diagnosis)
    return _with_missing(report, tuple(_missing(name, users, environ, site) for name in names))


def _trace(
    program: str, loader: str, *, environ: Mapping[str, str], deadline: helper.Deadline
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what the loader does not find for `program`, and the files that it finds.

    It only lists them: no constructor runs (ld.so(8), LD_TRACE_LOADED_OBJECTS).
    """
    listing = {**environ, "LD_TRACE_LOADED_OBJECTS": "1"}
    text = helper.run([loader, program], environ=listing, deadline=deadline).captured
    missing = dict.fromkeys(match["name"] for match in _TRACE_MISSING.finditer(text))
    found = dict.fromkeys(match["path"] for match in _TRACE_FOUND.finditer(text))
    return tuple(missing), tuple(found)


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
    broken = {
        path: diagnosis.message for path in found if (diagnosis := fault.diagnose(elf.read(path)))
    }
    return Missing(
        name=name,
        needed_by=os.fspath(user.path) if user else None,
        searched=_searched(user, environ),
        elsewhere=tuple(path for path in found if path not in broken),
        unusable=tuple(broken.values()),
        supplier=supplier(name),
    )


def _searched(user: ElfFacts | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return where the loader looks for what `user` needs, in its order (ld.so(8))."""
    elements = parse_library_path(environ.get(LIBRARY_PATH))
    variable = [element or os.curdir for element in elements]
    if user is None:
        return (*variable, _SYSTEM_PLACES)
    origin = os.fspath(user.path.parent)
    rpath = [entry.replace("$ORIGIN", origin) for entry in user.rpath]
    runpath = [entry.replace("$ORIGIN", origin) for entry in user.runpath]
    return (*rpath, *variable, *runpath, _SYSTEM_PLACES)


def _with_missing(report: LoadReport, missing: tuple[Missing, ...]) -> LoadReport:
    """Complete the report after all that is missing is known."""
    # If the driver is all that is missing the status is another one.
    wanted = [item for item in missing if item.name != DRIVER_SONAME] or list(missing)
    names = " and ".join(
        item.name
        + (f" (for {item.needed_by})" if item.needed_by not in (None, str(report.path)) else "")
        for item in wanted
    )
    text = f"{report.path} needs {names}, which the loader does not find"
    text += "".join(f"; {problem}" for item in wanted for problem in item.unusable)
    reach = [item.elsewhere[0] for item in wanted if item.elsewhere]
    lacking = [item for item in wanted if not item.elsewhere]
    suppliers = [item.supplier for item in lacking if item.supplier]
    remedy = None
    if reach:
        places = ":".join(dict.fromkeys(str(path.parent) for path in reach))
        files, verb = ", ".join(map(str, reach)), "lies" if len(reach) == 1 else "lie"
        text += f"; {files} {verb} out of its reach: put {places} into LD_LIBRARY_PATH"
        remedy = (
            f"export LD_LIBRARY_PATH={shlex.quote(places)}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
        )
    if suppliers:
        remedy = " && ".join(dict.fromkeys(suppliers))
        text += f"; no sound copy is installed: {remedy}"
    elif lacking:
        text += ": install what brings it, or put its directory into LD_LIBRARY_PATH"
    return replace(report, missing=missing, message=printable(text), remedy=remedy)
