"""What is handed to Ray, and what its agent makes of it: without a cluster."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time

import pytest
from ray._private.ray_constants import WORKER_PROCESS_SETUP_HOOK_ENV_VAR
from ray._private.runtime_env.context import RuntimeEnvContext
from ray.runtime_env import RuntimeEnv
from support.command import run
from support.layout import Site
from support.process import cold

from pyresolve import PyresolveError
from pyresolve.ray import PreloadPlugin, runtime_env
from pyresolve.ray._options import Options
from pyresolve.ray._plugin import expanded
from pyresolve.ray._refuse import HOOK
from pyresolve.ray._start import bash, hooked

CHANGE = {"LD_PRELOAD": "/a b/$ORIGIN/'x\".so", "L": ""}
ENV = "env 'LD_PRELOAD=/a b/$ORIGIN/'\"'\"'x\".so' L="


# --- where the change goes


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python", f"{ENV} python"),
        ("/v/bin/python3.11 -u -X dev", f"{ENV} /v/bin/python3.11 -u -X dev"),
        ("'/a b/bin/python3' -u", f"{ENV} '/a b/bin/python3' -u"),
        ('"/a \\" b/bin/python3"', f'{ENV} "/a \\" b/bin/python3"'),
        ("/a\\ b/bin/python3", f"{ENV} /a\\ b/bin/python3"),
        ("numactl -N0  python -u", f"numactl -N0  {ENV} python -u"),
        ("nsys profile -o python.rep python", f"nsys profile -o python.rep {ENV} python"),
        ("uv run --with x", f"{ENV} uv run --with x"),
        ("/opt/python/wrap", f"{ENV} /opt/python/wrap"),
    ],
)
def test_change_is_made_for_the_interpreter(command, expected):
    """Before its last Python, or before all of it where no word names one; as it was otherwise."""
    assert expected == hooked(command, CHANGE)
    assert command == hooked(command, {})


def test_change_survives_the_shell(clean_env):
    """Whatever a value holds: bash hands it on as it is, and so the arguments behind it."""
    show = "import json, os, sys; print(json.dumps([os.environ['LD_AUDIT_'], sys.argv[1:]]))"
    value, arguments = "\n\t'\"\\ $HOME `id` ${A} é", ["a b", "'\"$x"]
    command = hooked(f"'{sys.executable}' -I -c \"{show}\"", {"LD_AUDIT_": value})
    done = run([*bash(command), *arguments], env=clean_env)
    assert [value, arguments] == json.loads(done.stdout), done.stderr


ENV_VARS = {
    "A": "${HOME}/a:$HOME:${NOT_THERE}:$NOT_THERE:${not_there}",
    "B": "${A}:b",
    "HOME": "/other",
    "C": "$HOME $ $$ ${} ${HOME",
}


def test_env_vars_are_expanded_as_ray_does_it(clean_env):
    """Ray sets them in its own environment; ours must come out the same."""
    code = """
        import json, os, sys
        from ray._private.utils import update_envs
        update_envs(json.loads(sys.argv[1]))
        print(json.dumps(dict(os.environ)))
    """
    rays = cold(code, json.dumps(ENV_VARS), env=clean_env)
    ours = expanded(ENV_VARS, clean_env)
    assert {name: rays[name] for name in ENV_VARS} == {name: ours[name] for name in ENV_VARS}


# --- the plugin


def create(config, command, **context):
    """Return what the plugin makes of it or says, and how often others were served meanwhile."""
    made = RuntimeEnvContext(py_executable=command, **context)
    served = []

    async def serve():
        while True:
            served.append(time.monotonic())
            await asyncio.sleep(0.01)

    async def agent():
        other = asyncio.create_task(serve())
        runtime_env = RuntimeEnv(pyresolve=config)
        try:
            await PreloadPlugin().create(None, runtime_env, made, logging.getLogger(__name__))
        finally:
            other.cancel()

    try:
        asyncio.run(agent())
    except PyresolveError as error:
        return error, len(served)
    return made, len(served)


def test_agent_serves_others_meanwhile():
    """A start that hangs costs its own worker the time limit, and nobody else anything."""
    error, served = create({"timeout": 0.5}, "sleep 60;")
    assert "sleep 60; started no Python within 0.5 s: its start-up hangs" in str(error)
    assert served > 10


def test_what_runs_before_the_interpreter_counts(tmp_path, monkeypatch):
    """An activation script of conda or a venv decides which python is meant, and where it looks."""
    monkeypatch.setenv("PATH", os.defpath)
    (tmp_path / "activate").write_text(f"export PATH={os.path.dirname(sys.executable)}:$PATH\n")
    error, _ = create({}, "python", command_prefix=["source", f"{tmp_path}/activate", "&&"])
    assert f"torch_memory_saver is not installed: it is in none of {sys.prefix}" in str(error)


def test_interpreter_without_ray(tmp_path):
    """It could not be a worker, and Ray would wait for it."""
    python = Site.in_venv(tmp_path / "v").python
    error, _ = create({}, f"{python} -u")
    assert f"{python} -u starts {python}, which has no Ray: correct py_exec" in str(error)


@pytest.mark.parametrize(
    ("config", "error", "words"),
    [
        (None, TypeError, "pyresolve is None: give a dictionary"),
        (["stem"], TypeError, r"pyresolve is \['stem'\]: give a dictionary"),
        ({"stems": "x"}, ValueError, "pyresolve has no option 'stems': give some of stem, pack"),
        ({"stem": 1}, TypeError, "pyresolve's stem is 1: give str"),
        ({"cuda": True}, TypeError, "pyresolve's cuda is True: give int or str"),
        ({"timeout": "1"}, TypeError, "pyresolve's timeout is '1': give int or float"),
        ({"timeout": 0}, ValueError, "pyresolve's timeout is 0: give seconds above zero"),
        ({"timeout": float("nan")}, ValueError, "pyresolve's timeout is nan: give seconds above"),
    ],
)
def test_options_that_mean_nothing(config, error, words):
    """They are refused with what would be right."""
    with pytest.raises(error, match=words):
        PreloadPlugin.validate({"pyresolve": config})


# --- what a driver hands to Ray


def test_what_the_user_had_stays():
    """The dictionary that is given is not written; Ray takes what is made."""
    base = {"env_vars": {"A": "1"}, "pip": ["x"], "config": {"setup_timeout_seconds": 60}}
    before = json.dumps(base)
    made = runtime_env(base, stem="hook", cuda="12.8", timeout=3)
    assert before == json.dumps(base)
    assert base.items() <= made.items()
    options = {"stem": "hook", "cuda": "12.8", "timeout": 3, "py_executable": "python"}
    assert options == made["pyresolve"]
    assert made.keys() - base.keys() == {"pyresolve", "py_executable"}
    assert set(made) <= set(json.loads(RuntimeEnv(**made).serialize()))
    PreloadPlugin.validate(made)


@pytest.mark.parametrize(
    ("base", "command"),
    [
        ({}, ""),
        ({"py_executable": "numactl -N0 python"}, "numactl -N0 python"),
        ({"pip": ["x"]}, "python"),
        ({"uv": ["x"]}, "python"),
        ({"conda": "x"}, "python"),
        ({"pip": [], "env_vars": {}}, ""),
    ],
)
def test_what_is_started(base, command):
    """Ray's own interpreter, unless the user names one or has Ray make an environment."""
    assert command == Options.of(runtime_env(base)["pyresolve"]).py_executable


@pytest.mark.parametrize("base", [{}, {"py_executable": "a python"}, {"pip": ["x"]}])
def test_what_was_made_may_be_made_again(base):
    """Nothing is wrapped twice."""
    made = runtime_env(runtime_env(base, stem="one"), stem="two")
    assert runtime_env(base, stem="two") == made


@pytest.mark.parametrize("name", ["container", "image_uri", "nsight", "_nsight", "rocprof_sys"])
def test_what_no_wrapper_reaches(name):
    """It is refused, where the hook would be left out in silence."""
    with pytest.raises(ValueError, match=f"runtime_env has {name}, which starts its workers"):
        runtime_env({name: {"x": "y"}})


def test_options_are_checked_in_the_driver():
    """Before anything is handed to Ray."""
    with pytest.raises(ValueError, match="timeout is -1"):
        runtime_env(timeout=-1)


def test_ray_reads_the_reason_from_where_it_is_put():
    """The name of the variable is Ray's own."""
    assert WORKER_PROCESS_SETUP_HOOK_ENV_VAR == HOOK
