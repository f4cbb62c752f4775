"""Lines that rdzv writes into a program's output are no evidence; a program's own are."""

from __future__ import annotations

import argparse
import contextlib
import io
import signal
from typing import Any

import pytest

from rendezvous.cause.clues import LOGGED, Line, find_clues
from rendezvous.cause.lines import Tells, is_ours, last_line, not_started, tells
from rendezvous.cause.seen import NodeSeen
from rendezvous.cause.sentences import sentence_of
from rendezvous.wire.reports import ExitReport
from tests.rendezvous.cause.verdicts import judged_of
from worker.contracts.words import last_words
from worker.program.process_table import Process, still_there
from worker.programs.processes import Processes, main

FIRST = "rdzv: process 1 (local rank 0) failed first, with exit code 3"
NESTED = "rdzv: run 'inner' failed: node 0 (vm) failed: rank 1 ended with exit code 9"


def said_by_the_starter(code: int) -> str:
    """What the starter itself says of a process that has failed so."""
    grace: Any = argparse.Namespace(rank=0, processes=2, grace=0.0, command=["x"])
    starter = Processes(grace)
    with contextlib.redirect_stderr(io.StringIO()) as err:
        starter._ended(1, argparse.Namespace(pid=1), code)
    return err.getvalue().strip()


@pytest.mark.parametrize("code", [3, -signal.SIGKILL])
def test_what_the_starter_says_of_a_failure_is_ours(code: int) -> None:
    assert is_ours(said_by_the_starter(code))


def test_what_the_starter_says_of_a_store_and_of_a_program_is_ours(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("worker.programs.processes.await_store", lambda host, port: False)
    common = ["--rank", "0", "--processes", "1", "--world", "1", "--node", "0", "--grace", "0"]
    assert main([*common, "--store", "10.0.0.1:7", "--", "x"]) == 1
    assert is_ours(capfd.readouterr().err.strip())


def test_what_the_keeper_says_is_ours() -> None:
    left = [Process(7, 1, 7, "D", 0, 0)]
    assert is_ours(f"rdzv: {still_there(left)}")
    assert is_ours("rdzv: 'train' is not started: another node may have this one's place")


@pytest.mark.parametrize(
    "line",
    [
        NESTED,
        "rdzv: my own words",
        "rdzv: process group failed first",
        f"step 3: {FIRST}",
        "rdzv rsh: node 1 has refused it",
    ],
)
def test_what_only_looks_like_it_is_the_programs(line: str) -> None:
    assert not is_ours(line)
    assert tells(line) is not Tells.NOISE
    assert last_line([line]) == line


def end(*tail: str, code: int = 3) -> str:
    """What is said of a rank that has ended so, after these lines."""
    words = last_words(list(tail))
    report = ExitReport(epoch=1, exit_code=code, rank=1, tail=words)
    judged = judged_of([NodeSeen(0, 100.0, report, failed=True, ranks=range(1, 2))])
    return sentence_of(judged).clause


def test_it_is_never_the_last_line_of_a_program() -> None:
    assert end(FIRST) == "no error of it was seen"
    assert end("almost done", FIRST) == "rank 1's last line was 'almost done'"
    assert end(FIRST, "almost done") == "rank 1's last line was 'almost done'"
    assert end("rdzv: my own words", FIRST) == "rank 1's last line was 'rdzv: my own words'"
    assert end(NESTED, FIRST) == f"rank 1's last error was '{NESTED}'"


def test_an_error_before_a_programs_own_words_is_still_its_error() -> None:
    """Such words are no launcher's, after which nothing of a rank would come."""
    lines = ["rdzv: my own words", "ERROR: no more data", FIRST]
    (clue,) = find_clues(Line(text) for text in lines)
    assert (clue.id, clue.line) == (LOGGED, "ERROR: no more data")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rdzv: cannot start './x': Permission denied", "cannot start './x': Permission denied"),
        (
            "rdzv: './x' cannot be started: No such file or directory",
            "'./x' cannot be started: No such file or directory",
        ),
    ],
)
def test_a_program_that_could_not_be_started_has_said_nothing(line: str, words: str) -> None:
    assert is_ours(line)
    assert not_started(["a", line]) == words
    assert end(line, code=126) == words


def test_nothing_else_says_that_it_could_not_be_started() -> None:
    assert not_started([FIRST, "cannot start 'x': no"]) == ""
