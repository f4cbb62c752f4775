"""Metrics as people see them: in tables, in a line, drawn."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from features.metrics import TOPIC, view
from features.metrics.view import Status, draw_curves, draw_metrics, in_one_line, read_metrics
from features.metrics.wire import MetricLine, RunMetrics
from launcher.show.drawing import check_picture
from launcher.show.installation import how_to_install
from launcher.state.state_dir import StateDir
from rendezvous.wire.errors import ExitCode, Unavailable, UsageError
from rendezvous.wire.run import NodeState, RunStatus
from tests.launcher import command
from tests.launcher.command import rdzv
from tests.launcher.test_board import node, printed, run_status

NAN = {"loss/not_finite": 1.0}


def line(rank: int, step: int, at: float = 1.0, **values: float) -> MetricLine:
    """A row as the registry tells it; rank r is in slot r // 2."""
    number = step * 100 + rank
    return MetricLine(
        rank=rank, step=step, values=values, number=number, slot=rank // 2, at_seconds=at
    )


def shown(*rows: MetricLine, status: RunStatus | None = None, elapsed: float | None = None) -> str:
    return printed(draw_metrics(rows, status=status, elapsed_seconds=elapsed))


def launched(root: Path, *rows: MetricLine) -> StateDir:
    """A run that was launched here, with the rows that were kept of it."""
    state = command.launched(root)
    if rows:
        kept = b"".join(row.model_dump_json().encode() + b"\n" for row in rows)
        state.write("metrics.jsonl", kept)
    return state


# --- shown ----------------------------------------------------------------------------------------


def test_each_rank_has_a_row_with_its_step_and_values_and_when_it_told_them() -> None:
    rows = [line(1, 120, 60.0, loss=0.123456, lr=1e-4), line(0, 121, 95.0, loss=1.5, epoch=2)]
    assert shown(*rows, elapsed=100.0) == (
        "rank  step    loss  epoch      lr  updated\n"
        "0      121     1.5      2          now\n"
        "1      120  0.1235         0.0001  40 s ago\n"
        "slowest: rank 1 (slot 0) at step 120, the median is at 120.5"
    )


def test_a_value_that_is_not_finite_is_shown_in_its_own_column_and_counts_as_the_most() -> None:
    rows = [line(0, 5, **{"loss/not_finite": 1.0, "norm/not_finite": -2.0}), line(1, 5, loss=2.0)]
    assert shown(*rows) == "rank  step  loss  norm\n0        5   nan  -inf\n1        5     2"
    assert in_one_line(rows[:1]) == "progress: step 5, sent by 1 rank, loss nan, norm -inf"
    rows = [line(rank, 1, loss=float(rank)) for rank in range(30)]
    rows += [line(rank, 1, **{"loss/not_finite": code}) for rank, code in ((30, 2), (31, 1))]
    rows += [line(32, 1, **NAN)]
    least, median, most = (text.split() for text in shown(*rows).splitlines()[1:])
    assert (least[2], median[2], most[2]) == ("0", "16", "nan")


def test_the_slowest_rank_is_named_with_its_node() -> None:
    status = run_status(
        node(0, NodeState.RUNNING, node=1), node(1, NodeState.RUNNING, node=0, hostname="gpu-7")
    )
    told = {0: (50, 1.0), 1: (20, 2.0), 2: (20, 9.0), 3: (20, 5.0), 4: (50, 1.0), 5: (50, 9.0)}
    rows = [line(rank, step, at, loss=1.0) for rank, (step, at) in told.items()]
    last = shown(*rows, status=status).splitlines()[-1]
    assert last == "slowest: rank 2 (node 0, gpu-7) at step 20, the median is at 35"
    alike = "rank  step  loss\n0        5     2\n1        5     3"
    assert shown(line(0, 5, loss=2.0), line(1, 5, loss=3.0)) == alike


def test_many_ranks_are_told_of_by_least_median_and_most() -> None:
    rows = [line(rank, 100 + (rank + 1) % 3, loss=(7 * rank + 5) % 33 / 10) for rank in range(33)]
    assert shown(*rows, elapsed=10.0) == (
        "33 ranks  step  loss\n"
        "least      100     0\n"
        "median     101   1.6\n"
        "most       102   3.2\n"
        "slowest: rank 2 (slot 1) at step 100, the median is at 101"
    )
    assert len(shown(*rows[:32]).splitlines()) == 34


def test_of_many_values_the_first_are_shown_and_the_others_counted() -> None:
    text = shown(line(0, 1, **{f"v{n:02}": 1.0 for n in range(11)}))
    assert text.splitlines()[0].split() == ["rank", "step", *(f"v{n:02}" for n in range(8))]
    assert text.splitlines()[-1] == "and 3 more values: rdzv metrics RUN --json"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([line(0, 7, loss=0.5)], "step 7, sent by 1 rank, loss 0.5"),
        (
            [line(0, 8, loss=0.9), line(1, 7, loss=1.5, lr=0.1), line(2, 9), line(3, 8, loss=0.5)],
            "steps 7 to 9, sent by 4 ranks, median loss 0.9, median lr 0.1",
        ),
        ([line(0, 7)], "step 7, sent by 1 rank"),
    ],
)
def test_the_board_has_one_line(rows: list[MetricLine], words: str) -> None:
    assert in_one_line(rows) == f"progress: {words}"


def test_after_the_run_its_metrics_are_still_shown(tmp_path: Path) -> None:
    rows = [(0, 2, 2.0), (1, 1, 3.0), (0, 4, 1.0), (1, 3, 5.0)]
    launched(tmp_path, *(line(rank, step, loss=loss) for rank, step, loss in rows))
    result = rdzv("metrics", "llama", state=tmp_path)
    assert [text.rstrip() for text in result.stdout.splitlines()] == [
        "run llama   4 rows of 2 ranks, steps 1 to 4",
        "rank  step  loss",
        "0        4     1",
        "1        3     5",
        "slowest: rank 1 (slot 0) at step 3, the median is at 3.5",
    ]
    as_json = rdzv("metrics", "llama", "--json", state=tmp_path).stdout.splitlines()  # as it came
    assert [json.loads(text)["step"] for text in as_json] == [2, 1, 4, 3]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            [line(0, 1, loss=2.0, **{"eval/loss": 3.0}), line(0, 2, loss=1.0, another=4.0)],
            [["rank", "step", "loss", "eval/loss", "another"], ["0", "2", "1", "3", "4"]],
        ),
        (
            [line(0, 1, loss=2.0), line(1, 1, **NAN), line(1, 2, loss=4.0), line(0, 2, **NAN)],
            [["rank", "step", "loss"], ["0", "2", "nan"], ["1", "2", "4"]],
        ),
    ],
)
def test_a_value_that_not_every_row_has_is_shown_as_it_was_told_last(
    rows: list[MetricLine], told: list[list[str]], tmp_path: Path
) -> None:
    launched(tmp_path, *rows)
    shown = rdzv("metrics", "llama", state=tmp_path).stdout.splitlines()
    assert [text.split() for text in shown[1:]] == told


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    state = launched(tmp_path, line(0, 1), line(0, 2))
    whole = (state.path / "metrics.jsonl").read_bytes()
    (state.path / "metrics.jsonl").write_bytes(whole[:-20] + b"\n\xff\n" + whole)
    assert [row.step for row in read_metrics(state)] == [1, 1, 2]


def test_of_a_program_that_tells_nothing_it_is_said_how_it_would(tmp_path: Path) -> None:
    launched(tmp_path)
    result = rdzv("metrics", "llama", state=tmp_path)
    assert result.exit_code == ExitCode.USAGE
    assert result.stderr == (
        "rdzv: run 'llama' has not sent any metrics yet\n      'rdzv docs metrics' shows how a "
        "program sends them\n"
    )
    assert rdzv("metrics", "llama", "--json", state=tmp_path).stdout == ""
    both = rdzv("metrics", "llama", "--json", "--plot", "x.svg", state=tmp_path)
    assert (both.exit_code, "--plot and --json exclude each other" in both.stderr) == (
        ExitCode.USAGE,
        True,
    )


NEWEST = [line(0, 20, 71.0, loss=2.5), line(3, 22, 95.0, loss=3.25)]


@pytest.mark.parametrize("rows", [None, [], NEWEST])
async def test_the_status_of_a_run_in_progress_has_its_newest_rows(
    rows: list[MetricLine] | None,
) -> None:
    async def topic(topic: object, run: str) -> RunMetrics:
        assert (topic, run) == (TOPIC, "llama")
        if rows is None:
            raise Unavailable("refused")
        return RunMetrics(session="s", newest=6, elapsed_seconds=100.0, rows=rows)

    status = run_status(*(node(n, NodeState.RUNNING, node=n, hostname=f"gpu-{n}") for n in (0, 1)))
    client: Any = SimpleNamespace(topic=topic)
    found = await Status().live(client, status.model_copy(update={"run": "llama"}))
    assert found.values == {"metrics": [row.model_dump() for row in rows or []]}
    if not rows:
        assert found.draw is None
        return
    assert found.draw is not None
    assert printed(found.draw()).splitlines() == [
        "rank  step  loss  updated",
        "0       20   2.5  20 s ago",
        "3       22  3.25  now",
        "slowest: rank 0 (node 0, gpu-0) at step 20, the median is at 21",
    ]


# --- drawn ----------------------------------------------------------------------------------------


@pytest.mark.plot
@pytest.mark.parametrize(
    ("ranks", "name", "start"), [(1, "one.png", b"\x89PNG"), (9, "many.pdf", b"%PDF")]
)
def test_the_curves_are_drawn(ranks: int, name: str, start: bytes, tmp_path: Path) -> None:
    rows = [
        line(rank, step, loss=1 / (step + 1), **{"lr": 0.1} if rank == 0 else {})
        for step in range(5)
        for rank in range(ranks)
    ]
    rows += [line(rank, 5, **{"loss/not_finite": 1.0 + rank % 2}) for rank in range(ranks)]
    draw_curves(rows, "run a$b$", tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


def test_of_many_ranks_the_range_and_the_median_are_drawn_over_the_steps() -> None:
    """And a step at which no value is finite is a gap."""
    drawn: list[Any] = []

    def take(*what: Any, **_: Any) -> None:
        drawn.append(what)

    axes = SimpleNamespace(fill_between=take, plot=take)
    curves = {rank: {2: 10.0 + rank, 1: float(rank), 5: math.nan} for rank in range(9)}
    view._draw_range(axes, curves)
    (steps, least, most), (at, median) = drawn
    assert (steps, at) == ([1, 2, 5], [1, 2, 5])
    assert (least[:2], median[:2], most[:2]) == ([0.0, 10.0], [4.0, 14.0], [8.0, 18.0])
    assert all(math.isnan(values[2]) for values in (least, median, most))


@pytest.mark.plot
def test_the_picture_is_asked_for_by_a_file_s_name(tmp_path: Path) -> None:
    launched(tmp_path, line(0, 1), line(0, 3))  # rows without values make an empty one
    path = tmp_path / "loss.svg"
    result = rdzv("metrics", "llama", "--plot", str(path), state=tmp_path)
    assert (result.exit_code, result.stdout) == (0, f"drawn: {path}\n")
    assert b"<svg" in path.read_bytes()


@pytest.mark.plot
def test_a_picture_that_cannot_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError) as refused:
        draw_curves([line(0, 1)], "run r", tmp_path / "m.gif")
    assert refused.value.hint == "name a file that ends in .svg, .png or .pdf"
    with pytest.raises(UsageError, match=r"/none/m.svg cannot be written: No such file"):
        draw_curves([line(0, 1, loss=1.0)], "run r", tmp_path / "none" / "m.svg")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match="drawing needs matplotlib") as missing:
        check_picture(tmp_path / "m.svg")
    assert missing.value.hint == f"install it: {how_to_install('plot')}"
