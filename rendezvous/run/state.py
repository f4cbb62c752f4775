"""The state of one run, and how its parts are named in sentences. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace

from rendezvous.frozen import frozen
from rendezvous.proof.network_class import NetworkClass
from rendezvous.run.events import Noted, Refused, StopAsked
from rendezvous.run.phases import RULES, PhaseRules
from rendezvous.run.placement import Placement
from rendezvous.run.records import Departure, Fence, RefusedJoin
from rendezvous.run.tracked import (
    EditedMapping,
    EditedSet,
    Tracked,
    TrackedDict,
    TrackedSet,
    tracked,
)
from rendezvous.wire.errors import Cause
from rendezvous.wire.node import Finding, JoinRequest
from rendezvous.wire.reports import ExitReport
from rendezvous.wire.run import EpochEnd, NodeState, Phase, Result, Round, RunSpec, SlotState
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.verify import PairProbe
from rendezvous.wire.words import all_of, listed, node_name, size_text
from rendezvous.wire.world import RankWorld, WorldFound

GONE = (NodeState.LOST, NodeState.LEFT)
OVER = (NodeState.EXITED, NodeState.RELEASED, *GONE)
KILL_SECONDS = 15.0
"""Beyond its grace, a program whose processes do not die of SIGKILL at once."""
DEAD_SUBMISSIONS = (SlotState.FAILED, SlotState.ENDED)


@frozen
class LeftOut:
    """Why the table goes without a node, in words that name it; no cause: it is not needed."""

    cause: Cause | None
    words: str


NOT_NEEDED = LeftOut(None, "it is not needed: enough other nodes have joined")
STANDS_BY = LeftOut(None, "it is a standby: the run has all the nodes that it needs now")


@tracked
class Node(Tracked):
    """One incarnation in its slot.

    Attributes:
        source: From which address the registry saw it join, `here`: its own; empty: unknown.
        reported: The last epoch whose end it has told.
        departure: What it has said of its departure, if it will go.
        silent_since: Of one that was lost: when it was last heard of; None: it is known to be gone.
    """

    incarnation: int
    join: JoinRequest
    source: str = ""
    here: bool = False
    state: NodeState = NodeState.JOINED
    number: int | None = None
    exit: ExitReport | None = None
    failed_at: float | None = None
    ended_at: float | None = None
    progress: str = ""
    progress_is_over: bool = False
    reported: int = -1
    departure: Departure | None = None
    silent_since: float | None = None

    @property
    def address(self) -> str:
        """Where it came from, as far as that is known."""
        return self.join.candidates[0].address if self.here or not self.source else self.source


@tracked
class Slot(Tracked):
    """A place in the run, its worker runs by generation, and the node that fills it."""

    index: int
    generation: int = 0
    wanted: int = 1
    state: SlotState = SlotState.NONE
    since: float = 0.0
    name: str = ""
    handle: str = ""
    detail: str = ""
    cause: str = ""
    """Why its worker run ends, where its scheduler says so: `preempted`."""
    tokens: Mapping[int, str] = field(default_factory=dict)
    node: Node | None = None
    incarnations: int = 0
    joins: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""
    told: str = ""
    """Why its newest worker run failed, as an event has said it: no later one repeats that."""
    refused: Refused | None = None
    retries: int = 0
    given_up: bool = False
    tries: int = 0  # after the go: worker runs in a row that ended before their node had joined
    again_at: float | None = None  # when the next one is submitted
    waited: float = 0.0
    waiting_since: float | None = None

    def wait_seconds(self, now: float) -> float:
        """Seconds that this slot has been awaited, time in the scheduler's queue left out."""
        return self.waited + (0.0 if self.waiting_since is None else now - self.waiting_since)

    @property
    def its_node(self) -> Node:
        """The node that is known to be in the slot."""
        assert self.node is not None
        return self.node

    def live_node(self) -> Node | None:
        """The node that fills the slot and has not ended."""
        return self.node if self.node is not None and self.node.state not in OVER else None


@tracked
class Probing(Tracked):
    """A round of probes that is on.

    Attributes:
        number: The place of the class that is being proven, in the order of preference.
        listening: The slots whose nodes answer probes, in order.
        fresh: Those of which pairs are not proven yet; None: of all.
        reports: What was said so far.
    """

    number: int
    listening: tuple[int, ...]
    fresh: tuple[int, ...] | None = None
    reports: EditedMapping[int, Sequence[PairProbe]] = field(default_factory=TrackedDict)


@tracked
class Attempt(Tracked):
    """One attempt to bring the nodes that are in onto one table; another follows a node's loss.

    Attributes:
        enough_since: Since when enough nodes are in, as the last call counts it.
        left_out: The nodes that the table goes without, and why; spares until the go.
        findings: What was found on the nodes, between them, and by their probes.
        classes: The network classes, in order of preference.
        probing: The round that is on.
        rounds: The rounds that are over.
        network: The class that was taken.
        table: What is acknowledged, `written` its canonical form, and `digest` that of it.
        former: The digest of the table that this one renews; empty: it is another one.
        warm: Whether a node that is ready for it will fork its ranks.
        mixed: Whether some of its nodes need torchrun to start their ranks, and others do not.
    """

    enough_since: float | None = None
    left_out: Mapping[int, LeftOut] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    classes: tuple[NetworkClass, ...] = ()
    verifying_since: float = 0.0
    probing: Probing | None = None
    rounds: tuple[Round, ...] = ()
    network: NetworkClass | None = None
    table: EndpointTable | None = None
    written: bytes = b""
    digest: str = ""
    former: str = ""
    warm: bool = False
    mixed: bool = False


@tracked
class Starts(Tracked):
    """The starts of the programs, and how those that are over have ended.

    Attributes:
        went_at: When the programs of the newest table were let go.
        port: The master's in it: the next one has another, which no program of it may still use.
        numbers: The number of each slot's node in it.
        placements: Which nodes have run which ranks, by epoch.
        used: How many restarts are used up.
        asked: Why somebody wants the programs to start again; empty: nobody does.
        due_at: When they start again; None: nothing waits for it.
        ended: The epochs that are over, the newest 32.
        failed_at: When the first cause of the last of them happened.
        alike: How the last one ended, as far as two ends can be the same; empty: it had got on.
        short: How many short epochs without progress the back-off counts.
        stalled: How many epochs in a row have not got beyond `progress`.
        progress: The highest step that a program has reported.
        sick: The slot whose device ended the last of them.
        warm: The first epoch in which a node has forked its ranks; None: none has.
        cold: That one was repeated; no node forks any more.
        replaced: How many lost nodes have another one in their place.
        resubmitted: How many worker runs were submitted again, or are awaited again, for them.
        fences: Of nodes that are gone: until when something of them may run.
        proven: Of the slots that have all proven each other: incarnation and address.
    """

    went_at: float | None = None
    port: int | None = None
    numbers: Mapping[int, int] = field(default_factory=dict)
    placements: tuple[Placement, ...] = ()
    used: int = 0
    asked: str = ""
    due_at: float | None = None
    ended: tuple[EpochEnd, ...] = ()
    failed_at: float = 0.0
    alike: str = ""
    short: int = 0
    stalled: int = 0
    progress: int | None = None
    sick: int | None = None
    warm: int | None = None
    cold: bool = False
    replaced: int = 0
    resubmitted: int = 0
    fences: tuple[Fence, ...] = ()
    proven: Mapping[int, tuple[int, str]] = field(default_factory=dict)


@tracked
class Run(Tracked):
    """The state of one run; changed by `decide` and `apply` alone.

    Attributes:
        attempt: What holds until the nodes gather again.
        waiting_for: The slots of which the present phase wants something: a report, or the end of
            their program.
        worlds: By slot, in which worlds its ranks have been, as far as it has told.
        world: What these show, if the ranks are not in one.
        refused: Who asked to join and did not get in, by who they are; see `refusals`.
        notes: The newest words of each feature that has found something.
        stop_asked: By which feature the programs are ended.
        explained: The result, once a scheduler's later words have completed it.
        command_slot: Where a node's COMMAND is found, with which those of the others are compared.
    """

    id: str
    spec: RunSpec
    created_at: float
    slots: tuple[Slot, ...]
    missing: EditedSet[int]
    phase: Phase = Phase.GATHERING
    epoch: int = 0
    seq: int = 1
    version: int = 1
    phase_since: float = 0.0
    attempt: Attempt = field(default_factory=Attempt)
    waiting_for: EditedSet[int] = field(default_factory=TrackedSet)
    port_tries: int = 0
    command_slot: int | None = None
    stop: bool = False
    stopped_at: float | None = None
    verdict_at: float | None = None
    result: Result | None = None
    explained: Result | None = None
    finished_at: float | None = None
    starts: Starts = field(default_factory=Starts)
    departure: Departure | None = None
    notes: Mapping[str, Noted] = field(default_factory=dict)
    stop_asked: StopAsked | None = None
    worlds: EditedMapping[int, tuple[RankWorld, ...]] = field(default_factory=TrackedDict)
    world: WorldFound | None = None
    refused: Mapping[str, RefusedJoin] = field(default_factory=dict)

    def members(self) -> list[Slot]:
        """The slots whose node is alive and has not ended."""
        # As `live_node`, without a call for each: a table is made of thousands.
        return [s for s in self.slots if s.node is not None and s.node.state not in OVER]

    def other_command(self, slot_index: int) -> Slot | None:
        """A slot, beside this one, whose node has said what its COMMAND is; None: there is none.

        Nodes agree on it as they join, so that one stands for all; it is seldom looked for.
        """
        if self.command_slot is None:
            return None
        found = self.slots[self.command_slot]
        if found.index != slot_index and says_command(found):
            return found
        others = (slot for slot in self.slots if slot.index != slot_index)
        return next(filter(says_command, others), None)

    def taking_part(self) -> list[Slot]:
        """The members that the table is to have: all but those that are left out."""
        left_out = self.attempt.left_out
        return [slot for slot in self.members() if slot.index not in left_out]

    def of_table(self) -> list[Slot]:
        """The slots of the newest table that have a node, whatever has become of it."""
        rows = self.table.rows if self.table is not None else []
        return [slot for row in rows if (slot := self.slots[row.slot]).node is not None]

    def may_come(self, slot_index: int) -> bool:
        """Whether a slot may still be filled: once programs have started, where one is awaited."""
        is_out = bool(self.starts.numbers) and slot_index not in self.starts.numbers
        is_out &= not self.spec.outlives_nodes
        return not (is_out or self.slots[slot_index].given_up)

    def needs(self, slot_index: int) -> bool:
        """Whether no table can be without this slot: slot 0, mostly."""
        stays = not self.starts.numbers or not self.spec.outlives_nodes or self.spec.local_node
        return slot_index == 0 and stays

    def with_left_out(self, left_out: Mapping[int, LeftOut]) -> Run:
        """What the run would be if the table went without these nodes; this one stays as it is."""
        return replace(self, attempt=replace(self.attempt, left_out=left_out))

    def can_go_without(self, guilty: Collection[int]) -> bool:
        """Whether enough others take part without these nodes, slot 0 among them; programs that
        start again do so on the same nodes, unless their run outlives a node."""
        if self.starts.ended and not self.spec.outlives_nodes:
            return False
        enough = len(self.taking_part()) - len(guilty) >= self.spec.min_nodes
        return bool(guilty) and not any(map(self.needs, guilty)) and enough

    def hostnames(self) -> dict[int, str]:
        """The hostname of every slot that has a node."""
        return {slot.index: slot.node.join.hostname for slot in self.slots if slot.node is not None}

    @property
    def rules(self) -> PhaseRules:
        """What holds in the present phase."""
        return RULES[self.phase]

    @property
    def task(self) -> str:
        """What the nodes that it waits for are asked to do in it."""
        rules = self.rules
        if self.starts.ended and rules.task_again and self._have_run(self.waiting_for):
            return rules.task_again.format(epoch=self.starts.ended[-1].epoch)
        return rules.task_alone if self.spec.slots == 1 and rules.task_alone else rules.task

    def _have_run(self, slots: Iterable[int]) -> bool:
        """Whether the nodes of these slots have all run the programs that ended last."""
        ran = {(one.slot, one.incarnation) for one in self.starts.placements[-1].nodes}
        nodes = ((slot, self.slots[slot].node) for slot in slots)
        return all(node is not None and (slot, node.incarnation) in ran for slot, node in nodes)

    @property
    def present(self) -> int:
        """How many slots have a node."""
        return len(self.slots) - len(self.missing)

    @property
    def table(self) -> EndpointTable | None:
        """The table that is to be acknowledged, or was."""
        return self.attempt.table

    @property
    def digest(self) -> str:
        """The table's; empty while there is none."""
        return self.attempt.digest

    @property
    def network(self) -> NetworkClass | None:
        """The class that is being proven, or was taken."""
        attempt = self.attempt
        return attempt.classes[attempt.probing.number] if attempt.probing else attempt.network

    def phase_timeout(self) -> float | None:
        """Seconds that the present phase may last, when it is one with a single deadline.

        Who arms again may have to end a program first.
        """
        limits, limit = self.spec.limits, self.rules.limit
        if limit is None:
            return None
        seconds: float = getattr(limits, limit)
        stopping = self.phase is Phase.ARMING and bool(self.starts.ended)
        return seconds + (limits.grace_seconds + KILL_SECONDS if stopping else 0.0)


def says_command(slot: Slot) -> bool:
    """Whether the slot has a live node that has said what its COMMAND is."""
    node = slot.live_node()
    return node is not None and bool(node.join.job.command_words)


def create(run: str, spec: RunSpec, now: float) -> Run:
    """The state after `Created`: nobody is in."""
    slots = tuple([Slot(index, since=now, waiting_since=now) for index in range(spec.slots)])
    for slot, token in zip(slots, spec.token_sha256, strict=False):
        slot.tokens = {1: token}
    return Run(
        run,
        spec,
        now,
        slots,
        missing=TrackedSet(range(spec.slots)),
        phase_since=now,
    )


def who(slot: Slot) -> str:
    """How a node is named in sentences: by its number, if it has one."""
    node = slot.node
    if node is None:
        return node_name(None, "", slot.index)
    return node_name(node.number, node.join.hostname, slot.index)


def names_of(run: Run, indices: Collection[int], limit: int = 5) -> str:
    """The first nodes by name, and how many more."""
    first = heapq.nsmallest(limit, indices)
    return listed([who(run.slots[index]) for index in first], limit, of=len(indices))


def all_nodes(run: Run) -> str:
    """Return `all 3 nodes are`, of those that take part."""
    count = len(run.taking_part())
    return f"{all_of(count)} {'are' if count > 1 else 'is'}"


def words_of_network(run: Run) -> str:
    """Return `all 3 nodes reach each other over eth0 (10.0.0.0/24, Ethernet)`, or what is so."""
    assert run.network is not None
    count, network = len(run.taking_part()), run.network.words
    if count == 1:
        return f"the node is reached over {network}"
    if not run.spec.verify:
        return f"{all_of(count)} use {network}, which was not verified"
    return f"{all_of(count)} reach each other over {network}"


def nnodes_text(spec: RunSpec) -> str:
    """`4`, or `2:4` for min:max, as torchrun writes it."""
    return size_text(spec.min_nodes, spec.max_nodes)


def nodes_text(spec: RunSpec) -> str:
    """`1 node`, `4 nodes`, `4 nodes and 1 spare`, or `4 nodes, 1 spare and 2 standbys`."""
    parts = [f"{nnodes_text(spec)} node{'s' * (spec.max_nodes > 1)}"]
    more = (spec.spares, "spare"), (spec.standby, "standby")
    parts += [f"{count} {name}{'s' * (count > 1)}" for count, name in more if count]
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
