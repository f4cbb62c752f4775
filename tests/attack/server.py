"""Servers for strangers and liars: real sockets that write down every byte that arrives."""

from __future__ import annotations

import asyncio
import contextlib
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
    """A server that is up, and what it was sent."""

    port: int = 0
    received: list[bytearray] = field(default_factory=list)

    @property
    def everything(self) -> bytes:
        """All that arrived."""
        return b"".join(self.received)


def tls(certificate: Certificate) -> ssl.SSLContext:
    """What the registry itself uses, for this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate.pem + certificate.key_pem)
        file.flush()
        context.load_cert_chain(file.name)
    return context


@contextlib.asynccontextmanager
async def serving(
    handler: Handler,
    *,
    context: ssl.SSLContext | None = None,
    address: str = "127.0.0.1",
    port: int = 0,
) -> AsyncIterator[Server]:
    """A server that answers each request with the handler."""
    made = Server()
    tasks: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks[task] = writer
        seen = bytearray()
        made.received.append(seen)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await _answer(reader, writer, handler, seen)
        writer.close()

    server = await asyncio.start_server(serve, address, port, ssl=context)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for writer in tasks.values():
            writer.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _answer(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    handler: Handler,
    seen: bytearray,
) -> None:
    unread = b""
    while True:
        while b"\r\n\r\n" not in unread or len(unread) < _end_of_request(unread):
            piece = await reader.read(65_536)
            if not piece:
                return
            seen += piece
            unread += piece
        end = _end_of_request(unread)
        head, _, body = unread[:end].partition(b"\r\n\r\n")
        unread = unread[end:]
        method, path = head.split(b" ")[:2]
        answer = handler(Request(method.decode(), path.decode(), body))
        status, data = answer if isinstance(answer, tuple) else await answer
        lines = f"HTTP/1.1 {status} X\r\nx-rdzv: 1\r\ncontent-length: {len(data)}\r\n\r\n"
        writer.write(lines.encode() + data)


def _end_of_request(data: bytes) -> int:
    head, end, _ = data.partition(b"\r\n\r\n")
    for line in head.lower().splitlines():
        if line.startswith(b"content-length:"):
            return len(head + end) + int(line.split(b":")[1])
    return len(head + end)
