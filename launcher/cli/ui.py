"""The command `rdzv ui`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from launcher.cli.completion import run_ids
from launcher.cli.process import need_launcher_packages, secret_text
from launcher.cli.runs import STATE_DIR, root_folder
from launcher.options import WholeNumberFrom


@click.command()
@click.argument("run", required=False, shell_complete=run_ids)
@STATE_DIR
@click.option(
    "--ui-listen",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to serve the page on. Beyond this machine it needs --behind-ingress.",
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
@click.option("--behind-ingress", is_flag=True, help="A proxy in front of the page speaks TLS.")
def ui(
    run: str | None,
    state_dir: Path | None,
    ui_listen: str,
    ui_port: int | None,
    ui_host: tuple[str, ...],
    ui_actions: bool,
    behind_ingress: bool,
) -> None:
    """Show a run, or all runs, in a browser.

    Prints a link to a page on this machine. Works during the run and after it. Use 'ssh -L' from a
    laptop; see 'rdzv docs ui'.

    \b
    Examples:
      rdzv ui llama-7b
      rdzv ui
    """
    need_launcher_packages()
    from launcher.ui.process import DEFAULT_PORT, UiSettings, print_line, serve

    root = root_folder(state_dir, run)
    settings = UiSettings(
        run=run,
        listen=ui_listen,
        port=ui_port or DEFAULT_PORT,
        exact=ui_port is not None,
        hosts=ui_host,
        actions=ui_actions,
        behind_ingress=behind_ingress,
    )
    key = (secret_text("RDZV_UI_KEY") or "").strip()
    sys.exit(serve(root, settings, key, print_line))
