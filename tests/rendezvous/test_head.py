"""Runs of which all nodes have a program, and which end with that of node 0."""

from __future__ import annotations

from tests.support.stories import stories, tell


@stories("""
the run is over when the program of node 0 has ended well
    running 4 ends_with=node0; wait 30 -> running
    exit 0 0 ran_seconds=30.0 -> status=ok exit=0 exited,running,running,running
    "node 0 ended with exit code 0; the 3 others were stopped"
the other node is named where there is one
    running 2 ends_with=node0; exit 0 0 -> status=ok
    "node 0 ended with exit code 0; node 1 (host1) was stopped"
a run of one node has nobody to stop
    running 1 ends_with=node0; exit 0 0 -> status=ok
    "the node ended with exit code 0"
a helper that has ended well is done and the run goes on
    running 4 ends_with=node0; exit 1 0 -> running stop=False
    exit 0 0 -> status=ok
    "node 0 ended with exit code 0; the 2 others that still ran were stopped"
where all have ended well none was stopped
    running 3 ends_with=node0; exit 1 0; exit 2 0; exit 0 0 -> status=ok
    "all 3 nodes ended with exit code 0"
what a helper ends with afterwards is no failure
    running 3 ends_with=node0; exit 0 0; stop 1 143; exit 2 1 rank=3
    -> status=ok exit=0
a helper that fails while node 0 runs fails the run
    running 3 ends_with=node0; exit 2 7 -> running stop=True
    stop 0 0; stop 1 143 -> status=failed exit=7 slot=2 code=program_failed
    "node 2 (host2) failed: the program ended with exit code 7"
a helper that failed before node 0 ended is a failure
    running 3 ends_with=node0; wait 5; exit 2 7 age_seconds=2; exit 0 0 age_seconds=1.5 -> running
    stop 1 143 -> status=failed exit=7 slot=2
    "node 2 (host2) failed: the program ended with exit code 7; node 0 (host0) had ended
    with exit code 0"
a helper that failed of the end of node 0 is none though it was heard of first
    running 3 ends_with=node0; wait 5; exit 2 7 age_seconds=1 -> running stop=True
    exit 0 0 age_seconds=1.5 -> status=ok exit=0
    "node 0 ended with exit code 0, and with it the run"
a helper that was lost of the end of node 0 is none either
    running 2 ends_with=node0; wait 5; leave 1 -> running stop=True
    exit 0 0 age_seconds=1 -> status=ok exit=0
    "node 0 ended with exit code 0, and with it the run"
a verdict waits for node 0 whose end may come late for what it has left running
    running 2 ends_with=node0 grace_seconds=10 verdict_seconds=2; wait 5; exit 1 1
    wait 12 -> running
    exit 0 0 age_seconds=13 -> status=ok
a verdict waits for node 0 no longer than for its grace and its end
    running 2 ends_with=node0 grace_seconds=10 verdict_seconds=2; exit 1 1; wait 24.5 -> running
    wait 1 -> status=failed exit=1 slot=1
a verdict waits for no other node
    running 3 ends_with=node0 verdict_seconds=2; exit 1 1; stop 0 143; wait 2.5
    -> status=failed exit=1
node 0 that was stopped has come to no good end
    running 2 ends_with=node0 max_restarts=1; again now; stop 0 0 -> running
    stop 1 143 -> arming
node 0 that fails is the cause
    running 2 ends_with=node0; exit 0 3 -> running stop=True
    stop 1 143 -> status=failed exit=3 slot=0
a node that leaves is no matter once node 0 has ended well
    running 2 ends_with=node0 on_node_loss=replace max_replacements=1 fence_timeout_seconds=20
    leave 1; exit 0 0 age_seconds=1 -> status=ok
a helper that is lost while node 0 runs is replaced
    running 2 ends_with=node0 on_node_loss=replace max_replacements=1 fence_timeout_seconds=20
    leave 1; stop 0 143 -> gathering
node 0 that ends well by itself when a restart is requested has ended the run
    running 2 ends_with=node0; again now; exit 0 0 -> status=ok
    "node 0 ended with exit code 0; node 1 (host1) was stopped"
all programs end where the run ends with all
    running 2; exit 0 0 -> running stop=False
    exit 1 1 -> status=failed slot=1
""")
def test_runs_that_end_with_node_0(story: str) -> None:
    tell(story)
