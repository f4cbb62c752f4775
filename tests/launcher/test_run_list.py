"""`rdzv status` without a run: what is told of each, and the table at every width."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.show.former import former_lines, launched_before
from launcher.show.run_list import Row, cut, duration, row_of, table_lines
from launcher.state.state_dir import StateDir
from rendezvous.wire.run import Result, RunReport
from tests.launcher.command import NOWHERE, rdzv, record_of

REASON = "node 1 (gpu-17) failed: rank 9 ended with exit code 3"
BEGAN = 1_790_000_000.0


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def failed(**changes: Any) -> Row:
    """A run of a python program that failed."""
    command = ("torchrun", "train.py", "--name", "한국어")
    row = Row("llama", "failed", 3, "program", "4", BEGAN, 83.0, command, REASON)
    return replace(row, **changes)


ROWS = [failed(), failed(run="a-long-name", state="ok", exit_code=0, command=("x" * 60,))]


def test_a_signal_stays_with_what_is_said_of_it() -> None:
    reason = (
        "node 1 (h) failed: rank 9 ended with exit code 137 (signal 9, SIGKILL); rdzv did not send "
        "this signal"
    )
    (_, row) = table_lines([failed(reason=reason, exit_code=137)], None)
    assert row.endswith("rank 9 (node 1): signal 9, SIGKILL; rdzv did not send this signal")


def test_a_terminals_lines_are_as_wide_as_it_is_and_a_reason_without_room_is_below() -> None:
    head, first, second = table_lines(ROWS, 134)
    assert head.endswith("REASON")
    assert (len(first) + len("한국어"), first[-1]) == (134, "…")
    assert second.endswith(f"  {'x' * 39}…")
    head, first, below, second = table_lines(ROWS, 70)
    assert head.endswith("COMMAND")
    assert below == f"    {REASON}"
    assert second.startswith("a-long-name  ok ")
    assert first == "llama        failed (3)  4      2026-09-21 14:13  1 min 23 s  torchru…"
    assert {len(line) for line in table_lines(ROWS, 20)} == {20}


@pytest.mark.parametrize(
    ("text", "width", "kept"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("한국어", 5, "한국…"),
        ("한국어", 4, "한…"),
        ("한", 1, "…"),
    ],
)
def test_a_text_is_cut_in_cells_of_a_terminal(text: str, width: int, kept: str) -> None:
    assert cut(text, width) == kept


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (60.0, "1 min 0 s"),
        (3_599.0, "59 min 59 s"),
        (18_720.0, "5 h 12 min"),
        (86_400.0 + 3_600.0, "1 d 1 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def made(
    root: Path, run: str, began: float, result: Result | None = None, **changes: Any
) -> StateDir:
    """The folder of a run."""
    state = StateDir(root, run)
    state.acquire()
    more: dict[str, Any] = {"nodes": "2:4", "options": {"command": ["train.py", "a b"]}}
    more |= changes
    record = record_of(NOWHERE, started_at=began, **more).model_copy(update={"run": run})
    state.write_record(record)
    state.secret()
    if result is not None:
        state.write_result(result)
    state.release()
    return state


OVER = Result(status="failed", exit_code=82, message="no torchrun", code="arming_failed")


async def test_what_is_on_disk_says_how_a_run_ended(tmp_path: Path) -> None:
    began = time.time() - 5
    state = made(tmp_path, "over", began, OVER)
    row = await row_of(state, state.record())
    assert (row.state, row.exit_code, row.exit_code_of) == ("failed", 82, "rdzv")
    assert (row.nodes, row.command, row.reason) == ("2:4", ["train.py", "a b"], "no torchrun")
    assert row.took_seconds is not None
    assert 5 <= row.took_seconds < 60
    killed = made(tmp_path, "killed", began)
    row = await row_of(killed, killed.record())
    assert (row.state, row.exit_code, row.took_seconds) == ("killed", None, None)


async def test_of_a_run_that_lives_and_does_not_answer_the_result_counts_if_there_is_one(
    tmp_path: Path,
) -> None:
    for run, result, says in (("a", None, "silent"), ("b", OVER, "failed")):
        state = made(tmp_path, run, BEGAN, result)
        state.acquire()
        assert (await row_of(state, state.record())).state == says
        (state.path / "secret").unlink()
        assert (await row_of(state, state.record())).state == "starting"
        state.release()


def test_the_newest_are_listed_first_and_how_many_more_there_are(tmp_path: Path) -> None:
    for number in range(23):
        made(tmp_path, f"r{number:02}", BEGAN + number, OVER)
    listed = rdzv("status", state=tmp_path)
    names = [line.split()[0] for line in listed.stdout.splitlines()[1:]]
    assert names == [f"r{number:02}" for number in range(22, 2, -1)]
    assert listed.stderr == "and 3 more: rdzv status --all\n"
    assert len(rdzv("status", "--all", state=tmp_path).stdout.splitlines()) == 24
    runs = json.loads(rdzv("status", "--json", state=tmp_path).stdout)
    assert [len(runs), runs[0]["run"], runs[0]["command"]] == [23, "r22", ["train.py", "a b"]]


def test_one_run_is_told_as_json(tmp_path: Path) -> None:
    made(tmp_path, "over", BEGAN, OVER)
    told = json.loads(rdzv("status", "over", "--json", state=tmp_path).stdout)
    assert (told["nodes"], told["code"], told["exit_code_of"]) == ("2:4", "arming_failed", "rdzv")


def launched_again(root: Path) -> StateDir:
    """A run that failed, was killed, and ended well; another one began between its launches."""
    state = StateDir(root, "again")
    for number, result in enumerate((OVER, None, Result(status="ok", exit_code=0, message="m"))):
        if number:
            state.forget_launch()
        record = record_of(NOWHERE, started_at=BEGAN + 100 * number, nodes="2")
        values = {"run": "again", "launch_id": f"launch-{number}"}
        state.write_record(record.model_copy(update=values))
        state.secret()
        if result is not None:
            state.write_result(result)
    made(root, "other", BEGAN + 50, OVER)
    return state


def test_a_run_that_was_launched_again_is_listed_with_its_former_launches(tmp_path: Path) -> None:
    launched_again(tmp_path)
    listed = rdzv("status", state=tmp_path).stdout.splitlines()[1:]
    shown = [line.split()[:2] for line in listed]
    assert shown == [["again", "ok"], ["again", "killed"], ["other", "failed"], ["again", "failed"]]
    runs = json.loads(rdzv("status", "--json", state=tmp_path).stdout)
    assert [run["former"] for run in runs] == [False, True, False, True]


def test_below_a_run_its_former_launches_are_told_and_where_their_logs_are(tmp_path: Path) -> None:
    state = launched_again(tmp_path)
    *_, killed, failed = rdzv("status", "again", state=tmp_path).stdout.splitlines()
    assert killed == "before   killed, 2026-09-21 14:15: its launcher was killed"
    assert failed.startswith("before   failed (82), 2026-09-21 14:13, took ")
    assert failed.endswith(": no torchrun")
    told = json.loads(rdzv("status", "again", "--json", state=tmp_path).stdout)
    assert [one["state"] for one in told["former_launches"]] == ["killed", "failed"]
    state.former_logs.mkdir()
    *_, newest, logs, older = rdzv("status", "again", state=tmp_path).stdout.splitlines()
    assert (newest, older) == (killed, failed)
    assert logs == f"         its logs: {state.former_logs}"


def test_of_many_former_launches_three_are_told_and_where_the_others_are(tmp_path: Path) -> None:
    state = launched_again(tmp_path)
    for number in range(3, 6):
        state.forget_launch()
        record = record_of(NOWHERE).model_copy(update={"launch_id": f"launch-{number}"})
        state.write_record(record)
    lines = former_lines(state)
    assert len(lines) == 4
    assert lines[-1] == "         and 2 more: rdzv status --all"


def test_a_launch_says_how_the_one_whose_place_it_takes_ended(tmp_path: Path) -> None:
    state = made(tmp_path, "r", BEGAN)
    assert launched_before(state) == ""
    ends = {"failed": "failed (exit code 9)", "ok": "ended ok", "cancelled": "was cancelled"}
    for status, words in ends.items():
        end = Result.model_validate({"status": status, "exit_code": 9, "message": "m"})
        state.write_result(end)
        assert launched_before(state) == (
            f"rdzv: run 'r' was launched before, and {words}: rdzv status r"
        )


def test_all_views_of_a_run_that_were_asked_for_are_shown(tmp_path: Path) -> None:
    made(tmp_path, "r", BEGAN, OVER)
    views = ("status", "r", "--epochs", "--checks")
    StateDir(tmp_path, "r").write("report.json", RunReport(run="r").model_dump_json().encode())
    shown = rdzv(*views, state=tmp_path)
    alone = [rdzv("status", "r", view, state=tmp_path).stdout for view in ("--checks", "--epochs")]
    assert alone[1] == "failed: no torchrun\n"
    assert (shown.stdout, shown.stderr) == ("\n".join(alone), "")
    refused = rdzv(*views, "--json", state=tmp_path)
    assert refused.stderr == (
        "rdzv: --json prints one JSON document, and --checks and --epochs ask for 2\n"
        "      ask for one at a time: rdzv status r --checks --json\n"
    )
    unnamed = rdzv("status", "--epochs", "--checks", state=tmp_path).stderr
    assert unnamed == (
        "rdzv: --checks and --epochs need a RUN\n      rdzv status RUN --checks --epochs\n"
    )


def test_a_benchmark_is_called_one(tmp_path: Path) -> None:
    command = ["--size", "4096", "--size", "1048576", "--size", "77", "--slow-below", "0.5"]
    options = {"framework": "bench", "command": command}
    made(tmp_path, "b", BEGAN, OVER, options=options)
    assert "  rdzv bench --nnodes 2:4 --sizes 4K,1M,77" in rdzv("status", state=tmp_path).stdout
    shown = rdzv("status", "b", state=tmp_path).stdout
    assert "command  rdzv bench --nnodes 2:4 --sizes 4K,1M,77\n" in shown
    assert "\nrdzv: bench run 'b' failed: no torchrun" in shown
