"""What a join, a report or the launcher's news may change."""

from __future__ import annotations

import pytest

from rendezvous.run.events import Refused
from rendezvous.run.joins import decide_mismatch
from rendezvous.wire.errors import Fenced, Mismatch, RunOver, SlotTaken, TooLate
from rendezvous.wire.node import Job
from rendezvous.wire.reports import AckReport, LeaveReport
from rendezvous.wire.run import Phase, SlotState
from rendezvous.wire.verify import ProbeReport
from tests.support.driver import Drive, in_phase, make_join, make_spec, sha


def command(*words: str) -> Job:
    """What a node tells of its COMMAND."""
    return Job(command_words=[sha(word)[:16] for word in words])


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.VERIFYING, Phase.ARMING, Phase.RUNNING])
def test_the_same_join_again_changes_nothing_in_any_phase(phase: Phase) -> None:
    drive = in_phase(phase)
    with drive.unchanged():
        drive.join(0)
    assert drive.slot(0).incarnations == 1


def test_a_delayed_copy_of_an_older_join_is_fenced() -> None:
    drive = Drive(make_spec()).gather(0).wait(7, silent=[0])
    drive.join(0, attempt=2)
    assert drive.slot(0).incarnations == 2
    with pytest.raises(Fenced) as refused, drive.unchanged():
        drive.join(0, attempt=1)
    assert refused.value.message.endswith(
        ": this join was accepted as incarnation 1; a newer node has the slot now"
    )


def test_a_copy_of_a_join_whose_node_was_given_up_is_fenced() -> None:
    drive = Drive(make_spec()).gather(1).wait(16, silent=[1])
    with pytest.raises(Fenced) as refused:
        drive.join(1)
    assert refused.value.message.endswith(
        ": this join was accepted as incarnation 1; the slot has been given up since"
    )


def test_an_older_generation_is_fenced_with_both_numbers() -> None:
    drive = Drive(make_spec())
    drive.news(1, SlotState.SUBMITTING, 3)
    with pytest.raises(Fenced) as refused:
        drive.join(1, 2)
    assert refused.value.message.endswith(
        "belongs to a newer worker run (generation 3); this is generation 2"
    )
    assert "an older worker run of this launch is still running" in refused.value.hint


def test_a_generation_that_failed_is_fenced_before_the_next_is_submitted() -> None:
    drive = Drive(make_spec())
    drive.news(1, SlotState.SUBMITTING)
    drive.news(1, SlotState.FAILED)
    with pytest.raises(Fenced) as refused:
        drive.join(1, 1)
    assert "belongs to a newer worker run (generation 2)" in refused.value.message


def test_a_live_holder_keeps_its_slot_and_both_are_named() -> None:
    drive = Drive(make_spec()).gather(1).wait(5, silent=[1])
    with pytest.raises(SlotTaken) as refused:
        drive.join(1, attempt=2, hostname="twin", addresses=["10.0.0.9"])
    assert refused.value.message == (
        "slot 1 is held by host1 (10.0.0.2), which is alive; twin (10.0.0.9) asks for it "
        "with the same token"
    )
    assert "two worker runs were started with the same join string" in refused.value.hint


@pytest.mark.parametrize("generation", [1, 2])
def test_nobody_joins_a_running_run(generation: int) -> None:
    drive = in_phase(Phase.RUNNING).wait(7, silent=[1])
    with pytest.raises(RunOver) as refused:
        drive.join(1, generation, attempt=2)
    assert "has started, and no node can join it now (slot 1)" in refused.value.message


@pytest.mark.parametrize(("nodes", "spares"), [(3, 0), (2, 1)])
def test_who_comes_after_the_go_and_is_not_needed_is_too_late(nodes: int, spares: int) -> None:
    drive = Drive(make_spec(nodes, least=2, spares=spares, last_call_seconds=5)).gather(0, 1)
    drive.wait(5)
    drive.verify().arm()
    assert drive.phase == "running"
    with pytest.raises(TooLate) as refused:
        drive.join(2)
    assert refused.value.message.startswith("slot 2 is too late: run 'r' started without it")
    drive.end_well(0, 1)
    with pytest.raises(TooLate):
        drive.join(2)


def test_who_comes_too_late_for_a_run_that_fails_is_told_of_the_failure() -> None:
    drive = Drive(make_spec(2, spares=1, last_call_seconds=5)).gather(0, 1).wait(5)
    drive.verify().arm()
    drive.exit(0, 3)
    with pytest.raises(RunOver) as refused:
        drive.join(2)
    assert "no node can join it now (slot 2)" in refused.value.message
    drive.stop(1)
    with pytest.raises(RunOver) as refused:
        drive.join(2)
    assert refused.value.message.startswith("run 'r' has ended: ")
    assert " exit code 3" in refused.value.message


def test_who_comes_after_the_last_call_is_asked_to_wait_while_nodes_verify() -> None:
    drive = Drive(make_spec(3, least=2, last_call_seconds=5)).gather(0, 1).wait(5)
    with pytest.raises(SlotTaken) as refused:
        drive.join(2)
    assert drive.phase == "verifying"
    assert refused.value.message.startswith(
        "the last call of run 'r' has ended, and the run is verifying without slot 2"
    )
    drive.verify()
    with pytest.raises(SlotTaken) as refused:
        drive.join(2)
    assert drive.phase == "arming"
    assert refused.value.message.startswith(
        "the last call of run 'r' has ended, and the run is arming without slot 2"
    )


@pytest.mark.parametrize(
    ("least", "own", "nnodes"), [(4, "4", "3"), (4, "4", "2:4"), (2, "2:4", "4"), (2, "2:4", "2:5")]
)
def test_another_nnodes_is_refused_with_both_values(least: int, own: str, nnodes: str) -> None:
    drive = Drive(make_spec(4, least=least))
    with pytest.raises(Mismatch) as refused:
        drive.join(1, job=Job(nnodes=nnodes))
    assert refused.value.message == (
        f"slot 1 (host1) was started with --nnodes {nnodes}, but run 'r' has --nnodes {own}"
    )
    assert "the same number of nodes (--nnodes or NUM_NODES)" in refused.value.hint


@pytest.mark.parametrize(("least", "nnodes"), [(4, "4"), (4, "4:4"), (4, "04"), (2, "2:4")])
def test_the_same_nnodes_may_be_written_differently(least: int, nnodes: str) -> None:
    drive = Drive(make_spec(4, least=least))
    drive.join(1, job=Job(nnodes=nnodes))
    assert drive.slot(1).incarnations == 1


def test_a_loopback_address_is_refused_where_the_nodes_are_on_several_machines() -> None:
    drive = Drive(make_spec())
    with pytest.raises(Mismatch) as refused:
        drive.join(1, addresses=["10.0.0.2", "127.0.0.2"])
    assert "127.0.0.2, which no other machine can reach" in refused.value.message
    assert "remove --loopback" in refused.value.hint


@pytest.mark.parametrize(("nodes", "loopback"), [(2, True), (1, False)])
def test_a_loopback_address_may_be_meant(nodes: int, loopback: bool) -> None:
    drive = Drive(make_spec(nodes, loopback=loopback))
    drive.join(0, addresses=["127.0.0.2"])
    assert drive.slot(0).incarnations == 1


def test_another_framework_is_refused_with_both_names() -> None:
    drive = Drive(make_spec())
    with pytest.raises(Mismatch) as refused:
        drive.join(1, job=Job(framework="command"))
    assert refused.value.message == (
        "slot 1 (host1) was started with --framework command, but run 'r' has --framework torchrun"
    )
    assert "the same --framework" in refused.value.hint


def test_the_same_command_is_accepted_as_is_one_that_is_not_told() -> None:
    drive = Drive(make_spec(3))
    drive.join(0, job=command("a"))
    drive.join(1, job=command("a"))
    drive.join(2)
    assert drive.states() == ["joined", "joined", "joined"]


def test_commands_may_differ_when_the_run_allows_it() -> None:
    drive = Drive(make_spec(3, same_command=False))
    drive.join(0, job=command("a"))
    drive.join(1, job=command("b"))
    assert drive.slot(1).incarnations == 1


def test_of_two_nodes_with_different_commands_both_are_named_and_nobody_is_blamed() -> None:
    drive = Drive(make_spec(4))
    drive.join(2, job=command("train.py", "--lr", "1"))
    with pytest.raises(Mismatch) as refused:
        drive.join(0, job=command("train.py", "--lr", "2"))
    assert (drive.result.code, drive.result.exit_code) == ("mismatch", 77)
    assert (drive.result.slot, drive.result.hostname, drive.result.command_word) == (None, "", 3)
    assert refused.value.message == (
        "slot 2 (host2) and slot 0 (host0) would run different COMMANDs: word 3 differs"
    )
    assert "the same COMMAND, or allow the difference with --any-command" in refused.value.hint


@pytest.mark.parametrize(
    ("others", "own", "word", "those"),
    [(2, "t a b", 3, "slot 0 (host0) and 1 other"), (3, "t b", 2, "slot 0 (host0) and 2 others")],
)
def test_one_node_against_the_rest_is_named_alone(
    others: int, own: str, word: int, those: str
) -> None:
    drive = Drive(make_spec(4))
    for slot in range(others):
        drive.join(slot, job=command("t", "a"))
    with pytest.raises(Mismatch) as refused:
        drive.join(3, job=command(*own.split()))
    assert (drive.result.slot, drive.result.command_word) == (3, word)
    assert drive.result.code == "mismatch"
    assert refused.value.message == (
        f"slot 3 (host3) would run a different COMMAND: word {word} differs from that of {those}"
    )


def test_a_node_in_place_of_the_only_other_one_may_have_another_command() -> None:
    drive = Drive(make_spec(3))
    drive.join(0, job=command("a"))
    drive.join(0, 2, job=command("b"))
    assert drive.slot(0).incarnations == 2


def test_the_node_that_is_compared_with_may_be_gone() -> None:
    drive = Drive(make_spec(4))
    drive.join(0, job=command("a"))
    drive.join(1, job=command("a"))
    drive.join(2, job=command("a"))
    drive.leave(0)
    drive.leave(1)
    with pytest.raises(Mismatch) as refused:
        drive.join(3, job=command("b"))
    assert drive.result.slot is None
    assert "slot 2 (host2)" in refused.value.message


@pytest.mark.parametrize(("spares", "asked"), [(0, 2), (1, 3)])
def test_a_rank_beyond_the_run_is_refused(spares: int, asked: int) -> None:
    drive = Drive(make_spec(2, spares=spares))
    with pytest.raises(Mismatch) as refused:
        drive.join(1, requested_node=asked)
    assert f"asks to be node {asked} in a run of 2 nodes" in refused.value.message
    assert refused.value.hint == f"its nodes are 0 to {asked - 1}"


@pytest.mark.parametrize(("slot", "asked"), [(0, 1), (1, 0)])
def test_slot_0_and_node_0_belong_together(slot: int, asked: int) -> None:
    drive = Drive(make_spec())
    with pytest.raises(Mismatch) as refused:
        drive.join(slot, requested_node=asked)
    assert f"asks to be node {asked}; slot 0 is always node 0" in refused.value.message
    assert "unset NODE_RANK" in refused.value.hint


def test_two_nodes_that_ask_for_one_rank_are_both_named() -> None:
    drive = Drive(make_spec(3))
    drive.join(1, requested_node=2)
    with pytest.raises(Mismatch) as refused:
        drive.join(2, requested_node=2)
    assert refused.value.message == "slot 2 (host2) and slot 1 (host1) both ask to be node 2"
    assert "a different NODE_RANK" in refused.value.hint


@pytest.mark.parametrize("later", [(2, 1), (1, 2)], ids=["it was lost", "it is replaced"])
def test_the_rank_of_a_node_that_is_there_no_more_is_free_again(later: tuple[int, int]) -> None:
    drive = Drive(make_spec(3))
    drive.join(1, requested_node=2)
    if later == (2, 1):
        drive.wait(16, silent=[1])
    drive.join(*later, requested_node=2)
    assert drive.slot(later[0]).incarnations == later[1]


def test_a_node_that_does_not_listen_is_refused_where_addresses_are_to_be_proven() -> None:
    drive = Drive(make_spec())
    with pytest.raises(Mismatch) as refused:
        drive.join(1, probe_port=None)
    assert refused.value.message.startswith(
        "slot 1 (host1) does not answer the other nodes' connection checks"
    )


def test_a_node_need_not_listen_where_nobody_probes_it() -> None:
    drive = Drive(make_spec(2, verify=False))
    drive.join(0, probe_port=None)
    drive.join(1, probe_port=None)
    assert drive.phase == "arming"


def test_a_node_alone_need_not_listen() -> None:
    drive = Drive(make_spec(1))
    drive.join(0, probe_port=None)
    assert (drive.phase, drive.plan()) == ("verifying", [])
    drive.verify()
    assert drive.phase == "arming"


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


def test_the_node_of_an_emptied_slot_is_fenced() -> None:
    drive = Drive(make_spec()).gather(1).wait(16, silent=[1])
    with pytest.raises(Fenced):
        drive.leave(1)


def test_the_same_probe_or_acknowledgement_again_changes_nothing() -> None:
    drive = in_phase(Phase.VERIFYING, 3)
    drive.probe(1)
    with drive.unchanged():
        drive.probe(1)
    assert drive.states() == ["joined", "verified", "joined"]
    drive.verify().ack(1)
    with drive.unchanged():
        drive.ack(1)
    assert drive.states() == ["verified", "armed", "verified"]


def test_the_same_exit_again_changes_nothing() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(1, 3)
    with drive.unchanged():
        drive.exit(1, 4)
    assert "exit code 3" in drive.waits()


def test_the_same_words_of_progress_again_change_nothing() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.progress(1, "step 10")
    with drive.unchanged():
        drive.progress(1, "step 10")
    drive.progress(1, "step 20")
    assert drive.reasons[-1] == "node 1 (host1): step 20"


def test_what_is_reported_out_of_its_phase_changes_nothing() -> None:
    drive = in_phase(Phase.ARMING)
    with drive.unchanged():
        drive.probe(0)
    with drive.unchanged():
        drive.progress(1, "step 10")


def test_a_node_that_was_given_up_after_the_go_is_fenced_but_may_leave() -> None:
    drive = in_phase(Phase.RUNNING).wait(16, silent=[1])
    with pytest.raises(Fenced) as refused:
        drive.exit(1, 0)
    assert "was given up: it was silent" in refused.value.message
    with drive.unchanged():
        drive.leave(1)


def test_an_exit_after_the_end_changes_nothing_and_leaving_counts_once() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.exit(0, 3)
    drive.wait(5)
    with drive.unchanged():
        drive.stop(1)
    assert drive.phase == "finished"
    drive.leave(1)
    assert drive.states() == ["exited", "left"]
    with drive.unchanged():
        drive.leave(1)


def test_news_of_an_older_generation_change_nothing() -> None:
    drive = Drive(make_spec())
    drive.news(1, SlotState.SUBMITTING, 2)
    with drive.unchanged():
        drive.news(1, SlotState.FAILED, 1)


def test_the_same_news_again_change_nothing() -> None:
    drive = Drive(make_spec())
    drive.news(1, SlotState.QUEUED, name="run-1", handle="n17", detail="Priority")
    with drive.unchanged():
        drive.news(1, SlotState.QUEUED, name="run-1", handle="n17", detail="Priority")
    with drive.unchanged():
        drive.news(1, SlotState.QUEUED, detail="Priority")
    drive.news(1, SlotState.QUEUED, detail="Resources")
    assert drive.slot(1).detail == "Resources"


def test_name_and_handle_stay_when_later_news_leave_them_out() -> None:
    drive = Drive(make_spec())
    drive.news(1, SlotState.SUBMITTING, name="run-1")
    drive.news(1, SlotState.SUBMITTED, handle="n17")
    drive.news(1, SlotState.RUNNING)
    assert (drive.slot(1).name, drive.slot(1).handle) == ("run-1", "n17")


def test_a_dead_worker_run_does_not_come_back_to_life() -> None:
    drive = Drive(make_spec())
    drive.news(1, SlotState.FAILED)
    with drive.unchanged():
        drive.news(1, SlotState.RUNNING)
    with drive.unchanged():
        drive.news(1, SlotState.ENDED)
    drive.news(1, SlotState.SUBMITTING, 2)
    assert (drive.slot(1).state, drive.slot(1).generation) == ("submitting", 2)


def test_nothing_is_submitted_for_a_finished_run() -> None:
    drive = in_phase(Phase.RUNNING, 1)
    drive.exit(0, 0)
    with pytest.raises(RunOver) as refused:
        drive.news(0, SlotState.SUBMITTING, 2)
    assert "the launcher submits no more worker runs" in refused.value.message
    drive.news(0, SlotState.ENDED)
    assert drive.slot(0).state == "ended"


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.VERIFYING, Phase.ARMING, Phase.RUNNING])
def test_a_refusal_says_nothing_of_a_live_node_in_its_slot(phase: Phase) -> None:
    drive = in_phase(phase)
    with drive.unchanged():
        drive.refuse_to_join(0)


def test_a_refusal_of_an_older_worker_run_says_nothing_of_the_newer_one() -> None:
    drive = Drive(make_spec())
    drive.news(1, SlotState.SUBMITTING, 2)
    with drive.unchanged():
        drive.refuse_to_join(1)
    drive.refuse_to_join(1, 2)
    assert drive.result.code == "refused"


@pytest.mark.parametrize(("spares", "managed"), [(0, True), (1, True), (0, False)])
def test_a_refusal_that_comes_again_changes_nothing_more(spares: int, managed: bool) -> None:
    drive = Drive(make_spec(2, spares=spares, managed=managed))
    drive.refuse_to_join(1)
    with drive.unchanged():
        drive.refuse_to_join(1)


def test_a_refusal_after_the_go_changes_nothing() -> None:
    drive = Drive(make_spec(3, least=2)).gather(0, 1).wait(31)
    drive.verify().arm()
    with drive.unchanged():
        drive.refuse_to_join(2)
    assert drive.phase == "running"


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
