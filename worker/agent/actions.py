"""What a node's machine wants done. Those with a number are effects: each is answered by one input.

The shell carries them out as they come, and decides nothing. `pause`: after the short wait between
two tries, whose length the shell draws. `limit`: seconds after which the effect is broken off, and
answered by `Late`.
"""

from __future__ import annotations

from rendezvous.frozen import frozen
from rendezvous.wire.log_view import ViewOrder
from rendezvous.wire.node import JoinRequest
from rendezvous.wire.question import Question
from rendezvous.wire.reports import AckReport, ExitReport, Report
from rendezvous.wire.run import NO_RESTARTS, RestartFacts
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.verify import ProbePlan
from rendezvous.wire.watch import DepartureNotice
from worker.agent.notices import Notice
from worker.contracts import Contract

# --- effects --------------------------------------------------------------------------------------


@frozen
class Effect:
    """What takes time; one input with its number answers it."""

    number: int


@frozen
class RestoreHosts(Effect):
    """Take away what ended runs have left in the hosts file; its disk may hang."""

    limit: float


@frozen
class Listen(Effect):
    """Answer the peers' probes, from before the first of them can have heard of this node.

    Attributes:
        again: On the port that the peers know, where it was closed for a program.
    """

    again: bool = False


@frozen
class LookAhead(Effect):
    """Look for what this node can never do; of a disk that hangs nothing is known."""

    limit: float


@frozen
class Connect(Effect):
    """Find the registry."""

    pause: bool = False


@frozen
class MakeOffer(Effect):
    """Look at this machine, as the registry at this base URL is reached from it."""

    base: str
    probe_port: int | None
    limit: float


@frozen
class Join(Effect):
    """Ask for the slot."""

    offer: JoinRequest
    pause: bool = False


@frozen
class FetchSecrets(Effect):
    """Fetch the sealed variables of the run, and open them."""

    limit: float
    pause: bool = False


@frozen
class Refuse(Effect):
    """Tell the registry why this node does not join, while it may still come up."""

    error: Exception


@frozen
class Watch(Effect):
    """Ask for news newer than `after`; the heart-beat.

    Attributes:
        brings: What the registry is told with it.
        since: When what an exit report tells of began; its age is counted from then.
        question: The newest question that this node has heard of.
        views: The newest view of output that it has heard of; None: of none.
        importing: A rank of its program is importing torch.
    """

    after: int
    poll: float
    limit: float
    pause: bool = False
    brings: AckReport | ExitReport | None = None
    since: float | None = None
    question: int = 0
    views: int | None = None
    importing: bool = False


@frozen
class Tell(Effect):
    """Send a report.

    Attributes:
        since: When what an exit report tells of began; its age is counted from then. None: when it
            was first tried.
        began_at: When it was first tried.
        limit: Of this try; None: the client's own.
        needed: The node cannot do its part when the registry does not get it.
        is_last_try: The orphan time-out was over when this try began: it may have been this process
            that was stopped, and not the registry.
        is_last_word: It is told once, by a node that goes.
    """

    report: Report
    began_at: float
    since: float | None = None
    limit: float | None = None
    pause: bool = False
    needed: bool = True
    is_last_try: bool = False
    is_last_word: bool = False


@frozen
class Visit(Effect):
    """Visit this node's share of its peers."""

    epoch: int
    plan: ProbePlan


@frozen
class Arm(Effect):
    """Check a table, take it into the hosts file, see that the program can start on it.

    Attributes:
        former: The table that this node acknowledged last.
        offered: The MACs of the rows that this node signed.
        restarts: What the program may know of those before it.
        of_generations: The run may replace its nodes: each row is of a generation.
    """

    table: EndpointTable
    digest: str
    former: EndpointTable | None
    offered: frozenset[str]
    restarts: RestartFacts = NO_RESTARTS
    of_generations: bool = False


@frozen
class Start(Effect):
    """Start the program, or serve that of node 0 where the contract has none; until it is gone.

    Attributes:
        again: Programs of an epoch before have ended.
    """

    table: EndpointTable
    contract: Contract
    again: bool = False


@frozen
class Flush(Effect):
    """Send on what a program that has ended has said, and features have of it, for a moment."""

    program: int


@frozen
class ReadTrouble(Effect):
    """See what NCCL's log has of the program that failed."""

    program: int
    limit: float


@frozen
class SendWords(Effect):
    """Send what the ranks of a program that has ended have printed last, for a moment.

    Attributes:
        rank: Whose end is the first here, as far as this node knows.
        wait: Seconds until it is this node's turn.
    """

    program: int
    epoch: int
    rank: int | None
    wait: float
    limit: float


@frozen
class Publish(Effect):
    """Send the message of a feature that has waited longest for the connection of the watch."""


@frozen
class CloseRemote(Effect):
    """End what runs here for other nodes, and tell those who wait for theirs why."""

    why: Notice


@frozen
class CloseSocket(Effect):
    """Close the program's socket, and forget what the resolver has not answered."""


@frozen
class CloseClient(Effect):
    """Close the connections to the registry."""


@frozen
class RemoveHosts(Effect):
    """Take this node's names out of the hosts file."""

    limit: float


# --- what is done at once -------------------------------------------------------------------------


@frozen
class Drop:
    """Break an effect off."""

    number: int


@frozen
class Say:
    """Write a sentence into this node's log."""

    notice: Notice


@frozen
class ShowWord:
    """Show a word of COMMAND in which the nodes differ: the registry sees none."""

    word: int


@frozen
class StartEarly:
    """Begin what the program's launcher can do before it is known how it is called.

    Attributes:
        cold: It starts the ranks itself, where they were forked before.
    """

    cold: bool = False


@frozen
class StopListening:
    """Answer no probes any more."""


@frozen
class OpenRemote:
    """Run commands for the other nodes of the table from now on, where the run allows it."""

    table: EndpointTable
    digest: str
    contract: Contract


@frozen
class Stop:
    """End a program: TERM, the grace, KILL; one that only serves ends at once.

    Attributes:
        ends_itself: It is ending its processes already, and TERM would be their second.
    """

    program: int
    ends_itself: bool = False


@frozen
class Kill:
    """End a program at once, also within its grace."""

    program: int


@frozen
class PassSignal:
    """Pass a signal on to the program's main process."""

    program: int
    signal: int


@frozen
class ShowDeparture:
    """Show a program that a node of the run will go: in its notice file, and by a signal to its
    ranks; 0: by none."""

    program: int
    departure: DepartureNotice
    signal: int = 0


@frozen
class MayRun:
    """What runs here, and what is begun here, may run until then (monotonic seconds), unless that
    is said again: what keeps it kills it then, also where this agent stands still."""

    until: float


@frozen
class LookAtProgram:
    """See how the program's processes are now, and what it has said; answered by `ProgramSeen`."""

    program: int


@frozen
class AnswerQuestion:
    """Answer a question of the registry, when it is this node's turn.

    Attributes:
        epoch: Of this node's table, in which it is `node`.
        program: The start that is asked about; None: none can be, and `why`.
    """

    question: Question
    epoch: int
    program: int | None
    node: int
    why: str = ""


@frozen
class ServeView:
    """Send lines of this node's logs for as long as somebody looks at them.

    Attributes:
        order: Which lines.
        node: The number of this node.
        ranks: Those whose logs are read; none: the node's log.
        siblings: All that this node has.
        epoch: The newest.
        delay: Seconds from now until the first are sent.
    """

    order: ViewOrder
    node: int
    ranks: tuple[int, ...]
    siblings: tuple[int, ...]
    epoch: int
    delay: float


@frozen
class End:
    """The node is over: exit with the code, or with the error."""

    code: int
    error: Exception | None = None


Action = (
    Effect
    | Drop
    | Say
    | ShowWord
    | StartEarly
    | StopListening
    | OpenRemote
    | Stop
    | Kill
    | PassSignal
    | ShowDeparture
    | MayRun
    | LookAtProgram
    | AnswerQuestion
    | ServeView
    | End
)
