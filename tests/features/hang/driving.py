"""The registry's side of a run that is driven along: what its nodes send and answer, and judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from features.hang import LOOKS, QUIET
from features.hang.judge import Judge
from features.hang.registry import Quiet
from features.hang.stall import Silence, quiet_since
from features.hang.wire import LookReport, QuietReport
from rendezvous.channel import Asked, Published
from rendezvous.registry.questions import Questions
from rendezvous.registry.topics import Received
from rendezvous.run.events import Event
from rendezvous.run.views import run_status
from rendezvous.wire.run import Phase, RunStatus
from tests.features.hang.runs import One, node
from tests.support.driver import Drive, in_phase


def timeout(seconds: float | None) -> dict[str, Any]:
    """The change of a spec by which a stall of so many seconds ends the programs."""
    return {} if seconds is None else {"features": {"hang": {"timeout_seconds": seconds}}}


def running(nodes: int = 2, *, ends: float | None = None, **changes: Any) -> Judged:
    """A run that goes."""
    return Judged(in_phase(Phase.RUNNING, nodes, **timeout(ends), **changes))


class Judged:
    """A run, what is kept of its nodes, and what judges it."""

    def __init__(self, drive: Drive) -> None:
        self.drive = drive
        self.kept_quiet = Quiet()
        self.looks = Questions(LOOKS, lambda: None)
        self.judge = Judge(self)
        self.numbers = dict[int, int]()
        """Of the newest silence of each slot, which a movement raises."""

    def restarted(self) -> Judged:
        """The same run, in a registry that has been started again."""
        return Judged(self.drive)

    # --- what a judge is given --------------------------------------------------------------------

    def now(self) -> float:
        """The drive's clock."""
        return self.drive.now

    def store(self, topic: Published) -> Quiet:
        """The silences."""
        assert topic is QUIET
        return self.kept_quiet

    def questions(self, topic: Asked) -> Questions:
        """The looks."""
        assert topic is LOOKS
        return self.looks

    # --- what nodes do ----------------------------------------------------------------------------

    def send(self, slot: int, report: QuietReport) -> None:
        """A node sends this, in its present incarnation."""
        run = self.drive.run
        number = self.numbers.setdefault(slot, 0) + (report.seconds is None)
        self.numbers[slot] = max(number, report.number)
        report = report.model_copy(update={"number": self.numbers[slot]})
        sent = Received(run, slot, run.slots[slot].its_node.incarnation, report, self.drive.now)
        assert self.kept_quiet.receive(sent) == (None, 1)

    def quiet(self, *slots: int, seconds: float | None = 120.0, early: bool = False) -> None:
        """Nothing moves on these nodes, or something does again; the registry sweeps after each."""
        for slot in slots:
            report = QuietReport(epoch=self.drive.run.epoch, seconds=seconds, early=early)
            self.send(slot, report)
            self.sweep()

    def wait(self, seconds: float) -> None:
        """Time passes, in which nodes on which nothing moves say so again and again."""
        end = self.drive.now + seconds
        while self.drive.now < end:
            self.drive.wait(min(QUIET.interval, end - self.drive.now))
            for slot, one in self.silences.items():
                passed = self.drive.now - one.since
                report = QuietReport(epoch=one.epoch, seconds=passed, early=one.early)
                self.send(slot, report)

    def answer(self, *nodes: Sequence[One]) -> int:
        """The nodes answer the look that is open; returns its number, 0 where there is none."""
        question = self.looks.open(self.drive.now)
        if question is None:
            return 0
        assert question.topic == "looks"
        for slot, ranks in enumerate(nodes):
            self.looks.take(slot, report_of(slot, ranks, question.number), self.drive.now)
        return question.number

    # --- what the registry does -------------------------------------------------------------------

    def sweep(self) -> list[Event]:
        """Once; what is found is applied."""
        found = self.judge.events(self.drive.run, self.drive.now)
        for event in found:
            self.drive.apply(event)
        return found

    @property
    def silences(self) -> dict[int, Silence]:
        """Those of nodes that run now."""
        return self.kept_quiet.of(self.drive.run, self.drive.now)

    @property
    def quiet_since(self) -> float | None:
        """Since when nothing moves, so that looks can say why."""
        return quiet_since(self.drive.run, self.silences)

    def status(self) -> RunStatus:
        """What a person is shown."""
        run, now = self.drive.run, self.drive.now
        return run_status(run, now, self.drive.leases, remark=self.judge.remark(run, now))


def report_of(slot: int, ranks: Sequence[One], number: int, epoch: int = 1) -> LookReport:
    """The answer of a node of two ranks to the look of this number."""
    report = node(slot, ranks, 2 * slot).report
    assert report is not None
    said: LookReport = report.model_copy(update={"number": number, "epoch": epoch})
    return said
