"""Reading a log beside who writes it: its newest lines, what comes, and what has fallen out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from worker.program import log_reader
from worker.program.log_file import LogFile, first_part, older_part
from worker.program.log_reader import LogReader
from worker.program.rank_logs import RankLog
from worker.program.wanted import Wanted

LIMIT = 1 << 20


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "rank-0.log"


_OPENED: list[LogReader] = []


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    while _OPENED:
        _OPENED.pop().close()


def opened(log: Path, wanted: Wanted, lines: int | None, **more: Any) -> LogReader:
    _OPENED.append(LogReader(log, wanted, lines, **more))
    return _OPENED[-1]


def rest(reader: LogReader, most: int = 100_000) -> list[str]:
    """All that there is now."""
    found: list[str] = []
    for _ in range(most):
        found += reader.step()
        if reader.at_end:
            return found
    raise AssertionError("it comes to no end")


def newest(log: Path, lines: int, *grep: str, follow: bool = False) -> list[str]:
    reader = opened(log, Wanted(grep), lines, follow=follow)
    found = rest(reader)
    assert rest(reader) == []
    reader.close()
    return found


def test_the_newest_lines_and_those_that_are_wanted(log: Path) -> None:
    log.write_text("".join(f"{'loss' if n % 3 else 'acc'} {n}\n" for n in range(20_000)))
    assert newest(log, 3) == ["loss 19997", "acc 19998", "loss 19999"]
    assert newest(log, 2, "acc") == ["acc 19995", "acc 19998"]
    assert newest(log, 5, "acc 3\n"[:-1])[0].startswith("acc 3")
    assert newest(log, 5, "nothing like it") == []
    assert newest(log, 0) == []
    assert len(newest(log, 10_000, "loss")) == 10_000


def test_an_unfinished_line_is_the_last_one_or_is_waited_for(log: Path) -> None:
    log.write_bytes(b"one\ntwo\nthr")
    assert newest(log, 2) == ["two", "thr"]
    reader = opened(log, Wanted(), 2, follow=True)
    assert rest(reader) == ["one", "two"]
    with log.open("ab") as file:
        file.write(b"ee\nfour\nfi")
    assert rest(reader) == ["three", "four"]


def test_a_log_that_is_not_there_yet(log: Path) -> None:
    reader = opened(log, Wanted(), 5, follow=True)
    assert (rest(reader), reader.is_there) == ([], False)
    log.write_bytes(b"one\n")
    assert (rest(reader), reader.is_there) == (["one"], True)


def test_of_a_log_that_is_not_there_nothing_is_skipped(log: Path) -> None:
    reader = opened(log, Wanted(), 5, follow=True)
    for _ in range(2):
        assert (rest(reader), reader.skip(), reader.is_there) == ([], 0, False)
        reader.close()


def test_all_from_the_first(log: Path) -> None:
    log.write_bytes(b"".join(b"%d\n" % n for n in range(50_000)))
    reader = opened(log, Wanted(), None, follow=True)
    assert rest(reader) == [str(n) for n in range(50_000)]


def test_a_progress_bar_shows_states(log: Path) -> None:
    reader = opened(log, Wanted(), 5, follow=True)
    log.write_bytes(b"\r 10%\r 20%\r 30%")
    assert rest(reader) == [" 20%"]
    with log.open("ab") as file:
        file.write(b"\r100%\n")
    assert rest(reader) == ["100%"]


def test_a_line_without_an_end_is_cut(log: Path) -> None:
    log.write_bytes(b"begin " + b"x" * 3_000_000 + b"\nlast\n")
    found = newest(log, 5)
    assert [line[:8] for line in found] == ["begin xx", "last"]
    reader = opened(log, Wanted(), None, follow=True)
    assert rest(reader)[-1] == "last"


def test_a_log_that_is_begun_anew_is_followed(log: Path) -> None:
    file = LogFile(log, LIMIT)
    reader = opened(log, Wanted(), 5, follow=True)
    rest(reader)
    found = []
    for number in range(40_000):
        file.write(b"%07d %s\n" % (number, b"x" * 40))
        if number % 500 == 0:
            found += rest(reader)
    found += rest(reader)
    assert [int(line.split()[0]) for line in found] == list(range(40_000))


def test_the_parts_of_a_long_log_are_one(log: Path) -> None:
    file = LogFile(log, LIMIT)
    for number in range(15_000):
        file.write(b"%07d %s\n" % (number, b"x" * 40))
    assert older_part(log).exists()
    assert not first_part(log).exists()
    found = newest(log, 10_000)
    assert [int(line.split()[0]) for line in found] == list(range(5_000, 15_000))


def test_what_was_lost_is_passed_over(log: Path) -> None:
    file = RankLog(log, LIMIT)
    reader = opened(log, Wanted(), 5, follow=True)
    for number in range(100):
        file.write(b"%07d %s\n" % (number, b"x" * 40))
    assert len(rest(reader)) == 5
    for number in range(100, 100_000):
        file.write(b"%07d %s\n" % (number, b"x" * 40))
    lines = rest(reader)
    omitted = [line for line in lines if line.startswith("rdzv: ")]
    assert [line.strip()[-52:] for line in omitted] == [
        "bytes of output are omitted here (limit of a rank's log)"[-52:]
    ]
    found = [int(line.split()[0]) for line in lines if line not in omitted]
    assert found[-1] == 99_999
    assert found == sorted(found)


def test_who_is_far_behind_goes_on_with_the_newest(log: Path) -> None:
    log.write_bytes(b"one\n")
    reader = opened(log, Wanted(), 5, follow=True)
    assert rest(reader) == ["one"]
    assert reader.skip() == 0
    with log.open("ab") as file:
        file.write(b"".join(b"%09d\n" % n for n in range(1_000_000)))
    skipped = reader.skip()
    assert (reader.skip(), reader.skip(0)) == (0, 0)
    found = rest(reader)
    assert found[-1] == "000999999"
    assert skipped + len(found) in (1_000_000, 1_000_001)
    assert len(found) < 20_000


def test_what_is_older_is_not_read(log: Path) -> None:
    now = 1_000.0
    file = RankLog(log, 0, lambda: now)
    for _ in range(10):
        file.write(b"".join(b"%d %d\n" % (now, n) for n in range(10_000)))
        now += 60.0
    reader = opened(log, Wanted(), 100_000, since=now - 120.0)
    found = rest(reader)
    assert {line.split()[0] for line in found} == {"1480", "1540"}
    assert found[0] == "1480 0"
    assert len(found) == 20_000


@pytest.mark.parametrize("follow", [False, True])
def test_of_a_rank_that_was_silent_only_what_came_since_is_read(log: Path, follow: bool) -> None:
    now = 1_000.0
    file = RankLog(log, 0, lambda: now)
    file.write(b"one\ntwo\nth")
    reader = opened(log, Wanted(), 20, since=now + 600.0, follow=follow)
    assert rest(reader) == []
    now += 660.0
    file.write(b"ree\nfour\n")
    assert rest(reader) == (["three", "four"] if follow else [])
    assert rest(opened(log, Wanted(), 20, since=now - 60.0)) == ["three", "four"]
    file.close()


def test_the_older_parts_of_a_log_are_older(log: Path) -> None:
    now = 1_000.0
    file = RankLog(log, LIMIT, lambda: now)
    while not older_part(log).exists():
        now += 1.0
        file.write(b"%d %s\n" % (now, b"x" * 1_000))
    found = rest(opened(log, Wanted(), 100_000, since=now - 200.0))
    first = int(found[0].split()[0])
    assert now - 200.0 - 66 <= first <= now - 200.0
    assert [int(line.split()[0]) for line in found] == list(range(first, int(now) + 1))
    file.close()


@settings(max_examples=60, deadline=None)
@given(
    some.lists(some.binary(max_size=60), max_size=40),
    some.integers(0, 12),
    some.integers(1, 40),
    some.booleans(),
)
def test_the_newest_are_those_of_the_whole_file(
    tmp_path_factory: pytest.TempPathFactory,
    pieces: list[bytes],
    lines: int,
    step: int,
    follow: bool,
) -> None:
    """However small the steps are."""
    log = tmp_path_factory.mktemp("logs") / "rank-0.log"
    data = b"\n".join(piece.replace(b"\r", b" ") for piece in pieces)
    log.write_bytes(data)
    whole, _, unfinished = data.rpartition(b"\n")
    every = whole.split(b"\n") if b"\n" in data else []
    if unfinished and not follow:
        every.append(unfinished)
    wanted = Wanted()
    expected = [wanted.line(line) for line in every][-lines:] if lines else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_reader, "STEP_BYTES", step)
        assert newest(log, lines, follow=follow) == expected


def test_a_reader_beside_a_writer_sees_every_line_once(log: Path) -> None:
    dice = random.Random(5)
    reader = opened(log, Wanted(("7",)), None, follow=True)
    file = LogFile(log, LIMIT)
    found: list[str] = []
    for number in range(30_000):
        file.write(b"%d\n" % number)
        if dice.random() < 0.01:
            found += reader.step()
    found += rest(reader)
    assert found == [str(n) for n in range(30_000) if "7" in str(n)]


def test_a_reader_that_two_files_are_ahead_of_goes_on_with_the_older(log: Path) -> None:
    """Again and again; of a file that was only renamed nothing is read once more."""
    log.write_text("one\n")
    reader = opened(log, Wanted(), None, follow=True)
    assert rest(reader) == ["one"]
    for turn in range(3):
        older_part(log).unlink(missing_ok=True)
        older_part(log).write_text(f"older {turn}\n")
        log.unlink()
        log.write_text(f"newest {turn}\n")
        assert rest(reader) == [f"older {turn}", f"newest {turn}"]
        log.rename(older_part(log))
        assert rest(reader) == []
        log.write_text(f"next {turn}\n")
        assert rest(reader) == [f"next {turn}"]


def test_a_log_in_three_parts_is_followed_from_the_end_of_the_newest(log: Path) -> None:
    """Also where somebody has moved it away with its older part; a closed one is at rest."""
    first_part(log).write_text("".join(f"first {n}\n" for n in range(3)))
    older_part(log).write_text("".join(f"older {n}\n" for n in range(90)))
    log.write_text("new 0\nne")
    reader = opened(log, Wanted(), 92, follow=True)
    assert rest(reader) == ["first 2", *(f"older {n}" for n in range(90)), "new 0"]
    for turn in range(2):
        with log.open("a") as file:
            file.write(f"w {turn}\nne")
        assert rest(reader) == [f"new {turn}"]
        with log.open("a") as file:
            file.write("w\n")
        older_part(log).unlink(missing_ok=True)
        log.rename(log.with_name("elsewhere"))
        assert rest(reader) == ["new"]
        log.write_text("ne")
        assert rest(reader) == []
        if turn == 0:
            continue
        reader.close()
        assert (reader.skip(), reader.skip(0)) == (0, 0)
        reader.close()


def test_a_line_without_an_end_is_given_out_in_pieces_and_goes_on(log: Path) -> None:
    log.write_bytes(b"")
    reader = opened(log, Wanted(), None, follow=True)
    shown = []
    for letter in (b"a", b"b"):
        with log.open("ab") as file:
            file.write(letter * (70 << 10))
        shown += rest(reader)
    with log.open("ab") as file:
        file.write(b"end\n")
    assert [line[:3] for line in [*shown, *rest(reader)]] == ["aaa", "bbb", "end"]


def test_of_very_long_lines_as_many_of_the_newest_are_kept_as_there_is_room_for(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks for a thousand lines has not asked for a gigabyte."""
    monkeypatch.setattr(log_reader, "KEPT_BYTES", 1_000)
    monkeypatch.setattr(log_reader, "STEP_BYTES", 400)
    log.write_text("".join(f"{number:03}" + "x" * 96 + "\n" for number in range(100)))
    found = [int(line[:3]) for line in newest(log, 1_000)]
    assert found == [*range(100 - len(found), 100)]
    assert 10 <= len(found) <= 15
