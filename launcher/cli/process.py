"""What all commands of `rdzv` share: how they fail, exit and log, and what they read."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import select
import signal
import sys
import traceback
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click

from launcher.cli.help import WithExitCodes, write_commands
from launcher.cli.streams import STANDARD_OUTPUT
from launcher.options import NotANumber, Unknown
from launcher.terminal import fold_lines, shows_colours, width_of
from rendezvous.door import begin_work
from rendezvous.secret_variables import SECRETS, descriptor_of
from rendezvous.talk.join_string import JoinString
from rendezvous.wire.errors import ExitCode, RdzvError, UsageError
from rendezvous.wire.words import did_you_mean, printable
from worker.machine.limits import named

_MOST_CHARACTERS = 4_000
_PATIENCE_SECONDS = 1.0
AT_WORK = f"{__name__}.at_work"
"""Key in the context of a command that has begun its work: what that refuses, it reports itself."""
_ELSEWHERE = {
    **dict.fromkeys(("ls", "list", "ps", "runs", "show"), "status"),
    **dict.fromkeys(("stop", "kill", "delete", "rm"), "cancel"),
    **dict.fromkeys(("run", "start", "submit"), "launch"),
    **dict.fromkeys(("log", "tail"), "logs"),
}
"""Commands of other tools, and rdzv's own for the same."""
LAUNCHER_PACKAGES = ("cryptography", "fastapi", "rich", "uvicorn", "uvloop", "yaml")


class Group(WithExitCodes, click.Group):
    """Turns every error into its message, its hint and its exit code."""

    group_class = type  # its groups are of this class, too

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """See the base class."""
        try:
            return super().main(*args, **kwargs)
        except Exception as exc:  # noqa: BLE001 (the last one who can name it)
            _exit_for(exc)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """See the base class."""
        with _in_our_form():
            context = super().make_context(*args, **kwargs)
        if not shows_colours(os.environ):
            context.color = False  # what is printed under it has none; commands inherit it
        return context

    def invoke(self, ctx: click.Context) -> Any:
        """See the base class."""
        with _in_our_form():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See the base class."""
        name = args[0]
        if name in self.commands or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        if (own := _ELSEWHERE.get(name)) in self.commands:
            raise UsageError(f"No such command '{name}'", hint=f"use {ctx.command_path} {own}")
        close = did_you_mean(name, [n for n, c in self.commands.items() if not c.hidden])
        hint = close or f"{ctx.command_path} --help lists the commands"
        raise UsageError(f"No such command '{name}'", hint=hint)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See the base class."""
        write_commands(self, formatter)


def _exit_for(error: Exception) -> NoReturn:
    """Say what a command failed of: in one or two lines, unless it is a bug."""
    error = named(error)
    if not isinstance(error, RdzvError):
        traceback.print_exception(error)
        click.echo("rdzv: this is a bug in rdzv; please report the lines above", err=True)
        sys.exit(int(ExitCode.INTERNAL))
    message = f"rdzv: {shown(error.message)}"
    click.echo(fold_lines(message, width_of(sys.stderr), len("rdzv: ")), err=True)
    if error.hint:  # not folded: a command that is copied from it has to stay whole
        click.echo(f"      {shown(error.hint)}", err=True)
    sys.exit(int(error.exit_code))


def shown(text: str) -> str:
    """The text without control characters: a part of it may be what a stranger has answered."""
    return "\n".join(printable(line, _MOST_CHARACTERS) for line in text.split("\n"))


def say(words: str) -> None:
    """Write a line of rdzv's own to stderr."""
    click.echo(f"rdzv: {shown(words)}", err=True)


@contextlib.contextmanager
def _in_our_form() -> Iterator[None]:
    """Format click's errors like rdzv's own, and exit silently on Ctrl-C.

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
            exc.show()
            sys.exit(int(ExitCode.USAGE))
        plain = isinstance(exc, (click.NoSuchOption, NotANumber))
        message = exc.message if plain else exc.format_message()
        raise UsageError(message.rstrip("."), hint=_hint(exc)) from exc


def _hint(error: click.UsageError) -> str:
    """What was probably meant, else where to look."""
    close = error.close if isinstance(error, Unknown) else ""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        options = [one for one in error.ctx.command.get_params(error.ctx) if not _is_hidden(one)]
        flags = [flag for one in options for flag in (*one.opts, *one.secondary_opts)]
        close = did_you_mean(error.option_name, [flag for flag in flags if flag.startswith("--")])
    return close or f"see {error.ctx.command_path if error.ctx else 'rdzv'} --help"


def _is_hidden(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and parameter.hidden


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
        why = exc.strerror if isinstance(exc, OSError) else exc
        raise UsageError(f"{name}_FILE names {path}, which cannot be read: {why}") from exc
    if (fd := descriptor_of(path)) is not None:
        os.close(fd)
    if not text.strip():
        raise UsageError(f"{name}_FILE names {path}, which is empty")
    return text


def absolute_secret_files() -> None:
    """Have the files of secrets found from another working folder as well."""
    for name in SECRETS:
        if path := os.environ.get(f"{name}_FILE"):
            os.environ[f"{name}_FILE"] = os.path.abspath(path)


def need_launcher_packages() -> None:
    """Looked for and not imported: most of them are the registry's, a process of its own."""
    for name in missing_launcher_packages():
        from launcher.show.installation import how_to_install

        raise UsageError(
            f"this command needs the package '{name}', which is not installed",
            hint=f"install the launcher's packages: {how_to_install('launcher')}",
        )


def missing_launcher_packages() -> list[str]:
    """Those that are not installed here."""
    return [name for name in LAUNCHER_PACKAGES if importlib.util.find_spec(name) is None]


class _OneLine(logging.Formatter):
    """Whatever a peer has said: it stays on one line and does not move a terminal's cursor."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """See the base class."""
        return printable(super().formatMessage(record), _MOST_CHARACTERS)


if TYPE_CHECKING:
    _StreamHandler = logging.StreamHandler[TextIO]
else:
    _StreamHandler = logging.StreamHandler


class _Shown(_StreamHandler):
    """Shows what is logged, but does not wait for whoever reads it: a node whose agent did so would
    be lost for a terminal that stands still. The agent's log has the lines that are missing here.
    """

    _missing = 0

    def emit(self, record: logging.LogRecord) -> None:
        """See the base class."""
        if not _takes_more(self.stream, 0.0 if self._missing else _PATIENCE_SECONDS):
            self._missing += 1
            return
        if self._missing:
            words = f"{self._missing} messages are not shown: this output was not read meanwhile"
            self._missing = 0
            super().emit(logging.LogRecord(__name__, logging.WARNING, "", 0, words, (), None))
        super().emit(record)


def _takes_more(stream: TextIO, seconds: float) -> bool:
    """Whether a line can be written within this time without waiting."""
    poll = select.poll()
    try:
        poll.register(stream.fileno(), select.POLLOUT)
    except (OSError, ValueError):  # it is no file of this process
        return True
    return bool(poll.poll(seconds * 1000))


def log_to_stderr(level: str, name: str = "rdzv") -> None:
    """Show what is logged from this level on."""
    logging.raiseExceptions = False  # a log on a full disk loses lines, and is no traceback
    handler = _Shown()
    handler.setLevel(level.upper())
    handler.setFormatter(_OneLine(f"{name}: %(message)s"))
    root = logging.getLogger()
    root.setLevel("DEBUG" if level == "debug" else "INFO")
    root.addHandler(handler)
    for noisy in ("httpx", "httpcore", "asyncio"):
        logging.getLogger(noisy).setLevel("WARNING")


def log_to_file(folder: Path | None, join: JoinString) -> logging.Handler | None:
    """Keep what the agent says, whatever of it is shown; without a folder, or a disk, not.

    Behind what other agents have left in the file a line says whose the rest is.
    """
    if folder is None:
        return None
    from worker.program.output import make_private

    path = folder / f"agent-{join.slot}.log"
    try:
        make_private(folder)
        path.touch(mode=0o600)
        handler = logging.FileHandler(path)
        goes_on = path.stat().st_size > 0
    except OSError:
        return None
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
    if goes_on:
        words = f"--- run '{join.run}', launch {join.launch_id}, generation {join.generation}"
        handler.emit(logging.LogRecord(__name__, logging.INFO, "", 0, words, (), None))
    logging.getLogger().addHandler(handler)
    return handler


def exit_with(work: Coroutine[Any, Any, int]) -> NoReturn:
    """Run to the end and exit with its code, whoever presses Ctrl-C once that is known."""
    code: int | None = None
    if (context := click.get_current_context(silent=True)) is not None:
        context.meta[AT_WORK] = True
    begin_work()

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
