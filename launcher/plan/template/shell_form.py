"""Filling a shell script: a value is quoted where that is sure to work, else it must need none.

Sure is: the placeholder is a word of its own, or follows a `=`, outside of quotes, comments (and so
outside of `#SBATCH` lines) and heredocs.
"""

from __future__ import annotations

import re
import shlex

from launcher.plan.template.placeholder import (
    PLACEHOLDER,
    Spot,
    Variables,
    heredoc_end,
    line_at,
    one_line,
)

_NEEDS_QUOTES = re.compile(r"[^A-Za-z0-9_./:@%+=,-]")

_DIRECTIVE = "is in a comment or a directive"
_OF_HOSTS = "AVOID"
"""A list that batch systems take with commas, in a directive."""
_WORDS = 2
"""`#SBATCH --exclude=`."""
_GONE = "\0"
"""In a line that is left out; no value has it."""

_BACKQUOTED = r"`(?:[^`\\]|\\.)*(?:`|\Z)"
# What matters outside of double quotes. Other quotes and comments are stepped over whole.
_OUTSIDE = re.compile(
    rf"""
      (?P<skip> \\. | '[^']*(?:'|\Z) | \$'(?:[^'\\]|\\.)*(?:'|\Z) | {_BACKQUOTED}
              | (?<![^\s;&|(])\#[^\n]* )
    | (?P<open> " | \( )
    | (?P<close> \) )
    | {PLACEHOLDER.pattern}
    | (?<!<)<<(?!<)-?[ \t]*['"\\]?(?P<heredoc>[^\s'"\\;|&<>()`$]+)['"]?
    | (?P<newline> \n )
    """,
    re.VERBOSE | re.DOTALL,
)
_IN_QUOTES = re.compile(
    rf'(?P<skip>\\.|{_BACKQUOTED})|(?P<open>\$\()|(?P<close>")', re.VERBOSE | re.DOTALL
)


def render_shell(text: str, variables: Variables) -> str:
    """Fill a shell script or a batch script.

    Raises:
        TemplateError: See `launcher.plan.template.render`.
    """
    free = _free_offsets(text)

    def insert(spot: Spot) -> str:
        if "\0" in one_line(spot.value):
            message = f"the value of {spot.name} contains a NUL byte, which a shell cannot use"
            raise variables.error(spot.line, message)
        obstacle = _obstacle(text, spot, free)
        if obstacle == _DIRECTIVE and spot.name == _OF_HOSTS and text[: spot.start].endswith("="):
            if spot.value == [] and _is_alone(text, spot):
                return _GONE
            return _as_it_is(spot, variables, obstacle, between=",")
        return _as_it_is(spot, variables, obstacle) if obstacle else _quoted(text, spot)

    filled = variables.fill(text, lambda offset: line_at(text, offset), insert)
    return re.sub(f"^.*{_GONE}.*\n?", "", filled, flags=re.MULTILINE)


def _is_alone(text: str, spot: Spot) -> bool:
    """Whether its line is a directive with this option, and nothing else."""
    before = text[text.rfind("\n", 0, spot.start) + 1 : spot.start]
    after = text[spot.end :].partition("\n")[0]
    return len(before.split()) == _WORDS and not after.strip()


def _quoted(text: str, spot: Spot) -> str:
    if isinstance(spot.value, list) and not text[: spot.start].endswith("="):
        return shlex.join(spot.value)
    return shlex.quote(one_line(spot.value))


def _as_it_is(spot: Spot, variables: Variables, obstacle: str, *, between: str = " ") -> str:
    value = between.join(spot.value) if isinstance(spot.value, list) else str(spot.value)
    parts = spot.value if isinstance(spot.value, list) else [value]
    if parts and all(part and not _NEEDS_QUOTES.search(part) for part in parts):
        return value
    unfit = _NEEDS_QUOTES.search("".join(parts))
    what = f"contains the character {unfit[0]!r}" if unfit else "is empty"
    raise variables.error(
        spot.line,
        f"the value of {spot.name} {what}, and <<{spot.name}>> {obstacle}, where it cannot be"
        " quoted for the shell",
        hint="leave nothing else on its line, which then goes where the list is empty"
        if spot.value == [] and between == ","
        else f'write {spot.name}=<<{spot.name}>> on its own line and use "${spot.name}", or'
        " give it a value of letters, digits and _./:@%+=,- alone",
    )


def _obstacle(text: str, spot: Spot, free: set[int]) -> str:
    """Why a value cannot be quoted at this place; empty when it can."""
    if spot.start not in free:
        line = text[text.rfind("\n", 0, spot.start) + 1 : spot.start].lstrip()
        if line.startswith("#"):
            return _DIRECTIVE
        return "is inside quotes, a comment or a heredoc"
    before, after = text[spot.start - 1 : spot.start], text[spot.end : spot.end + 1]
    if before in {"", " ", "\t", "\n", "="} and after in {"", " ", "\t", "\n"}:
        return ""
    return "is next to other text"


def _free_offsets(text: str) -> set[int]:
    """Where the placeholders are that no quotes, comment or heredoc encloses."""
    free: set[int] = set()
    enclosing: list[str] = []
    heredocs: list[str] = []
    position = 0
    while event := (_IN_QUOTES if enclosing[-1:] == ['"'] else _OUTSIDE).search(text, position):
        position = event.end()
        match event.lastgroup:
            case "open":
                enclosing.append(event[0][-1])
            case "close":
                del enclosing[-1:]
            case "name" if '"' not in enclosing:
                free.add(event.start())
            case "heredoc":
                heredocs.append(event["heredoc"])
            case "newline":
                position = _after_heredocs(text, heredocs, position)
                heredocs.clear()
    return free


def _after_heredocs(text: str, words: list[str], position: int) -> int:
    for word in words:
        # A word that no line ends was a shift in arithmetic: $((1<<N)).
        position = heredoc_end(text, word, position) or position
    return position
