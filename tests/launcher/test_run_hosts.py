"""On which hosts worker runs start, by where those before them have failed. By value."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.launch.hosts import WAITS_FOR_OTHER_SECONDS
from launcher.plan.avoiding import NO_PLACES, Places
from launcher.schedulers.contract import NothingSubmitted
from launcher.schedulers.description import Description
from rendezvous.wire.run import EpochEnd, NodeState, Phase, SlotState, SlotStatus
from tests.launcher.drive import QUIET, Drive, Steps, slot, status
from tests.launcher.outer import ONE, SLURM, Facts, Former, Key, Left
from tests.launcher.test_run_replacing import place, stands

TWO, THREE = Key(1, 2), Key(1, 3)
GATHERS, FAILED = Phase.GATHERING, SlotState.FAILED
AVOIDS = Places(avoids=True)
BAD_TOO, NEVER_TELLS = Places(avoid=("bad",), avoids=True), Places(avoids=True, tells=False)
NAMED = Places(("here", "n1", "n2"), ("n3",))
LOST: dict[str, Any] = {"phase": GATHERS, "on_node_loss": "replace"}
LOST |= {"ended": [EpochEnd(epoch=1, message="node 1 was lost", replaced=[1])]}


def on(host: str, state: SlotState = SlotState.RUNNING, **more: Any) -> tuple[str, Description]:
    """The scheduler says where it is."""
    return "describe", Description(state, "", host=host, **more)


WAITS = WAITS_FOR_OTHER_SECONDS + 1.0
QUEUED = place(2, 2, state=SlotState.QUEUED)
STEPS: Steps = {
    "go": status(slot(1, its=NodeState.RUNNING, node=1), phase=Phase.RUNNING),
    "wants": status(slot(1, 1, 2)),
    "lost": stands(place(), GATHERS),
    "fenced": stands(place(fenced=True), GATHERS),
    "lost-again": stands(place(2, 3), GATHERS),
    "over": lambda drive, key: drive.described(key, FAILED),
    "failed-again": stands(place(2, 3, state=FAILED), GATHERS),
    "waits-beside": stands(QUEUED, Phase.RUNNING),
    "waits-between": stands(QUEUED, GATHERS),
    "runs-17": on("gpu-17"),
    "runs-3": on("gpu-3"),
    "failed-17": on("gpu-17", FAILED),
    "preempted-17": on("gpu-17", FAILED, preempted=True),
    "boots-9": on("gpu-9", SlotState.QUEUED),
    "busy-hosts": ("submit", NothingSubmitted("not available", no_host=True)),
    "soon": lambda drive, _: drive.wait(WAITS - 2.0),
    "late": lambda drive, _: drive.wait(WAITS),
}
SOMEWHERE, THERE = "2 running go ", "2 runs-17 heard go "
LOSES, LOSES_2 = "lost heard2 over heard ", "lost-again heard3 over2 heard2 "
ON_3, QUEUES = "submitted2 heard2 runs-3 heard2 ", "submitted2 heard2 queued:Resources "
BACK_ON_17 = "busy-hosts2 submitted2 heard2 runs-17 heard2 "
IN_VAIN = QUEUES + "heard2 late queued heard3 "
ASKS = "slot 1: rdzv asks for another host than gpu-17"
ANY = "slot 1 may start on any host"
CANNOT = "slot 1 may start on gpu-17 again: its worker spec has no <<AVOID>>"
NO_NAMES = "slot 1 may start on the same host again: its scheduler names no hosts"
REFUSED = f"{ANY}: with other hosts than gpu-17 only, it was refused (not available)"
NONE_CAME = f"{ANY}: another host than gpu-17 has not come free within 60 s"


def where(drive: Drive, key: Key = TWO) -> tuple[Any, Any]:
    """On which host it is being submitted, and which ones it is to avoid: as the ledger has it."""
    run = drive.open("submit", key).of
    assert drive.of("write intent")[-1].of == run
    return run.variables.get("HOST"), run.variables["AVOID"]


def sentences(drive: Drive) -> list[str]:
    """What was said of slots."""
    return [words for words in drive.said() if words.startswith("slot ")]


# --- a scheduler that is told ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("places", "script", "key", "avoids", "said"),
    [
        # a replacement avoids the host that it replaces, and the person's; the next one both
        (AVOIDS, THERE + LOSES, TWO, ["gpu-17"], [ASKS]),
        (BAD_TOO, THERE + LOSES, TWO, ["bad", "gpu-17"], [ASKS]),
        (AVOIDS, THERE + LOSES + ON_3 + LOSES_2, THREE, ["gpu-17", "gpu-3"], None),
        # a preemption is no fault of the host, nor is one that is not known
        (AVOIDS, THERE + "lost heard2 failed! heard", TWO, [], []),
        (AVOIDS, THERE + "lost heard2 preempted-17 heard", TWO, [], []),
        (AVOIDS, SOMEWHERE + LOSES, TWO, [], []),
        # the host may be learnt with the end, or while the older one is ended
        (AVOIDS, SOMEWHERE + "lost heard2 failed-17 heard", TWO, ["gpu-17"], [ASKS]),
        (AVOIDS, SOMEWHERE + "lost heard2 runs-17 told 1 failed", TWO, ["gpu-17"], [ASKS]),
        # nothing is submitted before it is known: the program has surely ended, and its scheduler
        # was not asked since it began; but one that does not answer is not waited for
        (AVOIDS, SOMEWHERE + "lost heard2", None, [], []),
        (AVOIDS, SOMEWHERE + "fenced heard2", None, [], []),
        (AVOIDS, SOMEWHERE + "lost heard2 runs-17 fenced", TWO, ["gpu-17"], [ASKS]),
        (AVOIDS, SOMEWHERE + "fenced heard2 runs-17 fenced", TWO, ["gpu-17"], [ASKS]),
        (AVOIDS, SOMEWHERE + "fenced heard2 silent fenced", TWO, [], []),
        # before the first start it is the same
        (AVOIDS, "2 failed-17 heard wants heard2", TWO, ["gpu-17"], None),
        # a spec without a place for it is told of once for all worker runs, as is a scheduler that
        # never tells a host, which is not waited for
        (NO_PLACES, THERE + LOSES, TWO, [], [CANNOT]),
        (NO_PLACES, THERE + LOSES + ON_3 + LOSES_2, THREE, [], [CANNOT]),
        (NEVER_TELLS, SOMEWHERE, None, [], []),
        (NEVER_TELLS, SOMEWHERE + "fenced heard2", TWO, [], [NO_NAMES]),
        # where there is no other host: one that is refused goes anywhere at once, and it alone
        (AVOIDS, THERE + LOSES + "busy-hosts2", TWO, [], [ASKS, REFUSED]),
        (AVOIDS, THERE + LOSES + "busy-hosts2 refused2", None, [], [ASKS, REFUSED]),
        (AVOIDS, THERE + LOSES + BACK_ON_17 + LOSES_2, THREE, ["gpu-17"], None),
        # but not once the run ends, for another reason, or where it may have been made
        (AVOIDS, THERE + LOSES + "signal busy-hosts2", None, [], [ASKS]),
        (AVOIDS, THERE + LOSES + "refused2", None, [], [ASKS]),
        (AVOIDS, THERE + LOSES + "refused2 heard2 failed-again heard3", THREE, ["gpu-17"], None),
        (AVOIDS, THERE + LOSES + "unclear2", None, [], [ASKS]),
        # one that has waited in its queue for so long goes anywhere, once that one is over
        (AVOIDS, THERE + LOSES + IN_VAIN, None, [], [ASKS, NONE_CAME]),
        (AVOIDS, THERE + LOSES + IN_VAIN + "ended", THREE, [], [ASKS, NONE_CAME]),
    ],
)
def test_where_the_next_worker_run_of_a_slot_is_submitted(
    places: Places, script: str, key: Key | None, avoids: list[str], said: list[str] | None
) -> None:
    drive = Drive(Facts(places=places)).running(ONE)
    drive.play(script, STEPS)
    assert drive.of("submit")[0].of.variables["AVOID"] == [*places.avoid]  # the plan's
    assert drive.open_keys("submit") == ([] if key is None else [key])
    assert key is None or where(drive, key) == (None, avoids)
    assert said is None or sentences(drive) == said


TOLD = "tell slot 1.2 queued 101"
ASKS_YET, AGAIN = f"{TOLD} Resources| another ...", f"say {NONE_CAME}; tell slot 1.3 submitting"
LATE, LATE_AGAIN = " late queued:Priority", " late queued:Priority heard2 late queued:Priority"


@pytest.mark.parametrize(
    ("script", "then"),
    [
        # its queue says what it waits for, and only for so long
        (QUEUES, f"{TOLD} Resources| another host than gpu-17 is asked for"),
        (QUEUES + "heard2 soon queued:Resources", ASKS_YET),
        (QUEUES + "heard2 soon queued:Resources heard2 2 queued:Resources", AGAIN),
        # a host that is being made ready is another one: Slurm's CONFIGURING, as a node of a cloud
        # takes minutes to boot
        (QUEUES + "heard2 late boots-9 heard2 late boots-9", f"{TOLD} ..."),
        # beside running programs it waits for another host as long as it takes
        (QUEUES + "heard2 waits-beside" + LATE_AGAIN, f"{TOLD} ..."),
        (QUEUES + f"heard2 waits-beside {LATE} heard2 waits-between {LATE_AGAIN}", AGAIN),
        # what was not submitted is told, and the older one of what may have been is looked for
        ("busy-hosts2 refused2", "note 1.2 gone; tell slot 1.2 failed no"),
        ("unclear2", "tell slot 1.2 failed error 500"),
    ],
)
def test_what_becomes_of_one_that_asks_for_another_host(script: str, then: str) -> None:
    drive = Drive(Facts(places=AVOIDS)).running(ONE)
    drive.play(THERE + LOSES, STEPS)
    assert drive.play(script, STEPS, QUIET, then) == then


def test_one_that_waits_for_nothing_of_this_goes_on_waiting() -> None:
    drive = Drive(Facts(places=AVOIDS)).submitting(ONE)
    drive.play(f"submitted heard queued:Priority heard late {LATE}", STEPS)
    assert {one.key for one in drive.of("tell slot")} == {ONE}
    assert sentences(drive) == []


# --- named hosts ----------------------------------------------------------------------------------

STAYS, OTHER = slot(2, its=NodeState.JOINED), Key(2, 2)
LOST_2 = slot(2, 1, 2, awaited=True)
OF_TWO: Steps = {
    "go": status(*(slot(n, its=NodeState.RUNNING, node=n) for n in (1, 2)), phase=Phase.RUNNING),
    "lost": status(place(), STAYS, **LOST),
    "fenced": status(place(fenced=True), STAYS, **LOST),
    "lost-again": status(place(2, 3), STAYS, **LOST),
    "lost-other": status(LOST_2, place(fenced=True), **LOST),
    "heard-other": lambda drive, _: drive.heard(OTHER),
    "over-other": lambda drive, _: drive.described(Key(2, 1), FAILED),
    "runs-1": lambda drive, _: drive.described(ONE, SlotState.RUNNING, host="n1.cluster.example"),
}
FULL, LOSES_ONE = Places(("here", "n1", "n2")), "go lost heard2 over "
N3, N1 = "slot 1 starts on n3, not on n1", "slot 1 starts on n1, not on n3"
SAME = "slot 1 starts on n1 again: no other host of the list is free"


@pytest.mark.parametrize(
    ("places", "script", "key", "host", "said"),
    [
        # the next free entry of the list is taken, then the one that failed longest ago
        (NAMED, LOSES_ONE, TWO, "n3", [N3]),
        (NAMED, LOSES_ONE + "submitted2 lost-again heard3 over2", THREE, "n1", [N3, N1]),
        # a host whose worker run is not known to be over is not free
        (NAMED, "go fenced heard2", TWO, "n3", [N3]),
        (NAMED, "go fenced heard2 lost-other heard-other over-other", OTHER, "n2", None),
        # without a free entry it is the same host, and says so once
        (FULL, LOSES_ONE, TWO, "n1", [SAME]),
        (FULL, LOSES_ONE + "refused2 heard2 failed-again heard3", THREE, "n1", [SAME]),
        # a named host stays the person's name for it
        (NAMED, "go 2 runs-1 lost heard2 over", TWO, "n3", [N3]),
    ],
)
def test_on_which_of_the_named_hosts_the_next_worker_run_is_submitted(
    places: Places, script: str, key: Key, host: str, said: list[str] | None
) -> None:
    drive = Drive(Facts(places=places)).running(ONE, Key(2, 1))
    drive.play(script, {**STEPS, **OF_TWO})
    assert where(drive, key) == (host, [])
    assert said is None or sentences(drive) == said
    if "fenced" in script:
        assert drive.open("describe", ONE)


def test_one_on_a_named_host_waits_for_the_persons_host_and_no_other() -> None:
    drive = Drive(Facts(places=NAMED)).running(ONE, Key(2, 1))
    script = LOSES_ONE + "submitted2 heard2 queued:Priority"
    then = "tell slot 1.2 queued 101 Priority"
    assert drive.play(script, {**STEPS, **OF_TWO}, QUIET, then) == then


@pytest.mark.parametrize(
    ("one", "first", "more", "script", "host", "said"),
    [
        # it knows where the former one's worker runs are
        (place(), "n3", LOST, "heard2 ended", "n1", [N1]),  # where no other one is
        # what it does not find says nothing of its host, but where it has failed
        (slot(1), "n1", {}, "missed ended heard2", "n1", []),
        (slot(1), "n1", {}, "missed unknown heard2", "n1", []),
        (slot(1), "n1", {}, "missed failed heard2", "n3", [N3]),
    ],
)
def test_on_which_of_the_named_hosts_a_resumed_launch_submits(
    one: SlotStatus, first: str, more: dict[str, Any], script: str, host: str, said: list[str]
) -> None:
    left = (Left(ONE, SLURM, "101", first), Left(Key(2, 1), SLURM, "102", "n2"))
    drive = Drive(Facts(places=NAMED), Former(), *left).resumed(one, STAYS, **more)
    drive.play(script, STEPS)
    assert where(drive) == (host, [])
    assert sentences(drive) == said


def test_a_host_that_a_killed_launcher_has_given_to_a_spec_which_reads_none_is_no_host() -> None:
    left = Left(ONE, SLURM, "101", "n1")
    drive = Drive(Facts(places=AVOIDS), Former(), left).resumed(slot(1, 1, 1))
    drive.play("found failed heard wants heard2", STEPS)
    assert where(drive) == (None, [])
    assert sentences(drive) == []
