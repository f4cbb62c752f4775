"""Files of a run that outlive its registry: table, report, last output of its ranks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final

from launcher.launch.environment import LaunchEnvironment, WordsKeeper
from launcher.launch.registry import Registry
from launcher.show.board import Board
from launcher.show.checks import lines_of, warning_lines
from launcher.state.state_dir import StateDir, outlives_launch
from rendezvous.wire.errors import PreflightFailed, RdzvError, VerificationFailed
from rendezvous.wire.node import Finding
from rendezvous.wire.run import Phase, RunReport, RunStatus

KEEP_AGAIN_SECONDS: Final = 1.0
MOST_TRIES: Final = 3
"""How often the end waits for what could not be kept, until it goes without."""
WORDS_SECONDS: Final = 5.0
"""From the end of an epoch until what its ranks have printed last is fetched: their nodes send it
once their programs are gone, beside the next start."""
_BY_CHECKS: Final = (VerificationFailed.code, PreflightFailed.code)
_STARTED: Final = (Phase.RUNNING, Phase.FINISHED)


@dataclass
class Kept:
    """File that is written once, and tried again when that fails.

    Attributes:
        wanted: Whether a status asks for it, and it is not kept.
        keep: Keeps it; raises RdzvError.
        task: What tries.
        trying: A try is under way.
        failed: How often it has failed in a row.
    """

    wanted: Callable[[RunStatus], bool]
    keep: Callable[[RunStatus], Coroutine[Any, Any, None]]
    task: asyncio.Task[None] | None = None
    trying: bool = False
    failed: int = 0


class Keeping:
    """Keeps it in the run's folder, and says what checks have found.

    Args:
        registry: Where the run is.
        state: The run's folder.
        board: Where the person sees it.
        environment: The outer world.
        start: Runs a coroutine beside the launch.
        changed: Called when something was kept, or could not be.
    """

    def __init__(
        self,
        registry: Registry,
        state: StateDir,
        board: Board,
        environment: LaunchEnvironment,
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        changed: Callable[[], None],
    ) -> None:
        self._registry = registry
        self._state = state
        self._board = board
        self._environment = environment
        self._start = start
        self._changed = changed
        self._status: RunStatus | None = None
        self._all = (Kept(self._wants_table, self._table), Kept(self._wants_checks, self._checks))
        self._epoch = 0
        self._checks_shown = False
        self._findings: list[Finding] | None = None
        self._words: WordsKeeper | None = None
        self._timer: asyncio.TimerHandle | None = None

    def see(self, status: RunStatus) -> None:
        """Keep what `rdzv logs` and `rdzv status --env` have to know once the nodes have their
        ranks; and of a start that failed, say what one sentence leaves out."""
        self._status = status
        for one in self._all:
            if one.wanted(status) and (one.task is None or one.task.done()):
                one.task = self._start(self._try(one))

    def is_awaited(self) -> bool:
        """Whether the end of the launch waits for something, as its registry has to be there."""
        status = self._status
        wanted = [one for one in self._all if status is not None and one.wanted(status)]
        trying = any(one.trying for one in self._all)
        return trying or any(one.failed < MOST_TRIES for one in wanted)

    def epoch_ended(self) -> None:
        """Fetch in a while what the ranks have printed last."""
        self.stop()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(WORDS_SECONDS, lambda: self._start(self.fetch_words()))

    def stop(self) -> None:
        """Fetch nothing later on."""
        if self._timer is not None:
            self._timer.cancel()

    async def fetch_words(self) -> None:
        """Keep what the ranks of failed programs have printed last; ends no launch."""
        if self._words is None:
            admin, say = self._registry.admin, self._board.say
            self._words = self._environment.words_keeper(admin, self._state, say)
        with contextlib.suppress(Exception):
            await self._words.fetch()

    async def _try(self, one: Kept) -> None:
        """Try again and again, with the newest status."""
        while (status := self._status) is not None and one.wanted(status):
            one.trying = True
            try:
                await one.keep(status)
                one.failed = 0
            except RdzvError:
                one.failed += 1
            finally:
                one.trying = False
                self._changed()
            if one.wanted(status):
                await asyncio.sleep(KEEP_AGAIN_SECONDS)

    def _wants_table(self, status: RunStatus) -> bool:
        return status.phase in _STARTED and bool(status.digest) and status.epoch != self._epoch

    def _wants_checks(self, status: RunStatus) -> bool:
        result = status.result
        return result is not None and result.code in _BY_CHECKS and not self._checks_shown

    async def _table(self, status: RunStatus) -> None:
        self._state.write("status.json", status.model_dump_json().encode())
        table = await self._registry.viewer.table(self._registry.run, status.digest)
        self._state.write("table.json", table.canonical())
        report = await self._report()
        self._epoch = status.epoch
        if self._findings is None or not _kinds(report.findings) <= _kinds(self._findings):
            self._say(warning_lines(report, lasts=outlives_launch()))
        self._findings = report.findings

    async def _checks(self, status: RunStatus) -> None:
        report = await self._report()
        self._checks_shown = True
        self._say(lines_of(report, lasts=outlives_launch()))

    async def _report(self) -> RunReport:
        """Keep what was checked."""
        report = await self._registry.viewer.checks(self._registry.run)
        self._state.write("report.json", report.model_dump_json().encode())
        return report

    def _say(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._board.say(line)


def _kinds(findings: list[Finding]) -> set[tuple[str, str, str]]:
    """Reduce findings to their kinds, of whichever node: a restart finds the same again, as does
    another node in the place of a lost one."""
    return {(one.check, one.level, one.cause) for one in findings}
