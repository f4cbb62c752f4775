"""What a node's machine is told: what comes of each effect, and what happens by itself. Pure.

An input of an effect that nobody waits for any more is ignored.
"""

from __future__ import annotations

from rendezvous.cause.clues import Line
from rendezvous.frozen import frozen
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.evidence import Fact
from rendezvous.wire.node import JoinReply, JoinRequest
from rendezvous.wire.reports import RefuseReport
from rendezvous.wire.verify import PairProbe
from rendezvous.wire.watch import NodeView
from rendezvous.wire.world import RankWorld
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
class DepartureNear:
    """This machine will be taken away, after so many seconds; `words` say how that is known."""

    seconds: float
    words: str


@frozen
class Answer:
    """What comes of an effect; `number` is the effect's own, as the action that began it has it."""

    number: int


@frozen
class Done(Answer):
    """An effect is over; `notices` are what a person may want to know of it."""

    notices: tuple[Notice, ...] = ()


@frozen
class Failed(Answer):
    """An effect failed: the registry refused or did not answer, or this machine cannot do it."""

    error: RdzvError


@frozen
class Late(Answer):
    """An effect took longer than its limit, and was broken off."""


@frozen
class Broken(Answer):
    """An effect raised what nobody expected."""

    error: Exception


@frozen
class PartBroken:
    """Something that the run does without has ended as nobody expected; `what` names it."""

    what: str
    error: Exception


@frozen
class Listening(Answer):
    """Where the peers' probes are answered; None: nowhere, and why."""

    port: int | None
    problem: str = ""


@frozen
class Connected(Answer):
    """A registry has proven itself at this base URL."""

    base: str


@frozen
class Offered(Answer):
    """What this node offers when it joins."""

    offer: JoinRequest


@frozen
class Joined(Answer):
    """The registry has taken this node in; `base` is where."""

    reply: JoinReply
    base: str


@frozen
class NotSent(Answer):
    """The registry has not been sent the sealed variables yet."""


@frozen
class Viewed(Answer):
    """The newest news."""

    view: NodeView


@frozen
class Visited(Answer):
    """What the visits to the peers have shown, and how long they took."""

    pairs: tuple[PairProbe, ...]
    seconds: float


@frozen
class Armed(Answer):
    """This node can start on the table, with this contract; `warm`: it will fork its ranks."""

    contract: Contract
    notices: tuple[Notice, ...] = ()
    warm: bool = False


@frozen
class NotArmed(Answer):
    """This node cannot start on the table."""

    refusal: RefuseReport
    notices: tuple[Notice, ...] = ()


@frozen
class Started(Answer):
    """The program runs from now on, or this node serves that of node 0."""


@frozen
class OwnWords:
    """What the program itself has said so far.

    Attributes:
        tail: Its last lines.
        rank: The process that rdzv's own starter has named as the first that failed.
        log: The file that holds its output; empty: none.
        progress: The highest step that it has reported, by its metrics or its progress file.
        lines: The last lines of each rank, where they may tell a cause; by the loop's clock.
        facts: What this machine says of a failure.
        worlds: In which worlds its ranks have been.
    """

    tail: tuple[str, ...] = ()
    rank: int | None = None
    log: str = ""
    progress: int | None = None
    lines: tuple[Line, ...] = ()
    facts: tuple[Fact, ...] = ()
    worlds: tuple[RankWorld, ...] = ()


NO_WORDS = OwnWords()


@frozen
class MainEnd:
    """The end of the program's main process: what it has started may live on."""

    exit_code: int
    at: float


@frozen
class ProgramSeen(Answer):
    """How the program's processes are; `words` where they were asked for."""

    family: Family
    main: MainEnd | None = None
    words: OwnWords | None = None


@frozen
class WorldsSeen(Answer):
    """In which worlds the program's ranks have been until now."""

    worlds: tuple[RankWorld, ...]


@frozen
class Importing(Answer):
    """Whether a rank of the program is importing torch."""

    importing: bool


@frozen
class Waits:
    """For what a process of the program waits, in its words; `over`: it does so no more."""

    words: str
    over: bool = False


@frozen
class Publish:
    """A feature has a message for the connection that the watch leaves free."""


@frozen
class ProgramGone(Answer):
    """Nothing is left of the program; `ending` is None where this node served, and had none."""

    ending: Ending | None = None
    words: OwnWords = NO_WORDS


@frozen
class NetworkSaid(Answer):
    """What NCCL's log shows of the network that the program uses."""

    verdict: NetworkVerdict


@frozen
class TroubleRead(Answer):
    """What stands between the program and its network, as NCCL's log has it; may be nothing."""

    trouble: str


@frozen
class Exhausted:
    """The kernel is about to end this process at a limit of the machine."""

    error: RdzvError


Input = Tick | SignalCame | Exhausted | DepartureNear | PartBroken | Waits | Publish | Answer
