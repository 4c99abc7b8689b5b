"""Kind 6 - What was not looked at passes for absent, or for right.

Whether torch calls the hook, what a process in another mount namespace has mapped, and where a
driver lies that the loader does not find.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import MODES, elfpatch
from support.command import COMMAND, environment, pyresolve
from support.compile import SOURCES, built, cc_text, hollow, workshop
from support.driver import full_stub
from support.layout import Site, fake_cudart
from support.process import cold
from support.tools import require_tool, require_unshare, unavailable

from pyresolve import NotLoadableError, PyresolveError, Status, Verdict, _audit, audit, check, pick
from pyresolve._disk import driver as _driver
from pyresolve.health.checks import DEFAULT, run as run_check


def c10_cuda(*flags, exported="c10_*"):
    """Return a libc10_cuda.so with a CUDA runtime linked into it, which exports these names."""
    script = workshop() / f"static-{exported.strip('*')}.map"
    script.write_text(f"{{ global: {exported}; local: *; }};\n")
    c10 = built(SOURCES / "c10.c", "libc10.so", "-Wl,-soname,libc10.so")
    return built(
        SOURCES / "c10_cuda.c",
        "libc10_cuda.so",
        *flags,
        c10,
        SOURCES / "cudart.c",
        "-DVERSION=13000",
        f"-Wl,--version-script={script}",
        "-Wl,-soname,libc10_cuda.so",
        "-Wl,-rpath,$ORIGIN",
    )


@pytest.fixture
def worker(site, monkeypatch):
    """Return the site of a GPU node for CUDA 13, and the environment of its workers."""
    site.cuda(13)
    monkeypatch.syspath_prepend(site.root)
    return site, environment(site, libraries=[site.cudart_directory(13), full_stub()])


def with_library(site, library):
    """Replace torch's CUDA library."""
    shutil.copy(library, site / "torch/lib/libc10_cuda.so")


@pytest.mark.report("zhuzilin/pytorch-malloc#2", "lupinemachines/lupine#88", "openucx/ucx#6038")
def test_n15_runtime_linked_statically(worker, says):
    """Torch has its own copy of cudart in it: preloaded and mapped, the hook is never called."""
    site, env = worker
    with_library(site, c10_cuda())
    hook, library = site.hook("_cu13"), site / "torch/lib/libc10_cuda.so"
    with pytest.raises(NotLoadableError) as raised:
        pick(environ=env)
    message = says(raised.value)
    assert Status.BYPASSED is raised.value.report.status
    assert f"torch does not call {hook}: {library} leaves none of" in message
    assert "cudaFree, cudaMalloc" in message

    done = pyresolve("doctor", "--json", env=env)
    found = json.loads(done.stdout)
    assert (1, "fail", message) == (done.returncode, found["verdict"], found["error"]["message"])
    assert "does not load here" not in done.stdout  # it does
    for command in (["env"], ["exec", "--", "true"]):
        done = pyresolve(*command, env=env)
        assert (1, "", True) == (done.returncode, done.stdout, message in done.stderr)
    health = run_check(DEFAULT[0], environ=env, timeout=10)
    assert ("bypassed", message) == (health.status, health.message)


def test_like_n15_runtime_that_torch_exports(worker, says):
    """Torch defines cudaMalloc itself, which one it calls is not seen."""
    site, env = worker
    with_library(site, c10_cuda(exported="*"))
    choice = pick(environ=env)
    assert (Verdict.UNKNOWN, Status.NOT_SEEN) == (choice.verdict, choice.report.status)
    assert "defines functions itself that the hook replaces" in says(choice.report.message)
    done = pyresolve("exec", "--", "true", env=env)
    assert (3, True) == (done.returncode, "not run" in done.stderr)


@pytest.mark.parametrize("damage", ["gone", "no symbols"])
def test_like_n15_library_that_cannot_be_read(worker, says, damage):
    """A torch of one piece, or one whose library tells no symbols: nothing was seen, so no OK."""
    site, env = worker
    library = site / "torch/lib/libc10_cuda.so"
    if damage == "gone":
        library.unlink()
    else:
        cc_text("static int a;", library, site.cudart_directory(13) / "libcudart.so.13")
    choice = pick(environ=env)
    assert (Verdict.UNKNOWN, Status.NOT_SEEN) == (choice.verdict, choice.report.status)
    assert f"whether torch calls {site.hook('_cu13')} was not seen" in says(choice.report.message)
    assert 3 == pyresolve("doctor", env=env).returncode


def test_like_n15_hook_for_another_function(worker, says):
    """The hook replaces what this torch does not call; what it calls goes to libcudart."""
    site, env = worker
    text = "int cudaMallocAsync(void **to) { return !to; }"
    cc_text(text, site.hook("_cu13"), site.cudart_directory(13) / "libcudart.so.13")
    with pytest.raises(NotLoadableError) as raised:
        pick(environ=env)
    message = says(raised.value)
    assert Status.BYPASSED is raised.value.report.status
    assert "(cudaMallocAsync) to the loader, only others of libcudart" in message


def test_like_n15_worker_whose_torch_is_one_file(worker, says):
    """A process that maps a torch, and none of its usual parts for CUDA, is no OK."""
    site, env = worker
    library = cc_text("int torch;", site / "torch/lib/libtorch_python.so")
    code = f"""
        import ctypes, json
        import pyresolve
        before = pyresolve.audit().to_dict()
        ctypes.CDLL({str(library)!r})
        print(json.dumps([before, pyresolve.audit().to_dict()]))
    """
    before, after = cold(code, env={**env, "LD_PRELOAD": str(site.hook("_cu13"))})
    assert ("ok", "unknown") == (before["verdict"], after["verdict"])
    assert "and none of libc10_cuda.so, libtorch_cuda.so" in says(after["findings"][0]["message"])


def test_like_n15_without_a_driver(worker, says, no_driver):
    """On a head node the files say the same: FAIL, and a warning instead of an error."""
    site, _ = worker
    with_library(site, c10_cuda())
    choice = pick(environ=environment(site, libraries=[site.cudart_directory(13)]))
    assert (Verdict.FAIL, Status.BYPASSED) == (choice.verdict, choice.report.status)
    assert "torch does not call" in says(choice.warnings[-1])


# --- a driver that the loader does not find


@pytest.fixture
def head(site, tmp_path, monkeypatch, no_driver):
    """Return a site whose host has no driver, and the environment of its workers."""
    site.cuda(13)
    monkeypatch.syspath_prepend(site.root)
    monkeypatch.setattr(_driver, "_ROOT", str(tmp_path))
    return site, environment(site, libraries=[site.cudart_directory(13)])


def unlinked_driver(directory, version="535.113.01"):
    """Install a driver library without the link by its SONAME."""
    directory.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(full_stub() / "libcuda.so.1", directory / f"libcuda.so.{version}"))


@pytest.mark.report("NVIDIA/nvidia-container-toolkit#128", "ollama/ollama#602")
@pytest.mark.parametrize("mode", MODES)
def test_n07_driver_without_its_link(head, tmp_path, says, mode):
    """libcuda.so.535.113.01 is there and nobody ran ldconfig: "this host lacks" the driver."""
    site, env = head
    library = unlinked_driver(tmp_path / "driver")
    env["LD_LIBRARY_PATH"] += f":{library.parent}"
    hook = site.hook("_cu13")
    report = check(hook, mode=mode, environ=env)
    assert (Status.NO_DRIVER, Verdict.UNKNOWN) == (report.status, report.verdict)
    message = says(report.message)
    assert f"{library} is one, to which no link libcuda.so.1 leads; run ldconfig, or" in message
    assert f"ln -sf {library.name} {library.parent}/libcuda.so.1" == report.remedy
    assert report.message == pick(environ=env).report.message
    health = run_check(DEFAULT[1], environ=env, timeout=10)
    assert ("no_driver", report.remedy) == (health.status, health.remedy)
    assert str(library) in says(health.message)

    subprocess.run(report.remedy, shell=True, check=True)
    assert Verdict.OK is check(hook, mode=mode, environ=env).verdict


def test_like_n07_drivers_of_two_versions(head, tmp_path, says):
    """Two are there, of which only that of the kernel's module works: none is said to be it."""
    site, env = head
    for version in ("535.113.01", "550.54.15"):
        library = unlinked_driver(tmp_path / "usr/lib64", version)
    report = check(site.hook("_cu13"), environ=env)
    message = says(report.message)
    assert (None, True) == (report.remedy, f"others: {library}" in message)
    assert "if it is of the kernel module's version" in message


def test_like_n07_link_that_an_upgrade_left(head, tmp_path, says):
    """The link is there, and leads to the driver before the last: the loader goes on."""
    site, env = head
    library = unlinked_driver(tmp_path / "driver")
    library.with_name("libcuda.so.1").symlink_to("libcuda.so.470.57.02")
    env["LD_LIBRARY_PATH"] += f":{library.parent}"
    report = check(site.hook("_cu13"), environ=env)
    assert (Status.NO_DRIVER, True) == (report.status, str(library) in says(report.message))
    subprocess.run(report.remedy, shell=True, check=True)
    assert Verdict.OK is check(site.hook("_cu13"), environ=env).verdict


@pytest.mark.parametrize("name", ["stubs", "compat"])
def test_like_n21_no_driver_of_a_toolkit(head, tmp_path, says, name):
    """What the toolkit brings to link against, or for older kernels, is never put on the path."""
    site, env = head
    shutil.copytree(full_stub(), tmp_path / "usr/lib/nvidia" / name)
    report = check(site.hook("_cu13"), environ=env)
    assert (Verdict.UNKNOWN, None) == (report.verdict, report.remedy)
    assert "put that into" not in says(report.message)
    final = {**env, **pick(environ=env).env(env)}
    assert str(tmp_path / "usr") not in final["LD_LIBRARY_PATH"]


def test_like_n07_out_of_reach_and_without_its_link(head, tmp_path, says):
    """What the container runtime mounts lies where nobody looks, and needs its link as well."""
    site, env = head
    library = unlinked_driver(tmp_path / "usr/local/nvidia/lib64")
    report = check(site.hook("_cu13"), environ=env)
    says(report.message)
    command = f"{report.remedy} && {COMMAND} check {site.hook('_cu13')}"
    assert (
        "OK"
        in subprocess.run(
            command, shell=True, check=True, env=env, capture_output=True, text=True
        ).stdout
    )
    assert library.with_name("libcuda.so.1").is_symlink()


def test_like_n07_other_library_without_its_link(site, tmp_path, clean_env, says):
    """A dependency lies there under its full version only: it need not be installed."""
    dependency = tmp_path / "lib" / "libdep.so.2.27.3"
    dependency.parent.mkdir()
    shutil.copy(hollow("libdep.so.2"), dependency)
    top = cc_text("int top;", tmp_path / "libtop.so", hollow("libdep.so.2"))
    report = check(top, environ={**clean_env, "LD_LIBRARY_PATH": str(dependency.parent)})
    assert Status.MISSING_DEPENDENCY is report.status
    link = dependency.with_name("libdep.so.2")
    assert (
        f"{dependency} is one, to which no link libdep.so.2 leads: ln -sf {dependency.name} {link}"
        in says(report.message)
    )


PLACES = [
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib64-nvidia",
    ".singularity.d/libs",
    "usr/lib/x86_64-linux-gnu/nvidia/tesla-470",
    "usr/lib/nvidia-384",
    "run/nvidia/driver/usr/lib/x86_64-linux-gnu",
]


@pytest.mark.report("NVIDIA/nvidia-docker#1399", "unslothai/unsloth#4930")
@pytest.mark.parametrize("place", PLACES)
def test_n21_driver_in_an_unusual_place(head, tmp_path, says, place):
    """Distributions, Colab and Apptainer put the driver where the loader may not look."""
    site, env = head
    directory = Path(shutil.copytree(full_stub(), tmp_path / place))
    report = check(site.hook("_cu13"), environ=env)
    assert (Verdict.UNKNOWN, True) == (report.verdict, str(directory) in says(report.message))
    assert f"export LD_LIBRARY_PATH=${{LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}}{directory}" == (
        report.remedy
    )
    choice = pick(environ=env)
    elements = choice.env(env)["LD_LIBRARY_PATH"].split(":")
    assert (Verdict.OK, True) == (choice.verdict, str(directory) in elements)


@pytest.mark.parametrize(
    ("evidence", "shown"),
    [
        ("dev/nvidia0", "dev/nvidia0"),
        ("dev/dxg", "dev/dxg"),
        ("proc/driver/nvidia/version", "proc/driver/nvidia/version"),
        ("usr/lib64/libnvidia-ml.so.1", "usr/lib64/libnvidia-ml.so.1"),
    ],
)
def test_like_n21_gpu_without_its_driver(head, tmp_path, says, evidence, shown):
    """A container that was started without the driver, on a host that has GPUs."""
    site, env = head
    file = tmp_path / evidence
    file.parent.mkdir(parents=True)
    file.write_text("")
    report = check(site.hook("_cu13"), environ=env)
    assert (Status.NO_DRIVER, None) == (report.status, report.remedy)
    message = says(report.message)
    assert f"although this looks like a GPU host ({tmp_path / shown})" in message
    assert "check on a GPU node" not in message


@pytest.mark.parametrize("damage", ["empty", "another machine's", "dangling"])
def test_like_n21_placeholder_in_such_a_place(head, tmp_path, says, damage):
    """A libcuda.so.1 that is none, where a driver might be: it is not named as the one."""
    site, env = head
    library = tmp_path / ".singularity.d/libs/libcuda.so.1"
    library.parent.mkdir(parents=True)
    if damage == "dangling":
        library.symlink_to("/nowhere/libcuda.so.1")
    elif damage == "empty":
        library.write_bytes(b"")
    else:
        changes = {elfpatch.MACHINE: elfpatch.FOREIGN_MACHINE}
        elfpatch.patch(full_stub() / "libcuda.so.1", library, changes)
    report = check(site.hook("_cu13"), environ=env)
    assert str(library.parent) not in says(report.message)
    assert Verdict.UNKNOWN is pick(environ=env).verdict


def test_like_n21_nothing_at_all(head, says):
    """What was not found is said not to be found, by whom, and never to be absent."""
    site, env = head
    message = says(check(site.hook("_cu13"), environ=env).message)
    assert message.endswith("which the loader does not find: check on a GPU node for a verdict")
    assert "lacks" not in message
    doctor = pyresolve("doctor", env=env).stdout
    assert "the loader does not find libcuda.so.1" in doctor


# --- a process that sees other files

INSIDE = """
    import ctypes, json, sys
    import pyresolve
    for path in sys.argv[1:]:
        ctypes.CDLL(path)
    sys.stdout.write("ready")
    sys.stdout.flush()
    sys.stdin.read(1)
    print(json.dumps(pyresolve.audit().to_dict()), flush=True)
    sys.stdin.read()
"""

# As a container runtime does: a file system that is there for this process only.
CONTAINER = """
set -e
mount -t tmpfs tmpfs "$1"
cp -a "$2/." "$1"
shift 2
exec "$@"
"""
# The same below another root directory.
CHANGED_ROOT = """
set -e
mkdir "$1/root"
mount --rbind / "$1/root"
mount -t tmpfs tmpfs "$1/root$1"
cp -a "$2/." "$1/root$1"
shift 2
exec chroot "$IMAGE/root" "$@"
"""


@contextlib.contextmanager
def container(image, source, preload, *opened, libraries=(), script=CONTAINER):
    """Start a worker which sees a copy of `source` as `image`; yield it and what it says."""
    variables = {**environment(libraries=libraries), "LD_PRELOAD": os.fspath(preload)}
    words = [f"{name}={value}" for name, value in variables.items()]
    command = [sys.executable, "-c", textwrap.dedent(INSIDE), *map(os.fspath, opened)]
    worker = subprocess.Popen(
        [
            *(require_unshare(), "-rm", require_tool("sh"), "-c", script, "container"),
            *(image, source, require_tool("env"), "-i", *words, *command),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**environment(), "IMAGE": os.fspath(image)},
        cwd="/",
    )

    def inside():
        worker.stdin.write(b"x")
        worker.stdin.flush()
        return json.loads(worker.stdout.readline())

    with worker:
        assert b"ready" == worker.stdout.read(5)
        yield worker.pid, inside


@pytest.fixture
def image(tmp_path):
    """Return a container's file system, in a directory that is empty for everybody else.

    In it are a sound site, and in `old` another runtime of the same major.
    """
    source = tmp_path / "source"
    site = Site(source / "site-packages").cuda(13)
    (source / "old").mkdir()
    shutil.copy(fake_cudart(13), source / "old")
    shutil.copytree(full_stub(), source / "driver")
    place = tmp_path / "image"
    place.mkdir()
    inside = place / "site-packages"
    return SimpleNamespace(
        place=place,
        source=source,
        site=site,
        hook=inside / site.hook("_cu13").name,
        library=inside / "torch/lib/libc10_cuda.so",
        runtime=inside / site.cudart_directory(13).relative_to(site.root) / "libcudart.so.13",
        old=place / "old",
        driver=place / "driver",
    )


def from_both_sides(image, *libraries, script=CONTAINER):
    """Return what is true of a worker in the image, as seen from outside and from inside."""
    places = [*libraries, image.driver]
    with container(
        image.place, image.source, image.hook, image.library, libraries=places, script=script
    ) as (pid, inside):
        outside = pyresolve("audit", "--pid", str(pid), "--json", env=environment())
        found = json.loads(outside.stdout)
        assert 1 == found.pop("schema")
        return found, inside()


@pytest.mark.parametrize("script", [CONTAINER, CHANGED_ROOT], ids=["mounts", "mounts and chroot"])
@pytest.mark.report("parca-dev/parca-agent#781", "bpftrace/bpftrace#4568")
def test_n16_process_in_another_mount_namespace(image, says, script):
    """The paths that a container's process maps are looked up outside, where they are not."""
    outside, inside = from_both_sides(image, image.old, script=script)
    assert outside == inside
    assert (["wrong_runtime"], "fail") == (
        [finding["status"] for finding in outside["findings"]],
        outside["verdict"],
    )
    message = says(outside["findings"][0]["message"])
    assert str(image.runtime) in message
    assert str(image.old / "libcudart.so.13") in message


def test_like_n16_sound_container(image):
    """A container in which all is right is OK from both sides."""
    outside, inside = from_both_sides(image, image.runtime.parent)
    assert (outside, "ok", str(image.runtime)) == (
        inside,
        outside["verdict"],
        outside["torch_runtime"],
    )


def test_like_n16_links_of_the_container(image, says):
    """A package manager's absolute links mean the container's files, not those of the host."""
    packages = image.site / "nvidia"
    packages.rename(image.source / "store")
    packages.symlink_to(image.place / "store")
    outside, inside = from_both_sides(image, image.old)
    assert outside == inside
    assert ["wrong_runtime"] == [finding["status"] for finding in outside["findings"]]
    real = image.place / "store" / image.runtime.relative_to(image.place / "site-packages/nvidia")
    assert str(real) == outside["torch_runtime"]
    says(outside["findings"][0]["message"])


def test_like_n16_torch_of_the_container(image, says):
    """Whether torch calls the hook is read off the container's torch."""
    with_library(image.site, c10_cuda())
    outside, inside = from_both_sides(image, image.runtime.parent)
    assert outside == inside
    assert ["bypassed"] == [finding["status"] for finding in outside["findings"]]
    assert "torch does not call" in says(outside["findings"][0]["message"])


def test_like_n16_hook_that_is_not_in_the_container(image, says):
    """It is there for the launcher, and not in the container, whose the reason is."""
    outside = image.source / "elsewhere.so"
    shutil.copy(image.site.hook("_cu13"), outside)
    hook = image.place.parent / "hooks" / image.hook.name
    hook.parent.mkdir()
    shutil.copy(outside, hook)
    script = f'mount -t tmpfs tmpfs "{hook.parent}"; {CONTAINER}'
    with container(image.place, image.source, hook, script=script) as (pid, inside):
        found = audit(pid=pid).to_dict()
        assert inside() == found
    assert (["ignored"], True) == (
        [finding["status"] for finding in found["findings"]],
        f"{hook} does not exist" in says(found["findings"][0]["message"]),
    )


# --- a process that /proc does not show

HIDDEN = """
    import json, os, subprocess, sys
    import pyresolve, pyresolve._audit
    how, user = sys.argv[1:]
    with subprocess.Popen(["sleep", "60"]) as child:
        subprocess.run(["mount", *how.split(), "/proc"], check=True)
        if user:
            os.setgroups([])
            os.setgid(int(user))
            os.setuid(int(user))
        said = []
        for pid in (child.pid, 2**22 + 1):
            try:
                pyresolve.audit(pid=pid)
            except pyresolve.PyresolveError as error:
                said.append(str(error))
        print(json.dumps(said))
        sys.stdout.flush()
        os.closerange(0, 3)
        if user:
            os._exit(0)  # it may not even kill its child, which ends with its namespace
        child.kill()
"""


@pytest.mark.parametrize("how", ["hidepid", "another /proc"])
def test_n22_process_of_another_user(says, how):
    """With hidepid=2 a process of another user is not in /proc: it runs all the same."""
    unshare, options = require_unshare(), ["-rm"]
    arguments = ["-t tmpfs tmpfs", ""]
    if how == "hidepid":
        if os.geteuid() != 0:
            unavailable("only root can be two users")
        options, arguments = ["-mpf", "--kill-child"], ["-t proc -o hidepid=2 proc", "65534"]
    hidden, gone = cold(HIDDEN, *arguments, prefix=[unshare, *options])
    assert "runs, but /proc does not show it (hidepid)" in says(hidden)
    assert says(gone).startswith("there is no process")


@pytest.mark.parametrize("reaped", [True, False])
def test_like_n22_process_that_ends_meanwhile(worker, monkeypatch, says, reaped):
    """It ends while its files are looked up, which are not there then: that is no OK."""
    site, env = worker
    code = """
        import ctypes, sys
        ctypes.CDLL(sys.argv[1])
        sys.stdout.write("ready")
        sys.stdout.flush()
        sys.stdin.read()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), site / "torch/lib/libc10_cuda.so"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**env, "LD_PRELOAD": str(site.hook("_cu13"))},
    )
    read = _audit._read

    def read_and_kill(pid):
        found = read(pid)
        process.kill()
        os.waitid(os.P_PID, pid, os.WEXITED | (0 if reaped else os.WNOWAIT))
        return found

    with process.stdin, process.stdout:
        assert b"ready" == process.stdout.read(5)
        assert audit(pid=process.pid).verdict is Verdict.OK
        monkeypatch.setattr(_audit, "_read", read_and_kill)
        with pytest.raises(PyresolveError, match=f"no process {process.pid}") as raised:
            audit(pid=process.pid)
    process.wait()
    says(raised.value)


@pytest.mark.parametrize("preload", ["./{name}", "lib/../{name}"])
def test_like_n16_preload_from_some_directory(worker, monkeypatch, tmp_path, says, preload):
    """A relative preload is another file in each directory, that of the audit above all."""
    site, env = worker
    name = site.hook("_cu13").name
    (site.root / "lib").mkdir()
    command = [require_tool("cat")]
    preload = preload.format(name=name)
    (tmp_path / "lib").mkdir()
    (tmp_path / name).write_text("another file")  # where the audit is made
    monkeypatch.chdir(tmp_path)
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**env, "LD_PRELOAD": preload},
        cwd=site.root,
    )
    with process.stdin, process.stdout:
        process.stdin.write(b"?")
        process.stdin.flush()
        assert b"?" == process.stdout.read(1)
        found = audit(pid=process.pid)
    process.wait()
    assert (site.hook("_cu13"), Verdict.UNKNOWN) == (found.hook, found.verdict)
    assert "write it in full" in says(found.findings[0].message)


def test_like_n22_directory_that_may_not_be_searched(worker, tmp_path, says):
    """Another user's container: its environment may be read, and its files may not."""
    if os.geteuid() != 0:
        unavailable("only root can be two users")
    site, env = worker
    link = tmp_path / "linked.so"  # by another name, so that files have to be looked at
    link.symlink_to(site.hook("_cu13"))
    code = """
        import ctypes, os, sys
        ctypes.CDLL(sys.argv[1])
        os.chroot(sys.argv[2])
        os.setgid(65534)
        os.setuid(65534)
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: as after an exec
        sys.stdout.write("ready")
        sys.stdout.flush()
        sys.stdin.read()
    """
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", textwrap.dedent(code)),
            *(site / "torch/lib/libc10_cuda.so", root),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**env, "LD_PRELOAD": str(link), "PYRESOLVE_PRELOAD": str(link)},
    )
    outside = """
        import json, os, sys
        import pyresolve, pyresolve._audit
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        print(json.dumps(pyresolve.audit(pid=int(sys.argv[1])).to_dict()))
    """
    with process.stdin, process.stdout:
        assert b"ready" == process.stdout.read(5)
        found = cold(outside, str(process.pid), env=environment())
    process.wait(timeout=20)
    assert ("unknown", ["not_seen"]) == (
        found["verdict"],
        [finding["status"] for finding in found["findings"]],
    )
    assert "root may not be looked into" in says(found["findings"][0]["message"])
