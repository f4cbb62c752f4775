"""What viewers of one run are told: its state, and what has changed since they were told. Pure.

Every part remembers at which number it last changed. Whoever was told everything up to a number is
told what has changed since, each part as it is now: who reads slowly misses what was replaced,
costs nothing, and ends up with the same.
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from launcher.show.epochs import epoch_words
from launcher.show.last_line import hint_of
from launcher.show.run_list import in_one_line
from launcher.ui.phases import Phases
from launcher.ui.shapes import Change, Epoch, Event, Head, Slot, State, Tone
from launcher.ui.slots import cancelled, is_same, marked, slot_row, suspected
from rendezvous.frozen import frozen
from rendezvous.wire.run import EventLine, Phase, Result, RunStatus, SlotStatus, Suspect
from rendezvous.wire.words import printable

EVENTS_TOLD = 200
MOST_EVENTS = 20_000
"""As many as a registry keeps."""
_MOST_CHARACTERS = 4_000
_FORMING = (Phase.GATHERING, Phase.VERIFYING, Phase.ARMING, Phase.RESTARTING)


@frozen
class LaunchFacts:
    """What the launch's own record says.

    Attributes:
        nodes: As --nnodes has it.
        host: The launcher's.
        started_at: Seconds since 1970; 0: not known.
    """

    run: str
    launch_id: str = ""
    command: Sequence[str] = ()
    nodes: str = ""
    scheduler: str = ""
    host: str = ""
    started_at: float = 0.0


@frozen
class End:
    """How the launch has ended, where its registry no longer tells it.

    Attributes:
        state: ok, failed, cancelled; killed: its launcher was.
        took_seconds: As everywhere else: the registry begins later, and ends sooner.
    """

    state: str
    sentence: str
    next_step: str = ""
    result: Result | None = None
    took_seconds: float | None = None


class Told:
    """One run.

    Args:
        facts: Of its launch.
        first: Where the numbers begin: above those of whatever was told of this run before.
        waits_for: The sentence, as long as nothing is known.
    """

    def __init__(self, facts: LaunchFacts, first: int, waits_for: str) -> None:
        self.facts = facts
        self._first = self.n = first
        self._head: Head = _first_head(facts, waits_for)
        self._head_n = first
        self._said = ""
        self._checks = ""
        self._result: Result | None = None
        self._suspect: Suspect | None = None
        self._slots: dict[int, tuple[int, Slot]] = {}
        self._status: dict[int, SlotStatus] = {}
        self._events: deque[tuple[int, Event]] = deque(maxlen=MOST_EVENTS)
        self._epochs: tuple[int, list[Epoch]] = (first, [])
        self._phases = Phases()
        self.parts: Callable[[int], dict[str, Any]] = lambda after: {}
        """Changes after a number, by feature."""

    # --- what comes in ------------------------------------------------------------------------

    def status(self, status: RunStatus) -> None:
        """The registry says how the run stands."""
        self._take_head(_head_of(self.facts, status))
        ended: list[Epoch] = [
            {
                "epoch": end.epoch,
                "ran_seconds": end.ran_seconds,
                "words": epoch_words(end, _MOST_CHARACTERS),
                "then": printable(end.then, _MOST_CHARACTERS),
                "exit_code": end.exit_code,
                "evidence": [printable(line, _MOST_CHARACTERS) for line in end.evidence],
            }
            for end in status.ended
        ]
        if ended != self._epochs[1]:
            self._epochs = (self.next(), ended)
        news = [slot for slot in status.slots if not is_same(slot, self._status.get(slot.slot))]
        self._status.update((slot.slot, slot) for slot in status.slots)
        self._take_slots(slot.slot for slot in news)
        self._take_marks(status.result, status.suspect)

    def event(self, line: EventLine) -> None:
        """Something has happened; what is known already changes nothing."""
        if line.number <= self.newest_event:
            return
        event: Event = {
            "number": line.number,
            "at": line.at_seconds,
            "kind": line.kind,
            "reason": printable(line.reason, _MOST_CHARACTERS),
            "phase": str(line.phase),
            "epoch": line.epoch,
            "slot": line.slot,
            "usual": line.usual,
        }
        self._events.append((self.next(), event))
        changed = {*self._phases.take(line), *self._progressed(line)}
        self._take_slots(slot for slot in changed if slot in self._status)

    def _progressed(self, line: EventLine) -> Iterable[int]:
        """Its row shows the words at once; returns the slot of which that has changed them."""
        if not line.progress or line.slot is None or line.slot not in self._status:
            return ()
        told = self._status[line.slot].model_copy(update={"progress": line.progress})
        self._status[line.slot] = told
        return (line.slot,)

    def checks(self, words: str) -> None:
        """What the checks have found, in two words."""
        self._checks = words
        self._take_head(self._head.copy())

    def silent(self, seconds: float | None, words: str) -> None:
        """The registry has not answered for so long; None: it answers again."""
        head = self._head.copy()
        if not head["over"]:
            whole = None if seconds is None else float(round(seconds))
            head["silent_seconds"], head["trouble"] = whole, words
            self._take_head(head)

    def ended(self, end: End) -> None:
        """The launch has ended; nothing more comes."""
        head = self._head.copy()
        head["state"], head["tone"] = end.state, _tone_of(end.state)
        head["sentence"] = printable(end.sentence, _MOST_CHARACTERS)
        rank = end.result.rank if end.result is not None else None
        head["next_step"] = _next_step(end.next_step, self.facts.run, rank)
        head["result"] = end.result.model_dump(mode="json") if end.result is not None else None
        head["over"], head["silence"], head["trouble"] = True, "", ""
        head["finding"] = _standing(end.result)
        head["remaining"] = head["silent_seconds"] = None
        if end.took_seconds is not None:
            head["elapsed"] = end.took_seconds
        self._take_head(head)
        self._take_marks(end.result, None)

    def say(self, words: str) -> None:
        """What to do next, behind whatever else is said from now on."""
        self._said = words
        self._take_head(self._head.copy())

    def next(self) -> int:
        """Number a change."""
        self.n += 1
        return self.n

    def _take_head(self, head: Head) -> None:
        """The page runs the clock itself: that alone is no change."""
        before = self._head
        head["checks"] = self._checks
        if not head["next_step"].endswith(self._said):
            head["next_step"] = "; ".join(filter(None, (head["next_step"], self._said)))
        if head | {"elapsed": 0.0, "remaining": 0.0} != before | {"elapsed": 0.0, "remaining": 0.0}:
            self._head_n = self.next()
        self._head = head

    def _take_marks(self, result: Result | None, suspect: Suspect | None) -> None:
        """Mark the slot with the first cause, or for which the others wait, and it alone."""
        suspect = suspect if result is None else None
        marks = {one.slot for one in (self._result, result, self._suspect, suspect) if one}
        is_new = self._result is None and result is not None and result.status == "cancelled"
        self._result, self._suspect = result, suspect
        self._take_slots(slot for slot in self._status if is_new or slot in marks)

    def has_stopped(self, node: int) -> bool:
        """Whether rdzv has stopped the program of this node because of something elsewhere."""
        if self._result is not None:
            return self._result.status != "ok" and self._result.node != node
        slots = self._status.values()
        failed = {slot.node for slot in slots if slot.exit_code and not slot.stopped}
        return bool(failed) and node not in failed

    def numbers(self) -> dict[int, int | None]:
        """Tell the nodes' numbers by slot."""
        return {slot: status.node for slot, status in self._status.items()}

    def first_rank(self, node: int) -> int:
        """The first global rank of a node."""
        slots = self._status.values()
        return sum(s.nproc_per_node for s in slots if s.node is not None and s.node < node)

    def _take_slots(self, slots: Iterable[int]) -> None:
        n = self.n + 1
        for slot in slots:
            status, result, suspect = self._status[slot], self._result, self._suspect
            row = slot_row(status, self._phases.spans(slot))
            if result is not None and result.status == "cancelled":
                row = cancelled(row)
            if result is not None and (mark := result.mark_of(slot)):
                row = marked(row, mark, status, result)
            elif suspect is not None and suspect.slot == slot:
                row = suspected(row, suspect)
            known = self._slots.get(slot)
            if known is None or known[1] != row:
                self._slots[slot] = (n, row)
                self.n = n

    # --- what goes out ------------------------------------------------------------------------

    @property
    def head(self) -> Head:
        """How it stands."""
        return self._head

    @property
    def slots(self) -> int:
        """How many there are."""
        return len(self._slots)

    @property
    def newest_event(self) -> int:
        """The number of the newest event."""
        return self._events[-1][1]["number"] if self._events else 0

    def state(self) -> State:
        """Everything."""
        return {
            "n": self.n,
            "head": self._head,
            "slots": [row for _, (_, row) in sorted(self._slots.items())],
            "events": [event for _, event in list(self._events)[-EVENTS_TOLD:]],
            "epochs": self._epochs[1],
            "parts": self.parts(0),
        }

    def changes(self, after: int) -> Change | None:
        """What has changed since the number; None: nothing has."""
        if after < self._first or after > self.n:
            return {"n": self.n, "reset": True}
        if after == self.n:
            return None
        change: Change = {"n": self.n}
        if self._head_n > after:
            change["head"] = self._head
        if slots := [row for n, row in self._slots.values() if n > after]:
            change["slots"] = slots
        if self._epochs[0] > after:
            change["epochs"] = self._epochs[1]
        if parts := self.parts(after):
            change["parts"] = parts
        newer = []
        for n, event in reversed(self._events):
            if n <= after:
                break
            newer.append(event)
        if len(newer) > EVENTS_TOLD:  # it was away for long: the rest it may ask for
            return {"n": self.n, "reset": True}
        if newer:
            change["events"] = newer[::-1]
        return change

    def events_before(self, number: int) -> list[Event]:
        """Older events, oldest first."""
        older = [event for _, event in self._events if event["number"] < number]
        return older[-EVENTS_TOLD:]


def _first_head(facts: LaunchFacts, waits_for: str) -> Head:
    return {
        "run": facts.run,
        "launch_id": facts.launch_id,
        "state": "starting",
        "tone": "wait",
        "sentence": waits_for,
        "next_step": "",
        "over": False,
        "elapsed": 0.0,
        "remaining": None,
        "epoch": 0,
        "restarts": 0,
        "max_restarts": 0,
        "replacements": 0,
        "resubmitted": 0,
        "max_replacements": 0,
        "nodes": facts.nodes,
        "trouble": "",
        "silent_seconds": None,
        "finding": "",
        "silence": "",
        "checks": "",
        "command": in_one_line(shlex.join(facts.command)),
        "scheduler": facts.scheduler,
        "host": facts.host,
        "started_at": facts.started_at,
        "digest": "",
        "result": None,
    }


def _head_of(facts: LaunchFacts, status: RunStatus) -> Head:
    head, result = _first_head(facts, ""), status.result
    size = f"{status.min_nodes}:{status.max_nodes}"
    head["state"] = result.status if result is not None else str(status.phase)
    head["tone"] = _tone(status)
    head["sentence"] = printable(status.reason, _MOST_CHARACTERS)
    head["next_step"] = ""
    if result is not None:
        head["next_step"] = _next_step(result.hint, status.run, result.rank)
    head["over"] = status.phase is Phase.FINISHED
    head["elapsed"] = status.elapsed_seconds
    head["remaining"] = status.remaining_seconds
    head["epoch"], head["digest"] = status.epoch, status.digest
    head["restarts"], head["max_restarts"] = status.restarts, status.max_restarts
    head["replacements"], head["resubmitted"] = status.replacements, status.resubmitted
    head["max_replacements"] = status.max_replacements
    same = status.min_nodes == status.max_nodes
    head["nodes"] = facts.nodes or (str(status.max_nodes) if same else size)
    head["trouble"] = printable(status.trouble, _MOST_CHARACTERS)
    found, _, next_step = status.finding.partition("; try: ")
    head["finding"] = printable(found, _MOST_CHARACTERS)
    if result is None:
        head["next_step"] = _next_step(next_step, status.run)
    else:
        head["finding"] = _standing(result)
    head["silence"] = printable(status.silence, _MOST_CHARACTERS)
    head["launch_id"] = status.launch_id
    head["result"] = result.model_dump(mode="json") if result is not None else None
    return head


def _standing(result: Result | None) -> str:
    """Return the finding that the result of a run keeps, if any."""
    found = result.finding if result is not None else None
    return printable(found.words, _MOST_CHARACTERS) if found is not None else ""


def _next_step(words: str, run: str, rank: int | None = None) -> str:
    """As the last line of a launch has it."""
    return printable(hint_of(run, words, rank), _MOST_CHARACTERS)


def _tone(status: RunStatus) -> Tone:
    if status.result is not None:
        return _tone_of(status.result.status)
    waits = status.phase in _FORMING or status.finding or status.silence or status.ending
    return "wait" if waits else "good"


def _tone_of(state: str) -> Tone:
    """Of a run that has ended."""
    return {"ok": "good", "cancelled": "off"}.get(state, "bad")  # type: ignore[return-value]
