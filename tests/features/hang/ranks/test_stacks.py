"""Stacks in the forms that each Python writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.hang.ranks.stacks import MOST_THREADS, Stacks, short_file, stacks_in
from features.hang.wire import MAX_FRAMES, Frame

LIBRARY = "/usr/lib/python3.11/threading.py"
OLD = f"""Thread 0x00007f0a (most recent call first):
  File "{LIBRARY}", line 312 in wait
  File "{LIBRARY}", line 1045 in _bootstrap

Current thread 0x00007f0b (most recent call first):
  File "/x/lib/python3.11/site-packages/torch/distributed/c10d.py", line 3252 in all_reduce
  File "/home/u/train.py", line 40 in <module>
"""
NEW = OLD.replace("0x00007f0a (", "0x00007f0a [Thread-1 (a) b] (").replace("7f0b (", "7f0b [m] (")
MAIN = [
    Frame("all_reduce", "torch/distributed/c10d.py", 3252),
    Frame("<module>", "/home/u/train.py", 40),
]
OTHER = [
    Frame("wait", "lib/python3.11/threading.py", 312),
    Frame("_bootstrap", "lib/python3.11/threading.py", 1045),
]


def frames(stacks: Stacks) -> tuple[list[Frame] | None, list[list[Frame]]]:
    main = stacks.main.frames if stacks.main else None
    return main, [stack.frames for stack in stacks.others]


@pytest.mark.parametrize("text", [OLD, NEW, OLD.replace("Current thread", "Thread")])
def test_the_main_thread_is_the_last_one(text: str) -> None:
    assert frames(stacks_in(text)) == (MAIN, [OTHER])


def test_one_thread_alone_has_a_head_of_its_own() -> None:
    text = "Stack" + OLD.split("\n\n")[0].removeprefix("Thread 0x00007f0a")
    assert frames(stacks_in(text)) == (OTHER, [])


def test_what_is_missing_is_said() -> None:
    lines = "\n".join(f'  File "a.py", line {n} in f{n}' for n in range(100))
    head = "Stack (most recent call first):\n"
    cut, whole = stacks_in(f"{head}{lines}\n  ...\n").main, stacks_in(f"{head}{lines}\n").main
    unfinished = stacks_in(f"{head}{lines}\n", finished=False).main
    assert [s.cut if s else None for s in (cut, whole, unfinished)] == [True, False, True]
    assert whole is not None
    assert len(whole.frames) == 100


@pytest.mark.parametrize(
    "line",
    [
        "  <no Python frame>",
        "  Garbage-collecting",
        "  <invalid frame>",
        "  File ",
        "",
        "  <freed>",
    ],
)
def test_lines_without_a_frame_are_passed_over(line: str) -> None:
    assert frames(stacks_in(f"Stack (most recent call first):\n{line}\n")) == ([], [])


def test_what_is_not_known_of_a_frame_is_left_open() -> None:
    text = "Stack (most recent call first):\n  File ???, line ??? in ???\n"
    assert frames(stacks_in(text)) == ([Frame("???", "???", 0)], [])


def test_of_more_threads_than_are_written_the_main_one_is_not_known() -> None:
    text = OLD.replace("Current thread", "Thread") + "...\n"
    assert frames(stacks_in(text)) == (None, [OTHER, MAIN])


def test_the_hooks_own_thread_is_not_told() -> None:
    ours = OLD.replace(LIBRARY, "/opt/x/worker/look/answering.py")
    assert frames(stacks_in(ours)) == (MAIN, [])


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/v/lib/python3.12/site-packages/torch/nn/m.py", "torch/nn/m.py"),
        ("/usr/lib/python3/dist-packages/yaml/n.py", "yaml/n.py"),
        ("/usr/lib64/python3.9/re.py", "lib/python3.9/re.py"),
        ("/usr/lib/python3.13t/re.py", "lib/python3.13t/re.py"),
        ("/home/u/lib/train.py", "/home/u/lib/train.py"),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
        ("/a\x1b[31m\u202e.py", "/a?[31m?.py"),
        ("/" + "a" * 300 + "/b.py", "…" + "a" * 194 + "/b.py"),
        ("", ""),
    ],
)
def test_files_are_named_as_people_do(path: str, short: str) -> None:
    assert short_file(path) == short


LINES = st.one_of(
    st.sampled_from([*OLD.split("\n"), *NEW.split("\n"), "...", "  ...", ""]),
    st.builds('  File "{}", line {} in {}'.format, st.text(), st.integers(), st.text()),
    st.text(),
)


@given(st.lists(LINES, max_size=300), st.booleans())
def test_anything_may_be_written_there(lines: list[str], finished: bool) -> None:
    stacks = stacks_in("\n".join(lines), finished=finished)
    assert len(stacks.others) < MOST_THREADS
    for stack in (*stacks.others, *filter(None, [stacks.main])):
        assert len(stack.frames) <= MAX_FRAMES
        assert type(stack).model_validate_json(stack.model_dump_json()) == stack
