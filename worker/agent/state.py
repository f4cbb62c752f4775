"""What a node's machine knows, and how one step of it is written down. Pure.

What belongs to one attempt at a table is in its `Epoch`, but for the program: there is one at a
time, and that of an epoch before may still be ending when the next one has begun.
What is under way is in `Node.effects`: each by its number, as the action that began it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from rendezvous.wire.log_view import ViewOrder
from rendezvous.wire.reports import AckReport, ExitReport
from rendezvous.wire.run import NO_RESTARTS, RestartFacts, Result
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.watch import DepartureNotice
from rendezvous.wire.world import RankWorld
from worker.agent.actions import Action, Drop, Effect, Say
from worker.agent.inputs import NO_WORDS, MainEnd, OwnWords, Waits
from worker.agent.notices import Note, Notice, notice
from worker.contracts import Contract
from worker.program.ending import Ending
from worker.program.family import Family


@dataclass(frozen=True)
class Rules:
    """What does not change in a node's life: seconds are those of the settings.

    Attributes:
        answer_seconds: Within which a registry that is there answers.
        hosts_file: Into which names are written; empty: into none.
        hosts_seconds: How long a node that ends waits until it is put back.
        remote: Whether this run allows commands of other nodes.
        early: Whether the program's launcher can be begun before the go.
        notice_signal: What the ranks of a program are sent when a node will go; 0: nothing.
        grace: From the moment when a program is told to end until it is killed.
        any_slot: A slot that is held ends this node: whoever started it knows of others.
    """

    run: str
    slot: int
    join_timeout: float
    orphan_timeout: float
    answer_seconds: float = 2.0
    hosts_file: str = ""
    hosts_seconds: float = 10.0
    remote: bool = False
    early: bool = False
    notice_signal: int = 0
    grace: float = 10.0
    any_slot: bool = False


@dataclass(frozen=True)
class Joining:
    """From the start until the registry has taken this node in; `asked_at`: when it was last asked
    to; `other_key_since`: since when each try has met another key than the registry's; `unheard`:
    no try has met anybody who listens."""

    began_at: float
    probe_port: int | None = None
    asked_at: float = 0.0
    other_key_since: float | None = None
    unheard: bool = True


@dataclass(frozen=True)
class Member:
    """A node that the registry knows.

    Attributes:
        offered: The MACs of the rows that this node signed, without and with its generation.
        after: The number of the last news that was taken in.
        poll: Seconds that the registry holds a watch.
        answered_at: When the registry last answered a watch with news, or with none.
        heard_at: When it last was known to be there.
        asked_at: When the watch that is under way began.
        known_at: When the last watch that it has answered began, or the join: it has heard of this
            node then, or later.
        fence_timeout: Seconds after that moment when no program runs here any more; None: a run
            that ends with the loss of a node has no fence.
        stands_by: Whether the run went on without this node when it was last seen running.
        held_at: Since when the next watch waits for what it is to bring; None: it does not wait.
        had_last_try: Whether the try with which the orphan time-out ends was made since.
        why_silent: What the last try that failed has shown.
        lacks: Names of the run's sealed variables, as long as they have not come.
        question: The number of the newest question that it has heard of.
        views: Those of the views of output that it has heard of, the newest last.
        waiting: What of them this node has nothing for yet: it has no ranks, or others.
    """

    offered: frozenset[str]
    after: int
    poll: float
    answered_at: float
    heard_at: float
    asked_at: float = 0.0
    known_at: float = 0.0
    fence_timeout: float | None = None
    stands_by: bool = False
    held_at: float | None = None
    had_last_try: bool = False
    why_silent: str = ""
    lacks: tuple[str, ...] = ()
    question: int = 0
    views: tuple[int, ...] = ()
    waiting: tuple[ViewOrder, ...] = ()


@dataclass(frozen=True)
class Place:
    """What this node ran from an epoch on.

    Attributes:
        node: Its number.
        ranks: The global ranks of its processes.
    """

    epoch: int
    node: int
    ranks: range


@dataclass(frozen=True)
class Agreed:
    """A table that this node has acknowledged, and how it would start its program on it; `warm`:
    by a fork."""

    digest: str
    table: EndpointTable
    contract: Contract
    warm: bool


@dataclass(frozen=True)
class ProgramState:
    """What runs, or ran, on a table.

    Attributes:
        number: Of its `Start`.
        epoch: Of its table.
        serves: It has no process of its own: this node is there for the program of node 0.
        ends_all: Its launcher ends all ranks when one fails.
        started_at: When it began to run.
        follows_network: Whether NCCL keeps a log of what it uses.
        kill: It is to end without a grace.
        family, main: Its children, as last seen, and the end of its main process.
        failed_at: When a rank was first seen to have failed, `certain_at` when it was certain that
            the others end of it.
        warned, told, said_late: What was said: that a rank failed, how it ends, who is late to end.
        departs: The registry was told, while it runs, that this node will go.
        shown_stop_at: When all programs are stopped for a node that will go, as it was shown last.
        notice: What it is to be shown once it runs.
        stop_at: When it was told to stop.
        fenced: Because this node could not hear of its registry.
        followed: What the launcher of the next one can do before its go is begun.
        restarts: How many there had been at its go; `cold`: no rank was forked any more by then.
        left_behind: The run has gone on from its epoch: once it is over, another may start.
        epoch_failed: It has, because a program had failed.
        gone: Nothing of it is left. `ending` is then how it ended, None of one that only served,
            and `words` what it said.
        worlds: In which worlds its ranks are, as the registry was told.
        importing: A rank is importing torch.
        waits_at: When it was last told for what a process of it waits.
        waits: What of that is yet to be told.
        end: What the next watch is to bring, and when that began: not taken in yet.
    """

    number: int
    epoch: int
    serves: bool = False
    ends_all: bool = False
    follows_network: bool = False
    started_at: float | None = None
    kill: bool = False
    family: Family = field(default_factory=Family)
    main: MainEnd | None = None
    failed_at: float | None = None
    certain_at: float | None = None
    warned: bool = False
    told: bool = False
    said_late: bool = False
    departs: bool = False
    shown_stop_at: float | None = None
    notice: DepartureNotice | None = None
    stop_at: float | None = None
    fenced: bool = False
    followed: bool = False
    restarts: int = 0
    cold: bool = False
    left_behind: bool = False
    epoch_failed: bool = False
    gone: bool = False
    ending: Ending | None = None
    words: OwnWords = NO_WORDS
    worlds: tuple[RankWorld, ...] = ()
    importing: bool = False
    waits_at: float | None = None
    waits: tuple[Waits, ...] = ()
    end: tuple[ExitReport, float] | None = None


@dataclass(frozen=True)
class Epoch:
    """One attempt at a table.

    Attributes:
        number: The registry's.
        visited: Whether this node's share of its peers was visited, or is.
        table: What is to be armed for next, with its digest: another table is being armed for.
        armed_for: The digest of the last table that was armed for, or is.
        ack: What the next watch is to bring: not taken in yet.
        restarts: What its program may know of those before it.
    """

    number: int
    visited: bool = False
    table: EndpointTable | None = None
    digest: str = ""
    armed_for: str = ""
    ack: AckReport | None = None
    restarts: RestartFacts = NO_RESTARTS


@dataclass(frozen=True)
class SignalTold:
    """The first signal that ends this node.

    Attributes:
        of_launcher: It may be the one that tells of the launcher's end, and not somebody's.
    """

    signal: int
    at: float
    of_launcher: bool = False


@dataclass(frozen=True)
class Departure:
    """When this machine will be taken away, and how that is known."""

    at: float
    words: str


@dataclass(frozen=True)
class ResultKnown:
    """How the run ended."""

    result: Result
    at: float


class Cause(Enum):
    """Why a node ends."""

    RESULT = "the run has ended"
    SIGNAL = "this process received a signal"
    RELEASED = "the run continues without this node"
    REFUSED = "the registry refuses this node"
    LOST = "the registry is gone"
    FAULT = "this node failed"


IN_ORDER = (Cause.RESULT, Cause.SIGNAL, Cause.RELEASED)
"""Causes after which what is under way is finished, and the registry told of it."""


class Step(Enum):
    """What a node that ends does, in this order."""

    SOCKET = "close the program's socket"
    FAULT = "report its own failure"
    WORDS = "send the last words of its ranks"
    LEAVE = "report that it leaves"
    CLIENT = "close the connections"
    HOSTS = "restore the hosts file"
    OVER = "exit"


@dataclass(frozen=True)
class Ends:
    """How this node ends.

    Attributes:
        cause: The first one.
        code: The exit code of its process, where it does not end with an error.
        error: What its process ends with.
        at: When the cause was known.
        step: The one that it is at; None while programs end and reports are told.
        step_at: Since when.
    """

    cause: Cause
    code: int = 0
    error: Exception | None = None
    at: float = 0.0
    step: Step | None = None
    step_at: float = 0.0


@dataclass(frozen=True)
class Node:
    """All that a node's machine knows.

    Attributes:
        effects: What is under way, by number.
        count: How many effects were begun.
        epoch: The newest attempt.
        agreed: The table that was acknowledged last.
        program: What was started, once in an epoch.
        starts: How many programs were started.
        places: What they were, as far as that has changed; the newest last.
        publishes: Whether a feature has a message for the connection that the watch leaves free.
        parent_lives: False once a signal has shown that the launcher is gone.
        said: What it was last said to wait for, and when.
    """

    rules: Rules
    joining: Joining | None = None
    member: Member | None = None
    epoch: Epoch | None = None
    agreed: Agreed | None = None
    program: ProgramState | None = None
    starts: int = 0
    places: tuple[Place, ...] = ()
    publishes: bool = False
    effects: Mapping[int, Effect] = field(default_factory=dict)
    count: int = 0
    signal: SignalTold | None = None
    departure: Departure | None = None
    result: ResultKnown | None = None
    parent_lives: bool = True
    ends: Ends | None = None
    said: tuple[Notice, float] | None = None

    @property
    def runs(self) -> int | None:
        """The number of the program that runs here, while this node does not end."""
        one = self.program
        is_here = one is not None and one.started_at is not None and not one.gone
        return one.number if one and is_here and self.ends is None else None

    @property
    def is_ending(self) -> bool:
        """Whether its program is being stopped, or has reported its end."""
        return (one := self.program) is not None and (one.stop_at is not None or one.told)

    @property
    def given_up_since(self) -> float | None:
        """Since when nobody waits for this node's reports: the signal, or the result, came."""
        known = [told.at for told in (self.signal, self.result) if told is not None]
        return min(known, default=None)


E = TypeVar("E", bound=Effect)
T = TypeVar("T", Node, Member, ProgramState)
_SAY_SECONDS = 30.0


def _changed(value: T, changes: dict[str, Any]) -> T:
    """As `dataclasses.replace`; setting every field anew took half of a step's time."""
    fields = vars(value)
    if not changes.keys() <= fields.keys():
        raise TypeError(f"{type(value).__name__} has not all of {', '.join(changes)}")
    made = object.__new__(type(value))
    vars(made).update(fields, **changes)
    return made


class Turn:
    """One step while it is made: the node so far, and what is to be done, in order.

    Args:
        node: Before the step.
        now: Seconds on the clock of the shell.
    """

    def __init__(self, node: Node, now: float) -> None:
        self.node = node
        self.now = now
        self.actions: list[Action] = []

    def set(self, **changes: Any) -> None:
        """Change what the node knows."""
        self.node = _changed(self.node, changes)

    def do(self, action: Action) -> None:
        """Have something done that has no answer."""
        self.actions.append(action)

    def begin(self, effect: type[E], **fields: Any) -> int:
        """Begin an effect; returns its number."""
        number = self.node.count + 1
        made = effect(number, **fields)
        self.set(count=number, effects={**self.node.effects, number: made})
        self.actions.append(made)
        return number

    def close(self, number: int) -> Effect | None:
        """What was begun under this number, which is answered now; None: nobody waits for it."""
        left = dict(self.node.effects)
        found = left.pop(number, None)
        if found is not None:
            self.set(effects=left)
        return found

    def drop(self, which: Callable[[Effect], bool]) -> None:
        """Break off the effects of which this is so: nobody waits for them any more."""
        for number, effect in list(self.node.effects.items()):
            if which(effect):
                self.close(number)
                self.do(Drop(number))

    def under_way(self, *kinds: type[E]) -> Iterator[E]:
        """The effects of these kinds that are under way."""
        return (effect for effect in self.node.effects.values() if isinstance(effect, kinds))

    def wait_for(self, note: Note, topic: int | None = None, /, **values: object) -> None:
        """Say what this node waits for: when it changes, and now and then."""
        said = notice(note, topic, **values)
        former, at = self.node.said or (None, 0.0)
        if not said.same_but_for_times(former) or self.now - at > _SAY_SECONDS:
            self.set(said=(said, self.now))
            self.do(Say(said))

    def say(self, note: Note, **values: object) -> None:
        """Say something once."""
        self.do(Say(notice(note, **values)))

    def end(self, cause: Cause, *, code: int = 0, error: Exception | None = None) -> None:
        """Decide how this node ends; the first cause is final. `leaving` does what follows."""
        if self.node.ends is None:
            self.set(ends=Ends(cause, code, error, self.now))

    def set_member(self, **changes: Any) -> None:
        """Change what is known of this node's place in the registry."""
        assert self.node.member is not None
        self.set(member=_changed(self.node.member, changes))

    def set_program(self, **changes: Any) -> ProgramState:
        """Change what is known of the program."""
        assert self.node.program is not None
        program = _changed(self.node.program, changes)
        self.set(program=program)
        return program
