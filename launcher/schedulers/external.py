"""Workers that come by themselves: whatever starts them, each takes a join string out of a folder.

The folder is a volume or a shared disk: `--set JOIN_FOLDER=...` here, `RDZV_JOIN_FILE` on each
worker. `worker.offer.join_folder` says how one is taken.
"""

from __future__ import annotations

from pathlib import Path

from launcher.plan.plan import Submission, WorkerRun
from launcher.plan.template import form_of, render
from launcher.schedulers.contract import Scheduler, SchedulerContext, Trouble, unheard
from launcher.schedulers.description import Description
from launcher.schedulers.files import NEW, is_there, on_disk, write_private
from rendezvous.wire.run import SlotState
from worker.offer.join_folder import FREE, TAKEN


class ExternalScheduler(Scheduler):
    """Puts `NAME.join` into the folder; a worker run is that file, and what a worker made of it.

    A worker that has joined ends with the run; its output is where it was started.
    """

    name = "external"
    poll_seconds = 0.5

    def __init__(self, context: SchedulerContext) -> None:
        self._folder = context.folder

    def prepare(self, run: Submission, join: str) -> str:
        """See the contract: what is to be started for each worker; it holds no secret."""
        variables = run.variables | {"JOIN_FOLDER": str(self._folder_of(run))}
        return render(run.template, variables, source=run.source, form=form_of(run.source))

    def _folder_of(self, run: WorkerRun) -> Path:
        return Path(str(run.variables.get("JOIN_FOLDER", self._folder)))

    async def submit(self, run: Submission, join: str, *, trouble: Trouble = unheard) -> str:
        """See the contract; the id is the file's path. No worker sees half of the file."""
        self.prepare(run, join)
        path = self._folder_of(run) / f"{run.name}{FREE}"
        hint = "--set JOIN_FOLDER=... names the folder that the workers share with this node"
        write_private(path, join, hint=hint)
        return str(path)

    async def find(self, run: WorkerRun) -> str | None:
        """The file of that worker run, whether a worker has taken it or not."""
        path = self._folder_of(run) / f"{run.name}{FREE}"
        return str(path) if is_there(path) or is_there(path.with_suffix(TAKEN)) else None

    async def describe(self, run: WorkerRun, handle: str) -> Description:
        """See the contract."""
        path = Path(handle)
        if is_there(path):
            return Description(
                SlotState.SUBMITTED, f"no worker has taken its join string from {path.parent} yet"
            )
        taken = path.with_suffix(TAKEN)
        if not is_there(taken):
            return Description(SlotState.ENDED, f"its join string was removed: {path}")
        with on_disk(taken):
            taker = taken.read_text("utf-8", "replace").strip()
        return Description(SlotState.RUNNING, f"taken by {taker}")

    async def cancel(self, run: WorkerRun, handle: str, *, grace_seconds: float) -> None:
        """Take the files away."""
        with on_disk(Path(handle)):
            for suffix in (FREE, TAKEN, NEW):
                Path(handle).with_suffix(suffix).unlink(missing_ok=True)
