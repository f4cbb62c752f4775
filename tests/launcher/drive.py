"""A launch step by step: what it asks of its outer world waits for the test's answer.

The launch is the real one, on a clock that jumps. A script is a row of answers and of seconds that
pass; what the launch has done since the last one is told in words, in the order in which it did it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, ClassVar
from unittest.mock import patch

from launcher.launch import following
from launcher.launch.launch import Launch
from launcher.schedulers.contract import NothingSubmitted
from launcher.schedulers.description import Description
from rendezvous.wire.errors import (
    NotFound,
    RdzvError,
    RunOver,
    SchedulerError,
    StorageFull,
    Unavailable,
)
from rendezvous.wire.run import (
    NodeState,
    Phase,
    Result,
    RunStatus,
    SlotState,
    SlotStatus,
)
from tests.launcher.outer import ONE, Facts, Former, Key, Kinds, Left, Outer, Told, Troubled

SILENT = Unavailable("nobody answers", hint="try")
NOT_NOW = Unavailable("no database", hint="try")
NOT_NOW.told = True
FULL = StorageFull("the disk is full", hint="make room")
OVER = RunOver("the run is over")
FOREIGN = NotFound("no such run")


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


Steps = dict[str, Callable[["Drive", Key], object]]
NOISE = ("show", "show event", "run features", "listen", "write record")
"""What is done at every turn or by every launch, and is no part of what a script leads to."""
QUIET = (*NOISE, "ask status")


class Drive(Outer):
    """A launch, its outer world, and what it has done.

    Attributes:
        launch: The launch, once it has begun.
    """

    alive: ClassVar[list[Drive]] = []

    def __init__(self, what: Facts, former: Former | None, left: tuple[Left, ...]) -> None:
        super().__init__(what, former, left)
        self.launch: Launch | None = None
        self._task: asyncio.Task[None] | None = None
        self.alive.append(self)

    @staticmethod
    def new(of: Facts | None = None, former: Former | None = None, *left: Left) -> Drive:
        """One that has not begun; with what a former launcher has left."""
        return Drive(of or Facts(), former, left)

    @classmethod
    def dispose_all(cls) -> None:
        """End what is left of the drives of a test."""
        for drive in cls.alive:
            drive.loop.dispose()
        cls.alive.clear()

    # --- turns --------------------------------------------------------------------------------

    def turn(self, seconds: float = 0.0) -> list[Told]:
        """Let everything happen that may, for so long; returns what was done."""
        before = len(self.told)
        with patch.object(following, "run_features", lambda port: self.ask("run features")):
            self.loop.drive(self.now + seconds)
        if self._task is not None and self._task.done():
            self._task.result()
            assert self.calls == [], "nothing of it waits any more"
            assert all(one.done() for one in self.loop._tasks), "and nothing goes on"
        return self.told[before:]

    wait = turn

    def play(
        self, script: str, steps: Steps, noise: tuple[str, ...] = NOISE, then: str = ""
    ) -> str:
        """What is done at the script's last step; as time passes, with the seconds until then.

        A step is a name, a number of seconds that pass, or a state as which a worker run is
        described, and its detail; a 2 behind a name: that of the slot's second generation, a !
        behind a state: it is preempted. Three dots in what is expected stand for the rest of a
        sentence, whose semicolons are told as commas.
        """
        steps, began, before = COMMON | steps, self.now, len(self.told)
        for word in script.split():
            name, _, detail = word.partition(":")
            began, before = self.now, len(self.told)
            if name in steps:
                steps[name](self, ONE)
            elif name[0].isdigit():
                self.wait(float(name))
            elif name.endswith("2"):
                steps[name[:-1]](self, Key(1, 2))
            else:
                state = SlotState(name.rstrip("!"))
                self.answer("describe", None, Description(state, detail, name.endswith("!")))
        done = self._in_words(before, began, noise)
        is_like = re.fullmatch(re.escape(then).replace(re.escape("..."), "[^;]*"), done)
        return then if is_like else done

    def _in_words(self, since: int, began: float, noise: tuple[str, ...]) -> str:
        words, before = list[str](), 0.0
        for one in self.told[since:]:
            if one.kind not in noise:
                at = round(one.at - began, 3)
                words.append(f"{at:g}: " * (at != before) + one.words)
                before = at
        return "; ".join(words)

    def open_keys(self, kind: Kinds) -> list[Key | None]:
        """Whose calls of this kind wait, in the order in which they were made."""
        return [one.key for one in self.all_open(kind)]

    def of(self, kind: str) -> list[Told]:
        """What was done of this kind so far, and not broken off."""
        return [one for one in self.told if one.kind == kind and "break off" not in one.words]

    def said(self) -> list[str]:
        """All sentences so far."""
        return [one.of for one in self.of("say")]

    # --- answers ------------------------------------------------------------------------------

    def answer(self, kind: Kinds, key: Key | None = None, to: Any = None) -> list[Told]:
        """The newest call of this kind is answered, by an error where that is one."""
        answer = self.open(kind, key).answer
        if isinstance(to, Exception):
            answer.set_exception(to)
        else:
            answer.set_result(to)
        return self.turn()

    def refuse(
        self, kind: Kinds, error: RdzvError, key: Key | None = None, drawn: float = 0.0
    ) -> list[Told]:
        """It is refused, or not answered; pauses are made of the number that is drawn."""
        self.drawn = drawn
        return self.answer(kind, key, error)

    def fails(self, kind: Kinds) -> list[Told]:
        """The newest of this kind fails as nobody expected."""
        return self.answer(kind, None, KeyError("x"))

    def status(self, *slots: SlotStatus, **more: Any) -> list[Told]:
        """The status that is asked for comes."""
        return self.came(status(*slots, **more))

    def came(self, found: RunStatus) -> list[Told]:
        """This status comes."""
        return self.answer("ask status", None, found)

    def cancelled(self, found: RunStatus) -> list[Told]:
        """The registry answers to the cancel of the run."""
        return self.answer("cancel run", None, found)

    def heard(self, key: Key | None = None) -> list[Told]:
        """The registry has heard of a worker run."""
        return self.answer("tell slot", key, status())

    def events(self, number: int, *, broken: bool) -> list[Told]:
        """The events have ended behind this one."""
        return self.answer("follow events", None, (number, broken))

    def submitted(self, key: Key | None, handle: str) -> list[Told]:
        """Its scheduler has it."""
        return self.answer("submit", key, handle)

    def submit_troubled(self, key: Key, words: str) -> list[Told]:
        """A try has failed, and there may be another; no words: others have said it."""
        return self.answer("submit", key, Troubled(words))

    def submit_failed(
        self, key: Key, words: str = "full", *, certain: bool = False, hint: str = "", **more: Any
    ) -> list[Told]:
        """The scheduler does not have it, or has not said so."""
        kind = NothingSubmitted if certain else SchedulerError
        return self.answer("submit", key, kind(words, hint=hint, **more))

    def found(self, key: Key | None, handle: str | None) -> list[Told]:
        """It is listed with this id, or not listed."""
        return self.answer("find", key, handle)

    def described(
        self, key: Key | None, state: SlotState, detail: str = "", **more: Any
    ) -> list[Told]:
        """Its scheduler says how it stands."""
        return self.answer("describe", key, Description(state, detail, **more))

    def scheduler_silent(self, kind: Kinds, words: str) -> list[Told]:
        """It does not answer, or cannot do it."""
        return self.answer(kind, None, SchedulerError(words))

    def signal(self, number: int = 15) -> list[Told]:
        """A signal comes."""
        self.loop.call_soon(self._on_signal[0], number)
        return self.turn()

    # --- the way ------------------------------------------------------------------------------

    def begin(self) -> Drive:
        """Up to the first thing that is asked."""
        self._task = self.loop.create_task(self._go())
        self.turn()
        return self

    async def _go(self) -> None:
        """The launch, to its end."""
        self.launch = Launch(self.prepared, self.folder, self.board(), self)
        try:
            outcome = await self.launch.go()
            words = str(outcome.signal or "")
        except RdzvError as exc:
            words = exc.code
        except Exception as exc:  # noqa: BLE001 (it is told)
            words = repr(exc)
        self.tell("end", None, words)

    def following(self) -> Drive:
        """Up to the first status."""
        self.begin().answer("create run", None, status())
        return self

    def resumed(self, *slots: SlotStatus, **more: Any) -> Drive:
        """Up to what the first status of a launch that is taken up again leads to."""
        self.begin().status(*slots, **more)
        self.answer("create run", None, status())
        self.status(*slots, **more)
        return self

    def submitting(self, *keys: Key) -> Drive:
        """Up to the submission of these."""
        self.following().status(*(slot(key.slot, 0, key.generation) for key in keys))
        for key in keys:
            self.heard(key)
        return self

    def running(self, *keys: Key) -> Drive:
        """Up to the first description of these: they run."""
        self.submitting(*keys)
        for key in keys:
            self.submitted(key, str(100 + key.slot))
            self.heard(key)
            self.described(key, SlotState.RUNNING)
            self.heard(key)
        return self

    def ending(self, *keys: Key) -> Drive:
        """Up to the end of these: the run is over, and its nodes have left."""
        self.running(*keys).end(*(slot(key.slot, key.generation, key.generation) for key in keys))
        return self

    def end(self, *slots: SlotStatus, **more: Any) -> list[Told]:
        """The run is over, its nodes have left, and the last metrics and events have come."""
        before = len(self.told)
        self.came(over(*slots, **more))
        for kind, to in (("run features", None), ("follow events", (9, False))):
            if self.all_open(kind):
                self.answer(kind, None, to)
        return self.told[before:]


COMMON: Steps = {
    "begin": lambda drive, _: drive.begin(),
    "created": lambda drive, _: drive.answer("create run", None, status()),
    "closed": lambda drive, _: drive.answer("close child"),
    "signal": lambda drive, _: drive.signal(),
    "hang-up": lambda drive, _: drive.signal(1),
    "dies": lambda drive, _: drive.answer("start child", None, 1),
    "end": lambda drive, _: drive.end(),
    "uncancelled": lambda drive, _: drive.refuse("cancel run", SILENT),
    "events-fail": lambda drive, _: drive.fails("follow events"),
    "heard": lambda drive, key: drive.heard(key),
    "found": lambda drive, key: drive.found(key, "101"),
    "missed": lambda drive, key: drive.found(key, None),
    "told": lambda drive, _: drive.answer("cancel worker run"),
}
"""Steps of every script."""
