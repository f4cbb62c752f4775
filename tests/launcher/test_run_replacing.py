"""Worker runs of a run that outlives its nodes: what is awaited stays, and an older program is over
before a newer one begins. By value."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.wire.run import EpochEnd, NodeState, Phase, SlotState, SlotStatus
from tests.launcher import drive as driven
from tests.launcher.drive import OVER, SILENT, Drive, Steps, slot
from tests.launcher.outer import ONE, SLURM, Former, Key, Left, Starter, Told, facts

TWO, THREE = Key(1, 2), Key(1, 3)
QUIET = (*driven.QUIET, "fetch words")
GO, GATHERS = Phase.RUNNING, Phase.GATHERING
ENDED: list[EpochEnd] = [EpochEnd(epoch=1, message="node 1 was lost", replaced=[1])]
MANUAL = Starter("manual", 1.0, by_hand=True)


def place(generation: int = 1, wanted: int = 2, **more: Any) -> SlotStatus:
    """Slot 1, whose node was lost and is replaced."""
    return slot(1, generation, wanted, **{"awaited": True} | more)


def tell(drive: Drive, one: SlotStatus, phase: Phase = GO, *, fails: bool = False) -> list[Told]:
    """The registry says how slot 1 stands, after the first go."""
    loss = "fail" if fails else "replace"
    return drive.status(one, phase=phase, ended=ENDED, on_node_loss=loss)


RELEASED = place(1, 1, node_state=NodeState.RELEASED, awaited=False)
STEPS: Steps = {
    "wanted": lambda drive, _: drive.status(slot(1, 0, 1), on_node_loss="replace"),
    "go": lambda drive, _: tell(drive, slot(1, its=NodeState.RUNNING, node=5)),
    "left": lambda drive, _: tell(drive, place(1, 1), GATHERS),
    "standby": lambda drive, _: tell(drive, place(1, 1, node_state=NodeState.STANDBY)),
    "lost": lambda drive, _: tell(drive, place(), GATHERS),
    "lost-in-time": lambda drive, _: tell(drive, place()),
    "lost-again": lambda drive, _: tell(drive, place(2, 3), GATHERS),
    "fenced": lambda drive, _: tell(drive, place(fenced=True), GATHERS),
    "fails": lambda drive, _: tell(drive, place(), GATHERS, fails=True),
    "back": lambda drive, _: tell(
        drive, place(2, node_state=NodeState.RUNNING, node=5, awaited=False)
    ),
    "given-up": lambda drive, _: tell(drive, place(1, 1, awaited=False), GATHERS),
    "given-up-fails": lambda drive, _: tell(drive, place(1, 1, awaited=False), GATHERS, fails=True),
    "released": lambda drive, _: tell(drive, RELEASED),
    "released-between": lambda drive, _: tell(drive, RELEASED, Phase.ARMING),
    "over": lambda drive, key: drive.refuse("tell slot", OVER, key),
    "unheard": lambda drive, _: drive.refuse("tell slot", SILENT, drawn=0.5),
    "submitted": lambda drive, key: drive.submitted(key, str(100 * key.generation + 1)),
    "refused": lambda drive, key: drive.submit_failed(key, "no", certain=True),
    "unclear": lambda drive, key: drive.submit_failed(key, "error 500"),
    "silent": lambda drive, _: drive.scheduler_silent(("find", "describe"), "error 500"),
}
SENT = "wanted heard "
RUNS = SENT + "submitted heard running heard go "
HELD = RUNS + "lost heard2 running told "
GONE = "note 101 gone; tell slot ended 101"
INTENT = "write intent 1.2; submit 1.2"
LEFT = (
    "say worker run rdzv-n3wl4unch1-1-1 (slot 1, id 101) may still exist: error 500, "
    "end it with: end 101"
)
BY_HAND = (
    "say what was started by hand as worker run rdzv-n3wl4unch1-1-1 (slot 1, id 101) may still "
    "run, the next worker run of slot 1 waits until its program is surely over"
)
STUCK = HELD + "75 silent "
LASTS = SENT + "lost heard2 "


@pytest.mark.parametrize(
    ("script", "then"),
    [
        # a standby stays at a go, and its scheduler is not believed against its node
        (RUNS + "standby", ""),
        (RUNS + "standby 1 ended", "tell slot ended 101"),
        (RUNS + "standby 1 ended heard 1", "1: describe 101"),
        # the place of a lost node is submitted again between two epochs, and while the others run
        (RUNS + "lost", "tell slot 1.2 submitting"),
        (RUNS + "lost-in-time", "tell slot 1.2 submitting"),
        ("lost", "tell slot 1.2 submitting"),
        # what is released is ended at the go, as before; what is lost for good at any time
        (RUNS + "released-between", ""),
        (RUNS + "released", "describe 101"),
        (RUNS + "released 3.2 ended", "note 101 gone"),
        (RUNS + "given-up", "describe 101"),
        (RUNS + "given-up given-up", ""),
        (RUNS + "given-up running 3.2 running", "cancel worker run 101 12.0"),
        (RUNS + "given-up running 3.2 running told 2 ended", GONE),
        (RUNS + "given-up-fails", ""),
        # D10: the older one is ended, and the registry hears that it is over, before the newer one
        (RUNS + "lost heard2", "describe 101"),
        (RUNS + "lost heard2 running", "cancel worker run 101 12.0"),
        (HELD + "0.2 ended", f"{GONE}; {INTENT}"),
        (HELD + "0.2 ended unheard 0.36", "0.35: tell slot ended 101"),
        (HELD + "0.2 ended over", ""),
        (HELD + "0.2 ended heard 60", ""),
        (RUNS + "1 failed heard lost heard2", "describe 101"),  # it was said of a node that lived
        (RUNS + "left 1 failed heard lost heard2", INTENT),
        (
            RUNS + "left 1 failed lost",
            "break off tell slot; tell slot ended 101; tell slot 1.2 submitting",
        ),
        # a scheduler that does not answer is no proof: it is asked again, until the fence
        (STUCK, f"{LEFT}, the next worker run of slot 1 waits until its program is surely over"),
        (STUCK + "lost", ""),
        (STUCK + "59 lost", ""),
        (STUCK + "61 lost", "describe 101"),
        (STUCK + "61 lost ended", f"{GONE}; {INTENT}"),
        (STUCK + "61 lost 76 silent 61 lost", "describe 101"),  # as often as before
        (STUCK + "fenced", INTENT),
        (STUCK + "fenced submitted2 heard2 running heard2 61 back", "describe 101"),
        (HELD + "fenced", INTENT),  # and goes on being ended beside
        (HELD + "fenced 0.2 ended", GONE),
        # one that is just being submitted is awaited, as it may come to run
        (LASTS, ""),
        (LASTS + "fenced", INTENT),
        (LASTS + "submitted", "note 101; describe 101"),
        (LASTS + "submitted ended", f"{GONE}; {INTENT}"),
        (LASTS + "refused", f"note gone; tell slot ended; {INTENT}"),
        (LASTS + "unclear", "find"),
        (LASTS + "unclear missed 1 missed", f"note gone; tell slot ended; {INTENT}"),
        # a run that fails with its node tells nothing, and waits as long as its scheduler answers
        (RUNS + "fails heard2 running told 0.2 ended", f"note 101 gone; {INTENT}"),
        (
            RUNS + "fails heard2 running told 75 silent",
            f"{LEFT}; {INTENT}",
        ),
        # nothing is submitted, or told, once the run ends
        (STUCK + "signal 0.2", ""),
        (HELD + "signal 0.2 ended", "note 101 gone"),
    ],
)
def test_what_becomes_of_a_lost_nodes_worker_run(script: str, then: str) -> None:
    assert Drive.new().following().play(script, STEPS, QUIET, then) == then


@pytest.mark.parametrize(
    ("script", "then"),
    [
        # that its script was taken away is no proof: what a person has started with it may run
        (HELD + "0.2 ended", f"note 101 gone; {BY_HAND}"),
        (HELD + "0.2 ended 600 lost", ""),
        (HELD + "0.2 ended fenced", INTENT),
    ],
)
def test_what_a_person_has_started_is_over_when_the_registry_says_so(
    script: str, then: str
) -> None:
    assert Drive.new(facts(others=MANUAL)).following().play(script, STEPS, QUIET, then) == then


def test_all_older_ones_have_to_be_over() -> None:
    drive = Drive.new().following()
    drive.play(HELD + "fenced submitted2 heard2 running heard2", STEPS)
    tell(drive, place(2, 3), GATHERS)
    drive.heard(THREE)
    assert drive.open_keys("describe") == [TWO]
    drive.described(TWO, SlotState.ENDED)
    assert drive.open_keys("submit") == []
    drive.wait(0.3)  # the first one is looked at again
    drive.described(ONE, SlotState.FAILED)
    assert drive.open_keys("submit") == [THREE]


def resumed(one: SlotStatus, phase: Phase = GATHERS) -> Drive:
    """A launch that was killed between two epochs, started again; slot 1 stands like this."""
    drive = Drive.new(facts(), Former(), Left(ONE, SLURM, "101"))
    return drive.resumed(one, phase=phase, ended=ENDED, on_node_loss="replace")


@pytest.mark.parametrize("phase", [GATHERS, Phase.ARMING, Phase.RESTARTING])
def test_a_resumed_launch_replaces_a_lost_node_like_the_first_one(phase: Phase) -> None:
    drive = resumed(place(), phase)
    drive.heard(TWO)
    assert (drive.open("describe").key, drive.open_keys("submit")) == (ONE, [])
    told = [one.words for one in drive.described(ONE, SlotState.ENDED)]
    assert told == ["note 101 gone", "tell slot ended 101", *INTENT.split("; ")]


def test_what_it_does_not_find_is_submitted_behind_all_older_ones() -> None:
    """The former launcher had told of it, and waited for the first one to end."""
    drive = resumed(place(2, 2, state=SlotState.SUBMITTING))
    drive.found(TWO, None)
    drive.heard(THREE)
    drive.found(TWO, None)
    drive.described(ONE, SlotState.ENDED)
    assert drive.open_keys("submit") == []
    drive.wait(1.0)
    drive.found(TWO, None)
    assert drive.open_keys("submit") == [THREE]


@pytest.mark.parametrize("node", [NodeState.STANDBY, None])
def test_a_standby_and_its_place_are_taken_up_again(node: NodeState | None) -> None:
    drive = resumed(place(1, 1, node_state=node, state=SlotState.RUNNING), Phase.ARMING)
    drive.found(ONE, "101")
    drive.described(ONE, SlotState.RUNNING)
    assert drive.open_keys("cancel worker run") == []
    tell(drive, place(1, 1, node_state=node, state=SlotState.RUNNING))
    drive.wait(10.0)
    assert drive.of("cancel worker run") == []
