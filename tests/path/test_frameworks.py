"""Frameworks through the whole path, with programs that need no framework: what each process gets,
which node is named, and where the port goes."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import psutil
import pytest

from launcher.processes import OWN_COMMAND
from tests.support.cluster import cluster
from tests.support.launching import BIN, launch, launching, shell
from tests.support.netlab import Lab
from tests.support.waiting import until

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]

UNEVEN = ("--framework", "env", "--nnodes", "2", "--nproc-per-node", "2,1")


def test_env_starts_a_process_for_each_rank_of_all_nodes_and_each_node_has_its_files(
    tmp_path: Path,
) -> None:
    told = 'echo "$0 $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR"'
    files = 'echo $RDZV_HOSTFILE; cat "$RDZV_HOSTFILE" "$RDZV_HOSTFILE_MPICH" "$RDZV_TABLE"'
    told += f'; [ $LOCAL_RANK != 0 ] || {{ {files}; }} > "{tmp_path}/$NODE_RANK"'
    outcome = launch(tmp_path, *UNEVEN, command=["sh", "-c", told, "gpu$LOCAL_RANK"])
    assert outcome.code == 0, outcome.err
    assert sorted(line.partition("] ")[2] for line in outcome.out.splitlines()) == [
        "gpu0 0/3 0/2 0 127.0.0.1",
        "gpu0 2/3 0/1 1 127.0.0.1",
        "gpu1 1/3 1/2 0 127.0.0.1",
    ]
    hosts = "127.0.0.1 slots=2\n127.0.0.2 slots=1\n127.0.0.1:2\n127.0.0.2:1\n{\n"
    for rank in (0, 1):
        said = (tmp_path / str(rank)).read_text()
        folder = tmp_path / "r" / "logs" / f"node-{rank}"
        assert said.startswith(f"{folder}/hostfile\n{hosts}")
        table = json.loads((folder / "table.json").read_text())
        assert [node["address"] for node in table["nodes"]] == ["127.0.0.1", "127.0.0.2"]


@pytest.mark.netns
@pytest.mark.nightly
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
    assert refused[0].startswith(f"node 1 ({lab.hosts[1].name}) cannot start: master port")
    workers = [
        json.loads(log.read_text())["cluster"]["worker"]
        for log in run.folder.glob("h*/r/logs/node-*.log")
    ]
    assert workers == [[f"{host.address}:29501" for host in lab.hosts]] * 2


# A framework that starts on rank 0 alone: its launcher reaches the other nodes by their agents.


LED = ("--framework", "openmpi", "--nnodes")
# In place of Open MPI's: it calls the rsh agent for every host but its own, and ends with the first
# code that is not 0. See tests/frameworks for mpirun itself.
MPIRUN = f"""\
#!{sys.executable}
import os, subprocess, sys
hosts = [line.split()[0] for line in open(os.environ["RDZV_HOSTFILE"])]
agent = os.environ["OMPI_MCA_plm_rsh_agent"]
words = " ".join(sys.argv[1:])
started = [subprocess.Popen([agent, host, words]) for host in hosts[1:]]
started.append(subprocess.Popen(["sh", "-c", words]))
sys.exit(next(filter(None, [process.wait() for process in started]), 0))
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The environment of a person who has this mpirun."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "mpirun").write_text(MPIRUN)
    (folder / "mpirun").chmod(0o755)
    return {"PATH": f"{folder}:{BIN}:/usr/bin:/bin"}


def test_the_program_of_rank_0_starts_the_others_and_its_end_is_the_runs(
    tmp_path: Path, env: dict[str, str]
) -> None:
    command = ["mpirun", "echo", "$NODE_RANK", ">>", str(tmp_path / "told")]
    outcome = launch(tmp_path / "s", *LED, "3", command=command, env=env)
    assert outcome.code == 0, outcome.err
    assert "run 'r' ok: the program of node 0, which led 3 nodes, ended" in outcome.last_line
    assert sorted((tmp_path / "told").read_text().split()) == ["0", "1", "2"]
    assert not list((tmp_path / "s" / "r" / "logs").glob("node-[12].log"))  # they have only served


def test_a_serving_node_that_is_told_to_end_ends_the_run_and_all_that_it_runs(
    tmp_path: Path, env: dict[str, str]
) -> None:
    script = f"'echo $$ > {tmp_path}/pid-$NODE_RANK; exec sleep 300'"
    command = ["mpirun", "sh", "-c", script]
    with launching(tmp_path / "s", *LED, "2", command=command, env=env) as run:
        files = [tmp_path / f"pid-{rank}" for rank in range(2)]
        until(lambda: all(file.exists() and file.read_text().strip() for file in files))
        pids = [int(file.read_text()) for file in files]
        above = psutil.Process(pids[1]).parents()
        agent = next(each for each in above if OWN_COMMAND[-1] in each.cmdline())
        agent.send_signal(signal.SIGTERM)
        outcome = run.finish()
    assert outcome.code == 143
    assert re.search(r"node 1 \(\S+\) failed: its agent received SIGTERM", outcome.last_line)
    until(lambda: not any(map(psutil.pid_exists, pids)))
