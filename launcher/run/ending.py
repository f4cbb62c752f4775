"""The end of worker runs: each is told, told again, and gone when its scheduler says so. Pure.

One whose submission got no answer has no id: it is looked for by its unique name, twice, as lists
lag behind. What is not gone in the end is told to the person, with the command that ends it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from launcher.run import inputs
from launcher.run.actions import CancelWorkerRun, Describe, Find, Say
from launcher.run.desk import Desk
from launcher.run.sentences import MayBeLeft, Stand, StandKind
from launcher.run.values import Key, Starter
from launcher.schedulers.description import OVER, Description
from rendezvous.enums import StrEnum
from rendezvous.frozen import frozen
from rendezvous.wire.run import SlotState

LOOKS: Final = 2
LOOK_AGAIN_SECONDS: Final = 1.0
LIMIT_SECONDS: Final = 60.0
HURRY_SECONDS: Final = 8.0
TELL_AGAIN_SECONDS: Final = 20.0
FIRST_PAUSE_SECONDS: Final = 0.2
FIRST_PAUSE_HERE_SECONDS: Final = 0.01
"""A look at a process of this one's own costs next to nothing."""
LONGEST_PAUSE_SECONDS: Final = 5.0
GRACE_MORE_SECONDS: Final = 2.0
COMMANDS_AT_ONCE: Final = 16
_MAY_RUN: Final = (SlotState.RUNNING, SlotState.UNKNOWN)


class Ask(StrEnum):
    """What a worker run's scheduler is asked or told next."""

    FIND = "find"
    DESCRIBE = "describe"
    CONFIRM = "confirm"
    """Its state is unknown: is it listed at all?"""
    CANCEL = "cancel"
    NOTHING = "nothing"


@dataclass(slots=True)
class End:
    """How far the end of one worker run has come.

    Attributes:
        wait_until: Until then one that runs may end by itself.
        ask: What is under way, or waits for its turn.
        id: Of the action under way.
        told_at: When it was told to end; None before that.
        gently: It was told with a grace.
        hurried_at: Since when it has to end at once.
        looks: How often it was looked for in vain.
        refused: Why it could not be told, if the last try to tell it came to that.
        over: How it ended, where it was not told to.
        preempted: Its scheduler has said that it takes the machine back.
        host: Where it is, as its scheduler has said.
    """

    starter: Starter
    handle: str
    wait_until: float
    pause: float
    ask: Ask = Ask.NOTHING
    id: int | None = None
    told_at: float | None = None
    gently: bool = False
    hurried_at: float | None = None
    looks: int = 0
    stand: Stand = field(default_factory=lambda: Stand(StandKind.STATE))
    refused: Stand | None = None
    over: Description | None = None
    preempted: Description | None = None
    host: str = ""


@frozen
class Ended:
    """What came of an end.

    Attributes:
        gone: Its scheduler says so.
        handle: The id, which may have been found on the way.
        over: How it ended by itself; None where it was told to.
        stand: How it stands where it is not gone.
        preempted: What its scheduler said when it took the machine back, told to end or not.
        host: Where it was, as its scheduler has said.
    """

    key: Key
    gone: bool
    handle: str
    over: Description | None
    stand: Stand
    preempted: Description | None = None
    host: str = ""


def say_left(desk: Desk, unended: Iterable[Ended]) -> None:
    """Tell the person what could not be ended."""
    for one in sorted(unended, key=lambda one: one.key):
        desk.do(Say(MayBeLeft(one.key, one.handle, one.stand)))


@dataclass(slots=True)
class Endings:
    """Ends worker runs side by side; the owner takes `ended` after each call.

    Attributes:
        grace: Seconds that a program has between TERM and KILL.
        hurried_at: Since when everything ends at once.
        waiting: Those whose command waits for its turn.
        commands: How many commands are under way.
    """

    desk: Desk
    grace: float
    hurried_at: float | None = None
    ends: dict[Key, End] = field(default_factory=dict)
    waiting: deque[Key] = field(default_factory=deque)
    commands: int = 0
    ended: list[Ended] = field(default_factory=list)

    def begin(
        self, key: Key, starter: Starter, handle: str, now: float, *, by_itself: float = 0.0
    ) -> None:
        """End it; one that may run has `by_itself` seconds to end without being told."""
        first = FIRST_PAUSE_HERE_SECONDS if starter.loopback else FIRST_PAUSE_SECONDS
        pause = min(first, starter.poll_seconds)
        end = self.ends[key] = End(starter, handle, now + by_itself, pause)
        self._hurry_one(key, end, now)
        self._look(key, end)

    def extend(self, key: Key, now: float) -> None:
        """Give one that is ended already its full time from now on."""
        end = self.ends[key]
        end.wait_until = max(end.wait_until, now)

    def hurry(self, now: float) -> None:
        """End all at once: without waiting, and without a grace."""
        if self.hurried_at is not None:
            return
        self.hurried_at = now
        for key, end in list(self.ends.items()):
            self._hurry_one(key, end, now)
            if end.ask is Ask.CANCEL and end.id is not None:
                self.desk.break_off(end.id)
                self._free(end)
                self._command(key, end, Ask.CANCEL)
            elif end.ask is Ask.NOTHING and end.looks:  # two looks within a moment are one
                self.desk.look_at(("ends", key), now + LOOK_AGAIN_SECONDS)
            elif end.ask is Ask.NOTHING:
                self._look(key, end)

    def take(self, key: Key, said: inputs.Answer, now: float) -> None:
        """An answer to what this has asked, or an adapter has failed as nobody expected."""
        end = self.ends[key]
        self._free(end)
        match said:
            case inputs.Found(handle=None):
                self._missed(key, end, now)
            case inputs.Found(handle=handle) if end.ask is Ask.CONFIRM:
                end.handle = handle or end.handle
                self._judge(key, end, Description(SlotState.UNKNOWN, end.stand.detail), now)
            case inputs.Found(handle=handle):
                end.handle = handle or ""
                self._command(key, end, Ask.DESCRIBE)
            case inputs.Described(found=found):
                self._described(key, end, found, now)
            case inputs.RunTold():
                end.told_at, end.refused = now, None
                self._rest(key, end, now)
            case _:
                assert isinstance(said, inputs.SchedulerSilent | inputs.PartFailed)
                end.stand = Stand(StandKind.SILENT, detail=said.words)
                if end.ask is Ask.CANCEL:
                    end.refused = end.stand
                self._rest(key, end, now)
        self._next()

    def look(self, key: Key) -> None:
        """Its time has come: to look again, or to give up what does not answer in a hurry."""
        end = self.ends[key]
        if end.ask is Ask.NOTHING:
            self._look(key, end)
        else:
            self.desk.break_off(end.id)
            self._free(end)
            self._finish(key, end, gone=False)
            self._next()

    # --- asking -------------------------------------------------------------------------------

    def _look(self, key: Key, end: End) -> None:
        self._command(key, end, Ask.DESCRIBE if end.handle else Ask.FIND)

    def _command(self, key: Key, end: End, ask: Ask) -> None:
        """Side by side they have a limit; what is done in this process has none."""
        end.ask = ask
        if end.starter.loopback or self.commands < COMMANDS_AT_ONCE:
            self._send(key, end)
        else:
            self.waiting.append(key)

    def _send(self, key: Key, end: End) -> None:
        if not end.starter.loopback:
            self.commands += 1
        name = "ends", key
        match end.ask:
            case Ask.FIND | Ask.CONFIRM:
                end.id = self.desk.send(name, Find, key)
            case Ask.DESCRIBE:
                end.id = self.desk.send(name, Describe, key, end.handle)
            case _:
                end.gently = end.hurried_at is None
                grace = self.grace + GRACE_MORE_SECONDS if end.gently else 0.0
                end.id = self.desk.send(name, CancelWorkerRun, key, end.handle, grace)
        if end.hurried_at is not None:
            self.desk.look_at(name, end.hurried_at + HURRY_SECONDS)

    def _free(self, end: End) -> None:
        """Its command is over."""
        if end.id is not None and not end.starter.loopback:
            self.commands -= 1
        end.id = None

    def _next(self) -> None:
        while self.waiting and self.commands < COMMANDS_AT_ONCE:
            key = self.waiting.popleft()
            end = self.ends.get(key)
            if end is not None and end.id is None and end.ask is not Ask.NOTHING:
                self._send(key, end)

    # --- judging ------------------------------------------------------------------------------

    def _described(self, key: Key, end: End, found: Description, now: float) -> None:
        end.host = found.host or end.host
        if found.preempted:
            end.preempted = found
        if found.state is SlotState.UNKNOWN and end.starter.finds:
            end.stand = Stand(StandKind.STATE, found.state, found.detail)
            self._command(key, end, Ask.CONFIRM)
        else:
            self._judge(key, end, found, now)

    def _judge(self, key: Key, end: End, found: Description, now: float) -> None:
        end.stand = Stand(StandKind.STATE, found.state, found.detail)
        if found.state in OVER:
            self._gone(key, end, found)
        elif self._must_be_told(end, found, now):
            self._command(key, end, Ask.CANCEL)
        else:
            self._rest(key, end, now)

    def _missed(self, key: Key, end: End, now: float) -> None:
        """It is not listed: perhaps not yet, or it never was."""
        if end.ask is Ask.CONFIRM:
            self._gone(key, end, Description(SlotState.ENDED, end.stand.detail))
            return
        end.looks += 1
        if not end.starter.finds:
            end.stand = Stand(StandKind.CANNOT_LOOK)
            self._finish(key, end, gone=False)
        elif end.looks >= LOOKS:
            self._finish(key, end, gone=True)
        else:
            end.stand = Stand(StandKind.NOT_LISTED)
            self._rest(key, end, now)

    def _gone(self, key: Key, end: End, found: Description) -> None:
        end.over = found if end.told_at is None else None
        self._finish(key, end, gone=True)

    def _must_be_told(self, end: End, found: Description, now: float) -> bool:
        hurry = end.hurried_at is not None
        if found.state in _MAY_RUN and now < end.wait_until and not hurry:
            return False
        if end.told_at is None or (hurry and end.gently):
            return True
        more = self.grace if end.gently else 0.0  # a node takes a second TERM for a hurry
        return now - end.told_at > TELL_AGAIN_SECONDS + more

    def _rest(self, key: Key, end: End, now: float) -> None:
        """Look again in a while, or give it up."""
        end.ask = Ask.NOTHING
        if self._is_late(end, now):
            self._finish(key, end, gone=False)
            return
        pause = max(end.pause, LOOK_AGAIN_SECONDS) if end.looks else end.pause
        end.pause = min(2 * end.pause, LONGEST_PAUSE_SECONDS, end.starter.poll_seconds)
        self.desk.look_at(("ends", key), now + pause)

    def _is_late(self, end: End, now: float) -> bool:
        if end.hurried_at is not None:
            return now - end.hurried_at >= HURRY_SECONDS
        return now > end.wait_until + self.grace + GRACE_MORE_SECONDS + LIMIT_SECONDS

    def _hurry_one(self, key: Key, end: End, now: float) -> None:
        if self.hurried_at is not None and end.hurried_at is None:
            end.hurried_at = now
            self.desk.look_at(("ends", key), now + HURRY_SECONDS)

    def _finish(self, key: Key, end: End, *, gone: bool) -> None:
        self.desk.forget(("ends", key))
        del self.ends[key]
        stand = end.refused or end.stand  # that it runs is known; why it still does is not
        self.ended.append(Ended(key, gone, end.handle, end.over, stand, end.preempted, end.host))
