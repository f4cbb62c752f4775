"""Who is suspect, who is dead, and when the registry doubts itself."""

from __future__ import annotations

import pytest

from rendezvous.run.leases import SWEEP_SECONDS, Leases, Silence, poll_seconds

ONE = (1, 1)


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


# --- poll lengths ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "lease", "poll"),
    [(2, 15, 2.0), (1_000, 15, 2.0), (2_000, 15, 4.0), (10_000, 15, 20.0), (2, 7, 1.0)],
)
def test_polls_are_longer_with_many_nodes_and_shorter_with_a_short_lease(
    nodes: int, lease: float, poll: float
) -> None:
    assert poll_seconds(nodes, lease) == pytest.approx(poll)


def test_seven_polls_fit_into_every_lease() -> None:
    for lease in (2.0, 5.0, 15.0):
        assert 7 * poll_seconds(10, lease) <= lease + 1e-9


def test_a_node_is_kept_for_its_lease_or_seven_polls_whichever_is_longer() -> None:
    assert Leases(15, 2).dead_after == 15
    assert Leases(15, 4).dead_after == 28
    assert (Leases(15, 4).poll, Leases(15, 4).suspect_after) == (4, 12)


# --- silence --------------------------------------------------------------------------------------


def test_a_silent_node_is_suspect_after_three_polls_and_dead_after_its_lease() -> None:
    leases = Leases(15, 2)
    leases.heard(ONE, 0)
    assert swept(leases, 0, 5.75) == []
    assert not leases.is_suspect(ONE, 5.75)
    assert leases.is_suspect(ONE, 6)
    assert swept(leases, 5.75, 14.75) == []
    assert leases.sweep(15) == [Silence(ONE, 15, closed=False)]


def test_every_request_renews_the_lease() -> None:
    leases = Leases(15, 2)
    leases.heard(ONE, 0)
    swept(leases, 0, 14)
    leases.heard(ONE, 14)
    assert swept(leases, 14, 28.75) == []
    assert leases.sweep(29) == [Silence(ONE, 15, closed=False)]


def test_a_node_without_a_lease_is_suspect_and_never_silent() -> None:
    leases = Leases(15, 2)
    assert leases.is_suspect(ONE, 0)
    assert leases.silent_seconds(ONE, 99) == 0


def test_a_node_is_in_doubt_from_its_close_until_it_is_back_or_given_up() -> None:
    leases = Leases(15, 2)
    leases.heard(ONE, 0, connection=1)
    assert not leases.is_in_doubt(0)
    leases.closed(ONE, 0, 1)
    assert leases.is_in_doubt(0)
    assert leases.is_in_doubt(1.2)  # dead, but not swept yet
    leases.heard(ONE, 1.2, connection=2)
    assert not leases.is_in_doubt(1.2)
    leases.closed(ONE, 2, 2)
    leases.forget(ONE)
    assert not leases.is_in_doubt(2)


def test_behind_an_ingress_a_close_raises_no_doubt() -> None:
    leases = Leases(15, 2, trust_close=False)
    leases.heard(ONE, 0, connection=1)
    leases.closed(ONE, 0, 1)
    assert not leases.is_in_doubt(0)


def test_a_forgotten_node_is_judged_no_more() -> None:
    leases = Leases(15, 2)
    leases.heard(ONE, 0)
    leases.forget(ONE)
    leases.forget(ONE)
    assert swept(leases, 0, 20) == []


# --- closed connections ---------------------------------------------------------------------------


def test_a_node_whose_last_connection_was_closed_is_dead_after_a_second() -> None:
    leases = Leases(15, 2)
    leases.heard(ONE, 0, connection=7)
    leases.closed(ONE, 0.5, 7)
    assert swept(leases, 0.5, 1.25) == []
    assert leases.sweep(1.5) == [Silence(ONE, 1.0, closed=True)]


def test_a_node_whose_requests_all_failed_has_time_to_come_back_before_it_is_suspect() -> None:
    leases = Leases(15, 2)
    leases.heard(ONE, 0, connection=7)
    leases.closed(ONE, 0.5, 7)
    assert not leases.is_suspect(ONE, 1.0)  # its next try comes within half a second
    assert leases.is_suspect(ONE, 1.25)
    leases.heard(ONE, 1.3, connection=8)
    assert not leases.is_suspect(ONE, 1.3)


def test_a_node_that_comes_back_within_a_second_is_alive() -> None:
    leases = Leases(15, 2)
    leases.heard(ONE, 0, connection=7)
    leases.closed(ONE, 0.5, 7)
    leases.heard(ONE, 1.4, connection=8)
    assert swept(leases, 0.5, 7) == []


def test_a_node_that_a_stalled_registry_could_not_hear_has_its_lease() -> None:
    leases = Leases(15, 2)
    leases.heard(ONE, 0, connection=7)
    leases.closed(ONE, 0.5, 7)
    leases.stalled()
    assert swept(leases, 0.5, 14.75) == []
    assert leases.sweep(15.0) == [Silence(ONE, 15.0, closed=False)]


@pytest.mark.parametrize("closed_first", [7, 8])
def test_a_node_is_alive_while_one_of_its_connections_is_open(closed_first: int) -> None:
    leases = Leases(15, 2)
    leases.heard(ONE, 0, connection=7)
    leases.heard(ONE, 0.1, connection=8)
    leases.closed(ONE, 0.2, closed_first)
    assert not leases.is_suspect(ONE, 0.2)
    assert swept(leases, 0, 5) == []


@pytest.mark.parametrize(
    ("trust_close", "by_peer"), [(False, True), (True, False)], ids=["ingress", "closed by us"]
)
def test_a_close_that_is_not_the_peers_says_nothing(trust_close: bool, by_peer: bool) -> None:
    leases = Leases(15, 2, trust_close=trust_close)
    leases.heard(ONE, 0, connection=7)
    leases.closed(ONE, 0.5, 7, by_peer=by_peer)
    assert not leases.is_suspect(ONE, 1)
    assert swept(leases, 0, 14.75) == []
    assert leases.sweep(15) == [Silence(ONE, 15, closed=False)]


def test_a_close_after_three_silent_polls_is_the_tail_of_an_outage_and_says_nothing() -> None:
    leases = Leases(15.0, poll=2.0)
    leases.heard(ONE, 0.0, connection=1)
    leases.heard((2, 1), 0.1, connection=2)
    leases.closed(ONE, 6.0, connection=1)
    leases.closed((2, 1), 6.0, connection=2)
    assert swept(leases, 6.0, 14.75) == [Silence((2, 1), 1.0, closed=True)]
    leases.forget((2, 1))
    assert swept(leases, 7.0, 14.75) == []
    assert swept(leases, 14.75, 20.0) == [Silence(ONE, 15.0, closed=False)]


def test_the_close_of_a_connection_that_is_not_the_nodes_is_ignored() -> None:
    leases = Leases(15, 2)
    leases.heard(ONE, 0, connection=7)
    leases.closed(ONE, 0.5, 99)
    leases.closed((5, 1), 0.5, 7)
    assert swept(leases, 0, 5) == []


def test_after_a_restart_everyone_has_a_full_lease() -> None:
    leases = Leases(15, 2)
    leases.heard((9, 9), 0)
    leases.grant_all([ONE, (2, 3)], 100)
    assert leases.is_suspect((9, 9), 100)
    assert swept(leases, 100, 114.75) == []
    assert [s.key for s in leases.sweep(115)] == [ONE, (2, 3)]


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
    ("total", "silent"), [(9, 4), (2, 2), (99, 54)], ids=["44 %", "too few", "54.5 %"]
)
def test_when_fewer_are_silent_they_die_in_time(total: int, silent: int) -> None:
    leases, keys = crowd(total)
    assert [s.key for s in swept(leases, 0, 15.25, *keys[silent:])] == keys[:silent]
    assert not leases.is_holding(15.25)


def test_three_of_three_are_enough_for_doubt() -> None:
    leases, _ = crowd(3)
    assert swept(leases, 0, 15) == []
    assert leases.is_holding(15)


def test_at_55_percent_the_registry_doubts_itself() -> None:
    leases, keys = crowd(100)
    assert swept(leases, 0, 16, *keys[55:]) == []
    assert leases.is_holding(16)


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


def test_the_last_to_come_back_is_alive_also_when_the_others_were_in_time() -> None:
    leases, keys = crowd(9)
    assert swept(leases, 0, 14) == []
    assert swept(leases, 14, 16, *keys[1:]) == []
    assert swept(leases, 16, 40, *keys) == []
    assert not leases.is_holding(40)


def test_those_who_come_back_last_are_alive_too() -> None:
    leases, keys = crowd(3)
    swept(leases, 0, 20)
    assert swept(leases, 20, 24, keys[0]) == []
    assert swept(leases, 24, 60, *keys) == []
    assert not leases.is_holding(60)


def test_a_closed_connection_is_believed_while_the_registry_doubts_itself() -> None:
    leases, keys = crowd(9)
    leases.heard(keys[8], 0, connection=7)
    swept(leases, 0, 20, *keys[5:9])
    assert leases.is_holding(20)
    leases.closed(keys[8], 20, 7)
    assert swept(leases, 20, 22, *keys[5:8]) == [Silence(keys[8], 1.0, closed=True)]


def test_the_doubt_ends_with_the_silence_and_may_come_again() -> None:
    leases, keys = crowd(9)
    swept(leases, 0, 20)
    assert leases.is_holding(20)
    swept(leases, 20, 100, *keys)
    assert not leases.is_holding(100)
    assert swept(leases, 100, 120) == []
    assert leases.is_holding(120)
    assert len(swept(leases, 120, 140)) == 9


def test_a_restart_ends_the_doubt() -> None:
    leases, keys = crowd(9)
    swept(leases, 0, 20)
    leases.grant_all(keys, 21)
    assert not leases.is_holding(21)


def test_who_has_said_nothing_since_a_restart_is_known() -> None:
    leases = Leases(15, 2)
    leases.heard(ONE, 0)
    assert not leases.is_unheard(ONE)
    leases.grant_all([ONE, (2, 1)], 100)
    leases.heard(ONE, 101)
    assert [leases.is_unheard(key) for key in (ONE, (2, 1), (3, 1))] == [False, True, False]
    assert leases.granted_seconds(103) == 3


def test_nodes_that_are_kept_are_as_silent_as_before_and_others_have_no_lease() -> None:
    leases = Leases(15, 2)
    leases.heard(ONE, 0)
    leases.heard((2, 1), 0)
    leases.keep([ONE, (3, 1)], 5)
    assert [leases.silent_seconds(key, 8) for key in (ONE, (2, 1), (3, 1))] == [8, 0, 3]


def test_who_was_heard_of_when_stays_known_for_those_who_stay() -> None:
    leases, keys = crowd(3)
    leases.keep([*keys[:2], (9, 1)], 10)
    assert [leases.silent_seconds(key, 12) for key in (*keys[:2], (9, 1))] == [12, 12, 2]
    assert leases.is_suspect(keys[2], 12)


def test_after_a_restart_a_node_is_unheard_until_it_speaks() -> None:
    leases, keys = crowd(2)
    assert not leases.is_unheard(keys[0])
    leases.grant_all(keys, 21)
    leases.heard(keys[1], 22)
    assert [leases.is_unheard(key) for key in (*keys, (9, 9))] == [True, False, False]
    assert leases.granted_seconds(25) == 4
