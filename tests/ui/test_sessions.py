"""Who may see the page: tickets, keys and sessions, and for how long."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from launcher.ui.sessions import (
    IDLE_SECONDS,
    KEY_BYTES,
    LONGEST_SECONDS,
    MOST_SESSIONS,
    TICKET_BYTES,
    TICKET_SECONDS,
    Sessions,
)

KEY = "correct horse battery"


def drawing() -> Callable[[int], str]:
    """Another text each time, that says for how many bytes it was drawn."""
    numbers = itertools.count()
    return lambda count: f"{count}-{next(numbers)}"


@pytest.fixture
def sessions() -> Sessions:
    return Sessions(drawing())


def opened(sessions: Sessions, now: float = 0.0) -> str:
    session = sessions.open_by_ticket(sessions.ticket(now), now)
    assert session is not None
    return session


def test_a_ticket_opens_one_session(sessions: Sessions) -> None:
    ticket = sessions.ticket(0.0)
    assert ticket.startswith(f"{TICKET_BYTES}-")
    session = sessions.open_by_ticket(ticket, 1.0)
    assert session is not None
    assert session.startswith(f"{KEY_BYTES}-")
    assert sessions.open_by_ticket(ticket, 2.0) is None
    assert sessions.is_good(session, 2.0)


def test_a_ticket_is_good_for_two_minutes(sessions: Sessions) -> None:
    first, second = sessions.ticket(0.0), sessions.ticket(0.0)
    assert sessions.open_by_ticket(first, TICKET_SECONDS - 0.01) is not None
    assert sessions.open_by_ticket(second, TICKET_SECONDS) is None


def test_a_newer_ticket_leaves_the_older_one_as_it_is(sessions: Sessions) -> None:
    first, second = sessions.ticket(0.0), sessions.ticket(100.0)
    assert sessions.open_by_ticket(first, 101.0)
    assert sessions.open_by_ticket(second, 101.0)


@pytest.mark.parametrize("guess", ["", "x", "\ud800", "16-1"])
def test_what_was_not_drawn_opens_nothing(sessions: Sessions, guess: str) -> None:
    sessions.ticket(0.0)
    assert sessions.open_by_ticket(guess, 1.0) is None
    assert sessions.open_by_key(guess, 1.0) is None
    assert not sessions.is_good(guess, 1.0)


def test_a_ticket_is_no_session_and_a_session_is_no_ticket(sessions: Sessions) -> None:
    session, ticket = opened(sessions), sessions.ticket(0.0)
    assert not sessions.is_good(ticket, 0.0)
    assert sessions.open_by_ticket(session, 0.0) is None


def test_a_session_ends_an_hour_after_it_was_used_last(sessions: Sessions) -> None:
    session = opened(sessions)
    assert sessions.is_good(session, IDLE_SECONDS)
    assert sessions.is_good(session, 2 * IDLE_SECONDS)
    assert not sessions.is_good(session, 3 * IDLE_SECONDS + 0.01)
    assert not sessions.is_good(session, 3 * IDLE_SECONDS)


def test_a_session_ends_after_twelve_hours_however_much_it_is_used(sessions: Sessions) -> None:
    session = opened(sessions)
    now = 0.0
    while now < LONGEST_SECONDS:
        assert sessions.is_good(session, now)
        now += IDLE_SECONDS / 2
    assert sessions.is_good(session, LONGEST_SECONDS)
    assert not sessions.is_good(session, LONGEST_SECONDS + 0.01)


def test_of_too_many_sessions_the_one_that_was_used_longest_ago_ends(sessions: Sessions) -> None:
    made = [opened(sessions, float(number)) for number in range(MOST_SESSIONS)]
    assert sessions.is_good(made[0], 1_000.0)
    newest = opened(sessions, 1_001.0)
    good = [session for session in (*made, newest) if sessions.is_good(session, 1_002.0)]
    assert good == [made[0], *made[2:], newest]


def test_the_key_of_a_person_opens_a_session_each_time() -> None:
    sessions = Sessions(drawing(), KEY)
    first, second = sessions.open_by_key(KEY, 0.0), sessions.open_by_key(KEY, 0.0)
    assert first
    assert second
    assert first != second
    for wrong in ("", KEY[:-1], KEY + " ", KEY.upper()):
        assert sessions.open_by_key(wrong, 0.0) is None


def test_without_a_key_none_opens_a_session(sessions: Sessions) -> None:
    assert sessions.open_by_key("", 0.0) is None


def test_neither_tickets_nor_keys_are_kept() -> None:
    sessions = Sessions(drawing(), KEY)
    ticket, session = sessions.ticket(0.0), opened(sessions)
    kept = repr(vars(sessions))
    assert not [text for text in (ticket, session, KEY) if text in kept]
