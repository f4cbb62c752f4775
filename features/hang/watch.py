"""While nothing moves on any node: when to look at the ranks, and what two looks say. Pure.

One look shows where the ranks are, and a second one 10 s later whether the rank for which the
others wait does something itself, or its children do: uses CPU, reads or writes, or is at another
place. Then it is at work, however long that takes, and no stall. Looks go on once a minute while
nothing moves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from features.hang.rules import Rule, Verdict
from features.hang.wire import LookReport, RankLook, RunLook, SeenProcess, Stack
from rendezvous.frozen import frozen

AGAIN_SECONDS = 10.0
REPEAT_SECONDS = 60.0
CPU_SHARE = 0.01
"""Of a core, between two looks: threads that only watch use less."""
MOVED_BYTES = 256 << 10
"""Read or written between two looks; what a look itself writes is less."""
STUCK: frozenset[Rule] = frozenset(
    {"stopped", "starting", "children", "cycle", "behind", "different", "all_inside", "odd_stack"}
)
"""The rules that say what the ranks wait for."""
IDLE: frozenset[Rule] = frozenset({"unclear"})
"""Rules that do not: a stall all the same where every rank was seen, and none does anything."""


@frozen
class StallWatch:
    """Where the registry is with its looks at a run.

    Attributes:
        since: Since when nothing moves; None: something does.
        former: The number of the look before the newest; 0: there was none.
        newest: The number of the newest look, and `asked_at` when it was asked for.
        former_at: When the one before it was.
        judged: The newest look that was judged.
        worked_at: When a rank for which the others wait was last seen to be at work.
        told: What was said last: nothing is said twice.
    """

    since: float | None = None
    former: int = 0
    newest: int = 0
    asked_at: float = 0.0
    former_at: float = 0.0
    judged: int = 0
    worked_at: float | None = None
    told: tuple[object, ...] = ()


@frozen
class Ask:
    """Look at the ranks."""


@frozen
class Judge:
    """Judge by these two looks."""

    former: int
    newest: int


def step(
    watch: StallWatch,
    since: float | None,
    now: float,
    *,
    is_over: bool,
    again: float = AGAIN_SECONDS,
    hurry: bool = False,
) -> tuple[StallWatch, Ask | Judge | None]:
    """What to do now.

    Args:
        watch: Where the registry is.
        since: Since when nothing moves on any node; None: something does.
        now: In seconds, as `since`.
        is_over: Whether the newest look has been answered.
        again: Seconds from the first look to the second.
        hurry: The programs are to be ended if another look finds the same.
    """
    if since != watch.since:
        return StallWatch(since), (Ask() if since is not None else None)
    if since is None:
        return watch, None
    if not watch.newest:
        return watch, Ask()
    if is_over and watch.former and watch.judged != watch.newest:
        return replace(watch, judged=watch.newest), Judge(watch.former, watch.newest)
    pause = REPEAT_SECONDS if watch.former and not hurry else again
    if is_over and now - watch.asked_at >= pause:
        return watch, Ask()
    return watch, None


def asked(watch: StallWatch, number: int, now: float) -> StallWatch:
    """A look was begun."""
    return replace(
        watch, former=watch.newest, newest=number, asked_at=now, former_at=watch.asked_at
    )


def forgotten(watch: StallWatch) -> StallWatch:
    """A look is no longer known: others have looked since."""
    return replace(watch, former=0, newest=0)


def is_stuck(verdict: Verdict, works: bool) -> bool:
    """Return whether the ranks wait; `works`: one that the others may wait for is at work."""
    if verdict.rule in IDLE:
        return not (works or verdict.silent or verdict.silent_nodes)
    return verdict.rule in STUCK


def at_work(verdict: Verdict, former: RunLook, newest: RunLook, seconds: float) -> bool:
    """Whether a rank for which the others wait has done something between two looks, so many
    seconds apart, or its children have; where it is not known which one they wait for, any of them:
    who waits in `init_process_group` asks a store all the time.

    Of a rank that has no process its launcher counts; where nothing is known of that, it may work.
    """
    before, after = _ranks(former), _ranks(newest)
    none_is_waited_for = verdict.rule in ("cycle", "all_inside")
    candidates = verdict.odd or verdict.awaited or (() if none_is_waited_for else after)
    return any(
        _has_moved(before[rank], after[rank], seconds)
        for rank in candidates
        if rank in before and rank in after
    )


class _Used(NamedTuple):
    """Work of a rank, or of the launcher of one that has no process, until a look."""

    process: int
    stack: Stack | None
    cpu: float
    bytes: int
    children_cpu: float
    children_bytes: int


def _has_moved(was: _Used | None, now: _Used | None, seconds: float) -> bool:
    if was is None or now is None:
        return True
    if was.process != now.process:
        return True
    old, new = was.stack, now.stack
    is_elsewhere = old is not None and new is not None and old.frames != new.frames
    cpu = max(now.cpu - was.cpu, now.children_cpu - was.children_cpu)
    done = max(now.bytes - was.bytes, abs(now.children_bytes - was.children_bytes))
    return is_elsewhere or cpu > CPU_SHARE * seconds or done > MOVED_BYTES


def _ranks(look: RunLook) -> dict[int, _Used | None]:
    """By rank; None: neither its process nor its launcher is known."""
    found: dict[int, _Used | None] = {}
    for node in look.nodes:
        if (report := node.report) is None:
            continue
        for one in report.ranks:
            found[one.rank] = _used_by(one, report)
    return found


def _used_by(rank: RankLook, report: LookReport) -> _Used | None:
    one: SeenProcess | None = rank if rank.pid else report.launcher
    if one is None:
        return None
    known = one.stack in range(len(report.stacks))
    stack = report.stacks[one.stack or 0] if known else None
    return _Used(
        one.pid,
        stack,
        one.cpu_total,
        one.bytes_total,
        rank.children_cpu_total,
        rank.children_bytes_total,
    )
