"""Programs that start again: what really happened in each epoch, for its judges.

What `Facts` says of ends, failures and the stop is of the newest epoch that went. It is kept in an
`Over` when the run goes on from that epoch, and begun anew at the next go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rendezvous.run import events
from rendezvous.run.events import Event
from rendezvous.run.state import Run
from rendezvous.wire.run import EpochEnd, Phase

if TYPE_CHECKING:
    from tests.simulation.history import Facts
    from tests.simulation.program import SimulatedProgram

FORMING_AGAIN = (Phase.RESTARTING, Phase.ARMING, Phase.VERIFYING, Phase.GATHERING)
"""Where a run may be whose programs are to start again."""
Key = tuple[int, int]
"""A slot, and the incarnation of its node."""
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")


@dataclass
class Life:
    """One program of a node, as it really was.

    Attributes:
        ended_at: Of its main process; what that has started may live on.
        failed_at: When its node failed, by itself or with its program.
        is_told: Whether the registry has answered who told how it ended.
        unheard: For how long the registry had not heard of its node as it ended.
    """

    epoch: int
    digest: str
    started_at: float
    ended_at: float | None = None
    code: int | None = None
    failed_at: float | None = None
    program: SimulatedProgram | None = None
    is_told: bool = False
    unheard: float = 0.0

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left."""
        gone = self.program is None or self.program.is_gone
        return self.ended_at is not None and gone


@dataclass(frozen=True)
class Over:
    """An epoch whose programs start again.

    Attributes:
        went_at: When its go was given, on the registry's clock, as is `decided_at`.
        stopped_at: When the stop was durable.
        asked: Whether somebody had asked for the restart.
        end: How it ended, as it was known when that was decided.
        alike: The words of its end, without what may change from one to the next.
        rows: The incarnation in each slot of its table.
        known_at: When each end was known, by the time of the decision.
        gone: The slots of it whose node was lost by then, or had said that it goes.
        cut_off: Whether a node had ended its program because it could not hear of its registry.
        stop_wait: How long its programs might take to stop.
        repeated: It was warm, and is repeated cold.
    """

    epoch: int
    went_at: float
    stopped_at: float | None
    decided_at: float
    decided: float
    asked: bool
    end: EpochEnd
    rows: dict[int, int]
    known_at: dict[Key, float]
    gone: frozenset[int] = frozenset()
    cut_off: bool = False
    stop_wait: float = 0.0
    repeated: bool = False

    @property
    def is_counted(self) -> bool:
        """Whether it uses a restart up: where a node was lost, or cut off, none is."""
        return not (self.asked or self.end.replaced or self.cut_off or self.repeated)

    @property
    def over_at(self) -> float:
        """When all of it were stopped, or nobody was left to be stopped."""
        return self.decided if self.stopped_at is None else self.stopped_at

    @property
    def alike(self) -> str:
        return f"{self.end.exit_code} {_NUMBERS.sub('#', self.end.message.partition('failed:')[2])}"


@dataclass
class Epochs:
    """The epochs of one launch.

    Attributes:
        gone: When each epoch went.
        ranks: Of the last table that went, by slot.
        rows: The incarnation in each slot of it.
        port: Its master's.
        over: Those that were restarted, in order.
        is_between: Whether the run has gone on from one, and not yet to the next.
        leaving: Whose node said that it takes no part in what follows, or will go.
        late: How many ends were told late.
        finished_in: The phase in which the run ended.
        cut_off: Whose program of the newest epoch was ended as it did not hear of its registry.
        heard: When the registry had heard of a node that was lost silently.
        ready: When all nodes were ready for the newest table.
        resubmitted: How many worker runs were wanted again, before the newest event.
        generations: The newest of each slot that was in a table.
    """

    gone: dict[int, float] = field(default_factory=dict)
    went_at: float = 0.0
    ranks: dict[int, int] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    port: int = 0
    over: list[Over] = field(default_factory=list)
    is_between: bool = False
    leaving: set[Key] = field(default_factory=set)
    late: int = 0
    finished_in: Phase | None = None
    cut_off: set[Key] = field(default_factory=set)
    heard: dict[Key, float] = field(default_factory=dict)
    ready: float = 0.0
    resubmitted: int = 0
    generations: dict[int, int] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The last epoch from which the run has gone on; 0: none."""
        return self.over[-1].epoch if self.over else 0

    def is_late(self, event: Event) -> bool:
        """Whether it tells of a program that nobody waits for any more."""
        if not isinstance(event, events.Exited) or event.report.leaves:
            return False
        return bool(self.over) and event.report.epoch <= self.last


def begins_again(facts: Facts, run: Run) -> bool:
    """Whether the newest event has the programs start again."""
    return facts.before.phase is Phase.RUNNING and run.phase in FORMING_AGAIN


def note_epochs(facts: Facts, run: Run, event: Event, at: float, now: float) -> None:
    """Take down when an epoch went, and how it was decided that another one follows."""
    epochs, was_running = facts.epochs, facts.before.phase is Phase.RUNNING
    if isinstance(event, events.Exited):
        epochs.late += epochs.is_late(event)
        if event.report.fenced and event.report.epoch == facts.before.epoch:
            epochs.cut_off.add((event.slot, event.incarnation))
        if event.report.leaves:
            epochs.leaving.add((event.slot, event.incarnation))
    if isinstance(event, events.Lost) and not event.closed:
        owner = facts.owners.get((event.slot, event.incarnation))
        if owner is not None:
            epochs.heard[event.slot, event.incarnation] = owner.door.traffic.known_at(now)
    if isinstance(event, events.Departs):
        epochs.leaving.add((event.slot, event.incarnation))
    if run.phase is Phase.ARMING and not run.waiting_for and facts.before.waiting_for:
        epochs.ready = now
    if run.phase is Phase.FINISHED and epochs.finished_in is None:
        epochs.finished_in = facts.before.phase
    if begins_again(facts, run):
        epochs.is_between = True
        told = [end for end in run.starts.ended if end.epoch == facts.before.epoch]
        epochs.over.append(
            Over(
                facts.before.epoch,
                epochs.went_at,
                facts.stopped_at,
                at,
                now,
                facts.before.asked,
                told[-1] if told else EpochEnd(epoch=facts.before.epoch, message=""),
                epochs.rows,
                dict(facts.known_at),
                frozenset(
                    slot for slot, _ in epochs.rows.items() & (facts.off_at.keys() | epochs.leaving)
                ),
                bool(epochs.cut_off),
                facts.stop_wait,
                run.starts.cold and not any(one.repeated for one in epochs.over),
            )
        )
    elif run.phase is Phase.RUNNING and not was_running:
        _go(facts, run, at, now)


def _go(facts: Facts, run: Run, at: float, now: float) -> None:
    epochs = facts.epochs
    assert run.table is not None
    if epochs.over:
        facts.known_at, facts.exit_codes, epochs.cut_off = {}, {}, set()
        facts.stop_at = facts.stopped_at = None
    epochs.is_between = False
    epochs.gone[run.epoch], epochs.went_at = now, at
    epochs.port = run.table.master_port
    epochs.ranks = {row.slot: row.node for row in run.table.rows}
    epochs.rows = {row.slot: run.slots[row.slot].incarnations for row in run.table.rows}
