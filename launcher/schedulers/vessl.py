"""VESSL by its own command: the profile `vessl.toml`, and what a command line cannot say.

- A spec whose values would be changed on the way is refused before it is sent (`vessl_values`).
- The project is named in each call. Left to itself, the command takes the only project of an
  organization whatever the configuration says, and the run is made in the wrong place.
- One `run list` tells of all worker runs. It need not show them all: what it does not show is asked
  for by its id, and so is the reason of a run that has failed.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from launcher.plan.plan import Submission, WorkerRun
from launcher.plan.template import Value
from launcher.schedulers.command import Said
from launcher.schedulers.contract import SchedulerContext
from launcher.schedulers.description import Description
from launcher.schedulers.profile import ProfileScheduler
from launcher.schedulers.profile_file import read_profile
from launcher.schedulers.shipped import PROFILES
from launcher.schedulers.vessl_account import known_project
from launcher.schedulers.vessl_values import check_values
from rendezvous.wire.errors import SchedulerError
from rendezvous.wire.run import SlotState

_READ = ("vessl", "run", "read", "<<PROJECT>>", "<<ID>>")
_STATUS = re.compile(r"^\s*Status (?P<state>\S+)$", re.MULTILINE)
_REASON = re.compile(r"^\s*Status reason (?P<detail>\S.*)$", re.MULTILINE)

_LOG_LINE = re.compile(r"\[\d\d:\d\d:\d\d\.\d+\] ")
_NOISE = ("Sentry is disabled", "Organization: ", "Project: ")


class _NotListed(Exception):
    """`run list` does not show it."""


class VesslSpecs(ProfileScheduler):
    """The specs and the words of the profile, whichever way a spec is sent."""

    def __init__(self, name: str, context: SchedulerContext) -> None:
        super().__init__(name, read_profile(PROFILES / "vessl.toml"), context)

    def told(self, run: WorkerRun, status: str, reason: str) -> Description:
        """What VESSL says of a run, in our states."""
        self.remember(run)
        return self._description({"state": status, "detail": reason})

    def unknown(self, run: WorkerRun) -> Description:
        """What it means that VESSL does not know a run: it is gone, or not there yet."""
        return ProfileScheduler._absent(self, run)

    def remember(self, run: WorkerRun) -> None:
        """It was there, or is to be there no more: when VESSL does not know it, it is gone."""
        self._known.add(run.name)

    def _description(self, groups: Mapping[str, str | None]) -> Description:
        found = super()._description(groups)
        if found.state is SlotState.SUBMITTED and not found.detail:
            return replace(found, detail=str(groups["state"]))  # what it is doing on its node
        return found


class VesslScheduler(VesslSpecs):
    """See the module."""

    def __init__(self, context: SchedulerContext) -> None:
        super().__init__("vessl", context)
        self._project = known_project(context.environ)

    def render(self, run: Submission, join: str) -> str:
        """See the base class. Raises TemplateError for what would not arrive as it is written."""
        text = super().render(run, join)
        check_values(text, run.source)
        return text

    def _variables(self, run: WorkerRun) -> dict[str, Value]:
        found = super()._variables(run)
        if self._project is not None and "PROJECT" not in run.variables:
            found["PROJECT"] = ["--project", self._project]
        return found

    async def describe(self, run: WorkerRun, handle: str) -> Description:
        """See the contract."""
        try:
            found = await super().describe(run, handle)
        except _NotListed:
            return await self._read(run, handle)
        return await self._read(run, handle) if found.state is SlotState.FAILED else found

    async def _run_once(
        self, argv: Sequence[str], run: WorkerRun, stdin: str | None, seconds: float
    ) -> Said:
        said = await super()._run_once(argv, run, stdin, seconds)
        return replace(said, err=_essence(said.err))

    def _absent(self, run: WorkerRun) -> Description:
        raise _NotListed

    async def logs(
        self, run: WorkerRun, handle: str, *, lines: int, follow: bool
    ) -> AsyncIterator[str]:
        """See the contract: the lines of the run, which come with their time, and no others."""
        async for line in super().logs(run, handle, lines=lines, follow=follow):
            if _LOG_LINE.match(line):
                yield line

    async def _read(self, run: WorkerRun, handle: str) -> Description:
        """What `run read` tells of one run."""
        argv = self._argv("read", _READ, run, {"ID": handle})
        said = await self._run(argv, run)
        status, reason = _STATUS.search(said.out), _REASON.search(said.out)
        if status is not None:
            return self.told(run, status["state"], reason["detail"] if reason is not None else "")
        gone = self.profile.cancel.gone
        if gone is not None and re.search(gone, said.everything):
            return self.unknown(run)
        raise SchedulerError(f"'{argv[0]}' {said.ending()}")


def _essence(err: str) -> str:
    """What it says on standard error, without what it always says; of a traceback the last line."""
    lines = [line for line in err.splitlines() if line.strip() and not line.startswith(_NOISE)]
    return "\n".join(lines[-1:] if any(line.startswith("Traceback") for line in lines) else lines)
