"""`rdzv logs`: from this machine's files and from the scheduler, and what it says where none is."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.plan.plan import WorkerRun
from launcher.show import log_lines
from launcher.show.log_lines import file_lines
from launcher.show.logs import show_logs
from launcher.state.last_words import RankWords
from launcher.state.ledger import LedgerEntry
from launcher.state.state_dir import StateDir
from rendezvous.compat import timeout
from rendezvous.wire.errors import UsageError
from rendezvous.wire.run import Phase, Result, RunStatus
from tests.launcher.test_board import run_status, slot
from worker.program.log_file import LogFile, first_part, older_part
from worker.program.log_index import IndexedLog
from worker.program.wanted import Wanted

PROFILE = """
summary = "logs for tests"
spec = "w.sh"
secret = "spec"
[submit]
argv = ["true"]
id = '(x)'
[describe]
argv = ["true"]
state = '(?P<state>x)'
[states]
[cancel]
argv = ["true"]
[logs]
argv = ["{log}", "<<ID>>", "<<LINES>>"]
follow = ["{log}", "<<ID>>", "<<LINES>>", "follow"]
"""
LOG = """#!/bin/sh
[ "$1" = broken ] && { echo begun; echo no such run >&2; exit 1; }
echo "$2 lines of $1"
[ -n "$3" ] && exec sleep 600
exit 0
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDir:
    """Of a run whose followed logs are looked at often."""
    monkeypatch.setattr("launcher.show.logs._LOOK_AGAIN_SECONDS", 0.02)
    monkeypatch.setattr("launcher.show.log_lines._LOOK_SECONDS", 0.01)
    made = StateDir(tmp_path, "llama")
    made.acquire()
    made.release()
    return made


def sealed(state: StateDir, hostname: str = "") -> None:
    """The nodes have their ranks: slots 0, 2 and 1, with 2, 3 and 1 processes."""
    ranks = [(0, 0, 2), (1, 2, 1), (2, 1, 3)]
    slots = [slot(number, node=rank, nproc_per_node=count) for number, rank, count in ranks]
    slots[2] = slots[2].model_copy(update={"hostname": hostname})
    status = run_status(*slots, phase=Phase.RUNNING)
    state.write("status.json", status.model_dump_json().encode())


def submitted(state: StateDir, number: int, handle: str, *, starter: str = "") -> None:
    """The scheduler has the worker run of a slot."""
    (state.path / "w.sh").write_text("")
    log = state.path / "log.sh"
    log.write_text(LOG)
    log.chmod(0o755)
    profile = state.path / "queue.toml"
    profile.write_text(PROFILE.format(log=log))
    run = WorkerRun(number, 1, f"rdzv-k7f2-{number}-1", {"RDZV_JOIN": "hidden"}, "w.sh")
    entry = LedgerEntry(run, starter or str(profile))
    state.ledger.begin(entry)
    state.ledger.note(replace(entry, handle=handle))


class Following:
    """Logs that are followed, and what was shown of them so far."""

    def __init__(self, state: StateDir, capsys: pytest.CaptureFixture[str]) -> None:
        state.acquire()
        self._state, self._capsys, self.out = state, capsys, ""
        self._task = asyncio.create_task(show(state, follow=True))

    async def until(self, text: str) -> None:
        async with timeout(20):
            while text not in self.out:
                self.out += self._capsys.readouterr().out
                await asyncio.sleep(0.02)

    async def end(self) -> str:
        self._state.release()
        assert await asyncio.wait_for(self._task, 20) == 0
        return self.out + self._capsys.readouterr().out


async def show(state: StateDir, **which: Any) -> int:
    asked = {"node": None, "rank": None, "follow": False, "lines": 2, **which}
    return await show_logs(state, os.environ, **asked)


async def test_files_of_this_machine_come_first_and_then_what_the_scheduler_keeps(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    (state.logs / "node-0.log").write_text("1\n2\n3\n")
    submitted(state, 1, "17")
    submitted(state, 2, "18")
    assert await show(state) == 0
    assert capsys.readouterr().out == (
        f"==> {state.logs}/node-0.log\n2\n3\n"
        "==> rdzv-k7f2-1-1 (slot 1, queue 17)\n2 lines of 17\n"
        "==> rdzv-k7f2-2-1 (slot 2, queue 18)\n2 lines of 18\n"
    )


@pytest.mark.parametrize(
    ("which", "handle"),
    [
        *(({"node": node}, handle) for node, handle in ((1, "18"), (2, "17"))),
        *(({"rank": rank}, handle) for rank, handle in ((2, "18"), (4, "18"), (5, "17"))),
    ],
)
async def test_a_node_elsewhere_is_found_by_its_rank_or_that_of_one_of_its_processes(
    state: StateDir, capsys: pytest.CaptureFixture[str], which: dict[str, int], handle: str
) -> None:
    sealed(state, hostname="gpu-17")
    submitted(state, 1, "17")
    submitted(state, 2, "18")
    assert await show(state, **which) == 0
    host = "slot 2, gpu-17" if handle == "18" else "slot 1"
    assert capsys.readouterr().out.endswith(f"({host}, queue {handle})\n2 lines of {handle}\n")


@pytest.mark.parametrize("which", [{"rank": 4}, {"node": 1}, {}])
async def test_a_log_has_the_name_of_its_host(
    state: StateDir, capsys: pytest.CaptureFixture[str], which: dict[str, int]
) -> None:
    sealed(state, hostname="gpu-17")
    (state.logs / "node-1.log").write_text("1\n")
    assert await show(state, **which) == 0
    assert capsys.readouterr().out == f"==> {state.logs}/node-1.log (gpu-17)\n1\n"


async def test_a_host_that_becomes_known_is_named_from_then_on(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    path = state.logs / "node-1.log"
    path.write_text("1\n")
    following = Following(state, capsys)
    await following.until(f"==> {path}\n1\n")
    sealed(state, hostname="gpu-17")
    for number in itertools.count(2):
        with path.open("a") as file:
            file.write(f"{number}\n")
        await following.until(f"{number}\n")
        if "(gpu-17)" in following.out:
            break
    out = await following.end()
    assert out.count("==> ") == 2
    assert out.endswith(f"==> {path} (gpu-17)\n{number}\n")


async def test_before_there_are_ranks_a_node_is_a_slot(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted(state, 1, "17")
    submitted(state, 2, "18")
    assert await show(state, node=2) == 0
    assert capsys.readouterr().out.startswith("==> rdzv-k7f2-2-1 (slot 2, queue 18)\n")


async def test_a_rank_that_nobody_has_is_refused(state: StateDir) -> None:
    with pytest.raises(UsageError, match="the node with rank 3 of run 'llama' is known once all"):
        await show(state, rank=3)
    sealed(state)
    with pytest.raises(UsageError, match="has the ranks 0 to 5, but not rank 6"):
        await show(state, rank=6)


@pytest.mark.parametrize(
    ("handle", "starter", "says"),
    [
        ("x.sh", "manual", "the scheduler 'manual' keeps no logs of rdzv-k7f2-1-1"),
        ("", "", "rdzv does not know the id of rdzv-k7f2-1-1 at 'queue'"),
    ],
)
async def test_why_a_worker_run_has_no_log_is_said(
    state: StateDir, handle: str, starter: str, says: str
) -> None:
    submitted(state, 1, handle, starter=starter)
    with pytest.raises(UsageError) as caught:
        await show(state, node=1)
    assert caught.value.message.startswith(f"there is no node-1.log in {state.logs}, and")
    assert says in caught.value.message


async def test_what_cannot_be_read_is_said_and_the_rest_is_shown(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted(state, 1, "broken")
    submitted(state, 2, "18")
    assert await show(state) == 1
    shown = capsys.readouterr()
    assert shown.out.endswith("queue 18)\n2 lines of 18\n")
    assert "no such run" in shown.err


async def test_logs_are_followed_while_the_launcher_lives_also_those_that_come_later(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    following = Following(state, capsys)
    await asyncio.sleep(0.05)
    with (state.logs / "node-0.log").open("w", buffering=1) as file:
        file.write("1\n2\n3\nha")
        await following.until("3\n")
        file.write("lf\nlast\n")
        await following.until("last\n")
        submitted(state, 1, "17")
        await following.until("2 lines of 17\n")
    assert await following.end() == (
        f"==> {state.logs}/node-0.log\n3\nhalf\nlast\n"
        "==> rdzv-k7f2-1-1 (slot 1, queue 17)\n2 lines of 17\n"
    )
    (state.logs / "node-0.log").unlink()
    state.ledger.path.unlink()
    with pytest.raises(UsageError, match="there is no"):  # and nothing to follow
        await show(state, follow=True)


async def test_of_a_folder_that_cannot_be_read_it_is_not_said_that_it_has_no_logs(
    state: StateDir,
) -> None:
    state.logs.rmdir()
    state.logs.write_text("a file")
    with pytest.raises(UsageError, match=r"the logs in .*/logs cannot be read: Not a directory"):
        await show(state)


# ---- programs that have started again ------------------------------------------------------------


def written(state: StateDir, *names: str) -> None:
    """Logs with two lines each, written in this order."""
    for number, name in enumerate(names):
        path = state.logs / name
        path.write_text(f"begin {name}\nend {name}\n")
        os.utime(path, (1_000 + number, 1_000 + number))


@pytest.mark.parametrize(
    ("which", "shown"),
    [
        ({}, "node-0.e3.log node-1.e2.log node-2.log node-10.e3.log"),
        ({"epoch": 1}, "node-0.log node-1.log node-2.log"),
        ({"epoch": 2}, "node-0.e2.log node-1.e2.log node-2.log"),
        ({"epoch": 3}, "node-0.e3.log node-2.log node-10.e3.log"),
        ({"node": 0}, "node-0.e3.log"),
        ({"rank": 1, "epoch": 1}, "node-0.log"),
        ({"node": 10, "epoch": 1}, ""),
        ({"epoch": 4}, ""),
    ],
)
async def test_the_newest_epoch_is_shown_and_an_older_one_where_it_is_asked_for(
    state: StateDir, capsys: pytest.CaptureFixture[str], which: dict[str, int], shown: str
) -> None:
    """Also of a node whose first log or whose newest one could not be made."""
    sealed(state)
    status = state.read("status.json", RunStatus)
    assert status is not None
    state.write("status.json", status.model_copy(update={"epoch": 3}).model_dump_json().encode())
    first, second = ("node-0.log", "node-1.log", "node-2.log"), ("node-0.e2.log", "node-1.e2.log")
    written(state, *first, *second, "node-0.e3.log", "node-10.e3.log")
    written(state, "node-x.log", "node-0.e02.log")
    if not shown:
        with pytest.raises(UsageError, match=rf"of epoch {which['epoch']} in ") as caught:
            await show(state, **which)
        assert "node-0.e3.log" in caught.value.hint
        return
    assert await show(state, **which) == 0
    lines = capsys.readouterr().out.splitlines()
    titles = [line.rpartition("/")[2] for line in lines if line.startswith("==> ")]
    assert titles == shown.split()


async def test_what_a_former_launch_left_in_a_folder_of_the_users_is_not_the_newest(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    written(state, "node-0.e2.log", "node-0.log")
    assert await show(state) == 0
    assert capsys.readouterr().out.startswith(f"==> {state.logs}/node-0.log\n")


async def test_a_scheduler_keeps_all_epochs_of_a_node_in_one_log(state: StateDir) -> None:
    submitted(state, 1, "17")
    with pytest.raises(UsageError, match=r"there is no node-\*.log of epoch 1") as caught:
        await show(state, epoch=1)
    assert "what a scheduler keeps of a node has all its epochs" in caught.value.hint


async def test_of_a_failed_run_an_older_epoch_does_not_end_with_the_last_error(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed(state)
    failed(state, log=str(state.logs / "node-0.e2.log"))
    written(state, "node-0.log", "node-1.log", "node-0.e2.log", "node-1.e2.log")
    assert await show(state) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[3:4] + lines[-3:] == [
        f"==> {state.logs}/node-0.e2.log",
        "==> last output of node 0",
        *TAIL,
    ]
    assert await show(state, epoch=1) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "end node-1.log"


async def test_who_follows_sees_the_next_epoch_from_its_first_line(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    (state.logs / "node-0.log").write_text("1\n2\n3\n")
    following = Following(state, capsys)
    await following.until("3\n")
    (state.logs / "node-0.e2.log").write_text("4\n5\n6\n7\n")
    await following.until("7\n")
    first, second = (f"==> {state.logs}/{name}" for name in ("node-0.log", "node-0.e2.log"))
    assert await following.end() == f"{first}\n2\n3\n{second}\n4\n5\n6\n7\n"


# ---- a run that failed, and what rdzv itself has logged ------------------------------------------

TAIL = ["Traceback (most recent call last):", "ValueError: no loss"]


def failed(state: StateDir, **more: Any) -> None:
    """Node 0 ended the run."""
    values: dict[str, Any] = {"status": "failed", "exit_code": 1, "message": "node 0 failed"}
    values |= {"log": str(state.logs / "node-0.log"), "slot": 0, "node": 0, "tail": TAIL}
    state.write_result(Result(**values | more))


async def test_the_log_of_a_failed_run_ends_with_the_error(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed(state)
    failed(state, hostname="gpu-17", rank=3)
    for node in (0, 2, 10):
        (state.logs / f"node-{node}.log").write_text(f"begin {node}\nend {node}\n")
    (state.logs / "registry.log").write_text("what nobody asked for\n")
    assert await show(state) == 0
    shown = capsys.readouterr().out.splitlines()
    titles = [line.rpartition("/")[2] for line in shown if line.startswith("==> ")]
    assert titles[:3] == ["node-2.log", "node-10.log", "node-0.log"]
    assert shown[-3:] == ["==> last output of node 0 (gpu-17), rank 3", *TAIL]
    assert "what nobody asked for" not in shown
    (state.logs / "node-0.log").write_text("\n".join(TAIL))
    assert await show(state) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [f"==> {state.logs}/node-0.log", *TAIL]
    assert await show(state, node=2) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "end 2"


async def test_where_no_program_began_the_agent_of_the_failed_node_has_the_word(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    failed(state, tail=[], log="", slot=1, node=None)
    (state.logs / "node-0.log").write_text("of a former launch\n")
    for name in ("agent-0", "agent-1", "registry"):
        (state.logs / f"{name}.log").write_text(f"said {name}\n")
    assert await show(state) == 0
    shown = capsys.readouterr()
    assert shown.err == "rdzv: no program has printed a line here: node 0 failed\n"
    said = [line for line in shown.out.splitlines() if not line.startswith("==> ")]
    assert said == ["said registry", "said agent-1"]


async def test_what_rdzv_logs_is_shown_where_it_is_asked_for(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=r"there is no node-\*.log"):
        await show(state)
    for name in ("node-0", "agent-0", "agent-1", "registry"):
        (state.logs / f"{name}.log").write_text(f"said {name}\n")
    await show(state, registry=True)
    said = [line[5:] for line in capsys.readouterr().out.splitlines() if line.startswith("said ")]
    assert said == ["registry", "agent-0", "agent-1", "node-0"]
    await show(state)
    assert capsys.readouterr().out == f"==> {state.logs}/node-0.log\nsaid node-0\n"


def sent(state: StateDir, *words: RankWords) -> None:
    """What nodes have sent of their ranks before they left."""
    state.last_words.write(words)


async def test_where_a_nodes_log_is_gone_its_last_words_are_shown(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed(state)
    failed(state, log="/gone/node-1.log", hostname="gpu-17", slot=2, node=1, rank=4)
    sent(state, RankWords(1, 1, 4, "old"))
    sent(state, *(RankWords(2, 1, rank, f"begin {rank}\nend {rank}") for rank in (2, 4)))
    sent(state, RankWords(2, 1, None, "torchrun"))
    folder = state.last_words.path / "epoch-2"
    rank_4 = f"==> {folder}/rank-4.txt\nbegin 4\nend 4\n"
    node = f"==> {folder}/node-1.txt\ntorchrun\n"
    for which, words in (
        ({}, rank_4),
        ({"rank": 4}, rank_4 + node),
        ({"rank": 3}, node),  # it shares its output
        ({"node": 1}, f"==> {folder}/rank-2.txt\nbegin 2\nend 2\n{rank_4}{node}"),
        ({"rank": 4, "epoch": 1}, f"==> {folder.parent}/epoch-1/rank-4.txt\nold\n"),
    ):
        assert await show(state, **which) == 0
        assert capsys.readouterr().out == words
    with pytest.raises(UsageError, match=r"there is no node-0.log"):
        await show(state, rank=1)


async def test_the_log_of_another_node_is_followed_by_the_last_words_of_the_first_cause(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed(state)
    failed(state, log="/gone/node-1.log", hostname="gpu-17", slot=2, node=1, rank=4)
    sent(state, RankWords(1, 1, 4, "begin\nend"))
    (state.logs / "node-0.log").write_text("stopped\n")
    assert await show(state) == 0
    words = f"==> {state.last_words.path}/epoch-1/rank-4.txt\nbegin\nend\n"
    assert capsys.readouterr().out == f"==> {state.logs}/node-0.log\nstopped\n{words}"


async def test_a_log_that_its_scheduler_cannot_give_is_replaced_by_last_words(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed(state)
    submitted(state, 2, "unknown", starter="local")
    sent(state, RankWords(1, 1, 4, "end"))
    await show(state, rank=4)
    assert capsys.readouterr().out.endswith("/rank-4.txt\nend\n")


# ---- the lines of a long log across its parts, while it is written and afterwards ----------------

LIMIT = 1 << 20
PADDING = "x" * 1000


async def lines_of(log: Path, lines: int) -> list[str]:
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
    assert numbers(await lines_of(log, 5)) == list(range(number - 5, number))
    write(file, number, number + 1)
    assert numbers(await lines_of(log, 1)) == [number]
    file.close()


async def test_of_the_whole_log_all_that_is_kept_is_shown_with_the_line_at_the_gap(
    tmp_path: Path,
) -> None:
    log = tmp_path / "node-0.log"
    file = LogFile(log, LIMIT)
    write(file, 0, 3_000)
    file.close()
    lines = await lines_of(log, 100_000)
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


async def test_of_a_progress_bar_the_last_state_is_a_line(tmp_path: Path) -> None:
    """It counts as one, and is wanted for what is shown of it."""
    log = tmp_path / "node-0.log"
    states = "".join(f"\r{state:3d}% of it" for state in range(101))
    log.write_text(f"one\r\n{states}\nlong xxxxxxxx\rdone\n\x1b[31mred\x1b[0m\n")
    shown = ["one", "100% of it", "done", "\x1b[31mred\x1b[0m"]
    assert await lines_of(log, 10) == shown
    assert await lines_of(log, 3) == shown[1:]
    wanted = file_lines(log, 10, follow=False, keep=lambda line: "0%" in line or "x" in line)
    assert [line async for line in wanted] == ["100% of it"]


async def test_who_follows_a_progress_bar_sees_a_state_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "node-0.log"
    log.write_text("begin\n")
    following = file_lines(log, 1, follow=True)
    assert await take(following, 1) == ["begin"]
    with log.open("a") as file:
        file.write("\r  1%\r  2%\r  3%")
        file.flush()
        assert await take(following, 1) == ["  2%"]
        monkeypatch.setattr(log_lines, "_STATE_SECONDS", 0.0)
        file.write("\r 99%\r")
        file.flush()
        assert await take(following, 1) == [" 99%"]
        file.write("\rdone\r\nnext\n")
        file.flush()
        assert await take(following, 2) == ["done", "next"]
    await following.aclose()  # type: ignore[attr-defined]


async def test_a_line_that_two_parts_share_is_one(tmp_path: Path) -> None:
    log = tmp_path / "node-0.log"
    older_part(log).write_text("1\nha")
    log.write_text("lf\n3\n")
    assert await lines_of(log, 10) == ["1", "half", "3"]


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
    while not lines or not lines[-1].startswith("2999 "):
        lines += await take(following, 1)
    told = [place for place, line in enumerate(lines) if line.startswith("rdzv: output may be")]
    assert len(told) == 1
    newest = numbers(lines[told[0] :])
    assert newest == list(range(newest[0], 3_000))
    await following.aclose()  # type: ignore[attr-defined]


# --- of a time --------------------------------------------------------------------------------


def printed(log: Path, *ages: float) -> None:
    """A line of each age in seconds, by the clock of its index."""
    now = time.time()
    at = now
    file = IndexedLog(log, 0, lambda: at)
    for age in ages:
        at = now - age
        file.write(f"{age:.0f} s ago\n".encode())
    file.close()


@pytest.mark.parametrize("name", ["node-0.log", "rank-1.log"])
async def test_only_what_was_printed_since_is_shown(
    state: StateDir, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    sealed(state)
    printed(state.logs / name, 9_000, 900, 500, 5)
    since = time.time() - 600
    assert await show(state, rank=1, since=since, lines=None) == 0
    assert told(capsys.readouterr().out) == [name, "500 s ago", "5 s ago"]
    assert await show(state, rank=1, since=since, lines=1) == 0
    assert told(capsys.readouterr().out) == [name, "5 s ago"]
    wanted = Wanted(("00 s",))
    assert await show(state, rank=1, since=since, wanted=wanted) == 0
    assert told(capsys.readouterr().out) == [name, "500 s ago"]
    assert await show(state, rank=1, since=time.time()) == 0
    assert told(capsys.readouterr().out)[:1] == [name]


async def test_with_a_time_all_its_lines_are_shown(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    printed(state.logs / "node-0.log", *range(700, 0, -1))
    assert await show(state, since=time.time() - 300, lines=None) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()[1:]
    assert 299 <= len(lines) <= 361
    assert lines[-1] == "1 s ago"
    assert shown.err == ""


async def test_who_follows_sees_what_was_printed_since_and_what_comes(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    log = state.logs / "node-0.log"
    printed(log, 900, 500)
    state.acquire()
    task = asyncio.create_task(show(state, follow=True, lines=None, since=time.time() - 600))
    await asyncio.sleep(0.1)
    printed(log, 0)
    await asyncio.sleep(0.1)
    state.release()
    assert await asyncio.wait_for(task, 20) == 0
    assert told(capsys.readouterr().out) == ["node-0.log", "500 s ago", "0 s ago"]


async def test_of_the_older_parts_of_a_log_only_what_is_young_enough_is_read(
    tmp_path: Path,
) -> None:
    log, at = tmp_path / "node-0.log", 1_000.0
    file = IndexedLog(log, LIMIT, lambda: at)
    for number in range(2_000):
        at += 1.0
        file.write(f"{number} {PADDING}\n".encode())
    file.close()
    assert first_part(log).exists()
    for ago in (50, 300):
        found = [n async for n in file_lines(log, 9_999, follow=False, since=at - ago)]
        assert numbers(found) == list(range(2_000 - len(found), 2_000))
        assert ago <= len(found) <= ago + 70


async def test_what_has_no_times_is_named(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted(state, 1, "17")
    (state.logs / "node-0.log").write_text("of an older version\n")
    (state.logs / "node-2.log").write_text("old\n")
    os.utime(state.logs / "node-2.log", (1_000, 1_000))
    assert await show(state, since=time.time() - 60, lines=None) == 0
    shown = capsys.readouterr()
    assert "of an older version\n" in shown.out
    assert "old\n" not in shown.out
    assert "20 lines of 17\n" in shown.out
    assert shown.err == (
        f"rdzv: --since does not apply to {state.logs}/node-0.log, rdzv-k7f2-1-1: without the "
        "times of the lines there, the newest ones are shown\n"
    )


# --- of ranks ---------------------------------------------------------------------------------


def told(text: str) -> list[str]:
    return [line.replace("==> ", "").rpartition("/")[2] for line in text.splitlines()]


async def test_a_rank_has_its_own_log_and_without_one_that_of_its_node(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed(state)
    written(state, "node-0.log", "node-2.log", "rank-1.log", "rank-7.log")
    assert await show(state, rank=1) == 0
    assert told(capsys.readouterr().out) == ["rank-1.log", "begin rank-1.log", "end rank-1.log"]
    assert await show(state, rank=0) == 0
    shown = capsys.readouterr()
    assert told(shown.out)[0].startswith("node-0.log")
    assert shown.err == "rdzv: rank 0 has no log of its own: its node's is shown\n"


async def test_all_ranks_are_told_apart(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed(state)
    written(state, "node-0.log", "node-1.log", "node-2.log", "rank-0.log", "rank-1.log")
    assert await show(state, everyone=True, lines=1) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["[rank 0] end rank-0.log", "[rank 1] end rank-1.log"]
    assert {*lines[2:]} == {f"[node {n}] end node-{n}.log" for n in (1, 2)}


@pytest.mark.parametrize(
    ("wanted", "lines", "shown"),
    [
        (Wanted(("begin",)), 20, ["begin node-2.log"]),
        (Wanted(("begin", "end")), 1, ["end node-2.log"]),
        (Wanted((), "error"), 20, []),
    ],
)
async def test_only_lines_that_are_wanted_are_shown_and_count(
    state: StateDir,
    capsys: pytest.CaptureFixture[str],
    wanted: Wanted,
    lines: int,
    shown: list[str],
) -> None:
    sealed(state)
    written(state, "node-2.log")
    assert await show(state, node=2, wanted=wanted, lines=lines) == 0
    assert capsys.readouterr().out.splitlines()[1:] == shown


async def test_of_a_log_that_is_followed_only_wanted_lines_are_shown(state: StateDir) -> None:
    log = state.logs / "rank-0.log"
    log.write_text("loss 1\nstep 1\nlo")
    lines = file_lines(log, 5, follow=True, keep=Wanted(("loss",)).has)
    assert await anext(lines) == "loss 1"
    with log.open("a") as file:
        file.write("ss 2\nstep 2\nloss 3\n")
    assert [await anext(lines), await anext(lines)] == ["loss 2", "loss 3"]
    await lines.aclose()  # type: ignore[attr-defined]
