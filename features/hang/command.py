"""The command that looks at the ranks of a run."""

from __future__ import annotations

from pathlib import Path

import click

from launcher.cli.runs import (
    STATE_DIR,
    NumberFrom,
    exit_with,
    folder_and_run,
    need_launcher_packages,
    run_ids,
)


@click.command()
@click.argument("run", shell_complete=run_ids)
@STATE_DIR
@click.option(
    "--again",
    type=NumberFrom(min=5),
    metavar="SECONDS",
    help="Look a second time after so long, and say what has moved.",
)
@click.option("--all", "everything", is_flag=True, help="Show every call, thread and place.")
@click.option("--json", "as_json", is_flag=True, help="Print all that was seen as JSON.")
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write all that was seen to this file, as JSON.",
)
def look(
    run: str,
    state_dir: Path | None,
    again: float | None,
    everything: bool,
    as_json: bool,
    save: Path | None,
) -> None:
    """Show where every rank of a run is now, and which one the others wait for.

    Nothing is stopped or slowed for it. 'rdzv docs look' says what is looked at, and what each
    answer means.

    \b
    Examples:
      rdzv look llama-7b
      rdzv look llama-7b --again 10
    """
    need_launcher_packages()
    from features.hang.view import show_look

    root, run = folder_and_run(state_dir, run)
    exit_with(show_look(root, run, again=again, everything=everything, as_json=as_json, save=save))
