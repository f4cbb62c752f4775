"""Lines of the launcher that starts the ranks which need not be on a terminal. Pure.

All of them come by the launcher's own stream, so that none is a rank's, whatever it looks like. Of
these a line is folded only where its form is known:

    at its start   the banner about OMP_NUM_THREADS
    at its end     the exit barrier that found the other nodes gone, after all ranks had ended well
    stopped        its records, tracebacks and reports once rdzv has stopped the program
    failed         its report of a rank that failed, unless a cause may stand there alone

A report without an error file has of a rank its number, time, exit code and signal, which rdzv
tells as well. One with such a file quotes the exception, and is shown where the rank has not
printed a traceback. What comes before the stop is held for a moment and then shown, and so is all
that does not fit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from enum import Enum

MOST_HELD = 4_096
"""Lines; more of them in one piece are no report that is known."""

_RECORDS = (
    re.compile(
        r"(?P<head>(?P<level>[A-Z])\d{4} [\d:.]+ +\d+ "
        r"(?:\S*/)?torch/distributed/(?P<file>\S+?)\.py:\d+\]) ?(?P<text>.*)"
    ),
    re.compile(  # before torch 2.3
        r"(?P<head>\[[\d-]+ [\d:,]+\] torch\.distributed\.(?P<file>\S+): "
        r"\[(?P<level>[A-Z])[A-Z]*\]) ?(?P<text>.*)"
    ),
)
_LOUD = "WEC"
"""Levels that torchrun has by default: a person has asked for the others."""
_BANNER = re.compile(
    r"\*{20,}|(?P<setting>Setting OMP_NUM_THREADS environment variable for each process to be )\d+ "
    r"in default.*|"
)
_BARRIER = "Error waiting on exit barrier. Elapsed: "
_SENDING = re.compile(r"Sending process \d+ closing signal ")

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "(?P<path>[^"]+)", line \d+, in \S+$')
_OWN_PATH = re.compile(
    r".*/(torchrun|accelerate|accelerate-launch)"
    r"|(.*/)?torch/distributed/\S+\.py"
    r"|(.*/)?accelerate/(commands|utils)/\S+\.py"
    r"|<frozen \w+>"
    r"|.*/lib/python3\.\d+t?/(?!site-packages/|dist-packages/)\S+\.py"
)
_BELOW_FRAME = re.compile(r" {4}|  \[Previous line repeated \d+ more times?\]")
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*(?P<name>[A-Za-z_]\w*)(?:: .*)?$")
_ENDS = frozenset(
    (
        *("SignalException", "ChildFailedError", "KeyboardInterrupt", "CalledProcessError"),
        *("DistNetworkError", "DistStoreError", "BrokenPipeError", "ConnectionResetError"),
        *("RendezvousClosedError", "RendezvousConnectionError", "RendezvousTimeoutError"),
    )
)
"""Last lines of a launcher that is stopped, or whose peers are."""
_REPORTED = "ChildFailedError"
_BEHIND = re.compile(
    r"|During handling of the above exception, another exception occurred:"
    r"|The above exception was the direct cause of the following exception:"
    r"|Exception raised from .*|frame #\d+: .*|C\+\+ CapturedTraceback:|#\d+ .*"
)
"""Lines that may follow the last one of a traceback."""
_RULE = re.compile(r"={20,}")
_FIRST = "Root Cause (first observed failure):"
_LOCAL = re.compile(r"  rank      : \d+ \(local_rank: (?P<rank>\d+)\)")
_BY_STOP = re.compile(r"  exitcode  : -(?:2|9|15) ")
_ERROR_FILE = re.compile(r" *error_file: (?P<file>.+)")


class Why(Enum):
    """Reason why lines are folded."""

    AT_START = "at its start"
    AT_END = "at its end"
    STOPPED = "stopped"
    FAILED = "failed"


class LauncherLines:
    """The lines of one launcher, as they come.

    Args:
        has_traceback: Whether a local rank has printed a traceback.

    Attributes:
        folded: How many lines were folded, by the reason.
        is_stopped: Whether rdzv has stopped the program; its owner sets this.
    """

    def __init__(self, has_traceback: Callable[[int], bool]) -> None:
        self.folded: Counter[Why] = Counter()
        self.is_stopped = False
        self._has_traceback = has_traceback
        self._held: list[str] = []
        self._next: Callable[[str], list[str]] = self._at_any
        self._block: list[str] = []
        self._may_follow = False
        self._barrier = ""
        self._at_stop = Why.STOPPED

    @property
    def is_behind(self) -> bool:
        """Tell whether a line has come that is folded, or may be, but for the banner."""
        return bool(self._held or self._block or self.folded.keys() - {Why.AT_START})

    @property
    def is_holding(self) -> bool:
        """Tell whether it is not decided yet of a line that has come whether it is folded."""
        return bool(self._held or self._block)

    def take(self, line: str) -> list[str]:
        """Read a line, without its line feed; returns those to show now, in their order."""
        shown = self._next(line)
        if len(self._held) + len(self._block) > MOST_HELD:
            shown += self._give_up()
        return shown

    def idle(self) -> list[str]:
        """Nothing has come for a moment: what is to be shown of what was held."""
        if self.is_stopped:
            return [] if self._block else self._decide()
        waits = not self._block and all(
            (record := _record(line)) and _SENDING.match(record["text"]) for line in self._held
        )
        return [] if waits else self._give_up()

    def end(self) -> list[str]:
        """Nothing more comes."""
        return self._give_up()

    # --- what a line may be, by what was before it ----------------------------------------------

    def _at_any(self, line: str) -> list[str]:
        follows, self._may_follow = self._may_follow, False
        if (record := _record(line)) is not None:
            return self._record(record, line)
        if line == _TRACEBACK:
            return self._open(line, self._in_traceback)
        if follows and _BEHIND.fullmatch(line):
            self._may_follow = True
            return self._hold(line)
        if not line:
            return self._open(line, self._in_banner)
        return [*self._decide(), line]

    def _in_banner(self, line: str) -> list[str]:
        """As `-m torch.distributed.run` prints it: its logger has another name, and no format."""
        banner = _BANNER.fullmatch(line)
        if banner is None or bool(banner["setting"]) != (len(self._block) == 2):
            return [*self._give_up(), *self._next(line)]
        self._block.append(line)
        if len(self._block) == 4:
            self.folded[Why.AT_START] += 4
            self._block, self._next = [], self._at_any
        return []

    def _record(self, record: re.Match[str], line: str) -> list[str]:
        text, file = record["text"].rstrip(), record["file"]
        if file == "run" and _BANNER.fullmatch(text):
            return self._fold(Why.AT_START)
        if text.startswith(_BARRIER):
            self._barrier = record["head"]
        if record["head"] == self._barrier:
            return self._fold(Why.AT_END)
        if record["level"] in _LOUD:
            return self._hold(line)
        return [*self._decide(), line]

    def _in_traceback(self, line: str) -> list[str]:
        self._block.append(line)
        if (frame := _FRAME.match(line)) is not None:
            return [] if _OWN_PATH.fullmatch(frame["path"]) else self._give_up()
        if len(self._block) > 2 and _BELOW_FRAME.match(line):
            return []
        raised = _RAISED.match(line)
        if raised is None or raised["name"] not in _ENDS:
            return self._give_up()
        if raised["name"] == _REPORTED:
            self._next = self._before_report
            return []
        self._may_follow = True
        return self._close()

    def _before_report(self, line: str) -> list[str]:
        self._block.append(line)
        if not _RULE.fullmatch(line):
            return self._give_up()
        self._next = self._in_report
        return []

    def _in_report(self, line: str) -> list[str]:
        self._block.append(line)
        rule = next(one for one in self._block if _RULE.fullmatch(one))
        if line != rule:
            return []
        first = self._block[self._block.index(_FIRST) :] if _FIRST in self._block else []
        told = self._is_told(first)
        if self.is_stopped and first and not any(map(_BY_STOP.match, first)):
            self.folded[Why.FAILED] += self.folded.pop(Why.STOPPED, 0)
            self._at_stop = Why.FAILED
        shown = self._close()
        if self._held and told:
            self.folded[Why.FAILED] += len(self._held)
            self._held.clear()
        return shown or self._decide()

    # --- what becomes of it ---------------------------------------------------------------------

    def _open(self, line: str, then: Callable[[str], list[str]]) -> list[str]:
        self._block, self._next = [line], then
        return []

    def _close(self) -> list[str]:
        """A whole block of a known form is over."""
        self._held += self._block
        self._block, self._next = [], self._at_any
        return self._decide() if self.is_stopped else []

    def _hold(self, line: str) -> list[str]:
        self._held.append(line)
        return self._decide() if self.is_stopped else []

    def _fold(self, why: Why) -> list[str]:
        self.folded[why] += 1
        return []

    def _decide(self) -> list[str]:
        held, self._held = self._held, []
        if not self.is_stopped:
            return held
        self.folded[self._at_stop] += len(held)
        return []

    def _give_up(self) -> list[str]:
        """A block that does not fit, or never ended, is shown."""
        block, self._block, self._next = self._block, [], self._at_any
        return [*self._decide(), *block]

    def _is_told(self, first: list[str]) -> bool:
        """Whether what a report says of the rank that failed first is told elsewhere, too."""
        ranks = [int(found["rank"]) for line in first if (found := _LOCAL.match(line))]
        return bool(ranks) and (quotes_nothing(first) or self._has_traceback(ranks[0]))


def quotes_nothing(report: Iterable[str]) -> bool:
    """Whether torchrun's report says of each rank in it that it has no error file: with one it
    quotes an exception."""
    files = {found["file"] for line in report if (found := _ERROR_FILE.match(line))}
    return files == {"<N/A>"}


def _record(line: str) -> re.Match[str] | None:
    return next((found for form in _RECORDS if (found := form.fullmatch(line))), None)
