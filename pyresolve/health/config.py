"""What to check, from a TOML file."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .._errors import ConfigError
from .._model import Mode
from .checks import DEFAULT, Driver, Hook, Library, Torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .checks import Check

UNKNOWN_IS = ("ok", "fail")

_TOP = ("timeout", "unknown-is", "python", "hook", "driver", "torch", "library")
_HOOK = ("stem", "package")
_DRIVER = ("required", "cuda")
_LIBRARY = ("path", "mode", "name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of a file; None if it does not set them."""

    checks: tuple[Check, ...] = DEFAULT
    timeout: float | None = None
    unknown_is: str | None = None


def read(path: str | os.PathLike[str]) -> Config:
    """Read a file. Raises ConfigError if it is missing, not TOML, or has invalid keys or values."""
    toml = _parser()
    shown = os.fspath(path)
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            data = toml.load(file)
    except OSError as error:
        raise ConfigError(f"{shown} cannot be read ({error.strerror})") from error
    except (toml.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{shown} is no TOML: {' '.join(str(error).split())}") from error
    try:
        return _config(data)
    except ConfigError as error:
        raise ConfigError(f"{shown}: {error}") from None


def _parser() -> Any:  # noqa: ANN401  (a module, under either name)
    for name in ("tomllib", "tomli"):  # the first came with Python 3.11
        with suppress(ModuleNotFoundError):
            return import_module(name)
    raise ConfigError(
        "to read a config, Python 3.10 needs tomli: pip install 'pyresolve-native[health]'"
    )


def _config(data: Mapping[str, Any]) -> Config:
    _known(data, _TOP, "")
    checks = tuple(_checks(data))
    if not checks:
        raise ConfigError(
            "it names nothing to check: add [hook], [driver], [torch] or a [[library]]"
        )
    names = [check.name for check in checks]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two checks are called {name!r}: give one of the libraries another name"
            )
    timeout = _value(data, "timeout", (int, float), "a positive number of seconds")
    if timeout is not None and not 0 < timeout < float("inf"):
        raise ConfigError(f"timeout is {timeout!r}: give a positive number of seconds")
    return Config(
        checks=checks,
        timeout=timeout,
        unknown_is=_choice(data, "unknown-is", UNKNOWN_IS),
    )


def _checks(data: Mapping[str, Any]) -> Iterator[Check]:
    python = _text(data, "python")
    if (hook := _table(data, "hook", _HOOK)) is not None:
        default = Hook()
        yield Hook(
            stem=_text(hook, "stem", "[hook] ") or default.stem,
            package=_text(hook, "package", "[hook] ") or default.package,
            python=python,
        )
    if (driver := _table(data, "driver", _DRIVER)) is not None:
        required = _value(driver, "required", (bool,), "true or false", "[driver] ")
        yield Driver(required=bool(required), cuda=_cuda(_text(driver, "cuda", "[driver] ")))
    if _table(data, "torch", ()) is not None:
        yield Torch(python=python)
    libraries = data.get("library", [])
    if not isinstance(libraries, list) or not all(isinstance(item, dict) for item in libraries):
        raise ConfigError("library is no list of tables: write each as [[library]]")
    for library in libraries:
        _known(library, _LIBRARY, "[[library]] ")
        yield _library(library)


def _library(table: Mapping[str, Any]) -> Library:
    path = _text(table, "path", "[[library]] ")
    if not path:
        raise ConfigError("a [[library]] has no path: give the file, or a name for the loader")
    if "/" in path and not path.startswith("/"):
        raise ConfigError(f"[[library]] path is {path!r}: give it in full, or a name alone")
    mode = _choice(table, "mode", [mode.value for mode in Mode], "[[library]] ")
    name = _text(table, "name", "[[library]] ")
    return Library(
        path=path,
        mode=Mode(mode or Mode.DLOPEN),
        name=name or os.path.basename(path),  # noqa: PTH119
    )


def _cuda(text: str | None) -> int | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,2})(?:\.(\d))?", text, re.ASCII)
    if not match:
        raise ConfigError(f"[driver] cuda is {text!r}: give a version, such as '12' or '12.8'")
    return int(match[1]) * 1000 + int(match[2] or 0) * 10


def _table(data: Mapping[str, Any], name: str, known: tuple[str, ...]) -> dict[str, Any] | None:
    table: dict[str, Any] | None = _value(data, name, (dict,), f"a table: [{name}]")
    if table is not None:
        _known(table, known, f"[{name}] ")
    return table


def _known(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            there = f"known are {', '.join(known)}" if known else "it takes none"
            raise ConfigError(f"{where}{key!r} is no key: {there}")


def _choice(
    table: Mapping[str, Any], key: str, known: tuple[str, ...] | list[str], where: str = ""
) -> str | None:
    text = _text(table, key, where)
    if text is not None and text not in known:
        shown = " or ".join(map(repr, known))
        raise ConfigError(f"{where}{key} is {text!r}: give {shown}")
    return text


def _text(table: Mapping[str, Any], key: str, where: str = "") -> str | None:
    text: str | None = _value(table, key, (str,), "a text", where)
    if text is not None and (not text or "\0" in text):
        raise ConfigError(f"{where}{key} is {text!r}: give a text, or leave it out")
    return text


def _value(
    table: Mapping[str, Any], key: str, kinds: tuple[type, ...], wanted: str, where: str = ""
) -> Any:  # noqa: ANN401  (of one of the kinds)
    value = table.get(key)
    if value is None or type(value) in kinds:  # a bool is an int, and no number of seconds
        return value
    raise ConfigError(f"{where}{key} is {value!r}: give {wanted}")
