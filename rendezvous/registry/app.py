"""The registry's application: FastAPI with a router for each audience, behind throttle and guard.

A request comes from `http11` through `Guard`, `Throttle` and `RegistryApp` to a route of `routes/`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from rendezvous.registry import access
from rendezvous.registry.caller import credential_of
from rendezvous.registry.route import add_routes, routes_of
from rendezvous.registry.routes import RUNS, launchers, nodes, operators, readers, topics
from rendezvous.registry.service import Service
from rendezvous.serving.connection import Connection, connection_of
from rendezvous.serving.guard import Guard
from rendezvous.serving.limiter import FailedLogins, Strangers
from rendezvous.serving.other_protocol import refuse_other_protocol
from rendezvous.tasks import now
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
from rendezvous.wire.words import printable

logger = logging.getLogger(__name__)

_ROUTERS = (
    *(nodes.hot_router, nodes.router, topics.router),
    *(launchers.router, readers.router, operators.router),
)
ROUTES = routes_of(_ROUTERS)

_NODE_KINDS = ("join", "node")
_OF_LOGINS = (Unauthorized, access.NotYours)
"""Errors that count as a failed login."""
_OF_GUESSES = (*_OF_LOGINS, BadRequest, Forbidden, MethodNotAllowed, NotFound, TooLarge)
"""The same for a request that was not paced: no node gets these before its credential is proven."""


class Throttle:
    """ASGI middleware that paces requests of connections that have proven no credential, and failed
    logins.

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
            connection.peer, connection.paid_off_at, now()
        )
        if wait > 0:
            await asyncio.sleep(wait)

    async def _count(self, scope: Scope, error: RdzvError) -> None:
        """Count a failed login. Raises TooManyRequests, after a wait, where they are too many."""
        source = scope["client"][0] if scope.get("client") else ""
        wait = self._failed.failed(source, now())
        if wait > 0:
            await asyncio.sleep(wait)  # one connection guesses no faster than it may
            raise TooManyRequests(
                f"too many wrong credentials from {source}", hint=f"wait {wait:.0f} s"
            ) from error


def _shows_node(scope: Scope) -> bool:
    """Whether a request about a run brings a credential of a node's kind."""
    shown = credential_of(scope) if scope["path"].startswith(f"{RUNS}/") else None
    return shown is not None and shown.kind in _NODE_KINDS


class RegistryApp(FastAPI):
    """The FastAPI application; from its startup to its shutdown it runs the service."""

    def __init__(self, service: Service) -> None:
        super().__init__(
            title="rdzv registry",
            version="1",
            description="Brings the nodes of one training job together.",
            openapi_url=None,  # `operators.openapi` serves it
            redirect_slashes=False,
            lifespan=_lifespan,
        )
        self.state.service = service
        self.router.default = _not_found
        add_routes(self.router, ROUTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Go straight to the routes.

        FastAPI's own middleware would answer 500 to the errors that `Guard` answers, add 8 us to a
        call, and export telemetry where the environment asks the user's program for it.
        """
        scope["app"] = self
        await self.router.app(scope, receive, send)


def make_app(service: Service, *, allowed_hosts: Collection[str]) -> ASGIApp:
    """The registry's whole application, guard included."""
    inner = Throttle(RegistryApp(service))
    return Guard(inner, allowed_hosts=allowed_hosts, max_body_bytes=launchers.MAX_SPEC_BYTES)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a path that no route has."""
    refuse_other_protocol(scope)
    raise NotFound(f"there is no {printable(scope['path'], 100)} here")


_OWN_SCOPES: Mapping[str, access.Scope] = {"look": "look", "logs": "logs"}
"""The scope of each credential that opens one thing alone."""


def asks_what_is_wrong(service: Service) -> Callable[[Scope], bool]:
    """Whether a request is one of a run's launcher, its readers, the operator or Prometheus.

    They are few, and are served where there is no room for a further node.
    """

    def asks(scope: Scope) -> bool:
        shown = credential_of(scope)
        if shown is None or shown.kind == "node":
            return False
        try:
            if shown.kind in ("registry", "metrics"):
                service.access.metrics(shown)
            elif shown.kind == "tenant":
                service.access.tenant(shown)
            else:
                run = scope["path"].removeprefix(f"{RUNS}/").partition("/")[0]
                service.access.run(run, shown, _OWN_SCOPES.get(shown.kind, "read"))
        except RdzvError:
            return False
        return True

    return asks


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Serve from the startup, which waits for the service to be ready, to the shutdown."""
    service: Service = app.state.service
    task = asyncio.create_task(service.serve())
    task.add_done_callback(_end_process_when_failed)
    ready = asyncio.create_task(service.sequencer.ready.wait())
    await asyncio.wait((task, ready), return_when="FIRST_COMPLETED")
    ready.cancel()
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _end_process_when_failed(task: asyncio.Task[None]) -> None:
    """A registry whose sequencer failed must not go on: its launcher starts it again."""
    if not task.cancelled() and task.exception() is not None:
        logger.critical("the registry's sequencer failed", exc_info=task.exception())
        os.kill(os.getpid(), signal.SIGTERM)
