"""Worker runs that a person starts: one script for each, written into the state directory."""

from __future__ import annotations

import os
import re
from pathlib import Path

from launcher.plan import WorkerRun
from launcher.schedulers import Description, SchedulerContext
from launcher.template import form_of, render
from rendezvous.errors import SchedulerError
from rendezvous.schema import SlotState


class ManualScheduler:
    """Writes `submissions/slot-N.sh`; the person copies and starts it on the machine for slot N."""

    name = "manual"
    loopback = False
    poll_seconds = 1.0

    def __init__(self, context: SchedulerContext) -> None:
        self._folder = context.folder

    def prepare(self, run: WorkerRun, join: str) -> str:
        """See the contract."""
        variables = run.variables | {"RDZV_JOIN": join}
        return render(run.template, variables, source=run.source, form=form_of(run.source))

    async def submit(self, run: WorkerRun, join: str) -> str:
        """See the contract; the id is the file's path."""
        path = self._folder / f"slot-{run.slot}.sh"
        text = self.prepare(run, join)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as exc:
            raise SchedulerError(
                f"slot {run.slot}: {path} cannot be written: {exc.strerror}"
            ) from exc
        return str(path)

    async def find(self, name: str) -> str | None:
        """The script of that worker run, where it was written before."""
        word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
        for path in self._folder.glob("slot-*.sh"):
            if word.search(path.read_text("utf-8", "replace")):
                return str(path)
        return None

    async def describe(self, handle: str) -> Description:
        """See the contract."""
        return Description(SlotState.SUBMITTED, f"start it with: sh {handle}")

    async def cancel(self, handle: str, *, grace_seconds: float) -> None:
        """Take the script away; a node that was started ends with the run."""
        Path(handle).unlink(missing_ok=True)
