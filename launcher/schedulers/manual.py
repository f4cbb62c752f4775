"""Worker runs that a person starts: one script for each, written into the state directory."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from launcher.plan.plan import Submission, WorkerRun
from launcher.plan.template import form_of, render
from launcher.schedulers.contract import Scheduler, SchedulerContext, Trouble, unheard
from launcher.schedulers.description import Description
from launcher.schedulers.files import is_there, on_disk, write_private
from rendezvous.wire.run import SlotState


class ManualScheduler(Scheduler):
    """Writes `submissions/slot-N.sh`; the person copies and starts it on the machine for slot N.

    There the output is, and a node that was started ends by itself, with the run.
    """

    name = "manual"
    poll_seconds = 1.0
    by_hand = True

    def __init__(self, context: SchedulerContext) -> None:
        self._folder = context.folder
        self._newest: dict[str, str] = {}
        """The worker run whose script each file holds: a newer generation takes over its slot's."""

    def prepare(self, run: Submission, join: str) -> str:
        """See the contract."""
        variables = run.variables | {"RDZV_JOIN": join}
        return render(run.template, variables, source=run.source, form=form_of(run.source))

    async def submit(self, run: Submission, join: str, *, trouble: Trouble = unheard) -> str:
        """See the contract; the id is the file's path."""
        path = self._folder / f"slot-{run.slot}.sh"
        write_private(path, self.prepare(run, join))
        self._newest[str(path)] = run.name
        return str(path)

    def _is_taken_over(self, run: WorkerRun, handle: str) -> bool:
        return self._newest.get(handle, run.name) != run.name

    async def find(self, run: WorkerRun) -> str | None:
        """The script of that worker run, where it was written before."""
        word = re.compile(rf"(?<![\w-]){re.escape(run.name)}(?![\w-])")
        with on_disk(self._folder):
            for path in self._folder.glob("slot-*.sh"):
                if word.search(path.read_text("utf-8", "replace")):
                    return str(path)
        return None

    async def describe(self, run: WorkerRun, handle: str) -> Description:
        """See the contract."""
        if self._is_taken_over(run, handle) or not is_there(Path(handle)):
            return Description(SlotState.ENDED, "its script was removed")
        return Description(SlotState.SUBMITTED, f"start {Path(handle).name} by hand")

    def start_words(self, handle: str) -> str:
        """See the contract."""
        return shlex.join(["sh", handle])

    async def cancel(self, run: WorkerRun, handle: str, *, grace_seconds: float) -> None:
        """Take the script away."""
        if not self._is_taken_over(run, handle):
            with on_disk(Path(handle)):
                Path(handle).unlink(missing_ok=True)
