"""The plugin: Ray's agent runs it on each node, before a worker starts there."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from typing import TYPE_CHECKING, Any

from ray._private.runtime_env.constants import RAY_RUNTIME_ENV_PLUGIN_MAX_PRIORITY
from ray._private.runtime_env.plugin import RuntimeEnvPlugin

from .._errors import PyresolveError
from . import _start
from ._options import Options

if TYPE_CHECKING:
    import logging
    from collections.abc import Mapping

    from ray._private.runtime_env.context import RuntimeEnvContext

NAME = "pyresolve"


class PreloadPlugin(RuntimeEnvPlugin):  # type: ignore[misc]
    """Start the workers of a runtime environment that has a field `pyresolve` with the hook.

    The field holds the options that `pyresolve.ray.runtime_env` takes, {} for none. If the hook
    would not load, the runtime environment fails with the reason, and so does the actor.
    """

    name = NAME
    priority = RAY_RUNTIME_ENV_PLUGIN_MAX_PRIORITY  # after all that may change py_executable

    @staticmethod
    def validate(runtime_env_dict: Mapping[str, Any]) -> None:
        """Raise ValueError for options that mean nothing."""
        Options.of(runtime_env_dict[NAME])

    async def create(
        self,
        uri: str | None,  # noqa: ARG002
        runtime_env: Mapping[str, Any],
        context: RuntimeEnvContext,
        logger: logging.Logger,
    ) -> float:
        """Put the hook on the Python that Ray will start; in a thread, the agent serves others."""
        options = Options.of(runtime_env[NAME])
        command = context.py_executable
        if options.py_executable is not None and command == runtime_env.get("py_executable"):
            command = options.py_executable or shlex.quote(sys.executable)
        try:
            start = await asyncio.to_thread(
                _start.prepare,
                command,
                options,
                prefix=tuple(context.command_prefix),
                environ=expanded(context.env_vars, os.environ),
            )
        except (PyresolveError, ValueError) as error:
            raise PyresolveError(_start.refusal(error)) from None
        for warning in start.warnings:
            logger.warning("pyresolve: %s", warning)
        context.py_executable = _start.hooked(command, start.change)
        return 0


def expanded(env_vars: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` with `env_vars` as Ray sets them: in turn, and with variables expanded.

    A variable that is not there stays as it stands, or is removed if it is in braces and capitals.
    """
    result = dict(environ)
    for name, value in env_vars.items():
        text = re.sub(
            r"\$(\w+|\{[^}]*\})",
            lambda match: result.get(match[1].strip("{}"), match[0]),
            value,
            flags=re.ASCII,
        )
        result[name] = re.sub(r"\$\{[A-Z0-9_]+\}", "", text)
    return result
