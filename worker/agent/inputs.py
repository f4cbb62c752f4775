"""What a node's machine is told: what comes of each effect, and what happens by itself. Pure.

`number` is the effect's own, as the action that began it has it. An input of an effect that nobody
waits for any more is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

from rendezvous.errors import RdzvError
from rendezvous.schema import JoinReply, JoinRequest, NodeView, PairProbe, RefuseReport
from worker.agent.notices import Notice
from worker.contracts import Contract
from worker.ending import Ending
from worker.family import Family
from worker.nccl.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing but the time."""


@dataclass(frozen=True, slots=True)
class SignalCame:
    """A signal to this process; `parent_lives`: the process that it is to end with still lives."""

    signal: int
    parent_lives: bool = True


@dataclass(frozen=True, slots=True)
class Done:
    """An effect is over; `notices` are what a person may want to know of it."""

    number: int
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """An effect failed: the registry refused or did not answer, or this machine cannot do it."""

    number: int
    error: RdzvError


@dataclass(frozen=True, slots=True)
class Late:
    """An effect took longer than its limit, and was broken off."""

    number: int


@dataclass(frozen=True, slots=True)
class Broken:
    """An effect raised what nobody expected."""

    number: int
    error: Exception


@dataclass(frozen=True, slots=True)
class PartBroken:
    """Something that the run does without has ended as nobody expected; `what` names it."""

    what: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the peers' probes are answered; None: nowhere, and why."""

    number: int
    port: int | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Connected:
    """A registry has proven itself at this base URL."""

    number: int
    base: str


@dataclass(frozen=True, slots=True)
class Offered:
    """What this node offers when it joins."""

    number: int
    offer: JoinRequest


@dataclass(frozen=True, slots=True)
class Joined:
    """The registry has taken this node in; `base` is where."""

    number: int
    reply: JoinReply
    base: str


@dataclass(frozen=True, slots=True)
class Viewed:
    """The newest news."""

    number: int
    view: NodeView


@dataclass(frozen=True, slots=True)
class Visited:
    """What the visits to the peers have shown, and how long they took."""

    number: int
    pairs: tuple[PairProbe, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Armed:
    """This node can start on the table, with this contract."""

    number: int
    contract: Contract
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class NotArmed:
    """This node cannot start on the table."""

    number: int
    refusal: RefuseReport
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class Started:
    """The program runs from now on, or this node serves that of rank 0."""

    number: int


@dataclass(frozen=True, slots=True)
class OwnWords:
    """What the program itself has said so far.

    Attributes:
        tail: Its last lines.
        rank: The process that rdzv's own starter has named as the first that failed.
        log: The file that holds its output; empty: none.
    """

    tail: tuple[str, ...] = ()
    rank: int | None = None
    log: str = ""


NO_WORDS = OwnWords()


@dataclass(frozen=True, slots=True)
class MainEnd:
    """The end of the program's main process: what it has started may live on."""

    exit_code: int
    at: float


@dataclass(frozen=True, slots=True)
class ProgramSeen:
    """How the program's processes are; `words` where they were asked for."""

    number: int
    family: Family
    main: MainEnd | None = None
    words: OwnWords | None = None


@dataclass(frozen=True, slots=True)
class ProgramGone:
    """Nothing is left of the program; `ending` is None where this node served, and had none."""

    number: int
    ending: Ending | None = None
    words: OwnWords = NO_WORDS


@dataclass(frozen=True, slots=True)
class NetworkSaid:
    """What NCCL's log shows of the network that the program uses."""

    number: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class TroubleRead:
    """What stands between the program and its network, as NCCL's log has it; may be nothing."""

    number: int
    trouble: str


Input = (
    Tick
    | SignalCame
    | Done
    | Failed
    | Late
    | Broken
    | PartBroken
    | Listening
    | Connected
    | Offered
    | Joined
    | Viewed
    | Visited
    | Armed
    | NotArmed
    | Started
    | ProgramSeen
    | ProgramGone
    | NetworkSaid
    | TroubleRead
)
