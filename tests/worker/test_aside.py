"""Small programs of ours that run in a process of their own."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from worker.machine.aside import Answer, ask

KILL = "import os; os.kill(os.getpid(), {})"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("print(*sys.argv[1:], sep='|')", Answer("a b|-c\n", "")),
        ("sys.exit(3)", Answer("", "asking it ends in 3")),
        ("print('so far', flush=True); 1 / 0", Answer("so far\n", "asking it ends in 1")),
        (KILL.format(11), Answer("", "asking it ends in SIGSEGV")),
        (KILL.format(40), Answer("", "asking it ends in signal 40")),
        ("import pydantic", Answer("", "asking it ends in 1")),  # but see below
    ],
)
def test_what_a_program_says_and_how_it_ends_is_told(
    tmp_path: Path, text: str, answer: Answer
) -> None:
    path = tmp_path / "program.py"
    path.write_text(f"import sys; {text}")
    assert ask(path, "a b", "-c", limit_seconds=60) == answer


@pytest.mark.real_time
@pytest.mark.parametrize("child", ["os.fork()", "0"])
def test_a_program_that_does_not_end_is_killed_and_what_it_leaves_behind_not_waited_for(
    tmp_path: Path, child: str
) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        f"import os, signal, sys; signal.signal(15, signal.SIG_IGN); own = os.getpid(); {child}\n"
        "if own == os.getpid(): sys.stdout.buffer.write(b'so far\\xff'); sys.stdout.flush()\n"
        "signal.pause()"
    )
    answer = ask(path, limit_seconds=1.5)
    left = [each for each in psutil.process_iter() if str(path) in _arguments(each)]
    for each in left:  # which still holds the pipe
        each.kill()
    assert answer == Answer("so far�", "no answer within 1.5 s", is_late=True)
    assert len(left) == (child != "0")


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_without_a_process_there_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    problem = "no process can be started: No such file or directory"
    assert ask(tmp_path / "program.py", limit_seconds=60) == Answer("", problem)


def test_packages_are_there_where_they_are_asked_for_and_nothing_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("print('mine')\n")
    (tmp_path / "program.py").write_text("import json, pydantic")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert ask(tmp_path / "program.py", limit_seconds=60, site=True) == Answer("", "")
