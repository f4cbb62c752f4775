"""The file that appears when a machine will be taken away."""

from __future__ import annotations

import errno
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


def test_it_is_waited_for(tmp_path: Path) -> None:
    looks: list[Path] = []

    async def look(work: object, path: Path) -> float | None:
        looks.append(path)
        if len(looks) == 3:
            path.write_text("60")
        found: float | None = await at_once(work, path)
        return found

    assert virtually(notice_in(tmp_path / "notice", look)) == 60.0
    assert len(looks) == 3
