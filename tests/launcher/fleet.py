"""A scheduler in memory that behaves: what was submitted is listed, runs, and can be ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from launcher.plan.plan import Submission, WorkerRun
from launcher.schedulers.contract import Trouble, unheard
from launcher.schedulers.description import Description
from rendezvous.wire.errors import SchedulerError
from rendezvous.wire.run import SlotState


@dataclass
class Made:
    """A run that the fleet has."""

    run: WorkerRun
    key: str
    state: SlotState = SlotState.RUNNING
    detail: str = ""
    looks: int = 0


@dataclass
class Fleet:
    """The scheduler, with its troubles.

    Attributes:
        made: Its runs by name.
        told: What it was told to end: id and grace.
        asked: How often it was asked or told anything.
        down: So many calls fail.
        stays: It does not end anything, and says so.
        late: A run is listed at the look after so many.
        hears: Whether a gentle cancel ends a run; one without grace always does.
        begins: State of a run that was just made.
        answer: Of submit: made and told, made and not told, not made.
        open: Submit waits for it.
        trouble: What its first try to submit comes to.
    """

    name: str = "fleet"
    loopback: bool = False
    poll_seconds: float = 0.01
    finds: bool = True
    keeps_logs: bool = True
    made: dict[str, Made] = field(default_factory=dict)
    told: list[tuple[str, float]] = field(default_factory=list)
    asked: int = 0
    down: int = 0
    stays: bool = False
    late: int = 0
    hears: bool = True
    begins: SlotState = SlotState.RUNNING
    answer: str = "told"
    trouble: str = ""
    open: asyncio.Event = field(default_factory=asyncio.Event)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.open.set()

    def prepare(self, run: Submission, join: str) -> str:
        """What would be submitted."""
        return f"{run.name} {join}"

    async def submit(self, run: Submission, join: str, *, trouble: Trouble = unheard) -> str:
        """Make it."""
        if self.trouble:
            await trouble(self.trouble)
        await self.open.wait()
        if self.answer == "not made":
            raise SchedulerError("the fleet is full")
        key = str(100 + len(self.made))
        self.made[run.name] = Made(run, key, self.begins)
        if self.answer == "not told":
            raise SchedulerError("no answer from the fleet")
        return key

    async def find(self, run: WorkerRun) -> str | None:
        """By its name."""
        self._ask()
        found = self.made.get(run.name)
        if found is None or not self.finds:
            return None
        found.looks += 1
        over = found.state in (SlotState.ENDED, SlotState.FAILED)
        return None if over or found.looks <= self.late else found.key

    async def describe(self, run: WorkerRun, handle: str) -> Description:
        """By its id."""
        self._ask()
        found = next((made for made in self.made.values() if made.key == handle), None)
        if found is None:
            return Description(SlotState.UNKNOWN, "no such run")
        return Description(found.state, found.detail)

    async def cancel(self, run: WorkerRun, handle: str, *, grace_seconds: float) -> None:
        """End it."""
        self._ask()
        self.told.append((handle, grace_seconds))
        if self.stays:
            raise SchedulerError("you may not end this run")
        for made in self.made.values():
            if made.key == handle and (self.hears or grace_seconds == 0):
                made.state = SlotState.ENDED

    def cancel_words(self, run: WorkerRun, handle: str | None) -> str:
        """The command."""
        return f"fleet end {handle}" if handle else ""

    async def logs(
        self, run: WorkerRun, handle: str, *, lines: int, follow: bool
    ) -> AsyncIterator[str]:
        """What it has printed."""
        for line in self.lines[-lines:]:
            yield line

    def _ask(self) -> None:
        self.asked += 1
        if self.down > 0:
            self.down -= 1
            raise SchedulerError("error 500")
