"""Which lines somebody wants to see, and how a line is shown."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from rendezvous.wire.log_view import LINE_LETTERS, ViewPart
from worker.program.wanted import Wanted, looks_like, shown_line

ERRORS = [
    "ERROR: no such file",
    "2026-11-25 14:34:42,123 - root - CRITICAL - the disk is full",
    "Traceback (most recent call last):",
    "torch.OutOfMemoryError: CUDA out of memory",
    "RuntimeError: shape mismatch",
    "train.cu:7: error: expected a ';'",
    "Exception: oh",
    "[rank3]:[E1125 14:34:42.123 ProcessGroupNCCL.cpp:632] Watchdog caught",
    "F1125 14:34:42 check.cc:5] Check failed",
]
WARNINGS = [
    "WARNING:root:slow",
    "gpu-17:4242:4299 [0] NCCL INFO ... NCCL WARN Call to connect failed",
    "train.py:3: UserWarning: lr_scheduler.step()",
    "[W1125 14:34:42.1 socket.cpp:464] the client socket cannot be initialized",
    "cc: warning: unused",
]
NEITHER = [
    "step 100 loss 0.5",
    "0 errors, 2 warnings",
    "INFO: it went well",
    "E1125",
    "error rate 0.1",
    "",
]


@pytest.mark.parametrize(
    ("lines", "warning", "error"),
    [(ERRORS, True, True), (WARNINGS, True, False), (NEITHER, False, False)],
)
def test_what_a_line_looks_like(lines: list[str], warning: bool, error: bool) -> None:
    for line in lines:
        assert (looks_like(line, "warning"), looks_like(line, "error")) == (warning, error), line


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"loss 0.5\n", "loss 0.5"),
        (b"loss\r\n", "loss"),
        (b"\x1b[31mred\x1b[0m", "red"),
        (b"\r 10%\r 20%", " 20%"),
        (b"a\tb", "a   b"),
        (b"bell \x07 and \x1b]0;title", "bell ? and ?]0;title"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("turned \u202e round".encode(), "turned ? round"),
        (b"</script><img onerror=x>", "</script><img onerror=x>"),
        (b"x" * 20_000, "x" * LINE_LETTERS + f" ... {20_000 - LINE_LETTERS} more characters"),
    ],
)
def test_how_a_line_is_shown(raw: bytes, shown: str) -> None:
    assert shown_line(raw) == shown


@given(some.binary(max_size=200))
def test_any_line_may_be_sent(raw: bytes) -> None:
    assert ViewPart(lines=[shown_line(raw)]).lines == [shown_line(raw)]


@pytest.mark.parametrize(
    ("wanted", "has"),
    [
        (Wanted(), True),
        (Wanted(("loss",)), True),
        (Wanted(("Loss",)), False),
        (Wanted(("acc", "loss")), True),
        (Wanted(("l.ss",)), False),
        (Wanted((), "warning"), True),
        (Wanted((), "error"), False),
        (Wanted(("loss",), "error"), False),
        (Wanted(("acc",), "warning"), False),
    ],
)
def test_a_line_is_wanted_that_has_one_of_the_texts_and_the_level(
    wanted: Wanted, has: bool
) -> None:
    assert wanted.has("WARNING: loss is nan") == has
    assert wanted.line(b"WARNING: loss is nan\n") == ("WARNING: loss is nan" if has else None)


def test_whether_every_line_is_wanted() -> None:
    wanted = [Wanted(), Wanted(("a",)), Wanted((), "error")]
    assert [one.all for one in wanted] == [True, False, False]


LONG = b"x" * (LINE_LETTERS + 12)
SHORT = b"x" * LINE_LETTERS


@given(some.lists(some.binary(max_size=30)), some.text(min_size=1, max_size=3))
@example([b"\x00"], "?")
@example([b"\xff"], "\N{REPLACEMENT CHARACTER}")
@example([b"a", LONG, b"b"], "x ... 12 more")
@example([SHORT, LONG], "characters")
def test_a_block_that_is_left_out_has_no_wanted_line(lines: list[bytes], text: str) -> None:
    wanted = Wanted((text,))
    block = b"\n".join(lines)
    if not wanted.may_be_in(block):
        assert not any(wanted.line(line) is not None for line in block.split(b"\n"))


@pytest.mark.parametrize(
    ("lines", "may"),
    [([SHORT], False), ([SHORT, b"y", SHORT], False), ([LONG], True), ([b"y", SHORT, LONG], True)],
)
def test_only_a_line_that_is_cut_has_more_words_than_its_block(
    lines: list[bytes], may: bool
) -> None:
    assert Wanted(("more characters",)).may_be_in(b"\n".join(lines)) == may


@pytest.mark.parametrize(
    ("block", "text", "may"),
    [
        (b"x\n\tab", "ab", True),
        (b"x\na\tb", "a   b", True),  # as it is shown
        (b"x\na b", "a   b", False),
        (b"lo\x1b[31mss\nx", "loss", True),
        (b"lo ss\nx", "loss", False),
        (b"x\n\xff", "\N{REPLACEMENT CHARACTER}", True),
        (b"x\n\x01", "a?", True),
        (b"x\n\x01", "a", False),
    ],
)
def test_what_is_shown_in_another_way_than_it_was_written_may_be_in_a_block(
    block: bytes, text: str, may: bool
) -> None:
    assert Wanted(("nowhere", text)).may_be_in(block) is may
    assert Wanted().may_be_in(block)
