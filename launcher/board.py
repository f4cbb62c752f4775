"""What the person sees while a run forms and runs: a live table, plain lines, or JSON.

A board is told two things: the state of the run (for the table) and its events (for the lines). All
boards write to standard error, so that the programs keep standard output; only JSON goes there.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from rendezvous.schema import EventLine, NodeState, Phase, RunStatus, SlotState, SlotStatus

_MOST_ROWS = 32
_PAUSE_SECONDS = 1.0
_WHILE_RUNNING = ("exited", "lost", "restarted", "cancelled", "refused")
_MARKS = {
    NodeState.JOINED: "joined",
    NodeState.VERIFIED: "verified",
    NodeState.ARMED: "armed",
    NodeState.RUNNING: "running",
    NodeState.EXITED: "ended",
    NodeState.LOST: "lost",
    NodeState.LEFT: "left",
}


class Board(Protocol):
    """What the launcher shows itself on."""

    def status(self, status: RunStatus) -> None:
        """The run stands like this now."""

    def event(self, line: EventLine) -> None:
        """This happened."""

    def say(self, text: str) -> None:
        """Something of the launcher's own."""

    def close(self) -> None:
        """Nothing more is shown."""


class PlainBoard:
    """One line for each thing that happens: for logs and pipes."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream = stream
        self._reason = ""
        self._wrote_at = 0.0

    def status(self, status: RunStatus) -> None:
        """Say what is waited for, when that changes and nothing has happened for a moment."""
        reason = status.reason.rsplit(",", 1)[0] if " s left" in status.reason else status.reason
        quiet = time.monotonic() - self._wrote_at > _PAUSE_SECONDS
        if quiet and reason != self._reason and status.result is None:
            self._reason = reason
            self._write(status.elapsed_seconds, reason)

    def event(self, line: EventLine) -> None:
        """Say what happened, but for what every node does alike."""
        if not line.usual:
            self._write(line.at_seconds, line.reason)

    def say(self, text: str) -> None:
        """See the protocol."""
        self._stream.write(f"rdzv: {text}\n")
        self._stream.flush()

    def close(self) -> None:
        """See the protocol."""

    def _write(self, seconds: float, text: str) -> None:
        self._wrote_at = time.monotonic()
        self._stream.write(f"rdzv {seconds:7.1f} s  {text}\n")
        self._stream.flush()


class JsonBoard:
    """Events as JSON lines on standard output, for programs."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self._stream = stream

    def status(self, status: RunStatus) -> None:
        """Only the end is told; what leads there are events."""
        if status.result is not None and status.everyone_left:
            self._write({"kind": "result", **status.result.model_dump(mode="json")})

    def event(self, line: EventLine) -> None:
        """See the protocol."""
        self._write(line.model_dump(mode="json"))

    def say(self, text: str) -> None:
        """See the protocol."""
        self._write({"kind": "launcher", "reason": text})

    def close(self) -> None:
        """See the protocol."""

    def _write(self, value: dict[str, object]) -> None:
        self._stream.write(json.dumps(value) + "\n")
        self._stream.flush()


class LiveBoard:
    """A table that is redrawn while the run forms; lines once the programs have the terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._live: Live | None = None
        self._formed = False

    def status(self, status: RunStatus) -> None:
        """Redraw; from the go on the terminal is the programs'."""
        if self._formed:
            return
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=False)
            self._live.start()
        self._live.update(draw(status), refresh=True)
        if status.phase in (Phase.RUNNING, Phase.FINISHED):
            self._formed = True
            self._live.stop()

    def event(self, line: EventLine) -> None:
        """The table shows it while the run forms; afterwards only what is not usual."""
        if self._formed and not line.usual and line.kind in _WHILE_RUNNING:
            self._console.print(f"rdzv: {escape(line.reason)}")

    def say(self, text: str) -> None:
        """See the protocol."""
        self._console.print(f"rdzv: {escape(text)}")

    def close(self) -> None:
        """See the protocol."""
        if self._live is not None and not self._formed:
            self._live.stop()
        self._formed = True


def draw(status: RunStatus) -> Group:
    """The board of one moment: a row for each slot, and the sentence."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("slot", "rank", "worker run", "node", "address", "procs", "state"):
        table.add_column(name)
    for slot in sorted(status.slots, key=_urgency)[:_MOST_ROWS]:
        table.add_row(*_row(slot))
    more = len(status.slots) - _MOST_ROWS
    if more > 0:
        table.caption = f"and {more} more"
    head = f"run {status.run}   {status.phase}   {status.elapsed_seconds:.1f} s"
    return Group(Text(head, style="bold"), table, Text(status.reason, style="cyan"))


def _urgency(slot: SlotStatus) -> tuple[bool, int]:
    """Slots that are waited for come first when not all fit; else by number."""
    return (False, slot.slot)


def _row(slot: SlotStatus) -> tuple[str, ...]:
    rank = "" if slot.rank is None else str(slot.rank)
    procs = str(slot.nproc_per_node) if slot.nproc_per_node else ""
    return (
        str(slot.slot),
        rank,
        _worker_run(slot),
        slot.hostname,
        slot.address,
        procs,
        _state(slot),
    )


def _worker_run(slot: SlotStatus) -> str:
    if slot.state is SlotState.NONE:
        return "-"
    again = f" (generation {slot.generation})" if slot.generation > 1 else ""
    detail = f": {slot.detail}" if slot.detail and slot.node_state is None else ""
    return escape(f"{slot.state}{again}{detail}")


def _state(slot: SlotStatus) -> str:
    if slot.node_state is None:
        return escape(slot.problem) or "[dim]not here yet[/]"
    text = _MARKS[slot.node_state]
    if slot.exit_code is not None:
        text += f", exit code {slot.exit_code}"
    return escape(f"{text}: {slot.problem}" if slot.problem else text)


def make_board(*, json_events: bool) -> Board:
    """The board that fits where standard error goes."""
    if json_events:
        return JsonBoard()
    return LiveBoard() if sys.stderr.isatty() else PlainBoard()
