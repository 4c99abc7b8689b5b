"""`pyresolve exec` and `eval "$(pyresolve env)"`: what runs is what the user meant, and hooked."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import process
from support.command import AUDIT, COMMAND, environment, pyresolve, run
from support.layout import PRELOAD_STEM, TORCHES, Site
from support.probe_program import PROGRAM
from support.process import cold
from support.rogues import rogue
from support.tools import require_tool
from support.wheels import OLD_CUDART_12
from support.worker import WORKER, mapped

from pyresolve import UnrepresentablePathError, pick


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """Return the function that gives a site with this torch_memory_saver and CUDA from pip."""
    made = {}

    def site(version="0.0.10", major=13):
        if (version, major) not in made:
            root = tmp_path_factory.mktemp(f"cu{major}") / "site-packages"
            made[version, major] = Site(root).cuda(major, version)
        return made[version, major]

    return site


@pytest.fixture
def good(sites, full_stub):
    """Return an environment in which the verdict is OK."""
    return environment(sites(), libraries=[full_stub])


# --- the command's own status


@pytest.mark.parametrize("status", [0, 1, 2, 3, 126, 255])
def test_status_is_that_of_the_command(good, status):
    """Also where pyresolve uses the number itself."""
    done = pyresolve("exec", "--", "sh", "-c", f"echo out; echo err >&2; exit {status}", env=good)
    assert (status, "out\n", "err\n") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE])
def test_command_that_dies_of_a_signal(good, number):
    """There is no process between: whoever waits sees the signal, a shell 128 + its number."""
    kill = f"kill -{number.value} $$; exit 7"
    done = pyresolve("exec", "--", "sh", "-c", kill, env=good)
    assert -number == done.returncode
    shell = [require_tool("sh"), "-c", '"$@"; exit $?', "sh", COMMAND]
    done = run([*shell, "exec", "--", "sh", "-c", kill], env=good)
    assert 128 + number == done.returncode


def test_command_takes_the_place_of_pyresolve(good):
    """The pid stays: a supervisor's signals reach the command."""
    running = subprocess.Popen(
        [COMMAND, "exec", "--", "sh", "-c", "echo $$"], stdout=subprocess.PIPE, env=good, cwd="/"
    )
    assert (f"{running.pid}\n".encode(), None) == running.communicate(timeout=30)
    assert 0 == running.returncode


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("/nowhere/command", 127),
        ("no-such-command", 127),
        ("", 127),
        ("./no-such-command", 127),
        ("/", 126),
        ("/etc/passwd", 126),
        ("plain", 126),
        ("text", 126),
    ],
)
def test_command_that_cannot_be_run(good, tmp_path, command, status):
    """127 where it is not found, 126 where it may not or cannot be executed, as a shell says it."""
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    (tmp_path / "text").write_bytes(b"\0\0no program\n")
    (tmp_path / "text").chmod(0o755)
    env = {**good, "PATH": f"{tmp_path}:{good['PATH']}"}
    done = pyresolve("exec", "--", command, "argument", env=env)
    assert (status, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith(f"pyresolve: {command}: ")
    assert 1 == done.stderr.count("\n")


def test_command_is_searched_on_path(good, tmp_path):
    """A bare name means what it means to a shell."""
    (tmp_path / "echo").write_text("#!/bin/sh\necho mine\n")
    (tmp_path / "echo").chmod(0o755)
    done = pyresolve("exec", "--", "echo", env={**good, "PATH": f"{tmp_path}:{good['PATH']}"})
    assert (0, "mine\n") == (done.returncode, done.stdout)


# --- whose words are whose


@pytest.mark.parametrize(
    "before",
    [[], [PRELOAD_STEM], ["--cuda", "13"], ["--force"], [PRELOAD_STEM, "--cuda=13", "--force"]],
    ids=" ".join,
)
@pytest.mark.parametrize(
    "words",
    [
        ["--cuda", "12", "--json", "--help"],
        ["--", "a", "--"],
        ["-c", "x y", "", "*"],
        ["exec", "--", "pick"],
    ],
    ids=" ".join,
)
def test_what_is_behind_the_dashes_belongs_to_the_command(good, before, words):
    """The first -- ends pyresolve's own options; what follows is passed on as it is."""
    show = "import json, sys; print(json.dumps(sys.argv[1:]))"
    done = pyresolve("exec", *before, "--", sys.executable, "-c", show, *words, env=good)
    assert (0, words) == (done.returncode, json.loads(done.stdout)), done.stderr


def test_words_may_be_any_bytes(good):
    """An argument that is not UTF-8 arrives as it is."""
    done = pyresolve("exec", "--", "printf", "%s", "caf\udce9", env=good)
    assert (0, "caf\udce9") == (done.returncode, done.stdout)


def test_stdin_is_the_commands(good):
    """Nothing of it is read before."""
    done = subprocess.run(
        [COMMAND, "exec", "--", "cat"], input=b"in", capture_output=True, env=good, check=False
    )
    assert (0, b"in", b"") == (done.returncode, done.stdout, done.stderr)


# --- when it does not run


def test_failure_stops_before_the_command(lacking, full_stub, tmp_path):
    """FAIL: status 1, the reason and the remedy; the command was not started."""
    env = environment(lacking, libraries=[full_stub])
    done = pyresolve("exec", "--", "touch", tmp_path / "started", env=env)
    assert (1, "", False) == (done.returncode, done.stdout, (tmp_path / "started").exists())
    assert "needs libcudart.so.12" in done.stderr
    assert "pip install nvidia-cuda-runtime-cu12" in done.stderr


def test_failure_without_driver_stops_too(lacking, tmp_path):
    """Where pick() only warns, exec does not start what would die."""
    done = pyresolve("exec", "--", "touch", tmp_path / "started", env=environment(lacking))
    assert (1, "", False) == (done.returncode, done.stdout, (tmp_path / "started").exists())
    assert done.stderr.startswith("pyresolve: not run: ")
    assert "needs libcudart.so.12" in done.stderr


def test_unknown_stops_with_three(sites, tmp_path):
    """Without the driver the loader would end the command: status 3 and the reason."""
    done = pyresolve("exec", "--", "touch", tmp_path / "started", env=environment(sites()))
    assert (3, "", False) == (done.returncode, done.stdout, (tmp_path / "started").exists())
    assert done.stderr.startswith("pyresolve: not run: all that ")
    assert "--force" in done.stderr


def test_no_build_stops_it_and_force_cannot_help(site, tmp_path):
    """Without a package there is nothing to force."""
    env = environment(site)
    for force in ([], ["--force"]):
        done = pyresolve("exec", *force, "--", "touch", tmp_path / "started", env=env)
        assert (1, "", False) == (done.returncode, done.stdout, (tmp_path / "started").exists())
        assert "torch_memory_saver is not installed" in done.stderr


def test_force_runs_it_although_it_will_fail(lacking, full_stub):
    """The loader's own 127 is then the command's status."""
    env = environment(lacking, libraries=[full_stub])
    done = pyresolve("exec", "--force", "--", require_tool("true"), env=env)
    assert 127 == done.returncode
    assert "error while loading shared libraries: libcudart.so.12" in done.stderr


def test_force_runs_it_without_driver(sites):
    """UNKNOWN goes on, and the loader says what is missing."""
    done = pyresolve("exec", "--force", "--", require_tool("true"), env=environment(sites()))
    assert 127 == done.returncode
    assert "libcuda.so.1" in done.stderr


def test_force_changes_nothing_where_all_is_right(good, sites):
    """The same environment as without it."""
    show = ["--", require_tool("env")]
    plain = pyresolve("exec", *show, env=good)
    forced = pyresolve("exec", "--force", *show, env=good)
    assert (0, plain.stdout) == (forced.returncode, forced.stdout)


# --- what the command is given


def variables(text):
    """Return what `env -0` printed."""
    return dict(item.split("=", 1) for item in text.split("\0") if item)


@pytest.mark.parametrize(
    "extra",
    [{}, {"LANG": "C"}, {"LC_ALL": "C"}, {"LANG": "C.UTF-8"}, {"ODD NAME": "caf\udce9\n"}],
    ids=str,
)
def test_environment_differs_by_the_change_alone(good, extra):
    """Nothing of pyresolve's own interpreter shows, not even LC_CTYPE (PEP 538)."""
    env = {**good, **extra}
    change = json.loads(pyresolve("env", "--shell", "json", env=env).stdout)
    done = pyresolve("exec", "--", require_tool("env"), "-0", env=env)
    assert {**env, **change} == variables(done.stdout)


def test_signals_are_as_they_were(good):
    """Python ignores SIGPIPE and SIGXFSZ for itself; the command is not to inherit that."""
    show = [require_tool("grep"), "-E", "^Sig(Blk|Ign)", "/proc/self/status"]
    assert run(show, env=good).stdout == pyresolve("exec", "--", *show, env=good).stdout


def test_ignored_signals_stay_ignored(good):
    """What nohup set up holds for the command."""
    script = 'trap "" HUP; exec "$@"'
    show = [require_tool("grep"), "-E", "^Sig(Blk|Ign)", "/proc/self/status"]
    shell = [require_tool("sh"), "-c", script, "sh"]
    plain = run([*shell, *show], env=good)
    assert plain.stdout == run([*shell, COMMAND, "exec", "--", *show], env=good).stdout


def test_descriptors_are_as_they_were(good):
    """What was inherited is passed on, nothing is added."""
    script = 'exec 7</dev/null; exec "$@"'
    show = [sys.executable, "-c", "import os; print(sorted(os.listdir('/proc/self/fd'))[:-1])"]
    shell = [require_tool("sh"), "-c", script, "sh"]
    plain = run([*shell, *show], env=good)
    done = run([*shell, COMMAND, "exec", "--", *show], env=good)
    assert (0, plain.stdout) == (done.returncode, done.stdout)


def test_working_directory_and_umask_stay(good, tmp_path):
    """The command starts where the user stands."""
    script = 'umask 027; exec "$0" exec -- sh -c "pwd; umask"'
    done = run([require_tool("sh"), "-c", script, COMMAND], env=good, cwd=tmp_path)
    assert f"{tmp_path}\n0027\n" == done.stdout


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_closed_descriptors_do_not_matter(good, closed):
    """A daemon's launcher may have none of the three."""
    script = f'"$0" exec -- sh -c "echo out" {closed}'
    done = run([require_tool("sh"), "-c", script, COMMAND], env=good)
    assert (0, "out\n", "") == (done.returncode, done.stdout, done.stderr)


# --- must show 1: the toolkit hidden, CUDA from pip alone


@pytest.mark.parametrize("major", [12, 13])
@pytest.mark.parametrize("version", ["0.0.9.post1", "0.0.10"])
def test_pip_only_cuda(sites, full_stub, hidden_toolkit, version, major):
    """The bare hook ends every program with 127; under `eval "$(pyresolve env)"` it works."""
    site = sites(version, major)
    env = environment(site, libraries=[full_stub])
    hook = site.hook(f"_cu{major}")
    runtime = site.cudart_directory(major) / f"libcudart.so.{major}"

    true = [*hidden_toolkit, require_tool("env"), f"LD_PRELOAD={hook}", require_tool("true")]
    bare = run(true, env=env)
    assert (127, True) == (bare.returncode, f"libcudart.so.{major}" in bare.stderr)

    script = 'eval "$("$0" env)" && exec "$@"'
    shell = [*hidden_toolkit, require_tool("sh"), "-c", script, COMMAND]
    done = run([*shell, sys.executable, "-c", WORKER], env=env)
    assert (0, "") == (done.returncode, done.stderr)
    assert {str(hook)} == mapped(done, PRELOAD_STEM)
    assert {str(runtime)} == mapped(done, "libcudart")
    assert {str(full_stub / "libcuda.so.1")} == mapped(done, "libcuda.so")

    done = run([*shell, require_tool("sh"), "-c", "exit 5"], env=env)
    assert (5, "") == (done.returncode, done.stderr)


# --- must show 2: two runtimes of one major


def test_torchs_runtime_wins_over_library_path(sites, full_stub, tmp_path):
    """12.1 stands on LD_LIBRARY_PATH, torch comes with 12.8: the command maps 12.8."""
    site = sites(major=12)
    old = Site(tmp_path / "old").cudart(OLD_CUDART_12)
    env = environment(site, libraries=[old, full_stub])
    bare = run([sys.executable, "-c", WORKER], env={**env, "LD_PRELOAD": f"{site.hook('_cu12')}"})
    assert {str(old / "libcudart.so.12")} == mapped(bare, "libcudart")
    done = pyresolve("exec", "--", sys.executable, "-c", WORKER, env=env)
    own = site.cudart_directory(12) / "libcudart.so.12"
    assert (0, {str(own)}) == (done.returncode, mapped(done, "libcudart"))


# --- must show 3: what was preloaded before


@pytest.mark.parametrize("spelling", ["path", "bare name"])
def test_existing_preload_survives_behind_the_hook(sites, full_stub, tmp_path, spelling):
    """The user's libfoo.so is mapped, the hook comes first, and a second time changes nothing."""
    foo = Path(shutil.copy(rogue("good"), tmp_path / "libfoo.so"))
    env = environment(sites(), libraries=[full_stub, tmp_path])
    env["LD_PRELOAD"] = name = foo.name if spelling == "bare name" else os.fspath(foo)
    done = pyresolve("exec", "--", sys.executable, "-c", WORKER, env=env)
    preload = json.loads(done.stdout)["environ"]["LD_PRELOAD"]
    hook = os.fspath(sites().hook("_cu13"))
    assert ({str(foo)}, {hook}) == (mapped(done, "libfoo"), mapped(done, PRELOAD_STEM))
    assert f"{hook}:{name}" == preload

    again = pyresolve("exec", "--", COMMAND, "env", env=env)
    assert (0, "", "") == (again.returncode, again.stdout, again.stderr)


def test_env_on_its_own_result_is_empty(sites, full_stub, monkeypatch):
    """For the choice that gave it and for a new one."""
    monkeypatch.syspath_prepend(sites().root)
    env = {**environment(libraries=[full_stub]), "LD_PRELOAD": os.fspath(rogue("good"))}
    choice = pick(environ=env)
    changed = {**env, **choice.env(env)}
    assert env != changed
    assert ({}, {}) == (choice.env(changed), pick(environ=changed).env(changed))


# --- must show 4: the audit inside


def test_audit_inside_exec_has_nothing_to_find(sites, good):
    """The hook is active and there is one runtime, torch's."""
    done = pyresolve("exec", "--", sys.executable, "-c", AUDIT, env=good)
    found = json.loads(done.stdout)
    site = sites()
    hook, runtime = site.hook("_cu13"), site.cudart_directory(13) / "libcudart.so.13"
    assert (True, [], str(hook), str(hook), [str(runtime)]) == (
        found["active"],
        found["findings"],
        found["hook"],
        found["owner"],
        found["runtimes"],
    )


def test_audit_finds_a_runtime_before_the_hook(sites, good):
    """LD_PRELOAD=libcudart:hook runs, silently without the hook."""
    site = sites()
    hook, runtime = site.hook("_cu13"), site.cudart_directory(13) / "libcudart.so.13"
    found = cold(AUDIT, env={**good, "LD_PRELOAD": f"{runtime}:{hook}"})
    assert (False, ["bypassed"]) == (
        found["active"],
        [finding["status"] for finding in found["findings"]],
    )


def test_exec_mends_a_runtime_before_the_hook(sites, good):
    """The hook is put first, and stays active."""
    site = sites()
    hook, runtime = site.hook("_cu13"), site.cudart_directory(13) / "libcudart.so.13"
    env = {**good, "LD_PRELOAD": f"{runtime}:{hook}"}
    done = pyresolve("exec", "--", sys.executable, "-c", AUDIT, env=env)
    found = json.loads(done.stdout)
    assert (True, [str(hook), str(runtime)]) == (found["active"], found["preload"])


# --- must show 5: paths that the variables cannot hold


@pytest.fixture
def venv_in(tmp_path):
    """Return the function that gives a whole environment below a directory of this name."""

    def make(name, major):
        plain = tmp_path / "plain"
        site = Site.in_venv(plain / "venv").tms().torch(*TORCHES[major])
        site.cudart(major)
        plain.rename(tmp_path / name)  # venv itself refuses a colon
        directory = tmp_path / name / "venv"
        root = next(directory.glob("lib/python*/site-packages"))
        return Site(root, directory / "bin" / "python")

    return make


@pytest.mark.parametrize("major", [12, 13])
def test_venv_below_a_space(venv_in, full_stub, hidden_toolkit, major):
    """The command works: hook and torch's runtime are mapped."""
    site = venv_in("a b", major)
    env = environment(libraries=[full_stub])
    words = ["exec", "--python", site.python, "--", site.python, "-c", WORKER]
    done = pyresolve(*words, env=env, prefix=hidden_toolkit)
    assert 0 == done.returncode, done.stderr
    assert {str(site.hook(f"_cu{major}"))} == mapped(done, PRELOAD_STEM)
    runtime = site.cudart_directory(major) / f"libcudart.so.{major}"
    assert {str(runtime)} == mapped(done, "libcudart")


def test_eval_below_a_space(venv_in, full_stub):
    """A shell gets what exec gives."""
    site = venv_in("a b", 13)
    env = environment(libraries=[full_stub])
    script = 'eval "$("$0" env --python "$1")" && exec "$1" -c "$2"'
    command = [require_tool("sh"), "-c", script, COMMAND, site.python, WORKER]
    done = run(command, env=env)
    assert 0 == done.returncode, done.stderr
    assert {str(site.hook("_cu13"))} == mapped(done, PRELOAD_STEM)
    assert {str(site.cudart_directory(13) / "libcudart.so.13")} == mapped(done, "libcudart")


@pytest.mark.parametrize(
    ("name", "variable"),
    [("a:b", "LD_PRELOAD"), ("a:b c", "LD_LIBRARY_PATH"), ("$ORIGIN", "LD_PRELOAD")],
)
def test_venv_below_what_cannot_be_written(venv_in, full_stub, tmp_path, name, variable):
    """UnrepresentablePathError, and the command is not started; never a silent miss."""
    site = venv_in(name, 13)
    env = environment(libraries=[full_stub])
    words = ["exec", "--python", site.python, "--", "touch", tmp_path / "started"]
    done = pyresolve(*words, env=env)
    assert (1, "", False) == (done.returncode, done.stdout, (tmp_path / "started").exists())
    assert f"{variable} does not take literally" in done.stderr
    assert 1 == done.stderr.count("\n")
    with pytest.raises(UnrepresentablePathError) as caught:
        pick(python=site.python, environ=env)
    assert (variable, str(site.hook("_cu13"))) == (caught.value.variable, caught.value.path)


def test_venv_below_a_semicolon(venv_in, full_stub):
    """LD_PRELOAD can hold it, LD_LIBRARY_PATH cannot: the runtime is preloaded behind the hook."""
    site = venv_in("a;b", 13)
    env = environment(libraries=[full_stub])
    words = ["exec", "--python", site.python, "--", site.python, "-c", WORKER]
    done = pyresolve(*words, env=env)
    assert 0 == done.returncode, done.stderr
    assert {str(site.hook("_cu13"))} == mapped(done, PRELOAD_STEM)
    assert {str(site.cudart_directory(13) / "libcudart.so.13")} == mapped(done, "libcudart")


# --- several at once


def test_commands_do_not_disturb_each_other(good):
    """Sixteen at a time, as a launcher starts its workers."""
    command = [COMMAND, "exec", "--", "sh", "-c", 'printf %s "$LD_PRELOAD"; exit 9']
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=good, cwd="/")
        for _ in range(16)
    ]
    said = [child.communicate(timeout=60) for child in running]
    assert [9] * 16 == [child.returncode for child in running]
    assert 1 == len(set(said))
    assert not process.children()


def test_command_that_reads_no_preload(good, static, tmp_path):
    """A static program would run without the hook, and nobody would notice."""
    done = pyresolve("exec", "--", PROGRAM, "--version", env=good)
    assert (1, "") == (done.returncode, done.stdout)
    assert f"pyresolve: not run: {PROGRAM} is linked statically" in done.stderr
    assert "(--force runs it all the same)" in done.stderr
    forced = pyresolve("exec", "--force", "--", PROGRAM, "--version", env=good)
    assert (0, "pyresolve-probe 0.1.0\n") == (forced.returncode, forced.stdout)
    script = tmp_path / "worker"
    script.write_text(f"#!/usr/bin/env {Path(PROGRAM).name}\n")
    script.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{Path(PROGRAM).parent}:{good['PATH']}"}
    done = pyresolve("exec", "--", "worker", env={**good, **path})
    assert (1, "") == (done.returncode, done.stdout)
    assert f"not run: {script} is run by {PROGRAM}: {PROGRAM} is linked statically" in done.stderr
