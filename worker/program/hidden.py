"""A process of ours that holds keys, hidden from others of its user; imports next to nothing."""

from __future__ import annotations

import contextlib

from worker.program import keeper


def hide_memory() -> None:
    """No core file of this process, and no look into it for others of its user: it holds keys.

    Whoever may trace any process (CAP_SYS_PTRACE) still can. A program that it starts is not
    affected.
    """
    with contextlib.suppress(OSError):
        keeper.prctl(keeper.PR_SET_DUMPABLE, 0)
