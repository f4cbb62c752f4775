"""The lines of a log file on this machine, also of one that its node has begun anew."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack, aclosing, suppress
from pathlib import Path
from typing import IO, NamedTuple, TextIO, cast

from worker.program.log_file import first_part, older_part
from worker.program.log_index import LogTimes, young_from
from worker.program.log_reader import is_same
from worker.program.terminal_rows import shown_text

_LOOK_SECONDS = 0.2
_STATE_SECONDS = 10.0
"""At most so often a progress bar that is not finished is a line for who follows."""
_TOO_FAST = "rdzv: output may be missing here: it came faster than it was read"


class LogLine(NamedTuple):
    """A line of a log.

    Attributes:
        at: When it was written, as `time.time()` and as exactly as the log's index knows it; None:
            not known.
    """

    text: str
    at: float | None = None


async def file_lines(
    path: Path,
    lines: int,
    *,
    follow: bool,
    keep: Callable[[str], bool] = lambda line: True,
    since: float | None = None,
) -> AsyncIterator[str]:
    """As `timed_lines`, without the times."""
    read = timed_lines(path, lines, follow=follow, keep=keep, since=since)
    async with aclosing(read):
        async for line in read:
            yield line.text


async def timed_lines(
    path: Path,
    lines: int,
    *,
    follow: bool,
    keep: Callable[[str], bool] = lambda line: True,
    since: float | None = None,
) -> AsyncGenerator[LogLine, None]:
    """The newest lines of a log, and then those that come, in whatever file they are written.

    Only those to `keep` count, and are given; of older ones than `since`, as `time.time`, only
    those that may be younger. Of a progress bar that overwrites itself the last state is given, and
    to who follows one now and then.
    """

    def counts(line: LogLine) -> bool:
        return keep(shown_text(line.text)) or (follow and line.text[-1:] != "\n")

    file = _open_newest(path)
    try:
        is_whole = since is None or _go_to(file, since, follow=follow)
        newest = deque(filter(counts, _timed(file)), lines)
        if is_whole and len(newest) < lines:
            newest = _with_older(path, file, lines, counts, since)
        begun = newest.pop().text if follow and newest and newest[-1].text[-1:] != "\n" else ""
        for line in newest:
            yield LogLine(shown_text(line.text), line.at)
        is_over, state_at = False, -math.inf
        while follow:
            more = file.readline()
            begun += more
            if begun.endswith("\n"):
                if keep(text := shown_text(begun)):
                    yield _now(text)
                begun = ""
            elif is_over and not more:
                is_next, file = _next(path, file)
                is_over = False
                if not is_next:
                    if begun and keep(text := shown_text(begun)):
                        yield _now(text)
                    begun = ""
                    yield _now(_TOO_FAST)
            elif more and "\r" in begun:
                state, _, rest = begun.rpartition("\r")
                text, now = shown_text(state), time.monotonic()
                begun = f"{text}\r{rest}"
                if text.strip() and now - state_at > _STATE_SECONDS and keep(text):
                    state_at = now
                    yield _now(text)
            else:  # whatever was written before it was replaced is read once more
                is_over = _is_replaced(path, file)
                await asyncio.sleep(0 if is_over else _LOOK_SECONDS)
    finally:
        file.close()


def _now(text: str) -> LogLine:
    return LogLine(text, time.time())  # noqa: TID251 (as a log's index)


def _timed(file: TextIO) -> Iterator[LogLine]:
    """The lines from here to the end of a file, with their times."""
    offset = file.tell()
    times = LogTimes(Path(file.name))
    for line in file:
        yield LogLine(line, times.at(offset))
        offset += len(line) if line.isascii() else len(line.encode("utf-8", "replace"))


def _open(path: Path) -> TextIO:
    return path.open(errors="replace", newline="\n")


def _open_newest(path: Path) -> TextIO:
    try:
        return _open(path)
    except FileNotFoundError:  # it has just become its older part
        return _open(older_part(path))


def _go_to(file: TextIO, since: float, *, follow: bool) -> bool:
    """Go to where it begins to be young enough; whether older parts of its log may be as well."""
    place = young_from(cast("IO[bytes]", file.buffer), since, follow=follow)
    file.seek(place or 0)
    return place is None


def _with_older(
    path: Path, file: TextIO, lines: int, counts: Callable[[LogLine], bool], since: float | None
) -> deque[LogLine]:
    """The newest lines of the whole log; `file` is its end, and is read to its end."""
    with ExitStack() as opened:
        parts: list[TextIO] = []
        for part in (older_part(path), first_part(path)):
            with suppress(FileNotFoundError):
                older = opened.enter_context(_open(part))
                if is_same(older, file):
                    continue
                parts.insert(0, older)
                if since is not None and not _go_to(older, since, follow=False):
                    break
        file.seek(0)
        return deque(filter(counts, _joined([*parts, file])), lines)


def _joined(files: Iterable[TextIO]) -> Iterator[LogLine]:
    """The lines of files, of which one may end and the next begin in the middle of a line."""
    begun = LogLine("")
    for line in itertools.chain.from_iterable(map(_timed, files)):
        begun = LogLine(begun.text + line.text, begun.at if begun.text else line.at)
        if begun.text.endswith("\n"):
            yield begun
            begun = LogLine("")
    if begun.text:
        yield begun


def _is_replaced(path: Path, file: TextIO) -> bool:
    """Whether something else is written by now; what is in `file` stays as it is."""
    try:
        return not os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _next(path: Path, file: TextIO) -> tuple[bool, TextIO]:
    """The file to read after this one, and whether nothing can have fallen out between them."""
    try:
        older = _open(older_part(path))
    except FileNotFoundError:  # this one was it
        return True, _reopened(path, file)
    if is_same(older, file):
        older.close()
        return True, _reopened(path, file)
    file.close()
    return False, older


def _reopened(path: Path, file: TextIO) -> TextIO:
    """What is written now; the same file while nothing is."""
    try:
        found = _open(path)
    except FileNotFoundError:
        return file
    file.close()
    return found
