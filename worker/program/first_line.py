"""Reads the first line of a script, where that keeps it from being started.

The keeper imports it, so it needs nothing but the standard library.
"""

from __future__ import annotations

import os

_HEAD_BYTES = 256
_MARK = b"\xef\xbb\xbf"


def first_line_problem(program: str) -> str:
    """Why the first line of this file keeps it from being started; empty where it does not.

    The kernel's own words for all of them are that there is no such file.

    Args:
        program: Its path.
    """
    try:
        with open(program, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return ""
    if head.startswith(_MARK + b"#!"):
        return "a byte order mark precedes its #! line: save it without one"
    first = head.partition(b"\n")[0]
    words = os.fsdecode(first[2:]).split(maxsplit=1) if first.startswith(b"#!") else []
    if not words:
        return ""
    if first.endswith(b"\r"):
        return "its lines end as on Windows (CRLF): convert it with dos2unix"
    if not os.path.exists(words[0]):
        return f"its first line names {words[0]}, which is not on this node"
    return ""


def is_noexec(path: str) -> bool:
    """Whether a file lies on a file system from which nothing can be executed."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)
    except (OSError, ValueError):
        return False
