"""A node's machine in the hands of a test: what it is told, when, and what it then wants done."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from operator import methodcaller
from typing import Any, TypeVar

from rendezvous.wire.errors import RdzvError, Unavailable
from rendezvous.wire.node import Candidate, Facts, Job, JoinReply, JoinRequest
from rendezvous.wire.protocol import PROTOCOL
from rendezvous.wire.reports import ExitReport, RefuseReport, Report
from rendezvous.wire.run import Phase, Result
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.verify import PairProbe, ProbePeer, ProbePlan
from rendezvous.wire.watch import NodeView
from tests.support.virtual_time import run_virtually
from tests.worker.test_hosts_plan import row
from tests.worker.test_hosts_plan import table as table_of
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent import node as machine
from worker.agent.notices import text_of
from worker.agent.state import Node, Rules
from worker.contracts import Contract
from worker.program.ending import Ending
from worker.program.family import Child, Family, Ranks

SLOT = 2
RULES = Rules(
    "llama",
    SLOT,
    join_timeout=600.0,
    orphan_timeout=120.0,
    hosts_file="/etc/hosts",
)
LED = replace(RULES, remote=True)
POLL = 2.0
AWAY, NOT_NOW = Unavailable("nobody listens"), Unavailable("no database")
NOT_NOW.told = True
BASE = "https://10.0.0.4:29600"
OFFER = JoinRequest(
    protocol=PROTOCOL,
    slot=SLOT,
    generation=3,
    join_id="0123456789abcdef",
    hostname="n1",
    nproc_per_node=2,
    job=Job(),
    facts=Facts(),
    candidates=[Candidate(interface="eth0", address="10.0.0.5", prefix_length=24, mac="ab" * 32)],
    probe_port=7_000,
)
PROGRAM = Contract(["train", "--fast"], {}, fatal_workers=True)
NCCL = replace(PROGRAM, nccl_log="/logs/%p.log")
SERVING = Contract([], {})
E = TypeVar("E", bound=do.Effect)
T = TypeVar("T")


def table(epoch: int = 1, port: int = 29_500) -> EndpointTable:
    """Of the slots 0 and 2: the first node runs three processes, and this one two."""
    rows = [row(n, f"n{n}", f"10.0.0.{4 + n}", slot=SLOT * n) for n in range(2)]
    rows = [replace(one, nproc_per_node=3 - one.node) for one in rows]
    made = table_of(*rows, run="llama")
    return made.model_copy(update={"epoch": epoch, "master_port": port})


def plan(*slots: int) -> ProbePlan:
    """Of these slots; without any of the table's."""
    peers = [
        ProbePeer(
            slot=n,
            hostname=f"n{n}",
            address=f"10.0.0.{4 + n}",
            interface="eth0",
            mtu=0,
            probe_port=7_000 + n,
        )
        for n in slots or (0, SLOT)
    ]
    return ProbePlan(network="eth0", peers=peers)


TABLE = table()
DIGEST = TABLE.digest()
PLAN = plan()
OK = PairProbe(slot=0, outcome="ok")
RESULT = Result(status="failed", exit_code=3, message="node 0 failed")


def refusal(code: str = "hosts") -> RefuseReport:
    """Of the first table."""
    return RefuseReport.model_validate({"epoch": 1, "code": code, "reason": "no right to write"})


def rank(number: int, ended_at: float | None = None, code: int | None = None, **more: Any) -> Child:
    """A rank of the program, which started at 0."""
    values: dict[str, Any] = {"seen_at": 0.0, "started": 0.0, "ranks": Ranks(number, number, 2)}
    return Child(100 + number, ended_at=ended_at, exit_code=code, **(values | more))


def virtually(work: Coroutine[Any, Any, T]) -> T:
    """What comes of it on a virtual clock."""
    found: list[T] = []

    async def go() -> None:
        found.append(await work)

    run_virtually(go())
    return found[0]


async def at_once(work: Any, *args: Any, **options: Any) -> Any:
    """Instead of a thread."""
    return work(*args, **options)


class Drive:
    """One node, and the time that it believes it is, which stands still until it is told to go on;
    `first` is what it does first.

    Its watches wait for nothing that they could bring, as if what it has to tell came too late for
    them; unless `is_quick`.
    """

    is_quick = False

    def __init__(self, rules: Rules = RULES, now: float = 0.0) -> None:
        self.now = now
        self.reply = reply()
        self.node: Node
        self.node, self.first = machine.begin(rules, now)
        self._seq = 0
        self._newest: int | None = None  # program

    def feed(self, said: inputs.Input) -> tuple[do.Action, ...]:
        """What it does when it is told this; every sentence can be said, and has its values, and
        what is done to a program is done to the newest."""
        actions: tuple[do.Action, ...]
        self.node, actions = machine.step(self.node, said, self.now)
        for action in actions:
            if isinstance(action, do.Say):
                assert "None" not in text_of(action.notice)
            if isinstance(action, do.Start):
                self._newest = action.number
            assert getattr(action, "program", None) in (None, self._newest)
        return actions

    def at(self, now: float) -> None:
        """Let it be so late, without a look at the clock."""
        self.now = now

    def after(self, seconds: float) -> tuple[do.Action, ...]:
        """What it does when nothing but this time has passed."""
        self.now += seconds
        return self.feed(inputs.Tick())

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
        self, kind: type[E], make: Callable[..., inputs.Input] = inputs.Done, *values: Any
    ) -> tuple[do.Action, ...]:
        """Answer the one effect of this kind: its number and these values make the input."""
        return self.feed(make(self.the(kind).number, *values))

    def fails(self, kind: type[E], error: RdzvError = AWAY) -> tuple[do.Action, ...]:
        """The one effect of this kind fails."""
        return self.answer(kind, inputs.Failed, error)

    def breaks(self, kind: type[E]) -> tuple[do.Action, ...]:
        """The one effect of this kind raises what nobody expected."""
        return self.answer(kind, inputs.Broken, ValueError("not this way"))

    def late(self, kind: type[E]) -> tuple[do.Action, ...]:
        """The one effect of this kind has passed its limit."""
        return self.answer(kind, inputs.Late)

    def taken(self) -> tuple[do.Action, ...]:
        """The registry takes in all that it is told just now."""
        tells = self.all(do.Tell)
        return tuple(action for tell in tells for action in self.feed(inputs.Done(tell.number)))

    def visited(self, *pairs: PairProbe, seconds: float = 0.1) -> tuple[do.Action, ...]:
        """The peers have answered so; without any, well."""
        return self.answer(do.Visit, inputs.Visited, pairs or (OK,), seconds)

    def readied(self, contract: Contract = PROGRAM) -> tuple[do.Action, ...]:
        return self.answer(do.Arm, inputs.Armed, contract)

    def cannot_arm(self, code: str = "hosts") -> tuple[do.Action, ...]:
        return self.answer(do.Arm, inputs.NotArmed, refusal(code))

    # --- the news -----------------------------------------------------------------------------

    def view(self, phase: Phase = Phase.GATHERING, **changes: Any) -> tuple[do.Action, ...]:
        """What it does at this news."""
        self._seq += 1
        values: dict[str, Any] = {"seq": self._seq, "epoch": 1, "reason": "", "poll_seconds": POLL}
        view = NodeView(phase=phase, **(values | changes))
        actions = self.answer(do.Watch, inputs.Viewed, view)
        member = self.node.member
        if self.is_quick or member is None or member.held_at is None:
            return actions
        self.node = replace(self.node, member=replace(member, held_at=-math.inf))
        return (*self.feed(inputs.Tick()), *actions)

    def verify(self, epoch: int = 1, **changes: Any) -> tuple[do.Action, ...]:
        """The news that the nodes are to visit each other."""
        return self.view(Phase.VERIFYING, **({"epoch": epoch, "plan": PLAN} | changes))

    def arm(self, given: EndpointTable = TABLE, **changes: Any) -> tuple[do.Action, ...]:
        """The news of a table."""
        values = {"epoch": given.epoch, "table": given, "digest": given.digest()}
        return self.view(Phase.ARMING, **(values | changes))

    def go(self, given: EndpointTable = TABLE, **changes: Any) -> tuple[do.Action, ...]:
        """The news that the run goes on this table."""
        values = {"epoch": given.epoch, "digest": given.digest()}
        return self.view(Phase.RUNNING, **(values | changes))

    def stop(self) -> tuple[do.Action, ...]:
        """The news that all programs are to end."""
        return self.go(stop=True)

    def result(self, given: Result = RESULT, **changes: Any) -> tuple[do.Action, ...]:
        """The news that the run is over."""
        return self.view(Phase.FINISHED, result=given, **changes)

    # --- the program --------------------------------------------------------------------------

    @property
    def program(self) -> int:
        """The number of the program."""
        assert self.node.program is not None
        return self.node.program.number

    def started(self) -> tuple[do.Action, ...]:
        return self.feed(inputs.Started(self.program))

    def seen(
        self,
        *children: Child,
        main: inputs.MainEnd | None = None,
        words: inputs.OwnWords | None = None,
    ) -> tuple[do.Action, ...]:
        """The program's processes are so; `words` where they were asked for."""
        return self.feed(inputs.ProgramSeen(self.program, Family(None, children), main, words))

    def gone(
        self, ending: Ending | None = None, words: inputs.OwnWords = inputs.NO_WORDS
    ) -> tuple[do.Action, ...]:
        """Nothing is left of the program."""
        return self.answer(do.Start, inputs.ProgramGone, ending, words)

    def ended(self, ending: Ending | None = None) -> tuple[do.Action, ...]:
        """Nothing is left of it, and its last words were sent on."""
        return self.gone(ending) and self.answer(do.Flush)

    def signal(self, number: int, *, parent_lives: bool = True) -> tuple[do.Action, ...]:
        return self.feed(inputs.SignalCame(number, parent_lives))

    # --- its end ------------------------------------------------------------------------------

    def closes(self, *kinds: type[do.Effect]) -> tuple[do.Action, ...]:
        """Answer its last steps, without any all, and what is under way before them."""
        actions: tuple[do.Action, ...] = ()
        steps = (do.CloseSocket, do.Tell, do.SendWords, do.Tell, do.CloseClient, do.RemoveHosts)
        for kind in kinds or (do.Flush, *steps):
            if self.all(kind):
                actions = self.answer(kind)
        return actions


# --- nodes on their way ---------------------------------------------------------------------------


def reply(seq: int = 0, *, fence: float | None = None) -> JoinReply:
    """The registry takes the node in."""
    limits: dict[str, Any] = {"join_timeout_seconds": 600.0, "arm_timeout_seconds": 60.0}
    ids: dict[str, Any] = {"credential": "", "incarnation": 7, "epoch": 0, "nnodes": 2}
    ids["fence_timeout_seconds"] = fence
    return JoinReply(seq=seq, poll_seconds=POLL, **ids, **limits)


_STEPS: dict[str, Callable[[Drive, Contract], object]] = {
    "restored": lambda d, _: d.all(do.RestoreHosts) and d.answer(do.RestoreHosts),
    "listening": lambda d, _: d.answer(do.Listen, inputs.Listening, 7_000),
    "connecting": lambda d, _: d.answer(do.LookAhead),
    "offering": lambda d, _: d.answer(do.Connect, inputs.Connected, BASE),
    "joining": lambda d, _: d.answer(do.MakeOffer, inputs.Offered, OFFER),
    "joined": lambda d, _: d.answer(do.Join, inputs.Joined, d.reply, BASE),
    "verifying": lambda d, _: d.verify(),
    "arming": lambda d, _: (d.visited(), d.taken(), d.arm()),
    "acknowledging": lambda d, contract: d.readied(contract),
    "armed": lambda d, _: d.taken(),
    "starting": lambda d, _: d.go(),
    "running": lambda d, _: d.started(),
}


def to(
    state: str,
    rules: Rules = RULES,
    contract: Contract = PROGRAM,
    *,
    is_quick: bool = False,
    fence: float | None = None,
) -> Drive:
    """A node on its way, to one of these states; `serving`, for the program of node 0."""
    if state == "begun":
        return Drive(rules)
    if state == "serving":
        return to("running", LED, SERVING, fence=fence)
    drive, names = Drive(rules), list(_STEPS)
    drive.reply, drive.is_quick = reply(fence=fence), is_quick
    for name in names[: names.index(state) + 1]:
        _STEPS[name](drive, contract)
    return drive


# --- one step, in words ---------------------------------------------------------------------------


class _Calls:
    """Calls of a `Drive`'s methods, for later: `m.signal(15)`."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **options: methodcaller(name, *args, **options)


m = _Calls()


# What happens often.
TERM, TAKEN, OVER, STOP = m.signal(15), m.taken(), m.result(), m.stop()
VISITED, READIED, GONE = m.visited(), m.readied(), m.gone()
LATE, AWAY_NOW, UNTOLD = m.late(do.Watch), m.fails(do.Watch), m.fails(do.Tell)
SOCKET, CLOSES = m.closes(do.CloseSocket), m.closes()


def _report(report: Report, since: float | None) -> str:
    name = type(report).__name__.removesuffix("Report")
    if isinstance(report, ExitReport):
        rank = None if report.rank is None else f"rank{report.rank}"
        marks = ["stopped"] * report.stopped + ["fenced"] * report.fenced
        marks += ["agent"] * report.by_agent + [str(rank)] * bool(rank)
        name = f"{name}({','.join([str(report.exit_code), *marks])})"
    return name + ("" if since is None else f"@{since:g}")


def _tell(action: do.Tell) -> str:
    name = _report(action.report, action.since)
    flags = ["last"] * action.is_last_word
    if action.needed == (name == "Progress"):  # nothing fails of progress that is not told
        flags.append("needed" if action.needed else "unneeded")
    return ":".join(["Tell", name, *flags])


def _watch(action: do.Watch) -> str:
    limit = f"({action.limit:.3g})" * (action.limit < 100.0)
    brings = [_report(action.brings, action.since)] if action.brings is not None else []
    return ":".join(["Watch" + limit, *brings])


def in_words(actions: Iterable[do.Action], begun: dict[int, Any] | None = None) -> str:
    """What is done, in order: sentences by their names, effects by their kinds; `Leave` is the
    first of a node's last steps."""
    found, actions = [], list(actions)
    begun = (begun or {}) | {
        action.number: action for action in actions if isinstance(action, do.Effect)
    }
    for action in actions:
        words = type(action).__name__
        match action:
            case do.Say():
                words = action.notice.note.name
            case do.Tell():
                words = _tell(action)
            case do.Watch():
                words = _watch(action)
            case do.Drop() if action.number in begun:
                words = f"Drop:{type(begun[action.number]).__name__}"
            case do.End():
                words = f"End:{type(action.error).__name__ if action.error else action.code}"
        found.append(words + ":pause" * getattr(action, "pause", False))
    return " ".join(found).replace("StopListening CloseSocket", "Leave")


def outcome(begin: str, *steps: Any, fence: float | None = None) -> str:
    """What the last of these steps makes a node do, when it is due then, and of what it ends."""
    drive = to(begin, fence=fence) if begin != "following" else to("running", contract=NCCL)
    for step in steps[:-1]:
        step(drive)
    before = drive.node
    actions = steps[-1](drive)
    found = [in_words(actions, {**before.effects, **drive.node.effects})] * bool(actions)
    if drive.due is not None:
        found.append(f"due:{drive.due:g}")
    if before.ends is None and drive.node.ends is not None:
        found.append(f"ends:{drive.node.ends.cause.name}")
    return " ".join(found)


def told(actions: tuple[do.Action, ...]) -> list[Report]:
    """What the registry is told now."""
    return [action.report for action in actions if isinstance(action, do.Tell)]


def without_words(actions: tuple[do.Action, ...]) -> tuple[do.Action, ...]:
    """What is done, beside what is said."""
    return tuple(action for action in actions if not isinstance(action, do.Say))
