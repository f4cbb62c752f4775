"""How long a database has acknowledged no commit: what counts for that, and what ends it."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

import pytest

from rendezvous.registry.commits import (
    LATE_SECONDS,
    PATIENCE_SECONDS,
    PROBE_SECONDS,
    Commits,
    Unacknowledged,
)
from rendezvous.registry.membership import LEASE_SECONDS
from rendezvous.wire.errors import StorageFull, Unavailable


class Own(Exception):
    """A failure of one commit's own."""


class World:
    """Commits on a clock that is moved, and how many of them have failed."""

    def __init__(self) -> None:
        self.now, self.failures = 100.0, 0
        self.commits = Commits(lambda: self.now, (Own,))
        self.commits.on_failure = self._count

    def _count(self) -> None:
        self.failures += 1

    def begin(self) -> AbstractContextManager[None]:
        one = self.commits.one()
        one.__enter__()
        return one

    def fail(self, one: AbstractContextManager[None], error: Exception) -> None:
        with contextlib.suppress(type(error)):
            one.__exit__(type(error), error, None)

    def acknowledge(self, one: AbstractContextManager[None]) -> None:
        one.__exit__(None, None, None)


@pytest.fixture
def world() -> World:
    return World()


def test_a_commit_may_wait_as_long_as_a_replica_may_be_silent() -> None:
    assert PATIENCE_SECONDS == LEASE_SECONDS


def test_the_oldest_commit_that_waits_counts(world: World) -> None:
    assert world.commits.seconds() == 0
    first = world.begin()
    world.now += 2
    second = world.begin()
    world.now += 0.5
    assert world.commits.seconds() == 2.5
    world.acknowledge(first)
    assert world.commits.seconds() == 0.5
    world.acknowledge(second)
    assert world.commits.seconds() == 0


def test_one_that_waits_for_a_row_says_nothing_where_a_later_one_is_acknowledged(
    world: World,
) -> None:
    waiting = world.begin()
    world.now += 2
    world.acknowledge(world.begin())
    world.now += 5
    assert world.commits.seconds() == 0
    world.fail(waiting, Unavailable("it had no answer"))
    assert world.commits.seconds() == 5  # since that one; the next shows what is the case
    assert world.commits.is_probe_due()
    world.acknowledge(world.begin())
    assert world.commits.seconds() == 0


def test_after_a_failure_the_time_goes_on_until_a_later_one_is_acknowledged(world: World) -> None:
    first, earlier = world.begin(), world.begin()
    world.now += 1
    world.fail(first, StorageFull("no room"))
    world.now += 4
    world.fail(world.begin(), StorageFull("no room"))
    assert (world.commits.seconds(), world.failures) == (5, 2)
    assert world.commits.has_failed
    world.acknowledge(earlier)
    world.now += 1
    world.acknowledge(world.begin())
    assert (world.commits.seconds(), world.commits.has_failed) == (0, False)


def test_a_failure_of_its_own_and_one_that_is_broken_off_say_nothing(world: World) -> None:
    world.fail(world.begin(), Own())
    with pytest.raises(KeyboardInterrupt), world.commits.one():
        raise KeyboardInterrupt
    world.now += 10
    assert (world.commits.seconds(), world.failures) == (0, 0)


def test_a_probe_is_due_while_it_is_not_known_and_where_nothing_else_is_written(
    world: World,
) -> None:
    assert world.commits.is_probe_due()  # nothing was ever written
    one = world.begin()
    assert not world.commits.is_probe_due()
    world.now += LATE_SECONDS + 0.1
    assert world.commits.is_probe_due()
    world.acknowledge(one)
    assert not world.commits.is_probe_due()
    world.now += PROBE_SECONDS
    assert world.commits.is_probe_due()


def test_the_sentence_names_the_database_the_reason_and_what_to_do(world: World) -> None:
    one = world.begin()
    world.now += PATIENCE_SECONDS
    world.commits.check()
    assert world.commits.error() is None
    world.now += 9
    with pytest.raises(Unacknowledged) as failure:
        world.commits.check()
    words = "the registry's database has acknowledged no commit for 12 s"
    assert failure.value.message == words
    assert "the database's own log says why" in failure.value.hint
    world.commits.reason, world.commits.hint = "its disk is full", "free space"
    with pytest.raises(Unacknowledged) as failure:
        world.commits.check()
    assert (failure.value.message, failure.value.hint) == (
        f"{words}: its disk is full",
        "free space",
    )
    error = world.commits.error()
    assert error is not None
    assert error.message == "the registry's database acknowledges no commit: its disk is full"
    world.acknowledge(one)
    world.commits.check()
    assert world.commits.reason == world.commits.hint == ""


def test_a_refusal_is_answered_with_what_it_comes_from_once_a_commit_is_late(world: World) -> None:
    why = Unavailable("run 'r' is on its way to another replica")
    one = world.begin()
    assert world.commits.instead_of(why) is why
    world.now += LATE_SECONDS + 0.1
    told = world.commits.instead_of(why)
    assert told.message == "the registry's database acknowledges no commit"
    assert told.code == "unavailable"
    assert told.retryable
    assert world.commits.instead_of(told) is told
    world.acknowledge(one)
    assert world.commits.instead_of(why) is why
