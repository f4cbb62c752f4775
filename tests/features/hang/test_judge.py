"""Each rule, by value: what the ranks show, who is odd, and what is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from features.hang.rules import Verdict, groups_of, look_at
from features.hang.wire import Call, NodeLook, ProcessGroup, RunLook
from tests.features.hang.runs import (
    FORWARD,
    GATHER,
    IMPORT,
    INIT,
    LINE,
    LOAD,
    RECV,
    REDUCE,
    SAVE,
    One,
    group,
    late,
    later,
    run,
    torch,
    waits,
    with_one,
    without,
)

EIGHT = [waits() for _ in range(8)]
BEHIND = with_one(EIGHT, 5, late())
SEVEN = "7 of 8 ranks have waited 4 min in all_reduce #21 (float32[1024]) of default_pg"
FIVE = "rank 5 (node 2, gpu-17)"
FROM_BOTH = " (from flight recorders and stacks; all 8 ranks answered)"
NO_RECORDER = One((), REDUCE, "none", stage="unknown")


def check(
    found: Verdict, rule: str, odd: tuple[int, ...], *, certain: bool, says: str = ""
) -> Verdict:
    assert (found.rule, found.odd, found.certain) == (rule, odd, certain), found
    assert says in found.sentence, found.sentence
    return found


# ---- behind -------------------------------------------------------------------------------------


def test_the_rank_that_has_not_called_it_is_behind() -> None:
    found = look_at(run(*BEHIND))
    assert found == Verdict(
        "behind",
        f"{SEVEN}; {FIVE} has not called it: it is in load_batch (hang.py:3){FROM_BOTH}",
        "see what this rank does there, and what it printed last: rdzv logs RUN --rank 5",
        (5,),
        1,
        7,
        8,
        True,
        ("recorder", "stacks"),
    )


def test_a_rank_that_writes_a_checkpoint_is_behind_and_at_work() -> None:
    busy = late(stack=SAVE).but(more={"cpu": 2.1, "bytes": 300 << 20})
    found = look_at(run(*with_one([waits()] * 64, 0, busy), per_node=8))
    check(
        found,
        "behind",
        (0,),
        certain=True,
        says="63 of 64 ranks have waited 4 min in all_reduce #21 (float32[1024]) of default_pg; "
        "rank 0 (node 0, gpu-15) has not called it: it is in save (ckpt.py:8); it is at work: it "
        "used 2.1 s of CPU and read and wrote 300 MiB during the look (from flight recorders, "
        "stacks and /proc; all 64 ranks answered)",
    )
    assert found.next_step.startswith("wait until it has done this")


def test_several_that_are_behind_at_the_same_place_are_odd() -> None:
    found = look_at(run(*with_one(BEHIND, 4, late())))
    check(
        found,
        "behind",
        (4, 5),
        certain=True,
        says="ranks 4-5 (node 2, gpu-17) have not called it: they are in load_batch (hang.py:3) (",
    )
    found = look_at(run(*with_one(BEHIND, 1, late())))
    check(
        found,
        "behind",
        (1, 5),
        certain=True,
        says="rank 1 (node 0, gpu-15), rank 5 (node 2, gpu-17) have not called it: they",
    )


def test_of_several_at_different_places_none_is_blamed() -> None:
    found = look_at(run(*with_one(BEHIND, 0, late(stack=FORWARD))))
    check(found, "behind", (), certain=False, says="in several places, so none of them is blamed")


def test_where_one_waits_for_seven_it_may_be_the_one_that_calls_more() -> None:
    found = look_at(run(waits(), *[late(stack=FORWARD)] * 7))
    check(
        found,
        "behind",
        (),
        certain=False,
        says="rank 0 has waited 4 min in all_reduce #21 (float32[1024]) of default_pg; ranks 1-7 "
        "(of 4 nodes) have not called it: they are in forward (model.py:10); either they are late, "
        "or those that wait call more than the others",
    )
    found = look_at(run(waits(), late()))
    check(found, "behind", (), certain=False, says="either it is late, or those that wait")


def test_silence_lowers_certainty_only() -> None:
    found = check(look_at(without(run(*BEHIND), [1])), "behind", (5,), certain=False)
    assert found.silent == (2, 3)
    assert found.silent_nodes == (1,)
    assert "5 of 8 ranks have waited" in found.sentence
    assert found.sentence.endswith("; ranks 2-3 did not answer)")
    found = check(look_at(without(run(*BEHIND), [2])), "all_inside", (), certain=False)
    assert "6 of 8 ranks are in all_reduce #21" in found.sentence
    assert "members that were not seen might not have called it" in found.sentence


def test_nodes_whose_ranks_are_not_known_are_named_by_their_slots() -> None:
    look = without(run(*BEHIND), [1])
    nodes = [node.model_copy(update={"node": None}) for node in look.nodes]
    found = look_at(look.model_copy(update={"nodes": nodes}))
    check(found, "behind", (5,), certain=False, says="rank 5 (slot 2, gpu-17) has not called it")
    assert found.silent == ()
    assert found.sentence.endswith("no answer from slot 1)")
    uneven = without(run(*BEHIND[:7]), [1])
    assert look_at(uneven).silent == ()
    nodes = [node.model_copy(update={"node": node.slot ^ 1}) for node in look.nodes]
    assert look_at(look.model_copy(update={"nodes": nodes})).silent == ()


def test_a_report_of_another_epoch_is_no_answer() -> None:
    look = run(*BEHIND).model_copy(update={"epoch": 2})
    assert look_at(look).rule == "nothing"


def test_the_members_of_a_group_may_be_known() -> None:
    ranks = [waits(members="0-3,4-7")] * 8
    silent = with_one(ranks, 5, One((), None, "silent"))
    found = look_at(run(*silent))
    check(found, "all_inside", (), certain=False, says="members that were not seen might not")
    never = with_one(ranks, 5, One((), LOAD))
    check(look_at(run(*never)), "behind", (5,), certain=True)
    other = with_one([waits(members="0-4,6-7")] * 8, 5, One((), LOAD))
    check(look_at(run(*other)), "all_inside", (), certain=True)


def test_a_report_that_is_cut_may_lack_a_group() -> None:
    look = run(*with_one([waits(members="0-7")] * 8, 5, One((), LOAD)))
    node = look.nodes[2]
    assert node.report is not None
    cut = node.model_copy(update={"report": node.report.model_copy(update={"left_out": 3})})
    nodes = [*look.nodes[:2], cut, look.nodes[3]]
    check(look_at(look.model_copy(update={"nodes": nodes})), "all_inside", (), certain=False)


def test_one_that_holds_the_lock_is_named_where_all_others_are_seen_to_wait() -> None:
    held = One((), LOAD, "silent")
    found = look_at(run(*with_one(EIGHT, 5, held)))
    check(
        found,
        "behind",
        (5,),
        certain=False,
        says=f"{FIVE} is not seen in it, and its recorder does not answer: it is in load_batch",
    )
    two = with_one(with_one(EIGHT, 5, held), 6, held)
    check(look_at(run(*two)), "all_inside", (), certain=False)
    same = with_one(EIGHT, 5, held.but(stack=REDUCE))
    check(look_at(run(*same)), "all_inside", (), certain=False)
    hidden = with_one([waits(stack=LINE)] * 8, 5, held)
    check(look_at(run(*hidden)), "all_inside", (), certain=False)


def test_one_that_waits_for_a_message_is_not_blamed() -> None:
    found = look_at(run(*with_one(EIGHT, 5, late(stack=RECV))))
    says = "it is in recv (distributed_c10d.py:3252), called by <module> (hang.py:30); for which"
    check(found, "behind", (), certain=False, says=says)


def test_of_a_pipeline_the_one_that_waits_for_none_is_odd() -> None:
    ranks = with_one(with_one(EIGHT, 5, late(stack=RECV)), 4, One((group(20, 20, name="4"),), LOAD))
    ranks = [
        one.but(groups=(group(21, name="1", words="dp", members="5,6"),)) if n > 5 else one
        for n, one in enumerate(ranks)
    ]
    ranks[5] = ranks[5].but(groups=(group(20, 20, name="1", words="dp", members="5,6"),))
    ranks[:4] = [One((), RECV)] * 4
    found = look_at(run(*ranks))
    check(
        found,
        "odd_stack",
        (4,),
        certain=False,
        says="of all ranks only rank 4 (node 2, gpu-17) waits for none: it is in load_batch",
    )


def test_one_that_is_idle_may_be_waited_for_unseen() -> None:
    part = [waits(name="3", words="tp", members="0-6")] * 7
    ranks = with_one([*part, One((), FORWARD)], 5, One((), LINE))
    says = "rank 7 waits for none either, so none is blamed"
    check(look_at(run(*ranks)), "behind", (), certain=False, says=says)
    ranks = [*ranks[:6], ranks[6], One((), LOAD), One((), FORWARD)]
    says = "ranks 7-8 wait for none either"
    check(look_at(run(*ranks, per_node=3)), "behind", (), certain=False, says=says)


def test_one_without_a_stack_is_named_where_all_others_wait() -> None:
    found = look_at(run(*with_one(EIGHT, 5, late(stack=None))))
    check(found, "behind", (5,), certain=False, says="has not called it: where it is was not seen")
    found = look_at(without(run(*with_one(EIGHT, 5, late(stack=None))), [0]))
    check(found, "behind", (), certain=False, says="others were not seen, so none is blamed")
    uneven = with_one(EIGHT, 5, late(stack=None))[:7]  # which ranks slot 0 has is not known
    found = look_at(without(run(*uneven), [0]))
    check(found, "behind", (), certain=False, says="others were not seen, so none is blamed")


def test_in_a_group_of_unknown_members_the_one_that_waits_for_none_is_behind() -> None:
    new = [waits(1, name="7", words="undefined") for _ in range(4)]
    idle = One((group(3, 3),), LOAD)
    found = look_at(run(*with_one(new, 2, idle)))
    check(
        found,
        "behind",
        (2,),
        certain=False,
        says="3 of 4 ranks have waited 4 min in all_reduce #1 (float32[1024]) of process group 7; "
        "of all ranks only rank 2 (node 1, gpu-16) waits for none: it is in load_batch (hang.py:3)",
    )
    check(look_at(run(new[0], idle)), "all_inside", (), certain=False)
    found = look_at(run(*new[:2], *[idle] * 2))
    check(found, "all_inside", (), certain=False, says="might not have called it")
    found = look_at(without(run(*with_one([*new, new[0]], 2, idle)), [0]))
    check(found, "all_inside", (), certain=False, says="might not have called it")


def test_a_call_that_all_have_made_may_be_what_holds_them() -> None:
    tp = {"name": "5", "words": "tp", "members": "0-1"}
    pair = [One((group(20, 20), group(9, **tp)), REDUCE)] * 2  # type: ignore[arg-type]
    ranks = [*pair, *EIGHT[2:5], late(), *EIGHT[6:]]
    says = (
        "ranks 0-1 wait in all_reduce #9 (float32[1024]) of tp, which all have called, so none is "
        "blamed"
    )
    check(look_at(run(*ranks)), "behind", (), certain=False, says=says)
    young = [One((group(20, 20), group(9, age=0.5, **tp)), REDUCE)] * 2  # type: ignore[arg-type]
    check(look_at(run(*young, *ranks[2:])), "behind", (5,), certain=True)


# ---- stopped ------------------------------------------------------------------------------------


def test_a_stopped_rank_is_named() -> None:
    found = look_at(run(*with_one(EIGHT, 5, One((), None, "silent", "T"))))
    check(
        found,
        "stopped",
        (5,),
        certain=True,
        says=f"{FIVE} is stopped (SIGSTOP, or a debugger); 7 of 8 ranks wait for others, for 4 min "
        "(from flight recorders and /proc; rank 5 did not answer)",
    )
    assert (
        found.next_step
        == "was a debugger attached, or kill -STOP sent? kill -CONT PID continues what lives"
    )


def test_ranks_that_are_all_stopped_are_suspended() -> None:
    found = look_at(run(*[One((), None, "silent", "T")] * 3))
    says = "all 3 ranks are stopped (SIGSTOP, or a debugger)"
    check(found, "stopped", (), certain=False, says=says)


def test_a_rank_under_a_tracer_for_a_moment_is_well() -> None:
    traced = late(age=0.4).but(state="t")
    check(look_at(run(*with_one([waits(age=0.2)] * 8, 5, traced))), "moving", (), certain=False)
    found = look_at(run(*with_one(EIGHT, 5, late().but(state="t"))))
    check(found, "stopped", (5,), certain=True, says="is stopped (by a debugger or tracer)")


def test_a_stopped_rank_that_none_waits_for_is_not_the_verdict() -> None:
    alone = [late(stack=FORWARD, age=20)] * 3
    assert look_at(run(*alone, late(stack=FORWARD).but(state="T"))).rule == "unclear"


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("", f"{FIVE} has ended; 7 of 8"),
        ("Z", f"{FIVE} has ended (Z: its parent has not collected it); 7 of 8"),
    ],
)
def test_a_rank_that_has_ended_is_named(state: str, says: str) -> None:
    found = look_at(run(*with_one(EIGHT, 5, One((), None, "absent", state))))
    check(found, "stopped", (5,), certain=True, says=says)
    assert found.next_step == "see how it ended: rdzv logs RUN --rank 5"


def test_where_most_have_ended_none_is_blamed() -> None:
    found = look_at(run(waits(), *[One((), None, "absent", "")] * 5))
    says = "ranks 1-5 (of 3 nodes) have ended; 1 of 6 ranks waits for others, for 4 min; either it"
    check(found, "stopped", (), certain=False, says=says)


def test_at_the_end_of_a_run_a_rank_may_have_ended_before_the_others() -> None:
    gone = One((), None, "absent", "")
    found = look_at(run(*with_one([waits(age=0.3)] * 8, 5, gone)))
    check(found, "moving", (), certain=False, says=f"{FIVE} has ended")
    two = with_one(with_one([waits(age=0.3)] * 8, 5, gone), 4, gone)
    check(look_at(run(*two)), "moving", (), certain=False, says="(node 2, gpu-17) have ended")


def test_without_a_recorder_only_two_looks_show_that_one_has_ended_too_early() -> None:
    gone = One((), None, "absent", "")
    ranks = with_one([NO_RECORDER] * 4, 2, gone)
    first = look_at(run(*ranks))
    assert first.next_step.endswith("rdzv logs RUN --rank 2")
    check(first, "stopped", (), certain=False, says="rank 2 (node 1, gpu-16) has ended; ra")
    found = look_at(later(10, *ranks), run(*ranks))
    check(found, "stopped", (2,), certain=False, says="3 of 4 ranks wait for others (from stacks")
    ranks = with_one(ranks, 1, late(stack=SAVE))  # they may wait for this one
    found = look_at(later(10, *ranks), run(*ranks))
    check(found, "stopped", (), certain=False, says="2 of 4 ranks wait for others (from stacks")
    ranks[0] = late(stack=SAVE)
    check(
        look_at(run(*ranks)),
        "unclear",
        (),
        certain=False,
        says="rank 2 (node 1, gpu-16) has ended; ranks 0-",
    )


def test_beside_one_that_is_behind_a_stopped_rank_is_not_blamed() -> None:
    found = look_at(run(*with_one(BEHIND, 0, One((), None, "silent", "T"))))
    check(found, "stopped", (), certain=False, says=f"{FIVE} has not called it either")
    found = look_at(run(*with_one(with_one(BEHIND, 0, One((), None, "silent", "T")), 4, late())))
    check(found, "stopped", (), certain=False, says="(node 2, gpu-17) have not called it either")


def test_a_rank_that_waits_for_a_disk_is_named_where_the_others_wait_for_it() -> None:
    asleep = late(stack=SAVE).but(state="D", more={"waits_in": "nfs_wait_bit_killable"})
    found = look_at(run(*with_one(EIGHT, 5, asleep)))
    says = (
        f"{FIVE} waits for a disk or file system (D, nfs_wait_bit_killable), in save (ckpt.py:8); "
        "7 of 8 ranks wait for others"
    )
    check(found, "stopped", (5,), certain=True, says=says)
    assert "NFS" in found.next_step
    frozen = asleep.but(more={"waits_in": "__refrigerator"})
    found = look_at(run(*with_one(EIGHT, 5, frozen)))
    assert found.rule == "behind"
    assert "disk" not in found.sentence


def test_a_disk_that_moves_and_another_rank_behind_are_no_stop() -> None:
    asleep = late(stack=SAVE).but(state="D")
    works = asleep.but(more={"bytes": 5 << 20})
    says = "waits for a disk or file system (D); it is at work: it read and wrote 5 MiB"
    check(look_at(run(*with_one(EIGHT, 5, works))), "behind", (5,), certain=True, says=says)
    both = with_one(BEHIND, 4, asleep)
    check(look_at(run(*both)), "behind", (), certain=False)
    young = with_one([waits(age=0.2)] * 8, 5, late(age=0.4).but(state="D"))
    check(look_at(run(*young)), "moving", (), certain=False)


def test_a_rank_without_recorder_must_wait_for_a_disk_in_both_looks() -> None:
    asleep = One((), SAVE, "silent", "D")
    ranks = with_one(EIGHT, 5, asleep)
    check(look_at(run(*ranks)), "behind", (5,), certain=False)
    found = look_at(later(10, *ranks), run(*ranks))
    check(found, "stopped", (5,), certain=True)
    two = with_one(ranks, 4, asleep)
    found = look_at(later(10, *two), run(*two))
    says = "ranks 4-5 (node 2, gpu-17) wait for a disk or file system (D); 6 of 8"
    check(found, "stopped", (4, 5), certain=True, says=says)


# ---- moving -------------------------------------------------------------------------------------


def test_a_healthy_run_that_is_caught_between_two_calls_moves() -> None:
    ranks = with_one([waits(age=0.2)] * 8, 5, late(age=0.4, stack=FORWARD))
    says = (
        "not stuck: the newest call is 0.2 s old (the longest pause before: 0.3 s); rank 5 (node "
        "2, gpu-17) has not called all_reduce #21 (float32[1024]) of default_pg yet: it is in "
        "forward (model.py:10) (from"
    )
    check(look_at(run(*ranks)), "moving", (), certain=False, says=says)
    two = with_one(ranks, 4, late(age=0.4, stack=FORWARD))
    says = "ranks 4-5 (node 2, gpu-17) have not called all_reduce #21 (float32[1024]) of default_pg"
    check(look_at(run(*two)), "moving", (), certain=False, says=says)


def test_a_pause_may_be_six_times_the_longest_before() -> None:
    for age, rule in ((29.0, "moving"), (31.0, "behind")):
        ranks = with_one([waits(age=age, usual=5.0)] * 8, 5, late(age=age + 1))
        assert look_at(run(*ranks)).rule == rule
    for age, rule in ((4.9, "moving"), (5.1, "behind")):
        ranks = with_one([waits(age=age, usual=0.0)] * 8, 5, late(age=age + 1))
        assert look_at(run(*ranks)).rule == rule


def test_a_rank_that_calls_elsewhere_moves() -> None:
    busy = One((group(20, 20), group(500, 500, name="3", words="eval", age=0.2)), FORWARD)
    check(look_at(run(*with_one(EIGHT, 5, busy))), "moving", (), certain=False)


def test_what_was_called_during_the_look_moves() -> None:
    ranks = with_one(EIGHT, 5, late().but(more={"called": 3}))
    says = "not stuck: 3 collectives were called, or ended, during the look"
    check(look_at(run(*ranks)), "moving", (), certain=False, says=says)
    ranks = with_one(EIGHT, 5, late().but(more={"called": 1}))
    check(look_at(run(*ranks)), "moving", (), certain=False, says="a collective was called")


def test_numbers_that_grow_between_two_looks_show_that_it_moves() -> None:
    after = with_one([waits(31)] * 8, 5, late(30))
    found = look_at(later(10, *after), run(*BEHIND))
    says = "not stuck: since the look before, ranks have called more, from #21 to #31 of default_pg"
    check(found, "moving", (), certain=False, says=says)


def test_two_looks_alike_show_for_how_long_nothing_moved() -> None:
    unknown = One((ProcessGroup(name="0", called=21, ended=20),), REDUCE)
    behind = One((ProcessGroup(name="0", called=20, ended=20),), LOAD)
    ranks = with_one([unknown] * 8, 5, behind)
    says = "not known to be stuck: for how long the ranks have waited was not recorded"
    check(look_at(run(*ranks)), "moving", (), certain=False, says=says)
    found = look_at(later(10, *ranks), run(*ranks))
    says = "7 of 8 ranks wait in all_reduce #21 of process group 0; rank 5"
    check(found, "behind", (5,), certain=True, says=says)
    check(look_at(later(2, *ranks), run(*ranks)), "moving", (), certain=False)
    check(look_at(later(10, *ranks), run(*ranks[:4])), "moving", (), certain=False)


def test_where_none_waits_the_newest_call_counts() -> None:
    ranks = [late(20, stack=FORWARD, age=0.3)] * 4
    check(look_at(run(*ranks)), "moving", (), certain=False, says="the newest call is 0.3 s old")
    slow = One((group(20, 20, age=4.0, usual=2.0),), FORWARD)
    says = "the newest call is 0.3 s old (the longest pause before: 2.0 s)"
    for mixed in ([slow, *ranks], [*ranks, slow]):
        check(look_at(run(*mixed)), "moving", (), certain=False, says=says)
    after = [late(31, stack=FORWARD, age=7)] * 4
    says = "not stuck: since the look before, ranks have called more ("
    check(look_at(later(10, *after), run(*ranks)), "moving", (), certain=False, says=says)


# ---- starting -----------------------------------------------------------------------------------

INITS = [One((), INIT, "none", stage="imported")] * 8


def importing(**more: object) -> One:
    return One((), IMPORT, "none", "R", "importing", more)


def test_a_rank_that_imports_while_the_others_wait_is_starting() -> None:
    found = look_at(run(*with_one(INITS, 6, importing(lives=130.0))))
    says = (
        "rank 6 (node 3, gpu-18) is still importing torch, 2 min 10 s after its start; 7 of 8 "
        "ranks have begun and wait for others (from stacks; all 8 ranks answered)"
    )
    check(found, "starting", (6,), certain=True, says=says)


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (One((), None, "absent", stage="starting"), "is still starting Python, 10 min after its"),
        (
            One((), LOAD, "none", stage="imported"),
            "is before its first process group, 10 min after its start: it is in load_batch",
        ),
        (importing(cpu=0.2), "after its start; it is at work: it used 0.2 s of CPU during the"),
    ],
)
def test_how_far_it_is_is_said(one: One, says: str) -> None:
    found = look_at(run(*with_one(INITS, 6, one)))
    assert (found.rule, found.odd) == ("starting", (6,))
    assert says in found.sentence


def test_a_start_of_less_than_a_minute_is_no_fault() -> None:
    found = look_at(run(*with_one(INITS, 6, importing(lives=12.0))))
    check(found, "starting", (), certain=False, says="12 s after its start")
    many = [*INITS[:2], *[importing()] * 6]
    says = "(of 3 nodes) are still importing torch; 2 of 8 ranks have begun and wait for others"
    check(look_at(run(*many)), "starting", (), certain=False, says=says)
    mixed = with_one(with_one(INITS, 6, importing()), 5, One((), LOAD, "none", stage="imported"))
    found = look_at(run(*mixed))
    check(found, "starting", (5, 6), certain=True, says="are at the beginning; 6 of 8")


def test_all_may_be_starting() -> None:
    found = look_at(run(*[importing()] * 4))
    check(found, "starting", (), certain=False, says="all 4 ranks are starting")


def test_a_program_without_torch_is_not_starting_for_ever() -> None:
    found = look_at(run(*[One((), LOAD, "none", stage="starting")] * 4))
    says = "the ranks are in 1 place: ranks 0-3 are in load_batch"
    check(found, "unclear", (), certain=False, says=says)
    found = look_at(run(importing(), late(stack=FORWARD), late(stack=LOAD)))
    check(found, "unclear", (), certain=False)


def test_one_that_has_no_process_group_is_missed_where_a_call_lacks_it() -> None:
    check(look_at(run(*with_one(EIGHT, 6, importing()))), "starting", (6,), certain=True)
    helper = [waits(members="0-6")] * 7
    check(look_at(run(*helper, importing())), "all_inside", (), certain=True)
    read = importing().but(recorder="read")
    check(look_at(run(*with_one(EIGHT, 6, read))), "starting", (6,), certain=True)


def test_all_that_make_a_process_group_wait_for_what_is_not_seen() -> None:
    says = "all 8 ranks are in init_process_group: the network, a device or a rank that is not seen"
    check(look_at(run(*INITS)), "all_inside", (), certain=False, says=says)


# ---- cycle --------------------------------------------------------------------------------------


def nested(rank: int, tp: int, dp: int, waits_in: str = "", stack: Any = REDUCE) -> One:
    """A rank of 2 x 4 that has called so many of both, and waits in the newest of one."""
    first, row = rank // 4 * 4, rank % 4
    names = {"words": "tp", "name": f"tp{first}", "members": f"{first}-{first + 3}"}
    others = {"words": "dp", "name": f"dp{row}", "members": f"{row},{row + 4}"}
    return One(
        (
            group(tp, tp - (waits_in == "tp"), **names),  # type: ignore[arg-type]
            group(dp, dp - (waits_in == "dp"), **others),  # type: ignore[arg-type]
        ),
        stack,
    )


CIRCLE = [
    nested(0, 5, 8, "tp"),
    *[nested(r, 4, 9, "dp") for r in (1, 2, 3)],
    nested(4, 4, 9, "dp"),
    *[nested(r, 5, 8, "tp") for r in (5, 6, 7)],
]


def test_ranks_that_wait_for_each_other_in_two_kinds_of_groups_are_a_circle() -> None:
    found = look_at(run(*CIRCLE))
    says = (
        "ranks wait for each other: ranks 0, 5-7 in all_reduce #5 (float32[1024]) of tp, ranks 1, "
        "4 in all_reduce #9 (float32[1024]) of dp, for 4 min (from"
    )
    check(found, "cycle", (), certain=True, says=says)
    hidden = [one.but(stack=LINE) for one in CIRCLE]
    check(look_at(run(*hidden)), "cycle", (), certain=False)


def test_different_calls_of_one_kind_of_group_are_said_together() -> None:
    ranks = list(CIRCLE)
    ranks[0] = nested(0, 6, 8, "tp")
    ranks[1:4] = [nested(r, 5, 9, "dp") for r in (1, 2, 3)]
    says = "ranks 0, 5-7 in calls of tp, ranks 1, 4 in all_reduce #9 (float32[1024]) of dp"
    check(look_at(run(*ranks)), "cycle", (), certain=True, says=says)


def test_a_circle_beside_one_that_is_behind_blames_none() -> None:
    extra = {"name": "x", "words": "x", "members": "8-10"}
    pair = [One((group(3, **extra),), REDUCE)] * 2  # type: ignore[arg-type]
    behind = One((group(2, 2, **extra),), LOAD)  # type: ignore[arg-type]
    found = look_at(run(*CIRCLE, *pair, behind))
    check(found, "cycle", (), certain=False)
    assert found.waiting == 10


def test_in_nested_groups_the_root_of_all_waiting_is_odd() -> None:
    ranks = [
        *[nested(r, 5, 8, "tp") for r in (0, 2, 3)],
        nested(1, 4, 8, stack=LOAD),
        nested(4, 5, 9, "dp"),
        nested(5, 5, 9, "dp"),
        *[nested(r, 5, 9, "dp") for r in (6, 7)],
    ]
    ranks = [ranks[0], ranks[3], ranks[1], ranks[2], *ranks[4:]]
    found = look_at(run(*ranks))
    says = (
        "3 of 8 ranks have waited 4 min in all_reduce #5 (float32[1024]) of tp, and 4 in other "
        "calls; rank 1 (node 0, gpu-15) has not called it: it is in load_batch (hang.py:3)"
    )
    check(found, "behind", (1,), certain=True, says=says)


# ---- different ----------------------------------------------------------------------------------


def test_another_size_under_the_same_number_differs() -> None:
    found = look_at(run(*with_one(EIGHT, 3, waits(what="float32[4096]"))))
    says = (
        "rank 3 (node 1, gpu-16) calls all_reduce with float32[4096] as #21 of default_pg, the "
        "others all_reduce with float32[1024]: the programs differ there (from flight recorders; "
    )
    check(found, "different", (3,), certain=True, says=says)


def test_another_operation_under_the_same_number_differs() -> None:
    ranks = with_one(EIGHT, 3, waits(operation="gloo:broadcast"))
    says = "calls broadcast as #21 of default_pg, the others all_reduce: the programs differ there"
    check(look_at(run(*ranks)), "different", (3,), certain=True, says=says)
    two = with_one(ranks, 2, waits(operation="broadcast"))
    says = "ranks 2-3 (node 1, gpu-16) call broadcast as"
    check(look_at(run(*two)), "different", (2, 3), certain=True, says=says)
    found = look_at(without(run(*ranks), [0]))
    check(found, "different", (3,), certain=False)


def test_where_half_calls_another_none_is_blamed() -> None:
    ranks = [*EIGHT[:4], *[waits(what="float32[4096]")] * 4]
    says = "as #21 of default_pg call ranks 0-3 all_reduce with float32[1024], ranks 4-7 all_reduce"
    check(look_at(run(*ranks)), "different", (), certain=True, says=says)
    three = [*EIGHT[:6], waits(operation="barrier"), waits(operation="gather")]
    check(look_at(run(*three)), "different", (), certain=True)


def test_one_that_is_past_it_with_another_operation_differs() -> None:
    calls = [
        Call(number=21, operation="broadcast", what="int64[1]", age=241.0),
        Call(number=22, operation="all_reduce", what="float32[1024]", age=240.0),
    ]
    ahead = One((ProcessGroup(name="0", called=22, ended=21, calls=calls),), REDUCE)
    found = look_at(run(*with_one(EIGHT, 3, ahead)))
    check(found, "different", (3,), certain=True, says="calls broadcast as #21")


@pytest.mark.parametrize("operation", ["all_gather", "gather", "scatter", "all_to_all", "barrier"])
def test_some_collectives_may_differ_in_their_sizes(operation: str) -> None:
    ranks = [waits(what=f"uint8[{n}]", operation=operation) for n in range(8)]
    check(look_at(run(*ranks)), "all_inside", (), certain=True)


def test_a_size_that_is_not_known_does_not_differ() -> None:
    check(look_at(run(*with_one(EIGHT, 3, waits(what="")))), "all_inside", (), certain=True)


# ---- all inside ---------------------------------------------------------------------------------


def test_what_all_have_called_is_held_from_below() -> None:
    found = look_at(run(*EIGHT))
    says = (
        "all 8 ranks are in all_reduce #21 (float32[1024]) of default_pg, for 4 min: all of "
        f"its members have called it; the network, a device or the library holds it{FROM_BOTH}"
    )
    check(found, "all_inside", (), certain=True, says=says)
    assert "Xid" in found.next_step
    check(look_at(run(waits())), "all_inside", (), certain=True, says="the only rank is in")


def test_ranks_that_others_wait_for_may_be_held_in_a_smaller_group() -> None:
    tp = {"name": "5", "words": "tp", "members": "0-1"}
    pair = [One((group(20, 20), group(9, **tp)), REDUCE)] * 2  # type: ignore[arg-type]
    found = look_at(run(*pair, *EIGHT[2:]))
    says = (
        "ranks 0-1 (node 0, gpu-15) are in all_reduce #9 (float32[1024]) of tp, for 4 min: all of "
        "its members have called it; the network, a device or the library holds it; 6 others wait "
        "in other calls (from"
    )
    check(found, "all_inside", (), certain=True, says=says)


def test_several_held_groups_are_not_certain() -> None:
    ranks = [
        waits(name=f"t{r // 2}", words="tp", members=f"{r // 2 * 2}-{r // 2 * 2 + 1}")
        for r in range(8)
    ]
    check(
        look_at(run(*ranks)), "all_inside", (), certain=False, says="6 others wait in other calls"
    )


# ---- messages that recorders have ---------------------------------------------------------------


def message(me: int, text: str) -> One:
    call = Call(number=4, operation=f"nccl:{text}", what="float16[8]", age=100.0, done=False)
    calls = [Call(number=20, operation="nccl:all_reduce", age=150.0, done=True), call]
    found = ProcessGroup(
        name="0", words="default_pg", members="0-3", called=20, ended=-1, calls=calls
    )
    return One((found,), LINE)


def test_a_pipeline_that_is_recorded_leads_to_the_one_that_sends_nothing() -> None:
    ranks = [
        late(20, stack=LOAD, age=150),
        message(1, "recv 1<-0"),
        message(2, "recv 2<-1"),
        message(3, "recv 3<-2"),
    ]
    ranks[0] = message(0, "send 0->1").but(stack=LOAD)
    done = ranks[0].groups[0].model_copy(update={"calls": ranks[0].groups[0].calls[:1]})
    ranks[0] = ranks[0].but(groups=(done,))
    found = look_at(run(*ranks))
    says = (
        "rank 1 has waited 100 s in a send or receive of default_pg, and 2 in other calls; rank 0 "
        "(node 0, gpu-15) has not called it: it is in load_batch (hang.py:3)"
    )
    check(found, "behind", (0,), certain=True, says=says)


def test_a_message_that_both_ends_have_called_is_held_from_below() -> None:
    ranks = [message(0, "send 0->1"), message(1, "recv 1<-0")]
    found = look_at(run(*ranks))
    check(found, "all_inside", (), certain=False, says="rank 0 (node 0, gpu-15) is in a send or")
    ring = [message(0, "recv 0<-1"), message(1, "recv 1<-2"), message(2, "recv 2<-0")]
    check(look_at(run(*ring)), "cycle", (), certain=False)
    check(
        look_at(run(message(0, "recv"), message(1, "recv 1<-9"))), "all_inside", (), certain=False
    )


# ---- stacks alone -------------------------------------------------------------------------------


def test_without_a_recorder_the_one_outside_of_the_collective_is_odd() -> None:
    ranks = with_one([NO_RECORDER] * 8, 5, NO_RECORDER.but(stack=LOAD))
    found = look_at(run(*ranks))
    says = (
        f"7 of 8 ranks are in all_reduce; {FIVE} is not: it is in load_batch (hang.py:3); one look "
        "does not show whether this lasts (from stacks; all 8 ranks answered)"
    )
    check(found, "odd_stack", (5,), certain=False, says=says)
    found = look_at(later(10, *ranks), run(*ranks))
    check(found, "odd_stack", (5,), certain=False, says="; it was so in the look 10 s before (")
    lost = with_one(ranks, 0, NO_RECORDER.but(stack=None))
    check(look_at(run(*lost)), "odd_stack", (), certain=False, says="not all stacks were read")
    found = look_at(without(run(*ranks[:7]), [0]))  # which ranks slot 0 has is not known
    check(found, "odd_stack", (), certain=False, says="not all stacks were read")


def test_of_a_pipeline_that_is_not_recorded_the_one_that_does_not_receive_is_odd() -> None:
    ranks = with_one([NO_RECORDER.but(stack=RECV)] * 4, 0, NO_RECORDER.but(stack=LOAD))
    check(look_at(run(*ranks)), "odd_stack", (0,), certain=False, says="3 of 4 ranks are in recv")


def test_a_stack_that_changes_moves() -> None:
    ranks = with_one([NO_RECORDER] * 8, 5, NO_RECORDER.but(stack=LOAD))
    before = with_one(ranks, 5, NO_RECORDER.but(stack=FORWARD))
    says = "not stuck: rank 5 has moved since the look before; it is in load_batch"
    check(look_at(later(10, *ranks), run(*before)), "moving", (), certain=False, says=says)
    after = [NO_RECORDER.but(stack=GATHER)] * 8
    says = "not stuck: ranks 0-7 have moved since the look before (from stacks"
    check(look_at(later(10, *after), run(*ranks)), "moving", (), certain=False, says=says)


def test_several_outside_of_it_are_odd_at_one_place_only() -> None:
    outside = NO_RECORDER.but(stack=LOAD)
    ranks = with_one(with_one([NO_RECORDER] * 8, 5, outside), 6, outside)
    says = "ranks 5, 6"
    found = look_at(run(*ranks))
    check(found, "odd_stack", (5, 6), certain=False, says="are not: they are in load_batch")
    assert says not in found.sentence
    other = with_one(ranks, 6, NO_RECORDER.but(stack=SAVE))
    says = "rank 6 is elsewhere too, so none is blamed"
    check(look_at(run(*other)), "odd_stack", (), certain=False, says=says)
    most = [*[NO_RECORDER] * 5, *[outside] * 3]
    check(look_at(run(*most)), "odd_stack", (), certain=False)


def test_different_waits_of_all_ranks_say_nothing() -> None:
    ranks = [*[NO_RECORDER] * 3, NO_RECORDER.but(stack=RECV)]
    says = "all 4 ranks are in all_reduce, recv: which one waits for which is not recorded"
    check(look_at(run(*ranks)), "unclear", (), certain=False, says=says)
    lost = [*ranks, NO_RECORDER.but(stack=None)]
    check(look_at(run(*lost)), "unclear", (), certain=False, says="where rank 4 is was not seen")


def test_where_nothing_distinguishes_a_rank_the_places_are_said() -> None:
    ranks = [NO_RECORDER.but(stack=stack) for stack in (LOAD, FORWARD, FORWARD, SAVE, LINE)]
    says = (
        "nothing distinguishes a rank: the ranks are in 4 places: ranks 1-2 are in forward "
        "(model.py:10); rank 0 is in load_batch (hang.py:3); rank 3 is in save (ckpt.py:8) and 1 "
        "more (from stacks"
    )
    check(look_at(run(*ranks)), "unclear", (), certain=False, says=says)
    check(look_at(run(NO_RECORDER)), "unclear", (), certain=False)  # one waits for no other rank


def test_where_nothing_distinguishes_a_rank_it_is_said_what_has_moved() -> None:
    ranks = [NO_RECORDER.but(stack=stack) for stack in (LOAD, FORWARD, FORWARD)]
    before = run(*ranks)
    says = "; nothing has moved for 6.0 s (from stacks"
    check(look_at(later(6, *ranks), before), "unclear", (), certain=False, says=says)
    for moved, who in (((1,), "rank 1 has"), ((1, 2), "ranks 1-2 have")):
        after = [one.but(stack=SAVE) if n in moved else one for n, one in enumerate(ranks)]
        says = f"; {who} moved since the look before (from stacks"
        check(look_at(later(6, *after), before), "unclear", (), certain=False, says=says)
    lost = with_one(ranks, 0, NO_RECORDER.but(stack=None))
    assert "moved" not in look_at(later(6, *lost), before).sentence
    assert "moved" not in look_at(before).sentence


# ---- nothing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        (
            [One((), None, "absent", stage="unknown")] * 2,
            "no hook runs in the ranks: --look off, or COMMAND is not a Python program",
        ),
        (
            [One((), None, "silent", stage="unknown")] * 2,
            "no rank answered: each may hold Python's global lock, or be stopped",
        ),
        (
            [One((), None, "absent", "", "unknown", {"pid": 0})] * 2,
            "no process of a rank was found",
        ),
    ],
)
def test_why_nothing_is_known_is_said(ranks: list[One], why: str) -> None:
    found = check(look_at(run(*ranks)), "nothing", (), certain=False)
    assert found.sentence == f"where the ranks are is not known: {why}"
    assert found.silent == (0, 1)


def test_the_nodes_own_words_are_said() -> None:
    look = run(*[One((), None, "absent")] * 4)
    nodes = []
    for node in look.nodes:
        assert node.report is not None
        report = node.report.model_copy(update={"words": "--look off", "ranks": []})
        nodes.append(node.model_copy(update={"report": report}))
    found = look_at(look.model_copy(update={"nodes": [*nodes, NodeLook(slot=3), NodeLook(slot=4)]}))
    assert found.sentence == "where the ranks are is not known: --look off; 2 nodes did not answer"
    found = look_at(RunLook(number=1, nodes=[NodeLook(slot=3)]))
    assert found.sentence == "where the ranks are is not known: 1 node did not answer"
    assert found.silent_nodes == (3,)
    assert look_at(RunLook(number=0)).sentence.endswith("no node has looked yet")


# ---- groups of equal stacks ---------------------------------------------------------------------


def test_stacks_are_grouped_the_odd_ones_first() -> None:
    ranks = with_one(with_one(BEHIND, 1, waits(stack=GATHER)), 2, waits(stack=None))
    found = groups_of(run(*ranks))
    frames = [stack.frames[0].function if stack else None for _, stack in found]
    assert frames == ["load_batch", "all_gather_object", None, "all_reduce"][:1] + frames[1:]
    assert [group for group, _ in found] == [(5,), (1,), (2,), (0, 3, 4, 6, 7)]
    assert groups_of(RunLook(number=0)) == []


def test_where_none_is_odd_those_that_do_not_wait_come_first() -> None:
    ranks = [*[waits(age=0.1)] * 2, *[late(age=0.2, stack=FORWARD)] * 3, waits(stack=torch("x"))]
    assert [group for group, _ in groups_of(run(*ranks))] == [(2, 3, 4), (5,), (0, 1)]


def test_a_stack_number_that_does_not_exist_is_no_stack() -> None:
    found = look_at(run(*with_one(EIGHT, 5, late().but(more={"stack": 9}))))
    check(found, "behind", (5,), certain=False, says="where it is was not seen")


# ---- control groups -----------------------------------------------------------------------------


def test_what_holds_nodes_back_is_told_beside_the_verdict() -> None:
    held = "its control group /g is frozen, as by 'docker pause': no process in it runs"
    looked, plain = run(*BEHIND), look_at(run(*BEHIND))
    for node in (looked.nodes[1], looked.nodes[3]):
        assert node.report is not None
        node.report.held_back.append(held)
    slots = [f"node {looked.nodes[number].node}" for number in (1, 3)]
    found = look_at(looked)
    assert found == replace(plain, sentence=f"{plain.sentence}; {slots[0]}, {slots[1]}: {held}")
