"""The last thing that a launch says: result, first cause, what to do, and where the rest is."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from launcher.show.epochs import after_starts, epoch_words
from launcher.state.state_dir import StateDir
from rendezvous.wire.errors import Cause
from rendezvous.wire.run import EpochEnd, Result
from rendezvous.wire.words import node_name

_SAYS = re.compile(r"\w")
"""mpirun ends what it says with a line of dashes."""
_OF_RANK = re.compile(r"\[rank\d+\]: ")
_MOST_EPOCHS = 3
_MOST_MESSAGE = 300


def last_line(run: str, result: Result, state: StateDir) -> str:
    """The result, the first cause, what to do, whose the exit code is, and where the rest is; the
    tail stands above."""
    lines = []
    after = after_starts(result.epochs, result.replacements)
    joint = ", but" if result.warning else ":"
    text = f"run '{run}' {result.status}{after and f' {after}'}{joint} {result.message}"
    if result.status == "cancelled":
        text = result.message
    if result.status == "failed" and result.tail:
        lines += [f"last output of {_where(result)}:", *(f"  | {line}" for line in result.tail)]
        said = (line for line in reversed(result.tail) if _SAYS.search(line))
        last = next(said, result.tail[-1])
        if last.strip() not in result.message and not _is_quoted(last, result):
            text += f"; its last output: {last.strip()!r}"
    if result.hint:
        text += f"; {result.hint}"
    text += "".join(f"; {words}" for words in _epochs(run, result.epochs))
    record = state.record()
    if result.code == Cause.JOIN_TIMEOUT and record is not None and not result.evidence:
        place = record.registry_place()
        text += f" ({place.where()})"
    if result.status != "ok":
        whose = "the program's" if result.exit_code_of == "program" else "rdzv's"
        text += f"; exit code {result.exit_code} ({whose})"
    log = result.log or (str(state.logs) if result.status == "failed" else "")
    if log and result.status != "ok":
        local = os.path.exists(log)
        text += f"; log: {log if local or not result.hostname else f'{result.hostname}:{log}'}"
    if result.status == "failed" and not (result.log and os.path.exists(result.log)):
        words = state.last_words
        text += f"; last output kept in {words.path}" if words.epochs() else ""
    return "\n".join(f"rdzv: {line}" for line in [*lines, text])


def _epochs(run: str, ends: Sequence[EpochEnd]) -> list[str]:
    """The newest epochs in a few words each, and where the others are."""
    shown = [epoch_words(end, _MOST_MESSAGE) for end in ends[-_MOST_EPOCHS:]]
    more = len(ends) - len(shown)
    return [*shown, f"and {more} more: rdzv status {run} --epochs"] if more else shown


def _is_quoted(line: str, result: Result) -> bool:
    """Whether the cause was told from this line, which the message then has."""
    words = _OF_RANK.sub("", line.strip())
    return any(words in shown for shown in result.evidence)


def _where(result: Result) -> str:
    return node_name(result.node, result.hostname) if result.node is not None else "the node"
