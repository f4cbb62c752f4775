"""The commands that look at schedulers and at this machine."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

import click

from launcher.cli.completion import scheduler_names
from launcher.cli.help import EXIT_CODES, WithExitCodes
from launcher.cli.process import (
    Group,
    exit_with,
    missing_launcher_packages,
    need_launcher_packages,
    secret_text,
    shown,
)
from launcher.cli.runs import STATE_DIR
from launcher.options import NumberFrom
from launcher.terminal import width_of
from rendezvous.wire.errors import UsageError
from worker.program.state_home import state_home


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def schedulers(context: click.Context) -> None:
    """List the schedulers that can start nodes, and what each needs on this machine.

    \b
    Examples:
      rdzv schedulers
      rdzv schedulers check slurm
    """
    if context.invoked_subcommand is not None:
        return
    need_launcher_packages()
    from launcher.show.schedulers import scheduler_lines

    for line in scheduler_lines(os.environ, width_of(sys.stdout)):
        click.echo(line)


@schedulers.command("check", cls=WithExitCodes, epilog=EXIT_CODES)
@click.argument("name", required=False, shell_complete=scheduler_names)
@click.option(
    "--scheduler-profile",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Profile file of a custom scheduler, instead of NAME.",
)
@click.option(
    "--worker-spec", type=click.Path(path_type=Path), metavar="FILE", help="As for 'rdzv launch'."
)
@click.option(
    "--set", "variables", multiple=True, metavar="NAME=VALUE", help="As for 'rdzv launch'."
)
@click.option(
    "--timeout",
    "seconds",
    type=NumberFrom(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the job to appear, and to disappear.",
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
    """Try a scheduler: submit a job of one node, look it up, cancel it.

    The job does nothing and ends within a minute. Exit code 83: a step failed; the
    message names the step and quotes the scheduler.

    \b
    Example:
      rdzv schedulers check slurm --set PARTITION=gpu
    """
    if (name is None) == (scheduler_profile is None):
        raise UsageError(
            "'rdzv schedulers check' needs one scheduler",
            hint="give a name from 'rdzv schedulers', or --scheduler-profile FILE",
        )
    need_launcher_packages()
    from launcher.run.try_scheduler import check_scheduler

    work = check_scheduler(
        str(scheduler_profile.resolve()) if scheduler_profile else str(name),
        os.environ,
        root=state_dir or state_home(os.environ),
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
    help="Show which values a symmetric start would take from this environment, and from which "
    "variables. Exit code 1 if it would be refused.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--strict", is_flag=True, help="Treat a warning as a failure: exit code 1.")
@click.option("--skip", multiple=True, metavar="ID", help="Skip this check. Repeatable.")
def doctor(env: bool, as_json: bool, strict: bool, skip: tuple[str, ...]) -> None:
    """Check this machine as a run would, and say what to fix.

    With RDZV_REGISTRY, also what answers at each address of that standing registry. Starts
    nothing. Exit code 0: ok, or only warnings; 1: a check failed; 64: wrong option.
    'rdzv docs checks' explains every check.

    \b
    Example:
      rdzv doctor --skip L06
    """
    if not env:
        from launcher.show.machine import show_node

        absent = missing_launcher_packages()
        registry = functools.partial(secret_text, "RDZV_REGISTRY")
        sys.exit(show_node(os.environ, absent, registry, skip=skip, strict=strict, as_json=as_json))
    need_launcher_packages()
    from launcher.symmetric import report as checks
    from launcher.symmetric.start import this_host

    finding = checks.look_at_environment(os.environ, secret_text("RDZV_TOKEN"), this_host())
    sys.exit(checks.show_environment(finding, as_json=as_json))


COMMANDS: tuple[click.Command, ...] = (schedulers, doctor)
