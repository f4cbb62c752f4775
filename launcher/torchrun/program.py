"""The workers of a torchrun as an agent's program: see `worker.agent.environment.RunningProgram`.

    go told -> it starts them -> stop told, and it asks for the next table: nothing of them is left
                              -> it asks unasked: they have failed, and all nodes start again
                              -> they ended well, or it gives up, or is gone

torchrun counts its restarts itself. The registry is asked for one in its name, and counts none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from launcher.torchrun.link import Torchrun
from launcher.torchrun.words import Ended, Failed, Leaves, Next, Word, Worker
from rendezvous.compat import timeout
from rendezvous.wire.errors import RdzvError, RunError
from worker.contracts.plugin import nodes_in
from worker.program import process_table
from worker.program.ending import Ending
from worker.program.failure import ChildWatch
from worker.program.family import Failure, Family, failed_rank

logger = logging.getLogger(__name__)

_STUCK_SECONDS = 10.0
_LOOK_SECONDS = 0.1
_FAILED = 1
_TOLD_TO_END = 128 + 15


class TorchrunProgram:
    """What runs on one table.

    Args:
        torchrun: It starts the workers, and ends them.
        grace_seconds: Within which it does so.
        restart: Asks the registry to start all programs again. Raises RdzvError.
    """

    def __init__(
        self, torchrun: Torchrun, grace_seconds: float, restart: Callable[[], Awaitable[None]]
    ) -> None:
        self.changed: Callable[[], None] = lambda: None
        self.main_pid: int | None = torchrun.begin.pid
        self._torchrun = torchrun
        self._grace_seconds = grace_seconds
        self._restart = restart
        self._stopped = False
        self._failed: Worker | None = None
        self._over: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._asking: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._watch = ChildWatch(None, lambda: self.changed())
        self._watch.open(torchrun.begin.pid)
        # What torchrun has started before are no workers: this helper, for one.
        self._others = frozenset(child.pid for child in self._watch.family.children)
        torchrun.heard = self._heard

    @classmethod
    def begin(
        cls,
        torchrun: Torchrun,
        env: Mapping[str, str],
        former: Mapping[str, str],
        *,
        grace_seconds: float,
        restart: Callable[[], Awaitable[None]],
        until: float | None = None,
    ) -> TorchrunProgram:
        """Have it start its workers on a table.

        Args:
            torchrun: It waits for that.
            env: What the workers are to see.
            former: The environment of torchrun as it was.
            grace_seconds: Within which it ends them.
            restart: See above.
            until: See `may_run`.

        Raises:
            RunError: It is gone, or has given up meanwhile.
        """
        if torchrun.has_ended or torchrun.waits is None:
            raise RunError("torchrun has ended on this node")
        program = cls(torchrun, grace_seconds, restart)
        if until is not None:
            program.may_run(until)
        variables, nodes = nodes_in(env)
        torchrun.tell(
            "go",
            node=int(env["NODE_RANK"]),
            address=env["MASTER_ADDR"],
            port=int(env["MASTER_PORT"]),
            nodes=nodes,
            variables={k: v for k, v in variables.items() if former.get(k) != v},
            removed=[name for name in former if name not in variables],
        )
        return program

    @property
    def family(self) -> Family:
        """Its workers."""
        return self._watch.family

    @property
    def main_ended(self) -> tuple[int, float] | None:
        """torchrun outlives its workers."""
        return None

    def signal(self, number: int) -> None:
        """Nobody sends a signal to this helper that is meant for the program."""

    def may_run(self, until: float) -> None:
        """Until then (`time.monotonic`), unless that is said again."""
        self._torchrun.tell("may_run", until=until)

    async def wait(self) -> Ending:
        """Wait until nothing of it is left."""
        return await asyncio.shield(self._over)

    async def stop(self, *, ends_itself: bool = False) -> Ending:
        """Have torchrun end its workers; within the grace, or they are killed."""
        if not self._stopped:
            self._stopped = True
            self._watch.close()
        self._torchrun.tell("stop")
        if self._torchrun.waits is not None:  # they have failed, and that is why all stop
            self._is_over(self._code())
        elif self._torchrun.has_ended:
            self.kill_now()
        try:
            async with timeout(self._grace_seconds + _STUCK_SECONDS):
                return await self.wait()
        except TimeoutError:
            logger.warning("torchrun does not end its workers; they are killed")
            self.kill_now()
            return await self.wait()

    def kill_now(self) -> None:
        """End them at once."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end_what_is_left())

    # --- what torchrun says -------------------------------------------------------------------

    def _heard(self, said: Word | None) -> None:
        if isinstance(said, Next | Failed):
            self._failed = said.failure
        match said:
            case Next() if self._stopped:
                self._is_over(self._code())
            case Next():
                self._asking = asyncio.create_task(self._ask_for_restart())
            case Ended():
                self._is_over(0)
            case Failed() | Leaves():
                self._is_over(self._code())
            case None:
                self.kill_now()

    async def _ask_for_restart(self) -> None:
        """The machine is told to stop then, as all others are."""
        try:
            await self._restart()
        except RdzvError as exc:
            logger.warning("the restart could not be requested: %s", exc.message)
            self._is_over(self._code())

    async def _end_what_is_left(self) -> None:
        """Its workers outlive a torchrun that was killed; and one that hangs, they do as well."""
        deadline = asyncio.get_running_loop().time() + process_table.KILL_SECONDS
        while (left := self._left()) and asyncio.get_running_loop().time() < deadline:
            process_table.kill(left)
            await asyncio.sleep(_LOOK_SECONDS)
        self._is_over(self._code())

    def _left(self) -> list[process_table.Process]:
        """Those of its children, and what is below them, that live."""
        found: dict[int, process_table.Process] = {}
        for child in self._watch.family.children:
            one = process_table.read_process(child.pid)
            if one is None or child.ended_at is not None or child.pid in self._others:
                continue
            if one.state not in ("Z", "X"):
                found[one.pid] = one
                found |= {below.pid: below for below in process_table.descendants(one.pid)}
        return list(found.values())

    def _code(self) -> int:
        """As its first worker that failed; torchrun tells none."""
        if (first := self._first()) is not None:
            return first.exit_code
        return _TOLD_TO_END if self._stopped else _FAILED

    def _first(self) -> Failure | None:
        """As it was seen, or as torchrun has said: its end may be over before it can be seen."""
        seen, told = failed_rank(self._watch.family), self._failed
        if told is None or (seen is not None and seen.pid == told.pid):
            return seen
        now = asyncio.get_running_loop().time()
        return Failure(now, told.pid, told.code, told.rank, told.local_rank)

    def _is_over(self, code: int) -> None:
        if self._over.done():
            return
        self._watch.close()
        first = self._first() if code else None
        now = asyncio.get_running_loop().time()
        self._over.set_result(Ending(code, now, first, was_told=self._stopped))
