"""How long each start of a run's programs takes, from phase to phase. Pure."""

from __future__ import annotations

from rendezvous.frozen import frozen
from rendezvous.wire.run import Phase


@frozen
class Start:
    """A start of the programs that reached the go.

    Attributes:
        again: Whether programs of an earlier epoch ended for it.
        seconds: How long it was in each phase, in all of its attempts.
    """

    again: bool
    seconds: dict[Phase, float]


class StartTimes:
    """The starts of one run. It follows each change of the run, that of the journal too."""

    def __init__(self, now: float) -> None:
        self._phase, self._since = Phase.GATHERING, now
        self._seconds: dict[Phase, float] = {}
        self._starts: list[Start] = []
        self._has_started = self._ended = False

    def moved(self, phase: Phase, now: float) -> None:
        """The run is in this phase, maybe still."""
        if phase is self._phase:
            return
        if self._phase is not Phase.RUNNING:
            spent = now - self._since
            self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + spent
        self._phase, self._since = phase, now
        if phase is Phase.RUNNING:
            self._starts.append(Start(self._has_started, self._seconds))
            self._seconds, self._has_started = {}, True
        elif phase is Phase.FINISHED:
            self._ended = True

    def take(self) -> tuple[list[Start], bool]:
        """The starts, and whether the run ended, since this was asked last."""
        found = self._starts, self._ended
        self._starts, self._ended = [], False
        return found
