"""Programs that start again on the same nodes: when, how often, and when not."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.run.first_cause import cause_of_late
from rendezvous.run.restarts import alike
from rendezvous.run.views import node_view, run_status
from rendezvous.wire.reports import ExitReport
from rendezvous.wire.run import Phase, RestartFacts
from tests.support.driver import in_phase
from tests.support.stories import stories, tell


@stories("""
all start again on the next table once nothing runs any more
    running 3 max_restarts=2 -> epoch=1 numbers=0,1,2
    exit 1 3 rank=1 -> running stop=True
    stop 0 143; stop 2 143 -> arming stop=False epoch=2 used=1 epochs=1:3 port=29501 numbers=0,1,2
    waits "waiting for node 0 (host0), node 1 (host1), node 2 (host2) to end
    the program of epoch 1 and get ready again, 85 s left"
    told "node 2 (host2) was stopped (exit code 143); restart 1 of 2 at once"
    arm -> running epoch=2 running,running,running
    exit 0 0; exit 1 0; exit 2 0 -> status=ok
who has not reported by the verdict is waited for by the acknowledgement
    running 3 max_restarts=2 verdict_seconds=2; exit 1 3; stop 0 143; wait 1.75 -> running
    wait 0.25 -> arming waiting=0,1,2
    told "node 1 (host1) failed: the program ended with exit code 3; restart 1 of 2 at once"
    ack 0; ack 1; wait 30; late 2 1 143 stopped=True
the time to arm again has the grace in it
    running 2 max_restarts=1 arm_timeout_seconds=10 grace_seconds=7 verdict_seconds=0; exit 1 1
    stop 0 143 -> arming left=32.0
    wait 31.75 -> arming
    wait 0.25 -> code=arming_failed
    "node 0 (host0), node 1 (host1) did not end the program of epoch 1 and
    get ready again within 32 s, though still connected"
without restarts the first failure ends the run as ever
    running 2; exit 1 3; stop 0 143 -> status=failed exit=3 epochs=
    "node 1 (host1) failed: the program ended with exit code 3"
when restarts are used up it says so
    running 2 max_restarts=1; exit 1 3 tail=one; stop 0 143; arm; wait 40; exit 0 4; stop 1 143
    -> status=failed exit=4 epochs=1:3
    "node 0 (host0) failed: the program ended with exit code 4; the only restart is used up"
when all restarts ended alike it says so
    running 1 max_restarts=2; wait 61; exit 0 3; arm; wait 61; exit 0 3; arm; wait 61; exit 0 3
    "…; restart 2 of 2 is used up; each start ended with exit code 3"
a program that had ended well starts again with the others
    running 2 max_restarts=1; exit 0 0; exit 1 1 -> arming waiting=0,1
a port that a person has chosen stays
    running 2 max_restarts=1 master_port=4000 -> port=4000
    exit 1 1; stop 0 143 -> arming port=4000
another port is looked for again
    running 1 max_restarts=1; exit 0 1 -> port=29501
    refuse 0 port_taken 'it is taken' 29507 -> arming epoch=3 port=29507
the first restart comes at once and the next ones wait for longer and longer
    running 1 max_restarts=9; exit 0 1 -> arming
    arm; wait 5; exit 0 2 -> restarting left=1.0 then='restart 2 of 9 after 1 s'
    waits "node 0 (host0) failed: the program ended with exit code 2; restart 2 of 9 after
    1 s, 1 s left"
    wait 0.75 -> restarting
    wait 0.25 -> arming
    arm; wait 5; exit 0 3 -> left=2.0
    wait 2; arm; wait 5; exit 0 4 -> left=4.0
    wait 4; arm; wait 70; exit 0 5 -> arming
    arm; wait 5; exit 0 6 -> left=8.0
ten minutes or progress begin the back-off anew
    running 1 max_restarts=9; exit 0 1; arm; wait 1; exit 0 2; wait 1; arm; wait 601; exit 0 3
    -> arming
    arm; wait 1; exit 0 4 -> arming
    arm; wait 1; exit 0 5 progress=7 -> arming
    arm; wait 1; exit 0 6 progress=7 -> arming
    arm; wait 1; exit 0 5 -> restarting
the same end twice within 30 s is not started a third time
    running 2 max_restarts=9; wait 3; exit 1 1 tail='at 0x7f1 step 3'; stop 0 143 -> arming
    arm; wait 4; exit 0 1 tail='at 0x8aa step 4'; stop 1 143 -> status=failed exit=1 used=1
    "node 0 (host0) failed: the program ended with exit code 1: its last line was 'at 0x8aa
    step 4'; it failed twice in the same way (numbers aside), 4 s after the start, so 8 of
    9 restarts were not used"
the same end later is started again
    running 1 max_restarts=9; wait 31; exit 0 1; arm; wait 3; exit 0 1 -> restarting
    wait 1; arm; wait 31; exit 0 1 -> restarting
the same end beyond another step is started again
    running 1 max_restarts=9; exit 0 1 progress=1; arm; exit 0 1 progress=2 -> arming
what cannot be started or read is not started again
    running 1 max_restarts=9; wait 2; exit 0 126|127 -> status=failed exit=126|127
    "…: the program ended with exit code 126|127; exit code 126|127 means that it cannot be
    started; it is not started again"
a mistake of Python's is not started again
    running 1 max_restarts=9; exit 0 1 tail='SyntaxError: no'|'ModuleNotFoundError: no'
    -> status=failed
    "…not pass by itself; it is not started again"
a mistake of Python's that a rank has is known as well
    running 1 max_restarts=9; exit 0 1 tail='[rank3]: ModuleNotFoundError: no' -> status=failed
a program that speaks of a mistake may be started again
    running 1 max_restarts=9; exit 0 1 tail='warning: ModuleNotFoundError: no apex' -> arming
wrong arguments are not started again
    running 1 max_restarts=9; exit 0 2 tail='train.py: error: unrecognized arguments: --x'
    -> status=failed
    "…; its arguments are wrong, which does not pass by itself; it is not started again"
what began well may fail like that later
    running 1 max_restarts=9; wait 31; exit 0 1 tail='ModuleNotFoundError: no' -> arming
three epochs that get no further are enough
    running 1 max_restarts=9; wait 61; exit 0 1 progress=5; arm; wait 61; exit 0 1 progress=5; arm
    wait 61; exit 0 1 progress=4 -> arming
    arm; wait 61; exit 0 1 -> status=failed
    "…exit code 1; 3 starts in a row did not get beyond step 5"
progress that only a program knows that is late to end counts as well
    running 2 max_restarts=9 verdict_seconds=2
    exit 1 1; wait 2; late 0 1 143 stopped=True progress=5; arm; wait 5; exit 1 2; wait 2 -> arming
    late 0 2 143 stopped=True progress=6; arm; wait 5; exit 1 3; wait 2 -> arming
    late 0 3 143 stopped=True progress=7; arm; wait 5; exit 1 4; wait 2 -> arming used=4
a lost node ends the run although restarts are left
    running 3 max_restarts=9; silent 16 2; stop 0 143; exit 1 1 -> status=failed exit=86 slot=2
    "node 2 (host2) was lost: it was silent for 15 s: host, network or agent is down; the
    programs are not started again, because it has left the run"
a node that is lost while the others stop ends the run
    running 3 max_restarts=9; exit 1 1; leave 1; stop 0 143; stop 2 143 -> status=failed exit=1
    "…exit code 1; the programs are not started again, because it has left the run"
a node that is told to end is lost
    running 2 max_restarts=9; exit 1 143 leaves=True message='its agent received SIGTERM'
    stop 0 143 -> status=failed exit=143
    "…; the programs are not started again, because it leaves the run"
a failure of the node itself is none of the program
    running 2 max_restarts=9; exit 1 87 by_agent=True message='no RDMA'; stop 0 143
    -> status=failed exit=87
    "node 1 (host1) failed: no RDMA; the programs are not started again, because this is a
    failure of its node"
a node that is lost before it has armed again ends the run
    running 3 max_restarts=9; exit 1 1; stop 0 143; stop 2 143; silent 16 2
    -> status=failed code=node_lost
    "node 2 (host2) failed before the restart: it was silent for 15 s: host, network or
    agent is down"
a node that is lost while the run waits ends it
    running 2 max_restarts=9; exit 1 1; stop 0 143; arm; wait 1; exit 1 2; stop 0 143 -> restarting
    leave 1 -> status=failed code=node_lost
the scheduler alone does not say that a node is lost
    running 2 max_restarts=9; exit 1 1; stop 0 143; news 1 ended -> arming
a newer worker run of the same slot proves itself before the programs start again
    running 2 max_restarts=9; exit 1 1; stop 0 143 -> arming
    join 0 2 -> verifying epoch=3
    verify -> port=29501
    arm -> running epoch=3 numbers=0,1
a newer worker run may come while the run waits
    running 2 max_restarts=9; exit 1 1; stop 0 143; arm; wait 1; exit 1 2; stop 0 143
    join 0 2 -> restarting
    wait 1 -> verifying
    verify; arm -> running
who was not there at the first start stays out
    new 3 least=2 max_restarts=9; join 0; join 1; wait 30; verify; arm; exit 1 1
    join 2 -> TooLate
    stop 0 143 -> arming
    join 2 -> TooLate
    join 0 2 -> verifying
    join 2 -> TooLate
    verify; arm -> running
a cancel ends a run that would start again
    running 2 max_restarts=9; exit 1 1; cancel -> status=cancelled
a cancel ends a run that waits
    running 1 max_restarts=9; exit 0 1; arm; wait 1; exit 0 2 -> left=1.0
    cancel -> status=cancelled left=None
somebody may have the programs start again and that is not counted
    running 2; again 'new weights' -> running stop=True asked='new weights'
    waits "restart requested: new weights; stopping the programs"
    again 'new weights' -> nothing
    stop 0 143; stop 1 143 -> arming used=0 asked= then='restart requested: new weights'
    again 'new weights' -> nothing
who gives no reason has them start again all the same
    running 2; again '' -> running stop=True asked='asked for'
    again now -> nothing
    stop 0 143; stop 1 143 -> arming then='restart requested: asked for'
programs that were stopped have not ended well though the journal of an older rdzv has no reason
    running 2; asked ''; stop 0 143; stop 1 143 -> status=cancelled exit=84 code=cancelled
    "run 'r' was cancelled: all programs were stopped, and are not started again"
    running 2; asked ''; exit 0 0; exit 1 0 -> status=ok
nothing is stopped where a node is about to leave
    running 2; drain 1 3600 repair; again now -> Mismatch nothing stop=False
    "run 'r': its programs cannot start again, because node 1 (host1) leaves the run"
    exit 0 0; exit 1 0 -> status=ok
nothing is stopped where a node has ended well and left
    running 2; exit 1 0; leave 1; again now -> Mismatch nothing stop=False
    hint "let its programs end, or cancel it; then launch it again to resume from your last
    checkpoint"
    running 3; exit 1 0; leave 1; exit 2 0; leave 2; again now -> Mismatch
    "…, because node 1 (host1), node 2 (host2) have left the run"
who asks while the run waits has it wait no longer
    running 1 max_restarts=9; exit 0 1; arm; wait 1; exit 0 2 -> restarting
    again now -> arming used=2
nothing starts again that has not started or has ended
    gathering; again now -> nothing
nothing starts again that has ended
    running 1; exit 0 0; again now -> RunOver
    "run 'r' has ended; its programs cannot be started again"
who needs longer to stop than the verdict takes is waited for by the next table
    running 2; again now; wait 2 -> arming used=0 then='restart requested: now'
    late 0 1 143 stopped=True -> arming
    running 2; again now; exit 0 0; wait 2 -> arming
who leaves while the programs are stopped for a restart by hand has left the run
    running 3; again now; exit 1 143 stopped=True leaves=True; leave 1; stop 0 143; stop 2 143
    -> status=failed code=node_lost exit=86 slot=1
    "restart requested: now; the programs are not started again, because node 1 (host1) has
    left the run"
programs that have all ended well are not started again
    running 2; again now; exit 0 0; exit 1 0 -> status=ok
nor is one that has led the others, and has ended well
    running 2 led=True; again now; exit 0 0; stop 1 0 -> status=ok
    running 2 led=True; again now; exit 1 0; stop 0 143 -> arming
a late report moves the first cause and not the decision
    running 2 max_restarts=9 verdict_seconds=2; exit 1 1; wait 2 -> arming epochs=1:1
    late 0 1 7 age_seconds=9 -> arming epochs=1:7 used=1
    last "node 0 (host0) failed: the program ended with exit code 7"
    late 0 1 7 age_seconds=9 -> nothing
what followed a failure that was told late is not how the epoch ended
    running 2 max_restarts=9 verdict_seconds=2; exit 1 134; wait 2; late 0 1 7 age_seconds=9
    arm; wait 3; exit 1 134; stop 0 143 -> restarting used=2
a late report of a later failure changes nothing
    running 2 max_restarts=9 verdict_seconds=2; exit 1 1; wait 2; late 0 1 7 -> epochs=1:1
a report of an epoch before does not end the next one
    running 2 max_restarts=9 verdict_seconds=2; exit 1 1; wait 2; arm; late 0 1 7 -> running
    -> stop=False
after a restart of the registry everything goes on
    running 2 max_restarts=9; exit 1 1; stop 0 143; arm; wait 1; exit 1 2; stop 0 143; restart
    -> restarting
    wait 1 -> arming
    restart; arm -> running
""")
def test_restarts(story: str) -> None:
    tell(story)


def test_what_nodes_and_people_see_of_it() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=3)
    before = node_view(drive.run, drive.now, 2.0)
    assert before.restarts == RestartFacts(max_restarts=3)
    drive.exit(1, 9)
    drive.exit(0, 143, stopped=True)
    words = "node 1 (host1) failed: the program ended with exit code 9"
    view = node_view(drive.run, drive.now, 2.0)
    assert view.restarts == RestartFacts(restarts=1, max_restarts=3, last_failure=words)
    status = run_status(drive.run, drive.now, drive.leases)
    assert (status.restarts, status.max_restarts) == (1, 3)
    (end,) = status.ended
    assert (end.epoch, end.node, end.hostname, end.then) == (
        1,
        1,
        "host1",
        "restart 1 of 3 at once",
    )


def test_a_run_that_starts_once_tells_its_nodes_nothing_of_restarts() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    assert node_view(drive.run, drive.now, 2.0).restarts is None


def test_nodes_are_not_told_of_each_epoch_at_the_end() -> None:
    drive = in_phase(Phase.RUNNING, 1, max_restarts=3)
    drive.exit(0, 1)
    drive.arm().exit(0, 0)
    assert [end.epoch for end in drive.result.epochs] == [1]
    view = node_view(drive.run, drive.now, 2.0)
    assert view.result is not None
    assert view.result.epochs == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (["step 3 of 9"], ["step 17 of 9"], True),
        (["at 0x7ffe12"], ["at 0xabc"], True),
        (["out of memory"], ["no such file"], False),
        (["out of memory", "the end"], ["no such file", "the end"], False),
        ([], [], True),
    ],
)
def test_ends_are_alike_but_for_numbers_and_addresses(
    one: list[str], other: list[str], same: bool
) -> None:
    ends = [_alike(exit_code=1, tail=tail) for tail in (one, other)]
    assert (ends[0] == ends[1]) is same
    assert _alike(exit_code=2) != _alike(exit_code=1)


def _alike(**said: Any) -> str:
    run = in_phase(Phase.RUNNING).run
    report = ExitReport(epoch=1, **said)
    found = cause_of_late(run, run.slots[0], report, 0.0)
    assert found is not None
    return alike(found, report)
