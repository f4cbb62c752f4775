"""The limit of CPU time of this process (ulimit -t): survived while it can be, then named.

At the soft limit the kernel sends SIGXCPU each second, which ends who does not catch it; at the
hard one SIGKILL, which nobody catches. A timer of CPU time, which no child inherits, comes before.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import time
from collections.abc import Callable, Iterator

END_SECONDS = 1.0
"""Of CPU time, to end in by name."""
_LEAST_SECONDS = 0.05


@contextlib.contextmanager
def cpu_time_watched(
    say: Callable[[int, int | None], None], used_up: Callable[[int], None]
) -> Iterator[None]:
    """Have both told, on the running loop, as long as this is entered.

    Args:
        say: Is told once of the soft limit when it is met, and of the hard one (None: there is
            none), in seconds.
        used_up: Is told of the hard limit shortly before it is met.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    loop = asyncio.get_running_loop()
    numbers: list[int] = []
    if soft != resource.RLIM_INFINITY:
        told: list[int] = []

        def met() -> None:
            if not told:
                told.append(soft)
                say(soft, None if hard == resource.RLIM_INFINITY else hard)

        loop.add_signal_handler(signal.SIGXCPU, met)
        numbers.append(signal.SIGXCPU)
    if hard != resource.RLIM_INFINITY:
        loop.add_signal_handler(signal.SIGPROF, used_up, hard)
        numbers.append(signal.SIGPROF)
        left = hard - time.process_time() - END_SECONDS
        signal.setitimer(signal.ITIMER_PROF, max(_LEAST_SECONDS, left))
    try:
        yield
    finally:
        if signal.SIGPROF in numbers:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, signal.SIG_IGN)  # it may be on its way
            numbers.remove(signal.SIGPROF)
        for number in numbers:
            loop.remove_signal_handler(number)
