"""Lines of several ranks in one output."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.worker.programs.started import Recording
from worker.program import rank_streams
from worker.program.output import IDLE_SECONDS, Stream
from worker.program.rank_streams import RankLines


class Bench:
    """The lines, what has come out of them, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(rank_streams, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.recording = Recording()
        self.lines = RankLines(self.recording)

    def says(self, rank: int | None, data: bytes, stream: Stream = "stdout") -> bytes:
        """What all have printed when a rank has said this."""
        self.lines.write(stream, data, rank)
        return self.recording.of(stream)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    return Bench(monkeypatch)


def test_a_line_is_passed_on_when_it_is_whole(bench: Bench) -> None:
    assert bench.says(0, b"one\ntw") == b"one\n"
    assert bench.says(1, b"ONE\nTW") == b"one\nONE\n"
    assert bench.says(0, b"o\nthree\n") == b"one\nONE\ntwo\nthree\n"
    assert bench.says(None, b"torchrun\n") == b"one\nONE\ntwo\nthree\ntorchrun\n"
    assert bench.says(1, b"O\n") == b"one\nONE\ntwo\nthree\ntorchrun\nTWO\n"
    assert bench.recording.of_rank(1) == (b"ONE\nTWO\n", b"")


def test_both_streams_have_their_own_lines(bench: Bench) -> None:
    bench.says(0, b"out")
    assert bench.says(0, b"err\n", "stderr") == b"err\n"
    assert bench.says(0, b"put\n") == b"output\n"


def test_an_unfinished_line_is_passed_on_after_a_silence_and_ended_for_another(
    bench: Bench,
) -> None:
    bench.says(0, b"Name? ")
    bench.now = IDLE_SECONDS
    bench.lines.idle()
    assert bench.recording.of("stdout") == b"Name? "
    assert bench.says(0, b"x") == b"Name? x"  # it goes on where it was
    assert bench.says(1, b"line\n") == b"Name? x\nline\n"
    assert bench.recording.of_rank(0) == (b"Name? x\n", b"")
    assert bench.says(0, b"y\n") == b"Name? x\nline\ny\n"


def test_another_that_talks_all_the_time_does_not_keep_it_back(bench: Bench) -> None:
    bench.says(0, b"dot")
    bench.now = IDLE_SECONDS / 2
    assert bench.says(1, b"a\n") == b"a\n"
    bench.now = IDLE_SECONDS
    assert bench.says(1, b"b\n") == b"a\nb\ndot"


def test_a_progress_bar_is_passed_on_at_once_and_overwritten_by_another(bench: Bench) -> None:
    assert bench.says(0, b"\r 10%") == b"\r 10%"
    assert bench.says(1, b"\r 12%") == b"\r 10%\r 12%"
    assert bench.says(1, b"\rdone\n") == b"\r 10%\r 12%\rdone\n"
    assert bench.says(0, b"\r 20%") == b"\r 10%\r 12%\rdone\n\r 20%"
    assert bench.says(1, b"a line\n") == b"\r 10%\r 12%\rdone\n\r 20%\na line\n"


def test_a_line_without_an_end_is_not_kept_for_ever(bench: Bench) -> None:
    assert bench.says(0, bytes(65_536)) == b""
    assert bench.says(0, b"x") == bytes(65_536) + b"x"
