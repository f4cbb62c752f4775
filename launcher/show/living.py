"""The line that shows on a terminal how a run goes on while its programs print nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from rendezvous.feature import locating_command
from rendezvous.wire.run import RunStatus
from rendezvous.wire.words import duration_text, spans_text

SILENT_SECONDS = 2.0
"""The line is drawn once nothing was printed for so long: until then the output shows it."""
QUIET_SECONDS = 120.0
_MOST_NODES = 4


class Outputs:
    """Output of the ranks on this machine: what the log files of the nodes have, without what those
    of their launchers have.

    Args:
        folder: Where the log files are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes: dict[Path, int] = {}
        self._printed = self._most = 0
        self._changed_at = 0.0

    def silent_seconds(self, now: float) -> float | None:
        """Seconds since a rank printed anything; infinite where none has. None: a line is not
        finished, or no log file tells.

        Args:
            now: Of a clock that does not jump; what was printed since the last call counts as new.
        """
        nodes, launchers = "node-*.log", "launcher-*.log"
        try:
            # What a launcher prints is in its own log first: it never counts as a rank's meanwhile.
            sizes = {log: log.stat().st_size for log in self._folder.glob(nodes)}
            if not all(_ends_its_line(log, size) for log, size in sizes.items()):
                return None
            own = {log: log.stat().st_size for log in self._folder.glob(launchers)}
        except OSError:  # moved away, or cut, just now
            return None
        self._printed += self._grown(sizes) - self._grown(own)
        if self._printed > self._most:
            self._most, self._changed_at = self._printed, now
        if not sizes:
            return None
        return now - self._changed_at if self._most else math.inf

    def _grown(self, sizes: Mapping[Path, int]) -> int:
        """Bytes since the last time; a full log is begun anew."""
        before, self._sizes = self._sizes, {**self._sizes, **sizes}
        grown = ((size, size - before.get(log, 0)) for log, size in sizes.items())
        return sum(more if more >= 0 else size for size, more in grown)


def _ends_its_line(log: Path, size: int) -> bool:
    if not size:
        return True
    with log.open("rb") as file:
        file.seek(size - 1)
        return file.read(1) == b"\n"


def living_words(status: RunStatus, silent_seconds: float) -> str:
    """Return `running 4 min, output 2 s ago`, or what goes on before the first output.

    Args:
        status: Of a run whose programs run.
        silent_seconds: Since the last output; infinite where there was none.
    """
    ran = _time(status.running_seconds)
    if status.importing:
        return f"importing torch, {ran}{_last(status)}"
    if silent_seconds == math.inf:
        return f"running {ran}, no output yet"
    if silent_seconds >= QUIET_SECONDS:
        where = locating_command(status.run)
        return f"quiet for {_time(silent_seconds)}" + f": {where}" * bool(where)
    return f"running {ran}, output {_time(silent_seconds)} ago"


def _last(status: RunStatus) -> str:
    """Return ` (node 3 last)` where the others are done with it."""
    nodes, count = status.importing, len(status.importing)
    others = sum(slot.node_state is not None for slot in status.slots) - count
    if not others or count > _MOST_NODES:
        return ""
    return f" (node{'s' * (count > 1)} {spans_text(nodes)} last)"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 10 else duration_text(seconds)
