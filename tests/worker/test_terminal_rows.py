"""What is left of the rows of a stream whose program goes back to what it has written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.program.terminal_rows import TerminalRows, cut_to, shown_text

UP = b"\x1b[A"
NESTED = (  # as tqdm writes two bars, of which the inner one is cleared at its end
    b"\router 0%",
    b"\n\rinner 0%" + UP,
    b"\n\rinner 50%" + UP,
    b"\router 100%",
    b"\n\r         \r" + UP,
    b"\router 100%\n",
)
LIVE = (  # as rich redraws three rows
    b"\x1b[?25l",
    b"a 0%\nb 0%\nc 0%",
    b"\r\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2Ka 50%\nb 50%\nc 50%",
    b"\r\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2Ka 100%\nb 100%\nc 100%\n\x1b[?25h",
)


def finished(*pieces: bytes) -> list[bytes]:
    rows = TerminalRows()
    return [row for piece in pieces for row in rows.write(piece)] + rows.close()


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        (b"one\n\n two \nthree", [b"one", b"", b" two ", b"three"]),
        (b"long xxxxxxxx\rdone\n", [b"done"]),
        (b"\r 10%\r 20%\r\n", [b" 20%"]),
        (b"one\r\ntwo\r\n", [b"one", b"two"]),
        (b"one\r\r\n", [b"one"]),
        (b" 99%\r     \rdone\n", [b"done"]),
        (b" 99%\r\x1b[Kdone\n", [b"done"]),
        (b" 99%\x1b[2K\rdone\n", [b"done"]),
        (b" 99%\x1b[1000D\x1b[Kdone\n", [b"done"]),
        (b" 99%\x1b[1Gdone\n", [b"done"]),
        (b"long state\r99%       \n", [b"99%"]),
        (b" 99%\r     \r", []),
        (b"|\b/\b-\bready\n", [b"ready"]),
        (b"step 1\b2\b3 of 9\n", [b"step 3 of 9"]),
        (b"12345\x1b[2Dxy\n", [b"123xy"]),
        (b"10%\x1b[31m\r20%\n", [b"20%"]),
        (b"10%\r\x1b[1m\x1b[32m20%\n", [b"\x1b[1m\x1b[32m20%"]),
        ("…\bé\n".encode(), ["é".encode()]),
        (b"12345\b\b\b\b\b\r67\n", [b"67"]),
        (b"\x1b[31mred\x1b[0m\n", [b"\x1b[31mred\x1b[0m"]),
        (b"\x1b[31m10%\x1b[0m\r\x1b[32m20%\x1b[0m\n", [b"\x1b[32m20%\x1b[0m"]),
        (b"20%\r\x1b[0m\n", [b"20%\x1b[0m"]),
        (b"\x1b[?25l\x1b[2Jshown\x1b[2J\x1b]0;title\x07\n", [b"shown"]),
        (
            b"\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\\n",
            [b"\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\"],
        ),
        (b"".join(NESTED) + b"bye\n", [b"outer 0%", b"outer 100%", b"bye"]),
        (
            b"".join(LIVE) + b"bye\n",
            [b"a 0%", b"b 0%", b"a 100%", b"b 100%", b"c 100%", b"bye"],
        ),
        (b"\x1b[999A" * 9 + b"top\n", [b"top"]),
        (b"\x1b[2Aa\x1b[9Bb\n", [b"a", b"b"]),
        (b"\x1b[2Aa\nb\nc\x1b[2F\x1b[Jd\n", [b"d"]),
    ],
)
def test_what_follows_the_last_carriage_return_is_left_of_a_row(
    written: bytes, lines: list[bytes]
) -> None:
    assert finished(written) == lines
    assert finished(*(written[at : at + 1] for at in range(len(written)))) == lines


@pytest.mark.parametrize(
    ("written", "newest", "is_bar"),
    [
        (b"Go on? ", b"Go on? ", False),
        (b"one\n", b"", False),
        (b"\r 10%", b" 10%", True),
        (b" 10%\r", b" 10%", True),
        (b"\r 10%\x1b", b" 10%", True),
        (b"\r 10%\n", b"", False),
        (b"".join(NESTED[:3]), b"inner 50%", True),
        (b"".join(NESTED[:4]), b"outer 100%", True),
        (b"".join(LIVE[:2]), b"c 0%", False),
        (b"".join(LIVE[:3]), b"c 50%", True),
    ],
)
def test_the_row_that_is_being_written_is_known_and_whether_it_is_a_bar(
    written: bytes, newest: bytes, is_bar: bool
) -> None:
    rows = TerminalRows()
    rows.write(written)
    rows.settle()
    assert (rows.newest, rows.overwrites) == (newest, is_bar)


@given(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", UP, b"\x1b[2K", b"\x1b[1m"])))
def test_where_a_piece_ends_changes_nothing(pieces: list[bytes]) -> None:
    assert finished(*pieces) == finished(b"".join(pieces))


@given(st.lists(st.text("ab \t\x1b[é", max_size=8).map(str.encode)))
def test_text_and_line_feeds_are_passed_on_as_they_are(lines: list[bytes]) -> None:
    plain = [line.replace(b"\x1b", b"\x1b[1m") for line in lines]
    whole = b"".join(line + b"\n" for line in plain)
    assert TerminalRows().write(whole) == plain


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain\n", "plain"),
        ("plain\r\n", "plain"),
        ("\r 10%\r 20%\r\n", " 20%"),
        ("\x1b[31mred\x1b[0m\n", "\x1b[31mred\x1b[0m"),
        ("\rinner 9%\x1b[A\router 10%\n", "outer 10%"),
        ("\rinner 9%\x1b[A\n", "inner 9%"),
    ],
)
def test_a_line_of_a_log_is_shown_as_it_was_in_the_end(line: str, shown: str) -> None:
    assert shown_text(line) == shown


@pytest.mark.parametrize(
    ("text", "cells", "cut"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abc"),
        ("训练x", 3, "训"),
        ("e\u0301e\u0301e", 2, "e\u0301e\u0301"),
        ("\x1b[31mabcd\x1b[0m", 2, "\x1b[31mab\x1b[0m\x1b[0m"),
        ("", 2, ""),
    ],
)
def test_a_line_is_cut_to_the_cells_that_there_are(text: str, cells: int, cut: str) -> None:
    assert cut_to(text, cells) == cut


def test_a_carriage_return_that_is_held_is_taken_once() -> None:
    rows = TerminalRows()
    assert rows.write(b"10%\r") == []
    for _ in range(2):
        rows.settle()
    assert rows._held == b""
    assert [rows.write(b"\n"), rows.write(b"20%\n"), rows.close()] == [[b"10%"], [b"20%"], []]
