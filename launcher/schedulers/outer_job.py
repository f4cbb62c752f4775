"""Variables of a job around the launcher that would steer what it submits. Pure.

A batch job numbers and places itself in variables, and some of these are what the submit command
reads: of an outer `SLURM_HOSTFILE`, each inner job would get the hosts of the outer one. What a
person sets stays: where the scheduler is, and the options (`SBATCH_PARTITION`) of the own jobs.
"""

from __future__ import annotations

from collections.abc import Mapping

from rendezvous.frozen import frozen
from worker.contracts.outer import matching


@frozen
class _Jobs:
    """The jobs of one kind of scheduler, with variables as NAME or PREFIX*.

    Attributes:
        known_by: A job has one of these.
        sets: What it says of itself.
        kept: What of that a person or the site sets.
    """

    known_by: tuple[str, ...]
    sets: tuple[str, ...]
    kept: tuple[str, ...] = ()


_JOBS = (
    _Jobs(
        ("SLURM_JOB_ID", "SLURM_JOBID"),
        # slurmd and sbatch set those of SBATCH_*, of --mem-bind and --threads-per-core.
        ("SLURM_*", "SLURMD_*", "SBATCH_MEM_BIND*", "SBATCH_CPU_BIND*", "SBATCH_THREADS_PER_CORE"),
        (
            *("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_MPI_TYPE"),
            *("SLURM_DEBUG_FLAGS", "SLURM_TIME_FORMAT", "SLURM_EXIT_ERROR", "SLURM_BITSTR_LEN"),
        ),
    ),
    _Jobs(
        ("PBS_JOBID",),
        ("PBS_*",),
        (
            *("PBS_DEFAULT", "PBS_SERVER", "PBS_CONF_FILE", "PBS_EXEC", "PBS_HOME"),
            *("PBS_DPREFIX", "PBS_CLIENTRETRY"),
        ),
    ),
    _Jobs(("LSB_JOBID",), ("LSB_*", "LS_*", "LSFUSER"), ("LSB_DEFAULT*", "LSB_CONFDIR")),
    _Jobs(
        ("SGE_TASK_ID", "SGE_JOB_SPOOL_DIR", "PE_HOSTFILE"),
        (
            *("SGE_*", "JOB_ID", "JOB_NAME", "JOB_SCRIPT", "PE", "PE_HOSTFILE", "NSLOTS"),
            *("NHOSTS", "NQUEUES", "QUEUE", "REQUEST", "RESTARTED"),
        ),
        (
            *("SGE_ROOT", "SGE_CELL", "SGE_CLUSTER_NAME", "SGE_QMASTER_PORT", "SGE_EXECD_PORT"),
            "SGE_ARCH",
        ),
    ),
    _Jobs(("FLUX_JOB_ID",), ("FLUX_JOB_*", "FLUX_TASK_*", "FLUX_KVS_NAMESPACE")),
    _Jobs(("COBALT_JOBID",), ("COBALT_*",)),
    _Jobs(("OAR_JOB_ID",), ("OAR_*",)),
)
_NEVER = ("SBATCH_WAIT", "SBATCH_ARRAY_INX", "SBATCH_ERROR", "SQUEUE_*", "SCANCEL_*")
"""A person's own, which change what the commands of a profile do or print: a submission that waits
for the end of its job, an array in place of a job, a list of some of the jobs."""


def without_outer_job(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment as the commands of a scheduler get it."""
    unwanted = {name for _, name in matching(_NEVER, environ)}
    for jobs in _JOBS:
        if any(environ.get(name) for name in jobs.known_by):
            kept = {name for _, name in matching(jobs.kept, environ)}
            unwanted |= {name for _, name in matching(jobs.sets, environ)} - kept
    return {name: value for name, value in environ.items() if name not in unwanted}
