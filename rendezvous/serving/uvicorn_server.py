"""uvicorn's server, held to our rules: bounded handshakes, our protocol, and a quick end.

What is used of uvicorn's inside is listed in `tests/rendezvous/test_uvicorn.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Sequence
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from rendezvous.compat import timeout
from rendezvous.serving.answers import SECURITY_HEADERS
from rendezvous.serving.connection_rules import ConnectionRules
from rendezvous.serving.http11 import GuardedProtocol
from rendezvous.tasks import wait_for

# How often the date of the answers is made anew.
_TICK_SECONDS = 1.0
# What is being answered at the end has so long, and is looked at so often.
_CLOSE_SECONDS = 3.0
_CLOSE_LOOK_SECONDS = 0.005

_STARTUP_FAILURE = 3  # as uvicorn's own, which each version keeps elsewhere


class GuardedServer(uvicorn.Server):
    """A uvicorn server on listening sockets that the caller made: `run(sockets=[...])`.

    SIGTERM and SIGINT end it: what is to be done before is, `closing` is set, the app ends its long
    polls, and after the app's own shutdown uvicorn raises the signal again, so that the process
    ends by it.

    With an `ssl_context` the server speaks TLS and nothing else. Every answer has the `headers`.
    """

    def __init__(
        self,
        app: ASGIApp,
        rules: ConnectionRules,
        *,
        closing: asyncio.Event,
        before_closing: Callable[[], Awaitable[None]] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        headers: Sequence[tuple[str, str]] = SECURITY_HEADERS,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=GuardedProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="error",
            proxy_headers=False,
            server_header=False,
            headers=list(headers),
        )
        super().__init__(config)
        self._rules = rules
        self._closing = closing
        self._before_closing = before_closing
        self._ssl_context = ssl_context
        self._told = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See the base class, which cannot bound the TLS handshake."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(_STARTUP_FAILURE)
        tls: dict[str, Any] = {}
        if self._ssl_context is not None:
            tls = {
                "ssl": self._ssl_context,
                "ssl_handshake_timeout": self._rules.timeouts.handshake,
                "ssl_shutdown_timeout": 1.0,
            }
        self._loop = loop = asyncio.get_running_loop()
        protocol = functools.partial(
            GuardedProtocol, self.config.loaded_app, self.server_state, loop, rules=self._rules
        )
        self.servers = [
            await loop.create_server(protocol, sock=sock, backlog=4096, **tls)
            for sock in sockets or []
        ]
        self.started = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal came: see the base class, which notices it at its next look."""
        super().handle_exit(sig, frame)
        if self.started:
            self._loop.call_soon_threadsafe(self._told.set)

    async def main_loop(self) -> None:
        """See the base class, which looks ten times a second whether it is to end."""
        while not await self.on_tick(0):
            await wait_for(self._told, _TICK_SECONDS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See the base class, which waits for a tenth of a second at each step: the end of each
        launch waits for this."""
        if self._before_closing is not None:
            await self._before_closing()
        self._closing.set()
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with timeout(_CLOSE_SECONDS):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 (uvicorn tells nobody)
                    await asyncio.sleep(_CLOSE_LOOK_SECONDS)
        for task in self.server_state.tasks:
            task.cancel()
        await self.lifespan.shutdown()
