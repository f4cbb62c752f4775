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


def infiniband(lab: Lab) -> None:
    """A second network by the name of IP over InfiniBand."""
    data(lab, "ib0")


def docker_everywhere(lab: Lab) -> None:
    """Each host has docker0 with one and the same address."""
    for host in lab.hosts:
        lab.add_docker0(host)


def infiniband_cut_between_two(lab: Lab) -> None:
    """All is well but for one pair, on one network."""
    infiniband(lab)
    lab.cut(lab.hosts[1], lab.hosts[2], interface="ib0")


def infiniband_closed_in_one_direction(lab: Lab) -> None:
    """h2 takes nothing that h1 begins; the other way all is well."""
    infiniband(lab)
    lab.firewall(lab.hosts[2], sender=lab.hosts[1], interface="ib0")


def infiniband_is_a_black_hole(lab: Lab) -> None:
    """Jumbo frames on each host, and one port of the switch that takes none."""
    data(lab, "ib0", mtu=9000)
    lab.black_hole(lab.hosts[1], 1500, "ib0")


def eth0_is_missing_on_one(lab: Lab) -> None:
    """One host has the second network only."""
    data(lab)
    lab.remove_interface(lab.hosts[2], "eth0")


def eth0_without_carrier_on_one(lab: Lab) -> None:
    """The cable of one host's first network is out."""
    data(lab)
    lab.link_down(lab.hosts[2])


def infiniband_with_one_address_twice(lab: Lab) -> None:
    """Somebody copied a configuration from h1 to h2."""
    _one_address_twice(lab, "ib0")


def several_in_one_subnet(lab: Lab) -> None:
    """Each host has three interfaces in the subnet of eth0."""
    for number, host in enumerate(lab.hosts):
        lab.add_interface(host, "eth1", f"10.77.0.{number + 110}/24")
        lab.add_interface(host, "eth2", f"10.77.0.{number + 210}/24")


def names_that_differ(lab: Lab) -> None:
    """One network, and no two hosts have the same name for it."""
    for number, name in enumerate(("eth1", "ens5", "enp3s0")):
        lab.add_interface(lab.hosts[number], name, f"10.78.0.{number + 10}/24", switch="data")


def a_subnet_for_each_host(lab: Lab) -> None:
    """Each host's second interface is in a subnet of its own; the others have routes there."""
    for number, host in enumerate(lab.hosts):
        lab.add_interface(host, "eth1", f"10.78.{number}.10/24", switch="data")
        host.run(["ip", "route", "add", "10.78.0.0/16", "dev", "eth1"])


def docker0_in_the_way(lab: Lab) -> None:
    """The site uses 172.17.0.0/24, h1 has its first address, and so has h0's docker0."""
    for number, host in enumerate(lab.hosts):
        own = {0: 10, 1: 1}.get(number, number + 10)
        lab.add_interface(host, "eth1", f"172.17.0.{own}/24", switch="data")
    # The bridge's route is the wider one; the address itself is what h0 takes for its own.
    lab.add_docker0(lab.hosts[0])


def translated_and_reachable(lab: Lab) -> None:
    """What h2 begins seems to come from an address that no interface has."""
    lab.nat(lab.hosts[2], "10.77.0.99", reachable=True)


def translated(lab: Lab) -> None:
    """The same, and nothing gets in."""
    lab.nat(lab.hosts[2], "10.77.0.99", reachable=False)


def jumbo_frames_on_one(lab: Lab) -> None:
    """One host's interface is set to 9000 bytes, and the network takes 1500."""
    data(lab)
    lab.hosts[1].run(["ip", "link", "set", "eth1", "mtu", "9000"])


def late_packets(lab: Lab) -> None:
    """One host is far away."""
    lab.delay(lab.hosts[2], 0.1)


def cut_between_two(lab: Lab) -> None:
    """Of six directed pairs two are gone, and there is no other network."""
    lab.cut(lab.hosts[1], lab.hosts[2])


def closed_in_one_direction(lab: Lab) -> None:
    """What h1 begins with h2 vanishes."""
    lab.firewall(lab.hosts[2], sender=lab.hosts[1])


def closed_by_a_firewall(lab: Lab) -> None:
    """h2 takes nothing that others begin."""
    lab.firewall(lab.hosts[2])


def refused_by_a_firewall(lab: Lab) -> None:
    """The same, and it says so."""
    lab.firewall(lab.hosts[2], reject=True)


def only_the_registry_is_open(lab: Lab) -> None:
    """What a strict security group does: everything is closed but the one known port."""
    for host in lab.hosts:
        lab.firewall(host, allow=[REGISTRY_PORT])


def black_hole(lab: Lab) -> None:
    """Jumbo frames on each host, and one port of the switch that takes none."""
    data(lab, mtu=9000)
    lab.black_hole(lab.hosts[1], 1500, "eth1")


def two_islands(lab: Lab) -> None:
    """The cable between two switches is out, two hosts are on each."""
    data(lab)
    for one in lab.hosts[:2]:
        for other in lab.hosts[2:]:
            lab.cut(one, other, interface="eth1")


def a_proxy_answers(lab: Lab) -> None:
    """As in a service mesh, something else takes all connections of one host."""
    lab.intercept(lab.hosts[2], f"{lab.hosts[0].address}:{REGISTRY_PORT}")


def one_address_twice(lab: Lab) -> None:
    """Two hosts have one address on the second network."""
    _one_address_twice(lab, "eth1")


def _one_address_twice(lab: Lab, interface: str) -> None:
    data(lab, interface, without=[2])
    lab.add_interface(lab.hosts[2], interface, "10.78.0.11/24", switch="data")
    # Control over it would be lost now and then: what the one is sent, the other may get.
    lab.firewall(lab.hosts[0], interface=interface, reject=True)


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
