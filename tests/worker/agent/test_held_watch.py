"""The watch that waits for an acknowledgement, and brings it to a registry that takes it so."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.wire.errors import StorageFull
from rendezvous.wire.reports import AckReport
from rendezvous.wire.run import Phase, RestartFacts
from tests.worker.agent.drive import AWAY_NOW, DIGEST, POLL, READIED, TERM, in_words, m, table, to
from worker.agent import actions as do
from worker.agent.watching import HOLD_SECONDS
from worker.program.ending import Ending

ACK = AckReport(epoch=1, digest=DIGEST)
OTHER = table(2)
DISK = StorageFull("the disk is full")
FULL = m.fails(do.Watch, DISK)
ARM, HELD = m.arm(), m.after(HOLD_SECONDS)


def after(*steps: Any) -> tuple[str, list[AckReport | None]]:
    """What the last of these steps does, and what the watch that is then under way brings."""
    drive = to("verifying", acks_in_watch=True)
    drive.visited()
    drive.taken()
    actions: tuple[do.Action, ...] = ()
    for step in steps:
        actions = step(drive)
    return in_words(actions), [watch.ack for watch in drive.all(do.Watch)]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # The acknowledgement goes with the next watch.
        ([ARM], ("Arm", [])),
        ([ARM, READIED], ("Watch", [ACK])),
        # It is brought again until it is answered, and not any more then.
        ([ARM, READIED, AWAY_NOW], ("REGISTRY_SILENT Watch:pause", [ACK])),
        ([ARM, READIED, m.late(do.Watch)], ("REGISTRY_SILENT Watch", [ACK])),
        ([ARM, READIED, AWAY_NOW, m.view(Phase.ARMING)], ("RUN_WAITS Watch", [None])),
        ([ARM, READIED, m.view(Phase.ARMING, seq=2), AWAY_NOW],
         ("REGISTRY_SILENT Watch:pause", [None])),
        ([ARM, READIED, m.go()], ("Watch StopListening SendMetrics STARTS Start", [None])),
        # A registry whose disk is full is there: it is told by itself, and watched meanwhile.
        ([ARM, READIED, FULL], ("Tell:Ack Watch", [None])),
        ([ARM, READIED, FULL, m.fails(do.Tell, DISK)], ("REPORT_WAITS Tell:Ack:pause", [None])),
        ([ARM, READIED, TERM, FULL], ("Watch(4)", [None])),
        # The heart-beat does not wait for a disk that hangs.
        ([ARM, m.after(HOLD_SECONDS - 0.01)], ("", [])),
        ([ARM, HELD], ("Watch", [None])),
        ([ARM, HELD, READIED], ("Tell:Ack", [None])),
        # A node that cannot start says so by itself.
        ([ARM, m.cannot_arm()], ("Tell:Refuse Watch", [None])),
        ([ARM, m.breaks(do.Arm)], ("Leave", [])),
        # Each table has its own; none is acknowledged that another has followed.
        ([ARM, READIED, m.arm(OTHER)], ("Arm", [])),
        ([ARM, READIED, m.arm(OTHER), READIED],
         ("Watch", [AckReport(epoch=2, digest=OTHER.digest())])),
        ([ARM, HELD, m.arm(OTHER)], ("", [])),
        ([ARM, HELD, m.arm(OTHER), READIED], ("Arm", [])),
        ([ARM, HELD, m.arm(OTHER), READIED, HELD], ("Watch", [None])),
        ([ARM, READIED, m.verify(epoch=3)], ("Watch Visit", [None])),
        # Who ends acknowledges nothing, and goes on to listen.
        ([ARM, TERM], ("SIGNAL Tell:Exit(143):last Watch(4)", [None])),
        ([ARM, TERM, READIED], ("", [None])),
        ([ARM, READIED, TERM, AWAY_NOW], ("Watch(4):pause", [None])),
    ],
)  # fmt: skip
def test_what_a_node_does_that_arms(
    steps: list[Any], expected: tuple[str, list[AckReport | None]]
) -> None:
    assert after(*steps) == expected


def test_it_is_held_for_a_moment_and_no_longer_than_a_quarter_of_a_poll() -> None:
    drive = to("arming", acks_in_watch=True)
    assert drive.due == drive.now + HOLD_SECONDS < drive.now + POLL / 4
    drive = to("joined", acks_in_watch=True)
    drive.arm(poll_seconds=0.4)
    assert drive.due == drive.now + 0.1


FACTS = RestartFacts(max_restarts=1)
STOPS = m.go(stop=True, restarts=FACTS)
ENDS = m.ended(Ending(143, 0.0, was_told=True))


def running(*steps: Any) -> str:
    """What the last of these steps does on a node whose program runs."""
    drive = to("running", acks_in_watch=True)
    return in_words([step(drive) for step in steps][-1])


@pytest.mark.parametrize(
    ("steps", "does"),
    [
        # A program that ends soon is reported on the connection that the watch would take.
        ([STOPS], "Stop"),
        ([STOPS, ENDS], "Tell:Exit(143,stopped)@0"),
        ([STOPS, ENDS, m.taken()], "Watch"),
        ([STOPS, ENDS, m.after(POLL / 2 - 0.01)], ""),
        ([STOPS, ENDS, m.after(POLL / 2)], "Watch"),
        ([STOPS, ENDS, m.after(POLL / 2), m.taken()], ""),
        ([STOPS, ENDS, m.fails(do.Tell)], "REPORT_WAITS Tell:Exit(143,stopped)@0:pause"),
        # One that takes its time holds nothing.
        ([STOPS, HELD], "Watch"),
        ([STOPS, TERM], "SIGNAL Watch(4)"),
        # Nor one whose end was told, or that is not followed by another.
        ([m.ended(Ending(1, 0.0)), m.taken(), STOPS], "Watch"),
        ([m.go(stop=True)], "Watch Stop"),
    ],
)
def test_the_end_of_a_program_that_may_start_again_holds_it(steps: list[Any], does: str) -> None:
    assert running(*steps) == does


def test_no_other_news_holds_it() -> None:
    drive = to("joined", acks_in_watch=True)
    for news in (drive.view, drive.verify, drive.stop):
        assert do.Watch in map(type, news())
    assert drive.due is None
