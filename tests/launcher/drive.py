"""A launch step by step: what it asks of its outer world waits for the test's answer.

The launch is the real one, on a clock that jumps. A script is a row of answers and of seconds that
pass; what the launch has done since the last one is told in words, in the order in which it did it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar
from unittest.mock import patch

from launcher.launch import following
from launcher.launch.launch import Launch
from launcher.schedulers.contract import NothingSubmitted
from launcher.schedulers.description import Description
from rendezvous.wire import errors
from rendezvous.wire.run import NodeState, Phase, Result, RunStatus, SlotState, SlotStatus
from tests.launcher.outer import ONE, Facts, Former, Key, Kinds, Left, Outer, Told

SILENT = errors.Unavailable("nobody answers", hint="try")
NOT_NOW = errors.Unavailable("no database", hint="try")
NOT_NOW.told = True
FULL = errors.StorageFull("the disk is full", hint="make room")
FOREIGN = errors.NotFound("no such run")
UNEXPECTED = KeyError("x")


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


def says(sentence: str) -> str:
    """What is told of a sentence."""
    return "say " + sentence.replace(";", "|")


Step = RunStatus | tuple[Kinds, Any] | Callable[["Drive", Key], object]
"""A status that comes, the answer to the newest call of a kind, or what is done."""
Steps = Mapping[str, Step]
OF_WORKER_RUNS = ("tell slot", "submit", "find")
"""The answers that are for the worker run of which a step is."""
NOISE = ("show", "show event", "run features", "listen", "write record")
"""What is done at every turn or by every launch, and is no part of what a script leads to."""
QUIET = (*NOISE, "ask status")


class Drive(Outer):
    """A launch, its outer world, and what it has done.

    Attributes:
        over: How the run stands once it has ended.
    """

    alive: ClassVar[list[Drive]] = []

    def __init__(self, of: Facts | None = None, former: Former | None = None, *left: Left) -> None:
        """One that has not begun; with what a former launcher has left."""
        super().__init__(of or Facts(), former, left)
        self.over = over()
        self._task: asyncio.Task[None] | None = None
        self.alive.append(self)

    @staticmethod
    def at(start: str) -> Drive:
        """One that is so far, with slot 1 where it has worker runs."""
        drive = Drive()
        getattr(drive, start)(*[ONE] * (start not in ("begin", "following")))
        return drive

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
            assert self.unclosed == [], "all is closed"
            assert self.of("close board"), "the board as well"
            assert all(one.done() for one in self.loop._tasks), "and nothing goes on"
        return self.told[before:]

    wait = turn

    def play(
        self, script: str, steps: Steps, noise: tuple[str, ...] = NOISE, then: str = ""
    ) -> str:
        """What is done at the script's last step; as time passes, with the seconds until then.

        A step is a name, a number of seconds that pass, or a state as which a worker run is
        described, and its detail; a 2 or 3 behind a name: that of the slot's second or third
        generation, a ! behind a state: it is preempted. Three dots in what is expected stand for
        the rest of a sentence, whose semicolons are told as bars.
        """
        steps, began, before = {**COMMON, **steps}, self.now, len(self.told)
        for word in script.split():
            name, _, detail = word.partition(":")
            began, before = self.now, len(self.told)
            if name in steps:
                self._take(steps[name], ONE)
            elif name[0].isdigit():
                self.wait(float(name))
            elif name[-1].isdigit():
                self._take(steps[name[:-1]], Key(1, int(name[-1])))
            else:
                state = SlotState(name.rstrip("!"))
                self.described(None, state, detail, preempted=name.endswith("!"))
        done = self._in_words(before, began, noise)
        is_like = re.fullmatch(re.escape(then).replace(re.escape("..."), "[^;]*"), done)
        return then if is_like else done

    def _take(self, step: Step, key: Key) -> None:
        if isinstance(step, RunStatus):
            self.answer("ask status", step)
        elif isinstance(step, tuple):
            kind, to = step
            self.answer(kind, to, key if kind in OF_WORKER_RUNS else None)
        else:
            step(self, key)

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

    def answer(
        self, kind: Kinds, to: Any = None, key: Key | None = None, drawn: float | None = None
    ) -> list[Told]:
        """The newest call of this kind is answered, by an error where that is one; pauses are made
        of the number that is drawn."""
        self.drawn = self.drawn if drawn is None else drawn
        answer = self.open(kind, key).answer
        if isinstance(to, Exception):
            answer.set_exception(to)
        else:
            answer.set_result(to)
        return self.turn()

    def status(self, *slots: SlotStatus, **more: Any) -> list[Told]:
        """The status that is asked for comes."""
        return self.answer("ask status", status(*slots, **more))

    def heard(self, key: Key | None = None) -> list[Told]:
        """The registry has heard of a worker run."""
        return self.answer("tell slot", status(), key)

    def described(
        self, key: Key | None, state: SlotState, detail: str = "", **more: Any
    ) -> list[Told]:
        """Its scheduler says how it stands."""
        return self.answer("describe", Description(state, detail, **more), key)

    def signal(self, number: int = 15, **how: bool) -> list[Told]:
        """A signal comes."""
        self.loop.call_soon(partial(self._on_signal[0], number, **how))
        return self.turn()

    # --- the way ------------------------------------------------------------------------------

    def begin(self) -> Drive:
        """Up to the first thing that is asked."""
        self._task = self.loop.create_task(self._go())
        self.turn()
        return self

    async def _go(self) -> None:
        """The launch, to its end."""
        try:
            outcome = await Launch(self.prepared, self.folder, self.board(), self).go()
            words = str(outcome.signal or "")
        except errors.RdzvError as exc:
            words = exc.code
        except Exception as exc:  # noqa: BLE001 (it is told)
            words = repr(exc)
        self.tell("end", None, words)

    def following(self) -> Drive:
        """Up to the first status."""
        self.begin().answer("create run", status())
        return self

    def resumed(self, *slots: SlotStatus, **more: Any) -> Drive:
        """Up to what the first status of a launch that is taken up again leads to."""
        self.begin().status(*slots, **more)
        self.answer("create run", status())
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
            self.answer("submit", str(100 + key.slot), key)
            self.heard(key)
            self.described(key, SlotState.RUNNING)
            self.heard(key)
        return self

    def ending(self, *keys: Key) -> Drive:
        """Up to the end of these: the run is over, and its nodes have left."""
        self.running(*keys).end(*(slot(key.slot, key.generation, key.generation) for key in keys))
        return self

    def end(self, *slots: SlotStatus, **more: Any) -> None:
        """The run is over, its nodes have left, and the last metrics and events have come."""
        self.over = over(*slots, **more)
        self.answer("ask status", self.over)
        for kind, to in (("run features", None), ("follow events", (9, False))):
            if self.all_open(kind):
                self.answer(kind, to)


def ends(how: Result, *slots: SlotStatus) -> Step:
    """A step: it ends like this."""
    return lambda drive, _: drive.end(*slots, result=how)


COMMON: Steps = {
    "begin": lambda drive, _: drive.begin(),
    "created": ("create run", status()),
    "closed": ("close child", None),
    "signal": lambda drive, _: drive.signal(),
    "ctrl-c": lambda drive, _: drive.signal(2),
    "sigint": lambda drive, _: drive.signal(2, pressed=False),
    "hang-up": lambda drive, _: drive.signal(1),
    "dies": ("start child", 1),
    "end": lambda drive, _: drive.end(),
    "uncancelled": ("cancel run", SILENT),
    "events-fail": ("follow events", UNEXPECTED),
    "heard": ("tell slot", status()),
    "found": ("find", "101"),
    "missed": ("find", None),
    "told": ("cancel worker run", None),
    "submitted": ("submit", "101"),
    "refused": ("submit", NothingSubmitted("no")),
    "unclear": ("submit", errors.SchedulerError("error 500")),
    "unwanted": ("tell slot", errors.RunOver("the run is over")),
    "forgets": ("ask status", FOREIGN),
    "cancelled-left": ("cancel run", status(everyone_left=True)),
    "node-lost": ends(result("node_lost", 86, slot=1)),
    "silent": (("find", "describe"), errors.SchedulerError("error 500")),
}
"""Steps of every script."""
