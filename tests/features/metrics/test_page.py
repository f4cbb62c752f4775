"""How a page reads the metrics of a run."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from features.metrics import FILE
from features.metrics.page import Part
from features.metrics.wire import MetricLine
from launcher.ui.clerk import Keys
from launcher.ui.prometheus import metrics_text
from tests.support.pages import RUN, kept_run, page_door
from tests.ui.test_asked import asked


async def test_rows_of_metrics_are_read_once_whoever_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's clock and a browser that comes read at the same time; a row may be half there."""
    path = tmp_path / FILE
    rows = [MetricLine(number=n, rank=n % 3, step=n, slot=0, at_seconds=1.0) for n in range(40)]
    text = "".join(f"{row.model_dump_json()}\n" for row in rows)
    path.write_text(text[:-20])

    class Run:
        state_dir = SimpleNamespace(path=tmp_path)
        changes = 0

        def change(self) -> int:
            self.changes += 1
            return self.changes

    run = Run()
    part = Part(cast(Any, run))
    monkeypatch.setattr("features.metrics.page._CHUNK_BYTES", 300)
    read_next = part._next
    told: list[MetricLine] = []

    def slowly() -> bool:
        before = part._offset
        time.sleep(0.002)
        assert part._offset == before  # nobody else reads meanwhile
        found = read_next()
        told.extend(part._new)
        return found

    monkeypatch.setattr(part, "_next", slowly)
    await asyncio.gather(part.read(), part.read(), part.read())
    before = run.changes
    assert before > 1
    with path.open("a") as file:
        file.write(text[-20:])
    await part.read()
    assert run.changes == before + 1
    await part.read()
    assert run.changes == before + 1
    assert [row.number for row in told] == list(range(40))
    assert {rank["rank"]: rank["step"] for rank in part.since(0) or ()} == {0: 39, 1: 37, 2: 38}
    assert part.since(run.changes) is None


async def test_a_read_that_was_cancelled_has_lost_nothing(tmp_path: Path) -> None:
    """The page ends its clock when the run's last status has come, whatever is read just then."""
    path = tmp_path / FILE
    path.write_text(
        f"{MetricLine(number=1, rank=3, step=7, slot=0, at_seconds=1.0).model_dump_json()}\n"
    )
    run = SimpleNamespace(state_dir=SimpleNamespace(path=tmp_path), change=lambda: 1)
    part = Part(cast(Any, run))
    read_next, begun = part._next, threading.Event()

    def slowly() -> bool:
        begun.set()
        time.sleep(0.05)
        return read_next()

    part._next = slowly  # type: ignore[method-assign]
    reading = asyncio.create_task(part.read())
    await asyncio.to_thread(begun.wait, 10)
    reading.cancel()
    await asyncio.wait([reading])
    part._next = read_next  # type: ignore[method-assign]
    await part.read()
    assert [(rank["rank"], rank["step"]) for rank in part.since(0) or ()] == [(3, 7)]
    assert (await part.views()["curves"]()) == {"rows": 1, "curves": {}}


async def test_rows_of_an_ended_run_are_in_its_state_curves_and_series(tmp_path: Path) -> None:
    state = kept_run(tmp_path)
    rows = [
        MetricLine(number=n, rank=n % 2, step=n, slot=0, at_seconds=n, values={"loss": 8.0 - n})
        for n in range(4)
    ]
    (state.path / FILE).write_text("".join(f"{row.model_dump_json()}\n" for row in rows))
    async with page_door(tmp_path, keys=Keys()) as door:
        await door.runs.viewed(RUN).settled()
        ranks = (await asked(door, "state"))["parts"]["metrics"]
        curves = await asked(door, "curves")
        text = metrics_text([await door.runs.viewed(RUN).state()], "1.2")
    assert [(one["rank"], one["step"], one["pace"]) for one in ranks] == [(0, 2, 1.0), (1, 3, 1.0)]
    assert curves["rows"] == 4
    second = curves["curves"]["loss"][1]
    assert (second["label"], second["values"]) == ("rank 1", [7.0, 5.0])
    assert f'rdzv_step{{run="{RUN}"}} 2' in text
    assert f'rdzv_metric{{run="{RUN}",name="loss",stat="median"}} 5.5' in text
