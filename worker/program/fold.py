"""Output of a launcher and its ranks, as a terminal shows it: the rest folded into sentences."""

from __future__ import annotations

import re
from collections import defaultdict

from rendezvous.wire.words import numbers_text
from worker.program.launcher_lines import LauncherLines, Why
from worker.program.rank_words import RankWords

SENTENCE = b"rdzv: "
"""The beginning of each of rdzv's own lines."""
_LONGEST_LINE = 65_536
_TRACEBACK = re.compile(
    rb"(?<!\n\n)^\[rank(\d+)\]: Traceback \(most recent call last\):\n(?:\[rank\1\]:  .*\n)+"
    rb"(\[rank\1\]: \S.*\n(?:\[rank\1\]: .*\n)*)(?!\n?\[rank\1\]: )",
    re.MULTILINE,
)
"""Traceback that ends a rank, as torch's hook prints it, in one piece; none that is chained."""
_LOST = re.compile(
    rb"(?s)(gloo/|NCCL error).*(by (remote )?peer|remote process exited or there was)"
)
"""A connection of another kind, as to a store of files, is none to a rank."""


class Fold:
    """Takes what comes by the launcher's own stream, and gives back what is to be shown of it;
    and leaves out tracebacks of ranks for which a sentence of `told` stands.

    Args:
        launcher: Its name, for a person.
        command: What shows the log, to which the number of lines is added: `rdzv logs RUN`.
        every: What shows the lines of each rank.
    """

    def __init__(self, launcher: str, command: str, every: str) -> None:
        self._launcher = launcher
        self._command = command
        self._every = every
        self._lines = LauncherLines(self._has_traceback)
        self._words: RankWords | None = None
        self._rest = b""
        self._behind = 0
        self._first: dict[bytes, bytes] = {}
        self._alike = defaultdict[str, set[int]](set)

    def read(self, words: RankWords) -> None:
        """Let it know what the ranks print."""
        self._words = words

    def stop(self) -> None:
        """The program is stopped from now on. May be called from another thread."""
        self._lines.is_stopped = True

    def take(self, data: bytes) -> bytes:
        """Read what has come; returns what is to be shown now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        shown = self._shown(lines)
        return shown + (self._end_of_line() if len(self._rest) > _LONGEST_LINE else b"")

    def pass_by(self, data: bytes) -> bytes:
        """Read what ranks have written, and count it behind the first line that may be folded;
        returns it without the tracebacks that `told` stands for."""
        self._count(data.count(b"\n"))
        return _TRACEBACK.sub(self._without_alike, data) if b"Traceback" in data else data

    def _without_alike(self, found: re.Match[bytes]) -> bytes:
        rank, how = found[1], "lost the connection to another rank"
        if not _LOST.search(found[2]):
            first = self._first.setdefault(found[0].replace(b"[rank%s]" % rank, b""), rank)
            if first == rank:
                return found[0]
            how = f"raised the same as rank {first.decode()}"
        self._alike[how].add(int(rank))
        return b""

    def told(self) -> bytes:
        """Return a line for each kind of traceback that was left out since the last time."""
        alike, self._alike = self._alike, defaultdict(set)
        return _joined(
            [f"rdzv: {numbers_text(some)} {how} ({self._every})" for how, some in alike.items()]
        )

    def idle(self) -> bytes:
        """Nothing has come for a moment."""
        return self._end_of_line() + _joined(self._lines.idle())

    def close(self) -> bytes:
        """Nothing more comes: what is left, and the line that stands for what was folded."""
        shown = self._end_of_line() + _joined(self._lines.end())
        return shown + _joined(["rdzv: " + words for words in self._words_at_end()])

    def _shown(self, lines: list[bytes]) -> bytes:
        shown = b""
        for line in lines:
            shown += _joined(self._lines.take(line.decode("utf-8", "surrogateescape")))
            self._count(1)
        return shown

    def _count(self, lines: int) -> None:
        self._behind = self._behind + lines if self._lines.is_behind else 0

    def _end_of_line(self) -> bytes:
        """Show what has no line feed yet: it is no line of a known form."""
        rest, self._rest = self._rest, b""
        return _joined(self._lines.end()) + rest if rest else b""

    def _words_at_end(self) -> list[str]:
        reasons = {
            Why.FAILED: "about the rank that failed",
            Why.STOPPED: "when rdzv stopped it",
            Why.AT_END: "at its end, after its ranks had ended well",
        }
        parts = [
            f"{count} {'line' if count == 1 else 'lines'} {reason}"
            for why, reason in reasons.items()
            if (count := self._lines.folded[why])
        ]
        # Where the log ends within a line, that is one more.
        command = f"{self._command} --lines {self._behind + 1}"
        return [f"{self._launcher} printed {' and '.join(parts)}: {command}"] if parts else []

    def _has_traceback(self, rank: int) -> bool:
        pieces = self._words.newest(rank) if self._words is not None else []
        return b"Traceback (most recent call last)" in b"".join(piece.data for piece in pieces)


def _joined(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
