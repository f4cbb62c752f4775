"""The kinds of lines of a log: errors, warnings, and the noise of the launcher itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from launcher.show.log_lines import LogLine
from worker.program.launcher_lines import LauncherLines
from worker.program.wanted import looks_like

Kind = Literal["-", "w", "e", "n"]
"""Ordinary, a warning, an error; noise: a line of the launcher that a terminal does not show."""


class KindLine(NamedTuple):
    """A line and its kind."""

    line: LogLine
    kind: Kind


def kind_of(text: str) -> Kind:
    """The kind of a line that is no noise: by its level, as `rdzv logs --level` tells it."""
    if looks_like(text, "error"):
        return "e"
    return "w" if looks_like(text, "warning") else "-"


class LauncherKinds:
    """The lines of a log with a launcher's own lines in it, and which of them are its noise.

    A line may be held until those behind it show what it is.

    Args:
        is_stopped: Whether rdzv has stopped this launcher, whose words at its end are noise then.
        has_traceback: Whether a local rank has printed a traceback.
    """

    def __init__(
        self, is_stopped: Callable[[], bool], has_traceback: Callable[[int], bool]
    ) -> None:
        self._is_stopped = is_stopped
        self._lines = LauncherLines(has_traceback)
        self._held: list[tuple[_Mark, LogLine]] = []
        self._shown: set[int] = set()

    def take(self, line: LogLine) -> list[KindLine]:
        """Read a line; returns those whose kind is known now, in their order."""
        mark = _Mark(line.text)
        self._held.append((mark, line))
        self._lines.is_stopped = self._is_stopped()
        return self._known(self._lines.take(mark))

    def idle(self) -> list[KindLine]:
        """Nothing has come for a while."""
        self._lines.is_stopped = self._is_stopped()
        return self._known(self._lines.idle())

    def end(self) -> list[KindLine]:
        """Nothing more comes."""
        self._lines.is_stopped = self._is_stopped()
        return self._known(self._lines.end())

    def _known(self, shown: list[str]) -> list[KindLine]:
        """All that is held, once none of it waits for what follows."""
        self._shown.update(map(id, shown))
        if self._lines.is_holding:
            return []
        held, self._held, its = self._held, [], self._shown
        self._shown = set()
        return [
            KindLine(line, kind_of(line.text) if id(mark) in its else "n") for mark, line in held
        ]


class Together:
    """The times of lines that were written together: a traceback, and what is indented, stay whole.

    An index knows times to seconds, and lines of other logs would come between them.
    """

    def __init__(self) -> None:
        self._at: float | None = None
        self._in_traceback = False

    def line(self, line: LogLine) -> LogLine:
        """The line, at the time of the first one that it belongs to."""
        text = line.text
        is_indented = text.startswith((" ", "\t"))
        belongs = is_indented or self._in_traceback
        if text.startswith("Traceback (most recent call last)"):
            self._in_traceback, belongs = True, False
        elif not is_indented:
            self._in_traceback = False
        if not belongs or self._at is None:
            self._at = line.at
        return LogLine(text, self._at)


class _Mark(str):
    """A text that is found again by its identity: `LauncherLines` gives back what it has taken."""

    __slots__ = ()
