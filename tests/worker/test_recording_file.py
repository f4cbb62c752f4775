"""A recording on disk: its folder, its parts, and what is left of a long one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rendezvous.recording.reading import read
from rendezvous.recording.recorder import DirectRecorder
from tests.support.recordings import replayed
from tests.worker.test_table import join
from worker.agent import recorded
from worker.agent.arming import NodeSpec
from worker.agent.inputs import Tick
from worker.agent.shell import recorder_of
from worker.agent.state import Rules
from worker.program import recording_file
from worker.program.recording_file import begin_recording, parts_of_recording
from worker.settings import WorkerSettings


async def test_a_node_is_recorded_into_a_file_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "recording.jsonl"
    for count in (3, 2):  # the second process begins anew
        recorder = recorded.record_into(path)
        recorder.begin({"rules": Rules("r", 1, 6.0, 7.0)}, 1.0)
        for _ in range(count):
            recorder.take(Tick(), 2.0, ())
        await recorder.close()
        assert len(read(parts_of_recording(path)).lines) == count
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_of_a_long_recording_the_beginning_is_replayed_and_the_newest_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_file, "LIMIT_BYTES", 16_000)
    path = tmp_path / "recording.jsonl"
    sink = begin_recording(path)
    recorder = DirectRecorder(recorded.CODEC, sink)
    recorder.begin({"rules": Rules("r", 1, 6.0, 7.0)}, 1.0)
    for number in range(2_000):
        recorder.take(Tick(), 2.0 + number, ())
    sink.close()
    parts = parts_of_recording(path)
    assert [one.name for one in parts] == [f"{path.name}.first", f"{path.name}.1", path.name]
    assert sum(one.stat().st_size for one in parts) <= 16_000
    found = [(one.line.number, one.actions is None) for one in replayed(path) if one.line]
    head = sum(not is_shown_only for _, is_shown_only in found)
    assert found[:head] == [(number, False) for number in range(1, head + 1)]
    assert head > 50
    assert found[head:] == [(number, True) for number in range(found[head][0], 2_001)]
    assert found[head][0] > head + 1
    begin_recording(path).close()
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("wanted", [True, False])
def test_a_node_is_recorded_beside_its_log_where_that_was_asked_for(
    tmp_path: Path, wanted: bool
) -> None:
    asked: list[Path] = []
    environment: Any = SimpleNamespace(environ={}, recorder=asked.append)
    settings = WorkerSettings(log_dir=tmp_path, record=wanted)
    recorder_of(NodeSpec(settings, join(2), ["train"], False), environment)
    assert asked == [tmp_path / "recording-slot-2-1.jsonl"] * wanted
