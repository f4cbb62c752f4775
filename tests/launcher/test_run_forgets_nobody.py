"""Whatever comes in whatever order, a launch forgets no worker run and comes to its end.

Each of its worker runs waits for an answer, a time or a place, and for nothing else; who has a
place gives it back. What comes is drawn: the same from the same seed.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from launcher.run import actions as do
from launcher.run import inputs as said
from launcher.run.course import LIVE, Stage
from launcher.run.ending import COMMANDS_AT_ONCE, Ask
from launcher.run.runs import Step
from launcher.run.submitting import SUBMITS_AT_ONCE
from launcher.run.values import Key, Starter
from launcher.schedulers.description import Description
from rendezvous.wire.run import EpochEnd, NodeState, Phase, RunReport, RunStatus, SlotState
from tests.launcher.drive import NOT_NOW, OVER, SILENT, Drive, facts, result, slot, status

SLURM = Starter("slurm", 3.0, keeps_logs=True)
HERE = Starter("local", 0.5, loopback=True)
BLIND = Starter("/etc/cloud.toml", 2.0, finds=False)
NODES = (None, None, NodeState.JOINED, NodeState.RUNNING, NodeState.LOST, NodeState.LEFT)
STATES = (*(SlotState.QUEUED, SlotState.RUNNING, SlotState.RUNNING), *SlotState)
COUNT = 24


class Walk(Drive):
    """A launch to which anything happens that may.

    Attributes:
        draw: What decides.
        heard: The generation of each slot that the registry has heard of.
        wanted: The one that it wants.
        troubled: Submissions of which a try has failed.
        late: Those that were broken off; an answer may be on its way.
    """

    draw: random.Random
    heard: dict[int, int]
    wanted: dict[int, int]
    troubled: set[int]
    late: list[do.Submit]

    @classmethod
    def drawn(cls, seed: int) -> Walk:
        """One that follows its run."""
        draw = random.Random(seed)
        starter = draw.choice([SLURM, BLIND, HERE])
        here = draw.choice([HERE, starter])
        walk = cls(Drive.new(facts(here=here, others=starter)).machine)
        walk.draw = draw
        walk.heard = dict.fromkeys(range(COUNT), 0)
        walk.wanted = dict.fromkeys(range(COUNT), 1)
        walk.troubled, walk.late = set(), []
        walk.begin().answer(do.Establish)
        walk.answer(do.CreateRun)
        return walk

    def stands(self) -> RunStatus:
        """How the run stands, as far as it matters to a launch."""
        draw = self.draw
        phase = draw.choice([Phase.GATHERING, Phase.GATHERING, Phase.RUNNING, Phase.RESTARTING])
        began = phase is Phase.RESTARTING or draw.random() < 0.2
        for number in draw.sample(range(COUNT), 3):
            self.wanted[number] = self.heard[number] + (draw.random() < 0.5) or 1
        rows = [
            slot(
                *(number, self.heard[number], max(self.wanted[number], self.heard[number])),
                its=draw.choice(NODES) if self.heard[number] else None,
                node=draw.choice([None, COUNT - number]) if phase is Phase.RUNNING else None,
                state=draw.choice([SlotState.RUNNING, SlotState.SUBMITTED]),
                awaited=draw.random() < 0.3,
                fenced=draw.random() < 0.2,
            )
            for number in range(COUNT)
        ]
        return status(
            *rows,
            phase=phase,
            version=draw.randrange(1, 900),
            on_node_loss=draw.choice(["fail", "replace"]),
            ended=[EpochEnd(epoch=1, message="it failed")] * began,
        )

    def take(self, what: said.Input) -> list[do.Action]:
        """See the base class."""
        done = super().take(what)
        self.troubled -= {one.id for one in done if isinstance(one, do.TryAgain)}
        off = [self._sent[one.id] for one in done if isinstance(one, do.BreakOff)]
        self.late += [one for one in off if isinstance(one, do.Submit)]
        return done

    def happens(self, action: Any) -> None:
        """What comes of one that is under way."""
        draw, number = self.draw, action.id
        luck, jitter = draw.random(), draw.random()
        match action:
            case do.AskStatus():
                silent = said.Unanswered(number, draw.choice([SILENT, NOT_NOW]), jitter)
                self.take(silent if luck < 0.2 else said.StatusCame(number, self.stands()))
            case do.FollowEvents():
                self.take(said.EventsOver(number, 7, luck < 0.5, jitter))
            case do.Keep() | do.KeepReport():
                report = said.ReportCame(number, RunReport(run="r"))
                self.take(said.Refused(number, OVER) if luck < 0.3 else report)
            case do.TellSlot(key=key):
                if luck < 0.2:
                    self.take(said.Unanswered(number, SILENT, jitter))
                elif luck < 0.3:
                    self.take(said.Refused(number, OVER))
                else:
                    self.heard[key.slot] = max(self.heard[key.slot], key.generation)
                    self.take(said.Done(number))
            case do.WriteIntent():
                late = said.NotWritten(number, "disk full", jitter)
                self.take(late if luck < 0.2 else said.Done(number))
            case do.Submit() if number in self.troubled:
                pass  # it waits
            case do.Submit(key=key):
                if luck < 0.2:
                    self.troubled.add(number)
                    self.take(said.SubmitTroubled(number, key, draw.choice(["", "503"])))
                elif luck < 0.4:
                    self.take(said.SubmitFailed(number, key, luck < 0.3, "no room"))
                else:
                    self.take(said.Submitted(number, key, f"{100 + key.slot}"))
            case do.Find():
                self._says(number, luck, said.Found(number, draw.choice([None, "7"])))
            case do.Describe():
                found = Description(draw.choice(STATES), draw.choice(["", "x"]), luck > 0.95)
                self._says(number, luck, said.Described(number, found))
            case do.ReadLastLine():
                self.take(said.LineRead(number, "no such image"))
            case do.CancelWorkerRun():
                self._says(number, luck, said.RunTold(number))
            case do.CancelRun():
                self.take(said.Unanswered(number, SILENT, jitter))
            case do.StartChild():
                pass
            case do.RunFeatures() if not self.of(do.FinishFeatures):
                pass  # they go on
            case _:
                self.take(said.Done(number))

    def _says(self, number: int, luck: float, answer: said.Answer) -> None:
        silent = said.SchedulerSilent(number, "slurmctld is down")
        self.take(silent if luck < 0.15 else answer)

    def is_open(self, number: int | None) -> bool:
        """Whether an answer with this id is waited for."""
        return number is not None and number in self.machine.desk.open

    def check(self) -> None:
        """Nobody is forgotten, and no place is lost."""
        machine = self.machine
        times, submitting = machine.desk.times, machine.slots.submitting
        runs = machine.slots.shared.runs
        if machine.course.stage not in LIVE:
            return
        for key, run in runs.items():
            asked = self.is_open(run.id) or ("look", key) in times
            told = self.is_open(run.telling) or ("tell", key) in times
            waits = {
                Step.TELLING: told,
                Step.OLDER: not asked,
                Step.GATED: key in submitting.gate,
                Step.WRITING: asked,
                Step.SUBMITTING: self.is_open(run.id),
                Step.LOOKING: asked or told,
                Step.DESCRIBED: asked or told,
                Step.REST: not asked,
            }
            assert waits[run.step], (key, run)
        places = [run for run in runs.values() if run.step in (Step.WRITING, Step.SUBMITTING)]
        assert submitting.count == len(places) <= SUBMITS_AT_ONCE
        waiting = [key for key, run in runs.items() if run.step is Step.GATED]
        assert not waiting or len(places) == SUBMITS_AT_ONCE
        if machine.course.stage is Stage.FOLLOWING:
            owners = {owner for owner, _ in machine.desk.open.values() if isinstance(owner, str)}
            assert {"status", "events", "features"} <= owners | times.keys()

    def check_ends(self) -> None:
        """The same of those that are ended."""
        ends, times = self.machine.ends, self.machine.desk.times
        commands = 0
        for key, end in ends.ends.items():
            commands += self.is_open(end.id) and not end.starter.loopback
            if end.ask is Ask.NOTHING:
                assert ("ends", key) in times, (key, end)
            else:
                assert self.is_open(end.id) != (key in ends.waiting), (key, end)
            if ends.hurried_at is not None:
                assert ("ends", key) in times or key in ends.waiting, (key, end)
        assert ends.commands == commands <= COMMANDS_AT_ONCE
        waits = any(ends.ends[key].id is None for key in ends.waiting if key in ends.ends)
        assert not waits or commands == COMMANDS_AT_ONCE

    def goes_on(self, turns: int) -> None:
        """Something comes, or time passes, so often."""
        for _ in range(turns):
            under_way = self.all_open(do.Answerable)
            if self.late and self.draw.random() < 0.1:
                one = self.late.pop()
                self.take(said.Submitted(one.id, one.key, f"{200 + one.key.slot}"))
            elif under_way and self.draw.random() < 0.85:
                self.happens(self.draw.choice(under_way))
            else:
                self.wait(self.draw.choice([0.1, 0.5, 3.0, 20.0]))
            self.check()
            self.check_ends()


@pytest.mark.parametrize("seed", range(12))
def test_a_launch_forgets_nobody_and_comes_to_its_end(seed: int) -> None:
    walk = Walk.drawn(seed)
    walk.goes_on(260)
    if walk.machine.course.stage in LIVE:
        over = walk.stands().model_copy(
            update={"phase": Phase.FINISHED, "result": result(), "everyone_left": seed % 2 == 0}
        )
        for asked in walk.all_open(do.AskStatus):
            walk.take(said.StatusCame(asked.id, over))
    walk.goes_on(40)
    walk.signal(2)
    walk.goes_on(20)
    walk.signal(15)
    began = walk.now
    while walk.machine.course.stage is not Stage.OVER:
        assert walk.now < began + 60.0
        for kind in (do.CloseChild, do.WriteResult):
            for one in walk.all_open(kind):
                walk.take(said.Done(one.id))
        walk.wait(1.0)
        walk.check_ends()
    left = {key for key, run in walk.machine.slots.shared.runs.items() if not run.gone}
    told = [one.sentence.key for one in walk.of(do.Say) if hasattr(one.sentence, "key")]
    assert left <= {Key(key.slot, key.generation) for key in told}
