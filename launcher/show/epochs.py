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
from rendezvous.wire.words import duration_text, printable

_MOST_MESSAGE = 600
_MOST_ENDED = 32
"""So many the registry keeps."""
_WORDS_AT = 2
_MOMENT_SECONDS = 10
_USED = ("restarts", "max_restarts", "replacements", "resubmitted", "max_replacements")


def epoch_words(end: EpochEnd, most: int = _MOST_MESSAGE) -> str:
    """How an epoch ended: `epoch 1 ended after 3 h: node 2 (n17) failed: ...`."""
    time = duration_text(end.ran_seconds) if end.ran_seconds >= _MOMENT_SECONDS else ""
    after = f"after {time}" if time else f"within {_MOMENT_SECONDS} s"
    return f"epoch {end.epoch} ended {after}: {printable(end.message, most)}"


def counted(count: int, noun: str) -> str:
    """`1 restart`, `2 restarts`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def used_text(status: RunStatus | None) -> str:
    """How many restarts and replacements are used up; empty where none was asked for. A standby
    that has stepped in is a node that was replaced, and uses up nothing."""
    if status is None:
        return ""
    used = [(status.restarts, status.max_restarts, "restart")]
    used += [(status.resubmitted, status.max_replacements, "replacement")]
    words = [f"{count} of {counted(most, noun)} used" for count, most, noun in used if most]
    if status.replacements:
        words.append(f"{counted(status.replacements, 'node')} replaced")
    return ", ".join(words)


def after_starts(ends: Sequence[EpochEnd], replacements: int | None = None) -> str:
    """`after 1 restart and 2 replacements`: how often the programs were started again, by hand or
    not, and which nodes the run has lost; empty where it was not.

    Args:
        ends: The epochs that have ended.
        replacements: How many of the lost nodes were replaced.
    """
    if not ends:
        return ""
    replaced, lost = replacements or 0, sum(len(end.replaced) for end in ends)
    restarts = sum(not end.replaced for end in ends)
    counts = (restarts, "restart"), (replaced, "replacement"), (lost - replaced, "lost node")
    *words, last = [counted(count, noun) for count, noun in counts if count > 0]
    at_least = "at least " if len(ends) >= _MOST_ENDED else ""
    return f"after {at_least}{' and '.join(filter(None, [', '.join(words), last]))}"


async def show_epochs(root: Path, run: str, *, as_json: bool) -> int:
    """Print how each epoch of a run has ended, and how it stands. Raises RdzvError."""
    state = find_run(root, run)
    ends, now, status = await _known(state)
    if as_json:
        epochs = [end.model_dump(mode="json") for end in ends]
        used = {name: getattr(status, name, 0) for name in _USED}
        click.echo(json.dumps({"run": run} | used | {"epochs": epochs}, indent=1))
        return 0
    lines = [f"{epoch_words(end)}; {end.then}" if end.then else epoch_words(end) for end in ends]
    for line in [*filter(None, [used_text(status)]), *lines, now]:
        click.echo(fold_lines(line, width_of(sys.stdout), _WORDS_AT))
    return 0


async def _known(state: StateDir) -> tuple[list[EpochEnd], str, RunStatus | None]:
    """The epochs that have ended, what comes after them, and how the run stands, or stood at its
    end as far as its files tell.
    """
    result = state.result()
    kept = state.read("status.json", RunStatus)
    if result is not None and not state.is_held():
        if kept is not None:  # it is of the last go: a pause is counted before
            told = {name: getattr(result, name) for name in ("restarts", "replacements")}
            kept = kept.model_copy(
                update={n: count for n, count in told.items() if count is not None}
            )
        return result.epochs, f"{result.status}: {result.message}", kept
    async with registry_of(state) as client:
        status = await client.status(state.run)
    is_said = status.reason.startswith(f"{status.phase} ")  # `running on 4 nodes`
    how = status.reason if is_said else f"{status.phase}: {status.reason}"
    return status.ended, f"epoch {status.epoch} is {how}", status
