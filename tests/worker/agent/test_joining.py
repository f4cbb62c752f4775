"""From the start of a node until the registry has taken it in."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from rendezvous.wire.errors import (
    AddressError,
    ArmingFailed,
    Fenced,
    JoinTimeout,
    Mismatch,
    RdzvError,
    RunError,
    RunOver,
    SlotTaken,
    TooLate,
    TooManyRequests,
    UsageError,
)
from tests.worker.agent.drive import (
    AWAY,
    OFFER,
    RULES,
    Drive,
    joined,
    joining,
    notes,
    reply,
    without_words,
)
from worker.agent.actions import (
    CloseClient,
    CloseSocket,
    Connect,
    Drop,
    End,
    Join,
    Listen,
    LookAhead,
    MakeOffer,
    Refuse,
    RemoveHosts,
    RestoreHosts,
    ShowWord,
    StopListening,
    Tell,
    Watch,
)
from worker.agent.inputs import Connected, Done, Joined, Listening, Offered
from worker.agent.notices import Note, notice
from worker.agent.state import Cause
from worker.offer.refusal import refusal_of

BASE = "https://10.0.0.4:29600"


def test_each_step_to_the_join_begins_when_the_one_before_it_is_over() -> None:
    drive = Drive()
    assert drive.first == (RestoreHosts(1, limit=10.0),)
    assert drive.answer(RestoreHosts) == (Listen(2),)
    assert drive.answer(Listen, Listening, 7_000) == (LookAhead(3, limit=2.0),)
    assert drive.answer(LookAhead) == (Connect(4),)
    offer = MakeOffer(5, base=BASE, probe_port=7_000, limit=30.0)
    assert drive.answer(Connect, Connected, BASE) == (offer,)
    assert drive.answer(MakeOffer, Offered, OFFER) == (Join(6, offer=OFFER),)
    actions = drive.answer(Join, Joined, reply(seq=4), BASE)
    assert notes(actions) == [Note.JOINED]
    assert without_words(actions) == (Watch(7, after=4, poll=2.0, limit=116.0),)


def test_a_node_without_a_hosts_file_leaves_it_alone() -> None:
    assert Drive(replace(RULES, hosts_file="")).first == (Listen(1),)


def test_a_hosts_file_that_cannot_be_looked_at_holds_up_nothing_and_the_fault_is_said() -> None:
    drive = Drive()
    said = notice(Note.STALE_HOSTS_KEPT, problem="no right to write")
    actions = drive.feed(Done(drive.the(RestoreHosts).number, (said,)))
    assert notes(actions) == [Note.STALE_HOSTS_KEPT]
    assert without_words(actions) == (Listen(2),)
    drive = Drive()
    actions = drive.breaks(RestoreHosts)
    assert notes(actions) == [Note.PART_BROKEN]
    assert without_words(actions) == (Listen(2),)


def test_a_node_that_finds_no_port_for_probes_joins_all_the_same() -> None:
    drive = Drive()
    drive.answer(RestoreHosts)
    actions = drive.answer(Listen, Listening, None, "all are taken")
    assert notes(actions) == [Note.NOT_LISTENING]
    drive.answer(LookAhead)
    (offer,) = drive.answer(Connect, Connected, BASE)
    assert offer == MakeOffer(5, base=BASE, probe_port=None, limit=30.0)


def test_a_hosts_file_that_hangs_holds_up_nothing_and_is_said() -> None:
    drive = Drive()
    actions = drive.late(RestoreHosts)
    assert notes(actions) == [Note.STALE_HOSTS_HANG]
    assert without_words(actions) == (Listen(2),)


def test_a_machine_that_does_not_show_what_it_has_refuses_and_may_be_replaced() -> None:
    drive = Drive(replace(RULES, hosts_file=""))
    drive.answer(Listen, Listening, 7_000)
    drive.answer(LookAhead)
    drive.answer(Connect, Connected, BASE)
    (refuse,) = drive.late(MakeOffer)
    assert isinstance(refuse, Refuse)
    assert isinstance(refuse.error, RunError)
    assert "30 s" in refuse.error.message
    assert refusal_of(refuse.error, "n1").retryable
    drive.answer(Refuse)
    assert drive.node.ends is not None
    assert (drive.node.ends.cause, drive.node.ends.error) == (Cause.FAULT, refuse.error)


def test_a_disk_that_hangs_while_it_looks_ahead_holds_up_nothing() -> None:
    drive = Drive()
    drive.answer(RestoreHosts)
    drive.answer(Listen, Listening, 7_000)
    assert drive.late(LookAhead) == (Connect(4),)


@pytest.mark.parametrize("error", [AWAY, SlotTaken("it lives"), TooManyRequests("wait")])
def test_what_may_pass_is_tried_again_with_the_same_offer(error: RdzvError) -> None:
    drive = joining()
    drive.now = 4.0
    actions = drive.fails(Join, error)
    assert notes(actions) == [Note.CANNOT_JOIN_YET]
    assert without_words(actions) == (Join(7, offer=OFFER, pause=True),)


def test_a_registry_that_is_not_there_yet_is_looked_for_again() -> None:
    drive = Drive(replace(RULES, hosts_file=""))
    drive.answer(Listen, Listening, 7_000)
    drive.answer(LookAhead)
    assert without_words(drive.fails(Connect)) == (Connect(4, pause=True),)


def test_the_same_problem_is_said_each_half_minute_and_another_one_at_once() -> None:
    drive = joining()
    assert notes(drive.fails(Join)) == [Note.CANNOT_JOIN_YET]
    drive.now = 30.0
    assert notes(drive.fails(Join)) == []
    drive.now = 30.5
    assert notes(drive.fails(Join)) == [Note.CANNOT_JOIN_YET]
    assert notes(drive.fails(Join, SlotTaken("it lives"))) == [Note.CANNOT_JOIN_YET]


def test_it_is_given_up_after_the_join_timeout_with_the_last_cause_and_its_hint() -> None:
    drive = joining()
    drive.now = 600.0
    assert drive.all(Join)
    drive.fails(Join)
    drive.now = 600.1
    drive.fails(Join, SlotTaken("it lives", hint="wait for it"))
    error = drive.node.ends.error if drive.node.ends else None
    assert isinstance(error, JoinTimeout)
    assert "it lives" in error.message
    assert error.hint == "wait for it"
    assert drive.leaves() == End(0, error)


@pytest.mark.parametrize("error", [Fenced("newer"), RunOver("over"), TooLate("went on")])
def test_a_registry_that_will_never_take_it_ends_the_node_at_once(error: RdzvError) -> None:
    drive = joining()
    assert without_words(drive.fails(Join, error)) == (StopListening(), CloseSocket(7))
    assert drive.leaves() == End(0, error)


def test_a_node_of_another_command_shows_the_word_and_ends() -> None:
    drive = joining()
    error = Mismatch("another COMMAND", command_word=3)
    assert drive.fails(Join, error)[0] == ShowWord(3)
    assert drive.leaves() == End(0, error)


@pytest.mark.parametrize("error", [UsageError("no such option"), ArmingFailed("no disk")])
def test_what_this_node_can_never_do_is_told_before_it_ends(error: RdzvError) -> None:
    drive = joining()
    assert drive.fails(Join, error) == (Refuse(7, error=error),)
    assert without_words(drive.answer(Refuse)) == (StopListening(), CloseSocket(8))
    assert drive.leaves() == End(0, error)


def test_an_offer_that_cannot_be_made_is_told_before_the_node_ends() -> None:
    drive = Drive()
    drive.answer(RestoreHosts)
    drive.answer(Listen, Listening, 7_000)
    drive.answer(LookAhead)
    drive.answer(Connect, Connected, BASE)
    error = AddressError("no interface eth9")
    assert drive.fails(MakeOffer, error) == (Refuse(6, error=error),)
    drive.breaks(Refuse)
    assert drive.leaves() == End(0, error)


@pytest.mark.parametrize("kind", [LookAhead, Connect])
def test_a_fault_on_the_way_is_told_and_ends_the_node(kind: type[LookAhead | Connect]) -> None:
    drive = Drive()
    drive.answer(RestoreHosts)
    drive.answer(Listen, Listening, 7_000)
    if kind is Connect:
        drive.answer(LookAhead)
    (refuse,) = drive.breaks(kind)
    assert isinstance(refuse, Refuse)
    assert isinstance(refuse.error, ValueError)


def test_a_signal_before_the_join_ends_it_without_a_word_to_a_registry_it_has_not_met() -> None:
    drive = joining()
    actions = drive.signal(signal.SIGTERM)
    assert without_words(actions) == (Drop(6), StopListening(), CloseSocket(7))
    drive.answer(CloseSocket)
    assert not drive.all(Tell)
    drive.answer(CloseClient)
    assert drive.answer(RemoveHosts) == (End(143),)


def test_what_is_said_of_an_effect_that_nobody_waits_for_is_ignored() -> None:
    drive = joined()
    before = drive.node
    assert drive.answer(Watch, lambda _: Done(999)) == ()
    assert drive.node == before


def test_a_join_that_is_refused_ends_with_the_registrys_own_error() -> None:
    drive = joining()
    drive.fails(Join, Fenced("newer"))
    assert drive.node.ends is not None
    assert drive.node.ends.cause is Cause.REFUSED
