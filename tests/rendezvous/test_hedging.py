"""What is sent again while an answer is late, on a clock that jumps."""

from __future__ import annotations

import asyncio

import pytest

from rendezvous.talk.retry import persistently
from rendezvous.wire.errors import Fenced, Unavailable
from tests.support.virtual_time import run_virtually

PAUSE = 0.3

Try = tuple[float, str]
"""Seconds, and `ok`, `away` or `fenced`."""


class Asked:
    """What was sent when, and how each try ended."""

    def __init__(self, *tries: Try) -> None:
        self._tries = list(tries)
        self.sent_at: list[float] = []
        self.late_at: list[float] = []
        self.cancelled: list[int] = []

    async def _send(self) -> str:
        number = len(self.sent_at)
        self.sent_at.append(asyncio.get_running_loop().time())
        seconds, how = self._tries[number] if number < len(self._tries) else (1e6, "ok")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        if how == "away":
            raise Unavailable(f"try {number}")
        if how == "fenced":
            raise Fenced(f"try {number}")
        return f"try {number}"

    def _late(self) -> None:
        self.late_at.append(asyncio.get_running_loop().time())

    def run(self, late: float = 2.0, again_after: float = 1.0) -> tuple[str, float]:
        """What is answered, and when."""

        async def ask() -> tuple[str, float]:
            loop = asyncio.get_running_loop()
            try:
                told = await persistently(
                    self._send,
                    late=late,
                    again_after=again_after,
                    pause=lambda: PAUSE,
                    on_late=self._late,
                )
            except (Unavailable, Fenced) as exc:
                told = f"{exc.code} {exc.message}"
            return told, loop.time()

        return run_virtually(ask())


NEVER = (1e6, "ok")


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
    answer, when = asked.run()
    assert (answer, round(when, 3)) == (told, at)
    assert asked.sent_at == pytest.approx(sent)
    assert bool(asked.late_at) is (2.0 in sent)


def test_those_that_wait_are_cancelled_once_there_is_an_answer() -> None:
    asked = Asked(NEVER, NEVER, (0.5, "ok"))
    asked.run()
    assert (asked.cancelled, asked.late_at) == ([0, 1], [2.0, 3.0])


def test_after_four_times_its_patience_nothing_more_is_sent() -> None:
    asked = Asked((8.1, "away"), *[(0.8, "away")] * 20)
    assert asked.run()[1] < 10.0
    assert max(asked.sent_at) < 8.0
