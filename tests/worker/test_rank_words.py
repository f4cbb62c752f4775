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
    assert [piece.data for piece in words.newest(1)] == [b"a\n", b"c\n"]
    times = [piece.at for piece in words.newest(1)]
    assert began <= times[0] <= times[1] <= time.monotonic()
    assert words.newest(7) == []


def test_only_the_newest_are_kept_to_the_byte() -> None:
    words, said = RankWords(), b""
    for number in range(3_000):
        piece = b"%d " % number * (number % 40)
        said += piece
        words.take(0, piece)
    assert b"".join(piece.data for piece in words.newest(0)) == said[-KEPT_BYTES:]


def test_a_piece_that_is_longer_than_what_is_kept_is_cut() -> None:
    words = RankWords()
    words.take(0, b"before")
    words.take(0, bytes(KEPT_BYTES) + b"end")
    [piece] = words.newest(0)
    assert (len(piece.data), piece.data[-3:]) == (KEPT_BYTES, b"end")


def test_many_small_pieces_do_not_grow_out_of_sight() -> None:
    words = RankWords()
    for _ in range(50_000):
        words.take(None, b"x")
    assert len(words.newest(None)) < 5_000


def test_a_line_is_of_one_stream() -> None:
    words = RankWords()
    for stream, data in (
        *(("stderr", b"\r 10%"), ("stdout", b"epoch "), ("stderr", b"\r 20%"), ("stdout", b"1\ne")),
        *(("stderr", b"|\nKeyErr"), ("stdout", b"poch 2"), ("stderr", b"or: 1")),
    ):
        words.take(0, data, stream)
    found = words.lines(0, 9)
    assert [(text, stream) for _, text, stream in found] == [
        *(("epoch 1", "stdout"), (" 20%|", "stderr")),
        *(("epoch 2", "stdout"), ("KeyError: 1", "stderr")),
    ]
    assert found == sorted(found, key=lambda line: line[0])
    assert words.lines(0, 1) == found[-1:]


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
