"""What check() and pyresolve-probe say of a library: the exact line, for both modes.

A change of what is said of a library is a change here. "Questionable" marks a line that is written
down because it is what is said today, not because it is right.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyresolve import check
from pyresolve._check.line import summary, summary_line
from support import AMPLE, HANG, MODES, elfpatch
from support.compile import SOURCES, built, cc, cc_text, hollow, workshop
from support.driver import STUB_LIBRARY, full_stub
from support.hidden import hidden_toolkit, mounted
from support.layout import Site, fake_cudart
from support.process import cold
from support.rogues import VANISHED, rogue
from support.tools import require_tool

Line = tuple[str, str]  # with dlopen, as a preload


def check_line(*paths: str | os.PathLike[str], **options: object) -> str:
    """Return the line for what check() says of one library or several."""
    return summary_line([summary(check(path, **options)) for path in paths])


def check_line_apart(prefix: Sequence[str], path: str | os.PathLike[str], **options: object) -> str:
    """Return the line like `check_line`, from a fresh interpreter started with `prefix`."""
    code = """
        import json, sys
        from pyresolve import check
        from pyresolve._check.line import summary, summary_line
        report = check(sys.argv[1], **json.loads(sys.argv[2]))
        print(json.dumps(summary_line([summary(report)])))
    """
    line: str = cold(code, path, json.dumps(options), prefix=prefix)
    return line


def same(line: str) -> Line:
    """Return a line that is the same in both modes."""
    return line, line


@dataclass(frozen=True, kw_only=True)
class Case:
    """A library, how it is tried, and the line for each mode.

    `make` puts what is needed into an empty directory and returns the path to check. The values of
    `variables` may name `{here}`, that directory, and the places of `_Places`. `prefix` returns
    what is put before the command that checks. `program` is given if pyresolve-probe says something
    else.
    """

    name: str
    make: Callable[[Path], str | Path]
    lines: Line
    program: Line | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    timeout: float = AMPLE
    prefix: Callable[[Path], Sequence[str]] | None = None

    @functools.cached_property
    def here(self) -> Path:
        """A directory of this case alone."""
        return Path(tempfile.mkdtemp(dir=workshop()))

    @functools.cached_property
    def path(self) -> str | Path:
        """What is checked: made once, since compiling takes longer than checking."""
        return self.make(self.here)

    def environment(self) -> dict[str, str]:
        """Return the variables that are set for the check."""
        places = _Places(here=self.here)
        return {name: value.format_map(places) for name, value in self.variables.items()}

    def command_prefix(self) -> Sequence[str]:
        """Return what to put before the command that checks."""
        return self.prefix(self.here) if self.prefix else ()

    def said(self, mode: str, *, by_program: bool) -> str:
        """Return the line of one of the two for a mode."""
        lines = self.program if by_program and self.program else self.lines
        return lines[MODES.index(mode)]


class _Places(dict[str, Path]):
    """Rogues by their names, and directories with a driver."""

    def __missing__(self, name: str) -> Path:
        if name == "driver":
            return full_stub()
        if name == "toolkit_stub":
            return full_stub(result=STUB_LIBRARY)
        if name in ("cudart12", "cudart13"):
            return _runtime(int(name.removeprefix("cudart")))
        return rogue(name)


# --- libraries that misbehave

HANGING = ("loop", "sleep_ignoring_sigterm", "stop", "stop_parent", "trace_parent")
# For the test run, if the isolation had a hole.
LETHAL = ("kill_group", "kill_parent", "stop_parent", "terminate_parent", "trace_parent")

ROGUES = {
    "abort": same("FAIL crashed: SIGABRT (abort.so)"),
    "bind_now": same("FAIL undefined_symbol: rogue_nowhere_function (bind_now.so)"),
    "chatty": same("OK loadable (chatty.so)"),
    "close_fds": same("OK loadable (close_fds.so)"),
    "daemon": same("OK loadable (daemon.so)"),
    "exit_three": same("FAIL exited: exit status 3 (exit_three.so)"),
    "exit_zero": same("FAIL exited: exit status 0 (exit_zero.so)"),
    "fork_sleep": same("OK loadable (fork_sleep.so)"),
    "garbage_fds": same("OK loadable (garbage_fds.so)"),
    "good": same("OK loadable (good.so)"),
    "good_libm": same("OK loadable (good_libm.so)"),
    "kill_group": same("FAIL crashed: SIGKILL (kill_group.so)"),
    "kill_parent": same("FAIL crashed (kill_parent.so)"),
    "loop": same("FAIL timed_out: 0.3 s (loop.so)"),
    "missing_needed": same(
        "FAIL missing_dependency: libpyresolve_vanished.so.1 (missing_needed.so)"
    ),
    "musl": same("FAIL not_loadable (musl.so)"),
    "overflow_stack": same("FAIL crashed: SIGSEGV (overflow_stack.so)"),
    "segfault": same("FAIL crashed: SIGSEGV (segfault.so)"),
    "segv_handler": same("OK loadable (segv_handler.so)"),
    "sigill": same("FAIL crashed: SIGILL (sigill.so)"),
    "sleep_ignoring_sigterm": same("FAIL timed_out: 0.3 s (sleep_ignoring_sigterm.so)"),
    "stop": same("FAIL timed_out: 0.3 s (stop.so)"),
    "stop_parent": same("FAIL timed_out: 0.3 s (stop_parent.so)"),
    "terminate_parent": same("FAIL crashed (terminate_parent.so)"),
    "thread_spin": same("OK loadable (thread_spin.so)"),
    "trace_parent": same("FAIL timed_out: 0.3 s (trace_parent.so)"),
    "undefined_data": same("FAIL undefined_symbol: rogue_nowhere_data (undefined_data.so)"),
    "undefined_function": same(
        "FAIL undefined_symbol: rogue_nowhere_function (undefined_function.so)"
    ),
    "underscore_exit_zero": same("FAIL exited: exit status 0 (underscore_exit_zero.so)"),
    "unmet_version": same("FAIL version_mismatch: GLIBC_9.99 (unmet_version.so)"),
}


def _rogues() -> Iterator[Case]:
    for name, lines in ROGUES.items():
        yield Case(
            name=name,
            make=_rogue(name),
            lines=lines,
            timeout=HANG if name in HANGING else AMPLE,
            prefix=_own_process if name in LETHAL else None,
        )


def _own_process(_: Path) -> list[str]:
    """Start check() in a process other than the test's."""
    return [require_tool("env")]


def _rogue(name: str) -> Callable[[Path], Path]:
    return lambda here: rogue(name)


# --- files

Make = Callable[[Path], "str | Path"]


def _written(name: str, content: bytes) -> Make:
    return lambda here: (here / name).write_bytes(content) and here / name


def _damaged(name: str, change: Callable[..., Path], *args: object) -> Make:
    """Return the function that makes a changed copy of a sound library."""
    return lambda here: change(rogue("good"), here / name, *args)


def _empty(here: Path) -> Path:
    (here / "empty.so").touch()
    return here / "empty.so"


def _directory(here: Path) -> Path:
    (here / "directory.so").mkdir()
    return here / "directory.so"


def _fifo(here: Path) -> Path:
    os.mkfifo(here / "fifo.so")
    return here / "fifo.so"


def _link(name: str, target: Callable[[Path], Path]) -> Make:
    def make(here: Path) -> Path:
        (here / name).symlink_to(target(here))
        return here / name

    return make


def _copied(name: str, mode: int = 0o755) -> Make:
    def make(here: Path) -> Path:
        copy = Path(shutil.copy(rogue("good"), here / name))
        copy.chmod(mode)
        return copy

    return make


def _unprivileged(_: Path) -> list[str]:
    """Let the permissions of a file count, for root as well."""
    if os.geteuid() != 0:
        return []
    return [require_tool("setpriv"), "--bounding-set=-dac_override,-dac_read_search"]


def _noexec(here: Path) -> list[str]:
    return mounted(noexec=[here])


FILES: dict[str, tuple[Make, Line]] = {
    "absent": (lambda here: here / "absent.so", same("FAIL not_found (absent.so)")),
    "empty": (_empty, same("FAIL truncated (empty.so)")),
    "text": (_written("text.so", b"no library\n"), same("FAIL not_elf (text.so)")),
    "LFS pointer": (
        lambda here: elfpatch.lfs_pointer(here / "lfs.so"),
        same("FAIL not_elf (lfs.so)"),
    ),
    "only the magic": (_written("magic.so", b"\x7fELF"), same("FAIL truncated (magic.so)")),
    "cut in its header": (_damaged("cut.so", elfpatch.cut, 60), same("FAIL truncated (cut.so)")),
    "cut after its header": (
        _damaged("cut.so", elfpatch.cut, 100),
        same("FAIL truncated (cut.so)"),
    ),
    "cut in its segments": (
        _damaged("cut.so", elfpatch.cut, 9000),
        same("FAIL truncated (cut.so)"),
    ),
    "odd name": (
        _damaged("\x1b[2J\n\u00e9 .so", elfpatch.cut, 100),
        same("FAIL truncated (?[2J??? .so)"),
    ),
    "32 bit": (
        _damaged("class.so", elfpatch.patch, {elfpatch.CLASS: elfpatch.CLASS_32}),
        same("FAIL wrong_arch (class.so)"),
    ),
    "other byte order": (
        _damaged("data.so", elfpatch.patch, {elfpatch.DATA: elfpatch.BIG_ENDIAN}),
        same("FAIL wrong_arch (data.so)"),
    ),
    "other machine": (
        _damaged("machine.so", elfpatch.patch, {elfpatch.MACHINE: elfpatch.FOREIGN_MACHINE}),
        same("FAIL wrong_arch (machine.so)"),
    ),
    "relocatable": (
        _damaged("type.so", elfpatch.patch, {16: 1}),
        same("FAIL not_loadable (type.so)"),
    ),
    "executable": (
        _damaged("type.so", elfpatch.patch, {16: 2}),
        same("FAIL not_loadable (type.so)"),
    ),
    "core dump": (
        _damaged("type.so", elfpatch.patch, {16: 4}),
        same("FAIL not_loadable (type.so)"),
    ),
    # Questionable as a preload: dlopen() gives the reason, not_loadable.
    "position-independent executable": (
        lambda here: shutil.copy(require_tool("true"), here / "true"),
        ("FAIL not_loadable (true)", "FAIL ignored (true)"),
    ),
    "directory": (_directory, same("FAIL not_elf (directory.so)")),
    "in a file": (lambda here: _empty(here) / "lib.so", same("FAIL not_found (lib.so)")),
    "name too long": (
        lambda here: here / ("a" * 256),
        same("FAIL not_found (aaaaaaaaaaaaaaaaaaaaaaaaaaaaa...aaaaaaaaaaaaaaaaaaaaaaaaaaaaa)"),
    ),
    "path too long": (
        lambda here: f"{here}/{'a' * 5000}",
        same("FAIL not_found (aaaaaaaaaaaaaaaaaaaaaaaaaaaaa...aaaaaaaaaaaaaaaaaaaaaaaaaaaaa)"),
    ),
    "FIFO": (_fifo, same("FAIL not_elf (fifo.so)")),
    "device": (lambda here: "/dev/zero", same("FAIL not_elf (zero)")),
    "link": (_link("link.so", lambda here: rogue("good")), same("OK loadable (link.so)")),
    "dangling link": (
        _link("link.so", lambda here: here / "gone.so"),
        same("FAIL not_found (link.so)"),
    ),
    "circle of links": (
        _link("link.so", lambda here: here / "link.so"),
        same("FAIL not_found (link.so)"),
    ),
    "not executable": (_copied("mode.so", 0o444), same("OK loadable (mode.so)")),
}


def _files() -> Iterator[Case]:
    for name, (make, lines) in FILES.items():
        yield Case(name=name, make=make, lines=lines)
    yield Case(
        name="no permission",
        make=_copied("secret.so", 0),
        prefix=_unprivileged,
        lines=same("FAIL permission (secret.so)"),
    )
    yield Case(
        name="too large for ulimit -v",
        make=lambda here: cc_text("char room[1u << 31];", here / "large.so"),
        prefix=lambda here: ["sh", "-c", 'ulimit -v 1048576; exec "$@"', "limited"],
        lines=(
            "FAIL not_loadable: failed to map segment from shared object (large.so)",
            "FAIL ignored: failed to map segment from shared object (large.so)",
        ),
    )
    yield Case(
        name="noexec mount",
        make=_copied("noexec.so"),
        prefix=_noexec,
        lines=same("FAIL noexec (noexec.so)"),
    )


# --- names

NAMES = {
    ".": ("FAIL not_elf (.)", "FAIL ignored (.)"),
    "..": ("FAIL not_elf (..)", "FAIL ignored (..)"),
    "/": same("FAIL not_elf ()"),  # questionable: no name is shown
    "./": same("FAIL not_elf (.)"),
    "a/b/": same("FAIL not_found (b)"),
    "//x//.": same("FAIL not_found (x)"),
    "libm.so.6": same("OK loadable (libm.so.6)"),
    "libresolv.so.2": same("OK loadable (libresolv.so.2)"),
    "nothing.so": ("FAIL not_found (nothing.so)", "FAIL ignored (nothing.so)"),
    "libnothing.so.9": ("FAIL not_found (libnothing.so.9)", "FAIL ignored (libnothing.so.9)"),
    "n" * 255: (
        "FAIL not_found (nnnnnnnnnnnnnnnnnnnnnnnnnnnnn...nnnnnnnnnnnnnnnnnnnnnnnnnnnnn)",
        "FAIL ignored (nnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...nnnnnnnnnnnnnnnnnnnnnnnnnnnnnn)",
    ),
    "n" * 256: same(
        "FAIL not_found (nnnnnnnnnnnnnnnnnnnnnnnnnnnnn...nnnnnnnnnnnnnnnnnnnnnnnnnnnnn)"
    ),
    "\u00e9.so": ("FAIL not_found (??.so)", "FAIL ignored (??.so)"),
    "/nowhere/lib.so": same("FAIL not_found (lib.so)"),
    "/etc/passwd/lib.so": same("FAIL not_found (lib.so)"),
    "/etc/passwd": same("FAIL not_elf (passwd)"),
    "/dev/null": same("FAIL not_elf (null)"),
    "/proc/self/mem": same("FAIL truncated (mem)"),  # questionable: not an ELF file
    "/\x1b[2J\n.so": same("FAIL not_found (?[2J?.so)"),
}


def _names() -> Iterator[Case]:
    for name, lines in NAMES.items():
        yield Case(
            name=f"name of {len(name)} characters, {name!r:.20}",
            make=functools.partial(_itself, name),
            lines=lines,
        )


def _itself(name: str, here: Path) -> str:
    return name


# --- dependencies

_CONSTRUCTOR = "static void __attribute__((constructor)) on_load(void)"


def _compiled(name: str, text: str, *flags: str | Path) -> Make:
    return lambda here: _compile(here, name, text, *flags)


def _compile(here: Path, name: str, text: str = "", *flags: str | Path) -> Path:
    return cc_text(text, here / name, *flags)


def _user(change: Callable[[Path, Path], object]) -> Make:
    """Return the function that makes a library whose dependency has been changed."""

    def make(here: Path) -> Path:
        needed = hollow("libneeded.so.1")
        change(needed, here / needed.name)
        return built(SOURCES / "hollow.c", "user.so", needed)

    return make


def _user_by_path(here: Path) -> Path:
    """Make a library whose dependency is named by its path and may not be read."""
    needed = _compile(here, "needed.so")
    library = _compile(here, "user.so", "", needed)
    needed.chmod(0)
    return library


def _two_levels(here: Path) -> Path:
    middle = _compile(here, "libmiddle.so.1", "", hollow(VANISHED), "-Wl,-soname,libmiddle.so.1")
    return _compile(here, "top.so", "", middle)


def _versioned(name: str, here: Path, *, kept: str, soname: str = "libversions.so.1") -> Path:
    """Make a user of `wanted@V_2`; put a library beside it that has only what `kept` says."""
    for which, versions in (("full", "V_1 {}; V_2 { wanted; };"), ("kept", kept)):
        directory = here / which
        directory.mkdir()
        script = directory / "versions"
        script.write_text(versions)
        text = "int wanted(void) { return 1; }\n" if "wanted" in versions else ""
        flags = f"-Wl,--version-script={script}", f"-Wl,-soname,{soname}"
        _compile(directory, soname, text, *flags)
    text = "int wanted(void); int use(void) { return wanted(); }\n"
    return _compile(here, name, text, here / "full" / soname)


_CALLS = "void nowhere(void); void use(void) { nowhere(); }\n"
_MANGLED = "_ZN2at4_ops5zeros4callEN3c108ArrayRefINS2_6SymIntEEENS2_8optionalINS2_6LayoutEEE"
_OTHER_MACHINE = {elfpatch.MACHINE: elfpatch.FOREIGN_MACHINE}
_IN_HERE = {"LD_LIBRARY_PATH": "{here}"}

DEPENDENCIES = (
    Case(
        name="dependency missing two levels down",
        make=_two_levels,
        variables=_IN_HERE,
        lines=same("FAIL missing_dependency: libpyresolve_vanished.so.1 (top.so)"),
    ),
    Case(
        name="two dependencies missing",
        make=lambda here: _compile(here, "two.so", "", hollow("libva.so.1"), hollow("libvb.so.2")),
        lines=same("FAIL missing_dependency: libva.so.1 (two.so)"),
    ),
    Case(
        name="undefined function",
        make=_compiled("calls.so", _CALLS),
        lines=same("FAIL undefined_symbol: nowhere (calls.so)"),
    ),
    Case(
        name="undefined function of C++",
        make=_compiled(
            "a_long_name.of_a_library.so",
            f"void {_MANGLED}(void); void use(void) {{ {_MANGLED}(); }}\n",
        ),
        lines=same("FAIL undefined_symbol: at::_ops::zeros::call (a_long_name.of_a_library.so)"),
    ),
    Case(
        name="undefined function, bound at once",
        make=_compiled("calls.so", _CALLS, "-Wl,-z,now"),
        lines=same("FAIL undefined_symbol: nowhere (calls.so)"),
    ),
    Case(
        name="undefined data",
        make=_compiled("reads.so", "extern int nowhere; int use(void) { return nowhere; }\n"),
        lines=same("FAIL undefined_symbol: nowhere (reads.so)"),
    ),
    Case(
        name="undefined weak function",
        make=_compiled(
            "weak.so",
            "void __attribute__((weak)) nowhere(void); void use(void) { if (nowhere) nowhere(); }",
        ),
        lines=same("OK loadable (weak.so)"),
    ),
    Case(
        name="undefined function of a runtime that is not linked",
        make=_compiled("cuda.so", "int cudaFree(void *); int use(void) { return cudaFree(0); }\n"),
        lines=same("FAIL undefined_symbol: cudaFree (cuda.so)"),
    ),
    Case(
        name="undefined function of a driver that is not linked",
        make=_compiled("cu.so", "int cuInit(unsigned); int use(void) { return cuInit(0); }\n"),
        lines=same("FAIL undefined_symbol: cuInit (cu.so)"),
    ),
    Case(
        name="undefined function of a dependency",
        make=lambda here: _compile(
            here, "top.so", "", _compile(here, "libcalls.so", _CALLS, "-Wl,-soname,libcalls.so")
        ),
        variables=_IN_HERE,
        lines=same("FAIL undefined_symbol: nowhere (top.so)"),
    ),
    Case(
        name="undefined data of a dependency",
        make=lambda here: _compile(
            here,
            "top.so",
            "",
            _compile(
                here,
                "libreads.so",
                "extern int nowhere; int use(void) { return nowhere; }\n",
                "-Wl,-soname,libreads.so",
            ),
        ),
        variables=_IN_HERE,
        lines=same("FAIL undefined_symbol: nowhere (top.so)"),
    ),
    Case(
        name="undefined versioned function",
        make=lambda here: _versioned("user.so", here, kept="V_1 {}; V_2 {};"),
        variables={"LD_LIBRARY_PATH": "{here}/kept"},
        lines=same("FAIL undefined_symbol: wanted@V_2 (user.so)"),
    ),
    Case(
        name="symbol version missing in a dependency",
        make=lambda here: _versioned("user.so", here, kept="V_1 {};"),
        variables={"LD_LIBRARY_PATH": "{here}/kept"},
        lines=same("FAIL version_mismatch: V_2 (user.so)"),
    ),
    Case(
        name="dependency without versions",  # bound with a warning, also with LD_BIND_NOW=1
        make=lambda here: _versioned("user.so", here, kept="{ wanted; };"),
        variables={"LD_LIBRARY_PATH": "{here}/kept"},
        lines=same("OK loadable (user.so)"),
    ),
    Case(
        name="dependency that is empty",
        make=_user(lambda needed, to: to.touch()),
        variables=_IN_HERE,
        lines=same("FAIL truncated (user.so)"),
    ),
    Case(
        name="dependency that is text",
        make=_user(lambda needed, to: to.write_text("no library\n")),
        variables=_IN_HERE,
        lines=same("FAIL not_elf (user.so)"),
    ),
    Case(
        name="dependency cut after its header",
        make=_user(lambda needed, to: elfpatch.cut(needed, to, 100)),
        variables=_IN_HERE,
        lines=same("FAIL truncated (user.so)"),
    ),
    # Questionable for the program: it names the signal and not the file. The signal depends on the
    # size of a page.
    Case(
        name="dependency cut in its segments",
        make=_user(lambda needed, to: elfpatch.cut(needed, to, 5000)),
        variables=_IN_HERE,
        lines=same("FAIL truncated (user.so)"),
        program=same("FAIL crashed: SIGBUS (user.so)"),
    ),
    Case(
        name="dependency for another machine",
        make=_user(lambda needed, to: elfpatch.patch(needed, to, _OTHER_MACHINE)),
        variables=_IN_HERE,
        lines=same("FAIL missing_dependency: libneeded.so.1 (user.so)"),
    ),
    Case(
        name="dependency that is an executable",
        make=_user(lambda needed, to: elfpatch.patch(needed, to, {16: 2})),
        variables=_IN_HERE,
        lines=same("FAIL not_loadable (user.so)"),
    ),
    Case(
        name="dependency that is a directory",
        make=_user(lambda needed, to: to.mkdir()),
        variables=_IN_HERE,
        lines=same("FAIL not_elf (user.so)"),
    ),
    Case(
        name="dependency without permission",
        make=_user(lambda needed, to: Path(shutil.copy(needed, to)).chmod(0)),
        variables=_IN_HERE,
        prefix=_unprivileged,
        lines=same("FAIL missing_dependency: libneeded.so.1 (user.so)"),
    ),
    Case(
        name="dependency without permission, named by its path",
        make=_user_by_path,
        prefix=_unprivileged,
        lines=same("FAIL permission (user.so)"),
    ),
    Case(
        name="dependency that crashes",
        make=lambda here: _compile(here, "user.so", "", rogue("segfault")),
        lines=same("FAIL crashed: SIGSEGV (user.so)"),
    ),
    Case(
        name="exit status of the loader",
        make=_compiled("exit.so", f"#include <stdlib.h>\n{_CONSTRUCTOR} {{ _Exit(127); }}\n"),
        lines=same("FAIL exited: exit status 127 (exit.so)"),
    ),
    Case(
        name="real-time signal",
        make=_compiled(
            "signal.so", f"#include <signal.h>\n{_CONSTRUCTOR} {{ raise(SIGRTMIN + 3); }}\n"
        ),
        lines=same("FAIL crashed: signal 37 (signal.so)"),
    ),
)


# --- environments


def _with_file(name: str, content: bytes) -> Make:
    """Return the function that puts a file beside a sound library."""

    def make(here: Path) -> Path:
        (here / name).write_bytes(content)
        return rogue("good")

    return make


def _hollow_libc(here: Path) -> Path:
    _compile(here, "libc.so.6", "", "-nostdlib", "-Wl,-soname,libc.so.6")
    return rogue("good")


def _odd_directory(name: str) -> Make:
    def make(here: Path) -> Path:
        (here / name).mkdir(parents=True)
        return Path(shutil.copy(rogue("good"), here / name))

    return make


def _preloads(name: str, value: str, lines: Line, timeout: float = AMPLE) -> Case:
    return Case(
        name=f"{name} and LD_PRELOAD={value}",
        make=_rogue(name),
        variables={"LD_PRELOAD": value},
        lines=lines,
        timeout=timeout,
    )


ENVIRONMENTS = (
    _preloads("good", "", same("OK loadable (good.so)")),
    _preloads("good", "{good_libm}", same("OK loadable (good.so)")),
    _preloads("good", "{good}", same("OK loadable (good.so)")),
    _preloads("good", "{good_libm}:{good}", same("OK loadable (good.so)")),
    _preloads("good", "good.so", same("OK loadable (good.so)")),
    _preloads("good", " : {good_libm}::{good_libm} ", same("OK loadable (good.so)")),
    _preloads("good", "/nowhere/lib.so", same("OK loadable (good.so)")),
    _preloads("good", "libnothing.so.9:{good_libm}", same("OK loadable (good.so)")),
    _preloads(
        "good",
        "{musl}",
        ("OK loadable (good.so)", "FAIL broken_environment: exit status 127 (good.so)"),
    ),
    _preloads(
        "good",
        "{missing_needed}",
        ("OK loadable (good.so)", "FAIL broken_environment: exit status 127 (good.so)"),
    ),
    _preloads(
        "good",
        "{undefined_data}",
        ("OK loadable (good.so)", "FAIL broken_environment: exit status 127 (good.so)"),
    ),
    _preloads("good", "{undefined_function}", same("OK loadable (good.so)")),
    _preloads(
        "good",
        "{unmet_version}",
        ("OK loadable (good.so)", "FAIL broken_environment: exit status 1 (good.so)"),
    ),
    _preloads(
        "good",
        "{segfault}",
        ("OK loadable (good.so)", "FAIL broken_environment: SIGSEGV (good.so)"),
    ),
    _preloads(
        "good",
        "{exit_zero}",
        ("OK loadable (good.so)", "FAIL broken_environment: exit status 0 (good.so)"),
    ),
    _preloads(
        "good",
        "{exit_three}",
        ("OK loadable (good.so)", "FAIL broken_environment: exit status 3 (good.so)"),
    ),
    _preloads(
        "good",
        "{good_libm} {abort}",
        ("OK loadable (good.so)", "FAIL broken_environment: SIGABRT (good.so)"),
    ),
    _preloads(
        "good",
        "{kill_group}",
        ("OK loadable (good.so)", "FAIL broken_environment: SIGKILL (good.so)"),
    ),
    # Questionable as a preload, like the next: the library is blamed for what another one does.
    _preloads("good", "{loop}", ("OK loadable (good.so)", "FAIL timed_out: 0.3 s (good.so)"), HANG),
    _preloads("good", "{stop}", ("OK loadable (good.so)", "FAIL timed_out: 0.3 s (good.so)"), HANG),
    _preloads(
        "missing_needed",
        "{good_libm}",
        same("FAIL missing_dependency: libpyresolve_vanished.so.1 (missing_needed.so)"),
    ),
    _preloads(
        "missing_needed",
        "/nowhere/lib.so",
        same("FAIL missing_dependency: libpyresolve_vanished.so.1 (missing_needed.so)"),
    ),
    _preloads(
        "missing_needed",
        "{missing_needed}",
        same("FAIL missing_dependency: libpyresolve_vanished.so.1 (missing_needed.so)"),
    ),
    _preloads(
        "missing_needed",
        "{undefined_data}",
        (
            "FAIL missing_dependency: libpyresolve_vanished.so.1 (missing_needed.so)",
            "FAIL broken_environment: exit status 127 (missing_needed.so)",
        ),
    ),
    _preloads(
        "missing_needed",
        "{unmet_version}",
        (
            "FAIL missing_dependency: libpyresolve_vanished.so.1 (missing_needed.so)",
            "FAIL broken_environment: exit status 1 (missing_needed.so)",
        ),
    ),
    _preloads(
        "missing_needed",
        "{segfault}",
        (
            "FAIL missing_dependency: libpyresolve_vanished.so.1 (missing_needed.so)",
            "FAIL broken_environment: SIGSEGV (missing_needed.so)",
        ),
    ),
    _preloads(
        "missing_needed",
        "{loop}",
        (
            "FAIL missing_dependency: libpyresolve_vanished.so.1 (missing_needed.so)",
            "FAIL timed_out: 0.3 s (missing_needed.so)",
        ),
        HANG,
    ),
    _preloads(
        "missing_needed",
        "",
        same("FAIL missing_dependency: libpyresolve_vanished.so.1 (missing_needed.so)"),
    ),
    _preloads(
        "missing_needed",
        "{good}",
        same("FAIL missing_dependency: libpyresolve_vanished.so.1 (missing_needed.so)"),
    ),
    _preloads(
        "missing_needed",
        "{good_libm}:{good}",
        same("FAIL missing_dependency: libpyresolve_vanished.so.1 (missing_needed.so)"),
    ),
    _preloads(
        "missing_needed",
        "good.so",
        same("FAIL missing_dependency: libpyresolve_vanished.so.1 (missing_needed.so)"),
    ),
    _preloads(
        "missing_needed",
        " : {good_libm}::{good_libm} ",
        same("FAIL missing_dependency: libpyresolve_vanished.so.1 (missing_needed.so)"),
    ),
    _preloads(
        "missing_needed",
        "libnothing.so.9:{good_libm}",
        same("FAIL missing_dependency: libpyresolve_vanished.so.1 (missing_needed.so)"),
    ),
    _preloads(
        "missing_needed",
        "{exit_zero}",
        (
            "FAIL missing_dependency: libpyresolve_vanished.so.1 (missing_needed.so)",
            "FAIL broken_environment: exit status 0 (missing_needed.so)",
        ),
    ),
    _preloads(
        "missing_needed",
        "{good_libm} {abort}",
        (
            "FAIL missing_dependency: libpyresolve_vanished.so.1 (missing_needed.so)",
            "FAIL broken_environment: SIGABRT (missing_needed.so)",
        ),
    ),
    _preloads("segfault", "{good_libm}", same("FAIL crashed: SIGSEGV (segfault.so)")),
    _preloads("segfault", "{segfault}", same("FAIL crashed: SIGSEGV (segfault.so)")),
    _preloads(
        "segfault",
        "{missing_needed}",
        (
            "FAIL crashed: SIGSEGV (segfault.so)",
            "FAIL broken_environment: exit status 127 (segfault.so)",
        ),
    ),
    _preloads(
        "segfault",
        "{exit_zero}",
        (
            "FAIL crashed: SIGSEGV (segfault.so)",
            "FAIL broken_environment: exit status 0 (segfault.so)",
        ),
    ),
    _preloads(
        "segfault",
        "{good_libm} {abort}",
        ("FAIL crashed: SIGSEGV (segfault.so)", "FAIL broken_environment: SIGABRT (segfault.so)"),
    ),
    _preloads("segfault", "", same("FAIL crashed: SIGSEGV (segfault.so)")),
    _preloads("segfault", "{good}", same("FAIL crashed: SIGSEGV (segfault.so)")),
    _preloads("segfault", "{good_libm}:{good}", same("FAIL crashed: SIGSEGV (segfault.so)")),
    _preloads("segfault", "good.so", same("FAIL crashed: SIGSEGV (segfault.so)")),
    _preloads(
        "segfault", " : {good_libm}::{good_libm} ", same("FAIL crashed: SIGSEGV (segfault.so)")
    ),
    _preloads("segfault", "/nowhere/lib.so", same("FAIL crashed: SIGSEGV (segfault.so)")),
    _preloads(
        "segfault", "libnothing.so.9:{good_libm}", same("FAIL crashed: SIGSEGV (segfault.so)")
    ),
    _preloads(
        "segfault",
        "{unmet_version}",
        (
            "FAIL crashed: SIGSEGV (segfault.so)",
            "FAIL broken_environment: exit status 1 (segfault.so)",
        ),
    ),
    _preloads(
        "loop",
        "{segfault}",
        ("FAIL timed_out: 0.3 s (loop.so)", "FAIL broken_environment: SIGSEGV (loop.so)"),
        HANG,
    ),
    *(
        Case(
            name=f"libc.so.6 that is {what}",
            make=_with_file("libc.so.6", content),
            variables=_IN_HERE,
            lines=same("FAIL broken_environment: exit status 127 (good.so)"),
        )
        for what, content in (("empty", b""), ("cut", b"\x7fELF"), ("text", b"text"))
    ),
    Case(
        name="libc.so.6 that defines nothing",
        make=_hollow_libc,
        variables=_IN_HERE,
        lines=same("FAIL broken_environment: exit status 127 (good.so)"),
    ),
    Case(
        name="LD_AUDIT that is absent",
        make=_rogue("good"),
        variables={"LD_AUDIT": "/nowhere/audit.so"},
        lines=same("OK loadable (good.so)"),
    ),
    Case(
        name="LD_BIND_NOW and an undefined function",
        make=_rogue("undefined_function"),
        variables={"LD_BIND_NOW": "1"},
        lines=same("FAIL undefined_symbol: rogue_nowhere_function (undefined_function.so)"),
    ),
    Case(
        name="name in LD_LIBRARY_PATH",
        make=lambda here: shutil.copy(rogue("good"), here / "libgood.so.7") and "libgood.so.7",
        variables=_IN_HERE,
        lines=same("OK loadable (libgood.so.7)"),
    ),
    Case(
        name="name of a text in LD_LIBRARY_PATH",
        make=lambda here: (here / "libtext.so.7").write_text("x") and "libtext.so.7",
        variables=_IN_HERE,
        lines=("FAIL not_elf (libtext.so.7)", "FAIL ignored (libtext.so.7)"),
    ),
    *(
        Case(
            name=f"in a directory {name}",
            make=_odd_directory(name),
            lines=same("OK loadable (good.so)"),
        )
        for name in ("a b", "a;b", "\u00e9")
    ),
    Case(
        name="deadline in the past",
        make=_rogue("good"),
        timeout=1e-6,
        lines=same("FAIL timed_out: 1e-06 s (good.so)"),
    ),
    Case(
        name="deadline in the past, broken file",
        make=_written("text.so", b"no library\n"),
        timeout=1e-6,
        lines=same("FAIL not_elf (text.so)"),
    ),
)


# --- hooks, without a driver and with drivers that are not real ones


def _hook(here: Path) -> Path:
    """Make a hook of CUDA 14, and a runtime for it, in `here`."""
    shutil.copy(fake_cudart(14), here)
    return Site(here).fake_hook(14, "hook.so")


def _hook_bound_now(here: Path) -> Path:
    _hook(here)
    return cc(
        SOURCES / "hook.c",
        here / "hook.so",
        hollow("libcuda.so.1"),
        fake_cudart(14),
        "-Wl,-z,now",
    )


def _with_driver(make: Callable[[Path], object]) -> Make:
    """Return the function that makes a hook, and a libcuda.so.1 with `make`, in one directory."""

    def make_both(here: Path) -> Path:
        make(here)
        return _hook(here)

    return make_both


def _libcuda(*flags: str | Path) -> Callable[[Path], Path]:
    return _compiled("libcuda.so.1", "", "-Wl,-soname,libcuda.so.1", *flags)


def _foreign_libcuda(here: Path) -> Path:
    return elfpatch.patch(hollow("libcuda.so.1"), here / "libcuda.so.1", _OTHER_MACHINE)


_WITH_DRIVER = {"LD_LIBRARY_PATH": "{here}:{driver}"}

# Here and in HOOKS below the tests want a machine without a driver.
DRIVERS = (
    Case(
        name="made-up hook without a driver",
        make=_hook,
        variables=_IN_HERE,
        lines=same("UNKNOWN no_driver: libcuda.so.1 (hook.so)"),
    ),
    Case(
        name="made-up hook with a driver",
        make=_hook,
        variables=_WITH_DRIVER,
        lines=same("OK loadable (hook.so)"),
    ),
    Case(
        name="made-up hook with the toolkit's stub",
        make=_hook,
        variables={"LD_LIBRARY_PATH": "{here}:{toolkit_stub}"},
        lines=same("UNKNOWN no_driver: libcuda.so.1 (hook.so)"),
    ),
    Case(
        name="made-up hook without a driver and a runtime",
        make=_hook,
        lines=same("FAIL missing_dependency: libcudart.so.14 (hook.so)"),
    ),
    Case(
        name="made-up hook with a driver and without a runtime",
        make=_hook,
        variables={"LD_LIBRARY_PATH": "{driver}"},
        lines=same("FAIL missing_dependency: libcudart.so.14 (hook.so)"),
    ),
    Case(
        name="made-up hook with the toolkit's stub and without a runtime",
        make=_hook,
        variables={"LD_LIBRARY_PATH": "{toolkit_stub}"},
        lines=same("FAIL missing_dependency: libcudart.so.14 (hook.so)"),
    ),
    Case(
        name="made-up hook bound at once, without a driver",
        make=_hook_bound_now,
        variables=_IN_HERE,
        lines=same("UNKNOWN no_driver: libcuda.so.1 (hook.so)"),
    ),
    Case(
        name="made-up hook bound at once, with a driver",
        make=_hook_bound_now,
        variables=_WITH_DRIVER,
        lines=same("OK loadable (hook.so)"),
    ),
    # Questionable: this driver is found, and has none of the functions that the hook calls.
    Case(
        name="made-up hook with a driver that defines nothing",
        make=_with_driver(_libcuda()),
        variables=_IN_HERE,
        lines=same("UNKNOWN no_driver: libcuda.so.1 (hook.so)"),
    ),
    Case(
        name="made-up hook with a driver that lacks a dependency",
        make=_with_driver(lambda here: _libcuda(hollow(VANISHED))(here)),
        variables=_IN_HERE,
        lines=same("FAIL missing_dependency: libpyresolve_vanished.so.1 (hook.so)"),
    ),
    Case(
        name="made-up hook with a driver that is text",
        make=_with_driver(_written("libcuda.so.1", b"text")),
        variables=_IN_HERE,
        lines=same("FAIL not_elf (hook.so)"),
    ),
    Case(
        name="made-up hook with a driver that is empty",
        make=_with_driver(_written("libcuda.so.1", b"")),
        variables=_IN_HERE,
        lines=same("FAIL truncated (hook.so)"),
    ),
    Case(
        name="made-up hook with a driver for another machine",
        make=_with_driver(_foreign_libcuda),
        variables=_IN_HERE,
        lines=same("UNKNOWN no_driver: libcuda.so.1 (hook.so)"),
    ),
    Case(
        name="made-up hook with a runtime before it",
        make=_hook,
        variables={**_WITH_DRIVER, "LD_PRELOAD": "{here}/libcudart.so.14:{here}/hook.so"},
        lines=("OK loadable (hook.so)", "FAIL bypassed (hook.so)"),
    ),
    Case(
        name="made-up hook with a runtime before it, without a driver",
        make=_hook,
        variables={**_IN_HERE, "LD_PRELOAD": "{here}/libcudart.so.14:{here}/hook.so"},
        lines=("UNKNOWN no_driver: libcuda.so.1 (hook.so)", "FAIL bypassed (hook.so)"),
    ),
    Case(
        name="made-up hook with a runtime after it",
        make=_hook,
        variables={**_WITH_DRIVER, "LD_PRELOAD": "{here}/hook.so:{here}/libcudart.so.14"},
        lines=same("OK loadable (hook.so)"),
    ),
    Case(
        name="made-up hook with a runtime that it goes before",
        make=_hook,
        variables={**_WITH_DRIVER, "LD_PRELOAD": "{here}/libcudart.so.14"},
        lines=same("OK loadable (hook.so)"),
    ),
    Case(
        name="made-up hook without a driver, with another preload that crashes",
        make=_hook,
        variables={**_IN_HERE, "LD_PRELOAD": "{segfault}"},
        lines=(
            "UNKNOWN no_driver: libcuda.so.1 (hook.so)",
            "FAIL broken_environment: SIGSEGV (hook.so)",
        ),
    ),
    Case(
        name="driver alone",
        make=lambda here: "libcuda.so.1",
        variables=_WITH_DRIVER,
        lines=same("OK loadable (libcuda.so.1)"),
    ),
    Case(
        name="toolkit's stub alone",
        make=lambda here: "libcuda.so.1",
        variables={"LD_LIBRARY_PATH": "{toolkit_stub}"},
        lines=same("UNKNOWN no_driver: libcuda.so.1 (libcuda.so.1)"),
    ),
    Case(
        name="driver alone that is absent",
        make=lambda here: "libcuda.so.1",
        lines=("FAIL not_found (libcuda.so.1)", "FAIL ignored (libcuda.so.1)"),
    ),
)


# --- the real hooks


@functools.cache
def _wheel(version: str) -> Site:
    return Site(workshop() / f"hooks-{version}").tms(version)


@functools.cache
def _runtime(major: int) -> Path:
    return Site(workshop() / "runtimes").cudart(major)


def _hidden_toolkit(_: Path) -> list[str]:
    return hidden_toolkit()


_RUNTIMES = "{cudart12}:{cudart13}"
STATES = {
    "nothing": "",
    "a driver": "{driver}",
    "a runtime": _RUNTIMES,
    "a runtime and a driver": _RUNTIMES + ":{driver}",
    "a runtime and the toolkit's stub": _RUNTIMES + ":{toolkit_stub}",
}

# By version of torch_memory_saver and the end of the file's name, for each of STATES.
HOOKS: dict[tuple[str, str], tuple[Line, Line, Line, Line, Line]] = {
    ("0.0.9", "preload"): (
        same("FAIL missing_dependency: libcudart.so.12 (torch_memory_save...e_preload.abi3.so)"),
        same("FAIL missing_dependency: libcudart.so.12 (torch_memory_save...e_preload.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_hook_mode_preload.abi3.so)"),
        same("OK loadable (torch_memory_saver_hook_mode_preload.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_hook_mode_preload.abi3.so)"),
    ),
    ("0.0.9", "torch"): (
        same("FAIL missing_dependency: libcudart.so.12 (torch_memory_save...ode_torch.abi3.so)"),
        same("FAIL missing_dependency: libcudart.so.12 (torch_memory_save...ode_torch.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_hook_mode_torch.abi3.so)"),
        same("OK loadable (torch_memory_saver_hook_mode_torch.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_hook_mode_torch.abi3.so)"),
    ),
    ("0.0.9.post1", "preload"): (
        same("FAIL missing_dependency: libcudart.so.12 (torch_memory_save...e_preload.abi3.so)"),
        same("FAIL missing_dependency: libcudart.so.12 (torch_memory_save...e_preload.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_hook_mode_preload.abi3.so)"),
        same("OK loadable (torch_memory_saver_hook_mode_preload.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_hook_mode_preload.abi3.so)"),
    ),
    ("0.0.9.post1", "preload_cu12"): (
        same("FAIL missing_dependency: libcudart.so.12 (torch_memory_save...load_cu12.abi3.so)"),
        same("FAIL missing_dependency: libcudart.so.12 (torch_memory_save...load_cu12.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_ho...e_preload_cu12.abi3.so)"),
        same("OK loadable (torch_memory_saver_hook_mode_preload_cu12.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_ho...e_preload_cu12.abi3.so)"),
    ),
    ("0.0.9.post1", "preload_cu13"): (
        same("FAIL missing_dependency: libcudart.so.13 (torch_memory_save...load_cu13.abi3.so)"),
        same("FAIL missing_dependency: libcudart.so.13 (torch_memory_save...load_cu13.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_ho...e_preload_cu13.abi3.so)"),
        same("OK loadable (torch_memory_saver_hook_mode_preload_cu13.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_ho...e_preload_cu13.abi3.so)"),
    ),
    ("0.0.9.post1", "torch"): (
        same("FAIL missing_dependency: libcudart.so.12 (torch_memory_save...ode_torch.abi3.so)"),
        same("FAIL missing_dependency: libcudart.so.12 (torch_memory_save...ode_torch.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_hook_mode_torch.abi3.so)"),
        same("OK loadable (torch_memory_saver_hook_mode_torch.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_hook_mode_torch.abi3.so)"),
    ),
    ("0.0.9.post1", "torch_cu12"): (
        same("FAIL missing_dependency: libcudart.so.12 (torch_memory_save...orch_cu12.abi3.so)"),
        same("FAIL missing_dependency: libcudart.so.12 (torch_memory_save...orch_cu12.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_ho...ode_torch_cu12.abi3.so)"),
        same("OK loadable (torch_memory_saver_hook_mode_torch_cu12.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_ho...ode_torch_cu12.abi3.so)"),
    ),
    ("0.0.9.post1", "torch_cu13"): (
        same("FAIL missing_dependency: libcudart.so.13 (torch_memory_save...orch_cu13.abi3.so)"),
        same("FAIL missing_dependency: libcudart.so.13 (torch_memory_save...orch_cu13.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_ho...ode_torch_cu13.abi3.so)"),
        same("OK loadable (torch_memory_saver_hook_mode_torch_cu13.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_ho...ode_torch_cu13.abi3.so)"),
    ),
    ("0.0.10", "preload"): (
        same("FAIL missing_dependency: libcudart.so.12 (torch_memory_save...e_preload.abi3.so)"),
        same("FAIL missing_dependency: libcudart.so.12 (torch_memory_save...e_preload.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_hook_mode_preload.abi3.so)"),
        same("OK loadable (torch_memory_saver_hook_mode_preload.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_hook_mode_preload.abi3.so)"),
    ),
    ("0.0.10", "preload_cu12"): (
        same("FAIL missing_dependency: libcudart.so.12 (torch_memory_save...load_cu12.abi3.so)"),
        same("FAIL missing_dependency: libcudart.so.12 (torch_memory_save...load_cu12.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_ho...e_preload_cu12.abi3.so)"),
        same("OK loadable (torch_memory_saver_hook_mode_preload_cu12.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_ho...e_preload_cu12.abi3.so)"),
    ),
    ("0.0.10", "preload_cu13"): (
        same("FAIL missing_dependency: libcudart.so.13 (torch_memory_save...load_cu13.abi3.so)"),
        same("FAIL missing_dependency: libcudart.so.13 (torch_memory_save...load_cu13.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_ho...e_preload_cu13.abi3.so)"),
        same("OK loadable (torch_memory_saver_hook_mode_preload_cu13.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_ho...e_preload_cu13.abi3.so)"),
    ),
    ("0.0.10", "torch"): (
        same("FAIL missing_dependency: libcudart.so.12 (torch_memory_save...ode_torch.abi3.so)"),
        same("FAIL missing_dependency: libcudart.so.12 (torch_memory_save...ode_torch.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_hook_mode_torch.abi3.so)"),
        same("OK loadable (torch_memory_saver_hook_mode_torch.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_hook_mode_torch.abi3.so)"),
    ),
    ("0.0.10", "torch_cu12"): (
        same("FAIL missing_dependency: libcudart.so.12 (torch_memory_save...orch_cu12.abi3.so)"),
        same("FAIL missing_dependency: libcudart.so.12 (torch_memory_save...orch_cu12.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_ho...ode_torch_cu12.abi3.so)"),
        same("OK loadable (torch_memory_saver_hook_mode_torch_cu12.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_ho...ode_torch_cu12.abi3.so)"),
    ),
    ("0.0.10", "torch_cu13"): (
        same("FAIL missing_dependency: libcudart.so.13 (torch_memory_save...orch_cu13.abi3.so)"),
        same("FAIL missing_dependency: libcudart.so.13 (torch_memory_save...orch_cu13.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_ho...ode_torch_cu13.abi3.so)"),
        same("OK loadable (torch_memory_saver_hook_mode_torch_cu13.abi3.so)"),
        same("UNKNOWN no_driver: libcuda.so.1 (torch_memory_saver_ho...ode_torch_cu13.abi3.so)"),
    ),
}


def _hooks() -> Iterator[Case]:
    for (version, end), several in HOOKS.items():
        for (state, places), lines in zip(STATES.items(), several, strict=True):
            yield Case(
                name=f"{end} of {version} with {state}",
                make=functools.partial(_real_hook, version, end),
                variables={"LD_LIBRARY_PATH": places},
                prefix=None if _RUNTIMES in places else _hidden_toolkit,
                lines=lines,
            )


def _real_hook(version: str, end: str, here: Path) -> Path:
    return _wheel(version) / f"torch_memory_saver_hook_mode_{end}.abi3.so"


CASES = (*_rogues(), *_files(), *_names(), *DEPENDENCIES)
WITHOUT_DRIVER = (*DRIVERS, *_hooks())
