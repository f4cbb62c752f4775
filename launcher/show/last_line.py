"""The last thing that a launch says: result, first cause, what to do, and where the rest is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from textwrap import wrap

from launcher.show.epochs import after_starts, epoch_words
from launcher.show.run_list import duration
from launcher.state.state_dir import StateDir
from rendezvous.wire.errors import Cause
from rendezvous.wire.run import EpochEnd, Result
from rendezvous.wire.words import hint_for, node_name, printable
from worker.program.log_file import read_log_name
from worker.program.rank_logs import rank_log_name

_SAYS = re.compile(r"\w")
"""mpirun ends what it says with a line of dashes."""
_MOST_EPOCHS = 3
_MOST_MESSAGE = 300
_MOST_OF_EPOCH = 120
_MOST_ROWS = 6
_WORDS_AT = len("rdzv: ")
_LOCAL = "local"
_ENDED = "ended with exit code 0"


def last_line(
    run: str, result: Result, state: StateDir, *, whole: bool = False, width: int | None = None
) -> str:
    """The result, the first cause, what to do, whose the exit code is, and where the rest is; the
    tail, and where the other nodes' output is, stand above.

    Args:
        run: The run.
        result: How it ended.
        state: Its folder.
        whole: Show all of a long cause; else its beginning, and where the rest is.
        width: Of a terminal: each of them has lines of its own, and all together, where they are
            not to be whole, at most six; None: a log, which is searched for one line.
    """
    lines = []
    apart = width is not None
    short = apart and not whole
    message, rest = result.message, []
    if not (apart or whole) and len(message) > _MOST_MESSAGE:
        message, rest = _cut(message, _MOST_MESSAGE), [f"the whole cause: rdzv status {run}"]
    after = after_starts(result.epochs, result.replacements)
    joint = ", but" if result.warning else ":"
    record = state.record()
    bench = "bench " if record is not None and record.is_bench else ""
    text = f"{bench}run '{run}' {result.status}{after and f' {after}'}{joint} {message}"
    if result.status == "cancelled":
        text = f"{message} (exit code {result.exit_code})"
    if found := result.finding:
        text += f"; {found.words}"
        rest += [f"more: rdzv status {run}"] * bool(found.stacks and not whole)
    text = _with_time(text, _took(result, state))
    if result.status == "failed" and result.tail:
        of = f"last output of {_where(result)}:"
        lines += [of, *(f"  | {line}" for line in result.tail)] * (not short)
        said = (line for line in reversed(result.tail) if _SAYS.search(line))
        last = next(said, result.tail[-1]).strip()
        if last not in result.message and " said" not in f"{result.message}{result.evidence}":
            text += f"; {of} {printable(last, _MOST_MESSAGE)!r}"
    told = [text]
    if result.hint:
        told.append(f"{'next: ' * apart}{hint_of(run, result.hint, result.rank)}")
    if not short:
        told += found.stacks if found and whole else []
        told += _epochs(run, result.epochs, _MOST_MESSAGE if whole else _MOST_OF_EPOCH)
    if result.code == Cause.JOIN_TIMEOUT and record is not None and not result.evidence:
        told[-1] += f" ({record.registry_place().where()})"
    ran = result.status == "ok" or (result.status == "failed" and result.exit_code_of == "program")
    if ran and record is not None and record.scheduler != _LOCAL and record.nodes != "1":
        lines.append(f"the output of the other nodes: rdzv logs {run}")
    places = [*_places(result, state), *rest]
    if width is not None and short:
        shown = _fitted(told, [*places, *lines], result.certain, run, max(width, 24))
        return "\n".join(shown)
    if places:
        told.append("; ".join(places))
    lines += [told[0], *(f"  {words}" for words in told[1:])] if apart else ["; ".join(told)]
    return "\n".join(f"rdzv: {line}" for line in lines)


def _fitted(
    told: Sequence[str], places: Sequence[str], is_certain: bool, run: str, width: int
) -> list[str]:
    """At most six rows of a terminal. Where all has more, the last one is the first of the places
    and where the rest is; the step keeps two rows, or one where it would not be seen that the
    cause is not certain. No path is broken: what is copied has to be whole."""
    fold = partial(wrap, width=width, subsequent_indent=" " * _WORDS_AT, break_on_hyphens=False)

    def rows(lines: Sequence[str], most: int = 99) -> list[str]:
        found = [row for line in lines for row in fold(f"rdzv: {line}")]
        if len(found) > most:
            found[most - 1] = _cut(f"{found[most - 1]} {found[most].strip()}", width)
        return found[:most]

    step, place = [f"  {line}" for line in told[1:]], [f"  {'; '.join(places)}"] * bool(places)
    is_cut = any(len(word) > width - _WORDS_AT for one in place for word in one.split())
    if is_cut or len(rows([*told[:1], *step, *place])) > _MOST_ROWS:
        first = [one.removesuffix(" (the program's)") for one in places[:1]]
        place = [f"  {'; '.join(dict.fromkeys([*first, f'more: rdzv status {run}']))}"]
    left = _MOST_ROWS - len(rows(place))
    cause = rows(told[:1], left - min(2, len(rows(step))))
    if not is_certain and " is not known" not in " ".join(map(str.strip, cause)):
        cause = rows(told[:1], left - 1)
    return [*cause, *rows(step, left - len(cause)), *rows(place)]


def _places(result: Result, state: StateDir) -> Iterator[str]:
    """Tell whose the exit code of a failure is, and where the output is."""
    failed = result.status == "failed"
    if failed:
        whose = "the program's" if result.exit_code_of == "program" else "rdzv's"
        yield f"exit code {result.exit_code} ({whose})"
    log = _log_of(result) or (str(state.logs) if failed else "")
    is_here = os.path.exists(log)
    if log and result.status != "ok":
        yield f"log: {log if is_here or not result.hostname else f'{result.hostname}:{log}'}"
    if failed and not (result.log and is_here) and (words := state.last_words).epochs():
        yield f"last output kept in {words.path}"


def _log_of(result: Result) -> str:
    """The log of the rank that failed first where it is here, else its node's."""
    path = Path(result.log)
    if result.rank is None or (found := read_log_name(path.name)) is None:
        return result.log
    own = path.with_name(rank_log_name(result.rank, found[1]))
    return str(own) if os.path.exists(own) else result.log


def hint_of(run: str, hint: str, rank: int | None = None) -> str:
    """The hint with the run that its commands are about, and the rank whose log is meant."""
    hint = hint_for(run, hint)
    if rank is None:
        return hint
    return re.sub(rf"rdzv logs {run}(?! --)", rf"\g<0> --rank {rank}", hint)


def _cut(text: str, most: int) -> str:
    """The beginning of it, to the end of a word."""
    kept = text[: most - 1]
    kept = kept[: kept.rfind(" ")] if " " in kept[most * 3 // 4 :] else kept
    return f"{kept.rstrip(',;: ')}…"


def _with_time(text: str, took: str) -> str:
    """The text with that time behind the end that it tells of, or behind all."""
    before, ended, others = text.rpartition(_ENDED)
    return f"{before}{ended}{took}{others}" if ended else text + took


def _took(result: Result, state: StateDir) -> str:
    """` after 7 s`: how long a launch took that ended well, as `rdzv status` has it."""
    kept = state.result() if result.status == "ok" else None
    seconds = kept.took_seconds(state.record()) if kept is not None else None
    return "" if seconds is None else f" after {duration(seconds)}"


def _epochs(run: str, ends: Sequence[EpochEnd], most: int) -> list[str]:
    """The newest epochs in a few words each, and where the others are."""
    shown = [epoch_words(end, most) for end in ends[-_MOST_EPOCHS:]]
    more = len(ends) - len(shown)
    return [*shown, f"and {more} more: rdzv status {run} --epochs"] if more else shown


def _where(result: Result) -> str:
    return node_name(result.node, result.hostname) if result.node is not None else "the node"
