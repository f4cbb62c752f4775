"""Views of a run that `rdzv status RUN` shows in place of its usual one, each by its flag."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import click

from rendezvous.feature import View
from rendezvous.wire.errors import UsageError

_NEEDS = {"--env": "--env NODE"}


def check_parts(asked: Mapping[str, Any], run: str | None, *, as_json: bool) -> None:
    """Refuse views of no run, and several as one JSON document. Raises UsageError."""
    flags = [_NEEDS.get(flag, flag) for flag in asked]
    if flags and run is None:
        needs = "needs" if len(flags) == 1 else "need"
        names = " and ".join(asked)
        raise UsageError(f"{names} {needs} a RUN", hint=f"rdzv status RUN {' '.join(flags)}")
    if len(flags) > 1 and as_json:
        raise UsageError(
            f"--json prints one JSON document, and {' and '.join(asked)} ask for {len(flags)}",
            hint=f"ask for one at a time: rdzv status {run} {flags[0]} --json",
        )


def refuse_parts(asked: Mapping[str, Any]) -> None:
    """Refuse views of a run that was launched on another machine. Raises UsageError."""
    if asked:
        raise UsageError(
            f"the files that {' and '.join(asked)} shows are on the machine that launched the run",
            hint="use it there",
        )


async def show_parts(root: Path, run: str, asked: Mapping[str, Any], *, as_json: bool) -> int:
    """Print each view that was asked for, in the order of the help. Raises RdzvError.

    Args:
        root: The folder of all runs.
        run: The run.
        asked: The flags, each with its value; of a feature, its view.
        as_json: Whether to print JSON.
    """
    code = 0
    for number, (flag, value) in enumerate(asked.items()):
        if number:
            click.echo()
        code = max(code, await _shown(root, run, flag, value, as_json=as_json))
    return code


def _shown(
    root: Path, run: str, flag: str, value: Any, *, as_json: bool
) -> Coroutine[Any, Any, int]:
    match flag:
        case "--env":
            from launcher.show.variables import show_environment

            return show_environment(root, run, value, as_json=as_json)
        case "--checks":
            from launcher.show.checks import show_checks

            return show_checks(root, run, as_json=as_json)
        case "--matrix":
            from launcher.show.checks import show_matrix

            path = None if value == "-" else Path(value)
            return show_matrix(root, run, path, as_json=as_json)
        case "--epochs":
            from launcher.show.epochs import show_epochs

            return show_epochs(root, run, as_json=as_json)
        case _:
            assert isinstance(value, View)
            shown: Coroutine[Any, Any, int] = value.show.load()(root, run, as_json=as_json)
            return shown
