"""Kind 5 - Ray and clusters."""

from __future__ import annotations

import json
import pickle
import shlex
import shutil
from pathlib import Path

import pytest
from support.command import COMMAND, environment, pyresolve, run
from support.compile import built_text
from support.layout import PRELOAD_STEM, Site
from support.process import cold
from support.rogues import rogue
from support.tools import require_tool
from support.worker import WORKER

from pyresolve import (
    InterpreterError,
    LoadReport,
    Mode,
    NotCudaError,
    NotLoadableError,
    NoVariantError,
    OverrideError,
    ProbeError,
    PyresolveError,
    Status,
    UnrepresentablePathError,
    Verdict,
    check,
    pick,
)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Return the virtual environments of two nodes: the head's CUDA is 12, the worker's is 13."""
    made = {}
    for major in (12, 13):
        made[major] = Site.in_venv(tmp_path_factory.mktemp(f"node{major}") / "venv").cuda(major)
    return made


class Worker:
    """A worker as Ray starts it: bash -c "exec PY_EXECUTABLE …", in the environment it is given."""

    def __init__(self, environ, *py_executable, cwd="/"):
        words = shlex.join([*map(str, py_executable), "-c", WORKER])
        bash = require_tool("bash")
        # What bash itself has mapped goes to stderr: it is started with the variables as well.
        script = f'while read -r line; do echo "$line" >&2; done </proc/$$/maps; exec {words}'
        done = run([bash, "-c", script], env=environ, cwd=cwd)
        lines = done.stderr.splitlines()
        self.status = done.returncode
        self.bash = {line.split(maxsplit=5)[-1] for line in lines if "-" in line.split(" ")[0]}
        self.said = [line for line in lines if line.startswith(("ERROR", "pyresolve"))]
        answer = json.loads(done.stdout) if done.stdout else {"mapped": [], "environ": {}}
        self.mapped = {Path(path) for path in answer["mapped"]}
        self.environ = answer["environ"]

    def hooks(self):
        """Return the builds of the hook that the worker has mapped."""
        return {path for path in self.mapped if PRELOAD_STEM in path.name}

    def runtimes(self):
        """Return the libcudart files that the worker has mapped."""
        return {path for path in self.mapped if path.name.startswith("libcudart.so")}


def resolving(site):
    """Return the py_executable that resolves on the worker's own node."""
    return COMMAND, "exec", "--python", site.python, "--", site.python


def right(site, major):
    """Return what a worker of this node has mapped when all is right."""
    runtime = site.cudart_directory(major) / f"libcudart.so.{major}"
    return {site.hook(f"_cu{major}")}, {runtime}


# --- R54: one node's paths on another


REPORT_54 = ("RLinf/RLinf#876", "ray-project/ray#285", "ray-project/ray#2260")


@pytest.mark.report(*REPORT_54)
def test_r54_variables_of_the_head_on_a_node(nodes, full_stub, tmp_path):
    """The head's variables overwrite the node's by dict.update, and the worker runs unhooked."""
    node = environment(libraries=[full_stub])
    change = pick(python=nodes[12].python, environ=node).env(node)
    change = {k: v.replace(str(nodes[12].root), str(tmp_path / "gone")) for k, v in change.items()}
    sent = {**node, **change}

    naive = Worker(sent, nodes[13].python)
    assert (0, set()) == (naive.status, naive.hooks())
    assert any("cannot be preloaded" in line for line in naive.said)

    resolved = Worker(sent, *resolving(nodes[13]))
    assert (0, *right(nodes[13], 13)) == (resolved.status, resolved.hooks(), resolved.runtimes())
    kept = resolved.environ["LD_LIBRARY_PATH"].split(":")
    assert sent["LD_LIBRARY_PATH"].split(":") == kept[1:]


@pytest.mark.report(*REPORT_54)
def test_r54_variables_that_are_missing_on_a_node(nodes, full_stub):
    """What the launcher exported is not there on the other nodes: the hook does not load."""
    node = environment(libraries=[full_stub])
    for major, site in nodes.items():
        assert set() == Worker(node, site.python).hooks()
        worker = Worker(node, *resolving(site))
        assert (0, *right(site, major)) == (worker.status, worker.hooks(), worker.runtimes())


@pytest.mark.report(*REPORT_54)
def test_r54_environment_of_the_worker_is_the_base(nodes, full_stub, tmp_path):
    """A change that was made for the head's LD_LIBRARY_PATH loses what the node has there."""
    head = environment(libraries=[full_stub])
    local = tmp_path / "local"
    node = environment(libraries=[local, full_stub])
    choice = pick(python=nodes[13].python, environ=head)
    assert str(local) not in choice.env(head)["LD_LIBRARY_PATH"]
    change = choice.env(node)
    own = str(nodes[13].cudart_directory(13))
    assert [own, str(local), str(full_stub)] == change["LD_LIBRARY_PATH"].split(":")
    worker = Worker({**node, **change}, nodes[13].python)
    assert (0, *right(nodes[13], 13)) == (worker.status, worker.hooks(), worker.runtimes())


def test_like_r54_same_path_on_every_node(nodes, full_stub, tmp_path):
    """Each node has its environment at the same path, and in it another CUDA."""
    node = environment(libraries=[full_stub])
    path = tmp_path / "venv"
    for major, site in nodes.items():
        home = site.python.parent.parent
        path.unlink(missing_ok=True)
        path.symlink_to(home)
        here = Site(path / site.root.relative_to(home), path / "bin/python")
        worker = Worker(node, *resolving(here))
        # The link is this test's own: mapped are the files that it leads to.
        assert (0, *right(site, major)) == (worker.status, worker.hooks(), worker.runtimes())
        assert str(here.hook(f"_cu{major}")) == worker.environ["LD_PRELOAD"]


def test_like_r54_head_without_driver_and_with_a_cpu_torch(site, hidden_toolkit, says):
    """The head is a machine without GPU whose torch is a CPU build; the workers' is not."""
    site.tms().torch(None, version="2.9.1+cpu")
    code = """
        import json, pyresolve
        choice = pyresolve.pick()
        print(json.dumps([choice.verdict.name, choice.source.name, choice.warnings]))
    """
    verdict, source, warnings = cold(code, env=environment(site), prefix=hidden_toolkit)
    assert "OK" != verdict
    assert source in ("EXISTENCE", "LOADABILITY")
    [said] = [says(warning) for warning in warnings if "CPU build" in warning]
    assert f"torch 2.9.1+cpu in {site.root} is a CPU build" in said


def test_like_r54_node_without_the_package_ends_at_once(nodes, full_stub, tmp_path, says):
    """An actor on a node where the package was never installed does not hang: it says why."""
    bare = Site.in_venv(tmp_path / "venv")
    worker = Worker(environment(libraries=[full_stub]), *resolving(bare))
    assert (1, set()) == (worker.status, worker.hooks())
    [said] = worker.said
    assert "torch_memory_saver is not installed" in says(said)
    assert str(bare.root) in said
    assert "pip install torch_memory_saver" in said


def test_like_r54_choice_crosses_a_process_boundary(nodes, full_stub):
    """A Choice is pickled into a task, as Ray does with all that a task is given."""
    node = environment(libraries=[full_stub])
    choice = pick(python=nodes[13].python, environ=node)
    copy = pickle.loads(pickle.dumps(choice))
    assert (choice, choice.to_dict()) == (copy, copy.to_dict())
    assert choice.env(node) == copy.env(node)
    other = {**node, "LD_LIBRARY_PATH": f"/nowhere:{full_stub}"}
    assert choice.env(other) == copy.env(other)


ERRORS = {
    PyresolveError: {},
    ProbeError: {},
    NoVariantError: {"searched": (Path("/a"),), "major": 13, "remedy": "pip install"},
    NotLoadableError: {
        "report": LoadReport(
            path=Path("/a/hook.so"),
            mode=Mode.PRELOAD,
            verdict=Verdict.FAIL,
            status=Status.CRASHED,
            message="it crashed",
        )
    },
    NotCudaError: {"accelerator": "ROCm 6.2"},
    OverrideError: {"variable": "PYRESOLVE_CUDA", "value": "x"},
    UnrepresentablePathError: {"path": "/a b", "variable": "LD_PRELOAD"},
    InterpreterError: {"python": "/usr/bin/false"},
}


@pytest.mark.parametrize(("kind", "fields"), ERRORS.items(), ids=[kind.__name__ for kind in ERRORS])
def test_like_r54_error_crosses_a_process_boundary(kind, fields):
    """An error that a remote task raises is pickled, and has to come out the same."""
    error = kind("why", **fields)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(error), "why", vars(error)) == (type(copy), str(copy), vars(copy))


def test_like_r54_error_of_a_pools_worker_arrives(says):
    """The launcher asks a pool, and waits for ever for an error that never arrives."""
    code = """
        import json, multiprocessing, sys
        import pyresolve

        def worker(python):
            pyresolve.pick(python=python)

        with multiprocessing.get_context("fork").Pool(1) as pool:
            try:
                pool.apply_async(worker, [sys.argv[1]]).get(timeout=5)
            except Exception as error:
                print(json.dumps([type(error).__name__, str(error)]))
    """
    name, said = cold(code, "/nowhere/python", env=environment(), timeout=30)
    assert "InterpreterError" == name
    assert "/nowhere/python cannot be started" in says(said)


# --- R55: what else is preloaded


ALLOCATOR = """
    #include <stddef.h>

    void *__libc_malloc(size_t);
    static size_t calls;

    void *malloc(size_t size) {
        calls++;
        return __libc_malloc(size);
    }

    size_t tc_malloc_calls(void) {
        return calls;
    }
"""
REPORT_55 = (
    "ray-project/ray#39135",
    "ray-project/ray#39446",
    "ray-project/ray#47242",
    "antgroup/ant-ray#552",
)


@pytest.fixture
def allocator(tmp_path):
    """Return an allocator that is to be preloaded."""
    return Path(shutil.copy(built_text(ALLOCATOR, "tcmalloc.so"), tmp_path / "libtcmalloc.so.4"))


@pytest.mark.report(*REPORT_55)
def test_r55_allocator_is_kept_behind_the_hook(nodes, full_stub, allocator, tmp_path, says):
    """A user's tcmalloc vanishes from LD_PRELOAD; a directory in it makes noise in each worker."""
    directory = tmp_path / "lib"
    directory.mkdir()
    node = {
        **environment(libraries=[full_stub]),
        "LD_PRELOAD": f"{directory} {allocator}",
    }
    [noise] = Worker(node, nodes[13].python).said[:1]
    assert f"'{directory}' from LD_PRELOAD cannot be preloaded" in noise

    choice = pick(python=nodes[13].python, environ=node)
    change = choice.env(node)
    assert f"{choice}:{directory}:{allocator}" == change["LD_PRELOAD"]
    [warning] = choice.warnings
    assert f"{directory} is a directory" in says(warning)
    assert "LD_PRELOAD" in warning or "preload" in warning

    worker = Worker(node, *resolving(nodes[13]))
    assert (0, *right(nodes[13], 13)) == (worker.status, worker.hooks(), worker.runtimes())
    assert allocator in worker.mapped
    [said] = [line for line in worker.said if line.startswith("pyresolve")]
    assert f"{directory} is a directory" in says(said)


@pytest.mark.report(*REPORT_55)
def test_r55_hook_is_in_the_worker_alone(nodes, full_stub):
    """The hook gets into raylet, GCS and the shell around each worker, whose allocator it meets."""
    node = environment(libraries=[full_stub])
    change = pick(python=nodes[13].python, environ=node).env(node)
    everywhere = Worker({**node, **change}, nodes[13].python)
    alone = Worker(node, *resolving(nodes[13]))
    hook = str(nodes[13].hook("_cu13"))
    assert (True, False) == (hook in everywhere.bash, hook in alone.bash)
    assert everywhere.hooks() == alone.hooks() == {nodes[13].hook("_cu13")}


@pytest.mark.parametrize("token", ["$LIB", "${LIB}"])
def test_like_r55_preload_with_a_token_of_the_loader(nodes, full_stub, tmp_path, token):
    """A preload such as /opt/$LIB/libtool.so works, and is not taken for a missing file."""
    for name in ("lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"):
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        shutil.copy(rogue("good"), directory / "libtool.so")
    preload = f"{tmp_path}/{token}/libtool.so"
    node = {**environment(libraries=[full_stub]), "LD_PRELOAD": preload}
    assert [] == Worker(node, nodes[13].python).said
    choice = pick(python=nodes[13].python, environ=node)
    assert (f"{choice}:{preload}", ()) == (choice.env(node)["LD_PRELOAD"], choice.warnings)
    worker = Worker({**node, **choice.env(node)}, nodes[13].python)
    assert (0, [], 1) == (
        worker.status,
        worker.said,
        sum(path.name == "libtool.so" for path in worker.mapped),
    )


@pytest.mark.parametrize("preload", [":{0}", "{0}:", ":", " ", "::{0}::"])
def test_like_r55_colons_that_an_expansion_leaves(nodes, full_stub, preload):
    """`${LD_PRELOAD}:/x/hook.so` in env_vars, where LD_PRELOAD was not set."""
    other = rogue("good")
    node = {**environment(libraries=[full_stub]), "LD_PRELOAD": preload.format(other)}
    choice = pick(python=nodes[13].python, environ=node)
    behind = [str(other)] if "0" in preload else []
    assert ":".join([str(choice), *behind]) == choice.env(node)["LD_PRELOAD"]
    assert (Verdict.OK, ()) == (choice.verdict, choice.warnings)


def test_like_r55_relative_preload_in_another_working_directory(
    nodes, full_stub, allocator, tmp_path, says
):
    """A relative preload is right where the launcher stands, and not in the worker's directory."""
    elsewhere = tmp_path / "working_dir"
    elsewhere.mkdir()
    node = {**environment(libraries=[full_stub]), "LD_PRELOAD": f"./{allocator.name}"}
    here = Worker(node, *resolving(nodes[13]), cwd=tmp_path)
    assert (0, [], True) == (here.status, here.said, allocator in here.mapped)
    there = Worker(node, *resolving(nodes[13]), cwd=elsewhere)
    assert (0, False) == (there.status, allocator in there.mapped)
    assert {nodes[13].hook("_cu13")} == there.hooks()
    [warning] = [line for line in there.said if line.startswith("pyresolve")]
    assert f"{allocator.name} does not exist" in says(warning)


def test_like_r55_allocator_that_defines_the_hooks_symbols(nodes, full_stub, tmp_path):
    """A profiler in LD_PRELOAD defines cudaMalloc itself; behind the hook it takes nothing away."""
    profiler = tmp_path / "libprofiler.so"
    text = "int cudaMalloc(void **p) { (void)p; return 1; }"
    shutil.copy(built_text(text, "profiler.so"), profiler)
    node = {**environment(libraries=[full_stub]), "LD_PRELOAD": str(profiler)}
    choice = pick(python=nodes[13].python, environ=node)
    assert (Verdict.OK, f"{choice}:{profiler}") == (choice.verdict, choice.env(node)["LD_PRELOAD"])
    before = {**node, "LD_PRELOAD": f"{profiler}:{choice}"}
    after = {**before, **choice.env(before)}
    assert f"{choice}:{profiler}" == after["LD_PRELOAD"]


# --- R56: what is handed on


REPORT_56 = (
    "NVIDIA-NeMo/RL#309",
    "ray-project/ray#56697",
    "NeMo-Gym#2428",
    "ray-project/ray#62028",
    "agentcore-rl-toolkit#78",
)


@pytest.mark.report(*REPORT_56)
def test_r56_environment_that_is_hard_coded_for_one_cuda(nodes, full_stub):
    """py_executable gives the worker another venv, the launch script hard-codes CUDA 12 for all."""
    node = environment(libraries=[nodes[12].cudart_directory(12), full_stub])
    choice = pick(python=nodes[13].python, environ=node)
    change = choice.env(node)
    assert {"LD_PRELOAD", "LD_LIBRARY_PATH"} >= set(change)
    assert not {name for name in change if change[name] == node.get(name)}
    worker = Worker({**node, **change}, nodes[13].python)
    assert (0, *right(nodes[13], 13)) == (worker.status, worker.hooks(), worker.runtimes())
    assert (12, nodes[12].hook("_cu12")) == (
        (own := pick(python=nodes[12].python, environ=node)).cuda_major,
        own.path,
    )


@pytest.mark.report(*REPORT_56)
def test_r56_environment_is_not_written(nodes, full_stub):
    """A launcher that calls setenv beside threads that call getenv crashes them."""
    code = """
        import json, os, sys
        written = []
        names = "os.putenv", "os.unsetenv"
        sys.addaudithook(lambda name, args: written.append(name) if name in names else None)
        os.environ["CONTROL"] = "1"
        before = dict(os.environ)
        import pyresolve
        for python in sys.argv[1:]:
            choice = pyresolve.pick(python=python)
            choice.env()
            choice.env({**os.environ, "A": "B"}, pin="preload")
            pyresolve.check(choice, mode="preload")
            pyresolve.runtimes(python=python)
        pyresolve.driver(), pyresolve.audit()
        print(json.dumps([written, before == dict(os.environ)]))
    """
    env = environment(libraries=[full_stub])
    pythons = [nodes[major].python for major in nodes]
    assert [["os.putenv"], True] == cold(code, *pythons, env=env)


@pytest.mark.report(*REPORT_56)
def test_r56_only_what_changes_is_returned(nodes, full_stub):
    """Forwarding all of os.environ as runtime_env breaks the agent of the other node."""
    node = {
        **environment(libraries=[full_stub]),
        "RAY_ADDRESS": "10.0.0.1:6379",
        "PYTHONHASHSEED": "0",
        "CUDA_VISIBLE_DEVICES": "3",
    }
    choice = pick(python=nodes[13].python, environ=node)
    change = choice.env(node)
    assert ["LD_LIBRARY_PATH", "LD_PRELOAD"] == sorted(change)
    assert {} == choice.env({**node, **change})


def test_like_r56_name_of_the_interpreter_is_the_workers(nodes, full_stub):
    """`python` means what it means on the worker's PATH, not on the launcher's."""
    for major, site in nodes.items():
        node = environment(libraries=[full_stub])
        node["PATH"] = f"{site.python.parent}:{node['PATH']}"
        assert site.hook(f"_cu{major}") == pick(python="python", environ=node).path


def test_like_r56_py_executable_that_is_a_command_line(full_stub, says):
    """Ray's `py_executable="uv run python"` is no interpreter, but a command with arguments."""
    with pytest.raises(InterpreterError) as caught:
        pick(python="uv run python", environ=environment(libraries=[full_stub]))
    said = says(caught.value)
    assert "uv run python" in said
    assert "give the path of the workers' interpreter" in said


def test_like_r56_prefixes_of_the_head(nodes, full_stub):
    """VIRTUAL_ENV, CONDA_PREFIX and CUDA_HOME of the head are forwarded to a worker of its own."""
    head = nodes[12].python.parent.parent
    node = {
        **environment(libraries=[full_stub]),
        "VIRTUAL_ENV": str(head),
        "CONDA_PREFIX": str(head),
        "CUDA_HOME": str(nodes[12].cudart_directory(12).parent),
    }
    worker = Worker(node, *resolving(nodes[13]))
    assert (0, *right(nodes[13], 13)) == (worker.status, worker.hooks(), worker.runtimes())


def test_like_r56_override_of_the_head(nodes, full_stub, tmp_path, says):
    """PYRESOLVE_PRELOAD was set on the head and is forwarded to a node that has no such file."""
    path = tmp_path / "build.so"
    node = {**environment(libraries=[full_stub]), "PYRESOLVE_PRELOAD": str(path)}
    worker = Worker(node, *resolving(nodes[13]))
    assert (2, set()) == (worker.status, worker.hooks())
    [said] = worker.said
    assert f"{path}" in says(said)
    assert "PYRESOLVE_PRELOAD" in said


def test_like_r56_variable_that_no_process_can_be_given(nodes, full_stub, says):
    """One forwarded variable is larger than the kernel takes: nothing starts."""
    node = {**environment(libraries=[full_stub]), "RAY_JOB_CONFIG_JSON": "x" * 200_000}
    with pytest.raises(OSError, match="Argument list too long"):
        run([nodes[13].python, "-c", ""], env=node)
    for act in (
        lambda: pick(python=nodes[13].python, environ=node),
        lambda: check(nodes[13].hook("_cu13"), mode="preload", environ=node),
    ):
        with pytest.raises(ProbeError) as caught:
            act()
        assert "environment is larger than the kernel takes" in says(caught.value)
        assert "RAY_JOB_CONFIG_JSON" in str(caught.value)


def test_like_r56_two_commands_of_one_node_at_once(nodes, full_stub):
    """Each venv is resolved for by the command, in the variables of the other one."""
    for own, other in ((12, 13), (13, 12)):
        head = environment(libraries=[full_stub, nodes[own].cudart_directory(own)])
        done = pyresolve("pick", "--python", nodes[other].python, env=head)
        assert (0, f"{nodes[other].hook(f'_cu{other}')}\n") == (done.returncode, done.stdout)
