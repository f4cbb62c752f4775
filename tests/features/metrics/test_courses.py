"""People are shown a run's metrics as in `courses.txt`.

Who changes that writes the file anew (`make reference`), and reads in the diff what else has
changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from features.metrics import FEATURE, FILE, view
from features.metrics.wire import MetricLine, RunMetrics
from launcher.show import status
from launcher.terminal import show as print_drawn
from rendezvous.wire.run import NodeState, Result
from tests.launcher.test_board import node, run_status
from tests.launcher.test_status_courses import GONE, RUN, RUNNING, Course, course
from tests.support.courses import Told, lines_in, text_of

KNOWN = Path(__file__).with_name("courses.txt")


def _metric(number: int, rank: int, at: int, step: int, seconds: float, **values: float) -> Any:
    return MetricLine(
        number=number, rank=rank, slot=at, step=step, at_seconds=seconds, values=values
    )


METRICS = [
    _metric(1, 0, 1, 10, 61.0, loss=2.5, lr=0.001),
    _metric(2, 5, 4, 12, 62.0, loss=3.25),
    _metric(3, 0, 1, 20, 71.0, **{"loss/not_finite": 1}),
    _metric(4, 7, 0, 7, 50.0, loss=1e6, tokens=123456789.0),
    _metric(5, 5, 4, 22, 72.5, lr=0.0005, **{"loss/not_finite": -2}),
    _metric(6, 0, 1, 20, 73.0, loss=2.25),
]


def its_metrics(made: Course) -> None:
    """How its processes get on: as a table, as a picture, of a few and of many ranks."""
    asker, root = made.asker, made.asker.root
    asker.asks("metrics", view.show_metrics(root, "llama", as_json=False, plot=None))
    rows = [row.model_dump_json() for row in METRICS]
    file = made.state.path / FILE
    file.write_text("\n".join([*rows[:3], rows[3][:20], *rows[3:], rows[0][:30]]))
    asker.asks("metrics", view.show_metrics(root, "llama", as_json=False, plot=None))
    asker.asks("metrics as JSON", view.show_metrics(root, "llama", as_json=True, plot=None))
    made.draws(view)
    plot = Path("curves.svg")
    asker.asks("a picture", view.show_metrics(root, "llama", as_json=False, plot=plot))
    many = [
        _metric(n, n * 3 % 37, n % 4, 5 + n % 2, 9.0 + n, loss=float(n), **{f"v{n % 11}": 2.0})
        for n in range(1, 40)
    ]
    file.write_text("".join(f"{row.model_dump_json()}\n" for row in many))
    asker.asks("metrics of many", view.show_metrics(root, "llama", as_json=False, plot=None))
    asker.asks("a picture", view.show_metrics(root, "llama", as_json=False, plot=plot))


def its_status(made: Course) -> None:
    """Of a run in progress: some, none, nobody answers; of one that has ended: some, none."""
    asker, root = made.asker, made.asker.root
    made.patch.setattr(status, "declared", lambda: (FEATURE,))
    made.dated()
    made.registry.answers[f"GET {RUN}"] = RUNNING
    none = RunMetrics(session="s", newest=0, elapsed_seconds=95.0)
    for found in (none.model_copy(update={"newest": 6, "rows": METRICS[3:]}), none, GONE):
        made.answers(GET_metrics=found)
        for as_json in (False, True):
            asker.asks("in progress", status.show_status(root, "llama", as_json=as_json))
        made.asked()
    made.state.write_result(Result(status="ok", exit_code=0, message="all ended"))
    kept = made.state.result()
    assert kept is not None
    made.keep("result.json", kept.model_copy(update={"ended_at": 1_764_084_000.5}))
    made.release()
    for text in ("", f"{METRICS[0].model_dump_json()}\n"):
        (made.state.path / FILE).write_text(text)
        for as_json in (False, True):
            asker.asks("ended", status.show_status(root, "llama", as_json=as_json))


def in_tables_and_lines(made: Course) -> None:
    """Of seven ranks on three nodes, of forty, and in one line each."""
    nodes = [node(n, NodeState.RUNNING, node=r) for n, r in ((0, 2), (2, 0), (5, 1))]
    stands = run_status(*nodes)
    few = [_row(rank, 100 - 7 * rank, (0, 2, 5)[rank % 3]) for rank in (6, 2, 0, 4, 1, 5, 3)]
    many = [_row(rank, 100 + rank * rank % 37, rank % 5) for rank in reversed(range(40))]
    draw = view.draw_metrics
    drawn = [draw(few, status=stands, elapsed_seconds=300.0), draw(few)]
    drawn += [draw(many, status=stands), draw(many, elapsed_seconds=300.0)]
    for each in drawn:
        made.asker.asks("drawn", partial(print_drawn, each))
    for rows in (few, many, few[:1]):
        made.asker.tell("|", view.in_one_line(rows))


def _row(rank: int, step: int, slot: int) -> MetricLine:
    values = {"loss": 2.5 - rank / 16, "lr": 3e-05, "tokens": 1_000.0 * (rank + 1)}
    if rank % 3:
        values["acc"] = 0.125 * rank
    at = 290.0 - 41 * rank
    return MetricLine(number=step, slot=slot, at_seconds=at, rank=rank, step=step, values=values)


COURSES: dict[str, Callable[[], Told]] = {
    one.__name__: course(one) for one in (its_metrics, its_status, in_tables_and_lines)
}


@pytest.mark.parametrize("name", COURSES)
def test_what_is_shown(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)
