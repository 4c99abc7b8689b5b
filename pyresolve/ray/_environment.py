"""runtime_env(): what a driver hands to Ray, without asking what its own host is like."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import ray

from . import _refuse
from ._options import Options

if TYPE_CHECKING:
    from collections.abc import Mapping

_REPLACED = ("conda", "pip", "uv")  # what has Ray start the python of another environment
_ELSEWHERE = ("container", "image_uri", "nsight", "_nsight", "rocprof_sys", "_rocprof_sys")

# Ray adds its worker's script, which is in the packages of the Python that Ray runs on, and the
# arguments. If pyresolve does not run, that Python reports it.
_WRAPPER = """\
command=$1 bin=${{2%/lib/python*}}/bin
shift
pyresolve=$(PATH=$PATH:$bin; command -v pyresolve || echo pyresolve)
line=$("$pyresolve" ray start {arguments} "$command") && eval "$line \\"\\$@\\""
export {variables} PATH="$bin:$PATH"
echo "pyresolve: ${reason}" >&2
eval "exec ${{command:-python}} \\"\\$@\\""
"""


def runtime_env(
    base: Mapping[str, Any] | None = None,
    *,
    stem: str = "torch_memory_saver_hook_mode_preload",
    package: str = "torch_memory_saver",
    cuda: int | str | None = None,
    timeout: float = 10.0,
) -> dict[str, Any]:
    """Return the runtime environment `base` with the hook for whatever node a worker starts on.

    Each node picks, pins and rehearses for the interpreter that starts there: by PreloadPlugin
    if that is registered, else by a wrapper in `py_executable`. All that `base` holds stays in
    force, and what `ray.init` was given; `base` is not written. The options are those of pick(),
    `timeout` in seconds.

    Raises ValueError or TypeError for an option that means nothing, and ValueError for a `base`
    that has Ray start the workers in a container or under a profiler, where no wrapper reaches
    them.
    """
    given = dict(base or {})
    inherited = ray.get_runtime_context().runtime_env if ray.is_initialized() else {}
    whole = {**inherited, **given}
    for name in _ELSEWHERE:
        if whole.get(name):
            raise ValueError(
                f"runtime_env has {name}, which starts its workers in a way of its own, where no"
                " hook is put on them: leave it out"
            )
    own = _own(whole)
    options = Options.of(
        {
            name: value
            for name, value in {
                "stem": stem,
                "package": package,
                "cuda": cuda,
                "timeout": timeout,
                "py_executable": own,
            }.items()
            if value is not None
        }
    )
    return {**given, "pyresolve": options.to_dict(), "py_executable": _wrapper(options)}


def _own(whole: Mapping[str, Any]) -> str:
    """Return what is to be started: what the user names, or what Ray would make, empty for its own.

    An actor that starts others hands on to them what it was started with, wrapper and all.
    """
    command: str | None = whole.get("py_executable")
    if command is None:
        return "python" if any(whole.get(name) for name in _REPLACED) else ""
    if "pyresolve" in whole:
        before = Options.of(whole["pyresolve"])
        if before.py_executable is not None and command == _wrapper(before):
            return before.py_executable
    return command


def _wrapper(options: Options) -> str:
    reason = "pyresolve does not run on this node: install it into the environment of Ray there"
    variables = _refuse.environment(reason).items()
    script = _WRAPPER.format(
        arguments=shlex.join(options.arguments()),
        variables=" ".join(f"{name}={shlex.quote(value)}" for name, value in variables),
        reason=_refuse.REASON,
    )
    return shlex.join(["bash", "-c", script, "bash", options.py_executable or ""])
