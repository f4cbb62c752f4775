"""The runs of a service: made, recovered, watched, ended and forgotten."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from rendezvous.registry import retention
from rendezvous.registry import service as service_module
from rendezvous.registry.options import Options
from rendezvous.registry.sqlite_journal import SqliteJournal
from rendezvous.talk.credentials import parse_credential
from rendezvous.wire.errors import (
    NotFound,
    RunExists,
    RunOver,
    SlotTaken,
    StorageFull,
    TooManyRuns,
    Unauthorized,
    Unavailable,
)
from rendezvous.wire.reports import AckReport, ExitReport, LeaveReport, ProgressReport
from rendezvous.wire.run import NodeState, Phase, SlotNews, SlotState
from rendezvous.wire.watch import NodeView
from tests.support.driver import make_probe, make_refusal
from tests.support.registry import Launch, is_waiting
from tests.support.served import FakeClock, Served, serving
from tests.support.waiting import soon

DEMO, OTHER, NEXT = Launch("demo"), Launch("other"), Launch("demo", "launch02")

served = pytest.fixture(serving)


def kinds(served: Served, after: int = 0, launch: Launch = DEMO) -> list[str]:
    """Of the run's events."""
    return [line.kind for line in served.host(launch).lines_after(after)]


async def end(served: Served, launch: Launch = DEMO) -> None:
    """A person cancels the run."""
    await served.service.cancel(served.host(launch), "enough")


# Recovery


async def test_a_recovered_run_is_the_same_in_every_part(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.sqlite")
    served = Served(journal, FakeClock())
    served.start()
    await served.bring_to(Phase.RUNNING, DEMO, 3)
    credentials = [(await served.join(DEMO, slot)).credential for slot in range(3)]
    before, news = served.host(DEMO).run, served.host(DEMO).news
    assert before.table is not None
    await journal.close()
    served.journal = SqliteJournal(tmp_path / "journal.sqlite")
    assert await served.is_what_the_journal_says(DEMO)
    await served.restart()
    assert (served.host(DEMO).run.slots, served.host(DEMO).news) == (before.slots, news)
    assert served.host(DEMO).run.digest == before.table.digest() != ""
    again = [(await served.join(DEMO, slot)).credential for slot in range(3)]
    assert again == credentials
    assert kinds(served, after=10) == ["restarted"]
    await served.end()
    await served.journal.close()


async def test_the_registrys_clock_stands_still_while_it_is_down(served: Served) -> None:
    await served.create(OTHER)
    await end(served, OTHER)
    await served.create(DEMO, join_timeout_seconds=60)
    served.let_pass(50)
    await served.join(DEMO, 0)
    await served.restart(away=100_000)
    assert served.service.now() == 50.0
    await soon(lambda: len(kinds(served)) == 3)
    assert served.host(DEMO).run.phase is Phase.GATHERING
    assert served.host(DEMO).lines_after(2)[0].at_seconds == 50.0
    assert kinds(served, launch=OTHER) == ["created", "cancelled"]  # it is not restarted


async def heard(served: Served, slot: int, seconds: int) -> None:
    """Time passes in which this node is heard of."""
    for _ in range(seconds):
        served.service.heard(served.host(DEMO), slot, 1, None)
        await served.clock.move(1)


async def test_after_a_restart_every_node_has_a_full_lease(served: Served) -> None:
    await served.bring_to(Phase.RUNNING, DEMO, lease_seconds=4)
    await heard(served, 0, 3)
    await served.report(DEMO, 0, ProgressReport(epoch=1, words="step 7"))
    await served.restart()
    await served.clock.move(3)
    assert len(served.host(DEMO).run.members()) == 2
    await served.clock.move(2)
    await soon(lambda: not served.host(DEMO).run.members())
    assert served.reasons(DEMO)[-1].startswith("node 1 (host1) was lost: it was silent")


@pytest.mark.parametrize("restarts", ["before the go", "after the go"])
async def test_a_released_node_that_dies_after_a_restart_is_noticed(
    served: Served, restarts: str
) -> None:
    await served.create(DEMO, 1, spares=1, lease_seconds=4)
    await asyncio.gather(*(served.join(DEMO, slot) for slot in (0, 1)))
    for slot in (0, 1):
        await served.report(DEMO, slot, make_probe(1, slot, (0, 1)))
    if restarts == "before the go":
        await served.restart()
    await served.report(DEMO, 0, AckReport(epoch=1, digest=served.host(DEMO).run.digest))
    if restarts == "after the go":
        await served.restart()
    spare = served.host(DEMO).run.slots[1]
    assert served.host(DEMO).run.phase is Phase.RUNNING
    assert spare.its_node.state is NodeState.RELEASED
    await heard(served, 0, 6)
    assert str(spare.its_node.state) == "left"
    assert served.reasons(DEMO)[-1].startswith(
        "slot 1 (host1), which was released, has left: it was silent"
    )


# Creation


async def test_the_same_creation_again_is_answered_as_before(served: Served) -> None:
    first, second = await asyncio.gather(served.create(DEMO), served.create(DEMO))
    await served.join(DEMO, 0)
    third = await served.create(DEMO)
    assert (first, third.version) == (second, first.version + 1)
    assert len(await served.journal.read("demo")) == 2


async def test_a_node_that_comes_before_the_first_run_is_to_come_again(served: Served) -> None:
    with pytest.raises(Unavailable, match="no run has been created here yet"):
        await served.join(DEMO, 0)
    await served.create(DEMO)
    assert (await served.join(DEMO, 0)).incarnation == 1
    with pytest.raises(Unauthorized):
        await served.join(OTHER, 0)


async def test_a_run_of_another_live_launch_is_not_taken(served: Served) -> None:
    await served.create(DEMO)
    served.let_pass(42)
    with pytest.raises(RunExists) as refusal:
        await served.create(NEXT)
    assert refusal.value.message == (
        "run ID 'demo' is in use by launch launch01 (started 42 s ago, gathering)"
    )
    assert "rdzv cancel demo" in refusal.value.hint
    # The same launch, whose registry has another address since, and not quite the same one.
    moved = DEMO.spec().model_copy(update={"registry": "10.0.3.8:29600"})
    assert (await served.service.create(DEMO.run, moved)).launch_id == moved.launch_id
    with pytest.raises(RunExists):
        await served.service.create(DEMO.run, moved.model_copy(update={"managed": False}))


async def test_a_launch_that_was_written_though_the_disk_said_otherwise_has_its_own_leases(
    served: Served,
) -> None:
    await served.create(DEMO, lease_seconds=5)
    await served.join(DEMO, 0)
    old = served.host(DEMO)
    await end(served)
    served.poll_long(DEMO)
    poll = served.watch(DEMO, after=old.news_seq)
    await asyncio.sleep(0)
    served.journal.lies = True
    with pytest.raises(StorageFull):
        await served.create(NEXT, lease_seconds=70)
    served.journal.lies = False
    assert (await poll).result is not None
    assert (await served.create(NEXT, lease_seconds=70)).launch_id == "launch02"
    assert (await served.join(NEXT, 0)).poll_seconds == 2.0
    assert await served.is_what_the_journal_says(NEXT)


async def test_a_finished_run_makes_room_for_the_next_launch_once_that_is_durable(
    served: Served,
) -> None:
    await served.bring_to(Phase.RUNNING, DEMO)
    served.poll_long(DEMO)
    old = served.host(DEMO)
    node = parse_credential((await served.join(DEMO, 0)).credential)
    await end(served)
    poll = served.watch(DEMO, after=old.news_seq)
    await asyncio.sleep(0)

    served.journal.is_full = True
    with pytest.raises(StorageFull):
        await served.create(NEXT)
    served.journal.is_full = False
    assert (served.host(DEMO) is old, poll.done()) == (True, False)

    stream = asyncio.create_task(served.service.event_lines(old, last := old.number))
    served.journal.open.clear()
    made = asyncio.create_task(served.create(NEXT))
    assert await is_waiting(made)
    assert (poll.done(), stream.done()) == (False, False)
    served.journal.open.set()
    assert (await made).launch_id == "launch02"
    assert await stream is None
    assert (await poll).result is not None
    with pytest.raises(RunOver, match=r"launch01 of run 'demo' has ended: .* enough"):
        served.service.access.node("demo", 0, node)
    with pytest.raises(Unauthorized):
        await served.join(DEMO, 0)
    with pytest.raises(RunOver, match="launch launch01 of run 'demo' has ended"):
        await served.service.report(old, 0, 1, LeaveReport())
    await served.join(NEXT, 0)
    numbers = [line.number for line in served.host(NEXT).lines_after(0)]
    assert numbers == [last + 1, last + 2, last + 3]  # the join of the former launch, too
    assert await served.is_what_the_journal_says(NEXT)


async def test_what_an_old_node_says_while_the_next_launch_is_made_harms_nobody(
    served: Served,
) -> None:
    await served.bring_to(Phase.RUNNING, DEMO)
    old = served.host(DEMO)
    await end(served)
    leaving = (served.service.report(old, slot, 1, LeaveReport()) for slot in (0, 1))
    outcomes = await asyncio.gather(served.create(NEXT), *leaving, return_exceptions=True)
    codes = [getattr(outcome, "code", "made") for outcome in outcomes]
    assert codes == ["made", "run_over", "run_over"]
    assert await served.is_what_the_journal_says(NEXT)


async def test_a_registry_takes_so_many_runs_at_once_whose_nodes_know_of_no_end(
    served: Served,
) -> None:
    served.options = Options(max_runs=2)
    await served.restart()
    one, two, three, *ended = (Launch(name) for name in ("one", "two", "three", "a", "b", "c"))
    for launch in ended:
        await served.create(launch)
        await end(served, launch)
    again = Launch("a", "launch02")
    await served.create(one)
    await served.create(again)  # the same name, launched again
    with pytest.raises(TooManyRuns):
        await served.create(Launch("b", "launch02"))
    await end(served, again)
    await served.create(two)
    with pytest.raises(TooManyRuns, match="cannot take another run: 2 are in progress") as refused:
        await served.create(three)
    assert "--max-runs" in refused.value.hint
    assert not refused.value.retryable
    await served.create(one)  # the same again
    await served.join(two, 0)
    await end(served, two)
    with pytest.raises(TooManyRuns):
        await served.create(three)
    await served.report(two, 0, LeaveReport())
    await served.create(three)


async def test_of_the_runs_that_have_ended_the_oldest_are_forgotten(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_KEEP_FINISHED", 2)
    ended = [Launch(f"ended-{number}") for number in range(4)]
    for launch in (*ended, OTHER):
        await served.create(launch)
    for number in (2, 0, 3, 1):
        await served.clock.move(1)
        await end(served, ended[number])
    kept = {"ended-3", "ended-1", "other"}
    await soon(lambda: set(served.service.sequencer.runs) == kept)
    assert set(await served.journal.runs()) == kept
    assert {status.run for status in (await served.service.statuses()).runs} == kept


async def test_the_polls_of_many_runs_together_cost_no_more_than_those_of_one(
    served: Served,
) -> None:
    one, other = Launch("one"), Launch("two")
    await served.create(one, 800)
    assert (await served.join(one, 0)).poll_seconds == 2.0
    await served.create(other, 800)
    assert [served.host(launch).leases.poll for launch in (one, other)] == [3.2, 3.2]
    assert (await served.join(other, 0)).poll_seconds == 3.2


# The end of a run


async def finish(served: Served) -> None:
    """Every node of the run is done, and leaves."""
    await served.bring_to(Phase.RUNNING, DEMO)
    for report in (ExitReport(epoch=1, exit_code=0), LeaveReport()):
        for slot in (0, 1):
            await served.report(DEMO, slot, report)


async def test_a_run_that_ended_long_ago_is_forgotten_once_that_can_be_written(
    served: Served,
) -> None:
    await finish(served)
    await served.create(OTHER, join_timeout_seconds=10_000)
    served.let_pass(3_500)
    await served.clock.move(1)
    assert served.host(DEMO).run.result is not None
    served.journal.is_full = True
    served.let_pass(200)
    await soon(lambda: served.journal.refused >= 2)
    assert served.host(DEMO).run.result is not None
    served.journal.is_full = False
    await soon(lambda: set(served.service.sequencer.runs) == {"other"})
    assert await served.journal.runs() == ["other"]
    assert served.is_alive
    with pytest.raises(NotFound):
        served.host(DEMO)
    await served.create(NEXT)
    assert [line.number for line in served.host(DEMO).lines_after(0)] == [1]


@pytest.mark.parametrize("sweep_first", [True, False])
async def test_a_run_that_is_made_again_in_the_moment_of_its_removal_is_kept(
    served: Served, sweep_first: bool
) -> None:
    await finish(served)
    count = len(served.journal.batches)
    served.journal.open.clear()
    other = asyncio.create_task(served.create(OTHER))
    await soon(lambda: len(served.journal.batches) > count)
    served.let_pass(3_700)
    if sweep_first:
        await asyncio.sleep(0.1)  # it stands in the queue by now
    made = asyncio.create_task(served.create(NEXT))
    await asyncio.sleep(0 if sweep_first else 0.1)
    served.journal.open.set()
    await asyncio.gather(other, made)
    await served.join(NEXT, 0)
    assert await served.is_what_the_journal_says(NEXT)


async def test_who_has_not_heard_how_the_run_ended_is_known(served: Served) -> None:
    await served.create(DEMO, 5, managed=False)
    await served.join(DEMO, 0)
    host = served.host(DEMO)
    assert (await served.service.status(host)).untold == []
    await served.service.refuse(host, 1, 1, make_refusal(1))
    assert host.run.result is not None
    assert (await served.service.status(host)).untold == [2, 3, 4]
    with pytest.raises(RunOver, match=r"slot 1 \(host1\) cannot take part: there is no GPU"):
        await served.join(DEMO, 2)
    await served.service.refuse(host, 3, 1, make_refusal(3, reason="another"))
    assert (await served.service.status(host)).untold == [4]
    assert host.run.result.slot == 1


# Watching


async def test_a_poll_without_news_has_the_reason_of_the_moment_and_no_table(
    served: Served,
) -> None:
    await served.bring_to(Phase.ARMING, DEMO, lease_seconds=8)
    host = served.host(DEMO)
    news = await served.service.watch(host, 0)
    served.let_pass(7)
    polls = (served.service.watch(host, host.news_seq) for _ in range(2))
    first, second = await asyncio.gather(*polls)
    assert first is second
    told, idle = (NodeView.model_validate_json(body.plain) for body in (news, first))
    assert told.table is not None
    assert hashlib.sha256(told.table.canonical()).hexdigest() == told.digest
    assert idle.reason.endswith("to get ready, 53 s left")
    assert idle == told.model_copy(update={"table": None, "reason": idle.reason})


async def test_news_reach_all_who_wait_as_the_same_bytes(served: Served) -> None:
    await served.create(DEMO)
    served.poll_long(DEMO)
    host = served.host(DEMO)
    polls = [asyncio.create_task(served.service.watch(host, 1)) for _ in range(1_200)]
    await asyncio.gather(*(served.join(DEMO, slot) for slot in (0, 1)))
    bodies = await asyncio.wait_for(asyncio.gather(*polls), 30)
    assert len({id(body.plain) for body in bodies}) == 1
    assert NodeView.model_validate_json(bodies[0].plain).phase is Phase.VERIFYING


async def test_a_stream_of_events_says_when_it_is_quiet_and_ends_with_the_last_event_kept(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "_QUIET_SECONDS", 0.01)
    await finish(served)
    host = served.host(DEMO)
    lines = await served.service.event_lines(host, 0) or []
    seen = ["probed", "acked", "exited", "left"]
    assert [line.kind for line in lines] == [
        "created", *(["joined"] * 2), *(kind for kind in seen for _ in range(2)),
    ]  # fmt: skip
    assert await served.service.event_lines(host, lines[-1].number) is None
    await served.create(OTHER)
    host = served.host(OTHER)
    assert await served.service.event_lines(host, 1) == []
    monkeypatch.undo()
    served.journal.open.clear()
    cancel = asyncio.create_task(end(served, OTHER))
    await soon(lambda: host.run.result is not None)
    told = asyncio.create_task(served.service.event_lines(host, 1))
    assert await is_waiting(told)
    served.journal.open.set()
    assert [line.kind for line in await told or []] == ["cancelled"]
    await cancel


async def test_news_of_a_slot_that_is_not_there_is_refused(served: Served) -> None:
    await served.create(DEMO)
    news = SlotNews(generation=1, state=SlotState.QUEUED)
    with pytest.raises(NotFound, match="run 'demo' has no slot 2"):
        await served.service.slot_news(served.host(DEMO), 2, news)


@pytest.mark.parametrize("any_slot", [False, True])
async def test_who_asks_for_a_slot_that_is_held_waits_for_the_end_unless_another_one_does(
    served: Served, any_slot: bool
) -> None:
    loss: Any = {"on_node_loss": "replace", "fence_timeout_seconds": 20.0}
    await served.create(DEMO, 2, **loss)
    for slot in (0, 1):
        await served.join(DEMO, slot)
    for _ in range(2):
        with pytest.raises(SlotTaken):
            await served.join(DEMO, 1, 2, any_slot=any_slot)
    await end(served)
    host = served.host(DEMO)
    assert (await served.service.status(host)).untold == ([] if any_slot else [1])
    with pytest.raises(RunOver):
        await served.join(DEMO, 1, 2, any_slot=any_slot)
    assert (await served.service.status(host)).untold == []
