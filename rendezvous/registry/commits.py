"""How long a journal that is shared has acknowledged no commit, as one of its users sees it. Pure.

A database whose synchronous standbys are all away answers everything but commits: beats, which wait
for no standby, go on. So does one whose disk is full. What has begun is therefore kept here, until
it is acknowledged, and a commit that changes nothing is made where no other shows what is the case.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Final

from rendezvous.wire.errors import Unavailable

PATIENCE_SECONDS: Final = 3.0
"""A commit that has waited for longer stops the registry. As long as the lease of a replica
(`membership.LEASE_SECONDS`): a database that answers its beats late stops it then, too."""
PROBE_SECONDS: Final = 5.0
"""After so long without any commit one is made that changes nothing."""
LATE_SECONDS: Final = 1.0
"""After so long a commit may wait for something of its own, such as a row: another one is made."""
_HINT = "the database's own log says why; programs that run continue. Try: rdzv docs standing"


class Unacknowledged(Unavailable):
    """Nothing can be decided: the database acknowledges no commit."""


class Commits:
    """The commits of one replica: those that wait, and what the last ones have shown.

    Args:
        clock: Monotonic seconds.
        of_their_own: Failures that say nothing about other commits.

    Attributes:
        on_failure: Called with each commit that was not acknowledged.
        reason: Why none is acknowledged, in words; empty: not known.
        hint: What to do about that.
    """

    def __init__(
        self, clock: Callable[[], float], of_their_own: tuple[type[BaseException], ...] = ()
    ) -> None:
        self._clock = clock
        self._of_their_own = of_their_own
        self._waiting: dict[int, float] = {}
        self._count = 0
        self._failed = math.inf  # since when the oldest one had waited that has failed
        self._acknowledged = self._began = -math.inf  # when the newest of them had begun
        self.on_failure: Callable[[], None] = lambda: None
        self.reason = self.hint = ""

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Make a commit in this context; it is acknowledged where nothing is raised."""
        self._count += 1
        number, began = self._count, self._clock()
        self._waiting[number] = self._began = began
        try:
            yield
        except self._of_their_own:
            raise
        except Exception:
            self._failed = min(self._failed, max(began, self._acknowledged))
            self.on_failure()
            raise
        else:
            self._acknowledged = max(self._acknowledged, began)
            if self._failed <= began:
                self._failed = math.inf
            if not self.has_failed:
                self.reason = self.hint = ""
        finally:
            del self._waiting[number]

    def seconds(self) -> float:
        """How long the oldest commit has waited, where none that began later was acknowledged."""
        waiting = (at for at in self._waiting.values() if at >= self._acknowledged)
        return max(0.0, self._clock() - min([*waiting, self._failed]))

    @property
    def has_failed(self) -> bool:
        """Whether a commit has failed, and none was acknowledged since."""
        return self._failed < math.inf

    def is_probe_due(self) -> bool:
        """Whether a commit should be made that shows whether any is acknowledged."""
        return (
            self.has_failed
            or self.seconds() > LATE_SECONDS
            or (not self._waiting and self._clock() - self._began >= PROBE_SECONDS)
        )

    def check(self) -> None:
        """Raise for how long none has been acknowledged, where that is long."""
        if (seconds := self.seconds()) > PATIENCE_SECONDS:
            raise self._error(f"has acknowledged no commit for {seconds:.0f} s")

    def error(self, patience: float = PATIENCE_SECONDS) -> Unacknowledged | None:
        """The same without a time that passes; None: no commit has waited for longer than this."""
        return self._error("acknowledges no commit") if self.seconds() > patience else None

    def instead_of(self, why: Unavailable) -> Unavailable:
        """What to answer in place of a refusal: what it comes from, where a commit is late."""
        is_exact = isinstance(why, Unacknowledged)
        return why if is_exact else self.error(LATE_SECONDS) or why

    def _error(self, words: str) -> Unacknowledged:
        because = f": {self.reason}" if self.reason else ""
        return Unacknowledged(f"the registry's database {words}{because}", hint=self.hint or _HINT)
