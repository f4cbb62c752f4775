"""What an error of the kernel means for a visit, with what ICMP said of it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rendezvous.compat import timeout
from worker.probe import mesh
from worker.probe.packets import BULK_BYTES
from worker.probe.peer_connection import IcmpError, PeerConnection
from worker.probe.waiting import Waits

PEER, ROUTER, OWN = "10.0.0.5", "10.9.9.1", "10.0.0.9"
NO_WAY = f"{ROUTER} knows no way to it"
NOBODY = "no neighbour answers on the way there"


def icmp(offender: str, kind: int = 3, code: int = 1) -> IcmpError:
    return IcmpError(kind, code, offender)


def words(number: int) -> str:
    return os.strerror(number)


@pytest.mark.parametrize(
    ("number", "said", "fault"),
    [
        # A firewall says so, or the peer itself, by ICMP.
        (errno.EHOSTUNREACH, icmp(ROUTER, 3, 13), ("refused", ROUTER, "prohibited")),
        (errno.ECONNREFUSED, icmp(PEER, 3, 3), ("refused", PEER, "prohibited")),
        (errno.EHOSTUNREACH, icmp(PEER, 3, 1), ("refused", PEER, "prohibited")),
        (errno.EACCES, icmp(ROUTER, 1, 1), ("refused", ROUTER, "prohibited")),
        (errno.EHOSTUNREACH, icmp(ROUTER, 1, 3), ("timeout", NO_WAY, "unreachable")),
        # Nothing listens, or it closes the connection.
        (errno.ECONNREFUSED, None, ("refused", "nothing listens there", "")),
        (errno.ECONNRESET, None, ("stranger", "it closes the connection without an answer", "")),
        (errno.EPIPE, None, ("stranger", "it closes the connection without an answer", "")),
        # No way, and nobody at its end.
        (errno.ENETUNREACH, None, ("no_route", words(errno.ENETUNREACH), "")),
        (errno.ENETUNREACH, icmp(ROUTER, 3, 0), ("no_route", NO_WAY, "")),
        (errno.EHOSTUNREACH, icmp(OWN), ("timeout", NOBODY, "neighbour")),
        (errno.EHOSTUNREACH, icmp(ROUTER), ("timeout", NO_WAY, "unreachable")),
        (errno.EHOSTUNREACH, None, ("timeout", words(errno.EHOSTUNREACH), "")),
        (errno.ETIMEDOUT, None, ("timeout", words(errno.ETIMEDOUT), "")),
        # Something else.
        (errno.EMFILE, None, ("error", words(errno.EMFILE), "")),
        (errno.EMFILE, icmp(OWN), ("error", words(errno.EMFILE), "")),
    ],
)
def test_what_an_error_means(
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    said: IcmpError | None,
    fault: tuple[str, str, str],
) -> None:
    monkeypatch.setattr(mesh, "_is_own", lambda address: address == OWN)
    found = mesh._fault_of(OSError(number, words(number)), PEER, said)
    if fault[2] == "prohibited":
        fault = ("refused", f"{fault[1]} prohibits the connection (ICMP)", "prohibited")
    assert (found.outcome, found.detail, found.icmp) == fault


@pytest.mark.parametrize("number", [errno.ECONNREFUSED, errno.ECONNRESET])
def test_an_address_of_this_node_is_no_peers(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(mesh, "_is_own", lambda address: address == PEER)
    found = mesh._fault_of(OSError(number, words(number)), PEER, None)
    assert (found.outcome, found.detail) == ("self", "it is an address of this node itself")


@pytest.mark.parametrize(
    ("address", "own"),
    [("127.0.0.1", False), ("127.9.9.9", False), ("::1", False), ("192.0.2.1", False)],
)
def test_loopback_addresses_and_those_of_others_are_not_this_hosts(address: str, own: bool) -> None:
    assert mesh._is_own(address) == own


@pytest.mark.parametrize(
    ("middle", "doubt", "skew"),
    [(0.5, 0.2, 0.3), (-0.5, 0.2, -0.3), (0.1, 0.2, 0.0), (-0.2, 0.2, 0.0), (1.23456, 0.0, 1.2346)],
)
def test_clocks_differ_by_no_less_than_this(middle: float, doubt: float, skew: float) -> None:
    assert mesh._least_skew(middle, doubt) == pytest.approx(skew, abs=1e-9)


def test_an_error_without_words_is_named_by_its_class() -> None:
    assert mesh._words_of(ConnectionAbortedError()) == "ConnectionAbortedError"
    assert len(mesh._words_of(OSError(5, "x" * 900))) == mesh._DETAIL_CHARACTERS


def icmp_message(origin: int, address: str, kind: int = 3, code: int = 10) -> bytes:
    """A `sock_extended_err`, and the sockaddr of who has sent it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    own = family.to_bytes(2, sys.byteorder) + bytes(2 if family == socket.AF_INET else 6)
    head = (111).to_bytes(4, sys.byteorder) + bytes([origin, kind, code, 0]) + bytes(8)
    return head + own + socket.inet_pton(family, address) + bytes(8)


IPV4, IPV6 = (socket.IPPROTO_IP, 11), (socket.IPPROTO_IPV6, 25)


@pytest.mark.parametrize(
    ("peer", "messages", "found"),
    [
        (PEER, [(*IPV4, icmp_message(2, ROUTER))], icmp(ROUTER, 3, 10)),
        (PEER, [(1, 2, b""), (*IPV4, icmp_message(2, ROUTER, 3, 13))], icmp(ROUTER, 3, 13)),
        ("fd00::5", [(*IPV6, icmp_message(3, "fd00::1", 1, 6))], icmp("fd00::1", 1, 6)),
        (PEER, [(*IPV4, icmp_message(1, ROUTER))], None),  # of this host's own kernel
        (PEER, [(*IPV6, icmp_message(3, "fd00::1"))], None),
        (PEER, [], None),
        (PEER, BlockingIOError(errno.EAGAIN, "nothing"), None),
    ],
    ids=["one", "behind another", "of IPv6", "own kernel", "of another family", "none", "nothing"],
)
async def test_who_has_said_what_by_icmp_is_read_with_the_error(
    peer: str, messages: Any, found: IcmpError | None
) -> None:
    def recvmsg(size: int, room: int, flags: int) -> Any:
        assert flags == socket.MSG_ERRQUEUE
        if isinstance(messages, OSError):
            raise messages
        return b"", messages, flags, None

    with contextlib.closing(Waits()) as waits, PeerConnection(peer, "", waits) as wire:
        family = socket.AF_INET6 if ":" in peer else socket.AF_INET
        with wire._socket as real:
            assert real.getsockopt(*(IPV6 if ":" in peer else IPV4)) == 1  # else it keeps them
            assert real.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            assert real.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= 4 * BULK_BYTES
        calls = {"recvmsg": recvmsg, "connect_ex": lambda _: errno.EHOSTUNREACH}
        fake = SimpleNamespace(family=family, close=lambda: None, **calls)
        wire._socket = cast(Any, fake)
        with pytest.raises(OSError, match="No route to host"):
            await wire.connect(peer, 7_001, 0.0)
        assert wire.icmp == found


@pytest.mark.parametrize(
    ("info", "seconds"),
    [
        (bytes(148) + (1_500).to_bytes(4, sys.byteorder) + bytes(8), 0.0015),
        (bytes(148) + b"\xff" * 4, None),  # none was measured
        (bytes(104), None),  # an older kernel's
        (OSError(errno.ENOPROTOOPT, "no such option"), None),
    ],
    ids=["measured", "none yet", "shorter", "refused"],
)
async def test_the_least_time_there_and_back_is_the_kernels(
    info: bytes | OSError, seconds: float | None
) -> None:
    def getsockopt(level: int, option: int, size: int) -> bytes:
        assert (level, option) == (socket.IPPROTO_TCP, socket.TCP_INFO)
        if isinstance(info, OSError):
            raise info
        return info[:size]

    with contextlib.closing(Waits()) as waits, PeerConnection(PEER, "", waits) as wire:
        wire._socket.close()
        wire._socket = cast(Any, SimpleNamespace(getsockopt=getsockopt, close=lambda: None))
        assert wire.least_rtt() == seconds


@pytest.mark.parametrize("number", [0, errno.ECONNREFUSED])
async def test_a_connection_that_takes_a_moment_is_there_once_the_kernel_says(number: int) -> None:
    """A socket can be written to when it is connected, or has failed."""
    ours, theirs = socket.socketpair()
    answers = iter([errno.EINPROGRESS, errno.EALREADY])
    calls: dict[str, Any] = {
        "connect_ex": lambda _: next(answers),
        "getsockopt": lambda *_: number,
        "recvmsg": lambda *_: (b"", [], 0, None),
        "recv": ours.recv,
        "close": lambda: None,
    }
    with (
        ours,
        theirs,
        contextlib.closing(Waits()) as waits,
        PeerConnection(PEER, "", waits) as wire,
    ):
        wire._socket.close()
        wire._socket = cast(Any, SimpleNamespace(family=socket.AF_INET, **calls))
        wire._file = ours.fileno()
        connecting = wire.connect(PEER, 7_001, asyncio.get_running_loop().time() + 60.0)
        async with timeout(10.0):
            if number:
                with pytest.raises(ConnectionRefusedError):
                    await connecting
                return
            await connecting
            theirs.send(b"abc")
            assert await wire.receive(3, asyncio.get_running_loop().time() + 60.0) == b"abc"


async def test_what_is_not_sent_whole_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with contextlib.closing(Waits()) as waits, PeerConnection(PEER, "", waits) as wire, theirs:
        wire._socket.close()
        wire._socket = ours
        wire.send(b"x")
        with pytest.raises(OSError, match="No buffer space"):
            wire.send(bytes(1 << 24))
