"""Routes that nodes call."""

from __future__ import annotations

import contextlib
import functools
from typing import Annotated

from fastapi import Query, Security
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from rendezvous.registry.caller import (
    Caller,
    SlotPath,
    command_of_node,
    newcomer,
    node,
    reader,
)
from rendezvous.registry.other_protocol import refuse_node
from rendezvous.registry.route import BodyRule, HotRoute, make_router, parse
from rendezvous.registry.routes import NODE, RUN, SLOT
from rendezvous.serving.answers import Body
from rendezvous.wire.errors import BadRequest, NotFound, Unauthorized
from rendezvous.wire.last_words import LastWords, LastWordsReply
from rendezvous.wire.log_view import ViewPost, ViewReply
from rendezvous.wire.node import JoinReply, JoinRequest, Refusal
from rendezvous.wire.protocol import PROTOCOL, Greeting
from rendezvous.wire.relay import RelayMail, RelayPost, RelayReply
from rendezvous.wire.reports import AckReport, ExitReport, Report, ReportReply
from rendezvous.wire.sealed import SealedVariables
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.types import Digest
from rendezvous.wire.watch import LONGEST_POLL_SECONDS, NodeView
from rendezvous.wire.words import printable

hot_router, router = make_router(HotRoute), make_router()

Node = Annotated[Caller, Security(node)]
CommandOfNode = Annotated[Caller, Security(command_of_node)]

_JOIN = TypeAdapter(JoinRequest)
_MAX_RELAY_BYTES = 256 * 1024
"""The limit of a body with the output of remote commands."""


# --- on the way to the go


class WatchQuery(BaseModel):
    """News that a node has, and how long it expects to wait for more."""

    after: int = 0
    has: Digest | None = None
    question: Annotated[int, Field(ge=0)] = 0
    views: Annotated[int, Field(ge=0)] = 0
    wait: Annotated[float, Field(ge=0, le=LONGEST_POLL_SECONDS)] | None = None


class AckQuery(WatchQuery):
    """The query of a watch that may acknowledge a table."""

    epoch: int = 0
    ack: Digest | None = None
    warm: bool = False
    importing: bool = False


@hot_router.get(f"{NODE}/watch", response_model=NodeView)
async def watch(caller: Node, query: Annotated[AckQuery, Query()]) -> Body:
    """News newer than `after`, else the reason of the moment after the poll length.

    Before it waits, it acknowledges the table of `epoch` with the digest `ack`, and its `warm`.
    `has` is the digest of the table that the node has: of one that renews it only the port is sent.
    `question` and `views` are the numbers of the newest ones that it knows: it is answered
    early for another one. `wait` is the poll length that the node knows, in seconds: it is not made
    to wait longer. `importing`: its ranks import torch.
    """
    service, live = caller.service, caller.live
    began = service.sequencer.meters.clock()
    if query.ack is not None:  # answered once that is durable, as a report is
        ack = _ack(query.epoch, query.ack, warm=query.warm)
        await service.report(live, caller.slot, caller.number, ack, watches=True)
    (live.importing.add if query.importing else live.importing.discard)(caller.slot)
    return await _news(caller, query, began)


@hot_router.post(f"{NODE}/watch", response_model=NodeView)
async def end_and_watch(
    caller: Node, query: Annotated[WatchQuery, Query()], body: ExitReport
) -> Body:
    """News, as a watch without a body; before it waits, it takes in how the program has ended."""
    began = caller.service.sequencer.meters.clock()
    await caller.service.report(caller.live, caller.slot, caller.number, body, watches=True)
    return await _news(caller, query, began)


async def _news(caller: Caller, query: WatchQuery, began: float) -> Body:
    service, live = caller.service, caller.live
    known = (query.after, query.has, query.question, query.views)
    body = await service.watch(live, *known, query.wait)
    if live.news_seq > query.after:
        service.sequencer.meters.told(began, live)
    return body


@functools.lru_cache(64)  # all nodes acknowledge the same
def _ack(epoch: int, digest: str, *, warm: bool) -> AckReport:
    return AckReport(epoch=epoch, digest=digest, warm=warm)


@hot_router.post(f"{NODE}/reports")
async def report(caller: Node, body: Report) -> ReportReply:
    """Probe results, acknowledgement or refusal, progress, exit, leave."""
    meters = caller.service.sequencer.meters
    began = meters.clock()
    await caller.service.report(caller.live, caller.slot, caller.number, body)
    meters.reports.observe(meters.clock() - began)
    return ReportReply(seq=caller.live.news_seq)


def read_join(data: bytes) -> JoinRequest | Greeting:
    """Read a join; from a node of another protocol only what identifies it."""
    try:
        request = parse(_JOIN, data)
        if request.protocol == PROTOCOL:
            return request
    except BadRequest:
        with contextlib.suppress(ValidationError):
            if (greeting := Greeting.model_validate_json(data)).protocol != PROTOCOL:
                return greeting
        raise
    return Greeting.model_validate_json(data)


@hot_router.post(f"{RUN}/nodes")
async def join(
    caller: Annotated[Caller, Security(newcomer)],
    body: Annotated[JoinRequest, BodyRule(read=read_join)],
) -> JoinReply:
    """Join; from now on the node is heard of."""
    service, meters = caller.service, caller.service.sequencer.meters
    if isinstance(body, Greeting):
        await refuse_node(service.sequencer, service.access, caller.run, caller.credential, body)
    began = meters.clock()
    live, reply = await service.join(caller.run, caller.credential, body, caller.source)
    caller.proven()
    service.heard(live, body.slot, reply.incarnation, caller.connection)
    meters.joins.observe(meters.clock() - began)
    return reply


@hot_router.get(f"{RUN}/tables/{{digest}}", response_model=EndpointTable)
async def table(caller: Annotated[Caller, Security(reader)], digest: str) -> Body:
    """The endpoint table with this digest."""
    run = caller.live.run
    if run.table is None or run.digest != digest:
        raise NotFound(f"run '{run.id}' has no table {printable(digest, 64)} now")
    return Body(run.attempt.written)


@router.get(f"{NODE}/secrets")
async def secrets(caller: Node) -> SealedVariables:
    """The run's sealed variables, or none yet."""
    return SealedVariables(sealed=caller.live.sealed)


# --- beside it


@router.post(f"{SLOT}/refusal")
async def refuse(
    caller: Annotated[Caller, Security(newcomer)], slot: SlotPath, body: Refusal
) -> ReportReply:
    """Tell why a node does not join; it ends then. A stranger is kept as one that asks to join."""
    service = caller.service
    try:
        live = service.access.joiner(caller.run, caller.credential, slot, caller.number)
    except Unauthorized:
        await service.note_stranger(caller.run, slot, caller.source)
        raise
    return await service.refuse(live, slot, caller.number, body, caller.source)


@router.post(f"{NODE}/words")
async def send_words(caller: Node, body: LastWords) -> LastWordsReply:
    """Last output of the ranks of a failed program, before their node leaves."""
    live = caller.live
    caller.service.counters["last_words"] += len(body.texts)
    return live.last_words.take(live.run, caller.slot, body)


@router.post(f"{NODE}/views")
async def serve_view(caller: Node, body: ViewPost) -> ViewReply:
    """Lines of a node's logs for one view."""
    live = caller.live
    return live.views.take((caller.slot, caller.number), body, live.now())


@router.post(f"{NODE}/relay")
async def send_relay(
    caller: CommandOfNode, body: Annotated[RelayPost, BodyRule(_MAX_RELAY_BYTES)]
) -> RelayReply:
    """Frames of remote commands for other nodes."""
    return await caller.service.relay_give(caller.live, caller.slot, body)


class MailQuery(BaseModel):
    """Mail that the node has."""

    after: Annotated[int, Field(ge=0)] = 0
    session: Annotated[str, Field(max_length=64)] = ""


@router.get(f"{NODE}/relay")
async def receive_relay(caller: CommandOfNode, query: Annotated[MailQuery, Query()]) -> RelayMail:
    """Frames of remote commands for this node numbered above `after`; waits for one."""
    return await caller.service.relay_take(caller.live, caller.slot, query.after, query.session)
