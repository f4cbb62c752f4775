"""Stacks as faulthandler of Python 3.8 to 3.14 writes them, and the hook's thread. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from features.hang.wire import MAX_FRAMES, Frame, Stack
from rendezvous.wire.words import printable

MOST_THREADS = 65
"""The main one and 64 others, as in the report."""

MOST_TEXT = 1 << 20
MOST_LETTERS = 200
_MOST_LINE = (1 << 31) - 1
_HEAD = re.compile(r"(?:Thread|Current thread|Stack)\b.* \(most recent call first\):\Z")
_FRAME = re.compile(r'  File (?:"(.*)"|\?\?\?), line ([0-9]{1,10}|\?\?\?) in (.*)\Z')
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_LIBRARY = re.compile(r".*/lib(?:64|32)?/(python3\.[0-9]+t?/)")
_OURS = ("worker/look/answering.py", "worker/look/site/sitecustomize.py")


class Stacks(NamedTuple):
    """The threads of a process; `main` is None where it is not among them."""

    main: Stack | None
    others: list[Stack]


def stacks_in(text: str, *, finished: bool = True) -> Stacks:
    """The threads that a text tells of.

    Args:
        text: All that was written, the main thread last. Nothing of its form: no thread.
        finished: Whether nothing is missing at its end.
    """
    blocks: list[list[str]] = []
    for line in text[-MOST_TEXT:].split("\n"):
        if _HEAD.match(line):
            blocks.append([])
        elif line and blocks:
            blocks[-1].append(line)
    if not blocks:
        return Stacks(None, [])
    # Of more threads than it writes there are the newest, and a line with dots in the first column.
    complete = "..." not in blocks[-1]
    found = [_stack(lines) for lines in blocks]
    if not finished:
        found[-1] = found[-1].model_copy(update={"cut": True})
    main = found.pop() if complete else None
    others = [stack for stack in found if stack.frames and not _is_ours(stack)]
    return Stacks(main, others[1 - MOST_THREADS :])


def _stack(lines: list[str]) -> Stack:
    matches = [match for line in lines if (match := _FRAME.match(line))]
    frames = [
        Frame(printable(name, MOST_LETTERS), short_file(file or "???"), line_number(line))
        for file, line, name in (match.groups() for match in matches[:MAX_FRAMES])
    ]
    return Stack(frames=frames, cut="  ..." in lines or len(matches) > MAX_FRAMES)


def line_number(text: str) -> int:
    """0 where it is not known."""
    return min(int(text), _MOST_LINE) if text.isdecimal() else 0


def short_file(path: str) -> str:
    """A file as people name it: from its package on, without where that is installed."""
    path = _LIBRARY.sub(r"lib/\1", _PACKAGES.sub("", path))
    path = printable(path, len(path))
    return path if len(path) <= MOST_LETTERS else "…" + path[1 - MOST_LETTERS :]


def _is_ours(stack: Stack) -> bool:
    return any(frame.file.endswith(_OURS) for frame in stack.frames)
