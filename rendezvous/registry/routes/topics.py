"""Routes of what features publish and ask, made from their declarations."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Query, Security
from pydantic import BaseModel, Field

from rendezvous.channel import Asked, Published
from rendezvous.feature import declared
from rendezvous.registry.caller import Caller, OfRun, log_reader, looker, node, reader
from rendezvous.registry.route import make_router
from rendezvous.registry.routes import NODE, RUN
from rendezvous.registry.routes.readers import Wait
from rendezvous.registry.topics import Received
from rendezvous.serving.answers import Body
from rendezvous.wire.question import Answer, QuestionCall
from rendezvous.wire.reports import ReportReply

logger = logging.getLogger(__name__)
router = make_router()

_ROLES: dict[str, OfRun] = {"read": reader, "look": looker, "logs": log_reader}


def _add(topic: Published) -> None:
    """Add a topic's two routes: nodes send to one, and readers get from the other."""

    async def send(caller: Caller, body: Any) -> BaseModel:
        live = caller.live
        received = Received(live.run, caller.slot, caller.number, body, live.now())
        reply, count = live.store(topic).receive(received)
        if topic.counts:
            caller.service.counters[topic.name] += count
        return ReportReply(seq=live.news_seq) if reply is None else reply

    async def shown(caller: Caller, query: Any) -> Body:
        live = caller.live
        return Body(live.store(topic).to_json(live.run, query, live.now()))

    async def shown_whole(caller: Caller) -> Body:
        return await shown(caller, None)

    message, reply = topic.message.load(), topic.reply.load()
    takes = {"caller": Annotated[Caller, Security(node)], "body": message, "return": reply}
    router.post(f"{NODE}/{topic.path}")(_declared(send, f"send_{topic.path}", message, takes))
    if topic.response is None:
        return
    model, role = topic.response.load(), Annotated[Caller, Security(_ROLES[topic.scope])]
    shows: dict[str, Any] = {"caller": role, "return": Body}
    endpoint: Callable[..., Any] = shown_whole
    if topic.query is not None:
        endpoint, shows["query"] = shown, Annotated[topic.query.load(), Query()]
    add = router.get(f"{RUN}/{topic.name}", response_model=model)
    add(_declared(endpoint, f"run_{topic.name}", model, shows))


class AnswerQuery(BaseModel):
    """A question, 0 for the newest, and how long to wait for what is missing, in seconds."""

    number: Annotated[int, Field(ge=0)] = 0
    wait: Wait = 0.0


def _add_asked(topic: Asked) -> None:
    """Add a topic's routes: readers ask and get the answers, and nodes answer."""

    async def ask(caller: Caller) -> QuestionCall:
        if topic.counts:
            caller.service.counters[topic.name] += 1
        return caller.live.questions(topic).ask(caller.live.run, caller.live.now())

    async def answers(caller: Caller, query: AnswerQuery) -> Body:
        live, questions = caller.live, caller.live.questions(topic)
        if not caller.service.closing.is_set():
            await questions.wait(query.number, query.wait, live.now())
        return questions.written(query.number, live.now())

    async def answer(caller: Caller, body: Answer) -> ReportReply:
        live = caller.live
        live.questions(topic).take(caller.slot, body, live.now())
        return ReportReply(seq=live.news_seq)

    model, shown = topic.answer.load(), topic.response.load()
    takes = {"caller": Annotated[Caller, Security(node)], "body": model, "return": ReportReply}
    router.post(f"{NODE}/{topic.name}")(_declared(answer, f"answer_{topic.name}", model, takes))
    if topic.scope is None:
        return
    role = Annotated[Caller, Security(_ROLES[topic.scope])]
    ask.__annotations__["caller"], ask.__name__ = role, f"ask_{topic.name}"
    ask.__doc__ = "Ask all nodes of the run; the question that is open, where one is."
    shows = {"caller": role, "query": Annotated[AnswerQuery, Query()], "return": Body}
    router.post(f"{RUN}/{topic.name}")(ask)
    add = router.get(f"{RUN}/{topic.name}", response_model=shown)
    add(_declared(answers, f"run_{topic.name}", shown, shows))


def _declared(
    endpoint: Callable[..., Any], name: str, model: type[BaseModel], takes: dict[str, Any]
) -> Callable[..., Any]:
    """The endpoint with what FastAPI and `Route` read of it: its name, summary and annotations."""
    endpoint.__name__, endpoint.__doc__, endpoint.__annotations__ = name, model.__doc__, takes
    return endpoint


for _topic in [topic for one in declared() for topic in one.topics]:
    try:
        _add(_topic) if isinstance(_topic, Published) else _add_asked(_topic)
    except Exception as exc:  # noqa: BLE001 (a feature's)
        logger.error("the topic '%s' cannot be loaded: %r", _topic.name, exc)
