"""Tenants in PostgreSQL: what is done with a connection to read and to change them.

Whoever changes them holds the row that counts the changes, so that what is refused beside another
tenant is refused however many replicas are asked at the same time.
"""

from __future__ import annotations

from typing import Any

from rendezvous.registry import postgres_schema as sql
from rendezvous.registry.journal import load_tenants
from rendezvous.registry.quotas import refuse_clash
from rendezvous.wire.tenant import Tenant


async def read(connection: Any) -> list[Tenant]:
    """All of them, by name."""
    return load_tenants([row["body"] for row in await connection.fetch(sql.TENANTS)])


async def put(connection: Any, tenant: Tenant) -> None:
    """Add or change one; raises TenantClash."""
    async with connection.transaction():
        await connection.execute(sql.TENANTS_CHANGE)
        refuse_clash(await read(connection), tenant)
        await connection.execute(sql.PUT_TENANT, tenant.name, tenant.model_dump_json())


async def remove(connection: Any, name: str) -> bool:
    """Remove one; whether there was one."""
    async with connection.transaction():
        await connection.execute(sql.TENANTS_CHANGE)
        return await connection.fetchval(sql.REMOVE_TENANT, name) is not None
