"""Standard streams that cannot be written: a full disk, or nobody who reads.

Either way the file descriptor leads to /dev/null from then on, so that nothing fails a second time,
and the interpreter has nothing to complain about when it ends.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, TextIO, cast

STANDARD_OUTPUT = "standard output"


class _EnduringStream:
    """A standard stream that is written as long as it can be.

    A dead `tee` must not end a training.
    """

    def __init__(self, stream: TextIO, fd: int) -> None:
        self._stream = stream
        self._fd = fd

    def write(self, text: str) -> int:
        """See TextIO."""
        try:
            return self._stream.write(text)
        except OSError as exc:
            self._give_up(exc)
        return len(text)

    def flush(self) -> None:
        """See TextIO."""
        try:
            self._stream.flush()
        except OSError as exc:
            self._give_up(exc)

    def _give_up(self, exc: OSError) -> None:
        _lead_to_null(self._fd)
        if self._fd == 1:  # of standard error there is nobody left to tell
            _tell(f"{STANDARD_OUTPUT} cannot be written: {exc.strerror}; the run continues")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _NamedStream(_EnduringStream):
    """The error names the stream, as that of a file names the file."""

    def _give_up(self, exc: OSError) -> None:
        _lead_to_null(self._fd)
        exc.filename = STANDARD_OUTPUT
        raise exc


def _lead_to_null(fd: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, fd)
    os.close(null)


def _tell(words: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"rdzv: {words}\n".encode())


def name_standard_output() -> None:
    """Let an error of standard output be told from one of any other file, by its `filename`."""
    if sys.stdout is not None:  # closed from the start
        sys.stdout = cast("TextIO", _NamedStream(sys.stdout, 1))


def endure_closed_streams() -> None:
    """Let this process outlive whoever reads its output."""
    for name, fd in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:  # closed from the start
            null = os.open(os.devnull, os.O_WRONLY)
            stream = os.fdopen(null if null == fd else os.dup2(null, fd), "w")
        setattr(sys, name, cast("TextIO", _EnduringStream(stream, fd)))
