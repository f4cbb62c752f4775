"""A real torchrun and its ranks: what a terminal shows, what is folded, what is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.launching import RDZV, environment, launch, launching
from tests.support.nightly import ROUNDS, at_night
from tests.support.terminals import on_terminal, shown_lines
from tests.support.waiting import until

pytestmark = [
    pytest.mark.faults,
    pytest.mark.real_time,
    pytest.mark.torch,
    pytest.mark.timeout(120 * ROUNDS),
]

STOPPED = Path(__file__).parents[1] / "worker" / "launcher_outputs" / "torchrun-stopped.txt"
OWN = STOPPED.read_text("utf-8").splitlines()[4:]
"""What a torchrun prints because it is stopped."""
PLAIN = "import os\nprint('rank', os.environ['RANK'], 'is done')\n"
DDP = (
    "import os, torch, torch.distributed as dist\n"
    "from torch.nn.parallel import DistributedDataParallel\n"
    "dist.init_process_group('gloo')\n"
    "model = DistributedDataParallel(torch.nn.Linear(4, 4))\n"
    "for _ in range(5): model(torch.ones(2, 4)).sum().backward()\n"
    "print('rank', dist.get_rank(), 'is done')\n"
    "del model\n"  # torch 2.13 may abort at exit where gloo's threads meet one that is there
    "dist.destroy_process_group()\n"
)
LIKE_TORCHRUN = """
import os, signal, sys, time
text = open(sys.argv[1]).read().replace("14316", sys.argv[2])
def stopped(number, frame):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in text.splitlines(True):
        os.write(2, line.encode())
    os._exit(0)
signal.signal(signal.SIGTERM, stopped)
print("ready", flush=True)
while True:
    time.sleep(60)
"""
WRAPPER = """#!/bin/bash
stopped() {
    trap '' TERM
    while IFS= read -r line; do echo "${line//14316/$LOCAL_RANK-bash}" >&2; done < LINES
    wait
    exit 0
}
trap stopped TERM
PYTHON SCRIPT LINES $LOCAL_RANK-hook &
PYTHON -I SCRIPT LINES $LOCAL_RANK-isolated &
while true; do wait; done
"""
BOARD = re.compile(
    r"run r\d+   \w+   [\d.]+ s|slot  node  worker run .*"
    r"|\d +\d? +(-|submit\w+|running(: pid \d+)?) [\w. -]+"
    r"|waiting for .* left: .*|waiting for .* s left|running on \d nodes"
)
"""The rows of a board that forms."""
WHO = ("bash", "hook", "isolated")


def temporary(folder: Path) -> dict[str, str]:
    """An environment whose temporary files are in a folder of their own."""
    (folder / "tmp").mkdir(exist_ok=True)
    return {"TMPDIR": str(folder / "tmp")}


def left_in(folder: Path) -> list[str]:
    """What is left of its temporary files; torch keeps a cache there for the programs to come."""
    return [name for name in os.listdir(folder / "tmp") if not name.startswith("torchinductor_")]


def program(folder: Path, name: str, text: str, **words: str) -> list[str]:
    path = folder / name
    for word, meant in words.items():
        text = text.replace(word, meant)
    path.write_text(text)
    path.chmod(0o755)
    return [str(path)]


def strangers(lines: list[str]) -> list[str]:
    """Lines that are neither the program's nor a sentence of rdzv's."""
    known = re.compile(r"(\[\d\] )?(rank \d is done|rdzv\b.*)|")
    return [line for line in lines if not known.fullmatch(line.strip())]


@pytest.mark.parametrize("text", [PLAIN, at_night(DDP)], ids=["plain", "ddp"])
@pytest.mark.parametrize("terminal", [at_night(False), True], ids=["pipe", "terminal"])
def test_a_healthy_run_shows_the_program_and_rdzv_and_nothing_else(
    terminal: bool, text: str, tmp_path: Path
) -> None:
    command, size = program(tmp_path, "train.py", text), ("--nnodes", "2", "--nproc-per-node", "2")
    for number in range(ROUNDS):
        run, env = f"r{number}", temporary(tmp_path)
        if terminal:
            argv = [RDZV, "launch", "--rdzv-id", run, *size, "--", *command]
            there = environment(tmp_path / "s", TERM="xterm", **env)
            code, shown = on_terminal(argv, there, columns=200, seconds=60.0)
            lines = [line for line in shown_lines(shown) if not BOARD.fullmatch(line.strip())]
        else:
            outcome = launch(tmp_path / "s", *size, command=command, run=run, env=env)
            code, lines = outcome.code, [*outcome.out.splitlines(), *outcome.err.splitlines()]
        assert (code, strangers(lines)) == (0, [])
        assert {line for line in lines if "is done" in line} == {
            f"[{rank // 2}] rank {rank} is done" for rank in range(4)
        }
        assert left_in(tmp_path) == []


def stop(folder: Path, *options: str) -> tuple[str, str]:
    """What is shown of a run that is stopped, and its log."""
    words: Mapping[str, str] = {"PYTHON": "python3", "LINES": str(folder / "lines")}
    (folder / "lines").write_text("".join(f"{line}\n" for line in OWN))
    script = program(folder, "like.py", LIKE_TORCHRUN)[0]
    command = [
        "torchrun",
        "--no-python",
        *program(folder, "rank.sh", WRAPPER, SCRIPT=script, **words),
    ]
    size = ("--nnodes", "1", "--nproc-per-node", "2", "--prefix", *options)
    with launching(folder / "s", *size, command=command, env=temporary(folder)) as launched:
        log = launched.folder / "logs" / "node-0.log"
        until(lambda: log.exists() and log.read_text().count("ready") == 4)
        launched.signal(signal.SIGINT)
        outcome = launched.finish()
    assert outcome.code == 130
    assert left_in(folder) == []
    return outcome.err, log.read_text()


@pytest.mark.nightly
def test_what_ranks_print_at_a_stop_is_shown_whatever_it_looks_like(tmp_path: Path) -> None:
    """By the hook's stream, without the hook, and by a wrapper in another language."""
    shown, log = stop(tmp_path)
    for rank in range(2):
        for who in WHO:
            for line in OWN:
                if "14316" in line:
                    assert shown.count(line.replace("14316", f"{rank}-{who}") + "\n") == 1
    several = len(WHO) * 2
    for line in {line for line in OWN if "14316" not in line}:
        assert shown.count(f"[0] {line}\n") == several * OWN.count(line)
    assert log.count("Traceback (most recent call last):") == several + 1
    [folded] = re.findall(r"\[0\] rdzv: torchrun printed (\d+) lines when rdzv stopped it", shown)
    assert int(folded) >= 20
    [command] = re.findall(r"\[0\] rdzv: .*: rdzv (logs r --node 0 --lines \d+)\n", shown)
    there = environment(tmp_path / "s")
    read = subprocess.run([RDZV, *command.split()], env=there, capture_output=True, text=True)
    [pid] = re.findall(r" (\d+) torch/\S+ Received 15 death signal", log)
    for line in re.findall(f".* {pid} torch/distributed/elastic/.*", log):
        assert line in read.stdout
    assert f"Process {pid} got signal: 15\n" in read.stdout


@pytest.mark.nightly
def test_with_raw_output_all_of_it_is_shown(tmp_path: Path) -> None:
    shown, log = stop(tmp_path, "--raw-output")
    several = len(WHO) * 2
    assert shown.count("Traceback (most recent call last):") == several + 1
    assert shown.count("Setting OMP_NUM_THREADS") == 1
    assert "rdzv: torchrun" not in shown
    assert [f"[0] {line}" for line in log.splitlines() if f"[0] {line}\n" not in shown] == [
        "[0] ready"
    ] * 4


@pytest.mark.nightly
def test_of_a_failure_the_ranks_own_lines_are_shown_and_its_folders_go(tmp_path: Path) -> None:
    fails = "import os, time\nif os.environ['RANK'] == '3': raise ValueError('planted')\n"
    command = program(tmp_path, "train.py", fails + "time.sleep(60)\n")
    size = ("--nnodes", "2", "--nproc-per-node", "2", "--max-restarts", "1")
    outcome = launch(tmp_path / "s", *size, command=command, env=temporary(tmp_path))
    assert outcome.code == 1
    assert outcome.err.count("[1] ValueError: planted") == 2
    assert "torch/distributed" not in outcome.err
    assert outcome.err.count("[1] rdzv: torchrun printed ") == 2
    assert len(re.findall(r"\[0\] rdzv: .* lines when rdzv stopped it: ", outcome.err)) == 2
    assert left_in(tmp_path) == []
