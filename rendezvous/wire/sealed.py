"""Secret variables as a registry passes them on: sealed, so that it cannot read them. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rendezvous.wire.types import Base64, Wire, base64_length

MOST_SEALED_BYTES = 64 * 1024
MOST_SECRETS = 256


class SealedVariables(Wire):
    """`PUT /v1/runs/{run}/secrets`, and what a node is answered; see
    `rendezvous.talk.sealed_variables`."""

    sealed: Annotated[Base64, Field(max_length=base64_length(MOST_SEALED_BYTES))] = Field(
        "", description="Empty: the launcher has not sent them to this registry's process yet."
    )
