"""The registry's application: requests to calls by the table of routes, and back.

FastAPI's routes serve the calls that people and operators make now and then; those that every node
or launch makes are answered before. What stands around both is our own: FastAPI's layers would be
paid for by every request, and answer 500 to each error that the guard answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from rendezvous.compat import timeout
from rendezvous.registry import access
from rendezvous.registry.access import NotYours
from rendezvous.registry.asked import Asked, credential_of, newcomer, node
from rendezvous.registry.routes import ROUTES, Route, find
from rendezvous.registry.service import Service
from rendezvous.serving.answers import Body, send_body
from rendezvous.serving.connection import Connection
from rendezvous.serving.guard import MAX_BODY_BYTES, Guard, read_body
from rendezvous.serving.limiter import FailedLogins, Strangers
from rendezvous.serving.other_protocol import refuse_other_protocol
from rendezvous.wire.errors import (
    MethodNotAllowed,
    NotFound,
    RdzvError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from rendezvous.wire.words import printable

logger = logging.getLogger(__name__)

_MAX_SPEC_BYTES = 4 * 1024 * 1024
_MAX_RELAY_BYTES = 256 * 1024


def make_app(service: Service, *, allowed_hosts: Collection[str]) -> ASGIApp:
    """The registry's whole application, guard included; as long as it is up, so is the service."""

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        task = asyncio.create_task(service.serve())
        task.add_done_callback(_end_process_when_failed)
        ready = asyncio.create_task(service.sequencer.ready.wait())
        await asyncio.wait((task, ready), return_when="FIRST_COMPLETED")
        ready.cancel()
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    alone = Router(lifespan=lifespan)
    inner = _Door(_Lean(service, lifespan=alone))
    return Guard(inner, allowed_hosts=allowed_hosts, body_limit=_body_limit)


def _body_limit(scope: Scope) -> int:
    """The maker of a run may send a large body: a spec with a token for each slot; and a node what
    remote commands print."""
    credential = credential_of(scope)
    if credential is not None and scope["method"] == "PUT" and credential.kind in _MAKERS:
        return _MAX_SPEC_BYTES
    relays = credential is not None and credential.kind == "node"
    return _MAX_RELAY_BYTES if relays and scope["path"].endswith("/relay") else MAX_BODY_BYTES


_MAKERS = ("registry", "tenant")
"""The credentials of those who may make a run."""

_OWN_SCOPES: Mapping[str, access.Scope] = {"look": "look", "logs": "logs"}
"""Of the credentials that are good for one thing alone."""


def asks_what_is_wrong(service: Service) -> Callable[[Scope], bool]:
    """Whether a request is one of a run's launcher, its readers, the operator or Prometheus.

    They are few, and are served where there is no room for a further node.
    """

    def asks(scope: Scope) -> bool:
        shown, (run, _) = credential_of(scope), find(scope["path"])[1]
        if shown is None or shown.kind == "node":
            return False
        try:
            if shown.kind in ("registry", "metrics"):
                service.access.metrics(shown)
            elif shown.kind == "tenant":
                service.access.tenant(shown)
            else:
                service.access.run(run, shown, _OWN_SCOPES.get(shown.kind, "read"))
        except RdzvError:
            return False
        return True

    return asks


class _Door:
    """ASGI middleware that slows down strangers, and whoever shows wrong credentials."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._strangers = Strangers()
        self._failed = FailedLogins()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: Connection | None = scope.get("state", {}).get("connection")
        stranger = None if connection is None or connection.is_known else connection
        if stranger is not None and not _shows_credential(scope):
            await self._pace(stranger)
            if stranger.closed:
                return
        try:
            await self._app(scope, receive, send)
        except (Unauthorized, NotYours) as exc:
            source = scope["client"][0] if scope.get("client") else ""
            wait = self._failed.failed(source, asyncio.get_running_loop().time())
            if wait > 0:
                await _pause(receive, wait)
                raise TooManyRequests(
                    f"too many wrong credentials from {source}", hint=f"wait {wait:.0f} s"
                ) from exc
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


async def _pause(receive: Receive, seconds: float) -> None:
    """Let a peer wait for its answer, so that one connection guesses no faster than it may."""
    with contextlib.suppress(TimeoutError):
        async with timeout(seconds):
            while (await receive())["type"] != "http.disconnect":
                pass


def _shows_credential(scope: Scope) -> bool:
    """Whether this is a node's call with some credential: a wrong one is counted when it fails."""
    route = find(scope["path"])[0].get(scope["method"])
    return route is not None and route.who in _NODES and credential_of(scope) is not None


_NODES = (node, newcomer)


class _Lean:
    """ASGI application that answers what every node asks; the rest goes on to FastAPI's routes."""

    def __init__(self, service: Service, *, lifespan: ASGIApp) -> None:
        self._service = service
        self._lifespan = lifespan

    async def _rest(self) -> ASGIApp:
        """Imported with the first of these calls, as no launch makes one before its go: FastAPI
        takes a third of the time in which a registry starts, and nobody waits for it meanwhile."""
        if "fastapi" not in sys.modules:
            with contextlib.suppress(RuntimeError):  # no thread can be started: then in this one
                await asyncio.to_thread(importlib.import_module, "fastapi")
        return self._fast_api

    @functools.cached_property
    def _fast_api(self) -> ASGIApp:
        from fastapi import FastAPI

        api = FastAPI(openapi_url=None, redirect_slashes=False)
        for route in ROUTES:
            if not route.lean:
                api.add_route(route.path, _endpoint(route, self._service), methods=[route.method])
        return api.router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._lifespan(scope, receive, send)
            return
        routes, values = find(scope["path"])
        route = routes.get(scope["method"])
        if route is None or not route.any_protocol:
            refuse_other_protocol(scope)
        if route is None:
            path = printable(scope["path"], 100)
            if routes:
                raise MethodNotAllowed(f"{path} does not support {scope['method']}")
            raise NotFound(f"there is no {path} here")
        if not route.lean:
            rest = await self._rest()
            await rest(scope, receive, send)
            return
        reply = await _answer(route, self._service, Asked(scope, *values), receive)
        if isinstance(reply, Response):
            await reply(scope, receive, send)
        else:
            await send_body(send, scope, reply)


def _endpoint(route: Route, service: Service) -> Callable[[Request], Awaitable[Response]]:
    """What FastAPI calls for a route that is not lean."""

    async def endpoint(request: Request) -> Response:
        asked = Asked(request.scope, *find(request.scope["path"])[1])
        reply = await _answer(route, service, asked, request.receive)
        if isinstance(reply, Response):
            return reply
        return Response(reply.plain, media_type="application/json")

    return endpoint


async def _answer(
    route: Route, service: Service, asked: Asked, receive: Receive
) -> Body | Response:
    """Who may call comes before anything of the body is read, and where the run is before that.

    A tenant may be revoked while it sends its body, or waits: then nothing is done, or told.
    """
    try:
        return await _reply(route, service, asked, receive)
    except Unavailable as exc:
        raise service.place.commits.instead_of(exc) from exc


async def _reply(route: Route, service: Service, asked: Asked, receive: Receive) -> Body | Response:
    if route.is_of_run:
        await service.place.find(asked.run, asked.credential, asked.unreached)
    route.who(service, asked)
    if route.query:
        asked.query = route.read_query(asked.scope["query_string"])
    if route.body is not None:
        asked.said = route.body(await read_body(receive))
        route.check_again(service, asked)
    reply = await route.call(service, asked)
    route.check_again(service, asked)
    if isinstance(reply, Body | Response):
        return reply
    return Body(reply.model_dump_json().encode())


def _end_process_when_failed(task: asyncio.Task[None]) -> None:
    """A registry whose sequencer failed must not go on: its launcher starts it again."""
    if not task.cancelled() and task.exception() is not None:
        logger.critical("the registry's sequencer failed", exc_info=task.exception())
        os.kill(os.getpid(), signal.SIGTERM)
