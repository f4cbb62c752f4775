"""Hosts with InfiniBand and GPUs, one of them sick: the run names it, or starts as it should.

Emulated hosts, each with the /sys and /dev of a machine with eight InfiniBand ports, and with
driver libraries that behave as they are told; launcher and workers are real.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from rendezvous.wire.errors import ExitCode
from tests.support import fake_drivers
from tests.support.cluster import cluster
from tests.support.fake_sysfs import SLOW, PortFiles, nd_h100_v5
from tests.support.launching import shell
from tests.support.netlab import Host, Lab
from tests.support.nightly import at_night

pytestmark = [pytest.mark.faults, pytest.mark.netns, pytest.mark.timeout(180)]

RAILS = [f"mlx5_ib{i}" for i in range(8)]
HCAS = ",".join(f"{rail}:1" for rail in RAILS)
SHOW = shell("echo CHOSEN hca=$NCCL_IB_HCA net=$NCCL_NET")
ENTER = """
mount --bind "$0/sys" /sys &&
mount -t overlay none -o "lowerdir=/dev,upperdir=$0/dev,workdir=$0/work" /dev &&
exec "$@"
"""


@dataclass(frozen=True)
class Machine(Host):
    """A host that has the devices of a tree."""

    tree: Path = Path("/")

    def command(self, argv: Sequence[str]) -> list[str]:
        drivers = [f"FAKE_VERBS={' '.join(RAILS)}", "FAKE_NVML=ok ok", f"FAKE_NODE={self.name}"]
        enter = ["env", *drivers, "sh", "-c", ENTER, str(self.tree)]
        return super().command([*enter, *argv])


def machine(host: Host, folder: Path, bad: dict[int, PortFiles]) -> Machine:
    """The host, with InfiniBand and two GPUs."""
    tree, node = folder / host.name, int(host.name[1:])
    nd_h100_v5(tree, node=node, bad=bad)
    for number in range(2):
        (tree / f"dev/nvidia{number}").symlink_to("/dev/null")
    (tree / "work").mkdir()
    return Machine(**vars(host), tree=tree)


@pytest.mark.parametrize(
    ("bad", "option", "code"),
    [
        at_night({}, "--require-rdma", ExitCode.OK),
        ({6: SLOW}, "--prefix", ExitCode.PREFLIGHT_FAILED),
    ],
)
def test_a_run_of_sound_machines_uses_their_rdma_and_a_sick_one_is_named_before_it_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bad: dict[int, PortFiles],
    option: str,
    code: ExitCode,
) -> None:
    pytest.importorskip("pynvml")
    for source, library in (("ibverbs.c", "libibverbs.so.1"), ("nvml.c", "libnvidia-ml.so.1")):
        fake_drivers.install(source, library, tmp_path / "lib", monkeypatch)
    with Lab(3) as lab:
        lab.hosts = [
            machine(host, tmp_path, bad if number == 1 else {})
            for number, host in enumerate(lab.hosts)
        ]
        options = ("--framework", "command", "--submit-retries", "0", option)
        with cluster(lab, tmp_path, *options, command=SHOW) as run:
            run.start_workers()
            outcome = run.finish()
    assert outcome.code == code, outcome.err
    assert run.printed("CHOSEN ") == ([] if bad else [f"CHOSEN hca={HCAS} net=IB"] * 3)
    if bad:
        assert "slot 1 (h1)" in outcome.err
        assert "mlx5_ib6:1" in outcome.err
        assert "slot 0 (h0)" not in outcome.err.split("rdzv: run 'r' failed")[1]
