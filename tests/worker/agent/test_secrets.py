"""The run's sealed variables: fetched after the join, and before anything is armed."""

from __future__ import annotations

import pytest

from rendezvous.wire.errors import ArmingFailed, Fenced, TooManyRequests
from tests.worker.agent.drive import TABLE, Drive, to, without_words
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent.notices import Note
from worker.agent.state import Cause

NAMES = ["HF_TOKEN", "WANDB_API_KEY"]


def joined() -> Drive:
    """A node that is told of sealed variables when it joins."""
    drive = to("joining")
    drive.reply = drive.reply.model_copy(update={"secrets": NAMES})
    drive.answer(do.Join, inputs.Joined, drive.reply, "http://a:1")
    return drive


def test_they_are_fetched_in_front_of_the_first_watch() -> None:
    drive = joined()
    assert (drive.the(do.FetchSecrets).limit, drive.all(do.Watch)) == (2.0, [])
    (watch,) = without_words(drive.answer(do.FetchSecrets))
    assert isinstance(watch, do.Watch)
    assert drive.all(do.FetchSecrets) == []
    drive.arm()
    assert drive.all(do.Arm)


def test_a_node_of_a_run_without_them_asks_for_none() -> None:
    assert to("joined").all(do.FetchSecrets) == []


@pytest.mark.parametrize("kind", ["not sent", "late", "away", "busy"])
def test_a_node_waits_for_them_says_so_and_arms_once_they_have_come(kind: str) -> None:
    drive = joined()
    match kind:
        case "not sent":
            actions = drive.answer(do.FetchSecrets, inputs.NotSent)
        case "late":
            actions = drive.late(do.FetchSecrets)
        case "busy":
            actions = drive.fails(do.FetchSecrets, TooManyRequests("later"))
        case _:
            actions = drive.fails(do.FetchSecrets)
    (said,) = [one.notice for one in actions if isinstance(one, do.Say)]
    assert said.note is Note.NO_SECRETS
    assert dict(said.values)["names"] == "HF_TOKEN, WANDB_API_KEY"
    assert drive.the(do.FetchSecrets).pause
    assert drive.all(do.Watch)
    assert not [one for one in drive.arm(TABLE) if isinstance(one, do.Arm)]
    assert not drive.all(do.Arm)
    drive.answer(do.FetchSecrets, inputs.NotSent)
    assert len(drive.all(do.Watch)) == 1
    assert [type(one) for one in without_words(drive.answer(do.FetchSecrets))] == [do.Arm]


def test_what_was_sealed_for_another_launch_ends_the_node_with_the_reason() -> None:
    for drive, error in ((joined(), ArmingFailed("not ours")), (joined(), None)):
        if error is not None:
            drive.fails(do.FetchSecrets, error)
        else:
            drive.breaks(do.FetchSecrets)
        assert drive.node.ends is not None
        assert drive.node.ends.cause is Cause.FAULT
        assert not drive.all(do.Watch)


def test_what_is_refused_for_good_the_watch_is_refused_as_well() -> None:
    drive = joined()
    assert [type(one) for one in drive.fails(do.FetchSecrets, Fenced("replaced"))] == [do.Watch]
    assert drive.all(do.FetchSecrets) == []


def test_a_node_that_ends_asks_no_more() -> None:
    drive = joined()
    drive.feed(inputs.SignalCame(15))
    for fetch in drive.all(do.FetchSecrets):
        drive.feed(inputs.NotSent(fetch.number))
    assert drive.all(do.FetchSecrets) == []
