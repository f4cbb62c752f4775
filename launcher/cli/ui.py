"""The command `rdzv ui`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from launcher.cli.completion import run_ids
from launcher.cli.process import need_launcher_packages, secret_text
from launcher.cli.runs import STATE_DIR, folder_and_run, root_folder
from launcher.options import WholeNumberFrom
from rendezvous.door import begin_work
from rendezvous.talk.join_string import ViewString
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
    type=WholeNumberFrom(min=1, max=65_535),
    metavar="PORT",
    help="Port to serve the page on. When not set, the first free one from 29610.",
)
@click.option(
    "--ui-host",
    multiple=True,
    metavar="NAME",
    help="Host name under which a proxy serves the page. May be given several times.",
)
@click.option(
    "--url",
    metavar="URL",
    help="Where the registry of RDZV_VIEW is reached from here, such as https://localhost:29600.",
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
    url: str | None,
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
    from launcher.ui.ground import ground
    from worker.program.hidden import hide_memory

    hide_memory()
    view = _view(run, url)
    if view is None and run is not None:
        root, run = folder_and_run(state_dir, run)
    else:
        root, run = root_folder(state_dir), view.run if view else None
    key = (secret_text("RDZV_UI_KEY") or "").strip()
    with ground(root, view, url, acts=ui_actions and save is None) as here:
        from launcher.ui import process

        if save is not None:
            if run is None:
                raise UsageError("--save needs a RUN", hint="rdzv ui RUN --save run.html")
            process.save(here, run, save)
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
        process.check(settings, key)
        begin_work()
        code = process.serve(here, settings, key, process.print_line)
    sys.exit(code)


def _view(run: str | None, url: str | None) -> ViewString | None:
    """What RDZV_VIEW says; raises UsageError."""
    text = secret_text("RDZV_VIEW")
    if text is None:
        if url is not None:
            raise UsageError(
                "--url needs RDZV_VIEW: without a credential a registry shows nothing",
                hint="where the run was launched, 'rdzv token view RUN' prints its value",
            )
        return None
    view = ViewString.parse(text)
    if run not in (None, view.run):
        raise UsageError(
            f"RDZV_VIEW is for run '{view.run}', and '{run}' was asked for",
            hint="leave RUN out, or unset RDZV_VIEW for a run that was launched here",
        )
    return view


@click.command("view")
@click.argument("run", shell_complete=run_ids)
@STATE_DIR
def token_view(run: str, state_dir: Path | None) -> None:
    """Print what lets somebody elsewhere see RUN and its output, and do nothing to it.

    Set it as RDZV_VIEW for 'rdzv ui'. It is good as long as the run.

    \b
    Example:
      rdzv token view llama-7b > view
    """
    need_launcher_packages()
    from launcher.state.find_run import find_run

    root, run = folder_and_run(state_dir, run)
    state = find_run(root, run)
    record, keys = state.record(), state.keys()
    assert record is not None
    assert keys is not None
    place = record.registry_place()
    click.echo(ViewString(place, run, record.launch_id, keys.read, keys.logs).text())
