"""Process groups of a rank, by its flight recorders: what was called, and what has ended. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from features.hang.ranks.recorder import (
    Progress,
    Recorder,
    call_number,
    created_ns,
    list_in,
    number_in,
    text_in,
)
from features.hang.wire import MAX_CALLS, Call, ProcessGroup
from rendezvous.wire.words import printable
from worker.look.answer import Answer

USUAL_CALLS = 50
"""So many calls before the newest say how long a pause is usual."""

GLOO = "/gloo"
"""Ends a group's name in the general recorder, where NCCL has one of its own: a process group may
use both, and each counts for itself."""

_MOST_AGE = 1e9
_MOST_LETTERS = 100
_MOST_DIMENSIONS = 16
_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}

Moves = Mapping[tuple[int, str], Progress]
"""By recorder, and the process's own number of a group."""


def moved(before: Moves, after: Moves) -> int:
    """Collectives that were called, or that ended, from one answer to the other."""

    def more(was: int, now: int) -> int:
        return max(0, now) - max(0, was)

    found = 0
    for key, now in after.items():
        was = before.get(key, Progress())
        found += max(0, more(was.called, now.called), more(was.ended, now.ended))
    return min(found, (1 << 31) - 1)


def groups_in(answer: Answer, recorders: Sequence[Recorder | None]) -> list[ProcessGroup]:
    """A rank's process groups as its recorders have them, those with the newest calls first.

    Those that it has not called yet are among them: another rank may wait in one.
    """
    found: list[ProcessGroup] = []
    for recorder, of_gloo in zip(recorders, (bool(answer.recorders[1]), False), strict=True):
        if recorder is not None:
            found += _groups(recorder, answer, GLOO if of_gloo else "")
    return sorted(found, key=lambda group: group.calls[-1].age if group.calls else _MOST_AGE)


def _groups(recorder: Recorder, answer: Answer, suffix: str) -> Iterator[ProcessGroup]:
    ids = {name: number_in(entries[-1].get("pg_id")) for name, entries in recorder.entries.items()}
    for name, entries in recorder.entries.items():
        progress = recorder.progress.get(ids[name], Progress())
        newest = entries[-USUAL_CALLS - 1 :]
        calls = [call for entry in newest if (call := _call(entry, answer.now))]
        called, ended = _counted(entries, answer.now, progress)
        group = list_in(entries[-1].get("process_group"))
        yield ProcessGroup(
            name=name + suffix,
            words=text_in(group[1] if len(group) > 1 else ""),
            members=answer.groups.get(name, ""),
            called=called,
            ended=ended,
            calls=calls[-MAX_CALLS:],
            usual=_longest_pause([call.age for call in calls]),
        )
    # What was called long ago may be known by its number alone, and that names no group.
    unnamed = {n for n, progress in recorder.progress.items() if progress.called > 0}
    unnamed -= set(ids.values())
    silent = [name for name in answer.groups if name not in recorder.entries]
    for name in silent:
        known = Progress(0, 0)
        if unnamed:
            known = Progress(-1, -1)
            if len(unnamed) == len(silent) == 1:
                known = recorder.progress[next(iter(unnamed))]
        yield ProcessGroup(
            name=name + suffix,
            members=answer.groups[name],
            called=known.called,
            ended=known.ended,
        )


def _counted(entries: list[dict[str, Any]], now: int, progress: Progress) -> Progress:
    """How many collectives were called, and how many have ended, as the entries have it.

    gloo's own numbers count sends and receives as well, which differ from rank to rank, and what
    has ended is that of the thread which came last.
    """
    collectives = [entry for entry in entries if not entry.get("is_p2p")]
    calls = [call for entry in collectives[-USUAL_CALLS:] if (call := _call(entry, now))]
    if not calls:
        return progress
    called = max(call.number for call in calls)
    if any(call.done is None for call in calls):
        return Progress(called, min(called, progress.ended))
    waiting = [call.number for call in calls if not call.done]
    return Progress(called, min(waiting, default=called + 1) - 1)


def _longest_pause(ages: list[float]) -> float:
    """Between the calls, the newest of which is last."""
    return max((max(0.0, a - b) for a, b in pairwise(ages)), default=0.0)


def _call(entry: dict[str, Any], now: int) -> Call | None:
    number, created = call_number(entry), created_ns(entry)
    if number < 0 or created < 0:
        return None
    name = text_in(entry.get("profiling_name"))
    retired, state = entry.get("retired"), entry.get("state")
    done = True if state == "completed" else retired if isinstance(retired, bool) else None
    return Call(
        number=number,
        operation=name.partition(":")[2] or name,
        what=_what(entry),
        age=min(max(0.0, (now - created) / 1e9), _MOST_AGE),
        done=done,
    )


def _what(entry: dict[str, Any]) -> str:
    """`float32[1024]`: the first of what is sent."""
    sizes, dtypes = list_in(entry.get("input_sizes")), list_in(entry.get("input_dtypes"))
    if not sizes or not dtypes or not isinstance(sizes[0], list):
        return ""
    shape = ",".join(str(size) for size in sizes[0][:_MOST_DIMENSIONS] if isinstance(size, int))
    dtype = text_in(dtypes[0])
    return printable(f"{_DTYPES.get(dtype, dtype)}[{shape}]", _MOST_LETTERS)
