"""The epochs of a run before its last one: how each has ended, in words."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from launcher.state.find_run import find_run, registry_of
from launcher.state.state_dir import StateDir
from launcher.terminal import fold_lines, width_of
from rendezvous.wire.run import EpochEnd, RunStatus
from rendezvous.wire.words import printable, time_text

_MOST_MESSAGE = 600
_MOST_ENDED = 32
"""So many the registry keeps."""
_WORDS_AT = 2


def epoch_words(end: EpochEnd, most: int = _MOST_MESSAGE) -> str:
    """How an epoch ended: `epoch 1 ended after 3 h: node 2 (n17, slot 2) failed: ...`."""
    time = time_text(end.ran_seconds)
    after = f"after {time}" if time else "within 10 s"
    return f"epoch {end.epoch} ended {after}: {printable(end.message, most)}"


def restarts_text(count: int) -> str:
    """`1 restart`, `2 restarts`."""
    return f"{count} restart{'s' * (count != 1)}"


def used_text(used: int, most: int) -> str:
    """How many restarts are used up; empty where none was asked for."""
    return f"{used} of {restarts_text(most)} used" if most else ""


def after_restarts(ends: Sequence[EpochEnd]) -> str:
    """`after 2 restarts`, those by hand included; empty where there was none."""
    if not ends:
        return ""
    at_least = "at least " if len(ends) >= _MOST_ENDED else ""
    return f"after {at_least}{restarts_text(len(ends))}"


async def show_epochs(root: Path, run: str, *, as_json: bool) -> int:
    """Print how each epoch of a run has ended, and how it stands. Raises RdzvError."""
    state = find_run(root, run)
    ends, now, used, most = await _known(state)
    if as_json:
        epochs = [end.model_dump(mode="json") for end in ends]
        found = {"run": run, "restarts": used, "max_restarts": most, "epochs": epochs}
        click.echo(json.dumps(found, indent=1))
        return 0
    lines = [f"{epoch_words(end)}; {end.then}" if end.then else epoch_words(end) for end in ends]
    for line in [*filter(None, [used_text(used, most)]), *lines, now]:
        click.echo(fold_lines(line, width_of(sys.stdout), _WORDS_AT))
    return 0


async def _known(state: StateDir) -> tuple[list[EpochEnd], str, int, int]:
    """The epochs that have ended, what comes after them, and the restarts: used up and at most.

    Of a run that has ended they are in its files.
    """
    result = state.result()
    kept = state.read("status.json", RunStatus)
    if result is not None and not state.is_held():
        used, most = (kept.restarts, kept.max_restarts) if kept is not None else (0, 0)
        if result.restarts is not None:  # what is kept is of the last go: a pause is counted before
            used = result.restarts
        return result.epochs, f"{result.status}: {result.message}", used, most
    async with registry_of(state) as client:
        status = await client.status(state.run)
    now = f"epoch {status.epoch} is {status.phase}: {status.reason}"
    return status.ended, now, status.restarts, status.max_restarts
