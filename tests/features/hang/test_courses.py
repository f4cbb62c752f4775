"""People are shown a look as in `courses.txt`.

Who changes that writes the file anew (`make reference`), and reads in the diff what else has
changed.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from features.hang import view
from features.hang.page import Part
from features.hang.wire import Frame, LookReport, NodeLook, ProcessLook, RankLook, RunLook, Stack
from launcher.state.find_run import registry_of
from launcher.ui.parts import PageRun
from rendezvous.wire.errors import NotFound, TooManyRequests
from rendezvous.wire.question import QuestionCall
from rendezvous.wire.run import Result
from tests.launcher.test_status_courses import Course, course
from tests.support.courses import Told, lines_in, text_of
from tests.support.written import Written

KNOWN = Path(__file__).with_name("courses.txt")

LOADS = Stack(frames=[Frame(f"load_{n}", "train.py", 30 + n) for n in range(11)])
WAITS = Stack(frames=[Frame("all_reduce", "c10d.py", 9)], cut=True)
SLEEPS = Stack(frames=[Frame("sleep", "time.py", 4)])
LOOKED = RunLook(
    number=7,
    epoch=2,
    over=True,
    nodes=[
        NodeLook(
            slot=4,
            node=1,
            hostname="gpu-7",
            report=LookReport(
                number=7,
                epoch=2,
                stacks=[WAITS, LOADS, SLEEPS],
                ranks=[
                    RankLook(rank=5, pid=15, state="S", stack=0),
                    RankLook(
                        rank=6,
                        pid=16,
                        state="R",
                        stack=1,
                        cpu=4.25,
                        threads=[2],
                        children=[
                            ProcessLook(pid=77, name="loader", state="D", waits_in="nfs", stack=2),
                            ProcessLook(pid=78, name="feeder", state="", stack=9),
                        ],
                    ),
                ],
                launcher=ProcessLook(pid=3, name="torchrun", state="S", stack=2),
                unstarted=[6, 8],
            ),
        ),
        NodeLook(slot=0, node=2, hostname="gpu-9"),
        NodeLook(
            slot=1,
            node=0,
            hostname="gpu-4",
            report=LookReport(
                number=7,
                epoch=2,
                stacks=[LOADS, WAITS],
                ranks=[
                    RankLook(
                        rank=0,
                        pid=10,
                        stack=1,
                        state="S",
                        children=[ProcessLook(pid=9, name="loader", state="S", stack=None)],
                    ),
                    RankLook(rank=1, pid=11),
                ],
                words="half of it",
            ),
        ),
    ],
)


def a_look(made: Course) -> None:
    """Where its ranks are: short, whole, twice; of nodes that take their time."""
    asker, root = made.asker, made.asker.root
    made.folds(view)
    begun: Iterator[Written] = itertools.chain(
        [TooManyRequests("somebody has just looked"), QuestionCall(number=7)],
        itertools.repeat(QuestionCall(number=7)),
    )
    seen = itertools.chain([LOOKED.model_copy(update={"over": False})], itertools.repeat(LOOKED))

    def begin() -> Any:
        found = next(begun)
        if isinstance(found, Exception):
            raise found
        return found

    made.answers(POST_looks=begin, GET_looks=lambda: next(seen))
    base: dict[str, Any] = {"again": None, "everything": False, "as_json": False, "save": None}
    for how in (
        {},
        {"everything": True},
        {"again": 3.0, "save": root / "look.json"},
        {"as_json": True},
        {"save": root / "no folder" / "look.json"},
    ):
        asker.asks(f"look {sorted(how)}", view.show_look(root, "llama", **(base | how)))
        made.asked()
    asker.lines.append(f"saved {len(json.loads((root / 'look.json').read_text()))} values")
    assert (root / "look.json").stat().st_mode & 0o777 == 0o600
    made.width = 44
    asker.asks("look, narrow", view.show_look(root, "llama", **base))
    made.answers(POST_looks=NotFound("there is no such thing"))
    asker.asks("look", view.show_look(root, "llama", **base))
    made.state.write_result(Result(status="ok", exit_code=0, message="m"))
    asker.asks("look", view.show_look(root, "llama", **base))
    made.state.release()
    asker.asks("look", view.show_look(root, "llama", **base))


def on_the_page(made: Course) -> None:
    """What an act of the page answers, of processes beside the ranks too."""
    made.answers(POST_looks=QuestionCall(number=7), GET_looks=LOOKED)
    part = Part(cast(PageRun, SimpleNamespace(state_dir=made.state)))

    async def act() -> None:
        async with registry_of(made.state) as client:
            print(json.dumps(await part.acts()["look"](client)))

    made.asker.asks("look", act())


COURSES: dict[str, Callable[[], Told]] = {
    one.__name__: course(one) for one in (a_look, on_the_page)
}


@pytest.mark.parametrize("name", COURSES)
def test_what_is_shown(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)
