"""A node whose first warm start has failed at once, and is repeated cold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rendezvous.wire.reports import AckReport
from rendezvous.wire.run import Phase, RestartFacts
from tests.worker.agent.drive import OVER, PROGRAM, RULES, STOP, TAKEN, Drive, m, table, to, told
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent.notices import Note, Notice, text_of
from worker.agent.warm import FIRST_FAILED, WarmStart, WarmWish
from worker.contracts.framework import Forks
from worker.program.ending import Ending

SECOND = table(2, 29_501)
COLD = RestartFacts(cold=True, last_failure="node 0 failed")
ENDED = m.ended(Ending(1, 0.0))
ARMS, GOES = m.arm(SECOND, restarts=COLD), m.go(SECOND, restarts=COLD)
MAY = m.go(stop=True, restarts=RestartFacts(max_restarts=1))
READIED = m.answer(do.Arm, inputs.Armed, PROGRAM)


def warm(state: str = "running", *, is_quick: bool = False) -> Drive:
    """A node that forks its ranks, on its way to a state."""
    drive = to("arming", replace(RULES, early=True), is_quick=is_quick)
    drive.answer(do.Arm, inputs.Armed, PROGRAM, (), True)
    steps = {"armed": m.taken(), "starting": m.go(), "running": m.started()}
    for name, step in steps.items():
        if state != "acknowledging":
            step(drive)
        if name == state:
            break
    return drive


def test_a_node_that_will_fork_acknowledges_so() -> None:
    drive = to("arming")
    (ack,) = told(drive.answer(do.Arm, inputs.Armed, PROGRAM, (), True))
    assert ack == AckReport(epoch=1, digest=table().digest(), warm=True)
    drive = warm("acknowledging", is_quick=True)
    assert drive.the(do.Watch).brings == ack
    assert told(to("arming").readied()) == [AckReport(epoch=1, digest=table().digest())]


@pytest.mark.parametrize(
    ("steps", "begun"),
    [
        ([ENDED, TAKEN, ARMS], [do.StartEarly(cold=True)]),
        ([STOP, ENDED, TAKEN, ARMS], [do.StartEarly(cold=True)]),
        ([ARMS, ENDED, TAKEN], [do.StartEarly(cold=True)]),
        # What was begun before it was known is of no use.
        ([MAY, ENDED, TAKEN, ARMS], [do.StartEarly(), do.StartEarly(cold=True)]),
        ([ENDED, TAKEN, m.view(Phase.ARMING, epoch=2)], [do.StartEarly()]),
        ([OVER, ENDED], []),
    ],
)
def test_it_begins_early_what_starts_its_ranks_then(steps: list[Any], begun: list[Any]) -> None:
    assert _begun(warm(), steps) == begun


def test_one_that_had_forked_nothing_begins_the_same() -> None:
    """Of its own ranks, which were started one by one, nothing is begun early."""
    drive = to("running", replace(RULES, early=True))
    steps = [MAY, ENDED, TAKEN, ARMS]
    assert _begun(drive, steps) == [do.StartEarly(), do.StartEarly(cold=True)]


def _begun(drive: Drive, steps: list[Any]) -> list[Any]:
    actions = [action for step in steps for action in step(drive)]
    return [action for action in actions if isinstance(action, do.StartEarly)]


@pytest.mark.parametrize("late", [False, True])
def test_it_starts_once_more_though_none_may_start_again(late: bool) -> None:
    """It waits for news after its end, and closes nothing that the next start needs."""
    drive = warm()
    if not late:
        drive.stop()
        drive.ended(Ending(143, 0.0))
        drive.taken()
    assert drive.node.ends is None
    ARMS(drive)
    if late:  # it has not heard of the stop
        drive.ended(Ending(143, 0.0))
        drive.taken()
    assert drive.node.ends is None
    assert drive.the(do.Arm).restarts == COLD
    (ack,) = told(READIED(drive))
    assert ack == AckReport(epoch=2, digest=SECOND.digest())
    drive.taken()
    GOES(drive)
    assert drive.the(do.Start).again is True
    drive.started()
    assert drive.node.ends is None


def test_a_failure_of_the_second_start_ends_the_node_with_its_run() -> None:
    drive = warm()
    for step in (STOP, ENDED, TAKEN, ARMS, READIED, TAKEN, GOES, m.started(), ENDED, TAKEN):
        step(drive)
    assert drive.node.ends is None
    OVER(drive)
    assert drive.node.ends is not None
    assert drive.node.ends.code == 3


def test_the_last_words_of_the_first_start_are_sent_and_those_of_a_restart_by_hand_are_not() -> (
    None
):
    drive = warm()
    for step in (ENDED, TAKEN, ARMS):
        step(drive)
    assert len(drive.all(do.SendWords)) == 1
    for step in (READIED, TAKEN, GOES, m.started(), ENDED, TAKEN, m.arm(table(3), restarts=COLD)):
        step(drive)
    assert len(drive.all(do.SendWords)) == 1


async def test_it_says_once_that_it_forks_no_more() -> None:
    said: list[Notice] = []

    async def begins_nothing(*_: object) -> Any:
        raise AssertionError("it begins something")

    wish = WarmWish("torchrun", ["train.py"], "", 1, 1.0)
    one = WarmStart(wish, {}, begins_nothing, said.append)
    for _ in range(2):
        one.give_up(FIRST_FAILED)
    await one.end()
    await one.begin()
    forks = Forks(["train.py"], {}, [{"RANK": "0"}])
    assert not await one.arm(replace(PROGRAM, forks=forks))
    assert one.gave_up
    assert [notice.note for notice in said] == [Note.COLD]
    assert text_of(said[0]) == (
        "--warm on: this node starts its processes as with --warm off: its first warm start failed "
        "within 10 s"
    )
