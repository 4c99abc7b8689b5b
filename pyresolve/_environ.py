"""LD_PRELOAD and LD_LIBRARY_PATH: what they say, and the smallest change that puts a hook first.

Pure: the environment comes in as a mapping, the change goes out. The rules are glibc's, see
ld.so(8). Neither variable knows any escaping.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from typing import TYPE_CHECKING, Final

from ._errors import UnrepresentablePathError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

PRELOAD: Final = "LD_PRELOAD"
LIBRARY_PATH: Final = "LD_LIBRARY_PATH"

# The loader expands $ORIGIN and ${ORIGIN}, but takes $ORIGINAL as it stands.
_EXPANDED: Final = r"\$(\{)?(?:ORIGIN|PLATFORM|LIB)(?(1)\}|\b)"
_NOT_LITERAL: Final = {
    PRELOAD: re.compile(rf"[\0 :]|{_EXPANDED}", re.ASCII),
    LIBRARY_PATH: re.compile(rf"[\0:;]|{_EXPANDED}", re.ASCII),
}


def parse_preload(value: str | None) -> tuple[str, ...]:
    """Return the elements of LD_PRELOAD, once each: split on spaces and colons, none empty."""
    return _once(filter(None, re.split("[ :]", value or "")))


def parse_library_path(value: str | None) -> tuple[str, ...]:
    """Return the elements of LD_LIBRARY_PATH, once each: split on colons and semicolons.

    An empty element is kept: it means the current directory. An empty variable has no elements.
    """
    return _once(re.split("[:;]", value)) if value else ()


def join_preload(elements: Iterable[str]) -> str:
    """Write elements as LD_PRELOAD, once each.

    Colons only, although the loader would take spaces: torch_memory_saver splits on nothing else.
    """
    return ":".join(_once(elements))


def join_library_path(elements: Iterable[str]) -> str:
    """Write elements as LD_LIBRARY_PATH, once each."""
    distinct = _once(elements)
    # One empty element alone would be an empty variable, which the loader ignores.
    return ":" if distinct == ("",) else ":".join(distinct)


def export_library_path(*directories: str) -> str:
    """Return the shell command that puts directories first into LD_LIBRARY_PATH."""
    places = shlex.quote(join_library_path(directories))
    return f"export {LIBRARY_PATH}={places}${{{LIBRARY_PATH}:+:${LIBRARY_PATH}}}"


def has_empty_element(environ: Mapping[str, str]) -> bool:
    """Tell whether LD_LIBRARY_PATH has the current directory searched by an empty element."""
    return "" in parse_library_path(environ.get(LIBRARY_PATH))


def delta(
    environ: Mapping[str, str],
    *,
    hook: str,
    preload: Sequence[str] = (),
    library_path: Sequence[str] = (),
    ahead: Sequence[str] = (),
    same_stem: Callable[[str], bool] | None = None,
) -> dict[str, str]:
    """Return the variables that must change so that `hook` is loaded before everything else.

    LD_PRELOAD becomes the hook, the files of `preload`, then what was there, except the elements of
    `ahead`, which stay ahead of the hook. Other builds of the hook, elements whose file name is
    `same_stem`, are dropped. LD_LIBRARY_PATH gets the directories of `library_path` in front; if
    they are there already it stays as it is. Nothing else is dropped, not even what the loader
    would ignore. The change merged, nothing is left to change.

    A file in a directory with a space is preloaded by its bare name, with its directory in front of
    LD_LIBRARY_PATH. Only a DT_RPATH of the executable is searched before it.

    Raises UnrepresentablePathError for a path that the variables cannot hold, and ValueError for
    one that is not absolute.
    """
    for path in (hook, *preload, *library_path):
        if not path.startswith("/"):
            raise ValueError(f"expected an absolute path, not {path!r}")

    # `preload` comes before what was there: the first libcudart of a SONAME is everybody's.
    elements, homes = _spell((hook, *preload))
    kept = [
        element
        for element in parse_preload(environ.get(PRELOAD))
        if same_stem is None or not same_stem(posixpath.basename(element))
    ]
    first = [element for element in kept if element in ahead and element not in elements]
    result = {PRELOAD: join_preload((*first, *elements, *kept))}

    wanted = _once((*homes, *(literal(path, LIBRARY_PATH, path) for path in library_path)))
    present = parse_library_path(environ.get(LIBRARY_PATH))
    if present[: len(wanted)] != wanted:
        result[LIBRARY_PATH] = join_library_path((*wanted, *present))

    return {name: value for name, value in result.items() if environ.get(name) != value}


def _spell(paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return files as elements of LD_PRELOAD, and the directories where bare names are found."""
    elements: list[str] = []
    homes: dict[str, str] = {}
    for path in paths:
        if " " not in path:
            elements.append(literal(path, PRELOAD, path))
            continue
        directory, name = posixpath.split(path.rstrip("/"))
        elements.append(literal(name, PRELOAD, path))
        home = homes.setdefault(name, literal(directory, LIBRARY_PATH, path))
        # The loader would find the first one twice and never the second.
        if home != directory:
            raise UnrepresentablePathError(
                f"{path!r} contains a space, so that it could be preloaded by its file name only, "
                f"which already stands for the one in {home!r}; "
                "move the environment to a path without a space",
                path=path,
                variable=PRELOAD,
            )
    return elements, list(homes.values())


def literal(element: str, variable: str, path: str) -> str:
    """Return the element, a part of `path`, if the loader takes it from `variable` as it stands."""
    if found := _NOT_LITERAL[variable].search(element):
        raise UnrepresentablePathError(
            f"{path!r} contains {found[0]!r}, which {variable} does not take literally and cannot "
            "escape; move the environment to a path without it",
            path=path,
            variable=variable,
        )
    return element


def _once(elements: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(elements))
