"""Which addresses a node offers, in which order, and what it says about each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from rendezvous.wire.errors import AddressError
from rendezvous.wire.node import Candidate, LinkKind
from tests.support.driver import make_join
from tests.support.fake_sysfs import (
    DOWN,
    IPOIB,
    LOOPBACK,
    NONE,
    SLOW,
    UNMANAGED,
    Builder,
    Trees,
    efa_p5,
    nd_h100_v5,
    roce_8x400,
    tcp_only,
)
from tests.worker.test_interfaces import see
from worker.machine.network import Interface, Network, RdmaKind, Skipped
from worker.offer.address import AddressChoice, Prefer, choose_candidates

LO = Interface("lo", ("127.0.0.1/8", "::1/128"), link_type=LOOPBACK)
LO_SKIPPED = [Skipped("lo", place, "loopback") for place in LO.addresses]
LO_HERE = "lo 127.0.0.1/8 (loopback), lo ::1/128 (loopback)"


def net(*interfaces: Interface) -> Network:
    return Network(interfaces)


def choose(
    machine: Network, *overrides: str, route: str | None = None, **how: Any
) -> AddressChoice:
    return choose_candidates(machine, route_source=route, overrides=overrides, **how)


def offered(choice: AddressChoice) -> list[str]:
    return [f"{c.interface} {c.address}/{c.prefix_length}: {c.reason}" for c in choice.candidates]


def places(choice: AddressChoice) -> list[str]:
    return [f"{c.interface} {c.address}" for c in choice.candidates]


def nic(name: str, *addresses: str, speed: int = 0, physical: bool = True) -> Interface:
    return Interface(name, addresses, speed_mbps=speed, is_physical=physical)


def refusal(machine: Network, *overrides: str, loopback: bool = False) -> AddressError:
    with pytest.raises(AddressError) as caught:
        choose(machine, *overrides, loopback=loopback)
    return caught.value


# ---- the four machine types ---------------------------------------------------------------------


def test_a_candidate_carries_all_that_is_known_of_it(trees: Trees) -> None:
    choice = choose(see(trees, nd_h100_v5), route="10.0.0.4")
    assert choice.candidates[1] == Candidate(
        interface="ib0",
        address="172.16.1.4",
        prefix_length=16,
        kind=LinkKind.IPOIB,
        mtu=2044,
        speed_mbps=400_000,
        reason="IPoIB, rail of the collectives, IPv4, 400 Gb/s",
    )
    assert offered(choice)[0] == (
        "eth0 10.0.0.4/24: Ethernet, IPv4, on the route to the registry, 100 Gb/s"
    )


DEGRADED = partial(nd_h100_v5, bad={2: DOWN, 5: UNMANAGED, 6: SLOW}, without_uverbs=[7])
"""A rail at half its rate carries addresses, and so does one whose uverbs node is missing."""
IB, RAILS = [f"ib{i}" for i in range(8)], [f"rdma{i}" for i in range(8)]


@pytest.mark.parametrize(
    ("build", "prefer", "expected"),
    [
        (nd_h100_v5, "auto", ["eth0", *IB]),
        (nd_h100_v5, "ib", [*IB, "eth0"]),
        (nd_h100_v5, "fastest", [*IB, "eth0"]),
        (partial(nd_h100_v5, ipoib=False), "ib", ["eth0"]),
        (DEGRADED, "ib", [*(f"ib{i}" for i in (0, 1, 3, 4, 7, 6)), "eth0"]),
        (roce_8x400, "auto", ["eth0", *RAILS]),
        (roce_8x400, "ib", ["eth0", *RAILS]),
        (roce_8x400, "fastest", [*RAILS, "eth0"]),
        (partial(roce_8x400, v4=False), "fastest", ["eth0"]),
        (partial(roce_8x400, bad={0: SLOW}), "fastest", [*RAILS[1:], "rdma0", "eth0"]),
        *((efa_p5, "ib", ["eth0"]), (tcp_only, "fastest", ["eth0", "eth0"])),
    ],
)
def test_each_machine_offers_what_is_preferred_first(
    trees: Trees, build: Builder, prefer: Prefer, expected: Sequence[str]
) -> None:
    choice = choose(see(trees, build), prefer=prefer)
    assert [c.interface for c in choice.candidates] == expected


# ---- the order ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (nic("eth9", "10.0.0.1/24"), nic("eth0", "fd00::1/64", speed=100_000)),
        (nic("eth9", "10.0.0.1/24"), nic("eth0", "10.1.0.1/24", speed=100_000, physical=False)),
        (nic("eth9", "10.9.9.9/24"), nic("eth0", "10.1.0.1/24", speed=100_000)),
        (nic("eth9", "10.0.0.1/24", speed=25_000), nic("eth0", "10.1.0.1/24", speed=10_000)),
        (nic("eth9", "10.0.0.1/24", speed=1), nic("eth0", "10.1.0.1/24")),
        (nic("eth9", "10.0.0.1/24"), nic("eth10", "10.1.0.1/24")),
        (nic("enp3s0", "10.0.0.1/24"), nic("enp3s0f1", "10.1.0.1/24")),
    ],
    ids=["IPv4", "physical", "route", "speed", "speed known", "natural order", "shorter name"],
)
def test_of_two_interfaces_the_better_comes_first(better: Interface, worse: Interface) -> None:
    choice = choose(net(worse, better), route="10.9.9.9")
    assert [c.interface for c in choice.candidates] == [better.name, worse.name]


def test_addresses_of_one_interface_keep_the_kernels_order() -> None:
    machine = net(nic("eth0", "10.0.0.9/24", "10.0.0.1/24"))
    assert places(choose(machine)) == ["eth0 10.0.0.9", "eth0 10.0.0.1"]


def test_a_rail_is_known_by_the_commonest_kind_of_all_devices() -> None:
    """Also where a pod has few interfaces; and where no kind is commonest there is no rail."""
    rail, other = RdmaKind("Ethernet", "MT4129"), RdmaKind("Ethernet", "MT4125")
    pod = Interface("eth0", ("10.244.3.7/24",))
    net1 = Interface("net1", ("10.224.0.4/24",), speed_mbps=400_000, is_physical=True, rdma=rail)
    assert places(choose(Network((net1, pod), (rail,) * 8 + (other,)))) == [
        "eth0 10.244.3.7",
        "net1 10.224.0.4",
    ]
    assert offered(choose(Network((net1, pod), (rail, other)))) == [
        "net1 10.224.0.4/24: Ethernet, IPv4, 400 Gb/s",
        "eth0 10.244.3.7/24: Ethernet, IPv4",
    ]


# ---- what is not offered ------------------------------------------------------------------------

VIRTUAL = (
    "docker0 br-1a2b vethx cali1 cilium_host flannel.1 cni0 virbr0 tap0 tunl0 tailscale0 wg0 "
    "kube-ipvs0 dummy0"
)


def one(name: str = "eth1", **how: Any) -> Interface:
    return Interface(name, ("10.1.0.1/24",), **how)


@pytest.mark.parametrize(
    ("interface", "reason"),
    [
        (Interface("eth1"), "no address"),
        (Interface("eth1", carrier=False), "no carrier"),
        (one(is_running=False), "down"),
        (one(carrier=False), "no carrier"),
        (one("br0", is_bridge=True), "bridge"),
        (one(master="br0", bridge="br0"), "port of br0"),
        (one(master="bond0"), "slave of bond0"),
        (one("ppp0", link_type=NONE), "tunnel"),
        (Interface("eth1", ("169.254.7.7/16",)), "link-local"),
        (Interface("eth1", ("127.0.0.9/8",)), "loopback"),
        *((one(name), "virtual by name") for name in VIRTUAL.split()),
    ],
)
def test_an_address_is_left_out_with_its_reason(interface: Interface, reason: str) -> None:
    choice = choose(net(interface, nic("eth0", "10.0.0.1/24")))
    assert places(choice) == ["eth0 10.0.0.1"]
    assert choice.skipped == [Skipped(interface.name, "".join(interface.addresses), reason)]


def test_real_interfaces_are_offered() -> None:
    names = ["bond0", "bond0.7", "ens1f0np0", "eth0", "ib0", "net1", "team0"]
    machine = net(LO, *(nic(name, f"10.0.{i}.1/24") for i, name in enumerate(names)))
    assert [one.interface for one in choose(machine).candidates] == names


def test_virtual_interfaces_are_offered_when_nothing_else_remains() -> None:
    docker = Interface("docker0", ("172.17.0.1/16",), is_bridge=True)
    tunnel = Interface("wg0", ("10.6.0.1/24",), link_type=NONE)
    bridge = Interface("br0", ("10.0.0.1/24",), is_bridge=True, is_physical=True)
    port = Interface("eth0", (), master="br0", bridge="br0", is_physical=True)
    choice = choose(net(docker, tunnel, bridge, port))
    assert offered(choice) == [
        "br0 10.0.0.1/24: bridge, IPv4",
        "docker0 172.17.0.1/16: bridge, IPv4",
        "wg0 10.6.0.1/24: virtual by name, IPv4",
    ]
    assert {c.kind for c in choice.candidates} == {LinkKind.VIRTUAL}
    assert choice.skipped == [Skipped("eth0", "", "port of br0")]


LAN = nic("eth0", "10.1.0.4/24")
DOCKER0 = Interface("docker0", ("172.17.0.1/16",), is_bridge=True, link_type=1)


@pytest.mark.parametrize(
    ("interface", "route", "kept"),
    [
        (Interface("tailscale0", ("100.64.0.4/32",), link_type=NONE, mtu=1280), None, True),
        (Interface("tailscale0", ("fd7a::4/128",), link_type=NONE), None, True),
        (Interface("wg0", ("10.6.0.4/24",)), "10.1.0.4", True),
        (Interface("nebula1", ("10.7.0.4/24",), link_type=NONE), None, True),
        (DOCKER0, "10.1.0.4", False),
        (DOCKER0, "172.17.0.1", True),
        (Interface("flannel.1", ("10.244.1.0/32",)), "10.1.0.4", False),
        (Interface("dummy0", ("10.8.0.4/32",)), "10.8.0.4", True),
        (Interface("wg0", ("10.6.0.4/24",), is_running=False), "10.6.0.4", False),
        (Interface("tap0", ("10.6.0.4/24",), master="br0", bridge="br0"), "10.6.0.4", False),
    ],
)
def test_of_what_is_virtual_vpns_and_the_way_to_the_registry_are_kept_for_the_last(
    interface: Interface, route: str | None, kept: bool
) -> None:
    choice = choose(net(LAN, interface), route=route)
    assert places(choice) == ["eth0 10.1.0.4"]
    left_out = [f"{one.interface} {one.address}" for one in choice.left_out]
    address = interface.addresses[0].partition("/")[0]
    assert left_out == ([f"{interface.name} {address}"] if kept else [])
    assert {one.kind for one in choice.left_out} <= {LinkKind.VIRTUAL}
    assert choice.skipped


def test_of_many_vpns_those_are_kept_that_lead_to_the_registry() -> None:
    vpns = [Interface(f"wg{number}", (f"10.6.{number}.4/24",)) for number in range(12)]
    choice = choose(net(LAN, *vpns), route="10.6.11.4")
    assert [one.interface for one in choice.left_out] == ["wg11", *(f"wg{n}" for n in range(7))]
    assert "on the route to the registry" in choice.left_out[0].reason


def test_who_names_an_interface_has_nothing_left_out_for_the_last() -> None:
    machine = net(LAN, Interface("wg0", ("10.6.0.4/24",)))
    assert choose(machine, "eth0", route="10.6.0.4").left_out == []
    assert choose(machine, "wg0").left_out == []
    assert choose(net(machine.interfaces[1])).left_out == []


def test_more_addresses_than_a_join_carries_are_left_out() -> None:
    addresses = [f"10.0.{i}.1/24" for i in range(66)]
    choice = choose(net(nic("eth0", *addresses)))
    replace(make_join(0), candidates=choice.candidates)
    reason = "after 64 others"
    assert choice.skipped == [Skipped("eth0", f"10.0.{i}.1/24", reason) for i in (64, 65)]


def test_an_ipv6_only_machine_offers_global_and_unique_local_addresses() -> None:
    machine = net(LO, nic("eth0", "2001:db8::4/64", "fd00::4/64", "fe80::4/64"))
    choice = choose(machine, route="fd00::4")
    assert offered(choice) == [
        "eth0 fd00::4/64: Ethernet, IPv6, on the route to the registry",
        "eth0 2001:db8::4/64: Ethernet, IPv6",
    ]
    assert choice.skipped == [*LO_SKIPPED, Skipped("eth0", "fe80::4/64", "link-local")]
    asked = places(choose(machine, "fd00::/8", "2001:0db8:0::0004"))
    assert asked == ["eth0 fd00::4", "eth0 2001:db8::4"]


# ---- overrides ----------------------------------------------------------------------------------

BUSY = net(
    LO,
    nic("eth0", "10.0.0.4/24", "fd00::4/64"),
    nic("eth1", "10.0.1.4/24", "fe80::1/64", speed=10_000),
    Interface("eth2", ("10.0.2.4/24",), carrier=False),
    Interface("eth3", ("10.0.3.4/24",), master="vrf0"),
    Interface("docker0", ("10.0.9.1/24",), is_bridge=True),
    Interface("ib0", ("172.16.1.4/16",), link_type=IPOIB),
)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ("eth0", ["eth0 10.0.0.4", "eth0 fd00::4"]),
        *((one, ["eth1 10.0.1.4"]) for one in ["eth1", "10.0.1.4", "10.0.1.0/24", "10.0.1.4/24"]),
        ("ib0 eth1", ["ib0 172.16.1.4", "eth1 10.0.1.4"]),
        ("10.0.0.0/16", ["eth1 10.0.1.4", "eth0 10.0.0.4"]),
        ("10.0.0.0/24 10.0.0.0/16", ["eth0 10.0.0.4", "eth1 10.0.1.4"]),
        *((one, ["docker0 10.0.9.1"]) for one in ("docker0", "10.0.9.0/24")),
        *((one, ["eth3 10.0.3.4"]) for one in ("10.0.3.4", "10.0.3.0/24")),
        ("eth1 10.0.1.4", ["eth1 10.0.1.4"]),
    ],
)
def test_what_is_asked_for_is_offered_in_its_order(overrides: str, expected: list[str]) -> None:
    assert places(choose(BUSY, *overrides.split())) == expected


def test_what_was_asked_for_and_what_was_not_is_said() -> None:
    choice = choose(BUSY, "10.0.9.0/24", route="10.0.0.4")
    assert offered(choice) == ["docker0 10.0.9.1/24: asked for by 10.0.9.0/24: bridge, IPv4"]
    assert choice.candidates[0].kind == LinkKind.VIRTUAL
    rest = ("eth0 10.0.0.4/24", "eth0 fd00::4/64", "eth1 10.0.1.4/24", "eth3 10.0.3.4/24")
    names = [place.split() for place in (*rest, "ib0 172.16.1.4/16")]
    assert set(choice.skipped) == {
        *LO_SKIPPED,
        *(Skipped(name, place, "not asked for") for name, place in names),
        Skipped("eth1", "fe80::1/64", "link-local"),
        Skipped("eth2", "10.0.2.4/24", "no carrier"),
    }


@pytest.mark.parametrize(
    "override",
    [
        *("eth9", "eth", "eth2", "10.0.2.4", "10.0.2.0/24", "10.0.0.5", "192.168.0.0/16"),
        *("lo", "127.0.0.1", "127.0.0.0/8", "fe80::1", "::ffff:10.0.0.4", "0.0.0.0"),
        *("", "10.0.0.4/99", "x\ny"),
    ],
)
def test_an_override_that_cannot_be_offered_is_refused(override: str) -> None:
    error = refusal(BUSY, "eth0", override)
    assert error.message == (
        f"{override!r} does not name an address that is up and can be offered; this node has: "
        "lo 127.0.0.1/8 (loopback), lo ::1/128 (loopback), eth0 10.0.0.4/24 (up), eth0 "
        "fd00::4/64 (up), eth1 10.0.1.4/24 (up), eth1 fe80::1/64 (link-local), eth2 "
        "10.0.2.4/24 (no carrier), eth3 10.0.3.4/24 (slave of vrf0), docker0 10.0.9.1/24 "
        "(bridge), ib0 172.16.1.4/16 (up)"
    )
    assert error.hint == "try --interface eth1, --address 10.0.1.4 or --network 10.0.1.0/24"


def test_what_could_be_asked_for_is_the_hint_where_nothing_is_offered_unasked() -> None:
    words = "try --interface eth1, --address 10.1.0.1 or --network 10.1.0.0/24"
    assert refusal(net(one(master="bond0"))).hint == words


@pytest.mark.parametrize(
    ("interfaces", "words"),
    [
        ((), "no interface at all"),
        (
            (nic("a"), Interface("b", is_running=False)),
            "a without an address (up), b without an address (down)",
        ),
        ((LO, one(is_running=False)), f"{LO_HERE}, eth1 10.1.0.1/24 (down)"),
        ((replace(LO, is_running=False),), "lo 127.0.0.1/8 (down), lo ::1/128 (down)"),
    ],
)
def test_who_has_nothing_to_offer_tells_all(interfaces: tuple[Interface, ...], words: str) -> None:
    error = refusal(Network(interfaces), loopback="(down), lo" in words)
    assert error.message == f"this node has no address to offer; it has: {words}"
    assert error.hint == "bring up an interface with an address that fits, then try again"


@pytest.mark.parametrize(("count", "more"), [(20, ""), (21, " and 1 more")])
def test_a_long_list_of_what_exists_is_cut(count: int, more: str) -> None:
    machine = Network(tuple(nic(f"eth{i}", f"10.0.{i}.1/24") for i in range(count)))
    assert refusal(machine, "nix").message.endswith(f"eth19 10.0.19.1/24 (up){more}")


# ---- one machine --------------------------------------------------------------------------------


def test_a_run_on_one_machine_offers_loopback_and_nothing_else(trees: Trees) -> None:
    choice = choose(see(trees, efa_p5), route="10.1.3.4", loopback=True)
    common: dict[str, Any] = {"interface": "lo", "kind": LinkKind.LOOPBACK, "mtu": 65536}
    four = Candidate(address="127.0.0.1", prefix_length=8, reason="loopback, IPv4", **common)
    six = Candidate(address="::1", prefix_length=128, reason="loopback, IPv6", **common)
    assert choice == AddressChoice([four, six], [Skipped("eth0", "10.1.3.4/20", "not loopback")])


@pytest.mark.parametrize(
    ("override", "place"),
    [
        *(("127.0.0.3", "127.0.0.3/8"), ("127.0.0.1", "127.0.0.1/8")),
        *(("127.0.0.0/8", "127.0.0.1/8"), ("::1", "::1/128")),
    ],
)
def test_any_loopback_address_can_be_asked_for(override: str, place: str) -> None:
    [found] = offered(choose(net(LO), override, loopback=True))
    assert found.startswith(f"lo {place}: asked for by {override}: loopback, IPv")


@pytest.mark.parametrize("override", ["eth0", "10.0.0.4", "10.0.0.0/8", "::2", "128.0.0.1"])
def test_a_run_on_one_machine_takes_no_other_address(override: str) -> None:
    error = refusal(BUSY, override, loopback=True)
    assert error.message.startswith(f"{override!r} does not name an address that is up")
    assert error.hint == "try --interface lo, --address 127.0.0.1 or --network 127.0.0.0/8"


def test_an_address_on_the_loopback_interface_that_is_none_is_left_out() -> None:
    lo = Interface("lo", ("127.0.0.1/8", "10.255.0.1/32"), link_type=LOOPBACK)
    choice = choose(net(lo), loopback=True)
    assert places(choice) == ["lo 127.0.0.1"]
    assert choice.skipped == [Skipped("lo", "10.255.0.1/32", "not loopback")]
