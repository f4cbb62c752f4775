"""What launches do, and what people see of them, in the course of several runs is as in
`courses.txt`.

No two numbers of these launches are the same one: slots, ranks, generations, ids and processes
differ, and what happens happens twice. A line that begins with a star is what the launch is told,
one with a bar is what a person sees, any other is what the launch does. Who changes one writes the
file anew (`make reference`), and reads in the diff what else has changed.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.run import actions as do
from launcher.run import inputs
from launcher.run.ground import Former, OnDisk, Wanted
from launcher.run.sentences import UnknownLeft
from launcher.run.values import ErrorKind, Key, LaunchFacts, Left, Starter
from rendezvous.wire.node import Finding
from rendezvous.wire.reports import LeaveReport
from rendezvous.wire.run import RunReport, SlotState
from tests.launcher.courses import LaunchCourse, Make, late
from tests.support.courses import lines_in, text_of
from tests.support.driver import HOSTS, PROCESSES, RANKS, make_spec

KNOWN = Path(__file__).with_name("courses.txt")
SLURM = Starter("slurm", 4.0, keeps_logs=True)
HERE = Starter("local", 0.5, loopback=True)
CLOUD = Starter("/etc/cloud.toml", 2.5, finds=False)
BY_HAND = Starter("manual", 3.0, by_hand=True)
OWN = LaunchFacts(SLURM, SLURM, True, joins_here=False, grace=7.0, orphan_timeout=33.0)
RUNS = SlotState.RUNNING
QUEUED = SlotState.QUEUED
OUTLIVES: Any = {"on_node_loss": "replace", "max_replacements": 2, "fence_timeout_seconds": 20.0}
NEWEST = {0: 1, 1: 2, 2: 3, 3: 1}
"""The generation of each slot's worker run, at the go."""
BOTH = RunReport(
    run="r",
    findings=[
        Finding(check="L07", level="warn", slot=2, cause="7 errors", fix="reset it"),
        Finding(check="X03", level="warn", slot=1, cause="MTU 1400", fix="raise it"),
    ],
)


def key(slot: int) -> Key:
    return Key(slot, NEWEST[slot])


def submits(facts: LaunchFacts = OWN, *, on_terminal: bool = False, **changes: Any) -> LaunchCourse:
    """Four nodes of which no number is another one: slot 2 is submitted three times, slot 1 twice,
    and of its first submission nobody knows whether it was one."""
    spec = make_spec(4, submit_retries=3, **changes)
    course = LaunchCourse(spec, facts, on_terminal=on_terminal)
    course.begin()
    course.see()
    course.submits((Key(3, 1), "h6"), (Key(0, 1), "h9"))
    course.wait(3.5)
    number = course.id(do.Submit, Key(2, 1))
    course.take(inputs.SubmitTroubled(number, Key(2, 1), "the API answered 503"))
    course.submit_failed(Key(2, 1), "no such partition", certain=True, hint="see sinfo")
    course.submit_failed(Key(1, 1), "it timed out")
    course.see()
    course.found(Key(1, 1), None)
    course.wait(1.25)
    course.found(Key(1, 1), "h5")
    course.submit_failed(Key(2, 2), "too many jobs", certain=True)
    course.see()
    course.submits((Key(2, 3), "h7"), (Key(1, 2), "h8"))
    return course


def starts(course: LaunchCourse) -> LaunchCourse:
    """All run, join, verify each other and go."""
    course.say(key(3), QUEUED, "Priority")
    course.ends(Key(1, 1))
    for slot in (2, 0, 1, 3):
        course.say(key(slot), RUNS, f"on rack {8 - slot}")
    return joins(course)


def joins(course: LaunchCourse) -> LaunchCourse:
    """They join, verify each other and go."""
    registry = course.registry
    for slot in (2, 0, 3, 1):
        course.pause(0.5)
        own = {"nproc_per_node": PROCESSES[slot], "requested_node": RANKS[slot]}
        registry.join(slot, NEWEST[slot], hostname=HOSTS[slot], **own)
    course.see()
    registry.verify()
    registry.refuse(1, "port_taken", "the port is taken", 29_501)
    registry.arm()
    course.see()
    return course


def leaves(course: LaunchCourse, *slots: int) -> None:
    """They have learnt how the run ended."""
    for slot in slots:
        course.registry.report(slot, LeaveReport())
    course.see()


def goes(facts: LaunchFacts = OWN, **changes: Any) -> LaunchCourse:
    """The same, of which another course has told how it came to go."""
    course = submits(facts, **changes)
    starts(course)
    course.lines.clear()
    return course


def closes(course: LaunchCourse) -> None:
    """The last events have come."""
    if course.all_open(do.FollowEvents):
        course.take(inputs.EventsOver(course.id(do.FollowEvents), 41, broken=False))


def dies(course: LaunchCourse, code: int, words: str) -> None:
    """The registry's process ends."""
    course.take(inputs.ChildEnded(course.id(do.StartChild), code, words))


# --- the courses ----------------------------------------------------------------------------------


def it_ends_well() -> LaunchCourse:
    """Two worker runs end by themselves, one is told to, and one is not ended."""
    course = submits()
    course.look()
    course.report = BOTH
    starts(course)
    course.look(72)
    course.wait(61)
    course.registry.progress(2, "epoch 3 of 9")
    course.see()
    for slot in (2, 3, 1, 0):
        course.registry.exit(slot, 0, ran_seconds=60.5 + slot, progress=40 + slot)
    course.wait(3)
    course.take(inputs.EventsOver(course.id(do.FollowEvents), 39, broken=True, jitter=1.0))
    leaves(course, 3, 1, 0, 2)
    closes(course)
    course.ends(key(2))
    course.say(key(0), RUNS)
    course.say(key(1), RUNS)
    course.say(key(3), SlotState.UNKNOWN, "slurmctld is down")
    course.found(key(3), "h6b")
    course.pause(3.5)
    course.say(key(0), SlotState.FAILED, "cancelled by 1000")
    course.scheduler_silent(do.Describe, "slurmctld is down")
    course.pause(12)
    course.say(key(1), RUNS)
    course.scheduler_silent(do.CancelWorkerRun, "access denied")
    while course.is_ending(key(1)):
        course.say(key(1), RUNS, "completing")
    course.pause(1)
    course.ends(key(3))
    return course


def two_nodes_are_lost() -> LaunchCourse:
    """The first one goes, the second falls silent; each is submitted again, and the first twice."""
    course = goes(**OUTLIVES | {"max_replacements": 3})
    registry = course.registry
    course.wait(10)
    registry.report(2, LeaveReport())
    registry.stop(0, 3, 1)
    course.see()
    course.say(key(2), RUNS)
    course.look(120)
    course.wait(4)
    course.scheduler_silent(do.CancelWorkerRun, "slurmctld is down")
    course.wait(8)
    course.say(key(2), SlotState.FAILED, "exit code 9")
    course.see()
    course.submits((Key(2, 4), "h10"))
    course.say(Key(2, 4), SlotState.FAILED, "no space left")
    course.wait(2)
    course.submits((Key(2, 5), "h12"))
    course.say(Key(2, 5), RUNS)
    registry.join(2, 5, hostname="gpu-6", nproc_per_node=3)
    registry.verify().arm()
    course.see()
    course.look(96)
    course.wait(16, silent=(3,))
    registry.stop(0, 1, 2)
    course.say(key(3), RUNS, "not responding", preempted=True)
    course.wait(6, silent=(3,))
    while course.is_ending(key(3)):
        course.say(key(3), SlotState.RUNNING, "not responding")
    course.wait(16, silent=(3,))
    course.submits((Key(3, 2), "h13"))
    course.say(Key(3, 2), RUNS)
    registry.join(3, 2, hostname="gpu-3", nproc_per_node=1)
    registry.verify().arm()
    course.see()
    course.look(96)
    course.wait(61)
    course.see()
    for _ in range(4):
        course.say(key(3), RUNS, "not responding")
        course.pause(20)
    course.take(inputs.RunTold(course.id(do.CancelWorkerRun, key(3))))
    for _ in range(2):
        course.pause(61)
        course.see()
    registry.exit(2, 9, rank=5, tail=["ValueError: loss is nan"], log="/var/log/2")
    registry.stop(0, 1, 3)
    course.wait(6)
    leaves(course, 2, 3, 1, 0)
    closes(course)
    course.ends(key(0), key(3), Key(3, 2), Key(2, 5), key(1))
    return course


def it_goes_on_with_a_standby() -> LaunchCourse:
    """Of five a spare is let go, and a standby takes the place of a node that is lost, twice."""
    spec = make_spec(3, least=2, spares=1, standby=1, **OUTLIVES | {"max_replacements": 1})
    course = LaunchCourse(spec, replace(OWN, here=HERE, joins_here=True), on_terminal=True)
    course.begin()
    course.see()
    course.submits((Key(4, 1), "c3"), (Key(0, 1), "31"), (Key(2, 1), "c8"))
    course.submits((Key(3, 1), "c7"), (Key(1, 1), "c6"))
    for slot in (4, 1, 0, 3, 2):
        course.pause(0.5)
        course.say(Key(slot, 1), RUNS)
        own: Any = {"hostname": f"n{7 - slot}", "nproc_per_node": slot + 2}
        course.registry.join(slot, 1, **own)
        course.see()
    course.registry.verify().arm()
    course.see()
    course.look(rows=2)
    for seconds in (12, 13):
        course.wait(seconds)
        runs = [slot.slot for slot in course.stands().slots if slot.node is not None]
        course.registry.report(runs[1], LeaveReport())
        course.registry.stop(*(slot for slot in runs if slot != runs[1]))
        course.wait(34)
        course.registry.verify().arm()
        course.see()
        course.look(90, rows=3)
    course.signal(2)
    course.registry.stop(*course.registry.run.waiting_for)
    course.wait(3)
    course.signal(2)
    course.ends(Key(3, 1), Key(0, 1))
    for handle in (None, "c9"):
        course.pause(1.5)
        course.found(Key(1, 2), handle)
    course.say(Key(1, 2), RUNS)
    course.take(inputs.RunTold(course.id(do.CancelWorkerRun, Key(1, 2))))
    for number in (1, 2, 4):
        course.ends(*(Key(number, 1) for _ in range(course.is_ending(Key(number, 1)))))
    course.ends(Key(1, 2))
    return course


def its_registry_ends_again_and_again() -> LaunchCourse:
    """It is started again in ever longer pauses, and does not answer; the fifth time in a short
    while ends the launch, which knows of the epoch before."""
    course = goes(max_restarts=2)
    course.holds = (do.Keep,)
    course.wait(31)
    course.registry.exit(3, 7, rank=2, message="it was killed by SIGSEGV", progress=17)
    course.registry.stop(0, 1, 2)
    course.wait(6)
    course.registry.arm()
    course.see()
    course.look(84)
    kept = course.id(do.Keep)
    course.registry.restart("another learning rate")
    course.registry.stop(3, 1, 0, 2)
    course.registry.arm()
    course.see()
    course.take(inputs.ReportCame(kept, BOTH))
    course.see()
    dies(course, 3, "disk full")
    course.refuse(do.AskStatus, late("connection refused"))
    course.pause(0.75)
    course.see()
    for code, seconds in ((4, 1.5), (-7, 2.5), (5, 3.5), (8, 1.75)):
        course.pause(seconds)
        dies(course, code, f"it ended with {code}")
        course.refuse(do.AskStatus, late(f"no answer, {code}"))
    course.pause(1)
    course.take(inputs.EventsOver(course.id(do.FollowEvents), 33, broken=True, jitter=0.5))
    course.pause(1)
    dies(course, 6, "no room")
    course.say(key(1), RUNS)
    course.ends(key(2), key(3), key(1), key(0))
    return course


def nobody_answers() -> LaunchCourse:
    """At first it cannot serve, then its disk is full, and then it is silent for too long."""
    course = goes()
    course.wait(5)
    for _ in range(2):
        course.pause(41)
        course.refuse(do.AskStatus, late("it was stopped"))
        course.pause(1)
        course.see()
    for message, told in (("no database", True), ("no leader", True), ("no route", False)):
        course.refuse(do.AskStatus, late(message, told=told))
        course.pause(20)
    course.refuse(do.AskStatus, late("its disk is full", ErrorKind.STORAGE_FULL))
    course.pause(12)
    course.holds = (do.CancelRun,)
    course.refuse(do.AskStatus, late("no route"))
    course.pause(1)
    course.cancelled(course.stands())
    course.pause(0.5)
    course.see()
    course.pause(3)
    course.see()
    course.ends(key(2), key(3), key(0), key(1))
    return course


def a_signal_ends_it_and_a_second_one_at_once() -> LaunchCourse:
    """The first cancels the run; a second one is in a hurry, while one is still submitted."""
    course = submits()
    course.lines.clear()
    course.say(key(0), RUNS)
    course.registry.refuse_to_join(3, 1, hostname="gpu-2", retryable=True)
    course.see()
    course.pause(2)
    course.holds = (do.CancelRun,)
    course.signal(1)
    course.pause(0.5)
    course.refuse(do.CancelRun, late("no route"))
    course.pause(1)
    course.holds = ()
    course.take(inputs.StatusCame(course.id(do.CancelRun), course.stands()))
    course.pause(1)
    course.see()
    course.pause(1)
    course.see()
    course.submits((Key(3, 2), "h14"))
    course.pause(2)
    course.look()
    course.signal(1)
    course.signal(15)
    course.ends(key(2), key(1))
    course.say(Key(3, 2), RUNS)
    course.take(inputs.RunTold(course.id(do.CancelWorkerRun, Key(3, 2))))
    course.pause(9)
    return course


def a_signal_ends_what_runs() -> LaunchCourse:
    """Of a run that goes; one node does not leave, and is named."""
    course = goes()
    course.wait(45)
    course.signal(15)
    course.see()
    course.registry.stop(3, 0, 1, code=130)
    leaves(course, 3, 0)
    course.look()
    course.pause(16)
    course.see()
    closes(course)
    course.ends(key(0), key(3))
    for slot in (1, 2):
        course.say(key(slot), RUNS)
    course.ends(key(2), key(1))
    return course


def another_launcher_adopts_it() -> LaunchCourse:
    """The first was killed: one worker run is taken up, one had been meant, one was replaced."""
    former = Former("k7f2", "h7", "slurm", True, 29_611, "f")
    own = (
        Left(Key(3, 1), SLURM, "h6"),
        Left(Key(1, 1), SLURM, "h5"),
        Left(Key(1, 2), SLURM, "h8"),
    )
    wanted = Wanted("h7", "slurm", "f", port=29_622, restarts=2)
    spec = make_spec(4, submit_retries=2)
    course = LaunchCourse(spec, OWN, OnDisk(former, own=own), wanted)
    registry = course.registry
    for slot, generation, state in (
        (3, 1, QUEUED),
        (1, 1, SlotState.SUBMITTED),
        (1, 2, SlotState.SUBMITTED),
        (2, 1, SlotState.SUBMITTING),
        (0, 1, SlotState.SUBMITTING),
    ):
        registry.news(slot, state, generation, name=f"rdzv-k7f2-{slot}-{generation}")
    course.begin()
    course.refuse(do.AskStatus, late("connection refused"))
    course.pause(1)
    course.see()
    course.see()
    course.found(Key(2, 1), None)
    course.found(Key(0, 1), "h11")
    course.see()
    course.submits((Key(2, 2), "h12"))
    course.found(Key(1, 2), None)
    course.say(Key(1, 2), RUNS)
    number = course.id(do.Find, Key(3, 1))
    course.take(inputs.SchedulerSilent(number, "slurmctld is down"))
    course.pause(4)
    course.found(Key(3, 1), None)
    course.say(Key(3, 1), SlotState.UNKNOWN)
    course.see()
    course.submits((Key(3, 2), "h13"))
    for slot, state in ((0, RUNS), (2, QUEUED), (1, RUNS), (3, RUNS)):
        course.say(Key(slot, 1 if slot == 0 else 2), state)
    course.look()
    course.signal(15)
    course.wait(1)
    course.see()
    closes(course)
    course.ends(Key(3, 2), Key(2, 2), Key(0, 1), Key(1, 2), Key(1, 1))
    return course


def what_a_former_launch_has_left_is_ended() -> LaunchCourse:
    """Its options were others: its nodes hear of it, and what its ledger has is ended."""
    former = Former("k7f2", "h7", "slurm", True, 29_611, "g")
    left = (
        Left(Key(3, 2, "rdzv-old-3-2"), SLURM, "h6"),
        Left(Key(1, 4, "rdzv-old-1-4"), CLOUD),
        Left(Key(0, 5, "rdzv-old-0-5"), HERE, "733"),
        Left(Key(2, 3, "rdzv-old-2-3"), SLURM),
    )
    unknown = (UnknownLeft("rdzv-older-5-7", "there is no such profile"),)
    wanted = Wanted("h7", "slurm", "f", restarts=3)
    course = LaunchCourse(make_spec(2), OWN, OnDisk(former, left, (), unknown), wanted)
    course.registry.join(1, 2, hostname="gpu-4")
    course.registry.join(0, 3, hostname="gpu-9")
    course.begin()
    course.pause(0.25)
    course.see()
    course.pause(0.5)
    course.see()
    course.pause(0.5)
    course.registry.report(1, LeaveReport())
    course.see()
    course.pause(1)
    course.registry.report(0, LeaveReport())
    course.see()
    three, one, zero, two = (each.key for each in left)
    course.found(one, None)
    course.say(three, RUNS)
    course.ends(three)
    course.found(two, None)
    course.say(zero, RUNS)
    course.pause(1.0)
    course.found(two, "h10")
    course.take(inputs.RunTold(course.id(do.CancelWorkerRun, zero)))
    course.say(two, SlotState.UNKNOWN, "no such job")
    course.found(two, None)
    course.ends(zero)
    for code in (7, 9):
        dies(course, code, "no room")
        course.pause(1)
    return course


def a_former_launch_cannot_be_taken_up() -> LaunchCourse:
    """Its port is held; what is left of it stays when a signal comes, and a second one."""
    former = Former("k7f2", "h7", "slurm", True, 29_611, "f")
    left = tuple(Left(Key(n, n + 2, f"rdzv-old-{n}-{n + 2}"), SLURM, f"h{9 - n}") for n in (1, 3))
    course = LaunchCourse(make_spec(2), OWN, OnDisk(former, left))
    course.holds = (do.OpenFormer,)
    course.begin()
    held = late("port 29611 is held by pid 4711", ErrorKind.OTHER)
    course.refuse(do.OpenFormer, held)
    for _ in range(2):
        course.pause(6)
        course.refuse(do.OpenFormer, held)
    course.say(left[1].key, RUNS)
    course.signal(2)
    return course


def a_standing_registry_has_it() -> LaunchCourse:
    """The run is created late; slot 0 is here, and its end is what the run comes to."""
    facts = replace(OWN, here=HERE, owns_registry=False, joins_here=True, grace=3.0)
    found = OnDisk(Former("k7f2", "h7", "slurm", False, 29_611, "f", same_registry=True))
    wanted = Wanted("h7", "slurm", "f", standing=True)
    course = LaunchCourse(make_spec(2), facts, found, wanted)
    course.begin()
    course.refuse(do.AskStatus, late("no leader"))
    course.pause(1)
    course.holds = (do.CreateRun,)
    course.refuse(do.AskStatus, late("unknown run", ErrorKind.NOT_FOUND))
    course.refuse(do.CreateRun, late("no database", told=True))
    course.pause(2)
    course.refuse(do.CreateRun, late("its disk is full", ErrorKind.STORAGE_FULL, told=True))
    course.pause(2)
    course.answer(do.CreateRun)
    course.see()
    course.submits((Key(1, 1), "h8"), (Key(0, 1), "731"))
    course.say(Key(1, 1), RUNS)
    course.say(Key(0, 1), RUNS)
    for slot in (1, 0):
        course.registry.join(slot, 1, hostname=HOSTS[slot], nproc_per_node=slot + 2)
    course.registry.verify().arm()
    course.see()
    course.wait(3)
    course.registry.exit(1, 1, message="its disk is full", rank=3)
    course.wait(6)
    course.look()
    leaves(course, 1)
    course.say(Key(1, 1), SlotState.FAILED, "exit code 1")
    course.say(Key(0, 1), SlotState.FAILED, "exit code 143")
    course.wait(12)
    closes(course)
    return course


def a_person_starts_them() -> LaunchCourse:
    """By hand: each is said, twice for one; and the ledger cannot be written at first."""
    spec = make_spec(3, submit_retries=2, **OUTLIVES)
    course = LaunchCourse(spec, replace(OWN, here=BY_HAND, others=BY_HAND))
    course.holds = (do.WriteIntent,)
    course.begin()
    course.see()
    for slot, words in ((2, "disk full"), (0, "disk full"), (1, "no quota")):
        number = course.id(do.WriteIntent, Key(slot, 1))
        course.take(inputs.NotWritten(number, words, jitter=0.25 * slot))
    course.pause(0.5)
    course.holds = ()
    for slot in (1, 2, 0):
        course.answer(do.WriteIntent, Key(slot, 1))
        course.submits((Key(slot, 1), f"/s/slot-{slot}.sh"))
        course.say(Key(slot, 1), SlotState.SUBMITTED)
    course.registry.refuse_to_join(1, 1, hostname="b", retryable=True)
    course.see()
    course.submits((Key(1, 2), "/s/slot-1-2.sh"))
    for slot in (1, 0, 2):
        own: Any = {"hostname": "bca"[slot], "nproc_per_node": 4 - slot}
        course.registry.join(slot, 1 + (slot == 1), **own)
    course.registry.verify().arm()
    course.see()
    course.registry.report(2, LeaveReport())
    course.registry.stop(0, 1)
    course.see()
    course.ends(Key(2, 1))
    course.wait(21)
    course.look()
    course.submits((Key(2, 2), "/s/slot-2-2.sh"))
    course.signal(1)
    course.signal(1)
    course.see()
    leaves(course, 1, 0)
    closes(course)
    course.ends(Key(2, 2), Key(0, 1), Key(1, 2), Key(1, 1))
    return course


def its_queue_takes_them_back() -> LaunchCourse:
    """Nodes are preempted: before the go one is submitted again, after it that ends the run."""
    course = submits()
    course.lines.clear()
    course.say(key(3), SlotState.FAILED, "node fail", preempted=True)
    course.take(inputs.LineRead(course.id(do.ReadLastLine), "slurmstepd: *** PREEMPTED ***"))
    course.see()
    course.wait(2)
    course.submits((Key(3, 2), "h11"))
    for slot in (2, 0, 1):
        course.say(key(slot), RUNS)
    course.say(key(0), RUNS, preempted=True)
    course.say(key(0), RUNS)
    course.say(Key(3, 2), QUEUED, "Resources")
    course.wait(10)
    course.say(Key(3, 2), QUEUED, "Priority")
    course.wait(31)
    for _ in range(2):
        course.say(Key(3, 2), QUEUED, "Priority")
    course.say(Key(3, 2), RUNS)
    course.wait(21)
    for _ in range(3):
        course.see()
        course.pause(2)
    course.say(Key(3, 2), RUNS, "on rack 5")
    course.take(inputs.LineRead(course.id(do.ReadLastLine), "module load cuda"))
    course.look(88)
    for slot in (2, 0, 3, 1):
        own: Any = {"nproc_per_node": PROCESSES[slot], "requested_node": RANKS[slot]}
        course.registry.join(slot, NEWEST[slot] + (slot == 3), hostname=HOSTS[slot], **own)
    course.registry.verify().arm()
    course.see()
    course.wait(31)
    course.say(key(1), RUNS, "PreemptionNotice", preempted=True)
    course.wait(16, silent=(1,))
    course.registry.stop(3, 0, 2)
    course.wait(4, silent=(1,))
    course.look(140)
    leaves(course, 3, 2, 0)
    closes(course)
    course.say(key(1), SlotState.FAILED, "exit code 15")
    course.ends(key(0), key(2), Key(3, 2), Key(1, 1))
    return course


def two_are_taken_back_and_that_is_told_late() -> LaunchCourse:
    """The result is known when their scheduler says why; the one that the result names counts."""
    course = goes()
    course.wait(15, silent=(2,))
    course.wait(1, silent=(2, 1))
    course.registry.stop(3, 0)
    course.wait(16, silent=(2, 1))
    course.look()
    leaves(course, 3, 0)
    closes(course)
    for slot in (1, 2):
        course.say(key(slot), SlotState.FAILED, f"taken by job {slot + 7}", preempted=True)
    course.ends(key(3), key(0))
    return course


def no_spec_of_it_can_start() -> LaunchCourse:
    """Two worker runs end before they join, the second with its spec's last words."""
    course = submits(join_timeout_seconds=90.0)
    course.lines.clear()
    for slot, last in ((1, "Killed"), (2, "rdzv: cannot start: PATH has no command 'rdzv'")):
        course.say(key(slot), SlotState.FAILED, f"exit code {slot + 125}")
        course.take(inputs.LineRead(course.id(do.ReadLastLine), last))
        course.see()
    course.wait(3)
    closes(course)
    course.look()
    course.submits((Key(1, 3), "h15"))
    course.ends(Key(0, 1), Key(3, 1), Key(1, 3), Key(1, 1))
    return course


def nobody_can_cancel_the_others() -> LaunchCourse:
    """A symmetric start: who comes late is to hear why it ended."""
    facts = replace(OWN, here=HERE, others=None, joins_here=True)
    spec = make_spec(4, managed=False, join_timeout_seconds=120.0)
    course = LaunchCourse(spec, facts)
    course.begin()
    course.see()
    course.submits((Key(0, 1), "731"))
    course.say(Key(0, 1), RUNS)
    for slot in (0, 2):
        course.registry.join(slot, 1, hostname=HOSTS[slot], nproc_per_node=slot + 1)
    course.registry.refuse_to_join(2, 1, hostname="gpu-7")
    if (event := course.registry.cancel("it is wrong")) is not None:
        course.registry.apply(event)
    course.see(untold=[0, 1, 3])
    course.wait(12)
    course.look()
    leaves(course, 0, 2)
    course.see(untold=[3])
    course.pause(31)
    course.say(Key(0, 1), RUNS)
    course.ends(Key(0, 1))
    return course


COURSES: tuple[Make, ...] = (
    it_ends_well,
    two_nodes_are_lost,
    it_goes_on_with_a_standby,
    its_registry_ends_again_and_again,
    nobody_answers,
    a_signal_ends_it_and_a_second_one_at_once,
    a_signal_ends_what_runs,
    another_launcher_adopts_it,
    what_a_former_launch_has_left_is_ended,
    a_former_launch_cannot_be_taken_up,
    a_standing_registry_has_it,
    a_person_starts_them,
    its_queue_takes_them_back,
    two_are_taken_back_and_that_is_told_late,
    no_spec_of_it_can_start,
    nobody_can_cancel_the_others,
)


@pytest.mark.parametrize("course", COURSES, ids=lambda course: course.__name__)
def test_course(course: Make) -> None:
    assert course().lines == lines_in(KNOWN, course.__name__)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of({course.__name__: course for course in COURSES})) == 0)
