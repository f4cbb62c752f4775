"""The edge of a pure machine: an inbox, a timer, and one task for each effect under way.

A machine decides (`step`), its shell acts. What an action does is an *effect*: it is started here
under the id that the machine gave it, and what comes of it is fed to the machine as one input. The
shell holds no rule: whether to try again, what comes first and when to give up, the machine says.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

Input = TypeVar("Input")
Action = TypeVar("Action")


class Shell(Generic[Input, Action]):
    """Feeds one machine and carries out what it decides; the clock is the running loop's.

    Inputs are taken in one at a time, in the order in which they came.

    Args:
        step: Takes in an input at a time; returns what is to be done, in order.
        due: When the machine wants to look at its clock again; None: not before the next input.
        tick: The input that says nothing but what time it is.
        act: Carries out one action: it starts an effect, or does something that cannot fail.
        broken: The input for an effect that raised what nobody expected.
    """

    def __init__(
        self,
        step: Callable[[Input, float], Sequence[Action]],
        due: Callable[[], float | None],
        *,
        tick: Input,
        act: Callable[[Action], None],
        broken: Callable[[int, Exception], Input],
    ) -> None:
        self._step = step
        self._due = due
        self._tick = tick
        self._act = act
        self._broken = broken
        self._inbox: deque[Input] = deque()
        self._effects: dict[int, asyncio.Task[Any]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._fed = False
        self._closed = False

    def feed(self, said: Input) -> None:
        """Have the machine take this in soon."""
        self._inbox.append(said)
        if not self._fed and not self._closed:
            self._fed = True
            asyncio.get_running_loop().call_soon(self._take_in)

    def start(self, number: int, work: Coroutine[Any, Any, Input | None]) -> None:
        """Begin an effect; the machine is fed what it returns, unless that is None."""
        task = self._effects[number] = asyncio.create_task(work)
        task.add_done_callback(partial(self._ended, number))

    def drop(self, number: int) -> None:
        """Break an effect off, if it is under way: the machine hears no more of it."""
        if (task := self._effects.pop(number, None)) is not None:
            task.cancel()

    async def close(self) -> None:
        """Break everything off, and wait until it has ended; no input is taken in any more."""
        self._closed = True
        self._inbox.clear()
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._effects.values())
        for number in list(self._effects):
            self.drop(number)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, number: int, task: asyncio.Task[Any]) -> None:
        if self._effects.get(number) is not task:  # it was dropped
            if not task.cancelled():
                task.exception()
            return
        del self._effects[number]
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Exception):
            self.feed(self._broken(number, error))
        elif error is not None:
            raise error
        elif (said := task.result()) is not None:
            self.feed(said)

    def _take_in(self) -> None:
        clock = asyncio.get_running_loop().time
        self._fed = False
        while self._inbox and not self._closed:
            for action in self._step(self._inbox.popleft(), clock()):
                self._act(action)
        if not self._closed:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (due := self._due()) is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(due, self.feed, self._tick)
