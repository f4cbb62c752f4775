"""A process that has imported torch, from the agent's side: what is forked from it, and its end.

What it says and is asked: `worker.programs.warm.zygote`, which is started by its path.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rendezvous.background import in_background
from rendezvous.compat import timeout
from worker.program import process_table
from worker.program.ending import signal_name
from worker.program.kept import Kept, end_kept, keepers
from worker.program.output import STREAMS

_MESSAGE_BYTES = 65_536
_ANSWER_SECONDS = 10.0
_END_SECONDS = 2.0


class Unfit(Exception):
    """Why nothing is forked from it."""


class Adopted:
    """A child of this process that another one has started; see `worker.program.kept`."""

    stdin = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._waits = asyncio.create_task(self._wait(), name="adopted")

    async def _wait(self) -> int:
        try:
            _, status = await in_background(os.waitpid, self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        except ChildProcessError:  # reaped by somebody else, as asyncio's own would be
            self.returncode = 255
        return self.returncode

    async def wait(self) -> int:
        """Wait for its end."""
        return await asyncio.shield(self._waits)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int, /) -> None:
        """Send it a signal."""
        if self.returncode is None:
            os.kill(self.pid, number)


class Forked(NamedTuple):
    """What was forked for one epoch: its keeper, and the socket that takes its order."""

    kept: Kept
    orders: socket.socket

    async def end(self) -> None:
        """End it at once: nobody wants it."""
        self.orders.close()
        await end_kept(self.kept)


class Zygote:
    """A running one; made by `start`."""

    def __init__(self, process: asyncio.subprocess.Process, link: socket.socket) -> None:
        self._process = process
        self._link = link
        self._ready: asyncio.Task[float] | None = None
        self._one_at_a_time = asyncio.Lock()
        keepers.add(process.pid)

    @classmethod
    async def start(cls, command: Sequence[str], environ: Mapping[str, str]) -> Zygote:
        """Start it. Raises OSError and ValueError.

        Args:
            command: How it is called.
            environ: What its imports see.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            process = await asyncio.create_subprocess_exec(
                *command,
                env=environ,
                stdin=theirs.fileno(),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
            undo.pop_all()
        return cls(process, ours)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def lives(self) -> bool:
        """Whether it has not ended."""
        return self._process.returncode is None

    @property
    def is_ready(self) -> bool:
        """Whether it has imported all, and can be forked."""
        task = self._ready
        return task is not None and task.done() and not task.cancelled() and not task.exception()

    async def ready(self) -> float:
        """Wait until it has imported all; how long it took, in seconds. Raises Unfit."""
        if self._ready is None:
            self._ready = asyncio.create_task(self._await_ready(), name="warm")
        return await asyncio.shield(self._ready)

    async def _await_ready(self) -> float:
        said = await self._hear()
        if "unfit" in said:
            raise Unfit(said["unfit"])
        return float(said["ready"])

    async def _hear(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            said = await asyncio.get_running_loop().sock_recv(self._link, _MESSAGE_BYTES)
            return dict(json.loads(said))
        code = await self._process.wait()
        by = signal_name(-code) or f"signal {-code}"
        how = f"by {by}" if code < 0 else f"with exit code {code}"
        raise Unfit(f"the process that imports ended {how}")

    async def fork(self, grace_seconds: float, port: int | None) -> Forked:
        """Have a keeper forked, and below it what waits for an order. Raises Unfit.

        Args:
            grace_seconds: As of a `Program`.
            port: Where MASTER_PORT's store listens; None: on another node.
        """
        await self.ready()
        pairs = [socket.socketpair(), socket.socketpair()]
        (lifeline, its_lifeline), (orders, its_orders) = pairs
        pipes = [os.pipe(), os.pipe()]
        theirs = [its_lifeline.fileno(), its_orders.fileno(), *(writer for _, writer in pipes)]
        orders.setblocking(False)
        try:
            async with self._one_at_a_time:
                asked = {"grace": grace_seconds, "port": port or 0}
                with contextlib.suppress(OSError):  # it has ended, which is heard next
                    socket.send_fds(self._link, [json.dumps(asked).encode()], theirs)
                async with timeout(_ANSWER_SECONDS):
                    pid = int((await self._hear())["keeper"])
            if not _is_ours(pid):
                raise Unfit("the system does not give this node's agent what was forked from it")
        except BaseException as error:
            for one in (lifeline, orders):
                one.close()
            for reader, _ in pipes:
                os.close(reader)
            if isinstance(error, TimeoutError):
                raise Unfit("the process that imports does not answer") from error
            raise
        finally:
            for fd in (its_lifeline, its_orders):
                fd.close()
            for _, writer in pipes:
                os.close(writer)
        keepers.add(pid)
        streams = dict(zip((reader for reader, _ in pipes), STREAMS, strict=True))
        return Forked(Kept(Adopted(pid), lifeline, streams), orders)

    async def end(self) -> None:
        """End it; what was forked from it for an epoch lives on."""
        if self._ready is not None and not self._ready.done():
            self._ready.cancel()  # it reads what is closed now
            await asyncio.wait([self._ready])
        self._link.close()
        try:
            async with timeout(_END_SECONDS):
                await self._process.wait()
        except TimeoutError:  # it imports
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        finally:
            keepers.discard(self.pid)


def _is_ours(pid: int) -> bool:
    found = process_table.read_process(pid)
    return found is not None and found.parent == os.getpid()
