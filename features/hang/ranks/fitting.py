"""Makes what was seen fit into a message: what says least is left out first. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from features.hang.wire import (
    MAX_CHILDREN,
    MAX_FRAMES,
    MAX_GROUPS,
    MAX_STACKS,
    Frame,
    ProcessLook,
    RankLook,
    Stack,
)

MOST_BYTES = 48 * 1024


class Seen(NamedTuple):
    """What a node has seen of its ranks; see `LookReport`."""

    ranks: list[RankLook]
    stacks: list[Stack]
    left_out: int
    launcher: ProcessLook | None = None
    unstarted: Sequence[int] = ()
    held_back: Sequence[str] = ()


class Beside(NamedTuple):
    """A process that is not a rank, and the stack of its main thread."""

    look: ProcessLook
    main: Stack | None = None


class Part(NamedTuple):
    """One rank, the stacks of its threads, and what it has started."""

    rank: RankLook
    main: Stack | None = None
    others: Sequence[Stack] = ()
    children: Sequence[Beside] = ()


class Limits(NamedTuple):
    """Most of a rank that is reported: other threads, frames, groups, and children."""

    threads: int = 64
    frames: int = MAX_FRAMES
    groups: int = MAX_GROUPS
    stacks: int = MAX_STACKS
    children: int = MAX_CHILDREN


STEPS = (
    Limits(),
    Limits(threads=8),
    Limits(threads=0),
    Limits(threads=0, frames=40, children=8),
    Limits(threads=0, frames=40, groups=16, children=4),
    Limits(threads=0, frames=20, groups=4, children=2),
    Limits(threads=0, frames=10, groups=4, children=1),
    Limits(threads=0, frames=5, groups=1, children=0),
    Limits(threads=0, frames=1, groups=1, children=0),
    Limits(threads=0, frames=1, groups=0, children=0),
    Limits(threads=0, groups=0, stacks=0, children=0),
)


def fitted(
    parts: Sequence[Part],
    launcher: Beside | None = None,
    left_out: int = 0,
    most: int = MOST_BYTES,
) -> Seen:
    """Cut to what fits; of groups and children those are left out first that come last.

    Args:
        parts: The ranks.
        launcher: What starts them, where it matters.
        left_out: What was left out before.
        most: Bytes of JSON.
    """
    for limits in STEPS[:-1]:
        seen = _within(parts, launcher, limits, left_out)
        if _size(seen) <= most:
            return seen
    return _within(parts, launcher, STEPS[-1], left_out)


def _within(parts: Sequence[Part], launcher: Beside | None, limits: Limits, left_out: int) -> Seen:
    ranks: list[RankLook] = []
    stacks: list[Stack] = []
    indices: dict[tuple[bool, tuple[Frame, ...]], int] = {}

    def index(stack: Stack) -> int | None:
        short = _shorter(stack, limits.frames)
        key = (short.cut, tuple(short.frames))
        if key not in indices and len(stacks) < limits.stacks:
            indices[key] = len(stacks)
            stacks.append(short)
        return indices.get(key)

    def beside(one: Beside) -> ProcessLook:
        return one.look.model_copy(update={"stack": index(one.main) if one.main else None})

    # The main threads come first, so that they are in when there are too many.
    mains = [index(part.main) if part.main else None for part in parts]
    for part, main in zip(parts, mains, strict=True):
        others = [index(stack) for stack in part.others[: limits.threads]]
        threads = [number for number in others if number is not None]
        groups = part.rank.groups[: limits.groups]
        left_out += len(part.others) - len(threads) + len(part.rank.groups) - len(groups)
        left_out += part.main is not None and main is None
        children = [beside(child) for child in part.children[: limits.children]]
        told = {"stack": main, "threads": threads, "groups": groups, "children": children}
        ranks.append(part.rank.model_copy(update=told))
    return Seen(ranks, stacks, left_out, beside(launcher) if launcher else None)


def _shorter(stack: Stack, frames: int) -> Stack:
    if len(stack.frames) <= frames:
        return stack
    return stack.model_copy(update={"frames": stack.frames[:frames], "cut": True})


def _size(seen: Seen) -> int:
    return sum(len(each.model_dump_json().encode()) + 1 for each in (*seen.ranks, *seen.stacks))
