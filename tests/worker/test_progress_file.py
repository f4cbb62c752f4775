"""The number that a program keeps in a file, whatever else lies there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from worker.program.progress_file import read_progress


@pytest.mark.parametrize(
    ("text", "step"), [("0", 0), ("400\n", 400), (" 17 ", 17), (f"{(1 << 53) - 1}", (1 << 53) - 1)]
)
def test_a_whole_number_is_read(tmp_path: Path, text: str, step: int) -> None:
    path = tmp_path / "step"
    path.write_text(text)
    files = os.listdir("/proc/self/fd")
    assert read_progress(path) == step
    assert os.listdir("/proc/self/fd") == files  # it is read again and again


@pytest.mark.parametrize(
    "text", ["", "\n", "-1", "+1", "1.0", "1e3", "1 2", "0x10", "\u0661", f"{1 << 53}", "9" * 70]
)
def test_anything_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "step"
    path.write_text(text)
    with pytest.raises(ValueError, match="does not hold a whole number"):
        read_progress(path)


def test_a_number_with_much_behind_it_is_not_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "step"
    path.write_text("1" + " " * 100 + "2")
    with pytest.raises(ValueError, match="does not hold"):
        read_progress(path)


def test_a_file_that_is_not_there_is_no_fault_and_a_folder_or_a_pipe_holds_nobody_up(
    tmp_path: Path,
) -> None:
    assert read_progress(tmp_path / "step") is None
    with pytest.raises(IsADirectoryError):
        read_progress(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="does not hold"):
        read_progress(tmp_path / "pipe")
