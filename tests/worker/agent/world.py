"""A node among all that can happen to it, in any order; it holds the machine to its rules."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from typing import Any

from rendezvous.wire.reports import AckReport
from rendezvous.wire.verify import ProbeReport
from tests.worker.agent.drive import AWAY, TABLE, Drive
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent.actions import Effect
from worker.agent.inputs import Input
from worker.agent.notices import Note
from worker.program.ending import Ending
from worker.program.family import Family

_PAUSE = 0.3
_ASK_SECONDS = 8.0
_OTHER_SECONDS = 0.1
_MOST_LOOKS = 20
"""So often at most does it look at its clock at one moment."""
_OF_MACHINE = (inputs.Tick, inputs.SignalCame, inputs.Exhausted, inputs.PartBroken)
_NO_ANSWERS = (*_OF_MACHINE, inputs.Started, inputs.ProgramSeen, inputs.NetworkSaid)


class World:
    """One node, every effect that it has under way, and the programs that it has started."""

    def __init__(self, drive: Drive) -> None:
        self.drive = drive
        self.effects: dict[int, Effect] = dict(drive.node.effects)
        self.families: dict[int, inputs.ProgramSeen] = {}
        self.stopped: set[int] = set()
        self.killed: set[int] = set()
        self.end: do.End | None = None
        self.signalled = False
        self._tables = {TABLE.digest()} if drive.node.agreed else set()
        self._hosts_hang = False
        self._hosts_back = not drive.node.rules.hosts_file
        self._newest = drive.node.count
        self._sent: dict[int, float] = {}
        self._began = self._known = drive.now

    def say(self, said: Input) -> None:
        """Tell the node; what it then wants done is held to the rules."""
        number = getattr(said, "number", 0)
        asked = None if isinstance(said, _NO_ANSWERS) else self.effects.pop(number, None)
        if isinstance(asked, do.Arm) and isinstance(said, inputs.Armed):
            self._tables.add(asked.digest)
        if isinstance(said, inputs.ProgramSeen):
            self.families[number] = said
        actions = self.drive.feed(said)
        assert not (self.end and actions)
        self._take(actions)
        if self.end is None:  # one that has ended takes in nothing more
            assert self.drive.node.effects == self.effects
        for action in actions:
            if isinstance(action, do.LookAtProgram):  # the shell answers it at once
                self._show(action.program)
        if asked is None and not isinstance(said, _NO_ANSWERS):
            return  # nobody waits for it: the machine looks at its clock with the next input
        self._hold_to_fence(number if isinstance(said, inputs.Viewed | inputs.Joined) else None)

    def signal(self, number: int, *, parent_lives: bool) -> None:
        """A signal that ends it comes."""
        self.signalled |= number not in (signal.SIGUSR1, signal.SIGUSR2)
        self.say(inputs.SignalCame(number, parent_lives))

    def pass_time(self, until: float) -> None:
        """Let the time go on; it looks at its clock when it wants to."""
        looks = 0
        while (due := self.drive.due) is not None and due <= until:
            looks = looks + 1 if due <= self.drive.now else 0
            assert looks < _MOST_LOOKS
            self.drive.now = max(self.drive.now, due)
            self.say(inputs.Tick())
        self.drive.now = max(self.drive.now, until)

    def _hold_to_fence(self, answered: int | None) -> None:
        """Nothing lives longer than the registry waits for a node that it has not heard of."""
        if answered is not None:
            self._known = self._sent.get(answered, self._began)
        member = self.drive.node.member
        if member is None or member.fence_timeout is None:
            return
        if self.drive.now >= self._known + member.fence_timeout:
            lives = {e.number for e in self.effects.values() if isinstance(e, do.Start)}
            assert all(n in self.killed for n in lives if self._has_started(n))

    def _show(self, program: int) -> None:
        seen = self.families.get(program) or inputs.ProgramSeen(program, Family())
        self.say(inputs.ProgramSeen(program, seen.family, seen.main, inputs.OwnWords()))

    # --- what is held ---------------------------------------------------------------------------

    def _take(self, actions: tuple[do.Action, ...]) -> None:
        for action in actions:
            assert self.end is None
            match action:
                case do.Drop():
                    del self.effects[action.number]
                case do.Stop() | do.Kill():
                    self.stopped.add(action.program)
                    self.killed |= {action.program} if isinstance(action, do.Kill) else set()
                case do.Say():
                    self._hosts_hang |= action.notice.note is Note.HOSTS_HANG
                case do.End():
                    assert self._hosts_back or self._hosts_hang
                    self.end = action
                case _ if hasattr(action, "number"):
                    self._begin(action)

    def _begin(self, effect: Any) -> None:
        assert effect.number == self._newest + 1
        self._newest = effect.number
        self._sent[effect.number] = self.drive.now
        begun = [*self.effects.values(), effect]
        assert all(sum(isinstance(e, k) for e in begun) <= 1 for k in (do.Arm, do.Watch, do.Start))
        if self.signalled:
            assert not isinstance(effect, do.Visit | do.Arm | do.Start)
            told = effect.report if isinstance(effect, do.Tell) else getattr(effect, "ack", None)
            assert not isinstance(told, AckReport | ProbeReport)
        if isinstance(effect, do.Start):
            assert effect.table.digest() in self._tables
        if isinstance(effect, do.RemoveHosts):
            assert not any(isinstance(e, do.Arm) for e in begun)
            self._hosts_back = True
        if isinstance(effect, do.Watch):
            assert effect.limit > 0
        self.effects[effect.number] = effect

    # --- how it comes to an end -----------------------------------------------------------------

    def come_to_rest(self, answer: Callable[[Effect], Input | None]) -> None:
        """Answer all that is under way, or let its limit pass, until it is over.

        Args:
            answer: What comes of an effect, in its time; None: it hangs, or nothing is said.
        """
        begun: dict[int, float] = {}
        limit = self.drive.now + 2_000.0
        while self.end is None:
            begun = {n: begun.get(n, self.drive.now) for n in self.effects}
            times = {n: at + self._seconds(self.effects[n]) for n, at in begun.items()}
            number = min(times, key=lambda n: times[n], default=0)
            at, due = times.get(number, math.inf), self.drive.due
            assert min(at, due if due is not None else math.inf) < limit, self.effects
            if due is not None and due <= at:
                self.pass_time(max(due, self.drive.now))
                continue
            self.pass_time(at)
            if number in self.effects:
                self._finish(self.effects[number], answer)
                hangs = not isinstance(self.effects.get(number), do.Start)
                begun[number] = math.inf if hangs else self.drive.now

    def _seconds(self, effect: Effect) -> float:
        pause = _PAUSE if getattr(effect, "pause", False) else 0.0
        if isinstance(effect, do.Start):
            runs = effect.number not in self.stopped and self._has_started(effect.number)
            return math.inf if runs else 1.0
        if isinstance(effect, do.Tell | do.Watch):
            return pause + (effect.limit or _ASK_SECONDS)
        return pause + _OTHER_SECONDS

    def _has_started(self, program: int) -> bool:
        state = self.drive.node.program
        return state is not None and state.number == program and state.started_at is not None

    def _finish(self, effect: Effect, answer: Callable[[Effect], Input | None]) -> None:
        if isinstance(effect, do.Start):
            if not self._has_started(effect.number):
                self.say(inputs.Started(effect.number))
                return
            ending = Ending(143, self.drive.now) if effect.contract.argv else None
            self.say(inputs.ProgramGone(effect.number, ending))
            return
        if (said := answer(effect)) is not None:
            self.say(said)


def silence(effect: Effect) -> Input:
    """A registry that is gone, on a machine that works."""
    if isinstance(effect, do.Watch) or (isinstance(effect, do.Tell) and effect.limit):
        return inputs.Late(effect.number)
    return inputs.Failed(effect.number, AWAY)
