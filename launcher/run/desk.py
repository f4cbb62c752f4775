"""The desk of a machine: what it has under way, when it looks again, what it does next. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

from launcher.run.actions import Action, Answerable, BreakOff

Rest = ParamSpec("Rest")
Sent = TypeVar("Sent", bound=Answerable)

_STEADY_SECONDS, _MORE_SECONDS = 0.2, 0.3


def retry_pause(jitter: float) -> float:
    """Seconds before the next try: steady, with jitter in 0 to 1."""
    return _STEADY_SECONDS + _MORE_SECONDS * jitter


@dataclass(slots=True)
class Desk:
    """Shared by the machine and its parts; every call but `drop` costs O(log n) at most.

    Attributes:
        sent: Counts the actions that are answered.
        open: Those that are under way, by id, each with the owner of its answer.
        times: When each owner looks again, by name.
        out: What this step does, in order.
    """

    sent: int = 0
    open: dict[int, tuple[Any, Answerable]] = field(default_factory=dict)
    times: dict[Hashable, tuple[float, int]] = field(default_factory=dict)
    out: list[Action] = field(default_factory=list)
    _heap: list[tuple[float, int, Hashable]] = field(default_factory=list)
    _set: int = 0

    def send(
        self,
        owner: Hashable,
        kind: Callable[Concatenate[int, Rest], Sent],
        *args: Rest.args,
        **more: Rest.kwargs,
    ) -> int:
        """Do something that is answered; returns its id."""
        self.sent += 1
        action = kind(self.sent, *args, **more)
        self.open[self.sent] = owner, action
        self.out.append(action)
        return self.sent

    def do(self, action: Action) -> None:
        """Do something that is not answered."""
        self.out.append(action)

    def close(self, number: int) -> tuple[Any, Answerable] | None:
        """An answer came: its owner and the action; None for one that nobody waits for."""
        return self.open.pop(number, None)

    def has_open(self, *owners: Hashable) -> bool:
        """Whether an answer to one of these is awaited."""
        return any(owner in owners for owner, _ in self.open.values())

    def break_off(self, number: int | None) -> None:
        """End what is under way; None or an unknown id: nothing."""
        if number is not None and self.open.pop(number, None) is not None:
            self.out.append(BreakOff(number))

    def drop(self, *owners: Hashable) -> None:
        """Nothing is asked for these any more, now or later."""
        for owner in owners:
            for number in [n for n, (asked_by, _) in self.open.items() if asked_by == owner]:
                self.break_off(number)
            self.forget(owner)

    def flush(self) -> list[Action]:
        """What this step does."""
        out, self.out = self.out, []
        return out

    # --- times --------------------------------------------------------------------------------

    def look_at(self, name: Hashable, at: float) -> None:
        """Look again at this time, in place of what was wished before."""
        self._set += 1
        self.times[name] = at, self._set
        heapq.heappush(self._heap, (at, self._set, name))

    def forget(self, name: Hashable) -> None:
        """Do not look again."""
        self.times.pop(name, None)

    def due(self) -> float | None:
        """The next time; None when there is none."""
        while self._heap:
            at, number, name = self._heap[0]
            if self.times.get(name) == (at, number):
                return at
            heapq.heappop(self._heap)
        return None

    def next_due(self, now: float) -> Hashable | None:
        """A name whose time has come, which is forgotten; None when there is none."""
        at = self.due()
        if at is None or at > now:
            return None
        _, _, name = heapq.heappop(self._heap)
        del self.times[name]
        return name
