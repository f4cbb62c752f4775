"""What a launcher prints, folded: what is shown at once, in order, and the count at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.program.fold import Fold
from worker.program.rank_words import RankWords

HEAD = "W1127 16:31:57.048000 14317 torch/distributed/run.py:766]"
STARS = "*" * 41
SETTING = (
    "Setting OMP_NUM_THREADS environment variable for each process to be 7 in default, to avoid"
)
BANNER = "".join(f"{HEAD} {text}\n" for text in ("", STARS, SETTING, STARS))
STOPPED = (Path(__file__).parent / "launcher_outputs" / "torchrun-stopped.txt").read_bytes()
FAILED = (Path(__file__).parent / "launcher_outputs" / "torchrun-failed.txt").read_bytes()


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_the_banner_goes_and_all_else_stays(size: int) -> None:
    fold = Fold("torchrun", "rdzv logs r")
    text = f"before\n{BANNER}between\n{BANNER}after\nbar 10%".encode()
    shown = b"".join(fold.take(text[at : at + size]) for at in range(0, len(text), size))
    assert shown.decode() == "before\nbetween\nafter\n"
    assert fold.idle() == b"bar 10%"
    assert fold.take(b" 20%\n") == b" 20%\n"
    assert fold.close() == b""  # of the banner nobody has to be told more


def test_what_ranks_write_behind_the_first_folded_line_is_counted_until_the_end() -> None:
    fold = Fold("accelerate", "rdzv logs r --node 3")
    fold.pass_by(b"one\ntwo\n")
    assert fold.take(BANNER.encode()) == b""
    fold.pass_by(b"three\n")
    fold.stop()
    assert fold.take(STOPPED) == b""
    fold.pass_by(b"four\nfive\nsi")
    assert fold.take(b"x" * 70_000) == b"x" * 70_000
    fold.pass_by(b"x\n")
    lines = STOPPED.count(b"\n") - BANNER.count("\n")
    assert fold.close().decode() == (
        f"rdzv: accelerate printed {lines} lines when rdzv stopped it: "
        f"rdzv logs r --node 3 --lines {lines + 4}\n"
    )


@pytest.mark.parametrize("traceback", [True, False])
def test_the_report_of_a_rank_is_folded_unless_it_alone_has_the_exception(traceback: bool) -> None:
    words = RankWords()
    for rank in range(4):
        words.take(rank, b"Traceback (most recent call last):\n  boom\n" if traceback else b"x\n")
    for report, told in ((FAILED, True), (FAILED.replace(b"<N/A>", b"/tmp/e.json"), traceback)):
        fold = Fold("torchrun", "rdzv logs r")
        fold.read(words)
        shown = fold.take(report) + fold.idle()
        end = fold.close().decode()
        assert (b"Root Cause" in shown) is not told
        assert ("lines about the rank that failed: rdzv logs r" in end) is told
