"""`python -m rendezvous.server.replay` tells what a journal holds."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shlex
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from rendezvous.isolated import isolated
from rendezvous.server.journal import Record, SqliteJournal, read_journal
from rendezvous.server.replay import replay
from rendezvous.wire.errors import UsageError
from rendezvous.wire.reports import ExitReport, LeaveReport
from rendezvous.wire.run import EventLine, Phase, SlotNews, SlotState
from tests.support.registry import Launch
from tests.support.served import FakeClock, Served

pytestmark = pytest.mark.real_time


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """A service on a journal in a file."""
    journal = SqliteJournal(tmp_path / "journal.sqlite")
    made = Served(journal, FakeClock())
    made.start()
    yield made
    await made.end()
    await journal.close()


async def two_runs(served: Served) -> dict[str, list[EventLine]]:
    """Two runs with a bit of everything in them; their events as the registry told them."""
    first, second = Launch("first"), Launch("second")
    await served.create(second)
    await served.service.slot_news(
        served.host(second), 1, SlotNews(generation=1, state=SlotState.QUEUED, detail="Priority")
    )
    served.let_pass(1.25)
    await served.bring_to(Phase.RUNNING, first)
    served.let_pass(10)
    await served.report(first, 1, ExitReport(epoch=1, exit_code=3, message="out of memory"))
    await served.report(first, 0, ExitReport(epoch=1, exit_code=143, stopped=True))
    for slot in (0, 1):
        await served.report(first, slot, LeaveReport())
    await served.service.cancel(served.host(second), "enough")
    return {launch.run: served.host(launch).lines_after(0) for launch in (first, second)}


def run_replay(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run it as a program."""
    command = isolated("rendezvous.server.replay", str(path), *options)
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


async def test_a_replay_says_what_the_registry_said(served: Served, tmp_path: Path) -> None:
    told = await two_runs(served)
    found: dict[str, list[EventLine]] = {"first": [], "second": []}
    for run, line in replay(read_journal(tmp_path / "journal.sqlite")):
        found[run].append(line)
    assert found == told


async def test_it_prints_every_event_in_order_with_its_reason(
    served: Served, tmp_path: Path
) -> None:
    told = await two_runs(served)
    done = run_replay(tmp_path / "journal.sqlite")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == sum(len(of_run) for of_run in told.values())
    assert lines[0] == (
        "    1     0.000 s  second gathering epoch 0: run 'second' was created for 2 nodes"
    )
    assert lines[1].endswith("second gathering epoch 0: slot 1, generation 1: queued (Priority)")
    ends = [line for line in lines if "out of memory" in line]
    assert re.fullmatch(r" +8 +10\.000 s  first running epoch 1: node 1 .* failed: .*", ends[0])
    assert lines[-1].endswith("second finished epoch 0: run 'second' was cancelled: enough")


async def test_it_prints_json_lines_for_programs(served: Served, tmp_path: Path) -> None:
    told = await two_runs(served)
    done = run_replay(tmp_path / "journal.sqlite", "--json")
    assert done.returncode == 0
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    for run, expected in told.items():
        of_run = [json.dumps(line) for line in lines if line["run"] == run]
        assert [TypeAdapter(EventLine).validate_json(line) for line in of_run] == expected


def without_last_page(log: bytes) -> bytes:
    """A write-ahead log that ends in the middle of its last page.

    Frames of the present log carry its salt; older ones, to be written over, lie behind them
    (https://www.sqlite.org/fileformat2.html#walformat).
    """
    head, frame, salt = 32, 24 + 4096, log[16:24]
    starts = range(head, len(log), frame)
    ends = itertools.takewhile(lambda at: log[at + 8 : at + 16] == salt, starts)
    return log[: list(ends)[-1] + 1_000]


async def test_a_journal_whose_end_was_cut_off_is_told_up_to_there(
    served: Served, tmp_path: Path
) -> None:
    await two_runs(served)
    whole = run_replay(tmp_path / "journal.sqlite").stdout.splitlines()
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes((tmp_path / "journal.sqlite").read_bytes())
    log = (tmp_path / "journal.sqlite-wal").read_bytes()
    (tmp_path / "copy.sqlite-wal").write_bytes(without_last_page(log))
    done = run_replay(copy)
    part = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert 0 < len(part) < len(whole)
    assert part == whole[: len(part)]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no journal at "),
        (b"", " is no journal of rdzv"),
        (b"my notes\n" * 1000, "cannot be opened: file is not a database"),
    ],
)
def test_what_is_no_journal_is_told_in_a_sentence(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "journal.sqlite"
    if content is not None:
        path.write_bytes(content)
    done = run_replay(path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("rdzv: ")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_an_event_of_another_version_is_told() -> None:
    with pytest.raises(UsageError, match="event 1 of run 'a' is not one that this rdzv knows"):
        list(replay([Record("a", 1, 0.0, b'{"kind": "levitated"}')]))


@pytest.mark.parametrize("name", ["joined", "left", "timed_out", "lost", "exited", "cancelled"])
def test_an_event_that_does_not_follow_from_those_before_it_is_told(name: str) -> None:
    wire = Path(__file__).parents[1] / "wire"
    created = (wire / "event-created.json").read_bytes()
    event = (wire / f"event-{name}.json").read_bytes().replace(b'"slot": 1', b'"slot": 17')
    first = [] if name in ("joined", "cancelled") else [Record("a", 1, 0.0, created)]
    records = [*first, Record("a", 2, 0.0, event)]
    with pytest.raises(UsageError, match="event 2 of run 'a' does not follow from those before it"):
        list(replay(records))


def test_the_journal_of_somebody_else_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    wire = Path(__file__).parents[1] / "wire"
    path = tmp_path / "journal.sqlite"
    journal = SqliteJournal(path)
    created = (wire / "event-created.json").read_bytes()
    asyncio.run(
        journal.append(
            [
                Record("llama-7b", 1, 0.0, created),
                Record("llama-7b", 2, 0.0, b'{"kind": "cancelled", "reason": "a\\u001b[2Jb\\nc"}'),
            ]
        )
    )
    asyncio.run(journal.close())
    done = run_replay(path)
    assert done.returncode == 0
    assert done.stdout.count("\n") == 2
    assert "a?[2Jb?c" in done.stdout


async def test_a_reader_that_stops_early_is_no_error(served: Served, tmp_path: Path) -> None:
    await two_runs(served)
    command = shlex.join(isolated("rendezvous.server.replay", f"{tmp_path}/journal.sqlite"))
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | true"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stderr == ""


async def test_an_output_without_room_is_told_in_a_sentence(served: Served, tmp_path: Path) -> None:
    await two_runs(served)
    command = isolated("rendezvous.server.replay")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*command, str(tmp_path / "journal.sqlite")],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
        )
    said = "rdzv: standard output cannot be written: No space left on device\n"
    assert (done.stderr, done.returncode) == (said, 1)
