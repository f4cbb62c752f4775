"""A log of its own for each rank of a node, beside that of the node.

What comes by a rank's own stream is in both: the node's log has everything in the order in which it
came, and the rank's can be read without the others. A rank that has no stream of its own has no
log: its words are in the node's alone. The launcher that starts the ranks has such a log as well.

Each is kept as the node's is (`log_file`, `log_index`), with a limit of its own.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from worker.program.log_file import log_name
from worker.program.log_index import IndexedLog
from worker.program.output import LAUNCHER, Output, Stream

logger = logging.getLogger(__name__)

RANK_LOG_BYTES = 256 << 20
"""What the log of one rank may have; less where --log-limit is less."""


def rank_log_name(rank: int, epoch: int = 0) -> str:
    """The log of a global rank; see `log_name`."""
    return log_name(rank, epoch, "rank")


class RankLog(IndexedLog):
    """The log of one rank, with its index. Raises OSError, as `write` does."""

    _limit_words = "limit of a rank's log"


class RankPlace(NamedTuple):
    """Where the logs of a node's ranks are.

    Attributes:
        folder: That of the node's log.
        first: The global rank of the node's first.
        epoch: Of a program that has started again; 0: it has not.
        limit: The bytes that each may have.
        divider: A line in front of what is appended to a log that has something in it.
        node: Its number, which the log of its launcher is named by; None: that has none.
    """

    folder: Path
    first: int
    epoch: int = 0
    limit: int = RANK_LOG_BYTES
    divider: str = ""
    node: int | None = None

    def path(self, rank: int) -> Path:
        """The log of a local rank, or of the launcher."""
        if rank == LAUNCHER and self.node is not None:
            return self.folder / log_name(self.node, self.epoch, "launcher")
        return self.folder / rank_log_name(self.first + rank, self.epoch)


class RankLogs:
    """An output in front of another one, which keeps what each rank has written, and the launcher.

    A log is made with the first that its rank writes. What cannot be written is said once, and
    never holds up the program.

    Args:
        output: Where all of it goes.
        place: Where the logs are.
    """

    def __init__(self, output: Output, place: RankPlace) -> None:
        self._output = output
        self._place = place
        self._logs: dict[int, RankLog | None] = {}
        self._works = True

    def write(self, stream: Stream, data: bytes, rank: int | None = None) -> None:
        """See the protocol."""
        if rank is not None and (rank != LAUNCHER or self._place.node is not None):
            self._keep(rank, data)
        self._output.write(stream, data, rank)

    def idle(self) -> None:
        """See the protocol."""
        self._output.idle()

    def close(self) -> None:
        """Nothing more comes."""
        for log in self._logs.values():
            if log is not None:
                log.close()
        self._logs.clear()

    def _keep(self, rank: int, data: bytes) -> None:
        try:
            if rank not in self._logs:
                self._logs[rank] = None  # where it cannot be opened, that is not tried again
                self._logs[rank] = self._opened(rank)
            if (log := self._logs[rank]) is not None:
                log.write(data)
        except OSError as error:
            if self._works:
                path = self._place.path(rank)
                logger.warning("the log file %s has gaps from here on: %s", path, error.strerror)
            self._works = False

    def _opened(self, rank: int) -> RankLog:
        log = RankLog(self._place.path(rank), self._place.limit)
        if self._place.divider and log.has_content:
            log.write(f"\n{self._place.divider}\n".encode())
        return log
