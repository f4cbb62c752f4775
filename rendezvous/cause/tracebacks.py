"""Exceptions, and the interpreter's own dumps, among the lines of one source. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from rendezvous.cause.lines import BAR, Tells, is_tidying, message, step_of, tells
from rendezvous.cause.others import COMMUNICATION, is_together, row_of_others
from rendezvous.cause.table import CAUSES, Kind
from rendezvous.frozen import frozen

MORE_LINES = 12
"""Of a message that an exception has beyond its first line; and so many lines that count after an
exception its program has got over it."""

AT_ONCE_SECONDS = 1.0
_LONG_WINDED = re.compile(r"(\S+\.)?(RuntimeError|OSError|ImportError|\w*Dist\w*Error)\b")
"""Exceptions of native code, whose messages have several lines."""
_LAST_ERROR = "Last error:"
_OFTEN = 3
"""So many lines of one form are progress."""
FRAME = re.compile(r'\s+File "(?P<file>[^"]*)", line (?P<line>\d+)(?:,? in (?P<name>.*))?')
_OTHERS_CODE = re.compile(r"(site|dist)-packages/|/lib(64)?/python\d|/torch/|<frozen |<string>")
_TRACKER = re.compile(
    r"/(wandb|mlflow|comet_ml|neptune|clearml|tensorboard\w*|aim|swanlab|trackio|dvclive|sentry_sdk)/"
)
"""What only looks on: without it a program does the same."""
_OF_RDZV = re.compile(r"/worker/look/|/rdzv/_app/")
_WAITS = re.compile(r"torch/(distributed/|autograd/graph|cuda/|nn/parallel/)")
"""Where a rank is that waits for others."""
LOST = re.compile(
    r"(\S+\.)?((Empty|Full|BrokenBarrierError|EOFError|TimeoutError)$|BrokenProcessPool\b"
    r"|TerminatedWorkerError\b|ProcessRaisedException\b)"
    r"|.*(DataLoader worker \(pid.* exited unexpectedly|DataLoader \d+ workers? exit"
    r"|[Ss]ee root cause above|is reported (as )?above|Pin memory thread exited"
    r"|[Ss]ee stack trace .*for (?:the )?root cause|[Aa]bort[ _]event was set"
    r"|Blocking queue is killed|subprocesses has abruptly|details refer to 'Ascend)"
)
"""How one fails that has lost a thread or a child of its own: the reason is theirs."""
_LOST_CONNECTION = re.compile(r"(EOF|BrokenPipe|Connection\w*|_pickle\.Unpickling)Error\b")
"""So too, where `multiprocessing` has raised it."""
_LOOKUP = re.compile(
    r"(\S+\.)?(\w*(KeyError|IndexError|AttributeError|LookupError|ImportError|ModuleNotFoundError)"
    r"|StopIteration|StopAsyncIteration|Empty|FileNotFoundError|CancelledError)\b"
)
"""What programs try, and then do otherwise: what fails in handling it is as likely the reason."""
_CLEANS = re.compile(
    r"\b\w*(save|dump|checkpoint|emergency|clos(e|ing)|clean|finish|shut_?down|destroy|report"
    r"|notify|upload|rollback|terminat|stop|flush|release|unlink|rmtree|remove|delete)\w*\(",
    re.IGNORECASE,
)
"""A call that saves or tidies up."""
_PART_WIDTH = 180

Patterns = tuple[tuple[str, re.Pattern[str]], ...]
PATTERNS: Patterns = tuple(
    (row.id, re.compile("|".join(row.patterns), re.MULTILINE)) for row in CAUSES if row.patterns
)
SPOKEN = frozenset(row.id for row in CAUSES if row.group == "others")
"""Rows that are told of the last error alone: what a library says of others may be got over."""
CONSEQUENCES = frozenset(row.id for row in CAUSES if row.kind is Kind.CONSEQUENCE)
TOLD_OF_RANK = "told_of_rank"
_BY_REMOTE = re.compile(r"\S+: On WorkerInfo\(id=\d")
"""Words of torch's RPC before what the other side has raised."""
_NOT_RAISED = frozenset({"abort", "segfault", "bus_error", "crash", "arithmetic", "arguments"})
"""Rows of what Python does not raise, and other programs only say."""


def row_of(line: str, known: Patterns = PATTERNS) -> str | None:
    """The row that a line tells of; None: none."""
    return next((name for name, pattern in known if pattern.search(line)), None)


def _special(line: str, known: Patterns) -> str | None:
    name = row_of(line, known)
    return None if name in _NOT_RAISED else name


@frozen
class Line:
    """A line of output; `at` is when it was read, on whichever clock; `whole`: it is known to be of
    a traceback; `uncaught`: it had the prefix with which torch writes what ends a rank; `stream`:
    "stdout" or "stderr", where that is known."""

    text: str
    rank: int | None = None
    at: float | None = None
    whole: bool = False
    uncaught: bool = False
    stream: str = ""


@frozen
class Told:
    """What a traceback tells: the row, the line and the place."""

    row: str
    line: str
    where: str


_LINKER = re.compile(r"\bld: cannot find -l\S")
"""Names what a linker lacks, among all that a compiler's exception says."""
_STARTS = re.compile(r"/(popen_\w+|subprocess|threading)\.py$")
"""Files of Python that start processes and threads."""


@dataclass
class Raised:
    """One exception: its line, what its message has beyond that, and its frames.

    Attributes:
        where: Its innermost frame, of the user's own code where there is one (`is_own`).
        direct: It was raised from the one before, and not only while that was handled.
        cleans: It was raised where something was saved or tidied up.
        said: Of a command that has failed, what it wrote last.
        source: Of its innermost frame, the line of the program.
        of_rank: Of which rank it is, where it stands in the message of another one.
        told: What stands so in its own message.
        below: The files of its frames below the user's own code.
        outer: The function whose frame is the outermost.
    """

    line: str
    where: str = ""
    is_own: bool = False
    direct: bool = False
    cleans: bool = False
    whole: bool = False
    said: str = ""
    source: str = ""
    of_rank: str = ""
    rank: int | None = None
    below: str = ""
    outer: str = ""
    told: list[Raised] = field(default_factory=list)
    more: list[str] = field(default_factory=list)

    @property
    def is_lost(self) -> bool:
        """Return whether it only tells that another thread or process of its program has failed."""
        of_connection = "/multiproces" in self.below.rpartition("\n")[2]
        return bool(LOST.match(self.line) or (of_connection and _LOST_CONNECTION.match(self.line)))

    def row(self, known: Patterns) -> tuple[str | None, str]:
        """The row that it tells of, and its words."""
        if self.told or _BY_REMOTE.match(self.line):
            return TOLD_OF_RANK, self.words()
        if linked := next(filter(_LINKER.search, [self.said, *self.more]), ""):
            return "build_failed", linked.strip()
        reason, whole = self._last_error(), self.words()
        innermost = self.below.rpartition("\n")[2]
        texts = [(self.line, whole if self.line.endswith(":") else self.line), (whole, whole)]
        if _LONG_WINDED.match(self.line):
            more = takewhile(str.strip, self.more)
            texts += [(text, f"{self.line} {text.strip()}") for text in more]
        for text, words in dict.fromkeys([(reason, reason), *texts]):
            if (name := _special(text, known)) is not None and name not in SPOKEN:
                # What is read from other ranks is no file; which resource lacks, the place tells.
                places = {"file_damaged": self.where, "filesystem_gone": words}
                of_others = is_together(places.get(name, ""))
                if name == "threads":
                    of_others = row_of_others(words, innermost, self.rank) is not None
                    started = _STARTS.search(innermost)
                    words += f" (in {started[1]})" if started is not None else ""
                return COMMUNICATION if of_others else name, reason or words
        name = _special(reason or self.line, known)
        return name or row_of_others(reason or whole, innermost, self.rank), reason or whole

    def _last_error(self) -> str:
        """What stands below torch's "Last error:", NCCL's own words; empty: nothing."""
        head, texts = f"{self.line.partition(':')[0]}: NCCL error:", iter(self.more)
        for text in texts:
            if text.startswith(_LAST_ERROR):
                words = message(head, [text[len(_LAST_ERROR) :], *texts], whole=True)
                return words if words != head else ""
        return ""

    def words(self) -> str:
        """Its line, with the first ones that its message still has, or the rank that it names."""
        if self.told:
            first = self.told[0]
            return f"{_cut(self.line)}: (RANK {first.of_rank}) {first.words()}"
        words = message(self.line, self.more, whole=self.whole)
        if words == self.line and ": " not in words and self.source.startswith("assert "):
            words = f"{words}: {self.source}"
        return words


@dataclass(eq=False)
class Ended:
    """Something that may have ended its program.

    Attributes:
        after: How many lines of the program's own stand behind it, and until when.
        progress: When the program last showed that it made progress after it.
        uncaught: It is known to have ended its program.
        aside: What says that a thread or a child ended in it, and not the program.
        ignored: The interpreter went on after it.
    """

    at: float | None
    after: int = 0
    until: float | None = None
    progress: float | None = None
    uncaught: bool = False
    aside: str = ""
    ignored: bool = False
    forms: Counter[str] = field(default_factory=Counter)

    def go_on(self, line: Line, known: Patterns | None) -> None:
        """This was said after it; `known` is None where a program says it at its end, too."""
        if known is not None:
            is_word = tells(line.text) is not Tells.NOISE and not is_tidying(line.text)
            self.after += is_word and row_of(line.text, known) is None
            self.until = line.at
        form = step_of(line.text)
        self.forms[form] += 1
        if form and self.forms[form] >= (1 if form == BAR else _OFTEN):
            self.progress = line.at

    def lasted(self, until: float | None) -> float:
        """Seconds from it until then; infinite where they are not known."""
        return math.inf if self.at is None or until is None else until - self.at


@dataclass(eq=False)
class Traceback(Ended):
    """An exception with all that it was raised from, which come first.

    Attributes:
        alike: How many other exceptions its group has.
    """

    alike: int = 0
    raised: list[Raised] = field(default_factory=list)
    next: Raised = field(default_factory=lambda: Raised(""))
    """What its frames are of, which come before its line."""

    by_code = False
    """Return whether an exit code says more."""

    def look_at(self, text: str) -> None:
        """Take in a frame, or a line of its source."""
        one = self.next
        if (frame := FRAME.match(text)) is None:
            one.cleans |= _CLEANS.search(text) is not None
            one.source = one.source or text.strip()
            return
        one.source = ""
        one.outer = one.outer or frame["name"] or "<module>"
        is_own = _OTHERS_CODE.search(frame["file"]) is None
        if is_own or not one.is_own:
            one.where, one.is_own = place(frame), is_own
        one.below = "" if is_own else f"{one.below}\n{frame['file']}"
        one.cleans |= _CLEANS.search(f"{frame['name']}(") is not None

    @property
    def caught(self) -> bool:
        """Return whether it has not come through all of its program: something has printed it."""
        return self.raised[0].outer != "<module>"

    @property
    def printed(self) -> bool:
        """Return whether a library has printed what it caught itself."""
        return self.caught and not any(one.is_own or one.is_lost for one in self.raised)

    @property
    def of_helper(self) -> bool:
        """Return whether a thread or a tracker has failed, without which a program may go on."""
        trackers = [_TRACKER.search(one.below) is not None for one in self.raised]
        each = zip(trackers, self.raised, strict=True)
        of_tracker = trackers[-1] and all(found or not one.is_own for found, one in each)
        return of_tracker or (self.aside != "" and not self.aside.startswith("Process "))

    @property
    def is_lost(self) -> bool:
        """Return whether it only tells that another thread or process of its program has failed."""
        return all(one.is_lost for one in self.raised)

    def only_follows(self, known: Patterns) -> bool:
        """Return whether it came of another failure, of another rank or within its own."""
        follows = self.told(known).row in CONSEQUENCES
        return follows or "CancelledError" in self.raised[-1].line

    def told(self, known: Patterns) -> Told:
        """What has happened rather than what followed of it."""
        each = [(one, *one.row(known)) for one in self.raised]
        first, name, words = each[0]
        if name in CONSEQUENCES and each[-1][1] != "unreachable":  # of its own service, else
            return Told(name, words, self._where(first))
        own = [one for one in each if one[1] not in CONSEQUENCES]
        told = self._of_own([one for one in own if not one[0].is_lost] or own[-1:])
        more = f" (and {self.alike} more)" if self.alike else ""
        said = next((one.said for one in self.raised if one.said), "")
        if not said or said in told.line:
            return Told(told.row, told.line + more, told.where)
        general = told.row in ("exception", "build_failed")
        row = (_special(said, known) if general else None) or told.row
        return Told(row, f"{_cut(told.line)}{more}; its command said '{_cut(said)}'", told.where)

    def _of_own(self, own: Sequence[tuple[Raised, str | None, str]]) -> Told:
        """What was raised first, unless only a library has seen it, or something is special.

        Of what failed in handling it, both are told.
        """
        first, name, words = own[0]
        special = next((one for one in reversed(own) if one[1] is not None), own[-1])
        handled = first.is_own or not first.where or not any(one.is_own for one in self.raised)
        is_reason = special[1] is None or (
            handled
            and special[0] is not first
            and not special[0].direct
            and (own[-1][0].cleans or _LOOKUP.match(first.line) is None)
        )
        then, row, line = own[-1] if is_reason else special
        if handled and (line == words or (row == name and not is_reason)):
            then, row, line = own[0]
        elif handled and (is_reason or not then.direct):
            line = f"{self._part(first, words)}; then {_cut(line)}"
            row = name if is_reason else row
        elif then.direct and words.partition(": ")[2] not in line:
            line = f"{_cut(line)}; from {_cut(words)}"
        return Told(row or "exception", line, self._where(then))

    def _part(self, one: Raised, words: str) -> str:
        where = self._where(one)
        return _cut(words) + (f" ({where})" if where else "")

    def _where(self, one: Raised) -> str:
        """Its own place, and where that is of a library the user's last one."""
        own = [each for each in self.raised if each.is_own]
        return one.where if one.is_own or not own else own[-1].where


@dataclass(eq=False)
class Dump(Ended):
    """What the interpreter says of all threads when it crashes, or its watchdog's time is over.

    Attributes:
        header: Its first line.
        ends: The row of a watchdog; empty for a crash.
    """

    header: str = ""
    ends: str = ""
    caught = of_helper = printed = is_lost = False
    threads: list[tuple[bool, list[re.Match[str]]]] = field(default_factory=list)

    @property
    def by_code(self) -> bool:
        """Return whether an exit code says more."""
        return not self.ends

    def look_at(self, text: str) -> None:
        """Take in a thread, or a frame of one."""
        if text.startswith(("Current thread", "Thread 0x")):
            self.threads.append((text.startswith("Current"), []))
        elif (frame := FRAME.match(text)) is not None and not _OF_RDZV.search(frame["file"]):
            if not self.threads:
                self.threads.append((True, []))
            self.threads[-1][1].append(frame)

    def told(self, known: Patterns) -> Told:
        """Its row, and where its own thread was: the main one is the last."""
        with_frames = [one for one in self.threads if one[1]]
        current = [one for one in with_frames if one[0]]
        frames = (current or with_frames[-1:] or [(True, [])])[0][1]
        own = (frame for frame in frames if _OTHERS_CODE.search(frame["file"]) is None)
        frame = next(own, frames[0] if frames else None)
        row = self.ends or row_of(self.header, known) or "abort"
        if self.ends and frames and _WAITS.search(frames[0]["file"]):
            row = "waited"
        return Told(row, self.header, place(frame) if frame is not None else "")


def _cut(words: str) -> str:
    return words if len(words) <= _PART_WIDTH else words[: _PART_WIDTH - 1] + "\u2026"


def place(frame: re.Match[str]) -> str:
    """A frame, for people."""
    name = (frame["name"] or "").strip()
    file = frame["file"].rpartition("/")[2]
    return f"{file}:{frame['line']}" + (f" in {name}" if name and name != "<module>" else "")
