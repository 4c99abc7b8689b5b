"""From what a trial showed to a report: verdict, status, and the sentence with the remedy."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from . import _causes, _elf
from ._files import same_file
from ._probe import STUB_DRIVER, STUB_PRELOAD
from ._runtime import DRIVER_SONAME, driver_directories
from ._types import (
    Driver,
    LoadReport,
    Missing,
    Mode,
    Origin,
    Runtime,
    Status,
    Verdict,
)
from ._variants import runtime_major

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._causes import Cause
    from ._probe import Answer, Trial
    from ._types import Diagnosis

# A probe meets the same files again and again, and a Path costs more than the judgement on it.
_path = lru_cache(maxsize=512)(Path)

_NAME_MAX = 255  # bytes in one component of a path

_REBUILT = "reinstall it in a version that goes with what it links"


def of_file(name: str, mode: Mode) -> LoadReport | None:
    """Report what is wrong with the file itself; None where that does not settle it."""
    if _is_for_the_loader(name) or _elf.sound(name):
        return None
    diagnosis = _elf.diagnose(_elf.read(name))
    if not diagnosis:
        return None
    return _fail(name, mode, diagnosis.status, diagnosis.message)


def _is_for_the_loader(name: str) -> bool:
    """Tell whether this is a name to search: the loader would take "" for the program."""
    try:
        return "/" not in name and "\0" not in name and 0 < len(os.fsencode(name)) <= _NAME_MAX
    except UnicodeEncodeError:
        return False


def of_load(name: str, answer: Answer, trial: Trial, *, timeout: float) -> LoadReport:
    """Report on a trial in dlopen mode."""
    if not answer.hello:
        return of_broken_environment(name, Mode.DLOPEN, answer, timeout=timeout)
    driver = trial.driver or Driver()
    facts = _Facts(name, Mode.DLOPEN, trial, driver, answer.elapsed)
    if abrupt := _abrupt(facts, answer, timeout):
        return abrupt
    if not trial.attempts:  # the target wrote over what was noted
        return _refused(facts, _causes.of_words(""))
    last, first = trial.attempts[-1], trial.attempts[0]
    if first.error and _causes.of_words(first.error).file == name:
        return _refused(facts, _causes.of_words(first.error))  # a name that nothing answers to
    if last.error:
        cause = _causes.of_words(last.error)
        if last.stub and cause.name and _causes.is_driver_symbol(cause.name):
            return _no_driver(facts)
        return _refused(facts, cause)
    return _loaded(facts, stub=last.stub)


def of_preload(
    name: str, answer: Answer, *, timeout: float, expected: Path | None, stub: bool
) -> LoadReport:
    """Report on a trial in preload mode, whose driver was the stub where `stub` says so."""
    trial = answer.trials[0]
    driver = Driver(problem=f"{DRIVER_SONAME} is not here") if stub else trial.driver or Driver()
    facts = _Facts(name, Mode.PRELOAD, trial, driver, answer.elapsed)
    if not answer.hello:
        return of_broken_environment(name, Mode.PRELOAD, answer, timeout=timeout)
    if cause := _causes.of_end(trial, answer.words):
        return _refused(facts, cause)
    if abrupt := _abrupt(facts, answer, timeout):
        return abrupt
    if not trial.present:
        reason = _causes.is_ignored(answer.words) or "without a word"
        return facts.fail(
            Status.IGNORED,
            f"the loader skipped {name} ({reason}): the process runs without it; reinstall it in a"
            " version for this system, or take it out of LD_PRELOAD",
        )
    for symbol, (actual, own) in trial.symbols.items():
        if actual != own and same_file(own, name):
            return facts.fail(
                Status.BYPASSED,
                f"{name} is mapped but without effect: {symbol} comes from {actual}, which stands"
                " before it; put the hook first in LD_PRELOAD",
            )
    runtime = facts.runtime
    if expected and (runtime is None or not same_file(runtime.path, expected)):
        mapped = f"{runtime.path} is mapped" if runtime else "no libcudart is mapped"
        return facts.fail(
            Status.WRONG_RUNTIME,
            f"with {name} preloaded {mapped}, where torch uses {expected}: pin torch's with"
            ' Choice.env(pin="library_path") or pin="preload"',
        )
    return _loaded(facts, stub=stub)


def of_broken_environment(
    name: str, mode: Mode, answer: Answer, *, timeout: float = 0.0, culprit: str | None = None
) -> LoadReport:
    """Report that no program at all starts in this environment, and because of what if known."""
    status = answer.wait_status
    if mode is Mode.PRELOAD:
        status = answer.trials[0].wait_status
    end = _end(status)
    how = f"{end or 'wait status unknown'}: {_words(answer) or 'without a word'}"
    if answer.timed_out or any(trial.timed_out for trial in answer.trials):
        end = f"{timeout:g} s"
        how = f"none had started within {end}"
    where = culprit or (
        "look at its LD_PRELOAD, LD_LIBRARY_PATH and LD_AUDIT, and at /etc/ld.so.preload"
    )
    late = answer.timed_out and not answer.hello
    return _fail(
        name,
        mode,
        Status.TIMED_OUT if late else Status.BROKEN_ENVIRONMENT,
        f"no program starts in this environment, whatever {name} is like ({how}): {where}",
        detail=end,
    )


def of_others(report: LoadReport, others: Iterable[str]) -> LoadReport:
    """Name the other preloads of a process that hung: it may be one of them."""
    names = ", ".join(others)
    if not names:
        return report
    message = f"{report.message}; it may also be due to what else LD_PRELOAD holds: {names}"
    return replace(report, message=_line(message))


def with_missing(report: LoadReport, missing: tuple[Missing, ...]) -> LoadReport:
    """Complete a MISSING_DEPENDENCY once all that is missing is known."""
    # Where the driver is all that is missing the verdict is another one.
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
    return replace(report, missing=missing, message=_line(text), remedy=remedy)


def with_broken_file(report: LoadReport, diagnosis: Diagnosis) -> LoadReport:
    """Name the file behind a crash of the loader itself: it maps files and trusts their headers."""
    message = f"{report.path} needs a file that is unusable: {diagnosis.message}"
    return replace(report, status=diagnosis.status, message=_line(message), detail="")


def driver_of(trial: Trial) -> Driver:
    """Return the driver as a trial that asked for it by name found it."""
    if trial.driver:
        return trial.driver
    error = trial.attempts[0].error if trial.attempts else None
    return Driver(problem=error or "it could not be asked for")


def runtime_of(trial: Trial) -> Runtime | None:
    """Return the libcudart that a process uses: of several the one mapped first."""
    for path, version in trial.runtimes.items():
        major = runtime_major(os.path.basename(path))  # noqa: PTH119
        if major is None and version:
            major = version // 1000
        if major is not None:
            return Runtime(path=_path(path), major=major, version=version, origin=Origin.LOADER)
    return None


def _line(text: str) -> str:
    """Show what is odd about a path instead of letting it break the line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class _Facts:
    """What every report on one trial has in common."""

    def __init__(self, name: str, mode: Mode, trial: Trial, driver: Driver, elapsed: float) -> None:
        self.name = name
        self.mode = mode
        self.trial = trial
        self.driver = driver
        self.elapsed = elapsed
        self.runtime = runtime_of(trial)

    def report(
        self,
        verdict: Verdict,
        status: Status,
        message: str,
        *,
        detail: str = "",
        missing: Iterable[Missing] = (),
        undefined: Iterable[str] = (),
    ) -> LoadReport:
        stubs = (STUB_DRIVER, STUB_PRELOAD)
        return LoadReport(
            path=_path(self.name),
            mode=self.mode,
            verdict=verdict,
            status=status,
            message=_line(message),
            detail=_line(detail),
            missing=tuple(missing),
            undefined=tuple(undefined),
            loaded=tuple(_path(path) for path in self.trial.objects if path not in stubs),
            runtime=self.runtime,
            driver=self.driver,
            elapsed=self.elapsed,
        )

    def fail(
        self, status: Status, message: str, *, detail: str = "", undefined: Iterable[str] = ()
    ) -> LoadReport:
        return self.report(Verdict.FAIL, status, message, detail=detail, undefined=undefined)


def _fail(name: str, mode: Mode, status: Status, message: str, *, detail: str = "") -> LoadReport:
    return LoadReport(
        path=_path(name),
        mode=mode,
        verdict=Verdict.FAIL,
        status=status,
        message=_line(message),
        detail=detail,
    )


def _words(answer: Answer) -> str:
    """Return what was said, in one line and each thing once."""
    return " ".join(" ".join(dict.fromkeys(answer.words.splitlines())).split())[:300]


def _end(wait_status: int | None) -> str:
    """Return `SIGSEGV` or `exit status 3`, and nothing where nobody saw the end."""
    if wait_status is None:
        return ""
    if os.WIFSIGNALED(wait_status):
        return _causes.signal_name(os.WTERMSIG(wait_status))
    return f"exit status {os.WEXITSTATUS(wait_status)}"


def _abrupt(facts: _Facts, answer: Answer, timeout: float) -> LoadReport | None:
    ended = _causes.how_it_ended(facts.trial)
    if answer.timed_out or (ended and ended[0] is Status.TIMED_OUT):
        message = (
            f"{facts.name} did not finish loading within {timeout:g} s and was killed: a"
            " constructor hangs, or raise the timeout if this host is slow"
        )
        if answer.stuck:
            message = (
                f"{facts.name} did not finish loading within {timeout:g} s, and process"
                f" {answer.stuck}, which loads it, cannot be killed: it sleeps in the kernel, most"
                " likely on a file system or a device that does not answer"
            )
        return facts.fail(Status.TIMED_OUT, message, detail=f"{timeout:g} s")
    if ended:
        words = _words(answer)
        said = f", having said: {words}" if words else ""
        verb = "loading" if facts.mode is Mode.DLOPEN else "preloading"
        return facts.fail(
            ended[0],
            f"the process {verb} {facts.name} {ended[1]}{said}: do not use this file; reinstall it"
            " or report it to its maintainers",
            detail=_end(facts.trial.wait_status),
        )
    return None


def _loaded(facts: _Facts, *, stub: bool) -> LoadReport:
    # A driver with a path was mapped for the target's sake; with a problem it is none.
    no_driver = stub or (facts.driver.path is not None and facts.driver.problem is not None)
    undefined = [
        symbol
        for symbol in facts.trial.undefined
        if not (no_driver and _causes.is_driver_symbol(symbol))
    ]
    if undefined:
        some = ", ".join(undefined[:5]) + (", …" if len(undefined) > 5 else "")
        return facts.fail(
            Status.UNDEFINED_SYMBOL,
            f"{facts.name} uses {some}, which {_who_lacks(facts, undefined[0])}: the first call"
            f" ends the process; {_REBUILT}",
            detail=undefined[0],
            undefined=undefined,
        )
    if no_driver:
        return _no_driver(facts)
    how = "loads" if facts.mode is Mode.DLOPEN else "is preloaded and takes effect"
    return facts.report(Verdict.OK, Status.LOADABLE, f"{facts.name} {how}")


def _no_driver(facts: _Facts) -> LoadReport:
    message = f"all that {facts.name} needs resolves but the NVIDIA driver (libcuda.so.1), which"
    lying = next(driver_directories(), None)
    if facts.driver.path:
        message += f" is not what is found first: {facts.driver.problem}"
    elif lying:
        message += f" lies out of the loader's reach in {lying}: put that into LD_LIBRARY_PATH"
    else:
        message += " this host lacks: check on a GPU node for a verdict"
    return facts.report(Verdict.UNKNOWN, Status.NO_DRIVER, message, detail=DRIVER_SONAME)


def _who_lacks(facts: _Facts, symbol: str) -> str:
    """Say which file should have defined a symbol, as far as the files tell."""
    target = _elf.read(facts.name)
    _, at, version = symbol.partition("@")
    file = next((need.file for need in target.versions_needed if need.version == version), None)
    if at and file:
        mapped = (path for path in facts.trial.objects if os.path.basename(path) == file)  # noqa: PTH119
        return f"{next(mapped, file)} should define and does not"
    runtimes = [name for name in target.needed if runtime_major(name) is not None]
    if symbol.startswith("cuda") and not runtimes:
        return "is libcudart's, which it does not link"
    return "nothing it links defines"


def _refused(facts: _Facts, cause: Cause) -> LoadReport:
    name, file = facts.name, cause.file
    if cause.status is Status.MISSING_DEPENDENCY and file == name:
        return facts.fail(
            Status.NOT_FOUND,
            f"the loader finds no {name} in LD_LIBRARY_PATH, its cache and its default directories"
            + (f"; for the file of that name here write ./{name}" if _path(name).exists() else ""),
        )
    if cause.status is Status.MISSING_DEPENDENCY and cause.name:
        missing = (Missing(name=cause.name),)
        message = f"{name} needs {cause.name}, which the loader does not find"
        return facts.report(
            Verdict.FAIL,
            Status.MISSING_DEPENDENCY,
            message,
            detail=cause.name,
            missing=missing,
        )
    if cause.status is Status.UNDEFINED_SYMBOL:
        symbols = [cause.name] if cause.name else []
        user = cause.by if cause.by and not same_file(cause.by, name) else name
        return facts.fail(
            Status.UNDEFINED_SYMBOL,
            f"{user} uses {cause.name}, which {_who_lacks(facts, cause.name or '')}; {_REBUILT}",
            detail=cause.name or "",
            undefined=symbols,
        )
    if cause.status is Status.VERSION_MISMATCH:
        message = _version_message(name, cause)
        return facts.fail(Status.VERSION_MISMATCH, message, detail=cause.name or "")
    # Without a slash it is a name that the loader searched, not a file in this directory.
    if file and "/" in file and (diagnosis := _elf.diagnose(_elf.read(file))):
        through = "" if same_file(file, name) else f"{name} needs a file that is unusable: "
        return facts.fail(diagnosis.status, through + diagnosis.message)
    if cause.status is Status.PERMISSION:
        message = f"{file} may not be read: make it readable for the user who runs the workers"
        return facts.fail(Status.PERMISSION, message)
    said = cause.text.removeprefix(f"{name}: ") or "without a word"
    return facts.fail(
        Status.NOT_LOADABLE,
        f"the loader refuses {name} ({said}): reinstall it in a version for this system",
    )


def _version_message(name: str, cause: Cause) -> str:
    message = f"{cause.by or name} needs {cause.name} of {cause.file}, which does not have it"
    wanted = (cause.name or "").rpartition("_")[0]
    defined = _elf.read(cause.file).versions_defined if cause.file and "/" in cause.file else ()
    family = [version for version in defined if version.rpartition("_")[0] == wanted]
    if family:
        newest = max(family, key=_numbers)
        message += f" (its newest is {newest})"
    if cause.by and not same_file(cause.by, name):
        message = f"{name} needs a file that is unusable: {message}"
    return f"{message}: install a build for this system, or use a newer system image"


def _numbers(version: str) -> tuple[int, ...]:
    digits = version.rpartition("_")[2].split(".")
    return tuple(int(part) if part.isdecimal() else -1 for part in digits)
