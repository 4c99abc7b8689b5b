"""The caller: nothing reaches it, nothing stays in it, and nothing it does delays the answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from support import MODES, TESTS, process, rogues
from support.compile import built, built_text
from support.driver import CUINIT_MARKER

from pyresolve import check
from pyresolve._model import Status

INTERPOSE = TESTS / "native" / "interpose.c"
HANGING = "sleep_ignoring_sigterm"

both_modes = pytest.mark.parametrize("mode", MODES)

# What every snippet begins with: a look at this process, and the rogues by name.
PRELUDE = """
import contextlib, ctypes, gc, json, os, signal, sys, threading, time
libraries = json.loads(sys.argv[1])

def fds():
    return sorted(fd for fd in map(int, os.listdir("/proc/self/fd")) if is_open(fd))

def is_open(fd):
    try:
        return bool(os.readlink(f"/proc/self/fd/{fd}"))
    except OSError:
        return False

def children():
    tasks = [f"/proc/self/task/{task}/children" for task in os.listdir("/proc/self/task")]
    found = []
    for task in tasks:
        with contextlib.suppress(FileNotFoundError):
            found += open(task).read().split()
    return found

def settled(predicate, timeout=5.0):
    deadline = time.monotonic() + timeout
    while not predicate() and time.monotonic() < deadline:
        time.sleep(0.005)
    return bool(predicate())

def status(name, timeout=60.0, mode="dlopen"):
    return pyresolve.check(libraries[name], mode=mode, environ={}, timeout=timeout).status.name

import pyresolve
"""


def _text(argument):
    return os.fspath(argument) if isinstance(argument, os.PathLike) else str(argument)


def snippet(code, names, *args, **options):
    """Run a snippet behind the prelude in a fresh interpreter."""
    libraries = json.dumps({name: str(rogues.rogue(name)) for name in names})
    return process.cold(PRELUDE + textwrap.dedent(code), libraries, *map(_text, args), **options)


# --- nothing is left in the caller


def test_nothing_of_cuda_in_the_caller(site, full_stub, tmp_path):
    """After pick(), env() and check(): no CUDA library, no torch, no descriptor, no child."""
    site.tms().torch("13.0")
    cudart = [site.cudart(major) for major in (12, 13)]
    code = """
        site, stub, name, marker, *cudart = sys.argv[2:]
        sys.path.append(site)
        environ = {"LD_LIBRARY_PATH": ":".join([stub, *cudart]), name: marker}
        before = fds(), dict(os.environ), threading.active_count(), os.getcwd()
        choice = pyresolve.pick(environ=environ)
        choice.env(environ)
        choice.env(environ, pin="preload")
        choice.env({**environ, "A": "B"})
        modes = [pyresolve.check(choice, mode=m, environ=environ).status.name
                 for m in ("dlopen", "preload")]
        pyresolve.driver(environ=environ)
        pyresolve.runtimes(environ=environ)
        after = fds(), dict(os.environ), threading.active_count(), os.getcwd()
        maps = open("/proc/self/maps").read()
        print(json.dumps({
            "path": str(choice),
            "modes": modes,
            "unchanged": before == after,
            "children": children(),
            "mapped": [n for n in ("libcudart", "libcuda", "memory_saver", "libc10") if n in maps],
            "imported": [n for n in ("torch", "torch_memory_saver", "numpy") if n in sys.modules],
            "cuInit": os.path.exists(marker),
        }))
    """
    assert snippet(code, [], site, full_stub, CUINIT_MARKER, tmp_path / "marker", *cudart) == {
        "path": str(site.hook("_cu13")),
        "modes": ["LOADABLE", "LOADABLE"],
        "unchanged": True,
        "children": [],
        "mapped": [],
        "imported": [],
        "cuInit": False,
    }


def test_many_checks_leave_nothing(rogue):
    """Five hundred checks: descriptors, children, threads and memory stay what they were."""
    code = """
        ends = {"good": 60, "missing_needed": 60, "segfault": 60, "exit_zero": 60, "daemon": 60,
                "stop": 0.002, "chatty": 60, "undefined_function": 60}
        def round():
            for name, timeout in ends.items():
                status(name, timeout, "dlopen")
                status(name, timeout, "preload")
        def rss():
            gc.collect()
            return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        for _ in range(4):
            round()
        before, memory = (fds(), children(), threading.active_count()), rss()
        for _ in range(32):
            round()
        assert settled(lambda: not children())
        grown = rss() - memory
        print(json.dumps([before == (fds(), children(), threading.active_count()), grown]))
    """
    names = ["good", "missing_needed", "segfault", "exit_zero", "daemon", "stop", "chatty"]
    unchanged, grown = snippet(code, [*names, "undefined_function"])
    assert unchanged
    assert grown < 2 << 20


# --- threads, signals and event loops of the caller

ROUNDS = {  # by rogue: the timeout, and the status
    "good": (60.0, "LOADABLE"),
    "missing_needed": (60.0, "MISSING_DEPENDENCY"),
    "segfault": (60.0, "CRASHED"),
    "exit_zero": (60.0, "EXITED"),
    HANGING: (0.1, "TIMED_OUT"),
}

STRESS = """
    from concurrent.futures import ThreadPoolExecutor
    rounds, threads, checks = json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    names = sorted(rounds)
    stop = threading.Event()

    def noise():
        while not stop.is_set():
            keep = [bytearray(1 << 14) for _ in range(50)]
            ctypes.CDLL("libm.so.6").cos
            handle = ctypes.CDLL(libraries["good_libm"])._handle
            ctypes.CDLL(None).dlclose(ctypes.c_void_p(handle))
            time.sleep(0.001)

    def work(seed):
        wrong = []
        for number in range(checks):
            # One in ten hangs: that is what takes the time.
            turn = seed * checks + number
            name = hanging if turn % 10 == 0 else names[turn % len(names)]
            timeout, expected = rounds[name]
            mode = ("dlopen", "preload")[turn // 7 % 2]
            try:
                answer = status(name, timeout, mode)
            except Exception as error:
                answer = repr(error)
            if answer != expected:
                wrong.append([name, mode, answer])
        return wrong

    hanging = sys.argv[5]
    names.remove(hanging)
    status("good")
"""


def stress(before, run, *, threads=32, checks=200, timeout=300):
    """Run the mix in threads; return what was wrong, and what is left when all is over."""
    code = textwrap.dedent(STRESS) + textwrap.dedent(before)
    code += textwrap.dedent("""
        start = fds(), threading.active_count()
        noisy = [threading.Thread(target=noise) for _ in range(2)]
        for thread in noisy:
            thread.start()
    """)
    code += textwrap.dedent(run)
    code += textwrap.dedent("""
        stop.set()
        for thread in noisy:
            thread.join()
        settled(lambda: not children() and start == (fds(), threading.active_count()))
        left = [sorted(set(fds()) - set(start[0])), children(), threading.active_count() - start[1]]
        print(json.dumps([sum(wrong, [])[:20], left]))
    """)
    arguments = json.dumps(ROUNDS), threads, checks, HANGING
    return snippet(code, [*ROUNDS, "good_libm"], *arguments, timeout=timeout)


IN_THREADS = """
    with ThreadPoolExecutor(threads) as pool:
        wrong = list(pool.map(work, range(threads)))
"""
EXACT = [[], [[], [], 0]]


def test_threads():
    """32 threads, 200 checks each, while others allocate and dlopen: every status is exact."""
    assert EXACT == stress("", IN_THREADS)


def test_threads_with_sigchld_ignored():
    """The same where the kernel reaps every child by itself."""
    assert EXACT == stress("signal.signal(signal.SIGCHLD, signal.SIG_IGN)", IN_THREADS)


@pytest.mark.parametrize("thread", [False, True])
def test_threads_with_a_reaper(thread):
    """The same where somebody else waits for every child: a handler, or a thread all the time."""
    reaper = """
        def reap(*_):
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass
        signal.signal(signal.SIGCHLD, reap)
    """
    if thread:
        reaper = """
        def reap():
            while True:
                try:
                    os.waitpid(-1, 0)
                except ChildProcessError:
                    time.sleep(0.0005)
        threading.Thread(target=reap, daemon=True).start()
        """
    in_threads = """
        pool = ThreadPoolExecutor(threads)
        work_of = [pool.submit(work, number) for number in range(threads)]
        # The main thread runs handlers only between two waits that end.
        while not all(future.done() for future in work_of):
            time.sleep(0.01)
        wrong = [future.result() for future in work_of]
        pool.shutdown()
    """
    assert EXACT == stress(reaper, in_threads, checks=100)


def test_asyncio():
    """The same inside an event loop, in threads of it and in the loop itself."""
    run = """
        import asyncio

        async def others():
            codes = []
            while not stop.is_set():
                other = await asyncio.create_subprocess_exec("sh", "-c", "exit 7")
                codes.append(await other.wait())
            return codes

        async def main():
            loop = asyncio.get_running_loop()
            loop.set_default_executor(ThreadPoolExecutor(threads))
            beside = asyncio.create_task(others())
            tasks = [asyncio.create_task(asyncio.to_thread(work, n)) for n in range(threads - 1)]
            wrong = []
            for _ in range(40):
                await asyncio.sleep(0.005)
                answers = [status("good"), status("segfault"), status(hanging, 0.05)]
                wrong += [a for a in [answers] if a != ["LOADABLE", "CRASHED", "TIMED_OUT"]]
            results = await asyncio.gather(*tasks)
            stop.set()
            codes = await beside
            wrong += [code for code in codes if code != 7]
            assert len(codes) > 5
            return [wrong, *results]

        wrong = asyncio.run(main())
    """
    assert EXACT == stress("", run)


def test_other_subprocesses_are_not_reaped():
    """A child of the caller's own keeps its exit status for the caller."""
    code = """
        import subprocess
        own = [subprocess.Popen(["sh", "-c", f"exit {n}"]) for n in range(20)]
        for name in ("good", "segfault", "kill_parent", "fork_sleep"):
            status(name, mode="dlopen"), status(name, mode="preload")
        print(json.dumps([process.wait() for process in own]))
    """
    assert list(range(20)) == snippet(code, ["good", "segfault", "kill_parent", "fork_sleep"])


@both_modes
def test_blocked_signals(rogue, mode):
    """A thread that blocks every signal gets its answers; the target starts with none blocked."""
    code = """
        answers = []
        def work():
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            for name in ("good", "sigill", "segfault", "abort"):
                answers.append(status(name, mode=sys.argv[2]))
            answers.append(status("stop", 0.1, mode=sys.argv[2]))
            answers.append(len(signal.pthread_sigmask(signal.SIG_BLOCK, [])) > 50)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        print(json.dumps(answers))
    """
    expected = ["LOADABLE", "CRASHED", "CRASHED", "CRASHED", "TIMED_OUT", True]
    assert expected == snippet(code, ["good", "sigill", "segfault", "abort", "stop"], mode)


@both_modes
@pytest.mark.parametrize("ignored", ["SIGTERM", "SIGSEGV", "SIGPIPE", "SIGABRT"])
def test_ignored_signals(rogue, ignored, mode):
    """What the caller ignores is not ignored in the process that tries the target."""
    code = """
        signal.signal(getattr(signal, sys.argv[3]), signal.SIG_IGN)
        print(json.dumps([status(n, mode=sys.argv[2]) for n in ("good", "segfault", "abort")]))
    """
    answers = snippet(code, ["good", "segfault", "abort"], mode, ignored)
    assert answers == ["LOADABLE", "CRASHED", "CRASHED"]


@both_modes
@pytest.mark.parametrize("closed", [[0], [1], [2], [0, 1, 2], [0, 2], [1, 2]])
def test_closed_standard_streams(rogue, closed, mode):
    """A caller without stdin, stdout or stderr gets its answers, and they stay closed."""
    code = """
        out = os.dup2(1, 50)
        for fd in json.loads(sys.argv[3]):
            os.close(fd)
        before = fds()
        names = "good", "segfault", "chatty", "missing_needed", "garbage_fds"
        answers = [status(name, mode=sys.argv[2]) for name in names]
        os.write(out, json.dumps([answers, before == fds()]).encode())
        os._exit(0)
    """
    names = ["good", "segfault", "chatty", "missing_needed", "garbage_fds"]
    expected = ["LOADABLE", "CRASHED", "LOADABLE", "MISSING_DEPENDENCY", "LOADABLE"]
    assert [expected, True] == snippet(code, names, mode, json.dumps(closed))


@both_modes
def test_descriptors_of_the_caller_stay_here(build_lister, tmp_path, mode):
    """The process that tries the target has no descriptor of the caller's, inheritable or not."""
    code = """
        for number in range(20):
            os.set_inheritable(os.open("/etc/passwd", os.O_RDONLY), True)
        report = pyresolve.check(sys.argv[2], mode=sys.argv[3], environ={})
        print(json.dumps(report.message))
    """
    message = snippet(code, [], build_lister, mode)
    assert "exit status 5, having said: 0=/dev/null" in message
    assert "passwd" not in message


@pytest.fixture(scope="session")
def build_lister():
    """Return a library that says which descriptors it finds, and ends."""
    text = """
        ON_LOAD {
            char from[64], to[256];
            for (int fd = 0; fd < 1024; fd++) {
                snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
                ssize_t n = readlink(from, to, sizeof to);
                if (n > 0)
                    fprintf(stderr, "%d=%.*s ", fd, (int)n, to);
            }
            _exit(5);
        }
    """
    return made("lister", text)


def made(name, text):
    """Compile a C text like a rogue, once per run."""
    return built_text(f"{rogues.INCLUDE}{text}", f"{name}.so", "-w", "-ldl")


@both_modes
def test_few_descriptors(rogue, mode):
    """A dozen descriptors are enough."""
    code = """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))
        print(json.dumps([status(n, mode=sys.argv[2]) for n in ("good", "segfault")]))
    """
    assert snippet(code, ["good", "segfault"], mode) == ["LOADABLE", "CRASHED"]


@pytest.mark.serial
@both_modes
def test_many_descriptors(rogue, mode):
    """A thousand open descriptors neither delay the answer nor reach the target."""
    code = """
        keep = [os.open("/dev/null", os.O_RDONLY) for _ in range(900)]
        start = time.monotonic()
        answers = [status(n, mode=sys.argv[2]) for n in ("good", "segfault")]
        print(json.dumps([answers, time.monotonic() - start < 1]))
    """
    assert snippet(code, ["good", "segfault"], mode) == [["LOADABLE", "CRASHED"], True]


@pytest.mark.serial
@both_modes
def test_large_caller(rogue, mode):
    """A caller with 4 GB of address space reserved gets its answer as fast."""
    code = """
        import mmap
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
        keep = mmap.mmap(-1, 4 << 30, flags=flags)
        for page in range(0, 256 << 20, 4096):
            keep[page] = 1
        status("good")
        start = time.monotonic()
        answers = {status("good", mode=sys.argv[2]) for _ in range(10)}
        print(json.dumps([sorted(answers), time.monotonic() - start < 1]))
    """
    assert snippet(code, ["good"], mode) == [["LOADABLE"], True]


@both_modes
def test_under_a_memory_limit(rogue, mode):
    """A caller whose address space is limited reports, or says what is short."""
    code = """
        import resource
        status("good")
        answers = set()
        for limit in (1 << 33, 1 << 30, 600 << 20):
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            try:
                answers.add(status("good", mode=sys.argv[2]))
            except pyresolve.ProbeError as error:
                answers.add("ProbeError")
        print(json.dumps(sorted(answers)))
    """
    assert set(snippet(code, ["good"], mode)) <= {"LOADABLE", "ProbeError"}


# --- the end of the caller, and of its patience


def wait_for_family(pid, depth=2):
    """Return the pids of a line of descendants once there are `depth` of them."""
    family = []

    def grown():
        family[:] = []
        parent = pid
        for _ in range(depth):
            tasks = Path(f"/proc/{parent}/task").glob("*/children")
            found = [int(child) for task in tasks for child in task.read_text().split()]
            if not found:
                return False
            parent = found[0]
            family.append(parent)
        return True

    assert process.poll(grown, timeout=10)
    return family


@pytest.fixture
def hanging_caller(rogue, tmp_path, request):
    """Return a function that starts a process in the middle of a check that hangs."""
    started = []

    def start(library, mode, environ=None):
        code = """
            import sys, time
            from pyresolve import check
            environ = dict(pair.split("=", 1) for pair in sys.argv[3:])
            start = time.monotonic()
            try:
                check(sys.argv[1], mode=sys.argv[2], environ=environ, timeout=60)
            except KeyboardInterrupt:
                print(open("/proc/thread-self/children").read().split())
        """
        pairs = [f"{name}={value}" for name, value in (environ or {}).items()]
        command = [sys.executable, "-c", textwrap.dedent(code), library, mode, *pairs]
        caller = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/")
        started.append(caller)
        return caller, wait_for_family(caller.pid)

    yield start
    for caller in started:
        caller.kill()
        caller.communicate()


@both_modes
def test_ctrl_c(hanging_caller, rogue, mode):
    """SIGINT during a check that hangs is KeyboardInterrupt, at once, and nothing is left."""
    caller, family = hanging_caller(rogue(HANGING), mode)
    start = time.monotonic()
    caller.send_signal(signal.SIGINT)
    output, _ = caller.communicate(timeout=10)
    assert time.monotonic() - start < 2
    assert output == "[]\n"
    assert process.poll(lambda: not any(map(process.alive, family)))


@both_modes
@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM])
def test_death_of_the_caller(hanging_caller, rogue, death, mode):
    """A caller that dies takes its helper and the target along."""
    caller, family = hanging_caller(rogue(HANGING), mode)
    caller.send_signal(death)
    caller.communicate(timeout=10)
    assert -death == caller.returncode
    assert process.poll(lambda: not any(map(process.alive, family)))


FORKING = """
    ON_LOAD {
        pid_t pid = fork();
        if (pid == 0)
            for (;;) pause();
        rogue_write_pid((int)pid);
        for (;;) pause();
    }
"""


@both_modes
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_what_the_target_started_ends_too(hanging_caller, tmp_path, end, mode):
    """Neither Ctrl-C nor the caller's death leaves a process that the target had started."""
    library = made("forking", FORKING)
    pidfile = tmp_path / "pid"
    caller, _ = hanging_caller(library, mode, {rogues.PIDFILE: pidfile})
    assert process.poll(lambda: pidfile.exists() and pidfile.read_text().endswith("\n"))
    pid = int(pidfile.read_text())
    caller.send_signal(end)
    caller.communicate(timeout=10)
    gone = process.poll(lambda: not process.alive(pid), timeout=3)
    if not gone:
        os.kill(pid, signal.SIGKILL)
    assert gone


def test_alarm(rogue):
    """A handler that raises ends a check from inside; one that does not lets it go on."""
    code = """
        calls = []
        signal.signal(signal.SIGALRM, lambda *_: calls.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        answers = [status("good") for _ in range(30)] + [status("stop", 0.3)]
        signal.setitimer(signal.ITIMER_REAL, 0)
        class Late(Exception): pass
        def late(*_): raise Late
        signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        start = time.monotonic()
        try:
            status("stop", 60)
        except Late:
            answers.append("Late")
        took = time.monotonic() - start
        print(json.dumps([sorted(set(answers)), len(calls) > 50, took < 1.5, children()]))
    """
    expected = [["LOADABLE", "Late", "TIMED_OUT"], True, True, []]
    assert expected == snippet(code, ["good", "stop"])


# --- moments


@pytest.fixture(scope="session")
def interposed():
    """Return a function that gives the environment of a caller to which a moment happens."""
    library = built(INTERPOSE, "interpose.so", "-ldl")

    def environment(moment):
        before = os.environ.get("LD_PRELOAD")
        preload = f"{before}:{library}" if before else str(library)
        return {**os.environ, "LD_PRELOAD": preload, "INTERPOSE": moment}

    return environment


SLOW = "ON_LOAD { usleep(40000); }"


@both_modes
def test_answer_that_comes_between_two_looks(interposed, mode):
    """A helper that ends after poll saw nothing and before it is looked for has still answered."""
    library = made("slow", SLOW)
    code = """
        report = pyresolve.check(sys.argv[2], mode=sys.argv[3], environ={})
        print(json.dumps(report.status.name))
    """
    assert snippet(code, [], library, mode, env=interposed("late")) == "LOADABLE"


@both_modes
def test_signal_between_two_looks(interposed, mode):
    """A signal that comes after the interpreter looked and before poll sleeps is not put off."""
    code = """
        start = time.monotonic()
        try:
            status("stop", 5, sys.argv[2])
            answer = "nothing"
        except KeyboardInterrupt:
            answer = "KeyboardInterrupt"
        print(json.dumps([answer, time.monotonic() - start < 1, children()]))
    """
    answer = snippet(code, ["stop"], mode, env=interposed("signal"))
    assert answer == ["KeyboardInterrupt", True, []]


@both_modes
@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("good", "LOADABLE"),
        ("segfault", "CRASHED"),
        ("kill_parent", "CRASHED"),
        ("missing_needed", "MISSING_DEPENDENCY"),
    ],
)
def test_copies_of_the_pipes(interposed, name, status, mode):
    """A fork elsewhere in the caller, whose child holds our pipes, delays no answer."""
    code = """
        start = time.monotonic()
        answer = status(sys.argv[2], mode=sys.argv[3])
        took = time.monotonic() - start
        for pid in children():
            os.kill(int(pid), signal.SIGKILL)
            os.waitpid(int(pid), 0)
        print(json.dumps([answer, took < 1]))
    """
    assert [status, True] == snippet(code, [name], name, mode, env=interposed("fork"))


def test_forks_in_other_threads(rogue):
    """Threads that fork sleeping children all the time do not delay the answers."""
    code = """
        import warnings
        warnings.simplefilter("ignore")
        stop, kids = threading.Event(), []
        def forks():
            while not stop.is_set() and len(kids) < 300:
                pid = os.fork()
                if pid == 0:
                    os.execv("/bin/sleep", ["sleep", "20"])
                kids.append(pid)
        threads = [threading.Thread(target=forks) for _ in range(2)]
        for thread in threads:
            thread.start()
        answers, worst = set(), 0.0
        for turn in range(60):
            start = time.monotonic()
            answers.add(status("good")), answers.add(status("kill_parent"))
            worst = max(worst, time.monotonic() - start)
        stop.set()
        for thread in threads:
            thread.join()
        for pid in kids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        print(json.dumps([sorted(answers), worst, len(kids) > 20]))
    """
    answers, worst, busy = snippet(code, ["good", "kill_parent"])
    assert (["CRASHED", "LOADABLE"], True) == (answers, busy)
    assert worst < 5


@both_modes
def test_without_pidfd(interposed, mode):
    """On a kernel without pidfd_open nothing is different."""
    code = """
        names = "good", "segfault", "missing_needed", "kill_parent"
        answers = [status(name, mode=sys.argv[2]) for name in names]
        answers.append(status("stop", 0.1, sys.argv[2]))
        print(json.dumps([answers, children()]))
    """
    names = ["good", "segfault", "missing_needed", "kill_parent", "stop"]
    expected = ["LOADABLE", "CRASHED", "MISSING_DEPENDENCY", "CRASHED", "TIMED_OUT"]
    assert [expected, []] == snippet(code, names, mode, env=interposed("kernel"))


@pytest.mark.parametrize("mode", MODES)
def test_killer_at_any_moment(rogue, clean_env, mode):
    """A target that kills its supervisor has one outcome, whoever is faster."""
    code = """
        from collections import Counter
        def work():
            for _ in range(60):
                try:
                    found[status("kill_parent", mode=sys.argv[2])] += 1
                except Exception as error:
                    found[repr(error)] += 1
        found = Counter()
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(json.dumps(found))
    """
    assert {"CRASHED": 480} == snippet(code, ["kill_parent"], mode)


def test_check_in_a_forked_child(rogue):
    """A process that was forked, not exec'd, can check like any other."""
    code = """
        pid = os.fork()
        if pid == 0:
            ok = [status(n) for n in ("good", "segfault")] == ["LOADABLE", "CRASHED"]
            os._exit(0 if ok else 1)
        print(json.dumps(os.waitpid(pid, 0)[1]))
    """
    assert snippet(code, ["good", "segfault"]) == 0


def test_from_this_process(rogue, clean_env):
    """All this is true of the test run, too: the fixture that watches over it says so."""
    assert check(rogue("good"), environ=clean_env).status is Status.LOADABLE
