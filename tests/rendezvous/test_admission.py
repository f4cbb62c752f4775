"""What a join, a report or the launcher's news may change."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.run.admission import (
    decide_join,
    decide_mismatch,
    decide_refusal,
    decide_report,
    decide_slot,
    refuse_other_version,
)
from rendezvous.run.events import Joined, Left, Refused
from rendezvous.wire.errors import Fenced, Mismatch, RunOver, SlotTaken, TooLate
from rendezvous.wire.node import Facts, Job, JoinRequest
from rendezvous.wire.reports import AckReport, ExitReport, LeaveReport
from rendezvous.wire.run import Phase, SlotNews, SlotState
from rendezvous.wire.verify import ProbeReport
from tests.support.driver import Drive, in_phase, make_join, make_refusal, make_spec, sha

# --- joins: who may have a slot -------------------------------------------------------------------


def test_an_empty_slot_is_given_to_who_holds_its_token() -> None:
    drive = Drive(make_spec(2))
    request = make_join(1)
    assert decide_join(drive.run, request, drive.now, drive.leases) == Joined(request=request)


def of_version(version: str) -> JoinRequest:
    return make_join(1).model_copy(update={"facts": Facts(rdzv_version=version)})


@pytest.mark.parametrize("theirs", ["0.1.0", "0.1.9", "0.12.0", "", "unknown", "1"])
def test_a_node_of_the_same_major_version_or_of_none_may_join(theirs: str) -> None:
    refuse_other_version(of_version(theirs), "0.1.0")


@pytest.mark.parametrize(("theirs", "own"), [("1.0.0", "0.9.3"), ("0.9.3", "10.0"), ("2.0", "1.0")])
def test_a_node_of_another_major_version_is_refused_with_both(theirs: str, own: str) -> None:
    with pytest.raises(Mismatch) as caught:
        refuse_other_version(of_version(theirs), own)
    assert caught.value.message == (
        f"slot 1 (host1) has rdzv {theirs}, and the registry has rdzv {own}"
    )


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.VERIFYING, Phase.ARMING, Phase.RUNNING])
def test_the_same_join_again_changes_nothing_in_any_phase(phase: Phase) -> None:
    drive = in_phase(phase)
    before = drive.run.version
    assert drive.join(0) == 1
    assert drive.run.version == before


def test_the_same_join_again_is_answered_after_the_end_too() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.exit(0, 3)
    drive.wait(5)
    assert drive.phase is Phase.FINISHED
    assert drive.join(0) == 1


def test_a_delayed_copy_of_an_older_join_is_fenced() -> None:
    drive = Drive(make_spec(2)).gather(0)
    drive.wait(7, silent={0})
    assert drive.join(0, attempt=2) == 2
    with pytest.raises(
        Fenced, match="this join was accepted as incarnation 1; a newer one has it now"
    ):
        drive.join(0, attempt=1)


def test_a_copy_of_a_join_whose_node_was_given_up_is_fenced() -> None:
    drive = Drive(make_spec(2)).gather(1)
    drive.wait(16, silent={1})
    with pytest.raises(Fenced, match="accepted as incarnation 1; the slot was given up since"):
        drive.join(1)


def test_an_older_generation_is_fenced_with_both_numbers() -> None:
    drive = Drive(make_spec(2))
    drive.news(1, SlotState.SUBMITTING, 3)
    with pytest.raises(Fenced, match=r"belongs to generation 3 .*; this is generation 2") as caught:
        drive.join(1, 2)
    assert "an older worker run of this launch is still alive" in caught.value.hint


def test_a_generation_that_failed_is_fenced_before_the_next_is_submitted() -> None:
    drive = Drive(make_spec(2))
    drive.news(1, SlotState.SUBMITTING)
    drive.news(1, SlotState.FAILED)
    with pytest.raises(Fenced, match="belongs to generation 2"):
        drive.join(1, 1)


def test_a_newer_generation_takes_the_slot_of_a_live_older_one_at_once() -> None:
    drive = Drive(make_spec(2)).gather(1)
    assert drive.join(1, 2) == 2
    assert (drive.slot(1).generation, drive.node(1).join.generation) == (2, 2)


def test_a_live_holder_keeps_its_slot_and_both_are_named() -> None:
    drive = Drive(make_spec(2)).gather(1)
    drive.wait(5, silent={1})
    with pytest.raises(SlotTaken) as caught:
        drive.join(1, attempt=2, hostname="twin", addresses=["10.0.0.9"])
    assert caught.value.message == (
        "slot 1 is held by host1 (10.0.0.2), which is alive; "
        "twin (10.0.0.9) asks for it with the same token"
    )
    assert "two worker runs were started with one join string" in caught.value.hint
    assert caught.value.retryable


def test_a_suspect_holder_loses_its_slot_within_its_generation() -> None:
    drive = Drive(make_spec(2)).gather(1)
    drive.wait(6, silent={1})
    assert drive.join(1, attempt=2) == 2


def test_nobody_joins_a_finished_run_and_hears_how_it_ended() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.exit(0, 0)
    drive.exit(1, 0)
    with pytest.raises(RunOver, match="run 'r' is over: all 2 nodes ended with exit code 0"):
        drive.join(0, attempt=2)


@pytest.mark.parametrize("generation", [1, 2])
def test_nobody_joins_a_running_run(generation: int) -> None:
    drive = in_phase(Phase.RUNNING)
    drive.wait(7, silent={1})
    with pytest.raises(RunOver, match="is running on its sealed table; slot 1 cannot be filled"):
        drive.join(1, generation, attempt=2)


@pytest.mark.parametrize("run_is", ["running", "over"])
@pytest.mark.parametrize("missing", [{"least": 2}, {"spares": 1}], ids=str)
def test_a_node_that_comes_after_the_go_and_is_not_needed_is_too_late_and_no_failure(
    missing: dict[str, int], run_is: str
) -> None:
    nodes = 2 if "spares" in missing else 3
    drive = Drive(make_spec(nodes, last_call_seconds=5, **missing)).gather(0, 1)
    drive.wait(5)
    drive.verify().arm()
    if run_is == "over":
        drive.exit(0, 0)
        drive.exit(1, 0)
    with pytest.raises(TooLate, match="slot 2 came too late: run 'r' went on without it") as caught:
        drive.join(2)
    assert caught.value.exit_code == 0


def test_who_comes_too_late_for_a_run_that_fails_is_told_of_the_failure() -> None:
    drive = Drive(make_spec(2, spares=1, last_call_seconds=5)).gather(0, 1)
    drive.wait(5)
    drive.verify().arm()
    drive.exit(0, 3)
    for message in ("slot 2 cannot be filled now", "run 'r' is over: .* exit code 3"):
        with pytest.raises(RunOver, match=message) as caught:
            drive.join(2)
        assert type(caught.value) is RunOver
        drive.exit(1, 143, stopped=True)


@pytest.mark.parametrize("phase", [Phase.VERIFYING, Phase.ARMING])
def test_who_comes_after_the_last_call_is_asked_to_wait(phase: Phase) -> None:
    drive = Drive(make_spec(3, least=2, last_call_seconds=5)).gather(0, 1)
    drive.wait(5)
    if phase is Phase.ARMING:
        drive.verify()
    with pytest.raises(SlotTaken, match=f"ended its last call and is {phase} without slot 2"):
        drive.join(2)
    assert drive.phase is phase


# --- joins: is it the same job --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "said", "ours"),
    [
        (make_spec(4), "3", "4"),
        (make_spec(4), "2:4", "4"),
        (make_spec(4, least=2), "4", "2:4"),
        (make_spec(4, least=2), "2:5", "2:4"),
    ],
)
def test_another_nnodes_is_refused_with_both_values(spec: object, said: str, ours: str) -> None:
    drive = Drive(spec)  # type: ignore[arg-type]
    with pytest.raises(Mismatch) as caught:
        drive.join(1, job=Job(nnodes=said))
    assert caught.value.message == (
        f"slot 1 (host1) was started with --nnodes {said}, and run 'r' has --nnodes {ours}"
    )
    assert "the same --nnodes (NUM_NODES)" in caught.value.hint


@pytest.mark.parametrize(
    ("least", "said"), [(4, "4"), (4, "4:4"), (4, "04"), (2, "2:4"), (2, None)]
)
def test_the_same_nnodes_may_be_written_differently(least: int, said: str | None) -> None:
    assert Drive(make_spec(4, least=least)).join(1, job=Job(nnodes=said)) == 1


def test_a_loopback_address_is_refused_where_the_nodes_are_on_several_machines() -> None:
    drive = Drive(make_spec(2))
    with pytest.raises(Mismatch, match=r"127\.0\.0\.2, which no other machine can reach") as caught:
        drive.join(1, addresses=["10.0.0.2", "127.0.0.2"])
    assert "remove --loopback" in caught.value.hint
    assert Drive(make_spec(2, loopback=True)).join(1, addresses=["127.0.0.2"]) == 1
    assert Drive(make_spec(1)).join(0, addresses=["127.0.0.1"]) == 1


def test_another_framework_is_refused_with_both_names() -> None:
    drive = Drive(make_spec(2))
    with pytest.raises(Mismatch) as caught:
        drive.join(1, job=Job(framework="command"))
    assert caught.value.message == (
        "slot 1 (host1) was started with --framework command, and run 'r' has --framework torchrun"
    )
    assert "the same --framework" in caught.value.hint


def test_another_command_than_the_first_nodes_is_refused() -> None:
    drive = Drive(make_spec(3))
    drive.join(0, job=Job(command_digest=sha("train a")))
    with pytest.raises(Mismatch) as caught:
        drive.join(1, job=Job(command_digest=sha("train b")))
    assert caught.value.message == (
        f"slot 1 (host1) would run another COMMAND (digest {sha('train b')[:12]}) "
        f"than the nodes before it ({sha('train a')[:12]})"
    )
    assert "the same COMMAND, or allow the difference with --any-command" in caught.value.hint


def test_another_command_than_the_launchers_is_refused_from_the_first_node_on() -> None:
    drive = Drive(make_spec(2, job=Job(command_digest=sha("train a"))))
    with pytest.raises(Mismatch, match="would run another COMMAND"):
        drive.join(0, job=Job(command_digest=sha("train b")))


@pytest.mark.parametrize("digest", [None, sha("train a")])
def test_no_digest_and_the_same_digest_are_accepted(digest: str | None) -> None:
    drive = Drive(make_spec(3, job=Job(command_digest=sha("train a"))))
    assert drive.join(1, job=Job(command_digest=digest)) == 1


def test_commands_may_differ_when_the_run_allows_it() -> None:
    drive = Drive(make_spec(3, same_command=False))
    drive.join(0, job=Job(command_digest=sha("train a")))
    assert drive.join(1, job=Job(command_digest=sha("train b"))) == 1


# --- COMMAND word by word -------------------------------------------------------------------------


def says(*words: str) -> Job:
    return Job(command_words=[sha(word)[:16] for word in words])


def refuse_command(drive: Drive, slot: int, job: Job) -> Mismatch:
    with pytest.raises(Mismatch) as caught:
        drive.join(slot, job=job)
    assert drive.run.result is not None
    assert (drive.run.result.code, drive.run.result.exit_code) == ("mismatch", 77)
    assert drive.run.result.command_word == caught.value.command_word
    return caught.value


def test_of_two_nodes_with_different_commands_both_are_named_and_nobody_is_blamed() -> None:
    drive = Drive(make_spec(4))
    drive.join(2, job=says("train.py", "--lr", "1"))
    found = refuse_command(drive, 0, says("train.py", "--lr", "2"))
    assert found.message == (
        "slot 2 (host2) and slot 0 (host0) would run different COMMANDs: word 3 differs"
    )
    assert "the same COMMAND, or allow the difference with --any-command" in found.hint
    assert drive.run.result is not None
    assert (found.command_word, drive.run.result.slot, drive.run.result.hostname) == (3, None, "")


@pytest.mark.parametrize(("others", "rest"), [(2, "1 other"), (3, "2 others")])
def test_one_node_against_the_rest_is_named_alone(others: int, rest: str) -> None:
    drive = Drive(make_spec(4))
    for slot in range(others):
        drive.join(slot, job=says("train.py", "a"))
    found = refuse_command(drive, 3, says("train.py", "a", "b"))
    assert found.message == (
        f"slot 3 (host3) is alone with its COMMAND: word 3 differs from that of slot 0 (host0) "
        f"and {rest}"
    )
    assert drive.run.result is not None
    assert (found.command_word, drive.run.result.slot) == (3, 3)


def test_a_node_in_place_of_the_only_other_one_may_have_another_command() -> None:
    drive = Drive(make_spec(3))
    drive.join(0, job=says("a"))
    assert drive.join(0, 2, job=says("b")) == 2


def test_the_node_that_is_compared_with_may_be_gone() -> None:
    drive = Drive(make_spec(4))
    for slot in (0, 1, 2):
        drive.join(slot, job=says("a"))
    drive.report(0, LeaveReport())
    drive.report(1, LeaveReport())
    found = refuse_command(drive, 3, says("b"))
    assert "slot 2 (host2)" in found.message
    assert not found.is_alone


def test_a_node_that_says_nothing_of_its_command_is_accepted() -> None:
    drive = Drive(make_spec(3))
    drive.join(0, job=says("a"))
    assert drive.join(1, job=Job()) == 1
    assert drive.join(2, job=says("a")) == 1


def test_what_lies_behind_the_words_that_are_sent_is_one_difference() -> None:
    drive = Drive(make_spec(2))
    words = [str(n) for n in range(128)]
    drive.join(0, job=says(*words, "rest"))
    found = refuse_command(drive, 1, says(*words, "other rest"))
    assert found.message.endswith("something behind word 128 differs")


def test_words_may_differ_when_the_run_allows_it() -> None:
    drive = Drive(make_spec(3, same_command=False))
    drive.join(0, job=says("a"))
    assert drive.join(1, job=says("b")) == 1


def test_a_rank_beyond_the_run_is_refused() -> None:
    with pytest.raises(Mismatch, match="asks for node rank 2 in a run of 2") as caught:
        Drive(make_spec(2)).join(1, requested_rank=2)
    assert caught.value.hint == "node ranks are 0 to 1"


@pytest.mark.parametrize(("slot", "rank"), [(0, 1), (1, 0)])
def test_slot_0_and_rank_0_belong_together(slot: int, rank: int) -> None:
    words = f"asks for node rank {rank}; slot 0 is always rank 0"
    with pytest.raises(Mismatch, match=words) as caught:
        Drive(make_spec(2)).join(slot, requested_rank=rank)
    assert "unset NODE_RANK" in caught.value.hint


def test_two_nodes_that_ask_for_one_rank_are_both_named() -> None:
    drive = Drive(make_spec(3))
    drive.join(1, requested_rank=2)
    with pytest.raises(Mismatch) as caught:
        drive.join(2, requested_rank=2)
    assert caught.value.message == "slot 2 (host2) and slot 1 (host1) both ask for node rank 2"
    assert "its own NODE_RANK" in caught.value.hint


def test_the_rank_of_a_node_that_was_lost_is_free_again() -> None:
    drive = Drive(make_spec(3))
    drive.join(1, requested_rank=2)
    drive.wait(16, silent={1})
    assert drive.join(2, requested_rank=2) == 1


def test_a_replacement_may_ask_for_the_rank_of_whom_it_replaces() -> None:
    drive = Drive(make_spec(3))
    drive.join(1, requested_rank=2)
    assert drive.join(1, 2, requested_rank=2) == 2


# --- reports --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "report",
    [
        ProbeReport(epoch=1),
        AckReport(epoch=1, digest=sha("x")),
        ExitReport(epoch=1, exit_code=1),
        LeaveReport(),
    ],
)
def test_what_an_older_incarnation_says_is_fenced(report: object) -> None:
    drive = in_phase(Phase.VERIFYING)
    drive.join(1, 2)
    before = drive.run.version
    with pytest.raises(Fenced, match="slot 1: incarnation 1 has been replaced"):
        drive.report(1, report, incarnation=1)  # type: ignore[arg-type]
    assert drive.run.version == before


def test_the_node_of_an_emptied_slot_is_fenced() -> None:
    drive = Drive(make_spec(2)).gather(1)
    drive.wait(16, silent={1})
    with pytest.raises(Fenced):
        drive.report(1, LeaveReport())


def test_the_same_probe_again_changes_nothing() -> None:
    drive = in_phase(Phase.VERIFYING, 3)
    assert drive.probe(1) is not None
    assert drive.probe(1) is None


def test_the_same_acknowledgement_again_changes_nothing() -> None:
    drive = in_phase(Phase.ARMING, 3)
    assert drive.ack(1) is not None
    assert drive.ack(1) is None


def test_the_same_exit_again_changes_nothing() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    assert drive.exit(1, 3) is not None
    assert drive.exit(1, 4) is None
    assert drive.node(1).exit == ExitReport(epoch=1, exit_code=3)


def test_the_same_words_of_progress_again_change_nothing() -> None:
    drive = in_phase(Phase.RUNNING)
    assert drive.progress(1, "step 10") is not None
    assert drive.progress(1, "step 10") is None
    assert drive.progress(1, "step 20") is not None
    assert drive.node(1).progress == "step 20"


def test_progress_is_taken_in_only_while_the_run_runs() -> None:
    drive = in_phase(Phase.ARMING)
    assert drive.progress(1, "step 10") is None


def test_reports_on_an_older_epoch_change_nothing() -> None:
    drive = in_phase(Phase.ARMING)
    old = drive.run.digest
    drive.join(1, 2)
    drive.verify()
    assert drive.run.epoch == 2
    assert drive.report(0, AckReport(epoch=1, digest=old)) is None
    assert drive.report(0, ProbeReport(epoch=1)) is None
    assert drive.states() == ["verified", "verified"]


def test_probes_and_acknowledgements_out_of_their_phase_change_nothing() -> None:
    drive = in_phase(Phase.ARMING)
    assert drive.probe(0) is None
    early = in_phase(Phase.VERIFYING)
    assert early.report(0, AckReport(epoch=1, digest=sha("x"))) is None


def test_an_acknowledgement_of_another_table_is_a_mismatch() -> None:
    drive = in_phase(Phase.ARMING)
    with pytest.raises(Mismatch) as caught:
        drive.report(1, AckReport(epoch=1, digest=sha("another")))
    assert caught.value.message == (
        f"node 1 (host1, slot 1) acknowledged table {sha('another')[:12]}, "
        f"and the table of epoch 1 is {drive.run.digest[:12]}"
    )


def test_a_node_that_was_given_up_after_the_go_is_fenced_but_may_leave() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.wait(16, silent={1})
    with pytest.raises(Fenced, match="was given up: it was silent"):
        drive.exit(1, 0)
    assert drive.report(1, LeaveReport()) is None


def test_an_exit_after_the_end_changes_nothing_and_leaving_counts_once() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.exit(0, 3)
    drive.wait(5)
    assert drive.phase is Phase.FINISHED
    assert drive.exit(1, 143, stopped=True) is None
    assert decide_report(drive.run, 1, 1, LeaveReport()) == Left(slot=1, incarnation=1)
    assert drive.report(1, LeaveReport()) is not None
    assert drive.report(1, LeaveReport()) is None


# --- the launcher's news --------------------------------------------------------------------------


def test_news_of_an_older_generation_changes_nothing() -> None:
    drive = Drive(make_spec(2))
    drive.news(1, SlotState.SUBMITTING, 2)
    assert drive.news(1, SlotState.FAILED, 1) is None


def test_the_same_news_again_changes_nothing() -> None:
    drive = Drive(make_spec(2))
    words: dict[str, Any] = {"name": "run-1", "handle": "17", "detail": "Priority"}
    assert drive.news(1, SlotState.QUEUED, **words) is not None
    assert drive.news(1, SlotState.QUEUED, **words) is None
    assert drive.news(1, SlotState.QUEUED, detail="Priority") is None
    assert drive.news(1, SlotState.QUEUED, detail="Resources") is not None


def test_name_and_handle_stay_when_later_news_leaves_them_out() -> None:
    drive = Drive(make_spec(2))
    drive.news(1, SlotState.SUBMITTING, name="run-1")
    drive.news(1, SlotState.SUBMITTED, handle="17")
    drive.news(1, SlotState.RUNNING)
    assert (drive.slot(1).name, drive.slot(1).handle) == ("run-1", "17")


def test_a_dead_worker_run_does_not_come_back_to_life() -> None:
    drive = Drive(make_spec(2))
    drive.news(1, SlotState.FAILED)
    assert drive.news(1, SlotState.RUNNING) is None
    assert drive.news(1, SlotState.ENDED) is None
    assert drive.news(1, SlotState.SUBMITTING, 2) is not None


def test_nothing_is_submitted_for_a_finished_run() -> None:
    drive = in_phase(Phase.RUNNING, 1)
    drive.exit(0, 0)
    news = SlotNews(generation=2, state=SlotState.SUBMITTING)
    with pytest.raises(RunOver, match="nothing more is submitted"):
        decide_slot(drive.run, 0, news)
    assert drive.news(0, SlotState.ENDED) is not None


def test_a_lasting_refusal_is_kept_once_with_its_code_and_words() -> None:
    drive, error = Drive(make_spec(4)), Mismatch("another job", hint="h")
    refused = decide_mismatch(drive.run, make_join(3, 2), error)
    assert refused == Refused(slot=3, generation=2, code="mismatch", reason="another job", hint="h")
    drive.apply(refused)
    assert decide_mismatch(drive.run, make_join(3, 2), error) is None
    other = Mismatch("another job", hint="another hint")
    assert decide_mismatch(drive.run, make_join(3, 2), other) is not None


# --- refusals of nodes that have not joined -------------------------------------------------------


def test_a_node_that_refuses_to_join_is_kept_with_all_that_it_says() -> None:
    drive = Drive(make_spec(2))
    told = make_refusal(1, retryable=True)
    assert decide_refusal(drive.run, 1, 1, told) == Refused(
        slot=1,
        generation=1,
        code="usage",
        reason="there is no GPU",
        hint="ask for one",
        hostname="host1",
        exit_code=2,
        retryable=True,
    )


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.VERIFYING, Phase.ARMING, Phase.RUNNING])
def test_a_refusal_says_nothing_of_a_live_node_in_its_slot(phase: Phase) -> None:
    assert decide_refusal(in_phase(phase).run, 0, 1, make_refusal(0)) is None


def test_a_refusal_of_an_older_worker_run_says_nothing_of_the_newer_one() -> None:
    drive = Drive(make_spec(2))
    drive.news(1, SlotState.SUBMITTING, 2)
    assert decide_refusal(drive.run, 1, 1, make_refusal(1)) is None
    assert decide_refusal(drive.run, 1, 2, make_refusal(1)) is not None


def test_a_refusal_that_comes_again_changes_nothing_more() -> None:
    for spec in (make_spec(2), make_spec(2, spares=1), make_spec(2, managed=False)):
        drive = Drive(spec)
        assert drive.refuse_to_join(1) is not None
        assert drive.refuse_to_join(1) is None
    drive = Drive(make_spec(2))
    drive.news(1, SlotState.SUBMITTING)
    assert drive.refuse_to_join(1, retryable=True) is not None
    assert drive.refuse_to_join(1, retryable=True) is None


def test_a_refusal_after_the_go_changes_nothing() -> None:
    drive = Drive(make_spec(3, least=2)).gather(0, 1)
    drive.wait(31)
    drive.verify().arm()
    assert drive.phase is Phase.RUNNING
    assert decide_refusal(drive.run, 2, 1, make_refusal(2)) is None
