"""The engine that the simulated replicas share, and each one's way to it."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rendezvous.registry.commits import Commits
from rendezvous.registry.journal import Record
from rendezvous.registry.shared_journal import Beat, Holding, InDoubt
from rendezvous.wire.errors import RegistryError, StorageFull, Unavailable
from rendezvous.wire.tenant import Tenant
from tests.simulation.replicas.judge import Judge
from tests.support.shared_engine import AWAY, Engine, Row
from tests.support.virtual_time import VirtualLoop

if TYPE_CHECKING:
    from tests.simulation.replicas.world import Process

T = TypeVar("T")

_PATIENCE_SECONDS = 3.0
"""After so long without a word a connection to the engine is given up."""
_CHANGES = ("claim", "hand_over", "drop")
"""Are commits as well. That a replica is there need not be durable: beats are no such."""
_AHEAD_SECONDS = 4_000.0
"""The engine's clock is nobody's."""


class SimEngine(Engine):
    """What is durable; everything happens in one order, and each call at one moment.

    Attributes:
        boots: How often it has started: what was under way at an end is not done.
        at_call: Called before and after each change, with the process that makes it.
    """

    def __init__(self, loop: VirtualLoop, draw: random.Random, judge: Judge) -> None:
        super().__init__(now=lambda: loop.time() + _AHEAD_SECONDS)
        self.loop = loop
        self.draw = draw
        self.judge = judge
        self.boots = 0
        self.at_call: Callable[[str, str, Process], None] = lambda call, side, process: None

    def restart(self) -> None:
        super().restart()
        self.boots += 1

    # --- what is judged of what a call does ---------------------------------------------------

    def committed(self, record: Record, epoch: int) -> None:
        owned = self.owners.get(record.run)
        self.judge.committed(record, epoch, owned.epoch if owned is not None else 0)

    def claimed(self, me: str, claimed: Mapping[str, int], before: Mapping[str, Holding]) -> None:
        self.judge.claimed(me, claimed, before)

    def dropped(self, run: str) -> None:
        self.judge.dropped(run)


class SimJournal:
    """A replica's connection to it: see `SharedJournal`.

    Attributes:
        is_cut_up: What it asks does not reach the engine.
        is_cut_down: What the engine answers does not reach it.
        loses_answers: So many of the next changes happen, and their answers are lost.
    """

    def __init__(self, engine: SimEngine, process: Process) -> None:
        self.engine = engine
        self.id, self.version = process.name, process.version
        self.clock: Callable[[], float] = process.clock
        self.commits = Commits(engine.loop.time)
        self.epochs: dict[str, int] = {}
        self._ahead: dict[str, float] = {}
        self.is_cut_up = self.is_cut_down = False
        self.loses_answers = 0
        self._claiming = Counter[str]()
        """Of these runs a beat says nothing, as with the real one."""
        self._beating = asyncio.Lock()
        self._process = process
        self._boots = engine.boots
        """Of the engine, as its connections were opened."""

    def ahead(self, run: str) -> float:
        return self._ahead[run] if run in self.epochs else -math.inf

    # --- the way there, and back --------------------------------------------------------------

    async def _ask(self, call: str, work: Callable[[], T], *, commits: bool = False) -> T:
        if commits or call in _CHANGES:
            with self.commits.one():
                return await self._answered(call, work, commits=commits)
        return await self._answered(call, work)

    async def _answered(self, call: str, work: Callable[[], T], *, commits: bool = False) -> T:
        loop = self.engine.loop
        done: asyncio.Future[T] = loop.create_future()
        if call == "beat" and self._boots != self.engine.boots:
            self._boots = self.engine.boots
            loop.call_later(self._way(), _set_failed, done, context=loop.nobody)
            return await done
        args = (call, work, done, commits, self.engine.boots)
        loop.call_later(self._way(), self._arrive, *args, context=loop.nobody)
        return await done

    def _way(self) -> float:
        return 0.0002 + self.engine.draw.random() * 0.002

    def _arrive(self, *args: Any) -> None:
        engine, (call, _, _, commits, _) = self.engine, args
        is_slow = commits or call in _CHANGES
        seconds = engine.slow_seconds if is_slow else 0.0
        if seconds > 0.01:
            self._break(args[2], seconds)
            engine.loop.call_later(seconds, self._execute, *args, context=engine.loop.nobody)
        else:
            self._execute(*args)

    def _break(self, done: asyncio.Future[Any], seconds: float) -> None:
        """Now and then the connection is lost while the engine is at it, which goes on."""
        draw = self.engine.draw
        if draw.random() < 0.2:
            near = seconds - draw.uniform(0.0, 0.008)  # it lands while the run is claimed and read
            when = near if draw.random() < 0.5 else draw.uniform(0.0, seconds)
            self.engine.loop.call_later(when, _set_failed, done, context=self.engine.loop.nobody)

    def _is_out_of_reach(self, boots: int) -> bool:
        lost = not self._process.machine.alive and self.engine.draw.random() < 0.5
        away = self.engine.is_away or self.engine.boots != boots
        return lost or away or self.is_cut_up

    def _execute(
        self,
        call: str,
        work: Callable[[], Any],
        done: asyncio.Future[Any],
        commits: bool,
        boots: int,
    ) -> None:
        engine = self.engine
        changes = commits or call in _CHANGES
        if changes and not self._is_out_of_reach(boots):
            engine.at_call(call, "before", self._process)
        if self._is_out_of_reach(boots):
            self._fail(done)
            return
        result = work()
        if changes:
            engine.at_call(call, "after", self._process)
        if changes and self.loses_answers:
            self.loses_answers -= 1
            self._fail(done)
            return
        engine.loop.call_later(
            self._way(), self._answer, done, result, engine.boots, context=engine.loop.nobody
        )

    def _answer(self, done: asyncio.Future[Any], result: Any, boots: int) -> None:
        if self.is_cut_down or self.engine.is_away or self.engine.boots != boots:
            self._fail(done)
        elif not done.done():
            done.set_result(result)

    def _fail(self, done: asyncio.Future[Any]) -> None:
        silent = self.is_cut_up or self.is_cut_down or self.engine.draw.random() < 0.2
        seconds = self.engine.draw.uniform(0.2, _PATIENCE_SECONDS) if silent else self._way()
        self.engine.loop.call_later(seconds, _set_failed, done, context=self.engine.loop.nobody)

    # --- the calls ----------------------------------------------------------------------------

    async def append(self, records: list[Record]) -> Mapping[str, RegistryError]:
        epochs = {record.run: self.epochs.get(record.run, -1) for record in records}
        try:
            return await self._ask(
                "append", lambda: self.engine.append(self.id, records, epochs), commits=True
            )
        except Unavailable as exc:
            return dict.fromkeys(epochs, InDoubt(exc.message))

    async def probe(self) -> None:
        """Draw nothing: a schedule is the same with it."""
        with self.commits.one():
            await asyncio.sleep(0.001 + self.engine.slow_seconds)
            if self.is_cut_up or self.is_cut_down or self.engine.is_away:
                raise Unavailable(AWAY)
            if self.engine.is_full:
                raise StorageFull("the disk is full")

    async def tenants(self) -> list[Tenant]:
        return list(self.engine.tenants.values())

    async def put_tenant(self, tenant: Tenant) -> None:
        self.engine.put_tenant(tenant)

    async def remove_tenant(self, name: str) -> bool:
        return self.engine.remove_tenant(name)

    async def beat(
        self, address: str, *, lease_seconds: float, drains: bool = False, usage: object = None
    ) -> Beat:
        asked, shown = dict(self.epochs), self.clock()

        def work() -> Beat:
            row = Row(address, self._process.clock(), shown, self._process.has_session, drains)
            return self.engine.beat(self.id, row, asked, lease_seconds)

        async with self._beating:  # they have a connection of their own, and go one by one
            beat = await self._ask("beat", work)
        known = {run for run in beat.lost if self.epochs.get(run) == asked[run]}
        lost = tuple(run for run in beat.lost if run in known and run not in self._claiming)
        own = self.epochs.keys() | self._claiming.keys()
        given = tuple(one for one in beat.given if one.run not in own)
        for run in lost:
            del self.epochs[run]
        return Beat(beat.members, lost, given, beat.left)

    async def owner(self, run: str) -> Holding | None:
        return await self._ask("owner", lambda: self.engine.owners.get(run))

    async def claim(self, wanted: Sequence[Holding]) -> Mapping[str, int]:
        wanted, now = tuple(wanted), self.clock()
        self._claiming.update(one.run for one in wanted)
        try:
            claimed = await self._ask("claim", lambda: self.engine.claim(self.id, wanted, now))
        finally:
            self._claiming -= Counter(one.run for one in wanted)
        self._ahead |= {run: one.ahead for run, one in claimed.items()}
        epochs = {run: one.epoch for run, one in claimed.items()}
        self.epochs |= epochs
        return epochs

    async def hand_over(self, run: str, to: str | None) -> bool:
        held = run, self.epochs.pop(run, -1), to, self.clock()
        given = await self._ask("hand_over", lambda: self.engine.hand_over(self.id, *held))
        if given:
            self.engine.judge.given[run, self.id] = self.engine.loop.time()
        return given

    async def leave(self) -> None:
        now = self.clock()
        await self._ask("leave", lambda: self.engine.leave(self.id, now))

    async def runs(self) -> list[str]:
        return await self._ask(
            "runs", lambda: [r for r, kept in self.engine.written.items() if kept]
        )

    async def read(self, run: str) -> list[Record]:
        return await self._ask("read", lambda: self.engine.records(run))

    async def drop(self, runs: Sequence[str]) -> None:
        epochs = {run: self.epochs.pop(run, -1) for run in runs}
        await self._ask("drop", lambda: self.engine.drop(self.id, epochs))

    async def close(self) -> None:
        """See the protocol."""


def _set_failed(done: asyncio.Future[Any]) -> None:
    if not done.done():
        done.set_exception(Unavailable(AWAY))
