"""Clues in a program's output: tracebacks, and single lines that a row of the table knows. Pure.

Looked for once, in the last words of a program that has failed: nothing is read while it runs.
A clue is named like the row that it tells of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rendezvous.cause.table import CAUSES, Kind
from rendezvous.frozen import frozen
from rendezvous.wire.evidence import MAX_CLUES, Clue
from rendezvous.wire.words import printable

_READ_WIDTH = 2000
"""Of a line, no more is looked at: some patterns take the square of its length."""
_LINE_WIDTH = 400
_WHERE_WIDTH = 200
_MORE_LINES = 12
"""Of a message that an exception has beyond its first line."""
_LONG_WINDED = re.compile(r"(\S+\.)?(RuntimeError|OSError|ImportError|\w*Dist\w*Error)\b")
"""Exceptions of native code, whose messages have several lines."""

_OF_RANK = re.compile(r"\[rank(\d{1,9})\]: ?")
_OF_LOCAL = re.compile(r"\[\w+?(\d{1,6})\]: ?")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)")
_FRAME = re.compile(r'\s+File "(?P<file>[^"]*)", line (?P<line>\d+)(?:,? in (?P<name>.*))?')
_CHAIN = re.compile(
    r"(During handling of the above exception|The above exception was the direct cause)"
)
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:: .*|:)?$")
_BOX = "\u2502\u256d\u2570"
"""What rich draws around the frames of a traceback."""
_FATAL = re.compile(r"Fatal Python error: ")
_OF_LAUNCHERS = re.compile(
    r"(torch\.distributed\.elastic\.\S*\.)?(ChildFailedError|SignalException)\b"
    r"|(torch\.multiprocessing\.\S*\.)?ProcessExitedException\b"
)
"""How launchers say that one of their ranks has failed."""
_OF_A_COMMAND = re.compile(
    r"(subprocess\.)?CalledProcessError\b.*(torch|accelerate|deepspeed|python)"
)
"""So they do, too; but a rank may have started a Python itself."""
_RECORD = re.compile(r"\[?[IWEFC]\d{3,4} [\d:.]+ |\[rank\d+\]:\[[IWEF]")
"""What torch's own logging begins a line with."""
_ADDED = re.compile(
    r"\s|$|terminate called|Exception (ignored|in thread)|Fatal Python error|Current thread|"
    r"Thread 0x|Extension modules|.*(Warning|warn\()|Process \w+-\d+|.*DataLoader worker"
)
"""What a process may still say of itself once it has failed."""
_ASIDE = re.compile(r"Exception in thread |Process \S+-\d+:$")
"""What stands before the traceback in which a thread, or a child of `multiprocessing`, ended."""
_IN_VAIN = re.compile(
    r"(\S+\.)?((Empty|Full|BrokenBarrierError|EOFError|TimeoutError)$|BrokenProcessPool\b)"
)
"""How one fails that has waited for another thread, or for a child: most of it without words."""
_SIGNAL = re.compile(r"DataLoader worker .*is killed by signal")
"""It says more than that a worker "exited unexpectedly", which torch raises from it."""
_OTHERS_CODE = re.compile(r"(site|dist)-packages/|/lib/python3|/torch/|<frozen |<string>")

Patterns = tuple[tuple[str, re.Pattern[str]], ...]
_PATTERNS: Patterns = tuple(
    (row.id, re.compile("|".join(row.patterns), re.MULTILINE)) for row in CAUSES if row.patterns
)
_CONSEQUENCES = frozenset(row.id for row in CAUSES if row.kind is Kind.CONSEQUENCE)
_ONLY_NATIVE = frozenset({"abort", "segfault", "bus_error", "crash"})


@frozen
class Line:
    """A line of output; `at` is when it was read, on whichever clock."""

    text: str
    rank: int | None = None
    at: float | None = None


@dataclass
class _Raised:
    """One exception: its line, and what its message has beyond that."""

    line: str
    more: list[str] = field(default_factory=list)

    def row(self, known: Patterns) -> tuple[str | None, str]:
        """The row that it tells of, and the line that does, with what its colon announces."""
        if (name := _special(self.line, known)) is not None:
            return name, self.line
        if _LONG_WINDED.match(self.line):
            for text in self.more:
                if (name := _special(text, known)) is not None:
                    return name, f"{self.line} {text.strip()}"
        if self.line.endswith(":") and self.more:
            return None, f"{self.line} {self.more[0].strip()}"
        return None, self.line


@dataclass
class _Traceback:
    """An exception with all that it was raised from, which come first.

    Attributes:
        where: The innermost frame of the last one, of the user's own code where there is one.
        is_own: Whether it is.
        after: How many lines of the program's own stand behind it.
        fatal: It is the interpreter's own, of a crash: the innermost frame comes first.
        aside: A thread or a child ended in it, and not the program.
    """

    at: float | None
    where: str = ""
    is_own: bool = False
    raised: list[_Raised] = field(default_factory=list)
    after: int = 0
    fatal: str = ""
    aside: bool = False

    def look_at(self, text: str) -> None:
        """Take in a frame."""
        if (frame := _FRAME.match(text)) is None:
            return
        is_own = _OTHERS_CODE.search(frame["file"]) is None
        if self.fatal:
            if not self.where or (is_own and not self.is_own):
                self.where, self.is_own = _place(frame), is_own
        elif is_own or not self.is_own:
            self.where, self.is_own = _place(frame), is_own

    def told(self, known: Patterns) -> tuple[str, str]:
        """Its row and line: what has happened rather than what followed of it, what is special
        rather than what is not, and the last one rather than the first."""
        if self.fatal:
            return row_of(self.fatal, known) or "abort", self.fatal
        rows = [one.row(known) for one in reversed(self.raised)]
        for name, line in rows:
            if name is not None and name not in _CONSEQUENCES:
                more = (text for one, text in rows if one == name and _SIGNAL.search(text))
                return name, next(more, line)
        if rows[-1][0] is not None:
            return rows[-1][0], rows[-1][1]
        return "exception", next(line for name, line in rows if name is None)


class _Reader:
    """Takes the lines of one source, and finds its tracebacks among them.

    Args:
        known: What is worth looking for.
        of_rank: Whether a rank has said them, and no launcher.
    """

    def __init__(self, known: Patterns, *, of_rank: bool) -> None:
        self._known = known
        self._of_rank = of_rank
        self.tracebacks: list[_Traceback] = []
        self.others: list[Line] = []
        self._current: _Traceback | None = None
        self._in_frames = self._chained = self._aside = False
        self._more = 0

    def read(self, line: Line) -> None:
        """Take the next line."""
        text = line.text
        if _TRACEBACK.search(text):
            self._begin(line, "")
        elif _FATAL.match(text):
            self._begin(line, text.strip())
        elif self._in_frames and self._current is not None:
            self._read_frame(self._current, line)
        else:
            self._read_other(line)

    def _begin(self, line: Line, fatal: str) -> None:
        if self._current is None or fatal or not self._chained:
            self._current = _Traceback(line.at, fatal=fatal, aside=self._aside)
        if fatal:
            self.tracebacks.append(self._current)
        self._current.where, self._current.is_own, self._current.after = "", False, 0
        self._in_frames, self._chained, self._more = True, False, 0
        self._aside = False

    def _read_frame(self, current: _Traceback, line: Line) -> None:
        text = line.text
        if text[:1].isspace() or not text.strip() or text[0] in _BOX:
            current.look_at(text)
        elif current.fatal:
            self._in_frames = text.startswith(("Current thread", "Thread 0x"))
            if not self._in_frames:
                self._read_other(line)
        else:
            is_exception = _EXCEPTION.match(text) is not None
            if not is_exception:
                # Another thread may write between its lines.
                self.others.append(line)
            self._in_frames = not is_exception and (
                _RECORD.match(text) is not None or row_of(text) is not None
            )
            if self._in_frames:
                return
            if not is_exception or self._is_of_launcher(text):
                self._current = None
                return
            current.raised.append(_Raised(text.strip()))
            current.at, self._more = line.at, _MORE_LINES
            if current not in self.tracebacks[-1:]:
                self.tracebacks.append(current)

    def _is_of_launcher(self, text: str) -> bool:
        """Whether it only tells that another process has failed, whose own words are somewhere."""
        if _OF_LAUNCHERS.match(text):
            return True
        before = any(one.after <= _MORE_LINES for one in self.tracebacks[-1:])
        return (before or not self._of_rank) and _OF_A_COMMAND.match(text) is not None

    def _read_other(self, line: Line) -> None:
        text, current = line.text, self._current
        self._aside = _ASIDE.match(text) is not None
        if current is not None and _CHAIN.match(text):
            self._chained, self._more = True, 0
            return
        if current is not None and current.raised and self._more:
            self._more = self._more - 1 if text.strip() else 0
            if text.strip() and not _RECORD.match(text):
                current.raised[-1].more.append(text)
        if current is not None and not _RECORD.match(text) and not _ADDED.match(text):
            current.after += row_of(text, self._known) is None
        self.others.append(line)


def row_of(line: str, known: Patterns = _PATTERNS) -> str | None:
    """The row that a line tells of; None: none."""
    return next((name for name, pattern in known if pattern.search(line)), None)


def _special(line: str, known: Patterns) -> str | None:
    name = row_of(line, known)
    return None if name in _ONLY_NATIVE else name


def find_clues(lines: Iterable[Line], most: int = MAX_CLUES) -> list[Clue]:
    """What the lines tell, of each rank apart; of each single lines first, then its tracebacks."""
    sources: dict[tuple[int | None, str], list[Line]] = {}
    for line in lines:
        key, bare = _source(line)
        sources.setdefault(key, []).append(bare)
    each = [_clues_of(rank, found) for (rank, _), found in sources.items()]
    share = max(2, most // max(1, len(each)))
    return [clue for found in each for clue in found[-share:]][:most]


def _source(line: Line) -> tuple[tuple[int | None, str], Line]:
    """Whose line it is, and the line without the prefix that says so."""
    line = Line(line.text[:_READ_WIDTH], line.rank, line.at)
    if (match := _OF_RANK.match(line.text)) is not None:
        rank = int(match[1])
        return (rank, ""), Line(line.text[match.end() :], rank, line.at)
    if line.rank is None and (match := _OF_LOCAL.match(line.text)) is not None:
        return (None, match[1]), Line(line.text[match.end() :], None, line.at)
    return (line.rank, ""), line


def _clues_of(rank: int | None, lines: Sequence[Line]) -> list[Clue]:
    # Most patterns are nowhere in it, which is found out at once.
    text = "\n".join(line.text for line in lines)
    known = tuple(each for each in _PATTERNS if each[1].search(text))
    reader = _Reader(known, of_rank=rank is not None)
    for line in lines:
        reader.read(line)
    single: dict[str, Clue] = {}
    for line in reader.others:
        # Of what follows from another failure the first word counts, else the last.
        name = row_of(line.text, known)
        if name is not None and (name not in single or name not in _CONSEQUENCES):
            single[name] = _clue(name, line.text, rank, line.at)
    found = list(single.values())
    tracebacks = _that_tell(reader.tracebacks, known)
    for traceback in tracebacks:
        went_on = traceback.after > _MORE_LINES and traceback is not tracebacks[-1]
        if went_on and rank is not None:
            continue  # It was logged, and got over.
        name, words = traceback.told(known)
        clue = _clue(name, words, rank, traceback.at)
        in_vain = tracebacks[-1] is not reader.tracebacks[-1]
        is_last = traceback is tracebacks[-1] and (in_vain or traceback.after == 0)
        changes = {
            "where": printable(traceback.where, _WHERE_WIDTH),
            "raised": not traceback.fatal,
            "last": is_last,
        }
        found.append(clue.model_copy(update=changes))
    return found


def _that_tell(found: Sequence[_Traceback], known: Patterns) -> Sequence[_Traceback]:
    """The last two; where the last one has waited in vain for what ended aside, that."""
    aside = [one for one in found[:-1] if one.aside]
    if aside and _IN_VAIN.match(found[-1].told(known)[1]):
        return aside[-1:]
    return found[-2:]


def _clue(name: str, line: str, rank: int | None, at: float | None) -> Clue:
    return Clue(id=name, line=printable(line.strip(), _LINE_WIDTH), rank=rank, at=at)


def _place(frame: re.Match[str]) -> str:
    name = (frame["name"] or "").strip()
    file = frame["file"].rpartition("/")[2]
    return f"{file}:{frame['line']}" + (f" in {name}" if name and name != "<module>" else "")
