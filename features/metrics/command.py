"""The command `rdzv metrics`."""

from __future__ import annotations

from pathlib import Path

import click

from launcher.cli.runs import (
    STATE_DIR,
    exit_with,
    folder_and_run,
    need_launcher_packages,
    run_ids,
)
from rendezvous.wire.errors import UsageError


@click.command()
@click.argument("run", shell_complete=run_ids)
@STATE_DIR
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw each value over the steps: .svg, .png or .pdf.",
)
@click.option("--json", "as_json", is_flag=True, help="Print each row as a JSON object.")
def metrics(run: str, state_dir: Path | None, plot: Path | None, as_json: bool) -> None:
    """Show the values that a run's program has sent, such as its loss.

    'rdzv docs metrics' says how a program sends them.

    \b
    Example:
      rdzv metrics llama-7b --plot loss.svg
    """
    need_launcher_packages()
    from features.metrics.view import show_metrics

    if plot is not None and as_json:
        raise UsageError("--plot and --json exclude each other", hint="give one of them")
    root, run = folder_and_run(state_dir, run)
    exit_with(show_metrics(root, run, as_json=as_json, plot=plot))
