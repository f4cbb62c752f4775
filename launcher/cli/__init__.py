"""The command `rdzv`.

Heavy imports stand inside the commands: a worker's start must not pay for the launcher's packages,
which need not be installed where only workers run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import signal
import sys
from pathlib import Path
from typing import Any

import click

from launcher.cli import checks as cli_checks
from launcher.cli import run_file as cli_run_file
from launcher.cli import runs as cli_runs
from launcher.cli.completion import COMPLETE, completion, files
from launcher.cli.docs import docs
from launcher.cli.given import written
from launcher.cli.help import EXIT_CODES, SettingsCommand, feature_commands
from launcher.cli.logs import logs
from launcher.cli.of_group import OfGroup, group_token
from launcher.cli.plugin import plugin_path
from launcher.cli.process import (
    Group,
    absolute_secret_files,
    exit_with,
    log_to_file,
    log_to_stderr,
    missing_launcher_packages,
    need_launcher_packages,
    say,
    secret_text,
)
from launcher.cli.report import report
from launcher.cli.run_file import former_file, in_its_folder
from launcher.cli.streams import endure_closed_streams
from launcher.cli.tenants import tenant
from launcher.cli.tokens import token
from launcher.cli.ui import token_view, ui
from launcher.cli.with_command import WithCommand
from launcher.options import options_from, read, sources
from launcher.processes import Become
from launcher.settings import BenchSettings, Launching, LaunchSettings, ServeSettings
from rendezvous.talk.join_string import JoinString
from rendezvous.version import rdzv_version
from rendezvous.wire.errors import RdzvError, UsageError
from worker.machine.limits import named
from worker.settings import WorkerSettings, settle_framework

_COMMAND = {"allow_interspersed_args": False, "max_content_width": 100}


@click.group(
    cls=Group,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "token_normalize_func": written,
    },
    epilog=EXIT_CODES,
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=lambda context, _, asked: _show_version(context) if asked else None,
    help="Show the version and where it is installed.",
)
def main() -> None:
    """Start one program on all nodes of a training job.

    \b
    Example, a first run with two nodes on this machine:
      rdzv launch --nnodes 2 -- train.py
    """


@main.command(cls=OfGroup, context_settings=_COMMAND, epilog=EXIT_CODES)
@options_from(LaunchSettings, COMPLETE, former_file)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, shell_complete=files)
@click.pass_obj
def launch(become: Become | None, /, command: tuple[str, ...], **values: Any) -> None:
    """Launch a run: start COMMAND on every node.

    COMMAND follows '--': a script or '-m MODULE', with its arguments, as for torchrun. Its standard
    input is empty.

    \b
    Examples:
      rdzv launch --nnodes 2 -- train.py --epochs 3
      rdzv launch --nnodes 2 --hostlist n1,n2 -- train.py
      rdzv launch -f run.toml
    """
    settings, token = _as_launcher(in_its_folder(read(LaunchSettings, values)), command)
    from launcher.prepare.environment import LaunchEnvironment
    from launcher.run.command import launch as go

    registry, world = secret_text("RDZV_REGISTRY"), LaunchEnvironment(become)
    exit_with(go(settings, command, os.environ, group_token=token, registry=registry, world=world))


@main.command(cls=SettingsCommand, context_settings=_COMMAND, epilog=EXIT_CODES)
@options_from(BenchSettings, COMPLETE, former_file)
def bench(**values: Any) -> None:
    """Measure the network between the nodes, and name slow nodes.

    Takes the options of 'rdzv launch'. Measures all-reduce by size and the bandwidth of every pair
    of nodes. Needs torch on every node; uses NCCL on GPUs, else Gloo. Exit code 0: no node and no
    pair is slow; 1: at least one is.

    \b
    Example:
      rdzv bench --nnodes 2 --hostlist n1,n2 --plot net.svg
    """
    given = in_its_folder(read(BenchSettings, values)).measuring()
    command = tuple(given.command())
    settings, token = _as_launcher(given, command)
    from launcher.run.bench import bench as measure

    registry = secret_text("RDZV_REGISTRY")
    exit_with(measure(settings, command, os.environ, group_token=token, registry=registry))


def _as_launcher(settings: Launching, command: tuple[str, ...]) -> tuple[Launching, str | None]:
    """The settings as the environment completes them, and the group token of a symmetric start.

    A container that is told to be a worker is one from here on, and does not come back.
    """
    token = group_token()
    if (settings.role or "").lower() == "worker" and token is None:
        _work(settings.for_worker(), command)
    need_launcher_packages()
    from launcher.symmetric import start as symmetric
    from worker.program.hidden import hide_memory

    hide_memory()
    if not settings.dry_run:  # what that shows is all that it does
        endure_closed_streams()
    if token is None:
        symmetric.check_alone(settings, os.environ, sources(type(settings)))
    else:
        settings = symmetric.settle(settings, os.environ, sources(type(settings)), say=say)
    if token is not None and settings.node_rank and not settings.dry_run:
        join = symmetric.symmetric_join(settings, token)
        os.environ.update(symmetric.own_variables(settings, os.environ))
        _work(settings.for_worker(), command, join)
    log_to_stderr(settings.log_level)
    return settings, token


@main.command(cls=WithCommand, context_settings=_COMMAND, epilog=EXIT_CODES)
@options_from(WorkerSettings, COMPLETE)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, shell_complete=files)
def worker(command: tuple[str, ...], **values: Any) -> None:
    """Join a run as one of its nodes, and start COMMAND.

    A scheduler starts this command on each node. The secret with which the node joins is in
    RDZV_JOIN, or in the file that RDZV_JOIN_FILE names.

    \b
    Example:
      RDZV_JOIN_FILE=join rdzv worker --nnodes 2 -- train.py
    """
    _work(read(WorkerSettings, values), command)


def _work(
    settings: WorkerSettings, command: tuple[str, ...], join: JoinString | None = None
) -> None:
    """Be a worker, and exit with its code."""
    from worker.agent import run_agent
    from worker.contracts import check_command
    from worker.program.hidden import hide_memory
    from worker.program.process import die_with_parent

    hide_memory()
    if settings.parent is not None:
        die_with_parent(signal.SIGTERM, settings.parent)
    try:
        _enter(settings.cwd)
        settings, _ = settle_framework(settings, command)
        check_command(command, settings.framework)
    except UsageError as exc:
        if join is None:  # in a symmetric start see `OfGroup`
            _refuse(exc)
        raise
    if join is None:
        text = _join_text(settings.join_timeout)
        if text is None:
            raise UsageError(
                "RDZV_JOIN is not set: this worker does not know which run to join",
                hint="the worker spec of the scheduler sets it, or RDZV_JOIN_FILE to the path of a "
                "file that contains it; with ROLE=worker, 'rdzv launch' becomes a worker",
            )
        join = JoinString.parse(text)
    log_to_stderr(settings.log_level, f"rdzv[slot {join.slot}]")
    kept = log_to_file(settings.log_dir, join)
    try:
        exit_with(run_agent(settings, join, command))
    except Exception as exc:
        error = named(exc)
        if not isinstance(error, RdzvError):
            raise
        if kept is not None:
            record = (__name__, logging.ERROR, "", 0, error.message, (), None)
            kept.emit(logging.LogRecord(*record))
        if error is not exc:  # a limit of this machine was met before it could refuse
            _refuse(error, join)
        raise error from exc


def _enter(folder: Path | None) -> None:
    """Go where COMMAND starts on this node; raises UsageError."""
    if folder is not None:
        absolute_secret_files()
        try:
            os.chdir(folder)
        except OSError as exc:
            raise UsageError(
                f"COMMAND is to start in {folder} (--cwd), which cannot be entered on "
                f"{platform.node()}: {exc.strerror}",
                hint="name a folder that every node has",
            ) from exc


def _refuse(error: RdzvError, join: JoinString | None = None) -> None:
    """Tell the registry, where it is known, that this node cannot take part."""
    from worker.offer.refusal import refuse_alone

    with contextlib.suppress(RdzvError):
        if join is None and (text := secret_text("RDZV_JOIN")) is not None:
            join = JoinString.parse(text)
        if join is not None:
            asyncio.run(refuse_alone(join, error))


def _join_text(seconds: float) -> str | None:
    """The join string; taken out of the folder, where RDZV_JOIN_FILE names one."""
    path = os.environ.get("RDZV_JOIN_FILE")
    if not path or os.environ.get("RDZV_JOIN") or not os.path.isdir(path):
        return secret_text("RDZV_JOIN")
    from worker.offer.join_folder import take_join

    return take_join(Path(path), seconds, say)


@main.command(cls=SettingsCommand, epilog=EXIT_CODES)
@options_from(ServeSettings)
def serve(**values: Any) -> None:
    """Run a registry that serves many runs.

    \b
    Examples:
      rdzv serve --registry-address registry.example.com
      rdzv serve --journal postgresql://db/rdzv --advertise n1
    """
    need_launcher_packages()
    from launcher.run.serve import serve as serve_registry

    serve_registry(read(ServeSettings, values), os.environ, secret_text("RDZV_TOKEN"))


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Exit codes: the command's own; 255 if it could not run, or if its end is unknown.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="HOST COMMAND...")
def rsh(words: tuple[str, ...]) -> None:
    """Run a command on another node, from inside a run.

    Takes ssh's command line, for programs that call ssh. HOST is a node's address, its hostname, or
    node-0, node-1 ... Needs a run in progress that was launched with --allow-exec or with a
    framework that starts on node 0 only.

    \b
    Example:
      rdzv rsh node-1 nvidia-smi
    """
    from worker.programs.rsh import main as run

    sys.exit(run(words))


@click.command(
    "wait-for",
    epilog="Exit codes: 0 a connection was accepted; 1 none was in time; 64 usage.",
)
@click.argument("place", metavar="head:PORT|node-N:PORT|HOST:PORT")
@click.option("--timeout", type=float, metavar="SECONDS", help="When not set, it waits on.")
def wait_for(place: str, timeout: float | None) -> None:
    """Wait until a port of a node accepts connections, from inside a run.

    For scripts that start when another node's server is up. 'head' is node 0, at its address in the
    run. While it waits for long, the launcher's terminal says what for.

    \b
    Example:
      rdzv wait-for head:6379 --timeout 300
    """
    from worker.programs.wait_for import main as run

    sys.exit(run([place] if timeout is None else [place, f"--timeout={timeout}"]))


def _show_version(context: click.Context) -> None:
    """One line, which specs/install.sh reads."""
    from launcher.show.installation import commit

    folder = Path(__file__).parents[2]
    what = "a worker's packages" if missing_launcher_packages() else "the launcher's packages"
    about = [f"Python {platform.python_version()}", what]
    if found := commit():
        about.insert(0, f"commit {found[:10]}")
    click.echo(f"rdzv {rdzv_version()} from {folder} ({', '.join(about)})")
    context.exit()


token.add_command(token_view)
_OTHERS = (token, tenant, rsh, wait_for, *cli_checks.COMMANDS, cli_runs.replay, report, docs)
_FOR_OTHERS = (completion, plugin_path)
_ABOUT_RUNS = (*cli_run_file.COMMANDS, *cli_runs.COMMANDS, logs, ui)
for _command in (*_ABOUT_RUNS, *_OTHERS, *_FOR_OTHERS, *feature_commands()):
    main.add_command(_command)
