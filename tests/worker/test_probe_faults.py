"""What an error of the kernel means for a visit, with what ICMP said of it."""

from __future__ import annotations

import errno
import os

import pytest

from worker.probe import mesh
from worker.probe.peer_connection import IcmpError

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
