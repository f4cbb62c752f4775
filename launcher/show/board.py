"""What the person sees while a run forms and runs: a live table, plain lines, or JSON.

A board is told two things: the state of the run (for the table) and its events (for the lines). All
boards write to standard error, so that the programs keep standard output; only JSON goes there.

What draws is imported when something is drawn: the registry need not wait for it.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

from launcher.show.epochs import used_text
from launcher.show.slot_words import state_words, worker_run_words
from rendezvous.wire.run import (
    EventLine,
    NodeState,
    Phase,
    Result,
    RunStatus,
    SlotStatus,
)
from rendezvous.wire.words import printable
from worker.program.terminal import can_redraw

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group, RenderableType
    from rich.live import Live
    from rich.text import Text

_MOST_ROWS = 32
_OTHER_ROWS = 4
"""Of the drawing, beside one for each slot."""
_WRAPPED = ("worker run", "state")
_LEAST_WRAPPED = 9
_MOST_NAME = 24
_PAUSE_SECONDS = 1.0
_SAY_AGAIN_SECONDS = 60.0
_FIRST_EVENT_SECONDS = 5.0
_MOST_CHARACTERS = 2_000
_IN_THE_TABLE = ("created", "slot", "joined", "probed", "acked")
"""Kinds of events that a row or the head of the table shows; any other kind is a line as well."""


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
        self._patience = 0.0
        self._wrote_at = 0.0

    def wrote(self) -> None:
        """A line was written."""
        self._wrote_at = self._clock()

    def is_due(self, status: RunStatus) -> bool:
        """Whether to say its reason now; if so, it counts as said."""
        silent = self._clock() - self._wrote_at
        is_going_on = status.phase is Phase.RUNNING and not status.ending
        if silent <= _PAUSE_SECONDS or is_going_on or status.phase is Phase.FINISHED:
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


class PlainBoard:
    """One line for each thing that happens: for logs and pipes."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._rhythm = _Rhythm(clock)
        self._clock = clock
        self._silent_until: float | None = None

    def status(self, status: RunStatus) -> None:
        """Say what is waited for, now and then; not before what happened until then is shown.

        The run's events come by a connection of their own, and may not come at all.
        """
        now = self._clock()
        if self._silent_until is None:
            self._silent_until = now + _FIRST_EVENT_SECONDS
        if now >= self._silent_until and self._rhythm.is_due(status):
            self._write(status.elapsed_seconds, _awaited(status))

    def event(self, line: EventLine, *, said: bool = False) -> None:
        """Say what happened, but for what every node does alike."""
        self._silent_until = 0.0
        if not (line.usual or said):
            self._write(line.at_seconds, line.reason)

    def say(self, text: str) -> None:
        """See the protocol."""
        self._stream.write(f"rdzv: {_line(text)}\n")
        self._stream.flush()

    def close(self) -> None:
        """See the protocol."""

    def _write(self, seconds: float, text: str) -> None:
        self._rhythm.wrote()
        self._stream.write(f"rdzv {seconds:7.1f} s  {_line(text)}\n")
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
    """A table that is redrawn while the run forms; lines once the programs have the terminal."""

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._rhythm = _Rhythm(clock)
        self._live: Live | None = None
        self._formed = False
        self._table_until = math.inf

    def _screen(self) -> Console:
        if self._console is None:
            from rich.console import Console

            self._console = Console(stderr=True, highlight=False)
        return self._console

    def status(self, status: RunStatus) -> None:
        """Redraw; from the go on the terminal is the programs', but for who is late to end."""
        if self._formed:
            if self._rhythm.is_due(status):
                self.say(_awaited(status))
            return
        if self._live is None:
            from rich.live import Live

            self._live = Live(console=self._screen(), auto_refresh=False, transient=False)
            self._live.start()
        rows = max(1, min(_MOST_ROWS, self._screen().height - _OTHER_ROWS))
        ended = status.phase is Phase.FINISHED  # the last line says how
        drawing = draw(status, most_rows=rows, sentence=not ended)
        self._live.update(drawing, refresh=True)
        if status.phase in (Phase.RUNNING, Phase.FINISHED):
            self._formed = True
            self._live.stop()
        if status.phase is Phase.RUNNING:
            self._table_until = status.version

    def event(self, line: EventLine, *, said: bool = False) -> None:
        """Say what happened, but for what every node does alike and what the table has shown.

        Events come by a connection of their own: one that the last table has may come after it.
        """
        in_table = line.kind in _IN_THE_TABLE and line.number <= self._table_until
        if not (line.usual or said or in_table):
            self.say(line.reason)

    def say(self, text: str) -> None:
        """See the protocol. The terminal wraps it: a command in it can be copied as it is.

        While programs run, the newest state of a progress bar may stand where it is written.
        """
        from rich.console import Group
        from rich.control import Control
        from rich.segment import ControlType
        from rich.text import Text

        self._rhythm.wrote()
        if self._formed:
            self._screen().control(Control((ControlType.ERASE_IN_LINE, 0)))
        line = Text(f"rdzv: {_line(text)}", no_wrap=True, overflow="ignore")
        self._screen().print(Group(line), crop=False)  # of a bare text, print forgets both

    def close(self) -> None:
        """See the protocol."""
        if self._live is not None and not self._formed:
            self._live.stop()
        self._formed = True


class Drawing:
    """What rich shows of one moment, as wide as it is asked for."""

    def __init__(self, status: RunStatus, most_rows: int, *, sentence: bool) -> None:
        self._status = status
        self._most_rows = most_rows
        self._sentence = sentence

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        reason = self._status.reason if self._sentence else ""
        yield _drawn(self._status, self._most_rows, options.max_width, reason)


def draw(status: RunStatus, *, most_rows: int = _MOST_ROWS, sentence: bool = True) -> Drawing:
    """The board of one moment: a row for each slot, and the sentence, unless another place has it.

    Columns that a narrow terminal has no room for are left out, so that the state never is.

    What peers and schedulers say is shown as it is: none of it is markup or moves the cursor.
    """
    return Drawing(status, most_rows, sentence=sentence)


def _drawn(status: RunStatus, most_rows: int, width: int, reason: str) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    result = status.result
    marks = {one.slot: result.mark_of(one.slot) if result else "" for one in status.slots}
    by_urgency = sorted(status.slots, key=lambda slot: (not marks[slot.slot], *_urgency(slot)))
    shown = sorted(by_urgency[:most_rows], key=lambda slot: (not marks[slot.slot], slot.slot))
    rows = [_row(slot, marks[slot.slot]) for slot in shown]
    columns = _columns(rows, width)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        most = _MOST_NAME if name == "host" else None
        table.add_column(name, no_wrap=name not in _WRAPPED, max_width=most)
    for row in rows:
        table.add_row(*(row[name] for name in columns))
    more = len(status.slots) - len(shown)
    lines = [Text(f"and {more} more", style="dim")] if more > 0 else []
    head = f"run {status.run}   {status.phase}   {status.elapsed_seconds:.1f} s"
    if used := used_text(status):
        head += f"   {used}"
    lines += [Text(_line(reason), style="cyan")] if reason else []
    if status.trouble and status.phase in (Phase.RUNNING, Phase.FINISHED):
        lines.append(Text(_line(status.trouble), style="red"))
    return Group(Text(_line(head), style="bold"), table, *lines)


def _columns(rows: Sequence[Mapping[str, Text]], width: int) -> list[str]:
    """The columns that fit, where the wrapped ones may be narrow."""
    columns = ["slot", "node", "worker run", "host", "address", "procs", "state"]
    for spare in ("procs", "address", "node"):
        most = {"host": _MOST_NAME, **dict.fromkeys(_WRAPPED, _LEAST_WRAPPED)}
        needed = [
            min(most.get(name, width), max([len(name), *(len(row[name]) for row in rows)]))
            for name in columns
        ]
        if sum(needed) + 2 * (len(columns) - 1) > width:
            columns.remove(spare)
    return columns


def _urgency(slot: SlotStatus) -> tuple[int, int]:
    """Where not all slots fit, those that the others wait for are shown first."""
    failed = slot.exit_code and not slot.stopped
    if slot.node_state is None or slot.node_state is NodeState.LOST or failed:
        return 0, slot.slot
    return 1 + list(NodeState).index(slot.node_state), slot.slot


def _row(slot: SlotStatus, mark: str) -> dict[str, Text]:
    """Row of a slot, by column; `mark` sets it apart."""
    from rich.text import Text

    cells = {
        "slot": str(slot.slot),
        "node": "" if slot.node is None else str(slot.node),
        "worker run": worker_run_words(slot),
        "host": slot.hostname,
        "address": slot.address,
        "procs": str(slot.nproc_per_node or ""),
        "state": state_words(slot, mark),
    }
    texts = {name: Text(_line(cell)) for name, cell in cells.items()}
    if mark:
        texts["state"].stylize("bold red")
    elif slot.stopped or (slot.node_state is None and not slot.problem):
        texts["state"].stylize("dim")
    elif slot.node_state is NodeState.LOST or slot.exit_code:
        texts["state"].stylize("red")
    return texts


def _line(text: str) -> str:
    """The text as one line without control characters, whoever wrote it."""
    return printable(text.replace("\n", "; "), _MOST_CHARACTERS)


def make_board(*, json_events: bool) -> Board:
    """The board that fits where standard error goes; only some terminals can redraw a table."""
    if json_events:
        return JsonBoard(sys.stdout)
    redraws = sys.stderr.isatty() and can_redraw(os.environ)
    return LiveBoard() if redraws else PlainBoard(sys.stderr)
