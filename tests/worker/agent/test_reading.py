"""The logs of a view: which are read, in which order, and when nothing more comes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rendezvous.wire.log_view import ViewOrder
from worker.agent import reading as module
from worker.agent.actions import ServeView
from worker.agent.reading import FILES_SECONDS, Reading


class Bench:
    """A node 1 with the ranks 2 and 3, and its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 0.0
        self.made: list[Reading] = []

    def write(self, name: str, text: str, at: int = 0) -> None:
        path = self.folder / name
        with path.open("a") as file:
            file.write(text)
        if at:
            os.utime(path, (at, at))

    def reading(self, *ranks: int, epoch: int = 1, **asked: Any) -> Reading:
        order = ViewOrder(view=7, **asked)
        action = ServeView(order, 1, ranks, (2, 3), epoch, 0.0)
        self.made.append(Reading(action, self.folder, lambda: self.now))
        return self.made[-1]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for reading in made.made:
        reading.close()


def lines(reading: Reading) -> list[tuple[int | None, str]]:
    """All that is to be sent now."""
    found = []
    for _ in range(1_000):
        reading.step()
        for part in reading.backlog.take():
            found += [(part.rank, line) for line in part.lines]
        if reading.is_idle:
            return found
    raise AssertionError("it comes to no end")


def test_each_rank_has_its_newest_lines(bench: Bench) -> None:
    for rank in (2, 3, 4):
        bench.write(f"rank-{rank}.log", "".join(f"{rank} {n}\n" for n in range(9)))
    bench.write("node-1.log", "all\n")
    reading = bench.reading(2, 3, lines=2)
    assert lines(reading) == [(2, "2 7"), (2, "2 8"), (3, "3 7"), (3, "3 8")]
    assert (reading.is_done, reading.words) == (True, "")
    assert lines(bench.reading(3, lines=1, grep=["3 4"])) == [(3, "3 4")]
    assert lines(bench.reading()) == [(None, "all")]


def test_a_node_whose_ranks_have_no_logs_shows_its_own(bench: Bench) -> None:
    bench.write("node-1.log", "one\n")
    assert lines(bench.reading(2, 3)) == [(None, "one")]
    assert lines(bench.reading(3)) == [(None, "one")]
    bench.write("rank-2.log", "2\n")  # so rank 3 has only said nothing yet
    silent = bench.reading(3, rank=3)
    assert lines(silent) == []
    assert silent.words == "there is no log of rank 3 on this node"


def test_where_nothing_is_that_is_said(bench: Bench) -> None:
    reading = bench.reading(2, 3, epoch=4)
    assert lines(reading) == []
    assert (reading.is_done, reading.words) == (True, "there is no log of its program on this node")
    reading = bench.reading(2, rank=2)
    lines(reading)
    assert reading.words == "there is no log of rank 2 on this node"


def test_an_epoch_that_is_over_has_its_own_file(bench: Bench) -> None:
    bench.write("rank-2.log", "first\n", at=1_000)
    bench.write("rank-2.e3.log", "third\n", at=2_000)
    assert lines(bench.reading(2, epoch=3)) == [(2, "third")]
    order = ViewOrder(view=7, epoch=2)
    action = ServeView(order, 1, (2,), (2, 3), 3, 0.0)
    bench.made.append(Reading(action, bench.folder, lambda: 0.0))
    assert lines(bench.made[-1]) == [(2, "first")]


def test_a_program_that_starts_again_is_followed_into_its_next_log(bench: Bench) -> None:
    bench.write("rank-2.log", "one\n", at=1_000)
    reading = bench.reading(2, follow=True, lines=5)
    assert lines(reading) == [(2, "one")]
    assert not reading.is_done
    bench.write("rank-2.log", "last\n", at=1_001)
    bench.write("rank-2.e2.log", "again\n", at=2_000)
    bench.now += FILES_SECONDS
    found = lines(reading)
    bench.now += FILES_SECONDS
    assert found + lines(reading) == [(2, "last"), (2, "again")]


def test_a_rank_that_speaks_later_is_followed_from_its_first_line(bench: Bench) -> None:
    bench.write("rank-2.log", "2\n")
    reading = bench.reading(2, 3, follow=True, lines=5)
    assert lines(reading) == [(2, "2")]
    bench.write("rank-3.log", "".join(f"{n}\n" for n in range(9)))
    assert lines(reading) == []
    bench.now += FILES_SECONDS
    assert lines(reading) == [(3, str(n)) for n in range(9)]


def test_who_follows_and_is_too_slow_is_told_how_much_was_left_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LAG_LETTERS", 1_000)
    bench.write("rank-2.log", "one\n")
    reading = bench.reading(2, follow=True)
    assert lines(reading) == [(2, "one")]
    bench.write("rank-2.log", "".join(f"{n:09}\n" for n in range(5_000)))
    for _ in range(5):
        reading.step()
    parts = reading.backlog.take()
    assert [part.skipped for part in parts if part.skipped] == [5_000 - 111]
    assert parts[-1].lines[-1] == "000004999"


def test_who_does_not_follow_has_all_lines_however_slow(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LAG_LETTERS", 1_000)
    bench.write("rank-2.log", "".join(f"{n:09}\n" for n in range(5_000)))
    reading = bench.reading(2, lines=5_000)
    for _ in range(50):
        reading.step()
    assert reading.backlog.letters < 10_000
    assert [line for _, line in lines(reading)] == [f"{n:09}" for n in range(5_000)]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "none")
    assert lines(bench.reading(2)) == []


@pytest.mark.parametrize(
    ("follow", "each", "drops"),
    [
        (True, [True, True], True),
        (True, [True, False], False),  # the older lines of one are still to come
        (True, [False, True], False),
        (True, [], True),
        (False, [True, True], False),  # it has an end, up to which nothing is left out
        (False, [False], False),
    ],
)
def test_lines_are_left_out_once_all_that_is_followed_is_at_its_newest(
    bench: Bench, follow: bool, each: list[bool], drops: bool
) -> None:
    reading: Any = bench.reading(2, 3, follow=follow)
    reading._readers = {
        rank: SimpleNamespace(follows=follows, close=lambda: None)
        for rank, follows in enumerate(each)
    }
    assert reading.drops is drops
