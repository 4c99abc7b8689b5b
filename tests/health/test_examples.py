"""The ready files under examples/: the programs that read them accept them, their commands run."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml
from support.command import COMMAND, environment, run
from support.compile import SOURCES, built
from support.debian import debian_tool, own_libraries
from support.layout import Site

from pyresolve import Mode
from pyresolve.health import config, metrics
from pyresolve.health.checks import Driver, Hook, Library, Torch

EXAMPLES = Path(__file__).parents[2] / "examples"
CONFIG = EXAMPLES / "health.toml"
PROBE = Path(sys.executable).with_name("pyresolve-probe")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the packages of a worker."""
    made = Site(tmp_path_factory.mktemp("worker") / "site-packages").tms().torch()
    made.cudart(13)
    return made


@pytest.fixture(scope="module")
def fit(site, full_stub):
    """Return the environment of a node on which all is well, with time for a busy machine."""
    nccl = built(SOURCES / "hollow.c", "libnccl.so.2", "-Wl,-soname,libnccl.so.2")
    places = [full_stub, nccl.parent, site.cudart_directory(13)]
    return {**environment(site, libraries=places), "PYRESOLVE_TIMEOUT": "20"}


@pytest.fixture(scope="module")
def unfit(site):
    """Return the environment of a node that lacks the driver and the library."""
    return {**environment(site), "PYRESOLVE_TIMEOUT": "20"}


def localized(words, site, metrics_directory="/nonexistent"):
    """Return a command of an example with the places of this machine."""
    places = {
        r"(/opt/pyresolve/bin/)?pyresolve": os.fspath(COMMAND),
        r"(/opt/pyresolve/bin/)?pyresolve-probe": os.fspath(PROBE),
        r"/etc/pyresolve/health\.toml": os.fspath(CONFIG),
        r"/opt/venv/lib/python[\d.]+/site-packages/(.*)": rf"{site.root}/\1",
        r"/var/lib/prometheus/node-exporter/(.*)": rf"{metrics_directory}/\1",
        r"0\.0\.0\.0:9464": "127.0.0.1:0",
    }
    command = []
    for word in map(str, words):
        found = [re.sub(rf"^{old}$", new, word) for old, new in places.items()]
        command.append(next((new for new in found if new != word), word))
    return command


def test_all_of_them_are_tested():
    """A new example comes with a test."""
    tested = {
        "health.toml",
        "kubernetes-pod.yaml",
        "node-problem-detector.json",
        "pyresolve-health.service",
        "pyresolve-health.timer",
        "grafana-panel.json",
        "slime_actor_group.py",  # by tests/ray
    }
    assert tested == {file.name for file in EXAMPLES.iterdir()}


# --- health.toml


def test_config():
    """It shows every key, with what it means."""
    assert config.Config(
        checks=(
            Hook(),
            Driver(required=True, cuda=12040),
            Torch(),
            Library(path="libnccl.so.2", mode=Mode.DLOPEN, name="nccl"),
        ),
        timeout=0.9,
        unknown_is="fail",
    ) == config.read(CONFIG)


def test_config_is_complete():
    """Each key that is known is in it, if only as a comment."""
    text = CONFIG.read_text()
    keys = {*config._TOP, *config._HOOK, *config._DRIVER, *config._LIBRARY}
    assert {key for key in keys if not re.search(rf"^(# )?\[*{key}\b", text, re.M)} == set()


def test_config_on_a_node(fit, unfit):
    """A fit node, and one that is not."""
    command = [COMMAND, "health", "--config", CONFIG]
    done = run(command, env=fit)
    assert (0, "OK 4 checks\n", "") == (done.returncode, done.stdout, done.stderr)
    done = run(command, env=unfit)
    assert (1, "FAIL no_driver (libcuda.so.1) and 2 more\n") == (done.returncode, done.stdout)


# --- kubernetes-pod.yaml


@pytest.fixture(scope="module")
def containers():
    """Return the containers of the pod by name."""
    (pod,) = yaml.safe_load_all((EXAMPLES / "kubernetes-pod.yaml").read_text())
    assert ("v1", "Pod") == (pod["apiVersion"], pod["kind"])
    return {container["name"]: container for container in pod["spec"]["containers"]}


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe"])
def test_pod_exec_probes(containers, site, fit, unfit, probe):
    """Status 0 on a fit node and no other; the kubelet waits longer than the command takes."""
    spec = containers["worker"][probe]
    command = localized(spec["exec"]["command"], site)
    assert 0 == run(command, env=fit).returncode
    assert 0 != run(command, env=unfit).returncode
    limits = re.findall(r"--timeout[ =]([\d.]+)", " ".join(spec["exec"]["command"]))
    assert float(limits[0]) < spec.get("timeoutSeconds", 1)


def test_pod_command(containers, site, fit):
    """The worker starts with the hook."""
    command = localized(containers["worker"]["command"], site)
    assert ["--", "python", "-m", "worker"] == command[-4:]
    done = run([*command[:-3], "sh", "-c", "echo $LD_PRELOAD"], env=fit)
    assert os.fspath(site.hook("_cu13")) in done.stdout


def test_pod_http_probes(containers, site, fit):
    """The sidecar answers them, and the scrape."""
    container = containers["health"]
    (port,) = container["ports"]
    command = localized(container["command"], site)
    with subprocess.Popen(command, env=fit, stderr=subprocess.PIPE, text=True, cwd="/") as server:
        try:
            url = server.stderr.readline().split()[-1]
            for probe in "livenessProbe", "readinessProbe":
                get = container[probe]["httpGet"]
                assert port["name"] == get["port"]
                with urllib.request.urlopen(url + get["path"].lstrip("/"), timeout=60) as answer:
                    assert 200 == answer.status
            with urllib.request.urlopen(f"{url}metrics", timeout=60) as answer:
                assert b'check="nccl"' in answer.read()
        finally:
            server.terminate()
    assert f"0.0.0.0:{port['containerPort']}" == container["command"][-1]


# --- node-problem-detector.json


@pytest.fixture(scope="module")
def detector():
    """Return the config of the custom plugin monitor."""
    return json.loads((EXAMPLES / "node-problem-detector.json").read_text())


def test_detector_schema(detector):
    """The keys are those of its custom_plugin_monitor.md."""
    assert {
        "plugin",
        "pluginConfig",
        "source",
        "metricsReporting",
        "conditions",
        "rules",
    } == detector.keys()
    assert {
        "invoke_interval",
        "timeout",
        "max_output_length",
        "concurrency",
        "enable_message_change_based_condition_update",
    } == detector["pluginConfig"].keys()
    conditions = {condition["type"] for condition in detector["conditions"]}
    assert all({"type", "reason", "message"} == c.keys() for c in detector["conditions"])
    for rule in detector["rules"]:
        permanent = rule["type"] == "permanent"
        own = {"condition"} if permanent else set()
        assert {"type", "reason", "path", "args", "timeout", *own} == rule.keys()
        assert rule.get("condition") in (conditions if permanent else {None})


@pytest.mark.parametrize("number", [0, 1])
def test_detector_rules(detector, site, fit, unfit, number):
    """0 where all is well, 1 where not, with one line that is not cut."""
    rule = detector["rules"][number]
    command = localized([rule["path"], *rule["args"]], site)
    assert 0 == run(command, env=fit).returncode
    done = run(command, env=unfit)
    assert (1, 1) == (done.returncode, done.stdout.count("\n"))
    assert len(done.stdout.strip()) <= detector["pluginConfig"]["max_output_length"]


# --- systemd


@pytest.fixture
def units(tmp_path, site):
    """Return copies of the units that start the command of this environment."""
    for name in "pyresolve-health.service", "pyresolve-health.timer":
        text = (EXAMPLES / name).read_text()
        start = f"ExecStart={shlex.quote(os.fspath(COMMAND))} "
        (tmp_path / name).write_text(text.replace("ExecStart=/opt/pyresolve/bin/pyresolve ", start))
    return tmp_path


def test_systemd_accepts_the_units(units):
    """Every key is known, every value valid, every program there."""
    program = debian_tool("systemd-analyze", "systemd", "libsystemd-shared")
    env = {**environment(), **own_libraries(program, "lib/*/systemd/libsystemd-shared-*.so")}
    names = [units / "pyresolve-health.service", units / "pyresolve-health.timer"]
    done = run([program, "verify", "--man=no", *names], env=env)
    ours = [line for line in done.stderr.splitlines() if "pyresolve-health" in line]
    assert (0, []) == (done.returncode, ours), done.stderr


def test_systemd_command(site, fit, unfit, tmp_path):
    """It writes the metrics on fit nodes and others, and ends with a status that is no failure."""
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read(EXAMPLES / "pyresolve-health.service")
    service = unit["Service"]
    allowed = {0, *map(int, service["SuccessExitStatus"].split())}
    command = localized(shlex.split(service["ExecStart"]), site, tmp_path)
    file = tmp_path / "pyresolve.prom"
    for env, verdict in (fit, "ok"), (unfit, "fail"):
        assert run(command, env=env).returncode in allowed
        found = f'pyresolve_health_verdict{{check="nccl",verdict="{verdict}"}} 1.0\n'
        assert found in file.read_text()
    assert service["ReadWritePaths"] == os.path.dirname(shlex.split(service["ExecStart"])[-1])


# --- grafana-panel.json


def test_panel(tmp_path):
    """Its query, evaluated by Prometheus, gives the values that the panel has words for."""
    panel = json.loads((EXAMPLES / "grafana-panel.json").read_text())
    (target,) = panel["targets"]
    (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
    known = set(re.findall(r"^# TYPE (\w+)", metrics.text([]), re.MULTILINE))
    assert known >= set(re.findall(r"pyresolve_\w+", target["expr"]))

    words = {"ok": 0, "unknown": 1, "fail": 2, "no news": 3}
    assert words == {option["text"]: int(key) for key, option in mapping["options"].items()}
    series, expected = [], []
    for check, value in words.items():
        labels = f'instance="n",check="{check}"'
        for verdict in "ok", "fail", "unknown":
            name = f'pyresolve_health_verdict{{{labels},verdict="{verdict}"}}'
            series.append({"series": name, "values": f"{int(check == verdict)}x10"})
        name = f"pyresolve_health_last_run_timestamp_seconds{{{labels}}}"
        series.append({"series": name, "values": "0x10" if value == 3 else "0+60x10"})
        expected.append({"labels": f"{{{labels}}}", "value": value})
    question = {"expr": target["expr"], "eval_time": "10m", "exp_samples": expected}
    case = {"interval": "1m", "input_series": series, "promql_expr_test": [question]}
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"tests": [case]}))
    promtool = debian_tool("promtool", "prometheus")
    done = run([promtool, "test", "rules", file], env=environment())
    assert 0 == done.returncode, done.stdout + done.stderr
