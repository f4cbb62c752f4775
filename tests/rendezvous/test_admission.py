"""What a join, a report or the launcher's news may change."""

from __future__ import annotations

import pytest

from rendezvous.run.events import Refused
from rendezvous.run.joins import decide_mismatch
from rendezvous.wire.errors import Fenced, Mismatch
from rendezvous.wire.node import Job
from rendezvous.wire.reports import AckReport, LeaveReport
from rendezvous.wire.run import Phase
from rendezvous.wire.verify import ProbeReport
from tests.support.driver import Drive, in_phase, make_join, make_spec, sha
from tests.support.stories import stories, tell


@stories("""
the same join again changes nothing in any phase
    gathering|verifying|arming|running; join 0 -> nothing 0.incarnations=1
a delayed copy of an older join is fenced
    new; gather 0; silent 7 0; join 0 attempt=2 -> 0.incarnations=2
    join 0 attempt=1 -> Fenced nothing
    "slot …: this join was accepted as incarnation 1; a newer node has the slot now…"
a copy of a join whose node was given up is fenced
    new; gather 1; silent 16 1; join 1 -> Fenced
    "slot …: this join was accepted as incarnation 1; the slot has been given up since…"
an older generation is fenced with both numbers
    new; news 1 submitting 3; join 1 2 -> Fenced
    "…belongs to a newer worker run (generation 3); this is generation 2"
    hint "…an older worker run of this launch is still running…"
a generation that failed is fenced before the next is submitted
    new; news 1 submitting; news 1 failed; join 1 1 -> Fenced
    "…belongs to a newer worker run (generation 2)…"
a live holder keeps its slot and both are named
    new; gather 1; silent 5 1; join 1 attempt=2 hostname=twin at=10.0.0.9 -> SlotTaken
    "slot 1 is held by host1 (10.0.0.2), which is alive; twin (10.0.0.9) asks for it with the same
    token"
    hint "…two worker runs were started with the same join string…"
a suspect holder loses its slot within its generation
    new; gather 1; silent 6 1; join 1 attempt=2 -> 1.incarnations=2
nobody joins a running run
    running; silent 7 1; join 1 1|2 attempt=2 -> RunOver
    "…has started, and no node can join it now (slot 1)…"
who comes after the go and is not needed is too late
    new 3|2 least=2 spares=0|1 last_call_seconds=5; gather 0 1; wait 5; verify; arm -> running
    join 2 -> TooLate
    "slot 2 is too late: run 'r' started without it…"
    exit 0 0; exit 1 0; join 2 -> TooLate
who comes too late for a run that fails is told of the failure
    new 2 spares=1 last_call_seconds=5; gather 0 1; wait 5; verify; arm; exit 0 3; join 2 -> RunOver
    "…no node can join it now (slot 2)…"
    stop 1 143; join 2 -> RunOver
    "run 'r' has ended: … exit code 3…"
who comes after the last call is asked to wait while nodes verify
    new 3 least=2 last_call_seconds=5; gather 0 1; wait 5; join 2 -> SlotTaken verifying
    "the last call of run 'r' has ended, and the run is verifying without slot 2…"
    verify; join 2 -> SlotTaken arming
    "the last call of run 'r' has ended, and the run is arming without slot 2…"
another nnodes is refused with both values
    new 4 least=4|4|2|2; join 1 nnodes=3|2:4|4|2:5 -> Mismatch
    "slot 1 (host1) was started with --nnodes 3,|2:4,|4,|2:5, but run 'r' has --nnodes 4|4|2:4|2:4"
    hint "…the same number of nodes (--nnodes or NUM_NODES)…"
the same nnodes may be written differently
    new 4 least=4|4|4|2; join 1 nnodes=4|4:4|04|2:4 -> 1.incarnations=1
a loopback address is refused where the nodes are on several machines
    new; join 1 at=10.0.0.2,127.0.0.2 -> Mismatch
    "…127.0.0.2, which no other machine can reach…"
    hint "…remove --loopback…"
a loopback address may be meant
    new 2|1 loopback=True|False; join 0 at=127.0.0.2 -> 0.incarnations=1
another framework is refused with both names
    new; join 1 framework=command -> Mismatch
    "slot 1 (host1) was started with --framework command, but run 'r' has --framework torchrun"
    hint "…the same --framework…"
the same command is accepted as is one that is not told
    new 3; join 0 command=a; join 1 command=a; join 2 -> joined,joined,joined
commands may differ when the run allows it
    new 3 same_command=False; join 0 command=a; join 1 command=b
    -> 1.incarnations=1
of two nodes with different commands both are named and nobody is blamed
    new 4; join 2 command=train.py,--lr,1; join 0 command=train.py,--lr,2 -> Mismatch
    -> code=mismatch exit=77 slot=None hostname= command_word=3
    "slot 2 (host2) and slot 0 (host0) would run different COMMANDs: word 3 differs"
    hint "…the same COMMAND, or allow the difference with --any-command…"
one node against the rest is named alone
    new 4; join 0 command=t,a; join 1 command=t,a; join 3 command=t,a,b -> Mismatch slot=3
    -> command_word=3 code=mismatch
    "slot 3 (host3) would run a different COMMAND: word 3 differs from that of slot 0
    (host0) and 1 other"
one node against several is named alone
    new 4; join 0 command=a; join 1 command=a; join 2 command=a; join 3 command=b -> Mismatch
    "…from that of slot 0 (host0) and 2 others"
a node in place of the only other one may have another command
    new 3; join 0 command=a; join 0 2 command=b -> 0.incarnations=2
the node that is compared with may be gone
    new 4; join 0 command=a; join 1 command=a; join 2 command=a; leave 0; leave 1
    join 3 command=b -> Mismatch slot=None
    "…slot 2 (host2)…"
a rank beyond the run is refused
    new 2 spares=0|1; join 1 requested_node=2|3 -> Mismatch
    "…asks to be node 2|3 in a run of 2 nodes…"
    hint "its nodes are 0 to 1|2"
slot 0 and node 0 belong together
    new; join 0|1 requested_node=1|0 -> Mismatch
    "…asks to be node 1|0; slot 0 is always node 0…"
    hint "…unset NODE_RANK…"
two nodes that ask for one rank are both named
    new 3; join 1 requested_node=2; join 2 requested_node=2 -> Mismatch
    "slot 2 (host2) and slot 1 (host1) both ask to be node 2"
    hint "…a different NODE_RANK…"
the rank of a node that was lost is free again
    new 3; join 1 requested_node=2; silent 16 1; join 2 requested_node=2 -> 2.incarnations=1
a replacement may ask for the rank of whom it replaces
    new 3; join 1 requested_node=2; join 1 2 requested_node=2 -> 1.incarnations=2
a node that does not listen is refused where addresses are to be proven
    new; join 1 probe_port=None -> Mismatch
    "slot 1 (host1) does not answer the other nodes' connection checks…"
a node need not listen where nobody probes it
    new 2 verify=False; join 0 probe_port=None; join 1 probe_port=None -> arming
a node alone need not listen
    new 1; join 0 probe_port=None -> verifying plan=
    verify -> arming
""")
def test_joins(story: str) -> None:
    tell(story)


def test_what_lies_behind_the_words_that_are_sent_is_one_difference() -> None:
    words = [sha(str(n))[:16] for n in range(128)]
    drive = Drive(make_spec(2))
    drive.join(0, job=Job(command_words=[*words, "0" * 16]))
    with pytest.raises(Mismatch, match="a word after word 128 differs"):
        drive.join(1, job=Job(command_words=[*words, "1" * 16]))


# --- reports --------------------------------------------------------------------------------------


def test_what_an_older_incarnation_says_is_fenced() -> None:
    drive = in_phase(Phase.VERIFYING)
    drive.join(1, 2)
    before = drive.run.version
    with pytest.raises(Fenced, match="slot 1: incarnation 1 has been replaced"):
        drive.report(1, LeaveReport(), incarnation=1)
    assert drive.run.version == before


@stories("""
the node of an emptied slot is fenced
    new; gather 1; silent 16 1; leave 1 -> Fenced
the same probe or acknowledgement again changes nothing
    verifying|arming 3; probe|ack 1; probe|ack 1 -> nothing
    -> joined,verified,joined|verified,armed,verified
the same exit again changes nothing
    running 3; exit 1 3; exit 1 4 -> nothing
    waits "…exit code 3…"
the same words of progress again change nothing
    running; progress 1 'step 10'; progress 1 'step 10' -> nothing
    progress 1 'step 20'
    "node 1 (host1): step 20"
what is reported out of its phase changes nothing
    arming; probe 0 -> nothing
    progress 1 'step 10' -> nothing
a node that was given up after the go is fenced but may leave
    running; silent 16 1; exit 1 0 -> Fenced
    "…was given up: it was silent…"
    leave 1 -> nothing
an exit after the end changes nothing and leaving counts once
    running; exit 0 3; wait 5; stop 1 143 -> finished nothing
    leave 1 -> exited,left
    leave 1 -> nothing
news of an older generation change nothing
    new; news 1 submitting 2; news 1 failed 1 -> nothing
the same news again change nothing
    new; news 1 queued name=run-1 handle=n17 detail=Priority
    news 1 queued name=run-1 handle=n17 detail=Priority -> nothing
    news 1 queued detail=Priority -> nothing
    news 1 queued detail=Resources -> 1.detail=Resources
name and handle stay when later news leave them out
    new; news 1 submitting name=run-1; news 1 submitted handle=n17; news 1 running
    -> 1.name=run-1 1.handle=n17
a dead worker run does not come back to life
    new; news 1 failed; news 1 running -> nothing
    news 1 ended -> nothing
    news 1 submitting 2 -> 1.state=submitting 1.generation=2
nothing is submitted for a finished run
    running 1; exit 0 0; news 0 submitting 2 -> RunOver
    "…the launcher submits no more worker runs…"
    news 0 ended -> 0.state=ended
a refusal says nothing of a live node in its slot
    gathering|verifying|arming|running; refuse_to_join 0 -> nothing
a refusal of an older worker run says nothing of the newer one
    new; news 1 submitting 2; refuse_to_join 1 -> nothing
    refuse_to_join 1 2 -> code=refused
a refusal that comes again changes nothing more
    new 2 spares=0|1|0 managed=True|True|False; refuse_to_join 1; refuse_to_join 1 -> nothing
a refusal after the go changes nothing
    new 3 least=2; gather 0 1; wait 31; verify; arm; refuse_to_join 2 -> running nothing
""")
def test_reports_and_news(story: str) -> None:
    tell(story)


def test_reports_on_an_older_epoch_or_table_change_nothing() -> None:
    drive = in_phase(Phase.ARMING)
    old = drive.run.digest
    drive.join(1, 2)
    assert (drive.phase, drive.run.epoch) == (Phase.VERIFYING, 2)
    assert drive.report(0, ProbeReport(epoch=1)) is None
    drive.verify()
    assert drive.report(0, AckReport(epoch=1, digest=old)) is None
    assert drive.states() == ["verified", "verified"]
    with pytest.raises(Mismatch) as caught:
        drive.report(1, AckReport(epoch=2, digest=sha("another")))
    assert caught.value.message == (
        f"node 1 (host1) acknowledged table {sha('another')[:12]}, but the table of "
        f"epoch 2 is {drive.run.digest[:12]}"
    )


def test_a_lasting_refusal_is_kept_once_with_its_code_and_words() -> None:
    drive, error = Drive(make_spec(4)), Mismatch("another job", hint="h")
    refused = decide_mismatch(drive.run, make_join(3, 2), error)
    assert refused == Refused(slot=3, generation=2, code="mismatch", reason="another job", hint="h")
    drive.apply(refused)
    assert decide_mismatch(drive.run, make_join(3, 2), error) is None
    other = Mismatch("another job", hint="another hint")
    assert decide_mismatch(drive.run, make_join(3, 2), other) is not None
