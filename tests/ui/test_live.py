"""The one reader of a run: how often it asks, and how soon it knows; on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from launcher.ui.live import LiveReader
from launcher.ui.told import LaunchFacts, Told
from rendezvous.talk.client import RegistryClient
from rendezvous.wire.errors import Unavailable
from rendezvous.wire.run import EventLine, Phase, RunStatus, SlotState, SlotStatus
from tests.support.virtual_time import run_virtually

FACTS = LaunchFacts("llama", "k7f2a9c1xy", ["train.py"], "1", "local", "login", 5.0)
EACH = 0.05


@dataclass
class ToldRun:
    """A registry's run, of which a program tells how it gets on, so many times."""

    tells: int
    phase: Phase = Phase.RUNNING
    version: int = 1
    asked_at: list[float] = field(default_factory=list)
    lines: list[EventLine] = field(default_factory=list)
    said: asyncio.Event = field(default_factory=asyncio.Event)

    def say(self, **known: Any) -> None:
        """Something happens."""
        self.version += 1
        line: dict[str, Any] = {
            "kind": "progressed",
            "reason": "",
            "phase": self.phase,
            "epoch": 1,
            "slot": 0,
        }
        at = asyncio.get_running_loop().time()
        number = len(self.lines) + 1
        self.lines.append(EventLine(number=number, at_seconds=at, **line | known))
        self.said.set()
        self.said = asyncio.Event()

    async def goes_on(self) -> None:
        """How its program gets on, then something else, then its end."""
        for number in range(self.tells):
            self.say(progress=f"step {number}")
            await asyncio.sleep(EACH)
        self.phase = Phase.RESTARTING
        self.say(kind="restarting")
        await asyncio.sleep(30.0)
        self.phase = Phase.FINISHED
        self.say(kind="finished")

    async def status(self, _: str, *, after: int, wait: float) -> RunStatus:
        """As the client's."""
        clock = asyncio.get_running_loop().time
        self.asked_at.append(clock())
        until = clock() + wait
        while self.version <= after and clock() < until:
            await asyncio.wait([asyncio.ensure_future(self.said.wait())], timeout=until - clock())
        return RunStatus(
            run="llama",
            launch_id="k7f2a9c1xy",
            version=self.version,
            phase=self.phase,
            epoch=1,
            reason="",
            min_nodes=1,
            max_nodes=1,
            elapsed_seconds=1.0,
            slots=[SlotStatus(slot=0, generation=1, wanted_generation=1, state=SlotState.RUNNING)],
        )

    async def events(self, _: str, after: int) -> AsyncIterator[EventLine]:
        """As the client's."""
        while self.phase is not Phase.FINISHED:
            for line in self.lines[after:]:
                yield line
            after = len(self.lines)
            await self.said.wait()


async def read(
    run: ToldRun, lives: Callable[[], bool] = lambda: False
) -> tuple[Told, list[tuple[float, str]]]:
    """What is told of the run, and when its state was another one."""
    told = Told(FACTS, 1_000, "reading")
    seen: list[tuple[float, str]] = []

    def changed() -> None:
        if not seen or seen[-1][1] != told.head["state"]:
            seen.append((asyncio.get_running_loop().time(), told.head["state"]))

    reader = LiveReader(cast(RegistryClient, run), told, changed, lives)
    happens = asyncio.ensure_future(run.goes_on())
    await reader.read()
    await happens
    return told, seen


def test_while_programs_tell_how_they_get_on_the_status_is_asked_now_and_then() -> None:
    async def work() -> None:
        run = ToldRun(tells=1_200)  # for a minute
        told, seen = await read(run)
        asked = [at for at in run.asked_at if 10.0 < at < 60.0]
        assert 15 < len(asked) < 25
        words = [event for event in told.state()["events"] if event["kind"] == "progressed"]
        assert len(words) > 100
        at = {state: when for when, state in seen}
        assert at["restarting"] - 60.0 < 1.0  # not only at the next turn
        assert at["finished"] - 90.0 < 1.0

    run_virtually(work())


def test_a_run_of_which_nothing_is_told_is_waited_for_and_not_asked_again_and_again() -> None:
    async def work() -> None:
        run = ToldRun(tells=0)
        _, seen = await read(run)
        assert len(run.asked_at) < 20  # in 30 s, as a restart is shown with its time
        assert [state for _, state in seen][-2:] == ["restarting", "finished"]

    run_virtually(work())


def test_a_stream_that_cannot_be_had_leaves_the_status_which_is_as_new() -> None:
    class Streamless(ToldRun):
        async def events(self, _: str, after: int) -> AsyncIterator[EventLine]:
            raise Unavailable("no streams here")
            yield self.lines[after]

    async def work() -> None:
        run = Streamless(tells=200)
        _, seen = await read(run)
        at = {state: when for when, state in seen}
        assert at["restarting"] - 10.0 < 1.0

    run_virtually(work())


def test_a_registry_that_does_not_answer_is_told_to_be_silent_for_ever_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Away(ToldRun):
        async def status(self, run: str, *, after: int, wait: float) -> RunStatus:
            if 2.0 < asyncio.get_running_loop().time() % 16.0 < 12.0:
                raise Unavailable("away")
            return await super().status(run, after=after, wait=wait)

    silent: list[float | None] = []
    monkeypatch.setattr(Told, "silent", lambda _, seconds, why: silent.append(seconds))

    async def work() -> None:
        await read(Away(tells=20), lives=lambda: asyncio.get_running_loop().time() < 30.0)

    run_virtually(work())
    first, second = silent[: silent.index(None)], silent[silent.index(None) + 1 : -1]
    for told in (first, second):  # each time from its own beginning
        assert told[0] == pytest.approx(3.0, abs=0.6)
        assert told == sorted(one for one in told if one is not None)
        assert told[-1] == pytest.approx(8.5, abs=1.5)
    assert silent[-1] is None
