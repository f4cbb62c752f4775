"""What nodes say to each other when they probe, whom they visit, and names that lead elsewhere."""

from __future__ import annotations

import hmac
import math
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rendezvous.wire.verify import PairProbe, ProbePeer, ProbePlan
from worker.hosts.file import known_names
from worker.probe.names import with_names
from worker.probe.packets import (
    HELLO_BYTES,
    NONCE_BYTES,
    REPLY_BYTES,
    Hello,
    Identity,
    Packets,
    Reply,
)
from worker.probe.plan import unfit_peers

NODE = Identity(b"k" * 32, "llama", "launch01", 3)
NONCE = bytes(range(NONCE_BYTES))


def packets(**changes: object) -> Packets:
    return Packets(replace(NODE, **changes))  # type: ignore[arg-type]


def reply(source: str = "10.0.0.3", clock: float = 1.5) -> bytes:
    return packets(slot=5).reply("tcp", Hello(3, 5, NONCE), clock=clock, source=source, size=64)


HELLO, REPLY = packets().hello("tcp", 5, NONCE), reply()


def is_nothing(data: bytes, node: Packets) -> bool:
    return node.read_hello("tcp", data) is None and node.read_reply("tcp", data) is None


def test_packets_are_read_by_the_other_nodes_of_the_run_whatever_their_version() -> None:
    assert (len(HELLO), len(REPLY)) == (HELLO_BYTES, REPLY_BYTES) == (64, 136)
    assert HELLO[:32] == struct.pack("!8sII16s", b"rdzv-ht1", 3, 5, NONCE)
    assert packets(slot=5).read_hello("tcp", HELLO) == Hello(3, 5, NONCE)
    assert packets().read_reply("tcp", REPLY) == Reply(NONCE, 5, 1.5, "10.0.0.3", 64)


def test_what_follows_a_hello_does_not_matter() -> None:
    data = packets().hello("udp", 5, NONCE) + b"\0" * 9_000
    assert packets(slot=5).read_hello("udp", data) == Hello(3, 5, NONCE)


@given(st.binary(max_size=200), st.binary(max_size=100))
def test_a_packet_ends_with_its_hmac(key: bytes, run: bytes) -> None:
    node = packets(key=key, run=run.hex())
    own = hmac.digest(key, f"{run.hex()}\nlaunch01".encode(), "sha256")
    said = node.hello("tcp", 5, NONCE)
    assert said[-32:] == hmac.digest(own, said[:-32], "sha256")


@pytest.mark.parametrize(
    "changes", [{"key": b"x" * 32}, {"run": "llama2"}, {"launch_id": "launch02"}]
)
def test_nodes_of_other_runs_and_launches_prove_nothing(changes: dict[str, object]) -> None:
    assert is_nothing(HELLO, packets(**changes))
    assert is_nothing(REPLY, packets(**changes))


def test_a_packet_is_good_for_one_purpose() -> None:
    assert packets().read_hello("udp", HELLO) is None
    assert packets().read_reply("udp", REPLY) is None
    assert packets().read_reply("tcp", HELLO) is None
    assert packets().read_hello("tcp", REPLY) is None


@given(st.sampled_from([HELLO, REPLY]), st.integers(0, HELLO_BYTES - 1), st.integers(1, 255))
def test_a_packet_with_one_other_byte_is_none(packet: bytes, place: int, change: int) -> None:
    for at in (place, place - HELLO_BYTES):
        data = bytearray(packet)
        data[at] ^= change
        assert is_nothing(bytes(data), packets())


@given(st.binary(max_size=200))
def test_junk_is_nothing(data: bytes) -> None:
    assert is_nothing(data, packets())


@pytest.mark.parametrize("data", [HELLO[:-1], REPLY[:-1], REPLY + b"x"])
def test_a_packet_that_is_cut_off_or_too_long_is_nothing(data: bytes) -> None:
    assert is_nothing(data, packets())


@pytest.mark.parametrize("clock", [math.nan, math.inf, -math.inf, 1e300])
def test_a_clock_that_is_none_is_refused(clock: float) -> None:
    assert packets().read_reply("tcp", reply(clock=clock)) is None


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        *(("10.0.0.3", "10.0.0.3"), ("::ffff:10.0.0.3", "10.0.0.3"), ("fd77::3", "fd77::3")),
        *(("::1", "::1"), ("fe80::1%eth0", "fe80::1"), ("1" * 100, "1" * 64)),
        *(("evil\x1b[2J", ""), ("übel", ""), ("", "")),
    ],
)
def test_an_address_is_told_in_its_plain_form_or_not_at_all(seen: str, said: str) -> None:
    told = packets().read_reply("tcp", reply(source=seen))
    assert told is not None
    assert told.source == said


def test_the_key_is_not_shown() -> None:
    assert "kkk" not in repr(NODE)


# ---- rows that only a lying registry would write ------------------------------------------------


def plan(*places: tuple[str, int], names: str = "h0 h1 h2") -> ProbePlan:
    hostnames = [*names.split(), *["h"] * len(places)]
    peers = [
        ProbePeer(slot=i, hostname=name, address=a, interface="eth0", mtu=0, probe_port=port)
        for i, ((a, port), name) in enumerate(zip(places, hostnames, strict=False))
    ]
    return ProbePlan(network="eth0", peers=peers)


OWN = ("10.0.0.1", 20_123)


@pytest.mark.parametrize(
    "place",
    [
        *(("10.0.0.2", 1_024), ("10.0.0.2", 65_535), ("192.0.2.7", 30_000)),
        *(("fd00::2", 30_000), ("2001:db8::2", 30_000)),
    ],
)
def test_what_nodes_offer_is_visited(place: tuple[str, int]) -> None:
    assert unfit_peers(plan(OWN, place), [1, 9], loopback=False) == []


@pytest.mark.parametrize(
    ("address", "port", "words"),
    [
        ("10.0.0.2", 1_023, "needs privileges, and no node answers there"),
        ("127.0.0.1", 30_000, "is loopback"),
        ("::1", 30_000, "is loopback"),
        ("10.0.0.1", 30_000, "is said to be the address of several nodes"),
    ],
)
def test_what_no_node_offers_is_not(address: str, port: int, words: str) -> None:
    where = plan(OWN, (address, port), ("10.0.0.3", 30_000))
    assert unfit_peers(where, [1, 2], loopback=False) == [
        PairProbe(slot=1, outcome="error", detail=f"not visited: {address} port {port} {words}")
    ]


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "::", "224.0.0.1", "ff02::1", "169.254.169.254", "fe80::1"),
        *("255.255.255.255", "::ffff:127.0.0.1"),
    ],
)
def test_of_some_addresses_there_is_no_plan(address: str) -> None:
    with pytest.raises(ValidationError):
        plan(OWN, (address, 30_000))


def test_one_host_at_many_ports_is_not_visited_at_any() -> None:
    where = plan(OWN, *(("10.0.0.2", port) for port in range(2_000, 2_064)))
    found = unfit_peers(where, range(1, 65), loopback=False)
    assert [pair.slot for pair in found] == list(range(1, 65))


def test_a_run_on_one_machine_visits_that_machine_alone() -> None:
    where = plan(("127.0.0.2", 30_000), ("127.0.0.3", 30_000), ("10.0.0.2", 30_000))
    assert [pair.slot for pair in unfit_peers(where, [1, 2], loopback=True)] == [2]


# ---- what a node tells of its hosts file --------------------------------------------------------

HOSTS = """\
127.0.0.1 localhost
127.0.1.1 h0
10.0.0.2 h1 h1.example # as planned
10.9.9.9 H2
fe80::1%eth0 h3
# 10.8.8.8 h4
"""
MANY = "".join(f"10.1.0.{number} h1\n" for number in range(1, 9))
OF_THE_RUN = "# BEGIN rdzv run=r1 pid=1 start=2 boot=b ns=3 own=\n10.7.7.7 h1\n# END rdzv run=r1\n"


@pytest.mark.parametrize(
    ("hosts", "names", "told"),
    [
        (HOSTS, "h0 h1 h2 h3 h4", ["", "10.9.9.9", "fe80::1%eth0", ""]),
        (f"{HOSTS}10.0.0.3 h2\n", "h0 h1 h2", ["", ""]),  # one right address of several
        (HOSTS, "h2 H2", [""]),  # the own hostname is another matter
        (MANY, "h0 h1", ["10.1.0.1, 10.1.0.2, 10.1.0.3, 10.1.0.4"]),
        ("nonsense h1\n999.1.1.1 h1\n", "h0 h1", [""]),
        (f"fe80::1%{'x' * 300} h1\n", "h0 h1", [f"fe80::1%{'x' * 244}…"]),
        ("fe80::1%\x07 h1\n", "h0 h1", ["fe80::1%?"]),
        (OF_THE_RUN, "h0 h1", [""]),
    ],
)
def test_a_name_that_leads_elsewhere_is_told_and_no_other(
    tmp_path: Path, hosts: str, names: str, told: list[str]
) -> None:
    (tmp_path / "hosts").write_text(hosts)
    where = plan(*((f"10.0.0.{n}", 2_000 + n) for n in range(1, len(told) + 2)), names=names)
    pairs = [PairProbe(slot=slot, outcome="ok") for slot in range(1, len(told) + 1)]
    found = with_names(pairs, where, 0, known_names(tmp_path / "hosts", "r1"))
    assert [pair.resolved for pair in found] == told


def test_a_hosts_file_that_is_not_there_has_no_names(tmp_path: Path) -> None:
    assert known_names(tmp_path / "none", "r1") == {}
