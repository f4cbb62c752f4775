"""What schedulers say of worker runs, and what the registry hears of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from launcher.run.actions import Describe, News, ReadLastLine
from launcher.run.hosts import Hosts, asks_for
from launcher.run.runs import Run, Runs, Step
from launcher.run.values import Key, Starter
from launcher.schedulers.description import OVER, Description
from rendezvous.wire.run import NodeState, SlotState, SlotStatus

SLOW_DETAIL_SECONDS: Final = 1.0
SAY_AGAIN_SECONDS: Final = 30.0
LATE_SECONDS: Final = 20.0
CANNOT_START: Final = "rdzv: cannot start: "
"""With this a shipped spec begins its last line, where no other worker run of it would start."""
DESCRIBED_A_SECOND: Final = 10.0
"""How many worker runs a scheduler's commands are asked about."""

_THERE = (
    *(NodeState.JOINED, NodeState.VERIFIED, NodeState.ARMED, NodeState.RUNNING),
    *(NodeState.EXITED, NodeState.STANDBY),
)
"""A node whose program has ended waits for the end of the run, or for the next start."""


@dataclass(slots=True)
class Describing:
    """Asks about each worker run until it is over, or replaced."""

    shared: Runs
    hosts: Hosts

    def begin(self, key: Key, run: Run) -> None:
        """Ask about it from now on."""
        run.step = Step.DESCRIBED
        run.id = self.shared.desk.send("slots", Describe, key, run.handle)

    def described(self, key: Key, run: Run, found: Description, now: float) -> None:
        """What its scheduler says; that it cannot say anything is no reason to end the run."""
        slot = self.shared.seen.get(key.slot)
        run.id = None
        found = run.learn(found)
        run.over = found if found.state in OVER else None
        run.gone = _is_believed_over(run, key.generation, found, slot)
        if run.gone:
            self.shared.note(key, run)
        late = _is_late(slot, found)
        if not _is_news(run, found, now, late=late):
            self.rest(key, run, now)
            return
        run.said, run.said_at = found, now
        if _wants_last_line(run, found, started=self.shared.started, late=late):
            run.found = found
            run.id = self.shared.desk.send("slots", ReadLastLine, key, run.handle)
        else:
            self._tell(key, run, found)

    def line_read(self, key: Key, run: Run, line: str) -> None:
        """The last line of its log is part of what the registry is told."""
        found, run.found, run.id = run.found, None, None
        assert found is not None
        self._tell(key, run, found, line)

    def _tell(self, key: Key, run: Run, found: Description, line: str = "") -> None:
        final = found.state in OVER and line.startswith(CANNOT_START)
        avoided = self.hosts.avoided(key, run) if found.state is SlotState.QUEUED else ()
        detail = "; ".join(filter(None, (found.detail, asks_for(avoided))))
        news = News(found.state, run.handle, detail, line, found.preempted, final)
        self.shared.tell(key, run, news)

    def rest(self, key: Key, run: Run, now: float) -> None:
        """The registry knows: ask again in a while, unless it is over."""
        if run.gone:
            run.step = Step.REST
            return
        pause = _pause_of(run.starter, len(self.shared.asked))
        self.shared.desk.look_at(("look", key), now + pause)


def _pause_of(starter: Starter, asked: int) -> float:
    """Until it is asked again: a scheduler that serves others too is not asked too often."""
    if starter.loopback:
        return starter.poll_seconds
    return max(starter.poll_seconds, asked / DESCRIBED_A_SECOND)


def _is_late(slot: SlotStatus | None, found: Description) -> bool:
    """Whether it has been running for a while, and its node has not come."""
    if slot is None or slot.node_state is not None or found.state is not SlotState.RUNNING:
        return False
    return slot.state is SlotState.RUNNING and slot.state_seconds >= LATE_SECONDS


def _is_news(run: Run, found: Description, now: float, *, late: bool) -> bool:
    """Whether the registry is to hear of it: it believes in a queue only as long as it does."""
    said, ago = run.said, now - run.said_at
    if said is None or (found.state, found.preempted) != (said.state, said.preempted):
        return True
    if found != said and ago > SLOW_DETAIL_SECONDS:
        return True
    return (found.state is SlotState.QUEUED or late) and ago > SAY_AGAIN_SECONDS


def _wants_last_line(run: Run, found: Description, *, started: bool, late: bool) -> bool:
    """Of one that ends before the go, or runs and does not call: what it said last is why, more
    often than not."""
    ended = found.state in OVER and not started
    return run.starter.keeps_logs and (ended or late)


def _is_believed_over(
    run: Run, generation: int, found: Description, slot: SlotStatus | None
) -> bool:
    """Whether it is over: not while its own node is there, whatever its scheduler says.

    A child of this process is certain; a command's one answer may be wrong, and what is believed
    gone is never ended any more.
    """
    if found.state not in OVER:
        return False
    if slot is None or run.starter.loopback or slot.generation != generation:
        return True
    return slot.node_state not in _THERE
