"""Placeholders: where they stand in a text, what they stand for, and what only looks like one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rendezvous.wire.errors import TemplateError
from rendezvous.wire.words import did_you_mean

Value = str | int | list[str]

# Gives the line, counted from 1, of an offset in the text that is being filled.
LineOf = Callable[[int], int]

_NAME = "[A-Z][A-Z0-9_]*"
PLACEHOLDER = re.compile(rf"(?<!<)<<(?P<name>{_NAME})>>")

_WORD = r"[\w.:${}-]+"
_TOKEN = re.compile(
    rf"""
      {PLACEHOLDER.pattern}
    | (?<!<)<{{3,}}{_NAME}>>            # a here-string and a redirection, or a placeholder?
    | (?<![\w<])<{_NAME}>>              # <NAME>>, but not List<Set<T>>
    | (?<!<)<<(?!<)(?=[^<>\n]*[^\W\d])  # <<name>>, << NAME >>, <<NAME>, with a letter in it
        [ \t]*(?P<word>{_WORD})(?:[ \t]+{_WORD})*(?:[ \t]*>>|>)
    | (?<!<)<<(?P<open>{_NAME})\b       # never closed
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Spot:
    """One placeholder of a template, with what it stands for."""

    name: str
    value: Value
    line: int
    start: int
    end: int


def one_line(value: Value) -> str:
    """The value as one string; a list in the shell's quoting."""
    return shlex.join(value) if isinstance(value, list) else str(value)


def line_at(text: str, offset: int) -> int:
    """The line of an offset, counted from 1."""
    return text.count("\n", 0, offset) + 1


def heredoc_end(text: str, word: str, start: int) -> int | None:
    """Where the line ends that holds `word` alone, from `start` on; None when there is none."""
    end = re.compile(rf"^\t*{re.escape(word)}\r?$", re.MULTILINE).search(text, start)
    return end.end() if end else None


def _insert_as_it_is(spot: Spot) -> str:
    return one_line(spot.value)


@dataclass(frozen=True)
class Variables:
    """What placeholders stand for, and the name of the template for errors."""

    values: Mapping[str, Value]
    source: str

    def fill(
        self, text: str, line_of: LineOf, insert: Callable[[Spot], str] = _insert_as_it_is
    ) -> str:
        """The text with each placeholder replaced by what `insert` makes of it.

        Raises:
            TemplateError: A placeholder is unknown or misspelt, or `insert` refuses its value.
        """

        def replace(token: re.Match[str]) -> str:
            line = line_of(token.start())
            if name := token["name"]:
                return insert(Spot(name, self._value(name, line), line, *token.span()))
            self._refuse_lookalike(token, line)
            return token[0]

        return _TOKEN.sub(replace, text)

    def exact(self, text: str, line: int) -> Value | None:
        """The value for a text that is one placeholder and nothing else; None for other texts."""
        whole = PLACEHOLDER.fullmatch(text)
        return self._value(whole["name"], line) if whole else None

    def error(self, line: int, message: str, *, hint: str = "") -> TemplateError:
        """An error at a line of the template."""
        return TemplateError(f"{self.source}:{line}: {message}", hint=hint)

    def _value(self, name: str, line: int) -> Value:
        if name not in self.values:
            message = f"<<{name}>> has no variable of that name; {self._known()}"
            raise self.error(line, message, hint=self._closest(name))
        value = self.values[name]
        try:
            one_line(value).encode()
        except UnicodeEncodeError:
            message = f"the value of {name} contains bytes that are not UTF-8"
            raise self.error(line, message, hint=f"give {name} a value that is text") from None
        return value

    def _refuse_lookalike(self, token: re.Match[str], line: int) -> None:
        """Raise for a misspelt placeholder; return for a heredoc, which has a line that ends it."""
        word = (token["word"] or token["open"] or "").lstrip("-")
        if word and heredoc_end(token.string, word, token.end()) is not None:
            return
        if token["open"] and word not in self.values:
            return
        message = (
            f"{token[0]} looks like a placeholder but is not: a placeholder is <<NAME>>, with "
            f"two angle brackets on each side and NAME in capitals, digits and _; {self._known()}"
        )
        raise self.error(line, message, hint=self._closest(token[0]))

    def _known(self) -> str:
        names = ", ".join(sorted(self.values))
        return f"known are {names}" if names else "no variables are known here"

    def _closest(self, written: str) -> str:
        name = re.sub(r"[^A-Z0-9]+", "_", written.upper()).strip("_")
        return did_you_mean(name, self.values, "<<{}>>")
