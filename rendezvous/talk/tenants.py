"""What the operator of a registry says of its tenants."""

from __future__ import annotations

from rendezvous.talk.client import RegistryClient
from rendezvous.wire.tenant import TenantList, TenantRequest, TenantStatus


async def tenants_of(client: RegistryClient) -> list[TenantStatus]:
    """All tenants of the registry, and what they use."""
    return (await client.ask(TenantList, "GET", "/v1/tenants")).tenants


async def put_tenant(client: RegistryClient, name: str, tenant: TenantRequest) -> TenantStatus:
    """Add a tenant, or change one; raises TenantClash."""
    return await client.ask(TenantStatus, "PUT", f"/v1/tenants/{name}", tenant)


async def remove_tenant(client: RegistryClient, name: str) -> TenantStatus:
    """Have a tenant refused from now on; raises NotFound."""
    return await client.ask(TenantStatus, "DELETE", f"/v1/tenants/{name}")
