"""What a runtime environment says about the hook that its workers want."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS: dict[str, tuple[type, ...]] = {
    "stem": (str,),
    "package": (str,),
    "cuda": (int, str),
    "timeout": (int, float),
    "py_executable": (str,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of pick(), and what the wrapper in `py_executable` stands for.

    `timeout` in seconds holds for the start of the interpreter, and again for pick().
    `py_executable` is None if there is no wrapper, empty if it starts Ray's own interpreter.
    """

    stem: str = "torch_memory_saver_hook_mode_preload"
    package: str = "torch_memory_saver"
    cuda: int | str | None = None
    timeout: float = 10.0
    py_executable: str | None = None

    @classmethod
    def of(cls, config: object) -> Options:
        """Return what a configuration says; raise TypeError or ValueError if it is none."""
        if not isinstance(config, dict):
            raise TypeError(f"pyresolve is {config!r}: give a dictionary of options, {{}} for none")
        known = [field.name for field in fields(cls)]
        for name, value in config.items():
            if name not in known:
                raise ValueError(
                    f"pyresolve has no option {name!r}: give some of {', '.join(known)}"
                )
            kinds = _KINDS[name]
            if isinstance(value, bool) or not isinstance(value, kinds):
                wanted = " or ".join(kind.__name__ for kind in kinds)
                raise TypeError(f"pyresolve's {name} is {value!r}: give {wanted}")
        options = cls(**config)
        if not 0 < options.timeout < math.inf:
            raise ValueError(f"pyresolve's timeout is {options.timeout!r}: give seconds above zero")
        return options

    def to_dict(self) -> dict[str, Any]:
        """Return what differs from the defaults: what of() takes."""
        defaults = Options()
        return {k: v for k, v in asdict(self).items() if v != getattr(defaults, k)}

    def arguments(self) -> Iterator[str]:
        """Yield the arguments that `pyresolve ray start` takes."""
        for name in ("package", "cuda", "timeout"):
            value = getattr(self, name)
            if value is not None:
                yield f"--{name}={value}"
        yield f"--stem={self.stem}"
