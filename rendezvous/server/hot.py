"""The calls that every node makes, served without a framework's cost for each request.

    POST /v1/runs/{run}/nodes                  join
    GET  /v1/runs/{run}/nodes/{node}/watch     long poll; renews the lease
    POST /v1/runs/{run}/nodes/{node}/reports   probe results, acknowledgement, exit ...
    POST /v1/runs/{run}/nodes/{node}/metrics   progress of the program's processes
    GET  /healthz                              whether a registry is here; the only open call

And those that its launcher makes for every slot and at every change, in the form that clients give
them; in any other the framework answers.

    POST /v1/runs/{run}/slots/{slot}           what the scheduler says of a slot
    GET  /v1/runs/{run}?after=...&wait=...     the state of the run

They are declared in `app` as well, for the OpenAPI; both end in the same calls of the service.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from rendezvous.credentials import Credential, parse_credential
from rendezvous.errors import BadRequest, MethodNotAllowed
from rendezvous.schema import (
    JoinReply,
    JoinRequest,
    MetricBatch,
    MetricReply,
    Report,
    ReportReply,
    RunStatus,
    SlotNews,
)
from rendezvous.server.access import required
from rendezvous.server.guard import read_body
from rendezvous.server.host import Body, Host
from rendezvous.server.service import Service
from rendezvous.version import rdzv_version
from rendezvous.words import printable

_PATH = re.compile(r"/v1/runs/([^/]{1,63})/nodes(?:/([0-9]{1,6})/(watch|reports|metrics))?\Z")
_AFTER = re.compile(rb"(?:^|&)after=([^&]*)")
_RUN_PATH = re.compile(r"/v1/runs/([A-Za-z0-9][A-Za-z0-9._-]{0,62})(?:/slots/([0-9]{1,6}))?\Z")
_RUN_QUERY = re.compile(rb"after=(-?[0-9]{1,15})&wait=([0-9]{1,2}(?:\.[0-9]{1,9})?)\Z")
_NUMBER = re.compile(rb"-?[0-9]{1,100}\Z")
_JOIN: TypeAdapter[JoinRequest] = TypeAdapter(JoinRequest)
_REPORT: TypeAdapter[Report] = TypeAdapter(Report)
_METRICS: TypeAdapter[MetricBatch] = TypeAdapter(MetricBatch)
_SLOT_NEWS: TypeAdapter[SlotNews] = TypeAdapter(SlotNews)

T = TypeVar("T")

_CREDENTIAL = "rdzv.credential"
"""Where it is kept in the scope."""

HEALTHY = b"ok\n"
MAX_WAIT_SECONDS = 25.0


def credential_of(scope: Scope) -> Credential | None:
    """The credential in the Authorization header, or None; it is read once for each request."""
    if _CREDENTIAL not in scope:
        scope[_CREDENTIAL] = _read_credential(scope)
    found: Credential | None = scope[_CREDENTIAL]
    return found


def _read_credential(scope: Scope) -> Credential | None:
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, text = value.decode("latin-1").partition(" ")
            return parse_credential(text) if scheme.lower() == "bearer" else None
    return None


def bad_request(errors: Sequence[Mapping[str, Any]]) -> BadRequest:
    """What is wrong with a message: the places and the rules, never the values."""
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"])
    # This one sentence of Pydantic's quotes what it was given.
    rule = "no known kind" if first["type"] == "union_tag_invalid" else first["msg"]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return BadRequest(printable(f"{place or 'the body'}: {rule}{more}", 500))


def parse(adapter: TypeAdapter[T], data: bytes) -> T:
    """A message, as strict JSON; of a key that stands twice, the last one counts."""
    try:
        return adapter.validate_json(data)
    except ValidationError as exc:
        raise bad_request(exc.errors(include_input=False, include_context=False)) from None


async def join(
    service: Service, scope: Scope, run: str, credential: Credential | None, data: bytes
) -> JoinReply:
    """A node asks for its slot."""
    request = parse(_JOIN, data)
    host, reply = await service.join(run, credential, request)
    _heard(service, host, request.slot, reply.incarnation, scope)
    return reply


async def watch(
    service: Service, scope: Scope, run: str, slot: int, credential: Credential | None, after: int
) -> Body:
    """A node asks for news."""
    host = service.access.node(run, slot, credential)
    assert credential is not None
    _heard(service, host, slot, credential.number, scope)
    return await service.watch(host, after)


async def report(
    service: Service, scope: Scope, run: str, slot: int, credential: Credential | None, data: bytes
) -> ReportReply:
    """A node tells something."""
    host = service.access.node(run, slot, credential)
    assert credential is not None
    said = parse(_REPORT, data)
    _heard(service, host, slot, credential.number, scope)
    return await service.report(host, slot, credential.number, said)


async def metrics(
    service: Service, scope: Scope, run: str, slot: int, credential: Credential | None, data: bytes
) -> MetricReply:
    """A node tells how its program's processes get on."""
    host = service.access.node(run, slot, credential)
    assert credential is not None
    batch = parse(_METRICS, data)
    _heard(service, host, slot, credential.number, scope)
    return service.take_metrics(host, slot, credential.number, batch)


_SAID: dict[str | None, Callable[..., Awaitable[BaseModel]]] = {
    None: join,
    "reports": report,
    "metrics": metrics,
}
"""By the end of the path: what is called with what a node sends."""


def shows_credential(scope: Scope) -> bool:
    """Whether this is a node's call with some credential: a wrong one is counted when it fails."""
    return _PATH.match(scope["path"]) is not None and credential_of(scope) is not None


def proven(scope: Scope) -> None:
    """The peer of this connection has proven who it is."""
    connection = scope.get("state", {}).get("connection")
    if connection is not None:
        connection.is_known = True


def _heard(service: Service, host: Host, slot: int, incarnation: int, scope: Scope) -> None:
    proven(scope)
    service.heard(host, slot, incarnation, scope.get("state", {}).get("connection"))


class HotPath:
    """ASGI middleware that serves the hot calls itself and passes everything else on."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (scope.get("method"), scope.get("path")) == ("GET", "/healthz"):
            await _send_health(send)
            return
        match = _PATH.match(scope["path"]) if scope["type"] == "http" else None
        if match is None:
            await self._app(scope, receive, send)
            return
        run, node, verb = match.groups()
        method = "GET" if verb == "watch" else "POST"
        if scope["method"] != method:
            raise MethodNotAllowed(f"{scope['path']} takes {method}")
        credential = credential_of(scope)
        if verb == "watch":
            after = _after(scope["query_string"])
            body = await watch(self._service, scope, run, int(node), credential, after)
        else:
            where = (run, int(node)) if verb else (run,)
            required(credential)  # nothing is read from somebody who shows nothing
            data = await read_body(receive)
            reply = await _SAID[verb](self._service, scope, *where, credential, data)
            body = Body(reply.model_dump_json().encode())
        await send_body(send, scope, body)


class LauncherPath:
    """ASGI middleware that serves the launchers' calls itself and passes everything else on."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match = _RUN_PATH.match(scope["path"]) if scope["type"] == "http" else None
        status = None if match is None else await self._answer(scope, receive, *match.groups())
        if status is None:
            await self._app(scope, receive, send)
        else:
            await send_body(send, scope, Body(status.model_dump_json().encode()))

    async def _answer(
        self, scope: Scope, receive: Receive, run: str, slot: str | None
    ) -> RunStatus | None:
        """None: it is none of these calls, or comes in another form."""
        if slot is not None and scope["method"] == "POST":
            host = self._host(scope, run, write=True)
            news = parse(_SLOT_NEWS, await read_body(receive))
            return await self._service.slot_news(host, int(slot), news)
        query = _RUN_QUERY.match(scope["query_string"])
        if slot is not None or scope["method"] != "GET" or query is None:
            return None
        after, wait = int(query[1]), float(query[2])
        if wait > MAX_WAIT_SECONDS:
            return None
        host = self._host(scope, run, write=False)
        return await self._service.wait_status(host, after, wait)

    def _host(self, scope: Scope, run: str, *, write: bool) -> Host:
        host = self._service.access.run(run, credential_of(scope), write=write)
        proven(scope)
        return host


async def _send_health(send: Send) -> None:
    """What every stranger may ask, and so the cheapest answer."""
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(HEALTHY)),
        (b"x-rdzv", rdzv_version().encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": HEALTHY})


def _after(query: bytes) -> int:
    found = _AFTER.search(query)
    if found is None:
        return 0
    if not _NUMBER.match(found.group(1)):
        raise BadRequest("query.after: a whole number is expected")
    return int(found.group(1))


async def send_body(send: Send, scope: Scope, body: Body) -> None:
    """Answer 200 with JSON, compressed when that was prepared and the client takes it."""
    zipped = body.zipped if (b"accept-encoding", b"gzip") in scope["headers"] else None
    connection = scope.get("state", {}).get("connection")
    answer = connection.answer if connection is not None else None
    if answer is not None and await answer(body.answer(zipped=zipped is not None)):
        return
    data, headers = body.plain, [(b"content-type", b"application/json")]
    if zipped is not None:
        data = zipped
        headers.append((b"content-encoding", b"gzip"))
    headers.append((b"content-length", b"%d" % len(data)))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": data})
