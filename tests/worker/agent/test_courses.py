"""What a node does, and knows, in the course of several runs is as in `courses.txt`.

It is the middle one of three nodes of which no number is another one, and what happens to it
happens twice: see `tests.worker.skewed`. Of each input: what it was (*), what is to be done (-),
and all that the node then knows otherwise (=). Who changes a sentence, a field or a decision writes
the file anew (`make reference`), and reads in the diff what else has changed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from rendezvous.cause.clues import Line
from rendezvous.talk.failures import NobodyListens, OtherKey
from rendezvous.wire.errors import (
    Mismatch,
    RunError,
    SlotTaken,
    StorageFull,
    TooManyRequests,
    UsageError,
)
from rendezvous.wire.log_view import ViewOrder
from rendezvous.wire.question import Question
from rendezvous.wire.reports import RefuseReport
from rendezvous.wire.run import Phase, RestartFacts, Result
from rendezvous.wire.verify import PairProbe
from rendezvous.wire.watch import DepartureNotice
from rendezvous.wire.world import RankWorld
from tests.support.courses import lines_in, text_of
from tests.worker.agent.courses import PLAN, PROGRAM, RULES, Course
from tests.worker.agent.drive import AWAY, BASE, NOT_NOW, OFFER, SERVING
from tests.worker.skewed import skewed
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent.notices import Note, notice
from worker.nccl.verdict import NetworkVerdict
from worker.program.ending import Ending, LeftBehind
from worker.program.family import Child, Failure, Ranks

KNOWN = Path(__file__).with_name("courses.txt")
FIRST, SECOND, THIRD = (
    skewed(),
    skewed(6, 29_523, order=(2, 0, 1)),
    skewed(9, 29_531, order=(1, 2, 0), nproc=(8, 3, 2)),
)
"""Of these tables the node has another rank in each."""
FACTS = RestartFacts(restarts=1, max_restarts=3, replacements=2, last_failure="node 2 failed")
OUTLIVES = RestartFacts(
    restarts=2, max_restarts=5, replacements=1, outlives_nodes=True, last_failure="slot 3 is lost"
)
FENCE: dict[str, Any] = {"fence_timeout_seconds": 31.0}
WELL = Result(status="ok", exit_code=0, message="all 3 nodes ended well")
FAILED = Result(status="failed", exit_code=7, message="rank 10 failed", slot=5, node=1)
QUESTIONS = (
    Question(number=51, topic="looks"),
    Question(number=52, topic="looks"),
)


def _looks(number: int) -> Question:
    return Question(number=number, topic="looks")


# --- the courses ----------------------------------------------------------------------------------


def children(
    first: int = 8,
    count: int = 5,
    *,
    since: float = 0.0,
    ends: Mapping[int, tuple[float, int]] = MappingProxyType({}),
) -> tuple[Child, ...]:
    """The ranks of the node, which began at this time, each with when and how it has ended."""
    found = []
    for local in range(count):
        ended, code = ends.get(first + local, (None, None))
        ranks = Ranks(first + local, local, count)
        seen = since + 0.5 + local / 8
        found.append(Child(400 + 3 * local, seen, seen, ranks, ended, code))
    return tuple(found)


def it_ends_well() -> Course:
    """After tries, and questions of all kinds; machine and worlds are told."""
    course = Course()
    removed = notice(Note.STALE_HOSTS_REMOVED, file="/etc/hosts", run="older")
    course.wait(1).answer(do.RestoreHosts, inputs.Done, (removed,))
    course.wait(0.5).answer(do.Listen, inputs.Listening, 7_013)
    course.wait(0.25).answer(do.LookAhead)
    course.wait(1).fails(do.Connect, NobodyListens("nobody listens at port 29600"))
    course.wait(3).fails(do.Connect, OtherKey("it has another key"))
    course.wait(9).fails(do.Connect, AWAY)
    course.wait(31).fails(do.Connect, AWAY)
    course.wait(1).answer(do.Connect, inputs.Connected, BASE)
    course.wait(2).answer(do.MakeOffer, inputs.Offered, OFFER)
    course.wait(1).fails(do.Join, TooManyRequests("too many ask"))
    course.wait(4).answer(do.Join, inputs.Joined, course.reply, BASE)
    course.wait(2).view(reason="waiting for 2 of 3 nodes", topic=41)
    course.wait(2).view(reason="waiting for 1 of 3 nodes", topic=42, poll_seconds=3.5)
    course.wait(2).view(reason="still for 1 of 3 nodes", topic=42, poll_seconds=3.5)
    course.wait(1).verify(4, plan=PLAN)
    pairs = PairProbe(slot=7, outcome="ok", rtt_ms=0.25), PairProbe(slot=3, outcome="timeout")
    course.wait(0.5).visited(*pairs, seconds=1.75)
    course.wait(0.5).verify(4, plan=PLAN)
    course.wait(0.25).taken()
    course.arms(FIRST).goes(FIRST)
    course.wait(0.5)
    return _runs_and_ends(course)


def _runs_and_ends(course: Course) -> Course:
    program = course.program
    for number in (1, 2):
        course.wait(1).feed(inputs.Publish())
        course.news(question=QUESTIONS[number - 1])
        course.wait(0.125)
        if course.all(do.Publish):
            course.answer(do.Publish)
        course.news(views=_orders(60 + number))
        course.wait(30)
    small = RankWorld(rank=9, library="torch", size=5, places=[1])
    whole = RankWorld(rank=9, library="torch", size=15, places=[9])
    for worlds in ((small,), (small,), (whole,), (whole, small)):
        course.wait(1).feed(inputs.WorldsSeen(program, worlds))
    course.taken()
    for level, said in (("ok", "NCCL uses IB"), ("warn", "NCCL uses sockets")):
        course.feed(inputs.NetworkSaid(program, _verdict(level, said)))
    course.taken()
    words = inputs.OwnWords(("epoch 9", "done"), log="/var/log/1", progress=43, worlds=(whole,))
    course.wait(1).gone(Ending(0, course.now - 0.5, left=LeftBehind(2, ((77, 8, "sh"),))), words)
    course.wait(0.25).answer(do.Flush)
    course.taken()
    course.wait(1).result(WELL, digest=FIRST.digest(), epoch=4)
    return course.is_over()


def _orders(number: int) -> list[ViewOrder]:
    return [
        ViewOrder(view=number, node=1),
        ViewOrder(view=number + 10, rank=11, follow=True),
        ViewOrder(view=number + 20, rank=3),
        ViewOrder(view=number + 30, epoch=2, lines=7),
    ]


def it_fails_twice_and_starts_again() -> Course:
    """A rank fails here, then elsewhere; the node has other ranks each time, at last cold."""
    course = (
        Course().join().unwritten().runs(FIRST, warm=True, restarts=RestartFacts(max_restarts=3))
    )
    course.children = children(since=course.now)
    course.words = inputs.OwnWords(
        ("Traceback", "ValueError: loss is nan"),
        lines=(Line("CUDA out of memory", 10, course.now + 4.5), Line("loss is nan", 11, None)),
        progress=12,
    )
    course.wait(3).sees()
    course.children = children(since=course.now - 3, ends={10: (course.now + 1.5, 9)})
    course.wait(2).sees()
    course.wait(1.5)
    course.children = children(
        since=course.now - 6,
        ends={10: (course.now - 2, 9), 12: (course.now, 143), 8: (course.now, 0)},
    )
    course.wait(0.5).sees()
    course.wait(3)
    course.taken()
    facts = FACTS.model_copy(update={"restarts": 0})
    course.halts(FIRST, restarts=facts)
    failure = Failure(course.now - 5.5, 406, 9, 10, 2)
    course.wait(2).gone(Ending(1, course.now - 0.5, failure, was_told=True), course.words)
    course.wait(0.25).answer(do.Flush)
    course.visits(6, restarts=FACTS)
    course.answer(do.SendWords)
    course.children = ()
    course.arms(SECOND, warm=True, restarts=FACTS).goes(SECOND, restarts=FACTS)
    course.children = children(10, since=course.now)
    course.words = inputs.OwnWords(("step 3",), log="/var/log/2", progress=31)
    course.wait(20).sees(course.words)
    course.halts(SECOND, restarts=FACTS)
    course.wait(1).sees()
    course.wait(1.5).gone(Ending(143, course.now - 0.25, was_told=True), course.words)
    course.wait(0.25).answer(do.Flush)
    cold = FACTS.model_copy(update={"restarts": 2, "cold": True})
    course.wait(0.5).arm(course.name(THIRD), restarts=cold)
    course.taken()
    course.wait(0.5).answer(do.Arm, inputs.Armed, PROGRAM)
    course.goes(THIRD, restarts=cold)
    course.children = children(0, 3, since=course.now, ends={1: (course.now + 2, 5)})
    course.wait(4).sees(course.words)
    course.wait(1).gone(Ending(5, course.now, Failure(course.now - 3, 403, 5, 1, 1)), course.words)
    course.wait(0.25).answer(do.Flush)
    course.wait(1).result(FAILED, digest=THIRD.digest(), epoch=9, restarts=cold)
    return course.is_over()


def it_loses_its_registry_twice() -> Course:
    """First for a while, by every kind of silence; then for longer than it waits."""
    course = Course(rules=replace(RULES, hosts_file="", early=False)).join().runs(FIRST)
    course.wait(1).sees()
    for seconds, error in ((1.0, AWAY), (3.0, NOT_NOW), (33.0, AWAY), (2.0, NOT_NOW)):
        course.wait(seconds).fails(do.Watch, error)
    course.wait(5).late(do.Watch)
    course.wait(1).fails(do.Watch, TooManyRequests("too many ask"))
    course.news(question=_looks(9))
    course.wait(126).late(do.Watch)
    course.news(question=_looks(12))
    course.wait(4).feed(inputs.NetworkSaid(course.program, _verdict("warn")))
    course.fails(do.Tell, AWAY)
    course.wait(1).fails(do.Tell, NOT_NOW)
    course.wait(130).fails(do.Tell, AWAY)
    course.wait(1).fails(do.Tell, AWAY)
    for seconds in (4.0, 90.0, 60.0, 4.0):
        course.wait(seconds).late(do.Watch)
        if not course.all(do.Watch):
            break
    course.wait(3).gone(Ending(143, course.now - 1, was_told=True))
    return course.is_over()


def _verdict(level: Any, words: str = "NCCL uses sockets") -> NetworkVerdict:
    return NetworkVerdict("fallback", level, words)


def it_is_fenced_twice() -> Course:
    """It ends its program in time; stands still itself the second time, and wakes up too late."""
    course = Course(**FENCE).join().runs(FIRST, restarts=OUTLIVES)
    course.wait(3)
    course.news(1, restarts=OUTLIVES)
    course.wait(9).fails(do.Watch, AWAY)
    course.wait(2).fails(do.Watch, NOT_NOW)
    course.wait(12)
    course.wait(3).gone(Ending(137, course.now - 0.5, was_told=True))
    course.wait(0.25).answer(do.Flush)
    course.fails(do.Tell, AWAY)
    course.wait(4).late(do.Watch)
    course.visits(6, restarts=OUTLIVES)
    course.arms(SECOND, restarts=OUTLIVES).goes(SECOND, restarts=OUTLIVES)
    course.wait(2)
    course.at(course.now + 40)
    course.feed(inputs.Tick())
    course.wait(1).gone(Ending(137, course.now - 39, keeper_signal=9))
    course.wait(0.25).answer(do.Flush)
    course.taken()
    course.visits(9, restarts=OUTLIVES)
    course.arms(THIRD, restarts=OUTLIVES)
    course.at(course.now + 27)
    course.go(THIRD, restarts=OUTLIVES)
    course.taken()
    course.wait(1)
    fourth = skewed(11, 29_541)
    course.visits(11, restarts=OUTLIVES)
    course.arms(fourth, restarts=OUTLIVES).goes(fourth, restarts=OUTLIVES)
    course.wait(2).signal(15)
    course.wait(0.5).closes(do.Tell)
    course.wait(9).gone(Ending(143, course.now - 1, was_told=True))
    return course.is_over()


def it_stands_by_and_steps_in() -> Course:
    """The run goes on without it, and then with it; views of both are waited for."""
    course = Course(**FENCE).join().unwritten().visits(4)
    course.wait(2).go(FIRST, restarts=OUTLIVES, views=_orders(70))
    course.news(31, restarts=OUTLIVES, question=_looks(33))
    course.halts(FIRST, restarts=OUTLIVES)
    course.visits(6, restarts=OUTLIVES)
    course.arms(SECOND, restarts=OUTLIVES).goes(SECOND, restarts=OUTLIVES)
    course.news(views=_orders(70) + _orders(74), restarts=OUTLIVES)
    course.halts(SECOND, restarts=OUTLIVES)
    course.wait(0.5).gone(Ending(143, course.now, was_told=True))
    course.wait(0.25).answer(do.Flush)
    third = skewed(9, 29_531, order=(0, 2))
    course.wait(3).go(third, restarts=OUTLIVES)
    course.news(2, restarts=OUTLIVES)
    course.wait(1).result(FAILED, digest=third.digest(), epoch=9, restarts=OUTLIVES)
    return course.is_over()


def it_is_released() -> Course:
    """At the go, with the cause; another one is retired before."""
    course = Course().join().unwritten().visits(4)
    news: dict[str, Any] = {"released": [3, 5], "why_released": {3: "other", 5: "not reached"}}
    course.wait(1).arm(course.name(FIRST), **news)
    course.wait(1).go(FIRST, **news)
    course.is_over()
    retired = Course(**FENCE).join().runs(FIRST, restarts=OUTLIVES).unwritten()
    retired.wait(1).go(FIRST, retired=[5], restarts=OUTLIVES)
    retired.wait(2).gone(Ending(143, retired.now, was_told=True))
    course.lines += retired.is_over().lines
    return course


def signals_end_it() -> Course:
    """One ends it, the second in a hurry; others are passed on, or come of the launcher's end."""
    course = Course().join().runs(FIRST).unwritten()
    for number in (10, 12):
        course.wait(1).signal(number)
    course.wait(1).signal(15)
    course.wait(0.25).fails(do.Tell, AWAY)
    course.wait(1).signal(10)
    course.wait(1).signal(2)
    course.wait(2).gone(Ending(137, course.now - 0.5, was_told=True), inputs.OwnWords(("bye",)))
    course.wait(0.25).answer(do.Flush)
    course.wait(1).fails(do.Tell, AWAY)
    course.wait(5)
    course.is_over()
    for first, second, lives in ((1, 15, True), (15, 15, False), (3, 3, True)):
        other = Course(rules=replace(RULES, hosts_file=""))
        other.join().visits(4).arms(FIRST).unwritten()
        other.wait(0.5).go(FIRST)
        other.wait(0.25).signal(first, parent_lives=lives)
        other.wait(0.0625).signal(second)
        other.wait(0.5).started()
        other.wait(0.25).signal(second)
        other.wait(1).gone(Ending(143, other.now, was_told=True))
        course.lines += other.is_over().lines
    stops = Course().join().runs(FIRST, restarts=FACTS).unwritten()
    stops.halts(FIRST, restarts=FACTS)
    stops.wait(0.25).gone(Ending(143, stops.now, was_told=True))
    stops.wait(0.25).answer(do.Flush)
    stops.wait(0.25).signal(15)
    course.lines += stops.is_over().lines
    waits = Course().join().unwritten()
    waits.wait(1).signal(15)
    course.lines += waits.is_over().lines
    return course


def its_machine_will_go() -> Course:
    """It is known before the program runs, and shown sooner once more; then of another one."""
    course = Course().join().visits(4).arms(FIRST).unwritten()
    course.feed(inputs.DepartureNear(121.0, "spot notice"))
    course.feed(inputs.DepartureNear(99.0, "another notice"))
    said = DepartureNotice(slot=5, node=1, seconds=87.0, words="spot notice")
    course.wait(1).go(FIRST, notice=said)
    course.taken()
    course.wait(1).started()
    for seconds in (85.0, 85.5, 41.0):
        course.news(1, notice=said.model_copy(update={"seconds": seconds}))
        course.wait(1).view(
            Phase.RUNNING,
            epoch=4,
            digest=FIRST.digest(),
            notice=said.model_copy(update={"seconds": seconds - 1}),
        )
    course.halts(FIRST, restarts=OUTLIVES, notice=said.model_copy(update={"seconds": 3.0}))
    course.wait(2).gone(Ending(0, course.now - 0.5, was_told=True))
    course.wait(0.25).answer(do.Flush)
    course.visits(6)
    course.arms(SECOND, restarts=OUTLIVES).goes(SECOND, restarts=OUTLIVES)
    course.taken()
    course.wait(1).result(WELL, digest=SECOND.digest(), epoch=6)
    course.wait(2).gone(Ending(143, course.now - 0.5, was_told=True))
    return course.is_over()


def it_serves_rank_0() -> Course:
    """It has no program of its own: stopped, then started again, and ended by a signal."""
    course = Course(rules=replace(RULES, remote=True, early=False), **FENCE).join().unwritten()
    course.runs(FIRST, SERVING, restarts=OUTLIVES)
    course.wait(1)
    course.news(question=_looks(14), restarts=OUTLIVES)
    course.halts(FIRST, restarts=OUTLIVES)
    course.wait(0.5).gone()
    course.wait(1).answer(do.CloseRemote)
    course.wait(0.25).answer(do.Flush)
    course.visits(6)
    course.arms(SECOND, SERVING, restarts=OUTLIVES).goes(SECOND, restarts=OUTLIVES)
    course.wait(3).signal(15)
    course.wait(0.5).closes(do.Tell)
    course.wait(0.5).gone()
    course.wait(0.5).signal(15)
    course.wait(1).answer(do.CloseRemote)
    course.wait(0.25)
    course.is_over()
    late = Course(rules=replace(RULES, remote=True)).join().runs(FIRST, SERVING).unwritten()
    late.halts(FIRST)
    late.wait(1).verify(6, plan=PLAN)
    late.wait(1).signal(15)
    late.wait(0.5).gone()
    course.lines += late.is_over().lines
    return course


def its_tables_are_refused() -> Course:
    """It cannot start on the first, another comes while it arms, and the go is for none of them."""
    course = Course().join().visits(4).unwritten()
    course.wait(0.5).arm(course.name(FIRST))
    course.wait(0.25).answer(do.Arm, inputs.NotArmed, _refusal(4, "port_taken"))
    course.fails(do.Tell, AWAY)
    course.wait(0.5).arm(course.name(SECOND))
    course.wait(0.5).late(do.Watch)
    course.wait(0.5).arm(course.name(THIRD))
    course.wait(0.25).answer(do.Arm, inputs.NotArmed, _refusal(6, "bad_table"))
    course.taken()
    course.wait(0.25).answer(do.Arm, inputs.Armed, PROGRAM)
    course.fails(do.Watch, StorageFull("its disk is full"))
    course.wait(0.5).fails(do.Tell, StorageFull("its disk is full"))
    course.wait(0.5).taken()
    other = skewed(9, 29_533)
    course.wait(0.5).arm(course.name(other))
    course.wait(0.5).go(other)
    course.wait(2)
    course.closes(do.CloseSocket, do.Tell, do.Tell, do.CloseClient)
    course.wait(12)
    return course


def _refusal(epoch: int, code: Any) -> Any:
    return RefuseReport(epoch=epoch, code=code, reason=f"it is refused: {code}")


def its_network_and_its_launcher_fail() -> Course:
    """NCCL's log says why; then the main process ends before its children, and ranks are late."""
    contract = replace(PROGRAM, nccl_log="/logs/%p.log")
    course = Course().join().runs(FIRST, contract, restarts=FACTS).unwritten()
    course.children = children(since=course.now)
    course.wait(2).sees()
    course.main = inputs.MainEnd(4, course.now + 1)
    course.wait(2).sees()
    course.wait(1)
    course.wait(0.5).gone(Ending(4, course.now - 1), inputs.OwnWords(("oops",), rank=11))
    course.wait(0.25).answer(do.Flush)
    course.wait(0.5).answer(do.ReadTrouble, inputs.TroubleRead, "no route to 10.4.0.22")
    course.taken()
    course.halts(FIRST, restarts=FACTS)
    course.main, course.children = None, ()
    course.visits(6)
    course.arms(SECOND, contract, restarts=FACTS).goes(SECOND, restarts=FACTS)
    well = {n: (course.now + 3 + n / 16, 0) for n in (10, 11, 13)}
    course.children = children(10, since=course.now, ends=well)
    course.wait(5).sees()
    course.wait(12)
    course.feed(inputs.NetworkSaid(course.program, _verdict("fail", "--require-rdma: no IB")))
    course.taken()
    course.wait(1).gone(Ending(1, course.now, Failure(course.now - 4, 409, 1, None, None)))
    course.wait(0.25).answer(do.Flush)
    course.wait(0.25).late(do.ReadTrouble)
    course.taken()
    course.wait(1).result(FAILED.model_copy(update={"slot": 3, "node": 2}), epoch=6)
    return course.is_over()


def its_report_is_not_taken() -> Course:
    """Nor is its second one, and the run ends meanwhile."""
    course = Course()
    course.is_quick = False
    course.join().unwritten().runs(FIRST)
    course.wait(3).gone(Ending(3, course.now - 0.5))
    course.wait(0.25).answer(do.Flush)
    course.wait(1).fails(do.Tell, AWAY)
    course.wait(2).fails(do.Tell, StorageFull("its disk is full"))
    course.wait(5).result(FAILED, digest=FIRST.digest(), epoch=4)
    course.wait(1).fails(do.Tell, NOT_NOW)
    course.wait(4)
    return course.is_over()


def it_breaks() -> Course:
    """In all its parts that it does without, and then as a whole."""
    course = Course()
    course.wait(1).late(do.RestoreHosts)
    course.wait(1).answer(do.Listen, inputs.Listening, None, "all ports are taken")
    course.wait(2).late(do.LookAhead)
    course.wait(1).answer(do.Connect, inputs.Connected, BASE)
    course.wait(1).answer(do.MakeOffer, inputs.Offered, OFFER)
    course.wait(1).answer(do.Join, inputs.Joined, course.reply, BASE)
    course.runs(FIRST).unwritten()
    course.wait(1).feed(inputs.Publish())
    course.feed(inputs.PartBroken("looking at ranks", ValueError("not this way")))
    course.feed(inputs.Exhausted(RunError("this process may open no more files", hint="raise it")))
    course.wait(2).gone(Ending(143, course.now, was_told=True))
    course.wait(0.5).breaks(do.CloseSocket)
    course.wait(0.5).fails(do.Tell, AWAY)
    course.wait(0.5).fails(do.Tell, AWAY)
    course.wait(0.5).breaks(do.CloseClient)
    course.wait(0.5).fails(do.RemoveHosts, RunError("the file is read-only"))
    return course


def it_waits_long() -> Course:
    """What it waits for is said again after half a minute, and at once where it changes."""
    course = Course().join().unwritten()
    for seconds, reason, topic in (
        *((2, "for 2 of 3", 41), (20, "for 2 of 3", 41), (9.5, "for 2 of 3", 41)),
        *((1, "for 2 of 3", 41), (1, "for 1 of 3", 41), (1, "for 1 of 3", 42)),
        *((28, "still for 1", 42), (1.5, "since long for 1", 42), (31, "for 1", 42)),
    ):
        course.wait(seconds).view(Phase.GATHERING, reason=reason, topic=topic)
    for seconds in (1, 15, 16, 30, 31):
        course.wait(seconds).fails(do.Watch, AWAY)
    return course


def it_cannot_join() -> Course:
    """For each of several reasons."""
    course = Course()
    course.answer(do.RestoreHosts)
    course.answer(do.Listen, inputs.Listening, 7_013)
    course.answer(do.LookAhead)
    course.lines.clear()
    start = course.node, course.now
    for kind, steps in (
        ("connect", [(OtherKey("another launch"), 1.0), (OtherKey("another launch"), 9.5)]),
        ("connect", [(OtherKey("another launch"), 1.0), (OtherKey("another launch"), 10.0)]),
        ("connect", [(NobodyListens("nobody"), 1.0), (NobodyListens("nobody"), 611.5)]),
        ("connect", [(NobodyListens("nobody"), 1.0), (AWAY, 611.5)]),
        ("connect", [(AWAY, 1.0), (NobodyListens("nobody"), 611.5)]),
        ("connect", [(OtherKey("another"), 1.0), (NobodyListens("nobody"), 611.5)]),
        ("join", [(SlotTaken("slot 5 is held"), 1.0), (Mismatch("other", command_word=3), 2.0)]),
        ("join", [(TooManyRequests("too many"), 1.0), (UsageError("no such option"), 2.0)]),
        ("offer", [(UsageError("no such network"), 1.0)]),
    ):
        course.node, course.now = start
        if kind != "connect":
            course.wait(1).answer(do.Connect, inputs.Connected, BASE)
        if kind == "join":
            course.wait(1).answer(do.MakeOffer, inputs.Offered, OFFER)
        what: Any = {"connect": do.Connect, "join": do.Join, "offer": do.MakeOffer}[kind]
        for error, seconds in steps:
            course.wait(seconds).fails(what, error)
        if course.all(do.Refuse):
            course.answer(do.Refuse)
        if course.node.ends is not None:
            course.is_over()
    return course


COURSES = {
    one.__name__: one
    for one in (
        it_ends_well,
        it_fails_twice_and_starts_again,
        it_loses_its_registry_twice,
        it_is_fenced_twice,
        it_stands_by_and_steps_in,
        it_is_released,
        signals_end_it,
        its_machine_will_go,
        it_serves_rank_0,
        its_tables_are_refused,
        its_network_and_its_launcher_fail,
        its_report_is_not_taken,
        it_breaks,
        it_waits_long,
        it_cannot_join,
    )
}


@pytest.mark.parametrize("name", COURSES)
def test_course(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)
