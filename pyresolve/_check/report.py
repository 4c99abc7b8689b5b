"""From the helper's outcome to a report: the sentence with the cause and what to do."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from .._disk import driver as drivers, elf, fault
from .._disk.elf import printable
from .._disk.files import exists, same_file
from .._errors import REFUSALS
from .._imports import importing
from .._model import Driver, LoadReport, Missing, Mode, Origin, Runtime, Status, Verdict
from .._names import DRIVER_SONAME, runtime_major
from .._process.helper import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .._model import Diagnosis
    from .._process.helper import Answer, Trial

# A probe meets the same files again and again, and a Path costs more than the rest of a report.
_path = lru_cache(maxsize=512)(Path)

_MAPS_RUNTIME = (
    Status.LOADABLE,
    Status.NO_DRIVER,
    Status.UNDEFINED_SYMBOL,
    Status.TORCH_FAILS,
)

_SYSTEM_VERSIONS = ("GLIBC", "GLIBCXX", "CXXABI", "GCC")  # of the system image's own libraries

_WX = "(SELinux, or MemoryDenyWriteExecute of systemd)"
_REFUSED = (
    (
        "executable stack",
        f"it wants an executable stack, which the kernel or a policy {_WX} refuses: clear the mark"
        " with patchelf --clear-execstack, or lift the policy",
    ),
    (
        "make segment writable",
        f"it has text relocations, which a policy {_WX} refuses: use a build that was compiled with"
        " -fPIC, or lift the policy",
    ),
    (
        "map segment",
        "the kernel refuses it memory: raise ulimit -v and the memory limit of the container, or"
        f" lift the policy {_WX} that forbids executable memory",
    ),
    (
        "static TLS",
        "the room for thread-local variables of libraries that are loaded late is used up: preload"
        " it, or set GLIBC_TUNABLES=glibc.rtld.optional_static_tls to more bytes",
    ),
)
"""What the loader says of a policy or a limit that has a remedy of its own."""

_REBUILT = "reinstall it in a version that goes with what it links"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """What the sentence about one trial is made of."""

    name: str
    mode: Mode
    outcome: Outcome
    undefined: tuple[str, ...]
    objects: Sequence[str]
    driver: Driver
    hint: str
    captured: str
    seconds: str
    others: Sequence[str]
    next_library: str


def of_trial(
    name: str,
    mode: Mode,
    answer: Answer,
    trial: Trial,
    *,
    timeout: float,
    environ: Mapping[str, str] | None = None,
    others: Sequence[str] = (),
    next_library: str = "",
) -> LoadReport:
    """Report on the trial of the library `name`, which had `timeout` seconds in `environ`.

    `others` are what else LD_PRELOAD held, `next_library` was opened after it.
    """
    outcome = _outcome(answer, trial)
    status = outcome.status
    driver = _driver(trial, outcome)
    hint, remedy = "", None
    if status is Status.NO_DRIVER and driver.path is None:
        hint, remedy = drivers.where(environ or {})
    subject = _Subject(
        name=name,
        mode=mode,
        outcome=outcome,
        undefined=_undefined(trial, outcome),
        objects=trial.objects,
        driver=driver,
        hint=hint,
        captured=_once(outcome.text if mode is Mode.PRELOAD else answer.captured),
        seconds=f"{timeout:g} s",
        others=others,
        next_library=next_library,
    )
    return LoadReport(
        path=_path(name),
        mode=mode,
        verdict=status.verdict,
        status=status,
        message=printable(_MESSAGES[status](subject) if answer.hello else _no_program(subject)),
        detail=printable(_detail(subject)),
        remedy=remedy,
        missing=(Missing(name=outcome.name),) if status is Status.MISSING_DEPENDENCY else (),
        undefined=subject.undefined,
        used_by=_path(outcome.by) if "/" in outcome.by else None,
        provider=_provider(outcome),
        loaded=tuple(map(_path, trial.objects)),
        runtime=runtime_of(trial),
        driver=driver,
        elapsed=answer.elapsed,
        pid=outcome.stuck,
    )


def of_file(name: str, mode: Mode) -> LoadReport | None:
    """Report what is wrong with the file itself; None if it is sound."""
    diagnosis = fault.find(name)
    if not diagnosis:
        return None
    return LoadReport(
        path=_path(name),
        mode=mode,
        verdict=Verdict.FAIL,
        status=diagnosis.status,
        message=printable(diagnosis.message),
    )


def with_expected(report: LoadReport, expected: Path) -> LoadReport:
    """Correct the report of a rehearsal whose process was to map the libcudart `expected`."""
    if report.status not in _MAPS_RUNTIME:
        return report
    runtime = report.runtime
    if runtime and same_file(runtime.path, expected):
        return report
    mapped = f"{runtime.path} is mapped" if runtime else "no libcudart is mapped"
    message = (
        f"with {report.path} preloaded {mapped}, where torch uses {expected}: pin torch's with"
        ' Choice.env(pin="library_path") or pin="preload"'
    )
    return replace(
        report,
        verdict=Verdict.FAIL,
        status=Status.WRONG_RUNTIME,
        message=printable(message),
        detail="",
        undefined=(),
    )


def with_caller(report: LoadReport, diagnosis: Diagnosis) -> LoadReport:
    """Correct the report of a rehearsal: what is to call the hook does not, or cannot be read."""
    if report.status not in (Status.LOADABLE, Status.NO_DRIVER):
        return report
    if diagnosis.status.verdict is Verdict.UNKNOWN and report.verdict is Verdict.UNKNOWN:
        return report  # the driver comes first: it may settle both
    return replace(
        report,
        verdict=diagnosis.status.verdict,
        status=diagnosis.status,
        message=printable(diagnosis.message),
        detail="",
    )


def with_broken_file(report: LoadReport, diagnosis: Diagnosis) -> LoadReport:
    """Name the file that breaks the loader itself: it maps files and trusts their headers."""
    message = f"{report.path} needs a file that is unusable: {diagnosis.message}"
    return replace(report, status=diagnosis.status, message=printable(message), detail="")


def driver_of(trial: Trial) -> Driver:
    """Return the driver as a trial that opened it by name found it."""
    outcome = trial.outcome
    if trial.driver:
        return trial.driver
    if outcome is None:
        return Driver(problem="it could not be asked for")
    problem = outcome.text or "it could not be asked for"
    return Driver(problem=problem, absent=outcome.status is Status.NOT_FOUND)


def runtime_of(trial: Trial) -> Runtime | None:
    """Return the libcudart that a process uses: the one that it mapped first."""
    for path, version in trial.runtimes.items():
        # A copy may bear the name of another major: what it answers counts.
        major = version // 1000 if version else runtime_major(os.path.basename(path))  # noqa: PTH119
        if major is not None:
            return Runtime(path=_path(path), major=major, version=version, origin=Origin.LOADER)
    return None


def _driver(trial: Trial, outcome: Outcome) -> Driver:
    if trial.driver:
        return trial.driver
    problem = f"the loader does not find {DRIVER_SONAME}"
    return Driver(problem=problem, absent=True) if outcome.stub else Driver()


def _outcome(answer: Answer, trial: Trial) -> Outcome:
    """Return the helper's outcome, or the one that follows if there is none."""
    if trial.outcome:
        return trial.outcome
    if answer.timed_out:
        return Outcome(status=Status.TIMED_OUT, stuck=answer.stuck)
    if not answer.hello:
        status = answer.wait_status
        return Outcome(
            status=Status.BROKEN_ENVIRONMENT,
            name="" if status is None else _end(status),
            text=answer.captured,
        )
    return Outcome(status=Status.CRASHED)


def _end(wait_status: int) -> str:
    """Return `SIGSEGV` or `exit status 3`."""
    with importing:
        import signal

    if not os.WIFSIGNALED(wait_status):
        return f"exit status {os.WEXITSTATUS(wait_status)}"
    number = os.WTERMSIG(wait_status)
    known = number in {item.value for item in signal.Signals}
    return signal.Signals(number).name if known else f"signal {number}"


def _once(text: str) -> str:
    """Return what was printed in one line, each line of it once."""
    return " ".join(" ".join(dict.fromkeys(text.splitlines())).split())[:300]


def _is_end(outcome: Outcome) -> bool:
    """Tell whether the name in an outcome is how a process ended."""
    return outcome.name.startswith(("SIG", "signal ", "exit status "))


def _symbol(outcome: Outcome) -> str:
    return f"{outcome.name}@{outcome.version}" if outcome.version else outcome.name


def _undefined(trial: Trial, outcome: Outcome) -> tuple[str, ...]:
    """Return the undefined symbols; without the driver its own count for nothing."""
    if outcome.status not in (Status.UNDEFINED_SYMBOL, Status.WRONG_PYTHON):
        return ()
    named = _symbol(outcome)
    if named not in trial.undefined:
        return (named,)
    return tuple(trial.undefined[trial.undefined.index(named) :])


def _provider(outcome: Outcome) -> Path | None:
    named = outcome.status is Status.VERSION_MISMATCH and "/" in outcome.file
    return _path(outcome.file) if named else None


def _detail(subject: _Subject) -> str:
    outcome = subject.outcome
    if outcome.status is Status.TIMED_OUT:
        return subject.seconds
    return _symbol(outcome)


# --- the sentence for each status


def _loadable(subject: _Subject) -> str:
    how = "loads" if subject.mode is Mode.DLOPEN else "is preloaded and takes effect"
    return f"{subject.name} {how}"


def _no_driver(subject: _Subject) -> str:
    message = f"all that {subject.name} needs resolves but the NVIDIA driver (libcuda.so.1), which"
    if subject.driver.path:
        return f"{message} is not what is found first: {subject.driver.problem}"
    return f"{message} the loader does not find{subject.hint}"


def _no_python(subject: _Subject) -> str:
    name, outcome = subject.name, subject.outcome
    if _is_end(outcome):
        return (
            f"the process loading {name} ended ({outcome.name}), and no Python interpreter runs"
            " in it, which a constructor may need: import it in the workers' interpreter for a"
            " verdict"
        )
    return (
        f"{name} uses {_symbol(outcome)}, which a Python interpreter defines: check it together"
        " with one (python=, --python) for a verdict"
    )


def _wrong_python(subject: _Subject) -> str:
    return (
        f"{subject.name} uses {_some(subject.undefined)}, which this Python interpreter does not"
        " define: it is built for another one; reinstall it with the workers' interpreter"
    )


def _missing_dependency(subject: _Subject) -> str:
    return f"{subject.name} needs {subject.outcome.name}, which the loader does not find"


def _undefined_symbol(subject: _Subject) -> str:
    outcome, name = subject.outcome, subject.name
    user = outcome.by if outcome.by and not same_file(outcome.by, name) else name
    lacks = _who_lacks(user, subject.objects, subject.undefined[0])
    end = "" if outcome.text else ": the first call ends the process"  # not even loaded
    return f"{user} uses {_some(subject.undefined)}, which {lacks}{end}; {_REBUILT}"


def _some(symbols: Sequence[str]) -> str:
    return ", ".join(symbols[:5]) + (", …" if len(symbols) > 5 else "")


def _who_lacks(user: str, objects: Sequence[str], symbol: str) -> str:
    """Say which file should have defined a symbol, as far as the files tell."""
    facts = elf.read(user)
    _, at, version = symbol.partition("@")
    file = next((need.file for need in facts.versions_needed if need.version == version), None)
    if at and file:
        mapped = (path for path in objects if os.path.basename(path) == file)  # noqa: PTH119
        return f"{next(mapped, file)} should define and does not"
    runtimes = [name for name in facts.needed if runtime_major(name) is not None]
    if symbol.startswith("cuda") and not runtimes:
        return "is libcudart's, which it does not link"
    return "nothing it links defines"


def _version_mismatch(subject: _Subject) -> str:
    outcome, name = subject.outcome, subject.name
    message = needs(outcome.by or name, _symbol(outcome), outcome.file)
    if outcome.by and not same_file(outcome.by, name):
        message = f"{name} needs a file that is unusable: {message}"
    if outcome.name.partition("_")[0] in _SYSTEM_VERSIONS:
        return f"{message}: install a build for this system, or use a newer system image"
    return f"{message}: install the two in versions that go together"


def needs(user: str, wanted: str, provider: str) -> str:
    """Say which file wants a symbol or a version of which other one, in vain."""
    message = f"{user} needs {wanted} of {provider}, which does not have it"
    stem = wanted.rpartition("_")[0]
    defined = elf.read(provider).versions_defined if stem and "/" in provider else ()
    family = [version for version in defined if version.rpartition("_")[0] == stem]
    return f"{message} (its newest is {max(family, key=_numbers)})" if family else message


def _numbers(version: str) -> tuple[int, ...]:
    digits = version.rpartition("_")[2].split(".")
    return tuple(int(part) if part.isdecimal() else -1 for part in digits)


def _not_found(subject: _Subject) -> str:
    name = subject.name
    if not subject.outcome.text:
        return _bad_file(subject)
    if "/" in name:
        return (
            f"the loader does not find {name}, which is there: it replaces $ORIGIN, $LIB and"
            " $PLATFORM in a path (ld.so(8)); give it a path without them"
        )
    here = f"; for the file of that name here write ./{name}" if exists(name) else ""
    return (
        f"the loader finds no {name} in LD_LIBRARY_PATH, its cache and its default directories"
        + ("" if "/" in name else here)
    )


def _bad_file(subject: _Subject) -> str:
    """Say what is wrong with a file, the target or one that it needs."""
    outcome, name = subject.outcome, subject.name
    file = outcome.file or name
    if "/" in file and (diagnosis := fault.find(file)):
        through = "" if same_file(file, name) else f"{name} needs a file that is unusable: "
        return through + diagnosis.message
    if outcome.status is Status.PERMISSION:
        return f"{file} may not be read: make it readable for the user who runs the workers"
    said = outcome.text.removeprefix(f"{name}: ") or "without a word"
    if outcome.name:
        return f"{name} cannot be loaded here ({said}): {_refusal(said, outcome.name)}"
    return f"the loader refuses {name} ({said}): reinstall it in a version for this system"


def _refusal(said: str, reason: str) -> str:
    """Say which limit or policy refuses what the loader wants to do, and what to do about it."""
    remedies = [remedy for words, remedy in _REFUSED if words in said]
    for number, remedy in REFUSALS.items():
        if reason in (os.strerror(number), f"Error {number}"):  # as the loader writes it, early
            remedies.append(remedy)
    remedies.append("a limit (ulimit -a) or a security policy of this host forbids it")
    with importing:
        import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return remedies[0]
    return remedies[0].replace("ulimit -v", f"ulimit -v, which is {limit // 1024} here,")


def _ignored(subject: _Subject) -> str:
    outcome = subject.outcome
    remedy = "reinstall it in a version for this system, or take it out of LD_PRELOAD"
    if outcome.name:
        remedy = _refusal(outcome.text, outcome.name)
    return (
        f"the loader skipped {subject.name} ({outcome.text or 'without a word'}): the"
        f" process runs without it; {remedy}"
    )


def _bypassed(subject: _Subject) -> str:
    return (
        f"{subject.name} is mapped but without effect: {subject.outcome.text} comes from"
        f" {subject.outcome.file}, which stands before it; put the hook first in LD_PRELOAD"
    )


def _torch_fails(subject: _Subject) -> str:
    outcome = subject.outcome
    said = subject.captured
    if _is_end(outcome):
        said = f"{outcome.name}{said and f', having said: {said}'}"
    return (
        f"with {subject.name} preloaded torch's own library {subject.next_library} does not load"
        f" ({said}): `import torch` would fail in every worker; reinstall torch with the libraries"
        " that it needs, or correct LD_LIBRARY_PATH"
    )


def _ended(subject: _Subject) -> str:
    outcome = subject.outcome
    verb = "loading" if subject.mode is Mode.DLOPEN else "preloading"
    if not outcome.name:
        return (
            f"the process {verb} {subject.name}, or somebody else (an administrator, the"
            " out-of-memory killer), killed the process that supervises it: try again, and do not"
            " use this file if that does not help"
        )
    how = "died of" if outcome.status is Status.CRASHED else "ended with"
    ended = f"{how} {outcome.name}"
    said = f", having said: {subject.captured}" if subject.captured else ""
    return (
        f"the process {verb} {subject.name} {ended}{said}: do not use this file; reinstall it or"
        " report it to its maintainers"
    )


def _timed_out(subject: _Subject) -> str:
    name, pid = subject.outcome.file or subject.name, subject.outcome.stuck
    message = (
        f"{name} did not finish loading within {subject.seconds} and was killed: a constructor"
        " hangs, or raise the timeout if this host is slow"
    )
    if pid:
        message = (
            f"{name} did not finish loading within {subject.seconds}, and process {pid}, which"
            " loads it, cannot be killed: it sleeps in the kernel, most likely on a file system or"
            " a device that does not answer"
        )
    if subject.others:
        names = ", ".join(subject.others)
        message += f"; it may also be due to what else LD_PRELOAD holds: {names}"
    return message


def _no_program(subject: _Subject) -> str:
    outcome, others = subject.outcome, subject.others
    said = _once(outcome.text) or "without a word"
    how = f"{outcome.name}: {said}" if outcome.name else said
    where = (
        "look at its LD_PRELOAD, LD_LIBRARY_PATH and LD_AUDIT, at /etc/ld.so.preload, and for a"
        " limit or a security policy (ulimit -a, seccomp)"
    )
    problem = next((p for item in others if "/" in item and (p := fault.find(item))), None)
    if problem:
        where = f"LD_PRELOAD holds a file that is unusable: {problem.message}"
    elif others:
        where = f"look at what else LD_PRELOAD holds: {', '.join(others)}"
    return (
        f"no program starts in this environment, whatever {subject.name} is like ({how}): {where}"
    )


_MESSAGES: dict[Status, Callable[[_Subject], str]] = {
    Status.LOADABLE: _loadable,
    Status.NO_DRIVER: _no_driver,
    Status.NO_PYTHON: _no_python,
    Status.MISSING_DEPENDENCY: _missing_dependency,
    Status.UNDEFINED_SYMBOL: _undefined_symbol,
    Status.VERSION_MISMATCH: _version_mismatch,
    Status.WRONG_PYTHON: _wrong_python,
    Status.NOT_FOUND: _not_found,
    Status.NOT_ELF: _bad_file,
    Status.TRUNCATED: _bad_file,
    Status.WRONG_ARCH: _bad_file,
    Status.NOEXEC: _bad_file,
    Status.PERMISSION: _bad_file,
    Status.NOT_LOADABLE: _bad_file,
    Status.IGNORED: _ignored,
    Status.BYPASSED: _bypassed,
    Status.TORCH_FAILS: _torch_fails,
    Status.CRASHED: _ended,
    Status.EXITED: _ended,
    Status.TIMED_OUT: _timed_out,
    Status.BROKEN_ENVIRONMENT: _no_program,
}
