"""The two streams of a rank, and what it said after a traceback, by value."""

from __future__ import annotations

import pytest

from rendezvous.cause.clues import LOGGED, Line, find_clues
from rendezvous.wire.evidence import Clue

HEAD = ["Traceback (most recent call last):", '  File "/opt/train.py", line 88, in main']
SOURCE = '    batch["labels"]'
RAISED = [*HEAD, SOURCE, "KeyError: 'labels'"]
EPOCH = "Epoch: [0]  [10/14786]  lr: 0.000100  loss: 20.2318"
MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 336.00 MiB."


def clues(*said: tuple[str, str], rank: int | None = 2, at: float | None = None) -> list[Clue]:
    """What is found in the lines, each with its stream."""
    return find_clues(Line(text, rank, at, stream=stream) for stream, text in said)


def err(*texts: str) -> list[tuple[str, str]]:
    return [("stderr", text) for text in texts]


def out(*texts: str) -> list[tuple[str, str]]:
    return [("stdout", text) for text in texts]


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("printed", [EPOCH, "Done", "step 3: loss 0.2", "ValueError: no", SOURCE])
@pytest.mark.parametrize("rank", [2, None])
def test_what_the_other_stream_says_meanwhile_is_not_of_the_traceback(
    printed: str, place: int, rank: int | None
) -> None:
    found = clues(*err(*RAISED[:place]), *out(printed), *err(*RAISED[place:]), rank=rank)
    (clue,) = (one for one in found if one.raised)
    assert (clue.line, clue.where) == ("KeyError: 'labels'", "train.py:88 in main")
    assert clue.last == (place < 4 or printed == SOURCE)


def test_a_message_of_several_lines_is_of_one_stream() -> None:
    texts = ["RuntimeError: sizes do not fit:", "  a: 3", "  b: 4"]
    said = [*err(*HEAD, texts[0]), *out("  epoch 3"), *err(texts[1]), *out("Done"), *err(texts[2])]
    assert [one.line for one in clues(*said)] == ["RuntimeError: sizes do not fit: a: 3; b: 4"]


def test_each_stream_may_have_a_traceback_and_the_later_one_counts() -> None:
    first = [*HEAD, "    go()", "ValueError: first"]
    said = [pair for each in zip(out(*first), err(*RAISED), strict=True) for pair in each]
    assert [one.line for one in clues(*said)] == ["ValueError: first", "KeyError: 'labels'"]


def test_what_went_on_is_seen_in_both_streams() -> None:
    went_on = out(*(f"layer {number} is {number}" for number in range(50)))
    assert clues(*err(*RAISED), *went_on) == []
    assert [one.id for one in clues(*err(*RAISED), *went_on[:9])] == ["exception"]


def test_the_prefix_of_torch_is_a_stream_of_its_own() -> None:
    """In merged logs, too: what has it is never said by somebody who has it not."""
    prefixed = [f"[rank2]: {text}" for text in RAISED]
    said = [Line(text) for text in (*prefixed[:3], "[rank2]:[W1123 00:52:57.6 x.cpp:1] Warning: x")]
    found = find_clues([*said, Line(EPOCH, 2), Line(prefixed[3])])
    assert [(one.line, one.rank, one.last) for one in found] == [("KeyError: 'labels'", 2, True)]


@pytest.mark.parametrize("printed", [EPOCH, "[10/14786] loss: 20.2", "saved", "loss: 0.3"])
@pytest.mark.parametrize("place", [2, 3])
def test_in_one_stream_progress_between_the_lines_of_a_traceback_is_no_exception(
    printed: str, place: int
) -> None:
    (clue,) = clues(*err(*RAISED[:place], printed, *RAISED[place:]))
    assert (clue.line, clue.where) == ("KeyError: 'labels'", "train.py:88 in main")


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("Boom: the batch is odd", ["  File is odd: 3"]),
        ("Boom", []),
        ("Boom: x", ["", "RuntimeError: in a summary"]),
        ("Boom: x", [*RAISED[:1], "    ..."]),
        ("acme.Boom: the batch is odd", ["ValueError: is told again"]),
        ("ValueError: the batch is odd", ["KeyError: is told again"]),
    ],
)
def test_an_exception_may_have_any_name(line: str, after: list[str]) -> None:
    found = clues(*err(*HEAD, SOURCE, line, *after))
    assert found[0].line.startswith(line)


def test_memory_is_told_whatever_was_printed_meanwhile() -> None:
    said = [
        *err(*HEAD, SOURCE),
        *out("Status: failed, rank 2 gives up after epoch 0"),
        *err(MEMORY),
    ]
    assert [(one.id, one.line) for one in clues(*said)] == [("cuda_memory", MEMORY)]
    assert LOGGED not in [one.id for one in clues(*said)]
