"""The command `rdzv`.

Heavy imports stand inside the commands: a worker's start must not pay for the launcher's packages,
which need not be installed where only workers run.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import platform
import signal
import sys
import traceback
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import click

from launcher.options import options_from, read, sources
from launcher.settings import BenchSettings, Launching, LaunchSettings, ServeSettings
from launcher.streams import STANDARD_OUTPUT, endure_closed_streams
from rendezvous.errors import EXIT_CODE_HELP, ExitCode, RdzvError, UsageError
from rendezvous.isolated import isolated
from rendezvous.schema import printable
from rendezvous.security import JoinString
from rendezvous.version import rdzv_version
from worker.settings import WorkerSettings, settle_framework, state_home

_COMMAND = {"allow_interspersed_args": False, "max_content_width": 100}
_MOST_CHARACTERS = 4_000
_LAUNCHER_PACKAGES = ("cryptography", "fastapi", "rich", "uvicorn", "uvloop", "yaml")


def _exit_codes() -> str:
    lines = [f"  {code.value:>3}  {text}" for code, text in EXIT_CODE_HELP.items()]
    return "\b\nExit codes (else the program's own, 128 + n for signal n):\n" + "\n".join(lines)


class _Group(click.Group):
    """Turns every error into its message, its hint and its exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """See the base class."""
        try:
            return super().main(*args, **kwargs)
        except RdzvError as exc:
            click.echo(f"rdzv: {_shown(exc.message)}", err=True)
            if exc.hint:
                click.echo(f"      {_shown(exc.hint)}", err=True)
            sys.exit(int(exc.exit_code))
        except Exception:  # noqa: BLE001 (the last one who can name it)
            traceback.print_exc()
            click.echo("rdzv: this is a fault in rdzv itself; please report what it says", err=True)
            sys.exit(int(ExitCode.INTERNAL))

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """See the base class."""
        with _in_our_form():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """See the base class."""
        with _in_our_form():
            return super().invoke(ctx)


def _shown(text: str) -> str:
    """The text without control characters: a part of it may be what a stranger has answered."""
    return "\n".join(printable(line, _MOST_CHARACTERS) for line in text.split("\n"))


@contextlib.contextmanager
def _in_our_form() -> Iterator[None]:
    """Say click's refusals as we say ours, and a Ctrl-C, which it calls Aborted, not at all.

    A full disk under standard output is no fault of rdzv's; that nobody reads it is left to click.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as exc:
        if exc.filename != STANDARD_OUTPUT:
            raise
        raise RdzvError(f"{STANDARD_OUTPUT} cannot be written: {exc.strerror}") from exc
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except click.UsageError as exc:
        if type(exc).__name__ == "NoArgsIsHelpError":
            raise
        hint = f"see {exc.ctx.command_path if exc.ctx else 'rdzv'} --help"
        raise UsageError(exc.format_message(), hint=hint) from exc


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_exit_codes(),
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=lambda context, _, asked: _show_version(context) if asked else None,
    help="Show the version, and where it is installed.",
)
def main() -> None:
    """Bring the nodes of one training job together, and start the program on all of them."""


@main.command(context_settings=_COMMAND, epilog=_exit_codes())
@options_from(LaunchSettings)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def launch(command: tuple[str, ...], **values: Any) -> None:
    """Launch a run: registry, worker runs, and slot 0's node here.

    COMMAND is a torchrun target, a script or -m module with its arguments, after '--':

      rdzv launch --nnodes 4 --nproc-per-node 8 -- train.py --epochs 3

    Its standard input is empty on every node.
    """
    settings, token = _as_launcher(read(LaunchSettings, values), command)
    from launcher.run.command import launch as go

    registry = secret_text("RDZV_REGISTRY")
    _exit(go(settings, command, os.environ, group_token=token, registry=registry))


@main.command(context_settings=_COMMAND, epilog=_exit_codes())
@options_from(BenchSettings)
def bench(**values: Any) -> None:
    """Measure how fast the nodes reach each other, before a job finds out.

    A run of its own with the options of 'rdzv launch': all-reduce by size, the bandwidth of every
    pair of nodes, and the slow node by name. Needs torch on every node; NCCL where there are GPUs,
    else Gloo. Exit code 0: no node and no pair is slow; 1: one is.
    """
    given = read(BenchSettings, values).model_copy(update={"framework": "bench"})
    command = tuple(given.command())
    settings, token = _as_launcher(given, command)
    from launcher.bandwidth import bench as measure

    registry = secret_text("RDZV_REGISTRY")
    _exit(measure(settings, command, os.environ, group_token=token, registry=registry))


def _as_launcher(settings: Launching, command: tuple[str, ...]) -> tuple[Launching, str | None]:
    """The settings as the environment completes them, and the group token of a symmetric start.

    A container that is told to be a worker is one from here on, and does not come back.
    """
    token = secret_text("RDZV_TOKEN")
    if (settings.role or "").lower() == "worker" and token is None:
        _work(settings.for_worker(), command)
    _need_launcher_packages()
    from launcher import symmetric
    from worker.process import hide_memory

    hide_memory()
    if not settings.dry_run:  # what that shows is all that it does
        endure_closed_streams()
    if token is None:
        symmetric.check_alone(settings, os.environ, sources(type(settings)))
    else:
        settings = symmetric.settle(settings, os.environ, sources(type(settings)), say=_say)
    if token is not None and settings.node_rank and not settings.dry_run:
        join = symmetric.symmetric_join(settings, token)
        _work(settings.for_worker(), command, join)
    _log_to_stderr(settings.log_level)
    return settings, token


@main.command(context_settings=_COMMAND, epilog=_exit_codes())
@options_from(WorkerSettings)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def worker(command: tuple[str, ...], **values: Any) -> None:
    """Be one node of a run: join with RDZV_JOIN (or RDZV_JOIN_FILE), and run COMMAND."""
    _work(read(WorkerSettings, values), command)


def _work(
    settings: WorkerSettings, command: tuple[str, ...], join: JoinString | None = None
) -> None:
    """Be a worker, and exit with its code."""
    from worker.agent import run_agent
    from worker.contracts import check_command
    from worker.process import die_with_parent, hide_memory

    hide_memory()
    if settings.parent is not None:
        die_with_parent(signal.SIGTERM, settings.parent)
    try:
        settings, _ = settle_framework(settings, command)
        check_command(command, settings.framework)
    except UsageError as exc:
        _refuse(join, exc)
        raise
    if join is None:
        text = _join_text(settings.join_timeout)
        if text is None:
            raise UsageError(
                "RDZV_JOIN is not set: this worker does not know which run to join",
                hint="the launcher's worker spec sets it (or RDZV_JOIN_FILE names a file with it); "
                "'rdzv launch' is a worker where ROLE=worker is set",
            )
        join = JoinString.parse(text)
    _log_to_stderr(settings.log_level, f"rdzv[slot {join.slot}]")
    kept = _log_to_file(settings.log_dir, join.slot)
    try:
        _exit(run_agent(settings, join, command))
    except RdzvError as exc:
        if kept is not None:
            record = (__name__, logging.ERROR, "", 0, exc.message, (), None)
            kept.emit(logging.LogRecord(*record))
        raise


def _refuse(join: JoinString | None, error: UsageError) -> None:
    """Tell the registry, where it is known, that this node cannot take part."""
    from worker.refusal import refuse_alone

    with contextlib.suppress(RdzvError):
        if join is None and (text := secret_text("RDZV_JOIN")) is not None:
            join = JoinString.parse(text)
        if join is not None:
            asyncio.run(refuse_alone(join, error))


def _say(words: str) -> None:
    click.echo(f"rdzv: {_shown(words)}", err=True)


def _join_text(seconds: float) -> str | None:
    """The join string; taken out of the folder, where RDZV_JOIN_FILE names one."""
    path = os.environ.get("RDZV_JOIN_FILE")
    if not path or os.environ.get("RDZV_JOIN") or not os.path.isdir(path):
        return secret_text("RDZV_JOIN")
    from worker.join_folder import take_join

    return take_join(Path(path), seconds, lambda words: click.echo(f"rdzv: {words}", err=True))


@main.command(epilog=_exit_codes())
@options_from(ServeSettings)
def serve(**values: Any) -> None:
    """Run a standing registry, for many runs at once."""
    _need_launcher_packages()
    from launcher.serve import serve as serve_registry

    serve_registry(read(ServeSettings, values), os.environ)


@main.group()
def token() -> None:
    """Tokens for symmetric starts."""


@token.command("new")
def token_new() -> None:
    """Print a new group token: give it to all nodes as RDZV_TOKEN, before they are submitted."""
    from rendezvous.security import group_token_text, new_secret

    click.echo(group_token_text(new_secret()))


_STATE_DIR = click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    envvar="RDZV_STATE_DIR",
    show_envvar=True,
    help="Where runs keep their state.",
)


def _root(state_dir: Path | None) -> Path:
    """The folder of all runs, for those who read it; raises UsageError for what is no folder."""
    root = state_dir or state_home(os.environ)
    try:
        os.stat(f"{root}/")
    except FileNotFoundError:
        pass  # nothing was launched here yet
    except OSError as exc:
        raise UsageError(
            f"the state directory {root} cannot be used: {exc.strerror}",
            hint="name another one with --state-dir or RDZV_STATE_DIR",
        ) from exc
    return root


@main.command()
@click.argument("run", required=False)
@_STATE_DIR
@click.option(
    "--env",
    "env_rank",
    type=click.IntRange(min=0),
    metavar="RANK",
    help="Show instead what the program of the node of this rank is given, each variable with its "
    "reason.",
)
@click.option(
    "--checks", is_flag=True, help="Show instead what was checked before the start, and found."
)
@click.option(
    "--matrix",
    is_flag=False,
    flag_value="-",
    metavar="[FILE]",
    help="Show instead which nodes reach which; drawn into FILE: .svg, .png or .pdf.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the state as JSON.")
def status(
    run: str | None,
    state_dir: Path | None,
    env_rank: int | None,
    checks: bool,
    matrix: str | None,
    as_json: bool,
) -> None:
    """Show how a run stands, or all runs that were launched here."""
    _need_launcher_packages()
    from launcher.inspect import show_status

    if checks or matrix is not None:
        from launcher.checks import show_checks, show_matrix

        if run is None:
            raise UsageError("--checks and --matrix need a RUN", hint="rdzv status RUN --matrix")
        path = None if matrix in (None, "-") else Path(str(matrix))
        root = _root(state_dir)
        if checks:
            _exit(show_checks(root, run, as_json=as_json))
        else:
            _exit(show_matrix(root, run, path, as_json=as_json))
        return
    if env_rank is not None:
        from launcher.environment import show_environment

        if run is None:
            raise UsageError("--env needs a RUN", hint="rdzv status RUN --env RANK")
        _exit(show_environment(_root(state_dir), run, env_rank, as_json=as_json))
        return
    _exit(show_status(_root(state_dir), run, as_json=as_json))


@main.command()
@click.argument("run")
@_STATE_DIR
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw each value over the steps into FILE, which ends in .svg, .png or .pdf.",
)
@click.option("--json", "as_json", is_flag=True, help="Print every row, one JSON object a line.")
def metrics(run: str, state_dir: Path | None, plot: Path | None, as_json: bool) -> None:
    """Show how the program gets on: the loss and the like that it has sent, until now or its end.

    examples/rdzv_metrics.py is what a program sends it with.
    """
    _need_launcher_packages()
    from launcher.metrics import show_metrics

    if plot is not None and as_json:
        raise UsageError("--plot draws and --json prints", hint="give one of them")
    _exit(show_metrics(_root(state_dir), run, as_json=as_json, plot=plot))


@main.command()
@click.argument("run")
@_STATE_DIR
@click.option("--reason", default="rdzv cancel", show_default=True, help="Why, for the record.")
def cancel(run: str, state_dir: Path | None, reason: str) -> None:
    """End a run that was launched here, and what a killed launcher has left of it."""
    _need_launcher_packages()
    from launcher.inspect import cancel_run

    _exit(cancel_run(_root(state_dir), run, reason, os.environ))


@main.command()
@click.argument("run")
@_STATE_DIR
@click.option(
    "--node", type=int, help="Only this node rank's log; before there are ranks, this slot's."
)
@click.option("--rank", type=int, help="Only the log of the node that has this process rank.")
@click.option(
    "--lines",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Last lines of each log.",
)
@click.option("--follow", is_flag=True, help="Go on with what comes, until the run is over.")
def logs(
    run: str,
    state_dir: Path | None,
    node: int | None,
    rank: int | None,
    lines: int,
    follow: bool,
) -> None:
    """Show the newest lines of a run's logs: of files on this machine, and of its scheduler."""
    _need_launcher_packages()
    if node is not None and rank is not None:
        raise UsageError("--node and --rank name a node each", hint="give one of them")
    from launcher.inspect import find_run
    from launcher.logs import show_logs

    state = find_run(_root(state_dir), run)
    _exit(show_logs(state, os.environ, node=node, rank=rank, lines=lines, follow=follow))


@main.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Exit codes: the command's own; 255 when it could not be run, or its end is not known.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS] HOST COMMAND...")
def rsh(words: tuple[str, ...]) -> None:
    """Run a command on another node of the run, from inside the run's program.

    Takes ssh's command line, for programs that would call ssh: HOST is an address of the table, a
    hostname or node-RANK. Works while the run is running, where it was launched with --allow-exec
    or with a framework that starts on rank 0 alone.
    """
    from worker.programs.rsh import main as run

    sys.exit(run(words))


@main.group(invoke_without_command=True)
@click.pass_context
def schedulers(context: click.Context) -> None:
    """List what can start worker runs, how the join string travels, and what is missing here."""
    if context.invoked_subcommand is not None:
        return
    _need_launcher_packages()
    from launcher.schedulers import show_schedulers

    show_schedulers(os.environ)


@schedulers.command("check", epilog=_exit_codes())
@click.argument("name", required=False)
@click.option(
    "--scheduler-profile",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A scheduler of your own, in place of NAME.",
)
@click.option("--worker-spec", type=click.Path(path_type=Path), help="As for 'rdzv launch'.")
@click.option("--set", "variables", multiple=True, metavar="NAME=VALUE", help="As for 'launch'.")
@click.option(
    "--timeout",
    "seconds",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Seconds to wait for the worker run to be seen, and for it to be gone.",
)
@_STATE_DIR
def schedulers_check(
    name: str | None,
    scheduler_profile: Path | None,
    worker_spec: Path | None,
    variables: tuple[str, ...],
    seconds: float,
    state_dir: Path | None,
) -> None:
    """Try a scheduler live: submit a worker run, see it, cancel it, see that it is gone.

    The worker run is given no registry and ends within a minute. Exit code 83: a step failed, and
    the message says which one, with the scheduler's words.
    """
    if (name is None) == (scheduler_profile is None):
        raise UsageError(
            "the check needs one scheduler",
            hint="give a name of 'rdzv schedulers', or --scheduler-profile FILE",
        )
    _need_launcher_packages()
    from launcher.check import check_scheduler

    work = check_scheduler(
        str(scheduler_profile.resolve()) if scheduler_profile else str(name),
        os.environ,
        root=_root(state_dir),
        worker_spec=worker_spec,
        variables=variables,
        seconds=seconds,
        say=lambda words: click.echo(_shown(words)),
    )
    _exit(work)


@main.command()
@click.option(
    "--env",
    is_flag=True,
    help="Show what a symmetric start would adopt from this environment, and from which variables; "
    "exit code 1 when it would be refused.",
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.option("--strict", is_flag=True, help="A warning is a failure: exit code 1.")
@click.option("--skip", multiple=True, metavar="ID", help="Leave out this check; repeatable.")
def doctor(env: bool, as_json: bool, strict: bool, skip: tuple[str, ...]) -> None:
    """Look at this machine as a run would find it, and say what to mend; starts nothing.

    Exit code 0: ok, or warnings; 1: a check failed; 2: wrong option. docs/checks.md explains every
    check.
    """
    if not env:
        from launcher.doctor_node import show_node

        code = show_node(os.environ, _LAUNCHER_PACKAGES, skip=skip, strict=strict, as_json=as_json)
        sys.exit(code)
    _need_launcher_packages()
    from launcher import doctor as checks
    from launcher.symmetric import this_host

    finding = checks.look_at_environment(os.environ, secret_text("RDZV_TOKEN"), this_host())
    sys.exit(checks.show_environment(finding, as_json=as_json))


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("journal")
@_STATE_DIR
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def replay(journal: str, state_dir: Path | None, as_json: bool) -> None:
    """Show what happened in a journal, event by event, with the reasons.

    JOURNAL is a journal file, or the id of a run that was launched here; a file that is named
    like a run is ./NAME.
    """
    path = _journal(journal, state_dir)
    words = isolated("rendezvous.server.replay", str(path))
    # A Ctrl-C waits until the new interpreter is here: before, it would show a traceback.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    os.execv(sys.executable, [*words, "--json"] if as_json else words)  # noqa: S606


def _journal(word: str, state_dir: Path | None) -> Path:
    """The journal of a run, or a file; of both with one name the run's, and ./NAME is the file.

    Raises:
        UsageError: It is neither, and no path.
    """
    path = Path(word)
    if "/" in word and path.is_file():
        return path
    root = _root(state_dir)
    kept = root / word / "journal.sqlite"
    if kept.is_file():
        return kept
    if "/" in word or path.is_file():
        return path
    _need_launcher_packages()
    from launcher.inspect import find_run

    return find_run(root, word).journal


def secret_text(name: str) -> str | None:
    """The value of a secret variable, or the content of the file that `<name>_FILE` names.

    Raises:
        UsageError: The file cannot be read, or is empty.
    """
    value = os.environ.get(name)
    if value:
        return value
    path = os.environ.get(f"{name}_FILE")
    if not path:
        return None
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"{name}_FILE names {path}, which cannot be read: {exc}") from exc
    if path.startswith("/proc/self/fd/"):
        os.close(int(path.rsplit("/", 1)[1]))
    if not text.strip():
        raise UsageError(f"{name}_FILE names {path}, which is empty")
    return text


def _show_version(context: click.Context) -> None:
    """One line, which specs/install.sh reads."""
    folder = Path(__file__).parent.parent
    what = "a worker's packages" if _missing_launcher_packages() else "the launcher's packages"
    python = f"Python {platform.python_version()}"
    click.echo(f"rdzv {rdzv_version()} from {folder} ({python}, {what})")
    context.exit()


def _need_launcher_packages() -> None:
    """Looked for and not imported: most of them are the registry's, a process of its own."""
    for name in _missing_launcher_packages():
        raise UsageError(
            f"this command needs the package '{name}', which is not installed",
            hint="install the launcher's packages: pip install 'rdzv[launcher]'",
        )


def _missing_launcher_packages() -> list[str]:
    return [name for name in _LAUNCHER_PACKAGES if importlib.util.find_spec(name) is None]


class _OneLine(logging.Formatter):
    """Whatever a peer has said: it stays on one line and does not move a terminal's cursor."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """See the base class."""
        return printable(super().formatMessage(record), _MOST_CHARACTERS)


def _log_to_stderr(level: str, name: str = "rdzv") -> None:
    logging.raiseExceptions = False  # a log on a full disk loses lines, and is no traceback
    handler = logging.StreamHandler()
    handler.setLevel(level.upper())
    handler.setFormatter(_OneLine(f"{name}: %(message)s"))
    root = logging.getLogger()
    root.setLevel("DEBUG" if level == "debug" else "INFO")
    root.addHandler(handler)
    for noisy in ("httpx", "httpcore", "asyncio"):
        logging.getLogger(noisy).setLevel("WARNING")


def _log_to_file(folder: Path | None, slot: int) -> logging.Handler | None:
    """Keep what the agent says, whatever of it is shown; without a folder, or a disk, not."""
    if folder is None:
        return None
    from worker.output import make_private

    path = folder / f"agent-{slot}.log"
    try:
        make_private(folder)
        path.touch(mode=0o600)
        handler = logging.FileHandler(path)
    except OSError:
        return None
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(handler)
    return handler


def _exit(work: Coroutine[Any, Any, int]) -> None:
    """Run to the end and exit with its code, whoever presses Ctrl-C once that is known."""
    code: int | None = None

    async def to_the_end() -> None:
        nonlocal code
        code = await work

    try:
        asyncio.run(to_the_end())
    except KeyboardInterrupt:
        if code is None:
            sys.exit(128 + signal.SIGINT)
    logging.shutdown()
    sys.exit(int(code or ExitCode.OK))
