"""The help of commands: options under headings in two lengths, commands in an order, examples."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import click

from launcher.cli.given import KnownFlag, spelled_out
from launcher.options import OrBare, SettingsOption
from rendezvous.feature import declared
from rendezvous.wire.errors import ExitCode
from worker.options import GROUPS

_COLUMN = 22

SECTIONS = {
    "Run a program": (
        "launch",
        "init",
        "status",
        "logs",
        "ui",
        "cancel",
        "restart",
        "drain",
        "prune",
    ),
    "Check machines": ("doctor", "bench", "schedulers"),
    "Look closer": ("replay", "report", "docs", "schema"),
    "Build on rdzv": (
        "serve",
        "worker",
        "token",
        "tenant",
        "rsh",
        "wait-for",
        "completion",
        "plugin-path",
    ),
}
"""The commands in the order of `rdzv --help`; `feature_commands` adds to them."""


TYPED = f"{__name__}.typed"
"""Key in the context of a command: the words behind it, as they were typed."""
EXIT_CODES = "exit codes"
"""The epilog of a command whose exit codes are those of a run."""


class WithExitCodes(click.Command):
    """A command that can list the exit codes at the end of its help."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See the base class."""
        if self.epilog != EXIT_CODES:
            super().format_epilog(ctx, formatter)
            return
        with formatter.section("Exit codes (else the program's own, 128 + n for signal n)"):
            formatter.write_dl([(f"{code.value:>3}", code_help(code)) for code in ExitCode])


def code_help(code: ExitCode) -> str:
    """What it means, in the words of the feature that gives it where there is one."""
    return next((one.codes[code] for one in declared() if code in one.codes), code.help)


def feature_commands() -> list[click.Command]:
    """The commands of the features; from now on each stands before the one that it names."""
    found: list[click.Command] = []
    for feature, before, lazy in ((f.name, *p) for f in declared() for p in f.commands.items()):
        try:
            command: click.Command = lazy.load()
            for heading, names in SECTIONS.items():
                if before in names:
                    at = names.index(before)
                    SECTIONS[heading] = (*names[:at], str(command.name), *names[at:])
            found.append(command)
        except Exception as exc:  # noqa: BLE001 (a feature's)
            click.echo(f"rdzv: feature '{feature}' cannot be loaded: {exc!r}", err=True)
    return found


def write_commands(group: click.Group, text: click.HelpFormatter) -> None:
    """List the commands in sections; those of no section come last."""
    rest = [name for name in group.commands if not any(name in s for s in SECTIONS.values())]
    for heading, names in {**SECTIONS, "Commands": rest}.items():
        shown = [group.commands[name] for name in names if name in group.commands]
        if rows := [(str(c.name), _summary(c)) for c in shown if not c.hidden]:
            with text.section(heading):
                text.write_dl(rows)


def _summary(command: click.Command) -> str:
    """The first paragraph of a command's help."""
    return " ".join((command.help or "").partition("\n\n")[0].split())


class SettingsCommand(WithExitCodes):
    """A command with the options of a model: --help shows the basic ones, --help-all all."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(
            click.Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_all,
                help="Show all options, and exit codes.",
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See the base class."""
        ctx.meta[TYPED] = list(args)
        return super().parse_args(ctx, spelled_out(args, known_flags(ctx)))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See the base class."""
        options = [one for one in self.params if isinstance(one, SettingsOption) and not one.hidden]
        if _is_long(ctx):
            shown = [_negative(one) if one.default is True else one for one in options]
        else:
            shown = [_brief(one) for one in options if one.basic]
        for heading in GROUPS:
            _write(heading, [one for one in shown if one.group == heading], ctx, formatter)
        with formatter.section("Help"):
            every = f"Show all {len(options)} options, and exit codes."
            rows = [("-h, --help", "Show the basic options."), ("--help-all", every)]
            _write_rows(rows, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See the base class."""
        if _is_long(ctx):
            super().format_epilog(ctx, formatter)


def known_flags(ctx: click.Context) -> dict[str, KnownFlag]:
    """The flags of a command, but for those that no person types."""
    options = [one for one in ctx.command.get_params(ctx) if isinstance(one, click.Option)]
    return {
        flag: KnownFlag(
            max(one.opts, key=len),
            has_value=not (one.is_flag or one.count),
            repeatable=one.multiple,
            values=one.type.values if isinstance(one.type, OrBare) else (),
        )
        for one in options
        if not one.hidden
        for flag in (*one.opts, *one.secondary_opts)
    }


def _is_long(context: click.Context) -> bool:
    return __name__ in context.meta


def _show_all(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        context.meta[__name__] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


def _brief(option: SettingsOption) -> SettingsOption:
    """The option without its environment variables; of a switch, what changes the default."""
    brief = _negative(option) if option.default is True else copy.copy(option)
    brief.show_envvar = False
    if brief.secondary_opts:
        brief.secondary_opts = []
        brief.show_default = False
    return brief


def _negative(option: SettingsOption) -> SettingsOption:
    """A switch that is on: the form that switches it off stands first, as its help speaks of it."""
    negative = copy.copy(option)
    negative.opts, negative.secondary_opts = option.secondary_opts, option.opts
    negative.show_default = False
    return negative


def _write(
    heading: str,
    options: Sequence[click.Option],
    context: click.Context,
    formatter: click.HelpFormatter,
) -> None:
    if rows := [row for one in options if (row := one.get_help_record(context))]:
        with formatter.section(heading):
            _write_rows(rows, formatter)


def _write_rows(rows: Sequence[tuple[str, str]], formatter: click.HelpFormatter) -> None:
    """Write the options of one section, in the columns of all."""
    formatter.write_dl([(flag.ljust(_COLUMN), what) for flag, what in rows], col_max=_COLUMN)
