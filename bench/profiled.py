"""The registry under cProfile: `python -m bench.profiled OUT CONFIG --fd N`; SIGTERM ends it."""

from __future__ import annotations

import cProfile
import signal
import sys
import time
from types import FrameType

from rendezvous.registry.process import main


def _end(number: int, _: FrameType | None) -> None:
    """uvicorn raises the signal again when it is done: leave by an exception, not at once."""
    raise SystemExit(128 + number)


def run() -> None:
    """Serve until told to end, and write where the time went."""
    out = sys.argv.pop(1)
    signal.signal(signal.SIGTERM, _end)
    profile = cProfile.Profile(time.thread_time)  # CPU time: a wait is nobody's work
    try:
        profile.runcall(main)
    finally:
        profile.dump_stats(out)


if __name__ == "__main__":
    run()
