"""The command `rdzv ui`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from launcher.cli.completion import run_ids
from launcher.cli.process import need_launcher_packages, secret_text
from launcher.cli.runs import STATE_DIR, root_folder
from launcher.options import WholeNumberFrom
from rendezvous.wire.errors import UsageError


@click.command()
@click.argument("run", required=False, shell_complete=run_ids)
@STATE_DIR
@click.option(
    "--ui-listen",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to serve the page on. Beyond this machine it needs --ui-behind-ingress.",
)
@click.option(
    "--ui-port",
    type=WholeNumberFrom(min=1),
    metavar="PORT",
    help="Port to serve the page on. When not set, the first free one from 29610.",
)
@click.option(
    "--ui-host",
    multiple=True,
    metavar="NAME",
    help="Host name under which a proxy serves the page. May be given several times.",
)
@click.option("--ui-actions", is_flag=True, help="Let the page look, cancel, restart and drain.")
@click.option("--ui-behind-ingress", is_flag=True, help="A proxy in front of the page speaks TLS.")
@click.option("--parent", type=int, hidden=True, help="The launch whose page it is.")
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write all of RUN into one HTML file instead, with secrets hidden.",
)
def ui(
    run: str | None,
    state_dir: Path | None,
    save: Path | None,
    ui_listen: str,
    ui_port: int | None,
    ui_host: tuple[str, ...],
    ui_actions: bool,
    ui_behind_ingress: bool,
    parent: int | None,
) -> None:
    """Show a run, or all runs, in a browser.

    Prints a link to a page on this machine. Works during the run and after it. Use 'ssh -L' from a
    laptop; see 'rdzv docs ui'.

    \b
    Examples:
      rdzv ui llama-7b
      rdzv ui
      rdzv ui llama-7b --save llama-7b.html
    """
    need_launcher_packages()
    from launcher.ui import process

    root = root_folder(state_dir, run)
    if save is not None:
        if run is None:
            raise UsageError("--save needs a RUN", hint="rdzv ui RUN --save run.html")
        process.save(root, run, save)
        click.echo(f"saved: {save}")
        return
    settings = process.UiSettings(
        run=run,
        listen=ui_listen,
        port=ui_port or process.DEFAULT_PORT,
        exact=ui_port is not None,
        hosts=ui_host,
        actions=ui_actions,
        behind_ingress=ui_behind_ingress,
        parent=parent,
    )
    key = (secret_text("RDZV_UI_KEY") or "").strip()
    sys.exit(process.serve(root, settings, key, process.print_line))
