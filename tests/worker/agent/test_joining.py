"""From the start of a node until the registry has taken it in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rendezvous.talk.failures import NobodyListens, OtherKey
from rendezvous.wire.errors import (
    AddressError,
    ArmingFailed,
    Fenced,
    JoinTimeout,
    Mismatch,
    RunError,
    RunOver,
    SlotTaken,
    TooLate,
    TooManyRequests,
    UsageError,
)
from tests.worker.agent.drive import (
    BASE,
    CLOSES,
    OFFER,
    RULES,
    TERM,
    Drive,
    m,
    outcome,
    reply,
    to,
    without_words,
)
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent.faults import join_timed_out
from worker.agent.notices import Note, notice
from worker.offer.refusal import refusal_of

NEVER = m.fails(do.Join, UsageError("no such option"))
HELD = m.fails(do.Join, SlotTaken("it lives"))
NO_PORT = m.answer(do.Listen, inputs.Listening, None, "all are taken")
OTHER = m.fails(do.Join, Mismatch("another COMMAND", command_word=3))
KEY = m.fails(do.Connect, OtherKey("another key", pins={"a": "00"}))
NOBODY = m.fails(do.Connect, NobodyListens("port 29600: refused"))
STALE = notice(Note.STALE_HOSTS_KEPT, problem="no right to write")


def test_each_step_to_the_join_begins_when_the_one_before_it_is_over() -> None:
    drive = Drive()
    assert drive.first == (do.RestoreHosts(1, limit=10.0),)
    assert drive.answer(do.RestoreHosts) == (do.Listen(2),)
    assert drive.answer(do.Listen, inputs.Listening, 7_000) == (do.LookAhead(3, limit=2.0),)
    assert drive.answer(do.LookAhead) == (do.Connect(4),)
    offer = do.MakeOffer(5, base=BASE, probe_port=7_000, limit=30.0)
    assert drive.answer(do.Connect, inputs.Connected, BASE) == (offer,)
    assert drive.answer(do.MakeOffer, inputs.Offered, OFFER) == (do.Join(6, offer=OFFER),)
    actions = drive.answer(do.Join, inputs.Joined, reply(seq=4), BASE)
    assert without_words(actions) == (do.Watch(7, after=4, poll=2.0, limit=116.0),)
    assert Drive(replace(RULES, hosts_file="")).first == (do.Listen(1),)


def test_what_can_begin_before_the_go_begins_first() -> None:
    first = Drive(replace(RULES, early=True)).first
    assert first == (do.StartEarly(), do.RestoreHosts(1, limit=10.0))


@pytest.mark.parametrize(
    ("begin", "steps", "does"),
    [
        # What this machine lacks is said, and holds up nothing.
        ("begun", [m.answer(do.RestoreHosts, inputs.Done, (STALE,))], "STALE_HOSTS_KEPT Listen"),
        ("begun", [m.breaks(do.RestoreHosts)], "PART_BROKEN Listen"),
        ("begun", [m.late(do.RestoreHosts)], "STALE_HOSTS_HANG Listen"),
        ("restored", [NO_PORT], "NOT_LISTENING LookAhead"),
        ("listening", [m.late(do.LookAhead)], "Connect"),
        # What may pass is tried again.
        ("connecting", [m.fails(do.Connect)], "CANNOT_JOIN_YET Connect:pause"),
        ("joining", [m.fails(do.Join)], "CANNOT_JOIN_YET Join:pause"),
        ("joining", [HELD], "CANNOT_JOIN_YET Join:pause"),
        ("joining", [m.fails(do.Join, TooManyRequests("wait"))], "CANNOT_JOIN_YET Join:pause"),
        # The same problem is said each half minute, another one at once.
        ("joining", [m.fails(do.Join), m.at(30.0), m.fails(do.Join)], "Join:pause"),
        ("joining", [m.fails(do.Join), m.at(30.5), m.fails(do.Join)], "CANNOT_JOIN_YET Join:pause"),
        ("joining", [m.fails(do.Join), HELD], "CANNOT_JOIN_YET Join:pause"),
        ("joining", [m.at(600.0), m.fails(do.Join)], "CANNOT_JOIN_YET Join:pause"),
        ("joining", [m.at(600.1), m.fails(do.Join)], "Leave ends:REFUSED"),
        # A registry that will never take it ends the node, with the registry's own error.
        ("joining", [m.fails(do.Join, Fenced("newer"))], "Leave ends:REFUSED"),
        ("joining", [m.fails(do.Join, RunOver("over"))], "Leave ends:REFUSED"),
        ("joining", [m.fails(do.Join, TooLate("went on"))], "Leave ends:REFUSED"),
        ("joining", [OTHER], "ShowWord Leave ends:REFUSED"),
        ("joining", [m.fails(do.Join, Fenced("newer")), CLOSES], "End:Fenced"),
        # What this node can never do is told before it ends.
        ("joining", [NEVER], "Refuse"),
        ("joining", [m.fails(do.Join, ArmingFailed("no disk"))], "Refuse"),
        ("offering", [m.fails(do.MakeOffer, AddressError("no eth9"))], "Refuse"),
        ("offering", [m.late(do.MakeOffer)], "Refuse"),
        ("listening", [m.breaks(do.LookAhead)], "Refuse"),
        ("connecting", [m.breaks(do.Connect)], "Refuse"),
        ("listening", [m.breaks(do.LookAhead), m.answer(do.Refuse)], "Leave ends:FAULT"),
        ("listening", [m.breaks(do.LookAhead), m.breaks(do.Refuse)], "Leave ends:FAULT"),
        ("joining", [NEVER, m.answer(do.Refuse), CLOSES], "End:UsageError"),
        # Another key that stays is no former launch that is just ending.
        ("connecting", [m.at(5.0), KEY, m.at(14.9), KEY], "Connect:pause"),
        ("connecting", [m.at(5.0), KEY, m.at(15.0), KEY], "Refuse"),
        ("connecting", [KEY, m.at(9.0), NOBODY, m.at(11.0), KEY], "CANNOT_JOIN_YET Connect:pause"),
        ("connecting", [KEY, m.at(10.0), KEY, m.answer(do.Refuse), CLOSES], "End:OtherKey"),
        # A registry that it has not met is told nothing.
        ("joining", [TERM], "SIGNAL Drop:Join Leave ends:SIGNAL"),
        ("joining", [TERM, m.closes(do.CloseSocket)], "CloseClient"),
        ("joining", [TERM, CLOSES], "End:143"),
    ],
)
def test_what_comes_of_a_step_to_the_join(begin: str, steps: list[Any], does: str) -> None:
    assert outcome(begin, *steps) == does


def test_it_is_tried_again_with_the_same_offer_and_without_a_port_for_probes_too() -> None:
    drive = to("joining")
    drive.fails(do.Join)
    assert drive.the(do.Join) == do.Join(7, offer=OFFER, pause=True)
    drive = to("restored")
    NO_PORT(drive)
    drive.answer(do.LookAhead)
    (offer,) = drive.answer(do.Connect, inputs.Connected, BASE)
    assert offer == do.MakeOffer(5, base=BASE, probe_port=None, limit=30.0)


def test_the_word_of_another_command_is_shown() -> None:
    assert OTHER(to("joining"))[0] == do.ShowWord(3)


def test_a_machine_that_does_not_show_what_it_has_may_be_replaced() -> None:
    drive = to("offering")
    drive.late(do.MakeOffer)
    error = drive.the(do.Refuse).error
    assert isinstance(error, RunError)
    assert "30 s" in error.message
    assert refusal_of(error, "n1").retryable


def test_a_node_that_has_waited_too_long_ends_with_the_last_cause_and_its_hint() -> None:
    drive = to("joining")
    drive.now = 600.1
    drive.fails(do.Join, SlotTaken("it lives", hint="wait for it"))
    (end,) = drive.closes()
    assert isinstance(end, do.End)
    assert isinstance(end.error, JoinTimeout)
    assert ("it lives" in end.error.message, end.error.hint) == (True, "wait for it")


def test_what_a_node_signed_and_heard_of_a_run_that_outlives_its_nodes_is_kept() -> None:
    (one,) = OFFER.candidates
    drive = to("offering")
    last = replace(one, address="100.64.0.1", mac="ef" * 32)
    both = replace(OFFER, candidates=[replace(one, generation_mac="cd" * 32)], left_out=[last])
    drive.answer(do.MakeOffer, inputs.Offered, both)
    for now in (3.0, 5.0):
        drive.at(now)
        drive.fails(do.Join)
    drive.at(6.0)
    drive.answer(do.Join, inputs.Joined, reply(fence=60.0), BASE)
    member = drive.node.member
    assert member is not None
    assert member.offered == {"ab" * 32, "cd" * 32, "ef" * 32}
    # The registry has heard of it when it was asked last, or later.
    assert (member.known_at, member.fence_timeout) == (5.0, 60.0)
    drive.arm()
    assert drive.the(do.Arm).of_generations


def test_a_run_that_ends_with_a_node_has_no_fence() -> None:
    drive = to("arming")
    assert drive.node.member is not None
    assert drive.node.member.fence_timeout is None
    assert not drive.the(do.Arm).of_generations


@pytest.mark.parametrize(("unheard", "told"), [(True, True), (False, False)])
def test_that_nobody_ever_listened_is_told_at_the_end(unheard: bool, told: bool) -> None:
    error = join_timed_out(RULES, NobodyListens("port 29600: refused"), unheard)
    assert ("no program ever listened there; port 29600: refused" in error.message) is told
