"""Networks with something wrong: a run starts on an address that is proven, or says what is wrong.

Emulated hosts, a real launcher on the first and a real worker on each; control goes over eth0.
There is a situation for each kind of answer that a probe or a node gives of a real network; what
is said of it is held in tests/rendezvous.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from rendezvous.wire.errors import ExitCode
from tests.support.cluster import Cluster, cluster
from tests.support.launching import Outcome, shell
from tests.support.netlab import Lab
from tests.support.nightly import at_night
from tests.support.waiting import until

Situation: TypeAlias = Callable[[Lab], None]

REGISTRY_PORT = 29600


def data(lab: Lab, interface: str = "eth1", *, without: Sequence[int] = ()) -> None:
    """A second network that works: 10.78.0.10, 10.78.0.11 ..."""
    for number, host in enumerate(lab.hosts):
        if number not in without:
            lab.add_interface(host, interface, f"10.78.0.{number + 10}/24", switch="data")


def docker_everywhere(lab: Lab) -> None:
    """Each host has docker0 with one and the same address."""
    for host in lab.hosts:
        lab.add_docker0(host)


def infiniband_cut_between_two(lab: Lab) -> None:
    """All is well but for one pair, on one network."""
    data(lab, "ib0")
    lab.cut(lab.hosts[1], lab.hosts[2], interface="ib0")


def eth0_is_missing_on_one(lab: Lab) -> None:
    """One host has the second network only."""
    data(lab)
    lab.remove_interface(lab.hosts[2], "eth0")


def translated_and_reachable(lab: Lab) -> None:
    """What h2 begins seems to come from an address that no interface has."""
    lab.nat(lab.hosts[2], "10.77.0.99")


def refused_by_a_firewall(lab: Lab) -> None:
    """h2 takes nothing that others begin, and says so."""
    lab.firewall(lab.hosts[2], reject=True)


def a_proxy_answers(lab: Lab) -> None:
    """As in a service mesh, something else takes all connections of one host."""
    lab.intercept(lab.hosts[2], f"{lab.hosts[0].address}:{REGISTRY_PORT}")


def one_address_twice(lab: Lab) -> None:
    """Somebody copied a configuration from h1 to h2."""
    data(lab, without=[2])
    lab.add_interface(lab.hosts[2], "eth1", "10.78.0.11/24", switch="data")
    # Control over it would be lost now and then: what the one is sent, the other may get.
    lab.firewall(lab.hosts[0], interface="eth1", reject=True)


def no_family_in_common(lab: Lab) -> None:
    """The second network is IPv4 for one and IPv6 for the others."""
    data(lab, without=[1, 2])
    for number in (1, 2):
        cidr = f"fd78::{number + 10}/64"
        lab.add_interface(lab.hosts[number], "eth1", cidr, switch="data")


def eth0_is_a_black_hole(lab: Lab) -> None:
    """Packets of more than 1300 bytes vanish on the only network of one host.

    What the host has to say when it joins fits into none of them: it has addresses of its own in
    many networks more.
    """
    for number in range(8):
        lab.add_interface(lab.hosts[1], f"own{number}", f"10.90.{number}.5/24", switch="own")
    lab.black_hole(lab.hosts[1], 1300)


def two_lans_and_a_vpn(lab: Lab) -> None:
    """h2 is in another LAN; tailscale0 joins them, with addresses of their own and a small MTU.

    What a host sends to the other LAN goes to its router, and is lost there.
    """
    for number, host in enumerate(lab.hosts):
        lan = number // 2
        lab.remove_interface(host, "eth0")
        lab.add_interface(host, "eth0", f"10.{lan}.0.{number + 10}/24", switch=f"lan{lan}")
        lab.add_interface(host, "tailscale0", f"100.64.0.{number + 10}/32", switch="vpn", mtu=1280)
        host.run(["ip", "route", "add", "100.64.0.0/10", "dev", "tailscale0"])
        host.run(["ip", "route", "add", "default", "via", f"10.{lan}.0.1"])


def in_containers(lab: Lab) -> None:
    """Each node is in a container; what it begins comes from its host, which maps no port to it."""
    for number, host in enumerate(lab.hosts[1:], start=1):
        lab.nat(host, f"10.77.0.{number + 90}")
    for host in lab.hosts:
        closed = f'iifname "eth0" tcp dport != {REGISTRY_PORT} ct state new drop'
        lab.add_rules(host, "filter hook input priority 0", [closed])


def prohibited_by_a_firewall(lab: Lab) -> None:
    """h2 takes nothing that others begin, and names the port that it rejects."""
    lab.add_rules(lab.hosts[2], "filter hook input priority 0", ["ct state new reject"])


NO_TORCH = ("--framework", "command", "--submit-retries", "0")
SHOW = shell("echo CHOSEN $MASTER_ADDR $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME $NCCL_SOCKET_FAMILY")
"""A COMMAND that says on each node which address the run stands on."""

pytestmark = [pytest.mark.faults, pytest.mark.netns, pytest.mark.timeout(300)]


def told(name: str) -> list[str]:
    """What three hosts' programs print that use this interface: rank 0's address, and its names."""
    masters = {"eth1": "10.78.0.10", "tailscale0": "100.64.0.10"}
    master = masters.get(name, "10.77.0.10")
    return [f"CHOSEN {master} {name} {name} AF_INET"] * 3


def sentence(outcome: Outcome) -> str:
    """The one line that says why the run failed."""
    (line,) = [line for line in outcome.err.splitlines() if line.startswith("rdzv: run 'r' failed")]
    return line


def end_of(run: Cluster, *last: int) -> Outcome:
    """Start these workers (or all), and see the run to its end."""
    run.start_workers(*last)
    return run.finish()


IB_FIRST = ("--interface", "ib0", "--interface", "eth0")
ONLY_ETH1 = ("--interface", "eth1")


@pytest.mark.parametrize(
    ("situation", "options", "interface", "says"),
    [
        at_night(docker_everywhere, (), "eth0", ""),
        (infiniband_cut_between_two, IB_FIRST, "eth0", "next: eth0"),
        (two_lans_and_a_vpn, ("-v",), "tailscale0", "of 3), from 100.64.0.12"),
        at_night(eth0_is_missing_on_one, (), "eth1", "slot 2 (h2) does not have its own address"),
        at_night(translated_and_reachable, (), "eth0", "(h2) is seen by the others as 10.77.0.99"),
    ],
)
def test_a_run_starts_on_the_first_network_that_is_proven(
    tmp_path: Path, situation: Situation, options: tuple[str, ...], interface: str, says: str
) -> None:
    with Lab(3) as lab:
        situation(lab)
        with cluster(lab, tmp_path, *NO_TORCH, *options, command=SHOW) as run:
            outcome = end_of(run)
        assert outcome.code == 0, outcome.err
        assert run.printed("CHOSEN ") == told(interface)
    assert says in outcome.err


@pytest.mark.parametrize(
    ("situation", "options", "says"),
    [
        (refused_by_a_firewall, (), ("slot 2 (h2)", "refused")),
        at_night(a_proxy_answers, (), ("slot 2 (h2)", "10.77.0.12", "a proxy")),
        at_night(
            prohibited_by_a_firewall, (), ("10.77.0.12 prohibits the connection", "a firewall rej")
        ),
        at_night(
            in_containers, (), ("(h1) as 10.77.0.91, slot 2 (h2) as 10.77.0.92", "--network host")
        ),
        at_night(docker_everywhere, ("--interface", "docker0"), ("172.17.0.1",)),
        at_night(one_address_twice, ONLY_ETH1, ("10.78.0.11", "slot 1 (h1)", "slot 2 (h2)")),
        at_night(no_family_in_common, ONLY_ETH1, ("slot 0 can offer IPv4 addresses only",)),
        at_night(eth0_is_a_black_hole, (), ("eth0 mtu 1300",)),
    ],
)
def test_a_run_that_cannot_start_names_what_is_wrong(
    tmp_path: Path, situation: Situation, options: tuple[str, ...], says: tuple[str, ...]
) -> None:
    with Lab(3) as lab:
        situation(lab)
        with cluster(lab, tmp_path, *NO_TORCH, *options, command=SHOW) as run:
            outcome = end_of(run)
        assert outcome.code == ExitCode.VERIFICATION_FAILED, outcome.err
        assert run.printed("CHOSEN ") == []
    said = sentence(outcome)
    assert [words for words in says if words not in said] == [], said


@pytest.mark.parametrize(
    ("interface", "options", "code", "says"),
    [
        at_night("ib0", IB_FIRST, 0, "slot 1 (h1) cannot reach slot 0 (h0): no route"),
        # Without a proof: with one there is no time to speak of between it and arming.
        at_night(
            *("eth1", (*ONLY_ETH1, "--verify", "off")),
            *(ExitCode.ARMING_FAILED, "10.78.0.11 (eth1) is"),
        ),
    ],
)
def test_an_interface_that_disappears_after_the_join(
    tmp_path: Path, interface: str, options: tuple[str, ...], code: int, says: str
) -> None:
    with Lab(3) as lab:
        data(lab, interface)
        with cluster(lab, tmp_path, *NO_TORCH, *options, command=SHOW) as run:
            run.start_workers(1)
            run.launched.wait_for("joined", 2)
            lab.remove_interface(lab.hosts[1], interface)
            outcome = end_of(run, 2)
        assert outcome.code == code, outcome.err
        assert run.printed("CHOSEN ") == (told("eth0") if code == 0 else [])
    assert says in outcome.err


LOSSY = ("--framework", "command", "--grace", "2", "--submit-retries", "0")
LEASE = 4


@pytest.mark.nightly
def test_a_run_whose_nodes_lose_a_fifth_of_their_packets_each_way_ends_well(tmp_path: Path) -> None:
    with Lab(3) as lab:
        for host in lab.hosts[1:]:
            lab.lose(host, 20)
        with cluster(lab, tmp_path, *LOSSY, command=["sleep", "3"]) as run:
            run.start_workers()
            # One that has not heard of the end in time goes on until its orphan time-out.
            outcome = run.finish(240, workers=150)
    assert outcome.code == 0, outcome.err + str(run.told)


@pytest.mark.parametrize(("way", "phase"), [at_night("to", "gathering"), ("from", "running")])
def test_a_node_cut_off_in_one_direction_is_named_within_its_lease(
    way: str, phase: str, tmp_path: Path
) -> None:
    options = (*LOSSY, "--lease", str(LEASE), "--orphan-timeout", "6")
    with Lab(3) as lab, cluster(lab, tmp_path, *options, command=["sleep", "600"]) as run:
        run.start_workers(*((1,) if phase == "gathering" else (1, 2)))
        if phase == "running":
            until((tmp_path / "h1" / "r" / "logs" / "node-1.log").exists)
        else:
            run.launched.wait_for("joined", 2)
        registry, node = lab.hosts[0], lab.hosts[1]
        cut = time.monotonic()
        lab.cut(*((node, registry) if way == "to" else (registry, node)), one_way=True)
        outcome = run.finish()
        seconds = time.monotonic() - cut
    assert outcome.code == 86
    assert ("slot 1 (h1)" if phase == "gathering" else "node 1 (h1)") in outcome.last_line
    assert "it was silent for" in outcome.last_line
    assert run.workers[1].returncode == 85
    assert seconds < LEASE + 15
