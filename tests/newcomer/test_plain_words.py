"""The words of a first healthy run, of the demo and of first failures: plain, or explained."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.terminals import Screen, on_terminal

ROOT = Path(__file__).parents[2]
PLAIN = {*(Path(__file__).parent / "plain_words.txt").read_text(encoding="utf-8").split()}
FIRST_HOUR = (ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8")
NOT_IN_A_HEALTHY_RUN = {"slot", "generation", "incarnation", "sealed", "digest", "go", "table"}
_NO_WORDS = re.compile(
    r"'[^']*'|\brdzv\b|\blo\b|node \d+ \([^)]*\)|\w+Error\b|`[^`]*`|\(rdzv's\)|https?://\S+|\S*/\S*|--?\w[\w-]*|\w+\.py\b|\w*\d\w*|\w+=\S*|\w+_\w+"
)
"""What is quoted, a name (of a host, an interface, an exception, rdzv's own), a path, an option, a
file, a number with its unit, a variable."""

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


def terms() -> set[str]:
    """Words that the last table of the first hour explains."""
    table = FIRST_HOUR.rpartition("## Words that you may meet")[2]
    cells = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)[2:]
    marked = re.findall(r"\*(\w[\w ]*)\*", table)
    return {word for cell in (*cells, *marked) for word in re.findall(r"[a-z]+", cell.lower())}


def words_in(lines: Sequence[str]) -> set[str]:
    text = _NO_WORDS.sub(" ", " ".join(lines))
    return {word.lower().strip("'-") for word in re.findall(r"[A-Za-z][A-Za-z'-]+", text)}


def ours(text: str) -> list[str]:
    """Lines of rdzv's own, without what they quote of a program, and what follows in a fold."""
    found: list[str] = []
    is_ours = False
    for line in text.splitlines():
        is_ours = line.startswith("rdzv") or (is_ours and line.startswith("      "))
        if is_ours and "rdzv:   | " not in line:
            found.append(re.sub(r"^rdzv:?( +[\d.]+ s )? *", "", line))
    return found


def launch(
    folder: Path, *words: str, expects: int, files: dict[str, str] | None = None
) -> tuple[list[str], str]:
    """Lines that rdzv writes of a launch in a new folder, and all that is written."""
    for name, text in (files or {}).items():
        (folder / name).write_text(text)
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
    assert done.returncode == expects, done.stderr
    return ours(done.stderr), done.stderr + done.stdout


HELLO = ("--rdzv-id", "hello", "--nnodes", "4", "--framework", "command", "--", "sh", "-c")
DEMO = ("--rdzv-id", "demo", "--nnodes", "4", "--nproc-per-node", "2,1,1,1", "--")


@pytest.mark.parametrize(
    "words", [(*HELLO, "echo node $NODE_RANK"), (*DEMO, str(ROOT / "examples/digits.py"))]
)
def test_a_healthy_run_is_told_in_plain_words_and_three_lines(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    lines, _ = launch(tmp_path, *words, expects=0)
    assert words_in(lines) - PLAIN - terms() == set()
    assert words_in(lines) & NOT_IN_A_HEALTHY_RUN == set()
    starts = ("launching run", "4 of 4 nodes have joined", "all 4 nodes reach each other over")
    assert [line.startswith(start) for line, start in zip(lines, starts, strict=False)] == [
        True
    ] * 3
    assert len(lines) <= 5, lines  # the end, and how far the program told that it came


FAILS = "import sys\nsys.exit(3)\n"
RAISES = "raise ValueError('no data')\n"
PARSES = "import argparse\nargparse.ArgumentParser().parse_args()\n"


@pytest.mark.parametrize(
    ("script", "arguments", "expects"),
    [
        ("absent.py", (), 82),
        ("fails.py", (), 3),
        ("raises.py", (), 1),
        ("parses.py", ("--steps", "3"), 2),
    ],
)
def test_a_first_failure_is_told_in_words_that_are_plain_or_explained(
    script: str, arguments: tuple[str, ...], expects: int, tmp_path: Path
) -> None:
    files = {"fails.py": FAILS, "raises.py": RAISES, "parses.py": PARSES}
    words = ("--rdzv-id", "first", "--nnodes", "2", "--framework", "env", "--", script, *arguments)
    lines, text = launch(tmp_path, *words, expects=expects, files=files)
    assert lines, text
    assert words_in(lines) - PLAIN - terms() == set()


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
