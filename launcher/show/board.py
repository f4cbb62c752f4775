"""Boards, on which a person sees a run form and run: a line that lives, plain lines, or JSON.

A board is told two things: the state of the run (for the table) and its events (for the lines). All
boards write to standard error, so that the programs keep standard output; only JSON goes there.

What draws is imported when something is drawn: the registry need not wait for it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

from launcher.show.event_lines import PAUSE_SECONDS, EventLines
from launcher.show.living import SILENT_SECONDS, Outputs, living_words
from launcher.show.slot_table import MOST_ROWS, draw, one_line
from rendezvous.wire.run import (
    EpochEnd,
    EventLine,
    Phase,
    Result,
    RunStatus,
)
from worker.program.terminal import can_redraw

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

_OTHER_ROWS = 4
"""Of the drawing, beside one for each slot."""
_SAY_AGAIN_SECONDS = 60.0
_FIRST_EVENT_SECONDS = 5.0
_LINE_SECONDS = 5.0
"""While nodes join, a line of how many have is written so seldom, and only at each quarter."""
_TABLE_SECONDS = 5.0
"""A start that takes longer is shown as a table."""


class Board(Protocol):
    """What the launcher shows itself on."""

    def status(self, status: RunStatus) -> None:
        """The run stands like this now."""

    def event(self, line: EventLine, *, said: bool = False) -> None:
        """This happened; `said`: the person knows it already."""

    def say(self, text: str) -> None:
        """Something of the launcher's own."""

    def close(self) -> None:
        """Nothing more is shown."""


class _Rhythm:
    """When to say what is waited for: when that changes and nothing was written for a moment; and
    now and then for how long already."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._topic: int | None = -1
        self._ended = list[EpochEnd]()
        self._patience = 0.0
        self._wrote_at = 0.0

    def wrote(self) -> None:
        """A line was written."""
        self._wrote_at = self._clock()

    def is_due(self, status: RunStatus) -> bool:
        """Whether to say its reason now; if so, it counts as said."""
        if self._ended != status.ended[-1:]:  # which the launcher tells now
            self._ended, self._wrote_at = status.ended[-1:], self._clock()
        silent = self._clock() - self._wrote_at
        is_going_on = status.phase is Phase.RUNNING and not status.ending
        if silent <= PAUSE_SECONDS or is_going_on or status.phase is Phase.FINISHED:
            return False
        if status.trouble and status.phase is not Phase.RUNNING:  # the launcher says it
            return False
        is_same = status.topic == self._topic
        if is_same and silent < self._patience:
            return False
        self._patience = 2 * self._patience if is_same else _SAY_AGAIN_SECONDS
        self._topic = status.topic
        return True


def _awaited(status: RunStatus) -> str:
    """What is waited for; why the programs start again was said when they ended."""
    left = status.remaining_seconds
    if status.phase is Phase.RESTARTING and left is not None:
        return f"{status.phase}: {left:.0f} s left"
    return status.reason


class _Joined:
    """Count of the nodes that have joined, by the events: these come in their order."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._slots = set[int]()
        self._said = 0
        self._said_at = 0.0

    def take(self, line: EventLine) -> str:
        """Note an event; returns a sentence where it is time for one."""
        if line.kind == "joined" and line.slot is not None:
            self._slots.add(line.slot)
        count, quarter = len(self._slots), max(1, self._nodes // 4)
        is_step = count >= self._said + quarter and line.at_seconds >= self._said_at + _LINE_SECONDS
        is_over = line.kind != "joined" and not line.usual
        if count > self._said and (count == self._nodes or is_step or is_over):
            self._said, self._said_at = count, line.at_seconds
            return self.words
        return ""

    @property
    def words(self) -> str:
        """`3 of 4 nodes have joined`."""
        verb = "has" if self._nodes == 1 else "have"
        return f"{len(self._slots)} of {self._nodes} node{'s' * (self._nodes > 1)} {verb} joined"


class PlainBoard:
    """Lines for logs and pipes.

    Args:
        stream: Where they are written.
        nodes: How many are to join.
        verbose: Each step of each node has its line.
        clock: In seconds.
    """

    def __init__(
        self,
        stream: TextIO,
        nodes: int,
        *,
        verbose: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._joined = _Joined(nodes)
        self._events = EventLines(clock, verbose=verbose)
        self._verbose = verbose
        self._rhythm = _Rhythm(clock)
        self._clock = clock
        self._silent_until: float | None = None

    def status(self, status: RunStatus) -> None:
        """Say what is waited for, now and then; not before what happened until then is shown.

        The run's events come by a connection of their own, and may not come at all.
        """
        now = self._clock()
        self._tell_held(status)
        if self._silent_until is None:
            self._silent_until = now + _FIRST_EVENT_SECONDS
        if now >= self._silent_until and self._rhythm.is_due(status):
            self._write(status.elapsed_seconds, _awaited(status))

    def event(self, line: EventLine, *, said: bool = False) -> None:
        """Say what happened; what every node does alike, only to who asked for it."""
        joined = self._joined.take(line)
        if joined and not self._verbose:
            self._tell_held()
            self._write(line.at_seconds, joined)
        for one in self._events.take(line, said=said):
            self._write(*one)

    def say(self, text: str) -> None:
        """See the protocol."""
        self._tell_held()
        self._stream.write(f"rdzv: {one_line(text)}\n")
        self._stream.flush()

    def close(self) -> None:
        """See the protocol."""
        self._tell_held()

    def _tell_held(self, status: RunStatus | None = None) -> None:
        for one in self._events.held(status):
            self._write(*one)

    def _write(self, seconds: float, text: str) -> None:
        self._silent_until = 0.0
        self._rhythm.wrote()
        self._stream.write(f"rdzv {seconds:7.1f} s  {one_line(text)}\n")
        self._stream.flush()


class JsonBoard:
    """Events as JSON lines on standard output, for programs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._result: Result | None = None

    def begin(self, run: str, folder: Path) -> None:
        """The launch has its name, which rdzv may have made, and its state folder."""
        self._write({"kind": "launch", "run": run, "folder": os.path.abspath(folder)})

    def status(self, status: RunStatus) -> None:
        """Only the end is told, and when the board is closed; what leads there are events."""
        self._result = status.result

    def event(self, line: EventLine, *, said: bool = False) -> None:
        """A program is told all of them."""
        self._write(asdict(line))

    def say(self, text: str) -> None:
        """See the protocol."""
        self._write({"kind": "launcher", "reason": text})

    def close(self) -> None:
        """See the protocol."""
        if self._result is not None:
            self._write({"kind": "result", **self._result.model_dump(mode="json")})
            self._result = None

    def _write(self, value: dict[str, object]) -> None:
        self._stream.write(json.dumps(value) + "\n")
        self._stream.flush()


class LiveBoard:
    """A line that is rewritten while nodes join, a table where that takes long, and lines once the
    programs have the terminal.

    Args:
        nodes: How many are to join.
        outputs: Tells whether the programs print; None: nothing is shown beside them.
        verbose: Each step of each node has its line.
        console: Where it is drawn; None: standard error.
        clock: In seconds.
    """

    def __init__(
        self,
        nodes: int,
        outputs: Outputs | None = None,
        *,
        verbose: bool = False,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._joined = _Joined(nodes)
        self._events = EventLines(clock, verbose=verbose)
        self._outputs = outputs
        self._console = console
        self._clock = clock
        self._rhythm = _Rhythm(clock)
        self._live: Live | None = None
        self._began_at: float | None = None
        self._formed = False

    def _screen(self) -> Console:
        if self._console is None:
            from rich.console import Console

            self._console = Console(stderr=True, highlight=False)
        return self._console

    def status(self, status: RunStatus) -> None:
        """Redraw; from the go on the terminal is the programs', but for who is late to end."""
        self._tell_held(status)
        if not self._formed:
            self._draw(status)
        elif self._rhythm.is_due(status):
            self.say(_awaited(status))
        elif status.phase is Phase.RUNNING and not status.ending:
            self._show_life(status)

    def _draw(self, status: RunStatus) -> None:
        now = self._clock()
        if self._began_at is None:
            self._began_at = now
        ended = status.phase is Phase.FINISHED  # the last line says how
        if status.phase is Phase.RUNNING:
            self._form()
        elif ended or now - self._began_at >= _TABLE_SECONDS:
            rows = max(1, min(MOST_ROWS, self._screen().height - _OTHER_ROWS))
            self._redraw(draw(status, most_rows=rows, sentence=not ended))
        else:
            self._redraw(self._line())
        if ended:
            self._end_drawing()

    def _line(self) -> Text:
        from rich.text import Text

        return Text(f"rdzv: {self._joined.words}", no_wrap=True, overflow="ellipsis")

    def _redraw(self, drawing: RenderableType) -> None:
        if self._live is None:
            from rich.live import Live

            self._live = Live(console=self._screen(), auto_refresh=False, transient=False)
            self._live.start()
        self._live.update(drawing, refresh=True)

    def _form(self) -> None:
        """Leave the line of who has joined where it is: the terminal is the programs' now."""
        if not self._formed:
            self._redraw(self._line())
            self._end_drawing()

    def _end_drawing(self) -> None:
        if self._live is not None:
            self._live.stop()
        self._formed = True

    def _show_life(self, status: RunStatus) -> None:
        """Draw how the run goes on, in the row in which the nodes draw the bars of their programs.

        The cursor stays at its beginning, and whoever writes next erases it.
        """
        silent = self._outputs.silent_seconds(self._clock()) if self._outputs is not None else None
        if silent is None or min(silent, status.running_seconds) < SILENT_SECONDS or status.finding:
            return
        console = self._screen()
        words = one_line(f"rdzv: {living_words(status, silent)}")[: max(1, console.width - 1)]
        console.file.write(f"\r\x1b[K\x1b[2m{words}\x1b[22m\r")
        console.file.flush()

    def event(self, line: EventLine, *, said: bool = False) -> None:
        """Say what happened; what every node does alike, only to who asked for it.

        Events come by a connection of their own: that of the go may come before its status.
        """
        self._joined.take(line)
        if line.phase is Phase.RUNNING:
            self._form()
        for _, words in self._events.take(line, said=said):
            self.say(words)

    def say(self, text: str) -> None:
        """See the protocol. The terminal wraps it: a command in it can be copied as it is.

        While programs run, the newest state of a progress bar may stand where it is written.
        """
        from rich.console import Group
        from rich.text import Text

        self._tell_held()
        self._rhythm.wrote()
        if self._formed:
            self._erase_row()
        line = Text(f"rdzv: {one_line(text)}", no_wrap=True, overflow="ignore")
        self._screen().print(Group(line), crop=False)  # of a bare text, print forgets both

    def _tell_held(self, status: RunStatus | None = None) -> None:
        for _, words in self._events.held(status):
            self.say(words)

    def _erase_row(self) -> None:
        from rich.control import Control
        from rich.segment import ControlType

        self._screen().control(Control((ControlType.ERASE_IN_LINE, 0)))

    def close(self) -> None:
        """See the protocol."""
        self._tell_held()
        if self._formed:
            self._erase_row()
        else:
            self._end_drawing()


def make_board(
    nodes: int, logs: Path | None = None, *, json_events: bool = False, verbose: bool = False
) -> Board:
    """The board that fits where standard error goes; only some terminals can redraw a line.

    Args:
        nodes: How many are to join.
        logs: The folder of the log files of the nodes on this machine.
        json_events: Whether a program reads it.
        verbose: Whether each step of each node is shown.
    """
    if json_events:
        return JsonBoard(sys.stdout)
    if sys.stderr.isatty() and can_redraw(os.environ):
        return LiveBoard(nodes, Outputs(logs) if logs is not None else None, verbose=verbose)
    return PlainBoard(sys.stderr, nodes, verbose=verbose)
