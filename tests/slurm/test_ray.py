"""Ray on a real Slurm, as docs/head-and-workers.md has it: a job for each of its nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.environments import ENVIRONMENTS
from tests.frameworks.lab import EXAMPLES, JOBS, environment_of, left_on
from tests.slurm.cluster import PROGRAMS, Slurm, slurm
from tests.slurm.test_slurm import WORKERS, launching
from tests.support.missing import give_up
from tests.support.netlab import Host

pytestmark = [
    pytest.mark.schedulers(*PROGRAMS, "nsenter"),
    pytest.mark.netns,
    pytest.mark.timeout(200),
]

SCRIPT = EXAMPLES / "head_and_workers" / "ray.sh"
DRIVER = JOBS / "head_and_workers" / "driver.py"
OF_THE_CLUSTER = ("munged ", "slurmctld ", ": slurmscriptd ", "slurmd ", "slurmstepd: ")


def give_own_ray(cluster: Slurm, host: Host) -> None:
    """Let all that a slurmd starts see a /tmp/ray of its own: the hosts share the rest of /tmp."""
    own = cluster.folder / f"ray-{host.name}"
    own.mkdir()
    Path("/tmp/ray").mkdir(exist_ok=True)
    pid = (cluster.folder / f"slurmd-{host.name}.pid").read_text().strip()
    host.run(["nsenter", "--mount", f"--target={pid}", "mount", "--bind", str(own), "/tmp/ray"])


def test_a_driver_of_ray_has_the_nodes_of_both_jobs(tmp_path: Path) -> None:
    if not ENVIRONMENTS["ray"].is_made:
        give_up("environment ray is not installed; make test-frameworks does it")
    env = environment_of(ENVIRONMENTS["ray"], tmp_path) | {"RAY_USAGE_STATS_ENABLED": "0"}
    options = (*WORKERS, "2", "--ends-with", "node0", "--grace", "2")
    command = [str(SCRIPT), "python3", str(DRIVER)]
    (tmp_path / "slurm").mkdir()
    with slurm(tmp_path / "slurm") as cluster:
        for host in cluster.nodes:
            give_own_ray(cluster, host)
        with launching(cluster, tmp_path, *options, command=command, **env) as launch:
            outcome = launch.finish()
        left = [line for line in left_on(cluster.lab) if not line.startswith(OF_THE_CLUSTER)]
        states = cluster.ask("squeue", "--states=all", "--noheader", "--format=%T").split()
        addresses = [host.address for host in cluster.nodes[:2]]
    logs = "".join(log.read_text() for log in sorted(tmp_path.rglob("node-*.log")))
    assert outcome.code == 0, f"{outcome.err}\n{logs}"
    assert f"RAY {' '.join(addresses)}\n" in logs
    assert "run 'r' ok: node 0 ended with exit code 0 after " in outcome.last_line
    assert left == []
    assert states == ["COMPLETED", "COMPLETED"]  # it was not Slurm that ended what Ray left
