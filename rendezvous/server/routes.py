"""The registry's calls: each is declared here once, and nowhere else.

A route says who may make a call, what goes in and what comes out. `app` serves requests by this
table, and `openapi` describes it. The calls that each node makes come first; they are the hot ones.
"""

from __future__ import annotations

import functools
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any
from urllib.parse import parse_qsl

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, create_model
from pydantic_core import to_json
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from rendezvous.prometheus import CONTENT_TYPE
from rendezvous.run.rounds import run_report
from rendezvous.server.asked import (
    Asked,
    anyone,
    bad_request,
    command_of_node,
    log_reader,
    looker,
    maker,
    newcomer,
    newcomer_of_slot,
    node,
    operator,
    reader,
    scraper,
)
from rendezvous.server.live_run import LiveRun
from rendezvous.server.prometheus import metrics_text
from rendezvous.server.service import Service
from rendezvous.serving.answers import Body
from rendezvous.version import rdzv_version
from rendezvous.wire.errors import NotFound, Unavailable
from rendezvous.wire.last_words import LastWords, LastWordsReply, RunLastWords
from rendezvous.wire.log_view import RunView, ViewCall, ViewPost, ViewReply, ViewRequest
from rendezvous.wire.look import LookCall, LookReport, RunLook
from rendezvous.wire.machine import MachineSample, RunMachines
from rendezvous.wire.metrics import MetricBatch, MetricReply, RunMetrics
from rendezvous.wire.node import JoinReply, JoinRequest, Refusal
from rendezvous.wire.pace import ClockReply
from rendezvous.wire.relay import RelayMail, RelayPost, RelayReply
from rendezvous.wire.reports import AckReport, ExitReport, Report, ReportReply
from rendezvous.wire.run import (
    DrainRequest,
    EventLine,
    RestartRequest,
    RunList,
    RunReport,
    RunSpec,
    RunStatus,
    SlotNews,
)
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.types import RUN_ID, Digest, RunId
from rendezvous.wire.watch import LONGEST_POLL_SECONDS, NodeView
from rendezvous.wire.words import printable

# --- what is more than a call of the service


async def _join(service: Service, asked: Asked) -> JoinReply:
    meters = service.sequencer.meters
    began = meters.clock()
    live, reply = await service.join(asked.run, asked.credential, asked.said)
    asked.proven()
    service.heard(live, asked.said.slot, reply.incarnation, asked.connection)
    meters.joins.observe(meters.clock() - began)
    return reply


async def _report(service: Service, asked: Asked) -> ReportReply:
    meters = service.sequencer.meters
    began = meters.clock()
    reply = await service.report(asked.live, asked.slot, asked.number, asked.said)
    meters.reports.observe(meters.clock() - began)
    return reply


async def _watch(service: Service, asked: Asked) -> Body:
    """A watch that brings an acknowledgement is answered once that is durable, as a report is."""
    began, query = service.sequencer.meters.clock(), asked.query
    if query.ack is not None:
        ack = _ack(query.epoch, query.ack)
        await service.report(asked.live, asked.slot, asked.number, ack, watches=True)
    return await _news(service, asked, began)


async def _end_and_watch(service: Service, asked: Asked) -> Body:
    """The same of a program's end."""
    began = service.sequencer.meters.clock()
    await service.report(asked.live, asked.slot, asked.number, asked.said, watches=True)
    return await _news(service, asked, began)


async def _news(service: Service, asked: Asked, began: float) -> Body:
    live, query = asked.live, asked.query
    known = (query.after, query.has, query.look, query.views)
    body = await service.watch(live, *known, query.wait)
    if live.news_seq > query.after:
        service.sequencer.meters.told(began, live)
    return body


@functools.lru_cache(64)  # all nodes acknowledge the same
def _ack(epoch: int, digest: str) -> AckReport:
    return AckReport(epoch=epoch, digest=digest)


async def _health(service: Service, asked: Asked) -> Response:
    return _HEALTHY


async def _ready(service: Service, asked: Asked) -> Response:
    if service.closing.is_set():
        raise Unavailable("the registry is closing")
    service.place.check_ready()
    return _HEALTHY


_HEALTHY = PlainTextResponse("ok\n", headers={"x-rdzv": rdzv_version()})


async def _measured(service: Service, asked: Asked) -> Response:
    return Response(metrics_text(service), media_type=CONTENT_TYPE)


async def _events(service: Service, asked: Asked) -> Response:
    lines = _event_lines(service, asked.live, asked.query.after)
    return StreamingResponse(lines, media_type=_LINES)


async def _event_lines(service: Service, live: LiveRun, after: int) -> AsyncIterator[bytes]:
    while (lines := await service.event_lines(live, after)) is not None:
        after = lines[-1].number if lines else after
        # An empty line now and then tells a quiet run from a dead registry.
        yield b"".join(to_json(line) + b"\n" for line in lines) or b"\n"


async def _table(service: Service, asked: Asked) -> EndpointTable:
    run, digest = asked.live.run, asked.value
    if run.table is None or run.digest != digest:
        raise NotFound(f"run '{run.id}' has no table {printable(digest, 64)} now")
    return run.table


async def _curves(service: Service, asked: Asked) -> Body:
    live, after = asked.live, asked.query.after
    elapsed = live.now() - live.run.created_at
    rows = live.metrics.newest(elapsed) if after is None else live.metrics.after(after, elapsed)
    return Body(rows)


async def _look(service: Service, asked: Asked) -> LookCall:
    service.counters["looks"] += 1
    return asked.live.begin_look(asked.live.now())


async def _looked(service: Service, asked: Asked) -> Body:
    looks, number = asked.live.looks, asked.query.look
    if not service.closing.is_set():
        await looks.wait(number, asked.query.wait, asked.live.now())
    return looks.written(number, asked.live.now())


async def _answer_look(service: Service, asked: Asked) -> ReportReply:
    for taker in (asked.live.looks, asked.live.pacing):
        taker.take(asked.slot, asked.said, asked.live.now())
    return ReportReply(seq=asked.live.news_seq)


async def _clock(service: Service, asked: Asked) -> ClockReply:
    return ClockReply(now=asked.live.now())


async def _take_machine(service: Service, asked: Asked) -> ReportReply:
    live = asked.live
    live.machines.take(live.run, asked.slot, asked.number, asked.said, live.now())
    return ReportReply(seq=live.news_seq)


async def _machines(service: Service, asked: Asked) -> Body:
    return asked.live.machines.written(asked.live.run, asked.live.now())


async def _take_words(service: Service, asked: Asked) -> LastWordsReply:
    live, said = asked.live, asked.said
    service.counters["last_words"] += len(said.texts)
    return live.last_words.take(live.run, asked.slot, said)


async def _words(service: Service, asked: Asked) -> Body:
    return Body(asked.live.last_words.after(asked.query.after))


async def _view(service: Service, asked: Asked) -> ViewCall:
    service.counters["views"] += 1
    return asked.live.open_view(asked.said, asked.live.now(), service.sequencer.view_limits)


async def _viewed(service: Service, asked: Asked) -> Body:
    live, query = asked.live, asked.query
    if not service.closing.is_set():
        await live.views.wait(live.run, query.view, query.after, query.wait, live.now())
    return live.views.written(live.run, query.view, query.after, live.now())


async def _serve_view(service: Service, asked: Asked) -> ViewReply:
    return asked.live.views.take((asked.slot, asked.number), asked.said, asked.live.now())


# --- the table

Reply = Body | BaseModel | Response

_TEXT, _LINES = "text/plain", "application/x-ndjson"
_Wait = Annotated[float, Field(ge=0, le=25.0)]
_Sequence = Annotated[int, Field(ge=0)]
_Session = Annotated[str, Field(max_length=64)]
_Reason = Annotated[str, Field(max_length=300)]


@dataclass(frozen=True, eq=False)
class Route:
    """One call.

    Attributes:
        path: With a placeholder for each value: see `PLACEHOLDERS`.
        who: Who may call; raises for others, before anything of the body is read.
        call: What it does.
        gives: The model of the answer, as OpenAPI tells it.
        takes: The model of the body, which is strict JSON.
        query: The type and the default of each value of the query.
        media: The type of the answer.
        lean: Whether it is answered before FastAPI's routing: every node or launch makes it.
    """

    name: str
    method: str
    path: str
    summary: str
    who: Callable[[Service, Asked], None]
    call: Callable[[Service, Asked], Awaitable[Reply]]
    gives: Any
    _: KW_ONLY
    takes: Any = None
    query: Mapping[str, Any] = field(default_factory=dict)
    media: str = "application/json"
    lean: bool = False

    @functools.cached_property
    def body(self) -> TypeAdapter[Any] | None:
        """Reads the body."""
        return None if self.takes is None else TypeAdapter(self.takes)

    @functools.cached_property
    def _query(self) -> type[BaseModel]:
        return create_model("Query", **self.query)

    @functools.lru_cache(256)  # noqa: B019 (routes are never let go; all nodes ask for the same)
    def read_query(self, text: bytes) -> Any:
        """The values of a query, by name; what is not declared is passed over."""
        given = dict(parse_qsl(text.decode("latin-1"), keep_blank_values=True))
        try:
            return self._query.model_validate(given)
        except ValidationError as exc:
            raise bad_request(exc) from None


_RUN = "/v1/runs/{run}"
_NODE, _SLOT = f"{_RUN}/nodes/{{node}}", f"{_RUN}/slots/{{slot}}"
_AFTER = (int, 0)
_DIGEST = (Digest | None, None)
_LOOK = (_Sequence, 0)
_NO_LONGER = (Annotated[float, Field(ge=0, le=LONGEST_POLL_SECONDS)] | None, None)


# fmt: off
ROUTES = (
    # What every node asks and says.
    Route("watch", "GET", f"{_NODE}/watch",
          "News newer than `after`, else the reason of the moment after the poll length; "
          "before it waits, it acknowledges the table of `epoch` with the digest `ack`. `has` is "
          "the digest of the table that the node has: of one that renews it only the port is sent. "
          "`look` and `views` are the numbers of the look and the newest view that it knows: it is "
          "answered early for another one. `wait` is the poll length that the node knows, in "
          "seconds: it is not made to wait longer.",
          node, _watch, NodeView,
          query={"after": _AFTER, "epoch": (int, 0), "ack": _DIGEST, "has": _DIGEST,
                 "look": _LOOK, "views": _LOOK, "wait": _NO_LONGER}, lean=True),
    Route("end_and_watch", "POST", f"{_NODE}/watch",
          "The same; before it waits, it takes in how the program has ended.",
          node, _end_and_watch, NodeView, takes=ExitReport,
          query={"after": _AFTER, "has": _DIGEST, "look": _LOOK, "views": _LOOK,
                 "wait": _NO_LONGER}, lean=True),
    Route("report", "POST", f"{_NODE}/reports",
          "Probe results, acknowledgement or refusal, progress, exit, leave.",
          node,
          _report, ReportReply, takes=Report, lean=True),
    Route("join", "POST", f"{_RUN}/nodes", "Join.",
          newcomer, _join, JoinReply, takes=JoinRequest, lean=True),
    Route("metrics", "POST", f"{_NODE}/metrics",
          "The metrics of the program's processes on this node.",
          node, lambda service, asked: service.take_metrics(
              asked.live, asked.slot, asked.number, asked.said),
          MetricReply, takes=MetricBatch, lean=True),
    Route("send_machine", "POST", f"{_NODE}/machine", "The state of this node's machine.",
          node, _take_machine, ReportReply, takes=MachineSample, lean=True),
    Route("send_words", "POST", f"{_NODE}/words",
          "What the ranks of a failed program have printed last, before their node leaves.",
          node, _take_words, LastWordsReply, takes=LastWords, lean=True),
    Route("healthz", "GET", "/healthz", "Whether a registry answers; needs no credential.",
          anyone, _health, str, media=_TEXT, lean=True),
    Route("readyz", "GET", "/readyz",
          "Whether runs can be made here: not where the journal is out of reach, or at the end.",
          anyone, _ready, str, media=_TEXT, lean=True),
    # What each launch says and asks.
    Route("slot_news", "POST", _SLOT, "What the scheduler reports about a slot.",
          maker, lambda service, asked: service.slot_news(asked.live, asked.slot, asked.said),
          RunStatus, takes=SlotNews, lean=True),
    Route("status", "GET", _RUN, "The state of a run; waits for a version above `after`.",
          reader, lambda service, asked: service.wait_status(
              asked.live, asked.query.after, asked.query.wait),
          RunStatus, query={"after": (int, -1), "wait": (_Wait, 0.0)}, lean=True),
    Route("create", "PUT", _RUN, "Make a run.",
          operator, lambda service, asked: service.create(asked.run, asked.said),
          RunStatus, takes=RunSpec, lean=True),
    Route("cancel", "DELETE", _RUN, "Cancel a run.",
          maker,
          lambda service, asked: service.cancel(asked.live, printable(asked.query.reason, 300)),
          RunStatus, query={"reason": (_Reason, "asked for")}, lean=True),
    Route("event_stream", "GET", f"{_RUN}/events",
          "Events as they happen, one JSON object per line; empty lines while there are none.",
          reader, _events, EventLine, query={"after": _AFTER}, media=_LINES, lean=True),
    Route("table", "GET", f"{_RUN}/tables/{{digest}}", "The endpoint table with this digest.",
          reader, _table, EndpointTable, lean=True),
    Route("checks", "GET", f"{_RUN}/report",
          "What was checked before the go: findings, and which nodes reached which.",
          reader,
          lambda service, asked: service.sequencer.look(
              lambda _: run_report(asked.live.run), about=asked.run),
          RunReport, lean=True),
    Route("machines", "GET", f"{_RUN}/machines",
          "The nodes' machines: what each is, and its newest state.",
          reader, _machines, RunMachines, lean=True),
    Route("run_metrics", "GET", f"{_RUN}/metrics",
          "The processes' metrics: the newest row of each, or with `after` the rows above it.",
          reader, _curves, RunMetrics, query={"after": (int | None, None)}, lean=True),
    Route("last_words", "GET", f"{_RUN}/words",
          "What the ranks of failed programs have printed last, numbered above `after`.",
          log_reader, _words, RunLastWords, query={"after": (_Sequence, 0)}, lean=True),
    # The rest.
    Route("restart", "POST", f"{_RUN}/restart",
          "Stop the programs of a run, and start them again on the same nodes.",
          maker,
          lambda service, asked: service.restart(asked.live, printable(asked.said.reason, 300)),
          RunStatus, takes=RestartRequest),
    Route("drain", "POST", f"{_SLOT}/drain",
          "Show the programs that this slot's node will leave, and stop all of them before.",
          maker,
          lambda service, asked: service.drain(asked.live, asked.slot, asked.said),
          RunStatus, takes=DrainRequest),
    Route("refuse", "POST", f"{_SLOT}/refusal", "Why a node does not join; it ends then.",
          newcomer_of_slot,
          lambda service, asked: service.refuse(asked.live, asked.slot, asked.number, asked.said),
          ReportReply, takes=Refusal),
    Route("give", "POST", f"{_NODE}/relay", "Frames of remote commands for other nodes.",
          command_of_node,
          lambda service, asked: service.relay_give(asked.live, asked.slot, asked.said),
          RelayReply, takes=RelayPost),
    Route("take", "GET", f"{_NODE}/relay",
          "Frames of remote commands for this node numbered above `after`; waits for one.",
          command_of_node, lambda service, asked: service.relay_take(
              asked.live, asked.slot, asked.query.after, asked.query.session),
          RelayMail, query={"after": (_Sequence, 0), "session": (_Session, "")}),
    Route("look", "POST", f"{_RUN}/looks",
          "Ask all nodes where their ranks are; the look that is under way, where there is one.",
          looker, _look, LookCall),
    Route("looked", "GET", f"{_RUN}/looks",
          "What has come of the look with this number, 0 for the newest; waits for the rest.",
          looker, _looked, RunLook, query={"look": _LOOK, "wait": (_Wait, 0.0)}),
    Route("answer_look", "POST", f"{_NODE}/looks", "Where the ranks of this node are.",
          node, _answer_look, ReportReply, takes=LookReport, lean=True),
    Route("clock", "GET", f"{_NODE}/clock", "The registry's clock, for times of several nodes.",
          node, _clock, ClockReply, lean=True),
    Route("view", "POST", f"{_RUN}/views",
          "Look at what the programs print: asks the nodes that have it.",
          log_reader, _view, ViewCall, takes=ViewRequest),
    Route("viewed", "GET", f"{_RUN}/views",
          "What has come of this view after the piece `after`, which is let go; waits for more.",
          log_reader, _viewed, RunView,
          query={"view": (_Sequence, 0), "after": (_Sequence, 0), "wait": (_Wait, 0.0)}),
    Route("serve_view", "POST", f"{_NODE}/views", "Lines of a node's logs for one view.",
          node, _serve_view, ViewReply, takes=ViewPost, lean=True),
    Route("runs", "GET", "/v1/runs", "All runs, without their slots.",
          operator, lambda service, asked: service.statuses(), RunList),
    Route("metrics", "GET", "/metrics", "What the registry measures, as Prometheus text.",
          scraper, _measured, str, media=_TEXT, lean=True),
)
# fmt: on

_INDEX = (
    r"[0-9]{1,6}",
    Annotated[int, Field(ge=0, le=999_999, description="The slot of the node.")],
)
PLACEHOLDERS: Mapping[str, tuple[str, Any]] = {
    "run": (RUN_ID, Annotated[RunId, Field(description="The RDZV_ID.")]),
    "node": _INDEX,
    "slot": _INDEX,
    "digest": (r"[^/]+", str),
}
"""What may stand in a path in place of each name, and how OpenAPI tells it."""


# --- from a path to its routes

_Found = tuple[Mapping[str, Route], int, int]


def _one_pattern() -> tuple[re.Pattern[str], dict[int, _Found]]:
    """All paths as alternatives, each with an empty group at its end; and by the number of that
    group the routes, and the groups of the two values (that of the end where there is none)."""
    paths: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method] = route
        route.body  # noqa: B018 (made here, and not while the first node waits for its answer)
    patterns, found, last = [], dict[int, _Found](), 0
    for path, routes in paths.items():
        patterns.append(re.sub(r"{(\w+)}", lambda m: f"({PLACEHOLDERS[m[1]][0]})", path) + "()")
        values, last = path.count("{"), last + path.count("{") + 1
        found[last] = routes, last - values, last - max(0, values - 1)
    return re.compile("|".join(patterns)), found


_PATHS, _FOUND = _one_pattern()


def find(path: str) -> tuple[Mapping[str, Route], tuple[str, str]]:
    """The routes of a path by method, none where it is no path of ours; and the values in it: the
    run, and the node, slot or digest."""
    match = _PATHS.fullmatch(path)
    if match is None or match.lastindex is None:
        return {}, ("", "")
    routes, run, more = _FOUND[match.lastindex]
    return routes, (match[run], match[more])
