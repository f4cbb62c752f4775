"""What of a job around the launcher reaches the commands that submit others."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.schedulers.outer_job import without_outer_job
from tests.support.bed import Bed, join_text

SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_HOSTFILE": "/spool/hosts",
    "SLURM_DISTRIBUTION": "arbitrary",
    "SLURM_EXPORT_ENV": "NONE",
    "SLURM_HINT": "nomultithread",
    "SLURM_UMASK": "0022",
    "SLURM_JOB_NUM_NODES_HET_GROUP_1": "2",
    "SLURMD_NODENAME": "n0",
    "SBATCH_MEM_BIND_TYPE": "local",
    "SBATCH_THREADS_PER_CORE": "1",
}
PBS = {"PBS_JOBID": "7.pbs", "PBS_NODEFILE": "/aux/7", "PBS_O_QUEUE": "gpu", "PBS_ENVIRONMENT": "x"}
LSF = {"LSB_JOBID": "7", "LSB_HOSTS": "n0 n1", "LSB_MCPU_HOSTS": "n0 1", "LS_JOBPID": "12"}
SGE = {"SGE_TASK_ID": "undefined", "JOB_ID": "7", "PE_HOSTFILE": "/spool/pe", "SGE_O_HOST": "n0"}
FLUX = {"FLUX_JOB_ID": "f7", "FLUX_TASK_RANK": "1", "FLUX_KVS_NAMESPACE": "job-7"}
COBALT, OAR = {"COBALT_JOBID": "7", "COBALT_NODEFILE": "/n"}, {"OAR_JOB_ID": "7", "OAR_FILE": "/n"}
OWN = {
    "PATH": "/bin",
    "KUBECONFIG": "/home/me/.kube/config",
    "SLURM_CONF": "/etc/slurm.conf",
    "SLURM_CLUSTERS": "big",
    "SLURM_JWT": "token",
    "SBATCH_ACCOUNT": "lab",
    "SBATCH_PARTITION": "gpu",
    "SBATCH_EXPORT": "NONE",
    "SBATCH_TIMELIMIT": "60",
    "PBS_DEFAULT": "server",
    "PBS_CONF_FILE": "/etc/pbs.conf",
    "LSB_DEFAULTQUEUE": "gpu",
    "LSF_ENVDIR": "/etc/lsf",
    "SGE_ROOT": "/opt/sge",
    "SGE_CELL": "default",
    "FLUX_URI": "local:///run/flux",
}


@pytest.mark.parametrize("outer", [SLURM, PBS, LSF, SGE, FLUX, COBALT, OAR])
def test_what_a_job_says_of_itself_is_left_out_and_what_a_person_sets_is_not(
    outer: dict[str, str],
) -> None:
    assert without_outer_job(outer | OWN) == OWN


@pytest.mark.parametrize("known_by", ["SLURM_JOBID", "SLURM_JOB_ID"])
def test_outside_of_a_job_what_looks_like_its_own_was_set_by_a_person(known_by: str) -> None:
    own = {"SLURM_HOSTFILE": "/home/me/hosts", "JOB_ID": "mine", "QUEUE": "q", "PE": "mpi"}
    assert without_outer_job(own | OWN) == own | OWN
    assert "SLURM_HOSTFILE" not in without_outer_job(own | {known_by: "7"})
    assert without_outer_job(own | {known_by: ""})["SLURM_HOSTFILE"] == "/home/me/hosts"


def test_what_changes_the_commands_themselves_is_left_out_everywhere() -> None:
    odd = {"SBATCH_WAIT": "1", "SBATCH_ARRAY_INX": "0-3", "SBATCH_ERROR": "e"}
    odd |= {"SQUEUE_PARTITION": "debug", "SQUEUE_FORMAT": "%i", "SCANCEL_INTERACTIVE": "1"}
    assert without_outer_job(odd | OWN) == OWN


async def test_the_commands_of_a_profile_see_nothing_of_the_job_around_the_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (SLURM | OWN).items():
        if name != "PATH":
            monkeypatch.setenv(name, value)
    bed = Bed("slurm", tmp_path)
    await bed.scheduler().submit(bed.run(), join_text())
    (call,) = bed.calls()
    assert not set(SLURM) & set(call["environ"])
    assert {*OWN} <= {*call["environ"]}
