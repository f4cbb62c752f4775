"""The symmetric job's own command, on emulated nodes, with what Azure ML sets on each."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from rendezvous.talk.join_string import group_token_text
from tests.azureml.specs import shipped
from tests.support.launching import environment
from tests.support.netlab import Lab

pytestmark = [pytest.mark.schedulers, pytest.mark.netns, pytest.mark.timeout(120)]

LIMIT_SECONDS = 60.0
NOTE = (
    "import json, os, pathlib, socket, sys; "
    "pathlib.Path(sys.argv[1], os.environ['NODE_RANK'])"
    ".write_text(json.dumps([socket.gethostname(), os.environ['MASTER_ADDR']]))"
)


def test_the_symmetric_jobs_command_forms_a_run_on_its_nodes(tmp_path: Path) -> None:
    job = shipped("symmetric.yaml")
    program = shlex.join([sys.executable, "-c", NOTE, str(tmp_path)])
    command = job["command"].replace("train.py --epochs 3", program)
    command = command.replace("rdzv launch", "rdzv launch --framework command --hosts off")
    token = group_token_text(b"s" * 32)
    count = job["resources"]["instance_count"]
    with Lab(count) as lab:
        nodes = []
        for rank, host in enumerate(lab.hosts):
            # As the documentation of `distribution: pytorch` tells them.
            env = {
                "AZUREML_RUN_ID": "mild_hat_1",
                "MASTER_ADDR": lab.hosts[0].address,
                "MASTER_PORT": "6105",
                "WORLD_SIZE": str(count),
                "NODE_RANK": str(rank),
                "RANK": str(rank),
                "LOCAL_RANK": "0",
                "RDZV_TOKEN": token,
            }
            with (tmp_path / f"log-{rank}").open("w") as log:
                home = environment(tmp_path / f"state-{rank}", **env)
                nodes.append(host.start(["bash", "-c", command], env=home, stdout=log))
        codes = [node.wait(LIMIT_SECONDS) for node in nodes]
        first = lab.hosts[0].address
    assert codes == [0] * count, (tmp_path / "log-0").read_text()
    found = {str(rank): json.loads((tmp_path / str(rank)).read_text()) for rank in range(count)}
    assert found == {str(rank): [f"h{rank}", first] for rank in range(count)}
