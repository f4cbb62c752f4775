"""Where nodes came from, as the registry saw it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rendezvous.proof.origins import (
    Origin,
    behind_nat,
    nat_text,
    origin_of,
    words_of_origin,
)
from rendezvous.wire.node import JoinRequest
from rendezvous.wire.types import parse_address
from tests.support.driver import Drive, make_candidate, make_join, make_spec
from tests.support.tables import rows


def node(slot: int = 1, own: str = "10.0.0.2", left_out: str = "", route: str = "") -> JoinRequest:
    join = make_join(slot, addresses=own.split(), hostname=f"h{slot}")
    kept = [make_candidate(one, "tailscale0", 32) for one in left_out.split()]
    return replace(join, left_out=kept, registry_source=route)


@rows(
    "own left_out route source origin",
    """
an ingress is in between | 10.0.0.2 | | 10.0.0.2 | | unknown
one that it offers | 10.0.0.2 10.1.0.2 | | | 10.1.0.2 | own
one that it left out | 10.0.0.2 | 100.64.0.2 | | 100.64.0.2 | own
one that it told of alone | 10.0.0.2 | | 10.9.0.2 | 10.9.0.2 | own
masquerading | 10.0.0.2 | | 10.0.0.2 | 192.0.2.9 | foreign
carrier-grade NAT | 10.0.0.2 | | 10.0.0.2 | 100.64.7.7 | foreign
NAT of IPv6 | fd00::2 | | fd00::2 | 2001:db8::9 | foreign
no NAT lets link-local pass | 10.0.0.2 | | | fe80::5 | own
an ssh tunnel | 10.0.0.2 | | 127.0.0.1 | 127.0.0.1 | tunnel
an ssh tunnel over IPv6 | fd00::2 | | ::1 | ::1 | tunnel
a sidecar | 10.0.0.2 | | 10.0.0.2 | 127.0.0.6 | tunnel
all on one machine | 127.0.1.1 | | 127.0.0.1 | 127.0.0.1 | own
""",
)
def test_a_source_says_what_is_between_node_and_registry(
    own: str, left_out: str, route: str, source: str, origin: str
) -> None:
    assert origin_of(node(1, own, left_out, route), source) is Origin(origin)


def test_who_is_behind_nat_is_named_with_what_the_registry_sees() -> None:
    joins = [node(0, "10.0.0.1"), node(1), node(2, "10.0.0.3"), node(3, "10.0.0.4")]
    seen = behind_nat(joins, {0: "10.0.0.1", 1: "192.0.2.9", 2: "127.0.0.1"})
    assert seen == {1: "192.0.2.9"}
    names = {1: "h1", 2: "h2"}
    assert nat_text({}, names) == ""
    assert nat_text(seen, names) == (
        "; the registry sees slot 1 (h1) as 192.0.2.9, which is not one of its addresses: most "
        "likely NAT (masquerading, ports that are mapped), which lets no other connection in"
    )
    assert "slot 1 (h1) as a, slot 2 (h2) as b, which they do not have" in nat_text(
        {2: "b", 1: "a"}, names
    )


def test_of_many_addresses_a_few_are_told() -> None:
    many = " ".join(f"10.0.{number}.2" for number in range(60))
    assert words_of_origin(Origin.FOREIGN, node(1, many, route="127.0.0.1")) == (
        "not an address of the node, which has 10.0.0.2, 10.0.1.2, 10.0.2.2 and 57 more: NAT or a "
        "proxy is in between"
    )


NOT_OURS = "(not an address of the node, which has 10.0.0.2: NAT or a proxy is in between)"


@pytest.mark.parametrize(
    ("source", "here", "address", "words"),
    [
        ("10.0.0.2", False, "10.0.0.2", "), from 10.0.0.2"),
        ("192.0.2.9", False, "192.0.2.9", f"), from 192.0.2.9 {NOT_OURS}"),
        (
            *("127.0.0.1", False, "127.0.0.1"),
            "), from 127.0.0.1 (through a tunnel or a proxy on the registry's machine)",
        ),
        ("127.0.0.1", True, "10.0.0.2", "), from the registry's own machine (10.0.0.2)"),
        ("", False, "10.0.0.2", "host1 joined (1 of 3) (offering 10.0.0.2)"),
    ],
)
def test_joined_from_tells_where_a_node_came_from(
    source: str, here: bool, address: str, words: str
) -> None:
    drive = Drive(make_spec(3))
    drive.join(1, source=source, here=here)
    assert words in drive.reasons[-1]
    status = drive.status().slots[1]
    assert (status.address, status.source) == (address, source)
    assert parse_address(status.address)
