"""How a program ended, what is said of it, and of what it left."""

from __future__ import annotations

import pytest

from worker.program.ending import Ending, LeftBehind, code_words, signal_name
from worker.program.family import Failure
from worker.program.keeper import short_command

RANK = Failure(ended_at=3.0, pid=71, exit_code=7, worker_rank=5, local_rank=1)
HELPER = Failure(ended_at=2.0, pid=72, exit_code=1)
KILLED = Failure(ended_at=3.0, pid=73, exit_code=137, worker_rank=2, local_rank=0)
ELSEWHERE = "the SIGKILL came from elsewhere"
KEEPER = "the program's keeper was killed by SIGKILL and what was left of the program was ended"
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


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("/usr/bin/python3.11 -u /job/train.py --api-key s3cret", "python3.11 train.py"),
        ("python -m my.job --token=s3cret", "python -m my.job"),
        ("python -c import|os;|os.system('a.py')", "python"),
        ("bash /job/run.sh s3cret", "bash run.sh"),
        ("curl https://user:s3cret@host/a.py", "curl"),
        ("ray::IDLE|--key|s3cret", "ray::IDLE"),
        ("x\n\x1b[1m", "x"),
        ("/job/" + "x" * 99, "x" * 60),
        ("", "named"),
        ("env PASSWORD=s3cret.py", "env"),
    ],
)
def test_a_command_is_shown_without_the_arguments_that_may_hold_a_secret(
    words: str, shown: str
) -> None:
    argv = [word.replace("|", " ") for word in words.split(" ")]
    assert short_command([*argv, ""], "named") == shown
