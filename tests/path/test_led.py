"""A framework that starts on rank 0 alone: its launcher reaches the other nodes by their agents.

In place of Open MPI's, an mpirun that does the like: it reads the hostfile, calls the rsh agent for
every host but its own, and ends with the first code that is not 0. See tests/frameworks for mpirun
itself.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.launching import BIN, launch, launching
from tests.support.waiting import until

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]

LED = ("--nnodes", "3", "--framework", "openmpi")
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
    outcome = launch(tmp_path / "s", *LED, command=command, env=env)
    assert outcome.code == 0, outcome.err
    assert "run 'r' ok: the program of node 0, which led 3 nodes, ended" in outcome.last_line
    assert sorted((tmp_path / "told").read_text().split()) == ["0", "1", "2"]
    assert not list((tmp_path / "s" / "r" / "logs").glob("node-[12].log"))  # they have only served


def test_a_serving_node_that_is_told_to_end_ends_the_run_and_all_that_it_runs(
    tmp_path: Path, env: dict[str, str]
) -> None:
    script = f"'echo $$ > {tmp_path}/pid-$NODE_RANK; exec sleep 300'"
    command = ["mpirun", "sh", "-c", script]
    with launching(tmp_path / "s", *LED, command=command, env=env) as run:
        files = [tmp_path / f"pid-{rank}" for rank in range(3)]
        until(lambda: all(file.exists() and file.read_text().strip() for file in files))
        pids = [int(file.read_text()) for file in files]
        above = psutil.Process(pids[2]).parents()
        agent = next(process for process in above if "rdzv_command" in process.cmdline())
        agent.send_signal(signal.SIGTERM)
        outcome = run.finish()
    assert outcome.code == 143
    assert "slot 2) failed: its agent was told to end (SIGTERM)" in outcome.last_line
    until(lambda: not any(map(psutil.pid_exists, pids)))
