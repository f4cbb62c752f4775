"""`rdzv replay` tells what a journal holds."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any, TextIO, get_args

import pytest
from pydantic import TypeAdapter

from rendezvous.registry.journal import Record, applying
from rendezvous.registry.replay import main, replay
from rendezvous.registry.sqlite_journal import SqliteJournal, read_journal
from rendezvous.run import events
from rendezvous.run.decision import Decision, Outcome, dump_entry
from rendezvous.run.protocol import decide
from rendezvous.wire.errors import UsageError
from rendezvous.wire.reports import ExitReport
from rendezvous.wire.run import EventLine, Phase, RunStatus, SlotNews, SlotState
from tests.support.driver import in_phase
from tests.support.registry import Launch
from tests.support.served import FakeClock, Served

WIRE = Path(__file__).parents[1] / "wire"
KINDS = get_args(get_args(events.Event)[0])
Print = Callable[..., list[str]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a journal may be."""
    return tmp_path / "journal.sqlite"


@pytest.fixture
def printed(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Print:
    """Runs the program; the lines that it prints."""

    def run(*options: str, to: TextIO | None = None) -> list[str]:
        with monkeypatch.context() as patch:
            patch.setattr("sys.argv", ["replay", str(path), *options])
            if to is not None:
                patch.setattr("sys.stdout", to)
            main()
        return capsys.readouterr().out.splitlines()

    return run


async def two_runs(path: Path) -> dict[str, list[EventLine]]:
    """Two runs with a bit of everything in them; their events as the registry told them."""
    journal = SqliteJournal(path)
    served = Served(journal, FakeClock())
    served.start()
    first, second = Launch("first"), Launch("second")
    await served.create(second)
    news = SlotNews(generation=1, state=SlotState.QUEUED, detail="Priority")
    await served.service.slot_news(served.host(second), 1, news)
    served.let_pass(1.25)
    await served.bring_to(Phase.RUNNING, first)
    served.let_pass(10)
    await served.report(first, 1, ExitReport(epoch=1, exit_code=3, message="out of memory"))
    await served.report(first, 0, ExitReport(epoch=1, exit_code=143, stopped=True))
    await served.service.cancel(served.host(second), "enough")
    told = {launch.run: served.host(launch).lines_after(0) for launch in (first, second)}
    await served.end()
    await journal.close()
    return told


async def test_a_replay_says_what_the_registry_said(path: Path, printed: Print) -> None:
    told = await two_runs(path)
    found: dict[str, list[EventLine]] = {"first": [], "second": []}
    for run, line in replay(read_journal(path)):
        found[run].append(line)
    assert found == told
    lines = printed()
    assert len(lines) == sum(len(of_run) for of_run in told.values())
    assert lines[0] == (
        "    1     0.000 s  second gathering epoch 0: run 'second' was created for 2 nodes"
    )
    [end] = [line for line in lines if "first running" in line and "out of memory" in line]
    assert re.fullmatch(r" +8 +10\.000 s  first running epoch 1: node 1 .* failed: .*", end)
    assert lines[-1].endswith("second finished epoch 0: run 'second' was cancelled: enough")
    for_programs = printed("--json")
    for run, expected in told.items():
        of_run = [line for line in for_programs if json.loads(line)["run"] == run]
        assert [TypeAdapter(EventLine).validate_json(line) for line in of_run] == expected


async def test_with_status_it_ends_with_how_each_run_stands(path: Path, printed: Print) -> None:
    told = await two_runs(path)
    *_, second, first = printed("--json", "--status")
    runs = {one.run: one for one in map(RunStatus.model_validate_json, (first, second))}
    assert runs.keys() == told.keys()
    slots = runs["first"].slots
    assert [(slot.node_state, slot.exit_code) for slot in slots[:2]] == [
        ("exited", 143),
        ("exited", 3),
    ]
    assert runs["first"].elapsed_seconds == pytest.approx(10, abs=1)
    assert runs["second"].result is not None
    assert runs["second"].result.status == "cancelled"


async def test_a_run_stands_as_at_its_own_last_event(
    path: Path, printed: Print, monkeypatch: pytest.MonkeyPatch
) -> None:
    await two_runs(path)
    records = [record for record in read_journal(path) if b"enough" not in record.body]
    monkeypatch.setattr("rendezvous.registry.replay.read_journal", lambda _: records)
    *_, second, first = printed("--json", "--status")
    ages = [RunStatus.model_validate_json(one).elapsed_seconds for one in (first, second)]
    assert ages == pytest.approx([10, 0], abs=1)


def test_an_event_of_another_version_is_told() -> None:
    with pytest.raises(UsageError, match="event 1 of run 'a' is unknown to this version of rdzv"):
        list(replay([Record("a", 1, 0.0, b'{"kind": "levitated"}')]))


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        ({}, False),
        ({"slots": {"problem": [[17], ["?"]]}}, True),
        ({"nodes": {"state": [[0], ["running"]]}}, True),
        ({"starts": {"invented": 1}}, True),
        ({"run": {"phase": "dancing"}}, True),
    ],
)
def test_an_event_that_does_not_follow_from_those_before_it_is_told(
    changed: Any, first: bool
) -> None:
    body = dump_entry(events.Restarted(), Decision(Outcome("it happened"), changed))
    before = [Record("a", 1, 0.0, in_phase(Phase.GATHERING).bodies[0])] if first else []
    with pytest.raises(
        UsageError, match="event 2 of run 'a' does not follow from the events before it"
    ):
        list(replay([*before, Record("a", 2, 0.0, body)]))


def emptied(value: Any) -> Iterator[Any]:
    """The value once for each text within it, with that text empty."""
    if value == "":
        return
    if isinstance(value, str):
        yield ""
    keys = value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    for key in keys:
        for part in emptied(value[key]):
            other = copy(value)
            other[key] = part
            yield other


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_event_without_a_text_is_told_in_words_or_refused(kind: type[Any]) -> None:
    stored = json.loads((WIRE / f"{kind.__name__}.json").read_bytes())
    for value in emptied(stored):
        drive = in_phase(Phase.VERIFYING, 3)
        with suppress(UsageError), applying(Record("r", 5, 0.0, b"")):
            event = TypeAdapter(kind).validate_json(json.dumps(value))
            assert decide(drive.run, event, drive.now).outcome.reason, value


async def test_neither_hostile_words_nor_an_output_that_takes_no_more_do_harm(
    path: Path, printed: Print, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = SqliteJournal(path)
    drive = in_phase(Phase.GATHERING)
    drive.apply(events.Cancelled(reason="a\x1b[2Jb\nc"))
    bodies = [drive.bodies[0], drive.bodies[-1]]
    await journal.append([Record("r", n, 0.0, body) for n, body in enumerate(bodies, 1)])
    await journal.close()
    assert printed()[1].endswith("a?[2Jb?c")  # it cannot write to the terminal
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed, pytest.raises(SystemExit, match="1"):
        printed(to=closed)
    assert capsys.readouterr().err == ""
    with Path("/dev/full").open("w") as full, pytest.raises(SystemExit, match="1"):
        printed(to=full)
    words = "rdzv: standard output cannot be written: No space left on device\n"
    assert capsys.readouterr().err == words
