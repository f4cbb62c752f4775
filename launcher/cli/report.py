"""The command that packs what helps to find a fault."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import click

from launcher.cli.completion import run_ids
from launcher.cli.process import missing_launcher_packages, need_launcher_packages, secret_text
from launcher.cli.runs import STATE_DIR, folder_and_run, root_folder


@click.command()
@click.argument("run", required=False, shell_complete=run_ids)
@STATE_DIR
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the archive here, instead of rdzv-report-RUN.tar.gz in this folder.",
)
def report(run: str | None, state_dir: Path | None, output: Path | None) -> None:
    """Pack one archive about a run and this machine, to attach to a bug report.

    It has versions, what 'rdzv doctor' finds, and of RUN its command, result and checks, the
    newest lines of its agents and registry, and the last words of ranks that failed. What is named
    or looks like a secret is hidden; host names and addresses stay. Read it before you send it.

    \b
    Examples:
      rdzv report llama-7b
      rdzv report --output here.tar.gz
    """
    need_launcher_packages()
    from launcher.show.machine import show_node
    from launcher.show.report import report_of

    if run is None:
        root = root_folder(state_dir)
    else:
        root, run = folder_and_run(state_dir, run)
    registry = functools.partial(secret_text, "RDZV_REGISTRY")
    doctor = functools.partial(
        show_node,
        os.environ,
        missing_launcher_packages(),
        registry,
        skip=(),
        strict=False,
        as_json=False,
    )
    found = report_of(root, run, os.environ, doctor)
    path = output or Path(f"{found.name}.tar.gz")
    found.write(path)
    for line in found.words(path):
        click.echo(line)
