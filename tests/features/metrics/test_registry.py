"""What the registry keeps of the progress that nodes tell of: newest rows, a bounded series."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from features.metrics import registry
from features.metrics.registry import MetricQuery, Store
from features.metrics.wire import (
    MOST_METRIC_ROWS,
    MetricBatch,
    MetricRow,
    RunMetrics,
)
from rendezvous.registry.app import make_app
from rendezvous.registry.topics import Received
from rendezvous.run.state import Run, create
from rendezvous.serving.guard import MAX_BODY_BYTES
from rendezvous.talk.credentials import SERVER_NAME
from rendezvous.wire.run import Phase
from tests.support.driver import FEW, make_spec
from tests.support.registry import Launch
from tests.support.served import Served, ask, serving


def batch(first: int, *steps: int, rank: int = 0, **values: float) -> MetricBatch:
    """Rows of one rank, numbered from `first`."""
    rows = [MetricRow(rank=rank, step=step, values=values) for step in steps]
    return MetricBatch(first=first, rows=rows)


def take(
    kept: Store, slot: int, message: MetricBatch, *, incarnation: int = 1, epoch: int = 1
) -> int:
    """Have it keep a batch, a second after the run was created."""
    sent = Received(run_of(epoch), slot, incarnation, message, 1.0)
    reply, count = kept.receive(sent)
    assert count == len(message.rows)
    return reply.expected


def run_of(epoch: int) -> Run:
    run = create("demo", make_spec(2), 0.0)
    run.epoch = epoch
    return run


def newest(kept: Store) -> RunMetrics:
    return RunMetrics.model_validate_json(kept.to_json(run_of(1), MetricQuery(), 2.0))


def series(kept: Store, after: int = 0) -> RunMetrics:
    return RunMetrics.model_validate_json(kept.to_json(run_of(1), MetricQuery(after=after), 2.0))


def steps(told: RunMetrics) -> list[tuple[int, int]]:
    return [(row.rank, row.step) for row in told.rows]


# --- what is kept ---------------------------------------------------------------------------------


def test_the_newest_row_of_each_rank_is_told_by_rank_and_all_rows_in_their_order() -> None:
    kept = Store()
    assert take(kept, 1, batch(1, 10, rank=3, loss=0.5)) == 2
    assert take(kept, 0, batch(1, 10, 11, rank=0, loss=0.25)) == 3
    assert take(kept, 1, batch(2, 12, rank=3, loss=0.125)) == 3
    told = newest(kept)
    assert (told.newest, told.dropped, told.elapsed_seconds) == (4, 0, 2.0)
    assert steps(told) == [(0, 11), (3, 12)]
    last = told.rows[1]
    assert (last.values, last.number, last.slot, last.at_seconds) == ({"loss": 0.125}, 4, 1, 1.0)
    assert steps(series(kept)) == [(3, 10), (0, 10), (0, 11), (3, 12)]
    assert steps(series(kept, 3)) == [(3, 12)]
    assert steps(series(kept, 4)) == []


@pytest.mark.parametrize(
    ("batches", "expected", "kept_steps", "dropped"),
    [
        ([(1, 1, 1, 2), (1, 1, 1, 2), (1, 2, 2, 3), (1, 1, 1)], [3, 3, 4, 4], [1, 2, 3], 0),
        ([(1, 1, 1), (1, 5, 5)], [2, 6], [1, 5], 3),
        ([(1, 1, 1, 2, 3), (2, 1, 1)], [4, 2], [1, 2, 3, 1], 0),
        ([(1, 3, 3)], [4], [3], 0),
    ],
    ids=["sent again after a lost answer", "dropped", "next incarnation", "registry came back"],
)
def test_rows_are_numbered_by_their_node(
    batches: list[tuple[int, ...]], expected: list[int], kept_steps: list[int], dropped: int
) -> None:
    kept = Store()
    said = [take(kept, 0, batch(*rest), incarnation=number) for number, *rest in batches]
    assert said == expected
    assert steps(series(kept)) == [(0, step) for step in kept_steps]
    assert newest(kept).dropped == dropped
    assert newest(kept).session != newest(Store()).session


def test_with_another_table_the_ranks_of_the_former_one_are_forgotten() -> None:
    kept = Store()
    take(kept, 0, batch(1, 1, rank=5))
    take(kept, 0, batch(2, 2, rank=0), epoch=2)
    assert steps(newest(kept)) == [(0, 2)]
    assert steps(series(kept)) == [(5, 1), (0, 2)]


def test_a_long_series_is_told_in_pieces() -> None:
    kept = Store()
    for number in range(1, 1_300, 100):
        take(kept, 0, batch(number, *range(number, number + 100)))
    first = series(kept)
    assert [row.number for row in first.rows] == list(range(1, 1_001))
    assert [row.number for row in series(kept, 1_000).rows] == list(range(1_001, 1_301))


def test_memory_is_bounded_for_the_series_and_for_the_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_SERIES_BYTES", 1_000)
    monkeypatch.setattr(registry, "_NEWEST_BYTES", 1_000)
    kept = Store()
    for rank in range(100):
        take(kept, rank, batch(1, 1, rank=rank, loss=0.5))
    told = newest(kept)
    assert 5 < len(told.rows) < 15
    assert [row.rank for row in told.rows] == list(range(len(told.rows)))  # the first that came
    last = series(kept).rows
    assert 5 < len(last) < 15
    assert last[-1].number == told.newest == 100
    take(kept, 0, batch(2, 2, rank=0, loss=0.25))  # a rank that is known goes on
    assert newest(kept).rows[0].step == 2
    for epoch in (2, 3):  # and each table has all the room
        for rank in range(50, 150):
            take(kept, 1, batch(rank, epoch, rank=rank, loss=0.5), incarnation=epoch, epoch=epoch)
        ranks = [row.rank for row in newest(kept).rows]
        assert ranks == list(range(50, 50 + len(ranks)))
        assert 5 < len(ranks) < 15


# --- what is taken in -----------------------------------------------------------------------------

GOOD: dict[str, Any] = {"rank": 0, "step": 1, "values": {"loss": 0.5, "eval/top-1_acc.": 3}}


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("rank", [-1, 1.0, True, 1 << 40]),
        ("step", [-1, "1", 1 << 60]),
        ("values", [{name: 1.0} for name in ("", "a b", "loss\n", "é", "x" * 65)]),
        ("values", [{"loss": value} for value in ("0.5", None, math.nan, math.inf, {"a": 1.0})]),
        ("values", [{f"v{n}": 1.0 for n in range(33)}, [["loss", 1.0]]]),
    ],
)
def test_a_row_that_is_not_as_agreed_is_refused(field: str, values: list[Any]) -> None:
    MetricRow.model_validate(GOOD)
    for value in values:
        with pytest.raises(ValidationError):
            MetricRow.model_validate(GOOD | {field: value})


VALUES = st.dictionaries(st.sampled_from(["loss", "a b"]), st.floats())


@FEW
@given(st.integers(-1, 9), st.integers(-1, 9), VALUES)
@example(0, 1, GOOD["values"])
def test_whatever_is_taken_in_can_be_told_again(rank: int, step: int, values: Any) -> None:
    try:
        row = MetricRow(rank=rank, step=step, values=values)
    except ValidationError:
        return
    kept = Store()
    take(kept, 0, MetricBatch(first=1, rows=[row]))
    (told,) = newest(kept).rows
    assert (told.rank, told.step, told.values) == (rank, step, row.values)
    json.loads(kept.to_json(run_of(1), MetricQuery(), 0.0), parse_constant=pytest.fail)


def test_a_batch_of_the_largest_rows_that_an_agent_sends_fits_into_a_body() -> None:
    values = {f"{'x' * 62}{n:02}": -1.2345678901234567e-300 for n in range(32)}
    row = MetricRow(rank=81_919_999, step=2**53 - 1, values=values)
    assert len(row.model_dump_json()) < MAX_BODY_BYTES / 10
    with pytest.raises(ValidationError):
        MetricBatch(first=1, rows=[row] * (MOST_METRIC_ROWS + 1))


# --- the routes -----------------------------------------------------------------------------------


served = pytest.fixture(serving)
DEMO = Launch("demo")


async def test_what_a_node_tells_is_read_by_those_who_may_look(served: Served) -> None:
    await served.bring_to(Phase.RUNNING, DEMO)
    app = make_app(served.service, allowed_hosts=[SERVER_NAME])
    host = served.host(DEMO)
    node = served.service.access.node_credential(host, 1, 1)
    before = host.number, host.version, host.news_seq
    served.let_pass(3.0)

    async def told(query: str = "") -> Any:
        return (await ask(app, "GET", f"/v1/runs/demo/metrics{query}", DEMO.keys.read)).json

    url = "/v1/runs/demo/nodes/1/metrics"
    said = batch(1, 7, 8, rank=2, loss=0.5).model_dump(mode="json")
    answer = await ask(app, "POST", url, node, said)
    assert (answer.status, answer.json) == (200, {"expected": 3})
    now = await told()
    assert [(row["rank"], row["step"], row["slot"]) for row in now["rows"]] == [(2, 8, 1)]
    assert now["rows"][0]["at_seconds"] == now["elapsed_seconds"] >= 3.0
    for after, expected in ((0, [7, 8]), (1, [8])):
        assert [row["step"] for row in (await told(f"?after={after}"))["rows"]] == expected
    assert served.service.counters["metrics"] == 2
    assert (host.number, host.version, host.news_seq) == before  # in no journal, and wake nobody
    for body in (b"", b"{", b"[]", b'{"first":1}', b'{"first":0,"rows":[]}'):
        assert (await ask(app, "POST", url, node, body)).problem == (400, "bad_request")
