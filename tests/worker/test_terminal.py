"""The terminal that a node's output goes to: what programs are told, and what is drawn on it."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Iterator

import pytest

from worker.program.output import OutputSink
from worker.program.terminal import size_of, size_variables

SIZE = os.terminal_size((80, 40))


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    """Of a terminal: what it shows, and what programs write to."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    yield ours, its
    os.close(ours)
    os.close(its)


def test_the_first_of_some_descriptors_that_is_a_terminal_has_the_size(
    ends: tuple[int, int],
) -> None:
    terminal = ends[1]
    reader, writer = os.pipe()
    assert size_of(writer, terminal) == SIZE
    assert size_of(reader, writer, -1) is None
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, bytes(8))
    assert size_of(terminal) is None  # it does not tell
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(
    ("environ", "size", "prefix", "told"),
    [
        ({}, SIZE, 4, {"COLUMNS": "76", "LINES": "40", "TQDM_NCOLS": "75"}),
        ({}, SIZE, 0, {"COLUMNS": "80", "LINES": "40", "TQDM_NCOLS": "79"}),
        ({"COLUMNS": "100"}, SIZE, 4, {}),
        ({"LINES": "9", "TQDM_NCOLS": "50"}, SIZE, 5, {"COLUMNS": "75"}),
        ({}, None, 4, {}),
        ({}, os.terminal_size((3, 0)), 4, {"COLUMNS": "1", "TQDM_NCOLS": "1"}),
    ],
)
def test_a_program_is_told_the_width_that_its_lines_have(
    environ: dict[str, str], size: os.terminal_size | None, prefix: int, told: dict[str, str]
) -> None:
    assert size_variables(environ, size, "x" * prefix) == told


@pytest.mark.parametrize(
    ("term", "shown"), [("xterm", b"\x1b[K[0]  10%\r"), ("dumb", b"[0]  10%\r\n")]
)
def test_a_bar_is_drawn_in_place_only_on_a_terminal_that_can(
    ends: tuple[int, int], term: str, shown: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    ours, terminal = ends
    OutputSink(prefix="[0] ", stdout=terminal, stderr=terminal).write("stdout", b"\r 10%")
    assert os.read(ours, 100) == shown


def test_where_standard_output_is_no_terminal_another_program_may_show_it(
    ends: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As tee does, which erases no bar: none is drawn in place, on neither stream."""
    monkeypatch.setenv("TERM", "xterm")
    ours, terminal = ends
    reader, writer = os.pipe()
    sink = OutputSink(prefix="[0] ", stdout=writer, stderr=terminal)
    sink.write("stdout", b"\r 10%")
    sink.write("stderr", b"\r 10%")
    assert (os.read(reader, 100), os.read(ours, 100)) == (b"[0]  10%\n", b"[0]  10%\r\n")
    os.close(reader)
    os.close(writer)
