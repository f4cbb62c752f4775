"""Before the go: nodes that fail or are lost, min:max, arming, slots that nobody fills; plans."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rendezvous.run import events
from rendezvous.run.gathering import Recovery, recovery_of
from rendezvous.run.phases import RULES, Admits, Awaits, PhaseRules
from rendezvous.run.protocol import launcher_gone
from rendezvous.run.verifying import GatherMore, Verify, plan_checks
from rendezvous.wire.run import Limits, Phase, Result, SlotNews, SlotState
from tests.support.driver import Drive, in_phase, make_spec
from tests.support.stories import MEMLOCK, stories, tell


@stories("""
a node that is lost is submitted again
    gathering|verifying|arming 3; silent 16 1 -> gathering table=None digest= 1.wanted=2 1.retries=1
    -> joined,-,-|joined,-,joined|joined,-,joined
    "…failed before the start: it was silent for 15 s: host, network or agent is down; it is
    submitted again"
a node that is lost with no retry left ends the run
    gathering|verifying|arming 3 submit_retries=0; silent 16 1 -> slot=1 hostname=host1
    -> status=failed exit=86 code=node_lost
    "…(host1…failed before the start: it was silent for 15 s: host, network or agent is down"
a worker run that is preempted with no retry left ends the run with that cause
    new 2 submit_retries=0; gather 0; news 1 submitting; news 1 failed cause=preempted
    -> status=failed exit=88 code=preempted
a worker run that no other one of its spec would do better than is not submitted again
    new 2; gather 0; news 1 submitting; news 1 failed cause=scheduler_failed detail='no rdzv'
    -> status=failed exit=83 code=scheduler_failed slot=1
where nobody can submit again a lost node is waited for once
    gathering|verifying|arming 3 managed=False; silent 16 1 -> gathering
    "…; the run waits for it, because its platform may start it again"
    join 1 at=10.0.0.77 attempt=2 -> 1.problem=
    silent 16 1 -> exit=86 slot=1
where nobody can submit again a node that was ended may come again
    gathering|verifying|arming 3 managed=False; exit 1 143 -> gathering
where nobody can submit again a node that failed may not
    gathering|verifying|arming 3 managed=False; exit 1 82 -> exit=82 slot=1 code=agent_failed
an agent that ends is submitted again
    gathering|verifying|arming 3; exit 1 143 -> gathering 1.wanted=2 1.node=None
    -> 1.problem='its agent ended with code 143'
a newer generation that takes a slot begins a new epoch
    verifying|arming; join 1 2 hostname=spare -> verifying epoch=2 joined,joined waiting=0,1
    "spare joined in slot 1 (2 of 2), from 10.0.0.2, as incarnation 2, replacing host1"
a newer generation that takes a slot while gathering disturbs nobody
    new 3 least=2; gather 0 1 -> seq=1 enough_since=100.0
    wait 5; join 1 2 -> seq=1 enough_since=100.0
one failure that agent and scheduler tell of costs one retry
    new; gather 1; news 1 running
    "slot 1: running"
    exit 1 1 message='its GPU is gone' -> 1.wanted=2
    news 1 failed detail='exit code 1' -> gathering 1.retries=1 1.wanted=2
    -> 1.problem='its GPU is gone'
    "slot 1: failed (exit code 1)"
a node whose worker run ended is submitted again
    new; gather 1; news 1 ended detail=preempted -> -,-
    "slot 1 (host1) failed before the start: its worker run ended: preempted; it is submitted again"
a newer worker run that dies does not harm the node that it was to replace
    arming; news 1 submitting 2; news 1 failed 2 -> arming verified,verified
    arm -> running
what the scheduler said of an older worker run is not held against a newer one
    gathering; news 1 failed detail='bad node'; join 1 2; verify; arm; silent 14 1
    -> 1.state=none 1.detail= running,running
the cause of a submission that fails is said once before the end and at it
    new; gather 0; news 1 submitting; news 1 submitting detail='no such queue'
    "slot 1 could not be submitted yet: no such queue"
    news 1 failed detail='no such queue'
    "slot 1 failed before the start: its submission failed; it is submitted again"
    waits "…slot 1 waiting to be submitted again"
    news 1 submitting 2
    waits "…slot 1 being submitted again"
    news 1 failed 2 detail='no such queue' -> exit=83 slot=1 code=scheduler_failed
    told "slot 1 failed before the start: its submission failed"
    "slot 1 failed before the start: its submission failed: no such queue"
another cause is said as well
    new; gather 0; news 1 submitting; news 1 failed detail='no such queue'
    "slot 1 failed before the start: its submission failed: no such queue; it is submitted again"
    news 1 submitting 2; news 1 failed 2 detail='the queue is full' -> exit=83
    "slot 1 failed before the start: its submission failed: the queue is full"
a node that joined has the causes before it forgotten
    new; gather 0; news 1 submitting; news 1 failed detail='no image'; news 1 submitting 2; join 1 2
    -> 1.told=
what was submitted has ended before it joined
    new 2 submit_retries=0; gather 0; news 1 submitted handle=n17; news 1 failed detail='no image'
    "slot 1 failed before the start: its worker run ended before it joined: no image"
without verify the table is sealed as soon as all are in, and again after a loss
    new 3 verify=False; gather 0 1 -> gathering
    join 2 -> arming epoch=1 verified,verified,verified
    leave 1 -> gathering table=None
    join 1 2 -> arming epoch=2
    arm -> running
""")
def test_losses(story: str) -> None:
    tell(story)


@stories("""
the last call begins when enough are in and goes on without the others
    new 4 least=2 last_call_seconds=30; gather 0; wait 100; join 2; wait 29 -> epoch=0
    wait 1 -> verifying epoch=1
    "the last call ended with 2 nodes"
    verify; arm -> table=0,2
a replacement after the last call begins another one
    new 3 least=2 last_call_seconds=5; gather 0 1; wait 5 -> verifying
    join 1 2 -> gathering enough_since=105.0
the last call needs slot 0
    new 4 least=2; gather 1 2 3; wait 60 -> gathering enough_since=None
    join 0 -> verifying
the last call ends when a loss makes them too few
    new 3 least=2; gather 0 1; silent 16 1 -> enough_since=None
    wait 60 -> gathering
a slot that cannot be had is spared when the others are enough
    new 3 least=2 submit_retries=0; gather 0; news 2 failed
    "slot 2 failed before the start: its submission failed; the run does not need it"
    join 1; wait 30 -> verifying
a slot that cannot be spared ends the run
    new 3 least=2 submit_retries=0; gather 0; news 2 failed; news 1 failed -> exit=83 slot=1
a spared slot that is filled after all counts again
    new 3 least=2 submit_retries=0; gather 0; news 2 failed; join 2 -> 2.given_up=False
    news 1 failed -> result=None
    wait 30 -> verifying
a spared slot that is submitted again counts again
    new 3 least=2 submit_retries=0; gather 0; news 2 failed; news 2 submitting 2; news 1 failed
    -> result=None
a worker run of a slot outside the sealed table dies and the table stays
    new 3 least=2 submit_retries=0|1 last_call_seconds=1; gather 0 1; wait 1; verify -> arming seq=3
    news 2 failed -> arming epoch=1 seq=3 2.wanted=1|2 2.given_up=True|False
""")
def test_min_max(story: str) -> None:
    tell(story)


@stories("""
a node that does not acknowledge ends the run after the time-out
    arming 2 arm_timeout_seconds=10; ack 0; wait 10 -> exit=82 code=arming_failed
    "node 1 (host1) did not get ready within 10 s, though still connected"
    told "node 1 (host1) did not get ready…"
a taken port gives a new epoch with a free one
    arming; ack 1; refuse 0 port_taken 'master port 29500 is taken' free_port=29507 -> arming
    -> epoch=2 waiting=0,1 verified,verified port=29507
    "node 0 (host0) cannot start: master port 29500 is taken; trying master port
    29507"
    arm -> running
a taken port without a free one is followed by the next
    new 1; join 0 master_port=41000|65535; verify; refuse 0 port_taken taken -> port=41001|29500
a master port that rank 0 found free is used unless one is fixed
    new 2 master_port=None|29999; join 0 master_port=41000; join 1 master_port=42000; verify
    -> port=41000|29999
a fixed port that is taken ends the run
    arming 2 master_port=29999; refuse 0 port_taken 'master port 29999 is taken' free_port=30000
    -> status=failed exit=82 code=arming_failed slot=0 node=0 hostname=host0
    "node 0 (host0) cannot start: master port 29999 is taken"
    told "node 0 (host0) cannot start: master port 29999 is taken"
    hint "choose another with --master-port"
an exit with no retry left never ends the run well
    arming 2 submit_retries=0; exit 1 77|0 message='the disk is full' tail=a,b log=/log
    -> status=failed exit=77|1 code=agent_failed slot=1 node=1 hostname=host1 verified,lost
    -> tail=a,b log=/log
    "node 1 (host1) failed before the start: the disk is full"
    told "node 1 (host1) failed before the start: the disk is full"
another refusal ends the run at once
    arming; refuse 1 bad_table|hosts|contract 'it has no file' -> exit=82 code=arming_failed slot=1
    -> node=1 hostname=host1
    "node 1 (host1) cannot start: it has no file"
""")
def test_arming(story: str) -> None:
    tell(story)


def test_ports_are_not_tried_for_ever() -> None:
    drive = in_phase(Phase.ARMING, 1)
    for tried in range(32):
        drive.refuse(0, "port_taken", "taken", free_port=30_000 + tried)
        assert drive.phase is Phase.ARMING
    drive.refuse(0, "port_taken", "taken")
    assert (drive.result.exit_code, drive.run.epoch) == (82, 33)


# --- the join time-out ----------------------------------------------------------------------------


@stories("""
a missing slot is named with what is known of it
    new 4 join_timeout_seconds=600; gather 0 1 3; news 2 submitting name=rdzv-x-2
    news 2 running detail=node017; wait 599 -> result=None
    wait 1 -> status=failed exit=80 code=join_timeout slot=2 node=None hostname=
    "run 'r' expected 4 nodes and 3 joined within 600 s: slot 2 (worker run rdzv-x-2)
    never reached the registry; the scheduler reports running: node017"
    told "run 'r' expected 4 nodes and 3 joined within 600 s: slot 2 (worker run rdzv-x-2)…"
    hint "see the log of the missing worker run; it must be able to reach the registry's address"
what fails again and again is named before the end and at it
    new 2 join_timeout_seconds=5; gather 0; news 1 submitting name=x-1
    news 1 submitting detail='the API answered 500'
    "slot 1 could not be submitted yet: the API answered 500"
    waits "waiting for 1 of 2 nodes, 5 s left: slot 1 being submitted again"
    wait 5 -> code=join_timeout
    "…slot 1 (worker run x-1) was still being submitted: the API answered 500"
    hint "the scheduler has not accepted the worker run yet; launch again when it responds"
where nothing was submitted the launcher knows why
    new 2 join_timeout_seconds=0.5; gather 0; wait 0.5
    "run 'r' expected 2 nodes and 1 joined within 0.5 s: slot 1 was never submitted"
    hint "see the earlier messages of the launcher for the cause"
where a worker run was submitted a longer time-out may do
    new 2 join_timeout_seconds=0.5; gather 0; news 1 submitting; news 1 submitted; wait 0.5
    hint "launch again with a larger --join-timeout; …"
where nobody submits a slot has not reached the registry
    new 3 managed=False join_timeout_seconds=5; gather 0; wait 5
    "…1 joined within 5 s: slots 1-2 never reached the registry"
a scheduler that knows nothing is not quoted
    new 2 join_timeout_seconds=5; gather 0; news 1 none|unknown; wait 5
    "…slot 1 never reached the registry"
missing slots of which the same is known are one group
    new 64 managed=False join_timeout_seconds=5; gather 0 1 2 42; wait 5
    "…4 joined within 5 s: slots 3-41, 43-63 never reached the registry"
    new 9 join_timeout_seconds=5; gather 0; wait 5
    "…: slots 1-8 were never submitted"
what differs by a number or a name alone is one group with an example
    new 4 join_timeout_seconds=5; gather 0; news 1 submitting name=x-1; news 1 queued detail=n17
    news 2 submitting name=x-2; news 2 running detail='on ab17' handle=ab
    news 3 submitting name=x-3; news 3 running detail='on cd18' handle=cd
    news 1 running detail='on ef16' handle=ef; wait 5
    "…: slots 1-3, such as slot 1, never reached the registry; the scheduler reports …: on ef16"
four reasons are three and a number
    new 6 join_timeout_seconds=5; gather 0; news 1 submitting; news 2 submitting; news 2 running
    news 3 submitting; news 3 submitted; news 4 submitting; news 4 unknown; wait 5
    "…: slot 1 was still being submitted; slot 2 never reached …; slot 3 never …; and 2 more"
a trouble of the registry is told instead of blaming who is missing
    new 9 join_timeout_seconds=5; gather 0; wait 4.75; timeout trouble='no more connections'
    "…1 joined within 5 s: no more connections"
    hint ""
time in the scheduler's queue does not count
    new 2 join_timeout_seconds=60; gather 0; news 1 submitting; wait 50
    news 1 queued detail=Priority; wait 1000; news 1 running; wait 9 -> result=None
    wait 1 -> code=join_timeout
the time before each stay in the queue counts
    new; news 1 running; wait 10; news 1 queued; wait 100 -> 1.waited=10.0
    news 1 running; wait 20; news 1 queued; wait 100 -> 1.waited=30.0
the clock of a filled slot stands
    new; news 1 submitting; wait 10; join 1; wait 10 -> 1.waited=10.0 1.waiting_since=None
a new submission starts its slot's clock again
    new 2 join_timeout_seconds=60; gather 0; wait 50; news 1 submitting 2; wait 59 -> result=None
    wait 1 -> code=join_timeout
    "…: slot 1 was still being submitted"
a slot that was lost starts its clock again and the loss is told
    new 2 join_timeout_seconds=60; gather 0; news 1 submitting; wait 50; join 1
    exit 1 1 message='its disk is full'; wait 59 -> result=None
    wait 1
    "…slot 1 was still being submitted; before that: its disk is full"
a slot above the minimum is nobody's fault
    new 4 least=2 join_timeout_seconds=60; gather 0; news 2 queued; news 3 queued; wait 100
    -> result=None
    news 3 running; wait 60 -> result=None
    news 2 running; wait 60 -> code=join_timeout
    "run 'r' expected 2:4 nodes and 1 joined within 60 s…"
a spared slot does not count among those that may come
    new 3 least=2 submit_retries=0 join_timeout_seconds=60; gather 0; news 1 queued
    news 2 failed detail='bad node'; news 1 running; wait 60 -> code=join_timeout
    "…bad node…"
a node of another job ends the run at once when its slot is empty
    new; gather 0; join 1 nnodes=3 -> Mismatch
    wait 0 -> code=mismatch exit=77 slot=1
    "slot 1 (host1) was started with --nnodes 3, but run 'r' has --nnodes 2"
    hint "give every node the same number of nodes (--nnodes or NUM_NODES)"
a node of another job does not harm the node that has the slot
    new; gather 1; join 1 attempt=2 nnodes=3 -> Mismatch gathering -,joined 1.problem=""
""")
def test_who_is_missing(story: str) -> None:
    tell(story)


def test_without_its_launcher_nothing_is_known_of_the_queue_any_more() -> None:
    drive = Drive(make_spec(3))
    for slot, state in ((0, SlotState.RUNNING), (1, SlotState.QUEUED)):
        drive.news(slot, state, 2)
    words = "it was queued when its launcher last reported"
    news = SlotNews(generation=2, state=SlotState.UNKNOWN, detail=words)
    assert launcher_gone(drive.run) == [events.SlotChanged(slot=1, news=news)]
    drive.apply(events.Cancelled(reason="enough"))
    assert launcher_gone(drive.run) == []


# --- refusals of nodes that have not joined -------------------------------------------------------


@stories("""
a node that refuses to join ends the run at once
    new 2 managed=True|False; gather 0; refuse_to_join 1 -> code=refused exit=2 slot=1
    -> hostname=host1 status=failed
    "slot 1 (host1) cannot take part: there is no GPU"
    hint "ask for one"
a node that another machine may cure is submitted again as often as any
    new; news 1 submitting; refuse_to_join 1 retryable=True -> result=None
    "…; it is submitted again"
    refuse_to_join 1 retryable=True -> nothing
    news 1 failed -> result=None 1.wanted=2
    news 1 submitting 2; refuse_to_join 1 2 retryable=True -> code=refused slot=1
a refusal of a worker run of which nothing was told begins its generation
    new; news 1 queued name=j1 detail=Priority; refuse_to_join 1 2 retryable=True
    -> 1.generation=2 1.wanted=3 1.name= 1.detail=
a slot for which a spare is there is dropped where its node refuses
    new 2 spares=1; gather 0; refuse_to_join 1
    "slot 1 (host1) cannot take part: there is no GPU; the run does not need it"
    join 2; verify; arm -> running
a launcher's own child that ends before it joins is not waited for
    new 2 managed=False; gather 1; news 0 running; news 0 failed detail='pid 7: no such option'
    -> code=scheduler_failed slot=0
    "…pid 7: no such option"
""")
def test_refusals(story: str) -> None:
    tell(story)


def test_a_refusal_that_an_older_version_has_kept_is_replayed_as_it_was() -> None:
    drive = Drive(make_spec(2, spares=1))
    kept = events.Refused(slot=1, generation=1, code="mismatch", reason="another job")
    assert drive.apply(kept).reason == "refused: another job"
    assert (drive.result.code, drive.result.exit_code) == ("mismatch", 77)


# --- what holds in each phase, and what follows on a state: planning changes nothing --------------


@pytest.mark.parametrize(
    ("bad", "spares", "given_up", "step", "out"),
    [
        (None, 1, False, Verify, []),
        (1, 2, False, Verify, [1]),
        (1, 1, False, GatherMore, []),
        (0, 1, False, Result, []),
        (1, 1, True, Result, []),
    ],
)
def test_checks_leave_out_gather_more_or_end_the_run(
    bad: int | None, spares: int, given_up: bool, step: type[Any], out: list[int]
) -> None:
    drive = Drive(make_spec(2, spares=spares))
    for slot in range(1 + spares):
        drive.join(slot, findings=[MEMLOCK] if slot == bad else [])
    drive.run.slots[-1].given_up = given_up
    before = copy.deepcopy(drive.run)
    plan = plan_checks(drive.run, drive.now)
    assert drive.run == before
    assert type(plan.step) is step
    assert [slot for group in plan.left_out for slot in group] == out


def test_how_a_run_goes_on_without_a_node() -> None:
    run = in_phase(Phase.ARMING, 2, spares=1).run
    slot = run.slots[1]
    assert recovery_of(run, slot, again=False) is Recovery.SPARED
    assert recovery_of(run, run.slots[0], again=False) is None
    assert recovery_of(run, slot, again=True) is Recovery.RESUBMITTED
    run.spec = run.spec.model_copy(update={"managed": False})
    assert recovery_of(run, slot, again=True) is Recovery.RESTARTED
    slot.retries = run.spec.limits.submit_retries
    assert recovery_of(run, slot, again=True) is Recovery.SPARED
    slot.generation = 2
    assert recovery_of(run, slot, again=True) is Recovery.ON_ITS_WAY
    slot.state = SlotState.FAILED
    assert recovery_of(run, slot, again=True) is Recovery.SPARED
    assert recovery_of(run, run.slots[2], again=True) is Recovery.LEFT_OUT


@pytest.mark.parametrize("rules", RULES.values(), ids=list(RULES))
def test_the_rules_of_a_phase_are_of_one_piece(rules: PhaseRules) -> None:
    assert list(RULES) == list(Phase)
    asks = rules.awaits is Awaits.REPORTS
    assert asks == bool(rules.task) == (rules.limit is not None) == (rules.shows is not None)
    assert rules.limit is None or rules.limit in Limits.model_fields
    assert rules.is_forming == (rules.admits is not Admits.NOBODY)  # nobody joins programs that run
