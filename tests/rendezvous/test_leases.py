"""Who is suspect, who is dead, and when the registry doubts itself."""

from __future__ import annotations

import math
import re

import pytest

from rendezvous.run.leases import SWEEP_SECONDS, Leases, Silence
from rendezvous.wire.watch import poll_seconds
from tests.support.tables import rows

ONE, TWO, THREE = (1, 1), (2, 1), (3, 1)


def keys_of(text: str) -> list[tuple[int, int]]:
    """`4`, or `0-4`: slots as the leases know them."""
    first, _, last = text.partition("-")
    return [(slot, 1) for slot in range(int(first), int(last or first) + 1)]


class Told:
    """Leases, and what was told of them: `0 heard 1/7; 0.5 closed 1/7; 1.5 dies 1 closed`.

    A step is a time and a word. `heard`, `closed` by the peer, `ours`, `granted` and `forgets` say
    what happens to nodes (by a connection); `quiet` and `dies` sweep on time until then, the nodes
    after `by` polling all the while; `suspect`, `alive`, `doubt`, `none`, `holds` and `sure` are
    what is true then. Behind an `ingress` no close is trusted.
    """

    def __init__(self, *, trust_close: bool) -> None:
        self.leases, self.now = Leases(15, 2, trust_close=trust_close), 0.0

    def step(self, at: float, word: str, of: str, by: str) -> None:
        leases, (slots, _, number) = self.leases, of.partition("/")
        keys = keys_of(slots.split()[0]) if slots else []
        if word in ("quiet", "dies"):
            found = self.swept(at, keys_of(by) if by else [])
            closed = of.endswith("closed")
            assert [s.key for s in found] == keys
            assert all(
                (s.closed, s.seconds >= (1 if closed else 15)) == (closed, True) for s in found
            )
            return
        for key in keys:
            match word:
                case "heard":
                    leases.heard(key, at, int(number) if number else None)
                case "closed" | "ours":
                    leases.closed(key, at, int(number), by_peer=word == "closed")
                case "forgets":
                    leases.forget(key)
                case "suspect" | "alive":
                    assert leases.is_suspect(key, at) is (word == "suspect"), at
        match word:
            case "granted":
                leases.grant_all(keys, at)
            case "stalled":
                leases.stalled()
            case "doubt" | "none":
                assert leases.is_in_doubt(at) is (word == "doubt"), at
            case "holds" | "sure":
                assert leases.is_holding(at) is (word == "holds"), at
        self.now = at

    def swept(self, end: float, heard: list[tuple[int, int]]) -> list[Silence]:
        while self.now < end:
            self.now = min(end, self.now + SWEEP_SECONDS)
            for key in heard:
                self.leases.heard(key, self.now)
            if dead := self.leases.sweep(self.now):
                return dead
        return []


@rows(
    "story",
    """
silent | 0 heard 1; 5.75 quiet; 5.75 alive 1; 6 suspect 1; 14.75 quiet; 15 dies 1
every request renews | 0 heard 1; 14 quiet; 14 heard 1; 28.75 quiet; 29 dies 1
in doubt | 0 heard 1/1; 0 none; 0 closed 1/1; 0 doubt; 1.2 doubt; 1.2 heard 1/2; 1.2 none
    ; 2 closed 1/2; 2 doubt; 2 forgets 1; 2 none
closed | 0 heard 1/7; 0.5 closed 1/7; 1.0 alive 1; 1.25 quiet; 1.25 suspect 1
    ; 1.5 dies 1 closed
back within a second | 0 heard 1/7; 0.5 closed 1/7; 1.4 heard 1/8; 1.4 alive 1; 7 quiet
the registry stalled | 0 heard 1/7; 0.5 closed 1/7; 0.5 stalled; 14.75 quiet; 15 dies 1
the older one is closed | 0 heard 1/7; 0.1 heard 1/8; 0.2 closed 1/7; 0.2 alive 1; 5 quiet
the newer one is closed | 0 heard 1/7; 0.1 heard 1/8; 0.2 closed 1/8; 0.2 alive 1; 5 quiet
closed by the ingress
    | ingress: 0 heard 1/7; 0.5 closed 1/7; 0.5 none; 1 alive 1; 14.75 quiet; 15 dies 1
closed by us | 0 heard 1/7; 0.5 ours 1/7; 1 alive 1; 14.75 quiet; 15 dies 1
the tail of an outage | 0 heard 1/1; 0.1 heard 2/2; 6 closed 1/1; 6 closed 2/2; 14.75 dies 2 closed
    ; 7 forgets 2; 14.75 quiet; 20 dies 1
not its connection | 0 heard 1/7; 0.5 closed 1/99; 0.5 closed 5/7; 5 quiet
after a restart | 0 heard 9; 100 granted 1-2; 100 suspect 9; 114.75 quiet; 115 dies 1-2
most together wait one more lease
    | 0 heard 0-8; 15 quiet by 5-8; 15 holds; 29.75 quiet by 5-8; 30.25 dies 0-4 by 5-8; 30.25 sure
two are too few | 0 heard 0-1; 15.25 dies 0-1; 15.25 sure
54.5 % are not most | 0 heard 0-98; 15.25 dies 0-53 by 54-98; 15.25 sure
55 % are most | 0 heard 0-99; 16 quiet by 55-99; 16 holds
those suspect at this moment count | 0 heard 0-8; 9 quiet by 2-8; 15 quiet by 5-8; 15 holds
the rest has three polls to come back
    | 0 heard 0-8; 20 quiet by 5-8; 26 quiet by 3-8; 26.25 dies 0-2 by 3-8; 26.25 sure
the first to come back shows it, though most are silent still
    | 0 heard 0-3; 29.75 quiet; 29.8 heard 0; 35.5 quiet by 0; 35.8 dies 1-3 by 0; 35.8 sure
each shows it once
    | 0 heard 0-3; 20 quiet; 20 heard 0; 28 quiet; 28 heard 0; 29.75 quiet; 30.25 dies 1-3
who was there does not show it | 0 heard 0-4; 20 quiet by 4; 30.25 dies 0-3 by 4
the last is back when the others were in time
    | 0 heard 0-8; 14 quiet; 16 quiet by 1-8; 40 quiet by 0-8; 40 sure
those who come back last | 0 heard 0-2; 20 quiet; 24 quiet by 0; 60 quiet by 0-2; 60 sure
a close is believed meanwhile
    | 0 heard 0-8; 0 heard 8/7; 20 quiet by 5-8; 20 holds; 20 closed 8/7; 22 dies 8 closed by 5-7
the doubt may come again
    | 0 heard 0-8; 20 quiet; 20 holds; 100 quiet by 0-8; 100 sure; 120 quiet; 120 holds
    ; 140 dies 0-8
they fall silent again while the others have their three polls
    | 0 heard 0-4; 8 quiet by 2-3; 8 heard 4; 29.75 quiet by 3-4; 30.25 dies 0-2 by 3-4; 30.25 sure
a restart ends the doubt | 0 heard 0-8; 20 quiet; 20 holds; 21 granted 0-8; 21 sure
""",
)
def test_leases(story: str) -> None:
    steps = story.removeprefix("ingress: ")
    told = Told(trust_close=steps == story)
    for step in re.split(r" ?; ?", steps):
        found = re.fullmatch(r"([\d.]+) (\w+)(?: ([\d/-]+(?: closed)?))?(?: by (.+))?", step)
        assert found, step
        at, word, of, by = found.groups(default="")
        told.step(float(at), word, of, by)


@pytest.mark.parametrize(
    ("nodes", "lease", "poll"),
    [(2, 15, 2.0), (1_000, 15, 2.0), (2_000, 15, 4.0), (10_000, 15, 20.0), (2, 7, 1.0)],
)
def test_polls_are_longer_with_many_nodes_and_shorter_with_a_short_lease(
    nodes: int, lease: float, poll: float
) -> None:
    assert poll_seconds(nodes, lease) == pytest.approx(poll)
    assert all(7 * poll_seconds(10, seconds) <= seconds + 1e-9 for seconds in (2.0, 5.0, 15.0))


def test_a_poll_grows_with_the_nodes_of_the_registry_and_never_becomes_shorter() -> None:
    leases = Leases(15.0, poll_seconds(16, 15.0))
    assert (leases.poll, leases.suspect_after, leases.dead_after) == (2.0, 6.0, 15.0)
    leases.lengthen(5_000)
    assert (leases.poll, leases.suspect_after, leases.dead_after) == (10.0, 30.0, 70.0)
    leases.lengthen(16)  # some nodes wait in a poll of that length
    assert leases.poll == 10.0


def test_how_a_silence_is_told() -> None:
    leases = Leases(15, 2)
    leases.heard(ONE, 0)
    assert leases.sweep(15) == [Silence(ONE, 15, closed=False)]
    leases.heard(ONE, 20, connection=1)
    leases.closed(ONE, 20.5, 1)
    assert leases.sweep(21.5) == [Silence(ONE, 1.0, closed=True)]


def test_when_the_next_closed_connection_is_due() -> None:
    leases, ingress = Leases(15, 2), Leases(15, 2, trust_close=False)
    for key, closed_at in ((ONE, 1.5), (TWO, 1.2), (THREE, None)):
        for each in (leases, ingress):
            each.heard(key, 1.0, connection=key[0])
            if closed_at is not None:
                each.closed(key, closed_at, key[0])
    assert leases.until_closed(2.0) == pytest.approx(0.2)
    [dead] = leases.sweep(2.001 + leases.until_closed(2.0))
    assert dead.key == TWO
    leases.heard(TWO, 2.1)
    assert leases.until_closed(2.3) == pytest.approx(0.2)
    leases.forget(ONE)
    assert leases.until_closed(2.3) == ingress.until_closed(2.3) == math.inf


def test_who_has_said_nothing_since_a_restart_is_known() -> None:
    leases = Leases(15, 2)
    leases.heard(ONE, 0)
    assert not leases.is_unheard(ONE)
    leases.grant_all([ONE, TWO], 100)
    leases.heard(ONE, 101)
    assert [leases.is_unheard(key) for key in (ONE, TWO, THREE)] == [False, True, False]
    assert leases.granted_seconds(103) == 3


def test_nodes_that_are_kept_are_as_silent_as_before_and_others_have_no_lease() -> None:
    leases = Leases(15, 2)
    leases.heard(ONE, 0)
    leases.heard(TWO, 0)
    leases.keep([ONE, THREE], 5)
    assert [leases.silent_seconds(key, 8) for key in (ONE, TWO, THREE)] == [8, 0, 3]
    assert leases.is_suspect(TWO, 8)
