"""The three calls that every node makes, served without a framework's cost for each request.

    POST /v1/runs/{run}/nodes                  join
    GET  /v1/runs/{run}/nodes/{node}/watch     long poll; renews the lease
    POST /v1/runs/{run}/nodes/{node}/reports   probe results, acknowledgement, exit ...

They are declared in `app` as well, for the OpenAPI; both end in the same calls of the service.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import TypeAdapter, ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from rendezvous.errors import BadRequest, MethodNotAllowed, Unauthorized
from rendezvous.schema import JoinReply, JoinRequest, Report, ReportReply
from rendezvous.security import Credential, parse_credential
from rendezvous.server.guard import read_body
from rendezvous.server.host import Body, Host
from rendezvous.server.service import Service

_PATH = re.compile(r"/v1/runs/([^/]{1,63})/nodes(?:/(\d{1,6})/(watch|reports))?\Z")
_AFTER = re.compile(rb"(?:^|&)after=(-?\d{1,12})(?:&|$)")
REPORT: TypeAdapter[Report] = TypeAdapter(Report)


def credential_of(scope: Scope) -> Credential | None:
    """The credential in the Authorization header, or None."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, text = value.decode("latin-1").partition(" ")
            return parse_credential(text) if scheme.lower() == "bearer" else None
    return None


def bad_request(error: ValidationError) -> BadRequest:
    """What is wrong with a message: the places and the rules, never the values."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return BadRequest(f"{place or 'the body'}: {first['msg']}{more}"[:500])


async def join(
    service: Service, scope: Scope, run: str, credential: Credential | None, data: bytes
) -> JoinReply:
    """A node asks for its slot."""
    try:
        request = JoinRequest.model_validate_json(data)
    except ValidationError as exc:
        raise bad_request(exc) from None
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
    try:
        said = REPORT.validate_json(data, strict=True)
    except ValidationError as exc:
        raise bad_request(exc) from None
    _heard(service, host, slot, credential.number, scope)
    return await service.report(host, slot, credential.number, said)


def _heard(service: Service, host: Host, slot: int, incarnation: int, scope: Scope) -> None:
    service.heard(host, slot, incarnation, scope.get("state", {}).get("connection"))


class HotPath:
    """ASGI middleware that serves the hot calls itself and passes everything else on."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
            found = _AFTER.search(scope["query_string"])
            after = int(found.group(1)) if found else 0
            body = await watch(self._service, scope, run, int(node), credential, after)
        else:
            call: Callable[..., Awaitable[Any]] = report if verb else join
            where = (run, int(node)) if verb else (run,)
            if credential is None:  # nothing is read from somebody who shows nothing
                raise Unauthorized("this needs a credential")
            reply = await call(self._service, scope, *where, credential, await read_body(receive))
            body = Body(reply.model_dump_json().encode())
        await send_body(send, scope, body)


async def send_body(send: Send, scope: Scope, body: Body) -> None:
    """Answer 200 with JSON, compressed when that was prepared and the client takes it."""
    data, headers = body.plain, [(b"content-type", b"application/json")]
    if body.zipped is not None and (b"accept-encoding", b"gzip") in scope["headers"]:
        data = body.zipped
        headers.append((b"content-encoding", b"gzip"))
    headers.append((b"content-length", b"%d" % len(data)))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": data})
