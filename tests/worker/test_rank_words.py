"""What is kept of each rank's words."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from worker.program.output import Tail
from worker.program.rank_words import KEPT_BYTES, RankWords


def test_each_rank_has_its_own_with_the_time_at_which_it_came() -> None:
    words, began = RankWords(), time.monotonic()
    for rank, data in ((1, b"a\n"), (None, b"torchrun\n"), (0, b"b\n"), (1, b"c\n")):
        words.take(rank, data)
    assert words.ranks() == [None, 0, 1]
    assert [data for _, data in words.newest(1)] == [b"a\n", b"c\n"]
    times = [at for at, _ in words.newest(1)]
    assert began <= times[0] <= times[1] <= time.monotonic()
    assert words.newest(7) == []


def test_only_the_newest_are_kept_to_the_byte() -> None:
    words, said = RankWords(), b""
    for number in range(3_000):
        piece = b"%d " % number * (number % 40)
        said += piece
        words.take(0, piece)
    assert b"".join(data for _, data in words.newest(0)) == said[-KEPT_BYTES:]


def test_a_piece_that_is_longer_than_what_is_kept_is_cut() -> None:
    words = RankWords()
    words.take(0, b"before")
    words.take(0, bytes(KEPT_BYTES) + b"end")
    [(_, kept)] = words.newest(0)
    assert (len(kept), kept[-3:]) == (KEPT_BYTES, b"end")


def test_many_small_pieces_do_not_grow_out_of_sight() -> None:
    words = RankWords()
    for _ in range(50_000):
        words.take(None, b"x")
    assert len(words.newest(None)) < 5_000


class Noted:
    """A lock that counts how often it was held."""

    def __init__(self) -> None:
        self.times = 0

    def __enter__(self) -> None:
        self.times += 1

    def __exit__(self, *_: object) -> None: ...


def test_what_a_thread_writes_is_read_under_its_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A list that grows while it is read would raise in the event loop, once in a while."""
    words, tail, lock, found = RankWords(), Tail(), Noted(), []
    for one in (words, tail):
        monkeypatch.setattr(one, "_lock", lock)
    steps: list[Callable[[], object]] = [
        lambda: words.take(3, b"a line\n"),
        words.ranks,
        lambda: words.newest(3),
        lambda: words.lines(3, 9),
        lambda: tail.write("stdout", b"a line\n"),
        tail.lines,
    ]
    for step in steps:
        before = lock.times
        step()
        found.append(lock.times - before)
    assert found == [1] * 6
