"""Asking until there is an answer, on a clock that jumps."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from rendezvous.talk.retry import retry_pause, until_answered
from rendezvous.wire.errors import (
    Fenced,
    NotFound,
    RdzvError,
    SlotTaken,
    TooManyRequests,
    Unavailable,
)
from tests.support.virtual_time import run_virtually


def ask(*answers: RdzvError | str, **options: Any) -> tuple[str, float]:
    """What comes of asking one who answers like that, the last one for ever; and when."""
    left = list(answers)

    async def once() -> str:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, RdzvError):
            raise answer
        return answer

    async def work() -> tuple[str, float]:
        try:
            told = await until_answered(once, pause=lambda: 0.25, **options)
        except RdzvError as exc:
            told = f"{exc.code}: {exc.message}"
        return told, asyncio.get_running_loop().time()

    return run_virtually(work())


AWAY = Unavailable("away")


@pytest.mark.parametrize(
    ("answers", "options", "told"),
    [
        (["here"], {}, ("here", 0.0)),
        ([AWAY, TooManyRequests("full"), "here"], {}, ("here", 0.5)),
        ([AWAY, Fenced("replaced")], {}, ("fenced: replaced", 0.25)),
        ([SlotTaken("held"), "here"], {}, ("slot_taken: held", 0.0)),
        ([SlotTaken("held"), "here"], {"also": (SlotTaken,)}, ("here", 0.25)),
        ([AWAY], {"seconds": 0.9}, ("unavailable: away", 1.0)),
        ([AWAY], {"seconds": 1.0}, ("unavailable: away", 1.25)),
    ],
)
def test_what_may_pass_is_asked_again_for_so_long(
    answers: list[RdzvError | str], options: dict[str, Any], told: tuple[str, float]
) -> None:
    assert ask(*answers, **options) == told


def test_each_failure_before_another_try_is_told() -> None:
    told: list[str] = []
    failures = Unavailable("one"), Unavailable("two"), Unavailable("three")
    ask(*failures, seconds=0.4, failed=lambda exc: told.append(exc.message))
    assert told == ["one", "two"]


def test_who_asks_may_give_up() -> None:
    def give_up(failure: RdzvError) -> None:
        raise NotFound("enough") from failure

    assert ask(AWAY, failed=give_up) == ("not_found: enough", 0.0)


def test_the_pause_is_steady_with_jitter_that_a_seed_gives() -> None:
    first, second = random.Random(7), random.Random(7)
    pauses = [retry_pause(first) for _ in range(100)]
    assert pauses == [retry_pause(second) for _ in range(100)]
    assert 0.2 <= min(pauses) < 0.25 < 0.45 < max(pauses) <= 0.5
