"""The course of a launch: run created, followed, left by its nodes, ended, written down. Pure.

Whatever goes wrong on the way, nothing that the launch has started is left at its end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from launcher.run import actions as do
from launcher.run import inputs
from launcher.run.desk import Desk
from launcher.run.ending import say_left
from launcher.run.following import Following
from launcher.run.inputs import Answer
from launcher.run.leaving import Leaving
from launcher.run.registry_child import RegistryChild
from launcher.run.sentences import LostAfterResult, ResultUnwritten, StandingWaits
from launcher.run.slots import Slots
from launcher.run.values import (
    CREATE_SECONDS,
    SIGNALS,
    EndedAtOnce,
    EndedBeforeBegun,
    Failure,
    Ground,
    LaunchFacts,
    Left,
    NotCreated,
    Outcome,
    Refusal,
    Resumed,
    Trouble,
    Verdict,
)
from rendezvous.enums import StrEnum
from rendezvous.wire.errors import Cause
from rendezvous.wire.run import Result, RunStatus

CREATE_PAUSE_SECONDS: Final = 0.05
TELL_FAILURE_SECONDS: Final = 3.0
TELL_FAILURE_WAIT_SECONDS: Final = 0.5
LAST_EVENTS_SECONDS: Final = 3.0
LAST_OF_FEATURES_SECONDS: Final = 5.0
"""As long as one request may take."""


class Stage(StrEnum):
    """How far the launch has come."""

    GROUND = "ground"
    CREATING = "creating"
    FOLLOWING = "following"
    LEAVING = "leaving"
    """The result is known, and the nodes learn it."""
    PARTING = "parting"
    """The features finish, and the last events are fetched."""
    FAILING = "failing"
    """The nodes learn that their launcher gives up."""
    ENDING = "ending"
    """What is left of the worker runs is ended."""
    CLOSING = "closing"
    OVER = "over"


LIVE: Final = (Stage.CREATING, Stage.FOLLOWING, Stage.LEAVING, Stage.PARTING, Stage.FAILING)


@dataclass(slots=True)
class Course:
    """How far the launch has come, and what comes next.

    Attributes:
        stage: How far it has come.
        until: When the present stage gives up what it tries.
        signal: The first one that came.
        verdict: How the launch ended.
        refused: Why it never began.
        fault: The action that failed as nobody expected; its error is the shell's to raise.
        sent_secrets: This launcher has begun to send the sealed variables.
    """

    facts: LaunchFacts
    desk: Desk
    child: RegistryChild
    slots: Slots
    following: Following
    leaving: Leaving
    stage: Stage = Stage.GROUND
    until: float = 0.0
    signal: int | None = None
    verdict: Verdict | None = None
    refused: Trouble | None = None
    fault: int | None = None
    sent_secrets: bool = False

    def begin(self, ground: Ground, own: tuple[Left, ...], now: float) -> None:
        """The ground is made; `own` is what a former launcher of this launch has submitted."""
        match ground:
            case Resumed(seen=seen):
                self.slots.know(own)
                self.stage = Stage.FOLLOWING
                self.following.begin(now, seen)
            case _:
                if self.facts.owns_registry:
                    self.child.begin(now)
                self.stage, self.until = Stage.CREATING, now + CREATE_SECONDS
                self.desk.send("create", do.CreateRun)

    def settle(self, now: float) -> None:
        """What the parts have come to."""
        if self.child.lost is not None:
            self.fail(self.child.lost, now, told=False)
        elif (trouble := self.slots.shared.refused) is not None:
            self.slots.shared.refused = None
            self.fail(Refusal(trouble), now)
        elif (failure := self.following.failed) is not None:
            self.following.failed = None
            self.fail(failure, now)
        elif self.stage is Stage.LEAVING and not self.following.awaits_errands():
            self.go_if_possible(now)
        elif self.stage is Stage.PARTING and not self.desk.has_open("features", "last words"):
            self._part(now)

    def created(self, said: Answer, now: float) -> None:
        """What came of the creation."""
        match said:
            case inputs.Done() | inputs.StatusCame():
                self.stage = Stage.FOLLOWING
                self.following.begin(now)
            case inputs.Unanswered(trouble=trouble):
                self._not_created(trouble, now)
            case _:
                assert isinstance(said, inputs.Refused)
                self.fail(Refusal(said.trouble), now)

    def _not_created(self, trouble: Trouble, now: float) -> None:
        """Tried again, in front of a signal and a time limit."""
        standing = not self.facts.owns_registry
        if self.signal is not None:
            self.fail(EndedBeforeBegun(), now)
        elif now > self.until:
            self.fail(NotCreated(CREATE_SECONDS, trouble, standing), now)
        else:
            if standing:
                self.following.say_once(StandingWaits(trouble.message))
            self.following.storage_full(trouble, now)
            self.desk.look_at("create", now + CREATE_PAUSE_SECONDS)

    def came(self, status: RunStatus, now: float) -> None:
        """How the run stands."""
        following = self.following
        following.came(status, now)
        self._send_secrets(status)
        self.slots.see(status, now)
        following.errands(now)
        if status.result is None:
            following.check_storage(now)
        elif self.stage is Stage.FOLLOWING:
            self.stage, self.verdict = Stage.LEAVING, Verdict(status.result)
            self.desk.drop("cancel")
            self.slots.submitting.stop()
            self.leaving.begin(status.result, now)
        if self.stage is not Stage.LEAVING or not self.go_if_possible(now):
            following.ask_again(now)

    def _send_secrets(self, status: RunStatus) -> None:
        """Once, as those of a former launcher may be others; and again to a registry that lost
        them, as one does that was restarted. A try that fails is made again with a later status;
        one that is under way is not broken off, however fast they come."""
        missing = status.wants_secrets or not self.sent_secrets
        may_send = status.result is None and not self.desk.has_open("secrets")
        if self.facts.sends_secrets and missing and may_send:
            self.sent_secrets = True
            self.desk.send("secrets", do.SendSecrets)

    def go_if_possible(self, now: float) -> bool:
        """Fetch what is left to fetch, once the nodes may be left alone; whether they may."""
        if not self.leaving.may_go(now):
            return False
        self.stage = Stage.PARTING
        self.following.stop_asking()
        self.desk.do(do.FinishFeatures())
        self.desk.look_at("fetched", now + LAST_OF_FEATURES_SECONDS)
        if self._has_last_words():
            self.desk.send("last words", do.FetchWords)
        return True

    def _has_last_words(self) -> bool:
        """Whether programs were started, and have failed."""
        assert self.verdict is not None
        result, status = self.verdict.result, self.following.status
        has_failed = result is not None and result.status == "failed"
        return has_failed and status is not None and bool(status.digest)

    def _part(self, now: float) -> None:
        """Where everyone left the events end, and are shown to the last."""
        status = self.following.status
        if status is None or not status.everyone_left or self.following.events_over:
            self.end(now)
        elif "parted" not in self.desk.times:
            self.desk.look_at("parted", now + LAST_EVENTS_SECONDS)
            self.following.ask_for_last_events()

    # --- failing ------------------------------------------------------------------------------

    def fail(self, failure: Failure, now: float, *, told: bool = True) -> None:
        """The launch cannot go on; where the result is known, it need not."""
        if self.verdict is not None and self.verdict.result is not None:
            self.desk.do(do.Say(LostAfterResult(failure)))
            self.end(now)
            return
        self.verdict = self.verdict or Verdict(failure=failure)
        self.give_up(failure, now, told=told)

    def at_once(self, why: EndedAtOnce, now: float) -> None:
        """End everything without waiting; a result that is known stays the result."""
        if self.stage in LIVE:
            self.verdict = self.verdict or Verdict(failure=why)
            self.end(now)
        if self.stage is Stage.ENDING:
            self.slots.end.hurry(now)

    def give_up(self, why: Failure | str, now: float, *, told: bool) -> None:
        """Nobody else would tell the nodes that their launcher gives up."""
        if not told:
            self.end(now)
        if self.stage in (Stage.FAILING, Stage.ENDING):
            return
        self.stage, self.until = Stage.FAILING, now + TELL_FAILURE_SECONDS
        self.following.stop()
        self.slots.submitting.stop()
        self.desk.drop("create", "cancel")
        self.desk.send("tell failure", do.CancelRun, do.ByFailure(why))

    def failure_told(self, said: Answer, now: float) -> None:
        """The nodes have a moment to hear of it."""
        match said:
            case inputs.StatusCame(status=status) if not status.everyone_left and now < self.until:
                wait = TELL_FAILURE_WAIT_SECONDS
                self.desk.send("tell failure", do.AskStatus, status.version, wait)
            case _:
                self.end(now)

    # --- the end ------------------------------------------------------------------------------

    def end(self, now: float) -> None:
        """Nothing that this launch has started is left, whatever failed on the way."""
        self.stage = Stage.ENDING
        self.following.stop()
        self.desk.drop("create", "cancel", "tell failure", "leave", "parted")
        self.desk.drop("fetched", "last words")
        self.child.let_go()
        self.slots.end.begin(now)

    def close(self) -> None:
        """The nodes have had their registry until now."""
        say_left(self.desk, self.slots.end.left)
        self.desk.forget("waiting")
        self.stage = Stage.CLOSING
        self.close_registry()

    def close_registry(self) -> None:
        """End it, where there is one."""
        if self.child.begun:
            self.child.close()
        else:
            self.write_down()

    def write_down(self) -> None:
        """How it ended; not where it never began, or where rdzv itself is at fault."""
        self.desk.do(do.CloseBoard())
        if self.verdict is None or self.fault is not None:
            self.finish()
            return
        result = self.verdict.result
        preempted = self.slots.shared.preemption(result) if result is not None else None
        if preempted is not None:
            self.verdict = replace(self.verdict, preempted=preempted)
        elif result is not None and result.slot is not None and _is_open(result):
            says = self.slots.shared.words_of_end(result.slot)
            self.verdict = replace(self.verdict, says=says)
        elif result is not None and result.slot is not None:
            hint = self.slots.shared.hint_of_end(result.slot, result.code)
            self.verdict = replace(self.verdict, hint=hint)
        status = self.following.status
        ended = tuple(status.ended) if status is not None and result is None else ()
        self.verdict = replace(self.verdict, signal=self.signal, epochs=ended)
        self.desk.send("result", do.WriteResult, self.verdict)

    def result_written(self, said: Answer) -> None:
        """The result is on disk, or cannot be."""
        if isinstance(said, inputs.NotWritten):
            self.desk.do(do.Say(ResultUnwritten(said.error)))
        self.finish()

    def finish(self) -> None:
        """It is over."""
        self.stage = Stage.OVER
        self.desk.do(do.End(Outcome(self.verdict, self.signal, self.refused, self.fault)))


def _is_open(result: Result) -> bool:
    """Whether its scheduler may know what a signal or a silence leaves open."""
    by_signal = result.code == Cause.PROGRAM_FAILED and result.exit_code > SIGNALS
    return by_signal or result.code in (Cause.NODE_LOST, Cause.PREEMPTED)
