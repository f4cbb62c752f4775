"""A log of its own for each rank of a node, beside that of the node.

What comes by a rank's own stream is in both: the node's log has everything in the order in which it
came, and the rank's can be read without the others. A rank that has no stream of its own has no
log: its words are in the node's alone.

Each is kept as the node's is (`log_file`), with a limit of its own, and has an index:
`rank-37.log.index` says where in the file what time is, so that who asks for the last minutes of a
long log does not read all of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from worker.program.log_file import LogFile, older_part
from worker.program.output import Output, Stream

logger = logging.getLogger(__name__)

RANK_LOG_BYTES = 256 << 20
"""What the log of one rank may have; less where --log-limit is less."""
MARK_BYTES = 64 << 10
MARK_SECONDS = 60.0
"""A rank that says little has a mark as often as this."""
_MARK = "%015d %015.3f\n"
_MARK_LENGTH = 32
_NAME = re.compile(r"rank-(\d{1,9})(?:\.e([1-9]\d{0,8}))?\.log")


def rank_log_name(rank: int, epoch: int = 0) -> str:
    """The log of a global rank; with its epoch, of a program that has started again."""
    return f"rank-{rank}.e{epoch}.log" if epoch else f"rank-{rank}.log"


def read_rank_log_name(name: str) -> tuple[int, int] | None:
    """What `rank_log_name` was given; None where it made no such name."""
    found = _NAME.fullmatch(name)
    return found and (int(found[1]), int(found[2] or 0))


def index_of(log: Path) -> Path:
    """Where the index of a part of a log is; the oldest part has none."""
    return log.with_name(f"{log.name}.index")


def offset_at(log: Path, at: float) -> int:
    """A place in this part of a log, by its index, before what was written at that time or later:
    the nearest that is known, and 0 where there is no index.

    Args:
        log: The file.
        at: As `time.time()` on this machine.
    """
    try:
        with index_of(log).open("rb") as file:
            low, high = 0, os.fstat(file.fileno()).st_size // _MARK_LENGTH
            found = 0
            while low < high:
                middle = (low + high) // 2
                file.seek(middle * _MARK_LENGTH)
                offset, _, when = file.read(_MARK_LENGTH).partition(b" ")
                if float(when) < at:
                    low, found = middle + 1, int(offset)
                else:
                    high = middle
            return found
    except (OSError, ValueError):  # there is none, or it is damaged: read all
        return 0


class RankLog(LogFile):
    """The log of one rank, with its index. Raises OSError, as `write` does.

    Args:
        path: Of the file.
        limit: See `LogFile`; the index is not counted.
        clock: As `time.time`.
    """

    _limit_words = "limit of a rank's log"

    def __init__(
        self,
        path: Path,
        limit: int,
        clock: Callable[[], float] = time.time,  # noqa: TID251 (people ask by that clock)
    ) -> None:
        super().__init__(path, limit)
        self._clock = clock
        self._marked_size, self._marked_at = -MARK_BYTES, float("-inf")

    def _put(self, data: bytes) -> None:
        now = self._clock()
        if data and (
            self._size - self._marked_size >= MARK_BYTES or now - self._marked_at >= MARK_SECONDS
        ):
            self._marked_size, self._marked_at = self._size, now
            mark = (_MARK % (self._size, now)).encode()
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            fd = os.open(index_of(self.path), flags, 0o600)
            try:
                os.write(fd, mark)
            finally:
                os.close(fd)
        super()._put(data)

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._marked_size = -MARK_BYTES
        with contextlib.suppress(FileNotFoundError):
            index_of(self.path).replace(index_of(older_part(self.path)))


class RankPlace(NamedTuple):
    """Where the logs of a node's ranks are.

    Attributes:
        folder: That of the node's log.
        first: The global rank of the node's first.
        epoch: Of a program that has started again; 0: it has not.
        limit: The bytes that each may have.
        divider: A line in front of what is appended to a log that has something in it.
    """

    folder: Path
    first: int
    epoch: int = 0
    limit: int = RANK_LOG_BYTES
    divider: str = ""


class RankLogs:
    """An output in front of another one, which keeps what each rank has written.

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
        if rank is not None:
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
                name = rank_log_name(self._place.first + rank, self._place.epoch)
                path = self._place.folder / name
                logger.warning("the log file %s has gaps from here on: %s", path, error.strerror)
            self._works = False

    def _opened(self, rank: int) -> RankLog:
        folder, first, epoch, limit, divider = self._place
        log = RankLog(folder / rank_log_name(first + rank, epoch), limit)
        if divider and log.has_content:
            log.write(f"\n{divider}\n".encode())
        return log
