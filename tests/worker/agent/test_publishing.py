"""When a node publishes what features have for it: in front of a watch that brings no news; and as
of when it has a program for them."""

from __future__ import annotations

import pytest

from rendezvous.wire.errors import RdzvError, TooLarge
from rendezvous.wire.run import Phase
from rendezvous.wire.watch import NodeView
from tests.worker.agent.drive import AWAY, GONE, LED, OVER, POLL, SERVING, TERM, Drive, in_words, to
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent.watching import HOLD_SECONDS


def asked() -> Drive:
    """A node whose program runs, and of which a feature has something to publish."""
    drive = to("running")
    assert drive.feed(inputs.Publish()) == ()
    return drive


def idle(drive: Drive) -> tuple[do.Action, ...]:
    """What it does at a watch that brings no news."""
    assert drive.node.member is not None
    view = NodeView(
        phase=Phase.RUNNING, seq=drive.node.member.after, epoch=1, reason="", poll_seconds=POLL
    )
    return drive.answer(do.Watch, inputs.Viewed, view)


def test_it_is_published_in_front_of_the_next_watch() -> None:
    drive = asked()
    assert in_words(idle(drive)) == "Publish"
    assert in_words(drive.answer(do.Publish)) == "Watch"
    assert in_words(idle(drive)) == "Watch"  # it was asked for once


def test_one_message_goes_in_front_of_each_watch() -> None:
    drive = asked()
    drive.feed(inputs.Publish())
    idle(drive)
    drive.feed(inputs.Publish())  # more of them wait
    assert in_words(drive.answer(do.Publish)) == "Watch"
    assert in_words(idle(drive)) == "Publish"


@pytest.mark.parametrize("error", [AWAY, TooLarge("too much")])
def test_what_comes_of_it_is_the_features_own(error: RdzvError) -> None:
    drive = asked()
    idle(drive)
    assert in_words(drive.fails(do.Publish, error)) == "Watch"


def test_a_watch_does_not_wait_for_long() -> None:
    drive = asked()
    idle(drive)
    assert drive.due == drive.now + HOLD_SECONDS
    assert in_words(drive.after(HOLD_SECONDS)) == "Watch"
    assert drive.answer(do.Publish) == ()


def test_news_come_first() -> None:
    drive = asked()
    assert "Publish" not in in_words(drive.go(reason="another one"))
    assert in_words(idle(drive)) == "RUN_WAITS Publish"


def test_a_node_that_ends_publishes_nothing_any_more() -> None:
    drive = asked()
    TERM(drive)
    assert in_words(idle(drive)) == "Watch(4)"


def test_what_is_on_its_way_when_the_program_ends_is_broken_off_by_its_feature() -> None:
    """See `test_port`: it is answered then, and the watch waits no longer."""
    drive = asked()
    idle(drive)
    assert in_words(GONE(drive)) == "Flush"
    assert in_words(drive.answer(do.Publish)) == "Watch"


# --- as of when a program runs here ---------------------------------------------------------------


def test_features_have_a_program_from_its_start_until_it_is_gone_or_the_node_ends() -> None:
    assert to("armed").node.runs is None
    drive = to("starting")
    assert drive.node.runs is None
    drive.started()
    assert drive.node.runs == drive.program
    GONE(drive)
    assert drive.node.runs is None
    for ends in (TERM, OVER):
        drive = to("running")
        ends(drive)
        assert drive.node.runs is None


def test_a_node_that_serves_has_one_as_well() -> None:
    drive = to("running", LED, SERVING)
    assert drive.node.runs == drive.program
