"""Check of the CPUs that a control group or a CPU set leaves to the ranks of a node. Pure."""

from __future__ import annotations

from worker.machine.cpus import Cpus
from worker.preflight.verdict import Verdict, complaint


def too_few_cpus(cpus: Cpus | None, ranks: int) -> list[Verdict]:
    """Part of L15: where CPUs are held back, one is left for each rank."""
    if cpus is None or cpus.count >= cpus.machine or cpus.count >= ranks:
        return []
    return complaint(
        "warn",
        cpus.words,
        "CPUs",
        f"one for each of {ranks} ranks",
        "ranks that share a CPU make all others wait in each step",
        "ask the scheduler for more CPUs (docker --cpus and --cpuset-cpus, Kubernetes' limits.cpu, "
        "Slurm's --cpus-per-task), or use fewer processes on this node",
    )
