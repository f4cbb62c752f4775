"""The training program and everything it starts, from the agent's side.

A `Program` runs below a keeper (see `keeper`), which ends all of it: when asked to, when the
program itself is over, and when the agent is gone. Should the keeper be killed instead, the agent
ends what is left; for that it has to be a subreaper: `become_subreaper()`.

The program's own children are watched as well (see `failure`), and its `Ending` tells which
of them failed first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from rendezvous.compat import timeout
from worker.program import keeper, process_table
from worker.program.ending import Ending, LeftBehind
from worker.program.failure import ChildWatch
from worker.program.family import Family, Ranks, failed_rank, likely_cause, ranks_in
from worker.program.kept import KeeperProcess, Kept, keepers, start_keeper
from worker.program.output import Output, Pump, Stream
from worker.program.rank_streams import RankStreams, begin_reading

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.03
_STUCK_SECONDS = process_table.KILL_SECONDS + 5.0


class Program:
    """A running program; made by `start`.

    Attributes:
        changed: Called when one of its children, or its main process, has ended.
        main_pid: The program's own; None until the keeper has started it.
    """

    def __init__(
        self,
        process: KeeperProcess,
        lifeline: socket.socket,
        pump: Pump | None,
        grace_seconds: float,
        ranks: Ranks | None = None,
    ) -> None:
        self.changed: Callable[[], None] = lambda: None
        self._process = process
        self._lifeline = lifeline
        self._pump = pump
        self._grace_seconds = grace_seconds
        self._watch = ChildWatch(ranks, lambda: self.changed())
        self.main_pid: int | None = None
        self._code: int | None = None
        self._ended_at: float | None = None
        self._left: LeftBehind | None = None
        self._early_signals: list[int] = []
        self._stopped = False
        lifeline.setblocking(False)
        asyncio.get_running_loop().add_reader(lifeline, self._listen)
        self._ending = asyncio.create_task(self._supervise(), name="program")

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        grace_seconds: float,
        output: Output,
        ranks: RankStreams | None = None,
        until: float | None = None,
    ) -> Program:
        """Start `argv` with exactly this environment, found on its PATH; its input is empty.

        A program that cannot be started ends with 127 or 126, as in a shell, and a line that says
        why on its standard error.

        Args:
            grace_seconds: Between SIGTERM and SIGKILL, for whatever has to be ended.
            output: Called from a thread.
            ranks: Streams of their own for its ranks, if there are any.
            until: See `may_run`; who comes too late starts nothing.

        Raises:
            UsageError: An argument cannot be.
            RunError: This machine cannot start one more process.
        """
        kept = await start_keeper(argv, env, grace_seconds, ranks=ranks, until=until)
        return cls.of(kept, env, grace_seconds=grace_seconds, output=output, ranks=ranks)

    @classmethod
    def of(
        cls,
        kept: Kept,
        env: Mapping[str, str],
        *,
        grace_seconds: float,
        output: Output,
        ranks: RankStreams | None = None,
    ) -> Program:
        """The program below a keeper that was started before; `env` as it has it now."""
        pump = begin_reading(kept.streams, output, ranks)
        return cls(kept.process, kept.lifeline, pump, grace_seconds, ranks_in(env))

    @classmethod
    def of_begun(
        cls,
        kept: Kept,
        env: Mapping[str, str],
        *,
        grace_seconds: float,
        output: Output,
        ranks: RankStreams | None = None,
        until: float | None = None,
    ) -> Program:
        """As `of`, below a keeper that was started before it was known how its program is called,
        and whether it has streams for its ranks. What it executes is told after this."""
        if ranks is not None:
            ranks.announce(kept.streams, env)
        program = cls.of(kept, env, grace_seconds=grace_seconds, output=output, ranks=ranks)
        if until is not None:
            program.may_run(until)
        return program

    @classmethod
    async def start_unread(
        cls,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        grace_seconds: float,
        until: float | None = None,
    ) -> tuple[Program, dict[int, Stream]]:
        """As `start`, with pipes that the caller reads to their end; the file descriptors are its.

        Nobody watches the program's children, and its end does not wait for its output.
        """
        kept = await start_keeper(argv, env, grace_seconds, until=until)
        return cls(kept.process, kept.lifeline, None, grace_seconds), kept.streams

    @property
    def pid(self) -> int:
        """The keeper's."""
        return self._process.pid

    @property
    def family(self) -> Family:
        """The program's children, as they are now."""
        return self._watch.family

    @property
    def main_ended(self) -> tuple[int, float] | None:
        """The exit code of its main process and when it ended; what it has started may live on."""
        if self._code is None or self._ended_at is None:
            return None
        return keeper.unsigned(self._code), self._ended_at

    def signal(self, number: int) -> None:
        """Pass a signal on to the program's main process, now or as soon as it runs.

        Raises ValueError for a signal that cannot be passed on: see `keeper.FORWARDED`.
        """
        if number not in keeper.FORWARDED:
            raise ValueError(f"signal {number} is not passed on to programs")
        if self.main_pid is None:
            self._early_signals.append(number)
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self) -> Ending:
        """Wait until nothing of the program is left and its output is read."""
        return await asyncio.shield(self._ending)

    async def stop(self, *, ends_itself: bool = False) -> Ending:
        """End everything: SIGTERM, the grace, SIGKILL; and wait for it.

        Args:
            ends_itself: The program is ending its processes already: nothing of it is told again.
        """
        self._tell(b"L" if ends_itself else b"T")
        try:
            limit = self._grace_seconds + _STUCK_SECONDS
            async with timeout(limit):
                return await self.wait()
        except TimeoutError:
            logger.warning("the program's keeper does not answer; ending everything without it")
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            return await self.wait()

    def kill_now(self) -> None:
        """SIGKILL to everything; also while a `stop` is in its grace."""
        self._tell(b"K")

    def may_run(self, until: float) -> None:
        """Until then (`time.monotonic`), unless that is said again: also where this process stands
        still. Where that is killed, all of it is killed at once: it has no grace then."""
        with contextlib.suppress(OSError):
            self._lifeline.send(keeper.fence(until))

    def _tell(self, word: bytes) -> None:
        if not self._stopped:
            self._stopped = True
            self._watch.close()
        with contextlib.suppress(OSError):
            self._lifeline.send(word)
        found = process_table.read_process(self.pid)
        if found is not None and found.state == "T" and self._process.returncode is None:
            process_table.send(self.pid, signal.SIGCONT)

    def _listen(self) -> None:
        """Take in what the keeper says; see `worker.program.keeper`."""
        try:
            said = self._lifeline.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            asyncio.get_running_loop().remove_reader(self._lifeline)
        for line in said.decode().splitlines():
            word, _, rest = line.partition(" ")
            self._take_in(word, rest)

    def _take_in(self, word: str, rest: str) -> None:
        match word:
            case "started":
                self._started(int(rest))
            case "ended":
                self._code, self._ended_at = int(rest), asyncio.get_running_loop().time()
                self._watch.close()
                self.changed()
            case "left":
                self._left = LeftBehind(int(rest))
            case "child" if self._left is not None:
                pid, age, command = rest.split(" ", 2)
                named = (*self._left.named, (int(pid), int(age), command))
                self._left = replace(self._left, named=named)

    def _started(self, pid: int) -> None:
        self.main_pid = pid
        for number in self._early_signals:
            self.signal(number)
        if not self._stopped and self._pump is not None:
            self._watch.open(pid)

    async def _supervise(self) -> Ending:
        try:
            status = await self._process.wait()
            self._listen()  # the last line may still be unread
        finally:
            # Whatever ended this task: an end of file on the lifeline ends the program.
            asyncio.get_running_loop().remove_reader(self._lifeline)
            self._lifeline.close()
            self._watch.close()
            keepers.discard(self.pid)
        ended_at = self._ended_at or asyncio.get_running_loop().time()
        if status < 0:
            await end_descendants(self._grace_seconds, spare=keepers)
        if self._pump is not None:
            await asyncio.to_thread(self._pump.finish)
        code = keeper.unsigned(status if self._code is None else self._code)
        # A guess names a cause only where nobody asked for the end.
        first = (failed_rank if self._stopped else likely_cause)(self._watch.family)
        return Ending(
            code,
            ended_at,
            first,
            self._left,
            keeper_signal=-status if status < 0 and self._code is None else 0,
            was_told=self._stopped,
        )


def become_subreaper() -> None:
    """Adopt the processes of this one's descendants that lose their parent. Raises OSError.

    A parent may have left SIGCHLD ignored: then nobody's exit code could be read, so it is reset.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    keeper.prctl(keeper.PR_SET_CHILD_SUBREAPER, 1)


def ending_signals() -> list[signal.Signals]:
    """The signals by which a person ends a run here: not a hang-up that nohup has turned off."""
    hang_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *[signal.SIGHUP] * hang_up]


def die_with_parent(number: int, parent_pid: int) -> None:
    """Have the kernel send this process the signal when the thread that started it ends.

    Args:
        number: The signal; sent at once when `parent_pid` is not (or no longer) the parent.
        parent_pid: As the parent knows itself.
    """
    keeper.prctl(keeper.PR_SET_PDEATHSIG, number)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), number)


def parent_lives(parent_pid: int) -> bool:
    """Whether the process that started this one lives.

    Of one that is killed, a thread may end after the first one, which is the one that the kernel
    tells us of: until then it is still the parent, and shown as a zombie.
    """
    parent = process_table.read_process(parent_pid)
    return os.getppid() == parent_pid and parent is not None and parent.state not in ("Z", "X")


async def reap_orphans(interval_seconds: float = 1.0) -> NoReturn:
    """Reap adopted processes that ended, for ever; for a subreaper, and for PID 1.

    asyncio and subprocess wait for the children that they started themselves, and must find them.
    They do so at once; a zombie that is still there after an interval is nobody's.
    """
    seen: set[int] = set()
    while True:
        zombies = _zombie_children() - keepers
        for pid in zombies & seen:
            _reap(pid)
        seen = zombies - seen
        await asyncio.sleep(interval_seconds)


async def end_descendants(grace_seconds: float, spare: Iterable[int] = ()) -> None:
    """End whatever is below this process, but not `spare` and what is below these.

    For the case that a keeper was killed: needs `become_subreaper` beforehand.
    """
    kept = frozenset(spare)
    left = _living_descendants(kept)
    process_table.terminate(left)
    deadline = time.monotonic() + grace_seconds
    while left and time.monotonic() < deadline:
        await asyncio.sleep(_LOOK_SECONDS)
        left = _living_descendants(kept)
    deadline = time.monotonic() + process_table.KILL_SECONDS
    while left and time.monotonic() < deadline:
        process_table.kill(left)
        await asyncio.sleep(_LOOK_SECONDS)
        left = _living_descendants(kept)
    if left:
        logger.error("%s", process_table.still_there(left))


def _living_descendants(spare: frozenset[int]) -> list[process_table.Process]:
    """The descendants; our own children among them that are zombies are reaped."""
    found = process_table.descendants(os.getpid(), spare)
    return [p for p in found if not (p.state == "Z" and p.parent == os.getpid() and _reap(p.pid))]


def _zombie_children() -> set[int]:
    try:
        peek = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return set()
    if peek is None:
        return set()
    return {p.pid for p in process_table.processes() if p.parent == os.getpid() and p.state == "Z"}


def _reap(pid: int) -> bool:
    """Whether this ended child of ours is gone now: a zombie may have threads that still run."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
