"""A launch's machine without a shell: inputs in, actions out, and the clock is a number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from launcher.run import actions as do
from launcher.run import inputs as said
from launcher.run.actions import Action
from launcher.run.ground import OnDisk, Wanted
from launcher.run.machine import Machine
from launcher.run.sentences import Sentence
from launcher.run.values import ErrorKind, Key, LaunchFacts, Starter, Trouble
from launcher.schedulers.description import Description
from rendezvous.wire.run import NodeState, Phase, Result, RunStatus, SlotState, SlotStatus

SLURM = Starter("slurm", 1.0)
LOCAL = Starter("local", 0.1, loopback=True)
SILENT = Trouble(ErrorKind.NOT_NOW, "unavailable", "nobody answers", "try", 85)
FULL = Trouble(ErrorKind.STORAGE_FULL, "storage_full", "the disk is full", "make room", 85)
OVER = Trouble(ErrorKind.RUN_OVER, "run_over", "the run is over")
FOREIGN = Trouble(ErrorKind.NOT_FOUND, "not_found", "no such run", "", 77)

Kind = TypeVar("Kind")


def facts(
    *, here: Starter | None = LOCAL, others: Starter | None = SLURM, owns: bool = True
) -> LaunchFacts:
    """Of a launch with slot 0 here and the others at a scheduler."""
    return LaunchFacts(here, others, owns, joins_here=here is LOCAL)


def slot(
    number: int,
    generation: int = 1,
    wanted: int = 1,
    *,
    node: NodeState | None = None,
    rank: int | None = None,
    state: SlotState = SlotState.NONE,
    seconds: float = 0.0,
    silent: float | None = None,
) -> SlotStatus:
    """One row of a status."""
    return SlotStatus(
        slot=number,
        generation=generation,
        wanted_generation=wanted,
        state=state,
        state_seconds=seconds,
        node_state=node,
        rank=rank,
        silent_seconds=silent,
    )


def status(*slots: SlotStatus, phase: Phase = Phase.GATHERING, **more: Any) -> RunStatus:
    """How the run stands."""
    values: dict[str, Any] = {
        "run": "llama",
        "launch_id": "k7f2a9c1xy",
        "version": 1,
        "epoch": 0,
        "reason": "waiting",
        "min_nodes": 4,
        "max_nodes": 4,
        "elapsed_seconds": 0.0,
    }
    return RunStatus(**(values | {"phase": phase, "slots": list(slots)} | more))


def result(code: str = "program_failed", exit_code: int = 3, **more: Any) -> Result:
    """How the run ended."""
    values: dict[str, Any] = {"status": "failed", "message": "node 1 failed"}
    return Result(**(values | {"code": code, "exit_code": exit_code} | more))


def over(*slots: SlotStatus, left: bool = True, **more: Any) -> RunStatus:
    """A run that is over."""
    ended = more.pop("result", None) or result()
    return status(*slots, phase=Phase.FINISHED, result=ended, everyone_left=left, **more)


@dataclass
class Drive:
    """A machine, and what it has done."""

    machine: Machine
    now: float = 0.0
    done: list[Action] = field(default_factory=list)
    last: list[Action] = field(default_factory=list)

    @staticmethod
    def new(
        facts_: LaunchFacts | None = None,
        found: OnDisk | None = None,
        wanted: Wanted | None = None,
    ) -> Drive:
        """One that has not begun."""
        wanted = wanted or Wanted("h1", "slurm", "f")
        return Drive(Machine.of(facts_ or facts(), found or OnDisk(), wanted))

    def take(self, what: said.Input) -> list[Action]:
        """Have it take this in; returns what it does."""
        self.last = self.machine.step(what, self.now)
        self.done += self.last
        return self.last

    def wait(self, seconds: float) -> list[Action]:
        """Let time pass, tick by tick; returns what is done meanwhile."""
        until, done = self.now + seconds, list[Action]()
        while (due := self.machine.due()) is not None and due <= until:
            self.now = max(self.now, due)
            done += self.take(said.Due())
        self.now = until
        return done

    def open(self, kind: type[Kind], key: Key | None = None) -> Kind:
        """The action of this kind that is under way; the newest one."""
        return self.all_open(kind, key)[-1]

    def all_open(self, kind: type[Kind], key: Key | None = None) -> list[Kind]:
        """All actions of this kind that are under way."""
        found = [action for _, action in self.machine.desk.open.values()]
        return [
            action
            for action in found
            if isinstance(action, kind) and key in (None, getattr(action, "key", None))
        ]

    def of(self, kind: type[Kind]) -> list[Kind]:
        """What it has done of this kind so far."""
        return [action for action in self.done if isinstance(action, kind)]

    def said(self) -> list[Sentence]:
        """What it has said."""
        return [action.sentence for action in self.of(do.Say)]

    # --- answers ------------------------------------------------------------------------------

    def answer(self, kind: type[Any], key: Key | None = None) -> list[Action]:
        """The newest of this kind is done."""
        return self.take(said.Done(self.open(kind, key).id))

    def refuse(self, kind: type[Any], trouble: Trouble, key: Key | None = None) -> list[Action]:
        """The newest of this kind is refused, or not answered."""
        number = self.open(kind, key).id
        not_now = trouble.kind in (ErrorKind.NOT_NOW, ErrorKind.STORAGE_FULL)
        answer = said.Unanswered if not_now else said.Refused
        return self.take(answer(number, trouble))

    def status(self, *slots: SlotStatus, **more: Any) -> list[Action]:
        """The status that is asked for comes."""
        return self.came(status(*slots, **more))

    def came(self, found: RunStatus) -> list[Action]:
        """This status comes."""
        return self.take(said.StatusCame(self.open(do.AskStatus).id, found))

    def written(self, key: Key) -> list[Action]:
        """The ledger takes it."""
        return self.take(said.Done(self.open(do.WriteIntent, key).id))

    def submitted(self, key: Key, handle: str) -> list[Action]:
        """The scheduler has it."""
        return self.take(said.Submitted(self.open(do.Submit, key).id, key, handle))

    def submit_failed(
        self, key: Key, words: str = "full", *, certain: bool = False
    ) -> list[Action]:
        """The scheduler does not have it, or has not said so."""
        number = self.open(do.Submit, key).id
        return self.take(said.SubmitFailed(number, key, certain, words))

    def found(self, key: Key, handle: str | None) -> list[Action]:
        """It is listed, or not."""
        return self.take(said.Found(self.open(do.Find, key).id, handle))

    def described(self, key: Key, state: SlotState, detail: str = "") -> list[Action]:
        """What its scheduler says."""
        number = self.open(do.Describe, key).id
        return self.take(said.Described(number, Description(state, detail)))

    def told(self, key: Key) -> list[Action]:
        """It was told to end."""
        return self.take(said.RunTold(self.open(do.CancelWorkerRun, key).id))

    def signal(self, number: int = 15) -> list[Action]:
        """A signal comes."""
        return self.take(said.SignalCame(number))

    # --- the way ------------------------------------------------------------------------------

    def begin(self) -> Drive:
        """Up to the ground."""
        self.take(said.Begin())
        return self

    def creating(self) -> Drive:
        """Up to the creation of the run."""
        self.begin()
        self.take(said.Done(self.open(do.Establish).id))
        return self

    def following(self) -> Drive:
        """Up to the first status."""
        self.creating()
        self.answer(do.CreateRun)
        return self

    def submitting(self, *keys: Key) -> Drive:
        """Up to the submission of these."""
        self.following()
        slots = [slot(key.slot, 0, key.generation) for key in keys]
        self.status(*slots)
        for key in keys:
            self.answer(do.TellSlot, key)
            if self.all_open(do.WriteIntent, key):
                self.written(key)
        return self

    def running(self, *keys: Key) -> Drive:
        """Up to the first description of these: they run."""
        self.submitting(*keys)
        for key in keys:
            if self.all_open(do.WriteIntent, key):
                self.written(key)
            self.submitted(key, str(100 + key.slot))
            self.answer(do.TellSlot, key)
            self.described(key, SlotState.RUNNING)
            self.answer(do.TellSlot, key)
        return self

    def ending(self, *keys: Key) -> Drive:
        """Up to the end of these: the run is over, and its nodes have left."""
        self.running(*keys)
        self.came(over(*[slot(key.slot, key.generation, key.generation) for key in keys]))
        self.part()
        return self

    def end(self) -> list[Action]:
        """The run is over, and its nodes have left."""
        self.came(over())
        return self.part()

    def part(self) -> list[Action]:
        """The last metrics and events have come."""
        self.answer(do.FetchMetrics)
        if self.all_open(do.FollowEvents):
            self.take(said.EventsOver(self.open(do.FollowEvents).id, 9, broken=False))
        return self.last
