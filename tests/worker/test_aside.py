"""Small programs of ours that run in a process of their own."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from worker.machine.aside import Answer, ask


def program(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text(text)
    return path


def test_a_program_is_given_its_arguments_and_heard(tmp_path: Path) -> None:
    path = program(tmp_path, "import sys; print(*sys.argv[1:], sep='|')")
    assert ask(path, "a b", "-c", limit_seconds=60) == Answer("a b|-c\n", "")


@pytest.mark.parametrize(
    ("ending", "problem"),
    [
        ("sys.exit(3)", "asking it ends in 3"),
        ("1 / 0", "asking it ends in 1"),
        ("import os; os.kill(os.getpid(), 11)", "asking it ends in SIGSEGV"),
        ("import os; os.kill(os.getpid(), 40)", "asking it ends in signal 40"),
    ],
)
def test_how_a_program_ends_is_told_with_what_it_said_before(
    tmp_path: Path, ending: str, problem: str
) -> None:
    path = program(tmp_path, f"import sys; print('so far', flush=True); {ending}")
    assert ask(path, limit_seconds=60) == Answer("so far\n", problem)


def test_a_program_that_does_not_end_is_killed_and_what_it_said_counts(tmp_path: Path) -> None:
    path = program(
        tmp_path,
        "import signal, sys; signal.signal(15, signal.SIG_IGN)\n"
        "sys.stdout.buffer.write(b'so far\\xff'); sys.stdout.flush(); signal.pause()",
    )
    assert ask(path, limit_seconds=5) == Answer("so far�", "no answer within 5 s", is_late=True)


def test_what_the_killed_program_leaves_behind_is_not_waited_for(tmp_path: Path) -> None:
    path = program(
        tmp_path,
        "import os, signal; child = os.fork()\nif child: print(child, flush=True)\nsignal.pause()",
    )
    answer = ask(path, limit_seconds=5)
    child = int(answer.text)  # which still holds the pipe
    try:
        assert answer.problem == "no answer within 5 s"
        assert psutil.pid_exists(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_without_a_process_there_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert ask(tmp_path / "program.py", limit_seconds=60) == Answer(
        "", "no process can be started: No such file or directory"
    )


def test_packages_are_there_for_the_program_that_needs_them_alone(tmp_path: Path) -> None:
    path = program(tmp_path, "import pydantic")
    assert ask(path, limit_seconds=60).problem == "asking it ends in 1"
    assert ask(path, limit_seconds=60, site=True) == Answer("", "")


def test_what_lies_in_the_current_folder_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("print('mine')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    path = program(tmp_path, "import json")
    assert ask(path, limit_seconds=60, site=True) == Answer("", "")
