"""Which lines tell most where no row knows them: told by their form. Pure.

An error is preferred to what a program still says after it: levels of logging, the words with which
languages and tools announce an error, then words that errors have. Progress bars, summaries and
goodbyes are no last words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import lru_cache

_LEVELS = r"error|critical|fatal|severe|emerg|emergency|panic|alert"
_QUIET_LEVELS = r"info|debug|trace|notice|success"
_UPPER = re.compile(
    rf"(?:(?<![\w'\"./=-])|(?<=\|CCL_))(?:(?P<error>{_LEVELS.upper()})|(?P<quiet>{_QUIET_LEVELS.upper()})"
    r"|WARNING|WARN)(?![\w'\"./-])"
)
_FIELD = re.compile(
    rf"""["']?(?:level|levelname|severity|lvl|log\.level)["']?\s*[:=]\s*["']?"""
    rf"(?:(?P<error>{_LEVELS}|err|[45]0\b)|(?P<quiet>{_QUIET_LEVELS}|[12]0\b)|warn|30\b)",
    re.IGNORECASE,
)
_BRACKET = re.compile(
    rf"(?:\[\s*|^)(?:(?P<error>{_LEVELS})|(?P<quiet>{_QUIET_LEVELS})|warning|warn)(?:\s*\]|\s?[:|-])",
    re.IGNORECASE,
)
_GLOG = re.compile(
    r"(?:\[|\d{4}-\d\d-\d\d [\d:.]+: )?(?:(?P<error>[EF])|(?P<quiet>[IDV])|W)"
    r"(?:\d{3,8} [\d:.]{6,}|(?<=[\[ ].) [\w./-]+:\d+\])"
)
_READ_WIDTH = 400
"""Of a line, no more is looked at: some patterns take the square of its length."""
_HEAD_WIDTH = 160
"""A level stands before the message."""
_ANNOUNCED = re.compile(
    r"^(?:\S+[:,] )?(?:fatal|fatal error|error|critical|panic)(?:\[\w+\])?:(?: |$)"
    r"|^(?:[\w.]+[.])?\w*(?:Error|Exception|Failure|Panic)\b(?:: |$)"
    r"|\bpanicked at |^panic: |^Exception in thread |^Caused by: |\bwhat\(\):|\bUncaught \w"
    r"|: command not found$|: line \d+: .*: |Assertion .*failed|\bCheck failed: "
    r"|^(?:\[rank\d+\]: )?\s*[|+ ]*(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception): ",
    re.IGNORECASE,
)
"""How languages, shells and tools announce the error that ends them."""
_WORDS = re.compile(
    r"error(?![ =:]+\d*\.\d)|fail|can(?:no|')t|could(?: not|n't)|unable|invalid|denied|no such"
    r"|exceed|not (?:found|allowed|supported|enough)|abort|panic|fatal|missing|unexpected"
    r"|unsupported|refused|must be|expired|does not exist|illegal|mismatch|giving up|gave up"
    r"|\bnan\b|diverge|crash|broken|corrupt|wrong|lost|violat|overflow|out of|\bneeds? |expected"
    r"|required|undefined|unknown|unbound|too (?:many|large|few|small)|timed? ?-?out",
    re.IGNORECASE,
)
_BAR = re.compile(
    r"\d+%\s*[|\u2588\u2501\u258f-\u2590#=>\[]|\b(?:it|s|B|batch|step|example|sample)s?/(?:it|s)\b"
)
BAR = "bar"
_NUMBER = re.compile(r"\d[\d.,:]*")
_REMARK = re.compile(
    r"(?:\[rank\d+\]: ?)?\[?[IWV]\d* (?:[\d:.]+ +)*[\w./-]+\.(?:cpp|cc|cuh?|h):\d+\]"
    r"|[EI]\d{4} [\d:. ]+ \w+\.cc:\d+\] RAW: (?!Raising)"
    r"|\[ERROR\] \S+ \(PID:.*PTA call acl api fail|.*\bERROR Executor: Exception in task"
    r"|collect2: error: ld returned |error: command .* exit |FAILED: "
    r"|\s*\[Hint: |\[\S+\] (?:Set MCA parameter|\d+ more process)"
    r"|\[\d+\]PETSC ERROR: (?:-{4}|[Tt]ry |or |configure |to get |User provided)"
    r"|(?:ninja|g?make)\b.*: (?:build stopped|\*\*\*)"
)
"""Remarks that native code logs below an error, as torch does with warnings; and words of a build
tool for another tool's failure, which has told why; and of what gathers a core."""
_WARNING = re.compile(r"(?:^|\s)\w*Warning: ")
_NOISE = re.compile(
    rf"^[\W\d_]*$|^\s*[\^~]+\s*$|{_BAR.pattern}"
    r"|^(?:wandb|mlflow|comet|COMET)\b.*: |resource_tracker|\w*Warning: |warnings?\.warn\("
    r"|^Exception ignored|^Extension modules: |^(?:Current thread|Thread) 0x|^\s+File \"|^\s+at \S"
    r"|^\s*\.\.\. \d+ more|^Node\.js v|^\s*\[\d+\] \S+ "
    r"|^goroutine \d|^(?!\S*(?:Error|Exception)\(['\"])[\w.*/]+\(.*\)$|^\t/|^exit status "
    r"|^note: run with|^stack backtrace|^frame #|: +@ +0x[0-9a-f]{6,}"
    r"|^(?!Exception: ).*\+0x[0-9a-f]+\) ?\[0x"
    r"|^\s*\d+: +(?:0x|\w+::)|^\s*\d+ +0x[0-9a-f]{6,} |^\*\*\* (?!Error |[\w ]+ detected)|^    @ "
    r"|^(?:Stack trace|Backtrace)\b|^Aborted( \(core dumped\))?\s*$|^usage: |^(?:=|-|\*|#){4,}"
    r"|^Set the environment variable |further information|https?://\S+$"
    r"|^\[[\w.-]+:\d+\] (?:\*\*\* (?:Process rec|End of)|Signal(?: code)?: |Failing at|\[ ?\d+\] )"
    r"|^[0-9a-f]{8,}-[0-9a-f]{8,} [r-][w-]|^\S+ +[0-9A-F]{16}  |^Image +PC ",
)
_GOODBYE = re.compile(
    r"\b(?:good)?bye\b|^\W*(?:exit(?:ing|ed)?|quit(?:ting)?|done|finished|closed|stopped)\b"
    r"|shutting down|shut down|cleaning up|cleaned up|cleanup|tear(?:ing)? ?down|total time|elapsed"
    r"|^\W*(?:sav|writ|upload)ing\b"
    r"|\b(?:closing|stopping|terminating|releasing|flush(?:ing|ed))\b|\bsee (?:the )?(?:log|http)",
    re.IGNORECASE,
)
_TIDYING = re.compile(
    r"\b(?:(?:shut(?:ting)?|tear(?:ing)?) ?down|clean(?:ing|ed)? ?up"
    r"|terminating|destroy(?:ing|ed))\b",
    re.IGNORECASE,
)
_NEAR_ERROR = 40
"""What was said so many lines that count before the end has been got over, though an error."""
_NEAR_WORDS = 8
_MOST_LINES = 5
_LONG = 160
_COUNTED = re.compile(
    r"\b(?:\d+|some|several|multiple|following) (?:[\w-]+ ){0,2}"
    r"(?:errors?|problems?|issues?|failures?|violations?)\b"
)
_NO_PART = re.compile(
    r"Exception raised from |frame #\d|Traceback |CUDA kernel errors might|For debugging consider"
    r"|at \S+ ?\(|\.\.\. \d+ more|\*\*\* |@ +0x|#\d+ |[Ss]tack ?trace|Node\.js v|note: "
    r"|Compile with |\w*Warning: |wandb: |During handling|The above exception|\"\"\"$"
)
_OURS = re.compile(
    r"rdzv: (?:process \d{1,9} \(local rank \d{1,6}\) failed first, with |no store answers at \S+: "
    r"|'.*' is not started: another node |processes that lose their parent will not be ended: "
    r"|SIGKILL did not end these processes within |(?P<not_started>cannot start '.*|'.*' cannot be "
    r"started: .*))"
)
"""Sentences of rdzv's own starter and keeper in a program's output. A program may write `rdzv: `
itself, and a launch within it does: only these very sentences are ours."""
_RULE = re.compile(r"-{74}\s*\Z")
"""Above and below each of Open MPI's messages (show_help)."""
_GUESSES = re.compile(r" ?[^.]*\b(?:usually|typically|often|commonly|possible)\b[^.]*:\Z")
"""What announces causes that are usual, and not this one."""
_OF_A_PROCESS = re.compile(r"\[[\w.-]+:\d+\] ")
"""A line of one of Open MPI's processes: its host and process id."""
_IDLE = re.compile(r"^[\W_]*$|further information|https?://\S+$")
_ITEM = re.compile(r"\s|[-*\u2022] |\d{1,3}[.)] ")


_ENDS_ALL = re.compile(
    r"\bMPI_ABORT was invoked|\bMPT ERROR: .* is aborting|\bcalled MPI_Abort\b"
    r"|\bwill now abort\b|\bRAW: Raising signal "
)
"""Words with which all is ended: why, has been said before."""


class Tells(IntEnum):
    """How much a line tells."""

    NOISE = 0
    QUIET = 1
    PLAIN = 2
    WORDS = 3
    ERROR = 4


@lru_cache(maxsize=4096)  # of each line it is asked several times
def tells(text: str) -> Tells:
    """How much this line tells."""
    text = text[:_READ_WIDTH]
    if is_ours(text) or _REMARK.match(text):
        return Tells.NOISE
    if _ENDS_ALL.search(text):
        return Tells.QUIET
    if (level := _level(text)) is not None:
        return Tells.ERROR if level["error"] or "NCCL WARN" in text else Tells.QUIET
    if _NOISE.search(text):
        return Tells.NOISE
    if _ANNOUNCED.search(text):
        return Tells.ERROR
    if _WORDS.search(text):
        return Tells.WORDS
    return Tells.QUIET if _GOODBYE.search(text) else Tells.PLAIN


def step_of(text: str) -> str:
    """The form of a line of progress, which comes again with other numbers; empty: it is none."""
    if _BAR.search(text):
        return BAR
    is_plain = tells(text) in (Tells.PLAIN, Tells.QUIET) and not _GOODBYE.search(text)
    form = _NUMBER.sub("0", text)
    return form if is_plain and form != text else ""


def without_numbers(text: str) -> str:
    """The form of an error, which ranks and nodes have in common."""
    return re.sub(r"\d+", "", text)


def is_ours(text: str) -> bool:
    """Return whether rdzv itself wrote it: it tells of an end, and is no evidence for its cause."""
    return text.startswith("rdzv: ") and _OURS.match(text[:_READ_WIDTH]) is not None


def not_started(texts: Iterable[str]) -> str:
    """Sentence of rdzv's on a program that could not be started; empty: there is none."""
    found = [match for text in texts if (match := _OURS.match(text[:_READ_WIDTH])) is not None]
    return next((match["not_started"] for match in found if match["not_started"]), "")


def is_tidying(text: str) -> bool:
    """Return whether a program says so where it tidies up to end, and it is no error."""
    return _TIDYING.search(text) is not None and tells(text) is Tells.QUIET


def is_logged(text: str) -> bool:
    """Return whether it has a level."""
    return _level(text) is not None


def is_warning(text: str) -> bool:
    """Return whether it only warns; NCCL warns of what it fails of, too."""
    level = _level(text)
    warns = level is not None and level["error"] is None and level["quiet"] is None
    return (warns and "NCCL WARN" not in text) or _WARNING.search(text[:_READ_WIDTH]) is not None


def is_quiet(text: str) -> bool:
    """Return whether its level is below that of a warning."""
    level = _level(text)
    return level is not None and level["quiet"] is not None


def _level(text: str) -> re.Match[str] | None:
    """Its level: an `error`, or `quiet`, or a warning."""
    head = text[:_HEAD_WIDTH]
    if (match := _GLOG.match(head)) is not None:
        return match
    found = [match for form in (_UPPER, _FIELD, _BRACKET) if (match := form.search(head))]
    return min(found, key=lambda match: match.start(), default=None)


def without_advice(texts: Sequence[str]) -> Sequence[str]:
    """The lines, with the frames of Open MPI's messages as one line each, of what has happened.

    Below its first paragraph stands what usually is the cause, whatever it was. Where mpirun says
    in a line of its own before the frame what failed, the frame says less, and is left out.
    """
    rules = [index for index, text in enumerate(texts) if _RULE.match(text)]
    if not rules:
        return texts
    if len(rules) % 2:  # the beginning is cut off
        texts, rules = texts[rules[0] + 1 :], [rule - rules[0] - 1 for rule in rules[1:]]
    kept, after = list[str](), 0
    for first, last in zip(rules[::2], rules[1::2], strict=True):
        kept += texts[after:first]
        if not (kept and _OF_A_PROCESS.match(kept[-1]) and tells(kept[-1]) >= Tells.WORDS):
            kept.append(_happened(texts[first + 1 : last]))
        after = last + 1
    return [*kept, *texts[after:]]


def _happened(frame: Sequence[str]) -> str:
    """The first paragraph of a frame, and the second where the first only announces it."""
    words = ""
    for text in frame:
        if text.strip():
            words += " " * bool(words) + text.strip()
        elif words and (not words.endswith(":") or _GUESSES.search(words)):
            break
    return _GUESSES.sub("", words)


def last_error(texts: Sequence[str]) -> str:
    """The last error, with what it announces and the plain words that end it all; or nothing."""
    texts = without_advice(texts)
    last, plain, passed = -1, -1, 0
    for index in range(len(texts) - 1, -1, -1):
        told = _tells(texts, index)
        if told is Tells.ERROR or (told is Tells.WORDS and last < 0 and passed < _NEAR_WORDS):
            last = index
        elif told is Tells.PLAIN and max(plain, last) < 0:
            plain = index
        passed += told is not Tells.NOISE
        if told is Tells.ERROR or passed > _NEAR_ERROR:
            break
    if last < 0:
        return next((text for text in reversed(texts) if _ENDS_ALL.search(text)), "")
    last = _head(texts, last)
    words, then = message(texts[last], texts[last + 1 :]), texts[plain].strip()
    return words if plain < 0 or then in words else f"{words}; {then}"


def last_line(texts: Sequence[str]) -> str:
    """The last line that is no noise, and else one that has words at all."""
    for least in (Tells.PLAIN, Tells.QUIET):
        for index in range(len(texts) - 1, -1, -1):
            if _tells(texts, index) >= least:
                head = _head(texts, index)
                return message(texts[head], texts[head + 1 :]).strip()
    words = (text.strip() for text in reversed(texts) if not is_ours(text))
    return next((text for text in words if any(map(str.isalpha, text))), "")


def _tells(texts: Sequence[str], index: int) -> Tells:
    """How much this line tells; below Python's warning stands the line of the program."""
    is_source = index > 0 and texts[index][:1].isspace() and _WARNING.search(texts[index - 1])
    return Tells.NOISE if is_source else tells(texts[index])


def _head(texts: Sequence[str], index: int) -> int:
    """The line below which this one is indented, if it is near."""
    for above in range(index, max(-1, index - _MOST_LINES - 2), -1):
        if not _ITEM.match(texts[above]):
            return above if tells(texts[above]) > Tells.QUIET else index
    return index


def message(header: str, more: Iterable[str], *, whole: bool = False) -> str:
    """An error with the first lines that its message still has, in one.

    They are indented, or items of a list, or above such; and the first one too where the header
    only announces it. `whole`: all are known to belong to it.
    """
    lines = [*more]
    words, indent = header.rstrip(), 0
    announces = words.endswith(":") or _COUNTED.search(words) is not None
    if len(words) > _LONG and not announces:
        return words
    kept = 0
    for index, line in enumerate(lines):
        following = lines[index + 1] if index + 1 < len(lines) else ""
        first = announces and not kept
        if not line.strip():
            if first:
                continue
            break
        belongs = _ITEM.match(line) or whole or first or following[:1].isspace()
        if kept == _MOST_LINES or not belongs or _NO_PART.match(line.strip()) or is_ours(line):
            break
        if _IDLE.search(line.strip()):
            continue
        if _NOISE.search(line):
            break
        deep = len(line) - len(line.lstrip())
        between = "; " if deep <= indent else ": "
        words += (" " if words.endswith((":", ";", ",", ".", "!", "?")) else between) + line.strip()
        indent, kept = deep, kept + 1
    return words
