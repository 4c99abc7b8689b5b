"""What glibc's loader says: its messages, each with its source, and how they are read.

The sources of 2.12 (of RHEL 6), 2.31, 2.36 and 2.41 were compared; a text that is the same in two
of them holds for the versions in between. The line numbers are those of the last version of a row.
"live" is what the loader of 2.36 printed.
"""

from __future__ import annotations

import ctypes
import os
import re
from typing import NamedTuple

import pytest
from support import REPOSITORY
from support.compile import built
from support.fuzz import fuzz

NATIVE = REPOSITORY / "native"


class Text(ctypes.Structure):
    """struct pyr_text."""

    _fields_ = (("at", ctypes.POINTER(ctypes.c_char)), ("length", ctypes.c_size_t))

    @classmethod
    def of(cls, text):
        encoded = os.fsencode(text)
        return cls(ctypes.create_string_buffer(encoded, len(encoded) + 1), len(encoded))

    def __str__(self):
        return os.fsdecode(self.at[: self.length])


FIELDS = ("file", "by", "name", "version", "reason", "text")


class LoaderText(ctypes.Structure):
    """struct pyr_loader_text."""

    _fields_ = (("says", ctypes.c_int), *((name, Text) for name in FIELDS))


def complaints():
    """Return the members of enum pyr_complaint in their order."""
    header = (NATIVE / "loader_text.h").read_text()
    body = re.search(r"enum pyr_complaint {(.*?)}", header, re.DOTALL)[1]
    return re.findall(r"^ *PYR_SAYS_(\w+)", body, re.MULTILINE)


COMPLAINTS = complaints()


@pytest.fixture(scope="session")
def native():
    """Return the reader as a library."""
    flags = ["-std=c11", "-D_GNU_SOURCE", "-iquote", str(NATIVE)]
    library = ctypes.CDLL(str(built(NATIVE / "loader_text.c", "loader_text.so", *flags)))
    for name in ("read_error", "read_stderr"):
        function = getattr(library, f"pyr_loader_{name}")
        function.argtypes, function.restype = (Text,), LoaderText
    library.pyr_loader_skipped.argtypes = (Text, Text, ctypes.POINTER(Text))
    library.pyr_loader_skipped.restype = ctypes.c_bool
    library.pyr_loader_is_driver_symbol.argtypes = (Text,)
    library.pyr_loader_is_driver_symbol.restype = ctypes.c_bool
    return library


def read(function, text):
    """Return the complaint, and those of its fields that are there."""
    given = Text.of(text)  # the result points into it
    found = function(given)
    fields = {name: str(getattr(found, name)) for name in FIELDS}
    return COMPLAINTS[found.says], {name: value for name, value in fields.items() if value}


class Row(NamedTuple):
    """A text, where it comes from, and how it is to be read.

    `text` is among the fields only if it is not all of the text.
    """

    source: str
    text: str
    says: str
    fields: dict[str, str]


def bad(source, file, words, reason=None):
    """Return the row of a file that no system would load."""
    return Row(source, f"{file}: {words}", "BAD_FILE", {"file": file, "reason": reason or words})


def limit(source, file, words, error=None):
    """Return the row of what the system refused: `error` is the text of errno."""
    text = f"{file}: {words}" + (f": {error}" if error else "")
    return Row(source, text, "LIMIT", {"file": file, "reason": error or words})


def without_file(source, text, reason):
    """Return the row of what the system refused before there was a file."""
    return Row(source, text, "LIMIT", {"reason": reason})


def unopened(source, says, file, reason):
    """Return the row of a file that the loader did not open."""
    text = f"{file}: cannot open shared object file: {reason}"
    return Row(source, text, says, {"file": file, "name": file, "reason": reason})


NOMEM = "Cannot allocate memory"
EPERM = "Operation not permitted"
HOOK = "/opt/venv/lib/hook.so"

# What dlerror returns.
ERRORS = [
    # --- elf/dl-load.c, _dl_map_object
    unopened("2.12-2.41 dl-load.c:2178", "NOT_FOUND", "libcudart.so.12", os.strerror(2)),
    unopened("live, ENOTDIR", "NOT_FOUND", "./text.so/x", "Not a directory"),
    unopened("live, ENAMETOOLONG", "NOT_FOUND", "./" + 300 * "a", "File name too long"),
    unopened("live, ELOOP", "NOT_FOUND", "./loop.so", "Too many levels of symbolic links"),
    unopened("live, two lines", "NOT_FOUND", "a\nb.so", "No such file or directory"),
    unopened("2.12-2.41 dl-load.c:2178", "DENIED", HOOK, "Permission denied"),
    unopened("live, RLIMIT_NOFILE", "CANNOT_OPEN", "libm.so.6", "Too many open files"),
    unopened("2.12-2.41 dl-load.c:2178", "CANNOT_OPEN", HOOK, "Too many open files in system"),
    unopened("2.12-2.41 dl-load.c:2178", "CANNOT_OPEN", HOOK, NOMEM),
    unopened("2.12-2.41 dl-load.c:2178", "CANNOT_OPEN", HOOK, EPERM),
    unopened("2.12-2.41 dl-load.c:2178", "CANNOT_OPEN", HOOK, "Input/output error"),
    unopened("2.12-2.41 dl-load.c:2178", "CANNOT_OPEN", HOOK, "Stale file handle"),
    Row(
        "2.12-2.41 dl-load.c:2178, errno 0",
        "libx.so: cannot open shared object file",
        "CANNOT_OPEN",
        {"file": "libx.so", "name": "libx.so"},
    ),
    bad("2.12-2.41 dl-load.c:2174", HOOK, "wrong ELF class: ELFCLASS64"),
    bad("2.12-2.41 dl-load.c:2175", HOOK, "wrong ELF class: ELFCLASS32"),
    # --- elf/dl-load.c, open_verify
    bad("2.12-2.41 dl-load.c:1604, live", "./short.so", "file too short"),
    bad("2.12-2.41 dl-load.c:1638, live", "./text.so", "invalid ELF header"),
    bad("2.12-2.41 dl-load.c:1655", HOOK, "ELF file data encoding not little-endian"),
    bad("2.12-2.41 dl-load.c:1659", HOOK, "ELF file version ident does not match current one"),
    bad("2.12-2.41 dl-load.c:1663", HOOK, "ELF file OS ABI invalid"),
    bad("2.12-2.41 dl-load.c:1666", HOOK, "ELF file ABI version invalid"),
    bad("2.12-2.41 dl-load.c:1669", HOOK, "nonzero padding in e_ident"),
    bad("2.12-2.41 dl-load.c:1672", HOOK, "internal error"),
    bad("2.12-2.41 dl-load.c:1679", HOOK, "ELF file version does not match current one"),
    bad("2.12-2.41 dl-load.c:1691", HOOK, "only ET_DYN and ET_EXEC can be loaded"),
    bad("2.12-2.41 dl-load.c:1696", HOOK, "ELF file's phentsize not the expected size"),
    bad("2.12-2.41 dl-load.c:1710", HOOK, "cannot read file data"),
    bad(
        "2.12-2.41 dl-load.c:1604, live",
        "./d.so",
        "cannot read file data: Is a directory",
        "Is a directory",
    ),
    bad(
        "2.12-2.41 dl-load.c:1710",
        HOOK,
        "cannot read file data: Input/output error",
        "Input/output error",
    ),
    # --- elf/dl-load.c, _dl_map_object_from_fd, and its dl-load.h and dl-map-segments.h
    bad("2.12-2.31 dl-load.c:1068", HOOK, "ELF load command alignment not page-aligned"),
    bad("2.12-2.31 dl-load.c:1075", HOOK, "ELF load command address/offset not properly aligned"),
    bad("2.36-2.41 dl-load.c:1138", HOOK, "ELF load command address/offset not page-aligned"),
    bad("2.12 dl-load.c of RHEL 6", HOOK, "ELF load command past end of file"),
    bad("2.12-2.41 dl-load.c:1230", HOOK, "object file has no loadable segments"),
    bad("2.12-2.41 dl-load.c:1254", HOOK, "object file has no dynamic section"),
    bad("2.12-2.41 dl-load.c:1247", HOOK, "cannot dynamically load executable"),
    bad(
        "2.31-2.41 dl-load.c:1289, live",
        "/bin/true",
        "cannot dynamically load position-independent executable",
    ),
    bad("2.12-2.41 dl-load.c:1291", HOOK, "shared object cannot be dlopen()ed"),
    bad("2.31 dl-load.c:1151", HOOK, "cannot process note segment"),
    bad("2.12 dl-load.c", "libc.so.6", "cannot handle TLS data"),
    limit("live, RLIMIT_AS", "./good.so", "failed to map segment from shared object"),
    limit("2.12-2.41 dl-load.h:126", HOOK, "failed to map segment from shared object", NOMEM),
    limit("2.12-2.41 dl-load.h:126", HOOK, "failed to map segment from shared object", EPERM),
    limit("2.12-2.41 dl-load.h:128", HOOK, "cannot change memory protections", "Permission denied"),
    limit("2.12-2.41 dl-load.h:130", HOOK, "cannot map zero-fill pages", NOMEM),
    limit("2.12-2.41 dl-load.c:973", HOOK, "cannot stat shared object", "Input/output error"),
    limit("2.12-2.41 dl-load.c:1357", HOOK, "cannot close file descriptor", "Input/output error"),
    limit("2.12-2.41 dl-load.c:1066", HOOK, "cannot create shared object descriptor", NOMEM),
    limit("2.12-2.41 dl-load.c:1304", HOOK, "cannot allocate memory for program header", NOMEM),
    limit("2.31-2.41 dl-load.c:424", "libx.so.1", "cannot allocate name record", NOMEM),
    limit(
        "2.12-2.36 dl-load.c:1365, SELinux",
        HOOK,
        "cannot enable executable stack as shared object requires",
        "Permission denied",
    ),
    limit(
        "2.41 dl-load.c:1330, EINVAL unless a tunable allows it",
        HOOK,
        "cannot enable executable stack as shared object requires",
        "Invalid argument",
    ),
    without_file("2.31-2.41 dl-load.c:510", f"cannot create cache for search path: {NOMEM}", NOMEM),
    without_file("2.31-2.41 dl-load.c:606", f"cannot create RUNPATH/RPATH copy: {NOMEM}", NOMEM),
    without_file("2.31-2.41 dl-load.c:703", f"cannot create search path array: {NOMEM}", NOMEM),
    without_file("2.36-2.41 dl-hwcaps.c:104", f"cannot create HWCAP priorities: {NOMEM}", NOMEM),
    without_file("2.31-2.41 dl-hwcaps.c:196", f"cannot create capability list: {NOMEM}", NOMEM),
    # --- elf/dl-deps.c
    bad("2.31-2.41 dl-deps.c:110", "$LIB/x.so", "empty dynamic string token substitution"),
    limit("2.31-2.41 dl-deps.c:97", "$ORIGIN/x.so", "DST not allowed in SUID/SGID programs"),
    limit("2.31-2.41 dl-deps.c:204", HOOK, "cannot allocate dependency buffer", NOMEM),
    limit("2.31-2.41 dl-deps.c:427", HOOK, "cannot allocate dependency list", NOMEM),
    limit("2.31-2.41 dl-deps.c:467", HOOK, "cannot allocate symbol search list", NOMEM),
    # --- elf/dl-open.c, dl-close.c, dl-tls.c, dl-exception.c
    without_file(
        "2.12 dl-open.c, gone in 2.31",
        "dlopen: cannot load any more object with static TLS",
        "cannot load any more object with static TLS",
    ),
    without_file("2.31-2.41 dl-open.c:298", f"dlopen: cannot create scope list: {NOMEM}", NOMEM),
    without_file("2.31-2.41 dl-close.c:363", f"dlclose: cannot create scope list: {NOMEM}", NOMEM),
    without_file(
        "2.31-2.41 dl-tls.c:1197", f"dlopen: cannot create TLS data structures: {NOMEM}", NOMEM
    ),
    without_file("2.31-2.41 dl-exception.c:31", "out of memory", "out of memory"),
    limit("2.31-2.41 dl-open.c:84", "libx.so.1", "cannot extend global scope", NOMEM),
    limit("2.36-2.41 dl-open.c:716", "libx.so.1", "cannot allocate address lookup data", NOMEM),
    # --- elf/dl-reloc.c
    bad("2.31-2.41 dl-reloc.c:383", HOOK, "unexpected reloc type 0x2a"),
    bad("2.31-2.41 dl-reloc.c:384", HOOK, "unexpected PLT reloc type 0x2a"),
    limit(
        "2.31-2.41 dl-reloc.c:141, live", "./tls.so", "cannot allocate memory in static TLS block"
    ),
    limit(
        "2.31-2.41 dl-reloc.c:283, SELinux",
        HOOK,
        "cannot make segment writable for relocation",
        "Permission denied",
    ),
    limit("2.31-2.41 dl-reloc.c:328", HOOK, "cannot restore segment prot after reloc", NOMEM),
    limit(
        "2.31-2.41 dl-reloc.c:367",
        HOOK,
        "cannot apply additional memory protection after relocation",
        NOMEM,
    ),
    # --- elf/dl-version.c
    Row(
        "2.31-2.41 dl-version.c:144",
        "/lib64/libc.so.6: version `GLIBC_2.38' not found (required by /opt/venv/lib/hook.so)",
        "VERSION",
        {"file": "/lib64/libc.so.6", "by": HOOK, "name": "GLIBC_2.38"},
    ),
    Row(
        "2.31-2.41 dl-version.c:144, any path",
        "/a: b's/libc.so.6: version `V_1' not found (required by /x (1)/it's.so)",
        "VERSION",
        {"file": "/a: b's/libc.so.6", "by": "/x (1)/it's.so", "name": "V_1"},
    ),
    bad("2.31-2.41 dl-version.c:101", HOOK, "unsupported version 7 of Verdef record"),
    bad("2.31-2.41 dl-version.c:191", HOOK, "unsupported version 7 of Verneed record"),
    bad("2.36-2.41 dl-version.c:380", HOOK, "DT_RELR without GLIBC_ABI_DT_RELR dependency"),
    limit("2.31-2.41 dl-version.c:285", HOOK, "cannot allocate version reference table", NOMEM),
    # --- elf/dl-lookup.c
    Row(
        "2.12-2.41 dl-lookup.c:798, live",
        "./undef.so: undefined symbol: nope",
        "UNDEFINED",
        {"by": "./undef.so", "name": "nope"},
    ),
    Row(
        "2.12-2.41 dl-lookup.c:798, live",
        "/lib/libselinux.so.1: undefined symbol: stdin, version GLIBC_2.2.5",
        "UNDEFINED",
        {"by": "/lib/libselinux.so.1", "name": "stdin", "version": "GLIBC_2.2.5"},
    ),
    Row(
        "up to 2.26 dl-lookup.c, with a comma",
        "/opt/venv/lib/hook.so: symbol cudaMalloc, version libcudart.so.12 not defined in file"
        " libcudart.so.12 with link time reference",
        "LINK_TIME",
        {
            "file": "libcudart.so.12",
            "by": HOOK,
            "name": "cudaMalloc",
            "version": "libcudart.so.12",
        },
    ),
    Row(
        "2.27-2.29 dl-lookup.c, without",
        "/opt/venv/lib/hook.so: symbol cudaMalloc version libcudart.so.12 not defined in file"
        " libcudart.so.12 with link time reference",
        "LINK_TIME",
        {
            "file": "libcudart.so.12",
            "by": HOOK,
            "name": "cudaMalloc",
            "version": "libcudart.so.12",
        },
    ),
    Row(
        "up to 2.26 dl-lookup.c, its other end",
        "./a.so: symbol f, version V not defined in file b c.so with link time reference"
        " (no version symbols)",
        "LINK_TIME",
        {"file": "b c.so", "by": "./a.so", "name": "f", "version": "V"},
    ),
    # --- sysdeps/
    bad("2.36-2.41 x86/dl-prop.h:61", HOOK, "CPU ISA level is lower than required"),
    bad("2.36-2.41 x86_64/dl-cet.c:214", HOOK, "rebuild shared object with IBT support enabled"),
    bad("2.36-2.41 x86_64/dl-cet.c:233", HOOK, "rebuild shared object with SHSTK support enabled"),
    bad(
        "2.36-2.41 generic/dl-protected.h:55",
        HOOK,
        "error due to GNU_PROPERTY_1_NEEDED_INDIRECT_EXTERN_ACCESS",
    ),
    bad("2.41 aarch64/dl-gcs.c:41", HOOK, "not GCS compatible"),
    limit("2.31-2.36 x86/dl-cet.c:194", HOOK, "can't disable CET", EPERM),
    limit("2.41 x86_64/dl-cet.c:251", HOOK, "can't disable IBT", EPERM),
    limit("2.31 x86/dl-cet.c:247", HOOK, "failed to mark legacy code region", "Invalid argument"),
    limit("2.36-2.41 aarch64/dl-bti.c:72", HOOK, "failed to turn on BTI protection"),
    limit("2.41 x86_64/dl-machine.h:716", HOOK, "failed to change PLT back to read-only"),
    # --- an object whose name contains a message
    unopened("any path", "NOT_FOUND", "/a: file too short: b.so", "No such file or directory"),
    bad("any path", "/x: undefined symbol: y: version `V' not found/z.so", "file too short"),
    limit("any path", "x: cannot open shared object file: Permission denied", "out of memory"),
    # --- nothing of this kind
    Row("2.31-2.41 dl-close.c:792", f"{HOOK}: shared object not open", "NOTHING_KNOWN", {}),
    Row(
        "2.31-2.41 dl-open.c:817",
        "invalid mode for dlopen(): Invalid argument",
        "NOTHING_KNOWN",
        {},
    ),
    Row(
        "2.31-2.41 dl-version.c:80, a warning",
        "./libc.so.6: no version information available (required by /bin/true)",
        "NOTHING_KNOWN",
        {},
    ),
    Row(
        "2.31-2.41 dl-version.c:135, a warning",
        "./libc.so.6: weak version `V' not found (required by /bin/true)",
        "NOTHING_KNOWN",
        {},
    ),
    Row("no object", "file too short", "NOTHING_KNOWN", {}),
    Row("no object", "undefined symbol: f", "NOTHING_KNOWN", {}),
    Row("no object", "version `V' not found (required by x.so)", "NOTHING_KNOWN", {}),
    Row("no text of errno", "/a.so: file too short: see /doc: page 3", "NOTHING_KNOWN", {}),
    Row("cut off", "/a.so: version `GLIBC_2.38' not found (requi", "NOTHING_KNOWN", {}),
    Row("cut off", "/a.so: undefined symbol: ", "NOTHING_KNOWN", {}),
    Row("nothing", "", "NOTHING_KNOWN", {}),
]


@pytest.mark.parametrize("row", ERRORS, ids=lambda row: row.source)
def test_errors(native, row):
    """What dlerror returns is read as this table says."""
    whole = {"text": row.text} if row.says != "NOTHING_KNOWN" else {}
    assert (row.says, {**row.fields, **whole}) == read(native.pyr_loader_read_error, row.text)


PROGRAM = "/opt/venv/bin/python"
WARNING = "/bin/true: ./libc.so.6: no version information available (required by /bin/true)\n"
MISSING = "libcudart.so.12: cannot open shared object file"
REQUIRED = "/lib64/libc.so.6: version `GLIBC_2.38' not found (required by /opt/hook.so)"
UNMET = {"file": "/lib64/libc.so.6", "by": "/opt/hook.so", "name": "GLIBC_2.38", "text": REQUIRED}

STDERR = [
    Row(
        "2.31-2.41 dl-catch.c:85",
        f"{PROGRAM}: error while loading shared libraries: {MISSING}: No such file or directory\n",
        "NOT_FOUND",
        {
            "file": "libcudart.so.12",
            "name": "libcudart.so.12",
            "reason": "No such file or directory",
            "text": f"{MISSING}: No such file or directory",
        },
    ),
    Row(
        "2.31-2.41 dl-minimal.c:151, where the loader has no text for errno",
        f"{PROGRAM}: error while loading shared libraries: {MISSING}: Error 24\n",
        "CANNOT_OPEN",
        {
            "file": "libcudart.so.12",
            "name": "libcudart.so.12",
            "reason": "Error 24",
            "text": f"{MISSING}: Error 24",
        },
    ),
    Row(
        "2.31-2.41 dl-minimal.c:151, ENOTDIR",
        "prog: error while loading shared libraries: /a/b/x.so: cannot open shared object file:"
        " Error 20\n",
        "NOT_FOUND",
        {
            "file": "/a/b/x.so",
            "name": "/a/b/x.so",
            "reason": "Error 20",
            "text": "/a/b/x.so: cannot open shared object file: Error 20",
        },
    ),
    Row(
        "2.12 dl-load.c",
        "prog: error while loading shared libraries: libx.so: cannot allocate TLS data structures"
        " for initial thread: Cannot allocate memory\n",
        "LIMIT",
        {
            "file": "libx.so",
            "reason": NOMEM,
            "text": "libx.so: cannot allocate TLS data structures for initial thread:"
            " Cannot allocate memory",
        },
    ),
    Row(
        "live, 2.36",
        "/bin/true: error while loading shared libraries: fake/libc.so.6: file too short\n",
        "BAD_FILE",
        {
            "file": "fake/libc.so.6",
            "reason": "file too short",
            "text": "fake/libc.so.6: file too short",
        },
    ),
    Row(
        "2.31-2.41 dl-lookup.c:800, live",
        f"{WARNING}{WARNING}/bin/true: symbol lookup error: /bin/true: undefined symbol:"
        " __libc_start_main, version GLIBC_2.34\n",
        "UNDEFINED",
        {
            "by": "/bin/true",
            "name": "__libc_start_main",
            "version": "GLIBC_2.34",
            "text": "/bin/true: undefined symbol: __libc_start_main, version GLIBC_2.34",
        },
    ),
    Row(
        "RHEL 7 (2.17), github.com/osquery/osquery/issues/8408",
        "/opt/osquery/bin/osqueryd: relocation error: /opt/osquery/bin/osqueryd: symbol"
        " __cxa_thread_atexit_impl, version GLIBC_2.18 not defined in file libc.so.6 with link time"
        " reference\n",
        "LINK_TIME",
        {
            "file": "libc.so.6",
            "by": "/opt/osquery/bin/osqueryd",
            "name": "__cxa_thread_atexit_impl",
            "version": "GLIBC_2.18",
            "text": "/opt/osquery/bin/osqueryd: symbol __cxa_thread_atexit_impl, version GLIBC_2.18"
            " not defined in file libc.so.6 with link time reference",
        },
    ),
    Row(
        "2.27-2.29 dl-lookup.c, without a comma",
        "prog: relocation error: /opt/hook.so: symbol f version V_2 not defined in file"
        " libb.so.1 with link time reference\n",
        "LINK_TIME",
        {
            "file": "libb.so.1",
            "by": "/opt/hook.so",
            "name": "f",
            "version": "V_2",
            "text": "/opt/hook.so: symbol f version V_2 not defined in file libb.so.1"
            " with link time reference",
        },
    ),
    Row("2.31-2.41 rtld.c:2375", f"{PROGRAM}: {REQUIRED}\n", "VERSION", UNMET),
    Row(
        "2.31-2.41 rtld.c:2375, all that are missing",
        f"prog: {REQUIRED}\nprog: /lib64/libc.so.6: version `GLIBC_2.39' not found"
        " (required by /opt/hook.so)\n",
        "VERSION",
        UNMET,
    ),
    Row(
        "a version counts before others",
        f"x.so: file too short\nprog: {REQUIRED}\n",
        "VERSION",
        UNMET,
    ),
    Row("the program's name ends in a colon", f"a: b: {REQUIRED}\n", "VERSION", UNMET),
    Row(
        "2.36-2.41 x86/dl-prop.h:57",
        "/opt/hook.so: CPU ISA level is lower than required\n",
        "BAD_FILE",
        {
            "file": "/opt/hook.so",
            "reason": "CPU ISA level is lower than required",
            "text": "/opt/hook.so: CPU ISA level is lower than required",
        },
    ),
    Row(
        "what ended the program counts, not what was said before",
        "x.so: file too short\nprog: error while loading shared libraries: y.so: invalid ELF"
        " header\nz.so: file too short\n",
        "BAD_FILE",
        {"file": "y.so", "reason": "invalid ELF header", "text": "y.so: invalid ELF header"},
    ),
    Row(
        "without a program's name the first counts",
        "x.so: file too short\ny.so: invalid ELF header\n",
        "BAD_FILE",
        {"file": "x.so", "reason": "file too short", "text": "x.so: file too short"},
    ),
    Row("only warnings", WARNING, "NOTHING_KNOWN", {}),
    Row(
        "2.31-2.41 rtld.c:803, the program goes on",
        "ERROR: ld.so: object 'x.so' from LD_PRELOAD cannot be preloaded (file too short):"
        " ignored.\n",
        "NOTHING_KNOWN",
        {},
    ),
    Row(
        "an unknown reason",
        "prog: error while loading shared libraries: x.so: oh dear\n",
        "NOTHING_KNOWN",
        {},
    ),
    Row("nothing", "", "NOTHING_KNOWN", {}),
]


@pytest.mark.parametrize("row", STDERR, ids=lambda row: row.source)
def test_stderr(native, row):
    """What a program prints that did not start is read as this table says."""
    assert (row.says, row.fields) == read(native.pyr_loader_read_stderr, row.text)


def skipped(native, captured, name):
    """Return the reason, "" without one, None if the object was not skipped."""
    given, wanted, reason = Text.of(captured), Text.of(name), Text()
    found = native.pyr_loader_skipped(given, wanted, ctypes.byref(reason))
    return str(reason) if found else None


def not_preloaded(name, end, variable="LD_PRELOAD"):
    """Return what the loader prints about an object."""
    return f"ERROR: ld.so: object '{name}' from {variable} cannot be preloaded{end}: ignored.\n"


UNOPENED = "cannot open shared object file"
SKIPPED = [
    ("2.31-2.41 rtld.c:803, live", not_preloaded("x.so", f" ({UNOPENED})"), "x.so", UNOPENED),
    ("2.12 rtld.c", not_preloaded("x.so", ""), "x.so", ""),
    ("any name", not_preloaded("a\n'b' c.so", " (a (b))"), "a\n'b' c.so", "a (b)"),
    (
        "parentheses",
        not_preloaded("x.so", " (shared object cannot be dlopen()ed)"),
        "x.so",
        "shared object cannot be dlopen()ed",
    ),
    (
        "the second",
        WARNING + not_preloaded("x.so", " (a)") + not_preloaded("y.so", " (b)"),
        "y.so",
        "b",
    ),
    ("another", not_preloaded("/opt/x.so", " (a)"), "x.so", None),
    ("the start of another", not_preloaded("x.so.1", " (a)"), "x.so", None),
    ("another variable", not_preloaded("x.so", " (a)", "/etc/ld.so.preload"), "x.so", None),
    ("not at the start", "> " + not_preloaded("x.so", " (a)"), "x.so", None),
    ("cut off", not_preloaded("x.so", " (a)")[:-12], "x.so", None),
    ("nothing", "", "x.so", None),
]


@pytest.mark.parametrize(
    ("captured", "name", "reason"), [row[1:] for row in SKIPPED], ids=[row[0] for row in SKIPPED]
)
def test_skipped(native, captured, name, reason):
    """Why the loader skipped a preload is found for the one that is asked about."""
    assert reason == skipped(native, captured, name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cuInit", True),
        ("cuMemcpy2D_v2", True),
        ("cuInit@GLIBC_2.1", True),
        ("cuda", False),
        ("cudaMalloc", False),
        ("cu", False),
        ("cu_Init", False),
        ("cuInit-x", False),
        ("xcuInit", False),
        ("", False),
    ],
)
def test_driver_symbols(native, name, expected):
    """The functions of the driver are known by their names."""
    assert expected is native.pyr_loader_is_driver_symbol(Text.of(name))


def test_fuzz(tmp_path):
    """60,000 texts under sanitizers: whatever the paths are, the fields are parts of the text."""
    done = fuzz(tmp_path, "loader_text", "loader_text.c", "0")
    assert (0, "60000 executions\n", "") == (done.returncode, done.stdout, done.stderr)
