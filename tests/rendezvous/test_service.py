"""The service, with a clock that is moved and a journal that waits or fails when it is told to."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from rendezvous.registry import sequencer, sweep
from rendezvous.registry.bereft import launcher_ended
from rendezvous.registry.journal import Record
from rendezvous.run.events import Cancelled
from rendezvous.serving.connection import CloseReason, Connection
from rendezvous.wire.errors import InternalError, NotFound, StorageFull, Unauthorized
from rendezvous.wire.node import Facts
from rendezvous.wire.reports import AckReport, ExitReport, LeaveReport, ProgressReport
from rendezvous.wire.run import Phase, SlotNews, SlotState
from tests.support.driver import make_probe
from tests.support.registry import Launch, is_waiting
from tests.support.served import FakeClock, Served, TroubledJournal, serving
from tests.support.virtual_time import run_virtually
from tests.support.waiting import soon

DEMO, OTHER = Launch("demo"), Launch("other")

served = pytest.fixture(serving)


def states(served: Served) -> list[str | None]:
    """Of the run's nodes."""
    slots = served.host(DEMO).run.slots
    return [str(slot.node.state) if slot.node else None for slot in slots]


# First durable, then told


async def test_nobody_is_told_of_an_event_before_it_is_kept(served: Served) -> None:
    status = await served.create(DEMO, 1)
    served.poll_long(DEMO)
    host = served.host(DEMO)
    served.journal.open.clear()
    join = asyncio.create_task(served.join(DEMO, 0))
    await soon(lambda: len(served.journal.batches) == 2)
    look = asyncio.create_task(served.service.status(host))
    wait = asyncio.create_task(served.service.wait_status(host, status.version, 5))
    events = asyncio.create_task(served.service.event_lines(host, 1))
    poll = served.watch(DEMO, after=host.news_seq)
    for task in (join, look, wait, events, poll):
        assert await is_waiting(task)
    assert len(await served.journal.read("demo")) == 1
    served.journal.open.set()
    assert (await join).incarnation == 1
    assert [node.node_state for node in (await look).slots] == ["joined"]
    assert (await wait).version == (await look).version > status.version
    assert [line.kind for line in await events or []] == ["joined"]
    assert (await poll).phase is Phase.VERIFYING


@pytest.mark.parametrize(
    ("options", "peer", "source", "here"),
    [
        ({}, "10.0.0.7", "10.0.0.7", False),
        ({}, "fe80::7%eth0", "fe80::7", False),
        ({"boot_id": "b"}, "127.0.0.1", "127.0.0.1", True),
        ({"boot_id": "b"}, "10.0.0.7", "10.0.0.7", False),
        ({"boot_id": "other"}, "127.0.0.1", "127.0.0.1", False),
        ({"trust_close": False, "boot_id": "b"}, "127.0.0.1", "", False),
    ],
)
async def test_where_a_node_joined_from_is_kept(
    options: dict[str, Any], peer: str, source: str, here: bool
) -> None:
    served = Served(TroubledJournal(), FakeClock(), **options)
    served.start()
    await served.create(DEMO, 2)
    request = replace(DEMO.join(0), facts=Facts(boot_id="b"))
    await served.service.join(DEMO.run, DEMO.token(0), request, peer)
    node = served.host(DEMO).run.slots[0].its_node
    assert (node.source, node.here) == (source, here)
    await served.end()


async def test_a_poll_that_ends_meanwhile_has_the_words_of_what_is_kept(served: Served) -> None:
    await served.create(DEMO, lease_seconds=2)
    await served.join(DEMO, 0)
    served.clock.seconds += 1
    served.journal.open.clear()
    join = asyncio.create_task(served.join(DEMO, 1))
    await soon(lambda: len(served.journal.batches) == 3)
    view = await served.watch(DEMO, after=served.host(DEMO).news_seq)
    assert view.phase is Phase.GATHERING
    assert view.reason.startswith("waiting for 2 of 2 nodes,")
    served.journal.open.set()
    await join


async def test_many_requests_share_few_commits(served: Served) -> None:
    await served.create(DEMO, 300)
    replies = await asyncio.gather(*(served.join(DEMO, slot) for slot in range(300)))
    assert len({reply.credential for reply in replies}) == 300
    assert served.service.counters["events"] == 301
    assert served.service.counters["commits"] == len(served.journal.batches) <= 4


async def test_what_a_watch_brings_is_written_after_a_moment(served: Served) -> None:
    await served.bring_to(Phase.ARMING, DEMO, 4)
    host, written = served.host(DEMO), len(served.journal.batches)
    ack = AckReport(epoch=1, digest=host.run.digest)
    await asyncio.gather(*(served.service.report(host, s, 1, ack, watches=True) for s in (0, 1)))
    assert served.journal.batches[written:] == [2]


async def test_what_a_watch_brings_is_written_with_what_comes_next(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write to a slow disk would delay the go; who has said it waits for news in any case."""
    monkeypatch.setattr(sequencer, "_MAY_WAIT_SECONDS", 600.0)
    monkeypatch.setattr(sweep, "SWEEP_SECONDS", 600.0)
    await served.restart()  # nor does a sweep come in between
    await served.bring_to(Phase.ARMING, DEMO, 4)
    host, written = served.host(DEMO), len(served.journal.batches)
    ack = AckReport(epoch=1, digest=host.run.digest)

    async def brings(slot: int) -> asyncio.Task[None]:
        report = served.service.report(host, slot, 1, ack, watches=True)
        task, number = asyncio.create_task(report), host.number
        await soon(lambda: host.number != number)
        return task

    some = [await brings(0), await brings(1)]
    assert len(served.journal.batches) == written
    status = await served.service.status(host)  # a person does not wait for more
    assert status.version == host.version == host.run.version
    await asyncio.gather(*some, await brings(2), await brings(3))  # the go is news for all
    assert (host.run.phase, served.journal.batches[written:]) == (Phase.RUNNING, [2, 2])


async def test_a_full_disk_is_told_to_all_that_were_to_be_written_together(
    served: Served,
) -> None:
    await served.bring_to(Phase.ARMING, DEMO, 2)
    host = served.host(DEMO)
    ack = AckReport(epoch=1, digest=host.run.digest)
    served.journal.is_full = True
    both = (served.service.report(host, slot, 1, ack, watches=True) for slot in (0, 1))
    refused = await asyncio.gather(*both, return_exceptions=True)
    assert [type(one) for one in refused] == [StorageFull, StorageFull]
    assert served.host(DEMO).run.phase is Phase.ARMING


async def test_more_requests_than_one_commit_takes_are_answered(served: Served) -> None:
    await served.create(DEMO)
    looks = (served.service.status(served.host(DEMO)) for _ in range(2_100))
    assert len(await asyncio.gather(*looks)) == 2_100


async def test_a_refusal_concerns_its_own_request_alone(served: Served) -> None:
    await served.create(DEMO, 3)
    served.journal.open.clear()
    first = asyncio.create_task(served.join(DEMO, 0))
    await soon(lambda: len(served.journal.batches) == 2)
    joins = [served.join(DEMO, *which) for which in ((1,), (0, 2), (2,))]
    others = asyncio.gather(*joins, return_exceptions=True)
    await asyncio.sleep(0)
    served.journal.open.set()
    await first
    outcomes = [getattr(outcome, "code", "joined") for outcome in await others]
    assert (outcomes, served.journal.batches) == (["joined", "slot_taken", "joined"], [1, 1, 2])


# A journal that cannot be written


async def test_a_full_disk_is_told_to_all_who_asked_and_changes_nothing(served: Served) -> None:
    await served.create(DEMO, 4)
    await served.join(DEMO, 0)
    served.poll_long(DEMO)
    poll = served.watch(DEMO, after=served.host(DEMO).news_seq)
    before = served.reasons(DEMO)
    served.journal.is_full = True
    joins = (served.join(DEMO, slot) for slot in (1, 2, 3))
    outcomes = await asyncio.gather(*joins, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StorageFull] * 3
    assert await served.is_what_the_journal_says(DEMO)
    assert served.reasons(DEMO) == before
    assert await is_waiting(poll)
    assert states(served) == ["joined", None, None, None]
    served.journal.is_full = False
    replies = await asyncio.gather(*(served.join(DEMO, slot) for slot in (1, 2, 3)))
    assert [reply.incarnation for reply in replies] == [1, 1, 1]
    assert len(served.reasons(DEMO)) == len(before) + 3
    assert (await poll).phase is Phase.VERIFYING


async def test_a_node_that_has_no_answer_to_its_join_lives_while_it_asks(served: Served) -> None:
    await served.create(DEMO, lease_seconds=10, join_timeout_seconds=600)
    for _ in range(4):
        await served.join(DEMO, 0)
        await served.clock.move(9)
    assert states(served)[0] == "joined"
    await served.clock.move(6)
    assert states(served)[0] is None


async def test_news_that_were_not_kept_are_never_told(served: Served) -> None:
    """What is to be told is written while the journal is: of a commit that fails it is thrown away,
    though the news that come in its place have the same number."""
    await served.create(DEMO)
    await served.join(DEMO, 0)
    served.poll_long(DEMO)
    poll = served.watch(DEMO, after=served.host(DEMO).news_seq)
    served.journal.is_full = True
    with pytest.raises(StorageFull):
        await served.join(DEMO, 1, hostname="forgotten")
    served.journal.is_full = False
    await served.join(DEMO, 1, 2, hostname="kept")
    plan = (await poll).plan
    assert plan is not None
    assert [peer.hostname for peer in plan.peers] == ["host0", "kept"]


async def test_a_run_that_cannot_be_written_says_so_instead_of_whom_it_waits_for(
    served: Served,
) -> None:
    await served.create(DEMO, join_timeout_seconds=600)
    await served.create(OTHER, join_timeout_seconds=600)
    served.journal.is_full = True
    for _ in range(4):  # the node tries again and again
        with pytest.raises(StorageFull):
            await served.join(DEMO, 0)
        await served.clock.move(5)
    words = "the disk is full; free space"
    status = await served.service.status(served.host(DEMO))
    assert (status.reason, status.trouble) == (words, words)
    assert status.unwritten_seconds == pytest.approx(20, abs=1)
    assert (await served.watch(DEMO, after=served.host(DEMO).news_seq)).reason == words
    other = await served.service.status(served.host(OTHER))  # nothing of this one was to be written
    assert (other.trouble, other.unwritten_seconds) == ("", 0.0)
    served.journal.is_full = False
    await served.join(DEMO, 0)
    status = await served.service.status(served.host(DEMO))
    assert (status.trouble, status.unwritten_seconds) == ("", 0.0)
    assert "waiting for 1 of 2 nodes" in status.reason


async def test_a_creation_that_was_not_kept_leaves_no_run(served: Served) -> None:
    served.journal.is_full = True
    with pytest.raises(StorageFull):
        await served.create(DEMO)
    with pytest.raises(NotFound):
        served.host(DEMO)
    served.journal.is_full = False
    assert (await served.create(DEMO)).phase is Phase.GATHERING


def test_a_closed_connection_is_judged_when_it_is_due_but_a_full_disk_no_sooner() -> None:
    async def work() -> None:
        clock = asyncio.get_running_loop().time
        journal = TroubledJournal()
        served = Served(journal, clock)
        served.start()
        await served.create(DEMO, 4)
        for slot in range(4):
            await served.join(DEMO, slot)
        await asyncio.sleep(0.13)  # at no moment of a sweep
        host = served.host(DEMO)

        def close(slot: int) -> float:
            host.leases.heard((slot, 1), clock(), slot)
            host.leases.closed((slot, 1), clock(), slot)
            return clock()

        closed_at = close(3)
        while host.run.slots[3].live_node() is not None:
            await asyncio.sleep(0.001)
        assert 1.0 <= clock() - closed_at < 1.02
        journal.is_full = True
        close(2)
        await asyncio.sleep(1.1)
        before = journal.refused
        await asyncio.sleep(3.0)
        assert 11 <= journal.refused - before <= 12
        await served.end()

    run_virtually(work())


async def test_nobody_is_refused_for_what_could_not_be_kept(served: Served) -> None:
    await served.create(DEMO)
    host, service = served.host(DEMO), served.service
    served.journal.is_full = True
    cancel = service.sequencer.change_run(host, lambda _: Cancelled(reason="enough"))
    told = await asyncio.gather(cancel, served.join(DEMO, 0), return_exceptions=True)
    assert [type(error) for error in told] == [StorageFull, StorageFull]
    served.journal.is_full = False
    assert (await served.join(DEMO, 0)).incarnation == 1


def test_a_registry_without_runs_was_awake_all_the_time() -> None:
    async def work() -> None:
        served = Served(TroubledJournal(), asyncio.get_running_loop().time)
        served.start()
        began = served.service.now()
        await asyncio.sleep(20.0)
        assert served.service.now() - began == pytest.approx(20.0)
        assert served.service.sequencer.clock.awake_seconds() == float("inf")
        await served.end()

    run_virtually(work())


async def test_what_time_brought_and_could_not_be_kept_is_decided_again(served: Served) -> None:
    await served.bring_to(Phase.RUNNING, DEMO, lease_seconds=3)
    served.journal.is_full = True
    await served.clock.move(4)
    await soon(lambda: served.journal.refused >= 2)
    assert (served.is_alive, states(served)) == (True, ["running", "running"])
    served.journal.is_full = False
    await served.clock.move(4)
    await soon(lambda: not served.host(DEMO).run.members())
    assert await served.is_what_the_journal_says(DEMO)


async def test_a_time_out_that_came_while_nothing_could_be_kept_says_why(served: Served) -> None:
    await served.create(DEMO, join_timeout_seconds=60)
    served.journal.is_full = True
    await served.clock.move(61)
    await soon(lambda: served.journal.refused >= 2)
    served.journal.is_full = False
    await soon(lambda: served.host(DEMO).run.result is not None)
    assert served.reasons(DEMO)[-1].endswith("within 60 s: the disk is full; free space")


@pytest.mark.parametrize(
    ("heard", "silent", "after"),
    [
        ([0, 1], 0, ["running", "running"]),  # for a moment: nobody is lost
        ([], 3, ["running", "lost"]),  # a commit that fails makes no silent node heard
    ],
)
async def test_a_commit_that_fails_once_changes_no_lease(
    served: Served, heard: list[int], silent: float, after: list[str]
) -> None:
    await served.bring_to(Phase.RUNNING, DEMO, lease_seconds=4)
    for _ in range(5 if heard else 0):
        for slot in heard:
            served.service.heard(served.host(DEMO), slot, 1, None)
        await served.clock.move(1)
    await served.clock.move(silent)
    served.journal.is_full = True
    with pytest.raises(StorageFull):
        await served.report(DEMO, 0, ProgressReport(epoch=1, words="step 7"))
    served.journal.is_full = False
    await served.clock.move(2)
    assert states(served) == after


async def test_after_a_failed_commit_all_runs_that_it_touched_are_read_again_and_no_others(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for launch in (DEMO, OTHER, Launch("third")):
        await served.create(launch)
    read: list[str] = []
    reads = served.journal.read

    async def reading(run: str) -> list[Record]:
        read.append(run)
        return await reads(run)  # type: ignore[no-any-return]

    monkeypatch.setattr(served.journal, "read", reading)
    served.journal.is_full = True
    joins = (served.join(launch, 0) for launch in (DEMO, OTHER))
    outcomes = await asyncio.gather(*joins, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StorageFull] * 2
    assert (served.journal.refused, sorted(read)) == (1, ["demo", "other"])
    for launch in (DEMO, OTHER):
        assert await served.is_what_the_journal_says(launch)


async def test_a_registry_that_comes_back_on_a_full_disk_serves_what_it_has(served: Served) -> None:
    await served.bring_to(Phase.RUNNING, DEMO)
    served.journal.is_full = True
    await served.restart()
    await soon(lambda: served.journal.refused > 0)
    view = await served.watch(DEMO)
    assert (view.phase, view.digest) == (Phase.RUNNING, served.host(DEMO).run.digest)
    assert served.is_alive


# A fault of the registry's own


async def test_a_fault_in_a_decision_is_answered_and_concerns_nobody_else(served: Served) -> None:
    await served.bring_to(Phase.VERIFYING, DEMO)
    nonsense: Any = object()
    outcomes = await asyncio.gather(
        served.report(DEMO, 0, make_probe(1, 0, [1])),
        served.report(DEMO, 0, nonsense),
        served.report(DEMO, 1, make_probe(1, 1, [0])),
        return_exceptions=True,
    )
    assert [isinstance(outcome, InternalError) for outcome in outcomes] == [False, True, False]
    assert served.host(DEMO).run.phase is Phase.ARMING
    assert await served.is_what_the_journal_says(DEMO)


async def test_a_fault_in_the_middle_of_a_change_is_undone(served: Served) -> None:
    await served.create(DEMO)
    bad = DEMO.join(0)
    object.__setattr__(bad, "candidates", [])
    with pytest.raises(InternalError, match="the registry failed; see its log"):
        await served.service.join(DEMO.run, DEMO.token(0), bad)
    assert served.host(DEMO).run.slots[0].incarnations == 0
    assert await served.is_what_the_journal_says(DEMO)
    assert (await served.join(DEMO, 0)).incarnation == 1
    assert served.is_alive


# Time in which the registry was not awake


async def test_a_stalled_registry_runs_out_no_time_out_and_no_lease(served: Served) -> None:
    await served.bring_to(Phase.VERIFYING, DEMO, verify_timeout_seconds=12)
    await served.clock.jump(3_600)
    await served.clock.move(1)
    assert served.host(DEMO).run.phase is Phase.VERIFYING
    assert served.service.now() == pytest.approx(1, abs=0.5)


@pytest.mark.parametrize(
    ("how", "before", "later", "after", "is_lost"),
    [
        (CloseReason.FIN, 0, 0, 0, True),
        (CloseReason.FIN, 30, 0, 0, False),
        (CloseReason.FIN, 30, 7, 0, True),
        (CloseReason.FIN, 0, 0, 30, False),
        (CloseReason.RST, 0, 0, 0, False),  # a firewall may have sent it
        (CloseReason.LOST, 0, 0, 0, False),
    ],
)
async def test_what_a_close_says_of_its_node(
    served: Served, how: CloseReason, before: float, later: float, after: float, is_lost: bool
) -> None:
    """Nothing right before or soon after a stall: it may be old, what was asked since may wait to
    be read, or nobody could come back."""
    await served.bring_to(Phase.ARMING, DEMO)
    await served.clock.jump(before)
    await served.clock.move(later)
    only = Connection("192.0.2.1")
    served.service.heard(served.host(DEMO), 1, 1, only)
    only.end(how)
    await asyncio.sleep(0)
    await served.clock.jump(after)
    await served.clock.move(3)
    assert (served.host(DEMO).run.phase is not Phase.ARMING) == is_lost


@pytest.mark.parametrize(
    ("told", "missed", "first"),
    [
        ([(0, 3, 0.0)], [(1, 134, 50.0)], 0),  # in its absence is none before it
        ([], [(0, 3, 30.0), (1, 4, 31.0)], 1),  # both in its absence: in their order
    ],
)
async def test_who_failed_first_is_known_though_the_registry_was_away(
    served: Served, told: list[Any], missed: list[Any], first: int
) -> None:
    await served.bring_to(Phase.RUNNING, DEMO)
    await served.clock.move(5)
    for away, reports in ((60, told), (0, missed)):
        for slot, code, age in reports:
            report = ExitReport(epoch=1, exit_code=code, age_seconds=age)
            await served.report(DEMO, slot, report)
        if away:
            await served.restart(away)
            await served.clock.move(1)
    result = served.host(DEMO).run.result
    assert result is not None
    assert result.slot == first


async def test_a_failure_that_waits_for_a_slow_disk_happened_before_one_that_comes_after_it(
    served: Served,
) -> None:
    await served.bring_to(Phase.RUNNING, DEMO)
    before = len(served.journal.batches)
    served.journal.open.clear()
    words = ProgressReport(epoch=1, words="NCCL uses sockets")
    writes = asyncio.create_task(served.report(DEMO, 1, words))
    await soon(lambda: len(served.journal.batches) > before)
    first = asyncio.create_task(served.report(DEMO, 0, ExitReport(epoch=1, exit_code=87)))
    assert await is_waiting(first)
    served.let_pass(0.3)
    served.journal.open.set()
    await asyncio.gather(writes, first)
    await served.report(DEMO, 1, ExitReport(epoch=1, exit_code=134, age_seconds=0.1))
    result = served.host(DEMO).run.result
    assert result is not None
    assert result.slot == 0


async def test_a_schedulers_queue_is_believed_in_while_its_launcher_is_heard_of(
    served: Served,
) -> None:
    await served.create(DEMO, join_timeout_seconds=60)
    for _ in range(3):
        news = SlotNews(generation=1, state=SlotState.QUEUED, detail="Priority")
        await served.service.slot_news(served.host(DEMO), 0, news)
        await served.service.slot_news(served.host(DEMO), 1, news)
        served.let_pass(119)
        await served.clock.move(0.6)
        assert [slot.state for slot in served.host(DEMO).run.slots] == [SlotState.QUEUED] * 2
    await served.clock.move(2)
    status = await served.service.status(served.host(DEMO))
    assert {(slot.state, slot.detail) for slot in status.slots} == {
        ("unknown", "it was queued when its launcher last reported")
    }
    served.let_pass(61)
    await soon(lambda: served.host(DEMO).run.phase is Phase.FINISHED)


@pytest.mark.parametrize(("phase", "ends"), [(Phase.VERIFYING, False), (Phase.RUNNING, True)])
async def test_without_its_launcher_a_run_that_was_let_go_ends_and_one_that_forms_waits(
    served: Served, phase: Phase, ends: bool
) -> None:
    await served.bring_to(phase, DEMO)
    await launcher_ended(served.service.sequencer, 0.0)
    result = served.host(DEMO).run.result
    assert (result is not None) == ends
    assert result is None or "its launcher was killed" in result.message
    assert served.service.closing.is_set() is not ends  # nothing changes a run that waits


async def test_what_has_happened_is_in_the_log_however_much_is_written_at_once(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    await served.create(DEMO, 3)
    await asyncio.gather(*(served.join(DEMO, slot) for slot in range(3)))
    caplog.clear()
    served.journal.open.clear()
    first = asyncio.create_task(served.report(DEMO, 0, LeaveReport()))
    await asyncio.sleep(0.01)
    later = [asyncio.create_task(served.report(DEMO, slot, LeaveReport())) for slot in (1, 2)]
    await asyncio.sleep(0.01)
    with caplog.at_level("DEBUG", logger="rendezvous.registry.sequencer"):
        served.journal.open.set()
        await asyncio.gather(first, *later)
    lines = [f"run demo epoch 1: {one.reason}" for one in served.host(DEMO).lines_after(0)]
    assert served.journal.batches[-2:] == [1, 2]
    assert caplog.messages == lines[-3:]


async def test_what_happens_to_a_registry_happens_to_all_of_its_runs(served: Served) -> None:
    launches = [DEMO, Launch("second"), Launch("third")]
    for launch in launches:
        await served.bring_to(Phase.RUNNING, launch, 2)
        connection = Connection("192.0.2.1")
        served.service.heard(served.host(launch), 1, 1, connection)
        connection.end(CloseReason.FIN)
    await asyncio.sleep(0)
    await served.clock.jump(30)  # it stands still: nobody could come back
    await served.clock.move(3)
    assert [served.host(launch).run.stop for launch in launches] == [False] * 3
    await served.restart(away=20.0)
    restarted = "the registry restarted from its journal"
    assert [served.reasons(launch)[-1].startswith(restarted) for launch in launches] == [True] * 3
    lives = [served.host(launch) for launch in launches]
    assert [live.news is not None for live in lives] == [True] * 3
    wait = served.service.wait_status
    waits = [asyncio.create_task(wait(live, live.version, 60.0)) for live in lives]
    await asyncio.sleep(0.01)
    served.service.closing.set()
    told = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), 5)
    assert [str(one) for one in told] == ["the registry is closing"] * 3


async def test_while_the_journal_is_away_no_time_passes(served: Served) -> None:
    launches = [DEMO, Launch("second"), Launch("third")]
    lives = []
    for launch in launches:
        await served.create(launch)
        lives.append(served.host(launch))
    for _ in range(2):
        before = served.service.now()
        served.service.sequencer.stand_still("the journal is away")
        served.service.sequencer.stand_still("it still is")
        served.let_pass(300)
        assert served.service.now() == before
        assert served.service.sequencer.standstill == "the journal is away"
        assert {live.trouble(live.now()) for live in lives} == {"the journal is away"}
        served.service.sequencer.go_on()
        assert {live.trouble(live.now()) for live in lives} == {""}
        assert served.service.now() == before
        served.clock.seconds += 0.5
        assert served.service.now() == before + 0.5


async def test_a_token_is_that_of_its_slot_and_generation_whatever_it_says(served: Served) -> None:
    await served.create(DEMO, 3)
    token = DEMO.token(1, 1)
    for other in (replace(token, number=2), replace(token, slot=2)):
        with pytest.raises(Unauthorized):
            await served.service.join(DEMO.run, other, DEMO.join(1))
    assert (await served.service.join(DEMO.run, token, DEMO.join(1)))[1].incarnation == 1


async def test_who_imports_torch_is_shown_by_node_while_programs_run(served: Served) -> None:
    """Nothing of it is written down: a watch tells it, and the next one that it is over."""
    await served.bring_to(Phase.RUNNING, DEMO, 2)
    host = served.host(DEMO)
    host.importing.add(1)
    assert host.status(served.service.now()).importing == [1]
    host.importing.symmetric_difference_update({0, 1})
    assert host.status(served.service.now(), slots=False).importing == [0]
    host.importing.clear()
    assert host.status(served.service.now()).importing == []
