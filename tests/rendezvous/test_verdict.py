"""After the go: who failed first, how the run ends, and what is said of it."""

from __future__ import annotations

from rendezvous.wire.run import Phase
from tests.support.driver import in_phase
from tests.support.stories import stories, tell
from tests.support.tables import rows


@stories("""
a node that had ended well before is named beside the first cause
    running 3; exit 1 0; exit 0 1 rank=0; stop 2 0
    "node 0 (host0) failed: rank 0 ended with exit code 1; node 1 (host1) had ended
    with exit code 0"
a failing program stops the others and is named
    running 3; exit 1 137 rank=1 message='out of memory?' tail='last words' log=/l
    -> running stop=True
    stop 0 143; stop 2 143 -> status=failed exit=137 code=program_failed slot=1 node=1
    -> hostname=host1 rank=1 tail='last words' log=/l exit_code_of=program
    "node 1 (host1) failed: rank 1 ended with exit code 137 (signal 9,
    SIGKILL); out of memory?"
    hint "see dmesg (the kernel kills when memory is used up), or ask the scheduler (sacct, kubectl
    describe pod)"
what rdzv itself says of a failure is not the programs last output
    running 2; exit 1 3 tail='last words,rdzv: SIGKILL did not end these processes within 5 s: 71'
    stop 0 143 -> exit=3 tail='last words'
the verdict falls after two seconds without those that only stop slowly
    running 3 verdict_seconds=2; exit 1 1; wait 1.75 -> running stop=True
    wait 0.25 -> slot=1 exit=1
    hint "see what it wrote before: rdzv logs RUN"
    told "node 1 (host1) failed: the program ended with exit code 1"
the first cause is the oldest failure and not the first report
    running 3; exit 0 1 age_seconds=0.5; wait 1; exit 2 3 age_seconds=30 rank=5; wait 2
    -> slot=2 exit=3 rank=5
    "node 2 (host2) failed: rank 5 ended with exit code 3"
a node that fell silent before the failure is waited for and is the cause
    running 3; silent 1 1; exit 0 1; silent 3 1 -> running
    silent 12 1 -> exit=86 exit_code_of=rdzv code=node_lost
    "node 1 (host1) was lost: it was silent for 15 s: host, network or agent is down"
the verdict waits no longer than a lease although the registry doubts itself
    running 5; silent 1 1 2 3 4; exit 0 1; silent 16.75 1 2 3 4 -> running
    silent 0.25 1 2 3 4 -> slot=0 exit=1
a node whose worker run was preempted says so where that is known in time
    running 2; news 1 running cause=preempted; exit 1 143; wait 1; exit 0 143 stopped=True
    -> code=preempted exit=88 exit_code_of=rdzv slot=1
a preemption that is told before the node is lost is its cause
    running 2; silent 5 1; news 1 failed detail='PREEMPTED: n1' cause=preempted; silent 12 1
    -> code=preempted exit=88
    "node 1 (host1) was lost: its worker run ended: PREEMPTED: n1; the scheduler preempted
    its worker run"
a preemption of another generations worker run is none of the nodes
    running 2; news 1 failed 2 cause=preempted; silent 17 1 -> code=node_lost exit=86
a node that is lost after a failure is not the cause and is named beside it
    running 3 verdict_seconds=60; exit 0 7; silent 30 1 -> exited,lost,running
    stop 2 143 -> slot=0 exit=7
    "node 0 (host0) failed: the program ended with exit code 7; also lost: node 1 (host1)"
after a restart the verdict waits for those who were not heard of since
    running 3; wait 5; exit 1 3; restart; silent 14 2 -> result=None
    silent 1.5 2 -> slot=1
    "…exit code 3; also lost: node 2 (host2)"
what an agent ends its node for is said without the exit code
    running 2 verdict_seconds=0; exit 0 87 by_agent=True message='no GPU'; stop 1 143
    -> exit=87 exit_code_of=rdzv
    "node 0 (host0) failed: no GPU"
a lost node fails the run
    running 3; silent 16 2 -> stop=True running,running,lost
    stop 0 143; exit 1 1 -> slot=2 exit=86 node=2
    hint "…preemption…"
a node that leaves while the run runs fails it
    running; leave 1; wait 2.25 -> slot=1
    "node 1 (host1) was lost: its agent left before the end"
a node that leaves after a failure is not the cause
    running 3; leave 1; exit 2 4 age_seconds=0.5; wait 2.25 -> slot=2 exit=4
a node that has ended well may fall silent or leave
    running 3; exit 1 0; exit 2 0; leave 2; silent 30 1 -> stop=False running,lost,left
    exit 0 0 -> status=ok
a stopped node is never the cause
    running 3; exit 0 1; exit 1 137 stopped=True age_seconds=100
    "node 1 (host1) was stopped (exit code 137)"
    stop 2 143 -> slot=0 exit=1
128 is no signal
    running 1; exit 0 128|193 -> exit=128|193
    "…: the program ended with exit code 128|193"
a signal is told by its number
    running 1; exit 0 129 -> exit=129
    "…: the program ended with exit code 129 (signal 1, SIGHUP)"
the last signal is told by its number
    running 1; exit 0 192 -> exit=192
    "…: the program ended with exit code 192 (signal 64)"
a node that nobody told to stop failed whatever it says
    running; stop 1 143 -> stop=True
    exit 0 0 -> status=failed slot=1 exit=143
after the go the lease and not the scheduler says who is lost
    running; news 1 failed detail='exit code 137'
    "slot 1: failed (exit code 137)"
    wait 60 -> running stop=False
a suspect node whose worker run is over is lost with the scheduler's words
    running; silent 1 1; news 1 failed detail='exit code 137'; silent 4.75 1 -> running,running
    silent 0.25 1 -> running,lost
    wait 2.25
    "node 1 (host1) was lost: its worker run ended: exit code 137"
a killed node is the cause although its peer told of it first
    running; close 1; silent 0.25 1; exit 0 1 age_seconds=0.2; news 1 ended; silent 3 1
    -> slot=1 exit=86
    "…was lost: its worker run ended"
a closed connection ends a node within seconds
    running; close 1; silent 1.25 1
    -> 1.problem='its agent is gone: its connection was closed and it did not reconnect'
""")
def test_the_verdict(story: str) -> None:
    tell(story)


@stories("""
cancelling ends the run in any phase
    gathering|verifying|arming|running; cancelled 'SIGINT at the launcher' -> finished stop=True
    -> status=cancelled exit=84 exit_code_of=rdzv code=cancelled slot=None
    "run 'r' was cancelled: SIGINT at the launcher"
a cancel does not hide the cause of an end that has begun
    running 3; exit 1 7|137 -> running
    cancel -> nothing
    exit 2 143; wait 2 -> exit=7|137 slot=1
    cancel -> nothing
who cancels again does not wait for a silent node
    running 3; exit 1 7; stop 0 143; silent 1.9 2; cancel -> nothing
    silent 0.1 2 -> running
    cancel -> slot=1 exit=7
    "…; no report since then from node 2 (host2), which may have failed earlier"
a cancel counts where the nodes were told to end too
    running 3; exit 1 129|130|143; cancel -> status=cancelled
    "run 'r' was cancelled: SIGTERM at the launcher"
a cancel before the go names the node that had failed
    new; gather 0 1; exit 1 9 message='its disk is full' -> result=None
    cancelled enough
    "run 'r' was cancelled: enough; before that, slot 1 failed: its disk is full"
what a node says of its program is told with its name
    running; progress 0 'step 1'
    "node 0 (host0): step 1"
    exit 0 0; leave 0
    "node 0 (host0) has left"
a result stays the first
    running; exit 0 0; exit 1 0; wait 3; cancelled 'too late' -> status=ok finished_at=100.0
    -> exit_code_of=program
    told "both nodes ended with exit code 0"
after the end nodes leave or are lost and nothing else happens
    running 3; exit 0 4; wait 2.25 -> slot=0 seq=6
    leave 0; news 2 failed; silent 100 1 2 -> left,lost,lost slot=0 seq=6
a restart of the registry is told and changes nothing
    running -> seq=4
    restart -> running seq=4
    "…restarted from its journal…"
""")
def test_the_end(story: str) -> None:
    tell(story)


def test_the_lease_of_a_node_that_is_gone_is_forgotten() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.leases.heard((2, 99), drive.now)
    drive.wait(16, silent={1})
    drive.leases.heard((1, 1), drive.now)
    before = len(drive.journal)
    drive.wait(16)
    assert [event.kind for _, event in drive.journal[before:]] == ["verdict"]
    assert drive.leases.silent_seconds((2, 99), drive.now) == 0  # it has none any more


def test_the_lease_of_an_older_incarnation_hides_no_silent_node() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.leases.grant_all([(0, 99), (0, 1), (1, 1), (2, 1)], drive.now)
    drive.wait(15, silent={1})
    assert drive.states() == ["running", "lost", "running"]


@rows(
    "story usual",
    """
probes | verifying 3; probe 0; probe 1; probe 2 0 | yes yes no
the go | arming; ack 0; ack 1; progress 0 'step 1' | yes no yes
a good end | running; exit 0 0; leave 0; exit 1 1 | yes yes no
a failure | running 3; exit 0 1; stop 1 143; leave 2 | no yes no
news | running; news 1 queued | yes
""",
)
def test_what_every_node_does_is_usual_and_what_only_one_does_is_not(
    story: str, usual: str
) -> None:
    last = [outcome.usual for outcome in tell(f" {story}").outcomes[-len(usual.split()) :]]
    assert last == [word == "yes" for word in usual.split()]


# --- led runs: node 0 alone has a program, and its end is the run's -------------------------------


@stories("""
a led run has succeeded when the program of node 0 ended well
    running 3 led=True; wait 30 -> running
    exit 0 0 ran_seconds=30.0 -> status=ok exit=0 exited,running,running
    told "node 0 (host0) ended with exit code 0"
    "the program of node 0, which led 3 nodes, ended with exit code 0"
a led run of one node leads nobody
    running 1 led=True; exit 0 0 -> status=ok
    "the node ended with exit code 0"
a serving node that reports an end is not the end of the run
    running 3 led=True; exit 1 0 -> running stop=False
    exit 0 0 -> status=ok
a serving node that is lost ends the run though node 0 then ends well
    running 3 led=True; leave 2 -> running stop=True
    exit 0 0; stop 1 0 -> status=failed code=node_lost slot=2
""")
def test_led_runs(story: str) -> None:
    tell(story)
