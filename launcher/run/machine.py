"""One launch, from what a former one has left to the exit code. Pure.

    ground -> run created -> worker runs submitted, described -> the registry's result
        -> every node knows it -> what is left of the worker runs is ended -> registry down

The registry decides; the launch acts on what it reads there.
"""

from __future__ import annotations

from dataclasses import dataclass
from signal import SIGHUP
from typing import Any, Final

from launcher.run import actions as do
from launcher.run import inputs
from launcher.run.clearing import Clearing
from launcher.run.course import LIVE, Course, Stage
from launcher.run.desk import Desk
from launcher.run.ending import Endings
from launcher.run.following import Following
from launcher.run.ground import Grounding, OnDisk, Search, Wanted
from launcher.run.inputs import Answer, Input
from launcher.run.leaving import Leaving
from launcher.run.registry_child import RegistryChild
from launcher.run.runs import Runs
from launcher.run.sentences import EndsAtOnce, EndsRun, KeepsLeft
from launcher.run.slots import Slots
from launcher.run.values import EndedAtOnce, EndedBeforeBegun, LaunchFacts, Refusal
from rendezvous.wire.run import Phase

_SHOWN = ("events", "features", "words", "last words")
"""What is shown or kept for people alone."""

CANCEL_SECONDS: Final = 10.0
CANCEL_PAUSE_SECONDS: Final = 0.1
CANCEL_AGAIN_SECONDS: Final = 1.0
"""A run that is ending takes a moment for its verdict, and longer unless it is asked again."""


@dataclass(slots=True)
class Machine:
    """The launch; `step` is all that a shell calls, with `due`.

    Attributes:
        cancel_until: Until then a cancel is tried again.
    """

    desk: Desk
    child: RegistryChild
    ends: Endings
    ground: Grounding
    slots: Slots
    following: Following
    course: Course
    cancel_until: float = 0.0

    @staticmethod
    def of(facts: LaunchFacts, found: OnDisk, wanted: Wanted) -> Machine:
        """A launch that has not begun."""
        desk = Desk()
        child, ends = RegistryChild(desk), Endings(desk, facts.grace)
        following = Following(desk, facts.orphan_timeout)
        slots = Slots.of(Runs(facts, desk, ends))
        leaving = Leaving(facts, desk, following)
        course = Course(facts, desk, child, slots, following, leaving)
        clearing = Clearing(desk, ends, found.left, found.unknown)
        ground = Grounding(found, wanted, desk, clearing, child)
        return Machine(desk, child, ends, ground, slots, following, course)

    def due(self) -> float | None:
        """When the machine wants to look at its clock again."""
        return self.desk.due()

    def step(self, said: Input, now: float) -> list[do.Action]:
        """Take in one thing; returns what is done about it, in order."""
        if self.course.stage is Stage.OVER:
            return []
        match said:
            case inputs.Begin():
                self.ground.begin(now)
            case inputs.SignalCame(number=number):
                self._signal(number, now)
            case inputs.SubmitTroubled(id=number):
                if number in self.desk.open:
                    self.slots.troubled(said, now)
            case inputs.Submitted(id=number):
                self.desk.close(number)
                self.slots.submitted(said, now)
            case inputs.Due():
                pass
            case _:
                self._take(said, now)
        while (name := self.desk.next_due(now)) is not None:
            self._look(name, now)
        self._settle(now)
        return self.desk.flush()

    # --- answers ------------------------------------------------------------------------------

    def _take(self, said: Answer, now: float) -> None:
        opened = self.desk.close(said.id)
        if opened is None:
            if isinstance(said, inputs.PartFailed) and said.id == inputs.NO_ACTION:
                self._is_fault("shell", said, now)
            return
        owner, action = opened
        if isinstance(said, inputs.PartFailed) and self._is_fault(owner, said, now):
            self.slots.faulted(action, now)
            return
        match owner, said:
            case ("ends", key), _:
                self.ends.take(key, said, now)
            case "slots", _:
                self._take_storage(action, said, now)
                self.slots.take(action, said, now)
            case "child", inputs.ChildEnded():
                self.child.ended(said, now)
            case "close", _:
                self._closed(now)
            case "ground", _:
                self.ground.take(said, now)
            case "create", _:
                self.course.created(said, now)
            case "status", inputs.StatusCame(status=status):
                self.course.came(status, now)
            case "status", inputs.Unanswered():
                self.following.unanswered(said, now)
            case "keep", _ if isinstance(action, do.Keep):
                self.following.kept(said, action.status, now)
            case "checks", _:
                self.following.checks_came(said, now)
            case "events", _:
                self.following.events_ended(said, now)
            case "secrets", inputs.Done() | inputs.Unanswered():
                pass  # the next status says whether the registry has them
            case "features" | "words" | "last words", _:
                pass  # the words of the next epoch are fetched when it has ended
            case "cancel", _:
                self._cancelled(said, now)
            case "tell failure", _:
                self.course.failure_told(said, now)
            case "result", _:
                self.course.result_written(said)
            case _:
                assert isinstance(said, inputs.Refused)
                self.course.fail(Refusal(said.trouble), now)

    def _is_fault(self, owner: object, said: inputs.PartFailed, now: float) -> bool:
        """Whether it ends the launch: not what is only shown, and not one scheduler's command."""
        if owner in _SHOWN or isinstance(owner, tuple):
            return False
        self.course.fault = said.id if self.course.fault is None else self.course.fault
        if self.course.stage is Stage.GROUND:
            self._leave_ground()
        elif owner == "close":
            self._closed(now)
        elif owner == "result":
            self.course.finish()
        elif self.course.stage in LIVE:
            self.course.give_up(said.words, now, told=owner not in ("child", "tell failure"))
        return True

    def _take_storage(self, action: do.Action, said: Answer, now: float) -> None:
        if isinstance(said, inputs.Unanswered):
            self.following.storage_full(said.trouble, now)
        elif isinstance(action, do.TellSlot) and isinstance(said, inputs.Done):
            self.following.storage = None

    def _look(self, name: Any, now: float) -> None:
        """A time has come."""
        match name:
            case ("ends", key):
                self.ends.look(key)
            case (str(what), key):
                self.slots.look(what, key)
            case "child":
                self.child.start(now)
            case "ground":
                self.ground.look()
            case "create":
                self.desk.send("create", do.CreateRun)
            case "cancel":
                self._cancel()
            case "leave" if self.course.stage is Stage.LEAVING:
                self.course.go_if_possible(now)
            case "fetched":
                self.desk.drop("features")
            case "parted" if self.course.stage is Stage.PARTING:
                self.course.end(now)
            case "settled":
                self.slots.end.settled(now)
            case "waiting":
                self.slots.end.still_waiting()
            case what:
                self.following.look(what, now)

    def _settle(self, now: float) -> None:
        """What the parts have come to."""
        while self.ends.ended:
            ended, self.ends.ended = self.ends.ended, []
            if self.course.stage is Stage.GROUND:
                self.ground.clearing.take(ended)
                continue
            for one in ended:
                self.slots.ended(one, now)
        if self.course.stage is Stage.GROUND:
            self._settle_ground(now)
        elif self.course.stage in LIVE:
            self.course.settle(now)
        if self.course.stage is Stage.ENDING and self.slots.end.is_over():
            self.course.close()

    # --- ground -------------------------------------------------------------------------------

    def _settle_ground(self, now: float) -> None:
        ground = self.ground
        if self.child.lost is not None:
            self.child.lost = None
            ground.child_lost(now)
        ground.cleared()
        if ground.refused is not None:
            self.course.refused = ground.refused
            self._leave_ground()
        elif ground.step is Search.OVER:
            assert ground.ground is not None
            self.course.begin(ground.ground, ground.found.own, now)

    def _leave_ground(self) -> None:
        """The launch does not begin; what the former one has left stays on record."""
        self.ground.break_off()
        if left := self.ground.found.left:
            self.desk.do(do.Say(KeepsLeft(len(left))))
        self.course.stage = Stage.CLOSING
        self.course.close_registry()

    def _closed(self, now: float) -> None:
        """The registry is down: the former one, or this launch's own."""
        if self.course.stage is Stage.GROUND:
            self.ground.closed(now)
        else:
            self.course.write_down()

    # --- signals ------------------------------------------------------------------------------

    def _signal(self, number: int, now: float) -> None:
        """The first one ends the run, another all at once; but of a terminal that closes its kernel
        and its shell tell one each, and neither is a person in a hurry."""
        first, is_ending = self.course.signal, self.course.stage in (Stage.ENDING, Stage.CLOSING)
        if number == SIGHUP and (is_ending or first is not None):
            return
        if is_ending or first not in (None, SIGHUP):
            self.desk.do(do.Say(EndsAtOnce(number, again=first is not None)))
            self.course.at_once(EndedAtOnce(), now)
            return
        self.course.signal, self.course.leaving.signalled = number, True
        begun = self.course.stage is not Stage.GROUND
        self.desk.do(do.Say(EndsRun(number, self.course.facts.grace if begun else None)))
        if first is not None:
            return
        if not begun:
            self._leave_ground()
            return
        self.slots.submitting.stop()
        if "create" in self.desk.times:
            self.course.fail(EndedBeforeBegun(), now)
        else:
            self.cancel_until = now + CANCEL_SECONDS
            self._cancel()

    def _cancel(self) -> None:
        """Cancel at the registry, which tells every node."""
        assert self.course.signal is not None
        self.desk.send("cancel", do.CancelRun, do.BySignal(self.course.signal))

    def _cancelled(self, said: Answer, now: float) -> None:
        if isinstance(said, inputs.StatusCame):
            if said.status.phase is not Phase.FINISHED:
                self.desk.look_at("cancel", now + CANCEL_AGAIN_SECONDS)
        elif now < self.cancel_until:
            self.desk.look_at("cancel", now + CANCEL_PAUSE_SECONDS)
        else:
            self.course.at_once(EndedAtOnce(CANCEL_SECONDS), now)
