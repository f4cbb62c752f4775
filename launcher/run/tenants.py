"""`rdzv tenant`: what the operator of a standing registry asks of it about its tenants."""

from __future__ import annotations

import json
from collections.abc import Mapping

import click

from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import new_tenant_credential
from rendezvous.talk.join_string import RegistryString
from rendezvous.talk.tenants import put_tenant, remove_tenant, tenants_of
from rendezvous.wire.errors import UsageError
from rendezvous.wire.tenant import TenantLimits, TenantRequest, TenantStatus

_HEAD = ("TENANT", "PREFIX", "RUNS", "NODES", "MADE IN 60 S")


def operators(registry: str | None) -> RegistryString:
    """The registry that RDZV_REGISTRY names, for its operator; raises UsageError."""
    if registry is None:
        raise UsageError(
            "neither RDZV_REGISTRY nor RDZV_REGISTRY_FILE is set",
            hint="set RDZV_REGISTRY_FILE to the path that 'rdzv serve' printed",
        )
    found = RegistryString.parse(registry)
    if found.credential.kind == "tenant":
        raise UsageError(
            "RDZV_REGISTRY is that of a tenant, and this needs the registry's operator",
            hint="set RDZV_REGISTRY_FILE to the path that 'rdzv serve' printed",
        )
    return found


async def add_tenant(
    registry: RegistryString,
    name: str,
    prefix: str | None,
    limits: Mapping[str, int | None],
    *,
    rotate: bool,
) -> int:
    """Add a tenant, or change it, and print its RDZV_REGISTRY if its credential is new.

    Args:
        limits: Those that were given; those of a known tenant that were not stay as they are.
        rotate: Whether a known one gets another credential.
    """
    async with RegistryClient(registry.place, registry.credential) as client:
        known = {one.name: one for one in await tenants_of(client)}.get(name)
        if prefix is None and known is None:
            raise UsageError(
                f"tenant '{name}' is new, and needs a --prefix for the IDs of its runs",
                hint=f"for example: rdzv tenant add {name} --prefix {name}-",
            )
        before = {} if known is None else known.limits.model_dump()
        made = new_tenant_credential() if rotate or known is None else None
        asked = TenantRequest(
            prefix=prefix or (known.prefix if known is not None else ""),
            sha256=None if made is None else made.sha256(),
            limits=TenantLimits.model_validate({**before, **limits}),
        )
        await put_tenant(client, name, asked)
    if made is None:
        click.echo(
            f"rdzv: tenant '{name}' is changed and keeps its credential, which the registry cannot "
            "show; --rotate makes a new one",
            err=True,
        )
    else:
        click.echo(RegistryString(registry.place, made).text())
    return 0


async def list_tenants(registry: RegistryString, *, as_json: bool) -> int:
    """Print all tenants, with what they use and may use."""
    async with RegistryClient(registry.place, registry.credential) as client:
        found = await tenants_of(client)
    if as_json:
        click.echo(json.dumps([one.model_dump() for one in found], indent=1))
    elif not found:
        click.echo("no tenants; 'rdzv tenant add NAME --prefix NAME-' adds one")
    else:
        for line in table_lines(found):
            click.echo(line)
    return 0


async def revoke_tenant(registry: RegistryString, name: str) -> int:
    """Have a tenant refused from now on."""
    async with RegistryClient(registry.place, registry.credential) as client:
        was = await remove_tenant(client, name)
    click.echo(f"tenant '{name}' is revoked; runs in progress, which continue: {was.usage.runs}")
    return 0


def table_lines(tenants: list[TenantStatus]) -> list[str]:
    """A line for each, under a heading."""
    table = [_HEAD, *map(_cells, tenants)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def _cells(one: TenantStatus) -> tuple[str, ...]:
    used, most = one.usage, one.limits
    return (
        one.name,
        one.prefix,
        _of(used.runs, most.max_runs),
        _of(used.nodes, most.max_nodes),
        _of(used.creates, most.creates_per_minute),
    )


def _of(used: int, most: int | None) -> str:
    return f"{used}" if most is None else f"{used} of {most}"
