"""Networks with something wrong in them, for three hosts or more; control goes over eth0.

A second network, 10.78.0.0/24, is plugged into each host: `data` makes one as it should be, the
others go wrong from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tests.support.netlab import Lab

Situation: TypeAlias = Callable[[Lab], None]

REGISTRY_PORT = 29600


def data(
    lab: Lab, interface: str = "eth1", *, mtu: int = 1500, without: Sequence[int] = ()
) -> None:
    """A second network that works: 10.78.0.10, 10.78.0.11 ..."""
    for number, host in enumerate(lab.hosts):
        if number not in without:
            cidr = f"10.78.0.{number + 10}/24"
            lab.add_interface(host, interface, cidr, switch="data", mtu=mtu)


def docker_everywhere(lab: Lab) -> None:
    """Each host has docker0 with one and the same address."""
    for host in lab.hosts:
        lab.add_docker0(host)


def infiniband_cut_between_two(lab: Lab) -> None:
    """All is well but for one pair, on one network."""
    data(lab, "ib0")
    lab.cut(lab.hosts[1], lab.hosts[2], interface="ib0")


def infiniband_is_a_black_hole(lab: Lab) -> None:
    """Jumbo frames on each host, and one port of the switch that takes none."""
    data(lab, "ib0", mtu=9000)
    lab.black_hole(lab.hosts[1], 1500, "ib0")


def eth0_is_missing_on_one(lab: Lab) -> None:
    """One host has the second network only."""
    data(lab)
    lab.remove_interface(lab.hosts[2], "eth0")


def translated_and_reachable(lab: Lab) -> None:
    """What h2 begins seems to come from an address that no interface has."""
    lab.nat(lab.hosts[2], "10.77.0.99", reachable=True)


def translated(lab: Lab) -> None:
    """The same, and nothing gets in."""
    lab.nat(lab.hosts[2], "10.77.0.99", reachable=False)


def refused_by_a_firewall(lab: Lab) -> None:
    """h2 takes nothing that others begin, and says so."""
    lab.firewall(lab.hosts[2], reject=True)


def only_the_registry_is_open(lab: Lab) -> None:
    """What a strict security group does: everything is closed but the one known port."""
    for host in lab.hosts:
        lab.firewall(host, allow=[REGISTRY_PORT])


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
