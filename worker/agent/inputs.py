"""What a node's machine is told: what comes of each effect, and what happens by itself. Pure.

`number` is the effect's own, as the action that began it has it. An input of an effect that nobody
waits for any more is ignored.
"""

from __future__ import annotations

from rendezvous.frozen import frozen
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.node import JoinReply, JoinRequest
from rendezvous.wire.reports import RefuseReport
from rendezvous.wire.verify import PairProbe
from rendezvous.wire.watch import NodeView
from worker.agent.notices import Notice
from worker.contracts import Contract
from worker.nccl.verdict import NetworkVerdict
from worker.program.ending import Ending
from worker.program.family import Family


@frozen
class Tick:
    """Nothing but the time."""


@frozen
class SignalCame:
    """A signal to this process; `parent_lives`: the process that it is to end with still lives."""

    signal: int
    parent_lives: bool = True


@frozen
class Done:
    """An effect is over; `notices` are what a person may want to know of it."""

    number: int
    notices: tuple[Notice, ...] = ()


@frozen
class Failed:
    """An effect failed: the registry refused or did not answer, or this machine cannot do it."""

    number: int
    error: RdzvError


@frozen
class Late:
    """An effect took longer than its limit, and was broken off."""

    number: int


@frozen
class Broken:
    """An effect raised what nobody expected."""

    number: int
    error: Exception


@frozen
class PartBroken:
    """Something that the run does without has ended as nobody expected; `what` names it."""

    what: str
    error: Exception


@frozen
class Listening:
    """Where the peers' probes are answered; None: nowhere, and why."""

    number: int
    port: int | None
    problem: str = ""


@frozen
class Connected:
    """A registry has proven itself at this base URL."""

    number: int
    base: str


@frozen
class Offered:
    """What this node offers when it joins."""

    number: int
    offer: JoinRequest


@frozen
class Joined:
    """The registry has taken this node in; `base` is where."""

    number: int
    reply: JoinReply
    base: str


@frozen
class Viewed:
    """The newest news."""

    number: int
    view: NodeView


@frozen
class Visited:
    """What the visits to the peers have shown, and how long they took."""

    number: int
    pairs: tuple[PairProbe, ...]
    seconds: float


@frozen
class Armed:
    """This node can start on the table, with this contract."""

    number: int
    contract: Contract
    notices: tuple[Notice, ...] = ()


@frozen
class NotArmed:
    """This node cannot start on the table."""

    number: int
    refusal: RefuseReport
    notices: tuple[Notice, ...] = ()


@frozen
class Started:
    """The program runs from now on, or this node serves that of rank 0."""

    number: int


@frozen
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


@frozen
class MainEnd:
    """The end of the program's main process: what it has started may live on."""

    exit_code: int
    at: float


@frozen
class ProgramSeen:
    """How the program's processes are; `words` where they were asked for."""

    number: int
    family: Family
    main: MainEnd | None = None
    words: OwnWords | None = None


@frozen
class ProgramGone:
    """Nothing is left of the program; `ending` is None where this node served, and had none."""

    number: int
    ending: Ending | None = None
    words: OwnWords = NO_WORDS


@frozen
class NetworkSaid:
    """What NCCL's log shows of the network that the program uses."""

    number: int
    verdict: NetworkVerdict


@frozen
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
