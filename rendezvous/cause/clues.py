"""Clues in a program's output: tracebacks, and single lines that a row of the table knows. Pure.

Looked for once, in the last words of a program that has failed: nothing is read while it runs.
A clue is named like the row that it tells of.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

from rendezvous.cause.lines import Tells, is_logged, is_ours, last_error, last_line, tells
from rendezvous.cause.tracebacks import (
    CONSEQUENCES,
    FRAME,
    GROUP,
    MORE_LINES,
    PATTERNS,
    SPOKEN,
    Dump,
    GroupReader,
    Line,
    Patterns,
    Raised,
    Traceback,
    row_of,
)
from rendezvous.wire.evidence import MAX_CLUES, Clue
from rendezvous.wire.words import printable

__all__ = ["LOGGED", "Line", "find_clues", "row_of", "without_tracebacks"]

_FAULT = "cuda_fault"
LOGGED = "logged"
"""The id of a clue that is only the last error that was written, of who raised nothing."""

LAST_LINE = "last_line"
"""The id of a clue that is only the last line of a rank that has told no error."""

_READ_WIDTH = 2000
"""Of a line, no more is looked at: some patterns take the square of its length."""
_LINE_WIDTH = 400
_WHERE_WIDTH = 200
_MOST_AFTER = 40
"""After so many lines that count, a rank has got over the last thing that it raised, too."""
_LONGEST_END = 1000
"""So many, where it is known to have ended its program or all came within `_AT_ONCE_SECONDS`."""
_AT_ONCE_SECONDS = 1.0

_OF_RANK = re.compile(r"\[rank(\d{1,9})\]: ?")
_OF_LOCAL = re.compile(r"\[\w+?(\d{1,6})\]: ?")
_ANSI = re.compile(r"(\x1b|\?)\[[\d;]*[mK]")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)(?!:?\\n)")
_TOLD_OF = re.compile(r"Traceback \(most recent call last\): \(RANK (\d{1,9})\)")
"""What stands in the message of an exception before what another rank has raised."""
_IN_JSON = re.compile(r"Traceback \(most recent call last\):\\n.*?(?<!\\)(?=\"|$)")
"""One in a record whose ends of lines are written as such."""
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
_OF_LAUNCHERS = re.compile(
    r"(torch\.distributed\.elastic\.\S*\.)?(ChildFailedError|SignalException)\b"
    r"|(torch\.multiprocessing\.\S*\.)?ProcessExitedException\b"
)
"""How launchers say that one of their ranks has failed."""
_BY_LAUNCHERS = re.compile(r"torch/distributed/elastic/|^(srun|slurmstepd|mpirun)\b|^\S+ FAILED$")
"""Lines of launchers, after what failed; rdzv's own starter writes them, too."""
_OF_A_COMMAND = re.compile(
    r"(subprocess\.)?CalledProcessError\b.*(torch|accelerate|deepspeed|python)"
)
"""So they do, too; but a rank may have started a Python itself."""
_RECORD = re.compile(r"\[?[IWEFC]\d{3,4} [\d:.]+ |(\[rank\d+\]:)?\[[IWEF] [\w.]+:\d+\]")
"""What torch's own logging begins a line with."""
_NATIVE_FRAME = re.compile(r"frame #\d+: |Exception raised from |<omitting python frames>")
_PASSING = re.compile(
    r"\[W\d{3,4} .*((client|server) socket has failed|TCP client failed|cannot be retrieved)"
)
"""Somebody tries again, or at another address: it has been got over, if anything else is said."""
_ADDED = re.compile(
    r"\s|$|terminate called|Exception (ignored|in thread)|Fatal Python error|Current thread|"
    r"Thread 0x|Extension modules|.*(Warning|warn\()|Process \w+-\d+|.*DataLoader worker"
    r"|.*, thread: \[[\d, ]+\],? Assertion "
)
"""What a process may still say of itself once it has failed."""
_ASIDE = re.compile(r"Exception in thread |Process \S+-\d+:$")
"""What stands before the traceback in which a thread, or a child of `multiprocessing`, ended."""
_IGNORED = re.compile(r"Exception ignored |Error in atexit\b")
"""What stands before one that ends nothing."""
_IN_VAIN = re.compile(
    r"(\S+\.)?((Empty|Full|BrokenBarrierError|EOFError|TimeoutError)$|BrokenProcessPool\b)"
)
"""How one fails that has waited for another thread, or for a child: most of it without words."""
_COMMAND = re.compile(r"(subprocess\.)?CalledProcessError\b")
_NEAR_LINES = 6
_OF_CHILD = re.compile(
    r"\b(sub)?process|\bchild|\bworker|exit(ed)? (with )?(code|status)|non-?zero"
    r"|\bcommand\b|\bscript\b|\bthread\b",
    re.IGNORECASE,
)
_PART_WIDTH = 160
_ASSERTED = re.compile(
    r"(?P<place>[^/\s:]+:\d+: (?:.*: )?)block: \[[\d, ]+\], thread: \[[\d, ]+\],? "
    r"(?P<words>Assertion .* failed)"
)
"""What a kernel prints, once for each of its threads; the exception only says that it failed."""
_CUDA = re.compile(r"CUDA|CUBLAS|CUDNN|cuda|HIP|hip[A-Z]")
_VERBOSE = re.compile(r", TensorDeviceTypes=.*?\(nullopt\)\)(?=\))")


_Found = tuple[list[Traceback | Dump], list[Line]]


def _read(lines: Sequence[Line], known: Patterns, *, of_rank: bool) -> _Found:
    """The tracebacks that ended something, each of one stream, and all other lines.

    Args:
        lines: Of one source.
        known: What is worth looking for.
        of_rank: Whether a rank has said it, and no launcher.
    """
    found: _Found = ([], [])
    readers: dict[tuple[str, bool], _Reader] = {}
    for line in lines:
        new = _Reader(known, found, of_rank=of_rank)
        readers.setdefault((line.stream, line.whole), new).lines.append(line)
    for line in lines:
        said = len(found[1])
        readers[line.stream, line.whole].read()
        for key, reader in readers.items():
            if len(found[1]) > said and key != (line.stream, line.whole):
                reader.go_on(line)
    for reader in readers.values():
        reader.end_group()
    return [one for one in found[0] if not one.ignored], found[1]


class _Reader:
    """Finds the tracebacks among the lines of one stream."""

    def __init__(self, known: Patterns, found: _Found, *, of_rank: bool) -> None:
        self._known, self._of_rank = known, of_rank
        self.tracebacks, self.others = found
        self.lines: deque[Line] = deque()
        self._current: Traceback | Dump | None = None
        self._group: GroupReader | None = None
        self._in_frames = self._chained = self._direct = self._ignored = False
        self._aside: Line | None = None
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
        if GROUP.match(text):
            self._begin(line)
            self._in_frames, self._group = False, GroupReader(line)
        elif (of := _TOLD_OF.match(text)) and isinstance(self._current, Traceback) and self._more:
            self._current.next = Raised("", of_rank=of[1])
            self._in_frames, self._more = True, 0
        elif _TRACEBACK.search(text):
            self._begin(line)
        elif _FATAL.match(text) or _WATCHDOG.match(text):
            ends = "" if _FATAL.match(text) else "own_watchdog"
            self._current = Dump(line.at, header=text.strip(), ends=ends)
            self.tracebacks.append(self._current)
            self._in_frames, self._chained, self._more = True, False, 0
        elif self._in_frames and self._current is not None:
            self._read_frame(self._current, line)
        else:
            self._read_other(line)

    def _begin(self, line: Line) -> None:
        if not isinstance(self._current, Traceback) or not self._chained:
            self._current = Traceback(line.at, ignored=self._ignored)
            if self._aside is not None:
                self._current.aside = self._aside.text
                self.others.remove(self._aside)
        self._current.next = Raised("", direct=self._chained and self._direct)
        self._current.after = 0
        self._in_frames, self._chained, self._more = True, False, 0
        self._aside, self._ignored = None, False

    def end_group(self) -> None:
        """Of a group the first exception counts, as if it had been raised alone."""
        group, self._group, current = self._group, None, self._current
        if group is None or not isinstance(current, Traceback):
            return
        found = group.traceback(
            lambda lines: _read(lines, self._known, of_rank=self._of_rank)[0], self._known
        )
        if found is None:
            return
        found.raised[0].direct = current.next.direct
        current.raised += found.raised
        current.alike = found.alike
        self._keep(current)

    def _keep(self, current: Traceback) -> None:
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
        is_exception = _EXCEPTION.match(text) is not None and not self._goes_on_after(text)
        if not is_exception:
            self.others.append(line)
        self._in_frames = not is_exception and (
            _RECORD.match(text) is not None or row_of(text) is not None or self._goes_on_after(text)
        )
        if self._in_frames:
            return
        if not is_exception or self._is_of_launcher(text):
            if "SignalException" in text:
                self.others.append(line)
            self._current = None
            return
        one = current.next
        one.line, one.whole = text.strip(), line.whole
        if _COMMAND.match(text):
            one.said = last_error([other.text for other in self.others[-_NEAR_LINES:]])
        if one.of_rank:
            current.raised[-1].told.append(one)
        else:
            current.raised.append(one)
        self._last = one
        current.uncaught = line.uncaught
        current.at, self._more = line.at, MORE_LINES
        self._keep(current)

    def _goes_on_after(self, text: str) -> bool:
        """Whether another thread has written this between the lines of a traceback."""
        for line in islice(self.lines, _NEAR_LINES):
            if _SURELY.match(text) or not line.text.strip() or _TRACEBACK.search(line.text):
                return False
            if FRAME.match(line.text) or _SURELY.match(line.text):
                return True
        return False

    def _is_of_launcher(self, text: str) -> bool:
        """Whether it only tells that another process has failed, whose own words are somewhere."""
        if _OF_LAUNCHERS.match(text):
            return True
        before = any(one.after <= MORE_LINES for one in self.tracebacks[-1:])
        return (before or not self._of_rank) and _OF_A_COMMAND.match(text) is not None

    def _read_other(self, line: Line) -> None:
        text, current = line.text, self._current
        self._aside = line if _ASIDE.match(text) else None
        self._ignored = _IGNORED.match(text) is not None
        if isinstance(current, Traceback):
            if (chain := _CHAIN.match(text)) is not None:
                self._chained, self._direct, self._more = True, "direct" in chain[1], 0
                return
            if current.raised and self._more:
                self._more = 0 if _ends_message(text) else self._more - 1
                if self._more:
                    self._last.more.append(text)
        self.go_on(line)
        self.others.append(line)

    def go_on(self, line: Line) -> None:
        """This was said after the last traceback, by whichever stream."""
        if self._current is not None and not self._in_frames:
            of_end = _RECORD.match(line.text) or _ADDED.match(line.text)
            self._current.go_on(line, None if of_end else self._known)


def _ends_message(text: str) -> bool:
    return not text[:1].isspace() and (_RECORD.match(text) is not None or is_logged(text))


def find_clues(lines: Iterable[Line], most: int = MAX_CLUES) -> list[Clue]:
    """What the lines tell, of each rank apart; of each single lines first, then its tracebacks."""
    sources: dict[tuple[int | None, str], list[Line]] = {}
    for line in lines:
        key, bare = _whose(line)
        sources.setdefault(key, []).append(bare)
        for text in _in_json(line.text):
            sources[key].append(Line(text, bare.rank, bare.at, whole=True))
    each = [_clues_of(rank, found) for (rank, _), found in sources.items()]
    share = max(2, most // max(1, len(each)))
    return [clue for found in each for clue in found[-share:]][:most]


def last_words(lines: Iterable[Line], clues: Iterable[Clue]) -> list[Clue]:
    """What each rank said last of whom no clue tells anything: it may do something else."""
    told = {clue.rank for clue in clues}
    sources: dict[int, list[Line]] = {}
    for bare in (_source(line)[1] for line in lines):
        if bare.rank is not None and bare.rank not in told:
            sources.setdefault(bare.rank, []).append(bare)
    found = []
    for rank, own in sources.items():
        at = next((line.at for line in reversed(own) if line.text.strip()), None)
        if words := last_line([line.text for line in own]):
            found.append(_clue(LAST_LINE, words, rank, at))
    return found


def _in_json(text: str) -> list[str]:
    """The traceback that is in a line."""
    if "Traceback" not in text or (match := _IN_JSON.search(text)) is None:
        return []
    return match[0].replace('\\"', '"').split("\\n")


def without_tracebacks(texts: Iterable[str]) -> list[str]:
    """What else was said, without the prefixes of ranks."""
    _, others = _read([_whose(Line(text))[1] for text in texts], (), of_rank=True)
    return [line.text for line in others]


def _whose(line: Line) -> tuple[tuple[int | None, str], Line]:
    """Whose line it is, and the line without the prefix that says so."""
    text = _ANSI.sub("", line.text[:_READ_WIDTH])
    if (match := _OF_RANK.match(text)) is not None:
        rank = int(match[1])
        bare = replace(line, text=text[match.end() :], rank=rank, whole=True, uncaught=True)
        return (rank, ""), bare
    if line.rank is None and (match := _OF_LOCAL.match(text)) is not None:
        return (None, match[1]), replace(line, text=text[match.end() :])
    return (line.rank, ""), replace(line, text=text)


def _clues_of(rank: int | None, lines: Sequence[Line]) -> list[Clue]:
    # Most patterns are nowhere in it, which is found out at once.
    text = "\n".join(line.text for line in lines)
    known = tuple(each for each in PATTERNS if each[1].search(text))
    found, others = _read(lines, known, of_rank=rank is not None)
    error = _logged(rank, others)
    single = _single(rank, others, known)
    said = [*single, *([error] if error is not None else [])]
    ends = [(one.told(known).row, one.at) for one in found]
    left = [one for one in found if not _is_got_over(one, said, ends)]
    told = _raised_in(rank, left, known, error)
    clues = [*([error] if error is not None and not told else []), *single, *told]
    return _with_assertion(clues, others)


def _with_assertion(clues: Sequence[Clue], lines: Sequence[Line]) -> list[Clue]:
    """What CUDA says of a kernel's assertion, behind that."""
    match = next(filter(None, (_ASSERTED.search(line.text) for line in lines)), None)
    told = []
    for one in clues:
        if match and (one.id == _FAULT or (one.id == "exception" and _CUDA.search(one.line))):
            more = "" if _ASSERTED.search(one.line) else f"; then {one.line}"
            words = printable(match["place"] + match["words"] + more, _LINE_WIDTH)
            one = one.model_copy(update={"id": _FAULT, "line": words})
        told.append(one)
    return told


def _is_got_over(
    one: Traceback | Dump, said: Sequence[Clue], ends: Sequence[tuple[str, float | None]]
) -> bool:
    """Whether its program went on well after it, or was not concerned; and said later why it ended.

    Args:
        said: Single lines.
        ends: What all tracebacks tell, and when.
    """
    over = one.got_over_at < math.inf
    since = one.at if one.of_helper and not over else one.got_over_at
    each = [(clue.id, clue.at) for clue in said if over or not _OF_CHILD.search(clue.line)]
    each += ends if over else []
    later = {row for row, at in each if at is not None and since is not None and at >= since}
    return bool(later - CONSEQUENCES) or (bool(later) and over and one.caught)


def _single(rank: int | None, lines: Sequence[Line], known: Patterns) -> list[Clue]:
    """Of what follows from another failure the first word counts, else the last."""
    found: dict[str, Clue] = {}
    passing: Clue | None = None
    for line in lines:
        if _NATIVE_FRAME.match(line.text):
            continue
        name = row_of(line.text, known)
        if name in SPOKEN:
            continue
        if name is not None and _PASSING.match(line.text):
            passing = passing or _clue(name, line.text, rank, line.at)
        elif name is not None and (name not in found or name not in CONSEQUENCES):
            found[name] = _clue(name, line.text, rank, line.at)
        elif name is None and not _RECORD.match(line.text) and not _ADDED.match(line.text):
            passing = None
    if passing is not None:
        found.setdefault(passing.id, passing)
    return [*found.values()]


def _logged(rank: int | None, lines: Sequence[Line]) -> Clue | None:
    """The last error that was written, before a launcher's own words."""
    own = [line for line in lines if not _is_by_launcher(line.text)]
    if rank is None:
        until = next((n for n, one in enumerate(lines) if _is_by_launcher(one.text)), None)
        own = [*lines[:until]]
    words = last_error([line.text for line in own])
    at = next((line.at for line in own if line.text.strip() and line.text.strip() in words), None)
    return _clue(LOGGED, words, rank, at) if words else None


def _is_by_launcher(text: str) -> bool:
    return is_ours(text) or _BY_LAUNCHERS.search(text) is not None


def _raised_in(
    rank: int | None, found: Sequence[Traceback | Dump], known: Patterns, error: Clue | None
) -> list[Clue]:
    """The last tracebacks; not what was logged and got over."""
    clues: list[Clue] = []
    tracebacks = _that_tell(found, known, of_many=rank is None)
    was_error = error is not None and tells(error.line) is Tells.ERROR
    for traceback in tracebacks:
        is_last = traceback is tracebacks[-1]
        most = MORE_LINES if was_error or not is_last else _MOST_AFTER
        if is_last and (traceback.uncaught or (not was_error and _is_at_end(traceback))):
            most = _LONGEST_END
        if rank is not None and traceback.after > most:
            continue
        told = traceback.told(known)
        in_vain = tracebacks[-1] is not found[-1]
        changes = {
            "where": printable(told.where, _WHERE_WIDTH),
            "raised": not traceback.by_code,
            "last": is_last and (in_vain or traceback.after == 0 or traceback.uncaught),
        }
        words = told.line
        if clues and rank is not None and told.row == "exception" and tracebacks[0].after <= 1:
            words = _with_childs(clues[-1], words)
        clues.append(_clue(told.row, words, rank, traceback.at).model_copy(update=changes))
    return clues


def _is_at_end(one: Traceback | Dump) -> bool:
    """Whether all that was said after it came at once, like a summary that is written at exit."""
    if one.at is None or one.until is None:
        return False
    return one.until - one.at <= _AT_ONCE_SECONDS


def _with_childs(before: Clue, words: str) -> str:
    """What was raised at once before, where the last one says that another process has failed."""
    if before.id in CONSEQUENCES or before.line == words or not _OF_CHILD.search(words):
        return words
    where = f" ({before.where})" if before.where else ""
    return f"{before.line[:_PART_WIDTH]}{where}; then {words}"


def _that_tell(
    found: Sequence[Traceback | Dump], known: Patterns, *, of_many: bool
) -> Sequence[Traceback | Dump]:
    """The last two; where the last one has waited in vain for what ended aside, that.

    `of_many`: ranks share the stream. Where the last ones only follow, what did not stands before.
    """
    aside = [one for one in found[:-1] if one.aside]
    if aside and _IN_VAIN.match(found[-1].told(known).line):
        return aside[-1:]
    # What a helper still raises once its program has failed is no reason.
    ends = [n for n, one in enumerate(found) if not one.of_helper and one.after <= MORE_LINES]
    found = found[: ends[-1] + 1] if ends else found
    last = found[-2:]
    if of_many and all(one.told(known).row in CONSEQUENCES for one in last):
        own = [one for one in found if one.told(known).row not in CONSEQUENCES]
        return [*(one for one in own[-1:] if one.after <= MORE_LINES), *last]
    return last


def _clue(name: str, line: str, rank: int | None, at: float | None) -> Clue:
    line = _VERBOSE.sub("", line.strip())
    return Clue(id=name, line=printable(line, _LINE_WIDTH), rank=rank, at=at)
