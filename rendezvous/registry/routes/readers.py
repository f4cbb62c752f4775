"""Routes that people, launches and pages call to read of runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Query, Security
from pydantic import BaseModel, Field
from pydantic_core import to_json
from starlette.responses import JSONResponse, StreamingResponse

from rendezvous.registry.caller import Caller, lister, log_reader, reader
from rendezvous.registry.route import make_router
from rendezvous.registry.routes import RUN, RUNS
from rendezvous.run.rounds import run_report
from rendezvous.serving.answers import Body
from rendezvous.wire.errors import Unauthorized
from rendezvous.wire.last_words import RunLastWords
from rendezvous.wire.log_view import RunView, ViewCall, ViewRequest
from rendezvous.wire.run import EventLine, RunList, RunReport, RunStatus

router = make_router()

Reader = Annotated[Caller, Security(reader)]
LogReader = Annotated[Caller, Security(log_reader)]

Number = Annotated[int, Field(ge=0)]
Wait = Annotated[float, Field(ge=0, le=25.0)]


class Lines(StreamingResponse, JSONResponse):
    """One JSON object per line, as they come; JSON by type, so that FastAPI declares the model."""

    media_type = "application/x-ndjson"


@router.get(RUNS)
async def runs(caller: Annotated[Caller, Security(lister)]) -> RunList:
    """All runs, without their slots; for a tenant, its own."""
    return await caller.service.statuses(caller.tenant)


class StatusQuery(BaseModel):
    """The version that is known, and how long to wait for a newer one, in seconds."""

    after: int = -1
    wait: Wait = 0.0


@router.get(RUN)
async def status(caller: Reader, query: Annotated[StatusQuery, Query()]) -> RunStatus:
    """The state of a run; waits for a version above `after`."""
    return await caller.service.wait_status(caller.live, query.after, query.wait)


class EventQuery(BaseModel):
    """The number of the event that is known."""

    after: int = 0


@router.get(f"{RUN}/events", response_class=Lines, response_model=EventLine)
async def event_stream(caller: Reader, query: Annotated[EventQuery, Query()]) -> Lines:
    """Events as they happen, one JSON object per line; empty lines while there are none."""
    return Lines(event_lines(caller, query.after))


async def event_lines(caller: Caller, after: int) -> AsyncIterator[bytes]:
    """The stream, until the run is over."""
    live = caller.live
    while (lines := await caller.service.event_lines(live, after)) is not None:
        try:
            reader.check_again(caller)
        except Unauthorized:  # it is too late for another answer
            return
        after = lines[-1].number if lines else after
        # An empty line now and then tells a quiet run from a dead registry.
        yield b"".join(to_json(line) + b"\n" for line in lines) or b"\n"


@router.get(f"{RUN}/report")
async def checks(caller: Reader) -> RunReport:
    """Checks before the start: findings, and which nodes reached which."""
    return await caller.service.sequencer.look(
        lambda _: run_report(caller.live.run), about=caller.run
    )


class WordsQuery(BaseModel):
    """The part that is known."""

    after: Number = 0


@router.get(f"{RUN}/words", response_model=RunLastWords)
async def last_words(caller: LogReader, query: Annotated[WordsQuery, Query()]) -> Body:
    """Last output of the ranks of failed programs, numbered above `after`."""
    return Body(caller.live.last_words.after(query.after))


@router.post(f"{RUN}/views")
async def view(caller: LogReader, body: ViewRequest) -> ViewCall:
    """Look at what the programs print: asks the nodes that have it."""
    service, live = caller.service, caller.live
    service.counters["views"] += 1
    return live.open_view(body, live.now(), service.sequencer.view_limits)


class ViewQuery(BaseModel):
    """A view, the piece that is known, and how long to wait for more, in seconds."""

    view: Number = 0
    after: Number = 0
    wait: Wait = 0.0


@router.get(f"{RUN}/views", response_model=RunView)
async def view_result(caller: LogReader, query: Annotated[ViewQuery, Query()]) -> Body:
    """Pieces of this view after `after`, which is let go; waits for more."""
    live = caller.live
    if not caller.service.closing.is_set():
        await live.views.wait(live.run, query.view, query.after, query.wait, live.now())
    return live.views.written(live.run, query.view, query.after, live.now())
