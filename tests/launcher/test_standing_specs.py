"""The files of specs/standing: what they promise each other, rdzv and those who read them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from launcher.schedulers.shipped import specs_folder
from rendezvous.registry.membership import JUDGE_SECONDS
from rendezvous.registry.replica import DRAIN_SECONDS
from rendezvous.wire.run import DEFAULT_PORT
from tests.support.compose_servers import commands
from tests.support.launching import RDZV
from tests.support.missing import give_up
from tests.support.vendor_specs import shipped

UNIT = specs_folder() / "standing" / "rdzv-registry.service"


def stateful_set() -> tuple[Any, Any, Any]:
    """The Service, the disruption budget and the StatefulSet."""
    service, budget, replicas = shipped("standing/kubernetes.yaml")
    return service, budget, replicas


def test_the_pods_advertise_the_names_that_their_service_gives_them() -> None:
    service, budget, replicas = stateful_set()
    (container,) = replicas["spec"]["template"]["spec"]["containers"]
    name = service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert replicas["spec"]["serviceName"] == name
    assert f"--advertise=$(POD_NAME).{name}.$(NAMESPACE).svc" in container["command"]
    assert {"POD_NAME", "NAMESPACE"} <= {entry["name"] for entry in container["env"]}
    labels = replicas["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels
    assert budget["spec"]["selector"]["matchLabels"] == labels
    assert budget["spec"]["maxUnavailable"] == 1
    assert container["ports"] == [{"name": "registry", "containerPort": DEFAULT_PORT}]


def test_no_pod_is_started_again_since_the_database_is_away() -> None:
    (container,) = stateful_set()[2]["spec"]["template"]["spec"]["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_each_kind_of_start_leaves_time_to_give_the_runs_away() -> None:
    _, _, replicas = stateful_set()
    (compose,) = shipped("standing/docker-compose.yml")
    unit = re.search(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(encoding="utf-8"), re.M)
    assert unit is not None
    graces = [
        replicas["spec"]["template"]["spec"]["terminationGracePeriodSeconds"],
        int(compose["services"]["replica1"]["stop_grace_period"].removesuffix("s")),
        int(unit[1]),
    ]
    assert min(graces) > 2 * DRAIN_SECONDS
    assert replicas["spec"]["minReadySeconds"] > JUDGE_SECONDS


def test_the_page_says_of_a_lost_primary_what_the_file_of_compose_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "standing.md").read_text(encoding="utf-8")
    part = page.partition("### A lost primary")[2].partition("\n## ")[0]
    shown = re.findall(r"^\$ (docker compose .*?)(?:  .*)?$", part, re.M)
    assert shown == commands()
    assert [line.split()[2] for line in shown] == ["rm", "exec", "run", "up"]


def test_every_server_of_compose_may_become_the_primary_and_follow_it() -> None:
    (compose,) = shipped("standing/docker-compose.yml")
    script = (specs_folder() / "standing" / "postgres.sh").read_text(encoding="utf-8")
    assert "servers='db1 db2 db3'" in script
    assert "synchronous_standby_names='ANY 1 (db1, db2, db3)'" in script
    for name, role in (("db1", "primary"), ("db2", "standby"), ("db3", "standby")):
        assert compose["services"][name]["command"] == [role, name]


def test_the_unit_is_one_to_systemd(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        give_up("this test needs systemd-analyze: apt install systemd")
    text = UNIT.read_text(encoding="utf-8")
    assert "/opt/rdzv/command/rdzv" in text
    made = tmp_path / UNIT.name
    made.write_text(text.replace("/opt/rdzv/command/rdzv", RDZV), encoding="utf-8")
    argv = ["systemd-analyze", "verify", "--man=no", str(made)]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    made.write_text(text.replace("DynamicUser=", "DynamicUsr="), encoding="utf-8")
    done = subprocess.run(argv, capture_output=True, text=True)
    assert "DynamicUsr" in done.stderr


@pytest.mark.parametrize("name", ["docker-compose.yml", "kubernetes.yaml"])
def test_every_variable_of_ours_is_an_option_or_a_secret(name: str) -> None:
    text = json.dumps(shipped(f"standing/{name}"))
    known = {"RDZV_JOURNAL", "RDZV_ADVERTISE", "RDZV_TOKEN_FILE", "RDZV_STATE_DIR"}
    own = {"RDZV_HOST", "RDZV_IMAGE"} if name == "docker-compose.yml" else set()
    assert set(re.findall(r"\bRDZV_[A-Z_]+\b", text)) <= known | own
