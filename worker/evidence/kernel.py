"""Reads the kernel's log, and what the machine as a whole has counted."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from worker.machine import sysfs
from worker.machine.groups import counter_in

ReadLog: TypeAlias = Callable[[int], str]
"""The newest part of the kernel's log, at most so many bytes; empty where it may not be read."""

SHORT_BYTES = 4_096
"""Enough for the last line."""

LONG_BYTES = 1 << 20

_READ_ALL = 3


def read_log(most_bytes: int) -> str:
    """Ask the kernel for the end of its log: it waits for nothing, and takes nothing away.

    /dev/kmsg tells the same to the same readers, but line by line, and not where a container has no
    such device.
    """
    try:
        buffer = ctypes.create_string_buffer(most_bytes)
        length = ctypes.CDLL(None).klogctl(_READ_ALL, buffer, most_bytes)
    except (OSError, AttributeError):
        return ""
    return ctypes.string_at(buffer, max(length, 0)).decode(errors="replace")


def kills_of_machine(root: Path = Path("/")) -> int | None:
    """The processes that the kernel has killed for memory since it started, of any group."""
    return counter_in(sysfs.content(root / "proc/vmstat"), "oom_kill")
