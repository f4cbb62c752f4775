"""Routes of what features publish, made from their declarations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Query, Security
from pydantic import BaseModel

from rendezvous.channel import Published
from rendezvous.feature import declared
from rendezvous.registry.caller import Caller, OfRun, log_reader, looker, node, reader
from rendezvous.registry.route import make_router
from rendezvous.registry.routes import NODE, RUN
from rendezvous.registry.topics import Sent, published
from rendezvous.serving.answers import Body
from rendezvous.wire.reports import ReportReply

router = make_router()

_ROLES: dict[str, OfRun] = {"read": reader, "look": looker, "logs": log_reader}


def _add(topic: Published) -> None:
    """Add a topic's two routes: nodes send to one, and readers get from the other."""

    async def send(caller: Caller, body: Any) -> BaseModel:
        live = caller.live
        sent = Sent(live.run, caller.slot, caller.number, body, live.now())
        reply, count = live.kept(topic).take(sent)
        if topic.counts:
            caller.service.counters[topic.name] += count
        return ReportReply(seq=live.news_seq) if reply is None else reply

    async def shown(caller: Caller, query: Any) -> Body:
        live = caller.live
        return Body(live.kept(topic).written(live.run, query, live.now()))

    async def shown_whole(caller: Caller) -> Body:
        return await shown(caller, None)

    role = Annotated[Caller, Security(_ROLES[topic.readers])]
    message, model, reply = topic.message.load(), topic.shown.load(), topic.reply.load()
    takes = {"caller": Annotated[Caller, Security(node)], "body": message, "return": reply}
    router.post(f"{NODE}/{topic.sent}")(_declared(send, f"send_{topic.sent}", message, takes))
    shows: dict[str, Any] = {"caller": role, "return": Body}
    endpoint: Callable[..., Any] = shown_whole
    if topic.query is not None:
        endpoint, shows["query"] = shown, Annotated[topic.query.load(), Query()]
    add = router.get(f"{RUN}/{topic.name}", response_model=model)
    add(_declared(endpoint, f"run_{topic.name}", model, shows))


def _declared(
    endpoint: Callable[..., Any], name: str, model: type[BaseModel], takes: dict[str, Any]
) -> Callable[..., Any]:
    """The endpoint with what FastAPI and `Route` read of it: its name, summary and annotations."""
    endpoint.__name__, endpoint.__doc__, endpoint.__annotations__ = name, model.__doc__, takes
    return endpoint


for _topic in published(declared()):
    _add(_topic)
