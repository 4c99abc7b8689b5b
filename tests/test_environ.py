"""What LD_PRELOAD and LD_LIBRARY_PATH become, and that the loader agrees."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from support.tools import require_tool

from pyresolve._environ import (
    delta,
    has_empty_element,
    join_library_path,
    join_preload,
    parse_library_path,
    parse_preload,
)
from pyresolve._errors import UnrepresentablePathError

HOOK = "/env/hook_cu12.so"


def is_hook(name):
    """Tell builds of the hook of these tests."""
    return name.startswith("hook")


# --- reading and writing


@pytest.mark.parametrize(
    ("value", "elements"),
    [
        (None, ()),
        ("", ()),
        (" : :", ()),
        ("/a.so", ("/a.so",)),
        ("/a.so:/b.so", ("/a.so", "/b.so")),
        ("/a.so /b.so", ("/a.so", "/b.so")),
        (" /a.so: :/b.so:", ("/a.so", "/b.so")),
        ("/a.so;/b.so", ("/a.so;/b.so",)),
        ("/a.so\n/b.so\t", ("/a.so\n/b.so\t",)),
        ("b.so /a.so b.so", ("b.so", "/a.so")),
    ],
)
def test_preload_is_split_on_space_and_colon(value, elements):
    """LD_PRELOAD has no empty elements and knows two separators."""
    assert parse_preload(value) == elements


@pytest.mark.parametrize(
    ("value", "elements"),
    [
        (None, ()),
        ("", ()),
        (":", ("",)),
        (";", ("",)),
        ("/a", ("/a",)),
        ("/a:", ("/a", "")),
        (":/a", ("", "/a")),
        ("/a::/b", ("/a", "", "/b")),
        ("/a;/b", ("/a", "/b")),
        ("/a b:/c", ("/a b", "/c")),
        ("/b:/a:/b", ("/b", "/a")),
    ],
)
def test_library_path_is_split_on_colon_and_semicolon(value, elements):
    """LD_LIBRARY_PATH keeps empty elements, and an empty variable has none."""
    assert parse_library_path(value) == elements


@given(st.lists(st.text("/ab.", min_size=1), unique=True))
def test_preload_survives_writing_and_reading(elements):
    """What is written to LD_PRELOAD is read back."""
    assert parse_preload(join_preload(elements)) == tuple(elements)


@given(st.lists(st.text("/a ."), unique=True))
def test_library_path_survives_writing_and_reading(elements):
    """What is written to LD_LIBRARY_PATH is read back, a single empty element included."""
    assert parse_library_path(join_library_path(elements)) == tuple(elements)


# --- the change


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, HOOK),
        ("", HOOK),
        ("/fs/libcuda.so.1", f"{HOOK}:/fs/libcuda.so.1"),
        ("/dir libjemalloc.so", f"{HOOK}:/dir:libjemalloc.so"),
        (f"/b.so:{HOOK}:/a.so", f"{HOOK}:/b.so:/a.so"),
        ("/b.so /a.so:/b.so", f"{HOOK}:/b.so:/a.so"),
        ("/other/hook_cu13.so:/a.so", f"{HOOK}:/a.so"),
        ("hook_cu12.so /hook/a.so", f"{HOOK}:/hook/a.so"),
        ("${LIB}/a.so", f"{HOOK}:${{LIB}}/a.so"),
    ],
)
def test_hook_comes_first_and_the_rest_stays(before, after):
    """Other builds of the hook go; directories, bare names and tokens of the user stay."""
    environ = {} if before is None else {"LD_PRELOAD": before}
    assert delta(environ, hook=HOOK, same_stem=is_hook) == {"LD_PRELOAD": after}


@pytest.mark.parametrize("value", [f"{HOOK} /a.so", f"{HOOK}:/a.so:", f"{HOOK}:/a.so:/a.so"])
def test_preload_is_rewritten_with_single_colons(value):
    """What the loader reads alike is still rewritten for readers that split on colons only."""
    assert delta({"LD_PRELOAD": value}, hook=HOOK) == {"LD_PRELOAD": f"{HOOK}:/a.so"}


def test_other_builds_stay_where_no_stem_is_given():
    """Without `same_stem` nothing is dropped."""
    environ = {"LD_PRELOAD": "/other/hook_cu13.so"}
    assert delta(environ, hook=HOOK) == {"LD_PRELOAD": f"{HOOK}:/other/hook_cu13.so"}


def test_pinned_files_come_between_the_hook_and_the_rest():
    """A pinned libcudart is ahead of the user's own, also where both were there before."""
    pinned, other = "/env/libcudart.so.12", "/usr/libcudart.so.12"
    environ = {"LD_PRELOAD": f"{other}:{pinned}:{HOOK}"}
    assert delta(environ, hook=HOOK, preload=[pinned]) == {"LD_PRELOAD": f"{HOOK}:{pinned}:{other}"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "/l:/m"),
        ("", "/l:/m"),
        ("/a:", "/l:/m:/a:"),
        (":/a", "/l:/m::/a"),
        ("/a::/b::", "/l:/m:/a::/b"),
        (":", "/l:/m:"),
        ("/a;/b", "/l:/m:/a:/b"),
        ("/a b:/a b", "/l:/m:/a b"),
        ("/m:/a:/l", "/l:/m:/a"),
        ("/l:/a:/m", "/l:/m:/a"),
        ("$ORIGIN/../lib", "/l:/m:$ORIGIN/../lib"),
        ("/.singularity.d/libs", "/l:/m:/.singularity.d/libs"),
        ("/l:/m", None),
        ("/l;/m;;/a:/a", None),
        ("/l:/l:/m", None),
    ],
)
def test_library_path_is_extended_in_front(before, after):
    """Wanted directories come first, once; where they are first already nothing is touched."""
    environ = {"LD_PRELOAD": HOOK} | ({} if before is None else {"LD_LIBRARY_PATH": before})
    expected = {} if after is None else {"LD_LIBRARY_PATH": after}
    assert delta(environ, hook=HOOK, library_path=["/l", "/m", "/l"]) == expected


@pytest.mark.parametrize("value", ["", ":", "/a:/a", "/a;;/b"])
def test_library_path_is_untouched_where_nothing_is_added(value):
    """No tidying up: an odd LD_LIBRARY_PATH that needs no directory of ours stays."""
    assert delta({"LD_LIBRARY_PATH": value}, hook=HOOK) == {"LD_PRELOAD": HOOK}


@pytest.mark.parametrize(
    ("hook", "preload", "after"),
    [
        ("/a b/hook.so", [], ("hook.so:/u.so", "/a b:/l:/u")),
        ("/a b//hook.so", ["/p.so"], ("hook.so:/p.so:/u.so", "/a b:/l:/u")),
        ("/hook.so", ["/a b/p.so"], ("/hook.so:p.so:/u.so", "/a b:/l:/u")),
        ("/a b/hook.so", ["/c d/p.so"], ("hook.so:p.so:/u.so", "/a b:/c d:/l:/u")),
        ("/a b/hook.so", ["/a b/p.so"], ("hook.so:p.so:/u.so", "/a b:/l:/u")),
        ("/a b/hook.so", ["/a b/hook.so"], ("hook.so:/u.so", "/a b:/l:/u")),
    ],
)
def test_file_below_a_space_is_preloaded_by_its_name(hook, preload, after):
    """Bare names need their directories in front, the hook's before all others."""
    environ = {"LD_PRELOAD": "/u.so", "LD_LIBRARY_PATH": "/u"}
    change = delta(environ, hook=hook, preload=preload, library_path=["/l"])
    assert change == dict(zip(("LD_PRELOAD", "LD_LIBRARY_PATH"), after, strict=True))


@pytest.mark.parametrize(
    ("paths", "variable", "reason"),
    [
        ({"hook": "/a:b/hook.so"}, "LD_PRELOAD", "':'"),
        ({"hook": "/a/ho:ok.so"}, "LD_PRELOAD", "':'"),
        ({"hook": "/a\0b/hook.so"}, "LD_PRELOAD", r"'\x00'"),
        ({"hook": "/$ORIGIN/hook.so"}, "LD_PRELOAD", "'$ORIGIN'"),
        ({"hook": "/a/ho ok.so"}, "LD_PRELOAD", "' '"),
        ({"hook": "/a b/"}, "LD_PRELOAD", "' '"),
        ({"hook": "/a b/ho:ok.so"}, "LD_PRELOAD", "':'"),
        ({"hook": "/a b;c/hook.so"}, "LD_LIBRARY_PATH", "';'"),
        ({"hook": "/a b:c/hook.so"}, "LD_LIBRARY_PATH", "':'"),
        ({"hook": "/a b/${LIB}/hook.so"}, "LD_LIBRARY_PATH", "'${LIB}'"),
        ({"preload": "/a:b/p.so"}, "LD_PRELOAD", "':'"),
        ({"library_path": "/a:b"}, "LD_LIBRARY_PATH", "':'"),
        ({"library_path": "/a;b"}, "LD_LIBRARY_PATH", "';'"),
        ({"library_path": "/a\0b"}, "LD_LIBRARY_PATH", r"'\x00'"),
        ({"library_path": "/x$PLATFORM-1"}, "LD_LIBRARY_PATH", "'$PLATFORM'"),
    ],
)
def test_path_without_a_spelling_is_refused(paths, variable, reason):
    """The error names the path, the variable, the offending text and the way out."""
    [(role, path)] = paths.items()
    arguments = {"hook": HOOK} | {role: path if role == "hook" else [path]}
    with pytest.raises(UnrepresentablePathError) as caught:
        delta({}, **arguments)
    assert (caught.value.path, caught.value.variable) == (path, variable)
    assert str(caught.value) == (
        f"{path!r} contains {reason}, which {variable} does not take literally and cannot escape; "
        "move the environment to a path without it"
    )


def test_one_bare_name_cannot_mean_two_files():
    """Of two files of one name, both below a space, the loader would only ever find the first."""
    with pytest.raises(UnrepresentablePathError, match="a space") as caught:
        delta({}, hook=HOOK, preload=["/a b/p.so", "/c d/p.so"])
    assert (caught.value.path, caught.value.variable) == ("/c d/p.so", "LD_PRELOAD")


@pytest.mark.parametrize("path", ["", "hook.so", "./hook.so", "$ORIGIN/hook.so"])
@pytest.mark.parametrize("role", ["hook", "preload", "library_path"])
def test_relative_path_is_a_misuse(role, path):
    """A relative path would mean another file in every working directory."""
    arguments = {"hook": HOOK} | {role: path if role == "hook" else [path]}
    with pytest.raises(ValueError, match="absolute path"):
        delta({}, **arguments)


def test_environment_is_not_written():
    """The mapping that came in is the caller's."""
    environ = {"LD_PRELOAD": "/a.so", "LD_LIBRARY_PATH": "/a", "HOME": "/"}
    before = dict(environ)
    delta(environ, hook=HOOK, library_path=["/l"])
    assert environ == before


# --- what holds for all of them

PIECES = st.sampled_from(["/", "a", "b", ".so", "hook", "é", "\udcff", "\n", "$", "{", "}", "LIB"])
MARKS = st.sampled_from([" ", ":", ";", "\0", "$ORIGIN", "${LIB}"])
VALUES = st.lists(PIECES | MARKS, max_size=12).map("".join)
PATHS = st.lists(PIECES | MARKS, max_size=8).map(lambda pieces: "/" + "".join(pieces))
# Few enough names to meet what is there already, some of them below a space.
FILES = st.sampled_from(["/a", "/b", "/a/hook", "/b/hook.so", "/a b/hook", "/a b/b", "/b a/a"])
DIRECTORIES = st.sampled_from(["/", "/a", "/b", "/a b", "/b a"])
ENVIRONMENTS = st.fixed_dictionaries(
    {},
    optional={
        "LD_PRELOAD": VALUES | st.lists(FILES | st.just("")).map(":".join),
        "LD_LIBRARY_PATH": VALUES | st.lists(DIRECTORIES | st.just("")).map(":".join),
    },
)
REQUESTS = st.fixed_dictionaries(
    {
        "hook": FILES,
        "preload": st.lists(FILES, max_size=2),
        "library_path": st.lists(DIRECTORIES, max_size=3),
        "same_stem": st.sampled_from([None, is_hook]),
    }
)


def spelled(path):
    """Write a path of FILES as an element of LD_PRELOAD."""
    return os.path.basename(path) if " " in path else path


@given(ENVIRONMENTS, REQUESTS)
def test_merging_twice_changes_nothing(environ, asked):
    """The change is a fixed point: what it made needs no other."""
    assert delta({**environ, **delta(environ, **asked)}, **asked) == {}


@given(ENVIRONMENTS, REQUESTS)
def test_only_what_changes_is_returned(environ, asked):
    """No variable comes back with the value that it had, and no other variable at all."""
    change = delta(environ, **asked)
    assert change.items().isdisjoint(environ.items())
    assert change.keys() <= {"LD_PRELOAD", "LD_LIBRARY_PATH"}


@given(ENVIRONMENTS, REQUESTS)
def test_preload_keeps_every_element_in_order(environ, asked):
    """Ours first, then everything that was there and is not another build, once each."""
    before = parse_preload(environ.get("LD_PRELOAD"))
    after = {**environ, **delta(environ, **asked)}["LD_PRELOAD"].split(":")
    ours = [spelled(path) for path in (asked["hook"], *asked["preload"])]
    same_stem = asked["same_stem"] or (lambda name: False)
    dropped = {element for element in before if same_stem(os.path.basename(element))}
    assert after[0] == ours[0]
    assert set(after) == set(ours) | (set(before) - dropped)
    assert len(after) == len(set(after))
    assert "" not in after
    assert [element for element in after if element not in ours] == [
        element for element in before if element not in dropped.union(ours)
    ]


@given(ENVIRONMENTS, REQUESTS)
def test_library_path_keeps_every_element_in_order(environ, asked):
    """Ours first, then everything that was there, and no empty element that was not."""
    change = delta(environ, **asked)
    before = parse_library_path(environ.get("LD_LIBRARY_PATH"))
    after = parse_library_path({**environ, **change}.get("LD_LIBRARY_PATH"))
    files = (asked["hook"], *asked["preload"])
    homes = [os.path.dirname(path) for path in files if " " in path]
    ours = list(dict.fromkeys((*homes, *asked["library_path"])))
    assert list(after[: len(ours)]) == ours
    assert set(after) == set(before) | set(ours)
    assert [element for element in after if element not in ours] == [
        element for element in before if element not in ours
    ]


@given(ENVIRONMENTS, PATHS, st.lists(PATHS, max_size=2), st.lists(PATHS, max_size=2))
def test_absolute_path_is_written_or_refused(environ, hook, preload, library_path):
    """For any absolute path there is a change that holds, or one kind of error."""
    asked = {"hook": hook, "preload": preload, "library_path": library_path}
    with contextlib.suppress(UnrepresentablePathError):
        change = delta(environ, **asked)
        assert delta({**environ, **change}, **asked) == {}


# --- what the loader says

# Prints the file that `which` comes from, then every object that is mapped, in search order.
MAIN = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

static int print(struct dl_phdr_info *object, size_t size, void *data) {
    (void)size, (void)data;
    return printf("%s%c", object->dlpi_name, 0) < 0;
}

int main(void) {
    Dl_info info;
    void *which = dlsym(RTLD_DEFAULT, "which");
    printf("%s%c", which && dladdr(which, &info) ? info.dli_fname : "", 0);
    return dl_iterate_phdr(print, NULL);
}
"""


@dataclass(frozen=True)
class Loader:
    """Programs to start, a library that defines `which`, and one that needs it by SONAME."""

    program: Path
    program_with_rpath: Path
    runtime: Path
    hook: Path

    def run(self, environ, cwd="/", program=None):
        """Start a program; return where `which` was found and the libraries of these tests."""
        command = [program or self.program]
        done = subprocess.run(command, env=environ, cwd=cwd, capture_output=True, check=True)
        which, *mapped = os.fsdecode(done.stdout).split("\0")
        return which, [name for name in mapped if os.path.basename(name).startswith("lib_")]


@pytest.fixture(scope="module")
def loader(tmp_path_factory):
    """Compile what the loader is asked with."""
    gcc = require_tool("gcc")
    root = tmp_path_factory.mktemp("loader")

    def compile_(name, text, *options):
        (root / "source.c").write_text(text)
        subprocess.run([gcc, "source.c", "-o", name, *options], cwd=root, check=True)
        return root / name

    shared = ("-shared", "-fPIC", "-Wl,--no-as-needed")
    return Loader(
        program=compile_("program", MAIN, "-ldl"),
        program_with_rpath=compile_(
            "program_with_rpath", MAIN, "-ldl", "-Wl,--disable-new-dtags,-rpath,$ORIGIN"
        ),
        runtime=compile_(
            "lib_rt.so.1", "int which(void) { return 1; }", *shared, "-Wl,-soname,lib_rt.so.1"
        ),
        hook=compile_("lib_hook.so", "int hook;", *shared, "-L.", "-l:lib_rt.so.1"),
    )


def put(file, directory):
    """Copy a file into a directory that is made for it; return the copy's path."""
    directory.mkdir(parents=True, exist_ok=True)
    return shutil.copy(file, str(directory))


def change_or_none(**asked):
    """Return the change, or None where a path is refused."""
    try:
        return delta({}, **asked)
    except UnrepresentablePathError:
        return None


DIRECTORY_NAMES = [
    ("plain", True, True),
    ("a b", True, True),
    ("a;b", True, False),
    ("a:b", False, False),
    ("a b;c", False, False),
    ("a b:c", False, False),
    ("$ORIGIN", False, False),
    ("a$LIB", False, False),
    ("$PLATFORM.x", False, False),
    ("${ORIGIN}x", False, False),
    ("a b$LIBé", False, False),
    ("$ORIGINAL", True, True),
    ("$ORIGIN_x", True, True),
    ("${ORIGIN", True, True),
    ("$HOME", True, True),
    ("new\nline\ttab", True, True),
    ("quo'te\"\\*", True, True),
    ("\udcff", True, True),
]


@pytest.mark.parametrize(("name", "expected"), [row[:2] for row in DIRECTORY_NAMES])
def test_loader_takes_a_preload_exactly_where_it_is_not_refused(loader, tmp_path, name, expected):
    """A change that is given maps the file; where none is given, neither spelling would."""
    path = put(loader.runtime, tmp_path / name)
    directory, base = os.path.split(path)
    change = change_or_none(hook=path)
    assert (change is not None) == expected
    if expected:
        assert loader.run(change) == (path, [path])
    else:
        assert loader.run({"LD_PRELOAD": path}) == ("", [])
        assert loader.run({"LD_PRELOAD": base, "LD_LIBRARY_PATH": directory}) == ("", [])


@pytest.mark.parametrize(("name", "expected"), [(row[0], row[2]) for row in DIRECTORY_NAMES])
def test_loader_searches_a_directory_exactly_where_it_is_not_refused(
    loader, tmp_path, name, expected
):
    """A directory in the change is searched; one that is refused would not have been."""
    hook = put(loader.hook, tmp_path / "hook")
    path = put(loader.runtime, tmp_path / name)
    directory = os.path.dirname(path)
    change = change_or_none(hook=hook, library_path=[directory])
    assert (change is not None) == expected
    if expected:
        assert loader.run(change) == (path, [hook, path])
    else:
        preload = os.path.basename(path)
        assert loader.run({"LD_PRELOAD": preload, "LD_LIBRARY_PATH": directory}) == ("", [])


@pytest.mark.parametrize("value", ["a.so b.so", "a.so:b.so", ": a.so  ::b.so:", "a.so b.so a.so"])
def test_loader_splits_preload_alike(loader, tmp_path, value):
    """Spaces, colons, empty elements and repetitions mean to the loader what they mean to us."""
    paths = [shutil.copy(loader.runtime, tmp_path / f"lib_{name}") for name in ("a.so", "b.so")]
    value = value.replace("a.so", str(paths[0])).replace("b.so", str(paths[1]))
    assert loader.run({"LD_PRELOAD": value})[1] == [*parse_preload(value)] == [*map(str, paths)]


@pytest.mark.parametrize("value", [None, "", "/x", ":", ";", "/x:", ":/x", "/x::/y", "/x;", "."])
def test_loader_searches_the_current_directory_for_an_empty_element(loader, tmp_path, value):
    """An empty element finds a file in the working directory, an empty variable does not."""
    name = os.path.basename(put(loader.runtime, tmp_path))
    environ = {} if value is None else {"LD_LIBRARY_PATH": value}
    which, _ = loader.run({**environ, "LD_PRELOAD": name}, cwd=tmp_path)
    assert bool(which) == (has_empty_element(environ) or value == ".")


def test_loader_gives_everybody_the_pinned_runtime(loader, tmp_path):
    """The pinned file is ahead of the user's, and a SONAME that is mapped is searched no more."""
    hook, ours, theirs, found = (
        put(file, tmp_path / name)
        for file, name in [
            (loader.hook, "a b"),
            (loader.runtime, "c d"),
            (loader.runtime, "theirs"),
            (loader.runtime, "found"),
        ]
    )
    environ = {"LD_PRELOAD": theirs, "LD_LIBRARY_PATH": os.path.dirname(found)}
    change = delta(environ, hook=hook, preload=[ours])
    assert loader.run({**environ, **change}) == (ours, [hook, ours, theirs])


def test_loader_searches_an_rpath_before_the_directory_of_a_bare_name(loader, tmp_path):
    """The limit of bare names: a DT_RPATH of the executable that leads to a file of that name."""
    path = put(loader.runtime, tmp_path / "a b")
    change = delta({}, hook=path)
    assert loader.run(change)[0] == path
    which, _ = loader.run(change, program=loader.program_with_rpath)
    assert which == str(loader.runtime)
