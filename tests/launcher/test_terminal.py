"""What a terminal shows: colours, and a table that is redrawn."""

from __future__ import annotations

import pytest

from launcher.terminal import can_redraw, shows_colours


@pytest.mark.parametrize(
    ("environ", "colours", "redraws"),
    [
        ({}, True, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, True),  # as no-color.org has it
        ({"TERM": "xterm", "NO_COLOR": "0"}, False, True),
        ({"TERM": "dumb"}, False, False),
        ({"TERM": "unknown"}, False, False),
    ],
)
def test_the_environment_says_what_a_terminal_can_show(
    environ: dict[str, str], colours: bool, redraws: bool
) -> None:
    assert (shows_colours(environ), can_redraw(environ)) == (colours, redraws)
