"""A command that a process of this node has asked for, on another node or on this one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rendezvous.tasks import cancel_all
from rendezvous.wire.errors import UsageError
from rendezvous.wire.relay import (
    COMMAND_WINDOW_BYTES,
    CommandEnd,
    CommandExit,
    CommandFrame,
    CommandOutput,
    CommandStart,
    CommandTaken,
)
from worker.program.local_socket import Caller

_TELL_TAKEN_BYTES = COMMAND_WINDOW_BYTES // 4
_MOST_WAITING_BYTES = 2 * COMMAND_WINDOW_BYTES


class Call:
    """One command, from being asked for until its caller knows its end, or has gone.

    Args:
        start: What the target is told.
        send: Sends a frame to the target.
        caller: The process that asked.
    """

    def __init__(
        self, start: CommandStart, send: Callable[[CommandFrame], None], caller: Caller
    ) -> None:
        self._start = start
        self._send = send
        self._caller = caller
        self._came: asyncio.Queue[CommandOutput | CommandExit | str] = asyncio.Queue()
        self._received = 0
        self._passed_on = 0
        self._told = 0
        self._asked = False

    async def run(self) -> None:
        """Have it run, and pass on what comes, until its end or the caller's."""
        try:
            self._send(self._start)
            self._asked = True
        except UsageError as exc:
            self.fail(exc.message)
        tasks = {
            asyncio.create_task(self._pass_on()),
            asyncio.create_task(self._caller.gone()),
        }
        try:
            await asyncio.wait(tasks, return_when="FIRST_COMPLETED")
        finally:
            if self._asked:
                self._send(CommandEnd(number=self._start.number))
                self._asked = False
            await cancel_all(tasks)

    def receive(self, frame: CommandOutput | CommandExit) -> None:
        """Take in what the target says; what came before, or before its turn, is left aside."""
        if frame.offset != self._received:
            return
        if isinstance(frame, CommandOutput):
            if self._received - self._passed_on > _MOST_WAITING_BYTES:  # it knows that it may not
                return
            self._received += _bytes_in(frame)
        self._came.put_nowait(frame)

    def fail(self, words: str) -> None:
        """It cannot be had any more: tell the caller why."""
        self._came.put_nowait(words)

    def tell_again(self) -> None:
        """Frames may have been lost: tell what the target may not know."""
        if self._asked:
            self._send(self._start)
            self._tell_taken()

    async def _pass_on(self) -> None:
        while True:
            came = await self._came.get()
            if isinstance(came, str):
                await self._caller.tell({"error": came})
                return
            if isinstance(came, CommandExit):
                told = {"error": came.message} if came.message else {"exit": came.code}
                await self._caller.tell(told)
                return
            await self._caller.tell({came.stream: came.data})
            self._passed_on += _bytes_in(came)
            if self._passed_on - self._told >= _TELL_TAKEN_BYTES:
                self._tell_taken()

    def _tell_taken(self) -> None:
        self._told = self._passed_on
        self._send(CommandTaken(number=self._start.number, offset=self._passed_on))


def _bytes_in(frame: CommandOutput) -> int:
    return len(frame.data) // 4 * 3 - frame.data.count("=")
