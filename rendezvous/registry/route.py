"""FastAPI's route, with who may call decided before anything of the body is read.

FastAPI reads a body before it solves dependencies, and reads JSON laxly. So an endpoint's signature
declares its role, query and body; FastAPI makes OpenAPI of them, and `Route` enforces them:

    async def status(
        caller: Annotated[Caller, Security(reader)], query: Annotated[StatusQuery, Query()]
    ) -> RunStatus: ...
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
import typing
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from rendezvous.registry.caller import Caller, Public
from rendezvous.registry.endpoint import parameters_of
from rendezvous.serving.answers import Body
from rendezvous.serving.guard import MAX_BODY_BYTES, read_body
from rendezvous.serving.other_protocol import refuse_other_protocol
from rendezvous.wire.errors import BadRequest, MethodNotAllowed, Unavailable
from rendezvous.wire.words import printable

T = TypeVar("T")

Reply = Body | Response

_PROBLEM = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
REFUSALS: dict[int | str, dict[str, Any]] = {
    "4XX": {"content": _PROBLEM, "description": "Refused; `code` says why."},
    "5XX": {"content": _PROBLEM, "description": "Not now."},
}
"""Answers that every route may give. Problem stands by name: as a model, each route would compile
it twice at the start; `operators.openapi` declares it for all."""


def bad_request(exc: ValidationError) -> BadRequest:
    """Name the place and the rule that a message violates, never the value."""
    errors = exc.errors(include_input=False, include_context=False)
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"])
    # This one sentence of Pydantic's quotes what it was given.
    rule = "unknown kind" if first["type"] == "union_tag_invalid" else first["msg"]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return BadRequest(printable(f"{place or 'the body'}: {rule}{more}", 500))


def parse(adapter: TypeAdapter[T], data: bytes) -> T:
    """Read a message of strict JSON; of a key that stands twice, the last one counts."""
    try:
        return adapter.validate_json(data)
    except ValidationError as exc:
        raise bad_request(exc) from None


@dataclass(frozen=True)
class BodyRule:
    """Metadata of a body's annotation.

    Attributes:
        max_bytes: A longer body is refused unread.
        read: Reads it in place of the model; raises BadRequest.
    """

    max_bytes: int = MAX_BODY_BYTES
    read: Callable[[bytes], Any] | None = None


class Route(APIRoute):
    """A route whose endpoint declares a `caller`, and may declare a `query`, a `body` and names of
    its path. Raises TypeError where it declares what no route serves."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        hints = parameters_of(path, endpoint, options)
        (declared,) = hints["caller"].__metadata__
        self.role: Public = declared.dependency
        self._read_query = _query_reader(hints["query"]) if "query" in hints else None
        self._body = _body_rule(hints["body"]) if "body" in hints else None
        options["summary"] = (endpoint.__doc__ or "").partition("\n")[0]
        with _without("pydantic.v1"):
            super().__init__(path, endpoint, **options)
        # Starlette ends it in `$`, which a line feed may follow.
        self.path_regex = re.compile(self.path_regex.pattern.removesuffix("$") + r"\Z")
        (self.method,) = options["methods"]
        self._path_names = [name for name in self.param_convertors if name in hints]

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """See the base class."""

        async def handler(request: Request) -> Response:
            return await self.answer(request.scope, request.receive)  # type: ignore[return-value]

        return handler

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """See the base class, which takes twice as long where the path is another one."""
        if scope["type"] != "http" or not (match := self.path_regex.match(scope["path"])):
            return Match.NONE, {}
        convertors = self.param_convertors
        values = {name: convertors[name].convert(text) for name, text in match.groupdict().items()}
        found = Match.FULL if scope["method"] == self.method else Match.PARTIAL
        return found, {"path_params": values}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the base class, which knows no error of ours."""
        self._check_method(scope)
        await super().handle(scope, receive, send)

    def _check_method(self, scope: Scope) -> None:
        if scope["method"] != self.method:
            refuse_other_protocol(scope)
            path = printable(scope["path"], 100)
            raise MethodNotAllowed(f"{path} does not support {scope['method']}")

    async def answer(self, scope: Scope, receive: Receive) -> Reply:
        """Call the endpoint; an answer is an ASGI application.

        A tenant may be revoked while it sends its body, or waits: then nothing is done, or told.
        """
        role, service = self.role, scope["app"].state.service
        if not role.any_protocol:
            refuse_other_protocol(scope)
        caller = Caller(service, scope)
        try:
            if role.is_of_run:
                await service.place.find(caller.run, caller.credential, caller.unreached)
            role.admit(caller)
            values: dict[str, Any] = {"caller": caller}
            if self._read_query is not None:
                values["query"] = self._read_query(scope["query_string"])
            if self._body is not None:
                max_bytes, read = self._body
                values["body"] = read(await read_body(scope, receive, max_bytes))
                role.check_again(caller)
            for name in self._path_names:
                values[name] = scope["path_params"][name]
            reply = await self.endpoint(**values)
            role.check_again(caller)
        except Unavailable as exc:
            raise service.place.commits.instead_of(exc) from exc
        return Body(reply.model_dump_json().encode()) if isinstance(reply, BaseModel) else reply


class HotRoute(Route):
    """A route that every node calls on the way to the go, answered straight from its match.

    FastAPI's layers around a handler would add 6 us to the 14 that a watch takes.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the base class."""
        self._check_method(scope)
        reply = await self.answer(scope, receive)
        await reply(scope, receive, send)


def make_router(route: type[Route] = Route) -> APIRouter:
    """Make a router of such routes."""
    return APIRouter(route_class=route, responses=REFUSALS)


def routes_of(routers: Iterable[APIRouter]) -> list[Route]:
    """All routes of these routers. Raises TypeError where one asks for no role: a mount, a web
    socket, an included router."""
    found: list[Route] = []
    for route in itertools.chain.from_iterable(router.routes for router in routers):
        if not isinstance(route, Route):
            raise TypeError(f"{route!r} is no Route, and would ask nobody who calls")
        found.append(route)
    return found


def add_routes(router: APIRouter, routes: Iterable[Route]) -> None:
    """Add routes as they are; what is declared on the router itself is a `Route` from now on.

    Raises TypeError where the router has dependencies, which none runs.

    `include_router` would make them anew at the first request, in 50 ms, and match them in twice
    the time from then on.
    """
    if router.dependencies:
        raise TypeError(f"no route would run the dependencies {router.dependencies}")
    router.route_class = Route
    router.routes.extend(routes)


@contextmanager
def _without(module: str) -> Iterator[None]:
    """Have a module not found that was not imported before. FastAPI looks for models of pydantic.v1
    among ours, which have none: importing it takes a launch 25 ms, and 1.5 MB."""
    is_new = sys.modules.setdefault(module, None) is None  # type: ignore[arg-type]
    try:
        yield
    finally:
        if is_new:
            del sys.modules[module]


def _query_reader(declared: Any) -> Callable[[bytes], BaseModel]:
    """Make the reader of a query by its model, which passes over what is not declared."""
    model: type[BaseModel] = typing.get_args(declared)[0]

    @functools.lru_cache(256)  # all nodes ask for the same
    def read(text: bytes) -> BaseModel:
        given = dict(parse_qsl(text.decode("latin-1"), keep_blank_values=True))
        try:
            return model.model_validate(given)
        except ValidationError as exc:
            raise bad_request(exc) from None

    return read


def _body_rule(declared: Any) -> tuple[int, Callable[[bytes], Any]]:
    """The limit and the reader of a body; the reader raises BadRequest."""
    metadata = getattr(declared, "__metadata__", ())
    rule = next((one for one in metadata if isinstance(one, BodyRule)), BodyRule())
    return rule.max_bytes, rule.read or functools.partial(parse, TypeAdapter(declared))
