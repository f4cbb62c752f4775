"""The file that appears when a machine will be taken away."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.worker.agent.drive import at_once, virtually
from worker.machine.notice_file import DEFAULT_SECONDS, notice_in, read_notice


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        (" 45.5\n", 45.5),
        ("", DEFAULT_SECONDS),
        ("terminate", DEFAULT_SECONDS),
        ("2026-11-24T10:00:00Z", DEFAULT_SECONDS),
        ("1234567", DEFAULT_SECONDS),
        ("30 s", 30.0),
    ],
)
def test_a_number_in_it_says_how_long_it_is(tmp_path: Path, text: str, seconds: float) -> None:
    (tmp_path / "notice").write_text(text)
    assert read_notice(tmp_path / "notice") == seconds


def test_without_a_file_there_is_no_notice(tmp_path: Path) -> None:
    assert read_notice(tmp_path / "notice") is None
    assert read_notice(tmp_path / "no folder" / "notice") is None


def test_where_nobody_can_tell_there_is_no_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert read_notice(tmp_path / "file" / "notice") is None
    monkeypatch.setattr(Path, "open", Mock(side_effect=OSError(errno.EMFILE, "too many files")))
    assert read_notice(tmp_path / "notice") is None
    assert read_notice(tmp_path / "file") == DEFAULT_SECONDS


def test_what_cannot_be_read_is_a_notice_all_the_same(tmp_path: Path) -> None:
    assert read_notice(tmp_path) == DEFAULT_SECONDS


Look = Callable[[], Awaitable[object]]


def found(path: Path, *before: Look) -> tuple[float, float]:
    """The notice that is found where this happens before each look, and when."""
    coming = iter(before)

    async def look(work: object, path: Path) -> float | None:
        await next(coming)()
        seconds: float | None = await at_once(work, path)
        return seconds

    async def both() -> tuple[float, float]:
        return await notice_in(path, look), asyncio.get_running_loop().time()

    return virtually(both())


async def nothing() -> None:
    """Happens."""


async def hang() -> None:
    await asyncio.sleep(1e9)


def test_it_is_waited_for_and_for_what_is_written_into_it(tmp_path: Path) -> None:
    path = tmp_path / "notice"

    async def begin() -> None:
        path.touch()

    async def write() -> None:
        path.write_text("60")

    async def remove() -> None:
        path.unlink()

    assert found(path, nothing, nothing, begin, write) == (60.0, 2.1)
    assert found(path, nothing, nothing) == (60.0, 0.1)
    assert found(path, nothing, remove) == (60.0, 0.1)
    assert found(path, begin, hang) == (DEFAULT_SECONDS, 1.1)
