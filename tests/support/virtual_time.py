"""An event loop on a virtual clock, and machines on it that can be paused and killed.

When nothing is ready the clock jumps to the next timer. Everything that a machine does (its tasks,
timers and callbacks) carries the machine in its context: while the machine is paused it is held
back, and once the machine is killed it never runs, whatever the code meant to do on its way out.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
import traceback
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from heapq import heappop, heappush
from typing import Any, TypeVar

from rendezvous.wire.errors import RdzvError

_MACHINE: contextvars.ContextVar[Machine] = contextvars.ContextVar("machine")
_MOST_STEPS = 1_000_000
_MOST_WAITS = 20

T = TypeVar("T")


class _Future(asyncio.Future[Any]):
    """A future whose place in a set does not depend on its address in memory."""

    __slots__ = ("number",)
    number: int

    def __hash__(self) -> int:
        return self.number


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address in memory."""

    __slots__ = ("number",)

    def __init__(self, coro: Any, *, loop: VirtualLoop, **options: Any) -> None:
        loop.numbers += 1
        self.number = loop.numbers
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self.number


class _Handle(asyncio.TimerHandle):
    """What happens soon or later: the base class without all that it has for debugging."""

    __slots__ = ()
    _context: contextvars.Context
    _callback: Any
    _args: Any
    _cancelled: bool
    _when: float

    def __init__(
        self, callback: Any, args: tuple[Any, ...], context: contextvars.Context | None
    ) -> None:
        self._callback = callback
        self._args = args
        self._context = contextvars.copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        """See the base class."""
        self._cancelled = True
        self._callback = self._args = None


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop whose clock is a number."""

    _ready: deque[_Handle]

    def __init__(self, unexpected: Callable[[str], None]) -> None:
        super().__init__()
        self._now = 0.0
        self.numbers = 0
        """Of futures and tasks."""
        self._timers_made = 0
        self.unexpected = unexpected
        self.steps = 0
        self.halted = False
        self.nobody = contextvars.Context()
        self._tasks: list[asyncio.Task[Any]] = []
        self._generators: list[AsyncGenerator[Any, Any]] = []
        self._timers: list[tuple[float, int, _Handle]] = []

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    # The base class's own look at more than there is here; half of all that happens is these.

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """See the base class."""
        handle = _Handle(callback, args, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """See the base class. Of the same moment, the first that was asked for is the first."""
        timer = _Handle(callback, args, context)
        timer._when = when
        self._timers_made += 1
        heappush(self._timers, (when, self._timers_made, timer))
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """See the base class; `call_at` written out, as half of all timers are these."""
        timer = _Handle(callback, args, context)
        timer._when = when = self._now + delay
        self._timers_made += 1
        heappush(self._timers, (when, self._timers_made, timer))
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        """See the base class."""
        future = _Future(loop=self)
        self.numbers += 1
        future.number = self.numbers
        return future

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """See the base class. All are kept, so that nothing is collected on the way."""
        task = _Task(coro, loop=self, **options)
        self._tasks.append(task)
        return task

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., Any], *args: Any
    ) -> None:
        """See the base class: of the machine that asks for it."""
        context = contextvars.copy_context()
        machine = context[_MACHINE]
        machine.handlers[sig] = _Handle(callback, args, context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Futures that nobody looks at any more are no news."""

    def drive(self, until: float) -> None:
        """Let everything happen up to this time, or until it is halted."""
        asyncio._set_running_loop(self)
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._generators.append)
        ready = self._ready
        try:
            while not self.halted and (ready or self._advance(until)):
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                context = handle._context
                machine = context.get(_MACHINE)
                if machine is not None and not machine.goes_on and not machine.takes(handle):
                    continue
                self.steps += 1
                try:
                    context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as exc:  # noqa: BLE001 (whatever it is, it is a finding)
                    self.unexpected(f"Exception in callback {handle._callback}: {exc!r}")
                if self.steps > _MOST_STEPS:
                    self.unexpected("it does not come to rest")
                    return
            if not self.halted:
                self._now = max(self._now, until)
        finally:
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(None)

    def _advance(self, until: float) -> bool:
        """Jump to the next timer; False when there is none."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        if not timers or timers[0][0] > until:
            return False
        self._now = now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= now:
            self._ready.append(heappop(timers)[2])
        return True

    def dispose(self) -> None:
        """End what still waits, without letting it say anything."""
        asyncio._set_running_loop(self)  # else what ends asks for one, and gets a real one
        try:
            self._close_tasks()
        finally:
            asyncio._set_running_loop(None)
        self._tasks.clear()
        self._ready.clear()
        self._timers.clear()
        self.close()

    def _close_tasks(self) -> None:
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine = task.get_coro()
                assert coroutine is not None
                with contextlib.suppress(Exception):
                    coroutine.close()
        for generator in self._generators:
            _end(generator)
        self._generators.clear()


def _end(generator: AsyncGenerator[Any, Any]) -> None:
    """End what one waits for, and what that waits for on its way out: else nobody does."""
    inner = generator.ag_await  # type: ignore[attr-defined]
    for _ in range(_MOST_WAITS):
        if not hasattr(inner, "close"):
            return
        with contextlib.suppress(RuntimeError):
            inner.close()
            return


class Machine:
    """A process on the loop: paused, it does nothing and goes on later; killed, it is no more."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.goes_on = True
        self._loop = loop
        self._held: list[_Handle] = []
        self.handlers: dict[int, _Handle] = {}
        """Of signals, by number."""
        self.context = contextvars.Context()
        self.context.run(_MACHINE.set, self)

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Let the machine do this; nothing but what rdzv refuses may go wrong with it."""
        task = self.context.copy().run(self._loop.create_task, work)
        task.add_done_callback(self._check)
        return task

    def _check(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, RdzvError):
            self._loop.unexpected(f"{self.name}: {''.join(traceback.format_exception(error))}")

    def takes(self, handle: _Handle) -> bool:
        """Whether the machine may do this now; a paused one will later."""
        if self.alive and self.paused:
            self._held.append(handle)
        return self.alive and not self.paused

    def signal(self, number: int) -> bool:
        """Send it a signal; whether it has a handler for that. What else happens is up to you."""
        handler = self.handlers.get(number)
        if handler is not None and self.alive:
            self._loop._ready.append(handler)
        return handler is not None

    def pause(self) -> None:
        """Stop it; it does not know."""
        self.paused, self.goes_on = True, False

    def go_on(self) -> None:
        """Let it go on where it was: what should have happened meanwhile happens now."""
        self.paused, self.goes_on = False, self.alive
        self._loop._ready.extend(self._held)
        self._held.clear()

    def kill(self) -> None:
        """End it between two steps."""
        self.alive = self.goes_on = False
        self._held.clear()
        self.handlers.clear()


def run_virtually(work: Coroutine[Any, Any, T], most_seconds: float = 3_600.0) -> T:
    """What this comes to on a clock that jumps to whatever is next."""
    wrong: list[str] = []
    loop = VirtualLoop(wrong.append)
    task: asyncio.Task[T] = loop.create_task(work)
    loop.drive(most_seconds)
    try:
        assert wrong == []
        assert task.done(), f"it goes on for more than {most_seconds} s"
        return task.result()
    finally:
        loop.dispose()


def now() -> float:
    """The time of the loop that runs, in seconds."""
    return asyncio.get_running_loop().time()


async def forever() -> None:
    """Never come back: for code of a machine that was killed within a step."""
    await asyncio.get_running_loop().create_future()
