"""HTTP for the registry: routes to calls and back; a route is a few lines."""

# No postponed annotations here: FastAPI reads those of the routes, which name local types.

import asyncio
import contextlib
import logging
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Collection
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import TypeAdapter
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from rendezvous.compat import timeout
from rendezvous.credentials import Credential
from rendezvous.errors import (
    MethodNotAllowed,
    NotFound,
    RdzvError,
    TooManyRequests,
    Unauthorized,
)
from rendezvous.schema import (
    EndpointTable,
    EventLine,
    JoinReply,
    JoinRequest,
    MetricBatch,
    MetricReply,
    NodeView,
    Problem,
    Refusal,
    RelayMail,
    RelayPost,
    RelayReply,
    Report,
    ReportReply,
    RunId,
    RunList,
    RunMetrics,
    RunReport,
    RunSpec,
    RunStatus,
    SlotNews,
)
from rendezvous.server import hot
from rendezvous.server.access import NotYours
from rendezvous.server.guard import (
    MAX_BODY_BYTES,
    Connection,
    Guard,
    problem_response,
    read_body,
)
from rendezvous.server.host import Host
from rendezvous.server.journal import MemoryJournal
from rendezvous.server.limiter import FailedLogins, Strangers
from rendezvous.server.service import Service
from rendezvous.version import rdzv_version
from rendezvous.words import printable

logger = logging.getLogger(__name__)

_RUN_SPEC: TypeAdapter[RunSpec] = TypeAdapter(RunSpec)
_SLOT_NEWS: TypeAdapter[SlotNews] = TypeAdapter(SlotNews)

_OF_RUN = re.compile(r"/v1/runs/([^/]{1,63})(?:/|\Z)")
_REFUSAL: TypeAdapter[Refusal] = TypeAdapter(Refusal)
_RELAY_POST: TypeAdapter[RelayPost] = TypeAdapter(RelayPost)

_MAX_SPEC_BYTES = 4 * 1024 * 1024
_MAX_RELAY_BYTES = 256 * 1024
_REFUSALS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Problem, "description": "Refused; `code` says why."},
    "5XX": {"model": Problem, "description": "Not now."},
}


def make_app(service: Service, *, allowed_hosts: Collection[str]) -> ASGIApp:
    """The registry's whole application, guard included."""
    return guarded(make_api(service), service, allowed_hosts=allowed_hosts)


def guarded(api: ASGIApp, service: Service, *, allowed_hosts: Collection[str]) -> ASGIApp:
    """Routes behind all that stands before them; what is counted there begins anew."""
    return Guard(
        _Door(hot.HotPath(hot.LauncherPath(api, service), service)),
        allowed_hosts=allowed_hosts,
        body_limit=_body_limit,
    )


def _body_limit(scope: Scope) -> int:
    """The maker of a run may send a large body: a spec with a token for each slot; and a node what
    remote commands print."""
    credential = hot.credential_of(scope)
    if credential is not None and (scope["method"], credential.kind) == ("PUT", "registry"):
        return _MAX_SPEC_BYTES
    relays = credential is not None and credential.kind == "node"
    return _MAX_RELAY_BYTES if relays and scope["path"].endswith("/relay") else MAX_BODY_BYTES


def asks_what_is_wrong(service: Service) -> Callable[[Scope], bool]:
    """Whether a request is one of a run's launcher, its readers or the operator.

    They are few, and are served where there is no room for a further node.
    """

    def asks(scope: Scope) -> bool:
        shown = hot.credential_of(scope)
        try:
            if shown is not None and shown.kind == "registry":
                service.access.registry(shown)
                return True
            run = _OF_RUN.match(scope["path"])
            if shown is None or run is None or shown.kind == "node":
                return False
            service.access.run(run.group(1), shown, write=False)
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
        if connection is None or connection.is_known or hot.shows_credential(scope):
            await self._let_in(scope, receive, send)
            return
        await self._pace(connection)
        if connection.closed:
            return
        await self._let_in(scope, receive, send)
        if connection.is_known:
            self._strangers.give_back(connection.peer, connection.asked)

    async def _pace(self, connection: Connection) -> None:
        """One request at a time: nothing more is read from the peer until it is answered."""
        connection.asked += 1
        connection.paid_off_at, wait = self._strangers.take(
            connection.peer, connection.paid_off_at, asyncio.get_running_loop().time()
        )
        if wait > 0:
            await asyncio.sleep(wait)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
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


async def _pause(receive: Receive, seconds: float) -> None:
    """Let a peer wait for its answer, so that one connection guesses no faster than it may."""
    with contextlib.suppress(TimeoutError):
        async with timeout(seconds):
            while (await receive())["type"] != "http.disconnect":
                pass


Node = Annotated[int, Path(ge=0, le=999_999, description="The slot of the node.")]
Run = Annotated[RunId, Path(description="The RDZV_ID.")]


def make_api(service: Service) -> FastAPI:
    """The routes, the cold ones served here, the hot ones declared for the OpenAPI."""
    api = FastAPI(
        title="rdzv registry",
        version="1",
        description="Brings the nodes of one training job together.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=_lifespan(service),
        responses=_REFUSALS,
    )
    _add_errors(api)
    _add_open_routes(api, service)
    _add_run_routes(api, service)
    _add_node_routes(api, service)
    _add_refusal_route(api, service)
    _add_relay_routes(api, service)
    # Starlette's outermost layer would answer 500 to every error that the guard answers.
    stack = api.build_middleware_stack()
    assert isinstance(stack, ServerErrorMiddleware)
    api.middleware_stack = stack.app
    return api


def _lifespan(service: Service) -> Any:
    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(service.serve())
        task.add_done_callback(_end_process_when_failed)
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    return lifespan


def _end_process_when_failed(task: asyncio.Task[None]) -> None:
    """A registry whose sequencer failed must not go on: its launcher starts it again."""
    if not task.cancelled() and task.exception() is not None:
        logger.critical("the registry's sequencer failed", exc_info=task.exception())
        os.kill(os.getpid(), signal.SIGTERM)


def _add_errors(api: FastAPI) -> None:
    """What FastAPI refuses, in the one shape, without the values that the client sent.

    All other errors are answered by the guard.
    """

    @api.exception_handler(RequestValidationError)
    async def invalid(_: Request, exc: Exception) -> Response:
        assert isinstance(exc, RequestValidationError)
        return _answer(hot.bad_request(exc.errors()))

    @api.exception_handler(HTTPException)
    async def unknown(request: Request, exc: Exception) -> Response:
        path = printable(request.url.path, 100)
        if isinstance(exc, HTTPException) and exc.status_code == 405:
            return _answer(MethodNotAllowed(f"{path} does not take {request.method}"))
        return _answer(NotFound(f"there is no {path} here"))


def _answer(error: RdzvError) -> Response:
    status, headers, body = problem_response(error)
    return Response(body, status, {name.decode(): value.decode() for name, value in headers})


def _shown(request: Request) -> Credential | None:
    return hot.credential_of(request.scope)


def _add_open_routes(api: FastAPI, service: Service) -> None:
    @api.get(
        "/healthz",
        summary="Whether a registry is here; needs no credential.",
        response_class=Response,
        responses=_content("text/plain", {"type": "string"}),
    )
    async def healthz() -> Response:
        return PlainTextResponse(hot.HEALTHY, headers={"x-rdzv": rdzv_version()})

    @api.get(
        "/metrics",
        summary="Counters and gauges, as Prometheus text.",
        response_class=Response,
        responses=_content("text/plain", {"type": "string"}),
    )
    async def metrics(request: Request) -> Response:
        _operator(service, request)
        return PlainTextResponse(service.metrics_text())

    @api.get("/v1/runs", summary="All runs, without their slots.")
    async def runs(request: Request) -> RunList:
        _operator(service, request)
        return RunList(runs=await service.statuses())


def _operator(service: Service, request: Request) -> None:
    service.access.registry(_shown(request))
    hot.proven(request.scope)


def _add_run_routes(api: FastAPI, service: Service) -> None:
    async def reader(run: Run, request: Request) -> Host:
        host = service.access.run(run, _shown(request), write=False)
        hot.proven(request.scope)
        return host

    async def writer(run: Run, request: Request) -> Host:
        host = service.access.run(run, _shown(request), write=True)
        hot.proven(request.scope)
        return host

    _add_changes(api, service, Annotated[Host, Depends(writer)])
    _add_views(api, service, Annotated[Host, Depends(reader)])


def _add_changes(api: FastAPI, service: Service, Writer: Any) -> None:
    """What the maker of a run says."""

    @api.put("/v1/runs/{run}", summary="Make a run.")
    async def create(run: Run, request: Request) -> RunStatus:
        _operator(service, request)
        return await service.create(run, hot.parse(_RUN_SPEC, await read_body(request.receive)))

    @api.delete("/v1/runs/{run}", summary="Cancel a run.")
    async def cancel(
        host: Writer, reason: Annotated[str, Query(max_length=300)] = "asked for"
    ) -> RunStatus:
        return await service.cancel(host, printable(reason, 300))

    @api.post(
        "/v1/runs/{run}/slots/{slot}",
        summary="What the scheduler says of a slot.",
    )
    async def slot_news(host: Writer, slot: Node, request: Request) -> RunStatus:
        news = hot.parse(_SLOT_NEWS, await read_body(request.receive))
        return await service.slot_news(host, slot, news)


def _add_views(api: FastAPI, service: Service, Reader: Any) -> None:
    """What is told to people."""

    @api.get("/v1/runs/{run}", summary="The state of a run; waits for a version above `after`.")
    async def status(
        host: Reader,
        after: int = -1,
        wait: Annotated[float, Query(ge=0, le=hot.MAX_WAIT_SECONDS)] = 0.0,
    ) -> RunStatus:
        return await service.wait_status(host, after, wait)

    @api.get(
        "/v1/runs/{run}/events",
        summary="Events as they happen, one JSON object a line; empty lines while it is quiet.",
        response_class=Response,
        responses=_content("application/x-ndjson", _ref(EventLine)),
    )
    async def event_stream(host: Reader, after: int = 0) -> Response:
        return StreamingResponse(_lines(service, host, after), media_type="application/x-ndjson")

    @api.get("/v1/runs/{run}/tables/{digest}", summary="The endpoint table with this digest.")
    async def table(host: Reader, digest: str) -> EndpointTable:
        found: EndpointTable | None = host.run.table
        if found is None or host.run.digest != digest:
            raise NotFound(f"run '{host.run.id}' has no table {printable(digest, 64)} now")
        return found

    @api.get(
        "/v1/runs/{run}/report",
        summary="What was checked before the go: findings, and who reached whom.",
        response_model=RunReport,
    )
    async def checks(host: Reader) -> Any:
        body = (await service.checks(host)).model_dump_json().encode()
        return Response(body, media_type="application/json")

    @api.get(
        "/v1/runs/{run}/metrics",
        summary="How the program's processes get on: the newest row of each, or with `after` the "
        "rows numbered above it.",
        response_model=RunMetrics,
    )
    async def run_metrics(host: Reader, after: int | None = None) -> Any:
        return Response(service.metrics(host, after), media_type="application/json")


async def _lines(service: Service, host: Host, after: int) -> AsyncIterator[bytes]:
    while True:
        lines = await service.event_lines(host, after)
        if lines is None:
            return
        after = lines[-1].number if lines else after
        # An empty line now and then tells a quiet run from a dead registry.
        yield b"".join(to_json(line) + b"\n" for line in lines) or b"\n"


def _add_node_routes(api: FastAPI, service: Service) -> None:
    """The hot calls. `hot.HotPath` stands before them; here they are described, and work too."""

    @api.post("/v1/runs/{run}/nodes", summary="Join.")
    async def join(run: Run, request: Request) -> JoinReply:
        data = await read_body(request.receive)
        return await hot.join(service, request.scope, run, _shown(request), data)

    @api.get(
        "/v1/runs/{run}/nodes/{node}/watch",
        summary="News newer than `after`, else the reason of the moment after the poll length.",
        response_model=NodeView,
    )
    async def watch(run: Run, node: Node, request: Request, after: int = 0) -> Any:
        body = await hot.watch(service, request.scope, run, node, _shown(request), after)
        return Response(body.plain, media_type="application/json")

    @api.post(
        "/v1/runs/{run}/nodes/{node}/reports",
        summary="Probe results, acknowledgement or refusal, progress, exit, leave.",
    )
    async def report(run: Run, node: Node, request: Request) -> ReportReply:
        data = await read_body(request.receive)
        return await hot.report(service, request.scope, run, node, _shown(request), data)

    @api.post(
        "/v1/runs/{run}/nodes/{node}/metrics",
        summary="How the program's processes on this node get on.",
    )
    async def metrics(run: Run, node: Node, request: Request) -> MetricReply:
        data = await read_body(request.receive)
        return await hot.metrics(service, request.scope, run, node, _shown(request), data)


def _add_refusal_route(api: FastAPI, service: Service) -> None:
    """What a node says that has not joined, with the join token of its slot and generation."""

    @api.post(
        "/v1/runs/{run}/slots/{slot}/refusal",
        summary="Why a node does not join; it ends then.",
    )
    async def refuse(run: Run, slot: Node, request: Request) -> ReportReply:
        host, generation = service.access.refuser(run, _shown(request), slot)
        refusal = hot.parse(_REFUSAL, await read_body(request.receive))
        return await service.refuse(host, slot, generation, refusal)


def _add_relay_routes(api: FastAPI, service: Service) -> None:
    """What the nodes of a run say to each other about remote commands."""

    async def member(run: Run, node: Node, request: Request) -> Host:
        shown = _shown(request)
        host = service.access.node(run, node, shown)
        assert shown is not None
        hot.proven(request.scope)
        # The connection does not count: it ends with the command, and the node goes on.
        service.heard(host, node, shown.number, None)
        return host

    Member = Annotated[Host, Depends(member)]

    @api.post(
        "/v1/runs/{run}/nodes/{node}/relay",
        summary="Frames of remote commands for other nodes.",
    )
    async def give(host: Member, node: Node, request: Request) -> RelayReply:
        data = await read_body(request.receive)
        return service.relay_give(host, node, hot.parse(_RELAY_POST, data))

    @api.get(
        "/v1/runs/{run}/nodes/{node}/relay",
        summary="Frames of remote commands for this node numbered above `after`; waits for one.",
        response_model=RelayMail,
    )
    async def take(
        host: Member,
        node: Node,
        after: Annotated[int, Query(ge=0)] = 0,
        session: Annotated[str, Query(max_length=64)] = "",
    ) -> Any:
        mail = await service.relay_take(host, node, after, session)
        return Response(mail.model_dump_json(), media_type="application/json")


def _content(media_type: str, schema: dict[str, str]) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {media_type: {"schema": schema}}}}


def _ref(model: type[Any]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _schema(model: Any) -> dict[str, Any]:
    return TypeAdapter(model).json_schema(ref_template="#/components/schemas/{model}")


_BODIES: dict[tuple[str, str], Any] = {
    ("put", ""): RunSpec,
    ("post", "/slots/{slot}"): SlotNews,
    ("post", "/slots/{slot}/refusal"): Refusal,
    ("post", "/nodes"): JoinRequest,
    ("post", "/nodes/{node}/reports"): Report,
    ("post", "/nodes/{node}/metrics"): MetricBatch,
    ("post", "/nodes/{node}/relay"): RelayPost,
}
"""What the routes below `/v1/runs/{run}` read themselves, as strict JSON."""


def openapi() -> dict[str, Any]:
    """The OpenAPI of the registry, as it stands in `docs/openapi.json`."""
    document = make_api(Service(MemoryJournal(), b"", "")).openapi()
    components, paths = document["components"], document["paths"]
    for (method, path), model in _BODIES.items():
        schema = _schema(model)
        components["schemas"] |= schema.pop("$defs", {})
        content = {"application/json": {"schema": schema}}
        paths[f"/v1/runs/{{run}}{path}"][method]["requestBody"] = {
            "required": True,
            "content": content,
        }
    components["schemas"] |= _schema(list[EventLine]).get("$defs", {})
    bearer = {"type": "http", "scheme": "bearer", "description": "The path says whose is needed."}
    components["securitySchemes"] = {"credential": bearer}
    document["security"] = [{"credential": []}]
    document["paths"]["/healthz"]["get"]["security"] = []
    return document
