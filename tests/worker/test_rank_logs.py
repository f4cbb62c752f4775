"""The log of each rank: what is kept of it, beside what the node's log has, and its index."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.worker.programs.started import Recording
from worker.program.log_file import first_part, older_part, read_log_name
from worker.program.output import LAUNCHER
from worker.program.rank_logs import (
    RankLog,
    RankLogs,
    RankPlace,
    rank_log_name,
)

LIMIT = 1 << 20


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "rank-3.log"


def logs(folder: Path, **more: int | str) -> tuple[RankLogs, Recording]:
    """Those of a node whose first rank is 2, and what is passed on."""
    behind = Recording()
    return RankLogs(behind, RankPlace(folder, 2, **more)), behind  # type: ignore[arg-type]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.log")}


def test_each_rank_has_a_file_by_its_global_number_and_all_is_passed_on(tmp_path: Path) -> None:
    kept, behind = logs(tmp_path)
    kept.write("stdout", b"loss 3\n", 1)
    kept.write("stderr", b"oh\n", 1)
    kept.write("stdout", b"torchrun says\n")
    kept.write("stdout", b"loss 2\n", 0)
    kept.close()
    assert files(tmp_path) == {"rank-2.log": b"loss 2\n", "rank-3.log": b"loss 3\noh\n"}
    assert behind.of("stdout") == b"loss 3\ntorchrun says\nloss 2\n"
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())


def test_the_launcher_has_a_file_by_the_number_of_its_node(tmp_path: Path) -> None:
    for epoch in (0, 4):
        kept, behind = logs(tmp_path, node=7, epoch=epoch)
        kept.write("stdout", b"loss 2\n", 0)
        kept.write("stderr", b"W0101 banner\n", LAUNCHER)
        kept.close()
        assert behind.of("stderr") == b"W0101 banner\n"
    assert {name: text for name, text in files(tmp_path).items() if "launcher" in name} == {
        "launcher-7.log": b"W0101 banner\n",
        "launcher-7.e4.log": b"W0101 banner\n",
    }
    assert read_log_name("launcher-7.e4.log", "launcher") == (7, 4)
    assert read_log_name("rank-7.log", "launcher") is None
    assert read_log_name("launcher-7.log", "rank") is None


def test_who_says_nothing_has_no_file(tmp_path: Path) -> None:
    kept, _ = logs(tmp_path)
    kept.write("stdout", b"words\n")
    kept.idle()
    kept.close()
    assert list(tmp_path.iterdir()) == []


def test_another_launch_and_another_epoch(tmp_path: Path) -> None:
    for words in (b"one", b"two\n"):
        kept, _ = logs(tmp_path, divider="--- next")
        kept.write("stdout", words, 0)
        kept.close()
    kept, _ = logs(tmp_path, epoch=4, divider="--- next")
    kept.write("stdout", b"again\n", 0)
    kept.close()
    assert files(tmp_path) == {
        "rank-2.log": b"one\n--- next\ntwo\n",
        "rank-2.e4.log": b"again\n",
    }


def test_the_names() -> None:
    for rank, epoch in ((0, 0), (37, 0), (1_048_575, 12)):
        assert read_log_name(rank_log_name(rank, epoch), "rank") == (rank, epoch)
    for name in ("rank-.log", "rank-1.e0.log", "rank-1.log.1", "node-1.log", "rank-01.e1.logs"):
        assert read_log_name(name, "rank") is None


def test_a_full_disk_is_said_once_and_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    kept, behind = logs(tmp_path)
    kept.write("stdout", b"one\n", 0)
    monkeypatch.setattr(RankLog, "_put", full)
    for rank in (1, 0, 1):
        kept.write("stdout", b"two\n", rank)
    kept.close()
    assert [record.getMessage() for record in caplog.records] == [
        f"the log file {tmp_path}/rank-3.log has gaps from here on: No space left on device"
    ]
    assert behind.of("stdout") == b"one\ntwo\ntwo\ntwo\n"


def test_a_log_that_cannot_be_opened_is_not_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept, behind = logs(tmp_path / "missing")
    kept.write("stdout", b"one\n", 0)
    (tmp_path / "missing").mkdir()
    kept.write("stdout", b"two\n", 0)
    kept.close()
    assert len(caplog.records) == 1
    assert behind.of("stdout") == b"one\ntwo\n"
    assert files(tmp_path / "missing") == {}


def test_a_long_log_keeps_its_beginning_and_the_newest(log: Path) -> None:
    file = RankLog(log, LIMIT)
    lines = [b"%07d %s\n" % (number, b"x" * 90) for number in range(40_000)]
    for number in range(0, len(lines), 500):
        file.write(b"".join(lines[number : number + 500]))
        parts = [path for path in log.parent.iterdir() if path.suffix != ".index"]
        assert sum(path.stat().st_size for path in parts) <= LIMIT
    file.close()
    assert first_part(log).read_bytes().startswith(lines[0])
    assert (
        b"bytes of output are omitted here (limit of a rank's log)"
        in (first_part(log).read_bytes()[-100:])
    )
    newest = older_part(log).read_bytes() + log.read_bytes()
    assert newest == b"".join(lines)[-len(newest) :]
    assert len(newest) > LIMIT // 3
    assert sorted(path.name for path in log.parent.glob("*.index")) == [
        "rank-3.log.1.index",
        "rank-3.log.first.index",
        "rank-3.log.index",
    ]
