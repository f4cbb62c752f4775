"""Progress bars of several nodes, on a terminal that they share and in a pipe."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.launching import LIMIT_SECONDS, RDZV, environment
from tests.support.nightly import at_night
from tests.support.terminals import ESCAPE, Screen, on_terminal

pytestmark = [pytest.mark.faults, pytest.mark.real_time, pytest.mark.timeout(120)]

NODES = 4
# Writes the bytes of tqdm: a bar, one with an inner one, which is cleared at its end; and lines.
BARS = """
import os, shutil, sys, time
width = shutil.get_terminal_size().columns - 1
def draw(name, done, of=20, before="\\r", after=""):
    room = width - len(f"{name}: 100%||")
    bar = "#" * (room * done // of)
    sys.stderr.write(f"{before}{name}: {100 * done // of:3d}%|{bar:{room}}|{after}")
    sys.stderr.flush()
    time.sleep(0.02)
print("long xxxxxxxx\\rdone", flush=True)
for step in range(21):
    draw("bar", step)
    if step == 10:
        print(f"half way of {width + 1}", flush=True)
sys.stderr.write("\\n")
for epoch in range(3):
    draw("outer", epoch, 2)
    for step in range(10):
        draw("inner", step, before="\\n\\r", after="\\x1b[A")
sys.stderr.write("\\n\\r" + " " * width + "\\r\\x1b[A")
draw("outer", 2, 2)
sys.stderr.write("\\n")
"""


@pytest.fixture
def line(tmp_path: Path) -> list[str]:
    """A launch of it."""
    script = tmp_path / "bars.py"
    script.write_text(BARS)
    size = ("--nnodes", str(NODES), "--nproc-per-node", "1", "--framework", "env")
    return [RDZV, "launch", "--rdzv-id", "r", *size, "--", str(script)]


def of_programs(shown: Sequence[str]) -> Counter[str]:
    """How many nodes have shown each line; no line is anything but a node's or rdzv's."""
    lines = list(filter(None, (ESCAPE.sub("", line).rstrip() for line in shown)))
    begin = next(at for at, line in enumerate(lines) if line.startswith("["))
    found: Counter[str] = Counter()
    for line in lines[begin:]:
        assert re.match(r"\[[0-3]\] |rdzv: |rdzv +[0-9.]+ s  |      ", line), lines
        if line.startswith("["):
            found[line[4:]] += 1
    return found


def full(name: str, width: int) -> str:
    return f"{name}: 100%|{'#' * (width - 1 - len(f'{name}: 100%||'))}|"


@pytest.mark.parametrize("columns", [80, at_night(60)])
def test_on_a_terminal_bars_are_drawn_in_place_and_leave_their_last_state(
    tmp_path: Path, line: list[str], columns: int
) -> None:
    environ = environment(tmp_path / "state", TERM="xterm")
    code, text = on_terminal(line, environ, columns=columns)
    width = columns - len("[0] ")
    found = of_programs(Screen(columns).write(text).lines())
    for words in ("done", f"half way of {width}", full("bar", width), full("outer", width)):
        assert found.pop(words) == NODES, found
    assert found.pop(f"outer:   0%|{' ' * (width - 14)}|") == NODES
    assert (code, found) == (0, Counter())
    drawn = re.findall(r"\x1b\[K(\[[0-3]\] [^\r\n]*)\r", text)
    assert any(row[4:].startswith("bar: ") for row in drawn)
    assert max(map(len, drawn)) < columns


def test_in_a_pipe_each_line_has_one_state_and_its_prefix(tmp_path: Path, line: list[str]) -> None:
    done = subprocess.run(
        line,
        env=environment(tmp_path / "state", COLUMNS="64"),  # the user's own
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
        check=True,
    )
    assert "\r" not in done.stdout
    assert "\x1b" not in done.stdout
    found = of_programs(done.stdout.split("\n"))
    for words in ("done", "half way of 64", full("bar", 64), full("outer", 64)):
        assert found.pop(words) == NODES, found
    assert all(re.match(r"(bar|outer|inner): +\d+%\|[# ]*\|$", line) for line in found), found
    assert found.total() <= 4 * NODES
    logs = subprocess.run(
        [RDZV, "logs", "r", "--node", "0", "--lines", "1000"],
        env=environment(tmp_path / "state"),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=True,
    )
    shown = logs.stdout.split("\n")
    assert "done" in shown
    assert shown[-2:] == [full("outer", 64), ""]
    assert not [line for line in shown if "\r" in line or "\x1b[A" in line]
    assert len([line for line in shown if line.endswith("#|") and line.startswith("bar")]) == 1
