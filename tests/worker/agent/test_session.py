"""The agent's talk with the registry: one try each, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rendezvous.talk.retry import retry_pause
from rendezvous.wire.errors import Fenced, RdzvError
from rendezvous.wire.reports import ExitReport, LeaveReport, Report
from rendezvous.wire.run import Phase
from rendezvous.wire.watch import NodeView
from tests.support.virtual_time import run_virtually
from tests.worker.agent.drive import AWAY, OFFER, reply
from tests.worker.test_table import join
from worker.agent.actions import Connect, Join, Tell, Watch
from worker.agent.inputs import Connected, Done, Failed, Input, Joined, Late, Viewed
from worker.agent.session import Session

VIEW = NodeView(seq=4, phase=Phase.GATHERING, epoch=1, reason="")
REPORT = ExitReport(epoch=1, exit_code=3)


class Registry:
    """A client whose registry answers after some seconds, or refuses."""

    base = "https://10.0.0.4:29600"
    pause = staticmethod(retry_pause)

    def __init__(self, seconds: float = 0.0, error: RdzvError | None = None) -> None:
        self.reports: list[Report] = []
        self.asked_at: list[float] = []
        self.closed = False
        self._seconds = seconds
        self._error = error

    async def _answer(self, answer: Any) -> Any:
        self.asked_at.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self._seconds)
        if self._error is not None:
            raise self._error
        return answer

    async def connect(self) -> str:
        """See `RegistryClient`."""
        return str(await self._answer(self.base))

    async def join(self, run: str, offer: Any) -> Any:
        """See `RegistryClient`."""
        return await self._answer(reply())

    async def watch(self, run: str, slot: int, after: int, poll: float) -> Any:
        """See `RegistryClient`."""
        return await self._answer(VIEW)

    async def report(self, run: str, slot: int, given: Report) -> Any:
        """See `RegistryClient`."""
        self.reports.append(given)
        return await self._answer(None)

    async def close(self) -> None:
        """See `RegistryClient`."""
        self.closed = True


Ask = Callable[[Session], Coroutine[Any, Any, Input]]


def said(registry: Registry, ask: Ask, after: float = 0.0) -> Input:
    """What a session answers."""
    found: list[Input] = []

    async def work() -> None:
        await asyncio.sleep(after)
        client: Any = registry
        found.append(await ask(Session(client, join())))

    run_virtually(work())
    return found[0]


def watch(**changes: Any) -> Ask:
    """A watch of at most 4 s."""
    return lambda session: session.watch(Watch(7, after=3, poll=2.0, limit=4.0, **changes))


def test_each_question_is_answered_by_one_input() -> None:
    registry = Registry()
    base = registry.base
    assert said(registry, lambda s: s.connect(Connect(7))) == Connected(7, base)
    assert said(registry, lambda s: s.join(Join(7, OFFER))) == Joined(7, reply(), base)
    assert said(registry, watch()) == Viewed(7, VIEW)
    assert said(registry, lambda s: s.tell(Tell(7, REPORT, 0.0))) == Done(7)
    assert said(registry, lambda s: s.close(7)) == Done(7)
    assert registry.closed


@pytest.mark.parametrize("error", [AWAY, Fenced("newer")])
def test_what_the_registry_refuses_is_an_answer(error: RdzvError) -> None:
    assert said(Registry(error=error), watch()) == Failed(7, error)
    tell = Tell(7, REPORT, 0.0)
    assert said(Registry(error=error), lambda s: s.tell(tell)) == Failed(7, error)
    assert said(Registry(error=error), lambda s: s.connect(Connect(7))) == Failed(7, error)


def test_a_limit_that_has_passed_is_an_answer() -> None:
    assert said(Registry(seconds=4.1), watch()) == Late(7)
    assert said(Registry(seconds=3.9), watch()) == Viewed(7, VIEW)
    last = Tell(7, LeaveReport(), 0.0, limit=3.0)
    assert said(Registry(seconds=3.1), lambda s: s.tell(last)) == Late(7)


def test_a_pause_is_short_and_no_part_of_the_limit() -> None:
    registry = Registry(seconds=3.9)
    assert said(registry, watch(pause=True)) == Viewed(7, VIEW)
    (asked_at,) = registry.asked_at
    assert 0.2 <= asked_at <= 0.5


def test_an_exit_report_is_as_old_as_what_it_tells_of_when_it_is_sent() -> None:
    registry = Registry()
    tell = Tell(7, REPORT, began_at=15.0, since=10.0)
    said(registry, lambda s: s.tell(tell), after=40.0)
    assert registry.reports == [REPORT.model_copy(update={"age_seconds": 30.0})]


def test_a_report_without_a_beginning_ages_from_its_first_try() -> None:
    registry = Registry()
    said(registry, lambda s: s.tell(Tell(7, REPORT, began_at=15.0)), after=40.0)
    said(registry, lambda s: s.tell(Tell(7, LeaveReport(), 0.0, since=1.0)), after=40.0)
    assert registry.reports == [REPORT.model_copy(update={"age_seconds": 25.0}), LeaveReport()]


def test_what_has_not_begun_yet_by_this_clock_is_not_younger_than_new() -> None:
    registry = Registry()
    said(registry, lambda s: s.tell(Tell(7, REPORT, 0.0, since=50.0)), after=40.0)
    assert registry.reports == [REPORT]
