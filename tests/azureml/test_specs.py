"""What the Azure ML specs stand for, whole."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import yaml
from click.testing import CliRunner

from launcher.cli import main
from launcher.schedulers.shipped import specs_folder
from launcher.symmetric.adopt import adopt
from launcher.symmetric.claim import Host
from rendezvous.isolated import isolated
from rendezvous.talk.join_string import parse_group_token
from tests.support.bed import Bed, join_text
from tests.support.vendor_specs import OPTIONS, UGLY, rendered, shipped, worker_run

SYMMETRIC = specs_folder() / "azureml" / "symmetric.yaml"


def test_a_worker_runs_command_holds_every_word_and_variable_and_no_other_place_does(
    tmp_path: Path,
) -> None:
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
    argv = [words[0], "--dry-run", *words[1:]]
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


def test_the_symmetric_jobs_first_line_puts_a_new_token_into_a_file_of_ones_own(
    tmp_path: Path,
) -> None:
    line = re.findall(r"^#     (.*)$", SYMMETRIC.read_text(), re.MULTILINE)[0]
    rdzv = shlex.join(isolated("rdzv_command"))
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
