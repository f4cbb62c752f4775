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
from tests.support.fake_sysfs import SLOW, nd_h100_v5
from tests.support.launching import shell
from tests.support.netlab import Host, Lab

pytestmark = [pytest.mark.faults, pytest.mark.netns, pytest.mark.timeout(180)]

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
    """A host that has the devices of a tree."""

    tree: Path = Path("/")
    verbs: str = ""

    def command(self, argv: Sequence[str]) -> list[str]:
        drivers = [f"FAKE_VERBS={self.verbs}", "FAKE_NVML=ok ok", f"FAKE_NODE={self.name}"]
        enter = ["env", *drivers, "sh", "-c", ENTER, str(self.tree)]
        return super().command([*enter, *argv])


@dataclass(frozen=True)
class Sick:
    """What is wrong with one host: its tree, its container's RDMA devices, or their drivers."""

    tree: dict[str, Any] = field(default_factory=dict)
    devices: bool = True
    verbs: str = " ".join(RAILS)


def machine(host: Host, folder: Path, what: Sick) -> Machine:
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
    folder: Path, monkeypatch: pytest.MonkeyPatch, sick: Sick, *options: str
) -> Iterator[Cluster]:
    """A run on three hosts, of which the second is sick."""
    pytest.importorskip("pynvml")
    for source, library in (("ibverbs.c", "libibverbs.so.1"), ("nvml.c", "libnvidia-ml.so.1")):
        fake_drivers.install(source, library, folder / "lib", monkeypatch)
    with Lab(3) as lab:
        lab.hosts = [
            machine(host, folder, sick if number == 1 else Sick())
            for number, host in enumerate(lab.hosts)
        ]
        always = ("--framework", "command", "--submit-retries", "0")
        with cluster(lab, folder, *always, *options, command=SHOW) as run:
            run.start_workers()
            yield run


def chosen(run: Cluster) -> list[str]:
    """What the program of each node was told."""
    logs = run.folder.glob("h*/r/logs/node-*.log")
    lines = [line for log in sorted(logs) for line in log.read_text().splitlines()]
    return [line for line in lines if line.startswith("CHOSEN ")]


@pytest.mark.parametrize(
    ("sick", "options", "told"),
    [
        (Sick(), ("--require-rdma",), [f"CHOSEN hca={HCAS} net=IB"] * 3),
        (Sick(devices=False), ("--nnodes=2", "--spares=1"), [f"CHOSEN hca={HCAS} net="] * 2),
    ],
    ids=["all are sound", "a spare takes the place of the sick one"],
)
def test_a_run_of_sound_machines_uses_their_rdma(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sick: Sick,
    options: tuple[str, ...],
    told: list[str],
) -> None:
    with machines(tmp_path, monkeypatch, sick, *options) as run:
        outcome = run.finish()
        assert outcome.code == 0, outcome.err
        assert chosen(run) == told
        assert [worker.returncode for worker in run.workers.values()] == [0, 0]
    assert ("without slot 1 (h1)" in outcome.err) == (len(told) == 2)


@pytest.mark.parametrize(
    ("sick", "says"),
    [
        (Sick({"bad": {6: SLOW}}), "mlx5_ib6:1"),
        pytest.param(Sick(verbs=""), "libibverbs has no driver", marks=pytest.mark.nightly),
    ],
)
def test_a_sick_machine_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sick: Sick, says: str
) -> None:
    with machines(tmp_path, monkeypatch, sick) as run:
        outcome = run.finish()
        assert outcome.code == ExitCode.PREFLIGHT_FAILED, outcome.err
        assert chosen(run) == []
    (said,) = [line for line in outcome.err.splitlines() if line.startswith("rdzv: run 'r' failed")]
    assert "slot 1 (h1)" in said
    assert says in said
    assert "slot 0 (h0)" not in said
