"""Kind 4 - probes, forks, subprocesses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile

import pytest
from support import MODES
from support.command import environment, pyresolve, run
from support.compile import SOURCES, built, built_text
from support.driver import CUINIT_MARKER
from support.hidden import mounted
from support.layout import Site, fake_cudart
from support.process import cold
from support.rogues import rogue
from support.tools import require_tool

from pyresolve import InterpreterError, NotLoadableError, Verdict, check, pick


def started(preload, *, timeout=20.0):
    """Return the exit status of a program that is started with a preload, the naive way."""
    return run([require_tool("true")], env={"LD_PRELOAD": str(preload)}, timeout=timeout).returncode


# --- R45, R46: who is started, and what it inherits


UNGUARDED = """
import os, sys
with open(os.environ["RUNS"], "a") as runs:
    runs.write("run\\n")
library, python, how = sys.argv[1:]
if how == "multiprocessing":
    import ctypes, multiprocessing
    child = multiprocessing.get_context("spawn").Process(target=ctypes.CDLL, args=[library])
    child.start()
    child.join()
    print("loads" if child.exitcode == 0 else "fails")
else:
    import pyresolve
    for mode in "dlopen", "preload":
        print(pyresolve.check(library, mode=mode, timeout=60).status.name)
    pyresolve.runtimes(python=python)
"""


def runs_of(command, tmp_path, *, text=None):
    """Run a script that counts how often it is executed; return what it printed, and the count."""
    counter = tmp_path / "runs"
    counter.write_text("")
    done = subprocess.run(
        command,
        input=text,
        env={**environment(), "RUNS": str(counter)},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout.split(), counter.read_text().count("run")


@pytest.mark.report("NVIDIA/cuda-python#1767", "NVIDIA/cuda-python#1768")
def test_r45_script_without_a_guard_is_not_run_again(tmp_path):
    """A probe by multiprocessing executes the user's script once more, and calls a library bad."""
    script = tmp_path / "launch.py"
    script.write_text(UNGUARDED)
    command = [sys.executable, script, rogue("good"), sys.executable]
    assert (["fails"], 2) == runs_of([*command, "multiprocessing"], tmp_path)
    assert (["LOADABLE", "LOADABLE"], 1) == runs_of([*command, "pyresolve"], tmp_path)


@pytest.mark.parametrize("how", ["-c", "stdin", "zipapp"])
def test_like_r45_program_without_a_script(tmp_path, how):
    """The program has no file that a child could run: -c, a pipe, a zip application."""
    arguments = [rogue("good"), sys.executable, "pyresolve"]
    text = None
    if how == "-c":
        command = [sys.executable, "-c", UNGUARDED]
    elif how == "zipapp":
        with zipfile.ZipFile(tmp_path / "launch.pyz", "w") as archive:
            archive.writestr("__main__.py", UNGUARDED)
        command = [sys.executable, tmp_path / "launch.pyz"]
    else:
        command = [sys.executable, "-"]
        text = UNGUARDED
    assert (["LOADABLE", "LOADABLE"], 1) == runs_of([*command, *arguments], tmp_path, text=text)


def test_like_r45_check_in_a_daemonic_child():
    """A pool's workers may have no children of their own, says multiprocessing."""
    code = """
        import json, multiprocessing, sys
        import pyresolve

        def probe(library):
            return pyresolve.check(library, mode="preload", timeout=60).status.name

        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(json.dumps(pool.map(probe, sys.argv[1:])))
    """
    answers = cold(code, rogue("good"), rogue("segfault"), env=environment())
    assert ["LOADABLE", "CRASHED"] == answers


@pytest.mark.report("NVIDIA/cuda-python#1595", "NVIDIA/cuda-python#1779", "NVIDIA/cuda-python#1980")
def test_r46_what_the_caller_has_mapped_does_not_count(site, full_stub, hidden_toolkit, says):
    """A forked probe finds the libcudart that its parent has mapped; the worker dies with 127."""
    directory = site.tms().cudart(12)
    code = """
        import ctypes, json, os, subprocess, sys
        import pyresolve
        hook, cudart, program = sys.argv[1:]
        ctypes.CDLL(cudart)
        pid = os.fork()
        if not pid:
            try:
                ctypes.CDLL(hook)
            except OSError:
                os._exit(1)
            os._exit(0)
        forked = os.waitpid(pid, 0)[1]
        worker = subprocess.run([program], env={**os.environ, "LD_PRELOAD": hook}, check=False,
                                stderr=subprocess.DEVNULL)
        reports = [pyresolve.check(hook, mode=mode) for mode in ("dlopen", "preload")]
        answers = [[report.status.name, report.message] for report in reports]
        print(json.dumps([forked, worker.returncode, *answers]))
    """
    forked, worker, *reports = cold(
        code,
        site.hook("_cu12"),
        directory / "libcudart.so.12",
        require_tool("true"),
        env=environment(site, libraries=[full_stub]),
        prefix=hidden_toolkit,
    )
    assert (0, 127) == (forked, worker)
    for status, message in reports:
        assert "MISSING_DEPENDENCY" == status
        assert f"{site.hook('_cu12')} needs libcudart.so.12" in says(message)
        assert f"put {directory} into LD_LIBRARY_PATH" in message


@pytest.mark.report("NVIDIA/cuda-python#1595", "NVIDIA/cuda-python#1779", "NVIDIA/cuda-python#1980")
@pytest.mark.parametrize("mode", MODES)
def test_r46_answer_is_that_of_now(tmp_path, mode, says):
    """A cached "not found" outlives the installation that mended it, and a "found" the removal."""
    hook = shutil.copy(built(SOURCES / "hook.c", "hook.so", fake_cudart(14)), tmp_path)
    runtime = tmp_path / "lib" / "libcudart.so.14"
    runtime.parent.mkdir()
    env = environment(libraries=[runtime.parent])
    before = check(hook, mode=mode, environ=env)
    assert "MISSING_DEPENDENCY" == before.status.name
    assert f"{hook} needs libcudart.so.14" in says(before.message)
    shutil.copy(fake_cudart(14), runtime)
    assert () == check(hook, mode=mode, environ=env).missing
    elsewhere = check(hook, mode=mode, environ=environment())
    assert ["libcudart.so.14"] == [item.name for item in elsewhere.missing]
    runtime.unlink()
    assert ["libcudart.so.14"] == [m.name for m in check(hook, mode=mode, environ=env).missing]


SHADOWS = ("binascii", "os", "re", "json", "ctypes", "site", "sitecustomize", "pyresolve")


def test_like_r46_modules_in_the_working_directory(tmp_path, full_stub):
    """The directory that the launcher is started in holds modules of well-known names."""
    site = Site.in_venv(tmp_path / "venv").tms().torch("13.0")
    site.cudart(13)
    here = tmp_path / "project"
    here.mkdir()
    for name in SHADOWS:
        (here / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    done = pyresolve(
        "pick", "--python", site.python, env=environment(libraries=[full_stub]), cwd=here
    )
    assert (0, f"{site.hook('_cu13')}\n") == (done.returncode, done.stdout), done.stderr


def test_like_r46_caller_with_the_other_major(site, full_stub):
    """The launcher has the CUDA 12 hook preloaded and its runtime open; the workers use 13."""
    site.tms().torch("13.0")
    twelve, thirteen = site.cudart(12), site.cudart(13)
    env = environment(site, libraries=[full_stub, twelve])
    code = """
        import ctypes, json, sys
        import pyresolve
        ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
        choice = pyresolve.pick()
        print(json.dumps([str(choice), choice.verdict.name, choice.env()]))
    """
    chosen = cold(
        code,
        twelve / "libcudart.so.12",
        env={**env, "LD_PRELOAD": str(site.hook("_cu12"))},
    )
    change = {
        "LD_PRELOAD": str(site.hook("_cu13")),
        "LD_LIBRARY_PATH": f"{thirteen}:{full_stub}:{twelve}",
    }
    assert [str(site.hook("_cu13")), "OK", change] == chosen


# --- R48, R49: the caller


CROWD = """
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void *allocate(void *seed) {
    for (size_t size = (size_t)seed;; size = size * 31 % 65521 + 1) {
        free(memset(malloc(size), 1, size));
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return NULL;
}

void crowd(size_t count) {
    pthread_t thread;
    while (count-- > 0)
        pthread_create(&thread, NULL, allocate, (void *)(count + 1));
}
"""

REPORT_48 = (
    "python/cpython#120998",
    "KiroCrew#935",
    "moby/moby#9876",
    "python/cpython#127177",
    "gperftools/gperftools#178",
)


@pytest.mark.report(*REPORT_48)
def test_r48_fifty_threads_that_allocate():
    """A child is stuck between fork and exec on a lock of another thread, the parent with it."""
    code = """
        import ctypes, json, sys
        import pyresolve
        crowd, good, crashing = sys.argv[1:]
        ctypes.CDLL(crowd).crowd(ctypes.c_size_t(50))
        wanted = {good: "LOADABLE", crashing: "CRASHED"}
        wrong = [
            report.message
            for turn in range(100) for path in wanted
            if (report := pyresolve.check(path, mode=("dlopen", "preload")[turn % 2], timeout=60))
            .status.name != wanted[path]
        ]
        print(json.dumps(wrong))
    """
    assert [] == cold(code, built_text(CROWD, "crowd.so"), rogue("good"), rogue("segfault"))


@pytest.mark.report(*REPORT_48)
def test_r48_highest_descriptor_limit_without_proc(says):
    """Where /proc is missing, closing every descriptor up to a huge limit takes minutes."""
    code = """
        import json, os, resource, sys
        import pyresolve
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        report = pyresolve.check(sys.argv[1], timeout=60)
        try:
            said = pyresolve.check(sys.argv[1], mode="preload", timeout=60).message
        except pyresolve.ProbeError as error:
            said = str(error)
        print(json.dumps([os.listdir("/proc"), report.status.name, report.elapsed < 5, said]))
    """
    *answer, said = cold(code, rogue("good"), prefix=mounted(hide=["/proc"]), timeout=30)
    assert [[], "LOADABLE", True] == answer
    assert "a rehearsal needs /proc, where" in says(said)


def test_like_r48_fork_handler_that_hangs():
    """A library of the caller registered a fork handler that waits for a lock it never gets."""
    handler = """
        #include <pthread.h>
        #include <unistd.h>

        static void wait_for_ever(void) {
            for (;;)
                pause();
        }

        __attribute__((constructor)) static void on_load(void) {
            pthread_atfork(wait_for_ever, NULL, NULL);
        }
    """
    code = """
        import ctypes, json, sys
        import pyresolve
        handler, good = sys.argv[1:]
        ctypes.CDLL(handler)
        modes = "dlopen", "preload"
        print(json.dumps([pyresolve.check(good, mode=m, timeout=60).status.name for m in modes]))
    """
    arguments = built_text(handler, "fork_handler.so"), rogue("good")
    assert ["LOADABLE", "LOADABLE"] == cold(code, *arguments, timeout=30)


REPORT_49 = (
    "vllm-project/vllm#32611",
    "vllm-project/vllm#44252",
    "vllm-project/vllm#15951",
    "pytorch/pytorch#83973",
    "pytorch/pytorch#81758",
)

FORKS = """
    import json, multiprocessing, os, sys

    def worker():
        ctypes.CDLL("libcuda.so.1").cuInit(0)

    marker, how = sys.argv[1:]
    before = dict(os.environ)
    if how == "pyresolve":
        import pyresolve
        hook = pyresolve.pick()
        hook.env()
        for mode in "dlopen", "preload":
            assert pyresolve.check(hook, mode=mode).verdict is pyresolve.Verdict.OK
        assert pyresolve.driver().present
        pyresolve.runtimes()
        pyresolve.audit()
    import ctypes
    if how == "naive":
        worker()
    child = multiprocessing.get_context("fork").Process(target=worker)
    child.start()
    child.join()
    with open(marker) as file:
        pids = [int(line) for line in file]
    names = {os.getpid(): "parent", child.pid: "child"}
    print(json.dumps([
        [names.get(pid, "another") for pid in pids],
        "torch" in sys.modules,
        before == dict(os.environ),
    ]))
"""


@pytest.mark.report(*REPORT_49)
@pytest.mark.parametrize(
    ("how", "expected"), [("naive", ["parent", "child"]), ("pyresolve", ["child"])]
)
def test_r49_driver_is_not_initialised_in_the_parent(site, full_stub, tmp_path, how, expected):
    """A look at the GPU calls cuInit in the parent, and its forked workers cannot use CUDA."""
    site.tms().torch("13.0").cudart(13)
    marker = tmp_path / "cuInit"
    env = {
        **environment(site, libraries=[full_stub]),
        CUINIT_MARKER: str(marker),
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }
    assert [expected, False, True] == cold(FORKS, marker, how, env=env)


def test_like_r49_nobody_opens_nvml(site, full_stub, tmp_path):
    """NVML is in reach, and opening it leaves a trace: there is none, in no process."""
    nvml = """
        #include <fcntl.h>
        #include <stdlib.h>

        __attribute__((constructor)) static void on_load(void) {
            open(getenv("NVML_MARKER"), O_WRONLY | O_CREAT, 0644);
        }

        int nvmlInit_v2(void) {
            return 0;
        }
    """
    directory = tmp_path / "driver"
    shutil.copytree(full_stub, directory)
    shutil.copy(built_text(nvml, "nvml.so"), directory / "libnvidia-ml.so.1")
    site.tms().torch("13.0").cudart(13)
    marker, control = tmp_path / "opened", tmp_path / "control"
    env = environment(site, libraries=[directory])
    for command in (["doctor"], ["pick"], ["check", site.hook("_cu13")], ["audit"]):
        pyresolve(*command, env={**env, "NVML_MARKER": str(marker)})
    code = "import ctypes; ctypes.CDLL('libnvidia-ml.so.1'); print(0)"
    cold(code, env={**env, "NVML_MARKER": str(control)})
    assert (False, True) == (marker.exists(), control.exists())


def test_like_r49_torch_library_that_initialises_the_driver(site, full_stub, tmp_path):
    """A torch whose own library calls cuInit when it is loaded, which pick() has to try."""
    eager = """
        int cuInit(unsigned);
        int cudaMalloc(void **, unsigned long);

        __attribute__((constructor)) static void on_load(void) {
            cuInit(0);
        }

        int allocate(void **to) {
            return cudaMalloc(to, 1);
        }
    """
    directory = site.tms().torch("13.0").cudart(13)
    links = full_stub / "libcuda.so.1", directory / "libcudart.so.13"
    places = "-Wl,--disable-new-dtags", f"-Wl,-rpath,{directory}"
    shutil.copy(built_text(eager, "eager.so", *links, *places), site / "torch/lib/libc10_cuda.so")
    marker = tmp_path / "cuInit"
    env = {**environment(site, libraries=[full_stub]), CUINIT_MARKER: str(marker)}
    code = """
        import json, os, sys
        import pyresolve
        choice = pyresolve.pick()
        with open(sys.argv[1]) as file:
            pids = set(map(int, file))
        print(json.dumps([choice.cuda_major, choice.source.name, bool(pids), os.getpid() in pids]))
    """
    assert [13, "TORCH_RUNTIME", True, False] == cold(code, marker, env=env)


# --- R51: what is said, and who says it


REPORT_51 = (
    "pdm-project/pdm#1995",
    "python-poetry/poetry#1097",
    "unbit/uwsgi#670",
    "python/cpython#80377",
    "pgadmin-org/pgadmin4#707",
    "borgbackup/borg#9331",
)


@pytest.mark.report(*REPORT_51)
@pytest.mark.parametrize("text", ["welcome", '{"cuda": 12}'])
def test_r51_site_code_that_prints(tmp_path, full_stub, text):
    """A sitecustomize prints, and what it printed is taken for the answer or breaks its JSON."""
    site = Site.in_venv(tmp_path / "venv").tms().torch("13.0")
    site.cudart(13)
    customized = tmp_path / "customized"
    customized.mkdir()
    (customized / "sitecustomize.py").write_text(f"print({text!r})\n")
    env = environment(customized, libraries=[full_stub])
    naive = run([site.python, "-c", "import json, sys; print(json.dumps(sys.path))"], env=env)
    with pytest.raises(json.JSONDecodeError):
        json.loads(naive.stdout)
    choice = pick(python=site.python, environ=env)
    assert (site.hook("_cu13"), Verdict.OK) == (choice.path, choice.verdict)


@pytest.mark.report(*REPORT_51)
@pytest.mark.parametrize("mode", MODES)
def test_r51_constructor_that_prints(mode, capfd):
    """A library prints while it is loaded, megabytes of it and into the answer."""
    assert "LOADABLE" == check(rogue("chatty"), mode=mode, timeout=60).status.name
    assert ("", "") == capfd.readouterr()


@pytest.mark.report(*REPORT_51)
@pytest.mark.parametrize("executable", ["", None, "/bin/false", "/usr/sbin/uwsgi", "/opt/app.exe"])
def test_r51_executable_that_is_no_python(tmp_path, full_stub, executable):
    """sys.executable is uwsgi, a frozen program or nothing, and the wrong program is started."""
    site = Site.in_venv(tmp_path / "venv").tms().torch("13.0")
    site.cudart(13)
    code = """
        import json, sys
        sys.executable = sys._base_executable = json.loads(sys.argv[1])
        sys.frozen = True
        sys.argv[0] = "/usr/sbin/uwsgi"
        import pyresolve
        sys.path.append(sys.argv[3])
        here, there = pyresolve.pick(), pyresolve.pick(python=sys.argv[2])
        there.env()
        pyresolve.runtimes(), pyresolve.audit()
        print(json.dumps([str(here), str(there), pyresolve.check(here).verdict.name]))
    """
    arguments = json.dumps(executable), site.python, site.root
    answer = cold(code, *arguments, env=environment(libraries=[full_stub]))
    assert [str(site.hook("_cu13")), str(site.hook("_cu13")), "OK"] == answer


@pytest.mark.report(*REPORT_51)
def test_r51_interpreter_that_is_another_program(full_stub, says):
    """The workers' interpreter is given as what sys.executable says in uwsgi: no Python at all."""
    program = require_tool("false")
    with pytest.raises(InterpreterError) as caught:
        pick(python=program, environ=environment(libraries=[full_stub]))
    said = says(caught.value)
    assert f"{program} does not answer as Python does" in said
    assert "give the path of the workers' interpreter" in said


LOADERS_WORDS = {
    "ignored": "ERROR: ld.so: object '{}' from LD_PRELOAD cannot be preloaded (no such file):"
    " ignored.",
    "fatal": "{}: error while loading shared libraries: libnowhere.so: cannot open shared object"
    " file: No such file or directory",
    "undefined": "{}: undefined symbol: cudaNowhere",
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("words", LOADERS_WORDS)
def test_like_r51_library_that_speaks_like_the_loader(words, mode):
    """A hook logs a dlerror of its own, which is none of ours, and goes on."""
    text = LOADERS_WORDS[words].format("/opt/other.so")
    source = f"""
        #include <stdio.h>

        __attribute__((constructor)) static void on_load(void) {{
            fputs("{text}\\n", stderr);
        }}
    """
    report = check(built_text(source, f"speaks_{words}.so"), mode=mode)
    assert ("LOADABLE", ()) == (report.status.name, report.missing)


@pytest.mark.parametrize("mode", MODES)
def test_like_r51_library_that_gives_up_with_a_dlerror(mode, says):
    """A hook that fails to open a library by itself prints that and ends the process."""
    source = """
        #include <dlfcn.h>
        #include <stdio.h>
        #include <stdlib.h>

        __attribute__((constructor)) static void on_load(void) {
            if (!dlopen("libnowhere-ml.so.1", RTLD_NOW)) {
                fprintf(stderr, "hook: %s\\n", dlerror());
                exit(1);
            }
        }
    """
    path = built_text(source, "gives_up.so", "-ldl")
    report = check(path, mode=mode)
    assert "EXITED" == report.status.name
    assert f"{path} ended with exit status 1" in says(report.message)
    assert "hook: libnowhere-ml.so.1: cannot open shared object file" in report.message


# --- R52: how a load ends


REPORT_52 = ("numba/numba#6542", "Project-HAMi/HAMi#1834")
ENDS = {
    "segfault": ("CRASHED", "died of SIGSEGV", -11),
    "loop": ("TIMED_OUT", "did not finish loading within 1 s and was killed", None),
    "underscore_exit_zero": ("EXITED", "ended with exit status 0", 0),
}


@pytest.mark.report(*REPORT_52)
@pytest.mark.parametrize("name", ENDS)
def test_r52_load_that_ends_or_hangs(name, says):
    """Opening the library crashes, spins or silently ends whoever does it."""
    path = rogue(name)
    status, words, naive = ENDS[name]
    if naive is None:
        with pytest.raises(subprocess.TimeoutExpired):
            started(path, timeout=0.5)
    else:
        assert naive == started(path)
    for mode in MODES:
        report = check(path, mode=mode, environ={}, timeout=1.0 if naive is None else 20.0)
        assert (status, Verdict.FAIL) == (report.status.name, report.verdict)
        said = says(report.message)
        assert str(path) in said
        assert words in said
        assert "do not use this file" in said or "raise the timeout" in said


@pytest.mark.report(*REPORT_52)
@pytest.mark.parametrize("name", ENDS)
def test_r52_hook_that_ends_or_hangs(site, monkeypatch, full_stub, name, says):
    """The build for the right CUDA is there, and every worker dies or spins before its main."""
    site.package("torch_memory_saver", "0.0.10").torch("13.0").cudart(13)
    shutil.copy(rogue(name), site.hook("_cu13"))
    monkeypatch.syspath_prepend(site.root)
    timeout = 1.0 if name == "loop" else 20.0
    with pytest.raises(NotLoadableError) as caught:
        pick(environ=environment(libraries=[full_stub]), timeout=timeout)
    status, words, _ = ENDS[name]
    assert status == caught.value.report.status.name
    said = says(caught.value)
    assert str(site.hook("_cu13")) in said
    assert words in said


@pytest.mark.report(*REPORT_52)
@pytest.mark.parametrize("mode", MODES)
def test_r52_crash_leaves_no_core(tmp_path, mode):
    """Each look at a library that crashes writes a core dump into the launcher's directory."""
    source = """
        #include <signal.h>
        #include <stdio.h>
        #include <sys/resource.h>

        __attribute__((constructor)) static void on_load(void) {
            struct rlimit limit;
            getrlimit(RLIMIT_CORE, &limit);
            fputs(limit.rlim_cur < 2 ? "dumps are off" : "dumps are on", stderr);
            raise(SIGSEGV);
        }
    """
    code = """
        import json, resource, sys
        import pyresolve
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
        print(json.dumps(pyresolve.check(sys.argv[1], mode=sys.argv[2]).message))
    """
    said = cold(code, built_text(source, "dumps.so"), mode, cwd=tmp_path)
    assert "having said: dumps are off" in said
    assert [] == os.listdir(tmp_path)


PRELOADED_FOR_ALL = """
    import json, os, subprocess, sys
    import pyresolve
    listed, good = sys.argv[1:]
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/etc"], check=True)
    with open("/etc/ld.so.preload", "w") as file:
        file.write(listed)
    said = []
    for mode in "dlopen", "preload":
        try:
            report = pyresolve.check(good, mode=mode, timeout=1.0)
            said.append([report.verdict.name, report.message])
        except pyresolve.PyresolveError as error:
            said.append(["FAIL", str(error)])
    print(json.dumps(said))
"""


@pytest.mark.parametrize("name", ["loop", "segfault", "good"])
def test_like_r52_preload_of_the_whole_system(name, says):
    """A library in /etc/ld.so.preload spins or crashes in every program; the target is innocent."""
    listed, target = rogue(name), rogue("good_libm")
    answers = cold(PRELOADED_FOR_ALL, listed, target, prefix=mounted(), env=environment())
    for verdict, message in answers:
        assert ("OK" if name == "good" else "FAIL") == verdict
        if name != "good":
            assert "/etc/ld.so.preload" in says(message)
            assert "reinstall" not in message
            assert f"{target} did not finish" not in message


@pytest.mark.parametrize("name", ["loop", "segfault"])
def test_like_r52_preload_of_the_user(name, says):
    """Another library in LD_PRELOAD spins or crashes before main, and the hook gets the blame."""
    other = rogue(name)
    env = {**environment(), "LD_PRELOAD": str(other)}
    report = check(rogue("good"), mode="preload", environ=env, timeout=1.0)
    assert Verdict.FAIL is report.verdict
    assert str(other) in says(report.message)
    assert "LD_PRELOAD" in report.message


@pytest.mark.parametrize("mode", MODES)
def test_like_r52_library_that_becomes_another_program(mode, says):
    """A constructor starts the program anew in a cleaned environment, as sanitizers do."""
    source = """
        #include <stdlib.h>
        #include <unistd.h>

        __attribute__((constructor)) static void on_load(void) {
            unsetenv("LD_PRELOAD");
            execl("/bin/sh", "sh", "-c", "exit 0", (char *)NULL);
        }
    """
    path = built_text(source, "becomes.so")
    report = check(path, mode=mode)
    assert "EXITED" == report.status.name
    assert f"{path} ended with exit status 0" in says(report.message)


@pytest.mark.parametrize("mode", MODES)
def test_like_r52_load_that_the_kernel_ends(mode, says):
    """What is loaded is killed from outside, as by the OOM killer: no handler sees that."""
    source = """
        #include <signal.h>

        __attribute__((constructor)) static void on_load(void) {
            raise(SIGKILL);
        }
    """
    path = built_text(source, "killed.so")
    report = check(path, mode=mode)
    assert "CRASHED" == report.status.name
    assert f"{path} died of SIGKILL" in says(report.message)


# --- R53: again and again


REPORT_53 = (
    "frappe/helm#55",
    "jina-ai/serve#5594",
    "python/cpython#11671",
    "robotpy/robotpy-cscore#92",
)


@pytest.mark.serial
@pytest.mark.report(*REPORT_53)
def test_r53_health_check_of_a_huge_process():
    """A probe every few seconds: each costs a fork of gigabytes, and something is left of each."""
    code = """
        import ctypes, json, mmap, os, sys, threading
        import pyresolve
        memory = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for page in range(0, len(memory), mmap.PAGESIZE):
            memory[page] = 1

        def state():
            tasks = os.listdir("/proc/self/task")
            children = [open(f"/proc/self/task/{task}/children").read() for task in tasks]
            return len(os.listdir("/proc/self/fd")), "".join(children), threading.active_count()

        pyresolve.check(sys.argv[1], mode="preload")
        before = state()
        reports = [pyresolve.check(sys.argv[1], mode="preload", timeout=20) for _ in range(500)]
        times = sorted(report.elapsed for report in reports)
        print(json.dumps([
            sorted({report.status.name for report in reports}),
            before == state(),
            times[len(times) // 2] < 0.25,
            [name for name in ("torch", "ctypes.util", "subprocess") if name in sys.modules],
        ]))
    """
    assert [["LOADABLE"], True, True, []] == cold(code, rogue("good"))


@pytest.mark.serial
@pytest.mark.report(*REPORT_53)
def test_r53_health_check_costs_less_than_a_python():
    """A probe that starts Python every few seconds burns more than the service it watches."""
    code = """
        import json, os, resource, subprocess, sys
        import pyresolve

        def cpu(action):
            def used(who):
                usage = resource.getrusage(who)
                return usage.ru_utime + usage.ru_stime
            both = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
            before = sum(map(used, both))
            for _ in range(10):
                action()
            return sum(map(used, both)) - before

        def naive():
            script = f"import ctypes; ctypes.CDLL({sys.argv[1]!r})"
            subprocess.run([sys.executable, "-I", "-S", "-c", script], check=True)

        def check():
            assert pyresolve.check(sys.argv[1], mode="preload").verdict is pyresolve.Verdict.OK

        check()
        print(json.dumps(cpu(check) < cpu(naive) / 2))
    """
    assert cold(code, rogue("good"))


def test_like_r53_library_that_is_replaced_between_two_checks(tmp_path, says):
    """An upgrade puts another file in its place, of the same size and time: no old answer."""
    path, other = tmp_path / "hook.so", tmp_path / "other.so"
    shutil.copy2(rogue("good"), path)
    shutil.copy2(rogue("segfault"), other)
    size = max(path.stat().st_size, other.stat().st_size)
    for file in (path, other):
        os.truncate(file, size)  # grown: what is behind the end of an ELF file does not matter
        os.utime(file, (1, 1))
    assert "LOADABLE" == check(path, mode="preload").status.name
    os.replace(other, path)
    assert (size, 1) == (path.stat().st_size, path.stat().st_mtime)
    report = check(path, mode="preload")
    assert "CRASHED" == report.status.name
    assert f"{path} died of SIGSEGV" in says(report.message)


def test_like_r53_process_without_a_free_descriptor(says):
    """A service that has leaked all its descriptors asks for its health."""
    code = """
        import json, os, resource, sys
        import pyresolve
        pyresolve.check(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        held = []
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        try:
            said = pyresolve.check(sys.argv[1]).message
        except pyresolve.ProbeError as error:
            said = str(error)
        os.closerange(held[0], held[-1] + 1)
        print(json.dumps([said, pyresolve.check(sys.argv[1]).status.name]))
    """
    said, afterwards = cold(code, rogue("good"))
    assert "too many files open" in says(said)
    assert "raise ulimit -n" in said
    assert "LOADABLE" == afterwards
