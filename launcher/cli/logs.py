"""The command that shows what the programs of a run print."""

from __future__ import annotations

import os
import re
import time
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from launcher.cli.at_registry import URL, at_registry
from launcher.cli.completion import run_ids
from launcher.cli.process import exit_with, need_launcher_packages
from launcher.cli.runs import STATE_DIR, folder_and_run, root_folder
from launcher.options import WholeNumberFrom
from rendezvous.wire.errors import UsageError

_MOST_TEXTS, _MOST_LETTERS = 8, 100
_AGO = re.compile(r"(?:\d{1,6}[smhd])+")
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


class _Text(click.ParamType[str]):
    """What a line must have in it: as long as the registry takes it."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """See the base class."""
        if not value or len(value) > _MOST_LETTERS or not value.isprintable():
            self.fail(f"it takes 1 to {_MOST_LETTERS} printable characters", param, ctx)
        return str(value)


def moment(text: str, now: float) -> float | None:
    """The time that is meant, as `time.time()`; None where it is none.

    A date and time without a zone is of the zone of this machine.

    Args:
        text: 10m, 1h30m, or as ISO 8601 has it.
        now: As `time.time()`.
    """
    if _AGO.fullmatch(text):
        return now - sum(int(n) * _UNIT_SECONDS[unit] for n, unit in re.findall(r"(\d+)(\w)", text))
    try:
        zoned = f"{text[:-1]}+00:00" if text[-1:] in ("Z", "z") else text  # for Python 3.10
        return datetime.fromisoformat(zoned).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


class _Since(click.ParamType[float]):
    """The value of --since: a moment in the past, as `time.time()` has it."""

    name = "since"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """See the base class."""
        now = time.time()  # noqa: TID251 (that of a log's index)
        at = moment(str(value).strip(), now)
        if at is None:
            self.fail(
                f"it takes how long ago (90s, 10m, 2h, 1d or 1h30m) or a date and time "
                f"(2026-11-25T14:30, 2026-11-25T14:30:00+01:00); {str(value)!r} is neither",
                param,
                ctx,
            )
        if at > now:
            self.fail(f"{str(value)!r} is in the future", param, ctx)
        return at


def _newest(root: Path) -> str:
    """Return the newest run of this machine, and say which it is. Raises UsageError."""
    from launcher.state.state_dir import known_runs

    if not (known := known_runs(root)):
        raise UsageError(f"no run was launched here (looked in {root})", hint="name a RUN")
    click.echo(f"rdzv: run '{known[0].run}'", err=True)
    return known[0].run


@click.command()
@click.argument("run", required=False, shell_complete=run_ids)
@STATE_DIR
@click.option(
    "--node",
    type=WholeNumberFrom(min=0),
    help="Only this node's log.",
)
@click.option(
    "--rank",
    type=WholeNumberFrom(min=0),
    help="Only the lines of this rank; if it has no separate log, those of its node.",
)
@click.option("--all", "everyone", is_flag=True, help="Each rank's lines, behind '[rank N]'.")
@click.option(
    "--grep",
    "texts",
    type=_Text(),
    multiple=True,
    metavar="TEXT",
    help="Only lines that contain TEXT, as it is written. Repeatable: one of them is enough.",
)
@click.option(
    "--level",
    type=click.Choice(["warning", "error"]),
    help="Only lines that look like a warning or an error, or only like an error.",
)
@click.option(
    "--epoch",
    type=WholeNumberFrom(min=1),
    metavar="N",
    help="Only what the programs printed in this start, from 1. When not set, the last one.",
)
@click.option(
    "--since",
    type=_Since(),
    metavar="TIME",
    help="Only what was printed in the last 90s, 10m, 2h or 1d, or from a date and time such as "
    "2026-11-25T14:30, accurate to 2 s.",
)
@click.option(
    "--lines",
    type=WholeNumberFrom(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="How many lines of each log to show. When not set, what launchers such as torchrun print "
    "at their end is left out; with --since, all lines are shown, at most 10000.",
)
@click.option("--follow", is_flag=True, help="Keep streaming new lines until the run ends.")
@click.option("--registry", is_flag=True, help="Also show what the registry and the agents log.")
@URL
def logs(
    run: str | None,
    state_dir: Path | None,
    url: str | None,
    texts: tuple[str, ...],
    level: Any,
    lines: int | None,
    follow: bool,
    **chosen: Any,
) -> None:
    """Show the last lines that the programs of a run printed, without RUN those of the newest.

    Reads the log files on this machine and those of the run's scheduler. What neither has, the
    nodes send while the run is in progress. If the run failed, the error that ended it comes last.
    Where a node and its log are gone, shows the last lines that it sent before it left. With
    RDZV_REGISTRY, also shows a run that was launched on another machine, while it is in progress.

    \b
    Examples:
      rdzv logs llama-7b --follow
      rdzv logs llama-7b --rank 37 --grep loss --lines 100
      rdzv logs llama-7b --all --level error
      rdzv logs llama-7b --since 10m
      rdzv logs llama-7b --epoch 1
    """
    need_launcher_packages()
    named = [chosen["node"] is not None, chosen["rank"] is not None, chosen["everyone"]]
    if sum(named) > 1:
        raise UsageError("--node, --rank and --all exclude each other", hint="give one of them")
    if len(texts) > _MOST_TEXTS:
        raise UsageError(
            f"--grep was given {len(texts)} times, and {_MOST_TEXTS} is the limit",
            hint="a line that contains one of the texts is shown",
        )
    source = click.get_current_context().get_parameter_source("lines")
    if source is click.core.ParameterSource.DEFAULT:
        lines = None
    from worker.program.wanted import Wanted

    run = run or _newest(root_folder(state_dir))
    chosen |= {"lines": lines, "follow": follow, "wanted": Wanted(texts, level)}
    if (registry := at_registry(partial(root_folder, state_dir, run), run, url)) is not None:
        from launcher.run.at_registry import read_logs

        exit_with(read_logs(registry, run, os.environ, **chosen))
    from launcher.show.logs import show_logs
    from launcher.state.find_run import find_run

    state = find_run(*folder_and_run(state_dir, run))
    exit_with(show_logs(state, os.environ, **chosen))
