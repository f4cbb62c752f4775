"""On which hosts worker runs start, by where those before them have failed. By value."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.launch.hosts import WAITS_FOR_OTHER_SECONDS
from launcher.plan.avoiding import Places
from rendezvous.wire.run import EpochEnd, NodeState, Phase, SlotState, SlotStatus
from tests.launcher.drive import Drive, slot
from tests.launcher.outer import ONE, SLURM, Former, Key, Left, facts
from tests.launcher.test_run_replacing import place, tell

TWO, THREE = Key(1, 2), Key(1, 3)
GATHERS = Phase.GATHERING
AVOIDS = Places(avoids=True)
NAMED = Places(("here", "n1", "n2"), ("n3",))
LOST: dict[str, Any] = {
    "phase": GATHERS,
    "ended": [EpochEnd(epoch=1, message="node 1 was lost", replaced=[1])],
    "on_node_loss": "replace",
}
ASKS = "slot 1: rdzv asks for another host than gpu-17"
ANY = "slot 1 may start on any host"
CANNOT = "slot 1 may start on gpu-17 again: its worker spec has no <<AVOID>>"


def describe(drive: Drive, key: Key, state: SlotState, detail: str = "", **more: Any) -> None:
    """The scheduler says how one stands; the registry hears of it."""
    drive.described(key, state, detail, **more)
    if drive.all_open("tell slot", key):
        drive.heard(key)


def running(places: Places, host: str = "gpu-17") -> Drive:
    """Slot 1's first worker run runs on the host, and the programs run."""
    drive = Drive.new(facts(places=places)).running(ONE)
    drive.wait(2.0)
    describe(drive, ONE, SlotState.RUNNING, host=host)
    drive.status(slot(1, its=NodeState.RUNNING, node=1), phase=Phase.RUNNING)
    return drive


def lose(drive: Drive, generation: int = 1, **how: Any) -> Drive:
    """The node is lost; its worker run is over, and the next one has been told."""
    older, newer = Key(1, generation), Key(1, generation + 1)
    tell(drive, place(generation, generation + 1), GATHERS)
    drive.heard(newer)
    describe(drive, older, SlotState.FAILED, **how)
    return drive


def start(drive: Drive, key: Key, host: str = "") -> None:
    """It is submitted, and runs there."""
    drive.submitted(key, f"10{key.generation}")
    drive.heard(key)
    describe(drive, key, SlotState.RUNNING, host=host)


def where(drive: Drive, key: Key = TWO) -> tuple[Any, Any]:
    """On which host it is being submitted, and which ones it is to avoid: as the ledger has it."""
    run = drive.open("submit", key).of
    assert drive.of("write intent")[-1].of == run
    return run.variables.get("HOST"), run.variables["AVOID"]


ANYWHERE: tuple[Any, Any] = (None, [])


def sentences(drive: Drive) -> list[str]:
    """What was said of slots."""
    return [words for words in drive.said() if words.startswith("slot ")]


# --- a scheduler that is told ---------------------------------------------------------------------


def test_a_replacement_avoids_the_host_that_it_replaces() -> None:
    drive = lose(running(AVOIDS))
    assert where(drive) == (None, ["gpu-17"])
    assert sentences(drive) == [ASKS]


def test_it_avoids_those_of_the_person_too_and_others_only_these() -> None:
    drive = lose(running(Places(avoid=("bad",), avoids=True)))
    assert drive.of("submit")[0].of.variables["AVOID"] == ["bad"]  # the plan's
    assert where(drive) == (None, ["bad", "gpu-17"])


def test_the_next_one_avoids_both() -> None:
    drive = lose(running(AVOIDS))
    start(drive, TWO, "gpu-3")
    lose(drive, 2)
    assert where(drive, THREE) == (None, ["gpu-17", "gpu-3"])


@pytest.mark.parametrize(
    ("host", "how"),
    [
        ("gpu-17", {"preempted": True}),
        ("gpu-17", {"preempted": True, "host": "gpu-17"}),
        ("", {}),
    ],
)
def test_a_preemption_is_no_fault_of_the_host_nor_one_that_is_not_known(
    host: str, how: dict[str, Any]
) -> None:
    drive = lose(running(AVOIDS, host), **how)
    assert where(drive) == ANYWHERE
    assert sentences(drive) == []


def test_the_host_may_be_learnt_with_the_end() -> None:
    assert where(lose(running(AVOIDS, host=""), host="gpu-17")) == (None, ["gpu-17"])


def test_it_may_be_learnt_while_the_older_one_is_ended() -> None:
    drive = running(AVOIDS, host="")
    tell(drive, place(), GATHERS)
    drive.heard(TWO)
    describe(drive, ONE, SlotState.RUNNING, host="gpu-17")
    drive.answer("cancel worker run")
    drive.wait(1.0)
    describe(drive, ONE, SlotState.FAILED)
    assert where(drive) == (None, ["gpu-17"])


@pytest.mark.parametrize("fenced", [True, False])
def test_nothing_is_submitted_before_the_older_ones_host_is_known(fenced: bool) -> None:
    """Its program has surely ended, and its scheduler was not asked since it began."""
    drive = running(AVOIDS, host="")
    tell(drive, place(fenced=fenced), GATHERS)
    drive.heard(TWO)
    assert drive.open_keys("submit") == []
    describe(drive, ONE, SlotState.RUNNING, host="gpu-17")
    assert drive.open("cancel worker run").key == ONE
    tell(drive, place(fenced=True), GATHERS)
    assert where(drive) == (None, ["gpu-17"])


def test_a_scheduler_that_does_not_answer_is_not_waited_for() -> None:
    drive = running(AVOIDS, host="")
    tell(drive, place(fenced=True), GATHERS)
    drive.heard(TWO)
    drive.scheduler_silent("describe", "error 500")
    tell(drive, place(fenced=True), GATHERS)
    assert where(drive) == ANYWHERE


def test_before_the_first_start_it_is_the_same() -> None:
    drive = Drive.new(facts(places=AVOIDS)).running(ONE)
    drive.wait(2.0)
    describe(drive, ONE, SlotState.FAILED, host="gpu-17")
    drive.status(slot(1, 1, 2))
    drive.heard(TWO)
    assert where(drive) == (None, ["gpu-17"])


def test_a_spec_without_a_place_for_it_is_told_of_once_for_all_worker_runs() -> None:
    drive = lose(running(Places()))
    assert where(drive) == ANYWHERE
    assert sentences(drive) == [CANNOT]
    start(drive, TWO, "gpu-3")
    lose(drive, 2)
    assert where(drive, THREE) == ANYWHERE
    assert sentences(drive) == [CANNOT]


def test_a_scheduler_that_never_tells_a_host_is_not_waited_for_and_that_is_said() -> None:
    drive = running(Places(avoids=True, tells=False), host="")
    tell(drive, place(fenced=True), GATHERS)
    drive.heard(TWO)
    assert where(drive) == ANYWHERE
    assert sentences(drive) == [
        "slot 1 may start on the same host again: its scheduler names no hosts"
    ]


# --- where there is no other host -----------------------------------------------------------------


def test_one_that_is_refused_goes_anywhere_at_once() -> None:
    drive = lose(running(AVOIDS))
    drive.submit_failed(TWO, "not available", certain=True, no_host=True)
    assert where(drive) == ANYWHERE
    assert sentences(drive) == [
        ASKS,
        f"{ANY}: with other hosts than gpu-17 only, it was refused (not available)",
    ]
    drive.submit_failed(TWO, "no such partition", certain=True)
    assert drive.open("tell slot", TWO).of.state is SlotState.FAILED
    assert drive.open_keys("submit") == []


def test_one_that_is_refused_is_not_submitted_again_once_the_run_ends() -> None:
    drive = lose(running(AVOIDS))
    drive.signal()
    drive.submit_failed(TWO, "not available", certain=True, no_host=True)
    assert (drive.open_keys("submit"), sentences(drive)) == ([], [ASKS])


def test_one_that_is_refused_for_another_reason_is_not_forgiven_its_host() -> None:
    drive = lose(running(AVOIDS))
    drive.submit_failed(TWO, "too many jobs", certain=True)
    assert drive.open("tell slot", TWO).of.state is SlotState.FAILED
    drive.heard(TWO)
    tell(drive, place(2, 3, state=SlotState.FAILED), GATHERS)
    drive.heard(THREE)
    assert where(drive, THREE) == (None, ["gpu-17"])


def test_one_of_which_nobody_knows_whether_it_was_made_is_not_made_again() -> None:
    drive = lose(running(AVOIDS))
    drive.submit_failed(TWO, "timed out")
    assert drive.open("tell slot", TWO).of.state is SlotState.FAILED
    assert drive.open_keys("submit") == []


def queued(drive: Drive) -> Drive:
    """The replacement waits in its queue."""
    drive.submitted(TWO, "102")
    drive.heard(TWO)
    drive.described(TWO, SlotState.QUEUED, "Resources")
    return drive


def test_its_queue_says_what_it_waits_for_and_only_for_so_long() -> None:
    drive = queued(lose(running(AVOIDS)))
    told = drive.open("tell slot", TWO).of
    assert told.detail == "Resources; another host than gpu-17 is asked for"
    drive.heard(TWO)
    drive.wait(WAITS_FOR_OTHER_SECONDS - 1)
    describe(drive, TWO, SlotState.QUEUED, "Resources")
    drive.wait(2.0)
    drive.described(TWO, SlotState.QUEUED, "Resources")
    assert drive.open("tell slot").key == THREE
    none_came = f"{ANY}: another host than gpu-17 has not come free within 60 s"
    assert sentences(drive) == [ASKS, none_came]
    drive.heard(THREE)
    drive.described(TWO, SlotState.ENDED)
    assert where(drive, THREE) == ANYWHERE


def waits_long(drive: Drive, **more: Any) -> set[int]:
    """The replacement waits in its queue for twice as long; the generations of its slot then."""
    if drive.all_open("tell slot", TWO):
        drive.heard(TWO)
    for _ in range(2):
        drive.wait(WAITS_FOR_OTHER_SECONDS + 1.0)
        describe(drive, TWO, SlotState.QUEUED, **more)
    return {one.key.generation for one in drive.of("tell slot") if one.key}


def test_a_host_that_is_being_made_ready_is_another_one() -> None:
    """Slurm's CONFIGURING: a node of a cloud takes minutes to boot."""
    drive = queued(lose(running(AVOIDS)))
    assert waits_long(drive, host="gpu-9") == {1, 2}
    assert sentences(drive) == [ASKS]


def test_beside_running_programs_it_waits_for_another_host_as_long_as_it_takes() -> None:
    drive = queued(lose(running(AVOIDS)))
    tell(drive, place(2, 2, state=SlotState.QUEUED), Phase.RUNNING)
    assert waits_long(drive, detail="Priority") == {1, 2}
    tell(drive, place(2, 2, state=SlotState.QUEUED), GATHERS)
    assert waits_long(drive, detail="Priority") == {1, 2, 3}


def test_where_no_other_was_one_worker_run_alone_may_start_on_any_host() -> None:
    drive = lose(running(AVOIDS))
    drive.submit_failed(TWO, "not available", certain=True, no_host=True)
    start(drive, TWO, "gpu-17")
    lose(drive, 2)
    assert where(drive, THREE) == (None, ["gpu-17"])


def test_one_that_waits_for_nothing_of_this_goes_on_waiting() -> None:
    drive = Drive.new(facts(places=AVOIDS)).submitting(ONE)
    drive.submitted(ONE, "101")
    drive.heard(ONE)
    describe(drive, ONE, SlotState.QUEUED, "Priority")
    drive.wait(2 * WAITS_FOR_OTHER_SECONDS + 1.0)
    describe(drive, ONE, SlotState.QUEUED, "Priority")
    assert {one.key for one in drive.of("tell slot")} == {ONE}
    assert sentences(drive) == []


# --- named hosts ----------------------------------------------------------------------------------


def three(places: Places = NAMED) -> Drive:
    """Slots 1 and 2 run on their hosts."""
    drive = Drive.new(facts(places=places)).running(ONE, Key(2, 1))
    rows = (slot(n, its=NodeState.RUNNING, node=n) for n in (1, 2))
    drive.status(*rows, phase=Phase.RUNNING)
    return drive


def lose_on(drive: Drive, key: Key, other: SlotStatus) -> None:
    """The node of this worker run is lost, and the next one about to be submitted."""
    lost = slot(key.slot, key.generation, key.generation + 1, awaited=True)
    drive.status(lost, other, **LOST)
    drive.heard(Key(key.slot, key.generation + 1))
    describe(drive, key, SlotState.FAILED)


def test_the_next_free_entry_of_the_list_is_taken_then_the_one_that_failed_longest_ago() -> None:
    drive, stays = three(), slot(2, its=NodeState.JOINED)
    lose_on(drive, ONE, stays)
    assert where(drive, TWO) == ("n3", [])
    drive.submitted(TWO, "102")
    drive.heard(TWO)
    drive.described(TWO, SlotState.QUEUED, "Priority")
    assert drive.open("tell slot").of.detail == "Priority"  # the person's host, and no other
    drive.heard(TWO)
    lose_on(drive, TWO, stays)
    assert where(drive, THREE) == ("n1", [])
    assert sentences(drive) == ["slot 1 starts on n3, not on n1", "slot 1 starts on n1, not on n3"]


def test_a_host_whose_worker_run_is_not_known_to_be_over_is_not_free() -> None:
    drive = three()
    lost = slot(1, 1, 2, awaited=True, fenced=True)
    drive.status(lost, slot(2, its=NodeState.JOINED), **LOST)
    drive.heard(TWO)
    assert (where(drive, TWO), drive.open("describe", ONE).kind) == (("n3", []), "describe")
    lose_on(drive, Key(2, 1), lost)
    assert where(drive, Key(2, 2)) == ("n2", [])


def test_without_a_free_entry_it_is_the_same_host_and_says_so() -> None:
    drive = three(Places(("here", "n1", "n2")))
    lose_on(drive, ONE, slot(2, its=NodeState.JOINED))
    assert where(drive, TWO) == ("n1", [])
    drive.submit_failed(TWO, "no route to host", certain=True)
    drive.heard(TWO)
    drive.status(slot(1, 2, 3, awaited=True, state=SlotState.FAILED), **LOST)
    drive.heard(THREE)
    assert where(drive, THREE) == ("n1", [])
    assert sentences(drive) == ["slot 1 starts on n1 again: no other host of the list is free"]


def resumed(*rows: SlotStatus, first: str = "n1", **more: Any) -> Drive:
    """A launch that was killed, started again: where the former one's worker runs are."""
    left = (Left(ONE, SLURM, "101", first), Left(Key(2, 1), SLURM, "102", "n2"))
    return Drive.new(facts(places=NAMED), Former(), *left).resumed(*rows, **more)


def test_a_resumed_launch_knows_where_the_former_ones_worker_runs_are() -> None:
    drive = resumed(place(), slot(2, its=NodeState.JOINED), first="n3", **LOST)
    drive.heard(TWO)
    drive.described(ONE, SlotState.ENDED)
    assert where(drive) == ("n1", [])  # where no other one is
    assert sentences(drive) == ["slot 1 starts on n1, not on n3"]


def test_a_host_that_a_killed_launcher_has_given_to_a_spec_which_reads_none_is_no_host() -> None:
    left = Left(ONE, SLURM, "101", "n1")
    drive = Drive.new(facts(places=AVOIDS), Former(), left).resumed(slot(1, 1, 1))
    drive.found(ONE, "101")
    drive.described(ONE, SlotState.FAILED)
    drive.heard(ONE)
    drive.status(slot(1, 1, 2))
    drive.heard(TWO)
    assert where(drive) == ANYWHERE
    assert sentences(drive) == []


def test_a_named_host_stays_the_persons_name_for_it() -> None:
    drive = three()
    drive.wait(2.0)
    describe(drive, ONE, SlotState.RUNNING, host="n1.cluster.example")
    lose_on(drive, ONE, slot(2, its=NodeState.JOINED))
    assert where(drive) == ("n3", [])
    assert sentences(drive) == ["slot 1 starts on n3, not on n1"]


@pytest.mark.parametrize(
    ("state", "then"),
    [(SlotState.ENDED, "n1"), (SlotState.UNKNOWN, "n1"), (SlotState.FAILED, "n3")],
)
def test_what_a_resumed_launch_does_not_find_says_nothing_of_its_host(
    state: SlotState, then: str
) -> None:
    drive = resumed(slot(1, 1, 1), slot(2, its=NodeState.JOINED))
    drive.found(ONE, None)
    drive.described(ONE, state)
    drive.heard(TWO)
    assert where(drive) == (then, [])
    assert bool(sentences(drive)) is (then == "n3")
