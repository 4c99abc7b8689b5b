"""Plain data for the JSON documents. Their keys are part of the interface (docs/json.md)."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

SCHEMA = 1
"""The number of the JSON layout. It changes if a key changes its meaning or goes."""


def document(item: Any) -> dict[str, Any]:  # noqa: ANN401  (any dataclass)
    """Return a dataclass as a document: plain data with the number of its layout."""
    return {"schema": SCHEMA, **plain(item)}


def plain(item: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the public fields of a dataclass as plain data."""
    names = (field.name for field in fields(item) if not field.name.startswith("_"))
    return {name: value(getattr(item, name)) for name in names}


def value(item: Any) -> Any:  # noqa: ANN401
    """Return anything that a document holds as plain data."""
    if isinstance(item, Enum):
        return item.value
    if isinstance(item, Path):
        return str(item)
    if isinstance(item, float):
        return round(item, 6)
    if isinstance(item, (tuple, list)):
        return [value(part) for part in item]
    if isinstance(item, dict):
        return {key: value(part) for key, part in item.items()}
    if is_dataclass(item):
        return item.plain() if hasattr(item, "plain") else plain(item)
    return item
