"""On which hosts worker runs start, by where those before them have failed. By value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from launcher.plan.avoiding import Places
from launcher.plan.plan import ANYWHERE, Where
from launcher.run import actions as do
from launcher.run import inputs as said
from launcher.run.ground import OnDisk
from launcher.run.hosts import WAITS_FOR_OTHER_SECONDS
from launcher.run.sentences import (
    AvoidsHosts,
    CannotAvoid,
    NoOtherHost,
    StartsAgainOn,
    StartsElsewhere,
)
from launcher.run.values import Key, Left
from launcher.schedulers.description import Description
from rendezvous.wire.run import EpochEnd, NodeState, Phase, SlotState, SlotStatus
from tests.launcher.drive import SLURM, Drive, facts, slot
from tests.launcher.test_run_replacing import FORMER, place, tell

ONE, TWO, THREE = Key(1, 1), Key(1, 2), Key(1, 3)
GATHERS = Phase.GATHERING
AVOIDS = Places(avoids=True)
NAMED = Places(("here", "n1", "n2"), ("n3",))
LOST = (EpochEnd(epoch=1, message="node 1 was lost", replaced=[1]),)


def drive_of(places: Places, found: OnDisk | None = None) -> Drive:
    return Drive.new(replace(facts(), places=places), found)


def describe(drive: Drive, key: Key, state: SlotState, **more: Any) -> None:
    """The scheduler says how one stands; the registry hears of it."""
    drive.take(said.Described(drive.id(do.Describe, key), Description(state, **more)))
    if drive.all_open(do.TellSlot, key):
        drive.answer(do.TellSlot, key)


def running(places: Places, host: str = "gpu-17") -> Drive:
    """Slot 1's first worker run runs on the host, and the programs run."""
    drive = drive_of(places).running(ONE)
    drive.wait(2.0)
    describe(drive, ONE, SlotState.RUNNING, host=host)
    drive.status(slot(1, its=NodeState.RUNNING, node=1), phase=Phase.RUNNING)
    return drive


def lose(drive: Drive, generation: int = 1, **how: Any) -> Drive:
    """The node is lost; its worker run is over, and the next one has been told."""
    older, newer = Key(1, generation), Key(1, generation + 1)
    tell(drive, place(generation, generation + 1), GATHERS)
    drive.answer(do.TellSlot, newer)
    describe(drive, older, SlotState.FAILED, **how)
    return drive


def where(drive: Drive, key: Key = TWO) -> Where:
    """Where it is about to be submitted; it is."""
    found = drive.open(do.WriteIntent, key).where
    drive.answer(do.WriteIntent, key)
    assert drive.open(do.Submit, key).where == found
    return found


def sentences(drive: Drive) -> list[Any]:
    kinds = (AvoidsHosts, CannotAvoid, NoOtherHost, StartsElsewhere, StartsAgainOn)
    return [one.sentence for one in drive.of(do.Say) if isinstance(one.sentence, kinds)]


# --- a scheduler that is told ---------------------------------------------------------------------


def test_a_replacement_avoids_the_host_that_it_replaces() -> None:
    drive = lose(running(AVOIDS))
    assert where(drive) == Where(avoid=("gpu-17",))
    assert sentences(drive) == [AvoidsHosts(TWO, ("gpu-17",))]


def test_it_avoids_those_of_the_person_too_and_others_only_these() -> None:
    drive = lose(running(Places(avoid=("bad",), avoids=True)))
    first = drive.of(do.Submit)[0]
    assert (first.key, first.where) == (ONE, ANYWHERE)  # the plan knows those of the person
    assert where(drive) == Where(avoid=("bad", "gpu-17"))


def test_the_next_one_avoids_both() -> None:
    drive = lose(running(AVOIDS))
    where(drive)
    drive.submitted(TWO, "102")
    drive.answer(do.TellSlot, TWO)
    describe(drive, TWO, SlotState.RUNNING, host="gpu-3")
    lose(drive, 2)
    assert where(drive, THREE) == Where(avoid=("gpu-17", "gpu-3"))


@pytest.mark.parametrize("how", [{"preempted": True}, {"preempted": True, "host": "gpu-17"}])
def test_a_preemption_is_no_fault_of_the_host(how: dict[str, Any]) -> None:
    drive = lose(running(AVOIDS), **how)
    assert where(drive) == ANYWHERE
    assert sentences(drive) == []


def test_where_the_host_is_not_known_nothing_is_avoided() -> None:
    drive = lose(running(AVOIDS, host=""))
    assert where(drive) == ANYWHERE
    assert sentences(drive) == []


def test_the_host_may_be_learnt_with_the_end() -> None:
    assert where(lose(running(AVOIDS, host=""), host="gpu-17")) == Where(avoid=("gpu-17",))


def test_it_may_be_learnt_while_the_older_one_is_ended() -> None:
    drive = running(AVOIDS, host="")
    tell(drive, place(), GATHERS)
    drive.answer(do.TellSlot, TWO)
    describe(drive, ONE, SlotState.RUNNING, host="gpu-17")
    drive.take(said.RunTold(drive.id(do.CancelWorkerRun)))
    drive.wait(1.0)
    describe(drive, ONE, SlotState.FAILED)
    assert where(drive) == Where(avoid=("gpu-17",))


@pytest.mark.parametrize("fenced", [True, False])
def test_nothing_is_submitted_before_the_older_ones_host_is_known(fenced: bool) -> None:
    """Its program has surely ended, and its scheduler was not asked since it began."""
    drive = running(AVOIDS, host="")
    tell(drive, place(fenced=fenced), GATHERS)
    drive.answer(do.TellSlot, TWO)
    assert drive.all_open(do.WriteIntent, TWO) == []
    describe(drive, ONE, SlotState.RUNNING, host="gpu-17")
    assert drive.open(do.CancelWorkerRun).key == ONE
    tell(drive, place(fenced=True), GATHERS)
    assert where(drive) == Where(avoid=("gpu-17",))


def test_a_scheduler_that_does_not_answer_is_not_waited_for() -> None:
    drive = running(AVOIDS, host="")
    tell(drive, place(fenced=True), GATHERS)
    drive.answer(do.TellSlot, TWO)
    drive.scheduler_silent(do.Describe, "error 500")
    tell(drive, place(fenced=True), GATHERS)
    assert where(drive) == ANYWHERE


def test_before_the_first_start_it_is_the_same() -> None:
    drive = drive_of(AVOIDS).running(ONE)
    drive.wait(2.0)
    describe(drive, ONE, SlotState.FAILED, host="gpu-17")
    drive.status(slot(1, 1, 2))
    drive.answer(do.TellSlot, TWO)
    assert where(drive) == Where(avoid=("gpu-17",))


def test_a_spec_without_a_place_for_it_is_told_of_once() -> None:
    drive = lose(running(Places()))
    assert where(drive) == ANYWHERE
    assert sentences(drive) == [CannotAvoid(TWO, ("gpu-17",))]


def test_it_is_told_of_once_for_all_slots_and_their_worker_runs() -> None:
    drive = lose(running(Places()))
    where(drive)
    drive.submitted(TWO, "102")
    drive.answer(do.TellSlot, TWO)
    describe(drive, TWO, SlotState.RUNNING, host="gpu-3")
    lose(drive, 2)
    assert where(drive, THREE) == ANYWHERE
    assert sentences(drive) == [CannotAvoid(TWO, ("gpu-17",))]


def test_a_scheduler_that_never_tells_a_host_is_not_waited_for_and_that_is_said() -> None:
    drive = running(Places(avoids=True, tells=False), host="")
    tell(drive, place(fenced=True), GATHERS)
    drive.answer(do.TellSlot, TWO)
    assert where(drive) == ANYWHERE
    assert sentences(drive) == [CannotAvoid(TWO, ())]


# --- where there is no other host -----------------------------------------------------------------


def test_one_that_is_refused_goes_anywhere_at_once() -> None:
    drive = lose(running(AVOIDS))
    where(drive)
    drive.submit_failed(TWO, "not available", certain=True, no_host=True)
    assert where(drive) == ANYWHERE
    assert sentences(drive)[1:] == [NoOtherHost(1, ("gpu-17",), "not available")]
    drive.submit_failed(TWO, "no such partition", certain=True)
    assert drive.open(do.TellSlot, TWO).news.state is SlotState.FAILED
    assert drive.machine.slots.submitting.count == 0


def test_one_that_is_refused_for_another_reason_is_not_forgiven_its_host() -> None:
    drive = lose(running(AVOIDS))
    where(drive)
    drive.submit_failed(TWO, "too many jobs", certain=True)
    assert drive.open(do.TellSlot, TWO).news.state is SlotState.FAILED
    drive.answer(do.TellSlot, TWO)
    tell(drive, place(2, 3, state=SlotState.FAILED), GATHERS)
    drive.answer(do.TellSlot, THREE)
    assert where(drive, THREE) == Where(avoid=("gpu-17",))


def test_one_of_which_nobody_knows_whether_it_was_made_is_not_made_again() -> None:
    drive = lose(running(AVOIDS))
    where(drive)
    drive.submit_failed(TWO, "timed out")
    assert drive.open(do.TellSlot, TWO).news.state is SlotState.FAILED


def queued(drive: Drive) -> Drive:
    """The replacement waits in its queue."""
    where(drive)
    drive.submitted(TWO, "102")
    drive.answer(do.TellSlot, TWO)
    drive.take(
        said.Described(drive.id(do.Describe, TWO), Description(SlotState.QUEUED, "Resources"))
    )
    return drive


def test_its_queue_says_what_it_waits_for_and_only_for_so_long() -> None:
    drive = queued(lose(running(AVOIDS)))
    assert (
        drive.open(do.TellSlot, TWO).news.detail
        == "Resources; another host than gpu-17 is asked for"
    )
    drive.answer(do.TellSlot, TWO)
    drive.now += WAITS_FOR_OTHER_SECONDS - 2
    drive.wait(1.0)
    describe(drive, TWO, SlotState.QUEUED, detail="Resources")
    drive.wait(2.0)
    drive.take(
        said.Described(drive.id(do.Describe, TWO), Description(SlotState.QUEUED, "Resources"))
    )
    assert drive.open(do.TellSlot).key == THREE
    assert sentences(drive)[1:] == [NoOtherHost(1, ("gpu-17",))]
    drive.answer(do.TellSlot, THREE)
    drive.described(TWO, SlotState.ENDED)
    assert where(drive, THREE) == ANYWHERE


def waits_long(drive: Drive, **more: Any) -> list[int]:
    """The replacement waits in its queue for twice as long. The slot's worker runs then."""
    if drive.all_open(do.TellSlot, TWO):
        drive.answer(do.TellSlot, TWO)
    for _ in range(2):
        drive.now += WAITS_FOR_OTHER_SECONDS
        drive.wait(1.0)
        describe(drive, TWO, SlotState.QUEUED, **more)
    return [key.generation for key in drive.machine.slots.shared.of_slot[1]]


def test_a_host_that_is_being_made_ready_is_another_one() -> None:
    """Slurm's CONFIGURING: a node of a cloud takes minutes to boot."""
    drive = queued(lose(running(AVOIDS)))
    assert waits_long(drive, host="gpu-9") == [1, 2]
    assert sentences(drive) == [AvoidsHosts(TWO, ("gpu-17",))]


def test_beside_running_programs_it_waits_for_another_host_as_long_as_it_takes() -> None:
    drive = queued(lose(running(AVOIDS)))
    tell(drive, place(2, 2, state=SlotState.QUEUED), Phase.RUNNING)
    assert waits_long(drive, detail="Priority") == [1, 2]
    tell(drive, place(2, 2, state=SlotState.QUEUED), GATHERS)
    assert waits_long(drive, detail="Priority") == [1, 2, 3]


def test_where_no_other_was_one_worker_run_alone_may_start_on_any_host() -> None:
    drive = lose(running(AVOIDS))
    where(drive)
    drive.submit_failed(TWO, "not available", certain=True, no_host=True)
    where(drive)
    drive.submitted(TWO, "102")
    drive.answer(do.TellSlot, TWO)
    describe(drive, TWO, SlotState.RUNNING, host="gpu-17")
    lose(drive, 2)
    assert where(drive, THREE) == Where(avoid=("gpu-17",))


def test_one_that_waits_for_nothing_of_this_goes_on_waiting() -> None:
    drive = drive_of(AVOIDS).submitting(ONE)
    drive.submitted(ONE, "101")
    drive.answer(do.TellSlot, ONE)
    describe(drive, ONE, SlotState.QUEUED, detail="Priority")
    drive.now += 2 * WAITS_FOR_OTHER_SECONDS
    drive.wait(1.0)
    describe(drive, ONE, SlotState.QUEUED, detail="Priority")
    assert [one.key for one in drive.of(do.Submit)] == [ONE]


# --- named hosts ----------------------------------------------------------------------------------


def three(places: Places = NAMED) -> Drive:
    """Slots 1 and 2 run on their hosts."""
    drive = drive_of(places).running(ONE, Key(2, 1))
    rows = (slot(n, its=NodeState.RUNNING, node=n) for n in (1, 2))
    drive.status(*rows, phase=Phase.RUNNING)
    return drive


def lose_on(drive: Drive, key: Key, other: SlotStatus) -> None:
    """The node of this worker run is lost, and the next one about to be submitted."""
    lost = slot(key.slot, key.generation, key.generation + 1, awaited=True)
    drive.status(lost, other, phase=GATHERS, ended=list(LOST), on_node_loss="replace")
    drive.answer(do.TellSlot, Key(key.slot, key.generation + 1))
    describe(drive, key, SlotState.FAILED)


def test_the_next_free_entry_of_the_list_is_taken_then_the_one_that_failed_longest_ago() -> None:
    drive, stays = three(), slot(2, its=NodeState.JOINED)
    lose_on(drive, ONE, stays)
    assert where(drive, TWO) == Where("n3")
    drive.submitted(TWO, "1")
    drive.answer(do.TellSlot, TWO)
    describe(drive, TWO, SlotState.RUNNING)
    lose_on(drive, TWO, stays)
    assert where(drive, THREE) == Where("n1")
    assert sentences(drive) == [
        StartsElsewhere(TWO, "n3", "n1"),
        StartsElsewhere(THREE, "n1", "n3"),
    ]


def test_without_a_free_entry_it_is_the_same_host_and_says_so() -> None:
    drive = three(Places(("here", "n1", "n2")))
    lose_on(drive, ONE, slot(2, its=NodeState.JOINED))
    assert where(drive, TWO) == Where("n1")
    drive.submit_failed(TWO, "no route to host", certain=True)
    drive.answer(do.TellSlot, TWO)
    lose_again = slot(1, 2, 3, awaited=True, state=SlotState.FAILED)
    drive.status(lose_again, phase=GATHERS, ended=list(LOST), on_node_loss="replace")
    drive.answer(do.TellSlot, THREE)
    assert where(drive, THREE) == Where("n1")
    assert sentences(drive) == [StartsAgainOn(1, "n1")]


def test_a_resumed_launch_knows_where_the_former_ones_worker_runs_are() -> None:
    left = (Left(ONE, SLURM, "101", "n3"), Left(Key(2, 1), SLURM, "102", "n2"))
    drive = drive_of(NAMED, OnDisk(FORMER, own=left)).begin()
    drive.answer(do.OpenFormer)
    lost, stays = place(), slot(2, its=NodeState.JOINED)
    more: dict[str, Any] = {"phase": GATHERS, "ended": list(LOST), "on_node_loss": "replace"}
    drive.status(lost, stays, **more)
    drive.answer(do.CreateRun)
    drive.answer(do.Establish)
    drive.status(lost, stays, **more)
    drive.answer(do.TellSlot, TWO)
    drive.described(ONE, SlotState.ENDED)
    assert where(drive) == Where("n1")  # where no other one is


def test_a_named_host_stays_the_persons_name_for_it() -> None:
    drive = three()
    drive.wait(2.0)
    describe(drive, ONE, SlotState.RUNNING, host="n1.cluster.example")
    lose_on(drive, ONE, slot(2, its=NodeState.JOINED))
    assert where(drive) == Where("n3")
    assert sentences(drive) == [StartsElsewhere(TWO, "n3", "n1")]


@pytest.mark.parametrize(
    ("state", "then"),
    [(SlotState.ENDED, ANYWHERE), (SlotState.UNKNOWN, ANYWHERE), (SlotState.FAILED, Where("n3"))],
)
def test_what_a_resumed_launch_does_not_find_says_nothing_of_its_host(
    state: SlotState, then: Where
) -> None:
    left = (Left(ONE, SLURM, "101", "n1"), Left(Key(2, 1), SLURM, "102", "n2"))
    drive = drive_of(NAMED, OnDisk(FORMER, own=left)).begin()
    drive.answer(do.OpenFormer)
    rows = slot(1, 1, 1), slot(2, its=NodeState.JOINED)
    drive.status(*rows)
    drive.answer(do.CreateRun)
    drive.answer(do.Establish)
    drive.status(*rows)
    drive.take(said.Found(drive.id(do.Find, ONE), None))
    drive.take(said.Described(drive.id(do.Describe, ONE), Description(state)))
    drive.answer(do.TellSlot, TWO)
    assert where(drive) == then
    assert bool(sentences(drive)) is (then != ANYWHERE)
