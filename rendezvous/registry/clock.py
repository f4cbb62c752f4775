"""The registry's own clock: it stands still while the registry is down, or stalled."""

from __future__ import annotations

from collections.abc import Callable

from rendezvous.run.leases import SWEEP_SECONDS

_STALL_SECONDS = 1.0
_MOMENT = 0.001


class RegistryClock:
    """Seconds that the registry was up and awake, in all of its processes.

    The sweep looks at the clock all the time; when nobody has for so long, the process was stopped,
    suspended or starved: what nodes have said meanwhile still waits to be read, and neither a lease
    nor a time-out may run out of it.

    Args:
        clock: Monotonic seconds.
        on_stall: Called when the registry goes on after a stall.
    """

    def __init__(self, clock: Callable[[], float], on_stall: Callable[[], None]) -> None:
        self._clock = clock
        self._on_stall = on_stall
        self._zero = self._looked = clock()
        self._before = 0.0
        self._woke = self._stalled = float("-inf")
        self._held: float | None = None

    def restart(self, latest: float) -> None:
        """Go on where the clock of the process before this one was last seen."""
        self._zero = self._looked = self._woke = self._clock()
        self._before = latest

    def hold(self) -> None:
        """Stand still until `go_on`: nothing can be decided meanwhile."""
        self._held = self.now()

    def go_on(self) -> None:
        """No time has passed since `hold`."""
        if self._held is not None:
            self._before, self._held = self._held, None
            self._zero = self._looked = self._woke = self._stalled = self._clock()
            self._on_stall()

    def now(self) -> float:
        """The seconds."""
        clock = self._clock()
        if self._held is not None:
            self._looked = clock
            return self._held
        late = clock - self._looked - SWEEP_SECONDS
        if late > _STALL_SECONDS:
            self._zero += late
            self._woke = self._stalled = clock
            self._on_stall()
        self._looked = clock
        return self._before + (clock - self._zero)

    def awake_seconds(self) -> float:
        """Since the registry's last stall; without end when there was none."""
        return self._clock() - self._stalled

    def own_age(self, age: float) -> float:
        """An age that a node has measured, when this clock may have stood still meanwhile.

        What happened before it went on happened right then, in its own order.
        """
        awake = self._clock() - self._woke
        return age if age <= awake else max(0.0, awake - _MOMENT / (1 + age - awake))
