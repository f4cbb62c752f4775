"""Who counts as alive: by what one replica has seen at its own beats, whatever the clocks say."""

from __future__ import annotations

import pytest

from rendezvous.registry.postgres_members import Row, Witness

LEASE = 3.0


def row(name: str, beat: float, *, session: int = 1, holds: bool = True) -> Row:
    return Row(name, f"{name}:1", beat, session, holds=holds, drains=False)


def judged(witness: Witness, now: float, *rows: Row) -> dict[str, tuple[float, bool]]:
    """By id: for how long it is silent, and whether it has its session."""
    members = witness.members([row("me", now), *rows], now=now, lease_seconds=LEASE)
    assert (members[0].silent_seconds, members[0].has_session) == (0.0, True)
    return {m.id: (m.silent_seconds, m.has_session) for m in members[1:]}


def test_a_silence_lasts_from_the_last_beat_by_the_journals_clock() -> None:
    witness = Witness()
    assert judged(witness, 10.0, row("b", 9.5)) == {"b": (0.0, True)}
    assert judged(witness, 11.0, row("b", 10.75)) == {"b": (0.25, True)}
    assert judged(witness, 12.0, row("b", 10.75)) == {"b": (1.25, True)}
    assert judged(witness, 13.0, row("b", 12.5)) == {"b": (0.5, True)}


def test_what_is_as_old_as_the_first_look_is_not_yet_a_silence() -> None:
    witness = Witness()
    assert judged(witness, 1_000.0, row("b", 10.0)) == {"b": (0.0, True)}
    assert judged(witness, 1_002.0, row("b", 10.0)) == {"b": (2.0, True)}


@pytest.mark.parametrize("jump", [60.0, 3_600.0, -3_600.0])
def test_a_journal_that_was_away_or_has_another_clock_makes_nobody_silent(jump: float) -> None:
    witness = Witness()
    judged(witness, 5_000.0, row("b", 4_999.5))
    back = 5_000.0 + jump
    assert judged(witness, back, row("b", 4_999.5)) == {"b": (0.0, True)}
    assert judged(witness, back + 1, row("b", 4_999.5)) == {"b": (1.0, True)}
    assert judged(witness, back + 2, row("b", back + 1.5)) == {"b": (0.5, True)}


def test_a_beat_of_a_later_clock_is_heard_no_later_than_now() -> None:
    witness = Witness()
    judged(witness, 10.0, row("b", 9.0))
    assert judged(witness, 11.0, row("b", 99.0)) == {"b": (0.0, True)}
    assert judged(witness, 12.0, row("b", 99.0)) == {"b": (1.0, True)}


def test_a_session_has_ended_once_it_was_seen_to_stand() -> None:
    witness = Witness()
    assert judged(witness, 10.0, row("b", 9.0), row("c", 9.0, holds=False)) == {
        "b": (0.0, True),
        "c": (0.0, True),
    }
    gone = judged(witness, 11.0, row("b", 9.0, holds=False), row("c", 9.0, holds=False))
    assert gone == {"b": (1.0, False), "c": (1.0, True)}
    assert judged(witness, 12.0, row("b", 9.0, holds=False)) == {"b": (2.0, False)}
    assert judged(witness, 13.0, row("b", 12.5, session=2)) == {"b": (0.5, True)}


def test_sessions_that_may_have_ended_with_the_own_have_not_ended() -> None:
    witness = Witness()
    judged(witness, 10.0, row("b", 9.0))
    witness.new_session()
    assert judged(witness, 11.0, row("b", 9.0, holds=False)) == {"b": (1.0, True)}


def test_a_member_is_alive_within_its_lease_while_its_session_stands() -> None:
    witness = Witness()
    witness.members([row("b", 10.0)], now=10.0, lease_seconds=LEASE)
    for now, holds, alive in ((13.0, True, True), (13.5, True, False), (12.5, False, False)):
        [member] = witness.members([row("b", 10.0, holds=holds)], now=now, lease_seconds=LEASE)
        assert member.is_alive(LEASE) is alive
