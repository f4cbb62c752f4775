"""When the ranks of a node have called their collectives, by torch's general recorder. Pure.

Only of what runs where it is called, as with gloo: what NCCL's recorder has is put into a queue of
the device, and the time of that says nothing of who waits.
"""

from __future__ import annotations

import re
import string
import zlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from rendezvous.wire.pace import MAX_PACE_CALLS, MAX_PACE_GROUPS, Arrivals, Pace, Receives
from worker.look.parsing.answer import Answer
from worker.look.parsing.recorder import call_number, created_ns, recorders_in

_FOR_ALL = re.compile(r"gloo:_?(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier)")
"""Each rank waits in it for all others."""
_LETTERS = string.ascii_letters + string.digits
_MOST_RECEIVES = 512
BYTES_ALONE, BYTES_OF_SEVERAL = 12, 33
"""Of what one call is told with, for a lone rank of a group, and for several."""


class Called(NamedTuple):
    """One call: its number, its kind, and when it was made, in nanoseconds of this machine."""

    number: int
    kind: str
    at: int


class RankCalls(NamedTuple):
    """What one rank has called.

    Attributes:
        calls: By process group: its members as they are written, and what all wait in.
        receives: The groups in which it may have waited for a single rank; empty: a message.
    """

    calls: dict[tuple[str, str], list[Called]]
    receives: set[str]


class Clock(NamedTuple):
    """What makes a time of this machine one of the registry's, in seconds; and how wrong it is."""

    ahead: float
    error: float

    def of(self, nanoseconds: int) -> int:
        """The registry's microseconds."""
        return round(nanoseconds / 1000 + self.ahead * 1e6)


def calls_in(answer: Answer | None) -> RankCalls:
    """What a rank's answer has; nothing where it also uses what cannot be judged."""
    calls: dict[tuple[str, str], list[Called]] = {}
    receives = set[str]()
    general, nccl = recorders_in(answer) if answer else (None, None)
    if answer is None or general is None or (nccl is not None and nccl.progress):
        return RankCalls(calls, receives)
    for name, entries in general.entries.items():
        found = calls.setdefault((name, answer.groups.get(name, "")), [])
        for entry in entries:
            if (called := _called(entry)) is not None:
                found.append(called)
            else:
                receives.add("" if entry.get("is_p2p") else name)
    return RankCalls(calls, receives)


def _called(entry: Mapping[str, Any]) -> Called | None:
    """A call in which all wait for all; None where it is another."""
    operation = entry.get("profiling_name")
    number, at = call_number(entry), created_ns(entry)
    if entry.get("is_p2p") or not isinstance(operation, str) or number < 0 or at < 0:
        return None
    if not _FOR_ALL.match(operation):
        return None
    words = f"{operation} {entry.get('input_sizes')} {entry.get('input_dtypes')}"
    return Called(number, _LETTERS[zlib.crc32(words.encode()) % len(_LETTERS)], at)


def pace_of(ranks: Mapping[int, RankCalls], clock: Clock, before: float, most: int) -> Pace:
    """What a node tells.

    Args:
        ranks: What its ranks have called, by their global numbers.
        clock: From this machine's to the registry's.
        before: In the registry's seconds: later calls are left out, which other nodes may not have
            told of.
        most: About how many bytes of JSON, over all groups.
    """
    groups: dict[tuple[str, str], dict[int, list[Called]]] = {}
    for rank, told in sorted(ranks.items()):
        for key, calls in told.calls.items():
            if calls:
                groups.setdefault(key, {})[rank] = calls
    receives = [
        Receives(rank=rank, group=group)
        for rank, told in sorted(ranks.items())
        for group in sorted(told.receives)
    ]
    last = round((before - clock.ahead) * 1e9)
    each = min(MAX_PACE_CALLS, most // max(1, sum(map(_bytes, groups.values()))))
    chosen = list(groups.items())[:MAX_PACE_GROUPS]
    found = (_arrivals(*key, calls, clock, last, each) for key, calls in chosen)
    return Pace(
        clock_error=clock.error,
        arrivals=[one for one in found if one is not None],
        receives=receives[:_MOST_RECEIVES],
    )


def _bytes(calls: Mapping[int, object]) -> int:
    """Of a call, with times of some ten seconds."""
    return BYTES_ALONE if len(calls) == 1 else BYTES_OF_SEVERAL


def _arrivals(
    group: str,
    members: str,
    calls: Mapping[int, Sequence[Called]],
    clock: Clock,
    last: int,
    most: int,
) -> Arrivals | None:
    """The newest calls of a group that all of its ranks here have made."""
    by_rank = {
        rank: {one.number: one for one in made if one.at <= last} for rank, made in calls.items()
    }
    numbers = sorted(set.intersection(*map(set, by_rank.values())))
    numbers = numbers[max(0, len(numbers) - most) :]
    if not numbers:
        return None
    ranks = sorted(by_rank)
    times = [[by_rank[rank][number].at for rank in ranks] for number in numbers]
    firsts = [clock.of(min(each)) for each in times]
    found: dict[str, Any] = {}
    if len(ranks) > 1:
        orders = [sorted(range(len(ranks)), key=each.__getitem__) for each in times]
        pairs = list(zip(times, orders, strict=True))
        found["late"] = [(each[order[-1]] - each[order[0]]) // 1000 for each, order in pairs]
        found["second"] = [(each[order[-2]] - each[order[0]]) // 1000 for each, order in pairs]
        found["last"] = [order[-1] for _, order in pairs]
    return Arrivals(
        group=group,
        members=members,
        ranks=ranks,
        number=numbers[0],
        steps=_differences(numbers),
        kinds="".join(by_rank[ranks[0]][number].kind for number in numbers),
        began=firsts[0],
        gaps=_differences(firsts),
        **found,
    )


def _differences(values: Sequence[int]) -> list[int]:
    return [after - before for before, after in pairwise(values)]
