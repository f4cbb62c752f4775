"""The service, with a clock that is moved and a journal that waits or fails when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rendezvous.run.state import Slot
from rendezvous.server import sequencer
from rendezvous.server import service as service_module
from rendezvous.server.answers import Body
from rendezvous.server.connection import CloseReason, Connection
from rendezvous.server.journal import Journal, MemoryJournal, Record, SqliteJournal
from rendezvous.server.live_run import LiveRun
from rendezvous.talk.credentials import Credential, parse_credential
from rendezvous.wire.errors import (
    InternalError,
    NotFound,
    RdzvError,
    RegistryError,
    RunExists,
    RunOver,
    StorageFull,
    TooManyRuns,
    Unauthorized,
    Unavailable,
)
from rendezvous.wire.node import JoinRequest
from rendezvous.wire.reports import AckReport, ExitReport, LeaveReport, ProgressReport, Report
from rendezvous.wire.run import EventLine, NodeState, Phase, SlotNews, SlotState
from rendezvous.wire.watch import NodeView
from tests.support.driver import make_probe, make_refusal
from tests.support.registry import Launch, is_waiting
from tests.support.served import FakeClock, Served
from tests.support.waiting import soon


class TroubledJournal(MemoryJournal):
    """Keeps records once its gate is open, and refuses them while its disk is full."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.open.set()
        self.is_full = False
        self.batches: list[int] = []
        self.refused = 0

    async def append(self, records: list[Record]) -> None:
        """See the base class."""
        self.batches.append(len(records))
        await self.open.wait()
        self._refuse_when_full()
        await super().append(records)

    async def drop(self, run: str) -> None:
        """See the base class."""
        self._refuse_when_full()
        await super().drop(run)

    def _refuse_when_full(self) -> None:
        if self.is_full:
            self.refused += 1
            raise StorageFull("the disk is full")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """A clock; the registry looks at it more often, so that nobody waits for the next sweep."""
    monkeypatch.setattr(sequencer, "SWEEP_SECONDS", 0.02)
    return FakeClock()


@pytest.fixture
def journal() -> TroubledJournal:
    """A journal in memory."""
    return TroubledJournal()


@pytest.fixture
async def served(journal: TroubledJournal, clock: FakeClock) -> AsyncIterator[Served]:
    """A service on that journal and clock."""
    made = Served(journal, clock)
    made.start()
    yield made
    await made.end()


@pytest.fixture
def launch() -> Launch:
    """The maker of run `demo`."""
    return Launch("demo")


async def recovered(journal: Journal, clock: FakeClock) -> Served:
    """Another service, built from the journal."""
    made = Served(journal, clock)
    made.service.sequencer.recover()
    return made


async def is_what_the_journal_says(served: Served, journal: Journal, launch: Launch) -> bool:
    """Whether a registry that is started now would have the same run."""
    other = await recovered(journal, served.clock)
    return other.host(launch).run == served.host(launch).run


# First durable, then told


async def test_an_event_is_kept_before_it_is_answered(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.create(launch)
    journal.open.clear()
    join = asyncio.create_task(served.join(launch, 0))
    assert await is_waiting(join)
    assert len(list(journal.read())) == 1
    journal.open.set()
    assert (await join).incarnation == 1
    assert len(list(journal.read())) == 2


async def test_a_watch_hears_of_an_event_once_it_is_kept(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.bring_to(Phase.VERIFYING, launch)
    await served.report(launch, 0, make_probe(1, 0, [1]))
    served.poll_long(launch)
    poll = served.watch(launch, after=served.host(launch).news_seq)
    journal.open.clear()
    report = asyncio.create_task(served.report(launch, 1, make_probe(1, 1, [0])))
    assert await is_waiting(poll)
    assert await is_waiting(report)
    journal.open.set()
    view = await poll
    assert (view.phase, view.table is not None) == (Phase.ARMING, True)


async def test_a_poll_that_ends_meanwhile_has_the_words_of_what_is_kept(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.create(launch, lease_seconds=2)
    await served.join(launch, 0)
    served.clock.seconds += 1
    journal.open.clear()
    join = asyncio.create_task(served.join(launch, 1))
    await soon(lambda: len(journal.batches) == 3)
    view = await served.watch(launch, after=served.host(launch).news_seq)
    first = view.reason.split(",")[0]
    assert (view.phase, first) == (Phase.GATHERING, "waiting for 2 of 2 nodes")
    journal.open.set()
    await join


async def test_people_are_told_what_is_kept(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    status = await served.create(launch)
    host = served.host(launch)
    journal.open.clear()
    join = asyncio.create_task(served.join(launch, 0))
    await soon(lambda: len(journal.batches) == 2)
    look = asyncio.create_task(served.service.status(host))
    wait = asyncio.create_task(served.service.wait_status(host, status.version, 5))
    events = asyncio.create_task(served.service.event_lines(host, 1))
    for task in (look, wait, events):
        assert await is_waiting(task)
    journal.open.set()
    assert [node.node_state for node in (await look).slots] == ["joined", None]
    assert (await wait).version == (await look).version > status.version
    assert [line.kind for line in await events or []] == ["joined"]
    await join


async def test_many_requests_share_few_commits(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.create(launch, 300)
    replies = await asyncio.gather(*(served.join(launch, slot) for slot in range(300)))
    assert len({reply.credential for reply in replies}) == 300
    assert served.service.counters["events"] == 301
    assert served.service.counters["commits"] == len(journal.batches) <= 4


async def test_a_refusal_concerns_its_own_request_alone(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.create(launch, 3)
    journal.open.clear()
    first = asyncio.create_task(served.join(launch, 0))
    await soon(lambda: len(journal.batches) == 2)
    others = asyncio.gather(
        served.join(launch, 1),
        served.join(launch, 0, attempt=2),
        served.join(launch, 2),
        return_exceptions=True,
    )
    await asyncio.sleep(0)
    journal.open.set()
    await first
    outcomes = [getattr(outcome, "code", "joined") for outcome in await others]
    assert (outcomes, journal.batches) == (["joined", "slot_taken", "joined"], [1, 1, 2])


# A journal that cannot be written


async def test_a_full_disk_is_told_to_all_who_asked_and_changes_nothing(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.create(launch, 4)
    await served.join(launch, 0)
    served.poll_long(launch)
    poll = served.watch(launch, after=served.host(launch).news_seq)
    before = served.reasons(launch)
    journal.is_full = True
    outcomes = await asyncio.gather(
        *(served.join(launch, slot) for slot in (1, 2, 3)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [StorageFull] * 3
    assert await is_what_the_journal_says(served, journal, launch)
    assert served.reasons(launch) == before
    assert await is_waiting(poll)
    status = await served.service.status(served.host(launch))
    assert [slot.node_state for slot in status.slots] == ["joined", None, None, None]
    journal.is_full = False
    replies = await asyncio.gather(*(served.join(launch, slot) for slot in (1, 2, 3)))
    assert [reply.incarnation for reply in replies] == [1, 1, 1]
    assert (await poll).phase is Phase.VERIFYING


async def test_a_run_that_cannot_be_written_says_so_instead_of_whom_it_waits_for(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    other = Launch("other")
    await served.create(launch, join_timeout_seconds=600)
    await served.create(other, join_timeout_seconds=600)
    journal.is_full = True
    for _ in range(9):  # the node tries again and again
        with pytest.raises(StorageFull):
            await served.join(launch, 0)
        await served.clock.move(5)
    status = await served.service.status(served.host(launch))
    assert (status.reason, status.trouble) == ("the disk is full", "the disk is full")
    assert status.unwritten_seconds == pytest.approx(45, abs=1)
    view = await served.watch(launch, after=served.host(launch).news_seq)
    assert view.reason == "the disk is full"
    # Nothing of this one was to be written.
    status = await served.service.status(served.host(other))
    assert (status.trouble, status.unwritten_seconds) == ("", 0.0)
    journal.is_full = False
    await served.join(launch, 0)
    status = await served.service.status(served.host(launch))
    assert (status.trouble, status.unwritten_seconds) == ("", 0.0)
    assert "waiting for 1 of 2 nodes" in status.reason


async def test_a_creation_that_was_not_kept_leaves_no_run(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    journal.is_full = True
    with pytest.raises(StorageFull):
        await served.create(launch)
    with pytest.raises(NotFound):
        served.host(launch)
    journal.is_full = False
    assert (await served.create(launch)).phase is Phase.GATHERING


async def test_a_replacement_that_was_not_kept_leaves_the_finished_run(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.bring_to(Phase.RUNNING, launch)
    await served.service.cancel(served.host(launch), "enough")
    before = served.host(launch).run
    journal.is_full = True
    with pytest.raises(StorageFull):
        await served.create(Launch("demo", "launch02"))
    assert served.host(launch).run == before
    view = await served.watch(launch)
    assert view.result is not None
    assert view.result.message == "run 'demo' was cancelled: enough"


async def test_time_outs_that_cannot_be_kept_are_decided_again(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.create(launch, join_timeout_seconds=60)
    journal.is_full = True
    await served.clock.move(61)
    await soon(lambda: journal.refused >= 2)
    assert served.is_alive
    assert served.host(launch).run.phase is Phase.GATHERING
    journal.is_full = False
    await soon(lambda: served.host(launch).news_seq > 1)
    assert served.host(launch).run.result is not None
    assert await is_what_the_journal_says(served, journal, launch)


async def test_a_node_whose_loss_could_not_be_kept_is_lost_later(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.bring_to(Phase.RUNNING, launch, lease_seconds=3)
    journal.is_full = True
    await served.clock.move(4)
    await soon(lambda: journal.refused > 0)
    assert [
        slot.node_state for slot in (await served.service.status(served.host(launch))).slots
    ] == [
        "running",
        "running",
    ]
    journal.is_full = False
    await served.clock.move(4)
    await soon(lambda: not served.host(launch).run.members())
    assert await is_what_the_journal_says(served, journal, launch)


async def test_nobody_is_lost_because_the_disk_was_full_for_a_moment(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.bring_to(Phase.RUNNING, launch, lease_seconds=3)
    await _stay(served, launch, 5)
    journal.is_full = True
    with pytest.raises(StorageFull):
        await served.report(launch, 0, ExitReport(epoch=1, exit_code=0))
    journal.is_full = False
    await served.clock.move(1)
    assert len(served.host(launch).run.members()) == 2


async def _stay(
    served: Served, launch: Launch, seconds: int, slots: Sequence[int] = (0, 1)
) -> None:
    """Time passes in which these nodes are heard of."""
    for _ in range(seconds):
        for slot in slots:
            served.service.heard(served.host(launch), slot, 1, None)
        await served.clock.move(1)


async def test_a_registry_that_comes_back_on_a_full_disk_serves_what_it_has(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.bring_to(Phase.RUNNING, launch)
    await served.end()
    journal.is_full = True
    again = await recovered(journal, served.clock)
    again.start()
    await soon(lambda: journal.refused > 0)
    view = await again.watch(launch)
    assert (view.phase, view.digest) == (Phase.RUNNING, again.host(launch).run.digest)
    assert again.is_alive
    await again.end()


# A fault of the registry's own


async def test_a_fault_in_a_decision_is_answered_and_concerns_nobody_else(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.bring_to(Phase.VERIFYING, launch)
    nonsense: Any = object()
    outcomes = await asyncio.gather(
        served.report(launch, 0, make_probe(1, 0, [1])),
        served.report(launch, 0, nonsense),
        served.report(launch, 1, make_probe(1, 1, [0])),
        return_exceptions=True,
    )
    assert [isinstance(outcome, InternalError) for outcome in outcomes] == [False, True, False]
    assert served.host(launch).run.phase is Phase.ARMING
    assert await is_what_the_journal_says(served, journal, launch)


async def test_a_fault_in_the_middle_of_a_change_is_undone(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.create(launch)
    good = launch.join(0)
    bad = JoinRequest.model_construct(**{**dict(good), "candidates": []})
    with pytest.raises(InternalError, match="the registry failed; its log says where"):
        await served.service.join(launch.run, launch.token(0), bad)
    assert served.host(launch).run.slots[0].incarnations == 0
    assert await is_what_the_journal_says(served, journal, launch)
    assert (await served.join(launch, 0)).incarnation == 1
    assert served.is_alive


# Recovery


async def test_a_recovered_run_is_the_same_in_every_part(
    tmp_path: Path, clock: FakeClock, launch: Launch
) -> None:
    journal = SqliteJournal(tmp_path / "journal.sqlite")
    first = Served(journal, clock)
    first.start()
    await first.bring_to(Phase.RUNNING, launch, 3)
    credentials = [(await first.join(launch, slot)).credential for slot in range(3)]
    before, news = first.host(launch).run, first.host(launch).news
    await first.end()
    await journal.close()

    journal = SqliteJournal(tmp_path / "journal.sqlite")
    second = await recovered(journal, clock)
    assert second.host(launch).run == before
    assert second.host(launch).news == news
    assert before.table is not None
    assert second.host(launch).run.digest == before.table.digest() != ""
    second.start()
    again = [(await second.join(launch, slot)).credential for slot in range(3)]
    assert again == credentials
    assert [line.kind for line in second.host(launch).lines_after(10)] == ["restarted"]
    await second.end()
    await journal.close()


async def test_the_registrys_clock_stands_still_while_it_is_down(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.create(launch, join_timeout_seconds=60)
    served.let_pass(50)
    await served.join(launch, 0)
    await served.end()
    served.clock.seconds += 100_000
    again = await recovered(journal, served.clock)
    assert again.service.now() == 50.0
    again.start()
    await soon(lambda: len(again.host(launch).lines_after(0)) == 3)
    assert again.host(launch).run.phase is Phase.GATHERING
    assert again.host(launch).lines_after(2)[0].at_seconds == 50.0
    await again.end()


async def test_after_a_restart_every_node_has_a_full_lease(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.bring_to(Phase.RUNNING, launch, lease_seconds=4)
    await _stay(served, launch, 6)
    await served.report(launch, 0, ProgressReport(epoch=1, words="step 7"))
    await served.end()
    again = await recovered(journal, served.clock)
    again.start()
    await again.clock.move(3)
    assert len(again.host(launch).run.members()) == 2
    await again.clock.move(2)
    await soon(lambda: not again.host(launch).run.members())
    assert again.reasons(launch)[-1].startswith("node 1 (host1, slot 1) was lost: it was silent")
    await again.end()


@pytest.mark.parametrize("restarts", ["before the go", "after the go"])
async def test_a_released_node_that_dies_after_a_restart_is_noticed(
    served: Served, journal: TroubledJournal, launch: Launch, restarts: str
) -> None:
    await served.create(launch, 1, spares=1, lease_seconds=4)
    await asyncio.gather(*(served.join(launch, slot) for slot in (0, 1)))
    for slot in (0, 1):
        await served.report(launch, slot, make_probe(1, slot, (0, 1)))
    now = served
    if restarts == "before the go":
        now = await restarted(served, journal)
    ack = AckReport(epoch=1, digest=now.host(launch).run.digest)
    await now.report(launch, 0, ack)
    if restarts == "after the go":
        now = await restarted(served, journal)
    spare = now.host(launch).run.slots[1]
    assert (now.host(launch).run.phase, _state(spare)) == (Phase.RUNNING, NodeState.RELEASED)
    await _stay(now, launch, 6, slots=[0])
    assert _state(spare) is NodeState.LEFT
    assert now.reasons(launch)[-1].startswith(
        "slot 1 (host1), which was released, has gone: it was silent"
    )
    await now.end()


async def restarted(served: Served, journal: Journal) -> Served:
    """The service after its process was killed and started again."""
    await served.end()
    again = await recovered(journal, served.clock)
    again.start()
    return again


def _state(slot: Slot) -> NodeState | None:
    return slot.node.state if slot.node is not None else None


async def test_a_finished_run_is_not_restarted(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.create(launch)
    await served.service.cancel(served.host(launch), "enough")
    await served.end()
    again = await recovered(journal, served.clock)
    again.start()
    await again.create(Launch("other"))
    assert [line.kind for line in again.host(launch).lines_after(0)] == ["created", "cancelled"]
    await again.end()


# Creation


async def test_the_same_creation_again_is_answered_as_before(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    first, second = await asyncio.gather(served.create(launch), served.create(launch))
    await served.join(launch, 0)
    third = await served.create(launch)
    assert (first, third.version) == (second, first.version + 1)
    assert len(list(journal.read())) == 2


async def test_a_node_that_comes_before_the_first_run_is_to_come_again(
    served: Served, launch: Launch
) -> None:
    with pytest.raises(Unavailable, match="no run has been created here yet"):
        await served.join(launch, 0)
    await served.create(launch)
    assert (await served.join(launch, 0)).incarnation == 1
    with pytest.raises(Unauthorized):
        await served.join(Launch("other"), 0)


async def test_a_launch_whose_registry_has_another_address_since_is_the_same(
    served: Served, launch: Launch
) -> None:
    await served.create(launch)
    moved = launch.spec().model_copy(update={"registry": "10.0.3.8:29600"})
    assert (await served.service.create(launch.run, moved)).launch_id == moved.launch_id
    with pytest.raises(RunExists):
        await served.service.create(launch.run, moved.model_copy(update={"managed": False}))


async def test_a_run_of_another_live_launch_is_not_taken(served: Served, launch: Launch) -> None:
    await served.create(launch)
    served.let_pass(42)
    with pytest.raises(RunExists) as refusal:
        await served.create(Launch("demo", "launch02"))
    assert refusal.value.message == (
        "run 'demo' is held by launch launch01, 42 s old and gathering"
    )
    assert "rdzv cancel demo" in refusal.value.hint


async def test_a_finished_run_makes_room_for_the_next_launch(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.bring_to(Phase.RUNNING, launch)
    old = served.host(launch)
    old_node = parse_credential((await served.join(launch, 0)).credential)
    await served.service.cancel(old, "enough")
    numbers = [line.number for line in old.lines_after(0)]
    stream = asyncio.create_task(served.service.event_lines(old, numbers[-1]))
    poll = asyncio.create_task(served.service.watch(old, old.news_seq))
    await asyncio.sleep(0)

    new = Launch("demo", "launch02")
    assert (await served.create(new)).launch_id == "launch02"
    assert await stream is None
    assert NodeView.model_validate_json((await poll).plain).result is not None
    with pytest.raises(RunOver, match=r"launch01 of run 'demo' is over: .* enough"):
        served.service.access.node("demo", 0, old_node)
    with pytest.raises(Unauthorized):
        await served.join(launch, 0)
    with pytest.raises(RunOver, match="launch launch01 of run 'demo' is over"):
        await served.service.report(old, 0, 1, LeaveReport())
    await served.join(new, 0)
    assert [line.number for line in served.host(new).lines_after(0)] == [
        numbers[-1] + 1,
        numbers[-1] + 2,
    ]
    assert await is_what_the_journal_says(served, journal, new)


async def _replaced(
    served: Served, launch: Launch
) -> tuple[LiveRun, asyncio.Task[Body], asyncio.Task[list[EventLine] | None]]:
    """A finished run, with those who wait for its news."""
    await served.bring_to(Phase.RUNNING, launch)
    served.poll_long(launch)
    old = served.host(launch)
    await served.service.cancel(old, "enough")
    poll = asyncio.create_task(served.service.watch(old, old.news_seq))
    stream = asyncio.create_task(served.service.event_lines(old, old.number))
    await asyncio.sleep(0)
    return old, poll, stream


async def test_who_watches_a_replaced_run_is_told_once_the_new_one_is_durable(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    _, poll, stream = await _replaced(served, launch)
    journal.open.clear()
    made = asyncio.create_task(served.create(Launch("demo", "launch02")))
    assert await is_waiting(made)
    assert not poll.done()
    assert not stream.done()
    journal.open.set()
    await made
    assert NodeView.model_validate_json((await poll).plain).result is not None
    assert await stream is None


async def test_a_run_whose_replacement_was_not_kept_stays_with_those_who_watch_it(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    old, poll, _ = await _replaced(served, launch)
    journal.is_full = True
    with pytest.raises(StorageFull):
        await served.create(Launch("demo", "launch02"))
    journal.is_full = False
    assert served.host(launch) is old
    assert not poll.done()
    await served.report(launch, 0, LeaveReport())
    await served.create(new := Launch("demo", "launch02"))
    await poll
    assert await is_what_the_journal_says(served, journal, new)


async def test_after_a_failed_commit_the_runs_that_it_touched_are_read_again_and_no_others(
    served: Served, journal: TroubledJournal, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    for made in (launch, Launch("other")):
        await served.create(made)
    read: list[str | None] = []

    def reading(run: str | None = None) -> Iterator[Record]:
        read.append(run)
        return MemoryJournal.read(journal, run)

    monkeypatch.setattr(journal, "read", reading)
    journal.is_full = True
    with pytest.raises(StorageFull):
        await served.join(launch, 0)
    assert read == ["demo"]


async def test_what_an_old_node_says_while_the_next_launch_is_made_harms_nobody(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.bring_to(Phase.RUNNING, launch)
    old = served.host(launch)
    await served.service.cancel(old, "enough")
    new = Launch("demo", "launch02")
    outcomes = await asyncio.gather(
        served.create(new),
        served.service.report(old, 0, 1, LeaveReport()),
        served.service.report(old, 1, 1, LeaveReport()),
        return_exceptions=True,
    )
    assert [getattr(outcome, "code", "made") for outcome in outcomes] == [
        "made",
        "run_over",
        "run_over",
    ]
    assert await is_what_the_journal_says(served, journal, new)


async def _end(served: Served, launch: Launch) -> None:
    await served.service.cancel(served.host(launch), "enough")


@pytest.fixture
async def served_2(clock: FakeClock) -> AsyncIterator[Served]:
    """A registry that takes two runs at once."""
    made = Served(MemoryJournal(), clock, max_runs=2)
    made.start()
    yield made
    await made.end()


async def test_a_registry_takes_only_so_many_runs_at_once(served_2: Served) -> None:
    one, two, three = (Launch(name) for name in ("one", "two", "three"))
    await served_2.create(one)
    await served_2.create(two)
    with pytest.raises(TooManyRuns, match="takes no further run: 2 are in progress") as refused:
        await served_2.create(three)
    assert "--max-runs" in refused.value.hint
    assert not refused.value.retryable
    await served_2.create(one)  # the same again


async def test_runs_that_have_ended_do_not_count(served_2: Served) -> None:
    for number in range(5):
        await served_2.create(launch := Launch(f"ended-{number}"))
        await _end(served_2, launch)
    await served_2.create(Launch("one"))
    await served_2.create(Launch("ended-0", "launch02"))  # the same name, launched again
    with pytest.raises(TooManyRuns):
        await served_2.create(Launch("ended-1", "launch02"))


async def test_a_run_counts_until_its_nodes_know_that_it_has_ended(served_2: Served) -> None:
    one, two, three = (Launch(name) for name in ("one", "two", "three"))
    await served_2.create(one)
    await served_2.create(two)
    await served_2.join(two, 0)
    await _end(served_2, two)
    with pytest.raises(TooManyRuns):
        await served_2.create(three)
    await served_2.report(two, 0, LeaveReport())
    await served_2.create(three)


async def test_of_the_runs_that_have_ended_the_oldest_are_forgotten(
    served: Served, journal: TroubledJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequencer, "_KEEP_FINISHED", 2)
    ended = [Launch(f"ended-{number}") for number in range(4)]
    for launch in (*ended, going := Launch("going")):
        await served.create(launch)
    for launch in (ended[2], ended[0], ended[3], ended[1]):
        await served.clock.move(1)
        await _end(served, launch)
    kept = {ended[3].run, ended[1].run, going.run}
    await soon(lambda: {record.run for record in journal.read()} == kept)
    assert {status.run for status in await served.service.statuses()} == kept


async def test_many_runs_at_once_do_not_see_each_other(
    served: Served, journal: TroubledJournal
) -> None:
    launches = [Launch(f"run{number}") for number in range(20)]
    await asyncio.gather(*(served.bring_to(Phase.ARMING, launch, 3) for launch in launches))
    tables = [served.host(launch).run.table for launch in launches]
    assert [table and table.run for table in tables] == [launch.run for launch in launches]
    assert len({served.host(launch).run.digest for launch in launches}) == 20
    for launch in launches:
        assert [line.kind for line in served.host(launch).lines_after(0)] == (
            ["created"] + ["joined"] * 3 + ["probed"] * 3
        )
    await served.service.cancel(served.host(launches[7]), "enough")
    phases = [status.phase for status in await served.service.statuses()]
    assert (phases.count(Phase.ARMING), phases[7]) == (19, Phase.FINISHED)
    assert served.service.phases()[Phase.ARMING] == 19


# The end of a run


async def _finish(served: Served, launch: Launch) -> None:
    await served.bring_to(Phase.RUNNING, launch)
    for report in (ExitReport(epoch=1, exit_code=0), LeaveReport()):
        for slot in (0, 1):
            await served.report(launch, slot, report)


async def test_a_run_that_ended_long_ago_is_forgotten(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await _finish(served, launch)
    await served.create(Launch("other"), join_timeout_seconds=10_000)
    served.let_pass(3_500)
    await served.clock.move(1)
    assert served.host(launch).run.result is not None
    served.let_pass(200)
    await soon(lambda: {record.run for record in journal.read()} == {"other"})
    with pytest.raises(NotFound):
        served.host(launch)
    await served.create(Launch("demo", "launch02"))
    assert [line.number for line in served.host(launch).lines_after(0)] == [1]


async def test_a_run_that_cannot_be_removed_is_kept_until_it_can(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await _finish(served, launch)
    journal.is_full = True
    served.let_pass(3_700)
    await soon(lambda: journal.refused >= 2)
    assert served.host(launch).run.result is not None
    journal.is_full = False
    await soon(lambda: not list(journal.read()))
    assert served.is_alive


@pytest.mark.parametrize("sweep_first", [True, False])
async def test_a_run_that_is_made_again_in_the_moment_of_its_removal_is_kept(
    served: Served, journal: TroubledJournal, launch: Launch, sweep_first: bool
) -> None:
    await _finish(served, launch)
    new, count = Launch("demo", "launch02"), len(journal.batches)
    journal.open.clear()
    other = asyncio.create_task(served.create(Launch("other")))
    await soon(lambda: len(journal.batches) > count)
    served.let_pass(3_700)
    if sweep_first:
        await asyncio.sleep(0.1)  # it stands in the queue by now
    made = asyncio.create_task(served.create(new))
    await asyncio.sleep(0 if sweep_first else 0.1)
    journal.open.set()
    await asyncio.gather(other, made)
    await served.join(new, 0)
    assert await is_what_the_journal_says(served, journal, new)


async def test_waiting_requests_end_when_the_registry_closes(
    served: Served, launch: Launch
) -> None:
    status = await served.create(launch)
    host = served.host(launch)
    polls = [
        served.watch(launch, after=host.news_seq),
        asyncio.create_task(served.service.wait_status(host, status.version, 25)),
    ]
    stream = asyncio.create_task(served.service.event_lines(host, 1))
    await asyncio.sleep(0)
    served.service.closing.set()
    for outcome in await asyncio.gather(*polls, return_exceptions=True):
        assert isinstance(outcome, Unavailable)
        assert outcome.message == "the registry is closing"
    assert await stream is None
    for late in (served.join(launch, 0), served.service.watch(host, 99)):
        with pytest.raises(Unavailable):
            await asyncio.wait_for(late, 1)


# Watching


async def test_a_poll_without_news_has_the_reason_of_the_moment_and_no_table(
    served: Served, launch: Launch
) -> None:
    await served.bring_to(Phase.ARMING, launch, lease_seconds=8)
    host = served.host(launch)
    news = await served.service.watch(host, 0)
    served.let_pass(7)
    first, second = await asyncio.gather(
        served.service.watch(host, host.news_seq), served.service.watch(host, host.news_seq)
    )
    assert first is second
    told, idle = (NodeView.model_validate_json(body.plain) for body in (news, first))
    assert told.table is not None
    assert hashlib.sha256(told.table.canonical()).hexdigest() == told.digest
    assert idle == told.model_copy(
        update={
            "table": None,
            "reason": "waiting for node 0 (host0, slot 0), node 1 (host1, slot 1) "
            "to acknowledge the table, 53 s left",
        }
    )


async def test_news_reach_all_who_wait_as_the_same_bytes(served: Served, launch: Launch) -> None:
    await served.create(launch)
    served.poll_long(launch)
    host = served.host(launch)
    polls = [asyncio.create_task(served.service.watch(host, 1)) for _ in range(1_200)]
    await asyncio.gather(*(served.join(launch, slot) for slot in (0, 1)))
    bodies = await asyncio.wait_for(asyncio.gather(*polls), 30)
    assert len({id(body.plain) for body in bodies}) == 1
    assert NodeView.model_validate_json(bodies[0].plain).phase is Phase.VERIFYING


async def test_a_quiet_stream_of_events_says_so_now_and_then(
    served: Served, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "_QUIET_SECONDS", 0.01)
    await served.create(launch)
    assert await served.service.event_lines(served.host(launch), 1) == []


async def test_the_stream_of_events_ends_with_the_last_event(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await _finish(served, launch)
    host = served.host(launch)
    lines = await served.service.event_lines(host, 0) or []
    assert [line.kind for line in lines] == (
        ["created"] + ["joined"] * 2 + ["probed"] * 2 + ["acked"] * 2 + ["exited"] * 2
    ) + ["left"] * 2
    assert await served.service.event_lines(host, lines[-1].number) is None


async def test_the_stream_of_events_waits_for_a_last_event_that_is_being_kept(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.create(launch)
    last = served.host(launch).lines_after(0)[-1].number
    journal.open.clear()
    cancel = asyncio.create_task(served.service.cancel(served.host(launch), "enough"))
    await soon(lambda: len(journal.batches) == 2)
    lines = asyncio.create_task(served.service.event_lines(served.host(launch), last))
    assert await is_waiting(lines)
    journal.open.set()
    assert [line.kind for line in await lines or []] == ["cancelled"]
    await cancel


async def test_news_of_a_slot_that_is_not_there_is_refused(served: Served, launch: Launch) -> None:
    await served.create(launch)
    with pytest.raises(NotFound, match="run 'demo' has no slot 2"):
        await served.service.slot_news(
            served.host(launch), 2, SlotNews(generation=1, state=SlotState.QUEUED)
        )


# Nodes that do not join


async def test_who_has_not_heard_how_the_run_ended_is_known(served: Served, launch: Launch) -> None:
    await served.create(launch, 5, managed=False)
    await served.join(launch, 0)
    host = served.host(launch)
    assert (await served.service.status(host)).untold == []
    await served.service.refuse(host, 1, 1, make_refusal(1))
    assert host.run.result is not None
    assert (await served.service.status(host)).untold == [2, 3, 4]
    with pytest.raises(RunOver, match=r"slot 1 \(host1\) cannot take part: there is no GPU"):
        await served.join(launch, 2)
    await served.service.refuse(host, 3, 1, make_refusal(3, reason="another"))
    assert (await served.service.status(host)).untold == [4]
    assert host.run.result.slot == 1


# Everything at once


class Chaos:
    """One seeded schedule of requests, failures of the disk and restarts."""

    def __init__(self, seed: int, clock: FakeClock) -> None:
        self.dice = random.Random(seed)
        self.journal = TroubledJournal()
        self.served = Served(self.journal, clock)
        self.launches = [Launch(f"run{number}") for number in range(3)]
        self.promised: list[tuple[Launch, int, int, str]] = []

    async def step(self) -> None:
        """A few requests at once; each may be refused, none may go wrong."""
        self.journal.is_full = self.dice.random() < 0.25
        requests = [self.request() for _ in range(self.dice.randint(1, 6))]
        for outcome in await asyncio.gather(*requests, return_exceptions=True):
            if isinstance(outcome, BaseException):
                assert isinstance(outcome, RdzvError), outcome
                assert not isinstance(outcome, InternalError)

    async def request(self) -> None:
        """One request of a node or launcher, chosen at random."""
        launch = self.dice.choice(self.launches)
        slot, attempt = self.dice.randrange(3), self.dice.randint(1, 3)
        kind = self.dice.choice(["create", "join", "join", "join", "report", "report", "cancel"])
        if kind == "create":
            await self.served.create(launch, 3)
        elif kind == "join":
            reply = await self.served.join(launch, slot, attempt)
            self.promised.append((launch, slot, attempt, reply.credential))
        elif kind == "cancel" and self.dice.random() < 0.1:
            await self.served.service.cancel(self.served.host(launch), "enough")
        else:
            run = self.served.host(launch).run
            reports: list[Report] = [
                make_probe(run.epoch, slot, range(len(run.slots))),
                AckReport(epoch=run.epoch, digest=run.digest or "0" * 64),
                ExitReport(epoch=run.epoch, exit_code=self.dice.randrange(2)),
                LeaveReport(),
            ]
            incarnation = self.dice.randint(1, max(1, run.slots[slot].incarnations))
            report = self.dice.choices(reports, [10, 10, 1, 1])[0]
            await self.served.report(launch, slot, report, incarnation)

    async def restart(self) -> None:
        """The registry is killed and comes back."""
        await self.served.end()
        self.served = await recovered(self.journal, self.served.clock)
        self.served.start()

    async def check(self) -> None:
        """The state is the journal's, and every join that was answered is in it."""
        other = await recovered(self.journal, self.served.clock)
        for launch in self.launches:
            with contextlib.suppress(NotFound):
                assert self.served.host(launch).run == other.host(launch).run
        for launch, slot, attempt, credential in self.promised:
            run = other.host(launch).run
            number = run.slots[slot].joins[launch.join(slot, attempt).join_id]
            made: Credential = other.service.access.node_credential(run, slot, number)
            assert made.text() == credential


@pytest.mark.parametrize("seed", range(25))
async def test_whatever_fails_what_was_answered_is_in_the_journal(
    seed: int, clock: FakeClock
) -> None:
    chaos = Chaos(seed, clock)
    chaos.served.start()
    for number in range(40):
        await chaos.step()
        if number % 10 == 9:
            await chaos.check()
            await chaos.restart()
    chaos.journal.is_full = False
    await chaos.check()
    assert chaos.promised
    assert chaos.served.is_alive
    await chaos.served.end()


def test_the_errors_of_a_journal_are_the_registrys() -> None:
    """The sweep outlives every RegistryError: those of the journal and of a fault."""
    assert issubclass(StorageFull, RegistryError)
    assert issubclass(InternalError, RegistryError)


# Time in which the registry was not awake


async def test_a_stalled_registry_runs_out_no_time_out_and_no_lease(
    served: Served, launch: Launch
) -> None:
    await served.bring_to(Phase.VERIFYING, launch, verify_timeout_seconds=12)
    await served.clock.jump(3_600)
    await served.clock.move(1)
    assert served.host(launch).run.phase is Phase.VERIFYING
    assert served.service.now() == pytest.approx(1, abs=0.5)


async def its_only_connection_closes(served: Served, launch: Launch) -> None:
    """Slot 1 has spoken on one connection, which its host closes."""
    connection = Connection("192.0.2.1")
    served.service.heard(served.host(launch), 1, 1, connection)
    connection.end(CloseReason.FIN)
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("stalled", "later", "is_lost"), [(0, 0, True), (30, 0, False), (30, 7, True)]
)
async def test_a_close_that_is_read_soon_after_a_stall_says_nothing(
    served: Served, launch: Launch, stalled: float, later: float, is_lost: bool
) -> None:
    """It may be old, and what the node has asked since may still wait to be read."""
    await served.bring_to(Phase.ARMING, launch)
    await served.clock.jump(stalled)
    await served.clock.move(later)
    await its_only_connection_closes(served, launch)
    await served.clock.move(3)
    assert (served.host(launch).run.phase is not Phase.ARMING) == is_lost


async def test_a_close_that_was_read_right_before_a_stall_says_nothing(
    served: Served, launch: Launch
) -> None:
    """Whoever was to come back within the second could not."""
    await served.bring_to(Phase.ARMING, launch)
    await its_only_connection_closes(served, launch)
    await served.clock.jump(30)
    await served.clock.move(3)
    assert served.host(launch).run.phase is Phase.ARMING


async def test_a_failure_in_the_registrys_absence_is_none_before_it(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.bring_to(Phase.RUNNING, launch)
    await served.clock.move(5)
    await served.report(launch, 0, ExitReport(epoch=1, exit_code=3))
    await served.end()
    served.clock.seconds += 60
    again = await recovered(journal, served.clock)
    again.start()
    await again.report(launch, 1, ExitReport(epoch=1, exit_code=134, age_seconds=50))
    result = again.host(launch).run.result
    assert result is not None
    assert (result.slot, result.exit_code) == (0, 3)
    await again.end()


async def test_those_who_failed_in_the_registrys_absence_stay_in_their_order(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.bring_to(Phase.RUNNING, launch)
    await served.end()
    served.clock.seconds += 60
    again = await recovered(journal, served.clock)
    again.start()
    await served.clock.move(1)
    for slot, age in ((0, 30.0), (1, 31.0)):
        report = ExitReport(epoch=1, exit_code=3 + slot, age_seconds=age)
        await again.report(launch, slot, report)
    result = again.host(launch).run.result
    assert result is not None
    assert (result.slot, result.exit_code) == (1, 4)
    await again.end()


async def test_a_commit_that_fails_makes_no_silent_node_heard(
    served: Served, journal: TroubledJournal, launch: Launch
) -> None:
    await served.bring_to(Phase.RUNNING, launch, lease_seconds=4)
    await served.clock.move(3)
    journal.is_full = True
    with pytest.raises(StorageFull):
        await served.report(launch, 0, ProgressReport(epoch=1, words="step 7"))
    journal.is_full = False
    await served.clock.move(2)
    assert [str(slot.node.state) for slot in served.host(launch).run.slots if slot.node] == [
        "running",
        "lost",
    ]


async def test_a_schedulers_queue_is_believed_in_while_its_launcher_is_heard_of(
    served: Served, launch: Launch
) -> None:
    await served.create(launch, join_timeout_seconds=60)
    for _ in range(3):
        news = SlotNews(generation=1, state=SlotState.QUEUED, detail="Priority")
        await served.service.slot_news(served.host(launch), 0, news)
        await served.service.slot_news(served.host(launch), 1, news)
        served.let_pass(119)
        await served.clock.move(0.6)
    assert served.host(launch).run.phase is Phase.GATHERING
    await served.clock.move(2)
    status = await served.service.status(served.host(launch))
    assert {(slot.state, slot.detail) for slot in status.slots} == {
        ("unknown", "it was queued when its launcher was last heard of")
    }
    served.let_pass(61)
    await soon(lambda: served.host(launch).run.phase is Phase.FINISHED)


@pytest.mark.parametrize(
    ("phase", "words"),
    [(Phase.VERIFYING, None), (Phase.RUNNING, "its launcher was killed")],
)
async def test_without_its_launcher_a_run_that_was_let_go_ends_and_one_that_forms_waits(
    served: Served, launch: Launch, phase: Phase, words: str | None
) -> None:
    await served.bring_to(phase, launch)
    await served.service.launcher_ended(0.0)
    result = served.host(launch).run.result
    assert (result is None) == (words is None)
    assert words is None or (result is not None and words in result.message)
