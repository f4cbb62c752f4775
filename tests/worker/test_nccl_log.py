"""Following NCCL's log files: what is new, what a former program has left, what is said when."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

from rendezvous.wire.reports import ExitReport
from worker.agent.reports import with_trouble
from worker.nccl.log import NcclLog

LOGS = Path(__file__).parent / "nccl"
LOOKS = 20


def kinds(log: NcclLog, looks: int = LOOKS) -> list[str]:
    """What is said in so many looks, in this order."""
    return [verdict.kind for _ in range(looks) for verdict in log.look()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def follow(folder: Path, *, required: bool = False, name: str = "node-0.%p.log") -> NcclLog:
    return NcclLog(str(folder / name), "IB", required=required)


def test_what_is_wrong_is_said_once_and_so_is_what_is_well(folder: Path) -> None:
    log = follow(folder)
    assert kinds(log) == []
    shutil.copy(LOGS / "host_memory.log", folder / "node-0.17.log")
    assert kinds(log) == ["host_memory", "as_expected"]
    shutil.copy(LOGS / "host_memory.log", folder / "node-0.18.log")
    assert kinds(log) == []


def test_a_fall_back_waits_for_the_words_of_all_processes(folder: Path) -> None:
    log = follow(folder)
    shutil.copy(LOGS / "no_library.log", folder / "node-0.1.log")
    assert log.look() == []
    for number in (2, 3, 4):
        shutil.copy(LOGS / "ib.log", folder / f"node-0.{number}.log")
        assert log.look() == []
    said = [verdict for _ in range(LOOKS) for verdict in log.look()]
    assert "in 1 of 4 processes" in said[0].words
    assert [one.kind for one in said] == ["fallback"]


def test_a_fall_back_is_said_also_when_the_log_is_never_quiet(folder: Path) -> None:
    log = follow(folder)
    path = folder / "node-0.1.log"
    shutil.copy(LOGS / "no_library.log", path)
    said: list[str] = []
    for number in range(LOOKS):
        with path.open("a") as file:
            file.write(f"n1:1:1 [0] NCCL TRACE {number}\n")
        said += [verdict.kind for verdict in log.look()]
    assert said == ["fallback"]


def test_what_ends_the_run_is_said_with_its_line(folder: Path) -> None:
    log = follow(folder, required=True)
    shutil.copy(LOGS / "no_library.log", folder / "node-0.1.log")
    assert [(one.kind, one.level) for one in log.look()] == [("fallback", "fail")]


def test_a_line_that_is_written_in_two_pieces_is_one(folder: Path) -> None:
    log = follow(folder, required=True)
    text = (LOGS / "no_library.log").read_bytes()
    cut = text.index(b"network Socket")
    path = folder / "node-0.1.log"
    path.write_bytes(text[:cut])
    assert log.look() == []
    with path.open("ab") as file:
        file.write(text[cut:])
    assert [one.kind for one in log.look()] == ["fallback"]


def test_what_a_former_program_has_left_does_not_count_until_it_is_written_anew(
    folder: Path,
) -> None:
    path = folder / "node-0.1.log"
    shutil.copy(LOGS / "no_library.log", path)
    os.utime(path, ns=(1, 1))
    log = follow(folder)
    assert kinds(log) == []
    path.write_bytes((LOGS / "ib.log").read_bytes())
    assert kinds(log) == ["as_expected"]


def test_a_file_that_another_process_begins_anew_is_read_from_its_start(folder: Path) -> None:
    log = follow(folder, required=True)
    path = folder / "node-0.1.log"
    shutil.copy(LOGS / "ib.log", path)
    log.look()
    path.write_bytes((LOGS / "disabled.log").read_bytes())
    assert [one.kind for one in log.look()] == ["fallback"]


def test_only_this_hosts_files_are_read_where_the_name_has_the_host(folder: Path) -> None:
    log = follow(folder, required=True, name="100%%[1].%h.%p.log")
    shutil.copy(LOGS / "no_library.log", folder / "100%[1].elsewhere.1.log")
    assert log.look() == []
    host = socket.gethostname().partition(".")[0]
    shutil.copy(LOGS / "no_library.log", folder / f"100%[1].{host}.1.log")
    assert [one.kind for one in log.look()] == ["fallback"]


def test_files_that_cannot_be_read_say_nothing(folder: Path) -> None:
    (folder / "node-0.0.log").symlink_to(folder / "none")
    log = follow(folder, required=True)
    (folder / "node-0.1.log").mkdir()
    (folder / "node-0.2.log").symlink_to(folder / "none")
    shutil.copy(LOGS / "ib.log", folder / "node-0.3.log")
    assert kinds(log) == ["as_expected"]
    (folder / "node-0.3.log").unlink()
    assert kinds(log) == []


def test_of_an_endless_log_only_the_beginning_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.nccl.log._MOST_OF_A_FILE", 4_096)
    monkeypatch.setattr("worker.nccl.log._MOST_AT_ONCE", 1_024)
    log = follow(folder, required=True)
    path = folder / "node-0.1.log"
    path.write_bytes(b"x" * 8_192 + b"\n" + (LOGS / "no_library.log").read_bytes())
    assert kinds(log) == []


def test_a_program_that_failed_is_reported_with_what_kept_it_from_its_network(
    folder: Path,
) -> None:
    log = follow(folder)
    assert log.trouble() == ""
    shutil.copy(LOGS / "not_found.log", folder / "node-0.1.log")
    report = ExitReport(epoch=1, exit_code=1, message="rank 3 ended with exit code 1")
    told = with_trouble(report, log.trouble())
    assert told.message.startswith(
        "rank 3 ended with exit code 1; NCCL cannot use IB, and may use no other network: "
        "libibverbs cannot be loaded; "
    )
    assert with_trouble(report, "") == report
    silent = report.model_copy(update={"message": ""})
    assert with_trouble(silent, "why").message == "why"


async def test_verdicts_come_as_long_as_they_are_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.nccl.log.LOOK_SECONDS", 0.0)
    log = follow(folder)
    shutil.copy(LOGS / "ib.log", folder / "node-0.1.log")
    async for verdict in log.verdicts():
        assert verdict.kind == "as_expected"
        break
