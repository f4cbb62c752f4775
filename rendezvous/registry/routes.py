"""The registry's calls: each is declared here once, and nowhere else.

A route says who may make a call, what goes in and what comes out. `app` serves requests by this
table, and `openapi` describes it. The calls that each node makes come first; they are the hot ones.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any
from urllib.parse import parse_qsl

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, create_model
from starlette.responses import Response

from rendezvous.registry import calls
from rendezvous.registry.asked import (
    Asked,
    anyone,
    bad_request,
    command_of_node,
    creator,
    lister,
    log_reader,
    looker,
    maker,
    newcomer,
    node,
    operator,
    parse,
    reader,
    scraper,
)
from rendezvous.registry.service import Service
from rendezvous.run.rounds import run_report
from rendezvous.serving.answers import Body
from rendezvous.wire.last_words import LastWords, LastWordsReply, RunLastWords
from rendezvous.wire.log_view import RunView, ViewCall, ViewPost, ViewReply, ViewRequest
from rendezvous.wire.look import LookCall, LookReport, RunLook
from rendezvous.wire.machine import MachineSample, RunMachines
from rendezvous.wire.metrics import MetricBatch, MetricReply, RunMetrics
from rendezvous.wire.node import JoinReply, JoinRequest, Refusal
from rendezvous.wire.pace import ClockReply
from rendezvous.wire.relay import RelayMail, RelayPost, RelayReply
from rendezvous.wire.reports import ExitReport, Report, ReportReply
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
from rendezvous.wire.tenant import TenantList, TenantRequest, TenantStatus
from rendezvous.wire.types import RUN_ID, Digest, RunId
from rendezvous.wire.watch import LONGEST_POLL_SECONDS, NodeView
from rendezvous.wire.words import printable

# --- the table

Reply = Body | BaseModel | Response

_TEXT = "text/plain"
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
        reads: Reads the body where it is not of that model alone.
        any_protocol: Whether it is answered to clients of other protocols.
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
    reads: Callable[[bytes], Any] | None = None
    any_protocol: bool = False

    @property
    def is_of_run(self) -> bool:
        """Whether it is about one run that is there."""
        return self.path.startswith(_RUN) and self.name != "create"

    def check_again(self, service: Service, asked: Asked) -> None:
        """Raises Unauthorized where a tenant that was let in has been revoked since."""
        if self.who is not anyone:
            asked.check_tenant(service)

    @functools.cached_property
    def body(self) -> Callable[[bytes], Any] | None:
        """Reads the body; raises BadRequest."""
        if self.takes is None or self.reads is not None:
            return self.reads
        return functools.partial(parse, TypeAdapter(self.takes))

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
_TENANT = "/v1/tenants/{tenant}"
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
          "before it waits, it acknowledges the table of `epoch` with the digest `ack`, and "
          "its `warm`. `has` is "
          "the digest of the table that the node has: of one that renews it only the port is sent. "
          "`look` and `views` are the numbers of the look and the newest view that it knows: it is "
          "answered early for another one. `wait` is the poll length that the node knows, in "
          "seconds: it is not made to wait longer. `importing`: its ranks import torch.",
          node, calls.watch, NodeView,
          query={"after": _AFTER, "epoch": (int, 0), "ack": _DIGEST, "warm": (bool, False),
                 "has": _DIGEST, "look": _LOOK, "views": _LOOK, "wait": _NO_LONGER,
                 "importing": (bool, False)}, lean=True),
    Route("end_and_watch", "POST", f"{_NODE}/watch",
          "The same; before it waits, it takes in how the program has ended.",
          node, calls.end_and_watch, NodeView, takes=ExitReport,
          query={"after": _AFTER, "has": _DIGEST, "look": _LOOK, "views": _LOOK,
                 "wait": _NO_LONGER}, lean=True),
    Route("report", "POST", f"{_NODE}/reports",
          "Probe results, acknowledgement or refusal, progress, exit, leave.",
          node,
          calls.report, ReportReply, takes=Report, lean=True),
    Route("join", "POST", f"{_RUN}/nodes", "Join.",
          newcomer, calls.join, JoinReply, takes=JoinRequest, reads=calls.read_join,
          any_protocol=True, lean=True),
    Route("metrics", "POST", f"{_NODE}/metrics",
          "The metrics of the program's processes on this node.",
          node, lambda service, asked: service.take_metrics(
              asked.live, asked.slot, asked.number, asked.said),
          MetricReply, takes=MetricBatch, lean=True),
    Route("send_machine", "POST", f"{_NODE}/machine", "The state of this node's machine.",
          node, calls.take_machine, ReportReply, takes=MachineSample, lean=True),
    Route("send_words", "POST", f"{_NODE}/words",
          "What the ranks of a failed program have printed last, before their node leaves.",
          node, calls.take_words, LastWordsReply, takes=LastWords, lean=True),
    Route("healthz", "GET", "/healthz", "Whether a registry answers; needs no credential.",
          anyone, calls.health, str, media=_TEXT, any_protocol=True, lean=True),
    Route("readyz", "GET", "/readyz",
          "Whether runs can be made here: not where the journal is out of reach, or at the end.",
          anyone, calls.ready, str, media=_TEXT, any_protocol=True, lean=True),
    # What each launch says and asks.
    Route("slot_news", "POST", _SLOT, "What the scheduler reports about a slot.",
          maker, lambda service, asked: service.slot_news(asked.live, asked.slot, asked.said),
          RunStatus, takes=SlotNews, lean=True),
    Route("status", "GET", _RUN, "The state of a run; waits for a version above `after`.",
          reader, lambda service, asked: service.wait_status(
              asked.live, asked.query.after, asked.query.wait),
          RunStatus, query={"after": (int, -1), "wait": (_Wait, 0.0)}, lean=True),
    Route("create", "PUT", _RUN, "Make a run.",
          creator, lambda service, asked: service.create(asked.run, asked.said, asked.tenant),
          RunStatus, takes=RunSpec, lean=True),
    Route("cancel", "DELETE", _RUN, "Cancel a run.",
          maker,
          lambda service, asked: service.cancel(asked.live, printable(asked.query.reason, 300)),
          RunStatus, query={"reason": (_Reason, "asked for")}, lean=True),
    Route("event_stream", "GET", f"{_RUN}/events",
          "Events as they happen, one JSON object per line; empty lines while there are none.",
          reader, calls.events, EventLine, query={"after": _AFTER}, media=calls.LINES, lean=True),
    Route("table", "GET", f"{_RUN}/tables/{{digest}}", "The endpoint table with this digest.",
          reader, calls.table, EndpointTable, lean=True),
    Route("checks", "GET", f"{_RUN}/report",
          "What was checked before the start: findings, and which nodes reached which.",
          reader,
          lambda service, asked: service.sequencer.look(
              lambda _: run_report(asked.live.run), about=asked.run),
          RunReport, lean=True),
    Route("machines", "GET", f"{_RUN}/machines",
          "The nodes' machines: what each is, and its newest state.",
          reader, calls.machines, RunMachines, lean=True),
    Route("run_metrics", "GET", f"{_RUN}/metrics",
          "The processes' metrics: the newest row of each, or with `after` the rows above it.",
          reader, calls.curves, RunMetrics, query={"after": (int | None, None)}, lean=True),
    Route("last_words", "GET", f"{_RUN}/words",
          "What the ranks of failed programs have printed last, numbered above `after`.",
          log_reader, calls.words, RunLastWords, query={"after": (_Sequence, 0)}, lean=True),
    # The rest.
    Route("restart", "POST", f"{_RUN}/restart",
          "Stop the programs of a run, and start them again on the same nodes.",
          maker,
          lambda service, asked: service.restart(asked.live, printable(asked.said.reason, 300)),
          RunStatus, takes=RestartRequest, lean=True),
    Route("drain", "POST", f"{_SLOT}/drain",
          "Show the programs that this slot's node will leave, and stop all of them before.",
          maker,
          lambda service, asked: service.drain(asked.live, asked.slot, asked.said),
          RunStatus, takes=DrainRequest),
    Route("refuse", "POST", f"{_SLOT}/refusal", "Why a node does not join; it ends then.",
          newcomer, calls.refuse, ReportReply, takes=Refusal, any_protocol=True),
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
          looker, calls.look, LookCall),
    Route("looked", "GET", f"{_RUN}/looks",
          "What has come of the look with this number, 0 for the newest; waits for the rest.",
          looker, calls.looked, RunLook, query={"look": _LOOK, "wait": (_Wait, 0.0)}),
    Route("answer_look", "POST", f"{_NODE}/looks", "Where the ranks of this node are.",
          node, calls.answer_look, ReportReply, takes=LookReport, lean=True),
    Route("clock", "GET", f"{_NODE}/clock", "The registry's clock, for times of several nodes.",
          node, calls.clock, ClockReply, lean=True),
    Route("view", "POST", f"{_RUN}/views",
          "Look at what the programs print: asks the nodes that have it.",
          log_reader, calls.view, ViewCall, takes=ViewRequest),
    Route("viewed", "GET", f"{_RUN}/views",
          "What has come of this view after the piece `after`, which is let go; waits for more.",
          log_reader, calls.viewed, RunView,
          query={"view": (_Sequence, 0), "after": (_Sequence, 0), "wait": (_Wait, 0.0)}),
    Route("serve_view", "POST", f"{_NODE}/views", "Lines of a node's logs for one view.",
          node, calls.serve_view, ViewReply, takes=ViewPost, lean=True),
    Route("runs", "GET", "/v1/runs", "All runs, without their slots; for a tenant, its own.",
          lister, lambda service, asked: service.statuses(asked.tenant), RunList),
    Route("tenants", "GET", "/v1/tenants", "All tenants, and what they use.",
          operator, calls.tenants, TenantList),
    Route("put_tenant", "PUT", _TENANT,
          "Add a tenant, or change its limits; with a SHA-256, its credential.",
          operator, lambda service, asked: service.tenants.put(asked.run, asked.said),
          TenantStatus, takes=TenantRequest),
    Route("remove_tenant", "DELETE", _TENANT,
          "Refuse a tenant from now on; its runs continue.",
          operator, lambda service, asked: service.tenants.remove(asked.run), TenantStatus),
    Route("metrics", "GET", "/metrics", "What the registry measures, as Prometheus text.",
          scraper, calls.measured, str, media=_TEXT, lean=True),
)
# fmt: on

_INDEX = (
    r"[0-9]{1,6}",
    Annotated[int, Field(ge=0, le=999_999, description="The slot of the node.")],
)
PLACEHOLDERS: Mapping[str, tuple[str, Any]] = {
    "run": (RUN_ID, Annotated[RunId, Field(description="The RDZV_ID.")]),
    "tenant": (RUN_ID, Annotated[RunId, Field(description="The name of the tenant.")]),
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
    run or the tenant, and the node, slot or digest."""
    match = _PATHS.fullmatch(path)
    if match is None or match.lastindex is None:
        return {}, ("", "")
    routes, run, more = _FOUND[match.lastindex]
    return routes, (match[run], match[more])
