"""What may be concluded from a program's children: what ends a run, what warns, what is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.test_frameworks import even, of
from worker.contracts import FRAMEWORKS
from worker.contracts.words import end_by_torchrun
from worker.program.ending import (
    Ending,
    LeftBehind,
    code_words,
    signal_name,
    with_told_end,
    with_told_rank,
)
from worker.program.family import (
    Child,
    Failure,
    Family,
    Ranks,
    ToldEnd,
    certain_failure,
    failed_rank,
    late_to_end,
    likely_cause,
    pids_by_local_rank,
    ranks_in,
)

ENDS_ALL = {"torchrun", "torch.distributed.launch", "accelerate", "env", "jax", "horovod", "bench"}
"""The frameworks whose launcher on a node starts its ranks itself and ends all when one fails."""

OF_THE_PLATFORM = {"RANK": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}


def child(
    pid: int,
    ranks: Ranks | None = None,
    ended_at: float | None = None,
    code: int | None = None,
    started: float = 10.0,
) -> Child:
    return Child(pid, started, started, ranks, ended_at, code)


def rank(local_rank: int, ended_at: float | None = None, code: int | None = None) -> Child:
    """A rank of node 1 of two with two ranks each."""
    return child(100 + local_rank, Ranks(2 + local_rank, local_rank, 2), ended_at, code)


def helper(ended_at: float, code: int = 18, ranks: Ranks | None = None, **more: float) -> Child:
    return child(50, ranks, ended_at, code, **more)


HEALTHY = (rank(0), rank(1))
INHERITED = Ranks(1, 0, 1)
OF_A_HELPER = Ranks(0, 0, 1)
ONE_ENDED = (rank(0, 30.0, 0), rank(1))
BEFORE, AFTER = Ranks(0, 0, 2), Ranks(1, 1, 2)

NOISE: Mapping[str, tuple[Child, ...]] = {
    "a helper fails beside the ranks": (*HEALTHY, helper(10.1)),
    "a helper fails while ranks start": (rank(0), helper(10.1)),
    "a helper fails before any rank is there": (helper(9.0, started=9.0),),
    "a helper is killed": (*HEALTHY, helper(12.0, 137)),
    "a helper is missing": (*HEALTHY, helper(10.0, 127)),
    "several helpers fail": (*HEALTHY, helper(10.1), child(51, None, 10.2, 1)),
    "a rank forks twice, and the one between ends": (*HEALTHY, child(52, None, 11.0, 0)),
    "a helper inherits its parent's ranks and fails": (*HEALTHY, helper(10.1, 1, INHERITED)),
    "one inherits, and a rank ends well after it": (*ONE_ENDED, helper(10.1, 1, INHERITED)),
    "helpers share their ranks": (helper(10.1, 1, OF_A_HELPER), child(51, OF_A_HELPER, 10.2, 1)),
    "a helper is given the ranks of a rank": (*ONE_ENDED, helper(10.1, 1, Ranks(3, 1, 2))),
    "a helper is given the local rank of one": (*ONE_ENDED, helper(10.1, 1, Ranks(7, 1, 2))),
    "two helpers with ranks in turn": (helper(10.1, 1, BEFORE), child(51, AFTER, 12.0, 1, 11.0)),
    "ranks end well one after the other": (rank(0, 20.0, 0), rank(1, 50.0, 0)),
    "a rank ends well, and nobody reads the other's code": (rank(0, 20.0, 0), rank(1, 50.0)),
    "a rank fails and no other ends": (rank(0), rank(1, 20.0, 3)),
    "a rank fails after another has ended well": (rank(0, 19.0, 0), rank(1, 20.0, 3)),
    "a rank fails after one that ended unread": (rank(0, 19.0), rank(1, 20.0, 3)),
}

FAILED = (rank(0, 20.1, 143), rank(1, 20.0, 3))
RANK_3 = Failure(20.0, 101, 3, 3, 1)


def facts(framework: str, environ: Mapping[str, str]) -> tuple[Ranks | None, bool]:
    """The ranks that its program is given, and whether its launcher ends all ranks."""
    made = of(framework, "train.py", sealed=even(), environ=environ)
    return ranks_in(made.environment(environ)), made.fatal_workers


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_noise_and_a_failed_rank_where_the_launcher_ends_all_of_them_ends_a_framework(
    framework: str,
) -> None:
    for environ in ({}, OF_THE_PLATFORM):
        own, ends_all = facts(framework, environ)
        families = {name: Family(own or INHERITED, noise) for name, noise in NOISE.items()}
        ended = [name for name, f in families.items() if certain_failure(f, ends_all=ends_all)]
        assert ended == []
    own, ends_all = facts(framework, {})
    assert (own, ends_all) == (None, framework in ENDS_ALL)
    found = certain_failure(Family(own, FAILED), ends_all=ends_all)
    assert found == (RANK_3 if ends_all else None)


# --- what ends a run ------------------------------------------------------------------------------

LATE = replace(rank(0, 20.2, 143), started=20.1, seen_at=20.1)
AGAIN = replace(rank(1), pid=200, started=21.0, seen_at=21.0)


@pytest.mark.parametrize(
    ("children", "certain"),
    [
        # The other rank counts, however it ended, if it was there before.
        ((rank(0, 20.1, 0), FAILED[1]), RANK_3),
        (FAILED, RANK_3),
        ((rank(0, 20.1), FAILED[1]), RANK_3),
        ((LATE, FAILED[1]), None),
        # A rank that was started again may go on.
        ((*FAILED, AGAIN), None),
        # Of two that failed the first is the cause.
        ((rank(0, 20.0, 7), rank(1, 20.5, 3)), Failure(20.0, 100, 7, 2, 0)),
    ],
)
def test_a_rank_that_another_one_follows_is_certain(
    children: tuple[Child, ...], certain: Failure | None
) -> None:
    assert certain_failure(Family(None, children), ends_all=True) == certain


families = st.lists(
    st.builds(
        lambda pid, ranks, start, lived, code: Child(
            pid, start, start, ranks, None if lived is None else start + lived, code
        ),
        st.integers(1, 9),
        st.none() | st.builds(Ranks, st.integers(0, 3), st.integers(0, 2), st.integers(0, 3)),
        st.integers(0, 9).map(float),
        st.none() | st.integers(0, 9).map(float),
        st.none() | st.sampled_from([0, 1, 18, 137]),
    ),
    max_size=6,
    unique_by=lambda each: each.pid,
).map(
    lambda children: tuple(each for each in children if (each.ended_at or 0) or not each.exit_code)
)


@given(families, st.none() | st.just(Ranks(0, 0)), st.booleans())
def test_of_any_family_only_a_rank_of_its_own_followed_by_another_is_certain(
    children: tuple[Child, ...], own: Ranks | None, ends_all: bool
) -> None:
    found = certain_failure(Family(own, children), ends_all=ends_all)
    if found is None:
        return
    assert ends_all
    (failed,) = (each for each in children if each.pid == found.pid)
    assert failed.exit_code
    assert failed.ranks is not None
    assert own is None or failed.ranks.pair != own.pair
    others = [
        each
        for each in children
        if each is not failed and each.ranks and not (own and each.ranks.pair == own.pair)
    ]
    assert all(failed.ranks.rank != o.ranks.rank for o in others if o.ranks)
    assert all(failed.ranks.local_rank != o.ranks.local_rank for o in others if o.ranks)
    assert any(each.ended_at is not None and each.ended_at > found.ended_at for each in others)


# --- who is late ----------------------------------------------------------------------------------


def test_a_rank_is_late_when_others_ended_well_ten_seconds_ago() -> None:
    family = Family(None, (rank(0, 20.0, 0), rank(1), child(50)))
    assert late_to_end(family, 29.9) == ()
    assert late_to_end(family, 30.0) == (3,)


@pytest.mark.parametrize(
    "children",
    [
        HEALTHY,
        (rank(0, 20.0, 3), rank(1)),
        (rank(0, 20.0), rank(1)),
        (rank(0, 20.0, 0), rank(1, 21.0, 0), child(60)),
        (rank(0), helper(20.0, 0)),
        (rank(0), helper(20.0, 0, INHERITED)),
    ],
    ids=["none ended", "failed", "unread", "all ended", "a helper ended", "inherited ranks"],
)
def test_nobody_is_late_otherwise(children: tuple[Child, ...]) -> None:
    assert late_to_end(Family(INHERITED, children), 100.0) == ()


# --- what is warned of and named ------------------------------------------------------------------

UNREAD = child(101, None, 10.2, 3)
THIRD = child(102, Ranks(4, 2, 3), 10.4, 143)
FIRST = child(100, Ranks(2, 0, 3), 10.3, 143)
UNKNOWN = [replace(FIRST, ranks=Ranks(2, 0)), replace(THIRD, ranks=Ranks(4, 2))]
BY_READING = Failure(10.2, 101, 3, 3, 1)
NO_RANK = Failure(10.2, 101, 3)
TOLD_TO_END = Failure(10.3, 100, 143, 2, 0)
RANK_2 = Failure(20.0, 100, 143, 2, 0)


@pytest.mark.parametrize(
    ("children", "warned", "likely"),
    [
        # A failed rank is known before the others end, and a helper that failed before no cause.
        ((rank(0), rank(1, 20.0, 3)), RANK_3, RANK_3),
        ((helper(10.1), *FAILED), RANK_3, RANK_3),
        ((helper(10.1, 1, INHERITED),), None, Failure(10.1, 50, 1)),
        ((rank(0), rank(1, 20.0, 3), AGAIN), None, Failure(20.0, 101, 3)),
        # Nobody is blamed when a rank had ended unread before.
        ((rank(0, 19.0), rank(1, 20.0, 3), helper(21.0)), None, None),
        # After the end, a rank that was never read is the one whom the others lack, also where
        # these were told to end; who may be no rank is not named as one.
        ((rank(0), UNREAD), None, BY_READING),
        ((FIRST, THIRD, UNREAD), TOLD_TO_END, BY_READING),
        ((*UNKNOWN, UNREAD), TOLD_TO_END, NO_RANK),
        ((*HEALTHY, UNREAD), None, NO_RANK),
        ((rank(0), UNREAD, child(60)), None, NO_RANK),
        ((child(100, Ranks(2, 0, 0)), UNREAD), None, NO_RANK),
        ((rank(0), replace(UNREAD, started=10.6)), None, NO_RANK),
        ((rank(0), UNREAD, helper(10.1)), None, Failure(10.1, 50, 18)),
        # Of those that were seen to have ended at one time, who was told to end comes after.
        ((rank(0, 20.0, 143), rank(1, 20.0, 3)), RANK_3, RANK_3),
        ((rank(0, 20.0, 143), helper(20.0, started=12.0)), RANK_2, Failure(20.0, 50, 18)),
        # Who was told to end is named where nothing failed before.
        ((rank(0, 20.0, 143), rank(1, 20.1, 143), helper(21.0)), RANK_2, RANK_2),
    ],
)
def test_who_is_warned_of_and_who_is_named_after_the_end(
    children: tuple[Child, ...], warned: Failure | None, likely: Failure | None
) -> None:
    family = Family(INHERITED, children)
    assert failed_rank(family) == warned
    assert likely_cause(family) == likely


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ("", None),
        ("RANK=3", None),
        ("LOCAL_RANK=1 LOCAL_WORLD_SIZE=2", None),
        ("RANK=3 LOCAL_RANK=1", Ranks(3, 1)),
        ("RANK=3 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2", Ranks(3, 1, 2)),
        ("RANK=three LOCAL_RANK=1", None),
    ],
)
def test_ranks_are_read_where_both_are_numbers(environ: str, expected: Ranks | None) -> None:
    assert ranks_in(dict(word.split("=") for word in environ.split())) == expected


# --- how a program ended, and what is said of it --------------------------------------------------


RANK = Failure(ended_at=3.0, pid=71, exit_code=7, rank=5, local_rank=1)
HELPER = Failure(ended_at=2.0, pid=72, exit_code=1)
KILLED = Failure(ended_at=3.0, pid=73, exit_code=137, rank=2, local_rank=0)
ELSEWHERE = "rdzv did not send this signal"
KEEPER = "SIGKILL killed the program's keeper, and rdzv ended what was left of the program"
KEEPER_ELSEWHERE = KEEPER.replace(" killed", ", which rdzv did not send, killed", 1)
THEN = "then the program ended with exit code 1"
RANK_FIRST = f"process 71 (rank 5) ended first with exit code 7, {THEN}"
HELPER_FIRST = f"process 72 ended first with exit code 1, {THEN}"
KILLED_FIRST = f"process 73 (rank 2) ended first with exit code 137 (SIGKILL), {THEN}"
BY_SIGKILL = "the program ended with exit code 137 (SIGKILL)"


@pytest.mark.parametrize(
    ("ending", "reason", "more", "began"),
    [
        (Ending(0, 4.0), "the program ended with exit code 0", "", 4.0),
        (Ending(143, 4.0), "the program ended with exit code 143 (SIGTERM)", "", 4.0),
        (Ending(137, 4.0), f"{BY_SIGKILL}; {ELSEWHERE}", ELSEWHERE, 4.0),
        (Ending(137, 4.0, was_told=True), BY_SIGKILL, "", 4.0),
        (Ending(137, 4.0, keeper_signal=9, was_told=True), KEEPER, KEEPER, 4.0),
        (Ending(137, 4.0, keeper_signal=9), KEEPER_ELSEWHERE, KEEPER_ELSEWHERE, 4.0),
        (Ending(1, 4.0, RANK), RANK_FIRST, "", 3.0),
        (Ending(1, 4.0, HELPER), HELPER_FIRST, "", 4.0),  # it may have failed long before
        (Ending(1, 4.0, KILLED), f"{KILLED_FIRST}; {ELSEWHERE}", ELSEWHERE, 3.0),
    ],
)
def test_an_ending_is_one_sentence_and_what_it_says_beside_the_code_another(
    ending: Ending, reason: str, more: str, began: float
) -> None:
    assert (ending.reason, ending.more_than_code) == (reason, more)
    assert ending.began_to_fail_at == began
    assert ending.failed_rank == (ending.first_failure if began == 3.0 else None)


def test_what_was_left_is_named_and_counted() -> None:
    left = LeftBehind(3, ((71, 12, "python train.py"), (72, 0, "sleep")))
    assert left.words() == (
        "the program ended with exit code 0 and left 3 of its processes running, which rdzv "
        "now ends: pid 71 (python train.py, 12 s old), pid 72 (sleep, 0 s old), and 1 more"
    )
    assert LeftBehind(1, ((71, 1, "sleep"),)).words().endswith("ends: pid 71 (sleep, 1 s old)")


@pytest.mark.parametrize(
    ("number", "name"), [(15, "SIGTERM"), (9, "SIGKILL"), (0, ""), (-3, ""), (200, "")]
)
def test_a_signal_has_its_name_if_there_is_one(number: int, name: str) -> None:
    assert signal_name(number) == name


def test_a_code_is_told_with_its_signal() -> None:
    assert (code_words(2), code_words(139)) == ("exit code 2", "exit code 139 (SIGSEGV)")


REPORT = """\
Failures:
[1]:
  rank      : 3 (local_rank: 1)
  exitcode  : -15 (pid: 101)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 2 (local_rank: 0)
  exitcode  : {} (pid: 100)
"""
"""As torchrun 2.13 ends."""
MISSED = Family(None, (rank(0, 20.0), rank(1, 21.0, 143)))
"""torchrun has reaped the rank that failed before its exit code could be read."""


@pytest.mark.parametrize(("at", "known"), [(20.0, None), (21.0, None), (21.5, 101)])
def test_a_failure_is_the_first_if_no_end_until_then_was_missed(at: float, known: int) -> None:
    """Both may have ended between two looks."""
    found = likely_cause(Family(None, (rank(0, at), rank(1, 21.0, 3))))
    assert (found and found.pid) == known


def test_the_end_of_a_rank_that_was_reaped_unread_is_torchruns_word_for_it() -> None:
    ending = Ending(1, 22.0, likely_cause(MISSED))
    assert ending.first_failure is None
    told = end_by_torchrun(REPORT.format(7).splitlines())
    assert with_told_end(ending, MISSED, told).failed_rank == Failure(20.0, 100, 7, 2, 0)
    told = end_by_torchrun(REPORT.format(-9).splitlines())
    assert with_told_end(ending, MISSED, told).failed_rank == Failure(20.0, 100, 137, 2, 0)


def test_torchruns_word_gives_the_ranks_of_a_process_that_ended_before_they_could_be_read() -> None:
    unread = Family(None, (child(100, None, 20.0, 2),))
    ending = Ending(1, 22.0, likely_cause(unread))
    assert (ending.first_failure, ending.failed_rank) == (Failure(20.0, 100, 2), None)
    told = end_by_torchrun(REPORT.format(2).splitlines())
    assert told == ToldEnd(100, 2, Ranks(2, 0))
    assert with_told_end(ending, unread, told).failed_rank == Failure(20.0, 100, 2, 2, 0)


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        (Ending(1, 22.0), None),
        (Ending(1, 22.0), ToldEnd(55, 7, Ranks(2, 0))),  # of no child
        (Ending(0, 22.0), ToldEnd(100, 7)),
        (Ending(1, 22.0, was_told=True), ToldEnd(100, 7)),
        (Ending(1, 22.0, Failure(19.0, 101, 3)), ToldEnd(100, 7)),
        (Ending(1, 22.0, Failure(19.0, 100, 3, 2, 0)), ToldEnd(100, 7)),
    ],
)
def test_where_that_explains_nothing_it_stays_as_it_was(
    ending: Ending, told: ToldEnd | None
) -> None:
    assert with_told_end(ending, MISSED, told) == ending


def test_a_rank_that_ended_after_the_first_is_not_named_in_its_place() -> None:
    """The first one had ended before anything could be read of it, and its starter told of it."""
    seen = Ending(1, 22.0, Failure(21.0, 101, 143, 0, 0))
    assert with_told_rank(seen, 1) == Ending(1, 22.0)
    assert with_told_rank(seen, 0) == with_told_rank(seen, None) == seen
    stopped = replace(seen, was_told=True)
    assert with_told_rank(stopped, 1) == stopped
    assert with_told_rank(Ending(1, 22.0), 1) == Ending(1, 22.0)


def test_what_was_read_is_not_what_somebody_prints() -> None:
    read = Family(None, (rank(0, 20.0, 5), rank(1)))
    assert with_told_end(Ending(1, 22.0), read, ToldEnd(100, 7)).first_failure == Failure(
        20.0, 100, 5, 2, 0
    )
    assert end_by_torchrun(["exitcode: 7", "exitcode  : 7"]) is None


# --- which process is which rank ------------------------------------------------------------------


def test_the_processes_of_the_ranks_are_those_that_the_keeper_knows() -> None:
    family = Family(None, (rank(0), rank(1), Child(7, 0.0, 0.0)))
    assert pids_by_local_rank(family, 5, 3) == {0: 100, 1: 101, 2: None}


def test_a_program_that_is_a_rank_itself_is_its_only_one() -> None:
    assert pids_by_local_rank(Family(), 5, 1) == {0: 5}
    assert pids_by_local_rank(Family(), None, 1) == {0: None}
    assert pids_by_local_rank(Family(), 5, 2) == {0: None, 1: None}
