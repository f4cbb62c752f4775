"""What the Azure ML specs stand for, whole."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from launcher.cli import main
from launcher.schedulers.shipped import specs_folder
from launcher.symmetric.adopt import adopt
from launcher.symmetric.claim import Host
from rendezvous.door import own_command
from rendezvous.talk.join_string import parse_group_token
from tests.support.bed import Bed, join_text
from tests.support.vendor_specs import NAME, OPTIONS, UGLY, rendered, shipped, worker_run
from tests.support.vendors import AZURE, python_with

FOLDER = specs_folder() / "azureml"
SYMMETRIC = FOLDER / "symmetric.yaml"


def test_a_worker_runs_command_alone_holds_every_word_and_variable(tmp_path: Path) -> None:
    """What a worker run is, whole, stands in tests/launcher/data/specs/azureml.txt."""
    run = worker_run(["train.py", *UGLY], of="azureml", image=UGLY[1], passed=UGLY[:10])
    found = yaml.safe_load(rendered(tmp_path, run, "azureml"))
    variables = [f"VALUE_{number}={value}" for number, value in enumerate(UGLY[:10])]
    command = ["exec", "env", *variables, "rdzv", *OPTIONS, "train.py", *UGLY]
    assert shlex.split(found.pop("command")) == command
    plain = yaml.safe_load(rendered(tmp_path, worker_run(of="azureml"), "azureml"))
    del plain["command"]
    assert found == plain | {"environment": {"image": UGLY[1]}}
    assert found["environment_variables"] == {"RDZV_JOIN": join_text()}


def test_the_launchers_command_shows_what_it_would_submit(tmp_path: Path) -> None:
    (job,) = shipped("azureml/launcher.yaml")
    words = shlex.split(job["command"].partition("exec rdzv ")[2])
    argv = [words[0], "--dry-run=full", *words[1:]]
    argv = [word.replace("$AZUREML_RUN_ID", "mild_hat_1").replace("$PWD", "/code") for word in argv]
    shown = CliRunner().invoke(main, argv, env={"HOME": str(tmp_path)})
    assert shown.exit_code == 0, shown.output
    assert 'display_name: "mild_hat_1 slot 1"' in shown.stdout


def test_each_node_of_the_symmetric_job_adopts_its_place() -> None:
    (job,) = shipped("azureml/symmetric.yaml")
    assert job["distribution"] == {"type": "pytorch", "process_count_per_instance": 1}
    for rank in range(job["resources"]["instance_count"]):
        # As Azure ML sets them for such a distribution.
        environ = {"AZUREML_RUN_ID": "mild_hat_1", "MASTER_ADDR": "10.0.0.4"}
        environ |= {"MASTER_PORT": "6105", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}
        environ |= {"NODE_RANK": str(rank), "RANK": str(rank)}
        adopted = adopt(environ, {}, Host())
        assert {key: value.text for key, value in adopted.values.items()} == {
            "nnodes": "4",
            "node_rank": str(rank),
            "rdzv_id": "mild_hat_1",
            "master_addr": "10.0.0.4",
        }


def test_the_symmetric_jobs_first_line_puts_a_token_into_a_file_of_ones_own(tmp_path: Path) -> None:
    line = re.findall(r"^#     (.*)$", SYMMETRIC.read_text(), re.MULTILINE)[0]
    rdzv = shlex.join(own_command())
    (tmp_path / "rdzv").write_text(f'#!/bin/sh\nexec {rdzv} "$@"\n')
    (tmp_path / "rdzv").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    line = line.replace("symmetric.yaml", str(SYMMETRIC))
    line = line.replace("job1.yaml", str(tmp_path / "job1.yaml"))
    subprocess.run(["sh", "-ec", line], env=env, check=True)
    made = yaml.safe_load((tmp_path / "job1.yaml").read_text())
    assert len(parse_group_token(made["environment_variables"].pop("RDZV_TOKEN"))) == 32
    (expected,) = shipped("azureml/symmetric.yaml")
    del expected["environment_variables"]["RDZV_TOKEN"]
    assert made == expected
    assert (tmp_path / "job1.yaml").stat().st_mode & 0o777 == 0o600


async def test_no_command_of_azure_asks_or_tells_anybody(tmp_path: Path) -> None:
    bed = Bed("azureml", tmp_path)
    await bed.scheduler().submit(bed.run(), join_text())
    wanted = {
        "AZURE_CORE_ONLY_SHOW_ERRORS": "true",
        "AZURE_CORE_NO_COLOR": "true",
        "AZURE_CORE_COLLECT_TELEMETRY": "false",
        "AZURE_EXTENSION_USE_DYNAMIC_INSTALL": "no",
    }
    assert wanted.items() <= bed.calls()[0]["environ"].items()


# ---- loaded, validated and turned into requests by the official SDK, offline --------------------


LOAD = str(Path(__file__).parent / "load_jobs.py")


@pytest.fixture(scope="module")
def python() -> str:
    """A Python that has the SDK."""
    return python_with(AZURE)


def loaded(python: str, paths: Sequence[Path]) -> list[Any]:
    """The SDK's verdict on each file, and the request that it would send."""
    argv = [python, LOAD, *map(str, paths)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found: list[Any] = json.loads(done.stdout)
    return found


def request(command: str, code: str, image: str, **more: Any) -> dict[str, Any]:
    return {
        "jobType": "Command",
        "command": command,
        "codeId": code,
        "environmentId": image,
        "computeId": "gpu-cluster",
        "experimentName": "rdzv",
        "displayName": "llama slot 1",
        "properties": {},
        "isArchived": False,
        "inputs": {},
        "outputs": {},
        "tags": {"rdzv_launch": "12e4567890"},
        "environmentVariables": {"RDZV_JOIN": join_text()},
        "resources": {"instanceCount": 1, "shmSize": "16g", "properties": {}},
    } | more


@pytest.mark.schedulers
@pytest.mark.timeout(600)
def test_the_requests_hold_every_value_as_it_was(python: str, tmp_path: Path) -> None:
    code, spec = tmp_path / "code", tmp_path / "worker.yaml"
    code.mkdir()
    image = "registry.example:5000/team/image@sha256:00"
    words = ["train.py", *UGLY]
    run = worker_run(words, of="azureml", image=image, passed=UGLY, CODE=str(code))
    text = rendered(tmp_path, run, "azureml")
    spec.write_text(text, encoding="utf-8")
    paths = [FOLDER / "symmetric.yaml", FOLDER / "launcher.yaml", spec]
    symmetric, launcher, worker = loaded(python, paths)
    sent = request(yaml.safe_load(text)["command"], str(code), image)
    assert worker == {"faults": {}, "name": NAME, "sent": {"name": NAME, "properties": sent}}
    assert symmetric["faults"] == launcher["faults"] == {}
    assert symmetric["sent"]["properties"] == request(
        "exec rdzv launch --nproc-per-node 8 -- train.py --epochs 3",
        ".",
        "registry/image:tag",
        displayName="symmetric",
        tags={},
        environmentVariables={"RDZV_TOKEN": "GROUP-TOKEN"},
        resources={"instanceCount": 4, "shmSize": "16g", "properties": {}},
        distribution={"distributionType": "PyTorch", "processCountPerInstance": 1},
    )
    sent = launcher["sent"]["properties"]
    assert sent["command"].startswith("az login --identity --client-id ")
    assert "\n" not in sent["command"]
    assert sent["resources"]["instanceCount"] == 1
