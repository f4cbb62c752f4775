"""How a program ended, and what is said of it."""

from __future__ import annotations

import pytest

from worker.program.ending import Ending, LeftBehind, code_words, signal_name
from worker.program.family import Failure

RANK = Failure(ended_at=3.0, pid=71, exit_code=7, worker_rank=5, local_rank=1)
HELPER = Failure(ended_at=2.0, pid=72, exit_code=1)
KILLED = Failure(ended_at=3.0, pid=73, exit_code=137, worker_rank=2, local_rank=0)
ELSEWHERE = "the SIGKILL came from elsewhere"
RANK_FIRST = "process 71 (rank 5) ended first with exit code 7"
KILLED_FIRST = "process 73 (rank 2) ended first with exit code 137 (SIGKILL)"
KEEPER = "the program's keeper was killed by SIGKILL and what was left of the program was ended"


@pytest.mark.parametrize(
    ("ending", "reason", "more"),
    [
        (Ending(0, 4.0), "the program ended with exit code 0", ""),
        (Ending(143, 4.0), "the program ended with exit code 143 (SIGTERM)", ""),
        (
            Ending(137, 4.0),
            f"the program ended with exit code 137 (SIGKILL); {ELSEWHERE}",
            ELSEWHERE,
        ),
        (Ending(137, 4.0, was_told=True), "the program ended with exit code 137 (SIGKILL)", ""),
        (Ending(137, 4.0, keeper_signal=9, was_told=True), KEEPER, KEEPER),
        (
            Ending(1, 4.0, RANK),
            f"{RANK_FIRST}, then the program ended with exit code 1",
            "",
        ),
        (
            Ending(1, 4.0, HELPER),
            "process 72 ended first with exit code 1, then the program ended with exit code 1",
            "",
        ),
        (
            Ending(1, 4.0, KILLED),
            f"{KILLED_FIRST}, then the program ended with exit code 1; {ELSEWHERE}",
            ELSEWHERE,
        ),
    ],
)
def test_an_ending_is_one_sentence_and_what_it_says_beside_the_code_another(
    ending: Ending, reason: str, more: str
) -> None:
    assert (ending.reason, ending.more_than_code) == (reason, more)


def test_a_failure_began_with_the_first_rank_and_never_with_a_helper() -> None:
    assert (Ending(1, 4.0, RANK).failed_rank, Ending(1, 4.0, RANK).began_to_fail_at) == (RANK, 3.0)
    assert (Ending(1, 4.0, HELPER).failed_rank, Ending(1, 4.0, HELPER).began_to_fail_at) == (
        None,
        4.0,
    )
    assert Ending(1, 4.0).began_to_fail_at == 4.0


def test_what_was_left_is_named_and_counted() -> None:
    left = LeftBehind(3, ((71, 12, "python train.py"), (72, 0, "sleep")))
    assert left.words() == (
        "the program ended with exit code 0 and left 3 of its processes running, which are now "
        "ended: pid 71 (python train.py, 12 s old), pid 72 (sleep, 0 s old), and 1 more"
    )
    assert LeftBehind(1, ((71, 1, "sleep"),)).words().endswith("ended: pid 71 (sleep, 1 s old)")


@pytest.mark.parametrize(
    ("number", "name"), [(15, "SIGTERM"), (9, "SIGKILL"), (0, ""), (-3, ""), (200, "")]
)
def test_a_signal_has_its_name_if_there_is_one(number: int, name: str) -> None:
    assert signal_name(number) == name


def test_a_code_is_told_with_its_signal() -> None:
    assert (code_words(2), code_words(139)) == ("exit code 2", "exit code 139 (SIGSEGV)")
