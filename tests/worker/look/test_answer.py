"""What is an answer of a rank, and what is none."""

from __future__ import annotations

import pytest

from worker.look.answer import Answer, answer_in

WHOLE = b"groups 12 4 3 2 0\n0\t0\nstk{}"


def test_an_answer_has_its_parts() -> None:
    assert answer_in(b"groups 12 6 3 2 1\n0\t0-3\nstk{}[") == Answer(
        "groups", 12, {"0": "0-3"}, "stk", (b"{}", b"[")
    )


@pytest.mark.parametrize(
    "data",
    [b"", WHOLE[:-1], WHOLE + b"x", b"other 1 0 0 0 0\n", b"groups 1 0 0 0\n", b"groups 1 0 0 0 0"],
)
def test_what_is_not_whole_is_no_answer(data: bytes) -> None:
    assert answer_in(data) is None
    assert answer_in(WHOLE) is not None


@pytest.mark.parametrize(
    ("line", "group"),
    [
        ("a b\t0,3\n", {"a b": "0,3"}),
        ("a\x1b\t0\n", {"a?": "0"}),
        ("a\tb\t<script>\n", {"a?b": ""}),
        ("x" * 300 + "\t" + "0," * 300, {"x" * 199 + "…": ""}),
    ],
)
def test_names_and_ranks_are_bounded(line: str, group: dict[str, str]) -> None:
    found = answer_in(f"imported 1 {len(line.encode())} 0 0 0\n{line}".encode())
    assert found is not None
    assert found.groups == group
