"""Workers on the nodes of a real Ray cluster: each has the hook of its own node, or a reason."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile

import pytest
import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RuntimeEnvSetupError
from support.compile import hollow
from support.layout import Site
from support.rogues import rogue

from pyresolve.ray import runtime_env


def plugin(base=None, **options):
    """Return a runtime environment that only the plugin serves."""
    return {**(base or {}), "pyresolve": options}


def wrapper(base=None, **options):
    """Return a runtime environment that only the wrapper serves."""
    made = runtime_env(base, **options)
    del made["pyresolve"]
    return made


FORMS = pytest.mark.parametrize("form", [plugin, wrapper])
REFUSED = {plugin: (RuntimeEnvSetupError, 10), wrapper: (ActorDiedError, 30)}


def get(ref, timeout=60):
    return ray.get(ref, timeout=timeout)


def refused(worker, form):
    """Return what the caller reads where no worker is started, within seconds."""
    error, within = REFUSED[form]
    with pytest.raises(error) as caught:
        get(worker.audit.remote(), within)
    return str(caught.value)


# --- each node decides for itself


@pytest.mark.parametrize("form", [plugin, wrapper, runtime_env])
def test_each_worker_has_the_hook_of_its_own_node(nodes, start, form):
    """One runtime environment, two nodes, two CUDA majors; nothing is left to find fault with."""
    one = form()
    for name, site in (("cu12", nodes.cu12), ("cu13", nodes.cu13)):
        audit = get(start(name, one).audit.remote())
        hook = site.hook(f"_{name}")
        assert ((), hook, hook) == (audit.findings, audit.hook, audit.owner)
        assert [site.cudart_directory(int(name[2:]))] == [path.parent for path in audit.runtimes]


def test_node_without_the_plugin_uses_the_wrapper(nodes, start):
    """What runtime_env() makes needs neither a set-up of the nodes nor knowledge of it."""
    audit = get(start("plain", runtime_env()).audit.remote())
    assert ((), nodes.cu13.hook("_cu13")) == (audit.findings, audit.hook)


@FORMS
def test_tasks_have_it_too(nodes, form):
    """A task is started like an actor."""

    def hooks():
        with open("/proc/self/maps") as maps:
            return {line.split()[-1] for line in maps if "torch_memory_saver" in line}

    options = {"resources": {"cu12": 1}, "num_cpus": 0, "runtime_env": form()}
    assert {str(nodes.cu12.hook("_cu12"))} == get(ray.remote(hooks).options(**options).remote())


def test_worker_that_starts_workers(nodes, start):
    """What it was started with is handed on by Ray, and by runtime_env() in it."""
    code = "__import__('pyresolve.ray').ray.runtime_env()"
    base = {"py_executable": f"{sys.executable} -u", "env_vars": {"NESTED": "1"}}
    made = runtime_env(base)
    assert made["pyresolve"] == get(start("plain", made).ask.remote(code))["pyresolve"]


# --- a worker that cannot have it is a Ray error with the reason


@FORMS
def test_node_without_a_usable_build(nodes, start, form):
    """The caller reads the reason, and which host it is about, within seconds."""
    text = refused(start("bare", form()), form)
    assert f"no worker is started on {os.uname().nodename}: torch_memory_saver is not inst" in text


def test_without_pyresolve_it_hangs(nodes, start):
    """What the driver found for its own node is not loadable on this one: Ray waits for ever."""
    worker = start("bare", {"env_vars": {"LD_PRELOAD": str(nodes.cu12.hook("_cu12"))}})
    with pytest.raises(GetTimeoutError):
        get(worker.audit.remote(), timeout=6)


@FORMS
def test_node_without_a_driver(nodes, start, form):
    """The loader would end the worker with status 127, so it is not tried."""
    worker = start("bare", form({"env_vars": {"PYTHONPATH": os.fspath(nodes.cu13)}}))
    assert "libcuda.so.1" in refused(worker, form)


@FORMS
@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("segfault", {}, "SIGSEGV"),
        ("loop", {"timeout": 1.0}, "within 1 s"),
        ("missing_needed", {}, "libpyresolve_vanished.so.1"),
    ],
)
def test_hook_that_misbehaves(nodes, start, form, name, options, words):
    """It does so in the rehearsal. Ray has the plugin try three times, a second apart."""
    env_vars = {"PYRESOLVE_PRELOAD": str(rogue(name))}
    assert words in refused(start("cu13", form({"env_vars": env_vars}, **options)), form)


@FORMS
def test_py_executable_that_starts_no_python(nodes, start, form):
    """Ray itself would try again and again, and its caller wait."""
    text = refused(start("cu13", form({"py_executable": "no-such-python -u"})), form)
    assert "no-such-python -u starts no Python here (bash: " in text


def test_node_without_pyresolve(nodes, start):
    """The wrapper says it, and so does the worker that it has Ray start all the same."""
    text = refused(start("lost", runtime_env()), wrapper)
    assert "No module named 'pyresolve'" in text


def test_options_are_checked_on_the_node(nodes, start):
    """For a runtime environment that was written by hand."""
    text = refused(start("cu13", {"pyresolve": {"stems": "x"}}), plugin)
    assert "pyresolve has no option 'stems': give some of stem, package, cuda, timeout" in text


# --- what the user had stays in force


@FORMS
def test_env_vars_and_a_second_preload(nodes, start, form):
    """The user's preload is mapped, behind the hook, and so is one that the node had."""
    second = hollow("libsecond.so")
    worker = start("cu13", form({"env_vars": {"A": "${HOME}/x", "LD_PRELOAD": f"{second}:${{L}}"}}))
    assert () == get(worker.audit.remote()).findings
    preload = f"{nodes.cu13.hook('_cu13')}:{second}"
    asked = "os.environ['A'], os.environ['LD_PRELOAD']"
    assert (f"{os.environ['HOME']}/x", preload) == get(worker.ask.remote(asked))
    assert get(worker.ask.remote(f"{str(second)!r} in open('/proc/self/maps').read()"))


@FORMS
def test_py_executable_of_the_user(nodes, start, form, tmp_path):
    """Their wrapper is run without the hook, and their options reach Python."""
    note = tmp_path / "a 'b' $c" / "note"
    note.parent.mkdir()
    program = note.with_name("wrap")
    program.write_text('#!/bin/sh\necho "${LD_PRELOAD-none}" >"${0%/*}/note"\nexec "$@"\n')
    program.chmod(0o755)
    command = f"\"{tmp_path}/a 'b' \\$c/wrap\" python -X utf8=0 -W ignore"
    worker = start("cu13", form({"py_executable": command}))
    assert () == get(worker.audit.remote()).findings
    assert ["ignore"] == get(worker.ask.remote("sys.warnoptions"))
    assert "none\n" == note.read_text()


@pytest.mark.parametrize("form", [wrapper, runtime_env])
def test_pip(nodes, start, form, tmp_path):
    """The interpreter that Ray makes for it is the one that is resolved for and started."""
    name, info = "only_here-1", "only_here-1.dist-info"
    wheel = tmp_path / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("only_here.py", "WORD = 'found'\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: only-here\nVersion: 1\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    worker = start("cu13", form({"pip": {"packages": [str(wheel)], "pip_check": False}}))
    assert () == get(worker.audit.remote(), timeout=90).findings
    assert "found" == get(worker.ask.remote("__import__('only_here').WORD"))
    assert sys.prefix != get(worker.ask.remote("sys.prefix"))


@FORMS
@pytest.mark.parametrize("name", ["a space", "'quotes\"", "$c`id`&\\"])
def test_path_that_a_shell_would_read(nodes, start, form, name, tmp_path):
    """Nothing of a path is interpreted on the way through Ray's bash."""
    site = Site(tmp_path / name)
    shutil.copytree(nodes.cu13.root, site.root, dirs_exist_ok=True)
    env_vars = {"PYTHONPATH": os.fspath(site)}
    audit = get(start("cu13", form({"env_vars": env_vars})).audit.remote())
    assert ((), site.hook("_cu13")) == (audit.findings, audit.hook)
