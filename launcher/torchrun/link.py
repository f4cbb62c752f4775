"""The torchrun at the other end of the helper's socket: what it says, what it is told, its end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

from launcher.torchrun.words import Begin, Ended, Failed, Leaves, Next, Word, line_of, read
from worker.program.process_table import read_process

_LOOK_SECONDS = 0.5


class Torchrun:
    """One torchrun.

    Attributes:
        begin: Its first line.
        waits: What it last said when it asked for a table; None while it has one.
        has_ended: Whether it starts no workers any more, because of itself.
        given_up: Set once its workers have failed and it starts them no more.
        has_done: Whether its workers have ended well: its own end means nothing any more.
        heard: Told what it says; None: that it is gone.
        at_end: Called when it leaves, or is gone, with work that is not done.
    """

    def __init__(self, link: socket.socket) -> None:
        self.begin: Begin
        self.waits: Next | None = None
        self.has_ended = self.has_done = False
        self.given_up = asyncio.Event()
        self.at_end: Callable[[], None] = lambda: None
        self.heard: Callable[[Word | None], None] = lambda _: None
        self._link = link
        self._asked = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> bool:
        """Hear its first line; whether it came. Raises UsageError."""
        self._reader, self._writer = await asyncio.open_connection(sock=self._link)
        line = await self._reader.readline()
        if not line:
            return False
        first = read(line)
        assert isinstance(first, Begin)
        self.begin = first
        self._reading = asyncio.create_task(self._read())
        return True

    async def asks(self) -> Next:
        """Wait until it asks for a table."""
        while self.waits is None:
            self._asked.clear()
            await self._asked.wait()
        return self.waits

    def tell(self, kind: str, **words: Any) -> None:
        """Say something to it; who is gone hears nothing."""
        if kind == "go":
            self.waits = None
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write(line_of(kind, **words))

    async def close(self) -> None:
        """What was said has been sent."""
        if self._reading is not None:
            self._reading.cancel()
        with contextlib.suppress(OSError):
            await self._writer.drain()
        self._writer.close()

    async def _read(self) -> None:
        """Until it is gone: a worker that was forked may keep the socket open."""
        watch = asyncio.create_task(self._until_gone())
        try:
            while True:
                line = asyncio.create_task(self._reader.readline())
                await asyncio.wait({line, watch}, return_when=asyncio.FIRST_COMPLETED)
                text = b""
                if line.done():
                    with contextlib.suppress(OSError, ValueError):
                        text = line.result()
                line.cancel()
                if not text:
                    break
                if not isinstance(said := read(text), Begin):
                    self._take_in(said)
        finally:
            watch.cancel()
        was_known, self.has_ended = self.has_ended, True
        self.heard(None)
        if not was_known and not self.has_done:
            self.at_end()

    def _take_in(self, said: Word) -> None:
        if isinstance(said, Next):
            self.waits = said
            self._asked.set()
        self.has_done |= isinstance(said, Ended)
        if isinstance(said, Failed):
            self.given_up.set()
        self.has_ended |= isinstance(said, Failed | Leaves)
        self.heard(said)
        if isinstance(said, Leaves):
            self.at_end()

    async def _until_gone(self) -> None:
        pid = self.begin.pid
        started = read_process(pid)
        while started is not None:
            await asyncio.sleep(_LOOK_SECONDS)
            found = read_process(pid)
            if found is None or found.started != started.started or found.state in ("Z", "X"):
                return
