"""Commands that take a COMMAND: what is rdzv's and what is COMMAND's, and hints to copy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from launcher.cli.given import GivenLine, Option, leading, misplaced, read_line
from launcher.cli.help import SettingsCommand, known_flags
from rendezvous.wire.errors import UsageError
from rendezvous.wire.words import listed, printable
from worker.contracts import check_command
from worker.contracts.advice import WrongCommand
from worker.contracts.choice import choose_framework

_INDENT = "\n      "
_KEY = f"{__name__}.given"
_TWO_NODES = Option("--nnodes", ("--nnodes", "2"))
_ALSO_OF_TORCHRUN = (
    *("--nnodes", "--nproc-per-node", "--node-rank", "--rdzv-id", "--rdzv-backend", "--role"),
    *("--master-addr", "--master-port", "--max-restarts", "--log-dir"),
)
"""Options of rdzv that a COMMAND may begin with: torchrun's own check judges them."""


class WithCommand(SettingsCommand):
    """A command whose options come before COMMAND.

    Behind a COMMAND without `--` in front, an option of rdzv is refused: it would be COMMAND's,
    and what it should have prevented (`--dry-run`) would happen.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See the base class."""
        typed = list(args)
        rest = super().parse_args(ctx, args)
        command = ctx.params.get("command") or ()
        needed = _needed(ctx)
        of_file = ctx.get_parameter_source("command") is click.core.ParameterSource.DEFAULT_MAP
        behind = () if of_file else command
        given = read_line(ctx.command_path, typed, behind, known_flags(ctx), needed)
        ctx.meta[_KEY] = replace(given, command=command, separated=True) if of_file else given
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        """See the base class."""
        given: GivenLine = ctx.meta[_KEY]
        known = known_flags(ctx)
        try:
            _refuse_misplaced(given, *misplaced(given, known), _framework(ctx))
            _refuse_leading(given, *leading(given, known), _framework(ctx))
            return super().invoke(ctx)
        except WrongCommand as exc:
            lines = exc.hint_lines(lambda line: given.write(line, known))
            raise UsageError(exc.message, hint=_INDENT.join(lines)) from exc


def _framework(ctx: click.Context) -> str | None:
    """The framework that was named, in any way."""
    return str(ctx.params["framework"]) if _is_given(ctx, "framework") else None


def _is_given(ctx: click.Context, name: str) -> bool:
    """Return whether an option is given, in any way."""
    default = click.core.ParameterSource.DEFAULT
    return ctx.get_parameter_source(name) not in (None, default)


def _needed(ctx: click.Context) -> tuple[Option, ...]:
    """Return the number of nodes, for lines of a launch that nobody has told it."""
    is_told = any(_is_given(ctx, name) for name in ("nnodes", "hostlist", "hostfile"))
    if is_told or ctx.info_name == "worker" or os.environ.get("RDZV_TOKEN"):
        return ()
    return (_TWO_NODES,)


def _refuse_misplaced(
    given: GivenLine, found: Sequence[Option], command: Sequence[str], framework: str | None
) -> None:
    """Refuse options behind COMMAND, with the lines that may have been meant; raises UsageError."""
    if not found:
        return
    first = printable(given.command[0], 80)
    words = listed(dict.fromkeys(printable(option.words[0], 80) for option in found))
    own, theirs = given.line(command, found), given.line(given.command)
    lines = [f"for rdzv: {own}"] if _works(command, framework) else []
    if _works(given.command, framework) or not lines:
        lines.append(f"for {first}: {theirs}")
    one = len(found) == 1
    raise UsageError(
        f"{words} {'is' if one else 'are'} behind COMMAND ('{first}') and would go to it, but "
        f"{'it is an option' if one else 'they are options'} of '{given.path}' too",
        hint=_INDENT.join(lines),
    )


def _refuse_leading(
    given: GivenLine, found: Sequence[Option], command: Sequence[str], framework: str | None
) -> None:
    """Refuse options that `--` makes torchrun's, which has none like them; raises UsageError."""
    own = [option for option in found if option.name not in _ALSO_OF_TORCHRUN]
    if not own or framework not in (None, "torchrun"):
        return
    words = listed(dict.fromkeys(printable(option.words[0], 80) for option in own))
    variables = listed(
        dict.fromkeys("RDZV_" + one.name[2:].upper().replace("-", "_") for one in own)
    )
    one = len(own) == 1
    raise UsageError(
        f"{words} {'is' if one else 'are'} behind '--', where COMMAND begins, and would go to "
        f"torchrun, which has no such option; '{given.path}' has",
        hint=f"write it in front: {given.line(command, found)}{_INDENT}"
        f"or, where a script writes the '--' (symmetric.sbatch), set {variables}",
    )


def _works(command: Sequence[str], framework: str | None) -> bool:
    """Return whether this COMMAND is taken."""
    try:
        check_command(command, framework or choose_framework(command).framework)
    except UsageError:
        return False
    return True
