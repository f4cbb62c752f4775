"""A tenant of a standing registry: a team with a credential, a name space and limits. Pure."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from rendezvous.wire.types import Digest, RunId, Seconds, Wire

PREFIX = r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}[._-]"


def _check_prefix(value: str) -> str:
    if not re.fullmatch(PREFIX, value):
        raise ValueError(
            "a prefix of run IDs has 2 to 62 letters, digits, '.', '_' or '-', begins with a "
            "letter or digit, and ends with '.', '_' or '-'"
        )
    return value


Prefix = Annotated[str, AfterValidator(_check_prefix)]
"""It ends with a separator, so that `team-` holds no run of `team2-`."""
Most = Annotated[int, Field(ge=1, le=1_000_000)] | None


class TenantLimits(Wire):
    """What a tenant may use at the same time; None: as much as the registry has."""

    max_runs: Most = Field(None, description="Runs in progress.")
    max_nodes: Most = Field(None, description="Nodes in them, spares included.")
    creates_per_minute: Most = Field(None, description="Runs that are made within 60 s.")


class Usage(Wire):
    """What a tenant uses now: at one replica, or at all of them."""

    runs: Annotated[int, Field(ge=0)] = Field(0, description="Runs in progress.")
    nodes: Annotated[int, Field(ge=0)] = Field(0, description="Nodes in them, spares included.")
    creates: Annotated[int, Field(ge=0)] = Field(0, description="Runs made in the last 60 s.")
    frees_seconds: Seconds = Field(
        0.0, description="Until the first of those no longer counts; 0 where there is none."
    )


class Tenant(Wire):
    """A tenant as the journal keeps it; of its credential no more than the SHA-256."""

    name: RunId
    prefix: Prefix
    sha256: Digest
    limits: TenantLimits = TenantLimits()

    def owns(self, run: str) -> bool:
        """Whether a run of this ID is one of its own."""
        return run.startswith(self.prefix)


class TenantRequest(BaseModel):
    """`PUT /v1/tenants/{tenant}`: a new tenant, or other limits or another credential of one."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    prefix: Prefix
    sha256: Digest | None = Field(
        None, description="SHA-256 of its credential; a tenant that is known keeps its own."
    )
    limits: TenantLimits = Field(TenantLimits(), description="All of them: others are lifted.")


class TenantStatus(Wire):
    """A tenant as its registry's operator sees it."""

    name: RunId
    prefix: Prefix
    limits: TenantLimits = TenantLimits()
    usage: Usage = Usage()


class TenantList(Wire):
    """`GET /v1/tenants`, by name."""

    tenants: list[TenantStatus]
