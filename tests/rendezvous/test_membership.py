"""What a replica makes of its beats: who lives, and which runs are its own to claim."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rendezvous.registry.journal import JOURNAL
from rendezvous.registry.membership import (
    BEAT_SECONDS,
    JUDGE_SECONDS,
    LEASE_SECONDS,
    Membership,
    heir,
)
from rendezvous.registry.shared_journal import Beat, Holding, Member

RUNS = [f"run-{number}" for number in range(300)]


def member(name: str, silent: float = 0.0, *, session: bool = True, drains: bool = False) -> Member:
    return Member(name, f"{name}:1", silent, session, drains)


def beat(*members: Member, given: tuple[str, ...] = (), left: tuple[str, ...] = ()) -> Beat:
    return Beat(
        members,
        (),
        tuple(Holding(run, "a", 1) for run in given),
        tuple(Holding(run, "dead", 1) for run in left),
    )


def beating(seconds: float, said: Beat, membership: Membership | None = None) -> Membership:
    """After so many seconds of beats that were all answered with the same."""
    made = membership or Membership("a")
    for number in range(int(seconds / BEAT_SECONDS) + 1):
        made.beaten(number * BEAT_SECONDS, said)
    return made


def test_a_replica_is_sure_of_its_runs_for_a_lease_from_when_it_sent_its_beat() -> None:
    one = Membership("a")
    assert not one.is_sure(0.0)
    one.beaten(10.0, beat(member("a")))
    assert one.is_sure(10.0 + LEASE_SECONDS - 0.01)
    assert not one.is_sure(10.0 + LEASE_SECONDS)


def test_who_has_just_come_back_judges_nobody_for_a_while() -> None:
    said = beat(member("a"), member("dead", 99.0), left=("x",), given=("y",))
    one = beating(JUDGE_SECONDS - BEAT_SECONDS, said)
    assert one.claims(said, JUDGE_SECONDS - 0.01) == [Holding("y", "a", 1)]
    one = beating(JUDGE_SECONDS, said)
    assert {holding.run for holding in one.claims(said, JUDGE_SECONDS)} == {"x", "y"}
    one.missed()
    one.beaten(JUDGE_SECONDS + 0.1, said)
    assert one.claims(said, JUDGE_SECONDS + 0.1) == [Holding("y", "a", 1)]


def test_a_gap_between_beats_that_is_as_long_as_a_lease_counts_as_one_that_failed() -> None:
    said = beat(member("a"), left=("x",))
    one = beating(5.0, said)
    one.beaten(5.0 + LEASE_SECONDS, said)  # the process was stopped
    assert not one.may_judge(5.0 + LEASE_SECONDS + 0.1)


@pytest.mark.parametrize(
    ("other", "lives"),
    [
        (member("b", LEASE_SECONDS - 0.1), True),
        (member("b", LEASE_SECONDS), True),
        (member("b", LEASE_SECONDS + 0.001), False),
        (member("b", 0.1, session=False), False),
        (member("b", 0.1, drains=True), True),
    ],
)
def test_a_replica_is_alive_that_beats_and_whose_session_stands(other: Member, lives: bool) -> None:
    one = beating(5.0, beat(member("a"), other))
    assert (one.found("b") is not None) is lives
    assert one.found("a") is not None


def test_the_runs_of_a_dead_one_are_spread_over_those_that_live() -> None:
    living = [member(name) for name in "abc"]
    said = beat(*living, member("dead", 9.0), left=tuple(RUNS))
    taken = []
    for name in "abc":
        one = beating(5.0, said, Membership(name))
        taken.append([holding.run for holding in one.claims(said, 5.0)])
    assert sorted(run for some in taken for run in some) == sorted(RUNS)
    assert all(70 < len(some) < 130 for some in taken)


def test_who_drains_takes_nothing_as_long_as_another_one_can() -> None:
    said = beat(member("a", drains=True), member("b"), left=tuple(RUNS))
    assert beating(5.0, said).claims(said, 5.0) == []
    alone = beat(member("a", drains=True), left=("x",))
    assert [one.run for one in beating(5.0, alone).claims(alone, 5.0)] == ["x"]


def test_runs_are_given_to_who_lives_and_does_not_drain() -> None:
    one = beating(5.0, beat(member("a"), member("b"), member("c", drains=True), member("d", 9.0)))
    assert {found.id for run in RUNS if (found := one.heir(run))} == {"b"}
    assert beating(5.0, beat(member("a"))).heir("run") is None


def test_one_more_replica_moves_the_choice_of_its_own_part_alone() -> None:
    three, four = [member(n) for n in "abc"], [member(n) for n in "abcd"]
    moved = [run for run in RUNS if heir(run, three) != heir(run, four)]
    assert {heir(run, four) for run in moved} == {"d"}
    assert 40 < len(moved) < 110


def test_only_who_reads_the_records_of_a_run_takes_it() -> None:
    newer = replace(member("b"), reads=JOURNAL + 1)
    said = beat(member("a"), newer, left=tuple(RUNS))
    one = beating(JUDGE_SECONDS, said)
    assert {holding.run for holding in one.claims(said, JUDGE_SECONDS)} == set(RUNS)
    assert {one.heir(run) for run in RUNS} == {None}
    other = beating(JUDGE_SECONDS, said, Membership("b", JOURNAL + 1))
    assert other.claims(said, JUDGE_SECONDS) == []
    left = tuple(replace(one, version=JOURNAL + 1) for one in said.left)
    assert len(other.claims(replace(said, left=left), JUDGE_SECONDS)) == len(RUNS)
