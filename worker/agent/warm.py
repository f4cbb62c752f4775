"""The processes of a node, forked from one that has imported torch while the nodes met.

    begin    at the join, and again where a program ends: have a zygote
    arm      at each table: fork what will start the processes, and let MASTER_PORT's store listen
    start    at the go: tell it what to start

Where nothing can be forked, now or at any later moment, `worker.programs.warm.spawner` starts the
processes as any program; why is said once. It is no torchrun, which would wait for the torchruns of
the other nodes: so no node depends on whether another one forks. A node that can do nothing but
start torchrun (`why_torchrun`) says so when it joins, and all nodes of its table start theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from rendezvous.compat import timeout
from rendezvous.frozen import frozen
from rendezvous.secret_variables import SECRET_VARIABLES
from rendezvous.wire.errors import UsageError
from worker.agent.early import (
    Changes,
    changes,
    latin,
    latin_variables,
    look_script,
    without_secrets,
)
from worker.agent.notices import Note, Notice, notice
from worker.contracts import FRAMEWORKS, Contract
from worker.contracts.framework import PROGRAMS, Forks
from worker.contracts.warm import in_the_way, threads, warm_words
from worker.program.kept import has_ended, start_keeper
from worker.program.output import Output
from worker.program.process import Program
from worker.program.rank_streams import RankStreams
from worker.program.zygote import Forked, Unfit, Zygote
from worker.programs.warm.rank import ROOM, ROOM_VARIABLE
from worker.settings import WorkerSettings

_PROGRAM = f"{PROGRAMS}/warm/zygote.py"
_SPAWNER = f"{PROGRAMS}/warm/spawner.py"
_ARM_SECONDS = 2.0
_STORE_SECONDS = 20.0
_IMPORT_SECONDS = 120.0
"""How long a go waits for imports: without them they would begin now."""
FIRST_FAILED = "its first warm start failed within 10 s"
"""Why nothing is forked any more once the registry has had that repeated."""
OTHER_NEEDS_TORCHRUN = "another node can be started by torchrun alone, which waits for all others"
"""Reason why nothing is forked for a table with such a node."""


@frozen
class WarmWish:
    """What is to be warm.

    Attributes:
        launcher: How COMMAND calls torchrun's script.
        words: What each process executes.
        modules: Of `--warm-import`, with commas.
        processes: How many there will be, as far as is known.
        grace_seconds: As of a `Program`.
    """

    launcher: str
    words: Sequence[str]
    modules: str
    processes: int | str
    grace_seconds: float

    @classmethod
    def of(cls, settings: WorkerSettings, command: Sequence[str], slot: int) -> WarmWish | None:
        """What a person has asked for; None: nothing, or what the contract will refuse."""
        if settings.warm == "off":
            return None
        try:
            words = warm_words(command, settings.framework, settings.rdzv_backend)
            launcher = FRAMEWORKS[settings.framework].torchrun(command)
            count = settings.processes.of(slot)
        except UsageError:
            return None
        return cls(launcher[0], words, settings.warm_import, count, settings.grace)


class WarmStart:
    """What forks a node's processes, from the node's join to its end.

    Args:
        wish: What is to be warm.
        environ: The user's environment.
        in_thread: Calls something that may hang.
        say: Says something in this node's log.
    """

    def __init__(
        self,
        wish: WarmWish,
        environ: Mapping[str, str],
        in_thread: Callable[..., Awaitable[Any]],
        say: Callable[[Notice], None],
    ) -> None:
        kept = {n: v for n, v in environ.items() if n not in SECRET_VARIABLES}
        self._wish = wish
        self._given = kept | threads(wish.processes, kept)
        self._in_thread = in_thread
        self._say = say
        self._python = ""
        self._looking: asyncio.Task[str] | None = None
        self._zygote: Zygote | None = None
        self._starting: asyncio.Task[Zygote] | None = None
        self._contract: Contract | None = None
        self._arming: asyncio.Task[Forked] | None = None
        self._why = ""

    @property
    def gave_up(self) -> bool:
        """Whether it has said why this node can fork nothing."""
        return bool(self._why)

    async def why_torchrun(self) -> str:
        """Reason why this node can start its processes by torchrun alone; empty: it need not."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="torchrun's script")
        return await asyncio.shield(self._looking)

    async def _look(self) -> str:
        if name := in_the_way(self._given):
            return f"{name} is set, which only torchrun itself can follow"
        launcher = self._wish.launcher
        try:
            script, start = await self._in_thread(look_script, launcher, self._given)
        except (OSError, ValueError) as error:
            return f"{launcher} cannot be read: {error}"
        if not start:
            return f"{script or launcher} is not torchrun's own script"
        self._python = start[0]
        return ""

    async def begin(self) -> None:
        """Have a zygote, where that can be."""
        if self.gave_up or (self._zygote is not None and self._zygote.lives):
            return
        before, self._zygote = self._zygote, None
        self._starting = asyncio.create_task(self._start_zygote(), name="zygote")
        if before is not None:
            await before.end()
        try:
            zygote = await self._started(self._starting)
            seconds = 0.0 if self.gave_up else await zygote.ready()
        except Unfit as error:
            self.give_up(str(error))
            return
        if self.gave_up:  # a go was before it; what was forked for that is the program's
            self._starting = self._zygote = None
            await zygote.end()
        else:
            self._say(notice(Note.WARM, seconds=seconds))

    async def _started(self, starting: asyncio.Task[Zygote]) -> Zygote:
        self._zygote = await asyncio.shield(starting)
        return self._zygote

    async def _start_zygote(self) -> Zygote:
        if why := await self.why_torchrun():
            raise Unfit(why)
        words = [self._python, "-u", _PROGRAM, self._wish.modules, *self._wish.words]
        try:
            return await Zygote.start(words, {**self._given, ROOM_VARIABLE: ROOM})
        except (OSError, ValueError) as error:
            raise Unfit(f"its process cannot be started: {error}") from error

    def give_up(self, why: str) -> None:
        """Fork nothing from now on, and say why, once; `end` ends what is there."""
        if not self._why:
            self._why = why
            self._say(notice(Note.COLD, why=why))

    async def arm(self, contract: Contract) -> bool:
        """Fork what will start the processes, and wait for it where it comes at once; whether they
        will be forked, as far as is known then."""
        self._contract = contract
        if (starting := self._starting) is None or contract.forks is None or self.gave_up:
            return False
        arming = asyncio.create_task(self._fork(starting, contract.port), name="arming")
        self._arming = arming
        if self._zygote is not None and self._zygote.is_ready:
            await asyncio.wait([arming], timeout=_ARM_SECONDS)
        if not arming.done() or arming.cancelled() or not arming.exception():
            return not arming.cancelled()
        if isinstance(error := arming.exception(), Unfit):
            self.give_up(str(error))
            await self.disarm()
        return False

    async def _fork(self, starting: asyncio.Task[Zygote], port: int | None) -> Forked:
        zygote = await self._started(starting)
        forked = await zygote.fork(self._wish.grace_seconds, port)
        try:
            async with timeout(_STORE_SECONDS):
                said = json.loads(await asyncio.get_running_loop().sock_recv(forked.orders, 4096))
            if "cannot" in said:
                raise Unfit(said["cannot"])
        except TimeoutError as error:
            await forked.end()
            raise Unfit(
                f"MASTER_PORT's store: it does not listen within {_STORE_SECONDS:g} s"
            ) from error
        except (OSError, ValueError) as error:
            await forked.end()
            raise Unfit("what was forked has ended") from error
        except BaseException:
            await forked.end()
            raise
        return forked

    async def disarm(self) -> None:
        """End what was forked for a table that is none any more, and free its port."""
        arming, self._arming = self._arming, None
        if arming is None:
            return
        if self._zygote is None or not self._zygote.is_ready:
            arming.cancel()  # it has asked for nothing yet
        with contextlib.suppress(asyncio.CancelledError, Unfit):
            await (await arming).end()

    async def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        output: Output,
        ranks: RankStreams | None = None,
        until: float | None = None,
    ) -> Program | None:
        """Have the processes started, as they can be; None: by torchrun.

        Raises:
            UsageError: An argument cannot be.
            RunError: This machine cannot start one more process.
        """
        contract = self._contract
        if contract is None or contract.forks is None or await self.why_torchrun():
            return None
        forks = contract.forks
        found = changes(self._given, {**env, **forks.variables})
        forked = await self._forked(found)
        grace = self._wish.grace_seconds
        if forked is None:
            argv = [self._python, "-u", _SPAWNER, *forks.words]
            whole = {**env, **forks.variables}
            pipe = asyncio.subprocess.PIPE
            kept = await start_keeper(argv, whole, grace, stdin=pipe, ranks=ranks, until=until)
            program = Program.of(kept, env, grace_seconds=grace, output=output, ranks=ranks)
            assert kept.process.stdin is not None
            kept.process.stdin.write(_order(forks, Changes({}, frozenset(), frozenset()), contract))
            kept.process.stdin.close()
            return program
        program = Program.of_begun(
            forked.kept, env, grace_seconds=grace, output=output, ranks=ranks, until=until
        )
        await _tell(forked, _order(forks, found, contract))
        return program

    async def _forked(self, found: Changes) -> Forked | None:
        """Wait for what was forked for the table; None where it does not fit, and it is ended."""
        arming = self._arming
        if arming is None:
            return None
        try:
            if seen := found.seen if self._wish.modules else without_secrets(found.seen):
                names = ", ".join(sorted(seen))
                raise Unfit(f"{names} changed after the imports, which may have read it")
            async with timeout(_IMPORT_SECONDS):
                forked = await asyncio.shield(arming)
            if has_ended(forked.kept):
                raise Unfit("what was forked has ended")
        except (Unfit, TimeoutError) as error:
            self.give_up(f"{error}" or f"the imports take more than {_IMPORT_SECONDS:g} s")
            await self.disarm()
            return None
        self._arming = None
        return forked

    async def end(self) -> None:
        """End all of it that is no program."""
        await self.disarm()
        if self._looking is not None:
            self._looking.cancel()
        starting, self._starting, self._zygote = self._starting, None, None
        if starting is not None:
            starting.cancel()  # a disk that hangs is not waited for
            with contextlib.suppress(asyncio.CancelledError, Unfit):
                await (await starting).end()


def _order(forks: Forks, found: Changes, contract: Contract) -> bytes:
    """Order to a starter: what it executes, and with which variables."""
    words, ranks = map(latin, forks.words), map(latin_variables, forks.ranks)
    return found.order(words=[*words], ranks=[*ranks], port=contract.port)


async def _tell(forked: Forked, order: bytes) -> None:
    with contextlib.suppress(OSError):  # it has ended, as its keeper says
        await asyncio.get_running_loop().sock_sendall(forked.orders, order)
    forked.orders.close()
