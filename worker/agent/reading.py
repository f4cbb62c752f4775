"""Reads the logs of one view, a little in each step, in a thread."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from worker.agent.actions import ServeView
from worker.agent.viewing import LAG_LETTERS, LAST_LETTERS, Backlog
from worker.program.log_file import Whose, epoch_of_log, read_log_name
from worker.program.log_reader import BEHIND_BYTES, LogReader
from worker.program.wanted import Wanted

FILES_SECONDS = 1.0
"""How often it is looked which files there are, by a view that follows."""


class Reading:
    """The logs of one view, and what of them is to be sent.

    A rank without a log of its own is read in its node's, where no rank of the node has one.

    Args:
        asked: What is served.
        folder: Where the logs are.
        clock: As `time.monotonic`.
        wall: As `time.time`.
    """

    def __init__(
        self,
        asked: ServeView,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,  # noqa: TID251 (as that of a log's index)
    ) -> None:
        self._asked = asked
        self._order = order = asked.order
        self._folder = folder
        self._clock = clock
        self._wanted = Wanted(tuple(order.grep), order.level)
        self._since = None if order.since is None else wall() - order.since
        self._readers: dict[int | None, LogReader] = {}
        self._next: dict[int | None, Path] = {}
        """What is read once that has been read to its end."""
        self._found_at = float("-inf")
        self._began = False
        self.hurries = False
        """Whether this node leaves soon: of what comes too fast the last lines are shown."""
        self.backlog = Backlog()

    @property
    def drops(self) -> bool:
        """Whether lines are left out that come faster than they can be sent."""
        return self._order.follow and all(one.follows for one in self._readers.values())

    @property
    def is_idle(self) -> bool:
        """Whether all that there is was read and given out."""
        return not self.backlog and all(one.at_end for one in self._readers.values())

    @property
    def is_done(self) -> bool:
        """Whether nothing more comes."""
        return not self._order.follow and self.is_idle

    @property
    def words(self) -> str:
        """Why there is nothing to see; empty: there may be something."""
        if any(one.is_there for one in self._readers.values()):
            return ""
        of = f"rank {self._order.rank}" if self._order.rank is not None else "its program"
        when = f" of epoch {self._order.epoch}" if self._order.epoch is not None else ""
        return f"there is no log of {of}{when} on this node"

    def step(self) -> None:
        """Read what comes next: of one log that has much, or of all that have nothing new."""
        if not self.drops and self.backlog.letters > LAG_LETTERS:
            return  # it stays in the file
        now = self._clock()
        if not self._began or (self._order.follow and now - self._found_at >= FILES_SECONDS):
            self._find()
            self._found_at, self._began = now, True
        for key, reader in [*self._readers.items()]:
            most = None
            if self.drops:
                behind, most = (0, LAST_LETTERS) if self.hurries else (BEHIND_BYTES, LAG_LETTERS)
                self.backlog.skip(key, reader.skip(behind))
            self.backlog.add(key, reader.step(), most=most)
            if reader.at_end and key in self._next:
                reader.close()
                self._readers[key] = self._reader(self._next.pop(key))
            elif not reader.at_end:
                self._readers[key] = self._readers.pop(key)  # the others are next
                return

    def close(self) -> None:
        """Nobody looks any more."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _find(self) -> None:
        """Open what is there now; a program that has started again writes into another file."""
        for key, path in self._paths().items():
            former = self._readers.get(key)
            if former is None:
                self._readers[key] = self._reader(path)
            elif former.path != path:
                self._next[key] = path

    def _reader(self, path: Path) -> LogReader:
        lines = None if self._began else self._order.lines
        more: dict[str, Any] = {"since": self._since, "follow": self._order.follow}
        return LogReader(path, self._wanted, lines, **more)

    def _paths(self) -> dict[int | None, Path]:
        """The logs that are shown, by rank; the node's under None."""
        try:
            names = os.listdir(self._folder)
        except OSError:
            names = []
        found: dict[int | None, Path] = {}
        for rank in self._asked.ranks:
            if (path := self._one(names, "rank", rank)) is not None:
                found[rank] = path
        if found or (self._readers and None not in self._readers):
            return found
        path = self._one(names, "node", self._asked.node)
        if self._asked.ranks:  # another one's shows that this rank has only said nothing yet
            others = (self._one(names, "rank", rank) for rank in self._asked.siblings)
            path = None if any(others) else path
        return {} if path is None else {None: path}

    def _one(self, names: list[str], of: Whose, number: int) -> Path | None:
        paths: dict[int, Path] = {}
        for name in names:
            known = read_log_name(name, of)
            if known and known[0] == number:
                paths[known[1]] = self._folder / name
        if not paths:
            return None
        return paths.get(epoch_of_log(paths, self._order.epoch, self._asked.epoch))
