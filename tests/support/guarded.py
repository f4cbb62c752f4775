"""A small application behind the registry's guard, on real uvicorn and loopback sockets.

Run as a program (`python -m tests.support.guarded FD`) this is the server that a test can signal.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import queue
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from starlette.types import Receive, Scope, Send

from rendezvous.serving.answers import whole_answer
from rendezvous.serving.connection import CloseReason
from rendezvous.serving.connection_rules import ConnectionRules, Timeouts
from rendezvous.serving.guard import MAX_BODY_BYTES, Guard, read_body
from rendezvous.serving.http11 import GuardedProtocol
from rendezvous.serving.room import Room
from rendezvous.serving.uvicorn_server import GuardedServer
from rendezvous.talk.certificate import make_certificate
from rendezvous.talk.credentials import SERVER_NAME
from rendezvous.talk.http_network import client_context
from rendezvous.wire.errors import SlotTaken
from tests.attack import server as sockets

PATIENT = Timeouts(handshake=60, header=60, body=60, unacknowledged=60)
QUICK = Timeouts(handshake=0.3, header=0.3, body=0.3, idle=1, unacknowledged=0.5)
MEGABYTE = 2**20


class App:
    """A small application: it echoes, parks, fails and listens for the end of connections."""

    def __init__(self) -> None:
        self.closing = asyncio.Event()
        self.parked = threading.Event()
        self.read: list[int] = []
        self.whole: list[bool] = []
        self.ended: queue.SimpleQueue[CloseReason] = queue.SimpleQueue()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for done in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{done}.complete"})
            return
        path, connection = scope["path"], scope["state"]["connection"]
        if path in ("/park", "/watch", "/whole", "/wide"):
            connection.on_close(self.ended.put)
        if path == "/park":
            self.parked.set()
            await self.closing.wait()
        if path in ("/whole", "/wide"):
            body = b"whole" if path == "/whole" else bytes(8 * MEGABYTE)
            self.whole.append(await connection.answer(whole_answer(body)))
            if self.whole[-1]:
                return
        if path == "/taken":
            raise SlotTaken("slot 2 is held by 10.0.0.7", hint="wait")
        if path == "/fault":
            raise KeyError("secret")
        if path == "/late":
            await asyncio.sleep(0.6)
        if path == "/echo":
            most = 2 * MAX_BODY_BYTES if scope["method"] == "PUT" else MAX_BODY_BYTES
            self.read.append(len(await read_body(scope, receive, most)))
        body = {
            "/echo": lambda: b"%d bytes" % self.read[-1],
            "/large": lambda: bytes(32 * MEGABYTE),
            "/peer": lambda: f"{connection.peer} {scope['client'][0]}".encode(),
            "/whole": lambda: b"by ASGI",
        }.get(path, path[1:].encode)()
        length = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": body})


def guarded_server(
    app: App, *, max_connections: int = 1000, timeouts: Timeouts = PATIENT, **options: Any
) -> GuardedServer:
    """A server for the app as the registry would make it."""
    guard = Guard(
        app,
        allowed_hosts={SERVER_NAME},
        max_body_bytes=2 * MAX_BODY_BYTES,
    )
    rules = ConnectionRules(Room(max_connections), timeouts=timeouts)
    return GuardedServer(guard, rules, closing=app.closing, **options)


class Served:
    """An app that is being served on a loopback port."""

    def __init__(self, app: App, port: int, server: GuardedServer | None = None) -> None:
        self.app = app
        self.port = port
        self._server = server

    def hurry(self) -> None:
        """From now on the connections that are open have little time for each step."""
        assert self._server is not None
        for connection in list(self._server.server_state.connections):
            assert isinstance(connection, GuardedProtocol)
            connection.rules = replace(connection.rules, timeouts=QUICK)

    def connect(self, *, tls: bool = False) -> socket.socket:
        """A connected client socket."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return contexts()[1].wrap_socket(client, server_hostname=SERVER_NAME) if tls else client

    def ask(self, *pieces: bytes) -> bytes:
        """Send all pieces on a new connection; what came back until the server closed it."""
        with self.connect() as client:
            with contextlib.suppress(ConnectionError):
                for piece in pieces:
                    client.sendall(piece)
            return read_to_end(client)

    def ended(self) -> CloseReason:
        """How the connection that the app listens to has ended; waits for it."""
        return self.app.ended.get(timeout=10)


@functools.cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's and a client's, around one certificate."""
    made = make_certificate(bytes(32))
    return sockets.tls(made), client_context(made.der)


@contextlib.contextmanager
def serve(*, tls: bool = False, **options: Any) -> Iterator[Served]:
    """Serve an app in a thread."""
    app = App()
    if tls:
        options["ssl_context"] = contexts()[0]
    server = guarded_server(app, **options)
    server.config.loop = "uvloop"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield Served(app, port, server)
        finally:
            server.should_exit = True
            thread.join(20)
    assert not thread.is_alive()


def request(path: str = "/echo", *headers: str, method: str = "GET", close: bool = True) -> bytes:
    """The header of a request."""
    lines = [f"{method} {path} HTTP/1.1", *headers]
    if not any(line.lower().startswith("host:") for line in headers):
        lines.append(f"Host: {SERVER_NAME}")
    if close:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode()


def post(length: int, body: bytes = b"", path: str = "/echo", **options: Any) -> bytes:
    """A request with a body, or a part of it."""
    options.setdefault("method", "POST")
    return request(path, f"Content-Length: {length}", **options) + body


def read_to_end(client: socket.socket) -> bytes:
    """All bytes until the other side closes or resets."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(65536):
            received += piece
    return received


def read_answer(client: socket.socket) -> bytes:
    """One answer with a Content-Length on a connection that stays open."""
    received, whole = bytearray(), sys.maxsize
    while len(received) < whole:
        received += (piece := client.recv(65536))
        assert piece, "the server closed the connection"
        head, end, _ = bytes(received[:10_000]).partition(b"\r\n\r\n")
        if end:
            whole = len(head) + 4 + int(headers_of(head)["content-length"])
    return bytes(received)


def say(client: socket.socket, asked: bytes) -> bytes:
    """Ask, on a connection that stays open; the body of the answer."""
    client.sendall(asked)
    return body_of(read_answer(client))


def status_of(answer: bytes) -> int:
    """The status code."""
    return int(answer.split(b" ", 2)[1])


def headers_of(answer: bytes) -> dict[str, str]:
    """The headers, names in lower case."""
    lines = answer.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    parts = (line.partition(":") for line in lines)
    return {name.lower(): value.strip() for name, _, value in parts}


def body_of(answer: bytes) -> bytes:
    """The body of an answer with a Content-Length."""
    return answer.partition(b"\r\n\r\n")[2]


def problem_of(answer: bytes) -> tuple[int, str]:
    """Status and code of a refusal, which is a Problem."""
    problem = json.loads(body_of(answer))
    assert sorted(problem) == ["code", "hint", "message", "retryable"]
    return status_of(answer), problem["code"]


if __name__ == "__main__":
    guarded_server(App(), timeouts=Timeouts()).run(sockets=[socket.socket(fileno=int(sys.argv[1]))])
