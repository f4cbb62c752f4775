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
THREADS = "rdzv: torchrun sets OMP_NUM_THREADS=7 for each process of a node: nothing else sets it\n"


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("names", [True, False])
def test_the_banner_is_one_line_of_one_node_where_it_stood(size: int, names: bool) -> None:
    fold = Fold("torchrun", "rdzv logs r", names_threads=names)
    text = f"before\n{BANNER}between\n{BANNER}after\nbar 10%".encode()
    shown = b"".join(fold.take(text[at : at + size]) for at in range(0, len(text), size))
    line = THREADS if names else ""
    assert shown.decode() == f"before\n{line}between\nafter\n"
    assert fold.idle() == b"bar 10%"
    assert fold.take(b" 20%\n") == b" 20%\n"
    assert fold.close() == b""  # of the banner nobody has to be told more


def test_what_ranks_write_behind_the_first_folded_line_is_counted_until_the_end() -> None:
    fold = Fold("accelerate", "rdzv logs r --node 3", names_threads=True)
    fold.pass_by(b"one\ntwo\n")
    assert fold.take(BANNER.encode())
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
def test_the_report_of_a_rank_that_has_shown_its_traceback_is_folded(traceback: bool) -> None:
    words = RankWords()
    for rank in range(4):
        words.take(rank, b"Traceback (most recent call last):\n  boom\n" if traceback else b"x\n")
    fold = Fold("torchrun", "rdzv logs r", names_threads=True)
    without = Fold("torchrun", "rdzv logs r", names_threads=True)
    fold.read(words)
    shown = fold.take(FAILED) + fold.idle()
    end = fold.close().decode()
    whole = without.take(FAILED) + without.idle() + without.close()
    assert (shown + end.encode() == whole) is not traceback
    assert ("about the rank that failed, whose own traceback is above: " in end) is traceback
