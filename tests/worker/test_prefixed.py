"""What a program prints behind a prefix, on a terminal that nodes share and elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.terminals import Screen
from tests.worker.test_terminal_rows import LIVE, NESTED
from worker.program.prefixed import IN_PLACE_SECONDS, LINE_SECONDS, PrefixedOutput


class Node:
    """The output of one node: on a terminal of this width, or elsewhere."""

    def __init__(self, number: int = 0, width: int | None = None) -> None:
        self.width = width
        self.now = 100.0
        self._output = PrefixedOutput(f"[{number}] ".encode(), lambda: self.width)
        self.written = b""

    def says(self, text: str | bytes, later: float = 0.0) -> Node:
        """It prints this, and then some time goes by."""
        data = text.encode() if isinstance(text, str) else text
        self.written += self._output.write(data, self.now)
        self.now += later
        return self

    def waits(self) -> Node:
        """It is silent for a moment."""
        self.written += self._output.idle(self.now)
        return self

    def ends(self) -> str:
        """All that was written."""
        self.written += self._output.close()
        return self.written.decode()


def bar(node: Node, states: Iterable[int] = range(101), seconds: float = 0.1) -> Node:
    for state in states:
        node.says(f"\r{state:3d}% of it", seconds)
    return node


def test_a_finished_line_that_holds_carriage_returns_has_its_prefix() -> None:
    assert Node().says("long xxxxxxxx\rdone\n").ends() == "[0] done\n"
    assert Node().says("one\r\ntwo\r\n").ends() == "[0] one\n[0] two\n"
    node = Node().says("long xxxxxxxx").waits()
    assert node.says("\rdone\n").ends() == "[0] long xxxxxxxx\n[0] done\n"


def test_elsewhere_a_bar_is_a_line_now_and_then_and_one_at_its_end() -> None:
    node = bar(Node(), seconds=1.0)
    assert node.says("\n").says("after\n").ends().splitlines() == [
        *(f"[0] {state:3d}% of it" for state in range(0, 101, int(LINE_SECONDS))),
        "[0] after",
    ]


def test_elsewhere_a_slow_bar_is_no_line_at_each_silence() -> None:
    node = Node()
    for state in range(40):
        node.says(f"\r{state}%", 1.0).waits()
    assert node.ends().splitlines() == ["[0] 0%", "[0] 9%", "[0] 19%", "[0] 29%", "[0] 39%"]


@pytest.mark.parametrize("end", ["\r100%\r      \r", "\r100%\r\x1b[K"])
def test_of_a_bar_that_is_cleared_nothing_is_left(end: str) -> None:
    assert Node().says(end).says("next\n").ends() == "[0] next\n"
    node = bar(Node(width=40)).says(end).waits()
    assert Screen(40).write(node.ends()).lines() == [""]


def test_on_a_terminal_a_bar_is_drawn_in_place() -> None:
    node = bar(Node(width=40))
    shown = Screen(40).write(node.written.decode()).lines()
    assert len(shown) == 1
    assert shown[0].startswith("[0] ")
    assert shown[0] > "[0]  89%"
    assert node.written.count(b"%") <= 1 + 101 * 0.1 / IN_PLACE_SECONDS
    node.waits()
    assert Screen(40).write(node.written.decode()).lines() == ["[0] 100% of it"]
    done = node.says("\n").says("after\n").ends()
    assert Screen(40).write(done).lines() == ["[0] 100% of it", "[0] after", ""]


def test_on_a_terminal_a_state_is_cut_to_one_row() -> None:
    """Wide letters and colours too, and a row that became narrower."""
    node = Node(width=20)
    node.says("\r\x1b[32m训练训练训练训练训练\x1b[0m").waits()
    assert node.written.decode() == "\x1b[K[0] \x1b[32m训练训练训练训\x1b[0m\x1b[0m\r"
    node = Node(width=60)
    node.says(f"\r{'x' * 80}").waits()
    node.width = 30
    node.now += IN_PLACE_SECONDS
    node.says(f"\r{'y' * 80}").waits()
    assert node.written.rpartition(b"\x1b[K")[2] == b"[0] " + b"y" * 25 + b"\r"


def test_a_question_that_is_not_answered_stays_and_goes_on() -> None:
    for width in (None, 40):
        node = Node(width=width).says("Go on? ").waits().says("yes").waits().says("!\nnext")
        assert Screen(40).write(node.ends()).lines() == ["[0] Go on? yes!", "[0] next", ""]


def test_what_becomes_a_bar_after_a_silence_is_drawn_over_on_a_terminal() -> None:
    for width, lines in ((None, ["[0] Loading", "[0]  50%"]), (40, [])):
        node = Node(width=width).says("Loading").waits().says("\r 50%").waits().says("\rok\n")
        assert Screen(40).write(node.ends()).lines() == [*lines, "[0] ok", ""]


def test_a_line_without_an_end_is_not_kept_for_ever() -> None:
    node = Node()
    for _ in range(200):
        node.says("x" * 500)
    assert len(node.written) > 60_000
    assert node.says("y\n").ends() == f"[0] {'x' * 100_000}y\n"
    node = Node().says("x" * 70_000).waits().waits()
    assert node.ends() == f"[0] {'x' * 70_000}\n"


def test_elsewhere_a_bar_that_is_empty_is_no_line() -> None:
    node = bar(Node(), range(9)).says("\r            \r", LINE_SECONDS).waits()
    assert node.says("next\n").ends().splitlines()[-2:] == ["[0]   0% of it", "[0] next"]


def test_nested_bars_neither_flood_nor_move_into_lines_of_others() -> None:
    for width in (None, 40):
        node = Node(width=width)
        for piece in (*NESTED[:2], *[NESTED[2]] * 100, *NESTED[3:], b"bye\n"):
            node.says(piece)
        shown = Screen(40).write(node.ends()).lines()
        assert shown == ["[0] outer 0%", "[0] outer 100%", "[0] bye", ""]
        node = Node(width=width)
        for piece in (*LIVE[:2], *[LIVE[2]] * 100, LIVE[3], b"bye\n"):
            node.says(piece)
        shown = Screen(40).write(node.ends()).lines()
        assert shown[-5:] == ["[0] a 100%", "[0] b 100%", "[0] c 100%", "[0] bye", ""]
        assert len(shown) < 9


PIECES = [*(f"\r{state}0% {'#' * state}" for state in range(10)), "\r", "\n", "a line\n", " 5%\r"]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(PIECES), st.booleans(), st.booleans()))
)
def test_on_a_shared_terminal_each_line_is_whole_and_nothing_is_left_of_bars(
    course: list[tuple[int, str, bool, bool]],
) -> None:
    """Four nodes in any order; the lines of each are those that it has without a terminal."""
    nodes = [Node(number, width=30) for number in range(4)]
    alone = [Node(number, width=30) for number in range(4)]
    screen = Screen(30)
    for number, piece, silent, late in course:
        before = len(nodes[number].written)
        nodes[number].says(piece, IN_PLACE_SECONDS if late else 0.0)
        alone[number].says(piece)
        if silent and "\r" in piece:
            nodes[number].waits()
        screen.write(nodes[number].written[before:].decode())
    for node in nodes:
        before = len(node.written)
        node.ends()
        screen.write(node.written[before:].decode())
    shown = screen.lines()
    for number, node in enumerate(alone):
        its = Screen(30).write(node.ends()).lines()
        assert [line for line in shown if line.startswith(f"[{number}]")] == its[: len(its) - 1]
