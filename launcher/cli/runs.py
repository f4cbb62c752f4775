"""The commands for runs that are there: status, cancel, restart, drain, replay."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from launcher.cli.at_registry import URL, at_registry
from launcher.cli.completion import run_ids
from launcher.cli.process import exit_with, need_launcher_packages
from launcher.options import NotANumber, NumberFrom, WholeNumberFrom
from rendezvous.door import own_command
from rendezvous.feature import declared
from rendezvous.wire.errors import ExitCode, UsageError
from rendezvous.wire.words import printable
from worker.program.state_home import home_with

__all__ = ["cancel", "drain", "prune", "replay", "restart", "status"]
__all__ += ["STATE_DIR", "folder_and_run", "root_folder"]
# What else the command of a feature is made of:
__all__ += ["NumberFrom", "exit_with", "need_launcher_packages", "run_ids"]

STATE_DIR = click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    envvar="RDZV_STATE_DIR",
    show_envvar=True,
    metavar="FOLDER",
    help="Folder for the state of all runs.",
)


def root_folder(state_dir: Path | None, run: str | None = None) -> Path:
    """The folder of all runs, for those who read it, or look into that of one run.

    Raises UsageError for what is no folder, and for a run of another user.
    """
    root = state_dir or home_with(os.environ, run)
    _look_into(root)
    if run and "/" not in run and os.path.isdir(root / run):
        _look_into(root / run)
    return root


def folder_and_run(state_dir: Path | None, word: str, *, acts: bool = False) -> tuple[Path, str]:
    """The folder of all runs, and the ID of the one that is meant; a shortened one is told.

    Args:
        state_dir: `--state-dir`.
        word: RUN, as it was given.
        acts: Whether the command changes the run.

    Raises:
        UsageError: The word may be several runs, or the folder is no folder.
    """
    from launcher.state.find_run import full_id

    root = root_folder(state_dir, word)
    run = full_id(root, word, whole=acts)
    if run != word:
        click.echo(f"rdzv: run '{run}'", err=True)
        root_folder(state_dir, run)
    return root, run


def _look_into(folder: Path) -> None:
    try:
        os.stat(f"{folder}/.")
    except FileNotFoundError:
        pass  # nothing was launched here yet
    except OSError as exc:
        raise UsageError(
            f"the state directory {folder} cannot be used: {exc.strerror}",
            hint="choose another one with --state-dir or RDZV_STATE_DIR",
        ) from exc


_VIEWS = {name: view for feature in declared() for name, view in feature.views.items()}


def _with_views(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags of the features' views."""
    for name, view in reversed(_VIEWS.items()):
        command = click.option(f"--{name}", is_flag=True, help=view.help)(command)
    return command


@click.command()
@click.argument("run", required=False, shell_complete=run_ids)
@STATE_DIR
@click.option(
    "--env",
    "env_node",
    type=WholeNumberFrom(min=0),
    metavar="NODE",
    help="Show the environment variables that rdzv sets on this node, with reasons.",
)
@click.option("--checks", is_flag=True, help="Show what the checks before the start found.")
@click.option(
    "--matrix",
    is_flag=False,
    flag_value="-",
    metavar="[FILE]",
    help="Show which nodes reach each other. With FILE (.svg, .png or .pdf), draw it.",
)
@click.option("--epochs", is_flag=True, help="Show how each start of the programs ended.")
@_with_views
@click.option(
    "--all", "everything", is_flag=True, help="List all launches, not only the newest 20."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@URL
def status(
    run: str | None,
    state_dir: Path | None,
    url: str | None,
    env_node: int | None,
    checks: bool,
    matrix: str | None,
    epochs: bool,
    everything: bool,
    as_json: bool,
    **views: bool,
) -> None:
    """List what was launched on this machine, newest first, or show one run.

    With RDZV_REGISTRY, also shows a run that was launched on another machine.

    \b
    Examples:
      rdzv status
      rdzv status llama-7b
    """
    need_launcher_packages()
    from launcher.show.parts import check_parts, refuse_parts, show_parts

    given: dict[str, object] = {"--env": env_node, "--checks": checks or None, "--matrix": matrix}
    given |= {"--epochs": epochs or None}
    given |= {f"--{name}": view if views[name] else None for name, view in _VIEWS.items()}
    asked = {flag: value for flag, value in given.items() if value is not None}
    check_parts(asked, run, as_json=as_json)
    if (registry := at_registry(partial(root_folder, state_dir, run), run, url)) is not None:
        from launcher.run.at_registry import list_runs, show_run

        refuse_parts(asked)
        shows = list_runs(registry, as_json=as_json) if run is None else None
        exit_with(shows or show_run(registry, run or "", as_json=as_json))
    if run is None:
        from launcher.show.run_list import show_runs

        exit_with(show_runs(root_folder(state_dir), everything=everything, as_json=as_json))
    root, run = folder_and_run(state_dir, run)
    if asked:
        exit_with(show_parts(root, run, asked, as_json=as_json))
    from launcher.show.status import show_status

    exit_with(show_status(root, run, as_json=as_json))


@click.command()
@click.argument("run", shell_complete=run_ids)
@STATE_DIR
@click.option("--reason", default="", help="Reason to record.")
@URL
def cancel(run: str, state_dir: Path | None, reason: str, url: str | None) -> None:
    """Cancel a run launched on this machine, or with RDZV_REGISTRY on another one.

    Also cleans up after a launcher that was killed on this machine.

    \b
    Example:
      rdzv cancel llama-7b
    """
    need_launcher_packages()
    from launcher.run.cancel import cancel_run

    if (registry := at_registry(partial(root_folder, state_dir, run), run, url)) is not None:
        from launcher.run.at_registry import cancel as cancel_there

        exit_with(cancel_there(registry, run, reason))
    root, run = folder_and_run(state_dir, run, acts=True)
    exit_with(cancel_run(root, run, reason, os.environ))


class _Reason(click.ParamType[str]):
    """Why somebody asks for something: as long as the registry takes it."""

    name = "text"
    most = 300

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """See the base class."""
        if len(value) > self.most:
            self.fail(f"it has {len(value)} characters, and {self.most} is the most", param, ctx)
        return printable(value, self.most)


class _Notice(click.ParamType[float]):
    """How long before it goes a node says so: as long as the registry takes it."""

    name = "seconds"
    most = 86_400

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """See the base class."""
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= self.most:  # nor is nan
            takes = f"--in takes a number of seconds from 0 to {self.most}, such as 120"
            raise NotANumber(f"{takes}; '{value}' is not one", ctx, param)
        return seconds


@click.command()
@click.argument("run", shell_complete=run_ids)
@STATE_DIR
@click.option(
    "--reason", type=_Reason(), default="rdzv restart", show_default=True, help="Reason to record."
)
def restart(run: str, state_dir: Path | None, reason: str) -> None:
    """Stop the programs of a run, and start them again on the same nodes.

    Does not count as one of --max-restarts, and also ends a pause before a restart. See
    'rdzv docs elastic'.

    \b
    Example:
      rdzv restart llama-7b
    """
    need_launcher_packages()
    from launcher.run.requests import restart_run

    root, run = folder_and_run(state_dir, run, acts=True)
    exit_with(restart_run(root, run, reason))


@click.command()
@click.argument("run", shell_complete=run_ids)
@click.argument("node", type=WholeNumberFrom(min=0))
@STATE_DIR
@click.option(
    "--in",
    "seconds",
    type=_Notice(),
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    help="Time until the node must be gone.",
)
@click.option(
    "--reason", type=_Reason(), default="rdzv drain", show_default=True, help="Reason to record."
)
def drain(run: str, node: int, state_dir: Path | None, seconds: float, reason: str) -> None:
    """Have a node leave: all programs get a notice, and are stopped before it goes.

    NODE is its number. Unless another node may take its place (--on-node-loss), the run then ends.
    See 'rdzv docs elastic'.

    \b
    Example:
      rdzv drain llama-7b 3 --in 120
    """
    need_launcher_packages()
    from launcher.run.requests import drain_node

    root, run = folder_and_run(state_dir, run, acts=True)
    exit_with(drain_node(root, run, node, seconds, reason))


class _Age(click.ParamType[float]):
    """A time with its unit, in seconds."""

    name = "age"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """See the base class."""
        found = re.fullmatch(r"(\d{1,6}) ?([smhd])", str(value))
        if found is None:
            self.fail("say a number with its unit, such as 30d, 12h, 90m or 0s", param, ctx)
        return int(found[1]) * {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}[found[2]]


@click.command()
@click.argument("run", required=False)
@STATE_DIR
@click.option(
    "--older-than",
    type=_Age(),
    default="30d",
    show_default=True,
    metavar="AGE",
    help="Remove runs whose launch ended longer ago than this: a number with s, m, h or d.",
)
@click.option(
    "--keep",
    type=WholeNumberFrom(min=0),
    default=50,
    show_default=True,
    metavar="N",
    help="Keep this many of the newest runs, however old they are.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
def prune(
    run: str | None, state_dir: Path | None, older_than: float, keep: int, dry_run: bool
) -> None:
    """Remove old runs, or RUN whatever its age.

    Each launch does this when it ends, with the default limits. A run stays while its launcher
    runs or its scheduler may still have a job of it. Files that rdzv did not write stay.

    \b
    Examples:
      rdzv prune --dry-run
      rdzv prune --older-than 7d --keep 10
      rdzv prune my-run
    """
    need_launcher_packages()
    from launcher.state import prune as old
    from launcher.state.find_run import unknown_run
    from launcher.state.state_dir import StateDir

    if run is None:
        root = root_folder(state_dir)
    else:
        root, run = folder_and_run(state_dir, run, acts=True)
    names = old.old_runs(root, older_than=older_than, keep=keep) if run is None else [run]
    if run is not None and not os.path.exists(root / run / "launch.json"):
        raise unknown_run(root, run)
    failed = False
    for name in names:
        try:
            done = old.prune(StateDir(root, name), dry_run=dry_run)
        except OSError as exc:
            done, failed = old.Pruned(name, removed=False, kept=str(exc)), True
        if done.removed:
            click.echo(f"{'would remove' if dry_run else 'removed'} run '{name}'")
        if done.kept:
            click.echo(
                f"rdzv: {'' if done.removed else f'run {name!r} stays: '}{done.kept}", err=True
            )
        failed = failed or (run is not None and not done.removed)
    if not names:
        click.echo("there is nothing to remove")
    sys.exit(int(ExitCode.FAILED if failed else ExitCode.OK))


@click.command()
@click.argument("journal", shell_complete=run_ids)
@STATE_DIR
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one per line.")
def replay(journal: str, state_dir: Path | None, as_json: bool) -> None:
    """Show what happened in a run, event by event, with reasons.

    JOURNAL is the ID of a run that was launched on this machine, or a journal file (./NAME if a run
    has the same name).

    \b
    Example:
      rdzv replay llama-7b
    """
    options = ["--json"] if as_json else []
    words = own_command("_replay", str(_journal(journal, state_dir)), *options)
    # A Ctrl-C waits until the new interpreter is here: before, it would show a traceback.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    os.execv(sys.executable, words)  # noqa: S606


def _journal(word: str, state_dir: Path | None) -> Path:
    """The journal of a run, or a file; of both with one name the run's, and ./NAME is the file.

    Raises:
        UsageError: It is neither, and no path.
    """
    if "://" in word:  # and not shown: it may have a password
        raise UsageError(
            "replay reads files, and no database",
            hint="the events of a run at a standing registry are on its page while it is in "
            "progress: rdzv ui RUN; rdzv launch --json prints them",
        )
    path = Path(word)
    if "/" in word and os.path.isfile(path):
        return path
    root = root_folder(state_dir, word)
    kept = root / word / "journal.sqlite"
    if os.path.isfile(kept):
        return kept
    if "/" in word or os.path.isfile(path):
        return path
    need_launcher_packages()
    from launcher.state.find_run import find_run

    root, run = folder_and_run(state_dir, word)
    return find_run(root, run).journal


COMMANDS: tuple[click.Command, ...] = (status, cancel, restart, drain, prune)
