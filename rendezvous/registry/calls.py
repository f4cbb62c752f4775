"""What a route does that is more than a call of the service."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from rendezvous.prometheus import CONTENT_TYPE
from rendezvous.registry.asked import Asked, parse
from rendezvous.registry.other_protocol import refuse_node
from rendezvous.registry.prometheus import metrics_text
from rendezvous.registry.service import Service
from rendezvous.serving.answers import Body
from rendezvous.serving.other_protocol import REGISTRY
from rendezvous.version import rdzv_version
from rendezvous.wire.errors import BadRequest, NotFound, Unauthorized, Unavailable
from rendezvous.wire.last_words import LastWordsReply
from rendezvous.wire.log_view import ViewCall, ViewReply
from rendezvous.wire.look import LookCall
from rendezvous.wire.node import JoinReply, JoinRequest
from rendezvous.wire.pace import ClockReply
from rendezvous.wire.protocol import HEADER, PROTOCOL, Greeting
from rendezvous.wire.reports import AckReport, ReportReply
from rendezvous.wire.tenant import TenantList
from rendezvous.wire.words import printable

LINES = "application/x-ndjson"
_JOIN = TypeAdapter(JoinRequest)


def read_join(data: bytes) -> JoinRequest | Greeting:
    """A join; of a node that speaks another protocol only what tells who it is."""
    try:
        said = parse(_JOIN, data)
        if said.protocol == PROTOCOL:
            return said
    except BadRequest:
        with contextlib.suppress(ValidationError):
            if (greeting := Greeting.model_validate_json(data)).protocol != PROTOCOL:
                return greeting
        raise
    return Greeting.model_validate_json(data)


async def join(service: Service, asked: Asked) -> JoinReply:
    """Take a node in; from now on it is heard of."""
    if isinstance(asked.said, Greeting):
        await refuse_node(
            service.sequencer, service.access, asked.run, asked.credential, asked.said
        )
    meters = service.sequencer.meters
    began = meters.clock()
    live, reply = await service.join(asked.run, asked.credential, asked.said, asked.source)
    asked.proven()
    service.heard(live, asked.said.slot, reply.incarnation, asked.connection)
    meters.joins.observe(meters.clock() - began)
    return reply


async def refuse(service: Service, asked: Asked) -> ReportReply:
    """Take in why a node does not join; a stranger is kept as one that asks to join."""
    try:
        live = service.access.joiner(asked.run, asked.credential, asked.slot, asked.number)
    except Unauthorized:
        await service.note_stranger(asked.run, asked.slot, asked.source)
        raise
    return await service.refuse(live, asked.slot, asked.number, asked.said, asked.source)


async def report(service: Service, asked: Asked) -> ReportReply:
    """Take in what a node says of itself."""
    meters = service.sequencer.meters
    began = meters.clock()
    await service.report(asked.live, asked.slot, asked.number, asked.said)
    meters.reports.observe(meters.clock() - began)
    return ReportReply(seq=asked.live.news_seq)


async def watch(service: Service, asked: Asked) -> Body:
    """A watch that brings an acknowledgement is answered once that is durable, as a report is."""
    began, query = service.sequencer.meters.clock(), asked.query
    if query.ack is not None:
        ack = _ack(query.epoch, query.ack, warm=query.warm)
        await service.report(asked.live, asked.slot, asked.number, ack, watches=True)
    importing = asked.live.importing
    (importing.add if query.importing else importing.discard)(asked.slot)
    return await _news(service, asked, began)


async def end_and_watch(service: Service, asked: Asked) -> Body:
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
def _ack(epoch: int, digest: str, *, warm: bool) -> AckReport:
    return AckReport(epoch=epoch, digest=digest, warm=warm)


async def health(service: Service, asked: Asked) -> Response:
    """That a registry answers here; it opens nothing."""
    return _HEALTHY


async def ready(service: Service, asked: Asked) -> Response:
    """Whether runs can be made here. Raises Unavailable with the reason."""
    if service.closing.is_set():
        raise Unavailable("the registry is closing")
    service.place.check_ready()
    return _HEALTHY


_HEALTHY = PlainTextResponse("ok\n", headers={"x-rdzv": rdzv_version(), HEADER: REGISTRY.header()})


async def measured(service: Service, asked: Asked) -> Response:
    """What the registry measures of itself."""
    return Response(metrics_text(service), media_type=CONTENT_TYPE)


async def tenants(service: Service, asked: Asked) -> TenantList:
    """All tenants of the registry."""
    return service.tenants.statuses()


async def events(service: Service, asked: Asked) -> Response:
    """What happens to the run, as it happens."""
    lines = _event_lines(service, asked, asked.query.after)
    return StreamingResponse(lines, media_type=LINES)


async def _event_lines(service: Service, asked: Asked, after: int) -> AsyncIterator[bytes]:
    live = asked.live
    while (lines := await service.event_lines(live, after)) is not None:
        try:
            asked.check_tenant(service)
        except Unauthorized:  # it is too late for another answer
            return
        after = lines[-1].number if lines else after
        # An empty line now and then tells a quiet run from a dead registry.
        yield b"".join(to_json(line) + b"\n" for line in lines) or b"\n"


async def table(service: Service, asked: Asked) -> Body:
    """The table that has this digest now, in the form of which it is one; raises NotFound."""
    run, digest = asked.live.run, asked.value
    if run.table is None or run.digest != digest:
        raise NotFound(f"run '{run.id}' has no table {printable(digest, 64)} now")
    return Body(run.attempt.written)


async def curves(service: Service, asked: Asked) -> Body:
    """The newest metrics, or those after a row."""
    live, after = asked.live, asked.query.after
    elapsed = live.now() - live.run.created_at
    rows = live.metrics.newest(elapsed) if after is None else live.metrics.after(after, elapsed)
    return Body(rows)


async def look(service: Service, asked: Asked) -> LookCall:
    """Begin a look, or join the one that is under way."""
    service.counters["looks"] += 1
    return asked.live.begin_look(asked.live.now())


async def looked(service: Service, asked: Asked) -> Body:
    """What has come of a look; waits for the rest."""
    looks, number = asked.live.looks, asked.query.look
    if not service.closing.is_set():
        await looks.wait(number, asked.query.wait, asked.live.now())
    return looks.written(number, asked.live.now())


async def answer_look(service: Service, asked: Asked) -> ReportReply:
    """What a node has seen, for people and for what judges the pace."""
    for taker in (asked.live.looks, asked.live.pacing):
        taker.take(asked.slot, asked.said, asked.live.now())
    return ReportReply(seq=asked.live.news_seq)


async def clock(service: Service, asked: Asked) -> ClockReply:
    """The clock of the run."""
    return ClockReply(now=asked.live.now())


async def take_machine(service: Service, asked: Asked) -> ReportReply:
    """How a node's machine stands."""
    live = asked.live
    live.machines.take(live.run, asked.slot, asked.number, asked.said, live.now())
    return ReportReply(seq=live.news_seq)


async def machines(service: Service, asked: Asked) -> Body:
    """What all nodes have said of their machines."""
    return asked.live.machines.written(asked.live.run, asked.live.now())


async def take_words(service: Service, asked: Asked) -> LastWordsReply:
    """What failed ranks have printed last."""
    live, said = asked.live, asked.said
    service.counters["last_words"] += len(said.texts)
    return live.last_words.take(live.run, asked.slot, said)


async def words(service: Service, asked: Asked) -> Body:
    """Those of all nodes, after a part."""
    return Body(asked.live.last_words.after(asked.query.after))


async def view(service: Service, asked: Asked) -> ViewCall:
    """Ask nodes for their output."""
    service.counters["views"] += 1
    return asked.live.open_view(asked.said, asked.live.now(), service.sequencer.view_limits)


async def viewed(service: Service, asked: Asked) -> Body:
    """What has come of a view; waits for more."""
    live, query = asked.live, asked.query
    if not service.closing.is_set():
        await live.views.wait(live.run, query.view, query.after, query.wait, live.now())
    return live.views.written(live.run, query.view, query.after, live.now())


async def serve_view(service: Service, asked: Asked) -> ViewReply:
    """Lines of a node's logs."""
    return asked.live.views.take((asked.slot, asked.number), asked.said, asked.live.now())
