"""Command lines that work, for a person whose COMMAND does not. Pure.

Words of COMMAND may hold a secret, and a refusal may travel to other nodes: its hint shows only as
many of them as are known to hold none. The command line that a person has typed themselves is
repeated whole to them alone (`launcher.cli.given`).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from rendezvous.frozen import frozen
from rendezvous.wire.errors import UsageError
from rendezvous.wire.words import printable

_MOST_CHARACTERS = 300


@frozen
class Line:
    """A command line of `rdzv` that works.

    Attributes:
        command: COMMAND, whole; empty: the one that was given.
        options: Options to give beside those that were given.
        shown: How many words of COMMAND everyone may see.
        before: What is in front of the line, as a shell reads it; empty: nothing.
    """

    command: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    shown: int = 1
    before: str = ""

    def text(self) -> str:
        """The line as everyone may see it."""
        words = ["--", *self.command[: self.shown]] if self.command else []
        line = shlex.join(["rdzv", "launch", *self.options, *words])
        more = " ..." if len(self.command) > self.shown or not self.command else ""
        return printable(f"{self.before}{line}", _MOST_CHARACTERS) + more


@frozen
class Advice:
    """A line to use, and the purpose of it, where there are several; the line ends the text, for
    whoever copies it."""

    line: Line
    purpose: str = ""

    def text(self, write: Callable[[Line], str] = Line.text) -> str:
        """The advice, with the line as it is written there."""
        return f"{f'{self.purpose}:' if self.purpose else 'use'} {write(self.line)}"


class WrongCommand(UsageError):
    """COMMAND cannot work as it is; raised with the lines that do.

    Args:
        message: What happened.
        advice: What to use instead, best first.
        note: What to know for the choice, with what separates it from the advice; empty: nothing.
    """

    def __init__(self, message: str, *advice: Advice, note: str = "") -> None:
        self.advice = advice
        self.note = note
        texts = [one.text() for one in advice]
        super().__init__(message, hint="; or ".join(texts) + note)

    def hint_lines(self, write: Callable[[Line], str]) -> Sequence[str]:
        """The hint with lines written another way, each piece of advice and the note in a line."""
        texts = [one.text(write) for one in self.advice]
        lines = [f"{'or ' if number else ''}{text}" for number, text in enumerate(texts)]
        return [*lines, *filter(None, [self.note.lstrip(",;: ")])]


def use(command: Sequence[str], *options: str, shown: int = 1, purpose: str = "") -> Advice:
    """Advice to give this COMMAND, with these options."""
    return Advice(Line(tuple(command), options, shown), purpose)
