"""Reads what torch's flight recorders have of a rank. Pure.

Their JSON is private to torch, so what is not as expected is left out, and never fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic_core import from_json

from rendezvous.wire.words import printable
from worker.look.answer import Answer, group_name

_MOST_COUNT = (1 << 62) - 1
_MOST_LETTERS = 100


class Progress(NamedTuple):
    """How many collectives a process group has called, and how many have ended; -1: unknown."""

    called: int = -1
    ended: int = -1


class Recorder(NamedTuple):
    """One recorder: progress by the process's own number of a group, entries by its name."""

    progress: dict[str, Progress]
    entries: dict[str, list[dict[str, Any]]]


def recorder_in(data: bytes) -> Recorder | None:
    """The recorder that these bytes are; None where they are none."""
    try:
        found = from_json(data)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    progress = {
        number[:20]: Progress(
            count_in(status.get("last_enqueued_collective")),
            count_in(status.get("last_completed_collective")),
        )
        for number, status in mapping_in(found.get("pg_status")).items()
        if isinstance(status, dict)
    }
    entries: dict[str, list[dict[str, Any]]] = {}
    for entry in list_in(found.get("entries")):
        name = list_in(mapping_in(entry).get("process_group"))[:1]
        if name and isinstance(name[0], str):
            entries.setdefault(group_name(name[0]), []).append(entry)
    return Recorder(progress, entries)


def recorders_in(answer: Answer) -> list[Recorder | None]:
    """The general recorder, and NCCL's."""
    return [recorder_in(data) if data else None for data in answer.recorders]


def progress_in(recorders: Sequence[Recorder | None]) -> dict[tuple[int, str], Progress]:
    """How far the process groups of a rank are."""
    return {
        (index, number): progress
        for index, recorder in enumerate(recorders)
        if recorder is not None
        for number, progress in recorder.progress.items()
    }


def call_number(entry: Mapping[str, Any]) -> int:
    """Of an entry, among those of its kind in its group; -1: not known."""
    return count_in(entry.get("p2p_seq_id" if entry.get("is_p2p") else "collective_seq_id"))


def created_ns(entry: Mapping[str, Any]) -> int:
    """When it was called, in nanoseconds since 1970; -1: not known."""
    return count_in(entry.get("time_created_ns"))


def text_in(value: Any) -> str:
    """A text, printable; empty where it is none."""
    return printable(value, _MOST_LETTERS) if isinstance(value, str) else ""


def number_in(value: Any) -> str:
    """A number, which may be written as text; empty where it is none."""
    return str(value)[:20] if isinstance(value, (int, str)) else ""


def count_in(value: Any) -> int:
    """A count, which may be written as text; -1 where it is none."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 19:
        value = int(value)
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_COUNT
    return value if fits else -1


def mapping_in(value: Any) -> dict[str, Any]:
    """A mapping; empty where it is none."""
    return value if isinstance(value, dict) else {}


def list_in(value: Any) -> list[Any]:
    """A list; empty where it is none."""
    return value if isinstance(value, list) else []
