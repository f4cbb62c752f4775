"""Completion in real shells: commands, options, runs, and files for COMMAND."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from launcher.cli import main
from tests.support.missing import give_up
from tests.support.nightly import at_night
from tests.support.waiting import SECONDS

BIN = str(Path(sys.executable).parent)
SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config"],
}
ZSH_FIRST = "autoload -Uz compinit; compinit -D -u; "


@pytest.fixture
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, str]]:
    """A shell's name, and an environment with one run, 'llama'."""
    name = str(request.param)
    if shutil.which(name) is None:
        give_up(f"{name} is not installed")
    (tmp_path / "llama").mkdir()
    path = f"{BIN}:{os.environ['PATH']}"
    more = {"RDZV_STATE_DIR": str(tmp_path), "HOME": str(tmp_path), "TERM": "vt100"}
    return name, {**os.environ, **more, "PATH": path, "PS1": "$ "}


def typed(argv: list[str], lines: dict[str, str], env: dict[str, str]) -> None:
    """Type each line into a shell on a terminal, once what the one before it prints is seen."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(argv[0], argv, env)
    try:
        for line, printed in lines.items():
            os.write(terminal, line.encode())
            _read_until(terminal, printed)
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def _read_until(terminal: int, printed: str) -> None:
    seen, deadline = "", time.monotonic() + SECONDS
    while printed not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"{printed!r} is not in {seen!r}"
        seen += os.read(terminal, 4096).decode(errors="replace")


@pytest.mark.real_time
@pytest.mark.parametrize("shell", ["bash", at_night("zsh")], indirect=True)
def test_a_shell_completes_commands_and_runs(shell: tuple[str, dict[str, str]]) -> None:
    name, env = shell
    load = f"source <(rdzv completion {name}); echo rea''dy\n"
    lines = {
        (ZSH_FIRST if name == "zsh" else "") + load: "ready\r",
        "rdzv stat\tll\t\n": "no run 'llama' was launched here",
    }
    typed(SHELLS[name], lines, env)


@pytest.mark.real_time
@pytest.mark.nightly
@pytest.mark.parametrize("shell", ["fish"], indirect=True)
def test_fish_completes_commands_and_runs(shell: tuple[str, dict[str, str]]) -> None:
    name, env = shell
    asked = "rdzv completion fish | source; complete -C 'rdzv stat'; complete -C 'rdzv status '"
    done = subprocess.run(
        [*SHELLS[name], "-c", asked], env=env, capture_output=True, text=True, check=True
    )
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["status", "llama"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("launch --sched", "plain,--scheduler plain,--scheduler-profile"),
        ("launch --scheduler slu", "plain,slurm"),
        ("launch --framework ten", "plain,tensorflow"),
        ("schedulers check kub", "plain,kubernetes"),
        ("launch --nnodes 2 -- tr", "file,tr"),
        ("replay x", ""),
    ],
)
def test_values_of_ours_are_completed(words: str, found: str, tmp_path: Path) -> None:
    count = len(words.split())
    env = {
        "_RDZV_COMPLETE": "bash_complete",
        "COMP_WORDS": f"rdzv {words}",
        "COMP_CWORD": str(count),
    }
    env["RDZV_STATE_DIR"] = str(tmp_path / "nowhere")
    result = CliRunner().invoke(main, prog_name="rdzv", env=env)
    assert result.stdout.split() == found.split()


def test_a_run_file_or_a_former_run_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("state/run-1", "runs"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("run.toml", "run.py"):
        (tmp_path / name).touch()
    env = {"_RDZV_COMPLETE": "bash_complete", "RDZV_STATE_DIR": str(tmp_path / "state")}

    def completed(words: str) -> list[str]:
        more = {"COMP_WORDS": f"rdzv {words}", "COMP_CWORD": str(len(words.split()))}
        return CliRunner().invoke(main, prog_name="rdzv", env=env | more).stdout.split()

    assert completed("launch -f ru") == ["plain,run.toml", "plain,runs/", "plain,run-1"]
    assert completed("launch -f x") == ["file,x"]
    assert completed("worker -f ru") == ["file,ru"]
