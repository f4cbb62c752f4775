"""What the program prints: passed on, kept in the node's log file, its last lines remembered."""

from __future__ import annotations

import fcntl
import logging
import math
import os
import select
import sys
import termios
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from rendezvous.wire.words import printable
from worker.program.fold import SENTENCE, Fold
from worker.program.log_index import IndexedLog
from worker.program.prefixed import PrefixedOutput
from worker.program.rank_words import COLOURS, RankWords
from worker.program.terminal import can_redraw, size_of

logger = logging.getLogger(__name__)

Stream = Literal["stdout", "stderr"]

CHUNK_BYTES = 65_536

IDLE_SECONDS = 0.2
"""After this silence an unfinished line is passed on as it stands."""

DRAIN_SECONDS = 1.0
STUCK_SECONDS = 5.0

_TAIL_LINES = 200
_TAIL_WIDTH = 400

_MAX_UNFINISHED = 65_536
_ERASE = b"\x1b[K"
STREAMS: tuple[Stream, Stream] = ("stdout", "stderr")


LAUNCHER = -1
"""In place of a local rank: the own stream of the launcher that starts the ranks."""


class Source(NamedTuple):
    """Where a piece of output comes from: the stream, and the local rank whose own stream it is;
    `LAUNCHER`: the launcher's own; None: the program's common pipe."""

    stream: Stream
    rank: int | None = None


def make_private(folder: Path) -> None:
    """Make a folder and what is missing above it, for its owner alone. Raises OSError."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def write_whole(path: Path, new: Path, text: str) -> None:
    """Write a text for its owner alone, at `new` first: nobody sees half of it. Raises OSError."""
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)
    new.replace(path)


class Output(Protocol):
    """Where a program's output goes. All calls come from one thread, which is not the event loop's,
    so that a slow terminal or file system holds up the program and not this node's heartbeat.
    """

    def write(self, stream: Stream, data: bytes, rank: int | None = None) -> None:
        """Take what the program has just written, as it is.

        Args:
            stream: Where it was written to.
            data: What was written; a piece may end within a line.
            rank: The local rank whose own stream it is; `LAUNCHER`: the launcher's own stream;
                None: it came by the program's pipe.
        """

    def idle(self) -> None:
        """Nothing has come for `IDLE_SECONDS`, or nothing more will come."""


class Tail:
    """The last lines of both streams, in the order in which they came."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=_TAIL_LINES)
        self._unfinished: dict[Stream, bytes] = dict.fromkeys(STREAMS, b"")
        self._lock = threading.Lock()

    def write(self, stream: Stream, data: bytes) -> None:
        """Remember the newest lines of it."""
        with self._lock:
            # What stands before the last lines, as many as are kept, is left out unseen.
            *finished, rest = (self._unfinished[stream] + data).rsplit(b"\n", _TAIL_LINES)
            self._lines.extend(line for line in finished if line.strip())
            self._unfinished[stream] = rest[-_MAX_UNFINISHED:]

    def lines(self) -> list[str]:
        """Printable text, without colours and blank lines, each line cut to the width."""
        with self._lock:
            found = [*self._lines, *(rest for rest in self._unfinished.values() if rest.strip())]
        return [self._text(line) for line in found[-_TAIL_LINES:]]

    def _text(self, line: bytes) -> str:
        # Of a progress bar that overwrites itself only the last state counts.
        newest = line.rstrip().rpartition(b"\r")[2].rpartition(b"\n")[2]
        text = COLOURS.sub("", newest.decode("utf-8", "replace")).expandtabs(4)
        return printable(text.rstrip(), _TAIL_WIDTH)


class OutputSink:
    """Passes a program's output on to our own, into the log file and into the tail.

    Without a prefix the bytes go through untouched and at once, but that a new line erases its row
    of a terminal first; with one, line by line, see `PrefixedOutput`. An output of ours that is
    closed, or a log file that cannot be written, never stops the program.

    Args:
        log: Every byte of both streams is appended here; created with mode 0600. None: no log.
        log_limit: Bytes that the log may have, see `worker.program.log_file`; 0 for any number.
        divider: A line in front of what is appended to a log that has something in it.
        prefix: Such as `[0] `; empty: none.
        stdout: File descriptor of our own standard output.
        stderr: File descriptor of our own standard error.
    """

    def __init__(
        self,
        log: Path | None = None,
        *,
        log_limit: int = 0,
        divider: str = "",
        prefix: str = "",
        stdout: int = 1,
        stderr: int = 2,
    ) -> None:
        self._tail = Tail()
        self._words = RankWords()
        self._printed = 0
        self._log = _open_log(log, log_limit) if log is not None else None
        self._log_works = True
        if divider and self._log is not None and self._log.has_content:
            self._append(f"\n{divider}\n".encode())
        self._fold: Fold | None = None
        self._fds: dict[Stream, int] = {"stdout": stdout, "stderr": stderr}
        self._is_midline = dict.fromkeys(STREAMS, False)
        self._prefixed: dict[Stream, PrefixedOutput] = {}
        if prefix:
            width = partial(_width_of, stdout, stderr)
            self._prefixed = {s: PrefixedOutput(prefix.encode(), width) for s in STREAMS}
        # What a launcher draws there while nothing is printed goes with the next line.
        self._shares_row = not prefix and _width_of(stdout, stderr) is not None

    @property
    def tail(self) -> list[str]:
        """The program's last lines, fit for a report."""
        return self._tail.lines()

    @property
    def words(self) -> RankWords:
        """What each rank has said last."""
        return self._words

    @property
    def printed(self) -> int:
        """Bytes that its ranks have written; a launcher's own words are no progress."""
        return self._printed

    def write(self, stream: Stream, data: bytes, rank: int | None = None) -> None:
        """See the protocol."""
        self._printed += len(data) * (rank != LAUNCHER)
        self._words.take(None if rank == LAUNCHER else rank, data, stream)
        self._append(data)
        self._tail.write(stream, data)
        if self._fold is not None:
            data = self._fold.take(data) if rank == LAUNCHER else self._fold.pass_by(data)
            if data:
                self._show("stderr", self._fold.told())
        self._show(stream, data)

    def fold_launcher(self, fold: Fold) -> None:
        """Show only what `fold` does of what the launcher itself prints, if the log has all."""
        if self._log is not None:
            fold.read(self._words)
            self._fold = fold

    def stop(self) -> None:
        """The program is stopped from now on: what its launcher says of that is folded."""
        if self._fold is not None:
            self._fold.stop()

    def _show(self, stream: Stream, data: bytes) -> None:
        prefixed = self._prefixed.get(stream)
        if self._shares_row and data and not any(self._is_midline.values()):
            data = _ERASE + data
        if data.startswith(SENTENCE) and self._is_midline[stream]:  # a rank's bar, for one
            data = b"\n" + data
        if data:
            self._is_midline[stream] = not data.endswith(b"\n")
            self._pass_on(stream, prefixed.write(data, time.monotonic()) if prefixed else data)

    def idle(self) -> None:
        """See the protocol."""
        if self._fold is not None:
            self._show("stderr", self._fold.told() + self._fold.idle())
        for stream, prefixed in self._prefixed.items():
            self._pass_on(stream, prefixed.idle(time.monotonic()))

    def close(self) -> None:
        """Pass on what is unfinished, and close the log file."""
        if self._fold is not None:
            self._show("stderr", self._fold.told() + self._fold.close())
        for stream, prefixed in self._prefixed.items():
            self._pass_on(stream, prefixed.close())
        if self._log is not None:
            self._log.close()
            self._log = None

    def _pass_on(self, stream: Stream, data: bytes) -> None:
        """Write it all to our own output; one that cannot be written any more is forgotten."""
        for piece in _whole_lines(data) if self._prefixed else (data,):
            self._write(stream, piece)

    def _write(self, stream: Stream, data: bytes) -> None:
        fd = self._fds[stream]
        while data and fd >= 0:
            try:
                data = data[os.write(fd, data) :]
            except BlockingIOError:  # whoever gave it to us had made it non-blocking
                _wait_until_writable(fd)
            except OSError as error:  # nobody reads any more, say: the log file goes on
                self._fds[stream] = fd = -1
                logger.warning(
                    "standard %s cannot be written: %s; what the program prints is %s from here on",
                    "output" if stream == "stdout" else "error",
                    error.strerror,
                    "lost" if self._log is None else f"only in {self._log.path}",
                )

    def _append(self, data: bytes) -> None:
        if self._log is None:
            return
        try:
            self._log.write(data)
        except OSError as error:
            if self._log_works:
                logger.warning(
                    "the log file %s has gaps from here on: %s", self._log.path, error.strerror
                )
            self._log_works = False


def _width_of(stdout: int, stderr: int) -> int | None:
    """Cells of a line of the terminal that shows both; None where not all that it shows is ours to
    redraw: what another program writes there does not erase a bar."""
    size = size_of(stdout) if size_of(stderr) and can_redraw(os.environ) else None
    return None if size is None else size.columns


def _open_log(log: Path, limit: int) -> IndexedLog | None:
    try:
        return IndexedLog(log, limit)
    except OSError as error:
        logger.warning(
            "cannot write the log file %s: %s; the program continues without it",
            log,
            error.strerror,
        )
        return None


def _whole_lines(data: bytes) -> Iterator[bytes]:
    """Pieces that end with a line where they can, and that a pipe takes whole: several nodes write
    to one pipe, which keeps pieces of up to PIPE_BUF bytes together."""
    while len(data) > select.PIPE_BUF:
        cut = data.rfind(b"\n", 0, select.PIPE_BUF) + 1 or select.PIPE_BUF
        yield data[:cut]
        data = data[cut:]
    yield data


class Pump:
    """Reads a program's pipes in a thread of its own and hands over every piece at once.

    Args:
        pipes: File descriptors, which it closes.
        output: Where it goes.
        release: Called when the program is gone: who holds an end of these pipes beside it lets go.
    """

    def __init__(
        self,
        pipes: dict[int, Source],
        output: Output,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        self._pipes = pipes
        self._output = output
        self._release = release
        self._deadline = math.inf
        self._finish, self._finish_in = os.pipe()
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """The program is gone: read what is left and return.

        A process that escaped may hold the pipes open for ever, and our own output may be stuck:
        the first is waited for `DRAIN_SECONDS`, the second `STUCK_SECONDS`.
        """
        self._release()
        self._deadline = time.monotonic() + DRAIN_SECONDS
        os.close(self._finish_in)
        self._thread.join(STUCK_SECONDS)
        if self._thread.is_alive():
            logger.warning("rdzv's own output is blocked; the program's last lines may be missing")

    def _run(self) -> None:
        poll = select.poll()
        for fd in (*self._pipes, self._finish):
            poll.register(fd, select.POLLIN)
        silent = True
        while self._pipes and time.monotonic() < self._deadline:
            ready = [fd for fd, _ in poll.poll(self._patience(silent))]
            if self._finish in ready:
                poll.unregister(self._finish)
            # In the order of the pipes: of what came at once, an error is to be the last word.
            for fd in ready:
                if fd in self._pipes and not self._read(fd):
                    poll.unregister(fd)
            silent = not ready
            if silent:
                self._hand_over(self._output.idle)
        # Too late, because of our own output or a busy machine: what has come is not lost for that.
        for fd in [*self._pipes]:
            for _ in range(0, _waiting_bytes(fd), CHUNK_BYTES):
                self._read(fd)
        self._hand_over(self._output.idle)
        for fd in (*self._pipes, self._finish):
            os.close(fd)

    def _patience(self, silent: bool) -> float | None:
        """How long to wait for news, in milliseconds."""
        if self._deadline < math.inf:
            return max(0.0, self._deadline - time.monotonic()) * 1000
        return None if silent else IDLE_SECONDS * 1000

    def _read(self, fd: int) -> bool:
        data = os.read(fd, CHUNK_BYTES)
        if data:
            stream, rank = self._pipes[fd]
            self._hand_over(lambda: self._output.write(stream, data, rank))
        else:
            del self._pipes[fd]
            os.close(fd)
        return bool(data)

    def _hand_over(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:  # a fault of ours must not fill the program's pipe and stop it
            logger.exception("a piece of the program's output was lost")


def _waiting_bytes(fd: int) -> int:
    """How much can be read of a pipe without waiting."""
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)


def _wait_until_writable(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    poll.poll()
