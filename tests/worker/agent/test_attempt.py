"""One attempt at a table: probes, arming, the go; and what is not done any more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rendezvous.wire.reports import AckReport
from rendezvous.wire.verify import PairProbe, ProbeReport
from tests.worker.agent.drive import (
    CLOSES,
    DIGEST,
    LED,
    OK,
    PLAN,
    PROGRAM,
    READIED,
    SERVING,
    SLOT,
    STOP,
    TABLE,
    TERM,
    VISITED,
    in_words,
    m,
    outcome,
    plan,
    refusal,
    table,
    to,
    told,
    without_words,
)
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent.notices import Note, notice
from worker.agent.state import Epoch
from worker.program.ending import Ending

SECOND, THIRD = table(epoch=2), table(epoch=3)
OTHER = table(port=29_501)
UNREACHED = {"released": [SLOT], "why_released": {SLOT: "nobody reaches it"}}


@pytest.mark.parametrize(
    ("begin", "steps", "does"),
    [
        # Peers are visited once in an epoch, beside the watch.
        ("joined", [m.verify(plan=None)], "RUN_WAITS Watch"),
        ("verifying", [m.verify()], "Watch"),
        ("verifying", [m.verify(epoch=2)], "Watch Drop:Visit Visit"),
        ("verifying", [m.view()], "Watch Drop:Visit"),
        # A table is armed for once, acknowledged or refused, and the newest waits for its thread.
        ("verifying", [m.arm()], "Watch Drop:Visit Arm"),
        ("joined", [m.arm(table=None)], "RUN_WAITS Watch"),
        ("joined", [m.view(table=TABLE, digest=DIGEST)], "RUN_WAITS Watch"),
        ("arming", [m.arm()], "Watch"),
        ("armed", [m.arm()], "Watch"),
        ("armed", [m.arm(OTHER)], "Watch Arm"),
        ("arming", [m.cannot_arm("bad_table")], "TABLE_REFUSED Tell:Refuse"),
        ("arming", [m.arm(SECOND)], "Watch"),
        ("arming", [m.arm(SECOND), m.cannot_arm()], "Tell:Refuse Arm"),
        ("arming", [m.breaks(do.Arm)], "Drop:Watch Leave ends:FAULT"),
        # It starts at the go, once, and on a table that it has acknowledged.
        ("starting", [m.go()], "Watch"),
        ("armed", [m.go(OTHER)], "Watch StopListening Drop:Watch Leave ends:FAULT"),
        ("arming", [m.go()], "Watch StopListening Drop:Watch Leave ends:FAULT"),
        # A node that the run goes without is a spare until the go, and ends well.
        ("joined", [m.arm(released=[SLOT])], "RUN_WAITS Watch"),
        ("joined", [m.go(**UNREACHED)], "RUN_WAITS Watch RELEASED Drop:Watch Leave ends:RELEASED"),
        (
            "joined",
            [m.result(released=[SLOT])],
            "RUN_WAITS Watch RELEASED_UNNEEDED Drop:Watch RUN_OVER Leave ends:RELEASED",
        ),
        (
            "verifying",
            [VISITED, m.go(released=[SLOT])],
            "Watch RELEASED_UNNEEDED Drop:Tell Drop:Watch Leave ends:RELEASED",
        ),
        ("verifying", [VISITED, m.go(released=[SLOT]), CLOSES], "End:0"),
        # After a signal nothing is visited, armed for, told of it or started.
        ("joined", [TERM, m.verify()], "RUN_WAITS Watch(4)"),
        ("joined", [TERM, m.arm()], "RUN_WAITS Watch(4)"),
        ("armed", [TERM, m.go()], "Watch(4)"),
        ("verifying", [TERM], "SIGNAL Tell:Exit(143):last Drop:Visit ends:SIGNAL"),
        ("acknowledging", [TERM], "SIGNAL Tell:Exit(143):last Drop:Tell ends:SIGNAL"),
        ("arming", [TERM, m.cannot_arm()], ""),
        ("arming", [m.arm(SECOND), TERM, READIED], ""),
        # A stop that comes before any go asks nothing of it.
        ("armed", [STOP], "Watch"),
    ],
)
def test_what_an_attempt_asks_of_a_node(begin: str, steps: list[Any], does: str) -> None:
    assert outcome(begin, *steps) == does


def test_what_is_asked_for_and_told_has_the_values_of_the_news() -> None:
    drive = to("joined")
    assert without_words(drive.verify()) == (
        do.Watch(8, after=1, poll=2.0, limit=116.0),
        do.Visit(9, epoch=1, plan=PLAN),
    )
    assert told(drive.visited()) == [ProbeReport(epoch=1, pairs=[OK])]
    drive.taken()
    offered = frozenset({"ab" * 32})
    drive.arm()
    assert drive.the(do.Arm) == do.Arm(11, TABLE, DIGEST, former=None, offered=offered)
    drive.arm(SECOND)
    drive.arm(THIRD)
    assert drive.readied() == (
        do.Tell(15, report=AckReport(epoch=1, digest=DIGEST), began_at=0.0),
        do.Arm(16, table=THIRD, digest=THIRD.digest(), former=TABLE, offered=offered),
    )
    assert told(drive.cannot_arm()) == [refusal()]


def test_a_node_without_peers_says_nothing_of_them() -> None:
    drive = to("joined")
    drive.verify(plan=plan(SLOT))
    actions = drive.answer(do.Visit, inputs.Visited, (), 0.0)
    assert in_words(actions) == "Tell:Probe"
    assert told(actions) == [ProbeReport(epoch=1, pairs=[])]


def test_of_many_failures_the_first_eight_are_said_and_all_are_told() -> None:
    drive = to("joined")
    drive.verify(plan=plan(*range(12)))
    pairs = tuple(PairProbe(slot=slot, outcome="timeout") for slot in range(12) if slot != SLOT)
    actions = drive.visited(*pairs, seconds=20.0)
    assert in_words(actions) == "PEERS_ANSWER " + "PEER_FAILED " * 8 + "Tell:Probe"
    assert told(actions) == [ProbeReport(epoch=1, pairs=list(pairs))]


def test_what_the_contract_changes_and_what_was_missing_is_said() -> None:
    missing = notice(Note.NO_HOSTFILE, folder="/logs", problem="full")
    contract = replace(PROGRAM, notes=["OMP_NUM_THREADS is 1"])
    actions = to("arming").answer(do.Arm, inputs.Armed, contract, (missing,))
    assert in_words(actions) == "NO_HOSTFILE TOLD Tell:Ack"


@pytest.mark.parametrize("led", [False, True])
def test_the_program_starts_on_the_table_that_was_acknowledged(led: bool) -> None:
    contract = SERVING if led else PROGRAM
    drive = to("armed", LED, contract) if led else to("armed")
    actions = drive.go()
    assert in_words(actions[-2:]) == ("SERVES" if led else "STARTS") + " Start"
    assert without_words(actions) == (
        do.Watch(14, after=3, poll=2.0, limit=116.0),
        do.StopListening(),
        *[do.OpenRemote(TABLE, DIGEST, SERVING)] * led,
        do.Start(15, table=TABLE, contract=contract),
    )


def test_a_program_is_of_its_own_attempt_whatever_comes_after() -> None:
    drive = to("running")
    for epoch in (2, 3):
        drive.verify(epoch=epoch)
    (report,) = told(drive.ended(Ending(3, 0.0)))
    assert (report, drive.node.epoch) == (report.model_copy(update={"epoch": 1}), Epoch(3, True))
