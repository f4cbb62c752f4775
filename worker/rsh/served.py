"""A command that this node runs for another one (or for itself)."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping

from rendezvous.compat import TaskGroup
from rendezvous.frozen import frozen
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.relay import (
    COMMAND_PIECE_BYTES,
    COMMAND_WINDOW_BYTES,
    CommandExit,
    CommandFrame,
    CommandOutput,
)
from rendezvous.wire.words import printable
from worker.program.output import Stream
from worker.program.process import Program

NOT_RUN = 255
"""ssh's own exit code."""


@frozen
class ServedShell:
    """What a node's commands are run with: its own environment, as its program has it.

    `node` is how the node is named in sentences; `until` says until when a command may run that
    starts now (monotonic seconds), unless that is said again; None: for ever.
    """

    node: str
    environ: Mapping[str, str]
    grace_seconds: float
    until: Callable[[], float | None] = lambda: None


class Served:
    """One command, from its start until the caller knows its end.

    Its output waits in the command's own pipes while the caller has not taken what was sent.

    Args:
        number: The caller's number of it.
        send: Sends a frame to the caller.
    """

    def __init__(self, number: int, send: Callable[[CommandFrame], None]) -> None:
        self._number = number
        self._send = send
        self._sent = 0
        self._taken = 0
        self._untaken: deque[CommandOutput] = deque()
        self._room = asyncio.Event()
        self._room.set()
        self._program: Program | None = None
        self._unheard = False
        self._ended_by = ""
        self._exit: CommandExit | None = None

    async def run(self, command: bytes, shell: ServedShell) -> None:
        """Run it, tell what it prints, and how it ended."""
        code, message = NOT_RUN, ""
        try:
            code = await self._run(["sh", "-c", os.fsdecode(command)], shell)
        except RdzvError as exc:
            message = printable(f"{shell.node}: {exc.message} {exc.hint}".strip(), 600)
        except OSError as exc:
            message = f"{shell.node} cannot run another command: {exc.strerror}"
            await self.end()
        if self._ended_by and not message:  # what it printed last, and how it ended, is not told
            code, message = NOT_RUN, printable(f"{shell.node}: {self._ended_by}", 600)
        self._exit = CommandExit(number=self._number, offset=self._sent, code=code, message=message)
        self._send(self._exit)

    async def _run(self, argv: list[str], shell: ServedShell) -> int:
        program, pipes = await Program.start_unread(
            argv, shell.environ, grace_seconds=shell.grace_seconds, until=shell.until()
        )
        self._program = program
        async with contextlib.AsyncExitStack() as stack:
            outputs = [
                (stream, await stack.enter_async_context(_reading(fd)))
                for fd, stream in pipes.items()
            ]
            if self._unheard:  # told so while it was being started
                return (await program.stop()).exit_code
            async with TaskGroup() as group:
                for stream, output in outputs:
                    group.create_task(self._pass_on(stream, output))
                ending = group.create_task(program.wait())
        return ending.result().exit_code

    async def _pass_on(self, stream: Stream, output: asyncio.StreamReader) -> None:
        while data := await output.read(COMMAND_PIECE_BYTES):
            while not self._room.is_set():  # the other stream may have taken it meanwhile
                await self._room.wait()
            if self._unheard:
                continue
            piece = self._piece(stream, data)
            self._sent += len(data)
            self._untaken.append(piece)
            self._check_room()
            self._send(piece)

    def _piece(self, stream: Stream, data: bytes) -> CommandOutput:
        return CommandOutput(
            number=self._number,
            offset=self._sent,
            stream=stream,
            data=base64.b64encode(data).decode(),
        )

    def _check_room(self) -> None:
        if self._unheard or self._sent - self._taken < COMMAND_WINDOW_BYTES:
            self._room.set()
        else:
            self._room.clear()

    def taken(self, offset: int) -> None:
        """The caller has so much of the output."""
        if not self._taken < offset <= self._sent:
            return
        self._taken = offset
        while len(self._untaken) > 1 and self._untaken[1].offset <= offset:
            self._untaken.popleft()
        if offset == self._sent:
            self._untaken.clear()
        self._check_room()

    def may_run(self, until: float) -> None:
        """Until then, unless that is said again."""
        if self._program is not None:
            self._program.may_run(until)

    def tell_again(self) -> None:
        """Frames may have been lost: tell what the caller has not acknowledged.

        That it has gone may have been lost as well: it answers to whatever comes next.
        """
        for piece in self._untaken:
            self._send(piece)
        self._send(self._exit or self._piece("stdout", b""))

    async def end(self, why: str = "") -> None:
        """End all of it: nobody waits for it any more, or its node says why it cannot go on."""
        self._unheard, self._ended_by = True, why
        self._untaken.clear()
        self._check_room()
        if self._program is not None:
            await self._program.stop()

    def kill_now(self) -> None:
        """End all of it at once, also within its grace."""
        if self._program is not None:
            self._program.kill_now()


@contextlib.asynccontextmanager
async def _reading(fd: int) -> AsyncIterator[asyncio.StreamReader]:
    """A pipe as a stream that is read no further than it is asked for."""
    output = asyncio.StreamReader(limit=COMMAND_PIECE_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(output), os.fdopen(fd, "rb", 0)
    )
    try:
        yield output
    finally:
        transport.close()
