"""Reads of the kernel's small files, which never raise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.fake_sysfs import refuse
from worker.machine import sysfs


def test_a_file_is_one_printable_line(tmp_path: Path) -> None:
    (tmp_path / "fw_ver").write_bytes(b"28.39\x00.1\xff\n")
    assert sysfs.text(tmp_path / "fw_ver") == "28.39?.1�"


def test_a_long_file_is_cut(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("x" * 1000)
    assert sysfs.text(tmp_path / "long") == "x" * 252 + "…"


@pytest.mark.parametrize(
    ("words", "value"),
    [("16\n", 16), ("-1", -1), ("0x1f\n", 31), ("0X1F", 31), ("", 7), ("0x", 7), ("N/A", 7)],
)
def test_a_number_is_decimal_or_hexadecimal(tmp_path: Path, words: str, value: int) -> None:
    (tmp_path / "lid").write_text(words)
    assert sysfs.number(tmp_path / "lid", 7) == value


def test_a_directory_is_read_in_natural_order(tmp_path: Path) -> None:
    for name in ("mlx5_10", "mlx5_9", "mlx5_0"):
        (tmp_path / name).mkdir()
    assert [path.name for path in sysfs.entries(tmp_path)] == ["mlx5_0", "mlx5_9", "mlx5_10"]


def test_what_a_link_leads_to_is_named_although_it_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "master").symlink_to("../../bond0")
    assert sysfs.link_name(tmp_path / "master") == "bond0"
    assert not sysfs.exists(tmp_path / "master")


@pytest.mark.parametrize("make", [refuse, lambda path: None], ids=["refused", "missing"])
def test_what_cannot_be_read_is_as_if_it_were_not_there(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    path = tmp_path / "state"
    make(path)
    assert (sysfs.entries(path), sysfs.text(path), sysfs.number(path, 7)) == ([], "", 7)
    assert not sysfs.exists(path)
    assert not sysfs.exists(path / "below")
    assert sysfs.link_name(path / "below") is None
