"""The commands for run files, and the file that a former run has kept."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from launcher.cli.completion import scheduler_names
from launcher.cli.given import split_options
from launcher.cli.help import TYPED, known_flags
from launcher.cli.process import absolute_secret_files, need_launcher_packages
from launcher.cli.runs import folder_and_run
from launcher.run_file.values import HERE
from launcher.settings import Launching
from rendezvous.wire.errors import UsageError
from rendezvous.wire.words import printable

FORMER = f"{__name__}.former"
"""Key in the context of a launch that repeats a former run: the state of that."""


def former_file(context: click.Context, word: str) -> Path:
    """The file that a run of this name has kept here; raises UsageError where there is none."""
    need_launcher_packages()
    from launcher.state.state_dir import RUN_FILE, StateDir

    looks_like_a_file = "/" in word or Path(word).suffix in (".toml", ".yaml", ".yml")
    if not looks_like_a_file:
        root, run = folder_and_run(_state_dir(context), word)
        state = StateDir(root, run)
        if os.path.exists(state.path / RUN_FILE):
            context.meta[FORMER] = state
            return state.path / RUN_FILE
        if state.record() is not None:
            raise UsageError(
                f"run '{run}' has kept no run file: a launcher without that wrote {state.path}",
                hint=f"'rdzv status {run}' shows its COMMAND",
            )
    raise UsageError(
        f"there is no file '{printable(word, 200)}'"
        + ("" if looks_like_a_file else ", and no run of that name was launched here"),
        hint="'rdzv init SCHEDULER' writes a file to begin with, and 'rdzv status' lists the runs",
    )


def in_its_folder(settings: Launching) -> Launching:
    """Enter the folder in which COMMAND starts, where it is another one than this.

    Returns:
        The settings, of which the paths of this machine start there no more.

    Raises:
        UsageError: It cannot be entered, and a node of this machine would have to.
    """
    context = click.get_current_context()
    folder = settings.cwd
    if folder is None and FORMER in context.meta:
        record = context.meta[FORMER].record()
        folder = Path(record.folder) if record is not None and record.folder else None
    if folder is None:
        return settings
    if _is_this(folder):
        update = {"cwd": _absolute(settings.cwd)} if settings.cwd else {}
        return settings.model_copy(update=update)
    absolute_secret_files()
    here = {name: getattr(settings, name) for name in HERE if hasattr(settings, name)}
    paths = {name: _absolute(value) for name, value in here.items() if value}
    try:
        os.chdir(folder)
    except OSError as exc:
        if settings.local_node:
            raise UsageError(
                f"COMMAND is to start in {folder}, which cannot be entered here: {exc.strerror}",
                hint="name another folder with --cwd; if only the other machines have it, add "
                "--no-local-node",
            ) from exc
    if settings.cwd is None:
        run = context.meta[FORMER].run
        click.echo(f"rdzv: in {folder}, where run '{run}' was launched", err=True)
    return settings.model_copy(update=paths)


def _is_this(folder: Path) -> bool:
    try:
        return os.path.samefile(folder, ".")
    except OSError:
        return False


def _absolute(value: Path | list[Path]) -> Path | list[Path]:
    return [one.absolute() for one in value] if isinstance(value, list) else value.absolute()


def _state_dir(context: click.Context) -> Path | None:
    """`--state-dir`, which is read after `--file`."""
    found = None
    for option in split_options(context.meta.get(TYPED, ()), known_flags(context)):
        first, *more = option.words
        if first == "--" or not first.startswith("-"):
            break
        if option.name == "--state-dir":
            found = Path(more[0] if more else first.partition("=")[2])
    return found


@click.command()
@click.argument("scheduler", required=False, default="local", shell_complete=scheduler_names)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("run.toml"),
    show_default=True,
    metavar="FILE",
    help="File to write; - is standard output.",
)
def init(scheduler: str, output: Path) -> None:
    """Write a run file to begin with, for a scheduler.

    'rdzv schedulers' lists the schedulers; without one, the nodes are processes of this machine.

    \b
    Examples:
      rdzv init slurm
      rdzv launch -f run.toml --dry-run
    """
    need_launcher_packages()
    from launcher.run.first_file import first_file_for

    printed = str(output) == "-"
    text = first_file_for(scheduler, "run.toml" if printed else output.name)
    if printed:
        click.echo(text, nl=False)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as exc:
        raise UsageError(
            f"{output} is there already, and stays as it is",
            hint="name another file with --output, or remove it",
        ) from exc
    except OSError as exc:
        raise UsageError(f"{output} cannot be written: {exc.strerror}") from exc
    click.echo(f"wrote {output}; edit it, then: rdzv launch -f {output} --dry-run")


@click.command()
def schema() -> None:
    """Print a JSON schema of run files, for editors.

    A TOML file names it with '#:schema ./FILE' in its first line, a YAML file with
    '# yaml-language-server: $schema=./FILE'.

    \b
    Example:
      rdzv schema
    """
    from launcher.run_file.schema import schema as of_run_files

    click.echo(json.dumps(of_run_files(), indent=2))


COMMANDS: tuple[click.Command, ...] = (init, schema)
