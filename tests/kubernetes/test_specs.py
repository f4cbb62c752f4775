"""What the Kubernetes specs stand for, whole; and that every value arrives as it was given."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from launcher.cli import main
from launcher.plan.plan import Submission
from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import SchedulerContext
from launcher.schedulers.profile import ProfileScheduler
from launcher.symmetric.adopt import adopt
from launcher.symmetric.claim import Host, Value
from tests.support.bed import join_text
from tests.support.kubernetes_specs import UGLY, documents, shipped, worker_run

NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
DUMP = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"


OPTIONS = ["worker", "--nnodes", "4", "--nproc-per-node", "1", "--hosts", "off", "--"]


def rendered(folder: Path, run: Submission) -> list[Any]:
    made = scheduler_entry("kubernetes").make(SchedulerContext(folder, {}))
    assert isinstance(made, ProfileScheduler)
    return documents(made.render(run, join_text()))


@pytest.mark.parametrize("value", UGLY)
def test_every_value_is_only_where_it_belongs_and_as_it_was(value: str, tmp_path: Path) -> None:
    """What a plain worker run is, whole, stands in tests/launcher/data/specs/kubernetes.txt."""
    plain = rendered(tmp_path, worker_run(["train.py", "v"], image="v", passed=["v"]))
    found = rendered(tmp_path, worker_run(["train.py", value], image=value, passed=[value]))
    words = ["exec", "env", f"VALUE_0={value}", "rdzv", *OPTIONS, "train.py", value]
    assert shlex.split(found[0]["stringData"].pop("run.sh")) == words
    del plain[0]["stringData"]["run.sh"]
    plain[1]["spec"]["template"]["spec"]["containers"][0]["image"] = value
    assert found == plain
    assert found[0]["stringData"] == {"join": join_text()}


def test_the_script_hands_every_word_and_variable_on_as_it_was(tmp_path: Path) -> None:
    run = worker_run(["train.py", "--password=hush", *UGLY], passed=["hush", *UGLY])
    secret, job = rendered(tmp_path, run)
    program = tmp_path / "rdzv"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c {shlex.quote(DUMP)} "$@"\n')
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    argv = ["sh", "-c", secret["stringData"]["run.sh"]]
    said = subprocess.run(argv, env=env, check=True, capture_output=True, text=True).stdout
    command, environ = json.loads(said)
    assert command == [*OPTIONS, "train.py", "--password=hush", *UGLY]
    assert [environ[f"VALUE_{number}"] for number in range(len(UGLY) + 1)] == ["hush", *UGLY]
    # Nothing of the secret and of the user's words stands in the Job.
    assert join_text() not in json.dumps(job)
    assert "hush" not in json.dumps(job)


def test_the_greatest_names_are_names_to_kubernetes() -> None:
    for slot, generation in ((0, 1), (99_999, 101)):
        name = worker_run(slot=slot, generation=generation).name
        pod = f"{name}-x7k2p"
        assert NAME.fullmatch(pod)
        assert len(pod) <= 63


def test_the_launchers_role_lets_it_neither_read_secrets_nor_change_anything() -> None:
    account, role, binding, job = shipped("launcher.yaml")
    assert role["rules"] == [
        {
            "apiGroups": ["batch"],
            "resources": ["jobs"],
            "verbs": ["create", "get", "list", "delete"],
        },
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "delete"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    ]
    name = account["metadata"]["name"]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    assert binding["roleRef"] == reference
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name}]
    assert job["spec"]["template"]["spec"]["serviceAccountName"] == name


def test_the_launchers_command_shows_what_it_would_submit(tmp_path: Path) -> None:
    spec = shipped("launcher.yaml")[-1]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    words = [*container["command"][1:2], "--dry-run", *container["command"][2:]]
    shown = CliRunner().invoke(main, words, env={"HOME": str(tmp_path)})
    assert shown.exit_code == 0, shown.output
    made = [text for text in shown.stdout.split("\n") if text.startswith("kind: ")]
    assert made == ["kind: Secret", "kind: Job"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert f"--set=IMAGE={container['image']}" in container["command"]


def test_each_pod_of_the_symmetric_job_adopts_its_place() -> None:
    service, job = shipped("symmetric.yaml")
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
    _, job = shipped("symmetric.yaml")
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["backoffLimitPerIndex"] == 0
    assert "backoffLimit" not in spec
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize("name", ["launcher.yaml", "symmetric.yaml", "worker.yaml.tpl"])
def test_every_pod_has_shared_memory_and_a_grace_above_rdzvs_own(name: str, tmp_path: Path) -> None:
    made = rendered(tmp_path, worker_run()) if name.endswith(".tpl") else shipped(name)
    pods = [found["spec"]["template"]["spec"] for found in made if found["kind"] == "Job"]
    assert pods
    for pod in pods:
        assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in pod["volumes"]
        mounts = pod["containers"][0]["volumeMounts"]
        assert {"name": "shm", "mountPath": "/dev/shm"} in mounts
        assert pod["terminationGracePeriodSeconds"] > 12
