"""The index of a log: what of a file is as young as somebody asks for."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from worker.program import log_index
from worker.program.log_file import first_part, older_part
from worker.program.log_index import (
    MARK_BYTES,
    MARK_SECONDS,
    IndexedLog,
    LogTimes,
    has_times,
    index_of,
    line_at,
    offset_at,
    young_from,
)


class Clock:
    """Seconds that are moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "node-3.log"


def test_the_index_leads_to_what_was_written_at_a_time(log: Path) -> None:
    clock = Clock()
    file = IndexedLog(log, 0, clock)
    for _ in range(40):
        file.write(b"x" * (MARK_BYTES // 2 - 1) + b"\n")
        clock.now += 1.0
    file.close()
    assert index_of(log).stat().st_size == 20 * 32
    assert has_times(log)
    assert offset_at(log, 0.0) is None
    for second in range(1, 40):
        place = offset_at(log, 1_000.0 + second)
        assert place is not None
        assert place <= second * MARK_BYTES // 2
        assert place >= (second - 2) * MARK_BYTES // 2
    assert offset_at(log, 1_039.0) == 38 * MARK_BYTES // 2
    assert offset_at(log, 9_999.0) == 40 * MARK_BYTES // 2


def test_who_says_little_has_a_mark_now_and_then_and_silence_is_older(log: Path) -> None:
    clock = Clock()
    file = IndexedLog(log, 0, clock)
    for _ in range(10):
        file.write(b"loss\n")
        clock.now += MARK_SECONDS / 2
    assert index_of(log).stat().st_size == 5 * 32
    assert offset_at(log, clock.now - MARK_SECONDS / 2 - 0.1) == 40
    assert offset_at(log, clock.now) == 50  # nothing was written since
    clock.now += 3_600.0
    file.write(b"late\n")
    file.close()
    assert offset_at(log, clock.now - 600.0) == 50
    assert offset_at(log, clock.now + 1.0) == 50
    assert offset_at(log, clock.now + MARK_SECONDS) == 55


def test_a_place_has_a_time_between_those_of_the_marks_around_it(log: Path) -> None:
    clock = Clock()
    file = IndexedLog(log, 0, clock)
    for seconds in (0.0, 1.0, MARK_SECONDS, 600.0, 0.5):
        clock.now += seconds
        file.write(b"loss\n")
    file.close()
    os.utime(log, (1_703.0, 1_703.0))  # 100 s after the last write: by somebody else
    times = LogTimes(log)
    found = [times.at(offset) for offset in (0, 5, 10, 12, 15, 20, 1_000)]
    first, second, third, within, late, last, beyond = (one or 0.0 for one in found)
    assert (first, third) == (1_000.0, 1_003.0)
    assert 1_000.0 < second < 1_000.0 + MARK_SECONDS
    assert third < within < third + MARK_SECONDS  # and not in the middle of the silence
    assert late == 1_603.0
    assert late < last < late + MARK_SECONDS
    assert beyond >= late
    assert found == sorted(found, key=lambda one: one or 0.0)


def test_of_a_long_index_the_newest_marks_are_read(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.program.log_index._MOST_MARKS", 3)
    clock = Clock()
    file = IndexedLog(log, 0, clock)
    for _ in range(6):
        file.write(b"loss\n")
        clock.now += MARK_SECONDS
    file.close()
    times = LogTimes(log)
    assert [times.at(5 * number) for number in range(5)] == [None, None, None, 1_006.0, 1_008.0]


@pytest.mark.parametrize("damage", [None, b"", b"x" * 64, b"\xff" * 32, b"1" * 31])
def test_without_an_index_no_time_is_known(log: Path, damage: bytes | None) -> None:
    log.write_bytes(b"words\n")
    if damage is not None:
        index_of(log).write_bytes(damage)
    assert LogTimes(log).at(3) is None
    assert LogTimes(log.with_name("none.log")).at(0) is None


def test_a_clock_that_was_set_back_has_a_mark(log: Path) -> None:
    clock = Clock()
    file = IndexedLog(log, 0, clock)
    file.write(b"one\n")
    clock.now -= 2 * MARK_SECONDS
    file.write(b"two\n")
    file.close()
    assert index_of(log).stat().st_size == 2 * 32


@pytest.mark.parametrize("damage", [None, b"", b"x" * 64, b"\xff" * 32, b"1" * 31])
def test_without_an_index_a_file_that_nobody_wrote_since_is_older(
    log: Path, damage: bytes | None
) -> None:
    log.write_bytes(b"words\n")
    os.utime(log, (1_000, 1_000))
    if damage is not None:
        index_of(log).write_bytes(damage)
    assert offset_at(log, 999.0) is None
    assert offset_at(log, 1_001.0) == 6
    assert offset_at(log.with_name("none.log"), 5.0) is None


def test_a_log_without_room_for_its_index_goes_on(log: Path) -> None:
    index_of(log).mkdir()
    file = IndexedLog(log, 0)
    file.write(b"words\n")
    file.close()
    assert log.read_bytes() == b"words\n"


def test_what_is_no_file_has_no_index(tmp_path: Path) -> None:
    link = tmp_path / "node-0.log"
    link.symlink_to("/dev/null")
    file = IndexedLog(link, 0)
    file.write(b"words\n")
    file.close()
    assert not has_times(link)


def test_a_part_takes_its_index_along(log: Path) -> None:
    clock = Clock()
    file = IndexedLog(log, 1 << 20, clock)
    while not first_part(log).exists() or log.stat().st_size < 100_000:
        file.write(b"%d %s\n" % (clock.now, b"x" * 1_000))
        clock.now += 1.0
    file.close()
    parts = (first_part(log), older_part(log), log)
    assert all(has_times(part) for part in parts)
    for part in parts:
        began = float(part.read_bytes().split()[0])
        assert offset_at(part, began) is None
        assert offset_at(part, began + 1.0) == 0
        at = offset_at(part, began + 90.0)
        assert at
        with part.open("rb") as file_there:
            file_there.seek(line_at(file_there, at))
            assert began + 20.0 < float(file_there.readline().split()[0]) <= began + 90.0
    assert offset_at(first_part(log), clock.now) == first_part(log).stat().st_size


def test_a_line_is_shown_from_its_beginning(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log.write_bytes(b"one\ntwo\n" + b"x" * 50)
    with log.open("rb") as file:
        places = [line_at(file, place) for place in (0, 2, 4, 7, 8, 40)]
        assert places == [0, 0, 4, 4, 8, 8]
        monkeypatch.setattr(log_index, "_LONGEST_LINE", 10)
        assert line_at(file, 40) == 40


@pytest.mark.parametrize(("follow", "place"), [(False, 10), (True, 6)])
def test_an_unfinished_line_is_young_to_who_follows_it(log: Path, follow: bool, place: int) -> None:
    """It may go on; who does not follow has nothing to wait for."""
    clock = Clock()
    file = IndexedLog(log, 0, clock)
    file.write(b"whole\nhalf")
    with log.open("rb") as read:
        assert young_from(read, clock.now + 60.0, follow=follow) == place
    file.close()


@given(some.integers(0, 1 << 30), some.floats(0.0, 300.0))
def test_nothing_of_a_time_is_before_the_place_that_the_index_gives(
    tmp_path_factory: pytest.TempPathFactory, seed: int, at: float
) -> None:
    dice, clock = random.Random(seed), Clock()
    log = tmp_path_factory.mktemp("logs") / "rank-0.log"
    file = IndexedLog(log, 0, clock)
    began: list[tuple[float, int]] = []
    size = 0
    for _ in range(12):
        piece = b"x" * dice.randrange(2 * MARK_BYTES)
        began.append((clock.now, size))
        file.write(piece)
        size += len(piece)
        clock.now += dice.random() * dice.choice((10, 100))
    file.close()
    place = offset_at(log, 1_000.0 + at)
    first = next((offset for when, offset in began if when >= 1_000.0 + at), size)
    assert (place or 0) <= first
    kept = [offset for when, offset in began if when >= 1_000.0 + at - MARK_SECONDS]
    if place is not None and at > MARK_SECONDS:
        assert place >= min(kept, default=size) - MARK_BYTES
