"""Following NCCL's log files: what is new, what a former program has left, what is said when."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from rendezvous.wire.reports import ExitReport
from worker.agent.reports import with_trouble
from worker.nccl.log import NcclLog

LOGS = Path(__file__).parent / "nccl"
LOOKS = 20


def kinds(log: NcclLog, looks: int = LOOKS) -> list[str]:
    """What is said in so many looks, in this order."""
    return [verdict.kind for _ in range(looks) for verdict in log.look()]


def follow(folder: Path, name: str = "node-0.%p.log", **how: Any) -> NcclLog:
    return NcclLog(str(folder / name), "IB", **({"required": False} | how))


def says(folder: Path, log: str, process: object = 1) -> Path:
    """A process writes what NCCL once wrote."""
    return Path(shutil.copy(LOGS / f"{log}.log", folder / f"node-0.{process}.log"))


def test_what_is_wrong_is_said_once_and_so_is_what_is_well(tmp_path: Path) -> None:
    log = follow(tmp_path)
    assert kinds(log) == []
    says(tmp_path, "host_memory", 17)
    assert kinds(log) == ["host_memory", "as_expected"]
    says(tmp_path, "host_memory", 18)
    assert kinds(log) == []


def test_a_fall_back_waits_for_the_words_of_all_processes(tmp_path: Path) -> None:
    log = follow(tmp_path)
    for number, name in enumerate(["no_library", "ib", "ib", "ib"]):
        says(tmp_path, name, number)
        assert log.look() == []
    said = [verdict for _ in range(LOOKS) for verdict in log.look()]
    assert [one.kind for one in said] == ["fallback"]
    assert "in 1 of 4 processes" in said[0].words


def test_a_fall_back_is_said_also_when_the_log_is_never_quiet(tmp_path: Path) -> None:
    log = follow(tmp_path)
    path = says(tmp_path, "no_library")
    said: list[str] = []
    for number in range(LOOKS):
        with path.open("a") as file:
            file.write(f"n1:1:1 [0] NCCL TRACE {number}\n")
        said += kinds(log, 1)
    assert said == ["fallback"]


def test_a_line_that_is_written_in_two_pieces_is_one(tmp_path: Path) -> None:
    log = follow(tmp_path, required=True)
    path = says(tmp_path, "no_library")
    text = path.read_bytes()
    path.write_bytes(text[: text.index(b"network Socket")])
    assert log.look() == []
    path.write_bytes(text)
    assert [(one.kind, one.level) for one in log.look()] == [("fallback", "fail")]  # at once


def test_what_a_former_program_has_left_does_not_count_until_it_is_written_anew(
    tmp_path: Path,
) -> None:
    path = says(tmp_path, "no_library")
    os.utime(path, ns=(1, 1))
    log = follow(tmp_path)
    assert kinds(log) == []
    path.write_bytes((LOGS / "ib.log").read_bytes())
    assert kinds(log) == ["as_expected"]


def test_a_file_that_another_process_begins_anew_is_read_from_its_start(tmp_path: Path) -> None:
    log = follow(tmp_path, required=True)
    says(tmp_path, "ib")
    log.look()
    says(tmp_path, "disabled")
    assert kinds(log, 1) == ["fallback"]


def test_only_this_hosts_files_are_read_where_the_name_has_the_host(tmp_path: Path) -> None:
    log = follow(tmp_path, required=True, name="100%%[1].%h.%p.log")
    host = socket.gethostname().partition(".")[0]
    for name, said in (("elsewhere", []), (host, ["fallback"])):
        shutil.copy(LOGS / "no_library.log", tmp_path / f"100%[1].{name}.1.log")
        assert kinds(log, 1) == said


def test_files_that_cannot_be_read_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "node-0.0.log").symlink_to(tmp_path / "none")
    log = follow(tmp_path, required=True)
    (tmp_path / "node-0.1.log").mkdir()
    (tmp_path / "node-0.2.log").symlink_to(tmp_path / "none")
    path = says(tmp_path, "ib", 3)
    assert kinds(log) == ["as_expected"]
    path.unlink()
    assert kinds(log) == []


def test_of_an_endless_log_only_the_beginning_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.nccl.log._MOST_OF_A_FILE", 4_096)
    monkeypatch.setattr("worker.nccl.log._MOST_AT_ONCE", 1_024)
    log = follow(tmp_path, required=True)
    path = says(tmp_path, "no_library")
    path.write_bytes(b"x" * 8_192 + b"\n" + path.read_bytes())
    assert kinds(log) == []


def test_a_program_that_failed_is_reported_with_what_kept_it_from_its_network(
    tmp_path: Path,
) -> None:
    log = follow(tmp_path)
    assert log.trouble() == ""
    says(tmp_path, "not_found")
    report = ExitReport(epoch=1, exit_code=1, message="rank 3 ended with exit code 1")
    told = with_trouble(report, log.trouble())
    assert told.message.startswith(
        "rank 3 ended with exit code 1; NCCL cannot use IB, and may use no other network: "
        "libibverbs cannot be loaded; "
    )
    assert with_trouble(report, "") == report
    silent = report.model_copy(update={"message": ""})
    assert with_trouble(silent, "why").message == "why"


async def test_verdicts_come_as_long_as_they_are_asked_for(tmp_path: Path) -> None:
    log = follow(tmp_path, look_seconds=0.0)
    says(tmp_path, "ib")
    async for verdict in log.verdicts():
        assert verdict.kind == "as_expected"
        break
