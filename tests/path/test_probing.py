"""What nodes find out about each other in a network that is broken in several places at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from rendezvous.wire.verify import PairProbe, ProbePeer, ProbePlan
from tests.support.netlab import Host, Lab
from tests.support.waiting import until

PROGRAM = str(Path(__file__).parent.parent / "programs" / "probe_node.py")
ROOT = Path(__file__).parent.parent.parent

pytestmark = [pytest.mark.netns, pytest.mark.faults, pytest.mark.timeout(120)]


def plan(addresses: Sequence[str], ports: Sequence[int], mtu: int) -> ProbePlan:
    peers = [
        ProbePeer(
            slot=slot,
            hostname=f"h{slot}",
            address=address,
            interface="eth0",
            mtu=mtu,
            probe_port=port,
        )
        for slot, (address, port) in enumerate(zip(addresses, ports, strict=True))
    ]
    return ProbePlan(network="eth0", peers=peers)


def written(path: Path) -> str:
    """What a node has written; waits for it."""
    until(path.exists)
    return path.read_text()


def probe(
    hosts: Sequence[Host], folder: Path, addresses: Sequence[str], mtu: int = 1_500
) -> dict[tuple[int, int], PairProbe]:
    """What each node finds out about each other, by (from, to)."""
    for slot, host in enumerate(hosts):
        host.start([sys.executable, PROGRAM, str(slot), str(folder)], env={"PYTHONPATH": str(ROOT)})
    ports = [int(written(folder / f"{slot}.port")) for slot in range(len(hosts))]
    (folder / "plan.new").write_text(plan(addresses, ports, mtu).model_dump_json())
    (folder / "plan.new").rename(folder / "plan")
    found: dict[tuple[int, int], PairProbe] = {}
    for slot in range(len(hosts)):
        told = json.loads(written(folder / f"{slot}.found"))
        found |= {(slot, one["slot"]): PairProbe(**one) for one in told}
    return found


def test_every_broken_pair_is_told_by_its_kind_and_its_direction(tmp_path: Path) -> None:
    with Lab(5) as lab:
        good, walled, other, narrow, cut_off = lab.hosts
        lab.firewall(walled, sender=other)
        lab.black_hole(narrow, 1_400)
        lab.link_down(cut_off)
        found = probe(lab.hosts, tmp_path, [host.address for host in lab.hosts])
    outcomes = {pair: one.outcome for pair, one in found.items()}
    expected = dict.fromkeys(found, "ok")
    expected[2, 1] = "timeout"
    expected |= {(3, slot): "black_hole" for slot in range(3)}
    expected |= {(slot, 3): "black_hole" for slot in range(3)}
    expected |= {(4, slot): "no_route" for slot in range(4)}
    expected |= {(slot, 4): "timeout" for slot in range(4)}
    assert outcomes == expected
    assert {one.path_mtu for one in found.values() if one.outcome == "ok"} == {1_500}
    assert (found[0, 1].source, found[1, 0].source) == (good.address, walled.address)
    assert found[0, 3].detail == "small messages pass, 16 KiB are lost on the way there"


def test_what_icmp_says_of_an_address_is_told(tmp_path: Path) -> None:
    """A firewall that says so, one that names a port, and an address that nobody has."""
    with Lab(4) as lab:
        _, prohibits, rejects, _ = lab.hosts
        for host, how in ((prohibits, "with icmpx type admin-prohibited"), (rejects, "")):
            lab.add_rules(host, "filter hook input priority 0", [f"ct state new reject {how}"])
        addresses = [host.address for host in lab.hosts]
        found = probe(lab.hosts, tmp_path, [*addresses[:3], "10.77.0.200"])
    told = {slot: (found[0, slot].outcome, found[0, slot].icmp) for slot in (1, 2, 3)}
    assert told == {
        1: ("refused", "prohibited"),
        2: ("refused", "prohibited"),
        3: ("timeout", "neighbour"),
    }
    assert found[0, 2].detail == f"{rejects.address} prohibits the connection (ICMP)"
    assert (found[1, 0].outcome, found[1, 0].icmp) == ("ok", "")


def test_jumbo_frames_that_not_all_switches_take_are_measured(tmp_path: Path) -> None:
    with Lab(2) as lab:
        for number, host in enumerate(lab.hosts):
            lab.add_interface(host, "eth1", f"10.78.0.{number + 1}/24", switch="br1", mtu=9_000)
            # As some clusters do: TCP is told to send less, and all else is lost.
            host.run(["ip", "route", "replace", "10.78.0.0/24", "dev", "eth1", "advmss", "1360"])
        lab.black_hole(lab.hosts[1], 1_500, "eth1")
        found = probe(lab.hosts, tmp_path, ["10.78.0.1", "10.78.0.2"], mtu=9_000)
    assert {one.outcome for one in found.values()} == {"ok"}
    assert {one.path_mtu for one in found.values()} == {1_500}
