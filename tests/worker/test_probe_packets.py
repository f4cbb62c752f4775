"""What proves to be of a node of the run, and what does not."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.probe.packets import (
    HELLO_BYTES,
    NONCE_BYTES,
    REPLY_BYTES,
    Hello,
    Identity,
    Packets,
    Reply,
)

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
