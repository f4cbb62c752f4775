"""What does not work is said before anything starts, or named when it breaks; nothing is left."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.environments import ENVIRONMENTS
from tests.frameworks.lab import EXAMPLES, JOBS, environment_of, launch, left_on, logs_of
from tests.support.cluster import cluster
from tests.support.netlab import Host, Lab

pytestmark = [pytest.mark.netns, pytest.mark.timeout(200)]


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Two hosts, at which nothing may be left."""
    with Lab(2, hosts_mode="debian") as made:
        yield made
        assert left_on(made) == []


@pytest.mark.frameworks("mpich")
@pytest.mark.parametrize(
    ("framework", "install"),
    [("torchrun", "pip install torch"), ("jax", "pip install jax")],
)
def test_a_framework_that_is_not_installed_is_named_with_what_installs_it(
    tmp_path: Path, framework: str, install: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('started')\n")
    with Lab(1, hosts_mode="debian") as lab:
        ended = launch(lab, tmp_path, "mpich", ("--framework", framework), (str(script),))
        assert left_on(lab) == []
    assert ended.code == 82, ended.told
    assert framework in ended.last_line
    assert install in ended.last_line
    assert "started" not in ended.logs


@pytest.mark.frameworks("torch")
def test_a_framework_that_is_missing_on_one_node_is_missed_there(lab: Lab, tmp_path: Path) -> None:
    env = environment_of(ENVIRONMENTS["torch"], tmp_path)
    without = environment_of(ENVIRONMENTS["mpich"], tmp_path)
    command = (str(EXAMPLES / "accelerate_digits.py"),)
    options = ("--framework", "accelerate", "--nproc-per-node", "2")
    with cluster(lab, tmp_path, *options, command=command, env=env) as run:
        run.workers[1] = run.start(1, ["sh", str(run.script(1))], **without)
        outcome = run.finish()
    assert outcome.code == 82, outcome.err
    assert "slot 1 (h1" in outcome.last_line
    assert "pip install accelerate" in outcome.last_line
    assert "RESULT" not in logs_of(run)


@pytest.mark.frameworks("torch")
def test_uneven_nodes_are_refused_where_the_framework_cannot_have_them(
    lab: Lab, tmp_path: Path
) -> None:
    options = ("--framework", "accelerate", "--nproc-per-node", "1,2")
    command = (str(EXAMPLES / "accelerate_digits.py"),)
    ended = launch(lab, tmp_path, "torch", options, command)
    assert ended.code == 2, ended.told
    assert "node 0 (slot 0) has 1 processes and node 1 (slot 1) has 2" in ended.told
    assert ended.results == []


# As nvidia-smi where its driver does not fit; accelerate calls it at its start, on CPUs as well.
FAILING_HELPER = """#!/bin/sh
touch "$CALLED"
sleep 0.3 & echo mismatch; exit 18
"""


@pytest.mark.frameworks("torch")
def test_a_helper_of_accelerate_that_fails_ends_no_run(lab: Lab, tmp_path: Path) -> None:
    helper = tmp_path / "helpers" / "nvidia-smi"
    helper.parent.mkdir()
    helper.write_text(FAILING_HELPER)
    helper.chmod(0o755)
    path = environment_of(ENVIRONMENTS["torch"], tmp_path)["PATH"]
    more = {"PATH": f"{helper.parent}:{path}", "CALLED": str(tmp_path / "called")}
    options = ("--framework", "accelerate", "--nproc-per-node", "2")
    command = (str(JOBS / "torch_sum.py"), "accelerate")
    ended = launch(lab, tmp_path, "torch", options, command, **more)
    assert (tmp_path / "called").exists()
    assert ended.code == 0, ended.told
    assert [result.rank for result in ended.results] == [0, 1, 2, 3]


def hold_port(host: Host, port: int) -> subprocess.Popen[str]:
    """A program on a host that listens at this port."""
    server = ["python3", "-u", "-m", "http.server", str(port)]
    process = host.start(server, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert "Serving" in process.stdout.readline()
    return process


@pytest.mark.frameworks("tensorflow")
def test_a_port_that_is_taken_on_one_node_is_given_up_by_all(lab: Lab, tmp_path: Path) -> None:
    env = environment_of(ENVIRONMENTS["tensorflow"], tmp_path)
    command = (str(EXAMPLES / "tensorflow_digits.py"),)
    with cluster(lab, tmp_path, "--framework", "tensorflow", command=command, env=env) as run:
        run.launched.wait_for("joined")
        port = run.launched.offered_master_port()
        with hold_port(lab.hosts[1], port) as holder:
            run.start_workers()
            outcome = run.finish()
            holder.kill()
    assert outcome.code == 0, outcome.err
    logs = logs_of(run)
    assert logs.count("RESULT framework=tensorflow") == 2, logs
    refused = [event for event in run.launched.events() if event["kind"] == "arm_refused"]
    assert [event["slot"] for event in refused] == [1]
    assert f"port {port} is taken by another program on this node" in str(refused[0]["reason"])
    tables = [tmp_path / f"h{n}" / "r" / "logs" / f"node-{n}" / "table.json" for n in (0, 1)]
    ports = {json.loads(table.read_text())["master_port"] for table in tables}
    assert len(ports) == 1
    assert ports != {port}
