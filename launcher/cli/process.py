"""What all commands of `rdzv` share: how they fail, exit and log, and what they read."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import signal
import sys
import traceback
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import click

from launcher.cli.streams import STANDARD_OUTPUT
from rendezvous.door import begin_work
from rendezvous.secret_variables import descriptor_of
from rendezvous.wire.errors import ExitCode, RdzvError, UsageError
from rendezvous.wire.words import printable

_MOST_CHARACTERS = 4_000
LAUNCHER_PACKAGES = ("cryptography", "fastapi", "rich", "uvicorn", "uvloop", "yaml")


def exit_codes() -> str:
    """The exit codes, for the end of a help text."""
    lines = [f"  {code.value:>3}  {code.help}" for code in ExitCode]
    return "\b\nExit codes (else the program's own, 128 + n for signal n):\n" + "\n".join(lines)


class Group(click.Group):
    """Turns every error into its message, its hint and its exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """See the base class."""
        try:
            return super().main(*args, **kwargs)
        except RdzvError as exc:
            click.echo(f"rdzv: {shown(exc.message)}", err=True)
            if exc.hint:
                click.echo(f"      {shown(exc.hint)}", err=True)
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


def shown(text: str) -> str:
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
            exc.show()
            sys.exit(int(ExitCode.USAGE))
        hint = f"see {exc.ctx.command_path if exc.ctx else 'rdzv'} --help"
        raise UsageError(exc.format_message(), hint=hint) from exc


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
    if (fd := descriptor_of(path)) is not None:
        os.close(fd)
    if not text.strip():
        raise UsageError(f"{name}_FILE names {path}, which is empty")
    return text


def need_launcher_packages() -> None:
    """Looked for and not imported: most of them are the registry's, a process of its own."""
    for name in missing_launcher_packages():
        raise UsageError(
            f"this command needs the package '{name}', which is not installed",
            hint="install the launcher's packages: pip install 'rdzv[launcher]'",
        )


def missing_launcher_packages() -> list[str]:
    """Those that are not installed here."""
    return [name for name in LAUNCHER_PACKAGES if importlib.util.find_spec(name) is None]


class _OneLine(logging.Formatter):
    """Whatever a peer has said: it stays on one line and does not move a terminal's cursor."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """See the base class."""
        return printable(super().formatMessage(record), _MOST_CHARACTERS)


def log_to_stderr(level: str, name: str = "rdzv") -> None:
    """Show what is logged from this level on."""
    logging.raiseExceptions = False  # a log on a full disk loses lines, and is no traceback
    handler = logging.StreamHandler()
    handler.setLevel(level.upper())
    handler.setFormatter(_OneLine(f"{name}: %(message)s"))
    root = logging.getLogger()
    root.setLevel("DEBUG" if level == "debug" else "INFO")
    root.addHandler(handler)
    for noisy in ("httpx", "httpcore", "asyncio"):
        logging.getLogger(noisy).setLevel("WARNING")


def log_to_file(folder: Path | None, slot: int) -> logging.Handler | None:
    """Keep what the agent says, whatever of it is shown; without a folder, or a disk, not."""
    if folder is None:
        return None
    from worker.program.output import make_private

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


def exit_with(work: Coroutine[Any, Any, int]) -> None:
    """Run to the end and exit with its code, whoever presses Ctrl-C once that is known."""
    code: int | None = None
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
