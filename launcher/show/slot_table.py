"""The table of a run's slots, as wide as the terminal: how each stands, and what is waited for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from launcher.show.epochs import used_text
from launcher.show.slot_words import state_words, worker_run_words
from rendezvous.wire.run import NodeState, Phase, RunStatus, SlotStatus
from rendezvous.wire.words import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group, RenderableType
    from rich.text import Text

MOST_ROWS = 32
_WRAPPED = ("worker run", "state")
_LEAST_WRAPPED = 9
_MOST_NAME = 24
_MOST_CHARACTERS = 2_000


class Drawing:
    """What rich shows of one moment, as wide as it is asked for."""

    def __init__(self, status: RunStatus, most_rows: int, *, sentence: bool) -> None:
        self._status = status
        self._most_rows = most_rows
        self._sentence = sentence

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        reason = self._status.reason if self._sentence else ""
        yield _drawn(self._status, self._most_rows, options.max_width, reason)


def draw(status: RunStatus, *, most_rows: int = MOST_ROWS, sentence: bool = True) -> Drawing:
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
    cancelled = result is not None and result.status == "cancelled"
    rows = [_row(slot, marks[slot.slot], dim=cancelled) for slot in shown]
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
    lines += [Text(one_line(reason), style="cyan")] if reason else []
    if status.trouble and status.phase in (Phase.RUNNING, Phase.FINISHED):
        lines.append(Text(one_line(status.trouble), style="red"))
    return Group(Text(one_line(head), style="bold"), table, *lines)


def _columns(rows: Sequence[Mapping[str, Text]], width: int) -> list[str]:
    """The columns that fit, where the wrapped ones may be narrow."""
    columns = ["slot", "node", "worker run", "host", "address", "procs", "state"]
    numbers = [str(row["node"]) for row in rows]
    if not any(numbers):
        columns.remove("node")
    elif numbers == [str(row["slot"]) for row in rows]:
        columns.remove("slot")
    for spare in ("procs", "address", "node"):
        if spare not in columns or columns[0] == spare:
            continue
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


def _row(slot: SlotStatus, mark: str, *, dim: bool = False) -> dict[str, Text]:
    """Row of a slot, by column; `mark` sets it apart, and in a cancelled run all are dim."""
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
    texts = {name: Text(one_line(cell)) for name, cell in cells.items()}
    if mark:
        texts["state"].stylize("bold red")
    elif dim or slot.stopped or (slot.node_state is None and not slot.problem):
        texts["state"].stylize("dim")
    elif slot.node_state is NodeState.LOST or slot.exit_code:
        texts["state"].stylize("red")
    return texts


def one_line(text: str) -> str:
    """The text as one line without control characters, whoever wrote it."""
    return printable(text.replace("\n", "; "), _MOST_CHARACTERS)
