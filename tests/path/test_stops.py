"""A run that is stopped, from a real terminal: what is said, and what each process is told."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.launching import LIMIT_SECONDS, RDZV, environment
from tests.support.nightly import at_night
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.real_time, pytest.mark.timeout(120)]

RANKS = 4
TOLD_ONCE = {f"{rank} {word}": 1 for rank in range(RANKS) for word in ("ready", "SIGTERM")}
# Notes each signal, and heeds none: the grace is the time in which a second one would come.
NOTES = """
import os, signal, sys
file = os.open(sys.argv[1], os.O_CREAT | os.O_APPEND | os.O_WRONLY)
note = lambda what: os.write(file, f"{os.environ['RANK']} {what}\\n".encode())
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, lambda number, _: note(signal.Signals(number).name))
note("ready")
while True:
    signal.pause()
"""
IN_A_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Stage:
    """A launch in a terminal, whose ranks note each signal that they get."""

    def __init__(self, folder: Path, framework: str) -> None:
        # 'ps' shows an agent's command cut to the length of the launcher's: it has to be long.
        self._file = folder / f"signals-{'of-each-rank-' * 5}"
        self._screen = b""
        script = folder / "notes.py"
        script.write_text(NOTES)
        nodes = 1 if framework == "torchrun" else 2  # its import is half of what the test costs
        size = ("--nnodes", str(nodes), "--nproc-per-node", str(RANKS // nodes))
        options = (*size, "--framework", framework)
        line = [RDZV, "launch", "--rdzv-id", "r", "--grace", "1.5", *options]
        self.master, terminal = os.openpty()
        os.set_blocking(self.master, False)
        self.process = subprocess.Popen(
            [sys.executable, "-c", IN_A_TERMINAL, *line, "--", str(script), str(self._file)],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=environment(folder / "state", TERM="xterm", COLUMNS="100"),
            start_new_session=True,
        )
        os.close(terminal)
        until(lambda: self.drained() and self.noted().total() == RANKS)

    def noted(self) -> Counter[str]:
        """What each rank has noted, and how often."""
        return Counter(self._file.read_text().splitlines() if self._file.exists() else [])

    def drained(self) -> bool:
        """Read the terminal, which holds little; a terminal that is gone has nothing."""
        try:
            while piece := os.read(self.master, 65_536):
                self._screen += piece
        except OSError:
            pass
        return True

    def close(self) -> None:
        """Close the terminal, once."""
        if self.master >= 0:
            os.close(self.master)
        self.master = -1

    def ended(self) -> int:
        """Wait for the end of the launch: its exit code."""
        until(lambda: self.drained() and self.process.poll() is not None)
        return self.process.returncode

    def said(self) -> list[str]:
        """rdzv's own lines since Ctrl-C."""
        lines = self._screen.rpartition(b"^C")[2].decode().splitlines()
        plain = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line).strip() for line in lines]
        return [line for line in plain if "rdzv: " in line and "| " not in line]

    def agent(self) -> psutil.Process:
        """Of slot 1."""
        children = psutil.Process(self.process.pid).children()
        return next(child for child in children if "127.0.0.2" in child.cmdline())


@contextmanager
def stage(folder: Path, framework: str) -> Iterator[Stage]:
    """It runs; whatever is left of it at the end is ended."""
    staged = Stage(folder, framework)
    try:
        yield staged
    finally:
        if staged.process.poll() is None:
            staged.process.kill()
        staged.process.wait(LIMIT_SECONDS)
        staged.close()


def press_ctrl_c(staged: Stage) -> None:
    os.write(staged.master, b"\x03")


def close_the_terminal(staged: Stage) -> None:
    """The kernel tells the launcher, and the shell that it belonged to tells it once more."""
    staged.close()
    until(lambda: staged.noted().total() > RANKS)
    staged.process.send_signal(signal.SIGHUP)


def tell_an_agent(staged: Stage) -> None:
    staged.agent().terminate()


@pytest.mark.parametrize(
    ("framework", "stop"),
    [
        ("env", close_the_terminal),
        at_night("env", tell_an_agent),
        pytest.param(
            "torchrun", close_the_terminal, marks=[pytest.mark.torch, pytest.mark.nightly]
        ),
    ],
)
def test_each_process_is_told_once_to_end(
    tmp_path: Path, framework: str, stop: Callable[[Stage], None]
) -> None:
    with stage(tmp_path, framework) as staged:
        stop(staged)
        assert staged.ended() > 128
    assert staged.noted() == TOLD_ONCE


@pytest.mark.torch
def test_one_ctrl_c_is_one_line_and_the_end_another(tmp_path: Path) -> None:
    with stage(tmp_path, "torchrun") as staged:
        press_ctrl_c(staged)
        assert staged.ended() > 128
    assert staged.noted() == TOLD_ONCE
    begins, *folded, ends = staged.said()
    assert all("rdzv: torchrun printed " in line for line in folded)
    assert begins.startswith("rdzv: Stopping all nodes (up to 1.5 s). Press Ctrl-C again")
    assert ends.startswith("rdzv: you stopped run 'r' with Ctrl-C (exit code 130)")
