"""What the Azure ML specs stand for, whole."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from launcher.cli import main
from launcher.symmetric.adopt import adopt
from launcher.symmetric.claim import Host
from rendezvous.isolated import isolated
from rendezvous.talk.join_string import parse_group_token
from tests.azureml.specs import FOLDER, NAME, OPTIONS, rendered, shipped, worker_run
from tests.support.bed import Bed, join_text
from tests.support.kubernetes_specs import UGLY

SCHEMA = "https://azuremlschemas.azureedge.net/latest/commandJob.schema.json"


@pytest.mark.parametrize("value", UGLY)
def test_a_worker_run_is_a_command_job_of_one_node_with_every_value_as_it_was(
    value: str, tmp_path: Path
) -> None:
    run = worker_run(["train.py", value], image=value, passed=[value])
    found = yaml.safe_load(rendered(tmp_path, run))
    command = ["exec", "env", f"VALUE_0={value}", "rdzv", *OPTIONS, "train.py", value]
    assert shlex.split(found.pop("command")) == command
    assert found == {
        "$schema": SCHEMA,
        "type": "command",
        "name": NAME,
        "display_name": "llama slot 1",
        "experiment_name": "rdzv",
        "tags": {"rdzv_launch": "12e4567890"},
        "code": "/code",
        "environment": {"image": value},
        "compute": "azureml:gpu-cluster",
        "environment_variables": {"RDZV_JOIN": join_text()},
        "resources": {"instance_count": 1, "shm_size": "16g"},
    }


def test_the_launchers_command_shows_what_it_would_submit(tmp_path: Path) -> None:
    words = shlex.split(shipped("launcher.yaml")["command"].partition("exec rdzv ")[2])
    argv = [words[0], "--dry-run", *words[1:]]
    argv = [word.replace("$AZUREML_RUN_ID", "mild_hat_1").replace("$PWD", "/code") for word in argv]
    shown = CliRunner().invoke(main, argv, env={"HOME": str(tmp_path)})
    assert shown.exit_code == 0, shown.output
    assert 'display_name: "mild_hat_1 slot 1"' in shown.stdout


def test_each_node_of_the_symmetric_job_adopts_its_place() -> None:
    job = shipped("symmetric.yaml")
    assert job["distribution"] == {"type": "pytorch", "process_count_per_instance": 1}
    for rank in range(job["resources"]["instance_count"]):
        # As Azure ML sets them for such a distribution.
        environ = {
            "AZUREML_RUN_ID": "mild_hat_1",
            "MASTER_ADDR": "10.0.0.4",
            "MASTER_PORT": "6105",
            "WORLD_SIZE": "4",
            "NODE_RANK": str(rank),
            "RANK": str(rank),
            "LOCAL_RANK": "0",
        }
        adopted = adopt(environ, {}, Host())
        assert {key: value.text for key, value in adopted.values.items()} == {
            "nnodes": "4",
            "node_rank": str(rank),
            "rdzv_id": "mild_hat_1",
            "master_addr": "10.0.0.4",
        }


def test_the_symmetric_jobs_first_line_puts_a_new_token_into_a_file_of_ones_own(
    tmp_path: Path,
) -> None:
    line = re.findall(r"^#     (.*)$", (FOLDER / "symmetric.yaml").read_text(), re.MULTILINE)[0]
    rdzv = shlex.join(isolated("rdzv_command"))
    (tmp_path / "rdzv").write_text(f'#!/bin/sh\nexec {rdzv} "$@"\n')
    (tmp_path / "rdzv").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    line = line.replace("symmetric.yaml", str(FOLDER / "symmetric.yaml"))
    line = line.replace("job1.yaml", str(tmp_path / "job1.yaml"))
    subprocess.run(["sh", "-ec", line], env=env, check=True)
    made = yaml.safe_load((tmp_path / "job1.yaml").read_text())
    assert len(parse_group_token(made["environment_variables"].pop("RDZV_TOKEN"))) == 32
    expected = shipped("symmetric.yaml")
    del expected["environment_variables"]["RDZV_TOKEN"]
    assert made == expected
    assert (tmp_path / "job1.yaml").stat().st_mode & 0o777 == 0o600


async def test_no_command_of_azure_asks_or_tells_anybody_and_what_has_ended_is_not_cancelled(
    tmp_path: Path,
) -> None:
    bed = Bed("azureml", tmp_path)
    scheduler = bed.scheduler()
    handle = await scheduler.submit(bed.run(), join_text())
    wanted = {
        "AZURE_CORE_ONLY_SHOW_ERRORS": "true",
        "AZURE_CORE_NO_COLOR": "true",
        "AZURE_CORE_COLLECT_TELEMETRY": "false",
        "AZURE_EXTENSION_USE_DYNAMIC_INSTALL": "no",
    }
    assert wanted.items() <= bed.calls()[0]["environ"].items()
    bed.turn("ended")
    await scheduler.cancel(bed.run(), handle, grace_seconds=0.0)
