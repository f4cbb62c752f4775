"""Shell blocks of README and the first hour; the comment before each says what tests do with it.

<!-- run -->      types it on one machine, in a checkout: it works, and prints what is below it
<!-- fails -->    the same, but it ends with another exit code than 0
<!-- dry-run -->  needs a cluster: each `rdzv launch` is tried with --dry-run
<!-- parse -->    needs what no test has: bash looks at its syntax
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "docs" / "first-hour.md")
MARKS = ("run", "fails", "dry-run", "parse")
_BLOCK = re.compile(r"(?:<!-- ([\w-]+) -->\n)?```(?:console|bash|sh)\n(.*?)```\n", re.DOTALL)
_CELL = re.compile(r"\| `(rdzv launch [^`]*)` \|")
_SECONDS = re.compile(r"\d+(?:\\\.\d+)?\\ s\b")
_ENDED = "@@ ended with "


@dataclass(frozen=True)
class Command:
    """What is typed, the lines that the page shows below it, and whether it is to fail."""

    typed: str
    shown: tuple[str, ...] = ()
    fails: bool = False


@dataclass(frozen=True)
class Block:
    """A shell block, with its mark; None when it has none."""

    mark: str | None
    commands: tuple[Command, ...]


def blocks(text: str) -> list[Block]:
    """Every shell block of a page."""
    found = _BLOCK.findall(text)
    return [Block(mark or None, tuple(_commands(body, mark == "fails"))) for mark, body in found]


def _commands(body: str, fails: bool) -> Iterator[Command]:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        typed = re.match(r"(?:.*\\\n)*.*\n", part)
        assert typed is not None
        yield Command(typed[0].rstrip("\n"), tuple(part[typed.end() :].splitlines()), fails)


def commands(text: str, *marks: str) -> list[Command]:
    """The commands of all blocks with one of these marks, in order."""
    return [command for block in blocks(text) if block.mark in marks for command in block.commands]


def dry_runs(text: str) -> list[str]:
    """Each `rdzv launch` of a page that needs a cluster, in a block or in a table, as a dry run."""
    typed = [command.typed.replace("\\\n", " ") for command in commands(text, "dry-run")]
    typed += _CELL.findall(text)
    return [line.replace("rdzv launch", "rdzv launch --dry-run", 1) for line in typed]


def missing(command: Command, output: str) -> list[str]:
    """The shown lines that the output lacks; `...` is anything, and so is a number of seconds."""
    lines = output.splitlines()
    return [shown for shown in command.shown if not any(map(_pattern(shown).fullmatch, lines))]


def _pattern(shown: str) -> re.Pattern[str]:
    quoted = re.escape(shown).replace(re.escape("..."), ".*")
    return re.compile(_SECONDS.sub(r"[\\d.]+ s", quoted))


def script(typed: Sequence[str]) -> str:
    """One shell script of all commands, which says where each ends, and how."""
    return "".join(f"{line}\nprintf '\\n{_ENDED}%s\\n' $?\n" for line in typed)


def outputs(printed: str) -> list[tuple[str, int]]:
    """What each command of the script has printed, and its exit code."""
    parts = re.split(rf"^{_ENDED}(\d+)\n", printed, flags=re.MULTILINE)
    return [(text, int(code)) for text, code in zip(parts[::2], parts[1::2], strict=False)]
