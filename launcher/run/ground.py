"""What a launch begins on: a new launch, or the one that a killed launcher has left. Pure.

`decide` says what is asked of the former launch, `judge` what its registry's answer means, and
`Grounding` leads from the one to the other: the former registry is started on its journal and
asked, a launch that cannot be taken up is ended, and what its ledger leaves is ended as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, Final

from launcher.run import actions as do
from launcher.run import inputs, sentences
from launcher.run.clearing import Clearing
from launcher.run.desk import Desk, Rest, Sent, retry_pause
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
    """

    host: str
    starter: str
    fingerprint: str
    standing: bool = False
    port: int | None = None


# --- decisions


@frozen
class Anew:
    """A new launch; what the former one has left in its ledger is ended first."""

    why: Why
    detail: str = ""


@frozen
class AskFormer:
    """Ask the former launch's registry; `listens`: start it on its journal, to be asked."""

    listens: bool


@frozen
class AskSame:
    """Whether the registry holds that very run: it is asked to create it again."""


@frozen
class EndRun:
    """The former launch is there, and must not go on."""

    why: Why


def decide(found: OnDisk, wanted: Wanted) -> Anew | AskFormer:
    """What is done about the former launch."""
    match found.former:
        case None | Former(ended=True):
            return Anew(Why.NOTHING_FORMER)
        case Former(owns_registry=owned) if owned == wanted.standing:
            return Anew(Why.NOTHING_FORMER)
        case Former(has_keys=has_keys) if wanted.standing:
            return AskFormer(listens=False) if has_keys else Anew(Why.NOTHING_FORMER)
        case Former(host=host) if host != wanted.host:
            return Anew(Why.OTHER_HOST, host)
        case _:
            return AskFormer(listens=True)


def judge(former: Former, wanted: Wanted, status: RunStatus) -> Anew | EndRun | AskSame:
    """What the former launch's state means for this one."""
    if status.phase is Phase.FINISHED:
        return Anew(Why.OVER, status.reason)
    if wanted.standing or status.phase is Phase.RUNNING:
        return EndRun(Why.RUNNING)
    if former.starter != wanted.starter:
        return EndRun(Why.OTHER_SCHEDULER)
    if former.fingerprint not in ("", wanted.fingerprint):
        return EndRun(Why.OTHER_OPTIONS)
    return AskSame()


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
    asking: int | None = None
    ground: Ground | None = None
    refused: Trouble | None = None
    waited: bool = False

    def begin(self, now: float) -> None:
        """Decide, and do it."""
        match decide(self.found, self.wanted):
            case AskFormer(listens=listens):
                self.until = now + OPEN_SECONDS
                self._send(Search.OPENING, do.OpenFormer, listens)
            case anew:
                self._anew(anew, now)

    def _send(
        self,
        step: Search,
        kind: Callable[Concatenate[int, Rest], Sent],
        *args: Rest.args,
        **more: Rest.kwargs,
    ) -> None:
        self.step = step
        self.asking = self.desk.send("ground", kind, *args, **more)

    def take(self, action: do.Action, said: inputs.Answer, now: float) -> None:
        """An answer came."""
        self.asking = None
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
                self._anew(Anew(Why.SILENT), now)
            case ((Search.CANCELLING | Search.LEAVING), _):
                self._close(now)
            case Search.MAKING, inputs.Done():
                self.step = Search.OVER
            case _:
                assert isinstance(said, (inputs.Refused, inputs.Unanswered))
                self.refused = said.trouble

    def look(self, now: float) -> None:
        """Its time has come."""
        if self.step is Search.OPENING:
            self._send(Search.OPENING, do.OpenFormer, True)
        elif self.step is Search.ASKING:
            self._send(Search.ASKING, do.AskStatus, -1, 0.0)
        elif self.step is Search.COMPARING:
            self._send(Search.COMPARING, do.CreateRun)
        else:
            self._send(Search.CANCELLING, do.CancelRun, self.why)

    def child_lost(self, now: float) -> None:
        """The former registry does not come up."""
        if self.step in (Search.ASKING, Search.COMPARING):
            self.break_off()
            self._anew(Anew(Why.SILENT), now)

    def break_off(self) -> None:
        """Nothing of it goes on."""
        self.desk.break_off(self.asking)
        self.desk.forget("ground")
        for key, end in list(self.clearing.ends.ends.items()):
            self.desk.break_off(end.id)
            self.desk.forget(("ends", key))

    # --- the former registry ------------------------------------------------------------------

    def _opened(self, now: float) -> None:
        self.until = now + (CREATE_SECONDS if self._is_shared() else ASK_SECONDS)
        if not self.wanted.standing:
            self.child.begin(now)
        self._send(Search.ASKING, do.AskStatus, -1, 0.0)

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
            self._anew(Anew(Why.PORT_HELD, trouble.message), now)

    def _asked(self, status: RunStatus, now: float) -> None:
        assert self.found.former is not None
        self.status = status
        match judge(self.found.former, self.wanted, status):
            case EndRun(why=why):
                self._end_run(why, now)
            case AskSame():
                self._send(Search.COMPARING, do.CreateRun)
            case anew:
                self._anew(anew, now)

    def _end_run(self, why: Why, now: float) -> None:
        """Cancel the run, and let its nodes hear of it."""
        assert self.status is not None
        self.desk.do(do.Say(sentences.EndsFormer(self.status.phase, why)))
        self.until, self.why = now + LEAVE_SECONDS, why
        self._send(Search.CANCELLING, do.CancelRun, why)

    def _left(self, status: RunStatus, now: float) -> None:
        if any(map(is_there, status.slots)) and now < self.until:
            self._send(Search.LEAVING, do.AskStatus, status.version, LEAVE_WAIT_SECONDS)
        else:
            self._close(now)

    def _resume(self) -> None:
        assert self.status is not None
        assert self.found.former is not None
        former = self.found.former
        if self.wanted.port not in (None, former.port):
            self.desk.do(do.Say(sentences.PortKept(self.wanted.port or 0, former.port)))
        self.desk.do(do.Say(sentences.Resumes(former.launch_id, self.status.reason)))
        self._make(Resumed(self.status.version - 1))  # it is 1 before the first event

    # --- a new launch -------------------------------------------------------------------------

    def _anew(self, anew: Anew, now: float) -> None:
        silent = anew.why is Why.NOTHING_FORMER or self.wanted.standing
        if not silent:
            self.desk.do(do.Say(sentences.BeginsAnew(anew.why, anew.detail)))
        self._close(now)

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
        self.ground = ground
        self._send(Search.MAKING, do.Establish, ground)
