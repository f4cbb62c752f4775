"""Runs a command on a terminal, as a person would see it."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MOVE = re.compile(r"\x1b\[[0-9;?]*[A-HJKf]")


def on_terminal(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    columns: int = 80,
    rows: int = 40,
    seconds: float = 30.0,
) -> tuple[int, str]:
    """Its exit code, and all that it writes on a terminal of this size, with escape sequences."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    known = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        argv, stdin=its, stdout=its, stderr=its, env=known, cwd="/", start_new_session=True
    )
    os.close(its)
    try:
        text = _read(ours, time.monotonic() + seconds)
        return process.wait(seconds), text.replace("\r\n", "\n")
    finally:
        os.close(ours)
        if process.poll() is None:
            process.kill()
        process.wait()


def _read(terminal: int, deadline: float) -> str:
    """What is written until the last writer has closed it."""
    found = b""
    while select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
        try:
            data = os.read(terminal, 65_536)
        except OSError:  # EIO: that is how a terminal ends
            return found.decode()
        found += data
    raise AssertionError(f"it is not at its end: {found[-1_000:]!r}")


def shown_lines(text: str) -> list[str]:
    """Every line that was ever shown, also of tables that were drawn over; without the escapes."""
    return [ESCAPE.sub("", line) for line in _MOVE.sub("\n", text).split("\n")]
