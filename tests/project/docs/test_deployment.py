"""The files of docs/deploy: what they say to the worker is possible, and they are more patient than it is."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from configparser import ConfigParser
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from django.core.management import load_command_class

from django_pgqueue.conf import Options
from django_pgqueue.metrics.queue import STATES
from django_pgqueue.worker.supervise.supervisor import KILL_SECONDS
from tests.support.fixtures.workers import diary, environment, rows, session
from tests.support.pages import FOLDER, ROOT, blocks
from tests.support.site.tasks import count_queries

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.fixtures.workers import Session

__all__ = ["diary", "environment", "rows", "session"]

DEPLOY = ROOT / "docs" / "deploy"
FILES = sorted(DEPLOY.iterdir())


def text_of(name: str) -> str:
    return (DEPLOY / name).read_text()


def options(words: list[str]) -> Namespace:
    """Parse a command line as qworker does; a flag that it does not know ends the test."""
    program, manage, command, *flags = words
    assert (program.rpartition("/")[2], manage, command) == ("python", "manage.py", "qworker")
    return load_command_class("django_pgqueue", command).create_parser(manage, command).parse_args(flags)


@cache
def unit() -> ConfigParser:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text_of("shop-worker.service"))
    return parser


def instruction(name: str) -> Any:
    """The list that comes last in an instruction of the Dockerfile."""
    lines = text_of("Dockerfile").replace("\\\n", " ").splitlines()
    [line] = [line for line in lines if line.startswith(f"{name} ")]
    return json.loads(line[line.index("[") :])


def pod() -> Any:
    return yaml.safe_load(text_of("kubernetes.yaml"))["spec"]["template"]["spec"]


def container() -> Any:
    [found] = pod()["containers"]
    return found


def keda() -> tuple[Any, Any]:
    scaled, authentication = yaml.safe_load_all(text_of("keda.yaml"))
    return scaled, authentication


def compose() -> Any:
    return yaml.safe_load(text_of("compose.yaml"))["services"]["worker"]


def command_of(name: str) -> list[str]:
    """The worker's command line in a file that has one on a line."""
    [line] = [line for line in text_of(name).splitlines() if " qworker " in line]
    return shlex.split(line.removeprefix("worker: ").removesuffix(" &"))


WORKERS: dict[str, Callable[[], tuple[list[str], Any]]] = {
    "systemd": lambda: (shlex.split(unit()["Service"]["ExecStart"]), unit()["Service"]["TimeoutStopSec"]),
    "docker": lambda: (instruction("CMD"), compose()["stop_grace_period"]),
    "kubernetes": lambda: (container()["args"], pod()["terminationGracePeriodSeconds"]),
    "one container": lambda: (command_of("entrypoint.sh"), compose()["stop_grace_period"]),
}
HEROKU_SECONDS = 30


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_page_shows_the_file(path: Path) -> None:
    assert path.read_text() in [block.text for block in blocks(FOLDER / "operate" / "deployment.md")]


@pytest.mark.parametrize("kind", WORKERS)
def test_the_stop_timeout_is_longer_than_the_grace_of_a_worker(kind: str) -> None:
    words, patience = WORKERS[kind]()
    given = options(words).grace_seconds
    assert given == Options().grace_seconds
    assert float(str(patience).removesuffix("s")) >= given + KILL_SECONDS + 5


def test_the_procfile_waits_no_longer_than_heroku() -> None:
    assert options(command_of("Procfile")).grace_seconds + KILL_SECONDS + 5 <= HEROKU_SECONDS
    assert re.findall(r"^(\w+): ", text_of("Procfile"), re.MULTILINE) == ["release", "web", "worker"]


@pytest.mark.parametrize("kind", ["docker", "kubernetes"])
def test_health_and_metrics_are_reachable_from_outside(kind: str) -> None:
    given = options(WORKERS[kind]()[0])
    assert (given.metrics_host, given.metrics_port) == ("0.0.0.0", 9100)  # noqa: S104


def test_probes_use_the_port_of_the_worker() -> None:
    port = options(container()["args"]).metrics_port
    assert container()["ports"] == [{"name": "metrics", "containerPort": port}]
    asked = {name: container()[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")}
    assert asked == {
        "livenessProbe": {"path": "/healthz", "port": "metrics"},
        "readinessProbe": {"path": "/readyz", "port": "metrics"},
    }
    annotations = yaml.safe_load(text_of("kubernetes.yaml"))["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(port)
    assert f"http://127.0.0.1:{port}/healthz" in instruction("HEALTHCHECK")[-1]
    assert f"EXPOSE {port}\n" in text_of("Dockerfile")


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_check_of_an_image_asks_the_worker_and_no_proxy(status: int, code: int) -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        [_, *words] = instruction("HEALTHCHECK")
        words[-1] = words[-1].replace(":9100/", f":{server.server_port}/")
        environment = {**os.environ, "http_proxy": "http://127.0.0.1:1"}
        done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, check=False)
        server.shutdown()
    assert done.returncode == code, done.stderr


def test_labels_of_the_deployment_belong_together() -> None:
    spec = yaml.safe_load(text_of("kubernetes.yaml"))["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]


def test_a_process_that_the_kernel_kills_does_not_stop_the_unit() -> None:
    assert unit()["Service"]["OOMPolicy"] == "continue"


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze (Debian: apt install systemd)")
    there = tmp_path / "shop-worker.service"
    there.write_text(text_of("shop-worker.service").replace("/srv/shop/venv/bin/python", sys.executable))
    ended = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(there)], capture_output=True, text=True, check=False
    )
    ours = [line for line in ended.stderr.splitlines() if there.name in line]
    assert (ours, ended.returncode) == ([], 0), ended.stderr


def test_a_worker_has_no_right_that_it_does_not_need() -> None:
    service = unit()["Service"]
    assert service["CapabilityBoundingSet"] == ""
    assert (service["ProtectSystem"], service["NoNewPrivileges"]) == ("strict", "true")
    assert service["SystemCallFilter"] == "@system-service"
    assert pod()["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not pod()["automountServiceAccountToken"]
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert (compose()["read_only"], compose()["cap_drop"]) == (True, ["ALL"])
    # What may be written to.
    mounts = {mount["name"]: mount["mountPath"] for mount in container()["volumeMounts"]}
    assert [(mounts[volume["name"]], volume["emptyDir"]) for volume in pod()["volumes"]] == [("/tmp", {})]
    assert compose()["tmpfs"] == ["/tmp"]


def test_an_image_is_built_of_what_was_tested() -> None:
    text = text_of("Dockerfile")
    images = re.findall(r"FROM (\S+)", text)
    assert images == ["python:3.13-slim@sha256:…", "python:3.13-slim"]
    assert f"docker buildx imagetools inspect {images[1]}" in text, "how to find the digest"
    installs = re.findall(r"^RUN .*\binstall\b.*$", text, re.MULTILINE)
    assert installs
    assert all("--require-hashes" in line for line in installs)
    # pip refuses the hash of a folder: the queue comes as a wheel.
    assert text.index("COPY wheels wheels") < text.index(installs[0])


def test_a_worker_runs_on_a_read_only_file_system_without_capabilities(
    environment: dict[str, str], session: Session, tmp_path: Path
) -> None:
    """As the examples let it run: without /tmp even."""
    locked = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
    script = f'mount --make-rprivate / && mount -o remount,ro,bind / / && exec {" ".join(locked)} "$@"'
    inside = ["unshare", "--mount", "sh", "-ec", script, "sh"]
    probe = 'test -x /bin/sh && ! touch "$0" 2>/dev/null'
    if (
        any(shutil.which(name) is None for name in ("unshare", "setpriv"))
        or subprocess.run(
            [*inside, "sh", "-ec", probe, str(tmp_path / "file")], check=False, capture_output=True
        ).returncode
    ):
        pytest.skip("needs the right to make a mount namespace, and / as the file system of this folder")
    message_id = count_queries.enqueue().id
    command = [sys.executable, "-m", "tests.support.site.manage", "qworker", "--burst", "--processes", "1"]
    done = subprocess.run(
        [*inside, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    ended = session.rows("select status from pgqueue_attempt where message_id = %s", int(message_id))
    assert ended == [("succeeded",)], done.stderr


def test_alerts_and_dashboards_name_existing_metrics() -> None:
    page = (FOLDER / "operate" / "monitoring.md").read_text()
    known = set(re.findall(r"^\| `(pgqueue_\w+)`", page, re.MULTILINE))
    known |= {f"{name}_bucket" for name in known}
    [rules] = [block.text for block in blocks(FOLDER / "operate" / "monitoring.md") if "groups:" in block.text]
    [group] = yaml.safe_load(rules)["groups"]
    assert all({"alert", "expr", "annotations"} <= set(rule) for rule in group["rules"])
    assert "absent(pgqueue_up)" in group["rules"][0]["expr"], "a site that is down has no metrics at all"
    assert set(re.findall(r"pgqueue_\w+", page)) <= known


ANY = None
TARGET = {"apiVersion": ANY, "kind": ANY, "name": ANY}
META = {"name": ANY, "namespace": ANY, "labels": ANY, "annotations": ANY}
# Of kedacore/keda, apis/keda/v1alpha1 (scaledobject_types.go, scaledobject_triggers.go and
# triggerauthentication_types.go), and pkg/scalers/postgresql_scaler.go: the keys of a postgresql trigger are strings.
POSTGRESQL = (
    "targetQueryValue", "activationTargetQueryValue", "query", "host", "port", "userName", "dbName", "sslmode",
    "connectionFromEnv", "passwordFromEnv",
)  # fmt: skip
SCALED_OBJECT = {
    "apiVersion": ANY,
    "kind": ANY,
    "metadata": META,
    "spec": {
        **dict.fromkeys(("pollingInterval", "initialCooldownPeriod", "cooldownPeriod", "idleReplicaCount")),
        **dict.fromkeys(("minReplicaCount", "maxReplicaCount")),
        "scaleTargetRef": {**TARGET, "envSourceContainerName": ANY},
        "triggers": {
            **dict.fromkeys(("type", "name", "useCachedMetrics", "metricType")),
            "metadata": dict.fromkeys(POSTGRESQL),
            "authenticationRef": {"name": ANY, "kind": ANY},
        },
    },
}
AUTHENTICATION = {
    "apiVersion": ANY,
    "kind": ANY,
    "metadata": META,
    "spec": {"secretTargetRef": dict.fromkeys(("parameter", "name", "key"))},
}
PARAMETERS = {"connection", "host", "port", "userName", "dbName", "sslmode", "password"}
# Of Kubernetes: k8s.io/api/autoscaling/v2/types.go.
RULES = {
    **dict.fromkeys(("stabilizationWindowSeconds", "selectPolicy", "tolerance")),
    "policies": dict.fromkeys(("type", "value", "periodSeconds")),
}
AUTOSCALER = {
    "apiVersion": ANY,
    "kind": ANY,
    "metadata": META,
    "spec": {
        "scaleTargetRef": TARGET,
        "minReplicas": ANY,
        "maxReplicas": ANY,
        "metrics": {
            "type": ANY,
            "external": {
                "metric": {"name": ANY, "selector": {"matchLabels": ANY, "matchExpressions": ANY}},
                "target": dict.fromkeys(("type", "value", "averageValue", "averageUtilization")),
            },
        },
        "behavior": {"scaleUp": RULES, "scaleDown": RULES},
    },
}


def strange(given: Any, known: Any, path: str = "") -> list[str]:
    """The keys, however deep, that Kubernetes or KEDA does not know; the items of a list are alike."""
    if known is ANY:
        return []
    if isinstance(given, list):
        return [key for item in given for key in strange(item, known, path)]
    unknown = [f"{path}.{key}" for key in given if key not in known]
    return unknown + [
        key for name in given if name in known for key in strange(given[name], known[name], f"{path}.{name}")
    ]


def test_a_key_that_nobody_knows_is_found_however_deep() -> None:
    scaler = yaml.safe_load(text_of("hpa.yaml"))
    scaler["spec"]["behavior"]["scaleDown"]["window"] = scaler["spec"]["metrics"][0]["external"]["name"] = 1
    assert strange(scaler, AUTOSCALER) == [".spec.metrics.external.name", ".spec.behavior.scaleDown.window"]


def test_keda_understands_the_scaled_object() -> None:
    scaled, authentication = keda()
    assert strange(scaled, SCALED_OBJECT) == strange(authentication, AUTHENTICATION) == []
    assert (scaled["apiVersion"], scaled["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
    assert {type(value) for name, value in scaled["spec"].items() if name not in ("scaleTargetRef", "triggers")} == {
        int
    }
    assert scaled["spec"]["minReplicaCount"] < scaled["spec"]["maxReplicaCount"]
    deployment = yaml.safe_load(text_of("kubernetes.yaml"))
    assert scaled["spec"]["scaleTargetRef"] == {"name": deployment["metadata"]["name"]}, (
        "a Deployment, where no kind is"
    )
    [trigger] = scaled["spec"]["triggers"]
    assert trigger["type"] == "postgresql"
    assert {type(value) for value in trigger["metadata"].values()} == {str}
    assert float(trigger["metadata"]["targetQueryValue"]) == slots()
    assert (authentication["apiVersion"], authentication["kind"]) == ("keda.sh/v1alpha1", "TriggerAuthentication")
    assert trigger["authenticationRef"] == {"name": authentication["metadata"]["name"]}
    [secret] = authentication["spec"]["secretTargetRef"]
    assert secret["parameter"] in PARAMETERS


def test_the_query_of_keda_gives_one_number(environment: dict[str, str], session: Session) -> None:
    """A reader may ask it: tests/promises/security/test_roles.py."""
    query = keda()[0]["spec"]["triggers"][0]["metadata"]["query"]
    count_queries.enqueue()
    count_queries.using(queue_name="elsewhere").enqueue()
    assert session.rows(query) == [(1,)]
    session.rows("select * from pgqueue_message_dequeue(p_tasks => true, p_queues => '{default}')")
    assert session.rows(query) == [(1,)], "it runs, and its worker has to stay"


def slots() -> int:
    """The slots of a pod."""
    given = options(container()["args"])
    return int(given.processes * given.threads)


def test_kubernetes_understands_the_autoscaler() -> None:
    scaler = yaml.safe_load(text_of("hpa.yaml"))
    assert strange(scaler, AUTOSCALER) == []
    deployment = yaml.safe_load(text_of("kubernetes.yaml"))
    assert (scaler["apiVersion"], scaler["kind"]) == ("autoscaling/v2", "HorizontalPodAutoscaler")
    assert scaler["spec"]["scaleTargetRef"] == {
        "apiVersion": deployment["apiVersion"], "kind": deployment["kind"], "name": deployment["metadata"]["name"],
    }  # fmt: skip
    [metric] = scaler["spec"]["metrics"]
    assert metric["type"] == "External"
    external = metric["external"]
    assert external["target"] == {"type": "AverageValue", "averageValue": str(slots())}
    labels = external["metric"]["selector"]["matchLabels"]
    assert labels["state"] in STATES
    page = (FOLDER / "operate" / "monitoring.md").read_text()
    assert f"| `{external['metric']['name']}`" in page
