"""Files of a run that outlive its registry: table, report, last output of its ranks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from launcher.launch.registry import Registry
from launcher.launch.run_view import STARTED
from launcher.prepare.environment import LaunchEnvironment, WordsKeeper
from launcher.show.board import Board
from launcher.show.checks import lines_of, warning_lines
from launcher.state.state_dir import StateDir, outlives_launch
from rendezvous.wire.errors import PreflightFailed, RdzvError, VerificationFailed
from rendezvous.wire.node import Finding
from rendezvous.wire.run import RunReport, RunStatus

KEEP_AGAIN_SECONDS: Final = 1.0
MOST_TRIES: Final = 3
"""How often the end waits for what could not be kept, until it goes without."""
WORDS_SECONDS: Final = 5.0
"""From the end of an epoch until what its ranks have printed last is fetched: their nodes send it
once their programs are gone, beside the next start."""
_BY_CHECKS: Final = (VerificationFailed.code, PreflightFailed.code)


Keep: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Keeps one file; raises RdzvError."""


@dataclass(eq=False, repr=False)
class RunFiles:
    """Keeps a run's files in its folder, and says what checks have found.

    Attributes:
        registry: Where the run is.
        state: The run's folder.
        board: Where the person sees it.
        environment: The outer world.
        start: Runs a coroutine beside the launch.
        changed: Called when something was kept, or could not be.
    """

    registry: Registry
    state: StateDir
    board: Board
    environment: LaunchEnvironment
    start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    changed: Callable[[], None]

    def __post_init__(self) -> None:
        self._status: RunStatus | None = None
        self._task: asyncio.Task[None] | None = None
        self._trying = False
        self._failures: dict[Keep, int] = {}  # in a row
        self._epoch = 0
        self._checks_shown = False
        self._findings: list[Finding] | None = None
        self._words: WordsKeeper | None = None
        self._timer: asyncio.TimerHandle | None = None

    def update(self, status: RunStatus) -> None:
        """Keep what `rdzv logs` and `rdzv status --env` have to know once the nodes have their
        ranks; and of a start that failed, say what one sentence leaves out."""
        self._status = status
        if self._wanted() and (self._task is None or self._task.done()):
            self._task = self.start(self._keep())

    def is_awaited(self) -> bool:
        """Whether the end of the launch waits for something, as its registry has to be there."""
        tries = (self._failures.get(keep, 0) for keep in self._wanted())
        return self._trying or any(failures < MOST_TRIES for failures in tries)

    def epoch_ended(self) -> None:
        """Fetch in a while what the ranks have printed last."""
        self.stop()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(WORDS_SECONDS, lambda: self.start(self.fetch_words()))

    def stop(self) -> None:
        """Fetch nothing later on."""
        if self._timer is not None:
            self._timer.cancel()

    async def fetch_words(self) -> None:
        """Keep what the ranks of failed programs have printed last; ends no launch."""
        if self._words is None:
            admin, say = self.registry.admin, self.board.say
            self._words = self.environment.words_keeper(admin, self.state, say)
        with contextlib.suppress(Exception):
            await self._words.fetch()

    async def _keep(self) -> None:
        """Try again and again, with the newest status."""
        while wanted := self._wanted():
            self._trying = True
            failed = set[Keep]()
            try:
                for keep in wanted:
                    try:
                        await keep()
                    except RdzvError:
                        failed.add(keep)
            finally:
                self._failures = {keep: self._failures.get(keep, 0) + 1 for keep in failed}
                self._trying = False
                self.changed()
            if failed:
                await asyncio.sleep(KEEP_AGAIN_SECONDS)

    def _wanted(self) -> list[Keep]:
        """List the tries that the newest status calls for."""
        status, wanted = self._status, list[Keep]()
        if status is None:
            return wanted
        if status.result is not None and status.result.code in _BY_CHECKS:
            wanted += [] if self._checks_shown else [self._checks]
        if status.phase in STARTED and status.digest and status.epoch != self._epoch:
            wanted.append(self._table)
        return wanted

    async def _table(self) -> None:
        status = self._status
        assert status is not None
        self.state.write("status.json", status.model_dump_json().encode())
        table = await self.registry.viewer.table(self.registry.run, status.digest)
        self.state.write("table.json", table.canonical())
        report = await self._report()
        self._epoch = status.epoch
        if self._findings is None or not _kinds(report.findings) <= _kinds(self._findings):
            self._say(warning_lines(report, lasts=outlives_launch()))
        self._findings = report.findings

    async def _checks(self) -> None:
        report = await self._report()
        self._checks_shown = True
        self._say(lines_of(report, lasts=outlives_launch()))

    async def _report(self) -> RunReport:
        """Keep what was checked."""
        report = await self.registry.viewer.checks(self.registry.run)
        self.state.write("report.json", report.model_dump_json().encode())
        return report

    def _say(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.board.say(line)


def _kinds(findings: list[Finding]) -> set[tuple[str, str, str]]:
    """Reduce findings to their kinds, of whichever node: a restart finds the same again, as does
    another node in the place of a lost one."""
    return {(one.check, one.level, one.cause) for one in findings}
