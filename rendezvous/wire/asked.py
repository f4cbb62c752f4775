"""What a person asks of a run that is under way. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rendezvous.wire.types import Seconds, Wire


class RestartRequest(Wire):
    """`POST /v1/runs/{run}/restart`."""

    reason: Annotated[str, Field(max_length=300)] = Field(
        "asked for", description="Why, for those who look at the run."
    )


class DrainRequest(Wire):
    """`POST /v1/runs/{run}/slots/{slot}/drain`."""

    seconds: Annotated[Seconds, Field(le=86_400)] = Field(
        0.0, description="Until the node must be gone."
    )
    reason: Annotated[str, Field(max_length=300)] = Field(
        "", description="Why, for those who look at the run."
    )
