"""The commands that print tokens: for a symmetric start, and for Prometheus."""

from __future__ import annotations

from pathlib import Path

import click

from launcher.cli.completion import run_ids
from launcher.cli.process import Group, secret_text
from launcher.cli.runs import STATE_DIR, root_folder
from rendezvous.wire.errors import UsageError


@click.group(cls=Group)
def token() -> None:
    """Make tokens for symmetric starts and for Prometheus.

    \b
    Example:
      export RDZV_TOKEN=$(rdzv token new)
    """


@token.command("new")
def token_new() -> None:
    """Print a new group token.

    Set it as RDZV_TOKEN on all nodes of a symmetric start.

    \b
    Example:
      export RDZV_TOKEN=$(rdzv token new)
    """
    from rendezvous.talk.credentials import new_secret
    from rendezvous.talk.join_string import group_token_text

    click.echo(group_token_text(new_secret()))


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
        operator = registry_credential(_secret_of(root_folder(state_dir, run), run))
    elif (text := secret_text("RDZV_REGISTRY")) is not None:
        operator = RegistryString.parse(text).credential
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
