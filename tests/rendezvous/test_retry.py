"""Asking until there is an answer, and again while it is late, on a clock that jumps."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from rendezvous.talk.retry import persistently, retry_pause, until_answered
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


# What is sent again while its answer is late

PAUSE = 0.3
NEVER = (1e6, "ok")
Try = tuple[float, str]
"""Seconds, and `ok`, `away` or `fenced`."""


class Asked:
    """What was sent when, which tries were cancelled, and what came of it all."""

    def __init__(self, *tries: Try) -> None:
        self._tries = tries
        self.sent_at: list[float] = []
        self.late_at: list[float] = []
        self.cancelled: list[int] = []
        self.told, self.at = run_virtually(self._ask())

    async def _send(self) -> str:
        number = len(self.sent_at)
        self.sent_at.append(asyncio.get_running_loop().time())
        seconds, how = self._tries[number] if number < len(self._tries) else NEVER
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        if how != "ok":
            raise {"away": Unavailable, "fenced": Fenced}[how](f"try {number}")
        return f"try {number}"

    async def _ask(self) -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        try:
            told = await persistently(
                self._send,
                late=2.0,
                again_after=1.0,
                pause=lambda: PAUSE,
                on_late=lambda: self.late_at.append(loop.time()),
            )
        except (Unavailable, Fenced) as exc:
            told = f"{exc.code} {exc.message}"
        return told, round(loop.time(), 3)


@pytest.mark.parametrize(
    ("tries", "told", "at", "sent"),
    [
        ([(1.5, "ok")], "try 0", 1.5, [0.0]),
        ([NEVER, NEVER, (0.5, "ok")], "try 2", 3.5, [0.0, 2.0, 3.0]),
        ([(20.0, "ok")], "try 0", 20.0, [0.0, 2.0, 3.0]),  # no more than three at a time
        ([(0.5, "away")], "unavailable try 0", 0.5, [0.0]),
        # One that fails beside another is followed by a further one after a pause.
        ([NEVER, *[(0.1, "away")] * 2, (0.1, "ok")], "try 3", 2.9, [0.0, 2.0, 2.4, 2.8]),
        ([NEVER, (0.5, "fenced")], "fenced try 1", 2.5, [0.0, 2.0]),
        ([(2.6, "ok"), (0.5, "away")], "try 0", 2.6, [0.0, 2.0]),  # in the pause
        ([(3.0, "away"), (1.0, "ok")], "try 1", 3.0, [0.0, 2.0]),  # both at the same time
    ],
)
def test_what_is_late_is_sent_again_and_the_first_answer_counts(
    tries: list[Try], told: str, at: float, sent: list[float]
) -> None:
    asked = Asked(*tries)
    assert (asked.told, asked.at) == (told, at)
    assert asked.sent_at == pytest.approx(sent)
    assert bool(asked.late_at) is (2.0 in sent)


def test_those_that_wait_are_cancelled_once_there_is_an_answer() -> None:
    asked = Asked(NEVER, NEVER, (0.5, "ok"))
    assert (asked.cancelled, asked.late_at) == ([0, 1], [2.0, 3.0])


def test_after_four_times_its_patience_nothing_more_is_sent() -> None:
    asked = Asked((8.1, "away"), *[(0.8, "away")] * 20)
    assert asked.at < 10.0
    assert 7.0 < max(asked.sent_at) < 8.0
