"""Hosts with InfiniBand and GPUs, one of them sick: the run names it, or starts as it should.

Emulated hosts, each with the /sys and /dev of a machine with eight InfiniBand ports, and with
driver libraries that behave as they are told; launcher and workers are real.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rendezvous.wire.errors import ExitCode
from tests.support import fake_drivers
from tests.support.cluster import Cluster, cluster
from tests.support.fake_sysfs import DOWN, SLOW, nd_h100_v5
from tests.support.launching import Outcome, shell
from tests.support.netlab import Host, Lab
from tests.support.nightly import but_at_night

pytestmark = [pytest.mark.faults, pytest.mark.netns, pytest.mark.timeout(180)]

SIZE, SICK = 3, 1
RAILS = [f"mlx5_ib{i}" for i in range(8)]
HCAS = ",".join(f"{rail}:1" for rail in RAILS)
SHOW = shell("echo CHOSEN hca$NCCL_IB_HCA net=$NCCL_NET")
ENTER = """
mount --bind "$0/sys" /sys &&
mount -t overlay none -o "lowerdir=/dev,upperdir=$0/dev,workdir=$0/work" /dev &&
exec "$@"
"""


@dataclass(frozen=True)
class Machine(Host):
    """A host that has the devices of a tree.

    Attributes:
        tree: The folder that holds its `sys` and `dev`.
        verbs: Its RDMA devices as libibverbs knows them; see drivers/ibverbs.c.
        gpus: Its GPUs as NVML knows them; see drivers/nvml.c.
    """

    tree: Path = Path("/")
    verbs: str = " ".join(RAILS)
    gpus: str = "ok ok"

    def command(self, argv: Sequence[str]) -> list[str]:
        drivers = [f"FAKE_VERBS={self.verbs}", f"FAKE_NVML={self.gpus}", f"FAKE_NODE={self.name}"]
        enter = ["env", *drivers, "sh", "-c", ENTER, str(self.tree)]
        return super().command([*enter, *argv])


@dataclass(frozen=True)
class Sick:
    """What is wrong with one host, and what must be said of it.

    Attributes:
        tree: Options of the builder of its tree.
        devices: Whether its container was given the RDMA devices.
    """

    fault: str
    says: tuple[str, ...]
    tree: dict[str, Any] = field(default_factory=dict)
    devices: bool = True
    verbs: str = " ".join(RAILS)


SOUND = Sick("", ())


def machine(host: Host, folder: Path, what: Sick = SOUND) -> Machine:
    """The host, with InfiniBand and two GPUs."""
    tree, node = folder / host.name, int(host.name[1:])
    nd_h100_v5(tree, node=node, **what.tree)
    if not what.devices:
        shutil.rmtree(tree / "dev/infiniband")
    for number in range(2):
        (tree / f"dev/nvidia{number}").symlink_to("/dev/null")
    (tree / "work").mkdir()
    return Machine(**vars(host), tree=tree, verbs=what.verbs)


@contextmanager
def machines(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    sick: Sick = SOUND,
    *options: str,
    command: Sequence[str] = tuple(SHOW),
) -> Iterator[Cluster]:
    """A run on three hosts, of which the second is sick."""
    pytest.importorskip("pynvml")
    for source, library in (("ibverbs.c", "libibverbs.so.1"), ("nvml.c", "libnvidia-ml.so.1")):
        fake_drivers.install(source, library, folder / "lib", monkeypatch)
    with Lab(SIZE) as lab:
        lab.hosts = [
            machine(host, folder, sick if number == SICK else SOUND)
            for number, host in enumerate(lab.hosts)
        ]
        always = ("--framework", "command", "--submit-retries", "0")
        with cluster(lab, folder, *always, *options, command=command) as run:
            run.start_workers()
            yield run


def chosen(run: Cluster) -> list[str]:
    """What the program of each node was told."""
    logs = run.folder.glob("h*/r/logs/node-*.log")
    lines = [line for log in sorted(logs) for line in log.read_text().splitlines()]
    return [line for line in lines if line.startswith("CHOSEN ")]


def sentence(outcome: Outcome) -> str:
    """The one line that says why the run failed."""
    (line,) = [line for line in outcome.err.splitlines() if line.startswith("rdzv: run 'r' failed")]
    return line


def test_a_run_that_requires_rdma_lets_nccl_use_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with machines(tmp_path, monkeypatch, SOUND, "--require-rdma") as run:
        outcome = run.finish()
        assert outcome.code == 0, outcome.err
        assert chosen(run) == [f"CHOSEN hca={HCAS} net=IB"] * SIZE


IB2_DOWN = ("7 x 400 Gb/s InfiniBand", "mlx5_ib2:1", "Polling")
IB6_SLOW = ("mlx5_ib6:1", "200 Gb/sec (4X HDR)", "400 Gb/sec (4X NDR)")
SICK_MACHINES = [
    Sick("an InfiniBand port whose cable is out", IB2_DOWN, {"bad": {2: DOWN}}),
    Sick("an InfiniBand port at half its rate", IB6_SLOW, {"bad": {6: SLOW}}),
    Sick("no RDMA device in a container", ("mlx5_ib0:1", "was not given"), devices=False),
    Sick("libibverbs without the driver", ("mlx5_ib0:1", "has no driver for it"), verbs=""),
]


@pytest.mark.parametrize(
    "sick", but_at_night(SICK_MACHINES, SICK_MACHINES[1]), ids=lambda sick: sick.fault
)
def test_a_sick_machine_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sick: Sick
) -> None:
    with machines(tmp_path, monkeypatch, sick) as run:
        outcome = run.finish()
        said = sentence(outcome)
        assert outcome.code == ExitCode.PREFLIGHT_FAILED, outcome.err
        assert chosen(run) == []
    assert [words for words in ("slot 1 (h1)", *sick.says) if words not in said] == [], said
    assert "slot 0 (h0)" not in said


def test_a_spare_takes_the_place_of_a_sick_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--nnodes", str(SIZE - 1), "--spares", "1")
    with machines(tmp_path, monkeypatch, Sick("", (), devices=False), *options) as run:
        outcome = run.finish()
        assert outcome.code == 0, outcome.err
        assert "without slot 1 (h1)" in outcome.err
        assert chosen(run) == [f"CHOSEN hca={HCAS} net="] * (SIZE - 1)
        assert [worker.returncode for worker in run.workers.values()] == [0, 0]
