"""How processes that are not our children ended: the kernel keeps it for who holds a pidfd."""

from __future__ import annotations

import fcntl
import os
import struct

_FORM = "=QQ11Ii"
_EXIT = 1 << 3
_GET_INFO = 3 << 30 | struct.calcsize(_FORM) << 16 | 0xFF << 8 | 11


def exit_status(pidfd: int) -> int | None:
    """Exit code, negative for a signal; None while it lives, or where the kernel is before 6.15."""
    asked = bytearray(struct.pack(_FORM, _EXIT, *[0] * 13))
    try:
        fcntl.ioctl(pidfd, _GET_INFO, asked)
    except OSError:
        return None
    mask, *_, status = struct.unpack(_FORM, asked)
    return os.waitstatus_to_exitcode(status) if mask & _EXIT else None
