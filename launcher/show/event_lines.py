"""The lines that a board shows of a run's events."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from rendezvous.wire.run import EventLine, Phase, RunStatus
from rendezvous.wire.words import listed, slots_text

PAUSE_SECONDS = 1.0
_FAILED = " failed: "
_SLOT = re.compile(r"^slot \d+")


class EventLines:
    """Events as a person is shown them: what every node does alike only to who asked for it; what
    several slots or nodes have alike once; and the failures of an epoch after its first one
    together. Of an epoch that others follow, its end alone is told, as the launcher says it."""

    def __init__(self, clock: Callable[[], float], *, verbose: bool) -> None:
        self._clock = clock
        self._verbose = verbose
        self._epoch = -1
        self._phase: Phase | None = None
        self._of_slot = ""
        self._of_node = (-1, "")
        self._held: list[EventLine] = []
        self._since = 0.0

    def take(self, line: EventLine, *, said: bool) -> Iterator[tuple[float, str]]:
        """Return the time and the words of each line that an event brings."""
        before, self._phase = self._phase, line.phase
        is_end = before is Phase.RUNNING and line.phase not in (Phase.RUNNING, Phase.FINISHED)
        if is_end and not self._verbose:
            self._forget(line.epoch)
        elif said:
            return
        elif not self._verbose and not line.usual and self._is_further(line):
            last = self._held[-1] if self._held else line
            if (last.kind, last.epoch) != (line.kind, line.epoch):
                yield from self.held()
            if not self._held:
                self._since = self._clock()
            self._held.append(line)
        elif self._verbose or not line.usual:
            yield from self.held()
            yield line.at_seconds, line.reason

    def _is_further(self, line: EventLine) -> bool:
        """Return whether it waits: it says of another slot, or node, what was shown of the first
        one; or a program has failed, which its epoch's end may tell."""
        if line.kind == "slot":
            before, self._of_slot = self._of_slot, _SLOT.sub("", line.reason, count=1)
            return bool(before) and before == self._of_slot
        if line.kind == "progressed":
            first, self._of_node = self._of_node, (line.epoch, line.progress)
            return bool(line.progress) and first == self._of_node
        return line.kind == "exited" and _FAILED in line.reason

    def _forget(self, epoch: int) -> None:
        """Drop the failures up to this epoch: its end is told, with the first cause."""
        end, held = ("exited", Phase.RUNNING), self._held
        self._held = [one for one in held if (one.kind, one.phase) != end or one.epoch > epoch]

    def held(self, status: RunStatus | None = None) -> Iterator[tuple[float, str]]:
        """Return what was held, failures but the first as one sentence; with a status only after a
        moment, and nothing of the epochs that it has as ended."""
        if status is not None and status.ended:
            self._forget(status.ended[-1].epoch)
        held = self._held
        if not held or (status is not None and self._clock() - self._since < PAUSE_SECONDS):
            return
        self._held, words = [], held[-1].reason
        if held[0].kind == "exited" and held[0].epoch != self._epoch:
            self._epoch = held[0].epoch
            yield held[0].at_seconds, held[0].reason
            held = held[1:]
        if not held:
            return
        slots = sorted(
            {line.slot for line in held if line.kind == "slot" and line.slot is not None}
        )
        nodes = [line for line in held if line.kind == "progressed"]
        if slots:
            words = f"the same for {slots_text(slots)}"
        elif nodes:
            words = f"the same on {listed([line.reason.partition(': ')[0] for line in nodes], 3)}"
        elif len(held) > 1:
            names = listed([line.reason.partition(_FAILED)[0] for line in held], 3)
            words = f"{len(held)} more nodes failed after it: {names}"
        yield held[-1].at_seconds, words
