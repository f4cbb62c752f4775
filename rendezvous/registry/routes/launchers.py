"""Routes that launchers call, and those that change a run."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Security
from pydantic import BaseModel, Field

from rendezvous.registry.caller import Caller, RunPath, SlotPath, creator, maker
from rendezvous.registry.route import BodyRule, make_router
from rendezvous.registry.routes import RUN, SLOT
from rendezvous.wire.asked import DrainRequest, RestartRequest
from rendezvous.wire.reports import ReportReply
from rendezvous.wire.run import RunSpec, RunStatus, SlotNews
from rendezvous.wire.sealed import SealedVariables
from rendezvous.wire.words import printable

router = make_router()

MAX_SPEC_BYTES = 4 * 1024 * 1024
"""The limit of a spec, which has a token for each slot."""

_MAX_SECRETS_BYTES = 96 * 1024
"""The limit of a body with sealed variables."""

Maker = Annotated[Caller, Security(maker)]


@router.put(RUN)
async def create(
    caller: Annotated[Caller, Security(creator)],
    run: RunPath,
    body: Annotated[RunSpec, BodyRule(MAX_SPEC_BYTES)],
) -> RunStatus:
    """Make a run."""
    return await caller.service.create(run, body, caller.tenant)


@router.post(SLOT)
async def slot_news(caller: Maker, slot: SlotPath, body: SlotNews) -> RunStatus:
    """Report what the scheduler says about a slot."""
    return await caller.service.slot_news(caller.live, slot, body)


class CancelQuery(BaseModel):
    """The reason of a cancel."""

    reason: Annotated[str, Field(max_length=300)] = "asked for"


@router.delete(RUN)
async def cancel(caller: Maker, query: Annotated[CancelQuery, Query()]) -> RunStatus:
    """Cancel a run."""
    return await caller.service.cancel(caller.live, printable(query.reason, 300))


@router.post(f"{RUN}/restart")
async def restart(caller: Maker, body: RestartRequest) -> RunStatus:
    """Stop the programs of a run, and start them again on the same nodes."""
    return await caller.service.restart(caller.live, printable(body.reason, 300))


@router.post(f"{SLOT}/drain")
async def drain(caller: Maker, slot: SlotPath, body: DrainRequest) -> RunStatus:
    """Show the programs that this slot's node will leave, and stop all of them before."""
    return await caller.service.drain(caller.live, slot, body)


@router.put(f"{RUN}/secrets")
async def send_secrets(
    caller: Maker, body: Annotated[SealedVariables, BodyRule(_MAX_SECRETS_BYTES)]
) -> ReportReply:
    """Sealed variables for the run's nodes; kept in memory alone, as they came."""
    caller.live.sealed = body.sealed
    return ReportReply(seq=caller.live.news_seq)
