"""Who has sent a SIGINT: the terminal's Ctrl-C, or somebody else."""

from __future__ import annotations

import os
import pty
import sys

import pytest

LISTENS = """
import asyncio, os
from rdzv_command import install_features
install_features()
from launcher.prepare.environment import LaunchEnvironment

def tell(number, *, pressed):
    print(f"signal {number}, pressed: {pressed}", flush=True)
    os._exit(0)

async def main():
    LaunchEnvironment().on_signals(tell)
    print("ready", flush=True)
    await asyncio.sleep(20)

asyncio.run(main())
"""


@pytest.mark.real_time
@pytest.mark.parametrize("pressed", [True, False])
def test_a_key_of_the_terminal_is_told_from_a_signal_of_somebody(*, pressed: bool) -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", LISTENS])
    try:
        _read_until(terminal, "ready")
        if pressed:
            os.write(terminal, b"\x03")
        else:
            os.kill(child, 2)
        _read_until(terminal, f"signal 2, pressed: {pressed}")
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)


def _read_until(terminal: int, words: str) -> None:
    seen = ""
    while words not in seen:
        seen += os.read(terminal, 4096).decode()
        assert "Traceback" not in seen
