"""A log that may grow up to a limit: what is kept, what is counted, and that it is never more."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from worker.program.log_file import LogFile, first_part, log_name, older_part, read_log_name

LIMIT = 1 << 20
HEAD = LIMIT // 4
LINE = re.compile(rb"rdzv: (\d+) bytes of output are omitted here \(--log-limit\) *\n")
BAR = [b"\r%7d" % number * 200 for number in range(3_000)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "node-0.log"


def kept(log: Path) -> bytes:
    """What there is of the log, in its order."""
    found = (first_part(log), older_part(log), log)
    return b"".join(path.read_bytes() for path in found if path.exists())


def size(log: Path) -> int:
    return sum(path.stat().st_size for path in log.parent.iterdir())


def lines(count: int, seed: int = 0) -> list[bytes]:
    """Pieces of output of any length, each line with its number."""
    dice = random.Random(seed)
    return [b"%d %s\n" % (number, b"x" * dice.randrange(2000)) for number in range(count)]


def written(log: Path, pieces: list[bytes], limit: int = LIMIT) -> bytes:
    """Write pieces; the log is never above its limit. Returns all that was written."""
    file = LogFile(log, limit)
    for piece in pieces:
        file.write(piece)
        assert size(log) <= limit or not limit
    file.close()
    return b"".join(pieces)


@pytest.mark.parametrize(("count", "limit"), [(700, LIMIT), (1_500, 0)])
def test_up_to_the_limit_or_without_one_a_log_is_whole(log: Path, count: int, limit: int) -> None:
    text = written(log, lines(count), limit)
    assert kept(log) == text
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in log.parent.iterdir())
    assert (len(list(log.parent.iterdir())) == 1) == (not limit)


@pytest.mark.parametrize(
    "pieces", [lines(1_000), lines(2_500), BAR], ids=["a little", "much", "a bar without an end"]
)
def test_of_more_the_first_and_the_newest_are_kept_and_the_rest_is_counted(
    log: Path, pieces: list[bytes]
) -> None:
    text = written(log, pieces)
    found = kept(log)
    [line] = LINE.finditer(found)
    head, newest = found[: line.start()], found[line.end() :]
    if pieces is BAR:
        head = head.removesuffix(b"\n")
    else:
        assert newest[: newest.index(b" ")].isdigit()  # it begins with a whole line
    assert text.startswith(head)
    assert text.endswith(newest)
    assert HEAD - 2100 < len(head) <= HEAD
    assert len(newest) >= (LIMIT - HEAD) // 2 - 2100
    assert int(line.group(1)) == len(text) - len(head) - len(newest)


def test_a_log_is_gone_on_with_and_each_program_has_its_own_count(log: Path) -> None:
    texts = [written(log, lines(1_500, seed)) for seed in (1, 2)]
    found = kept(log)
    counts = list(LINE.finditer(found))
    assert len(counts) == 2
    left_out = sum(int(line.group(1)) for line in counts)
    assert left_out + len(LINE.sub(b"", found)) == sum(map(len, texts))
    assert texts[1].endswith(found[counts[-1].end() :])


def test_a_log_that_an_older_rdzv_has_left_too_long_is_cut(log: Path) -> None:
    text = written(log, lines(2_000), limit=0)
    written(log, [b"new\n"])
    found = kept(log)
    assert size(log) <= LIMIT
    [line] = LINE.finditer(found)
    assert found[line.end() :] == b"new\n"
    assert int(line.group(1)) == len(text) - line.start()


def test_a_reader_of_what_fell_out_holds_no_space(log: Path) -> None:
    written(log, lines(1_500))
    with older_part(log).open("rb") as reader:
        written(log, lines(1_500))
        assert os.fstat(reader.fileno()).st_size == 0


def test_parts_that_somebody_removes_are_begun_again(log: Path) -> None:
    file = LogFile(log, LIMIT)
    for number, piece in enumerate(lines(3_000)):
        file.write(piece)
        if number % 1_000 == 0:
            for path in log.parent.iterdir():
                path.unlink()
    file.close()
    assert log.read_bytes().endswith(piece)
    assert size(log) <= LIMIT


def test_the_count_stands_behind_each_beginning_also_once_the_former_was_removed(log: Path) -> None:
    file, lengths = LogFile(log, LIMIT), set[int]()
    for seed in (1, 2, 3):
        for piece in lines(2_500, seed):
            file.write(piece)
        first = first_part(log).read_bytes()
        found = [*LINE.finditer(first)]
        assert [line.end() for line in found] == [len(first)]
        lengths.add(len(first))
        for path in log.parent.iterdir():
            path.unlink()
    file.close()
    assert len(lengths) > 1


def test_a_log_is_named_by_its_node_and_by_its_epoch_where_it_is_not_the_first() -> None:
    assert (log_name(2), log_name(12, 3)) == ("node-2.log", "node-12.e3.log")
    assert [read_log_name(log_name(*which)) for which in ((2, 0), (12, 3))] == [(2, 0), (12, 3)]
    for name in ("node-2.log.1", "node-x.log", "node-2.e0.log", "node-2.e.log", "agent-2.log"):
        assert read_log_name(name) is None
