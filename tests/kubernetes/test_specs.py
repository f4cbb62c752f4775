"""What the Kubernetes specs stand for, whole; and that every value arrives as it was given."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from launcher.cli import main
from launcher.schedulers.shipped import specs_folder
from launcher.symmetric.adopt import adopt
from launcher.symmetric.claim import Host, Value
from tests.support.bed import join_text
from tests.support.vendor_specs import OPTIONS, UGLY, rendered, shipped, worker_run
from tests.support.vendors import KUBERNETES, python_with

NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
DUMP = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"


def test_a_pods_script_hands_every_word_and_variable_on_and_the_job_none(tmp_path: Path) -> None:
    """What a worker run is, whole, stands in tests/launcher/data/specs/kubernetes.txt."""
    run = worker_run(["train.py", "--password=hush", *UGLY], image=UGLY[1], passed=["hush", *UGLY])
    secret, job = yaml.safe_load_all(rendered(tmp_path, run))
    assert {*secret["stringData"]} == {"join", "run.sh"}
    assert secret["stringData"]["join"] == join_text()
    _, plain = yaml.safe_load_all(rendered(tmp_path, worker_run()))
    pod = job["spec"]["template"]["spec"]["containers"][0]
    plain["spec"]["template"]["spec"]["containers"][0]["image"] = UGLY[1]
    assert job == plain
    # Both files are where the Secret is mounted.
    (mount,) = (each["mountPath"] for each in pod["volumeMounts"] if each["name"] == "rdzv")
    assert pod["command"] == ["sh", f"{mount}/run.sh"]
    assert pod["env"] == [{"name": "RDZV_JOIN_FILE", "value": f"{mount}/join"}]
    program = tmp_path / "rdzv"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c {shlex.quote(DUMP)} "$@"\n')
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    argv = ["sh", "-c", secret["stringData"]["run.sh"]]
    said = subprocess.run(argv, env=env, check=True, capture_output=True, text=True).stdout
    command, environ = json.loads(said)
    assert command == [*OPTIONS, "train.py", "--password=hush", *UGLY]
    assert [environ[f"VALUE_{number}"] for number in range(len(UGLY) + 1)] == ["hush", *UGLY]


def test_a_pod_avoids_nodes_by_affinity_and_has_none_where_there_are_none(tmp_path: Path) -> None:
    _, job = yaml.safe_load_all(rendered(tmp_path, worker_run(avoid=["gpu-17", "no"])))
    _, plain = yaml.safe_load_all(rendered(tmp_path, worker_run()))
    affinity = job["spec"]["template"]["spec"].pop("affinity")
    assert job == plain
    match = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["gpu-17", "no"]}
    (required,) = affinity["nodeAffinity"].values()
    assert required == {"nodeSelectorTerms": [{"matchExpressions": [match]}]}


def test_the_greatest_names_are_names_to_kubernetes() -> None:
    pod = f"{worker_run(slot=99_999, generation=101).name}-x7k2p"
    assert NAME.fullmatch(pod)
    assert len(pod) <= 63


def test_the_launchers_role_lets_it_neither_read_secrets_nor_change_anything() -> None:
    account, role, binding, job = shipped("kubernetes/launcher.yaml")
    found = [(*rule["apiGroups"], *rule["resources"], *rule["verbs"]) for rule in role["rules"]]
    assert found == [
        ("batch", "jobs", "create", "get", "list", "delete"),
        ("", "secrets", "create", "delete"),
        ("", "pods", "list"),
        ("", "pods/log", "get"),
        ("", "events", "list"),
    ]
    name = account["metadata"]["name"]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    assert binding["roleRef"] == reference
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name}]
    assert job["spec"]["template"]["spec"]["serviceAccountName"] == name


def test_the_launchers_command_shows_what_it_would_submit(tmp_path: Path) -> None:
    spec = shipped("kubernetes/launcher.yaml")[-1]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    words = [*container["command"][1:2], "--dry-run=full", *container["command"][2:]]
    shown = CliRunner().invoke(main, words, env={"HOME": str(tmp_path)})
    assert shown.exit_code == 0, shown.output
    made = [text for text in shown.stdout.split("\n") if text.startswith("kind: ")]
    assert made == ["kind: Secret", "kind: Job"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert f"--set=IMAGE={container['image']}" in container["command"]


def test_each_pod_of_the_symmetric_job_adopts_its_place() -> None:
    service, job = shipped("kubernetes/symmetric.yaml")
    name, spec = job["metadata"]["name"], job["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert service["metadata"]["name"] == pod["subdomain"]
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}
    environ = {entry["name"]: entry["value"] for entry in container["env"]}
    assert spec["completions"] == spec["parallelism"] == int(environ["NUM_NODES"])
    given = {"nnodes": Value(environ["NUM_NODES"], "NUM_NODES")}
    for index in range(spec["completions"]):
        full = f"{name}-{index}.{pod['subdomain']}.default.svc.cluster.local"
        host = Host(
            f"{name}-{index}", f"127.0.0.1 localhost\n10.1.2.{index} {full} {name}-{index}\n"
        )
        adopted = adopt(environ | {"JOB_COMPLETION_INDEX": str(index)}, given, host)
        assert {key: value.text for key, value in adopted.values.items()} == {
            "nnodes": "4",
            "node_rank": str(index),
            "rdzv_id": name,
            "master_addr": f"{name}-0.{pod['subdomain']}.default.svc.cluster.local",
        }


def test_the_symmetric_job_is_ended_by_rdzv_and_not_by_kubernetes() -> None:
    _, job = shipped("kubernetes/symmetric.yaml")
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["backoffLimitPerIndex"] == 0
    assert "backoffLimit" not in spec
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize("name", ["kubernetes/launcher.yaml", "kubernetes/symmetric.yaml"])
def test_every_pod_has_shared_memory_and_a_grace_above_rdzvs_own(name: str) -> None:
    pod = shipped(name)[-1]["spec"]["template"]["spec"]
    assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in pod["volumes"]
    assert {"name": "shm", "mountPath": "/dev/shm"} in pod["containers"][0]["volumeMounts"]
    assert pod["terminationGracePeriodSeconds"] > 12


# ---- the published schemas: no key that they do not know ----------------------------------------


VERSIONS = ["1.27", "1.29", "1.31", "1.33", "1.35", "1.37"]
VENDORS = pytest.mark.schedulers
CHECK = str(Path(__file__).parent / "check_schema.py")
FOLDER = specs_folder() / "kubernetes"
STANDING = specs_folder() / "standing" / "kubernetes.yaml"
RUN = worker_run(UGLY, passed=UGLY)


@pytest.fixture(scope="module")
def python() -> str:
    """A Python that has the schemas."""
    return python_with(KUBERNETES)


def faults(python: str, manifest: str, versions: list[str]) -> list[str]:
    argv = [python, CHECK, *versions]
    done = subprocess.run(argv, input=manifest, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@VENDORS
def test_a_rendered_worker_run_fits_the_schemas(python: str, tmp_path: Path) -> None:
    assert faults(python, rendered(tmp_path, RUN), VERSIONS) == []


@VENDORS
def test_a_worker_run_that_avoids_nodes_fits_the_schemas(python: str, tmp_path: Path) -> None:
    assert faults(python, rendered(tmp_path, worker_run(avoid=["gpu-17", "no"])), VERSIONS) == []


@VENDORS
@pytest.mark.parametrize(
    ("name", "versions"), [("launcher.yaml", VERSIONS), ("symmetric.yaml", VERSIONS[1:])]
)
def test_a_shipped_manifest_fits_the_schemas(python: str, name: str, versions: list[str]) -> None:
    assert faults(python, (FOLDER / name).read_text(encoding="utf-8"), versions) == []


@VENDORS
def test_the_standing_registry_fits_the_schemas(python: str) -> None:
    assert faults(python, STANDING.read_text(encoding="utf-8"), VERSIONS) == []


@VENDORS
def test_the_schemas_do_find_faults(python: str, tmp_path: Path) -> None:
    wrong = rendered(tmp_path, RUN).replace("backoffLimit:", "backofLimit:", 1)
    (fault,) = faults(python, wrong, ["1.37"])
    assert "backofLimit" in fault
    # What the symmetric Job needs came with 1.28, and is on by itself since 1.29.
    text = (FOLDER / "symmetric.yaml").read_text(encoding="utf-8")
    (fault,) = faults(python, text, ["1.27"])
    assert "backoffLimitPerIndex" in fault
