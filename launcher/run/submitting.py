"""A worker run from the moment the registry knows of it to its scheduler's answer. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from launcher.run import actions as do
from launcher.run import inputs
from launcher.run.desk import retry_pause
from launcher.run.hosts import Hosts
from launcher.run.runs import BEFORE_SUBMISSION, Run, Runs, Step
from launcher.run.sentences import LedgerUnwritable
from launcher.run.values import Key

SUBMITS_AT_ONCE: Final = 16


@dataclass(slots=True)
class Submitting:
    """Submits what is still wanted.

    Attributes:
        gate: Those that wait until fewer are being submitted.
        count: How many are.
        stopped: Nothing is submitted any more.
        unwritable: Why the ledger could not be written, as far as it was said.
    """

    shared: Runs
    hosts: Hosts
    gate: deque[Key] = field(default_factory=deque)
    count: int = 0
    stopped: bool = False
    unwritable: set[str] = field(default_factory=set)

    def begin(self, key: Key, run: Run) -> None:
        """The registry knows of it: submit it when there is a place."""
        if self.count >= SUBMITS_AT_ONCE:
            run.step = Step.GATED
            self.gate.append(key)
            return
        self.count += 1
        run.step = Step.WRITING
        self.hosts.choose(key, run)
        if run.is_local:
            self.submit(key, run)
        else:
            self.write(key, run)

    def stop(self) -> None:
        """Submit nothing more; what is being submitted comes to its end: its answer has an id."""
        if self.stopped:
            return
        self.stopped = True
        self.gate.clear()
        for key, run in list(self.shared.runs.items()):
            if run.step in BEFORE_SUBMISSION:
                self.drop(key, run)
            elif run.step is Step.SUBMITTING and run.news is not None:
                self.give_up(key, run)

    def drop(self, key: Key, run: Run) -> None:
        """It is not wanted any more, and was not submitted."""
        writing = run.step is Step.WRITING
        self.shared.forget(key)
        self._was_written(key, writing)

    def withdraw(self, key: Key, run: Run) -> None:
        """The run goes without it: it is gone, as it never was submitted."""
        writing = run.step is Step.WRITING
        self.shared.quiet(key, run)
        run.gone = True
        self._was_written(key, writing)

    def _was_written(self, key: Key, writing: bool) -> None:
        if writing:
            self.shared.desk.do(do.Note(key, "", gone=True))
            self._leave()

    def give_up(self, key: Key, run: Run) -> None:
        """Break it off: it may exist, and is looked for when it has to end."""
        self.shared.quiet(key, run)
        self._leave()

    def under_way(self) -> list[Key]:
        """Those whose submission is not answered."""
        runs = self.shared.runs
        return [key for key, run in runs.items() if run.step is Step.SUBMITTING]

    # --- answers ------------------------------------------------------------------------------

    def write(self, key: Key, run: Run) -> None:
        """Write it down, so that a later launcher knows of it."""
        run.id = self.shared.desk.send("slots", do.WriteIntent, key, run.where)

    def submit(self, key: Key, run: Run) -> None:
        """Have its scheduler submit it."""
        run.step = Step.SUBMITTING
        run.id = self.shared.desk.send("slots", do.Submit, key, run.where)

    def goes_anywhere(self, key: Key, run: Run, words: str) -> bool:
        """Submit one at once without the hosts to avoid that was refused with them; whether it
        is."""
        if not self.goes_on(key, run) or not self.hosts.refused(key, run, words):
            return False
        run.step = Step.WRITING
        self.hosts.choose(key, run)
        self.write(key, run)
        return True

    def not_written(self, key: Key, said: inputs.NotWritten, now: float) -> None:
        """Nothing is submitted that a later launcher would not know of."""
        desk = self.shared.desk
        if said.error not in self.unwritable:
            self.unwritable.add(said.error)
            desk.do(do.Say(LedgerUnwritable(said.error)))
        desk.look_at(("look", key), now + retry_pause(said.jitter))

    def goes_on(self, key: Key, run: Run) -> bool:
        """Whether one whose first tries have failed is still wanted."""
        return not (self.stopped or run.end_after) and self.shared.is_newest(key)

    def answered(self, run: Run) -> None:
        """The scheduler has answered, one way or the other."""
        run.step, run.id = Step.REST, None
        self._leave()

    def _leave(self) -> None:
        self.count -= 1
        while self.gate and self.count < SUBMITS_AT_ONCE:
            key = self.gate.popleft()
            run = self.shared.runs.get(key)
            if run is not None and run.step is Step.GATED:
                self.begin(key, run)
