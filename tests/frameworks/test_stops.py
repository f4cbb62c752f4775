"""A stop, as the ranks see it: one SIGTERM, whoever has started them."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.frameworks.environments import ENVIRONMENTS
from tests.frameworks.lab import JOBS, environment_of, left_on
from tests.support.cluster import cluster
from tests.support.launching import launching
from tests.support.netlab import Lab
from tests.support.nightly import at_night
from tests.support.waiting import until

COUNT = str(JOBS / "count_sigterm.py")
OPTIONS = ("--nproc-per-node", "2", "--grace", "16")
SECONDS = 14.0
"""For the end: a rank that waits for one that was not told would take the whole grace.

The second rank of Lightning's Fabric is told after half of it.
"""


@dataclass(frozen=True)
class Case:
    """What starts the ranks.

    Attributes:
        environment: In `ENVIRONMENTS`.
        framework: Of `--framework`.
        command: COMMAND, but for the folder at its end.
        needs: Programs of Debian.
        once: What a rank writes down that is told once.
    """

    environment: str
    framework: str
    command: tuple[str, ...] = ("python3", COUNT)
    needs: tuple[str, ...] = ()
    once: str = "SIGTERM\n"


def told_in(folder: Path, nodes: int) -> list[Path]:
    """The files of the ranks, which are there once these are ready."""
    return [folder / f"told-{rank}" for rank in range(2 * nodes)]


_LIGHTNING = str(JOBS / "lightning_sigterm.py")
_BY_PDSH = ("--launcher", "pdsh", COUNT)
CASES = {
    "torchrun": Case("torch", "torchrun", (COUNT,)),
    "torch.distributed.launch": Case("torch", "torch.distributed.launch", (COUNT,)),
    "accelerate": Case("torch", "accelerate", (COUNT,)),
    "env": Case("torch", "env"),
    "trainer": Case("trainers", "lightning", (_LIGHTNING, "trainer"), once="\x0f ended\n"),
    "fabric": Case("trainers", "lightning", (_LIGHTNING, "fabric"), once="\x0f ended\n"),
    "deepspeed": Case("torch", "deepspeed", (COUNT,)),
    "deepspeed-pdsh": Case("torch", "deepspeed", _BY_PDSH, ("pdsh",)),
    "openmpi-4": Case("torch", "openmpi", needs=("mpirun",)),  # Debian's
    "openmpi-5": Case("openmpi5", "openmpi"),
    "mpich": Case("mpich", "mpich"),
    "intelmpi": Case("intelmpi", "intelmpi"),
    "horovod": Case("horovod", "horovod"),
    "horovodrun": Case("horovod", "horovod", ("horovodrun", "python3", COUNT)),
}


AT_NIGHT = (
    *("env", "fabric", "torch.distributed.launch", "trainer", "deepspeed", "openmpi-5"),
    *("intelmpi", "mpich", "accelerate"),
)
"""What passes a stop on there does so for others at each push."""


def marked(*names: str) -> list[object]:
    """Cases, each with what it needs."""
    found: list[object] = []
    for name in (name for name in CASES if name in names):
        marks = [pytest.mark.frameworks(CASES[name].environment, *CASES[name].needs)]
        marks += [pytest.mark.nightly] * (name in AT_NIGHT)
        found.append(pytest.param(CASES[name], marks=marks, id=name))
    return found


@pytest.mark.real_time
@pytest.mark.parametrize("nodes", [at_night(1), 2])
@pytest.mark.parametrize("case", marked(*CASES.keys() - {"deepspeed-pdsh"}))
def test_each_rank_hears_of_a_stop_once(case: Case, nodes: int, tmp_path: Path) -> None:
    env = environment_of(ENVIRONMENTS[case.environment], tmp_path)
    options = ("--framework", case.framework, "--nnodes", str(nodes), *OPTIONS)
    told = told_in(tmp_path, nodes)
    command = [*case.command, str(tmp_path)]
    with launching(tmp_path / "s", *options, command=command, env=env) as run:
        until(lambda: all(path.exists() for path in told))
        run.signal(signal.SIGTERM)
        assert run.finish(SECONDS).code == 143
    assert [path.read_text() for path in told] == [case.once] * 2 * nodes


@pytest.mark.netns
@pytest.mark.parametrize("case", marked("deepspeed-pdsh", "horovodrun"))
def test_each_rank_on_another_host_hears_of_a_stop_once(case: Case, tmp_path: Path) -> None:
    """Their launcher runs on the first host alone, and starts the other's by ssh's command line."""
    env = environment_of(ENVIRONMENTS[case.environment], tmp_path)
    options = ("--framework", case.framework, *OPTIONS)
    told = told_in(tmp_path, 2)
    command = [*case.command, str(tmp_path)]
    with Lab(2, hosts_mode="debian") as lab:
        with cluster(lab, tmp_path, *options, command=command, env=env) as run:
            assert run.has_submitted()
            run.start_workers()
            until(lambda: all(path.exists() for path in told))
            run.launcher.send_signal(signal.SIGTERM)
            assert run.finish(SECONDS).code == 143
        assert left_on(lab) == []
    assert [path.read_text() for path in told] == [case.once] * 4
