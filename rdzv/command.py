"""The `rdzv` command as a child of this process: what it prints, and its refusals as exceptions.

It runs on this interpreter, in isolated mode and by its path: a `worker.py` or `rdzv.py` in the
working directory is not taken for it. The folder of this interpreter is first on its PATH, as in an
environment that is activated: a notebook's torchrun is that of its kernel. And it is no part of
this terminal's foreground, so a Ctrl-C reaches the program that called, which decides what becomes
of the run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import IO

_MAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
_OURS = "rdzv: "
_HINT = " " * len(_OURS)
_INTERNAL = 70


class RdzvError(Exception):
    """`rdzv` could not do what it was asked.

    Attributes:
        message: What happened, and what it means.
        hint: What to try; may be empty.
        exit_code: The command's, see 'rdzv docs exit-codes'.
    """

    def __init__(self, message: str, hint: str = "", exit_code: int = 1) -> None:
        super().__init__(message, hint, exit_code)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


def start(
    words: list[str],
    stderr: int | IO[bytes],
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, object] | None = None,
) -> subprocess.Popen[bytes]:
    """Start `rdzv` with these words, and these variables beside this process's own; its standard
    output is a pipe."""
    if not sys.executable:
        raise RdzvError(
            "this Python does not know its own path, so it cannot start 'rdzv'",
            "embedded interpreters have none; start the command 'rdzv' yourself",
        )
    return subprocess.Popen(
        [sys.executable, "-I", _MAIN, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        cwd=cwd,
        env={**os.environ, "PATH": _path(), **{k: str(v) for k, v in (env or {}).items()}},
        start_new_session=True,
    )


def _path() -> str:
    folder, path = os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)
    return path if path.split(os.pathsep)[0] == folder else f"{folder}{os.pathsep}{path}"


def lines_of(words: list[str]) -> Iterator[str]:
    """The lines that `rdzv` prints, as they come; closing the iterator ends the command.

    Raises:
        RdzvError: It ended with another exit code than 0.
    """
    with tempfile.TemporaryFile() as said:
        with start(words, said) as process:
            try:
                assert process.stdout is not None
                yield from text_of(process.stdout)
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            said.seek(0)
            raise error_of("\n".join(text_of(said)), process.returncode)


def text_of(lines: Iterable[bytes]) -> Iterator[str]:
    """The lines as text; a carriage return is a progress bar's, and ends none."""
    for line in lines:
        yield line.decode("utf-8", "replace").rstrip("\n")


def error_of(said: str, exit_code: int) -> RdzvError:
    """What a command that failed wrote on standard error last: its message and its hint."""
    if exit_code == _INTERNAL:  # its traceback is what can be reported
        return RdzvError(said.strip(), "", exit_code)
    lines = said.splitlines() or [f"{_OURS}the command ended with exit code {exit_code}"]
    begins = [at for at, line in enumerate(lines) if line.startswith(_OURS)] or [len(lines) - 1]
    first, *others = lines[begins[-1] :]
    message = [first[len(_OURS) :] if first.startswith(_OURS) else first]
    hint = [line.strip() for line in others if line.startswith(_HINT)]
    message += [line for line in others if not line.startswith(_HINT)]
    return RdzvError("\n".join(message), "\n".join(hint), exit_code)
