"""What a first healthy run and the demo print: three lines, then the program's output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.terminals import Screen, on_terminal

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


def ours(text: str) -> list[str]:
    """Lines of rdzv's own, without what they quote of a program, and what follows in a fold."""
    found: list[str] = []
    is_ours = False
    for line in text.splitlines():
        is_ours = line.startswith("rdzv") or (is_ours and line.startswith("      "))
        if is_ours and "rdzv:   | " not in line:
            found.append(re.sub(r"^rdzv:?( +[\d.]+ s )? *", "", line))
    return found


def launch(folder: Path, *words: str) -> list[str]:
    """Lines that rdzv writes of a launch in a new folder."""
    own = Path(sys.executable).parent
    done = subprocess.run(
        [own / "rdzv", "launch", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={
            **os.environ,
            "RDZV_STATE_DIR": str(folder / "state"),
            "PATH": f"{own}:{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
        },
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return ours(done.stderr)


HELLO = ("--rdzv-id", "hello", "--nnodes", "4", "--framework", "command", "--", "sh", "-c")
DEMO = ("--rdzv-id", "demo", "--nnodes", "4", "--nproc-per-node", "2,1,1,1", "--")


@pytest.mark.parametrize(
    "words", [(*HELLO, "echo node $NODE_RANK"), (*DEMO, str(ROOT / "examples/digits.py"))]
)
def test_a_healthy_run_begins_with_three_lines(words: tuple[str, ...], tmp_path: Path) -> None:
    lines = launch(tmp_path, *words)
    starts = ("launching run", "4 of 4 nodes have joined", "all 4 nodes reach each other over")
    assert [line.startswith(start) for line, start in zip(lines, starts, strict=False)] == [
        True
    ] * 3
    assert len(lines) <= 5, lines  # the end, and how far the program told that it came


def test_a_terminal_shows_three_lines_before_the_first_output(tmp_path: Path) -> None:
    own = Path(sys.executable).parent
    environ = {**os.environ, "RDZV_STATE_DIR": str(tmp_path), "TERM": "xterm"}
    code, text = on_terminal(
        [str(own / "rdzv"), "launch", *HELLO, "echo begun"], environ, columns=200, seconds=120.0
    )
    assert code == 0
    shown = Screen(200).write(text).lines()
    first = next(number for number, line in enumerate(shown) if line.endswith("] begun"))
    assert first == 3, shown
    assert shown[1] == "rdzv: 4 of 4 nodes have joined"
