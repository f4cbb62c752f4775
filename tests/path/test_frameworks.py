"""Frameworks through the whole path, with programs that need no framework: what each process gets,
which node is named, and where the port goes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.cluster import cluster
from tests.support.launching import launch, shell
from tests.support.netlab import Lab
from tests.support.waiting import until

pytestmark = pytest.mark.real_time

UNEVEN = ("--framework", "env", "--nnodes", "2", "--nproc-per-node", "2,1")


def test_env_starts_a_process_for_each_rank_of_all_nodes(tmp_path: Path) -> None:
    told = 'echo "$0 $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR"'
    outcome = launch(tmp_path, *UNEVEN, command=["sh", "-c", told, "gpu$LOCAL_RANK"])
    assert outcome.code == 0, outcome.err
    assert sorted(line.partition("] ")[2] for line in outcome.out.splitlines()) == [
        "gpu0 0/3 0/2 0 127.0.0.1",
        "gpu0 2/3 0/1 1 127.0.0.1",
        "gpu1 1/3 1/2 0 127.0.0.1",
    ]


def test_every_node_has_its_files_where_its_variables_say(tmp_path: Path) -> None:
    command = shell(
        'echo $RDZV_HOSTFILE; cat "$RDZV_HOSTFILE" "$RDZV_HOSTFILE_MPICH" "$RDZV_TABLE"'
    )
    options = ("--framework", "command", "--nnodes", "2", "--nproc-per-node", "2,1", "--no-prefix")
    outcome = launch(tmp_path, *options, command=command)
    assert outcome.code == 0, outcome.err
    hosts = "127.0.0.1 slots=2\n127.0.0.2 slots=1\n127.0.0.1:2\n127.0.0.2:1\n{\n"
    for rank in (0, 1):
        log = (tmp_path / "r" / "logs" / f"node-{rank}.log").read_text()
        folder = tmp_path / "r" / "logs" / f"node-{rank}"
        assert log.startswith(f"{folder}/hostfile\n{hosts}")
        table = json.loads((folder / "table.json").read_text())
        assert [node["address"] for node in table["nodes"]] == ["127.0.0.1", "127.0.0.2"]


def test_parameter_servers_end_when_the_program_of_node_0_has(tmp_path: Path) -> None:
    options = ("--framework", "tensorflow", "--tf-ps", "1", "--nnodes", "2", "--grace", "5")
    script = 'case $TF_CONFIG in *\\"ps\\",*) echo serving; exec sleep 600;; esac; echo trained'
    outcome = launch(tmp_path, *options, command=shell(script))
    assert outcome.code == 0, outcome.err
    assert "[0] trained" in outcome.out


@pytest.mark.netns
def test_a_port_that_is_taken_on_one_node_of_tensorflow_moves_all_nodes(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    hold = f"""
import pathlib, signal, socket
server = socket.create_server(("", 29500))
pathlib.Path({str(ready)!r}).touch()
signal.pause()
"""
    with Lab(2) as lab:
        lab.hosts[1].start([sys.executable, "-c", hold])
        until(ready.exists)
        options = ("--framework", "tensorflow")
        with cluster(lab, tmp_path, *options, command=shell("echo $TF_CONFIG")) as run:
            run.start_workers()
            outcome = run.finish()
            events = run.launched.events()
    assert outcome.code == 0, outcome.err
    refused = [str(event["reason"]) for event in events if event["kind"] == "arm_refused"]
    assert len(refused) == 1
    assert refused[0].startswith(f"node 1 ({lab.hosts[1].name}, slot 1) cannot start: master port")
    workers = [
        json.loads(log.read_text())["cluster"]["worker"]
        for log in run.folder.glob("h*/r/logs/node-*.log")
    ]
    assert workers == [[f"{host.address}:29501" for host in lab.hosts]] * 2
