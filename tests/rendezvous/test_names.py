"""How often a resolver is asked for a name that is waited for."""

from __future__ import annotations

import random

import pytest

from rendezvous.talk.failures import Fault, NetworkFailure
from rendezvous.talk.http_network import Names, hold_seconds
from rendezvous.talk.retry import retry_pause


class Asking:
    """Somebody who asks for a name in a loop, as a node does for its registry."""

    def __init__(self, seed: int = 1) -> None:
        self.now = 0.0
        self.queries: list[float] = []
        self.there_at = float("inf")
        self.addresses = ["10.0.0.1"]
        self.names = Names(lambda: self.now, random.Random(seed))
        self._draw = random.Random(seed)

    async def look_up(self, name: str) -> list[str]:
        self.queries.append(self.now)
        if self.now < self.there_at:
            raise NetworkFailure(Fault.NO_NAME, f"no {name}", opened=False)
        return self.addresses

    async def ask(self) -> list[str] | NetworkFailure:
        try:
            return await self.names.addresses_of("head", self.look_up)
        except NetworkFailure as exc:
            return exc

    async def ask_until(self, end: float) -> float:
        """Ask until an answer is a good one, or that time; when it is that."""
        while self.now < end and not isinstance(await self.ask(), list):
            self.now += retry_pause(self._draw)
        return self.now


async def test_a_name_that_is_not_there_is_asked_for_ever_more_rarely() -> None:
    asking = Asking()
    await asking.ask_until(60.0)
    assert len(asking.queries) < 40  # of 170 tries
    assert sum(at < 2.0 for at in asking.queries) >= 3
    failure = await asking.ask()
    assert isinstance(failure, NetworkFailure)
    assert (failure.fault, failure.detail, failure.opened) == (Fault.NO_NAME, "no head", False)


@pytest.mark.parametrize("there_at", [0.0, 0.1, 3.0, 30.0, 33.3])
async def test_a_name_that_comes_late_costs_at_most_two_seconds_and_a_half(there_at: float) -> None:
    for seed in range(20):
        asking = Asking(seed)
        asking.there_at = there_at
        assert await asking.ask_until(100.0) - there_at <= 2.5


async def test_a_name_that_is_there_is_asked_for_rarely_and_its_change_is_seen() -> None:
    """Nobody listens there yet, so the node comes again and again."""
    asking = Asking()
    asking.there_at = 0.0
    for _ in range(100):
        asking.now += 0.35
        assert await asking.ask() == ["10.0.0.1"]
    assert len(asking.queries) < 25
    asking.addresses = ["10.0.0.2"]
    asking.now += 2.1
    assert await asking.ask() == ["10.0.0.2"]
    asking.now += 0.3  # something moves: it is looked at often again
    assert len(asking.queries) == len({*asking.queries, asking.now}) - 1
    before = len(asking.queries)
    await asking.ask()
    assert len(asking.queries) == before + 1


async def test_who_comes_back_after_long_has_the_newest_answer() -> None:
    asking = Asking()
    asking.there_at = 0.0
    for _ in range(30):
        asking.now += 0.35
        await asking.ask()
    for pause in (11.0, 0.3):
        asking.now += pause
        before = len(asking.queries)
        await asking.ask()
        assert len(asking.queries) == before + 1


def test_a_pause_grows_to_two_seconds_with_jitter_and_no_further() -> None:
    draw = random.Random(1)
    for times, most in ((0, 0.25), (1, 0.5), (2, 1.0), (3, 2.0), (4, 2.0), (10_000, 2.0)):
        found = [hold_seconds(times, draw) for _ in range(200)]
        assert 0.75 * most <= min(found) < 0.8 * most
        assert 0.95 * most < max(found) <= most
