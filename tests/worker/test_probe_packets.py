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


def test_a_hello_is_read_by_the_other_nodes_of_the_run() -> None:
    data = packets().hello("tcp", 5, NONCE)
    assert len(data) == HELLO_BYTES
    assert packets(slot=5).read_hello("tcp", data) == Hello(3, 5, NONCE)


def test_what_follows_a_hello_does_not_matter() -> None:
    data = packets().hello("udp", 5, NONCE) + b"\0" * 9_000
    assert packets(slot=5).read_hello("udp", data) == Hello(3, 5, NONCE)


def test_a_reply_is_read_by_the_node_that_has_asked() -> None:
    assert len(reply()) == REPLY_BYTES
    assert packets().read_reply("tcp", reply()) == Reply(NONCE, 5, 1.5, "10.0.0.3", 64)


@pytest.mark.parametrize(
    "changes", [{"key": b"x" * 32}, {"run": "llama2"}, {"launch_id": "launch02"}]
)
def test_nodes_of_other_runs_and_launches_prove_nothing(changes: dict[str, object]) -> None:
    stranger = packets(**changes)
    assert stranger.read_hello("tcp", packets().hello("tcp", 5, NONCE)) is None
    assert stranger.read_reply("tcp", reply()) is None


def test_a_packet_is_good_for_one_purpose() -> None:
    hello, answer = packets().hello("tcp", 5, NONCE), reply()
    assert packets().read_hello("udp", hello) is None
    assert packets().read_reply("udp", answer) is None
    assert packets().read_reply("tcp", hello) is None
    assert packets().read_hello("tcp", answer) is None


@given(st.integers(0, HELLO_BYTES - 1), st.integers(1, 255))
def test_a_hello_with_one_other_byte_is_none(place: int, change: int) -> None:
    data = bytearray(packets().hello("tcp", 5, NONCE))
    data[place] ^= change
    assert packets().read_hello("tcp", bytes(data)) is None


@given(st.integers(0, REPLY_BYTES - 1), st.integers(1, 255))
def test_a_reply_with_one_other_byte_is_none(place: int, change: int) -> None:
    data = bytearray(reply())
    data[place] ^= change
    assert packets().read_reply("tcp", bytes(data)) is None


@given(st.binary(max_size=200))
def test_junk_is_nothing(data: bytes) -> None:
    assert packets().read_hello("tcp", data) is None
    assert packets().read_reply("tcp", data) is None


def test_a_packet_that_is_cut_off_or_too_long_is_nothing() -> None:
    assert packets().read_hello("tcp", packets().hello("tcp", 5, NONCE)[:-1]) is None
    assert packets().read_reply("tcp", reply()[:-1]) is None
    assert packets().read_reply("tcp", reply() + b"x") is None


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


def test_packets_have_a_size_that_never_changes() -> None:
    """Nodes of one run may hold different versions."""
    assert (HELLO_BYTES, REPLY_BYTES) == (64, 136)
    assert packets().hello("tcp", 5, NONCE)[:32] == struct.pack(
        "!8sII16s", b"rdzv-ht1", 3, 5, NONCE
    )


def test_the_key_is_not_shown() -> None:
    assert "kkk" not in repr(NODE)
