"""`python -m rendezvous.server.replay` tells what a journal holds."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from rendezvous.isolated import isolated
from rendezvous.server.journal import Record, SqliteJournal, read_journal
from rendezvous.server.replay import main, replay
from rendezvous.wire.errors import UsageError
from rendezvous.wire.reports import ExitReport, LeaveReport
from rendezvous.wire.run import EventLine, Phase, SlotNews, SlotState
from tests.support.registry import Launch
from tests.support.served import FakeClock, Served

WIRE = Path(__file__).parents[1] / "wire"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a journal may be."""
    return tmp_path / "journal.sqlite"


async def two_runs(path: Path) -> dict[str, list[EventLine]]:
    """Two runs with a bit of everything in them; their events as the registry told them."""
    journal = SqliteJournal(path)
    served = Served(journal, FakeClock())
    served.start()
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
    told = {launch.run: served.host(launch).lines_after(0) for launch in (first, second)}
    await served.end()
    await journal.close()
    return told


def printed(
    path: Path,
    *options: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> list[str]:
    """The lines that the program prints."""
    monkeypatch.setattr("sys.argv", ["replay", str(path), *options])
    main()
    return capsys.readouterr().out.splitlines()


async def test_a_replay_says_what_the_registry_said(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = await two_runs(path)
    found: dict[str, list[EventLine]] = {"first": [], "second": []}
    for run, line in replay(read_journal(path)):
        found[run].append(line)
    assert found == told
    lines = printed(path, monkeypatch=monkeypatch, capsys=capsys)
    assert len(lines) == sum(len(of_run) for of_run in told.values())
    assert lines[0] == (
        "    1     0.000 s  second gathering epoch 0: run 'second' was created for 2 nodes"
    )
    assert lines[1].endswith("second gathering epoch 0: slot 1, generation 1: queued (Priority)")
    ends = [line for line in lines if "out of memory" in line]
    assert re.fullmatch(r" +8 +10\.000 s  first running epoch 1: node 1 .* failed: .*", ends[0])
    assert lines[-1].endswith("second finished epoch 0: run 'second' was cancelled: enough")
    for_programs = printed(path, "--json", monkeypatch=monkeypatch, capsys=capsys)
    for run, expected in told.items():
        of_run = [line for line in for_programs if json.loads(line)["run"] == run]
        assert [TypeAdapter(EventLine).validate_json(line) for line in of_run] == expected


def test_an_event_of_another_version_is_told() -> None:
    with pytest.raises(UsageError, match="event 1 of run 'a' is not one that this rdzv knows"):
        list(replay([Record("a", 1, 0.0, b'{"kind": "levitated"}')]))


@pytest.mark.parametrize("name", ["joined", "left", "timed_out", "lost", "exited", "cancelled"])
def test_an_event_that_does_not_follow_from_those_before_it_is_told(name: str) -> None:
    created = (WIRE / "event-created.json").read_bytes()
    event = (WIRE / f"event-{name}.json").read_bytes().replace(b'"slot": 1', b'"slot": 17')
    first = [] if name in ("joined", "cancelled") else [Record("a", 1, 0.0, created)]
    with pytest.raises(UsageError, match="event 2 of run 'a' does not follow from those before it"):
        list(replay([*first, Record("a", 2, 0.0, event)]))


async def test_the_journal_of_somebody_else_cannot_write_to_the_terminal(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = SqliteJournal(path)
    created = Record("llama-7b", 1, 0.0, (WIRE / "event-created.json").read_bytes())
    hostile = b'{"kind": "cancelled", "reason": "a\\u001b[2Jb\\nc"}'
    await journal.append([created, Record("llama-7b", 2, 0.0, hostile)])
    await journal.close()
    [_, line] = printed(path, monkeypatch=monkeypatch, capsys=capsys)
    assert "a?[2Jb?c" in line


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("journal", "output", "code", "words"),
    [
        ("no.sqlite", "", 2, "rdzv: there is no journal at "),
        ("journal.sqlite", " | true", 0, ""),
        (
            *("journal.sqlite", " >/dev/full", 1),
            "rdzv: standard output cannot be written: No space left on device\n",
        ),
    ],
)
def test_what_the_program_cannot_do_is_told_in_a_sentence(
    path: Path, journal: str, output: str, code: int, words: str
) -> None:
    asyncio.run(two_runs(path))
    command = shlex.join(isolated("rendezvous.server.replay", str(path.with_name(journal))))
    script = f"set -o pipefail; {command}{output}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(words)
    assert bool(words) or not done.stderr
