"""A node's machine in the hands of a test: what it is told, when, and what it then wants done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from rendezvous.wire.errors import RdzvError, Unavailable
from rendezvous.wire.node import Candidate, JoinReply, JoinRequest
from rendezvous.wire.reports import Report
from rendezvous.wire.run import Phase, Result
from rendezvous.wire.table import EndpointTable, TableRow
from rendezvous.wire.verify import PairProbe, ProbePeer, ProbePlan
from rendezvous.wire.watch import NodeView
from worker.agent import node as machine
from worker.agent.actions import (
    Action,
    Arm,
    CloseClient,
    CloseSocket,
    Connect,
    Effect,
    End,
    Flush,
    Join,
    Listen,
    LookAhead,
    MakeOffer,
    RemoveHosts,
    RestoreHosts,
    Say,
    Start,
    Tell,
    Visit,
    Watch,
)
from worker.agent.inputs import (
    NO_WORDS,
    Armed,
    Broken,
    Connected,
    Done,
    Failed,
    Input,
    Joined,
    Late,
    Listening,
    MainEnd,
    Offered,
    OwnWords,
    ProgramGone,
    ProgramSeen,
    SignalCame,
    Started,
    Tick,
    Viewed,
    Visited,
)
from worker.agent.notices import Note, text_of
from worker.agent.state import Node, Rules
from worker.contracts import Contract
from worker.program.ending import Ending
from worker.program.family import Child, Family, Ranks

SLOT = 1
RULES = Rules("llama", SLOT, join_timeout=600.0, orphan_timeout=120.0, hosts_file="/etc/hosts")
LED = replace(RULES, remote=True)
POLL = 2.0
WHOLE = POLL + RULES.answer_seconds
"""Seconds within which a registry that is there answers a watch."""
AWAY = Unavailable("nobody listens")
OFFER = JoinRequest(
    slot=SLOT,
    generation=1,
    join_id="0123456789abcdef",
    hostname="n1",
    nproc_per_node=1,
    candidates=[Candidate(interface="eth0", address="10.0.0.5", prefix_length=24, mac="ab" * 32)],
    probe_port=7_000,
)
PROGRAM = Contract(["train", "--fast"], {}, fatal_workers=True)
SERVING = Contract([], {})
A = TypeVar("A", bound=Action)
E = TypeVar("E", bound=Effect)


def table(epoch: int = 1, port: int = 29_500) -> EndpointTable:
    """Of the slots 0 and 1."""
    rows = [
        TableRow(
            rank=slot,
            slot=slot,
            hostname=f"n{slot}",
            address=f"10.0.0.{4 + slot}",
            interface="eth0",
            prefix_length=24,
            nproc_per_node=1,
            mac="",
        )
        for slot in range(2)
    ]
    return EndpointTable(
        run="llama",
        launch_id="launch0001",
        epoch=epoch,
        master_address="10.0.0.4",
        master_port=port,
        rows=rows,
    )


def plan(*slots: int) -> ProbePlan:
    """Of these slots; without any of the first two."""
    peers = [
        ProbePeer(
            slot=slot,
            hostname=f"n{slot}",
            address=f"10.0.0.{4 + slot}",
            interface="eth0",
            probe_port=7_000 + slot,
        )
        for slot in slots or (0, 1)
    ]
    return ProbePlan(network="eth0", peers=peers)


TABLE = table()
DIGEST = TABLE.digest()
PLAN = plan()
OK = PairProbe(slot=0, outcome="ok")
RESULT = Result(status="failed", exit_code=3, message="node 0 failed")


def rank(number: int, ended_at: float | None = None, code: int | None = None, **more: Any) -> Child:
    """A rank of the program, which started at 0."""
    values: dict[str, Any] = {
        "seen_at": 0.0,
        "started": 0.0,
        "ranks": Ranks(number, number, 2),
    } | more
    return Child(100 + number, ended_at=ended_at, exit_code=code, **values)


class Drive:
    """One node, and the time that it believes it is.

    Attributes:
        node: The machine's state.
        now: Its clock, which stands still until it is told to go on.
        first: What it does first.
    """

    def __init__(self, rules: Rules = RULES, now: float = 0.0) -> None:
        self.now = now
        self.node: Node
        self.node, self.first = machine.begin(rules, now)
        self._seq = 0

    def feed(self, said: Input) -> tuple[Action, ...]:
        """What it does when it is told this; every sentence can be said."""
        actions: tuple[Action, ...]
        self.node, actions = machine.step(self.node, said, self.now)
        for action in actions:
            if isinstance(action, Say):
                text_of(action.notice)
        return actions

    def after(self, seconds: float) -> tuple[Action, ...]:
        """What it does when nothing but this time has passed."""
        self.now += seconds
        return self.feed(Tick())

    @property
    def due(self) -> float | None:
        """When it wants to look at its clock."""
        return machine.due(self.node, self.now)

    # --- effects ------------------------------------------------------------------------------

    def all(self, kind: type[E]) -> list[E]:
        """The effects of this kind that are under way."""
        return [e for e in self.node.effects.values() if isinstance(e, kind)]

    def the(self, kind: type[E]) -> E:
        """The one effect of this kind that is under way."""
        (found,) = self.all(kind)
        return found

    def answer(
        self, kind: type[E], make: Callable[..., Input] = Done, *values: Any
    ) -> tuple[Action, ...]:
        """Answer the one effect of this kind: its number and these values make the input."""
        return self.feed(make(self.the(kind).number, *values))

    def fails(self, kind: type[E], error: RdzvError = AWAY) -> tuple[Action, ...]:
        """The one effect of this kind fails."""
        return self.feed(Failed(self.the(kind).number, error))

    def breaks(self, kind: type[E]) -> tuple[Action, ...]:
        """The one effect of this kind raises what nobody expected."""
        return self.feed(Broken(self.the(kind).number, ValueError("not this way")))

    def late(self, kind: type[E]) -> tuple[Action, ...]:
        """The one effect of this kind has passed its limit."""
        return self.feed(Late(self.the(kind).number))

    def taken(self) -> tuple[Action, ...]:
        """The registry takes in all that it is told just now."""
        actions: tuple[Action, ...] = ()
        for tell in self.all(Tell):
            actions += self.feed(Done(tell.number))
        return actions

    # --- the news -----------------------------------------------------------------------------

    def view(self, phase: Phase = Phase.GATHERING, **changes: Any) -> tuple[Action, ...]:
        """What it does at this news."""
        self._seq += 1
        values: dict[str, Any] = {"seq": self._seq, "epoch": 1, "reason": "", "poll_seconds": POLL}
        return self.answer(Watch, Viewed, NodeView(phase=phase, **(values | changes)))

    def verify(self, epoch: int = 1, **changes: Any) -> tuple[Action, ...]:
        """The news that the nodes are to visit each other."""
        return self.view(Phase.VERIFYING, **({"epoch": epoch, "plan": PLAN} | changes))

    def arm(self, given: EndpointTable = TABLE, **changes: Any) -> tuple[Action, ...]:
        """The news of a table."""
        values = {"epoch": given.epoch, "table": given, "digest": given.digest()}
        return self.view(Phase.ARMING, **(values | changes))

    def go(self, given: EndpointTable = TABLE, **changes: Any) -> tuple[Action, ...]:
        """The news that the run goes on this table."""
        values = {"epoch": given.epoch, "digest": given.digest()}
        return self.view(Phase.RUNNING, **(values | changes))

    def stop(self) -> tuple[Action, ...]:
        """The news that all programs are to end."""
        return self.go(stop=True)

    def result(self, given: Result = RESULT, **changes: Any) -> tuple[Action, ...]:
        """The news that the run is over."""
        return self.view(Phase.FINISHED, result=given, **changes)

    # --- the program --------------------------------------------------------------------------

    @property
    def program(self) -> int:
        """The number of the program."""
        assert self.node.program is not None
        return self.node.program.number

    def seen(
        self, *children: Child, main: MainEnd | None = None, words: OwnWords | None = None
    ) -> tuple[Action, ...]:
        """The program's processes are so; `words` where they were asked for."""
        return self.feed(ProgramSeen(self.program, Family(None, children), main, words))

    def gone(self, ending: Ending | None = None, words: OwnWords = NO_WORDS) -> tuple[Action, ...]:
        """Nothing is left of the program."""
        return self.answer(Start, ProgramGone, ending, words)

    def signal(self, number: int, *, parent_lives: bool = True) -> tuple[Action, ...]:
        """A signal comes."""
        return self.feed(SignalCame(number, parent_lives))

    # --- its end ------------------------------------------------------------------------------

    def leaves(self) -> End:
        """Answer all of its last steps; how it ends."""
        for kind in (Flush, CloseSocket, Tell, Tell, CloseClient):
            if self.all(kind):
                self.answer(kind)
        actions = self.answer(RemoveHosts)
        assert isinstance(actions[-1], End)
        return actions[-1]


def without_words(actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """What is done, beside what is said."""
    return tuple(action for action in actions if not isinstance(action, Say))


def notes(actions: tuple[Action, ...]) -> list[Note]:
    """Which sentences are said."""
    return [action.notice.note for action in actions if isinstance(action, Say)]


def told(actions: tuple[Action, ...]) -> list[Report]:
    """What the registry is told now."""
    return [action.report for action in actions if isinstance(action, Tell)]


def of_kind(actions: tuple[Action, ...], kind: type[A]) -> list[A]:
    """The actions of one kind."""
    return [action for action in actions if isinstance(action, kind)]


# --- nodes on their way ---------------------------------------------------------------------------


def joining(rules: Rules = RULES) -> Drive:
    """A node that asks for its slot for the first time."""
    drive = Drive(rules)
    if rules.hosts_file:
        drive.answer(RestoreHosts)
    drive.answer(Listen, Listening, 7_000)
    drive.answer(LookAhead)
    drive.answer(Connect, Connected, "https://10.0.0.4:29600")
    drive.answer(MakeOffer, Offered, OFFER)
    return drive


def reply(seq: int = 0) -> JoinReply:
    """The registry takes the node in."""
    return JoinReply(
        credential="",
        incarnation=1,
        epoch=0,
        seq=seq,
        poll_seconds=POLL,
        nnodes=2,
        join_timeout_seconds=600.0,
        arm_timeout_seconds=60.0,
    )


def joined(rules: Rules = RULES) -> Drive:
    """A node that the registry knows."""
    drive = joining(rules)
    drive.answer(Join, Joined, reply(), "https://10.0.0.4:29600")
    return drive


def verifying(rules: Rules = RULES) -> Drive:
    """A node that visits its peers."""
    drive = joined(rules)
    drive.verify()
    return drive


def arming(rules: Rules = RULES) -> Drive:
    """A node that gets ready for a table."""
    drive = verifying(rules)
    drive.answer(Visit, Visited, (OK,), 0.1)
    drive.taken()
    drive.arm()
    return drive


def armed(rules: Rules = RULES, contract: Contract = PROGRAM) -> Drive:
    """A node that has acknowledged a table."""
    drive = arming(rules)
    drive.answer(Arm, Armed, contract)
    drive.taken()
    return drive


def starting(rules: Rules = RULES, contract: Contract = PROGRAM) -> Drive:
    """A node whose program is being started."""
    drive = armed(rules, contract)
    drive.go()
    return drive


def running(rules: Rules = RULES, contract: Contract = PROGRAM) -> Drive:
    """A node whose program runs."""
    drive = starting(rules, contract)
    drive.feed(Started(drive.program))
    return drive


def serving() -> Drive:
    """A node that is there for the program of rank 0."""
    return running(LED, SERVING)
