"""The commands that print tokens: for a symmetric start, for replicas, and for Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from launcher.cli.completion import run_ids
from launcher.cli.process import Group, secret_text
from launcher.cli.runs import STATE_DIR, folder_and_run
from rendezvous.wire.errors import UsageError
from rendezvous.wire.run import DEFAULT_PORT


@click.group(cls=Group)
def token() -> None:
    """Make tokens for symmetric starts, for standing registries and for Prometheus.

    \b
    Example:
      export RDZV_TOKEN=$(rdzv token new)
    """


@token.command("new")
def token_new() -> None:
    """Print a new group token.

    Set it as RDZV_TOKEN on all nodes of a symmetric start, or on all replicas of a standing
    registry; they must not have the same one.

    \b
    Example:
      export RDZV_TOKEN=$(rdzv token new)
    """
    from rendezvous.talk.credentials import new_secret
    from rendezvous.talk.join_string import group_token_text

    click.echo(group_token_text(new_secret()))


@token.command("registry")
@click.option(
    "--registry-address",
    "addresses",
    multiple=True,
    required=True,
    metavar="HOST[:PORT]",
    help="Address of a replica. Repeatable.",
)
@click.option(
    "--plain", is_flag=True, help="The replicas have --behind-ingress: they use plain HTTP."
)
def token_registry(addresses: tuple[str, ...], plain: bool) -> None:
    """Print the RDZV_REGISTRY of replicas that have this RDZV_TOKEN.

    It is what launchers need; each replica of 'rdzv serve --journal' writes the same.

    \b
    Example:
      rdzv token registry --registry-address n1 --registry-address n2
    """
    from launcher.plan.endpoints import read_endpoints
    from rendezvous.talk.certificate import make_shared_certificate
    from rendezvous.talk.credentials import registry_credential
    from rendezvous.talk.join_string import RegistryPlace, RegistryString, parse_group_token

    if (text := secret_text("RDZV_TOKEN")) is None:
        raise UsageError(
            "neither RDZV_TOKEN nor RDZV_TOKEN_FILE is set",
            hint="set the one that the replicas of the registry have",
        )
    secret = parse_group_token(text)
    proof = b"" if plain else make_shared_certificate(secret).der
    trust: Literal["plain", "certificate"] = "plain" if plain else "certificate"
    addresses = tuple(read_endpoints(addresses, "--registry-address"))
    place = RegistryPlace(addresses, DEFAULT_PORT, trust, proof, replicas=len(addresses) > 1)
    click.echo(RegistryString(place, registry_credential(secret)).text())


@token.command("metrics")
@click.argument("run", required=False, shell_complete=run_ids)
@STATE_DIR
def token_metrics(run: str | None, state_dir: Path | None) -> None:
    """Print the token for a registry's /metrics.

    It is for Prometheus, and opens nothing else. With RUN it is for the registry of that run, else
    for the standing registry that RDZV_REGISTRY or RDZV_REGISTRY_FILE names.

    \b
    Example:
      (umask 077; rdzv token metrics llama-7b > rdzv-metrics-token)
    """
    from rendezvous.talk.credentials import metrics_credential, registry_credential
    from rendezvous.talk.join_string import RegistryString

    if run is not None:
        operator = registry_credential(_secret_of(*folder_and_run(state_dir, run)))
    elif (text := secret_text("RDZV_REGISTRY")) is not None:
        operator = RegistryString.parse(text).credential
        if operator.kind == "tenant":
            raise UsageError(
                "RDZV_REGISTRY is that of a tenant, which cannot read the registry's /metrics",
                hint="ask the registry's operator for the token: it shows the runs of all tenants",
            )
    else:
        raise UsageError(
            "neither RUN nor RDZV_REGISTRY is given",
            hint="name a run that was launched here; for a standing registry, set "
            "RDZV_REGISTRY_FILE to the path that 'rdzv serve' printed",
        )
    click.echo(metrics_credential(operator.sha256()).text())


def _secret_of(root: Path, run: str) -> bytes:
    """The secret of a run with a registry of its own."""
    from launcher.state.find_run import find_run

    state = find_run(root, run)
    record = state.record()
    if record is not None and not record.owns_registry:
        raise UsageError(
            f"run '{run}' uses a standing registry, whose operator has this credential",
            hint="there: RDZV_REGISTRY_FILE=... rdzv token metrics",
        )
    return state.secret()
