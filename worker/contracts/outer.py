"""Variables in which a launcher around rdzv numbers its own tasks, and who leaves them out. Pure.

`srun` starts one agent on a node, and the agent several ranks: to each of these, `SLURM_PROCID`
would name the agent's task. They are taken out rather than replaced: the ranks of a torchrun, or
of Lightning, have one environment together, a PMI server knows its own tasks alone, and what reads
a step looks for its nodes, addresses and ports as well, which are not those of the table. What is
true of the job or the machine stays, as `SLURM_JOB_ID`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

_SLURM = (
    *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS*", "SLURM_NPROCS"),
    *("SLURM_NNODES", "SLURM_TASKS_PER_NODE", "SLURM_TASK_PID", "SLURM_GTIDS", "SLURM_STEPID"),
    *("SLURM_STEP_*", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_*", "SLURM_PMI*"),
)
_MPI = (
    *("PMI_*", "PMIX_*", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_*"),
    *("OMPI_COMM_WORLD_*", "OMPI_WORLD_*", "OMPI_UNIVERSE_SIZE", "OMPI_MCA_num_procs"),
    *("OMPI_APP_CTX_NUM_PROCS", "OMPI_NUM_APP_CTX", "OMPI_FIRST_RANKS"),
    *("OMPI_MCA_ess*", "OMPI_MCA_orte_ess_*", "OMPI_MCA_orte_hnp_uri", "OMPI_MCA_orte_launch"),
    *("OMPI_MCA_orte_local_daemon_uri", "OMPI_MCA_orte_num_nodes", "OMPI_MCA_orte_app_num"),
    *("PRTE_MCA_ess*", "PRTE_LAUNCHED", "HYDI_CONTROL_FD"),
)
_OTHERS = (
    *("JSM_NAMESPACE_*", "PALS_RANKID", "PALS_LOCAL_RANKID", "PALS_NODEID", "FLUX_TASK_*"),
    *("AZ_BATCH_MASTER_NODE", "AZ_BATCH_NODE_LIST", "AZ_BATCH_HOST_LIST"),
    *("AZ_BATCHAI_MPI_MASTER_NODE", "AZ_BATCHAI_TASK_INDEX", "AZUREML_NODE_COUNT"),
)
OUTER_REASON = "of the launcher around rdzv, whose tasks are not the ranks of the table"
OUTER: Mapping[str, str] = dict.fromkeys((*_SLURM, *_MPI, *_OTHERS), OUTER_REASON)
"""Variables (NAME, or PREFIX*) of an outer launcher, which no rank may see, with the reason."""


def matching(patterns: Iterable[str], names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each pattern (NAME, or PREFIX*) with each of the names that it means."""
    known = [*names]
    for pattern in patterns:
        start = pattern.removesuffix("*")
        for name in known:
            if name == pattern or (start != pattern and name.startswith(start)):
                yield pattern, name


def without_outer(environ: Mapping[str, str], keeps: Mapping[str, str]) -> dict[str, str]:
    """An environment as a program sees it, which may begin before there is a table.

    Args:
        environ: The node's.
        keeps: What the framework keeps, as in `Framework.keeps`.
    """
    left_out = {name for _, name in matching(OUTER.keys() - keeps.keys(), environ)}
    return {name: value for name, value in environ.items() if name not in left_out}
