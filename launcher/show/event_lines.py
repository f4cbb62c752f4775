"""The lines that a board shows of a run's events."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from rendezvous.wire.run import EventLine
from rendezvous.wire.words import listed, slots_text

PAUSE_SECONDS = 1.0
_FAILED = " failed: "
_SLOT = re.compile(r"^slot \d+")


class EventLines:
    """Events as a person is shown them: what every node does alike only to who asked for it; what
    several slots or nodes have alike once; and the failures of an epoch after its first one
    together."""

    def __init__(self, clock: Callable[[], float], *, verbose: bool) -> None:
        self._clock = clock
        self._verbose = verbose
        self._epoch = -1
        self._of_slot = ""
        self._of_node = (-1, "")
        self._held: list[EventLine] = []
        self._since = 0.0

    def take(self, line: EventLine, *, said: bool) -> Iterator[tuple[float, str]]:
        """Return the time and the words of each line that an event brings."""
        if said:
            return
        if not self._verbose and not line.usual and self._is_further(line):
            if self._held and self._held[-1].kind != line.kind:
                yield from self.held()
            if not self._held:
                self._since = self._clock()
            self._held.append(line)
            return
        if self._verbose or not line.usual:
            yield from self.held()
            yield line.at_seconds, line.reason

    def _is_further(self, line: EventLine) -> bool:
        """Return whether it says of another slot, or node, what was shown of the first one."""
        if line.kind == "slot":
            before, self._of_slot = self._of_slot, _SLOT.sub("", line.reason, count=1)
            return bool(before) and before == self._of_slot
        if line.kind == "progressed":
            first, self._of_node = self._of_node, (line.epoch, line.progress)
            return bool(line.progress) and first == self._of_node
        if line.kind != "exited" or _FAILED not in line.reason:
            return False
        before_epoch, self._epoch = self._epoch, line.epoch
        return before_epoch == line.epoch

    def held(self, *, late: bool = False) -> Iterator[tuple[float, str]]:
        """Return what was held, as one sentence; where it is `late`, only after a moment."""
        held = self._held
        if not held or (late and self._clock() - self._since < PAUSE_SECONDS):
            return
        self._held, words = [], held[-1].reason
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
