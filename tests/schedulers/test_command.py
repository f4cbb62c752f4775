"""How a scheduler's commands are run: real programs, their words, their time limit."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from launcher.options import outside_environment
from launcher.schedulers import command
from launcher.schedulers.command import CommandRunner, Said, clean
from rendezvous.wire.errors import SchedulerError
from tests.support.bed import time_out_once
from tests.support.launching import lives
from tests.support.waiting import soon

LIMIT_SECONDS = 20.0


def runner() -> CommandRunner:
    return CommandRunner({"PATH": os.environ["PATH"]})


async def run(script: str, *, stdin: str | None = None) -> Said:
    return await runner().run(["sh", "-c", script], timeout_seconds=LIMIT_SECONDS, stdin=stdin)


async def test_a_command_gets_its_words_without_a_shell() -> None:
    words = ["printf", "%s|", "a b", "$HOME", "*", "'", "", "two\nlines", "한국어 中文"]
    said = await runner().run(words, timeout_seconds=LIMIT_SECONDS)
    assert said == Said(0, "a b|$HOME|*|'||two\nlines|한국어 中文|", "")


async def test_a_command_has_only_the_environment_and_folder_it_is_given(tmp_path: Path) -> None:
    given = CommandRunner({"PATH": os.environ["PATH"], "A": "1"}, cwd=tmp_path)
    said = await given.run(["sh", "-c", "pwd; env"], timeout_seconds=LIMIT_SECONDS)
    lines = said.out.splitlines()
    assert lines[0] == str(tmp_path)
    names = {line.partition("=")[0] for line in lines[1:]}
    assert names - {"PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"} == {"PATH", "A"}


def test_what_the_launcher_has_read_and_its_secrets_reach_no_command() -> None:
    environ = {"RDZV_TOKEN": "a", "RDZV_JOIN_FILE": "b", "RDZV_NNODES": "4", "NODE_RANK": "0"}
    kept = {"RDZV_STATE_DIR": "/s", "HOME": "/h", "NUM_NODES": "4"}
    assert outside_environment(environ | kept) == kept


@pytest.mark.parametrize(
    ("script", "stdin", "said"),
    [
        ("wc -c", "", Said(0, "0\n", "")),
        ("wc -c", "x" * 300_000, Said(0, "300000\n", "")),
        ("cat", "it's\nall\tthere, 한국어", Said(0, "it's\nall\tthere, 한국어", "")),
        ("true", "x" * 300_000, Said(0, "", "")),
        ("cat", None, Said(0, "", "")),
        ("kill -9 $$", None, Said(-signal.SIGKILL, "", "")),
    ],
    ids=range(6),
)
async def test_standard_input_is_read_to_its_end_or_not_at_all_and_a_signal_is_told(
    script: str, stdin: str | None, said: Said
) -> None:
    assert await run(script, stdin=stdin) == said


async def test_the_end_of_a_long_output_is_kept() -> None:
    said = await run("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo job 7")
    assert said.out.endswith("\njob 7\n")
    assert len(said.out) == 1 << 20


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x1b[1;32mjob\x1b[0m \x1b[38;5;9m7\x1b[K", "job 7"),
        (b"\x1b]0;a title\x07job 7", "job 7"),
        (b"\x1b]8;;http://h/7\x1b\\job 7\x1b]8;;\x1b\\", "job 7"),
        (b"\x1b]0;never ended\njob 7", "\njob 7"),
        (b"\x1b(Bjob\x1b= 7\x1bM", "job 7"),
        (b" 1%\r 50%\r100%\r\njob 7\r\n", " 1%\n 50%\n100%\njob 7\n"),
        (b"a\x00b\x07c\td\x9b\xff", "abc\td��"),
        ("한국어 中文 é".encode(), "한국어 中文 é"),
        (b"bad value 'rdzv1-\x1b[1meNqNUt-_9'", "bad value '(hidden)'"),
    ],
)
def test_colours_titles_and_control_characters_are_taken_out(data: bytes, text: str) -> None:
    assert clean(data) == text


@pytest.mark.parametrize(
    ("said", "ending"),
    [
        (Said(3, "out\n", " bad\n  worse \n"), "ended with exit code 3: bad worse"),
        (Said(1, "only out\n", "\n"), "ended with exit code 1: only out"),
        (Said(0, "", ""), "ended with exit code 0 and printed nothing"),
        (Said(-9, "", ""), "was ended by signal 9 and printed nothing"),
        (Said(None, "", "Waiting"), "did not answer in time: Waiting"),
        (Said(1, "", "x" * 500 + "end"), f"ended with exit code 1: …{'x' * 397}end"),
    ],
)
def test_how_a_command_ended_is_one_sentence(said: Said, ending: str) -> None:
    assert said.ending() == ending


@pytest.mark.real_time
async def test_a_command_at_its_time_limit_is_told_to_end_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_KILL_SECONDS", LIMIT_SECONDS / 2)
    time_out_once(monkeypatch, (tmp_path / "ready").exists)
    child = f"trap 'echo child; exit' TERM; : > {tmp_path}/ready; while :; do sleep 0.1; done"
    said = await run(f"trap 'wait; echo told; exit' TERM; ({child}) & echo $!; wait")
    assert said.code is None
    pid, *words = said.out.split()
    assert words == ["child", "told"]
    await soon(lambda: not lives(int(pid)))


@pytest.mark.real_time
@pytest.mark.parametrize(
    "script",
    [
        "trap '' TERM; echo $$; : > READY; while :; do sleep 0.1; done",
        "trap exit TERM; (trap '' TERM; : > READY; exec sleep 1000) & echo $!; wait",
    ],
    ids=["itself", "what it has started"],
)
async def test_what_does_not_listen_at_the_time_limit_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(command, "_KILL_SECONDS", 0.2)
    time_out_once(monkeypatch, (tmp_path / "ready").exists)
    said = await run(script.replace("READY", str(tmp_path / "ready")))
    assert said.code is None
    await soon(lambda: not lives(int(said.out)))


@pytest.mark.real_time
async def test_a_command_that_leaves_something_in_the_background_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "_DRAIN_SECONDS", 0.1)
    said = await run("sleep 1000 & echo $!")
    os.kill(int(said.out), signal.SIGKILL)
    assert said.code == 0


async def test_a_command_whose_caller_gives_up_is_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    work = asyncio.create_task(run(f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 1000"))
    await soon(pid.exists)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await soon(lambda: not lives(int(pid.read_text())))


@pytest.mark.parametrize(
    ("text", "words", "why"),
    [
        ("#!/nonexistent/python\n", [], "No such file or directory"),
        ("not a program", [], "Exec format error"),
        ("#!/bin/sh\n", ["a\0b"], "embedded null byte"),
    ],
)
async def test_a_command_that_cannot_be_started_says_why(
    tmp_path: Path, text: str, words: list[str], why: str
) -> None:
    program = tmp_path / "program"
    program.write_text(text)
    program.chmod(0o755)
    with pytest.raises(SchedulerError) as caught:
        await runner().run([str(program), *words], timeout_seconds=1)
    assert caught.value.message == f"'{program}' cannot be started: {why}"


async def test_lines_of_both_outputs_come_at_once_and_closing_ends_the_command() -> None:
    script = "echo $$; echo '\x1b[31mtwo\x1b[0m' >&2; exec sleep 1000"
    async with aclosing(runner().lines(["sh", "-c", script])) as lines:
        pid = int(await anext(lines))
        assert await anext(lines) == "two"
    await soon(lambda: not lives(pid))


async def test_a_last_line_without_an_end_and_one_beyond_measure_come_too() -> None:
    script = "print('x' * 3_000_000); print('last', end='')"
    got = [line async for line in runner().lines([sys.executable, "-c", script])]
    assert "".join(got) == "x" * 3_000_000 + "last"
    assert got[-1] == "last"


async def test_lines_of_a_command_that_fails_end_with_its_words() -> None:
    lines = runner().lines(["sh", "-c", "echo one; echo no such pod >&2; exit 4"])
    assert [await anext(lines), await anext(lines)] == ["one", "no such pod"]
    with pytest.raises(SchedulerError) as caught:
        await anext(lines)
    assert caught.value.message == "'sh' ended with exit code 4: no such pod"
