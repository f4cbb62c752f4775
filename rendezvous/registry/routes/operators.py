"""Routes that operators and monitors call, about the registry itself."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Path, Security
from fastapi.responses import JSONResponse
from starlette.responses import PlainTextResponse, Response

from rendezvous.prometheus import CONTENT_TYPE
from rendezvous.registry.caller import Caller, anyone, operator, scraper
from rendezvous.registry.prometheus import metrics_text
from rendezvous.registry.route import REFUSALS, make_router
from rendezvous.registry.routes import TENANT
from rendezvous.serving.other_protocol import REGISTRY
from rendezvous.version import rdzv_version
from rendezvous.wire.errors import Unavailable
from rendezvous.wire.protocol import HEADER
from rendezvous.wire.tenant import TenantList, TenantRequest, TenantStatus
from rendezvous.wire.types import Problem, RunId

router = make_router()

Anyone = Annotated[Caller, Security(anyone)]
Operator = Annotated[Caller, Security(operator)]
TenantPath = Annotated[RunId, Path(description="The name of the tenant.")]

_HEALTHY = PlainTextResponse("ok\n", headers={"x-rdzv": rdzv_version(), HEADER: REGISTRY.header()})


@router.get("/healthz", response_class=PlainTextResponse)
async def healthz(caller: Anyone) -> Response:
    """Whether a registry answers; needs no credential."""
    return _HEALTHY


@router.get("/readyz", response_class=PlainTextResponse)
async def readyz(caller: Anyone) -> Response:
    """Whether runs can be made here: not where the journal is out of reach, or at the end."""
    if caller.service.closing.is_set():
        raise Unavailable("the registry is closing")
    caller.service.place.check_ready()
    return _HEALTHY


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(caller: Annotated[Caller, Security(scraper)]) -> Response:
    """The registry's own measurements, as Prometheus text."""
    return Response(metrics_text(caller.service), media_type=CONTENT_TYPE)


@router.get("/v1/openapi.json", responses={"4XX": REFUSALS["4XX"] | {"model": Problem}})
async def openapi(caller: Operator) -> JSONResponse:
    """The description of all routes."""
    app = caller.scope["app"]
    document = await asyncio.to_thread(app.openapi)  # which takes 0.3 s
    app.openapi_schema = None  # nor is it kept: 2 MB
    return JSONResponse(document)


@router.get("/v1/tenants")
async def tenants(caller: Operator) -> TenantList:
    """All tenants, and what they use."""
    return caller.service.tenants.statuses()


@router.put(TENANT)
async def put_tenant(caller: Operator, tenant: TenantPath, body: TenantRequest) -> TenantStatus:
    """Add a tenant, or change its limits; with a SHA-256, its credential."""
    return await caller.service.tenants.put(tenant, body)


@router.delete(TENANT)
async def remove_tenant(caller: Operator, tenant: TenantPath) -> TenantStatus:
    """Refuse a tenant from now on; its runs continue."""
    return await caller.service.tenants.remove(tenant)
