"""The commands for the tenants of a standing registry: add, list, revoke."""

from __future__ import annotations

import re
from typing import Any

import click

from launcher.cli.process import Group, exit_with, need_launcher_packages, secret_text
from rendezvous.wire.tenant import PREFIX
from rendezvous.wire.types import RUN_ID

UNLIMITED = "unlimited"
_MOST = 1_000_000


class _Name(click.ParamType[str]):
    """The name of a tenant."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """See the base class."""
        if not re.fullmatch(RUN_ID, value):
            self.fail(
                f"{value!r} is not a name of 1 to 63 letters, digits, '.', '_' or '-', which "
                "begins with a letter or digit",
                param,
                ctx,
            )
        return str(value)


class _Prefix(click.ParamType[str]):
    """What the IDs of a tenant's runs begin with."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """See the base class."""
        if re.fullmatch(PREFIX, f"{value}-") and not re.fullmatch(PREFIX, value):
            self.fail(f"{value!r} must end with '.', '_' or '-': try '{value}-'", param, ctx)
        if not re.fullmatch(PREFIX, value):
            self.fail(
                f"{value!r} is not a prefix of run IDs: 2 to 62 letters, digits, '.', '_' or '-', "
                "with a letter or digit first and '.', '_' or '-' last",
                param,
                ctx,
            )
        return str(value)


class _Limit(click.ParamType[int]):
    """A number from 1; 0 is what nobody can write, and means that there is none."""

    name = "limit"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """See the base class."""
        if value == UNLIMITED:
            return 0
        if not re.fullmatch(r"[0-9]{1,7}", str(value), re.ASCII) or not 1 <= int(value) <= _MOST:
            self.fail(f"{value!r} is neither '{UNLIMITED}' nor from 1 to {_MOST}", param, ctx)
        return int(value)


@click.group(cls=Group)
def tenant() -> None:
    """Give teams a part of a standing registry each.

    A tenant has a credential, a prefix for the IDs of its runs, and limits. These commands need the
    RDZV_REGISTRY or RDZV_REGISTRY_FILE of the registry's operator.

    \b
    Example:
      rdzv tenant add vision --prefix vision- --max-nodes 64
    """


@tenant.command("add")
@click.argument("name", type=_Name())
@click.option(
    "--prefix",
    type=_Prefix(),
    metavar="PREFIX",
    help="What the IDs of the tenant's runs begin with. Needed for a new tenant.",
)
@click.option(
    "--max-runs", type=_Limit(), metavar="N", help="Most runs in progress, or 'unlimited'."
)
@click.option(
    "--max-nodes",
    type=_Limit(),
    metavar="N",
    help="Most nodes in the runs in progress, spares included, or 'unlimited'.",
)
@click.option(
    "--creates-per-minute",
    type=_Limit(),
    metavar="N",
    help="Most runs that are made within 60 s, or 'unlimited'.",
)
@click.option("--rotate", is_flag=True, help="Replace the credential of a known tenant.")
def tenant_add(name: str, prefix: str | None, rotate: bool, **limits: int | None) -> None:
    """Add a tenant and print its RDZV_REGISTRY, or change one.

    A known tenant gets the limits that are given here, and keeps the others. It also keeps its
    credential. --rotate replaces that, and prints the new RDZV_REGISTRY; the old one is refused.

    \b
    Examples:
      (umask 077; rdzv tenant add vision --prefix vision- > vision-registry)
      rdzv tenant add vision --max-runs 10 --creates-per-minute unlimited
    """
    need_launcher_packages()
    from launcher.run.tenants import add_tenant, operators

    given = {key: value or None for key, value in limits.items() if value is not None}
    registry = operators(secret_text("RDZV_REGISTRY"))
    exit_with(add_tenant(registry, name, prefix, given, rotate=rotate))


@tenant.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def tenant_list(as_json: bool) -> None:
    """List all tenants, with what they use and may use.

    \b
    Example:
      rdzv tenant list
    """
    need_launcher_packages()
    from launcher.run.tenants import list_tenants, operators

    exit_with(list_tenants(operators(secret_text("RDZV_REGISTRY")), as_json=as_json))


@tenant.command("revoke")
@click.argument("name", type=_Name())
def tenant_revoke(name: str) -> None:
    """Refuse a tenant's credential from now on.

    Its runs continue, with the credentials of their own; 'rdzv cancel' ends them.

    \b
    Example:
      rdzv tenant revoke vision
    """
    need_launcher_packages()
    from launcher.run.tenants import operators, revoke_tenant

    exit_with(revoke_tenant(operators(secret_text("RDZV_REGISTRY")), name))
