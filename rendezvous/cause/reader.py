"""Reads tracebacks among the lines of one source, which may have two streams. Pure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from itertools import islice

from rendezvous.cause.lines import is_logged, last_error
from rendezvous.cause.tracebacks import (
    AT_ONCE_SECONDS,
    FRAME,
    MORE_LINES,
    Dump,
    Line,
    Patterns,
    Raised,
    Traceback,
)

_TRACEBACK = re.compile(r"Traceback \(most recent call last\)(?!:?\\n)")
_OF_ANOTHER = re.compile(r"Traceback \(most recent call last\): \(RANK (\d{1,9})\)")
"""What stands in the message of an exception before what another rank has raised."""
_OF_SYNTAX = re.compile(r'\s+File "[^"]*", line \d+$')
"""Where a program cannot be read: no header stands before it."""
_CHAIN = re.compile(
    r"(During handling of the above exception|The above exception was the direct cause)"
)
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:: .*|:)?$")
_SURELY = re.compile(
    r"(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*)?(?:Error|Exception|Interrupt|Exit|Iteration)(?:: .*|:)?$"
    r"|(?:[A-Za-z_]\w*\.)+[A-Z]\w*(?:: .*|:)?$"
)
"""Names an exception; a line of progress, `Epoch: [0]`, only looks like one."""
_BOX = "\u2502\u256d\u2570"
"""What rich draws around the frames of a traceback."""
_FATAL = re.compile(r"Fatal Python error: ")
_WATCHDOG = re.compile(r"Timeout \(\d+:\d\d:\d\d(\.\d+)?\)!$")
"""What faulthandler says when a program's own time-out is over."""
_LAUNCHER_EXCEPTION = re.compile(
    r"(torch\.distributed\.elastic\.\S*\.)?(ChildFailedError|SignalException)\b"
    r"|(torch\.multiprocessing\.\S*\.)?ProcessExitedException\b(?!.*SIGKILL)"
)
"""How launchers say that one of their ranks has failed."""
_OF_A_COMMAND = re.compile(
    r"(subprocess\.)?CalledProcessError\b.*(torch|accelerate|deepspeed|python)"
)
"""So they do, too; but a rank may have started a Python itself."""
RECORD = re.compile(r"\[?[IWEFC]\d{3,4} [\d:.]+ |(\[rank\d+\]:)?\[[IWEF] [\w.]+:\d+\]")
"""What torch's own logging begins a line with."""
_OF_CANN = re.compile(r"\[ERROR\] [\d:.-]+ \(PID:|\[Error\]: ")
"""Beginnings of the lines of a message of Ascend's runtime."""
ADDED = re.compile(
    r"\s|$|terminate called|Exception (ignored|in thread)|Fatal Python error|Current thread|"
    r"Thread 0x|Extension modules|.*(Warning|warn\()|Process \w+-\d+|.*DataLoader worker"
    r"|.*, thread: \[[\d, ]+\],? Assertion "
)
"""What a process may still say of itself once it has failed."""
_ASIDE = re.compile(r"Exception in (thread|callback) |(future|handle): <|Process \S+-\d+:$")
"""What stands before the traceback in which a thread, a task of asyncio, or a child of
`multiprocessing`, ended."""
_IGNORED = re.compile(r"Exception ignored |Error in atexit\b|--- Logging error ---")
"""What stands before one that ends nothing."""
_COMMAND = re.compile(r"(subprocess\.)?CalledProcessError\b")
_NEAR_LINES = 6
_GROUP = re.compile(r"\s*\+ Exception Group Traceback \(most recent call last\)")
_MARGIN = re.compile(r"\s*(?:\| ?|\+(?= Exception Group))")
_SEPARATOR = re.compile(r"\s*\+-(?P<opens>\+-)?-{3,}(?: (?:\d+|\.\.\.) -{3,})?\s*$")
_HEADER = "Traceback (most recent call last):"


Found = tuple[list[Traceback | Dump], list[Line]]


def read(lines: Sequence[Line], known: Patterns, *, of_rank: bool) -> Found:
    """The tracebacks that ended something, each of one stream, and all other lines.

    Args:
        lines: Of one source.
        known: What is worth looking for.
        of_rank: Whether a rank has said it, and no launcher.
    """
    found: Found = ([], [])
    readers: dict[tuple[str, bool], _Reader] = {}
    for line in lines:
        if (key := (line.stream, line.whole)) not in readers:
            readers[key] = _Reader(known, found, of_rank=of_rank)
        readers[key].lines.append(line)
    for line in lines:
        said = len(found[1])
        readers[line.stream, line.whole].read()
        for key, reader in readers.items():
            if len(found[1]) > said and key != (line.stream, line.whole):
                reader.go_on_beside(line)
    for reader in readers.values():
        reader.end_group()
    return [one for one in found[0] if not one.ignored], found[1]


class _Reader:
    """Finds the tracebacks among the lines of one stream."""

    def __init__(self, known: Patterns, found: Found, *, of_rank: bool) -> None:
        self._known, self._of_rank = known, of_rank
        self.tracebacks, self.others = found
        self.lines: deque[Line] = deque()
        self._current: Traceback | Dump | None = None
        self._group: _Group | None = None
        self._in_frames = self._chained = self._direct = False
        self._header: Line | None = None
        self._more = 0
        self._last = Raised("")

    def read(self) -> None:
        """Take the next line."""
        line = self.lines.popleft()
        text = line.text
        if self._group is not None:
            if self._group.takes(text):
                return
            self.end_group()
        of = _OF_ANOTHER.match(text) if self._more else None
        if _GROUP.match(text):
            self._begin(line)
            self._in_frames, self._group = False, _Group(line)
        elif of and isinstance(self._current, Traceback):
            self._current.next = Raised("", of_rank=of[1])
            self._in_frames, self._more = True, 0
        elif _TRACEBACK.search(text):
            self._begin(line)
        elif _OF_SYNTAX.match(text) and not self._in_frames:
            self._begin(line).look_at(text)
        elif _FATAL.match(text) or _WATCHDOG.match(text):
            ends = "" if _FATAL.match(text) else "own_watchdog"
            self._current = Dump(line.at, header=text.strip(), ends=ends)
            self.tracebacks.append(self._current)
            self._in_frames, self._chained, self._more = True, False, 0
        elif self._in_frames and self._current is not None:
            self._read_frame(self._current, line)
        else:
            self._read_other(line)

    def _begin(self, line: Line) -> Traceback:
        if not isinstance(self._current, Traceback) or not self._chained:
            self._current = Traceback(line.at)
            if self._header is not None:
                self._current.ignored = _IGNORED.match(self._header.text) is not None
                self._current.aside = self._header.text
                self.others.remove(self._header)
        self._current.next = Raised("", direct=self._chained and self._direct)
        self._current.after = 0
        self._in_frames, self._chained, self._more = True, False, 0
        self._header = None
        return self._current

    def end_group(self) -> None:
        """Of a group the first exception counts, as if it had been raised alone."""
        group, self._group, current = self._group, None, self._current
        if group is None or not isinstance(current, Traceback):
            return
        if (found := group.traceback(self._known)) is None:
            return
        found.raised[0].direct = current.next.direct
        current.raised += found.raised
        current.alike = found.alike
        if current not in self.tracebacks:
            self.tracebacks.append(current)

    def _read_frame(self, current: Traceback | Dump, line: Line) -> None:
        text = line.text.replace("> File", "  File", 1) if line.text[:6] == "> File" else line.text
        if text[:1].isspace() or not text.strip() or text[0] in _BOX:
            current.look_at(text)
        elif isinstance(current, Dump):
            current.look_at(text)
            self._in_frames = text.startswith(("Current thread", "Thread 0x"))
            if not self._in_frames:
                self._read_other(line)
        else:
            self._read_exception(current, line)

    def _read_exception(self, current: Traceback, line: Line) -> None:
        text = line.text
        self._in_frames = self._goes_on_after(text)
        is_exception = _EXCEPTION.match(text) is not None and not self._in_frames
        if not is_exception or "SignalException" in text:
            self.others.append(line)
        if self._in_frames:
            return
        if not is_exception or self._is_of_launcher(text):
            self._current = None
            return
        one = current.next
        one.line, one.whole, one.rank = text.strip(), line.whole, line.rank
        if _COMMAND.match(text):
            one.said = last_error([other.text for other in self.others[-_NEAR_LINES:]])
        if one.of_rank:
            current.raised[-1].told.append(one)
        else:
            current.raised.append(one)
        self._last = one
        current.uncaught = line.uncaught
        current.at, self._more = line.at, MORE_LINES
        if current not in self.tracebacks:
            self.tracebacks.append(current)

    def _goes_on_after(self, text: str) -> bool:
        """Return whether another thread has written this between the lines of a traceback."""
        for line in islice(self.lines, _NEAR_LINES):
            if _SURELY.match(text) or not line.text.strip() or _TRACEBACK.search(line.text):
                return False
            if FRAME.match(line.text) or _SURELY.match(line.text):
                return True
        return False

    def _is_of_launcher(self, text: str) -> bool:
        """Return whether it only tells that another process has failed, which speaks for itself."""
        if _LAUNCHER_EXCEPTION.match(text):
            return True
        before = any(one.after <= MORE_LINES for one in self.tracebacks[-1:])
        return (before or not self._of_rank) and _OF_A_COMMAND.match(text) is not None

    def _read_other(self, line: Line) -> None:
        text, current = line.text, self._current
        self._header = line if _ASIDE.match(text) or _IGNORED.match(text) else None
        if isinstance(current, Traceback):
            if (chain := _CHAIN.match(text)) is not None:
                self._chained, self._direct, self._more = True, "direct" in chain[1], 0
                return
            if current.raised and self._more:
                is_new = RECORD.match(text) or (is_logged(text) and not _OF_CANN.match(text))
                is_new = is_new and not text[:1].isspace()
                self._more = 0 if is_new else self._more - 1
                if self._more:
                    self._last.more.append(text)
        self.go_on(line)
        self.others.append(line)

    def go_on_beside(self, line: Line) -> None:
        """Another stream says this; what it says at once may be older: it is kept back, or read
        later."""
        if self._current is not None and self._current.lasted(line.at) > AT_ONCE_SECONDS:
            self.go_on(line)

    def go_on(self, line: Line) -> None:
        """This was said after the last traceback."""
        if self._current is not None and not self._in_frames:
            of_end = RECORD.match(line.text) or ADDED.match(line.text)
            self._current.go_on(line, None if of_end else self._known)


class _Group:
    """Takes the lines of an exception group, and tells the exceptions that are in it."""

    def __init__(self, line: Line) -> None:
        self._parts: list[list[str]] = [[_HEADER]]
        self._line = line
        self._parents: set[int] = set()

    def takes(self, text: str) -> bool:
        """Return whether it is one of its lines, which is read then."""
        if (bar := _SEPARATOR.match(text)) is not None:
            if bar["opens"]:
                self._parents.add(len(self._parts) - 1)
            self._parts.append([])
        elif (margin := _MARGIN.match(text)) is not None:
            self._parts[-1].append(text[margin.end() :])
        else:
            return False
        return True

    def traceback(self, known: Patterns) -> Traceback | None:
        """The first exception that is none but of a consequence, or of being cancelled."""
        found = []
        where, is_own = "", False
        for index, part in enumerate(self._parts):
            lines = part if "Traceback (most" in "".join(part[:1]) else [_HEADER, *part]
            whole = [Line(text, self._line.rank, self._line.at, True) for text in lines]
            told, _ = read(whole, known, of_rank=True)
            for one in (one for one in told[-1:] if isinstance(one, Traceback)):
                last = one.raised[-1]
                if index in self._parents and len(self._parts) > 1:
                    where, is_own = last.where or where, last.is_own or is_own
                else:
                    if not last.where:
                        last.where, last.is_own = where, is_own
                    found.append(one)
        first = min(found, key=lambda one: one.only_follows(known), default=None)
        if first is not None:
            first.alike = len(found) - 1
        return first
