"""The agent's socket: where the processes of its own program, and its user, speak to it.

A Unix socket in a folder of its own, for this user alone; the program finds it by RDZV_SOCKET. Each
line is a JSON object that says in "do" what is wanted; what is refused is answered by one line,
{"error": "..."}. Some requests take the connection over (as does "exec"), others are answered by
nothing when they were taken, and more of them may follow on the same connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeAlias

from rendezvous.compat import timeout
from rendezvous.tasks import cancel_all
from rendezvous.wire.words import printable
from worker.program.own_folder import OwnFolder

MAX_LINE_BYTES = 1 << 20
MOST_CONNECTIONS = 700
_LONGEST_PATH = 107
"""Bytes; the kernel's sun_path with its closing zero."""
_CREDENTIALS = struct.Struct("3i")
_MOST_UNREAD_BYTES = 64 << 10
_HEAR_SECONDS = 1.0
_LINES_IN_A_ROW = 64

Request: TypeAlias = Mapping[str, Any]
Take: TypeAlias = Callable[[Request], str]
"""Takes a request in; returns why it was refused, empty when it was not."""


class Caller:
    """The other end of a connection that a request has taken over."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def tell(self, answer: Request) -> None:
        """Send one line, once there is room for it. Raises ConnectionError when nobody is there."""
        self._writer.write(_line(answer))
        await self._writer.drain()

    def mention(self, error: str) -> None:
        """Send an error if it can be sent at once: whoever does not read is not waited for."""
        if self._writer.transport.get_write_buffer_size() < _MOST_UNREAD_BYTES:
            self._writer.write(_line({"error": error}))

    async def refuse(self, error: str) -> None:
        """Send an error as the last line.

        What the other end goes on saying is read for a moment: closing a connection of which
        something is unread would take the answer back.
        """
        await self.tell({"error": error})
        self._writer.write_eof()
        with contextlib.suppress(TimeoutError):
            async with timeout(_HEAR_SECONDS):
                await self.gone()

    async def gone(self) -> None:
        """Wait until the other end has closed the connection; what else it says is not read."""
        with contextlib.suppress(OSError):
            while await self._reader.read(4096):
                pass


Serve: TypeAlias = Callable[[Request, Caller], Awaitable[None]]


class LocalSocket:
    """The socket of one agent; `open` makes it, `close` removes it.

    Args:
        take: By "do": requests that are taken in at once.
        serve: By "do": requests that take the connection over, which closes when they are done.
        uid: The only user whose processes may speak; this process's own when not given.
    """

    def __init__(
        self,
        *,
        take: Mapping[str, Take] | None = None,
        serve: Mapping[str, Serve] | None = None,
        uid: int | None = None,
    ) -> None:
        self._take = dict(take or {})
        self._serve = dict(serve or {})
        self._uid = os.geteuid() if uid is None else uid
        self._folder: OwnFolder | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.path = ""

    def add(self, name: str, take: Take) -> None:
        """Take in requests of this name as well, from now on."""
        self._take[name] = take

    async def open(self, environ: Mapping[str, str]) -> str:
        """Listen; returns the path. Raises OSError when no folder for temporary files will do."""
        error: OSError = FileNotFoundError("there is no folder for temporary files")
        for place in places(environ):
            try:
                self._folder = OwnFolder(place)
                path = str(self._folder.path / "agent")
                self._server = await asyncio.start_unix_server(
                    self._connected, path, limit=MAX_LINE_BYTES
                )
                os.chmod(path, 0o600)
            except OSError as exc:
                error = exc
                await self.close()
            else:
                self.path = path
                return path
        raise error

    async def hear_out(self, seconds: float) -> None:
        """Take in what those have said who have closed their connection, or for so long."""
        for _ in range(3):  # one that was just made is accepted, and its task begins
            await asyncio.sleep(0)
        if self._connections:
            await asyncio.wait(set(self._connections), timeout=seconds)

    async def close(self) -> None:
        """Answer nobody any more."""
        if self._server is not None:
            self._server.close()
        await cancel_all(self._connections)
        if self._folder is not None:
            self._folder.remove()
        self._server, self._folder = None, None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        caller = Caller(reader, writer)
        try:
            if problem := self._problem_of(writer):
                await caller.refuse(problem)
            else:
                await self._listen(reader, caller)
        except (OSError, asyncio.CancelledError):
            pass  # it has gone, or this agent ends
        finally:
            self._connections.discard(task)
            writer.close()

    def _problem_of(self, writer: asyncio.StreamWriter) -> str:
        sock = writer.get_extra_info("socket")
        told = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, uid, _ = _CREDENTIALS.unpack(told)
        if uid != self._uid:
            return f"this agent belongs to user {self._uid}, and you are user {uid}"
        if len(self._connections) > MOST_CONNECTIONS:
            return f"this agent has {MOST_CONNECTIONS} connections, which is its limit"
        return ""

    async def _listen(self, reader: asyncio.StreamReader, caller: Caller) -> None:
        for number in itertools.count(1):
            if number % _LINES_IN_A_ROW == 0:  # readline() does not pause for what is here
                await asyncio.sleep(0)
            try:
                line = await reader.readline()
            except ValueError:
                await caller.refuse(f"a line has at most {MAX_LINE_BYTES} bytes")
                return
            if not line.endswith(b"\n"):
                return
            request = _read(line)
            if isinstance(request, str):
                await caller.refuse(request)
                return
            what = request["do"]
            if what in self._serve:
                await self._serve[what](request, caller)
                return
            refused = self._take[what](request) if what in self._take else self._unknown(what)
            if refused:
                caller.mention(refused)

    def _unknown(self, what: str) -> str:
        known = ", ".join(sorted([*self._take, *self._serve]))
        return f"this agent cannot do {printable(repr(what), 100)}; it can: {known}"


def _line(answer: Request) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def _read(line: bytes) -> Request | str:
    """The request in a line, or what is wrong with it."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return "this line is not valid JSON"
    if not isinstance(value, dict) or not isinstance(value.get("do"), str):
        return 'a line must be a JSON object that names the request in "do"'
    return value


def places(environ: Mapping[str, str]) -> Iterator[str]:
    """Folders in which a socket's path is short enough."""
    for place in (environ.get("XDG_RUNTIME_DIR"), environ.get("TMPDIR"), "/tmp"):  # noqa: S108 (0700)
        if place and len(os.fsencode(place)) + len("/rdzv-12345678/agent") <= _LONGEST_PATH:
            yield place
