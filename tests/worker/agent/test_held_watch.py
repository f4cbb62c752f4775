"""The watch that waits for an acknowledgement, and brings it."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.wire.errors import StorageFull
from rendezvous.wire.reports import AckReport
from rendezvous.wire.run import Phase, RestartFacts
from tests.worker.agent.drive import AWAY_NOW, OVER, POLL, READIED, TERM, in_words, m, table, to
from worker.agent import actions as do
from worker.agent.watching import END_SECONDS, HOLD_SECONDS
from worker.program.ending import Ending

OTHER = table(2)
DISK = StorageFull("the disk is full")
FULL = m.fails(do.Watch, DISK)
ARM, HELD, LATER = m.arm(), m.after(HOLD_SECONDS), m.after(END_SECONDS)


def after(*steps: Any) -> str:
    """What the last of these steps does on a node that has been verified."""
    drive = to("verifying", is_quick=True)
    drive.visited()
    drive.taken()
    return in_words([step(drive) for step in steps][-1])


@pytest.mark.parametrize(
    ("steps", "does"),
    [
        # The acknowledgement goes with the next watch.
        ([ARM], "Arm"),
        ([ARM, READIED], "Watch:Ack"),
        # It is brought again until it is answered, and not any more then.
        ([ARM, READIED, AWAY_NOW], "REGISTRY_SILENT Watch:Ack:pause"),
        ([ARM, READIED, m.late(do.Watch)], "REGISTRY_SILENT Watch:Ack"),
        ([ARM, READIED, AWAY_NOW, m.view(Phase.ARMING)], "RUN_WAITS Watch"),
        ([ARM, READIED, m.view(Phase.ARMING, seq=2), AWAY_NOW], "REGISTRY_SILENT Watch:pause"),
        ([ARM, READIED, m.go()], "Watch StopListening STARTS Start"),
        # A registry whose disk is full is there: it is told by itself, and watched meanwhile.
        ([ARM, READIED, FULL], "Tell:Ack Watch"),
        ([ARM, READIED, FULL, m.fails(do.Tell, DISK)], "REPORT_WAITS Tell:Ack:pause"),
        ([ARM, READIED, TERM, FULL], "Watch(4)"),
        # The heart-beat does not wait for a disk that hangs.
        ([ARM, m.after(HOLD_SECONDS - 0.01)], ""),
        ([ARM, HELD], "Watch"),
        ([ARM, HELD, READIED], "Tell:Ack"),
        # A node that cannot start says so by itself.
        ([ARM, m.cannot_arm()], "Tell:Refuse Watch"),
        ([ARM, m.breaks(do.Arm)], "Leave"),
        # Each table has its own; none is acknowledged that another has followed.
        ([ARM, READIED, m.arm(OTHER)], "Arm"),
        ([ARM, READIED, m.arm(OTHER), READIED], "Watch:Ack"),
        ([ARM, HELD, m.arm(OTHER)], ""),
        ([ARM, HELD, m.arm(OTHER), READIED], "Arm"),
        ([ARM, HELD, m.arm(OTHER), READIED, HELD], "Watch"),
        ([ARM, READIED, m.verify(epoch=3)], "Watch Visit"),
        # Who ends acknowledges nothing, and goes on to listen.
        ([ARM, TERM], "SIGNAL Tell:Exit(143):last Watch(4)"),
        ([ARM, TERM, READIED], ""),
        ([ARM, READIED, TERM, AWAY_NOW], "Watch(4):pause"),
    ],
)
def test_what_a_node_does_that_arms(steps: list[Any], does: str) -> None:
    assert after(*steps) == does


def test_a_table_that_follows_is_acknowledged() -> None:
    drive = to("verifying", is_quick=True)
    drive.visited()
    drive.taken()
    for given in (table(), OTHER):
        drive.arm(given)
        drive.readied()
        assert drive.the(do.Watch).brings == AckReport(epoch=given.epoch, digest=given.digest())


def test_it_is_held_for_a_moment_and_no_longer_than_a_quarter_of_a_poll() -> None:
    drive = to("arming", is_quick=True)
    assert drive.due == drive.now + HOLD_SECONDS < drive.now + POLL / 4
    drive = to("joined", is_quick=True)
    drive.arm(poll_seconds=0.4)
    assert drive.due == drive.now + 0.1


def test_it_is_held_longer_for_an_end_and_no_longer_than_half_a_poll() -> None:
    for poll, seconds in ((POLL, END_SECONDS), (0.8, 0.4)):
        drive = to("running", is_quick=True)
        drive.go(stop=True, restarts=FACTS, poll_seconds=poll)
        assert drive.due == drive.now + seconds


FACTS = RestartFacts(max_restarts=1)
STOPS = m.go(stop=True, restarts=FACTS)
ENDS = m.ended(Ending(143, 0.0, was_told=True))


def running(*steps: Any) -> str:
    """What the last of these steps does on a node whose program runs."""
    drive = to("running", is_quick=True)
    return in_words([step(drive) for step in steps][-1])


TOLD = "Exit(143,stopped)@0"
BROUGHT = [STOPS, ENDS]
AGAIN = m.arm(OTHER, restarts=FACTS)


@pytest.mark.parametrize(
    ("steps", "does"),
    [
        # The end of a program that ends soon goes with the next watch.
        ([STOPS], "Stop"),
        (BROUGHT, f"Watch:{TOLD}"),
        # It is brought again until it is answered, and not any more then.
        ([*BROUGHT, AWAY_NOW], f"REGISTRY_SILENT Watch:{TOLD}:pause"),
        ([*BROUGHT, m.late(do.Watch)], f"REGISTRY_SILENT Watch:{TOLD}"),
        ([*BROUGHT, STOPS], "Watch"),
        ([*BROUGHT, AWAY_NOW, AGAIN], "RUN_WAITS Arm"),
        ([*BROUGHT, AGAIN, READIED], "Watch:Ack"),
        # What has not been taken in is told before anything else is armed for.
        ([STOPS, LATER, AGAIN, ENDS], f"Watch:{TOLD}"),
        ([STOPS, LATER, AGAIN, ENDS, m.view(Phase.ARMING)], "Arm"),
        # A registry whose disk is full is there: it is told by itself, and watched meanwhile.
        ([*BROUGHT, FULL], f"Tell:{TOLD} Watch"),
        ([*BROUGHT, FULL, m.fails(do.Tell, DISK)], f"REPORT_WAITS Tell:{TOLD}:pause"),
        ([*BROUGHT, FULL, AGAIN], "Watch"),
        ([*BROUGHT, FULL, AGAIN, m.taken()], "Arm"),
        # A node that ends waits for no watch.
        ([*BROUGHT, OVER], "Watch Drop:Watch RUN_OVER Leave"),
        ([*BROUGHT, TERM], f"SIGNAL Tell:{TOLD}"),
        ([*BROUGHT, TERM, FULL], "Watch(4)"),
        # One that takes its time holds nothing.
        ([STOPS, m.after(END_SECONDS - 0.01)], ""),
        ([STOPS, LATER], "Watch"),
        ([STOPS, LATER, ENDS], f"Tell:{TOLD}"),
        ([STOPS, TERM], "SIGNAL Watch(4)"),
        # Nor one whose end was told, or that is not followed by another.
        ([m.ended(Ending(1, 0.0)), m.taken(), STOPS], "Watch"),
        ([m.go(stop=True)], "Watch Stop"),
    ],
)
def test_the_end_of_a_program_that_may_start_again_holds_it(steps: list[Any], does: str) -> None:
    assert running(*steps) == does


def test_no_other_news_holds_it() -> None:
    drive = to("joined", is_quick=True)
    for news in (drive.view, drive.verify, drive.stop):
        assert do.Watch in map(type, news())
    assert drive.due is None
