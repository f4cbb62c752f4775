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


def test_what_is_answered_in_time_is_sent_once() -> None:
    asked = Asked((1.5, "ok"))
    assert asked.run() == ("try 0", 1.5)
    assert (asked.sent_at, asked.late_at) == ([0.0], [])


def test_a_late_one_is_followed_by_two_and_the_first_answer_counts() -> None:
    asked = Asked((1e6, "ok"), (1e6, "ok"), (0.5, "ok"))
    assert asked.run() == ("try 2", 3.5)
    assert (asked.sent_at, asked.late_at, asked.cancelled) == ([0.0, 2.0, 3.0], [2.0, 3.0], [0, 1])


def test_no_more_than_three_wait_at_a_time() -> None:
    asked = Asked((20.0, "ok"))
    assert asked.run() == ("try 0", 20.0)
    assert asked.sent_at == [0.0, 2.0, 3.0]


def test_one_that_fails_alone_is_told_at_once() -> None:
    assert Asked((0.5, "away")).run() == ("unavailable try 0", 0.5)


def test_one_that_fails_beside_another_is_followed_by_a_further_one_after_a_pause() -> None:
    asked = Asked((1e6, "ok"), (0.1, "away"), (0.1, "away"), (0.1, "ok"))
    told, at = asked.run()
    assert (told, round(at, 3)) == ("try 3", 2.9)
    assert asked.sent_at == pytest.approx([0.0, 2.0, 2.4, 2.8])


def test_after_four_times_its_patience_nothing_more_is_sent() -> None:
    asked = Asked((8.1, "away"), *[(0.8, "away")] * 20)
    assert asked.run()[1] < 10.0
    assert max(asked.sent_at) < 8.0


def test_a_refusal_is_told_though_another_try_waits() -> None:
    asked = Asked((1e6, "ok"), (0.5, "fenced"))
    assert asked.run() == ("fenced try 1", 2.5)
    assert asked.cancelled == [0]


def test_an_answer_is_taken_though_it_comes_in_the_pause_after_a_failure() -> None:
    asked = Asked((2.6, "ok"), (0.5, "away"))
    assert asked.run() == ("try 0", 2.6)
    assert asked.sent_at == [0.0, 2.0]


def test_an_answer_counts_more_than_a_failure_at_the_same_time() -> None:
    asked = Asked((3.0, "away"), (1.0, "ok"))
    assert asked.run() == ("try 1", 3.0)
