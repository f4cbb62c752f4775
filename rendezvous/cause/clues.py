"""Clues in a program's output: tracebacks, and single lines that a row of the table knows. Pure.

Looked for once, in the last words of a program that has failed: nothing is read while it runs.
A clue is named like the row that it tells of, or `logged`, or `last_line`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from rendezvous.cause.lines import Tells, is_ours, is_quiet, last_error, last_line, step_of, tells
from rendezvous.cause.others import COMMUNICATION, has_waited, is_of_itself, row_of_others
from rendezvous.cause.reader import ADDED, RECORD, read
from rendezvous.cause.tracebacks import (
    AT_ONCE_SECONDS,
    CONSEQUENCES,
    LOST,
    MORE_LINES,
    PATTERNS,
    SPOKEN,
    Dump,
    Line,
    Patterns,
    Traceback,
    row_of,
)
from rendezvous.wire.evidence import MAX_CLUES, Clue
from rendezvous.wire.words import printable

__all__ = [
    "ABORTED",
    "LAST_LINE",
    "LOGGED",
    "Line",
    "find_clues",
    "last_lines",
    "row_of",
    "without_tracebacks",
]

ABORTED = re.compile(r"\s*(?:terminate called|Fatal Python error: Aborted)")
"""Words of native code that gives up without why: what has been said before may tell that."""
_ABORT, _FAULT = "abort", "cuda_fault"
_OF_A_FAULT = (_FAULT, "cuda_library", "exception")
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
"""The same, where it is known to have ended its program or all came within `AT_ONCE_SECONDS`."""
_MOST_REPEATS = 3
_GOT_OVER_SECONDS = 2.0
_NEAR_ERRORS = 8
"""Last errors of which one may tell of others, where the very last one tells nothing."""
_NEAR_SECONDS = 10.0
"""Time before a parent reports its child gone in which the child may have told why."""

_OF_RANK = re.compile(r"\[rank(\d{1,9})\]: ?")
_BAR = re.compile(r".*\d%\|[^|]*\|[^\[|]*\[[^\]]*\](?=\S)")
"""A bar that has not ended its line, behind which something else was written."""
_OF_LOCAL = re.compile(
    r"\[\w+?(\d{1,6})\]: ?|\[1,(\d{1,9})\]<std(?:out|err)>: ?|\[(\d{1,9})\] (?=[ \w])"
)
"""Prefixes of torchrun, of Open MPI and of Intel MPI before a rank's line."""
_OF_ACTOR = re.compile(r"\[default\d{1,6}\]: ?|\([\w.:]+(?: [\w.:=-]+)* pid=\d+(?:, ip=[\d.]+)?\) ")
"""The prefix of Ray, of vLLM and of torchrun before the line of a process of theirs."""
_LOGGED_TRACEBACK = re.compile(r"((?!\[rank)\S.*\S )Traceback \(most recent call last\):$")
"""One that is logged, with the logger's prefix before each of its lines."""
_ANSI = re.compile(r"(\x1b|\?)\[[\d;]*[mK]")
_IN_JSON = re.compile(r"Traceback \(most recent call last\):\\n.*?(?<!\\)(?=\"|$)")
"""One in a record whose ends of lines are written as such."""
_BY_LAUNCHERS = re.compile(r"torch/distributed/elastic/|^(srun|slurmstepd|mpirun)\b|^\S+ FAILED$")
"""Lines of launchers, after what failed; rdzv's own starter writes them, too."""
_PART_OF_MORE = re.compile(
    r"frame #\d+: |Exception raised from |<omitting python frames>|RuntimeError\(['\"]"
)
"""Lines below the first one of an exception: native frames, and what another side raised."""
_PASSING = re.compile(
    r"\[W[ \d].*((client|server) socket has failed|TCP client failed|cannot be retrieved)"
)
"""Somebody tries again, or at another address: it has been got over, if anything else is said."""
_OF_CHILD = re.compile(
    r"\b(sub)?process|\bchild|\bworker|exit(ed)? (with )?(code|status)|non-?zero"
    r"|\bcommand\b|\bscript\b|\bthread\b",
    re.IGNORECASE,
)
_BY_HANDLER = re.compile(r"DataLoader .*is killed by signal")
_PART_WIDTH = 160
_OF_THREAD = re.compile(r"block: \[[\d, ]+\], thread: \[[\d, ]+\],? (?=Assertion )")
"""In what a kernel prints for each of its threads; the exception only says that it failed."""
_CUDA = re.compile(r"CUDA|CUBLAS|CUDNN|cuda|HIP|hip[A-Z]|device-side")
_NCCL_WARNS = re.compile(r"NCCL WARN (.*)")
_UNHANDLED = re.compile(r"(?i)nccl.*\b(?:unhandled (?:cuda|system)|internal) error")
"""Words for an error of NCCL's, where NCCL does not tell its caller more."""
_NUMBER = re.compile(r"\d+")
_VERBOSE = re.compile(r", TensorDeviceTypes=.*?\(nullopt\)\)(?=\))")


def find_clues(lines: Iterable[Line]) -> list[Clue]:
    """Find the clues of each rank: single lines first, then its tracebacks."""
    sources: dict[tuple[int | None, str], list[Line]] = {}
    prefixes: dict[tuple[int | None, str], re.Pattern[str]] = {}
    for line in lines:
        key, bare = _whose(line)
        found = sources.setdefault(key, [])
        if key in prefixes and (match := prefixes[key].match(bare.text)) is not None:
            bare = replace(bare, text=bare.text[match.end() :])
        elif (match := _LOGGED_TRACEBACK.match(bare.text)) is not None:
            prefixes[key] = _form_of(match[1])
        else:
            prefixes.pop(key, None)
        if (bar := _BAR.match(bare.text)) is not None:
            found.append(replace(bare, text=bar[0]))
            bare = replace(bare, text=bare.text[bar.end() :])
        found.append(bare)
        for text in _in_json(line.text):
            found.append(Line(text, bare.rank, bare.at, whole=True))
    told = [_clues_of(rank, said) for (rank, _), said in sources.items()]
    # Where there is no room for all, those go first that tell of a failure of their own.
    each = sorted((one for one in told if one), key=lambda one: all(map(_is_of_others, one)))
    share = max(2, MAX_CLUES // max(1, len(each)))
    return [clue for own in each for clue in own[-share:]][:MAX_CLUES]


def _form_of(prefix: str) -> re.Pattern[str]:
    """Match a prefix with any numbers."""
    return re.compile(r"\d+".join(map(re.escape, _NUMBER.split(prefix))))


def _is_of_others(clue: Clue) -> bool:
    return clue.id in CONSEQUENCES or clue.id == LOGGED


def last_lines(lines: Iterable[Line], clues: Iterable[Clue]) -> list[Clue]:
    """Find the last line of each rank that has no clue: it may show what the rank was doing."""
    told = {clue.rank for clue in clues}
    sources: dict[int, list[Line]] = {}
    for bare in (_whose(line)[1] for line in lines):
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
    """Drop tracebacks and the prefixes of ranks."""
    _, others = read([_whose(Line(text))[1] for text in texts], (), of_rank=True)
    return [line.text for line in others]


def _whose(line: Line) -> tuple[tuple[int | None, str], Line]:
    """The source of a line, and the line without the prefix that names it."""
    text = _ANSI.sub("", line.text[:_READ_WIDTH])
    if (match := _OF_RANK.match(text)) is not None:
        rank = int(match[1])
        bare = replace(line, text=text[match.end() :], rank=rank, whole=True, uncaught=True)
        return (rank, ""), bare
    if (match := _OF_ACTOR.match(text)) is not None:
        return (line.rank, match[0]), replace(line, text=text[match.end() :])
    match = _OF_LOCAL.match(text)
    # Without a rank a bare number may count anything.
    shared = line.rank is None and match is not None and match[3] is None
    if match is not None and (shared or str(line.rank) in (match[2], match[3])):
        return (line.rank, match[match.lastindex or 0]), replace(line, text=text[match.end() :])
    return (line.rank, ""), replace(line, text=text)


def _clues_of(rank: int | None, lines: Sequence[Line]) -> list[Clue]:
    # Most patterns are nowhere in it, which is found out at once.
    text = "\n".join(_without_repeats(line.text for line in lines))
    known = tuple(each for each in PATTERNS if each[1].search(text))
    found, others = read(lines, known, of_rank=rank is not None)
    error = _logged(rank, others)
    single = _single(rank, others, known, raises=bool(found))
    said = [*([error] if error is not None else []), *single]
    ends = [(one.told(known).row, one.at) for one in found]
    left = [one for one in found if not _is_got_over(one, said, ends)]
    told = _raised_in(rank, left, known, said)
    clues = [*(single if any(one.raised for one in told) else said), *told]
    return _behind_native(clues, others)


def _without_repeats(texts: Iterable[str]) -> Iterator[str]:
    """Leave out progress that comes again with other numbers: most of what a rank prints."""
    counts = Counter[str]()
    for text in texts:
        if form := step_of(text):
            counts[form] += 1
        if counts[form] <= _MOST_REPEATS:
            yield text


def _behind_native(clues: Sequence[Clue], lines: Sequence[Line]) -> list[Clue]:
    """Put what CUDA says of a kernel's assertion behind the assertion, and an unhandled error of
    NCCL behind what NCCL has warned of its own devices and files."""
    asserted = next((_short(line.text) for line in lines if _OF_THREAD.search(line.text)), "")
    warned = (match[1] for line in lines if (match := _NCCL_WARNS.search(line.text)) is not None)
    reason = next((words for words in warned if is_of_itself(words)), "")
    told = []
    for one in clues:
        if asserted and one.id in _OF_A_FAULT and _CUDA.search(one.line):
            one = _then(asserted, one, _FAULT)
        elif reason and one.id == COMMUNICATION and _UNHANDLED.search(one.line):
            one = _then(reason, one, row_of(reason) or "exception")
        told.append(one)
    return told


def _then(words: str, clue: Clue, row: str) -> Clue:
    """Put a clue that only followed behind its reason."""
    line = printable(f"{words}; then {clue.line}", _LINE_WIDTH)
    return clue.model_copy(update={"id": row, "line": line})


def _is_got_over(
    one: Traceback | Dump, said: Sequence[Clue], ends: Sequence[tuple[str, float | None]]
) -> bool:
    """Return whether its program made progress for seconds after it, or could do without what has
    failed, and said later why it ended. Against what only follows from others, it must have been
    caught.

    Args:
        said: Single lines.
        ends: What all tracebacks tell, and when.
    """
    went_on = one.lasted(one.progress)
    over = _GOT_OVER_SECONDS <= went_on < math.inf and not one.uncaught
    each = [(clue.id, clue.at) for clue in said if over or not _OF_CHILD.search(clue.line)]
    each += ends if over else []
    since = went_on if over else 0.0
    later = {row for row, at in each if since <= one.lasted(at) < math.inf}
    return (over or one.of_helper) and bool(later - CONSEQUENCES or (later and over and one.caught))


def _single(
    rank: int | None, lines: Sequence[Line], known: Patterns, *, raises: bool
) -> list[Clue]:
    """Of what follows from another failure the first word counts, else the last."""
    found: dict[str, Clue] = {}
    passing: Clue | None = None
    for line in lines:
        name = row_of(line.text, known)
        if name in SPOKEN or _PART_OF_MORE.match(line.text) or is_quiet(line.text):
            continue
        if name == _ABORT and not ABORTED.match(line.text):
            name = row_of_others(line.text, "", rank) or name
        if name is not None and _PASSING.match(line.text):
            passing = passing or _clue(name, line.text, rank, line.at)
        elif name is not None and (
            name not in found
            or not (name in CONSEQUENCES or (name == _ABORT and ABORTED.match(line.text)))
        ):
            found[name] = _clue(name, line.text, rank, line.at)
        elif name is None and not RECORD.match(line.text) and not ADDED.match(line.text):
            passing = None
    if passing is not None and not raises:
        found.setdefault(passing.id, passing)
    return [*found.values()]


def _logged(rank: int | None, lines: Sequence[Line]) -> Clue | None:
    """The last error that was written, before a launcher's own words."""
    own = [line for line in lines if not _is_by_launcher(line)]
    if rank is None:
        own = [*takewhile(lambda line: not _is_by_launcher(line), lines)]
    words = last_error([line.text for line in own])
    if words and row_of_others(words, "", rank) is None and not is_of_itself(words):
        near = [line.text for line in own if tells(line.text) >= Tells.WORDS][-_NEAR_ERRORS:]
        words = next(filter(has_waited, near), words)
    name = LOGGED
    if not words:  # a rank that waits may only warn of it
        last = [line.text for line in own if tells(line.text) is not Tells.NOISE][-2:]
        name, words = COMMUNICATION, next(filter(has_waited, reversed(last)), "")
    at = next((line.at for line in own if line.text.strip() and line.text.strip() in words), None)
    return _clue(name, words, rank, at) if words else None


def _is_by_launcher(line: Line) -> bool:
    return is_ours(line.text) or _BY_LAUNCHERS.search(line.text) is not None


def _raised_in(
    rank: int | None, found: Sequence[Traceback | Dump], known: Patterns, said: Sequence[Clue]
) -> list[Clue]:
    """The last tracebacks; not what was logged and got over."""
    clues: list[Clue] = []
    tracebacks = _that_tell(found, known, of_many=rank is None)
    only_helpers = bool(found) and tracebacks[-1] is not found[-1]
    was_error = any(one.id == LOGGED and tells(one.line) is Tells.ERROR for one in said)
    for traceback in tracebacks:
        is_last = traceback is tracebacks[-1]
        most = MORE_LINES if was_error or not is_last else _MOST_AFTER
        at_once = traceback.lasted(traceback.until) <= AT_ONCE_SECONDS
        if is_last and (traceback.uncaught or (at_once and not was_error)):
            most = _LONGEST_END
        if rank is not None and traceback.after > most:
            continue
        told = traceback.told(known)
        clue = _clue(told.row, told.line, rank, traceback.at)
        ends = only_helpers or traceback.after == 0 or traceback.uncaught
        changes = {
            # A handler of SIGCHLD raises this wherever the program is just then.
            "where": "" if _BY_HANDLER.search(told.line) else printable(told.where, _WHERE_WIDTH),
            "raised": not traceback.by_code,
            "last": is_last and ends and not traceback.printed,
        }
        before = [one for one in said if _is_near(one, traceback)] if traceback.is_lost else []
        if traceback.is_lost or (rank is not None and tracebacks[0].after <= 1):
            before += clues
        clues.append(_behind_reason(clue.model_copy(update=changes), traceback, before))
    return clues


def _is_near(one: Clue, traceback: Traceback | Dump) -> bool:
    """Return whether it was said about when that was raised."""
    later = traceback.lasted(one.at)
    return later == math.inf or -_NEAR_SECONDS <= later <= AT_ONCE_SECONDS


def _behind_reason(clue: Clue, traceback: Traceback | Dump, before: Sequence[Clue]) -> Clue:
    """Put a clue that only tells of a lost part of its program behind what that part said."""
    is_of_child = clue.id == "exception" and _OF_CHILD.search(clue.line)
    told = [one for one in before if one.line != clue.line and not LOST.match(one.line)]
    reasons = [one for one in told if one.id not in CONSEQUENCES]
    if reasons and all(ABORTED.match(one.line) for one in reasons):
        reasons = [one for one in told if one.id in CONSEQUENCES] or reasons
    if not reasons or not (traceback.is_lost or is_of_child):
        return clue
    reason = reasons[-1]
    where = f" ({reason.where})" if reason.where else ""
    row = reason.id
    if row == LOGGED:
        row = row_of_others(reason.line, "", reason.rank) or clue.id
    return _then(f"{reason.line[:_PART_WIDTH]}{where}", clue, row)


def _that_tell(
    found: Sequence[Traceback | Dump], known: Patterns, *, of_many: bool
) -> Sequence[Traceback | Dump]:
    """The last two, of which only the last one may tell nothing but that something else failed.

    `of_many`: ranks share the stream. Where the last ones only follow, what did not stands before.
    """
    # What a helper still raises once its program has failed is no reason.
    ends = [n for n, one in enumerate(found) if not one.of_helper and one.after <= MORE_LINES]
    found = found[: ends[-1] + 1] if ends else found
    found = [one for one in found if one is found[-1] or not one.is_lost]
    last = found[-2:]
    if of_many and all(one.told(known).row in CONSEQUENCES for one in last):
        own = [one for one in found if one.told(known).row not in CONSEQUENCES]
        return [*(one for one in own[-1:] if one.after <= MORE_LINES), *last]
    return last


def _clue(name: str, line: str, rank: int | None, at: float | None) -> Clue:
    return Clue(id=name, line=printable(_short(line), _LINE_WIDTH), rank=rank, at=at)


def _short(line: str) -> str:
    """A line without what differs from thread to thread, and from build to build."""
    *place, words = _OF_THREAD.split(line.strip(), maxsplit=1)
    if place:
        words = f"{place[0].rpartition('/')[2]}{words.partition(' failed')[0]} failed"
    return _VERBOSE.sub("", words)
