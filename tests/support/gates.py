"""A TCP proxy that stops passing things on, as a network does that is cut."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct


class Gate:
    """Before a server on this machine; open, until it is shut.

    Attributes:
        port: Where it listens.
        swallows: Drop what the server answers, from now on.
    """

    def __init__(self, to: int) -> None:
        self._to = to
        self.port = 0
        self.swallows = False
        self.swallowed = asyncio.Event()
        self._passes = asyncio.Event()
        self._passes.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Gate:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=512)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.refuse()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.sleep(0.05)  # for the transports, which are closed by the loop

    def shut(self) -> None:
        """Nothing passes any more, and nobody hears of it; what is sent meanwhile comes later."""
        self._passes.clear()

    def open(self) -> None:
        """Let all pass."""
        self._passes.set()

    def refuse(self) -> None:
        """Reset all connections, and listen no more."""
        self._server.close()
        self.reset()

    def reset(self) -> None:
        """Both ends of all connections see a reset."""
        for writer in self._writers:
            if not writer.transport.is_closing():
                how = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, how)
            writer.transport.abort()
        self._writers.clear()

    async def lose_an_answer(self) -> None:
        """The next thing that the server says is lost, and the connections with it."""
        self.swallows = True
        await self.swallowed.wait()
        await asyncio.sleep(0.2)  # a commit comes after the first part of its answer
        self.reset()
        self.swallows = False
        self.swallowed.clear()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        await self._passes.wait()
        try:
            there, onward = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()  # as one that listens nowhere
            return
        self._writers.add(onward)
        try:
            await asyncio.gather(self._pump(reader, onward, False), self._pump(there, writer, True))
        finally:
            for one in (writer, onward):
                one.close()

    async def _pump(
        self, source: asyncio.StreamReader, to: asyncio.StreamWriter, answers: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                await self._passes.wait()
                if answers and self.swallows:
                    self.swallowed.set()
                else:
                    to.write(data)
                    await to.drain()
            await self._passes.wait()
        with contextlib.suppress(OSError, RuntimeError):
            to.write_eof() if to.can_write_eof() else to.close()
