"""The launcher recipes, as they are written down, and what the worker then says of itself."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap

import pytest
from support import REPOSITORY
from support.command import AUDIT, COMMAND, environment, run
from support.layout import PRELOAD_STEM, TORCHES, Site
from support.process import cold
from support.tools import require_tool

README = (REPOSITORY / "README.md").read_text()


@pytest.fixture(scope="module", params=[12, 13])
def node(request, tmp_path_factory):
    """Return a site where CUDA comes from pip alone."""
    site = Site(tmp_path_factory.mktemp("node") / "site-packages").cuda(request.param)
    return site, request.param


@pytest.fixture
def launcher(node, full_stub):
    """Return the environment of a launcher on that node."""
    return environment(node[0], libraries=[full_stub])


@pytest.fixture
def works(node):
    """Return the function that asserts of an audit that all is right."""
    site, major = node
    hook = os.fspath(site.hook(f"_cu{major}"))
    runtime = os.fspath(site.cudart_directory(major) / f"libcudart.so.{major}")

    def check(found):
        assert ("ok", True, [], hook, hook, [runtime]) == (
            found["verdict"],
            found["active"],
            found["findings"],
            found["hook"],
            found["owner"],
            found["runtimes"],
        )

    return check


def program(tmp_path, code):
    """Write a launcher to a file, as spawn needs one, and return its path."""
    path = tmp_path / "launcher.py"
    path.write_text(textwrap.dedent(code))
    return path


def last_line(done):
    """Return what a program printed last, as JSON."""
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# --- a shell


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_shell(launcher, hidden_toolkit, works, shell):
    """`eval "$(pyresolve env)"`, then the launch line as it was."""
    script = 'eval "$(pyresolve env)" && "$0" -c "$1"'
    env = {**launcher, "PATH": f"{COMMAND.parent}:{launcher['PATH']}"}
    command = [*hidden_toolkit, require_tool(shell), "-euc", script, sys.executable, AUDIT]
    works(last_line(run(command, env=env)))


def test_shell_that_stops_with_the_reason(site, full_stub):
    """With `set -e` an assignment passes the status on, which `eval "$(…)"` alone would hide."""
    env = environment(site, libraries=[full_stub])
    env["PATH"] = f"{COMMAND.parent}:{env['PATH']}"
    script = 'change=$(pyresolve env); eval "$change"; echo "the workers start"'
    done = run([require_tool("sh"), "-ec", script], env=env)
    assert (1, "") == (done.returncode, done.stdout)
    assert "torch_memory_saver is not installed" in done.stderr


def test_shell_does_not_lose_what_was_there(launcher, works, tmp_path):
    """The user's own directory stays searched, behind torch's."""
    env = {**launcher, "LD_LIBRARY_PATH": f"{launcher['LD_LIBRARY_PATH']}:{tmp_path}"}
    script = f'eval "$("$0" env)"; echo "$LD_LIBRARY_PATH"; exec {sys.executable} -c "$1"'
    done = run([require_tool("sh"), "-c", script, COMMAND, AUDIT], env=env)
    assert done.stdout.splitlines()[0].endswith(f":{tmp_path}")
    works(last_line(done))


# --- subprocess


def test_subprocess(launcher, hidden_toolkit, works):
    """env={**os.environ, **choice.env()}, and nothing of it in the launcher itself."""
    code = """
        import json, os, subprocess, sys
        import pyresolve

        before = dict(os.environ)
        choice = pyresolve.pick()
        done = subprocess.run(
            [sys.executable, "-c", sys.argv[1]],
            env={**os.environ, **choice.env()}, stdout=subprocess.PIPE, check=True,
        )
        assert before == dict(os.environ)
        print(done.stdout.decode())
    """
    works(cold(code, AUDIT, env=launcher, prefix=hidden_toolkit))


def test_asyncio(launcher, works):
    """The same from an event loop."""
    code = """
        import asyncio, json, os, sys
        import pyresolve

        async def main():
            env = {**os.environ, **pyresolve.pick().env()}
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-c", sys.argv[1], env=env, stdout=asyncio.subprocess.PIPE)
            print((await child.communicate())[0].decode())

        asyncio.run(main())
    """
    works(cold(code, AUDIT, env=launcher))


def test_worker_of_a_worker(launcher, works):
    """What a hooked process starts is hooked too, through a shell as well."""
    code = """
        import os, subprocess, sys
        import pyresolve

        env = {**os.environ, **pyresolve.pick().env()}
        shell = ["sh", "-c", 'exec "$0" -c "$1"', sys.executable, sys.argv[1]]
        print(subprocess.run(shell, env=env, stdout=subprocess.PIPE, check=True).stdout.decode())
    """
    works(cold(code, AUDIT, env=launcher))


def test_resolving_in_a_hooked_process_changes_nothing(launcher):
    """A launcher that is itself started with the hook passes its environment on as it is."""
    code = "import json, os, pyresolve; print(json.dumps(pyresolve.pick().env()))"
    change = cold(code, env=launcher)
    assert change
    assert {} == cold(code, env={**launcher, **change})


# --- multiprocessing


SPAWN = """
    import contextlib, json, multiprocessing, os, sys
    import pyresolve

    @contextlib.contextmanager
    def environment(change):
        before = {name: os.environ.get(name) for name in change}
        os.environ.update(change)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def worker(queue):
        queue.put(pyresolve.audit().to_dict())

    def child(method):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=worker, args=(queue,))
        process.start()
        return process, queue

    def end(process, queue):
        found = queue.get(timeout=30)
        process.join(30)
        queue.close()
        queue.join_thread()
        return found
"""


def test_multiprocessing_spawn(launcher, works, tmp_path):
    """The variables are set around start(), and are gone after it; SGLang's launch code is so."""
    code = """
    if __name__ == "__main__":
        before = dict(os.environ)
        with environment(pyresolve.pick().env()):
            process, queue = child("spawn")
        assert before == dict(os.environ)
        print(json.dumps(end(process, queue)))
    """
    path = program(tmp_path, SPAWN + code)
    works(last_line(run([sys.executable, path], env=launcher)))


def test_multiprocessing_fork_does_not_apply_it(launcher, tmp_path):
    """A forked child is a copy: the loader does not run, and the audit says what is missing."""
    code = """
    if __name__ == "__main__":
        with environment(pyresolve.pick().env()):
            process, queue = child("fork")
        print(json.dumps(end(process, queue)))
    """
    found = last_line(run([sys.executable, program(tmp_path, SPAWN + code)], env=launcher))
    assert (["not_preloaded"], None) == ([f["status"] for f in found["findings"]], found["hook"])


def test_running_forkserver_does_not_apply_it(launcher, works, tmp_path):
    """Its children are copies of it; one that is started with the variables is right."""
    code = """
    if __name__ == "__main__":
        early = sys.argv[1] == "early"
        if early:
            end(*child("forkserver"))
        with environment(pyresolve.pick().env()):
            process, queue = child("forkserver")
            print(json.dumps(end(process, queue)))
    """
    path = program(tmp_path, SPAWN + code)
    early = last_line(run([sys.executable, path, "early"], env=launcher))
    assert ["not_preloaded"] == [finding["status"] for finding in early["findings"]]
    works(last_line(run([sys.executable, path, "late"], env=launcher)))


def test_fork_below_a_hooked_process_keeps_it(launcher, works, tmp_path):
    """The launcher itself is started with the hook: then all of its children have it."""
    code = """
    if __name__ == "__main__":
        print(json.dumps(end(*child(sys.argv[1]))))
    """
    path = program(tmp_path, SPAWN + code)
    for method in ("fork", "spawn"):
        command = [COMMAND, "exec", "--", sys.executable, path, method]
        works(last_line(run(command, env=launcher)))


def test_executor_with_spawn(launcher, works, tmp_path):
    """concurrent.futures starts its workers at the first task."""
    code = """
    if __name__ == "__main__":
        from concurrent.futures import ProcessPoolExecutor

        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as executor:
            with environment(pyresolve.pick().env()):
                future = executor.submit(pyresolve.audit)
                found = future.result(timeout=30)
        print(json.dumps(found.to_dict()))
    """
    path = program(tmp_path, SPAWN + code)
    works(last_line(run([sys.executable, path], env=launcher)))


# --- Ray


def test_ray_env_vars(launcher, works):
    """Ray starts a worker as `bash -c "exec python …"` with runtime_env's env_vars already set."""
    code = "import json, pyresolve; print(json.dumps(pyresolve.pick().env()))"
    env_vars = {"TMS_INIT_ENABLE": "1", **cold(code, env=launcher)}
    script = f"exec {sys.executable} -c '{AUDIT}'"
    works(last_line(run([require_tool("bash"), "-c", script], env={**launcher, **env_vars})))


def test_ray_py_executable(launcher, works):
    """`pyresolve exec -- python` as the worker's interpreter: resolved on the worker's own node."""
    script = f"exec {COMMAND} exec -- {sys.executable} -c '{AUDIT}'"
    works(last_line(run([require_tool("bash"), "-c", script], env=launcher)))


def test_resolved_on_another_node(launcher, works, node, full_stub, tmp_path):
    """The head has no CUDA build for the node: what counts is resolved there (R54)."""
    _, major = node
    head = Site(tmp_path / "head").tms().torch(*TORCHES[25 - major])
    head.cudart(25 - major)
    here = environment(head, libraries=[full_stub])
    code = "import json, pyresolve; print(json.dumps(pyresolve.pick().env()))"
    # The head's variables came along, as they do where a whole os.environ is forwarded.
    there = {**here, **cold(code, env=here), "PYTHONPATH": launcher["PYTHONPATH"]}
    command = [COMMAND, "exec", "--", sys.executable, "-c", AUDIT]
    works(last_line(run(command, env=there)))


# --- a launcher that fails early


def test_launcher_fails_early_with_the_reason(site, full_stub):
    """No worker is started that would hang: the error is one line."""
    code = """
        import pyresolve

        try:
            env = pyresolve.pick().env()
        except pyresolve.PyresolveError as error:
            raise SystemExit(f"no usable torch_memory_saver hook: {error}")
    """
    env = environment(site, libraries=[full_stub])
    done = run([sys.executable, "-c", textwrap.dedent(code)], env=env)
    assert (1, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith("no usable torch_memory_saver hook: torch_memory_saver is not")
    assert 1 == done.stderr.count("\n")


# --- the README


def blocks(language):
    """Return the README's code in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)


def test_code_of_the_readme_compiles():
    """Every Python block."""
    assert blocks("python")
    for number, block in enumerate(blocks("python")):
        compile(block, f"README.md, block {number}", "exec")


def test_launcher_of_the_readme(launcher, works):
    """The block under "In a launcher", as it stands, then a worker with its env_vars."""
    block = next(block for block in blocks("python") if "env_vars" in block)
    code = f"{block}\nimport json; print(json.dumps(env_vars))"
    done = run([sys.executable, "-c", code], env=launcher)
    worker = run([sys.executable, "-c", AUDIT], env={**launcher, **last_line(done)})
    works(last_line(worker))


def test_launcher_of_the_readme_fails_with_the_reason(site, full_stub):
    """As the text below it says."""
    block = next(block for block in blocks("python") if "env_vars" in block)
    done = run([sys.executable, "-c", block], env=environment(site, libraries=[full_stub]))
    assert (1, "") == (done.returncode, done.stdout)
    assert "torch_memory_saver is not installed" in done.stderr
    assert "Traceback" not in done.stderr


def test_health_probe_of_the_readme(node, launcher):
    """The block under "In a health probe": silent on a sound hook, and a reason for another."""
    block = next(block for block in blocks("python") if "mark_unfit" in block)
    site, major = node
    runtime = os.fspath(site.cudart_directory(major))
    env = {**launcher, "LD_LIBRARY_PATH": f"{runtime}:{launcher['LD_LIBRARY_PATH']}"}
    code = "import json, pyresolve\nfound = []\ndef mark_unfit(*words): found.append(words)\n"
    code += f"{block.replace('timeout=0.2', 'timeout=20')}\nprint(json.dumps(found))"
    for path, expected in (
        (os.fspath(site.hook(f"_cu{major}")), []),
        (f"/nowhere/{PRELOAD_STEM}.so", ["not_found"]),
    ):
        found = cold(code.replace("/path/of/hook.so", path), env=env)
        assert expected == [words[0] for words in found]


def test_commands_of_the_readme_exist(launcher):
    """Whatever `pyresolve …` the README mentions has a help text."""
    names = set(re.findall(r"(?:`|\$\(|^ {4})pyresolve ([a-z]+)", README, re.M))
    assert {"doctor", "check"} <= names
    for name in sorted(names):
        assert 0 == run([COMMAND, name, "--help"], env=launcher).returncode
