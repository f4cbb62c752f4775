"""ASGI middleware that slows down strangers, and whoever shows wrong credentials."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from rendezvous.registry.access import NotYours
from rendezvous.registry.caller import credential_of
from rendezvous.registry.routes import RUNS
from rendezvous.serving.connection import Connection, connection_of
from rendezvous.serving.limiter import FailedLogins, Strangers
from rendezvous.wire.errors import (
    BadRequest,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    RdzvError,
    TooLarge,
    TooManyRequests,
    Unauthorized,
)

_NODE_KINDS = ("join", "node")
_OF_LOGINS = (Unauthorized, NotYours)
"""Errors that count as a failed login."""
_OF_GUESSES = (*_OF_LOGINS, BadRequest, Forbidden, MethodNotAllowed, NotFound, TooLarge)
"""The same for a request that was not paced: no node gets these before its credential is proven."""


class Throttle:
    """Paces the requests of connections that have proven no credential, and failed logins.

    A request with a node's credential is not paced; where it fails, it counts as a failed login.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._strangers = Strangers()
        self._failed = FailedLogins()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = connection_of(scope)
        stranger = None if connection is None or connection.is_known else connection
        is_node = stranger is not None and _shows_node(scope)
        if stranger is not None and not is_node:
            await self._pace(stranger)
            if stranger.closed:
                return
        try:
            await self._app(scope, receive, send)
        except RdzvError as exc:
            unproven = stranger is not None and is_node and not stranger.is_known
            if isinstance(exc, _OF_GUESSES if unproven else _OF_LOGINS):
                await self._count(scope, exc)
            raise
        if stranger is not None and stranger.is_known:
            self._strangers.give_back(stranger.peer, stranger.asked)

    async def _pace(self, connection: Connection) -> None:
        """One request at a time: nothing more is read from the peer until it is answered."""
        connection.asked += 1
        connection.paid_off_at, wait = self._strangers.take(
            connection.peer, connection.paid_off_at, asyncio.get_running_loop().time()
        )
        if wait > 0:
            await asyncio.sleep(wait)

    async def _count(self, scope: Scope, error: RdzvError) -> None:
        """Count a failed login. Raises TooManyRequests, after a wait, where they are too many."""
        source = scope["client"][0] if scope.get("client") else ""
        wait = self._failed.failed(source, asyncio.get_running_loop().time())
        if wait > 0:
            await asyncio.sleep(wait)  # one connection guesses no faster than it may
            raise TooManyRequests(
                f"too many wrong credentials from {source}", hint=f"wait {wait:.0f} s"
            ) from error


def _shows_node(scope: Scope) -> bool:
    """Whether a request about a run brings a credential of a node's kind."""
    shown = credential_of(scope) if scope["path"].startswith(f"{RUNS}/") else None
    return shown is not None and shown.kind in _NODE_KINDS
