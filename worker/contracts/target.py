"""What COMMAND starts: that there is something, and not on standard input. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from rendezvous.wire.errors import UsageError
from rendezvous.wire.words import printable
from worker.contracts.framework import SHELLS, basename, is_python

_FILES = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_SHORT = re.compile(r"[-+][A-Za-z]+")
_WITH_VALUE = re.compile(r"-[A-Za-z]*[WX]")


def check_target(words: Sequence[str], position: int, launcher: str) -> None:
    """Refuse a COMMAND without a target, and a target that reads its program from standard input.

    Args:
        words: What follows the launcher's name.
        position: Of the target among them.
        launcher: The launcher's name.

    Raises:
        UsageError: It is one of these.
    """
    if position >= len(words):
        raise UsageError(
            f"COMMAND does not name a script or module for {launcher}: "
            f"{shlex.join(words) or launcher}",
            hint="for example: -- train.py --epochs 3, or -- -m package.module",
        )
    refuse_standard_input(words[position:])


def refuse_standard_input(command: Sequence[str]) -> None:
    """Refuse a program that could only find nothing there, and end as if all were well.

    Args:
        command: What is started, beginning with the program or script.

    Raises:
        UsageError: It certainly reads its program from standard input.
    """
    if not _reads_standard_input(command):
        return
    raise UsageError(
        f"COMMAND's '{printable(command[0], 80)}' would read its program from standard "
        "input, which is empty on every node",
        hint="put the program into a file that every node has: rdzv launch -- train.py; or give a "
        "shell command as one word: rdzv launch --framework command -- bash -c '...'",
    )


def _reads_standard_input(command: Sequence[str]) -> bool:
    first, words = command[0], command[1:]
    if first in _FILES:
        return True
    if is_python(first):
        return _of_python(words)
    return basename(first) in SHELLS and _of_a_shell(words)


def _of_python(words: Sequence[str]) -> bool:
    """`python -`, and python without a script, `-c` or `-m`."""
    position = 0
    while position < len(words) and words[position].startswith("-") and words[position] != "-":
        word = words[position]
        if word.startswith("--") or set("cmhV?") & set(word):
            return False  # a program of its own, or only a word about Python
        position += 2 if _WITH_VALUE.fullmatch(word) else 1
    return not words[position:] or words[position] in _FILES


def _of_a_shell(words: Sequence[str]) -> bool:
    """`bash -s`, and a shell without a script or `-c`."""
    position = 0
    while position < len(words) and _SHORT.fullmatch(words[position]):
        word = words[position]
        if "c" in word or "o" in word.lower():
            return False  # -c, or an option whose value would look like a script
        if "s" in word:
            return True
        position += 1
    if words[position : position + 1] in (["-"], ["--"]):
        position += 1
    return not words[position:] or words[position] in _FILES
