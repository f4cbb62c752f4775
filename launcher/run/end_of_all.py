"""The end of all worker runs of a launch: nothing is left, or the person is told what is. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from launcher.run.actions import Say
from launcher.run.ending import Ended
from launcher.run.runs import Runs, Step
from launcher.run.sentences import WaitsForRuns
from launcher.run.submitting import Submitting

SETTLE_SECONDS: Final = 10.0
BY_ITSELF_SECONDS: Final = 3.0
SAY_SECONDS: Final = 10.0


@dataclass(slots=True)
class EndOfAll:
    """Lets submissions under way be answered, as their answers hold the ids; then ends everything.

    Attributes:
        settling: Submissions are waited for.
        ending: Everything is being ended.
        left: What could not be ended.
    """

    shared: Runs
    submitting: Submitting
    settling: bool = False
    ending: bool = False
    left: list[Ended] = field(default_factory=list)

    def begin(self, now: float) -> None:
        """End everything."""
        self.submitting.stop()
        self.settling = True
        for key, run in list(self.shared.runs.items()):
            if run.step is not Step.SUBMITTING:
                self.shared.quiet(key, run)
        self.shared.desk.look_at("settled", now + SETTLE_SECONDS)
        self.settle(now)

    def hurry(self, now: float) -> None:
        """Everything ends at once."""
        self.shared.ends.hurry(now)
        self.settled(now)

    def settled(self, now: float) -> None:
        """Nobody waits any longer for the answers of submissions."""
        if self.settling:
            for key in self.submitting.under_way():
                self.submitting.give_up(key, self.shared.runs[key])
            self.settle(now)

    def settle(self, now: float) -> None:
        """End them, unless a submission is still to be answered."""
        if self.submitting.under_way():
            return
        self.settling, self.ending = False, True
        shared = self.shared
        left = [(key, run) for key, run in shared.runs.items() if not run.gone]
        slowest = max((run.starter.poll_seconds for _, run in left), default=0.0)
        shared.desk.forget("settled")
        for key, _ in left:
            if key in shared.ends.ends:
                shared.ends.extend(key, now)
            else:
                shared.end(key, now, by_itself=max(BY_ITSELF_SECONDS, 2 * slowest))
        shared.desk.look_at("waiting", now + SAY_SECONDS)

    def still_waiting(self) -> None:
        """It takes its time: say what is waited for."""
        slots = {key.slot for key in self.shared.ends.ends}
        self.shared.desk.do(Say(WaitsForRuns(tuple(sorted(slots)))))

    def is_over(self) -> bool:
        """Whether everything was ended, as far as it could be."""
        return self.ending and not self.shared.ends.ends
