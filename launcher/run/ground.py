"""What a launch begins on: a new launch, or the one that a killed launcher has left. Pure.

The former registry is started on its journal and asked, a launch that cannot be taken up is ended,
and what its ledger leaves is ended as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from launcher.run import actions as do
from launcher.run import inputs, sentences
from launcher.run.clearing import Clearing
from launcher.run.desk import Desk, retry_pause
from launcher.run.registry_child import RegistryChild
from launcher.run.values import (
    CREATE_SECONDS,
    ErrorKind,
    Fresh,
    Ground,
    Left,
    Resumed,
    Trouble,
    Why,
)
from rendezvous.enums import StrEnum
from rendezvous.frozen import frozen
from rendezvous.wire.run import NodeState, Phase, RunStatus, SlotStatus

OPEN_SECONDS: Final = 10.0
OPEN_PAUSE_SECONDS: Final = 0.2
ASK_SECONDS: Final = 10.0
ASK_PAUSE_SECONDS: Final = 0.05
LEAVE_SECONDS: Final = 15.0
LEAVE_WAIT_SECONDS: Final = 1.0
SILENT_SECONDS: Final = 5.0


@frozen
class Former:
    """The launch that is on record.

    Attributes:
        starter: What started its worker runs.
        fingerprint: Of what the registry does not compare; empty where it was not written down.
        ended: Its result is on record.
        has_keys: Its secret is there.
        same_registry: It is at the standing registry that is wanted.
    """

    launch_id: str
    host: str
    starter: str
    owns_registry: bool
    port: int
    fingerprint: str = ""
    ended: bool = False
    has_keys: bool = True
    same_registry: bool = False


@frozen
class OnDisk:
    """What is in the state directory.

    Attributes:
        left: Worker runs that may still exist, whichever launch had submitted them.
        own: Those of the former launch, as its own launcher would know them.
        unknown: Those whose scheduler cannot be used.
    """

    former: Former | None = None
    left: tuple[Left, ...] = ()
    own: tuple[Left, ...] = ()
    unknown: tuple[sentences.UnknownLeft, ...] = ()


@frozen
class Wanted:
    """What is asked for now.

    Attributes:
        standing: The registry is a standing one.
        port: Given by the person; None where it was not.
        restarts: How often the launcher's own job was requeued, where its scheduler says so.
    """

    host: str
    starter: str
    fingerprint: str
    standing: bool = False
    port: int | None = None
    restarts: int = 0


def is_there(slot: SlotStatus) -> bool:
    """Whether its node could still hear how the run ended: some have died with the launcher."""
    gone = slot.node_state in (None, NodeState.LEFT, NodeState.LOST)
    return not gone and (slot.silent_seconds or 0.0) < SILENT_SECONDS


# --- the way there


class Search(StrEnum):
    """How far it has come."""

    OPENING = "opening"
    ASKING = "asking"
    COMPARING = "comparing"
    CANCELLING = "cancelling"
    LEAVING = "leaving"
    CLOSING = "closing"
    CLEARING = "clearing"
    """What the ledger has left is ended."""
    MAKING = "making"
    OVER = "over"


@dataclass(slots=True)
class Grounding:
    """Looks for the ground of a launch, and has it made.

    Attributes:
        clearing: Of what the former launches have left.
        until: When the present step is given up.
        why: The former run is ended.
        status: The former run, as its registry tells it.
        ground: What was decided.
        refused: The launch cannot begin.
        waited: It was said that a standing registry does not answer.
        requeue_said: It was said that the launcher's own job was requeued.
    """

    found: OnDisk
    wanted: Wanted
    desk: Desk
    clearing: Clearing
    child: RegistryChild
    step: Search = Search.OPENING
    until: float = 0.0
    why: Why = Why.RUNNING
    status: RunStatus | None = None
    ground: Ground | None = None
    refused: Trouble | None = None
    waited: bool = False
    requeue_said: bool = False

    def begin(self, now: float) -> None:
        """Ask the former launch's registry, where there may be one that knows it."""
        standing = self.wanted.standing
        match self.found.former:
            case None | Former(ended=True):
                self._anew(Why.NOTHING_FORMER, now)
            case Former(owns_registry=owned) if owned == standing:
                self._anew(Why.NOTHING_FORMER, now)
            case Former(has_keys=False) if standing:
                self._anew(Why.NOTHING_FORMER, now)
            case Former(host=host) if not standing and host != self.wanted.host:
                self._anew(Why.OTHER_HOST, now, host)
            case _:
                self.until = now + OPEN_SECONDS
                self.desk.send("ground", do.OpenFormer, not standing)

    def take(self, said: inputs.Answer, now: float) -> None:
        """An answer came."""
        match self.step, said:
            case Search.OPENING, inputs.Done():
                self._opened(now)
            case Search.OPENING, (inputs.Refused() | inputs.Unanswered()):
                self._not_opened(said.trouble, now)
            case Search.ASKING, inputs.StatusCame(status=status):
                self._asked(status, now)
            case Search.COMPARING, inputs.Done():
                self._resume()
            case Search.COMPARING, inputs.Refused(trouble=Trouble(kind=ErrorKind.RUN_EXISTS)):
                self._end_run(Why.OTHER_OPTIONS, now)
            case ((Search.ASKING | Search.COMPARING), inputs.Unanswered(trouble=trouble)) if (
                now < self.until
            ):
                self._ask_again(trouble, now)
            case ((Search.CANCELLING | Search.LEAVING), inputs.StatusCame(status=status)):
                self._left(status, now)
            case Search.CANCELLING, inputs.Unanswered(jitter=jitter) if now < self.until:
                self.desk.look_at("ground", now + retry_pause(jitter))
            case ((Search.ASKING | Search.CANCELLING), inputs.Unanswered(trouble=trouble)) if (
                self._is_shared()
            ):
                self._leave_former(trouble)
            case ((Search.ASKING | Search.COMPARING), _):
                self._anew(Why.SILENT, now)
            case ((Search.CANCELLING | Search.LEAVING), _):
                self._close(now)
            case Search.MAKING, inputs.Done():
                self.step = Search.OVER
            case _:
                assert isinstance(said, (inputs.Refused, inputs.Unanswered))
                self.refused = said.trouble

    def look(self) -> None:
        """Its time has come."""
        if self.step is Search.OPENING:
            self.desk.send("ground", do.OpenFormer, True)
        elif self.step is Search.ASKING:
            self.desk.send("ground", do.AskStatus, -1, 0.0)
        elif self.step is Search.COMPARING:
            self.desk.send("ground", do.CreateRun)
        else:
            self.desk.send("ground", do.CancelRun, self.why)

    def child_lost(self, now: float) -> None:
        """The former registry does not come up."""
        if self.step in (Search.ASKING, Search.COMPARING):
            self.break_off()
            self._anew(Why.SILENT, now)

    def break_off(self) -> None:
        """Nothing of it goes on."""
        self.desk.drop("ground", *(("ends", key) for key in self.clearing.ends.ends))

    # --- the former registry ------------------------------------------------------------------

    def _opened(self, now: float) -> None:
        self.until = now + (CREATE_SECONDS if self._is_shared() else ASK_SECONDS)
        if not self.wanted.standing:
            self.child.begin(now)
        self.step = Search.ASKING
        self.desk.send("ground", do.AskStatus, -1, 0.0)

    def _ask_again(self, trouble: Trouble, now: float) -> None:
        if self._is_shared() and not self.waited:
            self.waited = True
            self.desk.do(do.Say(sentences.StandingWaits(trouble.message)))
        self.desk.look_at("ground", now + ASK_PAUSE_SECONDS)

    def _is_shared(self) -> bool:
        """Whether the registry that is to hold the new run may still hold the former one."""
        return self.found.former is not None and self.found.former.same_registry

    def _leave_former(self, trouble: Trouble) -> None:
        """Without that registry no launch can begin, and there is no reason to end one."""
        assert self.found.former is not None
        self.desk.do(do.Say(sentences.FormerStays(self.found.former.launch_id)))
        self.refused = trouble

    def _not_opened(self, trouble: Trouble, now: float) -> None:
        """The former registry may still hold its port."""
        if now < self.until and not self.wanted.standing:
            self.desk.look_at("ground", now + OPEN_PAUSE_SECONDS)
        else:
            self._anew(Why.PORT_HELD, now, trouble.message)

    def _asked(self, status: RunStatus, now: float) -> None:
        """What the former launch's state means for this one: if it may go on, its registry is
        asked to create it again, and so whether it holds that very run."""
        former, wanted = self.found.former, self.wanted
        assert former is not None
        self.status = status
        if status.phase is Phase.FINISHED:
            self._anew(Why.OVER, now, status.reason)
        elif wanted.standing or status.phase is Phase.RUNNING:
            self._end_run(Why.RUNNING, now)
        elif former.starter != wanted.starter:
            self._end_run(Why.OTHER_SCHEDULER, now)
        elif former.fingerprint not in ("", wanted.fingerprint):
            self._end_run(Why.OTHER_OPTIONS, now)
        else:
            self.step = Search.COMPARING
            self.desk.send("ground", do.CreateRun)

    def _end_run(self, why: Why, now: float) -> None:
        """Cancel the run, and let its nodes hear of it."""
        assert self.status is not None
        self._say(sentences.EndsFormer(self.status.phase, why))
        self.step, self.until, self.why = Search.CANCELLING, now + LEAVE_SECONDS, why
        self.desk.send("ground", do.CancelRun, why)

    def _left(self, status: RunStatus, now: float) -> None:
        if now >= self.until:
            self._close(now)
        elif status.phase is not Phase.FINISHED:
            # A program has failed, and the registry waits for a silent node, but only once.
            self.desk.look_at("ground", now + LEAVE_WAIT_SECONDS)
        elif any(map(is_there, status.slots)):
            self.step = Search.LEAVING
            self.desk.send("ground", do.AskStatus, status.version, LEAVE_WAIT_SECONDS)
        else:
            self._close(now)

    def _resume(self) -> None:
        assert self.status is not None
        assert self.found.former is not None
        former = self.found.former
        if self.wanted.port not in (None, former.port):
            self.desk.do(do.Say(sentences.PortKept(self.wanted.port or 0, former.port)))
        self._say(sentences.Resumes(former.launch_id, self.status.reason))
        self._make(Resumed(self.status.version - 1))  # it is 1 before the first event

    # --- a new launch -------------------------------------------------------------------------

    def _anew(self, why: Why, now: float, detail: str = "") -> None:
        """A new launch; what the former one has left in its ledger is ended first."""
        former = self.found.former
        if why is not Why.NOTHING_FORMER and not self.wanted.standing:
            self._say(sentences.BeginsAnew(why, detail))
        elif self.wanted.restarts and why is Why.NOTHING_FORMER:
            ended = former is not None and former.ended
            self._say(sentences.BeginsAnew(Why.OVER if ended else why))
        self._close(now)

    def _say(self, what: sentences.Sentence) -> None:
        """What becomes of the former launch; in a job that was requeued the first such sentence
        says that too, as it is why there is one."""
        if self.wanted.restarts and not self.requeue_said:
            self.requeue_said = True
            what = sentences.Requeued(self.wanted.restarts, what)
        self.desk.do(do.Say(what))

    def _close(self, now: float) -> None:
        """End the former registry; what the ledger has left is ended after it."""
        if self.child.begun:
            self.step = Search.CLOSING
            self.child.close()
        else:
            self.closed(now)

    def closed(self, now: float) -> None:
        """The former registry is gone."""
        self.step = Search.CLEARING
        self.clearing.begin(now)
        self.cleared()

    def cleared(self) -> None:
        """Once nothing is being ended any more, the ground is made."""
        if self.step is not Search.CLEARING or self.clearing.ends.ends:
            return
        self.clearing.say_kept()
        self._make(Fresh(self.clearing.kept()))

    def _make(self, ground: Ground) -> None:
        self.step, self.ground = Search.MAKING, ground
        self.desk.send("ground", do.Establish, ground)
