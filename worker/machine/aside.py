"""Ask a driver through a process of its own: it may block or crash whoever asks it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from worker.program.ending import signal_name

_LAST_SECONDS = 0.1
_held: list[subprocess.Popen[bytes]] = []
"""Killed processes that the kernel has not let go of yet; reaped at the next question."""


@dataclass(frozen=True)
class Answer:
    """What the program printed, and how it ended.

    Attributes:
        problem: Why it may not have said all; empty after an orderly end.
        is_late: Whether that is because it took too long.
    """

    text: str
    problem: str
    is_late: bool = False


def ask(program: Path, *arguments: str, limit_seconds: float, site: bool = False) -> Answer:
    """Run a Python file of ours, in isolated mode, and read what it prints.

    Args:
        program: The file; it names what it imports beyond the standard library.
        arguments: Its arguments.
        limit_seconds: Then it is killed. What it has printed so far counts.
        site: Whether it needs installed packages; without, it starts sooner.
    """
    options = ["-I"] if site else ["-I", "-S"]
    return run(
        [sys.executable, *options, str(program), *arguments],
        os.environ,
        limit_seconds=limit_seconds,
    )


def run(argv: Sequence[str], environ: Mapping[str, str], *, limit_seconds: float) -> Answer:
    """Run any program, and read what it prints to its standard output; see `ask`."""
    _held[:] = [process for process in _held if process.poll() is None]
    try:
        process = subprocess.Popen(
            argv,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:
        return Answer("", f"no process can be started: {error.strerror}")
    try:
        said, _ = process.communicate(timeout=limit_seconds)
    except subprocess.TimeoutExpired as late:
        return Answer(_end(process, late), f"no answer within {limit_seconds:g} s", is_late=True)
    text = said.decode(errors="replace")
    if process.returncode < 0:
        number = -process.returncode
        return Answer(text, f"the query ended with {signal_name(number) or f'signal {number}'}")
    return Answer(text, f"the query ended with {process.returncode}" if process.returncode else "")


def _end(process: subprocess.Popen[bytes], late: subprocess.TimeoutExpired) -> str:
    """Kill the process, and do not wait for one that the driver holds: it dies when let go."""
    said = late.output or b""
    process.kill()
    try:
        said, _ = process.communicate(timeout=_LAST_SECONDS)
    except subprocess.TimeoutExpired:
        if process.stdout is not None:
            process.stdout.close()
        _held.append(process)
    return said.decode(errors="replace")
