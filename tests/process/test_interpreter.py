"""`python=`: the workers' interpreter is asked where its packages lie, whatever it is."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import time
import venv
from pathlib import Path

import pytest
from support import elfpatch, process
from support.command import environment, pyresolve, run
from support.layout import PRELOAD_STEM, TORCHES, Site
from support.process import cold
from support.rogues import rogue
from support.tools import require_privileges, require_tool

from pyresolve import InterpreterError, NoVariantError, PyresolveError, Source, pick, runtimes
from pyresolve._process.helper import Deadline
from pyresolve._process.interpreter import site_of

LIB = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
STARTS = "PYRESOLVE_TEST_STARTS"  # names a file; the sitecustomize of `counted` adds a line to it


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Return a virtual environment without packages."""
    return Site.in_venv(tmp_path_factory.mktemp("plain") / "venv")


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    """Return virtual environments for CUDA 12 and 13, each with all it needs."""
    made = {}
    for major, torch in TORCHES.items():
        made[major] = Site.in_venv(tmp_path_factory.mktemp(f"cu{major}") / "venv")
        made[major].tms().torch(*torch).cudart(major)
    return made


@pytest.fixture
def customized(tmp_path):
    """Return the function that gives an environment with this sitecustomize."""

    def make(code, **extra):
        directory = tmp_path / "customized"
        directory.mkdir(exist_ok=True)
        (directory / "sitecustomize.py").write_text(textwrap.dedent(code))
        return {**environment(directory), **extra}

    return make


@pytest.fixture
def counted(customized, tmp_path):
    """Return an environment in which starts of Python are counted, and the counter."""
    log = tmp_path / "starts"
    code = f"import os; open(os.environ[{STARTS!r}], 'a').write('started\\n')"

    def starts():
        return log.read_text().count("started") if log.exists() else 0

    return customized(code, **{STARTS: os.fspath(log)}), starts


@pytest.fixture
def script(tmp_path):
    """Return the function that writes an executable script."""

    def make(text, name="python"):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    return make


def directories(python, env=None, *, timeout=20.0):
    """Return the directories that packages are searched in, in order."""
    environ = environment() if env is None else env
    site = site_of(python, environ=environ, deadline=Deadline(timeout))
    return [entry.path for entry in site.entries]


def own_answer(python, env=None):
    """Return the directories that an interpreter itself says it imports from."""
    show = "import sys; print('\\n'.join(sys.path[1:]))"
    done = run([python, "-c", show], env=environment() if env is None else env)
    return [Path(line) for line in done.stdout.splitlines() if os.path.isdir(line)]


def refused(python, env=None, *, timeout=20.0):
    """Return the sentence with which an interpreter is refused."""
    with pytest.raises(InterpreterError) as caught:
        directories(python, env, timeout=timeout)
    assert os.fspath(python) in (caught.value.python, os.path.abspath(caught.value.python))
    assert str(caught.value)[0] not in ".\n"
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- what it imports from


def test_venv(plain):
    """Its own site-packages, and neither those of the base nor those of pyresolve."""
    found = directories(plain.python)
    assert own_answer(plain.python) == found
    assert plain.root in found
    assert not [path for path in found if path.name == "site-packages" and path != plain.root]


def test_prefix_is_that_of_the_venv(plain):
    """A conda prefix is recognized by it."""
    site = site_of(plain.python, environ=environment(), deadline=Deadline(20))
    assert plain.python.parent.parent == site.prefix


def test_system_site_packages_come_after_its_own(tmp_path):
    """A venv with --system-site-packages sees the base as well."""
    venv.create(tmp_path, symlinks=True, system_site_packages=True)
    found = directories(tmp_path / "bin" / "python")
    base = own_answer(Path(sys._base_executable))
    shared = [path for path in base if path.name in ("site-packages", "dist-packages")]
    assert shared
    assert [tmp_path / LIB, *shared] == [
        path for path in found if path in {tmp_path / LIB, *shared}
    ]


def test_user_site_comes_between(tmp_path):
    """After the venv's own packages and before the system's, as Python has it."""
    venv.create(tmp_path / "venv", symlinks=True, system_site_packages=True)
    python = tmp_path / "venv" / "bin" / "python"
    user = tmp_path / "home" / ".local" / LIB
    user.mkdir(parents=True)
    env = {**environment(), "HOME": os.fspath(tmp_path / "home")}
    found = directories(python, env)
    assert own_answer(python, env) == found
    assert found.index(tmp_path / "venv" / LIB) < found.index(user)
    assert user not in directories(python, {**env, "PYTHONNOUSERSITE": "1"})
    elsewhere = {**environment(), "PYTHONUSERBASE": os.fspath(tmp_path / "home" / ".local")}
    assert user in directories(python, elsewhere)


def test_pth_files_are_followed(tmp_path):
    """Lines with directories and lines with code."""
    site = Site.in_venv(tmp_path / "venv")
    added = [tmp_path / name for name in ("first", "second", "by code")]
    for path in added:
        path.mkdir()
    (site / "a.pth").write_text(f"{added[0]}\n/nowhere\n{added[1]}\n")
    (site / "b.pth").write_text(f"import sys; sys.path.append({str(added[2])!r})\n")
    assert [site.root, *added] == directories(site.python)[-4:]


def test_pythonpath_comes_first(plain, tmp_path):
    """In its order, before everything; what is not there is left out."""
    parts = [tmp_path / name for name in ("b", "a", "c d")]
    for path in parts:
        path.mkdir()
    env = environment(parts[0], "/nowhere", parts[1], parts[2], parts[0])
    assert parts == directories(plain.python, env)[:3]


def test_safe_path_loses_nothing(plain, tmp_path):
    """With PYTHONSAFEPATH there is no entry for the script, and the first is a real one."""
    env = {**environment(tmp_path), "PYTHONSAFEPATH": "1"}
    assert tmp_path == directories(plain.python, env)[0]


def test_working_directory_is_no_site(plain, tmp_path, monkeypatch):
    """Workers start elsewhere: what lies where the launcher stands is not theirs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("raise SystemExit('imported from here')\n")
    assert tmp_path not in directories(plain.python)


def test_dist_packages(tmp_path, full_stub):
    """Debian's name for site-packages is nothing special."""
    dist = Site(tmp_path / "usr" / "lib" / "python3" / "dist-packages").tms().torch()
    dist.cudart(13)
    site = Site.in_venv(tmp_path / "venv")
    (site / "debian.pth").write_text(f"{dist.root}\n")
    choice = pick(python=site.python, environ=environment(libraries=[full_stub]))
    assert dist.hook("_cu13") == choice.path


def test_packages_may_be_split_over_the_path(tmp_path, full_stub, plain):
    """The hook in one directory, torch in another, its runtime in a third."""
    parts = [Site(tmp_path / name) for name in ("tms", "torch", "cudart")]
    parts[0].tms()
    parts[1].torch("12.8", "2.9.1+cu128", native=False)
    library = parts[2].cudart(12) / "libcudart.so.12"
    env = environment(*parts, libraries=[full_stub])
    choice = pick(python=plain.python, environ=env)
    assert (parts[0].hook("_cu12"), library) == (choice.path, choice.runtime.path)


def test_the_first_on_its_path_counts(workers, full_stub, plain):
    """Two torches and two hooks: those that the interpreter would import."""
    for first, second in ((12, 13), (13, 12)):
        env = environment(workers[first], workers[second], libraries=[full_stub])
        choice = pick(python=plain.python, environ=env)
        assert (workers[first].hook(f"_cu{first}"), first) == (choice.path, choice.cuda_major)


def test_sites_that_need_not_be_text(tmp_path, plain):
    """A directory that is not UTF-8 survives the answer."""
    path = tmp_path / "caf\udce9 \u65e5"
    path.mkdir()
    for extra in ({}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        found = directories(plain.python, {**environment(path), **extra})[0]
        assert os.fsencode(path) == os.fsencode(found)


def test_other_versions_of_python_are_asked_alike():
    """Whatever is installed beside this one."""
    for python in sorted(Path.home().glob(".pyenv/versions/*/bin/python")):
        found = directories(python)
        assert own_answer(python) == found


# --- how it is named


def test_spellings_of_one_interpreter(plain, monkeypatch):
    """A path, a text, a name on PATH (of the workers), a relative path."""
    expected = directories(plain.python)
    assert expected == directories(os.fspath(plain.python))
    env = environment()
    env["PATH"] = f"{plain.python.parent}:{env['PATH']}"
    assert expected == directories("python", env)
    monkeypatch.chdir(plain.python.parent)
    assert expected == directories("./python")
    assert expected == directories("../bin/python")


def test_venv_is_known_by_the_link(plain, tmp_path):
    """bin/python is a link to the base interpreter, and still means the venv."""
    assert plain.python.is_symlink()
    (tmp_path / "env").symlink_to(plain.python.parent.parent)
    found = directories(tmp_path / "env" / "bin" / "python")
    assert tmp_path / "env" / LIB in found


@pytest.mark.parametrize("depth", [1, 2])
def test_wrapper_scripts_work(plain, script, depth):
    """A shim such as pyenv's, or one that sets things up first."""
    target = plain.python
    for level in range(depth):
        text = f'#!/bin/sh\nexport SET_UP=1\nexec "{target}" "$@"\n'
        target = script(text, f"python{level}")
    assert directories(plain.python) == directories(target)


def test_wrapper_may_start_it_as_a_child(plain, script):
    """Not every wrapper ends in exec."""
    wrapper = script(f'#!/bin/sh\necho starting\n"{plain.python}" "$@"\nexit 3\n')
    assert directories(plain.python) == directories(wrapper)


# --- what it says besides


NOISE = {
    "before": "print('noise')",
    "no newline": "import sys; sys.stdout.write('noise')",
    "stderr": "import sys; sys.stderr.write('noise')",
    "looks like an answer": 'print(\'["/usr", ["/nowhere"]]\')',
    "bytes": "import sys; sys.stdout.buffer.write(bytes(range(256)))",
    "much before": "print('noise ' * 20000)",
    "much on stderr": "import sys; sys.stderr.write('noise ' * 20000)",
    "after": "import atexit; atexit.register(print, 'noise')",
    "much after": "import atexit; atexit.register(print, 'noise ' * 20000)",
    "raises": "raise RuntimeError('noise')",
    "warns": "import warnings; warnings.warn('noise')",
    "threads": "import threading; threading.Thread(target=print, args=('noise',)).start()",
    "status": "import atexit, os; atexit.register(lambda: (os.write(1, b'bye'), os._exit(3)))",
}


@pytest.mark.parametrize("code", NOISE.values(), ids=NOISE)
def test_site_code_may_print(plain, customized, code):
    """The answer is the answer, whatever stands around it."""
    env = customized(code)
    expected = directories(plain.python)
    assert [Path(env["PYTHONPATH"]), *expected] == directories(plain.python, env)


@pytest.mark.parametrize(
    "extra",
    [
        {"PYTHONVERBOSE": "1"},
        {"PYTHONINSPECT": "1"},
        {"PYTHONUNBUFFERED": "1"},
        {"PYTHONDEVMODE": "1"},
        {"PYTHONPROFILEIMPORTTIME": "1"},
        {"PYTHONWARNINGS": "error"},
        {"PYTHONOPTIMIZE": "2"},
        {"PYTHONDONTWRITEBYTECODE": "1"},
        {"PYTHONIOENCODING": "ascii:strict"},
    ],
    ids=lambda extra: next(iter(extra)),
)
def test_variables_of_python_do_not_matter(plain, extra):
    """Those that make it talk, wait or complain."""
    assert directories(plain.python) == directories(plain.python, {**environment(), **extra})


def test_nothing_of_it_reaches_our_output(plain, customized, capfd):
    """What it prints is not passed on."""
    directories(plain.python, customized("import sys; print('noise'); sys.stderr.write('noise')"))
    assert ("", "") == capfd.readouterr()


def test_it_gets_no_input(plain, customized):
    """Site code that asks a question finds nobody there."""
    env = customized(
        """
        try:
            input("continue? ")
        except EOFError:
            pass
        """
    )
    assert plain.root in directories(plain.python, env, timeout=10)


@pytest.mark.parametrize("preload", ["missing", "missing_needed", "segfault", "exit_three", "loop"])
def test_preload_of_the_workers_does_not_matter(plain, preload):
    """What would keep every program from starting does not keep this one from answering."""
    path = "/nowhere/lib.so" if preload == "missing" else os.fspath(rogue(preload))
    env = {**environment(), "LD_PRELOAD": path}
    assert directories(plain.python) == directories(plain.python, env)


# --- when it does not answer


def test_hanging_start_is_ended(plain, customized, tmp_path):
    """It is killed at the deadline, with what it has started, and the sentence says so."""
    pids = tmp_path / "pids"
    env = customized(
        f"""
        import os, signal, subprocess, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(["sleep", "600"])
        with open({str(pids)!r}, "w") as file:
            file.write(f"{{os.getpid()}} {{child.pid}}")
        time.sleep(600)
        """
    )
    start = time.monotonic()
    text = refused(plain.python, env, timeout=1.0)
    assert time.monotonic() - start < 5
    assert "did not answer within 1 s and was killed" in text
    left = list(map(int, pids.read_text().split()))
    assert 2 == len(left)
    assert process.poll(lambda: not any(map(process.alive, left)))


def test_timeout_of_pick_holds_for_it(plain, customized):
    """And the variable that overrides it."""
    env = customized("import time; time.sleep(600)")
    for options in (
        {"timeout": 0.5, "environ": env},
        {"environ": {**env, "PYRESOLVE_TIMEOUT": ".5"}},
    ):
        start = time.monotonic()
        with pytest.raises(InterpreterError, match=r"did not answer within 0\.5 s"):
            pick(python=plain.python, **options)
        assert time.monotonic() - start < 5


def test_failure_is_not_kept(plain, customized, tmp_path):
    """An interpreter that hung once is asked again."""
    gate = tmp_path / "gate"
    env = customized(f"import os, time; os.path.exists({str(gate)!r}) or time.sleep(600)")
    refused(plain.python, env, timeout=0.5)
    gate.touch()
    assert plain.root in directories(plain.python, env)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os; os._exit(3)", ""),
        ("import os; os.abort()", ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", ""),
        ("import os; os.write(2, b'licence expired'); os._exit(1)", "licence expired"),
        ("raise SystemExit('not today')", "not today"),
        ("import sys; sys.stdout.close()", ""),
    ],
)
def test_crashing_start(plain, customized, code, words):
    """The sentence has what it said last."""
    text = refused(plain.python, customized(code))
    assert "does not answer as Python does" in text
    assert words in text


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("/bin/false", "does not answer as Python does"),
        ("/bin/true", "does not answer as Python does"),
        ("/bin/cat", "does not answer as Python does"),
        ("/bin/echo", "does not answer as Python does"),
        ("/bin/sh", "does not answer as Python does"),
        ("/etc/passwd", "may not be executed"),
        ("/", "cannot be started"),
        ("/nowhere/python", "No such file or directory"),
        ("/etc/passwd/python", "cannot be started"),
        ("/dev/null", "cannot be started"),
        ("/" + "x" * 5000, "cannot be started"),
    ],
)
def test_what_is_no_python(name, reason):
    """Each is refused with the path and what to do."""
    text = refused(name)
    assert reason in text
    assert name[:200] in text
    assert "interpreter" in text or "executed" in text


@pytest.mark.parametrize("name", ["", "a\0b", "/bin/py\0thon"])
def test_what_is_no_path(name):
    """Refused before anything is started."""
    assert f"{name!r} names no interpreter" == refused(name)


def test_name_that_is_not_on_path(plain):
    """The PATH of the workers counts, not the launcher's."""
    assert refused("no-such-python").startswith("no-such-python is not on PATH")
    assert refused("python", {"PATH": "/nowhere"}).startswith("python is not on PATH")
    assert refused("python3", {"PATH": ""}).startswith("python3 is not on PATH")


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        ("print('hello')\n", 0o755, "cannot be started"),
        ("", 0o755, "cannot be started"),
        ("#!/nowhere/python\n", 0o755, "cannot be started"),
        ("#!/bin/sh\nexec sleep 600\n", 0o755, "did not answer"),
        ("#!/bin/sh\nyes\n", 0o755, "did not answer"),
        ("#!/bin/sh\nexit 0\n", 0o644, "may not be executed"),
    ],
)
def test_files_that_are_no_interpreter(script, content, mode, reason):
    """A script without a first line, an empty file, one that never ends or never stops talking."""
    path = script(content)
    path.chmod(mode)
    assert reason in refused(path, timeout=1.0)


def test_interpreter_for_another_machine(plain, tmp_path):
    """It says for which, instead of the kernel's "Exec format error"."""
    base = plain.python.resolve()
    python = elfpatch.patch(base, tmp_path / "python", {elfpatch.MACHINE: elfpatch.FOREIGN_MACHINE})
    python.chmod(0o755)
    text = refused(python)
    assert "aarch64" in text or "x86" in text
    assert "library" not in text


def test_interpreter_that_was_cut_off(plain, tmp_path):
    """A download that broke off."""
    python = elfpatch.cut(plain.python.resolve(), tmp_path / "python", 4000)
    python.chmod(0o755)
    assert refused(python)


def test_errors_have_one_base(plain):
    """A launcher catches PyresolveError; the interpreter is in the error."""
    with pytest.raises(PyresolveError) as caught:
        pick(python="/nowhere/python")
    assert "/nowhere/python" == caught.value.python
    with pytest.raises(InterpreterError):
        runtimes(python="/nowhere/python")


# --- asked once


def test_it_is_asked_once(counted, workers):
    """pick() for each of a node's workers starts it one time, whatever else they differ in."""
    env, starts = counted
    python = workers[13].python
    for gpu in range(4):
        pick(python=python, environ={**env, "CUDA_VISIBLE_DEVICES": f"{gpu}"})
    runtimes(python=python, environ=env)
    assert 1 == starts()


def test_it_is_asked_again_where_the_answer_may_differ(counted, tmp_path):
    """After a change of pyvenv.cfg, of PYTHONPATH, of HOME, of the file itself."""
    env, starts = counted
    site = Site.in_venv(tmp_path / "venv")
    expected = 0

    def asks(environ):
        nonlocal expected
        for _ in range(2):
            directories(site.python, environ)
        expected += 1
        assert expected == starts()

    asks(env)
    config = tmp_path / "venv" / "pyvenv.cfg"
    config.write_text(config.read_text().replace("packages = false", "packages = true"))
    asks(env)
    asks({**env, "PYTHONPATH": f"{env['PYTHONPATH']}:{tmp_path}"})
    asks({**env, "HOME": os.fspath(tmp_path)})
    target = site.python.resolve()
    for path in (tmp_path / "venv" / "bin").iterdir():
        if path.is_symlink() and path.resolve() == target:
            path.unlink()
    shutil.copy(target, site.python)
    library_path = {**env, "LD_LIBRARY_PATH": os.fspath(target.parent.parent / "lib")}
    asks(library_path)


def test_what_is_installed_later_is_seen(counted, plain, tmp_path, full_stub):
    """What lies in its directories is looked up each time; a change there has it asked again."""
    env, starts = counted
    site = Site.in_venv(tmp_path / "venv")
    env = {**env, "LD_LIBRARY_PATH": os.fspath(full_stub)}
    with pytest.raises(NoVariantError):
        pick(python=site.python, environ=env)
    site.tms().torch().cudart(13)
    choice = pick(python=site.python, environ=env)
    assert (site.hook("_cu13"), 2) == (choice.path, starts())
    assert (site.hook("_cu13"), 2) == (pick(python=site.python, environ=env).path, starts())


def test_pth_file_that_is_installed_later_is_seen(tmp_path):
    """An editable install adds a directory: a launcher that lives for days must not miss it."""
    site = Site.in_venv(tmp_path / "venv")
    added = tmp_path / "added"
    added.mkdir()
    assert added not in directories(site.python)
    (site / "added.pth").write_text(f"{added}\n")
    assert added in directories(site.python)


def test_two_interpreters_are_told_apart(workers):
    """The same base executable behind both."""
    assert workers[12].python.resolve() == workers[13].python.resolve()
    assert directories(workers[12].python) != directories(workers[13].python)


# --- pick() for others


def test_each_venv_gets_its_own_build(workers, full_stub):
    """Two environments on one node, one for CUDA 12 and one for 13 (R54, R56)."""
    env = environment(libraries=[full_stub])
    for major, site in workers.items():
        choice = pick(python=site.python, environ=env)
        library = site.cudart_directory(major) / f"libcudart.so.{major}"
        assert (site.hook(f"_cu{major}"), major, library) == (
            choice.path,
            choice.cuda_major,
            choice.runtime.path,
        )
        changed = choice.env(env)
        assert not [value for value in changed.values() if f"cu{25 - major}" in value]


def test_variables_of_the_head_do_not_lead_astray(workers, full_stub):
    """LD_PRELOAD and LD_LIBRARY_PATH as the head has them for its own CUDA 12."""
    head = environment(libraries=[full_stub])
    head |= pick(python=workers[12].python, environ=head).env(head)
    choice = pick(python=workers[13].python, environ=head)
    assert workers[13].hook("_cu13") == choice.path
    env = {**head, **choice.env(head)}
    show = "print(open('/proc/self/maps').read())"
    done = run([workers[13].python, "-c", show], env=env)
    assert 0 == done.returncode, done.stderr
    mapped = {Path(line.split(maxsplit=5)[5]) for line in done.stdout.splitlines() if "/" in line}
    assert {workers[13].hook("_cu13")} == {path for path in mapped if PRELOAD_STEM in path.name}
    library = workers[13].cudart_directory(13) / "libcudart.so.13"
    assert {library} == {path for path in mapped if path.name.startswith("libcudart")}


def test_runtimes_are_those_of_the_interpreter(workers):
    """runtimes(python=) lists what lies in its packages."""
    for major, site in workers.items():
        found = runtimes(python=site.python, environ=environment())
        library = site.cudart_directory(major) / f"libcudart.so.{major}"
        assert library == found[0].path
        assert workers[25 - major].root not in {p for r in found for p in r.path.parents}


RESOLVER = """
    import json, os, sys, types
    import pyresolve

    class Raises(types.ModuleType):
        def get_binary_path_from_package(self, stem):
            raise RuntimeError("asked in the wrong interpreter")

    # A torch for CUDA is imported here, and the package's resolver would cost nothing.
    torch = sys.modules["torch"] = types.ModuleType("torch")
    torch.version = sys.modules["torch.version"] = types.ModuleType("torch.version")
    torch.version.cuda, torch.version.hip, torch.__version__ = "12.8", None, "2.9.1+cu128"
    package = sys.modules["torch_memory_saver"] = types.ModuleType("torch_memory_saver")
    package.__path__ = []
    package.utils = sys.modules["torch_memory_saver.utils"] = Raises("torch_memory_saver.utils")

    def outcome(**options):
        try:
            return str(pyresolve.pick(environ=dict(os.environ), **options))
        except pyresolve.PyresolveError as error:
            return type(error).__name__

    print(json.dumps([outcome(), outcome(python=sys.argv[1])]))
"""


def test_resolver_is_not_asked_for_another_interpreter(workers, full_stub):
    """What is imported here says nothing about the workers; `auto` knows that."""
    env = environment(workers[13], libraries=[full_stub])
    own, other = cold(RESOLVER, workers[13].python, env=env)
    assert ("ResolverError", str(workers[13].hook("_cu13"))) == (own, other)


def test_metadata_of_the_interpreter_decides(workers, full_stub, monkeypatch):
    """A torch on the launcher's own path does not."""
    monkeypatch.syspath_prepend(workers[12].root)
    env = environment(libraries=[full_stub])
    assert 12 == pick(environ=env).cuda_major
    choice = pick(python=workers[13].python, environ=env)
    assert (13, Source.TORCH_RUNTIME) == (choice.cuda_major, choice.source)


def test_version_of_the_package_is_the_interpreters(workers, tmp_path, full_stub):
    """What torch_memory_saver can read depends on the one that the workers import."""
    site = Site.in_venv(tmp_path / "venv").tms("0.0.9.post1").torch("12.8", "2.9.1+cu128")
    site.cudart(12)
    env = {**environment(libraries=[full_stub]), "LD_PRELOAD": os.fspath(rogue("good"))}
    old = pick(python=site.python, environ=env)
    new = pick(python=workers[12].python, environ=env)
    assert [True, False] == [
        any("0.0.9.post1 takes the whole of LD_PRELOAD" in text for text in choice.warnings)
        for choice in (old, new)
    ]


# --- what it leaves


def test_asking_leaks_nothing(plain, customized):
    """Each time with another environment, so that it is really asked."""

    def many(times, offset):
        for number in range(times):
            env = {**environment(), "PYTHON_NUMBER": f"{offset + number}"}
            directories(plain.python, env)
            refused("/bin/false", env)

    many(3, 0)
    fds, size = process.open_fds(), process.rss_kib()
    many(20, 3)
    assert fds == process.open_fds()
    assert process.rss_kib() - size < 2048


def test_asking_writes_nothing(tmp_path):
    """No bytecode, no cache, not into the environment of the workers."""
    site = Site.in_venv(tmp_path / "venv")
    (site / "sitecustomize.py").write_text("")

    def files():
        return {path for path in tmp_path.rglob("*") if path.name != "__pycache__"}

    before = {path for path in files() if path.suffix != ".pyc"}
    directories(site.python)
    assert before == {path for path in files() if path.suffix != ".pyc"}


def test_command_line_asks_it_too(workers, full_stub):
    """--python of pick, and of exec, whose command is another matter."""
    env = environment(libraries=[full_stub])
    for major, site in workers.items():
        done = pyresolve("pick", "--python", site.python, env=env)
        assert (0, f"{site.hook(f'_cu{major}')}\n") == (done.returncode, done.stdout)
        show = 'printf %s "$LD_PRELOAD"'
        done = pyresolve("exec", "--python", site.python, "--", "sh", "-c", show, env=env)
        assert (0, os.fspath(site.hook(f"_cu{major}"))) == (done.returncode, done.stdout)


def test_many_threads_ask_at_once(counted, workers):
    """The answers agree; none is mixed up with another's."""
    env, _ = counted
    code = """
        import json, os, sys, threading
        import pyresolve
        found, pythons = [], sys.argv[1:]

        def ask(python):
            found.append((python, str(pyresolve.pick(python=python, verify="never"))))

        threads = [threading.Thread(target=ask, args=(python,)) for python in pythons * 4]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(json.dumps(sorted(set(found))))
    """
    pythons = [os.fspath(workers[major].python) for major in (12, 13)]
    found = cold(code, *pythons, env=env)
    expected = [[os.fspath(workers[m].python), str(workers[m].hook(f"_cu{m}"))] for m in (12, 13)]
    assert sorted(expected) == found


def test_a_trap_on_path_is_not_started(plain, script, tmp_path):
    """Only the interpreter that was named runs: no python, sh or env from PATH."""
    trap = tmp_path / "trapped"
    for name in ("python", "python3", "env"):
        script(f"#!/bin/sh\ntouch {trap}\n", name)
    env = {**environment(), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    assert plain.root in directories(plain.python, env)
    assert not trap.exists()


# --- interpreters that drop LD_PRELOAD


@pytest.fixture
def privileged(tmp_path):
    """Return an interpreter that takes on another group when it is started."""
    require_privileges(tmp_path)
    python = Site.in_venv(tmp_path / "privileged").python
    python.unlink()
    shutil.copy(Path(sys.executable).resolve(), python)
    os.chown(python, 0, 65534)
    python.chmod(0o2755)
    return python


def test_interpreter_with_privileges(privileged, tmp_path):
    """It answers, and its processes would start without any hook."""
    assert f"{privileged} is set-group-ID, so that the loader ignores" in refused(privileged)
    done = pyresolve("pick", "--python", privileged, env=environment())
    assert (1, "") == (done.returncode, done.stdout)
    assert f"{privileged} is set-group-ID" in done.stderr
    privileged.chmod(0o755)
    assert directories(privileged)
    privileged.chmod(0o2755)
    assert "set-group-ID" in refused(privileged)  # an answer from before does not count


def test_interpreter_with_privileges_in_a_wrapper(privileged, script):
    """What counts is the program that runs in the end."""
    wrapper = script(f'#!/bin/sh\nexec {privileged} "$@"\n')
    assert f"{privileged} is set-group-ID" in refused(wrapper)


def test_interpreter_in_secure_mode(privileged, script):
    """No file tells it, as under SELinux: the kernel told the interpreter."""
    privileged.chmod(0o755)
    setpriv = require_tool("setpriv")
    wrapper = script(f'#!/bin/sh\nexec {setpriv} --egid 65534 --keep-groups {privileged} "$@"\n')
    assert f"{wrapper} is started in secure-execution mode" in refused(wrapper)


def test_own_interpreter_with_privileges(privileged):
    """Without python= the workers are started from the interpreter that runs."""
    code = """
        import json, sys
        sys.path += json.loads(sys.argv[1])
        import pyresolve
        try:
            pyresolve.pick()
        except pyresolve.InterpreterError as error:
            print(json.dumps(str(error)))
    """
    done = run([privileged, "-c", textwrap.dedent(code), json.dumps(sys.path)], env=environment())
    assert (0, "") == (done.returncode, done.stderr)
    assert f"{privileged} is set-group-ID" in json.loads(done.stdout)


@pytest.mark.parametrize("what", ["pick()", "runtimes()", "check('libm.so.6')"])
def test_in_a_finalizer_at_the_end(what):
    """At its end the interpreter has no sys.path: an answer or a ProbeError, and nothing else."""
    code = """
        import sys
        import pyresolve

        class Last:
            def __del__(self, call=eval("lambda: pyresolve." + sys.argv[1])):
                try:
                    call()
                except pyresolve.PyresolveError as error:
                    sys.stderr.write(type(error).__name__)

        for name in "pick", "runtimes", "check", "PyresolveError":
            getattr(pyresolve, name)
        last = Last()
        print("0")
    """
    done = run([sys.executable, "-c", textwrap.dedent(code), what], env=environment(), cwd="/")
    expected = "ProbeError" if what in ("pick()", "runtimes()") else ""
    assert (0, "0\n", expected) == (done.returncode, done.stdout, done.stderr)
