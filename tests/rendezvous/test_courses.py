"""What nodes, people and meters are told in the course of several runs is as in `courses.txt`.

No two numbers of these runs are the same one: slots, ranks, generations, incarnations, epochs and
processes differ, and what happens happens twice. Whoever takes the one for the other, forgets to
begin anew, or leaves a field out, shows in a line. Of each event: what it was, and every value of a
node's view and of the status that it has changed. Who changes a sentence or a field writes the file
anew (`make reference`), and reads in the diff what else has changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rendezvous.run import events
from rendezvous.wire.node import Facts
from rendezvous.wire.peers import peers_of
from rendezvous.wire.reports import (
    DepartReport,
    ExitReport,
    LeaveReport,
    WorldReport,
)
from rendezvous.wire.run import SlotState
from rendezvous.wire.verify import PairProbe, ProbeReport
from rendezvous.wire.world import RankWorld
from tests.support.courses import Course, lines_in, text_of
from tests.support.driver import (
    GENERATIONS,
    HOSTS,
    OF_RANKS,
    PROCESSES,
    RANKS,
    make_spec,
)

KNOWN = Path(__file__).with_name("courses.txt")
OUTLIVES: Any = {"on_node_loss": "replace", "max_replacements": 2, "fence_timeout_seconds": 20.0}


# --- the courses ----------------------------------------------------------------------------------


def goes(**changes: Any) -> Course:
    """Four nodes of which no number is another one; slot 1 is to find a port three times."""
    course = Course(make_spec(4, **changes))
    for slot, generation in ((3, 3), (1, 2), (2, 3), (2, 4), (2, 5)):
        own = {"name": f"job-{slot}", "handle": f"h{9 - slot}"}
        course.news(slot, SlotState.SUBMITTED, generation, **own)
        course.now += 3.25
        if generation in (3, 4) and slot == 2:
            course.join(2, generation, hostname="gpu-1")
    for slot in (2, 0, 3, 1):
        course.now += 0.5
        numbers = {"nproc_per_node": PROCESSES[slot], "requested_node": RANKS[slot]}
        course.join(slot, GENERATIONS[slot], hostname=HOSTS[slot], **numbers)
    course.now += 1.5
    for slot in (3, 0, 2, 1):
        course.probe(slot)
        course.now += 0.25
    for port in (29_501, 29_502, 29_503):
        course.refuse(1, "port_taken", "the port is taken", port)
        course.now += 0.75
    for slot in (1, 3, 0, 2):
        course.ack(slot, warm=slot == 3)
        course.now += 0.25
    return course


def it_ends_well() -> Course:
    """All end, the launcher's own last; two leave, and one has said how it goes."""
    course = goes()
    course.progress(2, "epoch 3 of 9")
    course.wait(61)
    course.progress(1, "loading")
    for slot in (2, 3, 1, 0):
        course.wait(5.5)
        course.exit(slot, 0, ran_seconds=60.5 + slot, progress=40 + slot)
    for slot in (3, 1):
        course.report(slot, LeaveReport())
    course.wait(1)
    course.look()
    return course


def it_fails_twice_and_starts_again() -> Course:
    """Another node fails the second time, and what comes late is of the epoch before."""
    course = goes(max_restarts=3, verdict_seconds=4.0)
    course.wait(70)
    tail = ["Traceback (most recent call last):", "ValueError: loss is nan"]
    course.exit(2, 7, rank=5, tail=tail, ran_seconds=69.0, progress=12, log="/var/log/2")
    course.wait(1.5)
    course.stop(1, 0)
    course.wait(1)
    course.stop(3)
    course.wait(6)
    course.report(0, ExitReport(epoch=4, exit_code=9, rank=1, age_seconds=30.0))
    for slot in (0, 2, 3, 1):
        course.ack(slot)
    course.wait(20)
    course.exit(1, 11, rank=3, message="it was killed by SIGSEGV", ran_seconds=18.5)
    course.stop(3, 2, 0)
    course.wait(30)
    course.look()
    course.arm()
    course.restart("another data set")
    course.stop(0, 1, 2, 3)
    course.arm()
    course.wait(5)
    course.exit(3, 2, tail=["usage: train.py [-h]", "train.py: error: unrecognized arguments: --x"])
    course.stop(0, 1, 2)
    course.wait(30)
    course.look()
    return course


def it_loses_two_nodes() -> Course:
    """The first goes and the second falls silent; each is replaced, and the first one twice."""
    course = goes(**OUTLIVES | {"max_replacements": 3})
    course.wait(10)
    course.report(2, LeaveReport())
    course.stop(0, 3, 1)
    course.wait(4)
    course.tries(lambda: course.join(2, 5, hostname="gpu-7", attempt=3))
    for state in (SlotState.SUBMITTED, SlotState.RUNNING):
        course.news(2, state, 6, name="job-2b", detail="on rack 4")
    course.join(2, 6, hostname="gpu-6", nproc_per_node=3)
    course.verify().arm()
    course.wait(25)
    course.wait(16, silent=[3])
    course.stop(0, 1, 2)
    course.wait(3, silent=[3])
    course.news(3, SlotState.FAILED, 4, detail="evicted", cause="preempted")
    course.wait(2)
    course.join(3, 5, hostname="gpu-5", nproc_per_node=1)
    course.verify().arm()
    course.wait(25)
    course.look()
    course.arm()
    course.exit(2, 9)
    course.stop(0, 1, 3)
    course.wait(20)
    course.look()
    return course


def it_goes_on_with_a_standby() -> Course:
    """One of three stands by, and takes the place of one that is lost; then nobody is left."""
    course = Course(make_spec(3, least=2, standby=2, **OUTLIVES | {"max_replacements": 0}))
    for slot in (4, 1, 0, 3, 2):
        course.now += 0.5
        course.join(slot, slot + 2, nproc_per_node=2, hostname=f"h{7 - slot}")
    course.verify().arm()
    course.wait(6)
    course.exit(4, 5, message="its disk is full")
    for _ in range(2):
        runs = [slot.index for slot in course.run.slots if slot.live_node()]
        course.report(runs[1], LeaveReport())
        course.stop(*(slot for slot in runs if slot != runs[1]))
        course.wait(25)
        course.verify().arm()
        course.wait(5)
        course.look()
    return course


def the_first_network_does_not_connect_them() -> Course:
    """Over the second one all reach each other; what the probes have measured is told."""
    course = Course(make_spec(3, verify_timeout_seconds=30.0))
    for slot in (2, 0, 1):
        offered = [f"10.{net}.0.{9 - slot}" for net in (4, 2)]
        facts = Facts(python_version="3.12.1", gpus=slot + 1)
        course.join(slot, slot + 3, addresses=offered, hostname=f"n{5 - slot}", facts=facts)
    course.look()
    for slot, bad in ((1, (2,)), (2, (1, 0)), (0, ())):
        course.now += 1.5
        course.probe(slot, *bad, how="no_route" if slot == 1 else "timeout")
    for slot in (2, 1, 0):
        course.now += 1.25
        _measured(course, slot)
    course.look()
    course.arm()
    course.cancel_now("that is enough")
    course.stop(2, 0, code=130)
    course.wait(12, silent=[1])
    course.look()
    return course


def _measured(course: Course, slot: int) -> None:
    listening, epoch = course.listening(), course.run.epoch
    pairs = [
        PairProbe(
            slot=peer,
            outcome="ok",
            rtt_ms=0.25 * (slot + 1) + peer,
            skew_seconds=4.5 * (peer - slot),
            path_mtu=1500 - 100 * (peer == 1),
            source=f"10.2.0.{9 - slot}",
        )
        for peer in peers_of(listening, slot, epoch)
    ]
    course.report(slot, ProbeReport(epoch=epoch, pairs=pairs))


def two_of_five_are_not_reached() -> Course:
    """They are released where three are enough, and the run ends where they are not."""
    course = Course(make_spec(5, least=3, spares=1))
    for slot in (5, 3, 0, 4, 1, 2):
        course.join(slot, 7 - slot, hostname=f"m{slot + 3}", nproc_per_node=1)
    for slot in range(6):
        course.probe(slot, *({1, 4} - {slot} if slot not in (1, 4) else {0, 2}))
    course.look()
    course.wait(31)
    course.verify()
    course.arm()
    course.look()
    return course


def nobody_reaches_slot_2() -> Course:
    """All are needed."""
    course = Course(make_spec(4))
    for slot in (3, 2, 0, 1):
        course.join(slot, 2 * slot + 1, hostname=f"m{slot + 3}")
    for slot in range(4):
        course.probe(slot, *({2} if slot != 2 else {0}))
    course.look()
    return course


def they_come_late_or_not_at_all() -> Course:
    """The scheduler holds them, one refuses itself, and one is submitted again."""
    course = Course(make_spec(4, join_timeout_seconds=300.0, submit_retries=2))
    course.join(0, hostname="master", nproc_per_node=2)
    for slot in (1, 2, 3):
        course.news(
            slot, SlotState.QUEUED, 1, name=f"j{slot}", detail="Priority", handle=f"4{slot}"
        )
    course.wait(40)
    course.look()
    course.news(2, SlotState.FAILED, 1, detail="no such image", cause="image")
    course.wait(10)
    course.look()
    course.news(2, SlotState.RUNNING, 2)
    course.news(1, SlotState.RUNNING, 1)
    course.join(1, 1, hostname="w1", nproc_per_node=3)
    course.ask_for(12, 2, generation=1, hostname="older")
    course.wait(60)
    course.look()
    course.refuse_to_join(2, 2, hostname="w2", retryable=True)
    course.wait(30)
    course.look()
    course.join(2, 3, hostname="w2", attempt=4)
    course.wait(200)
    course.look()
    course.join(3, 2, hostname="w3")
    course.wait(100)
    return course


def both_ask_for_slot_1() -> Course:
    """A symmetric start in which a number is given twice."""
    course = Course(make_spec(3, managed=False, join_timeout_seconds=120.0))
    course.join(0, hostname="a", here=True)
    course.join(1, hostname="c")
    course.ask_for(30, 1, hostname="b", attempt=2, source="10.0.9.9")
    course.wait(120)
    course.look()
    return course


def its_machine_will_go() -> Course:
    """Two will go, the later one first; the programs start again before, without it."""
    course = goes(**OUTLIVES)
    course.wait(5)
    course.drain(1, 900.0, "maintenance")
    course.report(3, DepartReport(epoch=4, seconds=200.0, words="its spot machine is taken away"))
    course.wait(30)
    course.look()
    course.report(3, DepartReport(epoch=4, seconds=500.0, words="later"))
    course.wait(175)
    course.stop(3, 2, 1, 0)
    course.wait(5)
    for slot in (3, 1):
        course.join(slot, GENERATIONS[slot] + 1, hostname=f"gpu-{slot}")
    course.verify().arm()
    course.wait(5)
    course.look()
    return course


def nothing_moves() -> Course:
    """A feature notes something, and something else beside it; a rank is in another world."""
    course = goes()
    course.wait(100)
    where: Any = {"rank": 5, "slot": 2}
    course.apply(events.Noted(feature="weather", words="it rains at rank 5", slot=2, data=where))
    course.look()
    course.apply(events.Noted(feature="weather", words="it rains no more"))
    course.wait(60)
    course.apply(events.Noted(feature="wind", words="a storm", usual=True, data=["north", 7]))
    for slot, ranks in OF_RANKS.items():
        worlds = [
            RankWorld(rank=rank, library="torch", size=PROCESSES[slot], places=[place])
            for place, rank in enumerate(ranks)
        ]
        course.report(slot, WorldReport(epoch=4, worlds=worlds))
    course.wait(100)
    course.look()
    course.cancel_now("nothing moves")
    course.wait(30)
    course.look()
    return course


def they_are_late_after_a_loss() -> Course:
    """One is late to verify and another to arm; each is given up, and its slot filled again."""
    course = goes(**OUTLIVES | {"max_replacements": 9})
    course.apply(events.Restarted())
    for slot in (2, 1):
        course.report(slot, LeaveReport())
    course.stop(0, 3)
    course.wait(4)
    for slot in (1, 2):
        _comes(course, slot)
    for slot in (2, 0, 1):
        course.probe(slot)
    course.wait(62)
    course.look()
    _comes(course, 3)
    course.verify()
    for slot in (3, 0, 2):
        course.ack(slot)
    course.wait(90)
    course.look()
    _comes(course, 1)
    course.verify()
    course.refuse(2, "contract", "its shared memory is full")
    course.wait(2)
    course.look()
    return course


def _comes(course: Course, slot: int) -> None:
    """A newer worker run takes the slot."""
    generation = course.slot(slot).wanted
    own: Any = {"nproc_per_node": PROCESSES[slot], "hostname": f"new-{slot}-{generation}"}
    course.join(slot, generation, **own)


def one_goes_while_somebody_restarts_it() -> Course:
    """The first time all end as they are told; the second time a node is lost meanwhile."""
    course = goes(max_restarts=2)
    course.wait(5)
    course.restart("another learning rate")
    course.stop(2, 0, 1, 3)
    course.wait(2)
    course.arm()
    course.wait(9)
    course.restart("yet another one")
    course.report(2, LeaveReport())
    course.report(1, LeaveReport())
    course.stop(0, 3)
    course.wait(20)
    course.look()
    return course


def one_leads_the_others() -> Course:
    """Its program is that of the run; the others end with it."""
    course = Course(make_spec(2, led=True))
    for slot in (1, 0):
        course.join(slot, 2, hostname=HOSTS[slot], nproc_per_node=3)
    course.verify().arm()
    course.wait(75)
    course.exit(0, 0)
    course.wait(3)
    course.stop(1)
    course.wait(3)
    course.look()
    return course


def fewer_go_on() -> Course:
    """Without one of four, then of three; below two it ends."""
    spec = make_spec(4, least=2, on_node_loss="shrink", fence_timeout_seconds=30.0)
    course = Course(spec)
    for slot in (3, 0, 2, 1):
        own: Any = {"nproc_per_node": 2, "hostname": HOSTS[slot], "requested_node": RANKS[slot]}
        course.join(slot, GENERATIONS[slot], **own)
    course.verify().arm()
    for lost in (2, 1, 3):
        course.wait(70)
        rest = [s.index for s in course.run.slots if s.live_node() and s.index != lost]
        course.wait(16, silent=[lost])
        course.stop(*rest)
        course.wait(35, silent=[lost])
        course.verify().arm()
        course.look()
    return course


COURSES = (
    it_ends_well,
    it_fails_twice_and_starts_again,
    it_loses_two_nodes,
    it_goes_on_with_a_standby,
    the_first_network_does_not_connect_them,
    two_of_five_are_not_reached,
    nobody_reaches_slot_2,
    they_come_late_or_not_at_all,
    both_ask_for_slot_1,
    its_machine_will_go,
    nothing_moves,
    they_are_late_after_a_loss,
    fewer_go_on,
    one_goes_while_somebody_restarts_it,
    one_leads_the_others,
)


@pytest.mark.parametrize("course", COURSES, ids=lambda course: course.__name__)
def test_course(course: Callable[[], Course]) -> None:
    drive = course()
    assert drive.lines == lines_in(KNOWN, course.__name__)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of({course.__name__: course for course in COURSES})) == 0)
