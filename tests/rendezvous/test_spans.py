"""A journal as spans of OpenTelemetry."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rendezvous.server.replay import main, write_spans
from rendezvous.server.spans import Parent
from rendezvous.server.sqlite_journal import SqliteJournal
from rendezvous.wire.reports import AckReport, ExitReport
from rendezvous.wire.run import Phase, SlotNews, SlotState
from tests.support.driver import make_probe
from tests.support.registry import Launch
from tests.support.served import FakeClock, Served

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
DEMO = Launch("demo")


class Told:
    """The spans of a document, by their names from the root: `run demo/slot 0/queued`."""

    def __init__(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") == 1
        [resource] = json.loads(text)["resourceSpans"]
        [scope] = resource["scopeSpans"]
        self.spans: list[dict[str, Any]] = scope["spans"]
        self._by_id = {span["spanId"]: span for span in self.spans}
        assert len(self._by_id) == len(self.spans)

    def path(self, span: dict[str, Any]) -> str:
        above = self._by_id.get(span.get("parentSpanId", ""))
        return f"{self.path(above)}/{span['name']}" if above else str(span["name"])

    def seconds(self) -> list[tuple[str, float]]:
        """How long each lasts, in their order."""
        return [(self.path(span), round(_length(span), 2)) for span in self.spans]

    def one(self, path: str) -> dict[str, Any]:
        [found] = [span for span in self.spans if self.path(span) == path]
        return found

    def about(self, path: str) -> dict[str, str]:
        pairs = self.one(path)["attributes"]
        return {pair["key"]: next(iter(pair["value"].values())) for pair in pairs}


def _length(span: dict[str, Any]) -> float:
    return (int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])) / 1e9


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


async def a_run(path: Path, *, exit_code: int = 0, replaced: bool = False) -> None:
    """Slot 0 boots for 5 s; slot 1 queues for 10 s and boots for 5 s; 2 s, 1 s, and 5 s."""
    journal, clock = SqliteJournal(path), FakeClock()
    served = Served(journal, clock)
    served.start()
    if replaced:
        former = Launch("demo", launch_id="former00")
        await served.create(former, 2)
        await served.service.cancel(served.host(former), "asked for")
    await served.create(DEMO, 2)
    for state, slot, seconds in (
        (SlotState.RUNNING, 0, 0.0),
        (SlotState.QUEUED, 1, 10.0),
        (SlotState.RUNNING, 1, 5.0),
    ):
        news = SlotNews(generation=1, state=state)
        await served.service.slot_news(served.host(DEMO), slot, news)
        served.let_pass(seconds)
    await asyncio.gather(*(served.join(DEMO, slot) for slot in (0, 1)))
    served.let_pass(2.0)
    epoch = served.host(DEMO).run.epoch
    await asyncio.gather(
        *(served.report(DEMO, slot, make_probe(epoch, slot, [0, 1])) for slot in (0, 1))
    )
    served.let_pass(1.0)
    ack = AckReport(epoch=epoch, digest=served.host(DEMO).run.digest)
    await asyncio.gather(*(served.report(DEMO, slot, ack) for slot in (0, 1)))
    served.let_pass(5.0)
    for slot in (0, 1):
        await served.report(DEMO, slot, ExitReport(epoch=epoch, exit_code=exit_code))
    await served.end()
    await journal.close()


async def test_each_slot_has_a_span_for_how_far_it_had_come(path: Path, tmp_path: Path) -> None:
    await a_run(path)
    write_spans(path, to := tmp_path / "spans.json", None)
    told = Told(to)
    assert told.seconds() == [
        ("run demo", 23.0),
        ("run demo/phases", 23.0),
        ("run demo/phases/gathering", 15.0),
        ("run demo/phases/verifying", 2.0),
        ("run demo/phases/arming", 1.0),
        ("run demo/phases/running", 5.0),
        ("run demo/slot 0", 23.0),
        ("run demo/slot 0/booted", 15.0),
        ("run demo/slot 0/joined", 2.0),
        ("run demo/slot 0/verified", 1.0),
        ("run demo/slot 0/armed", 0.0),
        ("run demo/slot 0/running", 5.0),
        ("run demo/slot 1", 23.0),
        ("run demo/slot 1/queued", 10.0),
        ("run demo/slot 1/booted", 5.0),
        ("run demo/slot 1/joined", 2.0),
        ("run demo/slot 1/verified", 1.0),
        ("run demo/slot 1/running", 5.0),
    ]
    assert told.about("run demo") == {"rdzv.run": "demo", "rdzv.launch_id": "launch01"}
    assert told.about("run demo/slot 1") == {"rdzv.slot": "1", "host.name": "host1"}
    assert told.one("run demo")["status"] == {}
    newest = max(int(span["endTimeUnixNano"]) for span in told.spans)
    assert newest / 1e9 == pytest.approx(path.stat().st_mtime, abs=0.01)


async def test_a_run_that_failed_says_why(path: Path, tmp_path: Path) -> None:
    await a_run(path, exit_code=3)
    write_spans(path, to := tmp_path / "spans.json", None)
    status = Told(to).one("run demo")["status"]
    assert status["code"] == 2
    assert "exit code 3" in status["message"]


async def test_each_launch_has_a_trace_of_its_own_the_same_each_time(
    path: Path, tmp_path: Path
) -> None:
    await a_run(path, replaced=True)
    write_spans(path, first := tmp_path / "first.json", None)
    write_spans(path, again := tmp_path / "again.json", None)
    assert first.read_bytes() == again.read_bytes()
    roots = [span for span in Told(first).spans if "parentSpanId" not in span]
    assert [span["name"] for span in roots] == ["run demo", "run demo"]
    traces = {span["traceId"] for span in Told(first).spans}
    assert {len(trace) for trace in traces} == {32}
    assert len(traces) == 2


async def test_a_run_in_progress_lasts_until_its_newest_event(path: Path, tmp_path: Path) -> None:
    journal = SqliteJournal(path)
    served = Served(journal, FakeClock())
    served.start()
    await served.create(DEMO, 2)
    served.let_pass(7.0)
    await served.join(DEMO, 0)
    write_spans(path, to := tmp_path / "spans.json", None)
    await served.end()
    await journal.close()
    assert Told(to).seconds() == [
        ("run demo", 7.0),
        ("run demo/phases", 7.0),
        ("run demo/phases/gathering", 7.0),
        ("run demo/slot 0", 0.0),
        ("run demo/slot 0/joined", 0.0),
    ]


async def test_a_slot_whose_node_is_lost_begins_again_with_the_next_worker_run(
    path: Path, tmp_path: Path
) -> None:
    journal = SqliteJournal(path)
    served = Served(journal, FakeClock())
    served.start()
    await served.bring_to(Phase.VERIFYING, DEMO)
    token = DEMO.token(1, 2).sha256()
    news = SlotNews(generation=2, state=SlotState.SUBMITTING, token_sha256=token)
    await served.service.slot_news(served.host(DEMO), 1, news)
    await served.join(DEMO, 1, attempt=2, generation=2)
    write_spans(path, to := tmp_path / "spans.json", None)
    await served.end()
    await journal.close()
    stages = [path for path, _ in Told(to).seconds() if path.startswith("run demo/slot 1/")]
    assert [stage.rpartition("/")[2] for stage in stages] == ["joined", "submitted", "joined"]


# --- the command ----------------------------------------------------------------------------------


async def test_the_command_writes_them_into_the_trace_of_who_calls_it(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a_run(path)
    to = tmp_path / "spans.json"
    monkeypatch.setenv("TRACEPARENT", PARENT)
    monkeypatch.setattr("sys.argv", ["replay", str(path), "--otlp", str(to)])
    main()
    told = Told(to)
    assert {span["traceId"] for span in told.spans} == {TRACE}
    assert told.one("run demo")["parentSpanId"] == SPAN


async def test_a_file_that_cannot_be_written_is_named(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await a_run(path)
    to = tmp_path / "none" / "spans.json"
    monkeypatch.setattr("sys.argv", ["replay", str(path), "--otlp", str(to)])
    with pytest.raises(SystemExit):
        main()
    assert f"{to} cannot be written: No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        PARENT[:-1],
        PARENT.upper(),
        PARENT.replace(TRACE, "0" * 32),
        PARENT.replace(SPAN, "0" * 16),
        f"{PARENT}-more",
        f"{PARENT}\n",
    ],
)
def test_what_is_no_traceparent_is_passed_over(text: str) -> None:
    assert Parent.read(text) is None
    assert Parent.read(PARENT) == Parent(TRACE, SPAN)
