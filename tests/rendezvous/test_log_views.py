"""The views of a run's output in its registry: who is asked, what is kept, and what it may cost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rendezvous.channel import Asked
from rendezvous.feature import declared
from rendezvous.registry import log_views
from rendezvous.registry.app import make_app
from rendezvous.registry.log_views import (
    MOST_VIEWS,
    READER_SECONDS,
    RUN_RATE,
    SILENT_SECONDS,
    Budget,
    Limits,
)
from rendezvous.run.state import Run
from rendezvous.talk.credentials import SERVER_NAME, Credential
from rendezvous.wire.errors import NotFound, TooManyRequests
from rendezvous.wire.log_view import RunView, ViewPart, ViewPost, ViewReply, ViewRequest
from rendezvous.wire.reports import AckReport, ExitReport, LeaveReport
from rendezvous.wire.run import Phase, SlotNews, SlotState
from rendezvous.wire.watch import NodeView
from tests.support.driver import make_probe
from tests.support.registry import Launch
from tests.support.served import Answer, Served, ask, serving

DEMO = Launch("demo")

served = pytest.fixture(serving)


async def running(
    served: Served, nodes: int = 2, launch: Launch = DEMO, max_restarts: int = 0
) -> Run:
    """A run that goes."""
    await served.bring_to(Phase.RUNNING, launch, nodes, max_restarts=max_restarts)
    return served.host(launch).run


def view(served: Served, launch: Launch = DEMO, **asked: Any) -> int:
    """Somebody looks."""
    host, limits = served.host(launch), served.service.sequencer.view_limits
    return host.open_view(ViewRequest(**asked), served.service.now(), limits).view


def post(number: int, count: int, *lines: str, rank: int | None = 0, **more: Any) -> ViewPost:
    """What a node sends."""
    parts = [ViewPart(rank=rank, lines=list(lines))] if lines else []
    return ViewPost(view=number, number=count, parts=parts, **more)


def sent(served: Served, slot: int, said: ViewPost, launch: Launch = DEMO) -> ViewReply:
    """What a node is answered that sends this."""
    return served.host(launch).views.take((slot, 1), said, served.service.now())


def read(served: Served, number: int, after: int = 0, launch: Launch = DEMO) -> RunView:
    """What has come of it until now."""
    host = served.host(launch)
    body = host.views.written(host.run, number, after, served.service.now())
    return RunView.model_validate_json(body.plain)


def lines(found: RunView) -> list[str]:
    return [line for piece in found.pieces for part in piece.parts for line in part.lines]


def missing(found: RunView) -> list[tuple[int, str, str]]:
    return [(node.node, node.hostname, node.words) for node in found.nodes]


async def watched(served: Served, views: int) -> NodeView:
    """What a node is told that knows all news, and this view."""
    host = served.host(DEMO)
    body = await served.service.watch(host, host.news_seq, None, 0, views)
    return NodeView.model_validate_json(body.plain)


async def test_lines_come_in_the_order_in_which_they_were_sent(served: Served) -> None:
    await running(served)
    number = view(served, grep=["loss"])
    assert sent(served, 0, post(number, 1, "a", "b")) == ViewReply(goes_on=True)
    assert sent(served, 1, post(number, 1, "c", rank=1)).goes_on
    found = read(served, number)
    assert [(piece.seq, piece.node, piece.hostname) for piece in found.pieces] == [
        (1, 0, "host0"),
        (2, 1, "host1"),
    ]
    assert (lines(found), found.over) == (["a", "b", "c"], False)
    assert read(served, number) == found  # the answer was lost
    assert lines(read(served, number, 1)) == ["c"]
    assert lines(read(served, number)) == ["c"]  # what was read is not kept
    assert not sent(served, 0, post(number, 2, done=True)).goes_on
    sent(served, 1, post(number, 2, "d", rank=1, done=True))
    found = read(served, number, 2)
    assert (lines(found), found.over, found.nodes) == (["d"], True, [])


async def test_a_watch_is_answered_early_and_once(served: Served) -> None:
    await running(served)
    served.poll_long(DEMO)
    waits = asyncio.create_task(watched(served, 0))
    await asyncio.sleep(0.01)
    number = view(served, rank=1, level="error", follow=True)
    (order,) = (await asyncio.wait_for(waits, 5)).views or []
    assert (order.view, order.rank, order.level, order.follow) == (number, 1, "error", True)
    knows = asyncio.create_task(watched(served, number))
    await asyncio.sleep(0.01)
    assert not knows.done()
    other = view(served)
    told = await asyncio.wait_for(knows, 5)
    assert [each.view for each in told.views or []] == [number, other]
    served.let_pass(READER_SECONDS + 1)
    assert served.host(DEMO).views.newest(served.service.now()) == 0  # no node is asked any more


async def test_only_who_has_the_rank_is_waited_for(served: Served) -> None:
    await running(served)
    choices: list[dict[str, Any]] = [{"rank": 1}, {"node": 1}]
    for asked in choices:
        number = view(served, **asked)
        assert not sent(served, 0, post(number, 1, "a")).goes_on
        sent(served, 1, post(number, 1, done=True, words="there is no log of rank 1 on this node"))
        found = read(served, number)
        assert found.over
        assert missing(found) == [(1, "host1", "there is no log of rank 1 on this node")]
    with pytest.raises(NotFound, match=r"has the ranks 0 to \d+, but not 99"):
        view(served, rank=99)
    with pytest.raises(NotFound, match="has the nodes 0 to 1, but not 7"):
        view(served, node=7)


async def test_what_is_sent_again_counts_once(served: Served) -> None:
    await running(served)
    number = view(served)
    for _ in range(3):
        assert sent(served, 0, post(number, 1, "a")).goes_on
    assert lines(read(served, number)) == ["a"]


async def test_a_node_that_is_silent_is_not_waited_for_for_ever(served: Served) -> None:
    await running(served)
    number = view(served)
    sent(served, 0, post(number, 1, "a", done=True))
    served.let_pass(SILENT_SECONDS - 1)
    assert not read(served, number).over
    served.let_pass(1.5)
    found = read(served, number)
    assert found.over
    assert missing(found) == [(1, "host1", "it did not answer")]


async def test_a_node_that_goes_on_sending_is_waited_for(served: Served) -> None:
    await running(served, 3)
    number = view(served)
    sent(served, 0, post(number, 1, "a", done=True))
    for count in (1, 2, 3):
        served.let_pass(SILENT_SECONDS - 1)
        assert not read(served, number, count).over
        sent(served, 1, post(number, count, "b", rank=2))
    served.let_pass(SILENT_SECONDS - 1)
    found = read(served, number)
    assert (lines(found), found.over) == (["b"], False)
    served.let_pass(1.5)
    found = read(served, number)
    assert (found.over, [node.node for node in found.nodes]) == (True, [1, 2])


async def test_a_view_ends_with_its_reader(served: Served) -> None:
    await running(served)
    number = view(served)
    sent(served, 0, post(number, 1, "x" * 1_000))
    host, limits = served.host(DEMO), served.service.sequencer.view_limits
    assert host.views.held_bytes == limits.held > 1_000
    served.let_pass(READER_SECONDS + 1)
    assert not sent(served, 0, post(number, 2, "b")).goes_on
    with pytest.raises(NotFound, match=f"no view {number} any more"):
        read(served, number)
    assert host.views.held_bytes == limits.held == 0


async def test_a_run_has_a_few_views(served: Served) -> None:
    await running(served)
    for _ in range(MOST_VIEWS):
        view(served)
    with pytest.raises(TooManyRequests, match="has 8 views of its output"):
        view(served)
    served.let_pass(READER_SECONDS + 1)
    view(served)


async def test_memory_is_bounded_by_run_and_for_all(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Launch("other")
    await running(served)
    await running(served, launch=other)
    monkeypatch.setattr(served.service.sequencer, "view_limits", Limits(3_000, 1e9))
    number, second = view(served), view(served, other)
    served.host(DEMO).views._limits.most = 2_000
    assert sent(served, 0, post(number, 1, "x" * 1_500)).taken
    assert sent(served, 0, post(number, 2, "x" * 1_500)) == ViewReply(
        goes_on=True, taken=False, wait=1.0
    )
    assert sent(served, 0, post(second, 1, "x" * 1_000), other).taken
    assert not sent(served, 0, post(second, 2, "x" * 1_000), other).taken
    read(served, number, 1)
    assert sent(served, 0, post(second, 2, "x" * 1_000), other).taken
    assert sent(served, 0, post(number, 2, "x" * 500)).taken


async def test_what_there_was_no_room_for_is_taken_once_when_it_is_sent_again(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it counts until then: no letter, no number, and not that it was the last."""
    await running(served)
    shared, views = Limits(3_000, 1e9), served.host(DEMO).views
    monkeypatch.setattr(served.service.sequencer, "view_limits", shared)
    number = view(served)
    for limited in (views._limits, shared):
        views._limits.most, shared.most = 1 << 20, 1 << 20
        first, again = post(number, 1, "x" * 2_000), post(number, 2, "y" * 2_000, done=True)
        number = view(served)
        first, again = (one.model_copy(update={"view": number}) for one in (first, again))
        limited.most = 3_000
        assert sent(served, 0, first).taken
        held = views.held_bytes, shared.held
        for _ in range(2):
            refused = ViewReply(goes_on=True, taken=False, wait=1.0)
            assert sent(served, 0, again) == refused
            assert (views.held_bytes, shared.held) == held
        sent(served, 1, post(number, 1, done=True))
        found = read(served, number)
        assert (lines(found), found.over) == (["x" * 2_000], False)
        assert read(served, number, 1).pieces == []
        assert (views.held_bytes, shared.held) == (0, 0)
        for _ in range(2):
            assert not sent(served, 0, again).goes_on
            found = read(served, number, 1)
            assert (lines(found), found.over) == (["y" * 2_000], True)
        read(served, number, 2)


@pytest.mark.parametrize("own", [1e3, 1e9])
async def test_the_slower_of_the_runs_rate_and_that_of_all_counts(
    served: Served, monkeypatch: pytest.MonkeyPatch, own: float
) -> None:
    await running(served)
    views = served.host(DEMO).views
    monkeypatch.setattr(served.service.sequencer, "view_limits", Limits(rate=1e12 / own))
    views._limits.budget = Budget(own)
    number = view(served)
    assert 3.0 < sent(served, 0, post(number, 1, "x" * 5_000)).wait < 5.0


async def test_who_sends_fast_is_told_to_wait(served: Served) -> None:
    await running(served)
    number = view(served, follow=True)
    waits = [
        sent(served, 0, post(number, count, "x" * 16_000, "x" * 16_000, "x" * 16_000)).wait
        for count in range(1, 30)
    ]
    assert waits[0] == 0
    assert sorted(waits) == waits
    assert waits[-1] == pytest.approx(29 * 48_100 / RUN_RATE - 1, abs=0.05)


async def test_an_answer_to_the_reader_is_bounded(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_views, "_ANSWER_BYTES", 2_500)
    await running(served, 1)
    number = view(served)
    for count in range(1, 5):
        sent(served, 0, post(number, count, "x" * 1_000, done=count == 4))
    found = read(served, number)
    assert ([piece.seq for piece in found.pieces], found.over) == ([1, 2], False)
    found = read(served, number, 2)
    assert ([piece.seq for piece in found.pieces], found.over) == ([3, 4], True)


async def test_who_reads_is_woken(served: Served) -> None:
    await running(served)
    number = view(served)
    path = f"views?view={number}&wait=20"
    waits = asyncio.create_task(call(served, "GET", path, DEMO.keys.logs))
    await asyncio.sleep(0.01)
    assert not waits.done()
    sent(served, 0, post(number, 1, "a"))
    assert lines(RunView.model_validate_json((await asyncio.wait_for(waits, 5)).body)) == ["a"]
    waits = asyncio.create_task(call(served, "GET", f"{path}&after=1", DEMO.keys.logs))
    await asyncio.sleep(0.01)
    served.service.closing.set()
    await asyncio.wait_for(waits, 5)


async def test_with_the_run_a_view_is_over(served: Served) -> None:
    await running(served)
    number = view(served, follow=True)
    sent(served, 0, post(number, 1, "a"))
    await served.service.cancel(served.host(DEMO), "enough")
    found = read(served, number)
    assert (lines(found), found.over) == (["a"], False)  # its nodes may still have something
    answer = await call(served, "POST", "views", DEMO.keys.logs, {})
    assert answer.problem == (410, "run_over")


async def test_there_is_nothing_to_read_before_the_programs_run(served: Served) -> None:
    await served.bring_to(Phase.VERIFYING, DEMO, 2)
    answer = await call(served, "POST", "views", DEMO.keys.logs, {})
    assert answer.problem == (403, "forbidden")
    assert answer.json["hint"] == "'rdzv status demo' shows what it waits for"


@given(some.lists(some.tuples(some.floats(0, 3), some.integers(0, 1 << 20)), max_size=50))
def test_who_waits_as_told_stays_within_the_rate(steps: list[tuple[float, int]]) -> None:
    """Over any time: what was taken is the rate, one second's more, and the last piece."""
    budget, now, taken = Budget(1_000_000), 5.0, 0
    for pause, size in steps:
        assert taken <= 1_000_000 * (now - 5.0 + 1) + 1e-6 * now
        taken += size
        now += budget.take(size, now) + pause
    assert taken <= 1_000_000 * (now - 5.0 + 1) + 1


# --- other nodes, and older epochs ------------------------------------------------------------


async def go(served: Served, s1: int = 1) -> None:
    """All nodes of the run come to the go; slot 1, if filled again, has another incarnation."""
    run, incarnations = served.host(DEMO).run, {0: 1, 1: s1}
    if run.phase is Phase.VERIFYING:
        for slot, number in incarnations.items():
            await served.report(DEMO, slot, make_probe(run.epoch, slot, (0, 1)), number)
    ack = AckReport(epoch=run.epoch, digest=run.digest)
    for slot, number in incarnations.items():
        await served.report(DEMO, slot, ack, number)
    assert run.phase is Phase.RUNNING


async def failed(served: Served) -> None:
    """The program of node 1 has failed, and that of node 0 was stopped for it."""
    epoch = served.host(DEMO).run.epoch
    await served.report(DEMO, 1, ExitReport(epoch=epoch, exit_code=7))
    await served.report(DEMO, 0, ExitReport(epoch=epoch, exit_code=143, stopped=True))


async def replaced(served: Served, **changes: Any) -> None:
    """Another node is in slot 1."""
    digest = DEMO.token(1, 2).sha256()
    news = SlotNews(generation=2, state=SlotState.SUBMITTING, token_sha256=digest)
    await served.service.slot_news(served.host(DEMO), 1, news)
    values: dict[str, Any] = {"generation": 2, "hostname": "spare"}
    await served.join(DEMO, 1, 2, **values | changes)


def let_pass(served: Served, seconds: float, incarnation: int) -> None:
    """Time passes in which no node is silent."""
    for _ in range(int(seconds)):
        served.let_pass(1.0)
        for slot, number in ((0, 1), (1, incarnation)):
            served.service.heard(served.host(DEMO), slot, number, None)


async def test_a_view_goes_on_with_the_node_that_has_taken_a_place(served: Served) -> None:
    run = await running(served, max_restarts=9)
    number = view(served, rank=1, follow=True)
    sent(served, 1, post(number, 1, "one", rank=1))
    await failed(served)
    await replaced(served)
    assert run.phase is Phase.VERIFYING
    let_pass(served, SILENT_SECONDS + 5, 2)
    assert not read(served, number).over
    await go(served, s1=2)
    let_pass(served, SILENT_SECONDS - 1, 2)
    assert not read(served, number).over
    host = served.host(DEMO)
    said = post(number, 1, "two", rank=1)
    assert host.views.take((1, 2), said, served.service.now()).goes_on
    found = read(served, number, 1)
    assert [(piece.hostname, piece.parts[0].lines) for piece in found.pieces] == [
        ("spare", ["two"])
    ]
    let_pass(served, SILENT_SECONDS + 1, 2)
    assert read(served, number, 2).over


async def test_a_view_may_be_opened_while_the_nodes_gather_again(served: Served) -> None:
    await running(served, max_restarts=9)
    await failed(served)
    await replaced(served)
    number = view(served, follow=True)
    assert [one.view for one in (await watched(served, 0)).views or []] == [number]
    await go(served, s1=2)
    host = served.host(DEMO)
    assert host.views.take((1, 2), post(number, 1, "a"), served.service.now()).goes_on
    assert read(served, number).pieces[0].hostname == "spare"


async def test_a_view_is_that_of_who_has_the_rank_after_a_node_with_more_of_them(
    served: Served,
) -> None:
    await running(served, max_restarts=9)
    number = view(served, rank=2, follow=True)
    await failed(served)
    await replaced(served, nproc_per_node=1)
    await go(served, s1=2)
    with pytest.raises(NotFound, match="has the ranks 0 to 1, but not 2"):
        view(served, rank=2)
    with pytest.raises(NotFound, match="has the nodes 0 to 1 in epoch 1, but not 2"):
        view(served, node=2, epoch=1)
    assert not read(served, number).over  # the rank is gone, and what it has printed is not
    assert view(served, rank=2, epoch=1) > number


@pytest.mark.parametrize(
    ("asked", "ran"), [({"rank": 2}, "rank 2"), ({"node": 1}, "ranks 1-2"), ({}, "ranks 1-2")]
)
async def test_of_an_older_epoch_it_is_said_who_ran_a_rank_and_is_gone(
    served: Served, asked: dict[str, Any], ran: str
) -> None:
    run = await running(served, max_restarts=9)
    await failed(served)
    await replaced(served)
    await go(served, s1=2)
    first, now = run.starts.ended[0].epoch, served.service.now()
    number = view(served, epoch=first, **asked)
    host = served.host(DEMO)
    if not asked:
        sent(served, 0, post(number, 1, "a", done=True))
    none = post(number, 1, done=True, words=f"there is no log of rank 2 of epoch {first} here")
    host.views.take((1, 2), none, now)
    found = read(served, number)
    assert found.over
    words = f"it ran {ran} in epoch {first}, and has left with its log; "
    words += f"if it sent its last lines, they are in last-words/epoch-{first} of the run's state"
    assert missing(found) == [(1, "host1", f"{words} folder")]
    number = view(served, epoch=run.epoch, rank=1)
    host.views.take((1, 2), post(number, 1, "b", rank=1, done=True), now)
    assert missing(read(served, number)) == []


async def test_who_has_taken_a_place_may_read_the_same_folder(served: Served) -> None:
    await running(served, max_restarts=9)
    await failed(served)
    await replaced(served, hostname="host1")
    await go(served, s1=2)
    number = view(served, rank=1, epoch=1)
    said = post(number, 1, "of epoch 1", rank=1, done=True)
    served.host(DEMO).views.take((1, 2), said, served.service.now())
    found = read(served, number)
    assert (lines(found), found.over, found.nodes) == (["of epoch 1"], True, [])


async def test_the_node_that_ran_a_rank_is_asked_while_it_is_here(served: Served) -> None:
    run = await running(served, max_restarts=9)
    await failed(served)
    await go(served)
    assert run.epoch == 2
    number = view(served, rank=1, epoch=1)
    sent(served, 1, post(number, 1, done=True, words="there is no log of rank 1 on this node"))
    assert missing(read(served, number)) == [(1, "host1", "there is no log of rank 1 on this node")]


async def test_of_an_epoch_that_did_not_fail_there_are_no_last_words(served: Served) -> None:
    run = await running(served, max_restarts=9)
    await served.service.restart(served.host(DEMO), "new weights")
    for slot in range(2):
        report = ExitReport(epoch=1, exit_code=143, stopped=True)
        await served.report(DEMO, slot, report)
    await replaced(served)
    await go(served, s1=2)
    number = view(served, rank=1, epoch=1)
    let_pass(served, SILENT_SECONDS + 1, 2)
    [(node, host, words)] = missing(read(served, number))
    assert (node, host) == (1, "host1")
    assert words.endswith("; nodes send their last lines only in an epoch that fails")
    assert run.starts.placements[0].nodes[1].incarnation == 1


async def test_a_node_that_was_lost_is_named(served: Served) -> None:
    await running(served)
    await served.report(DEMO, 1, LeaveReport())
    number = view(served, rank=1)
    found = read(served, number)
    assert (found.over, missing(found)) == (True, [(1, "host1", "it has left")])


# --- over HTTP ------------------------------------------------------------------------------------


async def call(
    served: Served, method: str, path: str, shown: Credential, body: object = b""
) -> Answer:
    """A request of somebody with this credential."""
    app = make_app(served.service, allowed_hosts=[SERVER_NAME])
    return await ask(app, method, f"/v1/runs/demo/{path}", shown, body)


async def test_who_may_only_read_output_does_nothing_else(served: Served) -> None:
    await running(served)
    shown = DEMO.keys.logs
    assert shown.text().startswith("o.")
    number = (await call(served, "POST", "views", shown, {"rank": 0, "grep": ["l"]})).json["view"]
    node = served.service.access.node_credential(served.host(DEMO), 0, 1)
    said = {"view": number, "number": 1, "parts": [{"rank": 0, "lines": ["loss </script>"]}]}
    answer = await call(served, "POST", "nodes/0/views", node, said)
    assert (answer.status, answer.json["goes_on"]) == (200, True)
    seen = (await call(served, "GET", f"views?view={number}", shown)).json
    assert seen["pieces"][0]["parts"][0]["lines"] == ["loss </script>"]
    topics = [topic for feature in declared() for topic in feature.topics]
    asked = [("POST", topic.name) for topic in topics if isinstance(topic, Asked)]
    for method, path in (("GET", "events"), *asked, ("POST", "restart")):
        body = {"reason": ""} if path == "restart" else b""
        answer = await call(served, method, path, shown, body)
        assert answer.problem == (403, "forbidden"), path
    for other in (DEMO.keys.read, DEMO.keys.look, node):
        answer = await call(served, "POST", "views", other, {})
        assert answer.problem == (403, "forbidden")
        assert "cannot read the output of a run" in answer.json["message"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"rank": -1},
        {"rank": "0"},
        {"grep": [""]},
        {"grep": ["x" * 101]},
        {"grep": ["x"] * 9},
        {"grep": ["\x1b[2J"]},
        {"level": "info"},
        {"lines": 10_001},
        {"epoch": 0},
        {"since": -1.0},
    ],
)
async def test_what_is_asked_for_is_bounded(served: Served, wrong: dict[str, Any]) -> None:
    await running(served)
    answer = await call(served, "POST", "views", DEMO.keys.logs, wrong)
    assert answer.problem == (400, "bad_request")


async def test_a_request_names_no_file(served: Served) -> None:
    """What is not in the model is left out, and reaches no node."""
    await running(served)
    asked = {"rank": 0, "path": "/etc/shadow", "file": "../secret"}
    number = (await call(served, "POST", "views", DEMO.keys.logs, asked)).json["view"]
    (order,) = (await watched(served, 0)).views or []
    assert order.view == number
    assert "shadow" not in order.model_dump_json()


@pytest.mark.parametrize(
    "wrong",
    [
        {"parts": [{"rank": 0, "lines": ["\x1b[2J"]}]},
        {"parts": [{"rank": 0, "lines": ["x" * 20_000]}]},
        {"parts": [{"rank": 0, "lines": ["x"] * 4_097}]},
        {"parts": [{"rank": -1, "lines": []}]},
        {"parts": [{"rank": 0}] * 66},
        {"parts": [{"rank": 0, "skipped": -1}]},
        {"number": 0},
        {"words": "\x07"},
    ],
)
async def test_what_a_node_sends_is_bounded_and_plain(
    served: Served, wrong: dict[str, Any]
) -> None:
    await running(served)
    node = served.service.access.node_credential(served.host(DEMO), 0, 1)
    said = {"view": view(served), "number": 1} | wrong
    answer = await call(served, "POST", "nodes/0/views", node, said)
    assert answer.problem == (400, "bad_request")


async def test_who_sends_for_a_view_that_is_none_is_told_to_stop(served: Served) -> None:
    await running(served)
    number = view(served)
    assert sent(served, 0, post(number, 1, "a")).goes_on
    assert not sent(served, 0, post(number + 1, 1, "a")).goes_on
