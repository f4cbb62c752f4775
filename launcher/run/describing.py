"""What schedulers say of worker runs, and what the registry hears of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.run.actions import Describe, News, ReadLastLine
from launcher.run.runs import Runs
from launcher.run.values import Key
from launcher.run.worker_run import (
    Run,
    Step,
    is_believed_over,
    is_late,
    is_news,
    pause_of,
    wants_last_line,
)
from launcher.schedulers.description import OVER, Description


@dataclass(slots=True)
class Describing:
    """Asks about each worker run until it is over, or replaced."""

    shared: Runs

    def begin(self, key: Key, run: Run) -> None:
        """Ask about it from now on."""
        run.step = Step.DESCRIBED
        run.id = self.shared.desk.send("slots", Describe, key, run.handle)

    def described(self, key: Key, run: Run, found: Description, now: float) -> None:
        """What its scheduler says; that it cannot say anything is no reason to end the run."""
        slot = self.shared.seen.get(key.slot)
        run.id = None
        run.over = found if found.state in OVER else None
        run.gone = is_believed_over(run, key.generation, found, slot)
        if run.gone:
            self.shared.note(key, run)
        late = is_late(slot, found)
        if not is_news(run, found, now, late=late):
            self._rest(key, run, now)
            return
        run.said, run.said_at = found, now
        if wants_last_line(run, found, self.shared.phase, late=late):
            run.found = found
            run.id = self.shared.desk.send("slots", ReadLastLine, key, run.handle)
        else:
            self._tell(key, run, found)

    def line_read(self, key: Key, run: Run, line: str) -> None:
        """The last line of its log is part of what the registry is told."""
        found, run.found, run.id = run.found, None, None
        assert found is not None
        self._tell(key, run, found, line)

    def heard(self, key: Key, run: Run, now: float) -> None:
        """The registry knows: go on."""
        self._rest(key, run, now)

    def _tell(self, key: Key, run: Run, found: Description, line: str = "") -> None:
        self.shared.tell(key, run, News(found.state, run.handle, found.detail, line))

    def _rest(self, key: Key, run: Run, now: float) -> None:
        if run.gone:
            run.step = Step.REST
            return
        pause = pause_of(run.starter, len(self.shared.asked))
        self.shared.desk.look_at(("look", key), now + pause)
