"""What a terminal can show: colours, and a table that is redrawn."""

from __future__ import annotations

from collections.abc import Mapping


def can_redraw(environ: Mapping[str, str]) -> bool:
    """Whether a terminal knows escape sequences: one of Emacs or of a logged console may not."""
    return environ.get("TERM") not in ("dumb", "unknown")


def shows_colours(environ: Mapping[str, str]) -> bool:
    """Whether a terminal has colours, and its user wants them: see https://no-color.org."""
    return can_redraw(environ) and not environ.get("NO_COLOR")
