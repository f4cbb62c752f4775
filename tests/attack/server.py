"""Servers for strangers and liars: real sockets that write down every byte that arrives."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from rendezvous.talk.certificate import Certificate


@dataclass(frozen=True)
class Request:
    """One request of a client."""

    method: str
    path: str
    body: bytes


Answer = tuple[int, bytes]
Handler = Callable[[Request], Answer | Awaitable[Answer]]


@dataclass
class Server:
    """A server that is up, and what it was sent, by connection."""

    handler: Handler
    port: int = 0
    received: list[bytearray] = field(default_factory=list)
    tasks: dict[asyncio.Task[Any], asyncio.StreamWriter] = field(default_factory=dict)

    @property
    def everything(self) -> bytes:
        """All that arrived."""
        return b"".join(self.received)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection."""
        task = asyncio.current_task()
        assert task is not None
        self.tasks[task] = writer
        self.received.append(seen := bytearray())
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            try:
                while True:
                    await self._answer(reader, writer, seen)
            except asyncio.IncompleteReadError as exc:
                seen += exc.partial
        writer.close()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: bytearray
    ) -> None:
        seen += (head := await reader.readuntil(b"\r\n\r\n"))
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        seen += (body := await reader.readexactly(int(length[1]) if length else 0))
        method, path = head.decode().split(" ")[:2]
        answer = self.handler(Request(method, path, body))
        status, data = answer if isinstance(answer, tuple) else await answer
        lines = f"HTTP/1.1 {status} X\r\nx-rdzv: 1\r\ncontent-length: {len(data)}\r\n\r\n"
        writer.write(lines.encode() + data)


def tls(
    certificate: Certificate, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> ssl.SSLContext:
    """A server's side, for this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = context.maximum_version = version
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate.pem + certificate.key_pem)
        file.flush()
        context.load_cert_chain(file.name)
    return context


@contextlib.asynccontextmanager
async def serving(
    handler: Handler, *, context: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[Server]:
    """A server on loopback that answers each request with the handler."""
    made = Server(handler)
    server = await asyncio.start_server(made.serve, "127.0.0.1", port, ssl=context)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for writer in made.tasks.values():
            writer.transport.abort()
        await asyncio.gather(*made.tasks, return_exceptions=True)
