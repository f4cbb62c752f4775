"""When a run is taken from a living replica: for whom, how often, and for how many it is known."""

from __future__ import annotations

import pytest

from rendezvous.registry import replica
from rendezvous.registry.replica import RESCUE_SECONDS, Rescues
from rendezvous.talk.credentials import Credential, CredentialKind
from rendezvous.wire.errors import Moved

AT = "10.0.0.7:29600"
MOVED = Moved("the run is there", address=AT)


def shown(kind: CredentialKind = "node") -> Credential:
    return Credential(kind, bytes(32), 2, 3)


@pytest.mark.parametrize(
    ("kind", "unreached", "may"),
    [
        ("node", AT, True),
        ("join", AT, True),
        ("admin", AT, True),
        ("read", AT, False),
        ("registry", AT, False),
        ("node", "10.0.0.8:29600", False),
        ("node", "", False),
    ],
)
def test_who_may_have_it_taken(kind: CredentialKind, unreached: str, may: bool) -> None:
    assert Rescues().may("a", MOVED, shown(kind), unreached, 0.0) is may


def test_it_is_not_taken_to_and_fro() -> None:
    seen = Rescues()
    for began in (100.0, 200.0):
        seen.note("a", began)
        for later, may in ((0.0, False), (RESCUE_SECONDS - 1, False), (RESCUE_SECONDS, True)):
            assert seen.may("a", MOVED, shown(), AT, began + later) is may
        assert seen.may("b", MOVED, shown(), AT, began)


def test_of_many_the_one_that_went_longest_ago_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica, "_MOST_RESCUES", 2)
    seen = Rescues()
    for run, now in (("a", 1.0), ("b", 2.0), ("a", 3.0), ("c", 4.0)):
        seen.note(run, now)
    assert [seen.may(run, MOVED, shown(), AT, 5.0) for run in "abc"] == [False, True, False]
