"""A launch's machine without a shell: inputs in, actions out, and the clock is a number."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from launcher.run import actions as do
from launcher.run import inputs as said
from launcher.run.actions import Action
from launcher.run.ending import Ended
from launcher.run.ground import OnDisk, Wanted
from launcher.run.machine import Machine
from launcher.run.sentences import Requeued
from launcher.run.values import ErrorKind, Key, LaunchFacts, Starter, Trouble, Why
from launcher.schedulers.description import Description
from rendezvous.wire.run import NodeState, Phase, Result, RunStatus, SlotState, SlotStatus

SLURM = Starter("slurm", 1.0)
LOCAL = Starter("local", 0.1, loopback=True)
SILENT = Trouble(ErrorKind.NOT_NOW, "unavailable", "nobody answers", "try", 85)
NOT_NOW = replace(SILENT, message="no database", told=True)
FULL = Trouble(ErrorKind.STORAGE_FULL, "storage_full", "the disk is full", "make room", 85)
OVER = Trouble(ErrorKind.RUN_OVER, "run_over", "the run is over")
FOREIGN = Trouble(ErrorKind.NOT_FOUND, "not_found", "no such run", "", 77)
LATER = (ErrorKind.NOT_NOW, ErrorKind.STORAGE_FULL)

Kind = TypeVar("Kind")
Kinds = type[Kind] | tuple[type[Kind], ...]
Steps = dict[str, Callable[["Drive", Key], Any]]


def facts(
    *, here: Starter | None = LOCAL, others: Starter | None = SLURM, owns: bool = True
) -> LaunchFacts:
    """Of a launch with slot 0 here and the others at a scheduler."""
    return LaunchFacts(here, others, owns, joins_here=here is LOCAL)


def slot(
    number: int, generation: int = 1, wanted: int = 1, *, its: NodeState | None = None, **more: Any
) -> SlotStatus:
    """One row of a status."""
    values: dict[str, Any] = {"generation": generation, "wanted_generation": wanted} | more
    return SlotStatus(**({"slot": number, "node_state": its, "state": SlotState.NONE} | values))


def status(*slots: SlotStatus, phase: Phase = Phase.GATHERING, **more: Any) -> RunStatus:
    """How the run stands."""
    values: dict[str, Any] = {"run": "llama", "launch_id": "k7f2a9c1xy", "version": 1, "epoch": 0}
    values |= {"reason": "waiting", "min_nodes": 4, "max_nodes": 4, "elapsed_seconds": 0.0}
    return RunStatus(**(values | {"phase": phase, "slots": list(slots)} | more))


def result(code: str = "program_failed", exit_code: int = 3, **more: Any) -> Result:
    """How the run ended."""
    values: dict[str, Any] = {"status": "failed", "message": "node 1 failed"} | more
    return Result(code=code, exit_code=exit_code, **values)


def over(*slots: SlotStatus, left: bool = True, **more: Any) -> RunStatus:
    """A run that is over."""
    ended = more.pop("result", None) or result()
    return status(*slots, phase=Phase.FINISHED, result=ended, everyone_left=left, **more)


NOISE: tuple[type[Any], ...] = (do.Show, do.RunFeatures, do.FinishFeatures)
"""What is done at every turn, and is no part of what a script leads to."""


def _named(value: Any) -> list[str]:
    """A value by its class, with what it holds in words and numbers, and the kind of an error."""
    if isinstance(value, Requeued):
        return [type(value).__name__, str(value.restarts), *_named(value.said)]
    more = [getattr(value, each.name) for each in fields(value)]
    more = [getattr(one, "code", getattr(one, "how", one)) for one in more]
    words = [str(one) for one in more if isinstance(one, (str, int, float, tuple))]
    return [type(value).__name__, *words]


@dataclass
class Drive:
    """A machine, of a launch or a part of it, and what it has done.

    Attributes:
        waited: After how many seconds each thing was done that the last wait has seen.
    """

    machine: Any
    now: float = 0.0
    done: list[Action] = field(default_factory=list)
    last: list[Action] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    _sent: dict[int, Action] = field(default_factory=dict)

    @staticmethod
    def new(
        facts_: LaunchFacts | None = None, found: OnDisk | None = None, wanted: Wanted | None = None
    ) -> Drive:
        """One that has not begun."""
        wanted = wanted or Wanted("h1", "slurm", "f")
        return Drive(Machine.of(facts_ or facts(), found or OnDisk(), wanted))

    def take(self, what: said.Input) -> list[Action]:
        """Have it take this in; returns what it does."""
        self.last = self.machine.step(what, self.now)
        self.done += self.last
        if any(isinstance(one, do.End) for one in self.last):
            self._assert_nothing_is_left()
        self._sent |= {one.id: one for one in self.last if isinstance(one, do.Answerable)}
        return self.last

    def _assert_nothing_is_left(self) -> None:
        """A machine that has ended waits for nothing but its child, which the shell awaits."""
        assert self.machine.desk.times == {}
        assert self.all_open(do.Answerable) == self.all_open(do.StartChild)

    def wait(self, seconds: float) -> list[Action]:
        """Let time pass, tick by tick; returns what is done meanwhile."""
        began, done = self.now, list[Action]()
        self.waited = []
        while (due := self.machine.due()) is not None and due <= began + seconds:
            self.now = max(self.now, due)
            done += self.take(said.Due())
            self.waited += [round(self.now - began, 3)] * len(self.last)
        self.now = began + seconds
        return done

    def play(self, script: str, steps: Steps, noise: tuple[type[Any], ...] = NOISE) -> str:
        """What is done at the script's last step; as time passes, with the seconds until then.

        A step is a name, a number of seconds that pass, or a state as which a worker run is
        described, and its detail; a 2 behind a name: that of the slot's second generation, a !
        behind a state: it is preempted.
        """
        done, steps = list[Action](), COMMON | steps
        for word in script.split():
            name, _, detail = word.partition(":")
            self.waited = []
            if name in steps:
                done = steps[name](self, Key(1, 1))
            elif name[0].isdigit():
                done = self.wait(float(name))
            elif name.endswith("2"):
                done = steps[name[:-1]](self, Key(1, 2))
            else:
                state = SlotState(name.rstrip("!"))
                found = Description(state, detail, preempted=name.endswith("!"))
                done = self.take(said.Described(self.id(do.Describe), found))
        words, before = list[str](), 0.0
        for one, at in zip(done, self.waited or [0.0] * len(done), strict=True):
            what = self._sent[one.id] if isinstance(one, do.BreakOff) else one
            if not isinstance(what, noise):
                words.append(f"{at:g}: " * (at != before) + self._words(one))
                before = at
        return "; ".join(words)

    def _words(self, action: Any) -> str:
        """An action with what matters of it; ids and slot 1's key do not."""
        name = re.sub("(?<!^)(?=[A-Z])", " ", type(action).__name__).lower()
        match action:
            case do.TellSlot(news=news):
                more = [news.state, news.handle, news.detail, news.last_line]
                more += ["preempted" * news.preempted, "final" * news.final]
            case do.BreakOff(id=number):
                more = [type(self._sent[number]).__name__]
            case do.Say(sentence=sentence):
                more = _named(sentence)
            case do.WriteResult(verdict=verdict):
                result = verdict.result
                more = (
                    [result.code, verdict.says, verdict.hint] if result else _named(verdict.failure)
                )
                more += _named(verdict.preempted) if verdict.preempted else []
            case do.End(outcome=outcome):
                refused, fault = outcome.refused, outcome.fault
                more = [refused.code if refused else "", str(outcome.signal or "")]
                if fault is not None:
                    more += ["fault", type(self._sent.get(fault)).__name__]
            case do.Note(handle=handle, gone=gone, whole=whole):
                more = [handle, "gone" * gone, "whole" * whole]
            case Ended(gone=True):
                name, more = "gone", [action.handle, action.over.state if action.over else ""]
            case Ended(stand=stand):
                name, more = "left", [stand.how, stand.state, stand.detail]
            case do.Establish(ground=ground):
                more = [str(ground)]
            case do.CancelRun(reason=reason):
                more = [reason if isinstance(reason, Why) else type(reason).__name__]
            case _:
                names = ("handle", "grace", "after", "wait")
                more = [str(getattr(action, each, "")) for each in names]
        key = getattr(action, "key", Key(1, 1))
        of = "" if key == Key(1, 1) else f"{key.slot}.{key.generation}"
        return " ".join(filter(None, [name, of, *more]))

    def open(self, kind: Kinds[Kind], key: Key | None = None) -> Kind:
        """The action of this kind that is under way; the newest one."""
        return self.all_open(kind, key)[-1]

    def all_open(self, kind: Kinds[Kind], key: Key | None = None) -> list[Kind]:
        found = [
            action for _, action in self.machine.desk.open.values() if isinstance(action, kind)
        ]
        return [action for action in found if key in (None, getattr(action, "key", None))]

    def id(self, kind: Kinds[Any], key: Key | None = None) -> int:
        """Of the newest of this kind that is under way."""
        number: int = self.open(kind, key).id
        return number

    def of(self, kind: type[Kind]) -> list[Kind]:
        """What it has done of this kind so far."""
        return [action for action in self.done if isinstance(action, kind)]

    # --- answers ------------------------------------------------------------------------------

    def answer(self, kind: type[Any], key: Key | None = None) -> list[Action]:
        """The newest of this kind is done."""
        return self.take(said.Done(self.id(kind, key)))

    def refuse(self, kind: Kinds[Any], trouble: Trouble, key: Key | None = None) -> list[Action]:
        """The newest of this kind is refused, or not answered."""
        answer = said.Unanswered if trouble.kind in LATER else said.Refused
        return self.take(answer(self.id(kind, key), trouble))

    def fails(self, kind: type[Any]) -> list[Action]:
        """The newest of this kind fails as nobody expected."""
        return self.take(said.PartFailed(self.id(kind), "KeyError('x')"))

    def status(self, *slots: SlotStatus, **more: Any) -> list[Action]:
        """The status that is asked for comes."""
        return self.came(status(*slots, **more))

    def came(self, found: RunStatus) -> list[Action]:
        return self.take(said.StatusCame(self.id(do.AskStatus), found))

    def cancelled(self, found: RunStatus) -> list[Action]:
        """The registry answers to the cancel of the run."""
        return self.take(said.StatusCame(self.id(do.CancelRun), found))

    def submitted(self, key: Key, handle: str) -> list[Action]:
        return self.take(said.Submitted(self.id(do.Submit, key), key, handle))

    def kept(self) -> list[Action]:
        """The features' parts have ended."""
        return self.answer(do.RunFeatures)

    def submit_failed(
        self,
        key: Key,
        words: str = "full",
        *,
        certain: bool = False,
        hint: str = "",
        final: bool = False,
        no_host: bool = False,
    ) -> list[Action]:
        """The scheduler does not have it, or has not said so."""
        number = self.id(do.Submit, key)
        return self.take(said.SubmitFailed(number, key, certain, words, hint, final, no_host))

    def found(self, key: Key, handle: str | None) -> list[Action]:
        return self.take(said.Found(self.id(do.Find, key), handle))

    def described(self, key: Key, state: SlotState, detail: str = "") -> list[Action]:
        return self.take(said.Described(self.id(do.Describe, key), Description(state, detail)))

    def scheduler_silent(self, kind: Kinds[Any], words: str) -> list[Action]:
        return self.take(said.SchedulerSilent(self.id(kind), words))

    def signal(self, number: int = 15) -> list[Action]:
        return self.take(said.SignalCame(number))

    # --- the way ------------------------------------------------------------------------------

    def begin(self) -> Drive:
        """Up to the ground."""
        self.take(said.Begin())
        return self

    def following(self) -> Drive:
        """Up to the first status."""
        self.begin().answer(do.Establish)
        self.answer(do.CreateRun)
        return self

    def submitting(self, *keys: Key) -> Drive:
        """Up to the submission of these."""
        self.following().status(*(slot(key.slot, 0, key.generation) for key in keys))
        for key in keys:
            self.answer(do.TellSlot, key)
            if self.all_open(do.WriteIntent, key):
                self.answer(do.WriteIntent, key)
        return self

    def running(self, *keys: Key) -> Drive:
        """Up to the first description of these: they run."""
        self.submitting(*keys)
        for key in keys:
            if self.all_open(do.WriteIntent, key):
                self.answer(do.WriteIntent, key)
            self.submitted(key, str(100 + key.slot))
            self.answer(do.TellSlot, key)
            self.described(key, SlotState.RUNNING)
            self.answer(do.TellSlot, key)
        return self

    def ending(self, *keys: Key) -> Drive:
        """Up to the end of these: the run is over, and its nodes have left."""
        self.running(*keys).end(*(slot(key.slot, key.generation, key.generation) for key in keys))
        return self

    def end(self, *slots: SlotStatus, **more: Any) -> list[Action]:
        """The run is over, its nodes have left, and the last metrics and events have come."""
        self.came(over(*slots, **more))
        self.kept()
        if self.all_open(do.FollowEvents):
            self.take(said.EventsOver(self.id(do.FollowEvents), 9, broken=False))
        return self.last


COMMON: Steps = {
    "begin": lambda drive, _: drive.begin().last,
    "made": lambda drive, _: drive.answer(do.Establish),
    "created": lambda drive, _: drive.answer(do.CreateRun),
    "closed": lambda drive, _: drive.answer(do.CloseChild),
    "signal": lambda drive, _: drive.signal(),
    "hang-up": lambda drive, _: drive.signal(1),
    "dies": lambda drive, _: drive.take(said.ChildEnded(drive.id(do.StartChild), 1, "no room")),
    "end": lambda drive, _: drive.end(),
    "uncancelled": lambda drive, _: drive.refuse(do.CancelRun, SILENT),
    "events-fail": lambda drive, _: drive.fails(do.FollowEvents),
    "heard": lambda drive, key: drive.answer(do.TellSlot, key),
    "found": lambda drive, key: drive.found(key, "101"),
    "missed": lambda drive, key: drive.found(key, None),
    "told": lambda drive, _: drive.take(said.RunTold(drive.id(do.CancelWorkerRun))),
}
"""Steps of every script."""
