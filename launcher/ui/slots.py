"""A slot as the page shows it: in words, how it is meant, and whether it is looked for. Pure."""

from __future__ import annotations

from launcher.show.slot_words import STOPPED, state_words, worker_run_words
from launcher.ui.shapes import Slot, Span, Tone
from rendezvous.wire.run import NodeState, Result, SlotState, SlotStatus, Suspect
from rendezvous.wire.words import printable

LONG_SILENCE_SECONDS = 6.0
"""Nodes poll each two seconds, or less often where there are very many."""
_MOST_CHARACTERS = 600

_WORSE = {
    NodeState.JOINED: 50,
    NodeState.VERIFIED: 40,
    NodeState.ARMED: 30,
    NodeState.RUNNING: 20,
    NodeState.EXITED: 10,
}
_FIRST, _WAITED_FOR = 110, 90
_FAILED, _ODD, _SILENT, _AWAITED = 100, 80, 70, 60


def slot_row(slot: SlotStatus, spans: list[Span]) -> Slot:
    """The row of a slot, of what its registry says and of its phases."""
    silent, state = _silence(slot), _state(slot)
    is_silent = silent is not None
    tone = _tone(slot, is_silent=is_silent)
    return {
        "slot": slot.slot,
        "node": slot.node,
        "host": printable(slot.hostname, 253),
        "address": printable(slot.address, 45),
        "processes": slot.nproc_per_node,
        "generation": slot.generation,
        "state": state,
        "counts_as": "failed" if tone == "bad" else STOPPED if slot.stopped else state,
        "tone": tone,
        "words": printable(_words(slot), _MOST_CHARACTERS),
        "problem": printable(slot.problem, _MOST_CHARACTERS),
        "progress": printable(slot.progress, _MOST_CHARACTERS),
        "mark": "",
        "suspect": None,
        "worse": _worse(slot, tone, is_silent=is_silent),
        "exit_code": slot.exit_code,
        "silent": silent,
        "spans": spans,
    }


def marked(row: Slot, mark: str, slot: SlotStatus, result: Result) -> Slot:
    """The row of the slot with the first cause, above all others; `mark` as of `Result.mark_of`.

    The cause itself is not said again in it.
    """
    if (problem := row["problem"]) and problem in printable(result.message, _MOST_CHARACTERS):
        bare = slot.model_copy(update={"problem": ""})
        row = {**row, "problem": "", "words": printable(_words(bare), _MOST_CHARACTERS)}
    row = {**row, "mark": mark, "counts_as": mark, "suspect": result.rank}
    return {**row, "tone": "bad", "worse": _FIRST}


def cancelled(row: Slot) -> Slot:
    """The row of a slot of a cancelled run: whatever its agent ended with, nobody looks for it."""
    counts_as = STOPPED if row["tone"] == "bad" else row["counts_as"]
    return {**row, "tone": "off", "counts_as": counts_as, "worse": 0}


def suspected(row: Slot, suspect: Suspect) -> Slot:
    """The row of the slot for which the others wait, while the programs run."""
    mark = "waited for"
    row = {**row, "mark": mark, "counts_as": mark, "suspect": suspect.rank}
    return {**row, "tone": "wait", "worse": _WAITED_FOR}


def is_same(slot: SlotStatus, before: SlotStatus | None) -> bool:
    """Whether its row is: that time goes by alone makes no other one."""
    if before is None:
        return False
    now = vars(slot) | {"state_seconds": 0.0, "silent_seconds": _silence(slot)}
    return now == vars(before) | {"state_seconds": 0.0, "silent_seconds": _silence(before)}


def _silence(slot: SlotStatus) -> float | None:
    """Whole seconds for which its node has said nothing; None: not for long."""
    silent = slot.silent_seconds
    if silent is None or silent < LONG_SILENCE_SECONDS:
        return None
    return float(round(silent))


def _has_ended(slot: SlotStatus) -> bool:
    """Whether its program has: that its node has left as well is nothing to anybody."""
    return slot.node_state is NodeState.EXITED or (
        slot.node_state is NodeState.LEFT and slot.exit_code is not None
    )


def _state(slot: SlotStatus) -> str:
    if _has_ended(slot):
        return "ended"
    if slot.node_state is not None:
        return str(slot.node_state)
    return "not submitted" if slot.state is SlotState.NONE else str(slot.state)


def _words(slot: SlotStatus) -> str:
    """What its scheduler says as long as it is all that is known."""
    if _has_ended(slot):
        return state_words(slot.model_copy(update={"node_state": NodeState.EXITED}))
    if slot.node_state is not None or slot.state is SlotState.NONE:
        return state_words(slot)
    words = worker_run_words(slot, times=False)
    return f"{words}; {slot.problem}" if slot.problem else words


def _tone(slot: SlotStatus, *, is_silent: bool) -> Tone:
    if slot.stopped:  # its worker run may end with an exit code, and counts as failed then
        return "off"
    if slot.exit_code or slot.node_state is NodeState.LOST or slot.state is SlotState.FAILED:
        return "bad"
    match slot.node_state:
        case NodeState.EXITED | NodeState.LEFT | NodeState.RELEASED:
            return "off"
        case NodeState.RUNNING if not (is_silent or slot.problem):
            return "good"
        case NodeState.STANDBY if not (is_silent or slot.problem):
            return "off"
        case _:
            return "wait"


def _worse(slot: SlotStatus, tone: Tone, *, is_silent: bool) -> int:
    if tone == "bad":
        return _FAILED
    if tone == "off":
        return 0
    if slot.problem:
        return _ODD
    if is_silent:
        return _SILENT
    return _AWAITED if slot.node_state is None else _WORSE.get(slot.node_state, 0)
