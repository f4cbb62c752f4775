"""Symmetric starts on the command line: what is adopted, refused and said, and `rdzv doctor`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from launcher.options import with_sources
from launcher.settings import LaunchSettings
from launcher.symmetric.platforms import ONE_TASK
from launcher.symmetric.start import address_in, settle, symmetric_join
from rendezvous.talk.credentials import new_secret
from rendezvous.talk.join_string import group_token_text
from rendezvous.wire.errors import ExitCode, UsageError
from tests.launcher.command import rdzv
from tests.support import environments as env
from worker.offer.join_request import look_ahead

pytestmark = pytest.mark.usefixtures("bare")

POD_0 = env.INDEXED_JOB | {"JOB_COMPLETION_INDEX": "0"}
TOKEN = group_token_text(new_secret())
TASKS = env.SRUN | {"SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": "8"}
TASKS |= {"SLURM_STEP_NODELIST": "gpu-c07", "SLURM_STEP_NUM_NODES": "1"}


def launch(*options: str, environ: dict[str, str], code: int = 0) -> list[str]:
    """What is said of a dry run: nothing is started, and no place is dialled."""
    result = rdzv("launch", "--dry-run=full", *options, "--", "train.py", env=environ)
    assert result.exit_code == code, result.output
    assert result.stdout.startswith("# slot 0") is (code == 0)
    return result.stderr.splitlines()


# ---- where Slurm's nodes are --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "address"),
    [
        ("NodeName=n0 Arch=x86_64 CPUTot=2 NodeAddr=10.3.0.3 NodeHostName=n0 Port=0", "10.3.0.3"),
        ("NodeName=n0 Arch=x86_64 \n   NodeAddr=fd00::3 NodeHostName=n0\n", "fd00::3"),
        ("NodeName=n0 NodeAddr=n0 NodeHostName=n0", ""),
        ("NodeName=n0 NodeAddr=(null) NodeHostName=n0", ""),
        ("Node n0 not found", ""),
        ("", ""),
    ],
)
def test_the_address_of_a_node_is_what_slurm_says_beyond_its_name(said: str, address: str) -> None:
    assert address_in(said, "n0") == address


@pytest.mark.parametrize(
    ("script", "where"),
    [
        (
            'test "$4" = gpu-c03 && echo "NodeName=$4 NodeAddr=10.3.0.3 x=$RDZV_TOKEN"',
            "10.3.0.3 (NodeAddr of gpu-c03)",
        ),
        ('echo "slurm_load_node error" >&2; exit 1', "gpu-c03"),
    ],
)
def test_slurm_is_asked_where_rank_0_is_and_its_name_comes_second(
    tmp_path: Path, script: str, where: str
) -> None:
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "scontrol").chmod(0o755)
    environ = env.SRUN | {"RDZV_TOKEN": TOKEN, "PATH": str(tmp_path)}
    assert launch(environ=environ)[0].startswith(f"rdzv: node 2 of 4, node 0 at {where}, run '")
    said: list[str] = []
    settings = settle(LaunchSettings(), environ, {}, say=said.append)
    addresses = ("10.3.0.3", "gpu-c03") if "10.3.0.3" in where else ("gpu-c03",)
    assert symmetric_join(settings, TOKEN).place.addresses == addresses
    given = environ | {"MASTER_ADDR": "10.9.9.9"}  # then Slurm is not asked
    assert "node 0 at 10.9.9.9, run" in launch(environ=given)[0]


# ---- with a token -------------------------------------------------------------------------------


def test_a_node_says_what_it_has_adopted() -> None:
    (words,) = launch(environ=env.SRUN | {"RDZV_TOKEN": TOKEN})
    by = "(by Slurm; see rdzv doctor --env)"
    assert words == f"rdzv: node 2 of 4, node 0 at gpu-c03, run 'slurm-418213-0' {by}"
    given = {"NUM_NODES": "4", "NODE_RANK": "2", "MASTER_ADDR": "gpu-c03", "RDZV_ID": "mine"}
    assert launch(environ=env.SRUN | given | {"RDZV_TOKEN": TOKEN}) == []
    environ = env.SRUN | {"RDZV_TOKEN": TOKEN, "NODE_RANK": "1", "RDZV_ID": "mine"}
    assert launch("--node-rank", "3", environ=environ) == [  # before the variable
        f"rdzv: node 3 of 4, node 0 at gpu-c03, run 'mine' {by}",
        "rdzv: the node's number is 3 (--node-rank), and Slurm says 2 (SLURM_NODEID)",
    ]


def test_of_the_nodes_that_a_platform_tells_the_spares_are_a_part() -> None:
    environ = env.SRUN | {"RDZV_TOKEN": TOKEN}
    result = rdzv("launch", "--dry-run=full", "--spares", "1", "--", "train.py", env=environ)
    assert "--nnodes 3" in result.stdout
    *_, message = launch("--spares", "4", environ=environ, code=64)
    assert message == "rdzv: --spares 4 leaves none of the 4 nodes (SLURM_STEP_NUM_NODES)"
    replace = ("--on-node-loss", "replace", "--standby", "1")
    result = rdzv("launch", "--dry-run=full", *replace, "--", "train.py", env=environ)
    assert "--nnodes 3" in result.stdout
    assert "# on the loss of a node: another one replaces it, up to 3 times; 1 s" in result.stdout
    *_, message, _ = launch("--spares", "1", environ=environ | {"NODE_RANK": "6"}, code=64)
    assert "NODE_RANK 6 is not in 0 to 4 (SLURM_STEP_NUM_NODES is 4, --spares 1)" in message


def test_a_file_gives_values_as_well(tmp_path: Path) -> None:
    (tmp_path / "rdzv.toml").write_text("nnodes = 2\n")
    environ = env.SRUN | {"RDZV_TOKEN": TOKEN, "RDZV_FILE": str(tmp_path / "rdzv.toml")}
    message, hint = launch(environ=environ, code=64)
    assert hint.strip() == "nodes are counted from 0"
    assert message == "rdzv: SLURM_NODEID 2 is not in 0 to 1 (--file is 2)"


# ---- without a token ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "options", "words"),
    [
        (env.SRUN, [], "this is node 2 of 4 (Slurm: SLURM_NODEID)"),
        (env.OPEN_MPI, ["--nnodes", "4"], "this is node 1 of 4 (Open MPI: OMPI_COMM_WORLD_RANK)"),
        (POD_0, ["--nnodes", "4"], "this is node 0 (Kubernetes Indexed Job: JOB_COMPL"),
        (env.PYTORCHJOB | {"RANK": "0"}, ["--nnodes", "3"], "this is node 0 of 3 (RANK and WORLD"),
        (env.AZUREML_PYTORCH | {"NODE_RANK": "0", "RANK": "0"}, [], "this is node 0 of 3 (Azure"),
        (TASKS, ["--nnodes", "4"], "srun starts several tasks on a node"),
        (env.AZUREML_PYTORCH, ["--scheduler", "manual"], "NODE_RANK is 2 but RDZV_TOKEN is not s"),
    ],
)
def test_one_of_several_nodes_does_not_run_the_whole_job_by_itself(
    environ: dict[str, str], options: list[str], words: str
) -> None:
    message, *hint = launch(*options, environ=environ, code=64)
    assert message.startswith(f"rdzv: {words}")
    assert "rdzv token new" in hint[0] or f" {ONE_TASK}rdzv launch " in hint[0]


@pytest.mark.parametrize(
    ("environ", "options"),
    [
        (env.SRUN, ["--nnodes", "1"]),
        (env.SRUN, ["--nnodes", "4", "--scheduler", "local"]),
        (env.SRUN, ["--nnodes", "4", "--scheduler", "manual"]),
        (env.SRUN | {"RDZV_SCHEDULER": "manual"}, ["--nnodes", "4"]),
        (env.SBATCH, ["--nnodes", "4"]),
        (env.SHELL, ["--nnodes", "4"]),
        (POD_0, ["--nnodes", "1"]),
        (env.AZUREML | {"AZUREML_NODE_COUNT": "1"}, ["--nnodes", "4"]),
        (env.SHELL | {"NODE_RANK": "0", "MASTER_ADDR": "10.0.0.4"}, ["--nnodes", "4"]),
    ],
)
def test_who_is_alone_or_knows_what_starts_the_others_may_launch(
    environ: dict[str, str], options: list[str]
) -> None:
    assert launch(*options, environ=environ) == []


# ---- doctor -------------------------------------------------------------------------------------


def test_the_doctor_shows_what_is_adopted_from_where() -> None:
    environ = env.SKYPILOT | {"RDZV_TOKEN": TOKEN, "RDZV_ID": "mine", "NUM_NODES": "4"}
    result = rdzv("doctor", "--env", env=environ)
    seen = "SKYPILOT_CLUSTER_INFO, SKYPILOT_NUM_GPUS_PER_NODE, SKYPILOT_NUM_NODES"
    assert result.stdout.splitlines() == [
        "platform   SkyPilot",
        "node       1         SKYPILOT_NODE_RANK",
        "nodes      4         NUM_NODES",
        "node 0     10.0.0.5  SKYPILOT_NODE_IPS (its first address)",
        "run        mine      RDZV_ID",
        "token      set       RDZV_TOKEN",
        "note       the number of nodes is 4 (NUM_NODES), and SkyPilot says 2 (SKYPILOT_NUM_NODES)",
        f"also set   RDZV_STATE_DIR, {seen}, SKYPILOT_TASK_ID",
        "ready      'rdzv launch' would be node 1 of 4",
    ]
    assert (result.stderr, result.exit_code) == ("", 0)


def test_the_doctor_says_what_is_missing_and_exits_with_1() -> None:
    result = rdzv("doctor", "--env", env=env.SBATCH)
    lines = result.stdout.splitlines()
    assert lines[0] == "platform   none: rdzv takes no values from it"
    assert [line.split()[-1] for line in lines[1:6]] == [*["missing"] * 4, "RDZV_TOKEN"]
    assert lines[-2].startswith("refused    a symmetric start (RDZV_TOKEN) needs NUM_NODES")
    assert lines[-1].strip().startswith("this is a Slurm job, but not inside srun")
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"RDZV_TOKEN": ""}, "RDZV_TOKEN is not set: 'rdzv launch' would not be a symmetric start"),
        ({"RDZV_TOKEN": "nonsense"}, "RDZV_TOKEN does not begin with"),
        (
            {"SLURM_JOB_ID": ""},
            "a symmetric start (RDZV_TOKEN) needs NUM_NODES (--nnodes) and NODE",
        ),
        ({"SLURM_LOCALID": "1"}, "srun starts several tasks on a node"),
        ({"RDZV_ID": "two words"}, "RDZV_ID 'two words': a run id has 1 to 63 letters"),
        ({"MASTER_ADDR": "https://h"}, "MASTER_ADDR is 'https://h', which is not a name or an"),
        ({"MASTER_ADDR": " "}, "MASTER_ADDR is empty"),
        ({"MASTER_ADDR": "h,a..b:29600"}, "MASTER_ADDR: 'a..b' has an empty label"),
        ({"NUM_NODES": "x"}, "NUM_NODES x: a size is N or MIN:MAX"),
    ],
)
def test_the_doctor_refuses_what_a_launch_would_refuse(changed: dict[str, str], words: str) -> None:
    environ = env.SRUN | {"RDZV_TOKEN": TOKEN} | changed
    result = rdzv("doctor", "--env", env=environ)
    assert f"refused    {words}" in result.stdout
    assert result.exit_code == 1
    launched = rdzv("launch", "--", "true", env=environ | {"RDZV_TOKEN": TOKEN, **changed})
    assert launched.exit_code == ExitCode.USAGE
    assert "nonsense" not in launched.stderr + result.stdout


def test_the_doctor_tells_it_as_json() -> None:
    environ = env.TRAINJOB | {"RDZV_TOKEN": TOKEN}
    result = rdzv("doctor", "--env", "--json", env=environ)
    assert json.loads(result.stdout) == {
        "ok": False,
        "platform": "Kubeflow",
        "values": {
            "nnodes": {"text": "4", "source": "PET_NNODES"},
            "node_rank": {"text": "3", "source": "PET_NODE_RANK"},
            "master_addr": {"text": "bert-node-0-0.bert", "source": "PET_MASTER_ADDR"},
        },
        "token": True,
        "missing": ["RDZV_ID (--rdzv-id)"],
        "problem": "a symmetric start (RDZV_TOKEN) needs RDZV_ID (--rdzv-id) on this node",
        "hint": "the platform has no job name here: set RDZV_ID to the same value on all nodes",
        "notes": [],
        "seen": [
            *("HOSTNAME", "JOB_COMPLETION_INDEX", "KUBERNETES_SERVICE_HOST", "PET_MASTER_PORT"),
            *("PET_NPROC_PER_NODE", "RDZV_STATE_DIR"),
        ],
    }
    assert result.exit_code == 1


@pytest.mark.parametrize("words", [["--env"], ["--env", "--json"], [], ["--json"]])
def test_the_doctor_shows_no_secret_and_moves_no_cursor(words: list[str]) -> None:
    odd = {"RDZV_TOKEN": TOKEN, "RDZV_JOIN": "rdzv1-secret", "SM_HPS": "hidden-value"}
    odd["MASTER_ADDR"] = "a\x1b[2Jb"
    output = rdzv("doctor", *words, env=env.SAGEMAKER | odd).output
    assert [
        word for word in (TOKEN, "rdzv1-secret", "hidden-value", "\x1b") if word in output
    ] == []


@pytest.mark.parametrize("source", ["GPUS_PER_NODE", ""])
def test_a_node_above_rank_0_knows_where_its_number_is_from(source: str) -> None:
    given = LaunchSettings(nproc_per_node="4096")
    given = with_sources(given, {"nproc_per_node": source}) if source else given
    with pytest.raises(UsageError) as caught:
        look_ahead(given.for_worker(), 1, ["true"], os.environ)
    assert f"on this node ({source or '--nproc-per-node'}), which" in caught.value.message
    assert "list of hosts" not in caught.value.hint
