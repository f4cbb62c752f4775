"""How large a packet may be on the way to a peer: asked by datagrams that nobody may fragment."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.virtual_time import VirtualLoop, run_virtually
from tests.worker.test_probe import identity
from worker.probe.packets import HELLO_BYTES, Packets
from worker.probe.path_mtu import PathMtu

DEAF = 2


class Way(socket.socket):
    """A socket whose datagrams over a size do not pass, nor some of the others."""

    def __init__(self, largest: int, lost: int = 0, known: int = 0) -> None:
        super().__init__(type=socket.SOCK_DGRAM)
        self.heard: set[bytes] = set()
        self.sent = 0
        self.readable: Callable[[], None]
        self._largest, self._lost, self._known_here = largest, lost, known
        self._replies: list[bytes] = []

    def sendto(self, data: bytes, place: tuple[str, int]) -> None:  # type: ignore[override]
        peer = Packets(identity(1))
        said = peer.read_hello("udp", data)
        assert said is not None
        self.heard.add(data[:HELLO_BYTES])
        self.sent += 1
        if len(data) + 28 > self._largest or place[1] == DEAF:
            return
        self._lost -= 1
        if self._lost < 0:
            size = len(data)
            self._replies += [peer.reply("udp", said, clock=0.0, source="10.0.0.1", size=size)]
            asyncio.get_running_loop().call_soon(self.readable)

    def recv(self, size: int) -> bytes:  # type: ignore[override]
        if not self._replies:
            raise BlockingIOError
        return self._replies.pop()

    def getsockopt(self, *_: int) -> int:  # type: ignore[override]
        return self._known_here


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int | None]]:
    """What is found of the way to the peers at these ports, asked one behind the other."""

    def found(way: Way, *ports: int, mtu: int = 1_500) -> list[int | None]:
        def add_reader(_: VirtualLoop, __: int, callback: Any) -> None:
            way.readable = callback

        async def work() -> list[int | None]:
            with PathMtu(Packets(identity(0)), 4) as path:
                return [await path.ask(n, "127.0.0.1", p, mtu) for n, p in enumerate(ports, 1)]

        monkeypatch.setattr("worker.probe.path_mtu._socket", lambda *_: way)
        monkeypatch.setattr(VirtualLoop, "add_reader", add_reader)
        monkeypatch.setattr(VirtualLoop, "remove_reader", lambda *_: None)
        return run_virtually(work())

    return found


def test_where_no_peer_answers_datagrams_only_the_first_few_are_asked(ask: Any) -> None:
    """As with a firewall that lets TCP alone pass: to wait for each would cost a start seconds."""
    mute = Way(0)
    assert ask(mute, *[1] * 30) == [None] * 30
    assert len(mute.heard) == 4


def test_mute_peers_among_others_keep_nobody_from_being_measured(ask: Any) -> None:
    assert ask(Way(1_500), 1, *[DEAF] * 8, 1) == [1_500, *[None] * 8, 1_500]


@pytest.mark.parametrize(
    ("largest", "lost", "known", "mtu", "found"),
    [
        *((9_000, 0, 0, 9_000, 9_000), (1_500, 0, 0, 9_000, 1_500), (1_499, 0, 0, 1_500, 1_492)),
        *((1_500, 1, 0, 1_500, 1_500), (1_500, 2, 0, 1_500, 1_500), (400, 0, 0, 1_500, None)),
        (1_433, 0, 1_433, 1_500, 1_433),  # a router has told this host
    ],
)
def test_where_a_large_packet_is_lost_the_usual_smaller_ones_are_tried(
    ask: Any, largest: int, lost: int, known: int, mtu: int, found: int | None
) -> None:
    assert ask(Way(largest, lost, known), 1, mtu=mtu) == [found]


def test_what_is_too_small_for_a_hello_is_not_asked_for(ask: Any) -> None:
    least, way = 28 + HELLO_BYTES, Way(9_000)
    assert ask(way, 1, mtu=least - 1) == [None]
    assert way.heard == set()
    assert ask(Way(9_000), 1, mtu=least) == [least]


def test_where_the_largest_packet_passes_no_other_is_sent(ask: Any) -> None:
    way = Way(1_500)
    assert ask(way, 1) == [1_500]
    assert way.sent == 1


async def test_a_peer_is_asked_from_the_address_of_the_plan_and_the_kernel_for_its_way() -> None:
    with (
        socket.socket(type=socket.SOCK_DGRAM) as peer,
        PathMtu(Packets(identity(0)), 4, "127.0.0.5") as path,
    ):
        peer.bind(("127.0.0.1", 0))
        asking = asyncio.create_task(path.ask(1, "127.0.0.1", peer.getsockname()[1], 1_500))
        await asyncio.sleep(0)
        _, (address, _) = peer.recvfrom(9_000)
        asking.cancel()
        known = path._known("127.0.0.1")
    assert address == "127.0.0.5"
    assert known in (65_535, 65_536)  # of loopback
