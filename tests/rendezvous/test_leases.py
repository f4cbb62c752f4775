"""Who is suspect, who is dead, and when the registry doubts itself."""

from __future__ import annotations

import pytest

from rendezvous.run.leases import SWEEP_SECONDS, Leases, Silence, poll_seconds

ONE, TWO, THREE = (1, 1), (2, 1), (3, 1)
BY_LEASE, BY_CLOSE = [Silence(ONE, 15, closed=False)], [Silence(ONE, 1.0, closed=True)]


def swept(leases: Leases, start: float, end: float, *heard: tuple[int, int]) -> list[Silence]:
    """Sweep on time from `start` to `end`, these nodes polling all the while; who died."""
    dead: list[Silence] = []
    now = start
    while now < end and not dead:
        now = min(end, now + SWEEP_SECONDS)
        for key in heard:
            leases.heard(key, now)
        dead = leases.sweep(now)
    return dead


def heard(*, connection: int | None = None, trust_close: bool = True) -> Leases:
    """Leases of a node that was heard of at 0, by this connection."""
    leases = Leases(15, 2, trust_close=trust_close)
    leases.heard(ONE, 0, **({} if connection is None else {"connection": connection}))
    return leases


@pytest.mark.parametrize(
    ("nodes", "lease", "poll"),
    [(2, 15, 2.0), (1_000, 15, 2.0), (2_000, 15, 4.0), (10_000, 15, 20.0), (2, 7, 1.0)],
)
def test_polls_are_longer_with_many_nodes_and_shorter_with_a_short_lease(
    nodes: int, lease: float, poll: float
) -> None:
    assert poll_seconds(nodes, lease) == pytest.approx(poll)
    assert all(7 * poll_seconds(10, seconds) <= seconds + 1e-9 for seconds in (2.0, 5.0, 15.0))


def test_a_node_is_kept_for_its_lease_or_seven_polls_whichever_is_longer() -> None:
    assert Leases(15, 2).dead_after == 15
    assert Leases(15, 4).dead_after == 28
    assert (Leases(15, 4).poll, Leases(15, 4).suspect_after) == (4, 12)


# --- silence, and closed connections --------------------------------------------------------------


def test_a_silent_node_is_suspect_after_three_polls_and_dead_after_its_lease() -> None:
    leases = heard()
    assert swept(leases, 0, 5.75) == []
    assert not leases.is_suspect(ONE, 5.75)
    assert leases.is_suspect(ONE, 6)
    assert swept(leases, 5.75, 14.75) == []
    assert leases.sweep(15) == BY_LEASE


def test_every_request_renews_the_lease_until_the_node_is_forgotten() -> None:
    leases = heard()
    swept(leases, 0, 14)
    leases.heard(ONE, 14)
    assert swept(leases, 14, 28.75) == []
    assert leases.sweep(29) == BY_LEASE
    leases.heard(ONE, 30)
    leases.forget(ONE)
    leases.forget(ONE)
    assert swept(leases, 30, 50) == []
    assert leases.is_suspect(ONE, 50)  # without a lease, and never silent
    assert leases.silent_seconds(ONE, 99) == 0


def test_a_node_is_in_doubt_from_its_close_until_it_is_back_or_given_up() -> None:
    leases = heard(connection=1)
    assert not leases.is_in_doubt(0)
    leases.closed(ONE, 0, 1)
    assert leases.is_in_doubt(0)
    assert leases.is_in_doubt(1.2)  # dead, but not swept yet
    leases.heard(ONE, 1.2, connection=2)
    assert not leases.is_in_doubt(1.2)
    leases.closed(ONE, 2, 2)
    leases.forget(ONE)
    assert not leases.is_in_doubt(2)
    behind_an_ingress = heard(connection=1, trust_close=False)
    behind_an_ingress.closed(ONE, 0, 1)
    assert not behind_an_ingress.is_in_doubt(0)


def test_a_node_whose_last_connection_was_closed_is_dead_after_a_second() -> None:
    leases = heard(connection=7)
    leases.closed(ONE, 0.5, 7)
    assert not leases.is_suspect(ONE, 1.0)  # its next try comes within half a second
    assert swept(leases, 0.5, 1.25) == []
    assert leases.is_suspect(ONE, 1.25)
    assert leases.sweep(1.5) == BY_CLOSE


def test_a_node_that_comes_back_within_a_second_is_alive() -> None:
    leases = heard(connection=7)
    leases.closed(ONE, 0.5, 7)
    leases.heard(ONE, 1.4, connection=8)
    assert not leases.is_suspect(ONE, 1.4)
    assert swept(leases, 0.5, 7) == []


def test_a_node_that_a_stalled_registry_could_not_hear_has_its_lease() -> None:
    leases = heard(connection=7)
    leases.closed(ONE, 0.5, 7)
    leases.stalled()
    assert swept(leases, 0.5, 14.75) == []
    assert leases.sweep(15.0) == BY_LEASE


@pytest.mark.parametrize("closed_first", [7, 8])
def test_a_node_is_alive_while_one_of_its_connections_is_open(closed_first: int) -> None:
    leases = heard(connection=7)
    leases.heard(ONE, 0.1, connection=8)
    leases.closed(ONE, 0.2, closed_first)
    assert not leases.is_suspect(ONE, 0.2)
    assert swept(leases, 0, 5) == []


@pytest.mark.parametrize(
    ("trust_close", "by_peer"), [(False, True), (True, False)], ids=["ingress", "closed by us"]
)
def test_a_close_that_is_not_the_peers_says_nothing(trust_close: bool, by_peer: bool) -> None:
    leases = heard(connection=7, trust_close=trust_close)
    leases.closed(ONE, 0.5, 7, by_peer=by_peer)
    assert not leases.is_suspect(ONE, 1)
    assert swept(leases, 0, 14.75) == []
    assert leases.sweep(15) == BY_LEASE


def test_a_close_after_three_silent_polls_is_the_tail_of_an_outage_and_says_nothing() -> None:
    leases = heard(connection=1)
    leases.heard(TWO, 0.1, connection=2)
    leases.closed(ONE, 6.0, connection=1)
    leases.closed(TWO, 6.0, connection=2)
    assert swept(leases, 6.0, 14.75) == [Silence(TWO, 1.0, closed=True)]
    leases.forget(TWO)
    assert swept(leases, 7.0, 14.75) == []
    assert swept(leases, 14.75, 20.0) == BY_LEASE


def test_the_close_of_a_connection_that_is_not_the_nodes_is_ignored() -> None:
    leases = heard(connection=7)
    leases.closed(ONE, 0.5, 99)
    leases.closed((5, 1), 0.5, 7)
    assert swept(leases, 0, 5) == []


def test_after_a_restart_everyone_has_a_full_lease_and_is_unheard_until_it_speaks() -> None:
    leases = heard()
    assert not leases.is_unheard(ONE)
    leases.grant_all([TWO, THREE], 100)
    assert leases.is_suspect(ONE, 100)
    assert [leases.is_unheard(key) for key in (ONE, TWO, THREE)] == [False, True, True]
    assert leases.granted_seconds(103) == 3
    assert swept(leases, 100, 114.75) == []
    assert [s.key for s in leases.sweep(115)] == [TWO, THREE]
    leases.heard(TWO, 116)
    assert [leases.is_unheard(key) for key in (TWO, THREE)] == [False, True]


def test_nodes_that_are_kept_are_as_silent_as_before_and_others_have_no_lease() -> None:
    leases = heard()
    leases.heard(TWO, 0)
    leases.keep([ONE, THREE], 5)
    assert [leases.silent_seconds(key, 8) for key in (ONE, TWO, THREE)] == [8, 0, 3]
    assert leases.is_suspect(TWO, 8)


# --- many at once ---------------------------------------------------------------------------------


def crowd(total: int) -> tuple[Leases, list[tuple[int, int]]]:
    leases = Leases(15, 2)
    keys = [(slot, 1) for slot in range(total)]
    for key in keys:
        leases.heard(key, 0)
    return leases, keys


def test_when_most_are_silent_together_the_registry_waits_one_more_lease() -> None:
    leases, keys = crowd(9)
    assert swept(leases, 0, 15, *keys[5:]) == []
    assert leases.is_holding(15)
    assert swept(leases, 15, 29.75, *keys[5:]) == []
    assert [s.key for s in swept(leases, 29.75, 30.25, *keys[5:])] == keys[:5]
    assert not leases.is_holding(30.25)


@pytest.mark.parametrize(
    ("total", "silent", "is_holding"),
    [(9, 4, False), (2, 2, False), (99, 54, False), (3, 3, True), (100, 55, True)],
    ids=["44 %", "too few", "54.5 %", "three of three", "55 %"],
)
def test_of_how_many_together_the_registry_doubts_itself(
    total: int, silent: int, is_holding: bool
) -> None:
    leases, keys = crowd(total)
    dead = swept(leases, 0, 15.25, *keys[silent:])
    assert [s.key for s in dead] == ([] if is_holding else keys[:silent])
    assert leases.is_holding(15.25) is is_holding


def test_nodes_that_are_suspect_at_this_moment_count_for_the_doubt() -> None:
    leases, keys = crowd(9)
    assert swept(leases, 0, 9, *keys[2:]) == []
    assert swept(leases, 9, 15, *keys[5:]) == []
    assert leases.is_holding(15)


def test_when_they_begin_to_come_back_the_rest_has_three_polls_to_do_the_same() -> None:
    leases, keys = crowd(9)
    swept(leases, 0, 20, *keys[5:])
    assert swept(leases, 20, 26, *keys[3:]) == []
    assert [s.key for s in swept(leases, 26, 26.25, *keys[3:])] == keys[:3]
    assert not leases.is_holding(26.25)


@pytest.mark.parametrize(("total", "back"), [(9, 14), (3, 20)])
def test_those_who_come_back_last_are_alive_too(total: int, back: float) -> None:
    leases, keys = crowd(total)
    swept(leases, 0, back)
    first = keys[1:] if total == 9 else keys[:1]
    assert swept(leases, back, back + 2, *first) == []
    assert swept(leases, back + 2, 60, *keys) == []
    assert not leases.is_holding(60)


def test_a_closed_connection_is_believed_while_the_registry_doubts_itself() -> None:
    leases, keys = crowd(9)
    leases.heard(keys[8], 0, connection=7)
    swept(leases, 0, 20, *keys[5:9])
    assert leases.is_holding(20)
    leases.closed(keys[8], 20, 7)
    assert swept(leases, 20, 22, *keys[5:8]) == [Silence(keys[8], 1.0, closed=True)]


def test_the_doubt_ends_with_the_silence_and_may_come_again_until_a_restart() -> None:
    leases, keys = crowd(9)
    swept(leases, 0, 20)
    assert leases.is_holding(20)
    swept(leases, 20, 100, *keys)
    assert not leases.is_holding(100)
    assert swept(leases, 100, 120) == []
    assert leases.is_holding(120)
    assert len(swept(leases, 120, 140)) == 9
    leases, keys = crowd(9)
    swept(leases, 0, 20)
    leases.grant_all(keys, 21)
    assert not leases.is_holding(21)
