"""A log that may grow up to a limit: what is kept, what is counted, and that it is never more."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from worker.program.log_file import LogFile, first_part, older_part

LIMIT = 1 << 20
HEAD = LIMIT // 4
LINE = re.compile(rb"rdzv: (\d+) bytes of output are left out here \(--log-limit\) *\n")


def parts(log: Path) -> list[bytes]:
    """What there is of the log, in its order."""
    found = (first_part(log), older_part(log), log)
    return [path.read_bytes() for path in found if path.exists()]


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


def test_up_to_the_limit_a_log_is_whole(tmp_path: Path) -> None:
    log = tmp_path / "node-0.log"
    text = written(log, lines(700))
    assert HEAD < len(text) < LIMIT - HEAD
    assert b"".join(parts(log)) == text
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())


@pytest.mark.parametrize("count", [1_000, 2_000, 5_000])
def test_of_more_the_first_and_the_newest_are_kept_and_the_rest_is_counted(
    tmp_path: Path, count: int
) -> None:
    log = tmp_path / "node-0.log"
    text = written(log, lines(count))
    kept = b"".join(parts(log))
    [line] = LINE.finditer(kept)
    head, newest = kept[: line.start()], kept[line.end() :]
    assert text.startswith(head)
    assert HEAD - 2100 < len(head) <= HEAD
    assert text.endswith(newest)
    assert newest[: newest.index(b" ")].isdigit()  # it begins with a whole line
    assert len(newest) >= (LIMIT - HEAD) // 2 - 2100
    assert int(line.group(1)) == len(text) - len(head) - len(newest)


def test_without_a_limit_there_is_one_file(tmp_path: Path) -> None:
    log = tmp_path / "node-0.log"
    text = written(log, lines(2_000), limit=0)
    assert [path.name for path in tmp_path.iterdir()] == ["node-0.log"]
    assert log.read_bytes() == text


def test_a_progress_bar_that_never_ends_a_line_is_kept_within_the_limit(tmp_path: Path) -> None:
    log = tmp_path / "node-0.log"
    text = written(log, [b"\r%7d" % number * 200 for number in range(3_000)])
    kept = b"".join(parts(log))
    [line] = LINE.finditer(kept)
    head = kept[: line.start()].removesuffix(b"\n")
    newest = kept[line.end() :]
    assert text.startswith(head)
    assert text.endswith(newest)
    assert int(line.group(1)) == len(text) - len(head) - len(newest)


def test_a_log_is_gone_on_with_and_each_program_has_its_own_count(tmp_path: Path) -> None:
    log = tmp_path / "node-0.log"
    texts = [written(log, lines(2_000, seed)) for seed in (1, 2)]
    kept = b"".join(parts(log))
    found = list(LINE.finditer(kept))
    newest = kept[found[-1].end() :]
    assert len(found) == 2
    assert sum(int(line.group(1)) for line in found) + len(kept) - sum(
        len(line.group()) for line in found
    ) == sum(map(len, texts))
    assert texts[1].endswith(newest)


def test_a_log_that_an_older_rdzv_has_left_too_long_is_cut(tmp_path: Path) -> None:
    log = tmp_path / "node-0.log"
    text = written(log, lines(5_000), limit=0)
    file = LogFile(log, LIMIT)
    file.write(b"new\n")
    file.close()
    assert size(log) <= LIMIT
    first, last = parts(log)
    assert last == b"new\n"
    [line] = LINE.finditer(first)
    assert int(line.group(1)) == len(text) - line.start()


def test_a_reader_of_what_fell_out_holds_no_space(tmp_path: Path) -> None:
    log = tmp_path / "node-0.log"
    written(log, lines(1_500))
    with older_part(log).open("rb") as reader:
        written(log, lines(1_500))
        assert os.fstat(reader.fileno()).st_size == 0


def test_parts_that_somebody_removes_are_begun_again(tmp_path: Path) -> None:
    log = tmp_path / "node-0.log"
    file = LogFile(log, LIMIT)
    for number, piece in enumerate(lines(6_000)):
        file.write(piece)
        if number % 1_000 == 0:
            for path in tmp_path.iterdir():
                path.unlink()
    file.close()
    assert parts(log)[-1].endswith(piece)
    assert size(log) <= LIMIT
