"""When to ask the nodes for their calls, and when what was found is told. Pure.

They are asked a minute after the programs have started, then after two and four, and each ten
minutes at last: it holds each rank for 30 ms, all of them at the same moment. Whoever is found is
told only if the next answers, soon after, say the same; so is that nobody is found any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from rendezvous.frozen import frozen
from rendezvous.pace.judge import Straggler

FIRST_SECONDS = 60.0
MOST_SECONDS = 600.0
AGAIN_SECONDS = 15.0


Who = tuple[int, int | None] | Literal["nobody"]
"""A straggler's slot and rank."""


@frozen
class PaceWatch:
    """Where the registry is.

    Attributes:
        epoch: Whose programs are watched; -1: none.
        waits: Whether the nodes have been asked, and their answers not been judged yet.
        ask_at: When to ask next.
        pause: Seconds from then until the time after.
        suspect: Who was found last, where that was news and has to be found once more.
    """

    epoch: int = -1
    waits: bool = False
    ask_at: float = 0.0
    pause: float = FIRST_SECONDS
    suspect: Who | None = None


@frozen
class Ask:
    """Ask the nodes."""


@frozen
class Judge:
    """Judge by what they have answered."""


@frozen
class Found:
    """Tell of this straggler; None: that there is none any more."""

    straggler: Straggler | None


def step(
    watch: PaceWatch, epoch: int, now: float, *, is_over: bool
) -> tuple[PaceWatch, Ask | Judge | None]:
    """What to do now.

    Args:
        watch: Where the registry is.
        epoch: Whose programs run and are well; -1: none do.
        now: In seconds.
        is_over: Whether all nodes have answered, or had the time for it.
    """
    if epoch != watch.epoch:
        return PaceWatch(epoch, ask_at=now + FIRST_SECONDS), None
    if epoch < 0:
        return watch, None
    if watch.waits:
        return (replace(watch, waits=False), Judge()) if is_over else (watch, None)
    return watch, Ask() if now >= watch.ask_at else None


def asked(watch: PaceWatch, now: float) -> PaceWatch:
    """The nodes were asked."""
    pause = min(MOST_SECONDS, 2 * watch.pause)
    return replace(watch, waits=True, ask_at=now + watch.pause, pause=pause)


def judged(
    watch: PaceWatch,
    found: Straggler | None,
    told: Who,
    now: float,
) -> tuple[PaceWatch, Found | None]:
    """What is to be told of what was found.

    Args:
        watch: Where the registry is.
        found: The straggler.
        told: Who has been told to be one.
        now: In seconds.
    """
    who: Who = found.who if found is not None else "nobody"
    if who == told:
        return replace(watch, suspect=None), None
    if who == watch.suspect:
        return replace(watch, suspect=None), Found(found)
    # Where it is one and then another there is no hurry.
    soon = watch.ask_at if watch.suspect else min(watch.ask_at, now + AGAIN_SECONDS)
    return replace(watch, suspect=who, ask_at=soon), None
