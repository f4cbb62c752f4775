"""What a person may do to a run from the page, where the process was started with acts."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from launcher.run.requests import after_drain, after_restart, slot_of
from launcher.ui.viewed import Viewed
from rendezvous.wire.errors import BadRequest, Forbidden, NotFound, RdzvError
from rendezvous.wire.words import printable

_FROM_PAGE = "asked for on the page"


class Act(BaseModel):
    """The body of a request to act."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    act: Annotated[str, Field(max_length=40)]
    node: Annotated[int, Field(ge=0, lt=1 << 20)] | None = None
    seconds: Annotated[float, Field(ge=0, le=86_400)] = 0.0
    reason: Annotated[str, Field(max_length=300)] = ""


async def carry_out(viewed: Viewed, act: Act) -> object:
    """Do it: answers Done, or what a feature says. Raises RdzvError where it is refused.

    Whoever may see the page without acts holds no credential for any of these.
    """
    keys, run = viewed.keys, viewed.state_dir.run
    of_features = viewed.parts.acts()
    if act.act not in ("cancel", "restart", "drain", *of_features):
        raise BadRequest(f"this is not an act: {printable(act.act, 40)}")
    if keys.admin is None:
        raise Forbidden(
            "this page was started without acts",
            hint=f"start it with: rdzv ui {run} --ui-actions",
        )
    if act.act in of_features:
        async with viewed.registry(keys.look) as client:
            return await of_features[act.act](client)
    why = act.reason or _FROM_PAGE
    async with viewed.registry(keys.admin) as client:
        if act.act == "cancel":
            return {"words": (await client.cancel(run, why)).reason}
        if act.act == "restart":
            return {"words": after_restart(await client.restart(run, why))}
        if act.node is None:
            raise BadRequest("a drain needs a node")
        try:
            slot = slot_of(await client.status(run), act.node)
        except RdzvError as exc:
            raise NotFound(exc.message, hint=exc.hint) from exc
        return {"words": after_drain(await client.drain(run, slot, act.seconds, why))}
