"""A real Slurm on emulated hosts: munged and slurmctld on `login`, a slurmd on each of n0 .. n3.

No host's name resolves; files are shared, as on a cluster with a common home. A node has room for
two jobs that do not ask to have it alone. There is no accounting (no sacct).

A job that is requeued starts again after `cred_expire` (it is 120 s elsewhere). Jobs of the
partition `urgent` preempt those of `spot`, which are cancelled after a grace, and of
`again`, which are requeued where they were submitted so.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.launching import environment
from tests.support.netlab import Host, Lab
from tests.support.notes import add_note
from tests.support.waiting import until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo", "srun")
"""What a machine needs: Debian's packages slurm-wlm and munge."""
GRACE_SECONDS = 2
"""What a job of the partition `spot` has left once `urgent` needs its node."""
_NODES = ("n0", "n1", "n2", "n3")
_UP_SECONDS = 60.0


@dataclass
class Slurm:
    """A cluster that is up."""

    lab: Lab
    folder: Path

    @property
    def login(self) -> Host:
        """Where a person works; slurmctld runs there too."""
        return self.lab.hosts[0]

    @property
    def nodes(self) -> list[Host]:
        """n0 .. n3."""
        return self.lab.hosts[1:]

    def environment(self, state: Path, **more: str) -> dict[str, str]:
        """What a person on the login host has in the environment."""
        return environment(state, SLURM_CONF=str(self.folder / "slurm.conf"), **more)

    def ask(self, *argv: str, env: Mapping[str, str] | None = None) -> str:
        """What a Slurm command prints."""
        known = self.environment(self.folder / "state") | dict(env or {})
        done = self.login.run(argv, env=known)
        return done.stdout.strip()

    def jobs(self) -> dict[str, str]:
        """The jobs that are waiting, running or ending: job id and name."""
        lines = self.ask("squeue", "--noheader", "--format=%A %j").splitlines()
        return dict(line.split() for line in lines)

    def state_of(self, job: str) -> str:
        """What slurmctld says of a job, as long as it remembers it."""
        return self.ask("squeue", "--states=all", "--noheader", f"--jobs={job}", "--format=%T")

    def wait_until_over(self, job: str, seconds: float) -> str:
        """The state in which a job has ended."""
        alive = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")
        until(lambda: self.state_of(job) not in alive, seconds)
        return self.state_of(job)

    def daemon(self, host: Host, *argv: str) -> None:
        """Start a daemon on a host; it ends with the lab."""
        env = self.environment(self.folder / "state")
        host.start(argv, env=env, stdout=subprocess.DEVNULL)

    def is_idle(self) -> bool:
        """Whether every node is there and free."""
        argv = ("sinfo", "--noheader", "--Node", "--partition=all", "--format=%N %T")
        done = self.login.run(argv, env=self.environment(self.folder), check=False)
        return done.stdout.splitlines() == [f"{host.name} idle" for host in self.nodes]

    def end_all_jobs(self) -> None:
        """Cancel what waits or runs, and wait until the nodes are free."""
        for job in self.jobs():
            self.ask("scancel", job)
        until(lambda: not self.jobs(), _UP_SECONDS)

    def occupy(self, count: int, *options: str) -> str:
        """Hold so many nodes by somebody's job, and return its id."""
        job = self.submit_other(count, *options)
        until(lambda: self.state_of(job) == "RUNNING", _UP_SECONDS)
        return job

    def submit_other(self, count: int, *options: str) -> str:
        """Submit somebody's job that needs so many nodes, and return its id."""
        argv = ("sbatch", "--parsable", "--exclusive", f"--nodes={count}", "--output=/dev/null")
        return self.ask(*argv, *options, "--job-name=other", "--wrap", "sleep 600")


@contextmanager
def slurm(folder: Path) -> Iterator[Slurm]:
    """A cluster for as long as the context lasts."""
    with Lab(["login", *_NODES], hosts_mode="none") as lab:
        cluster = Slurm(lab, folder)
        _configure(cluster)
        try:
            _start(cluster)
        except AssertionError as error:
            for log in folder.glob("*.log"):
                add_note(error, f"{log.name}:\n{log.read_text()[-2000:]}")
            raise
        yield cluster


def _configure(cluster: Slurm) -> None:
    folder = cluster.folder
    for name in ("ctld", "state", *(f"spool-{node}" for node in _NODES)):
        (folder / name).mkdir()
    # The namespaces' /sys has no control groups, and Slurm before 23.11 cannot be told to use none.
    (folder / "cgroup.conf").write_text(f"CgroupPlugin={_cgroup_plugin()}\n")
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    nodes = "".join(
        f"NodeName={host.name} NodeAddr={host.address} CPUs=2 State=UNKNOWN\n"
        for host in cluster.nodes
    )
    text = f"""
ClusterName=rdzvtest
SlurmctldHost={cluster.login.name}({cluster.login.address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/ctld
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_interval=1
MpiDefault=none
ReturnToService=2
KillWait=30
MinJobAge=300
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}PartitionName=DEFAULT Nodes=ALL MaxTime=INFINITE State=UP
PartitionName=all Default=YES PreemptMode=OFF
PartitionName=spot PreemptMode=CANCEL GraceTime={GRACE_SECONDS}
PartitionName=again PreemptMode=REQUEUE
PartitionName=urgent PriorityTier=10 PreemptMode=OFF
"""
    (folder / "slurm.conf").write_text(text)


def _cgroup_plugin() -> str:
    said = subprocess.run(["slurmd", "-V"], capture_output=True, text=True, check=True).stdout
    numbers = re.findall(r"\d+", said)
    return "disabled" if (int(numbers[0]), int(numbers[1])) >= (23, 11) else "cgroup/v1"


def _start(cluster: Slurm) -> None:
    folder = cluster.folder
    munged = ["munged", "--foreground", "--force", f"--key-file={folder}/munge.key"]
    munged += [f"--socket={folder}/munge.socket", f"--pid-file={folder}/munged.pid"]
    munged += [f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"]
    cluster.daemon(cluster.login, *munged)
    until((folder / "munge.socket").exists, _UP_SECONDS)
    cluster.daemon(cluster.login, "slurmctld", "-D")
    for host in cluster.nodes:
        cluster.daemon(host, "slurmd", "-D", "-N", host.name)
    until(cluster.is_idle, _UP_SECONDS)
