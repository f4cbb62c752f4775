"""What a launcher around rdzv has numbered its own tasks with, no rank sees, for any framework."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.worker.test_contracts import contract, table
from tests.worker.test_frameworks import PATHS
from worker.agent.begun import Begun
from worker.agent.early import order_of
from worker.contracts import FRAMEWORKS, Contract
from worker.contracts.outer import OUTER, OUTER_REASON, matching, without_outer
from worker.contracts.plain import COMMAND
from worker.contracts.plugin import PLUGIN
from worker.settings import WorkerSettings

SLURM = {
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "2",
    "SLURM_NTASKS_PER_NODE": "1",
    "SLURM_NPROCS": "2",
    "SLURM_NNODES": "2",
    "SLURM_TASKS_PER_NODE": "1(x2)",
    "SLURM_TASK_PID": "77",
    "SLURM_GTIDS": "1",
    "SLURM_STEPID": "0",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[0-1]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1",
    "SLURM_SRUN_COMM_HOST": "10.0.0.1",
}
"""A task of `srun --ntasks-per-node=1` on two nodes."""
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_NODE_RANK": "0",
    "OMPI_UNIVERSE_SIZE": "2",
    "OMPI_MCA_ess_base_vpid": "1",
    "OMPI_MCA_orte_ess_num_procs": "2",
    "OMPI_MCA_orte_hnp_uri": "1.0;tcp://10.0.0.1:4",
    "PMIX_RANK": "1",
    "PMIX_NAMESPACE": "1",
    "PMIX_SERVER_URI41": "1.0;tcp4://127.0.0.1:4",
}
OTHERS = {
    "PMI_RANK": "1",
    "PMI_SIZE": "2",
    "PMI_FD": "9",
    "MPI_LOCALRANKID": "0",
    "MPI_LOCALNRANKS": "1",
    "MV2_COMM_WORLD_RANK": "1",
    "JSM_NAMESPACE_RANK": "1",
    "PALS_LOCAL_RANKID": "0",
    "FLUX_TASK_RANK": "1",
    "AZ_BATCH_MASTER_NODE": "10.0.0.1:6000",
    "AZ_BATCHAI_TASK_INDEX": "1",
    "AZUREML_NODE_COUNT": "2",
}
OF_THE_JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[0-1]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_CPUS_ON_NODE": "8",
    "SLURM_ARRAY_TASK_ID": "3",
    "SLURM_RESTART_COUNT": "0",
    "AZUREML_RUN_ID": "run",
    "OMPI_MCA_btl": "tcp,self",
}
"""What is true of all ranks, or is a setting of the user's."""
OF_A_TASK = SLURM | MPIRUN | OTHERS
KEEPS = (COMMAND.name, PLUGIN.name)
RANKED = [name for name in FRAMEWORKS if name not in KEEPS]
TAKES_SLURM = ("openmpi", "mpich", "intelmpi")
"""They remove all of Slurm, from which an mpirun would take its nodes."""


def made(framework: str, environ: dict[str, str], **how: Any) -> Contract:
    sealed = table(nproc=(2, 2))
    return contract("x.py", framework=framework, environ=environ, sealed=sealed, paths=PATHS, **how)


@pytest.mark.parametrize("name", OF_A_TASK)
def test_each_variable_of_a_task_is_known(name: str) -> None:
    assert [*matching(OUTER, [name])]


@pytest.mark.parametrize("framework", RANKED)
def test_no_rank_sees_the_number_of_an_outer_task(framework: str) -> None:
    environ = OF_A_TASK | OF_THE_JOB
    seen = made(framework, environ).environment(environ)
    assert seen.keys().isdisjoint(OF_A_TASK)
    stays = {n for n in OF_THE_JOB if framework not in TAKES_SLURM or not n.startswith("SLURM_")}
    assert {name: seen[name] for name in stays} == {name: OF_THE_JOB[name] for name in stays}


def test_they_are_told_of_in_one_line() -> None:
    notes = made("env", SLURM | OF_THE_JOB).notes
    names = [name for _, name in matching(OUTER, SLURM)]
    assert notes == [f"{', '.join(names)} were removed: {OUTER_REASON}"]
    assert made("env", {"PMI_RANK": "1"}).notes == [f"PMI_RANK was removed: {OUTER_REASON}"]
    assert made("env", OF_THE_JOB).notes == []


@pytest.mark.parametrize("framework", KEEPS)
def test_a_command_that_may_start_a_step_of_its_own_sees_all_of_it(framework: str) -> None:
    command = made(framework, OF_A_TASK)
    assert command.environment(OF_A_TASK).items() >= OF_A_TASK.items()
    assert command.notes == []


def test_what_begins_before_the_table_has_none_of_them_either() -> None:
    """Else an import may have read what is missing at the go, and nothing could be forked."""
    environ = {"PATH": "/bin"} | OF_A_TASK | OF_THE_JOB
    begun = without_outer(environ, FRAMEWORKS["torchrun"].keeps)
    assert begun == {"PATH": "/bin"} | OF_THE_JOB
    assert without_outer(environ, COMMAND.keeps) == environ
    at_the_go = made("torchrun", environ).environment(environ)
    assert order_of(["torchrun"], begun, at_the_go) is not None
    assert order_of(["torchrun"], environ, at_the_go) is None


@pytest.mark.parametrize("warm", ["on", "off"])
def test_a_node_begins_its_program_without_them(warm: str) -> None:
    begun: list[dict[str, str]] = []
    outer: Any = SimpleNamespace(
        environ=OF_A_TASK | OF_THE_JOB,
        in_thread=None,
        early=lambda command, environ, *more: begun.append(environ),
        terminal=lambda *fds: None,
        warm=lambda wish, environ, *more: begun.append(environ),
    )
    settings = WorkerSettings(warm=warm)
    join = SimpleNamespace(slot=0)
    spec: Any = SimpleNamespace(settings=settings, command=["x.py"], join=join)
    Begun(spec, outer, lambda said: None)
    assert begun[0] == OF_THE_JOB
