"""Whole lines of several ranks: what one has written is never cut into a line of another."""

from __future__ import annotations

import time

from worker.program.output import IDLE_SECONDS, Output, Stream

_LONGEST = 65_536
_NOBODY = -1


class RankLines:
    """An output of several ranks, in front of one that takes what comes as it comes.

    A line is passed on when it is whole, or unfinished after `IDLE_SECONDS`; if another rank goes
    on then, a line feed ends it. A progress bar is passed on at once, as it stands, and another
    rank's overwrites it, as on a terminal.

    Args:
        output: Where all of it goes.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._held: dict[tuple[Stream, int | None], tuple[float, bytes]] = {}
        self._midline: dict[Stream, int | None] = {}

    def write(self, stream: Stream, data: bytes, rank: int | None = None) -> None:
        """See the protocol."""
        now = time.monotonic()
        since, before = self._held.pop((stream, rank), (now, b""))
        data = before + data
        cut = data.rfind(b"\n") + 1
        goes_on = self._midline.get(stream, _NOBODY) == rank
        if goes_on or data.find(b"\r", cut) >= 0 or len(data) - cut > _LONGEST:
            cut = len(data)
        if cut:
            self._pass_on(stream, data[:cut], rank)
        if cut < len(data):
            self._held[stream, rank] = (now if cut else since, data[cut:])
        if self._held:
            self._let_go(now - IDLE_SECONDS)

    def idle(self) -> None:
        """See the protocol."""
        self._let_go(time.monotonic())
        self._output.idle()

    def _let_go(self, until: float) -> None:
        """Pass on what has been waiting since then."""
        for (stream, rank), (since, data) in [*self._held.items()]:
            if since <= until:
                del self._held[stream, rank]
                self._pass_on(stream, data, rank)

    def _pass_on(self, stream: Stream, data: bytes, rank: int | None) -> None:
        unfinished = self._midline.pop(stream, _NOBODY)
        if unfinished not in (_NOBODY, rank) and not data.startswith(b"\r"):
            self._output.write(stream, b"\n", unfinished)
        if not data.endswith(b"\n"):
            self._midline[stream] = rank
        self._output.write(stream, data, rank)
