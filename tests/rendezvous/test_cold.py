"""A first warm start that fails at once is repeated cold: when, and how often."""

from __future__ import annotations

import pytest

from rendezvous.run.views import node_view
from rendezvous.wire.run import Phase
from tests.support.driver import Drive, in_phase
from tests.support.stories import stories, tell


@stories("""
a first warm start that fails at once is repeated on the same nodes
    arming 2; ack 0; ack 1 warm=True -> running
    wait 9; exit 1 3 -> running stop=True
    stop 0 143 -> arming epoch=2 stop=False used=0 epochs=1:3 port=29501 numbers=0,1 waiting=0,1
    told "node 0 (host0) was stopped (exit code 143); node 1 (host1) failed within
    10 s of a warm start; starting again with --warm off, not counted as a restart"
    last "node 1 (host1) failed: the program ended with exit code 3"
    arm; exit 0 0; exit 1 0 -> status=ok
who has not reported by the verdict is waited for by the acknowledgement
    arming 2 verdict_seconds=2; ack 0 warm=True; ack 1; exit 0 1; wait 2 -> arming waiting=0,1
    told "node 0 (host0) failed: the program ended with exit code 1; node 0 (host0)
    failed within 10 s of a warm start; …"
    late 1 1 143 stopped=True; arm -> running epoch=2
whatever it fails of
    arming 1; ack 0 warm=True; exit 0 127|139|255 -> arming
    arming 1; ack 0 warm=True; exit 0 1 tail='ModuleNotFoundError: no'|'SyntaxError: no' -> arming
    arm; exit 0 2 tail='error: unrecognized arguments: --x' -> status=failed epochs=1:1
it is repeated once
    arming 1; ack 0 warm=True; exit 0 1; ack 0 warm=True; exit 0 1 -> status=failed exit=1
    "node 0 (host0) failed: the program ended with exit code 1"
later it fails as ever
    arming 1; ack 0 warm=True; wait 10.25; exit 0 1 -> status=failed epochs=
the age of a failure counts, and not when it is told
    arming 1; ack 0 warm=True; wait 12; exit 0 1 age_seconds=3 -> arming
    arm; exit 0 0 -> status=ok
a go that waited for the imports has not begun to run
    arming 1; ack 0 warm=True; wait 40; exit 0 1 ran_seconds=9 -> arming
    arm; exit 0 0 -> status=ok
    arming 1; ack 0 warm=True; wait 40; exit 0 1 ran_seconds=11 -> status=failed epochs=
    arming 1; ack 0 warm=True; wait 9; exit 0 1 ran_seconds=30 -> arming
without a warm node it fails as ever
    arming 2; arm; exit 0 1; stop 1 143 -> status=failed epochs=
a table that was not gone on is forgotten
    arming 1; ack 0 warm=True -> running
    exit 0 1; refuse 0 port_taken 'it is taken' 29507 -> arming epoch=3
    arm; exit 0 1 -> status=failed epochs=1:1
who would have forked on a table before does not on this one
    arming 2; ack 0 warm=True; refuse 1 port_taken 'it is taken' 29507 -> epoch=2
    ack 0; ack 1; exit 0 1; stop 1 143 -> status=failed epochs=
a failure of what follows is the first that is counted
    arming 1 max_restarts=1; ack 0 warm=True; wait 3; exit 0 1 tail=same -> arming used=0
    arm; wait 3; exit 0 1 tail=same -> arming used=1 then='restart 1 of 1 at once'
    arm; wait 3; exit 0 1 tail=other -> status=failed
    "…; the only restart is used up; each start ended with exit code 1"
and may be hopeless, as the first one
    arming 1 max_restarts=9; ack 0 warm=True; exit 0 127; arm; exit 0 127 -> status=failed used=0
    "…; exit code 127 means that it cannot be started; it is not started again"
its steps count, as those of any epoch
    arming 1 max_restarts=9; ack 0 warm=True; wait 3; exit 0 1 progress=5; arm; wait 61; exit 0 1
    arm; wait 61; exit 0 1; arm; wait 61; exit 0 1 -> status=failed used=2
    "…exit code 1; 3 starts in a row did not get beyond step 5"
only the first warm epoch is
    arming 1 max_restarts=9; ack 0 warm=True; wait 11; exit 0 1 -> arming used=1
    ack 0 warm=True; exit 0 2 -> used=2
the first that is warm may be a later one
    arming 1 max_restarts=9; ack 0; wait 61; exit 0 1 -> arming used=1
    ack 0 warm=True; exit 0 1 -> arming used=1 epochs=1:1,2:1
a node that is lost is none that has failed
    arming 2; ack 0 warm=True; ack 1; leave 1; stop 0 143 -> status=failed code=node_lost
nor is one that leaves
    arming 2; ack 0 warm=True; ack 1; depart 1 0 preempted; exit 1 143 stopped=True leaves=True
    stop 0 143 -> code=node_lost epochs=
nor is one whose agent fails
    arming 2; ack 0 warm=True; ack 1; exit 1 82 by_agent=True; stop 0 143 -> status=failed epochs=
a node that is lost while the others stop ends the run
    arming 2; ack 0 warm=True; ack 1; exit 0 1; leave 1 -> status=failed exit=1 epochs=
a node that is lost before the next go ends the run, as before any restart
    arming 2; ack 0 warm=True; ack 1; exit 0 1; stop 1 143; leave 1 -> status=failed code=node_lost
    "node 1 (host1) failed before the restart: its agent left before the end"
a restart by hand is what it is, also of the first warm epoch
    arming 2; ack 0 warm=True; ack 1; again now; exit 0 1; stop 1 143
    -> arming then='restart requested: now'
    ack 0 warm=True; ack 1; exit 0 1; stop 1 143 -> status=failed
who cancels meanwhile has cancelled it
    arming 2; ack 0 warm=True; ack 1; exit 0 1; cancel -> status=cancelled
programs that have ended well are not started again
    arming 1; ack 0 warm=True; exit 0 0 -> status=ok
the stop of a stall is none
    arming 2; ack 0 warm=True; ack 1; exit 0 0; exit 1 1 -> arming epoch=2 epochs=1:1
after a restart of the registry everything goes on
    arming 1; ack 0 warm=True; restart; exit 0 1; restart -> arming
    arm; exit 0 1 -> status=failed
a run that outlives its nodes repeats it on all of them
    new 2 on_node_loss=replace fence_timeout_seconds=30; join 0
    join 1; probe 0; probe 1; ack 0 warm=True; ack 1; exit 1 1; stop 0 143
    -> arming epoch=2 used=0
""")
def test_a_cold_repeat(story: str) -> None:
    tell(story)


def _failed_at_once(**changes: int) -> Drive:
    drive = in_phase(Phase.ARMING, 1, **changes)
    drive.ack(0, warm=True)
    drive.exit(0, 9)
    return drive


@pytest.mark.parametrize("most", [0, 3])
def test_the_nodes_are_told_for_the_rest_of_the_run(most: int) -> None:
    drive = _failed_at_once(max_restarts=most)
    for _ in range(2):
        restarts = node_view(drive.run, drive.now, 2.0).restarts
        assert restarts is not None
        words = "node 0 (host0) failed: the program ended with exit code 9"
        assert (restarts.cold, restarts.restarts, restarts.max_restarts) == (True, 0, most)
        assert restarts.last_failure == words
        drive.arm()
    drive.exit(0, 0)
    assert (drive.result.status, drive.result.restarts) == ("ok", 0)
