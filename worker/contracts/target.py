"""What COMMAND starts: that there is something, and not on standard input. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from rendezvous.wire.errors import UsageError
from rendezvous.wire.words import printable
from worker.contracts.advice import WrongCommand, use
from worker.contracts.framework import SHELLS, basename, is_python
from worker.contracts.python_call import read_python

_FILES = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_SHORT = re.compile(r"[-+][A-Za-z]+")


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


def refuse_python(
    typed: Sequence[str], words: Sequence[str], position: int, name: str, module: str = "-m"
) -> None:
    """Refuse an interpreter as the target of a launcher that starts Python itself.

    Args:
        typed: How COMMAND calls the launcher; may be empty.
        words: What follows that.
        position: Of the target among them.
        name: Of the launcher.
        module: Its flag for a module in place of a script.

    Raises:
        WrongCommand: It is one.
    """
    if position >= len(words) or not is_python(words[position]):
        return
    call = read_python(words[position + 1 :])
    before = [*typed, *words[:position], *([module] if call.kind == "module" else [])]
    advice = [use([*before, *call.target], shown=len(before) + 1)]
    raise WrongCommand(
        f"COMMAND names '{printable(words[position], 80)}', but {name} starts Python itself",
        *(advice if call.kind in ("script", "module") else []),
        note="" if call.kind in ("script", "module") else "give a script: -- train.py ...",
    )


def refuse_standard_input(command: Sequence[str]) -> None:
    """Refuse a program that could only find nothing there, and end as if all were well.

    Args:
        command: What is started, beginning with the program or script.

    Raises:
        WrongCommand: It certainly reads its program from standard input.
    """
    if not _reads_standard_input(command):
        return
    raise WrongCommand(
        f"COMMAND's '{printable(command[0], 80)}' would read its program from standard "
        "input, which is empty on every node",
        use(["train.py"], purpose="with the program in a file that every node has"),
        use(["bash", "-c", "..."], "--framework", "command", shown=3, purpose="for a shell's line"),
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
    call = read_python(words)
    return call.kind == "none" or (call.kind == "script" and call.target[0] in _FILES)


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
