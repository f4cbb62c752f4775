"""How large a packet may be on the way to a peer: asked by datagrams that nobody may fragment."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.worker.test_probe import identity
from worker.probe.packets import HELLO_BYTES, Packets
from worker.probe.path_mtu import PathMtu

pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def soon_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.probe.path_mtu._WAIT_SECONDS", 0.15)


class Narrow(asyncio.DatagramProtocol):
    """A peer behind a way that datagrams over a size do not pass, nor some of the others."""

    def __init__(self, largest: int, lost: int = 0) -> None:
        self._packets = Packets(identity(1))
        self._largest = largest
        self._lost = lost
        self.heard: set[tuple[bytes, str]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.heard.add((data[:HELLO_BYTES], addr[0]))
        said = self._packets.read_hello("udp", data)
        assert said is not None
        if len(data) + 28 > self._largest:
            return
        if self._lost:
            self._lost -= 1
            return
        size = len(data)
        reply = self._packets.reply("udp", said, clock=0.0, source=addr[0], size=size)
        self._transport.sendto(reply, addr)


@asynccontextmanager
async def asking(peer: Narrow, source: str = "") -> AsyncIterator[tuple[PathMtu, int]]:
    """What asks for packet sizes, and the port of a peer."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: peer, ("127.0.0.1", 0))
    port = transport.get_extra_info("sockname")[1]
    with contextlib.closing(transport), PathMtu(Packets(identity(0)), 4, source) as path:
        yield path, port


async def test_where_no_peer_answers_datagrams_only_the_first_few_are_asked() -> None:
    """As with a firewall that lets TCP alone pass: to wait for each would cost a start seconds."""
    mute = Narrow(0)
    async with asking(mute) as (path, port):
        first = [path.ask(slot, "127.0.0.1", port, 1_500) for slot in range(1, 5)]
        assert await asyncio.gather(*first) == [None] * 4
        assert [await path.ask(s, "127.0.0.1", port, 1_500) for s in range(5, 30)] == [None] * 25
    assert len(mute.heard) == 4


async def test_mute_peers_among_others_keep_nobody_from_being_measured() -> None:
    async with asking(Narrow(1_500)) as (path, port):
        with socket.socket(type=socket.SOCK_DGRAM) as mute:
            mute.bind(("127.0.0.1", 0))
            assert await path.ask(1, "127.0.0.1", port, 1_500) == 1_500
            deaf = mute.getsockname()[1]
            mutes = [path.ask(slot, "127.0.0.1", deaf, 1_500) for slot in range(2, 10)]
            assert await asyncio.gather(*mutes) == [None] * 8
            assert await path.ask(10, "127.0.0.1", port, 1_500) == 1_500


@pytest.mark.parametrize(
    ("narrow", "mtu", "found"),
    [
        (Narrow(9_000), 9_000, 9_000),
        (Narrow(1_500), 9_000, 1_500),
        (Narrow(1_499), 1_500, 1_492),
        (Narrow(1_500, lost=1), 1_500, 1_500),
        (Narrow(400), 1_500, None),
    ],
)
async def test_where_a_large_packet_is_lost_the_usual_smaller_ones_are_tried(
    narrow: Narrow, mtu: int, found: int | None
) -> None:
    async with asking(narrow) as (path, port):
        assert await path.ask(1, "127.0.0.1", port, mtu) == found


async def test_a_peer_is_asked_from_the_address_of_the_plan() -> None:
    peer = Narrow(1_500)
    async with asking(peer, "127.0.0.5") as (path, port):
        await path.ask(1, "127.0.0.1", port, 1_500)
    assert {address for _, address in peer.heard} == {"127.0.0.5"}
