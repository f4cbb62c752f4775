"""Nodes that say that they will go: when the programs are stopped, and how such a run ends."""

from __future__ import annotations

from rendezvous.run.views import node_view
from rendezvous.wire.run import Phase
from rendezvous.wire.watch import DepartureNotice
from tests.support.driver import in_phase
from tests.support.stories import stories, tell


@stories("""
a node that goes at once has all programs stopped at once
    running 3; depart 1 0 'its agent received SIGTERM' -> running stop=True
    told "node 1 (host1) will leave: its agent received SIGTERM; all programs are stopped,
    so that they can save their state"
    waits "node 1 (host1) will leave: its agent received SIGTERM; all programs are being
    stopped, so that they can save their state"
    stop 0 143; stop 2 143
    exit 1 143 leaves=True message='its agent received SIGTERM' -> exit=143 slot=1
    "node 1 (host1) failed: the program ended with exit code 143 (signal 15,
    SIGTERM); its agent received SIGTERM"
    hint "launch it again to resume from your last checkpoint"
a program that a signal ended on a node that stays has another hint
    running 2; exit 1 143; stop 0 143 -> exit=143
    hint "SIGTERM often comes from the scheduler (a time limit, a preemption) or a person;
    SIGHUP from a closed terminal (tmux, nohup)"
    running 2; depart 1 0 spot; exit 1 3 leaves=True; stop 0 143 -> exit=3
    hint "see what it wrote before: rdzv logs RUN"
the verdict waits for programs that save their state
    running 2 grace_seconds=60; depart 1 0 'its agent received SIGTERM'; stop 0 143; wait 59
    -> running stop=True
    exit 1 143 leaves=True message='its agent received SIGTERM' -> exit=143 slot=1
a program that does not end in its grace is not waited for
    running 2 grace_seconds=10; depart 1 0 spot; stop 0 143; wait 24.75 -> running
    wait 0.25 -> status=failed code=node_lost slot=1
    "node 1 (host1) left the run: spot, and no node may take its place (--on-node-loss
    fail), so the run ended"
who fails while they are stopped is the cause after the time of the verdict
    running 3 grace_seconds=10; drain 1 15 spot; wait 5; exit 0 3; wait 1.75 -> running
    wait 0.25 -> exit=3 slot=0
who is lost while they are stopped is the cause
    running 3 grace_seconds=30; drain 1 15 spot; wait 1; silent 16 2; wait 2 -> exit=86 slot=2
    "node 2 (host2) was lost: …; node 1 (host1) was about to leave: drained: spot"
programs are stopped in time for their grace
    running 3 grace_seconds=10; drain 2 120 maintenance -> running stop=False stopping_in=105.0
    told "node 2 (host2) will leave in 120 s: drained: maintenance"
    waits "node 2 (host2) will leave: drained: maintenance; all programs are stopped in
    105 s, so that they can save their state"
    wait 104.75 -> stop=False
    wait 0.25 -> stop=True
    told "all programs are stopped, because node 2 (host2) leaves: drained: maintenance"
    stop 0 143; stop 1 143; stop 2 143 -> status=failed exit=86 code=node_lost slot=2 node=2
    "node 2 (host2) was drained: maintenance, and no node may take its place
    (--on-node-loss fail), so the run ended"
    hint "launch it again to resume from your last checkpoint"
a short notice stops them at once
    running 2 grace_seconds=10; depart 1 14 spot -> stop=True
the earliest departure counts
    running 3 grace_seconds=10; drain 2 120; drain 1 60 -> stopping_in=45.0
    drain 0 600 -> stopping_in=45.0
who says again that it will go later than another says nothing new
    running 3 grace_seconds=10; drain 1 60; drain 2 120; drain 2 120 -> nothing
who has said it already says nothing new
    running 2; depart 1 60 spot; wait 5; depart 1 55 spot -> nothing
who goes sooner than it has said is believed
    running 2 grace_seconds=10; drain 1 3600 maintenance; depart 1 30 spot -> stopping_in=15.0
    depart 1 0 'its agent received SIGTERM' -> stop=True
programs that end well before they are stopped have ended well
    running 2; drain 1 60; exit 0 0; exit 1 0 -> status=ok
who will go and has ended well stops nobody
    running 3 grace_seconds=10; drain 1 60 spot; exit 1 0; wait 90 -> running stop=False
    exit 0 0; exit 2 0 -> status=ok
who will go later is still there
    running 3 grace_seconds=10; drain 1 60; drain 2 90 spot; exit 1 0; wait 74.75 -> stop=False
    wait 0.25 -> stop=True
    stop 0 143; stop 2 143 -> exit=86 slot=2
    "node 2 (host2) was drained: spot, and no node may take its place (--on-node-loss
    fail), so the run ended"
no program starts again where one ended well on a node that will go
    running 2 max_restarts=3; drain 1 60 spot; exit 1 0; exit 0 3 -> status=failed exit=3
    "…; the programs are not started again, because node 1 (host1) leaves the run"
a program that fails meanwhile is the cause and the departure is named
    running 2; drain 1 60 spot; exit 0 3; stop 1 143 -> exit=3
    "node 0 (host0) failed: the program ended with exit code 3; node 1 (host1) was
    about to leave: drained: spot"
a departure is no reason for a restart
    running 2 max_restarts=3; depart 1 0 spot; stop 0 143; stop 1 143
    -> status=failed code=node_lost
no program starts again on a node that will go
    running 2 max_restarts=3; drain 1 60 spot; exit 0 3; stop 1 143 -> status=failed exit=3
    "…; the programs are not started again, because node 1 (host1) leaves the run"
before the go a node is not drained
    verifying 2; drain 1 60 -> nothing
a node that is not there is not drained
    running 2; drain 7 60 -> NotFound
    "run 'r' has no node in slot 7"
a node whose program has ended is not drained
    running 2; exit 1 0; drain 1 60 -> NotFound nothing
    "the program of node 1 (host1) has ended: the node can go without a drain"
    running 2; exit 1 0; leave 1; drain 1 60 -> NotFound
    "the program of node 1 (host1) has ended…"
a node of a run that has ended is not drained
    running 1; exit 0 0; drain 0 60 -> RunOver
    "run 'r' has ended; its nodes have left"
""")
def test_departures(story: str) -> None:
    tell(story)


def test_every_node_is_told_how_long_the_programs_have() -> None:
    drive = in_phase(Phase.RUNNING, 2, grace_seconds=10)
    assert node_view(drive.run, drive.now, 2.0).notice is None
    seq = drive.run.seq
    drive.drain(1, 60.0, "maintenance")
    assert drive.run.seq == seq + 1
    drive.wait(5.0)
    notice = DepartureNotice(slot=1, node=1, seconds=40.0, words="drained: maintenance")
    assert node_view(drive.run, drive.now, 2.0).notice == notice
