"""The commands that look at schedulers and at this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from launcher.cli.process import (
    exit_codes,
    exit_with,
    missing_launcher_packages,
    need_launcher_packages,
    secret_text,
    shown,
)
from launcher.cli.runs import STATE_DIR, root_folder
from rendezvous.wire.errors import UsageError


@click.group(invoke_without_command=True)
@click.pass_context
def schedulers(context: click.Context) -> None:
    """List what can start worker runs, how the join string travels, and what is missing here."""
    if context.invoked_subcommand is not None:
        return
    need_launcher_packages()
    from launcher.schedulers.catalog import show_schedulers

    show_schedulers(os.environ)


@schedulers.command("check", epilog=exit_codes())
@click.argument("name", required=False)
@click.option(
    "--scheduler-profile",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A scheduler of your own, in place of NAME.",
)
@click.option("--worker-spec", type=click.Path(path_type=Path), help="As for 'rdzv launch'.")
@click.option("--set", "variables", multiple=True, metavar="NAME=VALUE", help="As for 'launch'.")
@click.option(
    "--timeout",
    "seconds",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Seconds to wait for the worker run to be seen, and for it to be gone.",
)
@STATE_DIR
def schedulers_check(
    name: str | None,
    scheduler_profile: Path | None,
    worker_spec: Path | None,
    variables: tuple[str, ...],
    seconds: float,
    state_dir: Path | None,
) -> None:
    """Try a scheduler live: submit a worker run, see it, cancel it, see that it is gone.

    The worker run is given no registry and ends within a minute. Exit code 83: a step failed, and
    the message says which one, with the scheduler's words.
    """
    if (name is None) == (scheduler_profile is None):
        raise UsageError(
            "the check needs one scheduler",
            hint="give a name of 'rdzv schedulers', or --scheduler-profile FILE",
        )
    need_launcher_packages()
    from launcher.run.try_scheduler import check_scheduler

    work = check_scheduler(
        str(scheduler_profile.resolve()) if scheduler_profile else str(name),
        os.environ,
        root=root_folder(state_dir),
        worker_spec=worker_spec,
        variables=variables,
        seconds=seconds,
        say=lambda words: click.echo(shown(words)),
    )
    exit_with(work)


@click.command()
@click.option(
    "--env",
    is_flag=True,
    help="Show what a symmetric start would adopt from this environment, and from which variables; "
    "exit code 1 when it would be refused.",
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.option("--strict", is_flag=True, help="A warning is a failure: exit code 1.")
@click.option("--skip", multiple=True, metavar="ID", help="Leave out this check; repeatable.")
def doctor(env: bool, as_json: bool, strict: bool, skip: tuple[str, ...]) -> None:
    """Look at this machine as a run would find it, and say what to mend; starts nothing.

    Exit code 0: ok, or warnings; 1: a check failed; 2: wrong option. docs/checks.md explains every
    check.
    """
    if not env:
        from launcher.show.machine import show_node

        absent = missing_launcher_packages()
        sys.exit(show_node(os.environ, absent, skip=skip, strict=strict, as_json=as_json))
    need_launcher_packages()
    from launcher.symmetric import report as checks
    from launcher.symmetric.start import this_host

    finding = checks.look_at_environment(os.environ, secret_text("RDZV_TOKEN"), this_host())
    sys.exit(checks.show_environment(finding, as_json=as_json))


COMMANDS: tuple[click.Command, ...] = (schedulers, doctor)
