"""What is true of a running process: every finding, of this process and of another."""

from __future__ import annotations

import json
import mmap
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from support import process
from support.command import environment, run
from support.compile import cc, cc_text
from support.layout import PRELOAD_STEM, Site, fake_cudart
from support.process import cold
from support.rogues import rogue
from support.tools import require_tool
from support.wheels import OLD_CUDART_12

from pyresolve import PyresolveError, Status, Verdict, audit

KEYS = {
    *("pid", "verdict", "preload", "hook", "active", "owner", "runtimes", "torch_runtime"),
    "findings",
}

# A process that does as it is told, then says what it finds out about itself.
AUDIT = """
    import ctypes, json, os, sys
    import pyresolve

    for command in sys.argv[1:]:
        what, _, path = command.partition("=")
        if what == "open":
            ctypes.CDLL(path)
        elif what == "global":
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        elif what == "remove":
            os.unlink(path)
        elif what == "set":
            os.environ["LD_PRELOAD"] = path
        elif what == "unset":
            del os.environ["LD_PRELOAD"]
    print(json.dumps(pyresolve.audit().to_dict()))
"""


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """Return the sites for CUDA 12 and 13 by their major."""
    return {
        major: Site(tmp_path_factory.mktemp(f"cu{major}") / "site-packages").cuda(major)
        for major in (12, 13)
    }


@pytest.fixture(scope="module")
def shadow(tmp_path_factory):
    """Return a library of somebody's own that defines cudaMalloc."""
    directory = tmp_path_factory.mktemp("shadow")
    source = directory / "shadow.c"
    source.write_text("int cudaMalloc(void **p, unsigned long n) { (void)p, (void)n; return 2; }\n")
    return cc(source, directory / "libshadow.so")


@pytest.fixture
def launched(sites, full_stub):
    """Return the environment of a worker with these preloads, for CUDA 13 or 12."""

    def make(*preloads, major=13, first=(), driver=True):
        libraries = [*first, sites[major].cudart_directory(major), *([full_stub] if driver else [])]
        env = environment(libraries=libraries)
        return {**env, "LD_PRELOAD": ":".join(map(os.fspath, preloads))} if preloads else env

    return make


def statuses(found):
    """Return the status of each finding."""
    return [finding["status"] for finding in found["findings"]]


def runtime(site, major):
    """Return the libcudart in a site."""
    return site.cudart_directory(major) / f"libcudart.so.{major}"


class Worker:
    """A process that is started with an environment and lives until it is told to end."""

    def __init__(self, env, code=None):
        command = [require_tool("cat")]
        if code:
            wait = "sys.stdout.write('ready'); sys.stdout.flush(); sys.stdin.read()"
            command = [sys.executable, "-c", f"{textwrap.dedent(code)}\nimport sys; {wait}"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd="/"
        )
        self.pid = self.process.pid
        if code:
            assert b"ready" == self.process.stdout.read(5)
        else:  # once cat copies, it is loaded
            self.process.stdin.write(b"?")
            self.process.stdin.flush()
            assert b"?" == self.process.stdout.read(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=20)


# --- where all is right


@pytest.mark.parametrize("major", [12, 13])
def test_active_hook_has_no_finding(sites, launched, major):
    """One hook, one runtime, which is torch's; its own cudaMalloc."""
    site = sites[major]
    hook, library = site.hook(f"_cu{major}"), site / "torch" / "lib" / "libc10_cuda.so"
    found = cold(AUDIT, f"open={library}", env=launched(hook, major=major))
    assert {
        "pid": found["pid"],
        "verdict": "ok",
        "preload": [str(hook)],
        "hook": str(hook),
        "active": True,
        "owner": str(hook),
        "runtimes": [str(runtime(site, major))],
        "torch_runtime": str(runtime(site, major)),
        "findings": [],
    } == found
    assert KEYS == set(found)


def test_without_torch_there_is_no_runtime_of_torchs(sites, launched):
    """None, and no finding about it."""
    found = cold(AUDIT, env=launched(sites[13].hook("_cu13")))
    assert (None, []) == (found["torch_runtime"], found["findings"])


@pytest.mark.parametrize("behind", [["shadow"], ["runtime"], ["foo"], ["foo", "shadow", "runtime"]])
def test_what_is_behind_the_hook_does_not_matter(sites, launched, shadow, behind):
    """Preloads after the hook take nothing from it."""
    hook = sites[13].hook("_cu13")
    known = {"shadow": shadow, "runtime": runtime(sites[13], 13), "foo": rogue("good")}
    found = cold(AUDIT, env=launched(hook, *(known[name] for name in behind)))
    assert ([], True, str(hook)) == (found["findings"], found["active"], found["owner"])


def test_unrelated_preload_may_stand_before_it(sites, launched):
    """An allocator in front defines no cudaMalloc."""
    hook = sites[13].hook("_cu13")
    found = cold(AUDIT, env=launched(rogue("good"), hook))
    assert ([str(rogue("good")), str(hook)], []) == (found["preload"], found["findings"])


def test_preload_by_bare_name(sites, launched):
    """The way around a space in the path: the name in LD_PRELOAD, its directory searched."""
    hook = sites[13].hook("_cu13")
    env = launched(hook.name, first=[sites[13]])
    found = cold(AUDIT, env=env)
    assert (hook.name, str(hook), str(hook)) == (found["preload"][0], found["hook"], found["owner"])
    assert [] == found["findings"]
    with Worker(env) as worker:
        other = audit(pid=worker.pid)
    assert (hook, hook, ()) == (other.hook, other.owner, other.findings)


@pytest.mark.parametrize("real", ["same name", "other name"])
def test_preload_by_a_link(sites, launched, tmp_path, real):
    """Package managers link from a store, some of them to files that are named by their hash."""
    name = sites[13].hook("_cu13").name if real == "same name" else "5a5a5a5a5a5a"
    (tmp_path / "store").mkdir()
    shutil.copy(sites[13].hook("_cu13"), tmp_path / "store" / name)
    link = tmp_path / sites[13].hook("_cu13").name
    link.symlink_to(tmp_path / "store" / name)
    found = cold(AUDIT, env=launched(link))
    assert ([], True) == (statuses(found), found["active"])
    with Worker(launched(link)) as worker:
        assert () == audit(pid=worker.pid).findings


def test_what_the_process_does_to_its_variable_does_not_matter(sites, launched):
    """The loader read it at the start; a program that unsets it for its children stays hooked."""
    hook = sites[13].hook("_cu13")
    assert [] == cold(AUDIT, "unset", env=launched(hook))["findings"]
    found = cold(AUDIT, f"set={hook}", env=launched())
    assert (["not_preloaded"], []) == (statuses(found), found["preload"])


WIPE = """
    import ctypes
    fields = open("/proc/self/stat").read().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # env_start, env_end: proc_pid_stat(5)
    ctypes.memset(start, 0, end - start)
    assert not open("/proc/self/environ", "rb").read().strip(bytes(1))
"""


def test_a_process_title_does_not_hide_the_hook(sites, launched):
    """Ray's and SGLang's workers use setproctitle, which takes the place of /proc/PID/environ."""
    hook = sites[13].hook("_cu13")
    code = f"import json, pyresolve, sys, os\n{textwrap.dedent(WIPE)}\n"
    code += "print(json.dumps(pyresolve.audit().to_dict()))"
    found = cold(code, env=launched(hook))
    assert ([], True, str(hook)) == (statuses(found), found["active"], found["owner"])


def test_a_process_title_is_no_reason_to_accuse(sites, launched):
    """Where LD_PRELOAD of another process cannot be read, "too late" is not what was found."""
    with Worker(launched(sites[13].hook("_cu13")), WIPE) as worker:
        found = audit(pid=worker.pid)
    assert sites[13].hook("_cu13") == found.hook
    assert not [item for item in found.findings if "too late" in item.message]


# --- findings


def test_not_preloaded(launched):
    """Nothing named it, nothing maps it."""
    found = cold(AUDIT, env=launched())
    assert (["not_preloaded"], "fail", False) == (
        statuses(found),
        found["verdict"],
        found["active"],
    )
    assert (None, None, [], []) == (
        found["hook"],
        found["owner"],
        found["preload"],
        found["runtimes"],
    )
    assert "Choice.env() or pyresolve exec" in found["findings"][0]["message"]


def test_another_hook_is_not_this_one(sites, launched):
    """The build for torch's own mode has the same package and another stem."""
    other = sites[13] / sites[13].hook("_cu13").name.replace("preload", "torch")
    found = cold(AUDIT, env=launched(other))
    assert (["not_preloaded"], None) == (statuses(found), found["hook"])


def test_hook_that_defines_no_allocator_is_not_bypassed(sites, launched):
    """The one for torch's own mode leaves cudaMalloc to libcudart: as pick() has it, no fault."""
    other = sites[13] / sites[13].hook("_cu13").name.replace("preload", "torch")
    code = "import json, pyresolve, sys\n"
    code += "print(json.dumps(pyresolve.audit(stem=sys.argv[1]).to_dict()))"
    found = cold(code, PRELOAD_STEM.replace("preload", "torch"), env=launched(other))
    assert ([], str(other)) == (found["findings"], found["hook"])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("gone", "does not exist"),
        ("text", "is a text file"),
        ("bare", "was skipped by the loader"),
        ("directory", "directory"),
    ],
)
def test_ignored(launched, tmp_path, damage, reason):
    """LD_PRELOAD names it, the loader went on without it; the reason is in the file."""
    hook = tmp_path / f"{PRELOAD_STEM}_cu13.abi3.so"
    if damage == "text":
        hook.write_text("no library\n")
    elif damage == "directory":
        hook.mkdir()
    found = cold(AUDIT, env=launched(hook.name if damage == "bare" else hook))
    assert (["ignored"], None, False) == (statuses(found), found["hook"], found["active"])
    assert reason in found["findings"][0]["message"]
    with Worker(launched(hook.name if damage == "bare" else hook)) as worker:
        assert [Status.IGNORED] == [item.status for item in audit(pid=worker.pid).findings]


def test_bypassed_by_a_runtime_before_it(sites, launched):
    """LD_PRELOAD=libcudart:hook; the finding names what stands before."""
    hook, library = sites[13].hook("_cu13"), runtime(sites[13], 13)
    env = launched(library, hook)
    found = cold(AUDIT, env=env)
    assert (["bypassed"], str(hook), str(library)) == (
        statuses(found),
        found["hook"],
        found["owner"],
    )
    assert str(library) in found["findings"][0]["message"]
    assert "put the hook first" in found["findings"][0]["message"]
    with Worker(env) as worker:
        other = audit(pid=worker.pid)
    assert ([Status.BYPASSED], library) == ([item.status for item in other.findings], other.owner)


def test_bypassed_by_a_bare_runtime_before_it(sites, launched):
    """The same with a name that the loader searched."""
    env = launched("libcudart.so.13", sites[13].hook("_cu13"))
    assert ["bypassed"] == statuses(cold(AUDIT, env=env))
    with Worker(env) as worker:
        assert [Status.BYPASSED] == [item.status for item in audit(pid=worker.pid).findings]


def test_bypassed_by_a_library_of_ones_own(sites, launched, shadow):
    """Another library that defines cudaMalloc, whatever its name is."""
    hook = sites[13].hook("_cu13")
    found = cold(AUDIT, env=launched(shadow, hook))
    assert (["bypassed"], str(shadow)) == (statuses(found), found["owner"])
    assert str(shadow) in found["findings"][0]["message"]


def test_owner_in_another_process_is_not_guessed(sites, launched, shadow):
    """The hook does not own cudaMalloc where a library before it defines that too."""
    with Worker(launched(shadow, sites[13].hook("_cu13"))) as worker:
        assert sites[13].hook("_cu13") != audit(pid=worker.pid).owner


@pytest.mark.parametrize("how", ["open", "global"])
def test_bypassed_by_coming_late(sites, launched, how):
    """A hook that was opened after the start takes no effect."""
    hook = sites[13].hook("_cu13")
    found = cold(AUDIT, f"{how}={hook}", env=launched())
    assert ("bypassed", str(hook), False) == (
        statuses(found)[0],
        found["hook"],
        found["active"],
    )
    assert "after its start" in found["findings"][0]["message"]
    with Worker(launched(), f"import ctypes; ctypes.CDLL({str(hook)!r})") as worker:
        assert Status.BYPASSED is audit(pid=worker.pid).findings[0].status


def test_late_although_it_was_named(sites, launched, tmp_path):
    """LD_PRELOAD named a build that was ignored; another was opened later."""
    named = tmp_path / sites[13].hook("_cu13").name
    hook = sites[13].hook("_cu13")
    found = cold(AUDIT, f"open={hook}", env=launched(named))
    assert (False, True) == (found["active"], bool(found["findings"]))


@pytest.mark.parametrize("first", ["", "_cu12"])
def test_of_two_builds_the_first_is_the_hook(sites, launched, first):
    """It is the one whose cudaMalloc is called, wherever in memory the two lie."""
    hooks = [sites[12].hook(first), sites[12].hook("_cu12" if not first else "")]
    env = launched(*hooks, major=12)
    found = cold(AUDIT, env=env)
    assert (str(hooks[0]), str(hooks[0])) == (found["owner"], found["hook"])
    with Worker(env) as worker:
        other = audit(pid=worker.pid)
    assert (hooks[0], hooks[0]) == (other.owner, other.hook)


@pytest.mark.parametrize("which", ["other major", "same major"])
def test_several_runtimes(sites, launched, tmp_path, which):
    """Of another major, or a second file of the same."""
    hook = sites[13].hook("_cu13")
    second = runtime(sites[12], 12)
    if which == "same major":  # by a path of its own, under a SONAME of its own
        second = Path(shutil.copy(fake_cudart(11), tmp_path / "libcudart.so.13.9"))
    found = cold(AUDIT, f"open={second}", env=launched(hook))
    assert (["several_runtimes"], {str(runtime(sites[13], 13)), str(second)}) == (
        statuses(found),
        set(found["runtimes"]),
    )
    message = found["findings"][0]["message"]
    assert (True, True) == (str(second) in message, str(runtime(sites[13], 13)) in message)
    code = f"import ctypes; ctypes.CDLL({str(second)!r})"
    with Worker(launched(hook), code) as worker:
        assert [Status.SEVERAL_RUNTIMES] == [f.status for f in audit(pid=worker.pid).findings]


def test_wrong_runtime(sites, launched, tmp_path):
    """Torch was built to find its own 12.8; 12.1 was there first."""
    site = sites[12]
    old = Site(tmp_path).cudart(OLD_CUDART_12)
    library = site / "torch" / "lib" / "libc10_cuda.so"
    env = launched(site.hook("_cu12"), major=12, first=[old])
    found = cold(AUDIT, f"open={library}", env=env)
    assert (["wrong_runtime"], [str(old / "libcudart.so.12")], str(runtime(site, 12))) == (
        statuses(found),
        found["runtimes"],
        found["torch_runtime"],
    )
    message = found["findings"][0]["message"]
    assert (True, True) == (str(old) in message, str(runtime(site, 12)) in message)
    with Worker(env, f"import ctypes; ctypes.CDLL({str(library)!r})") as worker:
        assert [Status.WRONG_RUNTIME] == [f.status for f in audit(pid=worker.pid).findings]


def test_torchs_runtime_by_another_name_is_the_same(sites, launched, tmp_path):
    """A link to torch's directory leads to the same file: compared by identity, not by text."""
    site = sites[12]
    (tmp_path / "link").symlink_to(site.root)
    library = tmp_path / "link" / "torch" / "lib" / "libc10_cuda.so"
    found = cold(AUDIT, f"open={library}", env=launched(site.hook("_cu12"), major=12))
    assert [] == found["findings"]


def test_everything_at_once(sites, launched, tmp_path):
    """Each finding is reported, in order."""
    old = Site(tmp_path).cudart(OLD_CUDART_12)
    library = sites[12] / "torch" / "lib" / "libc10_cuda.so"
    env = launched(runtime(sites[13], 13), sites[12].hook("_cu12"), major=13, first=[old])
    found = cold(AUDIT, f"open={library}", env=env)
    assert ["bypassed", "several_runtimes", "wrong_runtime"] == statuses(found)


# --- names


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("libcudart.so.13", True),
        ("libcudart.so.12", True),
        ("libcudart.so.11.0", True),
        ("libcudart.so.13.0.96", True),
        ("libcudart.so.13.bak", False),
        ("libcudart.so.13~", False),
        ("xlibcudart.so.13", False),
        ("libcudart_static.so.13", False),
        ("libcudart_static.a", False),
        ("libcudart.so.13 (copy)", False),
        ("libcudart-13.so", False),
        ("libcudart.so.", False),
        ("a b/libcudart.so.13", True),
        ("libcudart.so.13/readme", False),
    ],
)
def test_names_of_runtimes_are_exact(tmp_path, name, counts):
    """A file that merely looks like a runtime is none."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(4096))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        assert ((path,) if counts else ()) == audit().runtimes


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        (f"{PRELOAD_STEM}.abi3.so", True),
        (f"{PRELOAD_STEM}_cu14.abi3.so", True),
        (f"{PRELOAD_STEM}_cu12.cpython-312-x86_64-linux-gnu.so", True),
        (f"{PRELOAD_STEM}.abi3.so.bak", False),
        (f"old_{PRELOAD_STEM}.abi3.so", False),
        (f"{PRELOAD_STEM}_debug.abi3.so", False),
    ],
)
def test_names_of_hooks_are_exact(tmp_path, name, counts):
    """Every build of the stem, and nothing that only contains it."""
    path = tmp_path / name
    path.write_bytes(bytes(4096))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        assert (path if counts else None) == audit().hook


@pytest.mark.parametrize("name", [b"caf\xe9", b"a b", b"a:b", b"new\nline", b"back\\slash"])
def test_mapped_paths_are_any_bytes(tmp_path, name):
    """/proc/PID/maps escapes the newline alone."""
    path = tmp_path / os.fsdecode(name) / "libcudart.so.13"
    path.parent.mkdir()
    path.write_bytes(bytes(4096))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        assert (path,) == audit().runtimes
    json.dumps(audit().to_dict())


# --- files that are gone


def test_mapped_files_that_were_deleted(sites, launched, tmp_path):
    """An upgrade under a running worker: the hook is the one that it maps, by its name."""
    hook = Path(shutil.copy(sites[13].hook("_cu13"), tmp_path))
    cudart = Path(shutil.copy(runtime(sites[13], 13), tmp_path))
    env = launched(hook, first=[tmp_path])
    found = cold(AUDIT, f"remove={hook}", f"remove={cudart}", env=env)
    assert ([], True, str(hook), [str(cudart)]) == (
        found["findings"],
        found["active"],
        found["hook"],
        found["runtimes"],
    )


def test_deleted_files_of_another_process(sites, launched, tmp_path):
    """The same from outside."""
    hook = Path(shutil.copy(sites[13].hook("_cu13"), tmp_path))
    with Worker(launched(hook)) as worker:
        hook.unlink()
        found = audit(pid=worker.pid)
    assert (hook, hook, ()) == (found.hook, found.owner, found.findings)


def test_torch_that_was_replaced_is_not_the_one_that_runs(launched, tmp_path):
    """An upgrade puts another torch in its place: what runs is the old one, if it can be read."""
    site = Site(tmp_path / "site-packages").cuda(13)
    library = site / "torch/lib/libc10_cuda.so"
    env = {**launched(site.hook("_cu13")), "LD_LIBRARY_PATH": str(site.cudart_directory(13))}
    env["LD_LIBRARY_PATH"] += f":{launched()['LD_LIBRARY_PATH']}"
    with Worker(env, f"import ctypes; ctypes.CDLL({str(library)!r})") as worker:
        assert () == audit(pid=worker.pid).findings
        other = tmp_path / "other.so"
        cc_text("int own(void) { return 0; }", other)
        other.replace(library)
        found = audit(pid=worker.pid)
    # Only a privileged user may open a deleted file that is mapped (proc_pid_map_files(5)).
    privileged = opens_map_files()
    assert (() if privileged else (Status.NOT_SEEN,)) == tuple(f.status for f in found.findings)
    assert (Verdict.OK if privileged else Verdict.UNKNOWN) is found.verdict


def opens_map_files():
    """Tell whether files that are mapped and deleted may be opened."""
    try:
        next(Path("/proc/self/map_files").iterdir()).open("rb").close()
    except OSError:
        return False
    return True


# --- other processes


def test_another_process(sites, launched):
    """A worker that is no Python, from /proc alone."""
    hook = sites[13].hook("_cu13")
    with Worker(launched(hook)) as worker:
        found = audit(pid=worker.pid)
    assert (worker.pid, (str(hook),), hook, hook, (runtime(sites[13], 13),)) == (
        found.pid,
        found.preload,
        found.hook,
        found.owner,
        found.runtimes,
    )
    assert ((), Verdict.OK) == (found.findings, found.verdict)


def test_another_process_without_the_hook(launched):
    """The finding names the process."""
    with Worker(launched()) as worker:
        (finding,) = audit(pid=worker.pid).findings
    assert Status.NOT_PRELOADED is finding.status
    assert f"process {worker.pid} " in finding.message


def test_other_side_sees_what_the_process_sees(sites, launched):
    """From inside and from outside the answer is one and the same."""
    code = """
        import json, pyresolve, sys
        sys.stdout.write("ready")
        sys.stdout.flush()
        sys.stdin.read(1)
        print(json.dumps(pyresolve.audit().to_dict()), flush=True)
        sys.stdin.read()
    """
    worker = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=launched(sites[13].hook("_cu13")),
        cwd="/",
    )
    with worker.stdin, worker.stdout:
        assert b"ready" == worker.stdout.read(5)
        outside = audit(pid=worker.pid).to_dict()
        worker.stdin.write(b"x")
        worker.stdin.flush()
        assert outside == json.loads(worker.stdout.readline())
    worker.wait(timeout=20)


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1])
def test_no_such_process(pid):
    """A number that no process has."""
    with pytest.raises(PyresolveError, match=f"there is no process {pid}"):
        audit(pid=pid)


def test_process_that_has_ended():
    """Its pid is free."""
    ended = subprocess.Popen([require_tool("true")])
    ended.wait()
    with pytest.raises(PyresolveError, match=f"there is no process {ended.pid}"):
        audit(pid=ended.pid)


def test_zombie_is_not_called_unhooked():
    """A worker that has ended, and that nobody waited for, has no LD_PRELOAD to speak of."""
    zombie = subprocess.Popen([require_tool("true")])
    try:
        assert process.poll(lambda: not process.alive(zombie.pid))
        with pytest.raises(PyresolveError, match=str(zombie.pid)):
            audit(pid=zombie.pid)
    finally:
        zombie.wait()


def test_process_of_another_user():
    """Refused by the kernel: a sentence that says who may look."""
    code = """
        import json, os, sys
        import pyresolve, pyresolve._audit
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        try:
            pyresolve.audit(pid=int(sys.argv[1]))
        except pyresolve.PyresolveError as error:
            print(json.dumps([type(error).__name__, str(error)]))
    """
    theirs = os.getpid() if os.geteuid() == 0 else 1
    found = cold(code, str(theirs), env=environment())
    assert ["PyresolveError", f"process {theirs} may not be looked at"] == [
        found[0],
        found[1].partition(":")[0],
    ]


# --- what it leaves


def test_result_is_plain_data(sites, launched):
    """It goes through JSON and, as a worker would send it, through pickle."""
    found = audit()
    assert KEYS == set(found.to_dict())
    assert found.to_dict() == json.loads(json.dumps(found.to_dict()))
    assert found == pickle.loads(pickle.dumps(found))
    assert {"status", "message"} == set(found.to_dict()["findings"][0])
    assert (Verdict.FAIL, False) == (found.verdict, found.to_dict()["active"])


def test_audit_loads_nothing(sites, launched):
    """The process maps the same files after it, and has the same modules of others."""
    code = """
        import json, sys
        import pyresolve
        pyresolve.audit  # the module, which is loaded at its first use

        def mapped():
            lines = open("/proc/self/maps").read().splitlines()
            return sorted({line.split(maxsplit=5)[5] for line in lines if "/" in line})

        before, modules = mapped(), set(sys.modules)
        for pid in (None, int(sys.argv[1])):
            pyresolve.audit(pid=pid)
        new = sorted(name for name in set(sys.modules) - modules if "pyresolve" not in name)
        print(json.dumps([before, mapped(), new, "torch" in sys.modules]))
    """
    before, after, modules, torch = cold(
        code, str(os.getpid()), env=launched(sites[13].hook("_cu13"))
    )
    assert (before, False, []) == (after, torch, modules)


def test_audit_leaks_nothing(sites, launched):
    """Neither descriptors nor memory, whatever it finds."""
    with Worker(launched(sites[13].hook("_cu13"))) as worker:

        def many(times):
            for _ in range(times):
                audit()
                audit(pid=worker.pid)
                with pytest.raises(PyresolveError):
                    audit(pid=0)

        many(50)
        fds, size = process.open_fds(), process.rss_kib()
        many(300)
        assert fds == process.open_fds()
        assert process.rss_kib() - size < 1024


def test_audit_in_threads(sites, launched):
    """While other threads do the same, each gets the answer."""
    with Worker(launched(sites[13].hook("_cu13"))) as worker:
        expected = audit(pid=worker.pid), audit()
        found = []

        def repeat():
            found.extend((audit(pid=worker.pid), audit()) for _ in range(20))

        threads = [threading.Thread(target=repeat) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (160, {expected}) == (len(found), set(found))


def test_audit_needs_no_environment(sites, full_stub):
    """A process that was started with an empty environment."""
    code = "import json, pyresolve; print(json.dumps(pyresolve.audit().to_dict()))"
    done = run([require_tool("env"), "-i", sys.executable, "-c", code], env={})
    assert ["not_preloaded"] == statuses(json.loads(done.stdout))
