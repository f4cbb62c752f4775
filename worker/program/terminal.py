"""The terminal that a node's output goes to: what it can do, and its size."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress


def can_redraw(environ: Mapping[str, str]) -> bool:
    """Return whether a terminal knows escape sequences: Emacs's or a logged console may not."""
    return environ.get("TERM") not in ("dumb", "unknown")


def size_of(*fds: int) -> os.terminal_size | None:
    """The size of the first of these descriptors that is a terminal; None: none is, or tells."""
    for fd in fds:
        with suppress(OSError):
            size = os.get_terminal_size(fd)
            if size.columns > 0:
                return size
    return None


def size_variables(
    environ: Mapping[str, str], size: os.terminal_size | None, prefix: str
) -> dict[str, str]:
    """Variables that tell a program the size of the terminal that shows its output.

    It writes into a pipe, and cannot ask the terminal. Of tqdm, older versions read COLUMNS only
    beside LINES, and newer ones neither.

    Args:
        environ: Of the program. Where its user has set a width, no other one is set.
        size: Of the terminal; None: its output goes elsewhere.
        prefix: In front of each line.
    """
    if size is None or "COLUMNS" in environ:
        return {}
    columns = max(1, size.columns - len(prefix))
    sizes = {"COLUMNS": columns, "LINES": size.lines, "TQDM_NCOLS": max(1, columns - 1)}
    return {name: str(n) for name, n in sizes.items() if n > 0 and name not in environ}
