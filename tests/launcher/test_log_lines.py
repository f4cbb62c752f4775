"""The lines of a long log across its parts, while it is written and afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from launcher.show.log_lines import file_lines
from rendezvous.compat import timeout
from worker.program.log_file import LogFile, first_part, older_part

LIMIT = 1 << 20
PADDING = "x" * 1000


async def shown(log: Path, lines: int) -> list[str]:
    return [line async for line in file_lines(log, lines, follow=False)]


def write(file: LogFile, first: int, beyond: int) -> None:
    for number in range(first, beyond):
        file.write(f"{number} {PADDING}\n".encode())


def numbers(lines: list[str]) -> list[int]:
    return [int(line.split()[0]) for line in lines if not line.startswith("rdzv:")]


async def take(lines: AsyncIterator[str], count: int) -> list[str]:
    async with timeout(20):
        return [await anext(lines) for _ in range(count)]


async def test_the_newest_lines_are_shown_also_where_the_file_was_just_begun_anew(
    tmp_path: Path,
) -> None:
    log = tmp_path / "node-0.log"
    file, number = LogFile(log, LIMIT), 0
    while not older_part(log).exists():
        write(file, number, number + 1)
        number += 1
    assert numbers(await shown(log, 5)) == list(range(number - 5, number))
    write(file, number, number + 1)
    assert numbers(await shown(log, 1)) == [number]
    file.close()


async def test_of_the_whole_log_all_that_is_kept_is_shown_with_the_line_at_the_gap(
    tmp_path: Path,
) -> None:
    log = tmp_path / "node-0.log"
    file = LogFile(log, LIMIT)
    write(file, 0, 3_000)
    file.close()
    lines = await shown(log, 100_000)
    [gap] = [place for place, line in enumerate(lines) if line.startswith("rdzv: ")]
    assert numbers(lines[:gap]) == list(range(gap))
    assert numbers(lines[gap:]) == list(range(3_000 - len(lines) + gap + 1, 3_000))


async def test_a_file_that_is_just_begun_anew_is_followed_into_the_new_one(tmp_path: Path) -> None:
    log = tmp_path / "node-0.log"
    older_part(log).write_text("1\n2\n")
    following = file_lines(log, 1, follow=True)
    assert await take(following, 1) == ["2"]
    log.write_text("3\n")
    assert await take(following, 1) == ["3"]
    await following.aclose()  # type: ignore[attr-defined]


async def test_a_line_that_two_parts_share_is_one(tmp_path: Path) -> None:
    log = tmp_path / "node-0.log"
    older_part(log).write_text("1\nha")
    log.write_text("lf\n3\n")
    assert await shown(log, 10) == ["1", "half", "3"]


async def test_who_follows_sees_every_line_once_whatever_becomes_of_the_file(
    tmp_path: Path,
) -> None:
    log = tmp_path / "node-0.log"
    file = LogFile(log, LIMIT)
    write(file, 0, 3)
    following = file_lines(log, 2, follow=True)
    assert numbers(await take(following, 2)) == [1, 2]
    for first in range(3, 4_000, 250):  # less at a time than a file has
        write(file, first, first + 250)
        assert numbers(await take(following, 250)) == list(range(first, first + 250))
    assert first_part(log).exists()
    file.close()
    await following.aclose()  # type: ignore[attr-defined]


async def test_who_follows_too_slowly_is_told_and_sees_the_newest(tmp_path: Path) -> None:
    log = tmp_path / "node-0.log"
    file = LogFile(log, LIMIT)
    write(file, 0, 100)
    following = file_lines(log, 1, follow=True)
    assert numbers(await take(following, 1)) == [99]
    write(file, 100, 3_000)
    file.close()
    lines: list[str] = []
    while not lines or numbers(lines)[-1:] != [2_999]:
        lines += await take(following, 1)
    told = [place for place, line in enumerate(lines) if line.startswith("rdzv: output may be")]
    assert len(told) == 1
    newest = numbers(lines[told[0] :])
    assert newest == list(range(newest[0], 3_000))
    await following.aclose()  # type: ignore[attr-defined]
