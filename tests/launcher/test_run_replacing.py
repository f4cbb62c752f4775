"""Worker runs of a run that outlives its nodes: what is awaited stays, and an older program is over
before a newer one begins. By value."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.wire.run import EpochEnd, NodeState, Phase, RunStatus, SlotState, SlotStatus
from tests.launcher import drive as driven
from tests.launcher.drive import SILENT, Drive, Steps, slot, status
from tests.launcher.outer import MANUAL, ONE, SLURM, Facts, Former, Left

QUIET = (*driven.QUIET, "fetch words")
GO, GATHERS = Phase.RUNNING, Phase.GATHERING
PAUSED = (GATHERS, Phase.ARMING, Phase.RESTARTING)
ENDED: list[EpochEnd] = [EpochEnd(epoch=1, message="node 1 was lost", replaced=[1])]


def place(generation: int = 1, wanted: int = 2, **more: Any) -> SlotStatus:
    """Slot 1, whose node was lost and is replaced."""
    return slot(1, generation, wanted, **{"awaited": True} | more)


def stands(one: SlotStatus, phase: Phase = GO, *, fails: bool = False) -> RunStatus:
    """How slot 1 stands, after the first go."""
    return status(one, phase=phase, ended=ENDED, on_node_loss="fail" if fails else "replace")


RELEASED = place(1, 1, node_state=NodeState.RELEASED, awaited=False)
STEPS: Steps = {
    "wanted": status(slot(1, 0, 1), on_node_loss="replace"),
    "go": stands(slot(1, its=NodeState.RUNNING, node=5)),
    "left": stands(place(1, 1), GATHERS),
    "standby": stands(place(1, 1, node_state=NodeState.STANDBY)),
    "lost": stands(place(), GATHERS),
    "lost-in-time": stands(place()),
    "lost-again": stands(place(2, 3), GATHERS),
    "fenced": stands(place(fenced=True), GATHERS),
    "fails": stands(place(), GATHERS, fails=True),
    "back": stands(place(2, node_state=NodeState.RUNNING, node=5, awaited=False)),
    "given-up": stands(place(1, 1, awaited=False), GATHERS),
    "given-up-fails": stands(place(1, 1, awaited=False), GATHERS, fails=True),
    "released": stands(RELEASED),
    "released-between": stands(RELEASED, Phase.ARMING),
    "unheard": lambda drive, _: drive.answer("tell slot", SILENT, drawn=0.5),
    "submitted": lambda drive, key: drive.answer("submit", str(100 * key.generation + 1), key),
}
SENT = "wanted heard "
RUNS = SENT + "submitted heard running heard go "
HELD = RUNS + "lost heard2 running told "
GONE = "note 101 gone; tell slot ended 101"
THIRD = "write intent 1.3; submit 1.3"
WANTED = "tell slot 1.2 submitting"
INTENT = "write intent 1.2; submit 1.2"
NAME = "worker run rdzv-n3wl4unch1-1-1 (slot 1, id 101)"
LEFT = f"say {NAME} may still exist: error 500| end it with: end 101"
NEXT_WAITS = "the next worker run of slot 1 waits until its program is surely over"
SHOWN = "say copy slot 1's script to its machine, and start it there: start 101"
BY_HAND = f"say what was started by hand as {NAME} may still run| {NEXT_WAITS}"
STUCK = HELD + "75 silent "
OLDER = HELD + "fenced submitted2 heard2 running heard2 lost-again heard3 "
LASTS = SENT + "lost heard2 "


@pytest.mark.parametrize(
    ("script", "then"),
    [
        # a standby stays at a go, and its scheduler is not believed against its node
        (RUNS + "standby", ""),
        (RUNS + "standby 1 ended", "tell slot ended 101"),
        (RUNS + "standby 1 ended heard 1", "1: describe 101"),
        # the place of a lost node is submitted again between two epochs, and while the others run
        (RUNS + "lost", WANTED),
        (RUNS + "lost-in-time", WANTED),
        ("lost", WANTED),
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
        (HELD + "0.2 ended unwanted", ""),
        (HELD + "0.2 ended heard 60", ""),
        (RUNS + "1 failed heard lost heard2", "describe 101"),  # it was said of a node that lived
        (RUNS + "left 1 failed heard lost heard2", INTENT),
        (RUNS + "left 1 failed lost", f"break off tell slot; tell slot ended 101; {WANTED}"),
        # a scheduler that does not answer is no proof: it is asked again, until the fence
        (STUCK, f"{LEFT}| {NEXT_WAITS}"),
        (STUCK + "lost", ""),
        (STUCK + "59 lost", ""),
        (STUCK + "61 lost", "describe 101"),
        (STUCK + "61 lost ended", f"{GONE}; {INTENT}"),
        (STUCK + "61 lost 76 silent 61 lost", "describe 101"),  # as often as before
        (STUCK + "fenced", INTENT),
        (STUCK + "fenced submitted2 heard2 running heard2 61 back", "describe 101"),
        (HELD + "fenced", INTENT),  # and goes on being ended beside
        (HELD + "fenced 0.2 ended", GONE),
        # all older ones have to be over
        (OLDER + "ended", "note 1.2 201 gone; tell slot 1.2 ended 201"),
        (OLDER + "ended 0.3 failed", f"{GONE}; {THIRD}"),
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
        (RUNS + "fails heard2 running told 75 silent", f"{LEFT}; {INTENT}"),
        # nothing is submitted, or told, once the run ends
        (STUCK + "signal 0.2", ""),
        (HELD + "signal 0.2 ended", "note 101 gone"),
    ],
)
def test_what_becomes_of_a_lost_nodes_worker_run(script: str, then: str) -> None:
    assert Drive().following().play(script, STEPS, QUIET, then) == then


@pytest.mark.parametrize(
    ("script", "then"),
    [
        # it is shown once it is submitted
        (SENT + "submitted", f"note 101; {SHOWN}; tell slot submitted 101"),
        # that its script was taken away is no proof: what a person has started with it may run
        (HELD + "0.2 ended", f"note 101 gone; {BY_HAND}"),
        (HELD + "0.2 ended 600 lost", ""),
        (HELD + "0.2 ended fenced", INTENT),
    ],
)
def test_what_a_person_has_started_is_over_when_the_registry_says_so(
    script: str, then: str
) -> None:
    assert Drive(Facts(others=MANUAL)).following().play(script, STEPS, QUIET, then) == then


def resumed(one: SlotStatus, phase: Phase = GATHERS) -> Drive:
    """A launch that was killed between two epochs, started again; slot 1 stands like this."""
    drive = Drive(Facts(), Former(), Left(ONE, SLURM, "101"))
    return drive.resumed(one, phase=phase, ended=ENDED, on_node_loss="replace")


MADE = place(2, 2, state=SlotState.SUBMITTING)
UNFOUND = "missed2 heard3 missed2 ended"


@pytest.mark.parametrize(
    ("one", "phase", "script", "then"),
    [
        # it replaces a lost node like the first one
        (place(), GATHERS, "heard2", "describe 101"),
        *((place(), phase, "heard2 ended", f"{GONE}; {INTENT}") for phase in PAUSED),
        # what it does not find is submitted behind all older ones: the former launcher had told of
        # it, and waited for the first one to end
        (MADE, GATHERS, UNFOUND, GONE),
        (MADE, GATHERS, f"{UNFOUND} 1 missed2", f"note 1.2 gone; tell slot 1.2 ended; {THIRD}"),
    ],
)
def test_what_a_resumed_launch_does_about_a_lost_node(
    one: SlotStatus, phase: Phase, script: str, then: str
) -> None:
    assert resumed(one, phase).play(script, STEPS, QUIET, then) == then


@pytest.mark.parametrize("node", [NodeState.STANDBY, None])
def test_a_standby_and_its_place_are_taken_up_again(node: NodeState | None) -> None:
    drive = resumed(place(1, 1, node_state=node, state=SlotState.RUNNING), Phase.ARMING)
    drive.answer("find", "101", ONE)
    drive.described(ONE, SlotState.RUNNING)
    assert drive.open_keys("cancel worker run") == []
    drive.answer("ask status", stands(place(1, 1, node_state=node, state=SlotState.RUNNING)))
    drive.wait(10.0)
    assert drive.of("cancel worker run") == []
