"""What former launches have left is ended: before a launch, and by `rdzv cancel`. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from launcher.run import actions as do
from launcher.run import inputs
from launcher.run.desk import Desk
from launcher.run.ending import Ended, Endings, say_left
from launcher.run.inputs import Input
from launcher.run.sentences import EndsLeft, UnknownLeft
from launcher.run.values import Left, Outcome


@dataclass(slots=True)
class Clearing:
    """Ends them, and says what could not be ended.

    Attributes:
        left: Worker runs that may still exist.
        unknown: Those whose scheduler cannot be used.
        unended: What could not be ended.
    """

    desk: Desk
    ends: Endings
    left: tuple[Left, ...]
    unknown: tuple[UnknownLeft, ...] = ()
    unended: list[Ended] = field(default_factory=list)

    def begin(self, now: float) -> None:
        """End all of it."""
        for unknown in self.unknown:
            self.desk.do(do.Say(unknown))
        if self.left:
            self.desk.do(do.Say(EndsLeft(len(self.left))))
        for one in self.left:
            self.ends.begin(one.key, one.starter, one.handle, now)

    def take(self, ended: Iterable[Ended]) -> None:
        """What came of ends."""
        for one in ended:
            if one.gone:
                self.desk.do(do.Note(one.key, one.handle, gone=True))
            else:
                self.unended.append(one)

    def kept(self) -> tuple[str, ...]:
        """Names of what may still exist, once all has ended that could be."""
        names = [unknown.name for unknown in self.unknown]
        return (*names, *(one.key.former for one in self.unended))

    def say_kept(self) -> None:
        """Tell the person what could not be ended."""
        say_left(self.desk, self.unended)


@dataclass(slots=True)
class Clearance:
    """The same as a machine of its own, for `rdzv cancel`."""

    clearing: Clearing

    @staticmethod
    def of(left: tuple[Left, ...], unknown: tuple[UnknownLeft, ...], grace: float) -> Clearance:
        """One that has not begun."""
        desk = Desk()
        return Clearance(Clearing(desk, Endings(desk, grace), left, unknown))

    def due(self) -> float | None:
        """When it wants to look at its clock again."""
        return self.clearing.desk.due()

    def step(self, said: Input, now: float) -> list[do.Action]:
        """Take in one thing; returns what is done about it."""
        clearing = self.clearing
        desk, ends = clearing.desk, clearing.ends
        match said:
            case inputs.Begin():
                clearing.begin(now)
            case inputs.Answer(id=number):
                if (opened := desk.close(number)) is not None:
                    ends.take(opened[0][1], said, now)
        while (name := desk.next_due(now)) is not None:
            assert isinstance(name, tuple)
            ends.look(name[1])
        clearing.take(ends.ended)
        ends.ended.clear()
        if not ends.ends:
            clearing.say_kept()
            desk.do(do.End(Outcome(None)))
        return desk.flush()
